"""Convolution on AMX, NHWC: Y[pixels, oc] = epilogue(sum over window and ic of X[pixel + tap, ic] · W[oc, ic, tap]).

f32 from bf16 terms, see `irc.kernels.split_bf16.bf16_terms`; the numbers, and what becomes of infinities and NaN, are
those of `irc.kernels.gemm.split_bf16`.  For a strip of output rows the input under it is copied once, split into terms,
as planes [32 channels][term][row][column][channel], zeros standing for the padding: at most about 1 MiB, unless one row
needs more.  A tile of A is up to 16 pixels of a plane: with stride 1 of the strip's positions one after the other, the
padding between rows among them, else of one row.  A chunk of the sum is 32 channels of a tap.

With few channels the copy is one plane without gaps, [term][row][column][channel], and a chunk is 32 neighbours of it
in a row of the window; what stands beyond the window meets weights of zero.

Weights stand in the order of `irc.kernels.gemm.split_bf16`, k being [ic / 32][kh][kw][32], or [kh][kw · ic / 32][32].
Threads split rows, channels and pixels, never the sum: results do not depend on them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from typing import Any, Self

import numpy as np

from irc.expr import Expr, constant_of
from irc.ir.dim import Dim, product
from irc.ir.types import DType, f32
from irc.kernels.conv.problem import ConvProblem
from irc.kernels.conv.reference import convolve
from irc.kernels.core.base import RESIDUALS, Array, Kernel, Packed, Sizes
from irc.kernels.core.costs import BLOCK, CONFIGURE, SPLIT_PRODUCTS, SPLITTING, SPLITTING_B, unit_of
from irc.kernels.core.epilogue import Epilogue
from irc.kernels.core.isa import Isa
from irc.kernels.core.registry import kernel
from irc.kernels.core.text import Part, fill, symbol
from irc.kernels.core.tile import epilogue_of, prelude
from irc.kernels.gemm.split_bf16 import (
    PANEL_TILES,
    STRIPE,
    TASKS,
    VECTOR,
    WORTHWHILE,
    SplitGemmKernel,
    variant_of,
    widths_of,
)
from irc.kernels.split_bf16 import bf16_terms, dots, text
from irc.kernels.split_bf16.bf16_terms import CHUNK, PANEL, ROWS
from irc.kernels.vector import bf16_io
from irc.kernels.vector.pixels import STRIDES

_CALL = """
typedef struct {
    const $X *x;
    const $B *w;
    $Y *y;
    uint16_t *scratch;
    int64_t batch, groups, ic, oc, ih, iw, oh, ow, pad_h, pad_w, x_batch, x_row, x_pixel, y_batch, y_pixel;$slot_fields
    /* Chunks of 32 channels, and of the sum; columns of a plane, and its elements.  The strip: output rows y0 to y1, in
       `tiles` tiles of `height` pixels, `across` of them a row; into how many parts its tiles are divided. */
    int64_t channels, chunks, wide, plane, y0, y1, tiles, height, across, parts;
} ${S}_call;

/* Rows of a plane under n rows of the output. */
IRC_INLINE int64_t ${S}_tall(int64_t n) { return (n - 1) * $SH + $TALL; }

typedef struct {
    int64_t y, x; /* the first pixel of a tile, from the strip's first row on */
    const uint16_t *from;
} ${S}_spot;

IRC_INLINE ${S}_spot ${S}_find(const ${S}_call *g, int64_t tile) {
    if ($flat) {
        const int64_t at = tile * g->height;
        return (${S}_spot){at / g->wide, at % g->wide, g->scratch + at * $PIXEL};
    }
    const int64_t y = tile / g->across, x = tile % g->across * g->height;
    return (${S}_spot){y, x, g->scratch + (y * $SH * g->wide + x * $SW) * $PIXEL};
}
"""

_COPY = """
/* Rows begin to end of the planes. */
static void ${S}_copy_part(void *given, int64_t begin, int64_t end) {
    const ${S}_call *g = given;
    for (; begin < end; begin++) {
        const int64_t iy = (g->y0 * $SH + begin) * $ROW_STEP - g->pad_h;
        uint16_t *to = g->scratch + begin * g->wide * 32;
        for (int64_t at = 0; at < g->wide; at++, to += 32) {
            const int64_t ix = at * $COLUMN_STEP - g->pad_w;
            const int inside = iy >= 0 && iy < g->ih && ix >= 0 && ix < g->iw;
            const $X *from = inside ? g->x + iy * g->x_row + ix * g->x_pixel : g->x;
            for (int64_t c = 0; c < g->channels; c++, from += 32) {
                const int64_t have = inside ? g->ic - c * 32 : 0;
$load
            }
        }
    }
}
"""

_LOAD_F32 = """                irc_f32x16 x = {0}, y = {0};
                if (have >= 32) {
                    x = irc_f32x16_load(from);
                    y = irc_f32x16_load(from + 16);
                } else if (have > 0) {
                    x = irc_f32x16_load_part(from, have);
                    if (have > 16) y = irc_f32x16_load_part(from + 16, have - 16);
                }
                irc_split_$T(x, y, to + c * $T * g->plane, g->plane);"""

_LOAD_HALVES = """                irc_u16x32 x = {0};
                if (have >= 32) __builtin_memcpy(&x, from, 64);
                else if (have > 0) x = irc_halves_part(from, have);
                irc_bf16_store(to + c * g->plane, x);"""

_COPY_ROWS = """
/* Rows begin to end of the plane. */
static void ${S}_copy_part(void *given, int64_t begin, int64_t end) {
    const ${S}_call *g = given;
    const int64_t count = g->wide * $PIXEL, first = g->pad_w * $PIXEL, last = first + g->iw * $PIXEL;
    for (; begin < end; begin++) {
        const int64_t iy = (g->y0 * $SH + begin) * $ROW_STEP - g->pad_h;
        const int inside = iy >= 0 && iy < g->ih;
        const $X *const row = inside ? g->x + iy * g->x_row : g->x;
        uint16_t *const to = g->scratch + begin * count;
        for (int64_t at = 0; at < count; at += 32) {
            float copy[32] = {0};
            uint16_t terms[$T * 32];
            const int whole = inside && at >= first && at + 32 <= last && g->x_pixel == $PIXEL;
            if (inside && !whole && $PIXEL % 16 == 0) {
                for (int64_t i = 0; i < 32; i += 16) {
                    const int64_t k = at + i - first;
                    if (k < 0 || at + i >= last) continue;
                    irc_f32x16_store(copy + i, $LX(row + k / $PIXEL * g->x_pixel + k % $PIXEL));
                }
            } else if (inside && !whole)
                for (int64_t i = 0; i < 32; i++) {
                    const int64_t k = at + i - first;
                    if (k >= 0 && at + i < last) copy[i] = $VX(row[k / $PIXEL * g->x_pixel + k % $PIXEL]);
                }
            const int64_t left = count - at;
            const irc_f32x16 x = whole ? $LX(row + at - first) : irc_f32x16_load(copy);
            const irc_f32x16 y = whole ? $LX(row + at - first + 16) : irc_f32x16_load(copy + 16);
            if (left >= 32) {
                irc_split_$T(x, y, to + at, g->plane);
                continue;
            }
            irc_split_$T(x, y, terms, 32);
            for (int64_t t = 0; t < $T; t++)
                for (int64_t i = 0; i < left; i++) to[t * g->plane + at + i] = terms[t * 32 + i];
        }
    }
}
"""

_EXACT = """
$load_b
/* What element k of chunk c is for a pixel. */
IRC_INLINE float ${S}_value(const ${S}_call *g, ${S}_spot s, int64_t c, int64_t k) {
    $element
    const int64_t iy = (g->y0 + s.y) * $STRIDE_H + tap_y * $DH - g->pad_h;
    const int64_t ix = s.x * $STRIDE_W + tap_x * $DW - g->pad_w;
    const int inside = iy >= 0 && iy < g->ih && ix >= 0 && ix < g->iw && tap_x < $KW && channel < g->ic;
    return inside ? $VX(g->x[iy * g->x_row + ix * g->x_pixel + channel]) : 0;
}

/* The pixels of a tile and the panel at channel col in f32 throughout, from the input itself. */
static void ${S}_exact(const ${S}_call *g, const ${S}_out *o, const $B *b, ${S}_spot s, int64_t col) {
    for (int64_t i = 0; i < g->height && g->y0 + s.y < g->y1; i++, s.x++) {
        if ($flat && s.x == g->wide) {
            s.x = 0;
            if (g->y0 + ++s.y >= g->y1) return;
        }
        if (s.x >= g->ow) continue;
        irc_f32x16 sum[2] = {{0}};
        for (int64_t c = 0; c < g->chunks; c++) {
            irc_f32x16 part[2] = {{0}};
            for (int64_t k = 0; k < 32; k += 2) {
                irc_f32x16 even[2], odd[2];
                ${S}_load_b(b + c * $chunk + k / 2 * $pair, 1, even, odd);
                const float x0 = ${S}_value(g, s, c, k), x1 = ${S}_value(g, s, c, k + 1);
                for (int w = 0; w < 2; w++) part[w] += x0 * even[w] + x1 * odd[w];
            }
            for (int w = 0; w < 2; w++) sum[w] += part[w];
        }
        const int64_t pixel = (g->y0 + s.y) * g->ow + s.x;
        for (int w = 0; w < 2 && col + 16 * w < g->oc; w++) {
            const int64_t at = col + 16 * w;
            const irc_f32x16 y = ${S}_epilogue(o, sum[w], pixel, at, g->oc - at);
            ${SY}_part(o->c + pixel * o->c_row + at, y, g->oc - at);
        }
    }
}
"""

_PRODUCTS = """
/* A pixel of a block of 32 channels to Y, as below. */
IRC_INLINE irc_f32x16 ${S}_whole(const ${S}_out *o, const float *block, int64_t pixel, int64_t col, const int first,
                                 const int last) {
    irc_f32x16 poison = {0};
    IRC_FULL_UNROLL
    for (int w = 0; w < 2; w++) {
        $Y *const to = o->c + pixel * o->c_row + col + 16 * w;
        irc_f32x16 x = irc_f32x16_load(block + 16 * w);
        if (!first) x += $LY(to);
        if (last) {
            poison = irc_note(poison, x * 0.0f);
            x = ${S}_epilogue(o, x, pixel, col + 16 * w, 16);
        }
        $SY(to, x);
    }
    return poison;
}

/* The pixels of a tile to Y: earlier sums added, the epilogue applied when these are the last ones.  Whether a sum was
 * not finite. */
static int ${S}_finish(const ${S}_call *g, const ${S}_out *given, const float *block, ${S}_spot s, int64_t col,
                       int first, int last) {
    const ${S}_out own = *given, *const o = &own; /* stores do not change it */
    const int64_t left = g->oc - col, wide = g->wide, ow = g->ow, height = g->height, rows = g->y1 - g->y0;
    const int64_t start = g->y0 * ow;
    irc_f32x16 poison = {0};
    for (int64_t i = 0; i < height; i++, s.x++) {
        if ($flat && s.x == wide) {
            s.x = 0;
            s.y++;
        }
        if (s.x >= ow) continue;
        if (s.y >= rows) break;
        const int64_t pixel = start + s.y * ow + s.x;
        if (left >= 32) {
            if (first && last) poison = irc_note(poison, ${S}_whole(o, block + i * 32, pixel, col, 1, 1));
            else if (last) poison = irc_note(poison, ${S}_whole(o, block + i * 32, pixel, col, 0, 1));
            else if (first) ${S}_whole(o, block + i * 32, pixel, col, 1, 0);
            else ${S}_whole(o, block + i * 32, pixel, col, 0, 0);
            continue;
        }
        for (int w = 0; w < 2 && 16 * w < left; w++) {
            const int64_t part = left - 16 * w;
            $Y *const to = o->c + pixel * o->c_row + col + 16 * w;
            irc_f32x16 x = irc_f32x16_load(block + i * 32 + 16 * w);
            if (!first) x += part < 16 ? ${LY}_part(to, part) : $LY(to);
            if (last) {
                poison = irc_note(poison, x * 0.0f);
                x = ${S}_epilogue(o, x, pixel, col + 16 * w, part);
            }
            if (part < 16) ${SY}_part(to, x, part);
            else $SY(to, x);
        }
    }
    return irc_any_nan(poison);
}

/* Tiles tile to end with chunks c0 to c1 of the panel at channel col; meanwhile `next` comes nearer. */
static void ${S}_blocks(const ${S}_call *g, const ${S}_out *o, const $B *stored, const uint16_t *b, int64_t c0,
                        int64_t c1, int64_t tile, int64_t end, int64_t col, const $B *next$meanwhile) {
    _Alignas(64) float out[1024];
    int64_t offsets[$most_chunks];
    for (int64_t c = c0; c < c1; c++)
        offsets[c - c0] = $offset;
    const int first = c0 == 0, last = c1 == g->chunks;
    const int64_t chunks = c1 - c0, total = chunks * $panel_lines;
    const int64_t lines = 2 * $panel_lines / ((end - tile + 1) * $points) + 1;$pairs
    for (int64_t done = 0; tile < end; tile += 2, done += chunks * lines * $points) {
        const int64_t two = tile + 1 < end;
        const ${S}_spot s0 = ${S}_find(g, tile), s1 = ${S}_find(g, tile + two);
        const char *const ahead = (const char *)next + (done < total ? done * 64 : 0);
        const int64_t fetched = done < total ? lines : 0;
$choose
        if (${S}_finish(g, o, out, s0, col, first, last)) ${S}_exact(g, o, stored, s0, col);
        if (two && ${S}_finish(g, o, out + g->height * 32, s1, col, first, last)) ${S}_exact(g, o, stored, s1, col);
    }
}

/* Parts of the tiles × panels of channels, begin to end, of the strip that is copied. */
static void ${S}_part(void *given, int64_t begin, int64_t end) {
    const ${S}_call *g = given;
    const int64_t panels = (g->oc + 31) / 32, cuts = (g->chunks + $most_chunks - 1) / $most_chunks;
    const int64_t blocks = (g->tiles + 1) / 2;
    ${S}_out o = {.c = g->y, .c_row = g->y_pixel, .n = g->oc};$slots_here
$begin$first    for (; begin < end; begin++) {
        const int64_t at = begin / panels, p = begin % panels, stop = blocks * (at + 1) / g->parts * 2;
        const $B *const stored = g->w + p * g->chunks * $chunk;
        for (int64_t cut = 0; cut < cuts; cut++) {
            const int64_t c0 = g->chunks * cut / cuts, c1 = g->chunks * (cut + 1) / cuts;
            const $B *const next = stored + ($next : c0) * $chunk;
$operand
            ${S}_blocks(g, &o, stored, b, c0, c1, blocks * at / g->parts * 2, stop < g->tiles ? stop : g->tiles, p * 32,
                        next$split);
        }
    }
$end}
"""

_ENTRY = """
/* Output rows in strips of equal height whose planes fit. */
static void ${S}_image(${S}_call *g, const irc_pool *pool) {
    const int64_t panels = (g->oc + 31) / 32, fit = $room / (g->channels * $T * $PIXEL * g->wide);
    const int64_t most = fit < $TALL + $SH ? 1 : (fit - $TALL) / $SH + 1;
    const int64_t strips = (g->oh + most - 1) / most;
    const double work = (double)(g->oh * g->ow) * (double)g->oc * (double)g->chunks * (32 * $passes);
    const int alone = !pool || work < $worthwhile;
    for (int64_t strip = 0; strip < strips; strip++) {
        g->y0 = g->oh * strip / strips;
        g->y1 = g->oh * (strip + 1) / strips;
        const int64_t rows = g->y1 - g->y0, tall = ${S}_tall(rows);
        const int64_t length = $flat ? (rows - 1) * g->wide + g->ow : g->ow, count = (length + 15) / 16;
        g->plane = tall * g->wide * $PIXEL;
        for (int64_t i = 0; i < $beyond; i++) g->scratch[$T * g->plane + i] = 0; /* what the last pixels read */
        g->height = (length + count - 1) / count;
        g->across = (length + g->height - 1) / g->height;
        g->tiles = $flat ? g->across : g->across * rows;
        const int64_t blocks = (g->tiles + 1) / 2, wanted = ($tasks + panels - 1) / panels;
        g->parts = alone ? 1 : wanted < blocks ? wanted : blocks;
        if (alone) {
            ${S}_copy_part(g, 0, tall);
            ${S}_part(g, 0, g->parts * panels);
        } else {
            pool->parallel_for(pool->self, tall, ${S}_copy_part, g);
            pool->parallel_for(pool->self, g->parts * panels, ${S}_part, g);
        }
    }
}

void $S($parameters) {
    ${S}_call whole = {$fields};
    if (oc <= 0 || oh <= 0 || ow <= 0) return;
    whole.channels = $channels;
    whole.chunks = $chunks;
    whole.wide = ((ow - 1) * $SW + $WIDE + $ROUND) / ($ROUND + 1) * ($ROUND + 1);
    for (int64_t i = 0; i < batch; i++) {
        for (int64_t j = 0; j < groups; j++) {
            ${S}_call g = whole;
            g.x += i * x_batch + j * ic;
            g.w += j * ((oc + 31) / 32) * whole.chunks * $chunk;
            g.y += i * y_batch + j * oc;$slot_moves
            ${S}_image(&g, pool);
        }
    }
}
"""


@kernel
class SplitConvKernel(Kernel[ConvProblem]):
    """A generated convolution of NHWC tensors; called like `irc.kernels.conv.nhwc.NhwcConvKernel`, with scratch.

    few: input channels of a group where chunks run along the rows of the window; 0: a chunk is channels of a tap.
    x_half, y_half: X and Y are bf16 (`irc.kernels.vector.bf16_io`), of one term; Y only where `is_one_sum`.
    """

    terms: int
    window: tuple[int, int]
    strides: tuple[int, int]
    dilations: tuple[int, int]
    epilogue: Epilogue
    widths: tuple[int, ...]
    few: int = 0
    unit: bf16_terms.Unit = "amx"
    x_half: bool = False
    y_half: bool = False

    problem = ConvProblem

    @classmethod
    def candidates(cls, problem: ConvProblem, isa: Isa) -> Iterator[Self]:
        """Yield the variant for planes of known size, where something multiplies bf16 terms faster than f32."""
        p, terms = problem, bf16_terms.TERMS[problem.precision]
        unit = unit_of(isa, terms)
        if p.layout != "nhwc" or p.dtype != f32 or unit is None or not (p.has_known_planes and p.ic and p.oc):
            return
        yield cls(terms, *p.geometry, p.epilogue, widths_of(p.oc), few_of(p.ic, p.window, p.dilations), unit)

    def cycles(self, problem: ConvProblem) -> float:
        p, (oh, ow) = problem, map(int, problem.result)
        rows, depth = positions(oh, ow, self), self.depth(p.ic)
        covered = rows * -(-p.oc // ROWS) * ROWS * depth
        products = covered * self.executed / SPLIT_PRODUCTS[self.unit, self.terms]
        copied = oh * ow * self.strides[0] * self.strides[1] * (self.few or -(-p.ic // CHUNK) * CHUNK)
        splitting = copied * SPLITTING[self.terms] + p.oc * depth * SPLITTING_B[self.terms]
        around = CONFIGURE + BLOCK * -(-rows // 32) * -(-p.oc // PANEL)
        weights = p.waiting(VECTOR.isa, p.outputs * p.ic * p.taps * self.w_dtype.itemsize)
        return p.images * p.groups * (products + splitting + around) + weights

    @property
    def label(self) -> str:
        return "split bf16"

    def arguments_for(self, problem: ConvProblem) -> dict[str, Dim]:
        return problem.arguments() | problem.channel_arguments() | {"groups": Dim.of(problem.groups)}

    def scratch(self, problem: ConvProblem) -> Dim:
        return Dim.of(self.scratch_bytes(problem.ic, *map(int, problem.result)))

    def packed(self, problem: ConvProblem) -> Packed:
        groups, elements = problem.groups, self.packed_elements(problem.oc, problem.ic, problem.groups)
        key = ("bf16 terms of taps", self.terms, self.few, groups)
        return Packed(key, self.w_dtype, elements, lambda w: self.pack_weights(w, groups))

    def compute(self, reads: Sequence[Array], writes: Sequence[Array], sizes: Mapping[str, int]) -> None:
        """Convolve X as it is with the sums of the terms that are stored of the weights."""
        groups, ic, oc = sizes["groups"], sizes["ic"], sizes["oc"]
        stored = reads[1][: self.packed_elements(oc, ic, groups)].reshape(groups, -1)
        w = np.concatenate([self.unpack_weights(part, oc, ic) for part in stored])
        convolve("nhwc", w, groups, self.strides, self.dilations, self.epilogue, reads, writes, sizes)

    def reads_bf16(self, operand: int) -> bool:
        return self.terms == 1 and (operand == 0 or self.epilogue.is_residual(operand - RESIDUALS))

    def writes_bf16(self, sizes: Mapping[str, Expr]) -> bool:
        ic = constant_of(sizes["ic"])
        return self.terms == 1 and ic is not None and self.is_one_sum(ic)

    @cached_property
    def symbol(self) -> str:
        (kh, kw), (sh, sw), (dh, dw) = self.window, self.strides, self.dilations
        return symbol(
            f"conv_{self.unit}",
            self.terms,
            f"k{kh}x{kw}_s{sh}x{sw}_d{dh}x{dw}",
            f"{self.epilogue.key()}{self.widths}{self.few}{bf16_io.key(self.x_half, self.y_half)}",
        )

    @property
    def features(self) -> frozenset[str]:
        """What the processor must have beyond the vectors, in the names of /proc/cpuinfo."""
        return self._matrix.features

    @property
    def w_dtype(self) -> DType:
        """The element type of packed weights."""
        return self._matrix.b_dtype

    @property
    def pointers(self) -> tuple[tuple[str, str], ...]:
        """Name and C type of the pointers: read, written, scratch."""
        slots = self.epilogue.pointers("float")
        w = "float" if self.terms == 3 else "uint16_t"
        x, y = "uint16_t" if self.x_half else "float", "uint16_t" if self.y_half else "float"
        return (("x", f"const {x} *"), ("w", f"const {w} *"), *slots, ("y", f"{y} *"), ("scratch", "uint16_t *"))

    @property
    def sizes(self) -> tuple[str, ...]:
        """Names of the int64_t arguments, in order; ic and oc are those of one group, strides of memory in elements."""
        extents = "batch groups ic oc ih iw oh ow pad_h pad_w x_batch x_row x_pixel y_batch y_pixel"
        return (*extents.split(), *(f"s{i}_{f}" for i, f in self.epilogue.strides(*STRIDES)))

    @property
    def _matrix(self) -> SplitGemmKernel:
        """The matrix product whose weights are stored in the same way."""
        return SplitGemmKernel(self.terms, self.epilogue, (2, 1), self.widths, False, self.unit)

    def is_one_sum(self, ic: int) -> bool:
        """Whether sums over so many channels are finished at once."""
        return self.depth(ic) <= PANEL_TILES // self.terms * CHUNK

    def packed_elements(self, oc: int, ic: int, groups: int = 1) -> int:
        """Elements (`w_dtype`) of packed weights: `oc` output and `ic` input channels of a group."""
        return groups * int(self._matrix.packed_b_elements(oc, self.depth(ic)))

    def pack_weights(self, w: np.ndarray[Any, Any], groups: int = 1) -> np.ndarray[Any, Any]:
        """w[oc, ic, kh, kw] of all groups as the kernel reads it, flat; channels filled up with zeros."""
        oc, ic, (kh, kw) = w.shape[0] // groups, w.shape[1], self.window
        channels = -(-ic // CHUNK)
        if self.few:
            rows = w.reshape(groups, oc, ic, kh, kw).transpose(0, 3, 4, 2, 1).reshape(groups, kh, kw * ic, oc)
            full = np.zeros((groups, kh, self.depth(ic) // kh, oc), np.float32)
            full[:, :, : kw * ic] = rows
            return self._matrix.pack_b(full.reshape(groups, -1, oc)).ravel()
        full = np.zeros((groups, oc, channels * CHUNK, kh, kw), np.float32)
        full[:, :, :ic] = w.reshape(groups, oc, ic, kh, kw)
        split = full.reshape(groups, oc, channels, CHUNK, kh, kw).transpose(0, 2, 4, 5, 3, 1)
        return self._matrix.pack_b(split.reshape(groups, self.depth(ic), oc)).ravel()

    def unpack_weights(self, packed: np.ndarray[Any, Any], oc: int, ic: int) -> np.ndarray[Any, Any]:
        """w[oc, ic, kh, kw] of one group as the kernel takes it, f32; terms are added up."""
        b, (kh, kw) = self._matrix.unpack_b(packed, oc, self.depth(ic)), self.window
        if self.few:
            return b.reshape(kh, -1, oc)[:, : kw * ic].reshape(kh, kw, ic, oc).transpose(3, 2, 0, 1)
        return b.reshape(-1, *self.window, CHUNK, oc).transpose(4, 0, 3, 1, 2).reshape(oc, -1, *self.window)[:, :ic]

    def scratch_bytes(self, ic: int, oh: int, ow: int) -> int:
        """Bytes of scratch: the planes under the largest strip, and what a tile reads behind them."""
        g = self._geometry()
        pixel = self.few or -(-ic // CHUNK) * CHUNK  # elements of a term
        round_to = g["ROUND"] + 1
        wide = -(-((ow - 1) * g["SW"] + g["WIDE"]) // round_to) * round_to
        fit = g["room"] // (pixel * self.terms * wide)
        most = 1 if fit < g["TALL"] + g["SH"] else (fit - g["TALL"]) // g["SH"] + 1
        strips = -(-oh // most) if oh else 1
        tall = (-(-oh // strips) - 1) * g["SH"] + g["TALL"]
        behind = ROWS * g["PIXEL"] * max(g["SW"], 1) + CHUNK * self._across
        return 2 * (tall * wide * pixel * self.terms + behind)

    @property
    def executed(self) -> float:
        """Products of bf16 terms for each product."""
        return float(len(bf16_terms.ORDER[self.terms]))

    def flops(self, sizes: Sizes) -> Dim:
        """Floating-point operations of a call: two for each product of the definition."""
        extents = product(sizes[n] for n in ("batch", "groups", "oc", "ic", "oh", "ow"))
        return extents * (2 * self.window[0] * self.window[1])

    def parts(self) -> list[Part]:
        """What it is made of; needs the type irc_pool."""
        t, given, splitting = self.terms, self._names(), self.terms == 3
        load = fill(_LOAD_HALVES if self.x_half else _LOAD_F32, T=t)
        variants, row = [(r, w) for r in (2, 1) for w in self.widths], 2 * given["PIXEL"] * given["SW"]
        calls = "\n".join(
            f"        {variant_of(i, variants, 'g->oc - col')}"
            f"irc_taps_{bf16_terms.products_name(t, r, w, self.unit, splitting)}"
            f"(chunks, s0.from, s1.from, offsets, g->plane, {row}, g->height, b, out, 32,"
            f" ahead, fetched{bf16_terms.SPLITTING_ARGUMENTS if splitting else ''});"
            for i, (r, w) in enumerate(variants)
        )
        stored = f"            const uint16_t *const b = stored + c0 * {t * 1024};"
        around = bf16_terms.splitting_names(splitting, "(end - tile + 1) / 2") | {
            "points": bf16_terms.POINTS[self.unit],
            "first": fill(text.CONV_SPLIT_FIRST, **given) if splitting else "",
            "operand": fill(text.CONV_SPLIT_OPERAND, **given) if splitting else stored,
            "next": text.CONV_SPLIT_NEXT if splitting else text.CONV_NEXT,
        }
        return [
            prelude(VECTOR, self.epilogue),
            bf16_terms.TYPES,
            bf16_terms.head(self.unit),
            bf16_io.text(self.x_half, self.y_half, self.epilogue.halves),
            epilogue_of(self.symbol, VECTOR, self.epilogue, given["Y"]),
            bf16_terms.split(t) if self.few or not self.x_half else "",
            bf16_terms.SPLIT_PANEL if t == 3 else "",
            *(bf16_terms.taps(t, r, w, self.unit, splitting) for r, w in variants),
            fill(_CALL, **given),
            fill(_COPY_ROWS, **given) if self.few else fill(_COPY, **given, load=load),
            fill(_EXACT, **given, load_b=fill(text.LOAD_F32 if t == 3 else text.LOAD_TERMS, S=self.symbol, T=t)),
            fill(text.CONV_SPLIT, **given) if splitting else "",
            fill(_PRODUCTS, **given, **around, choose=calls),
            fill(_ENTRY, **given),
        ]

    @property
    def summary(self) -> str:
        """One line for the reader of the generated code."""
        (kh, kw), (sh, sw) = self.window, self.strides
        return f"Convolution {kh}x{kw}/{sh}x{sw}, NHWC, on AMX, bf16 terms of a value: {self.terms}."

    def _geometry(self) -> dict[str, int]:
        """Constants: of a window of one row or column, only those pixels are copied that it meets."""
        (kh, kw), (sh, sw), (dh, dw) = self.window, self.strides, self.dilations
        row_step, column_step = sh if kh == 1 else 1, sw if kw == 1 else 1
        return {
            "KH": kh,
            "KW": kw,
            "DH": dh,
            "DW": dw,
            "STRIDE_H": sh,
            "STRIDE_W": sw,
            "DY": dh,
            "DX": dw,
            "ROW_STEP": row_step,
            "COLUMN_STEP": column_step,
            "SH": sh // row_step,
            "SW": sw // column_step,
            "TALL": (kh - 1) * dh + 1,
            "WIDE": (kw - 1) * dw + 1,
            "room": STRIPE * ROWS * CHUNK,
            "PIXEL": self.few or CHUNK,
            "ROUND": 1 if self.few else 0,
        }

    @property
    def is_flat(self) -> bool:
        """Whether tiles run on from row to row; vectors need no tiles as high as can be."""
        g = self._geometry()
        return self.unit == "amx" and g["SH"] == g["SW"] == 1

    def _names(self) -> dict[str, Any]:
        """What the templates refer to."""
        t = self.terms
        fields = self.epilogue.fields("float", *STRIDES)
        return (
            self._geometry()
            | self._chunks()
            | bf16_io.names(self.x_half, self.y_half)
            | {
                "S": self.symbol,
                "B": "float" if t == 3 else "uint16_t",
                "T": t,
                "flat": int(self.is_flat),
                "slot_fields": fields,
                "slots_here": "".join(self._starts()),
                "slot_moves": "".join(self._moves()),
                "most_chunks": PANEL_TILES // t,
                "panel_lines": 64 if t == 3 else 32 * t,
                "chunk": 1024 if t == 3 else t * 1024,
                "pair": 64 if t == 3 else 32,
                "tasks": TASKS,
                "passes": len(bf16_terms.ORDER[t]),
                "worthwhile": WORTHWHILE,
                "parameters": self.parameters,
                "begin": bf16_terms.BEGIN[self.unit].format(rows="g->height"),
                "end": bf16_terms.END[self.unit],
                "fields": ", ".join(f".{n} = {n}" for n, _ in self.arguments[1:]),
            }
        )

    @property
    def _across(self) -> int:
        """Chunks of a row of the window, where they run along it."""
        return -(-self.window[1] * self.few // CHUNK)

    def depth(self, ic: int) -> int:
        """Length of the sum over `ic` channels, chunks filled up."""
        kh, kw = self.window
        return CHUNK * kh * (self._across if self.few else -(-ic // CHUNK) * kw)

    def _chunks(self) -> dict[str, str | int]:
        """What a chunk is."""
        if self.few:
            return {
                "channels": 1,
                "chunks": self.window[0] * self._across,
                "beyond": CHUNK * self._across,
                "offset": f"c / {self._across} * {self.dilations[0]} * g->wide * {self.few} + c % {self._across} * 32",
                "element": f"const int64_t tap_y = c / {self._across}, e = c % {self._across} * 32 + k;\n"
                f"    const int64_t tap_x = e / {self.few}, channel = e % {self.few};",
            }
        (kh, kw), (dh, dw) = self.window, self.dilations
        return {
            "channels": "(ic + 31) / 32",
            "chunks": f"whole.channels * {kh * kw}",
            "beyond": 0,
            "offset": f"c / {kh * kw} * {self.terms} * g->plane"
            f" + (c / {kw} % {kh} * {dh} * g->wide + c % {kw} * {dw}) * 32",
            "element": f"const int64_t tap_y = c / {kw} % {kh}, tap_x = c % {kw}, channel = c / {kh * kw} * 32 + k;",
        }

    def _starts(self) -> Iterator[str]:
        for i, axes in enumerate(self.epilogue.slots):
            yield f"\n    o.s{i} = g->s{i};"
            if axes in ("column", "full"):
                yield f"\n    o.s{i}_row = g->s{i}_pixel;"

    def _moves(self) -> Iterator[str]:
        for i, axes in enumerate(self.epilogue.slots):
            channel = " + j * oc" if axes in ("row", "full") else ""
            yield f"\n            g.s{i} += i * s{i}_batch{channel};"


def positions(oh: int, ow: int, kernel: SplitConvKernel) -> int:
    """Rows of tiles for oh × ow outputs, about: with the padding that flat tiles run over."""
    if kernel.is_flat:
        return oh * (ow + (kernel.window[1] - 1) * kernel.dilations[1])
    tiles = -(-ow // ROWS)
    high = -(-ow // tiles) if tiles else 1
    return oh * tiles * (ROWS if kernel.unit == "amx" else dots.covered(high))


def few_of(ic: int, window: tuple[int, int], dilations: tuple[int, int]) -> int:
    """`few` of the kernel for so many channels: where chunks along the rows of the window are fewer."""
    kw = window[1]
    return ic if dilations[1] == 1 < kw and -(-kw * ic // CHUNK) < kw * -(-ic // CHUNK) else 0
