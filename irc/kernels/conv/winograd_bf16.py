"""Winograd's F(2 × 2, 3 × 3), NHWC, from one bf16 term, on AVX512-BF16: `irc.kernels.conv.winograd` with pairs of bf16.

Tiles of 4 × 4 inputs are transformed in f32 and rounded to bf16 once: [16][chunk of 32 channels][tile][channel].
Each panel of 32 output channels is 16 products of `irc.kernels.split_bf16.dots`, whose sums are transformed back in f32
and pass through the epilogue.  Weights are transformed in f64 and rounded once; behind them stand the weights
themselves, rounded, in the order of `irc.kernels.gemm.split_bf16`, k being [3][3][ic].

Errors are 1.7 times those of direct sums of bf16 products: of independent inputs, the transforms multiply the variance
by 5 / 3 along each axis.  An output with a sum that is not finite (infinities, NaN, terms that overflow) is computed
again in f32, by the definition: that is what the weights themselves are for.

Threads split images, tiles and panels, never the sum: results do not depend on them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from typing import Self

import numpy as np

from irc.expr import Expr
from irc.ir.dim import Dim, DimLike, product
from irc.ir.types import DType, f32, u16
from irc.kernels.conv.problem import ConvProblem
from irc.kernels.conv.reference import convolve
from irc.kernels.conv.winograd import ENTRY, FEW_TASKS
from irc.kernels.conv.winograd_transforms import F2
from irc.kernels.core import costs
from irc.kernels.core.base import RESIDUALS, Array, Kernel, Packed, Sizes
from irc.kernels.core.costs import SPLIT_PRODUCTS, unit_of
from irc.kernels.core.epilogue import Epilogue
from irc.kernels.core.isa import Isa
from irc.kernels.core.registry import kernel
from irc.kernels.core.text import Part, fill, piece, symbol
from irc.kernels.core.tile import Tile, epilogue_of, names, prelude
from irc.kernels.core.workspace import DIVIDE
from irc.kernels.gemm.split_bf16 import VECTOR, WORTHWHILE, SplitGemmKernel, widths_of
from irc.kernels.split_bf16 import bf16_terms, dots, text
from irc.kernels.split_bf16.bf16_terms import CHUNK, PANEL
from irc.kernels.vector import bf16_io
from irc.kernels.vector.pixels import STRIDES, slot_starts

MOST_TILES = 128  # transformed at a time
FAR = 6  # pixels ahead that are fetched
DEEPEST = 64  # chunks of 32 channels: longer sums would have to be cut

_ENTER = """\
/* 16 channels of one tile, transformed and rounded: 4 x 4 pixels, those outside (a bit is 0) are zero.  Meanwhile
 * the pixels that a tile `far` elements on does not share with its neighbours come nearer. */
IRC_INLINE void irc_dot_winograd_enter_$X(const int whole, unsigned inside, const $X *from, int64_t row, int64_t pixel,
                                          int64_t channels, int64_t far, uint16_t *to, int64_t step) {
    irc_f32x16 t[4][4];
    IRC_FULL_UNROLL
    for (int y = 0; y < 4; y++, from += row) {
        irc_f32x16 d[4];
        IRC_FULL_UNROLL
        for (int x = 0; x < 4; x++) {
            const $X *p = from + x * pixel;
            if (whole) d[x] = $LX(p);
            else if (!(inside >> (4 * y + x) & 1)) d[x] = (irc_f32x16){0};
            else d[x] = channels >= 16 ? $LX(p) : ${LX}_part(p, channels);
            if (whole && y > 1 && x > 1) __builtin_prefetch(p + far);
        }
        t[y][0] = d[2] - d[0];
        t[y][1] = d[1] + d[2];
        t[y][2] = d[2] - d[1];
        t[y][3] = d[3] - d[1];
    }
    IRC_FULL_UNROLL
    for (int x = 0; x < 4; x++, to += step) {
        irc_bf16_store_16(to, t[2][x] - t[0][x]);
        irc_bf16_store_16(to + 4 * step, t[1][x] + t[2][x]);
        irc_bf16_store_16(to + 8 * step, t[2][x] - t[1][x]);
        irc_bf16_store_16(to + 12 * step, t[3][x] - t[1][x]);
    }
}
"""

_CALL = """
typedef struct {$fields
    /* Chunks of 32 input and panels of 32 output channels; tiles of an image, `across` in a row, up to `most` of them
       transformed at a time, in `groups`; `parts` of the panels are tasks of their own. */
    int64_t chunks, panels, across, tiles, groups, parts;
} ${S}_call;

/* For threads, groups of an even number, and parts of the panels where these are few. */
static void ${S}_plan(${S}_call *g, int alone) {
    g->chunks = (g->ic + 31) / 32;
    g->panels = (g->oc + 31) / 32;
    g->across = (g->ow + 1) / 2;
    g->tiles = (g->oh + 1) / 2 * g->across;
    g->groups = (g->tiles + g->most - 1) / g->most;
    g->parts = 1;
    if (alone || g->batch * g->groups >= $few) return;
    if (g->batch % 2 && g->groups < g->tiles) g->groups += g->groups % 2;
    const int64_t parts = ($few + g->batch * g->groups - 1) / (g->batch * g->groups);
    g->parts = parts < g->panels ? parts : g->panels;
}

/* Tiles t0 to t1 of an image, transformed. */
static void ${S}_enter(const ${S}_call *g, const $X *image, int64_t t0, int64_t t1, uint16_t *to, int64_t step) {
    const int64_t right = g->iw - 3, bottom = g->ih - 3, wide = g->across * 2 - g->pad_w, row = g->x_row;
    const int64_t pixel = g->x_pixel, whole = g->ic / 16, vectors = g->chunks * 2, most = g->most, far = $far * pixel;
    int64_t y = t0 / g->across * 2 - g->pad_h, x = t0 % g->across * 2 - g->pad_w;
    for (int64_t t = t0; t < t1; t++, to += 32) {
        const $X *from = image + y * row + x * pixel;
        const int every = y >= 0 && y < bottom && x >= 0 && x < right;
        unsigned inside = 0;
        if (!every)
            for (int k = 0; k < 16; k++)
                inside |= (unsigned)(y + k / 4 >= 0 && y + k / 4 < g->ih && x + k % 4 >= 0 && x + k % 4 < g->iw) << k;
        for (int64_t c = 0; c < vectors; c++, from += 16) {
            uint16_t *const at = to + c / 2 * (most * 32) + c % 2 * 16;
            if (every && c < whole) irc_dot_winograd_enter_$X(1, 0, from, row, pixel, 16, far, at, step);
            else {
                const unsigned here = c * 16 >= g->ic ? 0 : every ? 65535 : inside;
                irc_dot_winograd_enter_$X(0, here, from, row, pixel, g->ic - c * 16, far, at, step);
            }
        }
        x += 2;
        if (x < wide) continue;
        x = -g->pad_w;
        y += 2;
    }
}
$load_b
/* 16 channels of an output from `col` on, in f32 from the input itself. */
static irc_f32x16 ${S}_exact(const ${S}_call *g, const $X *image, int64_t oy, int64_t ox, int64_t col) {
    const uint16_t *w = g->w + g->panels * g->chunks * (16 * 1024) + col / 32 * g->chunks * (9 * 1024);
    irc_f32x16 sum = {0};
    for (int64_t tap = 0; tap < 9; tap++) {
        const int64_t y = oy + tap / 3 - g->pad_h, x = ox + tap % 3 - g->pad_w;
        const int inside = y >= 0 && y < g->ih && x >= 0 && x < g->iw;
        const $X *from = inside ? image + y * g->x_row + x * g->x_pixel : image;
        irc_f32x16 part = {0};
        for (int64_t c = 0; c < g->ic && inside; c += 2) {
            irc_f32x16 even[2], odd[2];
            ${S}_load_b(w + c / 32 * 1024 + c % 32 * 16, 1, even, odd);
            part += $VX(from[c]) * even[col / 16 % 2];
            if (c + 1 < g->ic) part += $VX(from[c + 1]) * odd[col / 16 % 2];
        }
        w += g->chunks * 1024;
        sum += part;
    }
    return sum;
}

/* Sums of tiles t0 to t1, for channels from `col` on, transformed back and through the epilogue to the output.  Whether
 * one was not finite; where it is `careful` those are computed again. */
IRC_INLINE int ${S}_leave(const ${S}_call *g, const ${S}_out *given, const $X *image, int64_t t0, int64_t t1,
                          int64_t col, const float *from, int64_t step, const int careful) {
    const ${S}_out own = *given, *const o = &own; /* stores do not change it */
    const int64_t across = g->across, oh = g->oh, ow = g->ow, oc = g->oc;
    irc_f32x16 poison = {0};
    int64_t oy = t0 / across * 2, ox = t0 % across * 2;
    for (int64_t t = t0; t < t1; t++, from += 32) {
        const int whole = oy + 1 < oh && ox + 1 < ow;
        for (int64_t v = 0; v < 2 && col + v * 16 < oc; v++) {
            const int64_t at = col + v * 16, left = oc - at;
            irc_f32x16 y[2][2];
            irc_winograd_2x2_leave_irc_f32x16(from + v * 16, step, y);
            IRC_FULL_UNROLL
            for (int k = 0; k < 4; k++) {
                if (!whole && (oy + k / 2 >= oh || ox + k % 2 >= ow)) continue;
                irc_f32x16 sum = y[k / 2][k % 2];
                if (careful && irc_any_nan(sum * 0.0f)) sum = ${S}_exact(g, image, oy + k / 2, ox + k % 2, at);
                else poison += sum * 0.0f;
                const int64_t pixel = (oy + k / 2) * ow + ox + k % 2;
                $Y *const to = o->c + pixel * o->c_row + at;
                if (left >= 16) $SY(to, ${S}_epilogue(o, sum, pixel, at, 16));
                else ${SY}_part(to, ${S}_epilogue(o, sum, pixel, at, left), left);
            }
        }
        ox += 2;
        if (ox < ow) continue;
        ox = 0;
        oy += 2;
    }
    return irc_any_nan(poison);
}

static __attribute__((noinline)) void ${S}_leave_carefully(const ${S}_call *g, const ${S}_out *o, const $X *image,
                                                           int64_t t0, int64_t t1, int64_t col, const float *from,
                                                           int64_t step) {
    ${S}_leave(g, o, image, t0, t1, col, from, step, 1);
}
"""

_BODY = """
/* One panel: 16 products of `tiles` rows; meanwhile the weights of the next one come nearer. */
static void ${S}_products(const ${S}_call *g, int64_t tiles, int64_t left, const uint16_t *v, int64_t v_step,
                          const uint16_t *w, float *m, int64_t m_step) {
    const int64_t chunks = g->chunks, blocks = (tiles + $rows - 1) / $rows, lines = (32 + blocks - 1) / blocks;
    (void)left;
    for (int64_t k = 0; k < 16; k++, w += chunks * 1024, v += v_step, m += m_step) {
        const char *ahead = (const char *)(w + chunks * 1024);
        for (int64_t b = 0; b < blocks; b++, ahead += chunks * lines * 64) {
            const int64_t r0 = tiles * b / blocks, r1 = tiles * (b + 1) / blocks;
$choose
        }
    }
}

/* Tasks begin to end: images, groups of tiles, parts of the panels (innermost; neighbours share the transform). */
static void ${S}_part(void *given, char *own, int64_t begin, int64_t end) {
    const ${S}_call *const g = given;
    /* Positions are no power of two apart. */
    const int64_t v_step = g->chunks * g->most * 32 + 32, m_step = g->most * 32 + 16;
    int64_t *const entered = (int64_t *)(void *)own; /* of which image and group the tiles stand in v */
    float *const m = (float *)(void *)(own + 64);
    uint16_t *const v = (uint16_t *)(void *)(m + 16 * m_step);
    while (begin < end) {
        const int64_t part = begin % g->parts, group = begin / g->parts % g->groups;
        const int64_t image = begin / g->parts / g->groups;
        const int64_t run = g->parts - part < end - begin ? g->parts - part : end - begin;
        const int64_t t0 = g->tiles * group / g->groups, t1 = g->tiles * (group + 1) / g->groups;
        const $X *const x = g->x + image * g->x_batch;
        ${S}_out o = {.c = g->y + image * g->y_batch, .c_row = g->y_pixel, .n = g->oc};$slot_starts
        if (*entered != begin / g->parts) ${S}_enter(g, x, t0, t1, v, v_step);
        *entered = begin / g->parts;
        for (int64_t p = g->panels * part / g->parts; p < g->panels * (part + run) / g->parts; p++) {
            ${S}_products(g, t1 - t0, g->oc - p * 32, v, v_step, g->w + p * g->chunks * (16 * 1024), m, m_step);
            if (${S}_leave(g, &o, x, t0, t1, p * 32, m, m_step, 0))
                ${S}_leave_carefully(g, &o, x, t0, t1, p * 32, m, m_step);
        }
        begin += run;
    }
}
"""


@kernel
class SplitWinogradKernel(Kernel[ConvProblem]):
    """A generated convolution 3 × 3, stride 1, of one bf16 term; called like `WinogradKernel`.

    widths: column tiles of the panels it has products for, as `irc.kernels.gemm.split_bf16.widths_of`.
    x_bf16, y_bf16: X and Y are bf16 (`irc.kernels.vector.bf16_io`).
    """

    epilogue: Epilogue
    widths: tuple[int, ...]
    x_bf16: bool = False
    y_bf16: bool = False

    problem = ConvProblem

    @classmethod
    def candidates(cls, problem: ConvProblem, isa: Isa) -> Iterator[Self]:
        """Yield the variant for planes of known size, if vectors multiply pairs of bf16."""
        p = problem
        if p.layout != "nhwc" or not p.is_regular_3x3 or p.groups > 1 or p.dtype != f32 or not p.has_known_planes:
            return
        if unit_of(isa, bf16_terms.TERMS[p.precision]) == "dot" and 0 < p.ic <= DEEPEST * CHUNK and p.oc:
            yield cls(p.epilogue, widths_of(p.oc))

    def cycles(self, problem: ConvProblem) -> float:
        """Estimate 16 products (half a panel counts as a whole one), transforms and 16 / 9 of the weights."""
        p, lanes = problem, VECTOR.lanes
        tiles, depth, columns = int(p.runs(2, 2)), -(-p.ic // CHUNK) * CHUNK, -(-p.oc // lanes)
        products = 16 * tiles * depth * -(-p.oc // PANEL) * PANEL / (SPLIT_PRODUCTS["dot", 1] * costs.WINOGRAD_SPLIT)
        transforms = tiles * (depth // lanes * costs.TRANSFORM_SPLIT + columns * costs.TRANSFORM_SPLIT_BACK)
        return p.images * (products + transforms) + p.waiting(VECTOR.isa, 16 * p.oc * p.ic * u16.itemsize)

    @property
    def label(self) -> str:
        return "winograd, split bf16"

    def arguments_for(self, problem: ConvProblem) -> dict[str, Dim]:
        most = Dim.of(self.most(problem.ic, problem.runs(2, 2)))
        return problem.arguments() | problem.channel_arguments() | {"most": most}

    def packed(self, problem: ConvProblem) -> Packed:
        elements = self.packed_elements(problem.oc, problem.ic)
        return Packed(("winograd bf16",), u16, elements, self.pack_weights)

    def compute(self, reads: Sequence[Array], writes: Sequence[Array], sizes: Mapping[str, int]) -> None:
        oc, ic = sizes["oc"], sizes["ic"]
        w = self.unpack_weights(reads[1][: self.packed_elements(oc, ic)], oc, ic)
        convolve("nhwc", w, 1, (1, 1), (1, 1), self.epilogue, reads, writes, sizes)

    @property
    def tile(self) -> Tile:
        return VECTOR

    def reads_bf16(self, operand: int) -> bool:
        return operand == 0 or self.epilogue.is_residual(operand - RESIDUALS)

    def writes_bf16(self, sizes: Mapping[str, Expr]) -> bool:
        return True

    @cached_property
    def symbol(self) -> str:
        return symbol("winograd_conv_dot", f"{self.epilogue.key()}{self.widths}{bf16_io.key(self.x_bf16, self.y_bf16)}")

    @property
    def features(self) -> frozenset[str]:
        return bf16_terms.FEATURES["dot"]

    @property
    def w_dtype(self) -> DType:
        """The element type of packed weights."""
        return u16

    @property
    def pointers(self) -> tuple[tuple[str, str], ...]:
        x, y = "uint16_t" if self.x_bf16 else "float", "uint16_t" if self.y_bf16 else "float"
        read = (("x", f"const {x} *"), ("w", "const uint16_t *"), *self.epilogue.pointers("float"))
        return (*read, ("y", f"{y} *"))

    @property
    def sizes(self) -> tuple[str, ...]:
        extents = "batch ic oc ih iw oh ow pad_h pad_w most x_batch x_row x_pixel y_batch y_pixel"
        return (*extents.split(), *(f"s{i}_{f}" for i, f in self.epilogue.strides(*STRIDES)))

    @property
    def _matrix(self) -> SplitGemmKernel:
        """The matrix product whose weights are stored in the same way."""
        return SplitGemmKernel(1, self.epilogue, (2, 1), self.widths, False, "dot")

    def most(self, ic: int, tiles: DimLike) -> int:
        """Choose `most` for images of this many tiles: what is transformed at a time takes half of the second cache."""
        at_once = VECTOR.isa.l2 // 2 // (16 * (-(-ic // CHUNK) * CHUNK * 2 + PANEL * 4))
        most = max(dots.MOST_ROWS, min(MOST_TILES, at_once))
        known = Dim.of(tiles).const
        return -(-known // -(-known // most)) if known else most

    def own_bytes(self, sizes: Mapping[str, int]) -> int:
        depth, most = -(-sizes["ic"] // CHUNK) * CHUNK, sizes["most"]
        return 64 + 16 * ((depth * most + CHUNK) * 2 + (most * PANEL + 16) * 4)

    def packed_elements(self, oc: int, ic: int) -> int:
        """Count the elements of packed weights: 16 transformed and 9 plain ones for each window."""
        return 25 * -(-oc // PANEL) * PANEL * -(-ic // CHUNK) * CHUNK

    def pack_weights(self, w: Array) -> Array:
        """Pack w[oc, ic, 3, 3], transformed and plain, flat; channels are filled up with zeros."""
        oc, ic = w.shape[:2]
        depth, panels = -(-ic // CHUNK) * CHUNK, -(-oc // PANEL)
        full = np.zeros((3, 3, depth, oc), np.float32)
        full[:, :, :ic] = w.transpose(2, 3, 1, 0)
        made = np.einsum("ay,yxio,bx->abio", F2.line(3), full.astype(np.float64), F2.line(3), optimize=True)
        with np.errstate(over="ignore"):
            made = self._matrix.pack_b(made.reshape(16, depth, oc).astype(np.float32))
        made = made.reshape(16, panels, -1).transpose(1, 0, 2)
        return np.concatenate([made.ravel(), self._matrix.pack_b(full.reshape(-1, oc)).ravel()])

    def unpack_weights(self, packed: Array, oc: int, ic: int) -> Array:
        """Unpack the plain w[oc, ic, 3, 3], f32."""
        depth, panels = -(-ic // CHUNK) * CHUNK, -(-oc // PANEL)
        b = self._matrix.unpack_b(packed[16 * panels * PANEL * depth :], oc, 9 * depth)
        return b.reshape(3, 3, depth, oc)[:, :, :ic].transpose(3, 2, 0, 1)

    @property
    def executed(self) -> float:
        """16 products instead of 36."""
        return 16 / 36

    def flops(self, sizes: Sizes) -> Dim:
        return 18 * product(sizes[n] for n in ("batch", "oc", "ic", "oh", "ow"))

    @property
    def summary(self) -> str:
        return "Convolution 3x3 by Winograd's F(2x2, 3x3), NHWC, of pairs of bf16."

    def parts(self) -> list[Part]:
        call = "irc_dots_{}_rows(r1 - r0, chunks, 32, v + r0 * 32, 32, g->most * 32, 0, w, m + r0 * 32, 32, ahead,"
        call += " lines);"
        calls = [f"            {call.format(w)}" for w in self.widths]
        if len(calls) == 2:
            calls = [f"            if (left > 16) {calls[0].strip()}", f"            else {calls[1].strip()}"]
        given = names(VECTOR) | bf16_io.names(self.x_bf16, self.y_bf16)
        given |= {"S": self.symbol} | self.interface
        given |= {"few": FEW_TASKS, "worthwhile": WORTHWHILE, "rows": dots.MOST_ROWS, "far": FAR}
        given |= {"choose": "\n".join(calls), "slot_starts": slot_starts(self.epilogue)}
        given["load_b"] = fill(text.LOAD_TERMS, S=self.symbol, T=1)
        return [
            prelude(VECTOR, self.epilogue),
            DIVIDE,
            bf16_terms.TYPES,
            bf16_terms.head("dot"),
            *(dots.core(w) for w in self.widths),
            bf16_io.text(self.x_bf16, self.y_bf16, self.epilogue.bf16_slots),
            *F2.parts(given),
            piece("IRC_DOT_WINOGRAD_$X", _ENTER, **given),
            epilogue_of(self.symbol, VECTOR, self.epilogue, given["Y"]),
            fill(_CALL, **given),
            fill(_BODY, **given),
            fill(ENTRY, **given, images="g->batch", pieces="g->batch * call.groups"),
        ]
