"""Convolutions 3 × 3 of bytes with stride 1 by Winograd's F(2 × 2, 3 × 3), with the channels last, exact.

Where the processor multiplies words and not fours of bytes, bytes become words in any case, and words have room for
what the transforms add up: inputs less the zero point grow to at most 1020, weights, four times those of the filtering
so that they are whole, to 1152.  A square of four results then takes 16 products instead of 36.  Their sums are four
times the convolution's, which fits into 32 bits up to `MOST_CHANNELS` channels: the rest of a division by four is 0.

Some tiles at a time are transformed, [position][tile][channel]; then each panel of outputs is 16 products of words, of
which those of a tile are transformed back.  Panels are those of `irc.kernels.integer.tile`, one for each position,
behind what is added to the sums of all outputs.  Nothing outside the input is read.

Threads split images, tiles and panels, never a sum.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from typing import Any, Self

import numpy as np

from irc.ir.dim import Dim
from irc.ir.types import DType, f32, i8
from irc.kernels.conv.winograd_transforms import F2
from irc.kernels.core.base import Array, Packed
from irc.kernels.core.costs import SECOND_CACHE, WORDS_ENTER, WORDS_LEAVE, costs_of
from irc.kernels.core.epilogue import Epilogue
from irc.kernels.core.isa import Isa
from irc.kernels.core.problem import likely_extent
from irc.kernels.core.registry import kernel
from irc.kernels.core.text import Part, fill, symbol
from irc.kernels.core.tile import Tile
from irc.kernels.core.workspace import DIVIDE
from irc.kernels.integer.problem import SETS, STEP, IntegerConvProblem
from irc.kernels.integer.results import FINISH
from irc.kernels.integer.tile import BytesTile
from irc.kernels.integer.windows import WindowsOfBytes

TILES = {"avx512": ((8, 2), (8, 1)), "avx2": ((6, 2), (4, 2), (6, 1))}
"""Rows and vectors of accumulators, by instruction set."""
MOST_CHANNELS = (1 << 29) // (9 * 255 * 128)
"""Channels whose sums, four times as large, fit into 32 bits."""
LEAST_TILES, MOST_TILES = 16, 64
"""Tiles that are transformed at a time: what they take is half of the second cache, within these bounds."""
FEW_TASKS = 16
"""With fewer, outputs are split too."""
WORTHWHILE = 400_000
"""Products below which one thread does all."""

_WORK = """
typedef int16_t ${S}_words __attribute__((vector_size($bytes)));
typedef uint32_t ${S}_sums __attribute__((vector_size($bytes)));
typedef $B ${S}_bytes __attribute__((vector_size($half), aligned(1), may_alias));
/* depth: words of a tile's channels; step, hop: between positions, of words and of sums; tiles of an image, `across` in
   a row, in `chunks` of at most g->most; `parts` of the panels are tasks of their own. */
typedef struct {
    const ${S}_args *g;
    const int8_t *panels_at;
    irc_bytes_walk walk;
    int64_t depth, step, hop, size, across, tiles, panels, chunks, parts;
    int16_t zero;$rounding_field
} ${S}_work;
"""

_TRANSFORMS = """
IRC_INLINE void ${S}_enter_line(const ${S}_words d[4], ${S}_words t[4]) {
    t[0] = d[2] - d[0];
    t[1] = d[1] + d[2];
    t[2] = d[2] - d[1];
    t[3] = d[3] - d[1];
}

/* Some channels of the 4 x 4 pixels of a tile; whole: all pixels are inside, and there are as many channels. */
IRC_INLINE void ${S}_enter_some(const int whole, const ${S}_work *w, const $B *from, int64_t y, int64_t x, int64_t n,
                                int16_t *to) {
    const ${S}_args *g = w->g;
    ${S}_words t[4][4]; /* by columns */
    IRC_FULL_UNROLL
    for (int i = 0; i < 4; i++) {
        ${S}_words d[4];
        IRC_FULL_UNROLL
        for (int k = 0; k < 4; k++) {
            const $B *p = from + k * g->x_row + i * g->x_pixel;
            ${S}_bytes b = {0};
            d[k] = (${S}_words){0};
            if (!whole) {
                if (y + k < 0 || y + k >= g->ih || x + i < 0 || x + i >= g->iw) continue;
                if (n >= $half) b = *(const ${S}_bytes *)p;
                else __builtin_memcpy(&b, p, (size_t)n);
            } else {
                b = *(const ${S}_bytes *)p;
            }
            d[k] = __builtin_convertvector(b, ${S}_words) - w->zero;
        }
        ${S}_enter_line(d, t[i]);
    }
    IRC_FULL_UNROLL
    for (int k = 0; k < 4; k++) {
        const ${S}_words line[4] = {t[0][k], t[1][k], t[2][k], t[3][k]};
        ${S}_words made[4];
        ${S}_enter_line(line, made);
        IRC_FULL_UNROLL
        for (int i = 0; i < 4; i++) $store(to + (4 * k + i) * w->step, ($M)made[i]);
    }
}

IRC_APART void ${S}_enter_edge(const ${S}_work *w, const $B *from, int64_t y, int64_t x, int64_t n, int16_t *to) {
    ${S}_enter_some(0, w, from, y, x, n, to);
}

/* Tiles t0 to t1 of an image. */
static void ${S}_enter(const ${S}_work *w, const $B *image, int64_t t0, int64_t t1, int16_t *to) {
    const ${S}_args *g = w->g;
    for (int64_t t = t0; t < t1; t++, to += w->depth) {
        const int64_t y = t / w->across * 2 - g->pad_h, x = t % w->across * 2 - g->pad_w;
        const int inside = y >= 0 && x >= 0 && y + 4 <= g->ih && x + 4 <= g->iw;
        const $B *from = image + y * g->x_row + x * g->x_pixel;
        int64_t c = 0;
        if (inside)
            for (; c + $half <= g->ic; c += $half) ${S}_enter_some(1, w, from + c, y, x, $half, to + c);
        for (; c < g->ic; c += $half) ${S}_enter_edge(w, from + c, y, x, g->ic - c, to + c);
    }
}

/* Results of tiles t0 to t1, of a panel's outputs, from sums of all positions. */
static void ${S}_leave(const ${S}_work *w, const ${S}_out *o, int64_t t0, int64_t t1, int64_t panel,
                       const int32_t *from) {
    const ${S}_args *g = w->g;
    const int8_t *const own = g->w + panel * $NR * 4;
    for (int64_t t = t0; t < t1; t++, from += $NR) {
        const int64_t y = t / w->across * 2, x = t % w->across * 2, wide = g->ow - x < 2 ? 1 : 2;
        int32_t sums[4 * $NR];
        IRC_FULL_UNROLL
        for (int v = 0; v < $NR; v += $lanes) {
            const $M added = $load(own + v * 4);
            ${S}_sums m[4][2];
            IRC_FULL_UNROLL
            for (int k = 0; k < 4; k++) {
                const int32_t *const row = from + 4 * k * w->hop + v;
                const ${S}_sums a = (${S}_sums)$load(row), b = (${S}_sums)$load(row + w->hop);
                const ${S}_sums c = (${S}_sums)$load(row + 2 * w->hop), d = (${S}_sums)$load(row + 3 * w->hop);
                m[k][0] = a + b + c;
                m[k][1] = b - c + d;
            }
            IRC_FULL_UNROLL
            for (int i = 0; i < 2; i++) {
                const ${S}_sums near = m[0][i] + m[1][i] + m[2][i], far = m[1][i] - m[2][i] + m[3][i];
                $store(sums + i * $NR + v, ${mm}_add_epi32(${mm}_srai_epi32(($M)near, 2), added));
                $store(sums + (2 + i) * $NR + v, ${mm}_add_epi32(${mm}_srai_epi32(($M)far, 2), added));
            }
        }
        for (int64_t k = 0; k < 2 && y + k < g->oh; k++)
            ${S}_finish(w, o, sums + k * 2 * $NR, wide, (y + k) * g->ow + x, panel * $NR, g->oc - panel * $NR);
    }
}
"""

_BODY = """
/* Tasks: images, chunks of tiles, parts of the panels, innermost: those beside each other share what is transformed. */
static void ${S}_part(void *given, char *memory, int64_t begin, int64_t end) {
    static void (*const tiles_of[])(const int16_t *, const int64_t *, const irc_bytes_walk *, const int8_t *, int64_t,
                                    int32_t, int32_t *) = {$table};
    const ${S}_work *w = given;
    const ${S}_args *g = w->g;
    int16_t *const words = (int16_t *)memory;
    int32_t *const products = (int32_t *)(words + 16 * w->step);
    while (begin < end) {
        const int64_t part = begin % w->parts, chunk = begin / w->parts % w->chunks;
        const int64_t image = begin / w->parts / w->chunks;
        const int64_t run = w->parts - part < end - begin ? w->parts - part : end - begin;
        const int64_t t0 = w->tiles * chunk / w->chunks, t1 = w->tiles * (chunk + 1) / w->chunks;
        ${S}_out o = {.c = g->y + image * g->y_batch, .c_row = g->y_pixel};
        (void)o.n;$slot_starts
        ${S}_enter(w, g->x + image * g->x_batch, t0, t1, words);
        for (int64_t p = w->panels * part / w->parts; p < w->panels * (part + run) / w->parts; p++) {
            for (int64_t k = 0; k < 16; k++) {
                const int8_t *const panel = w->panels_at + (p * 16 + k) * w->size;
                for (int64_t t = 0; t < t1 - t0; t += $MR) {
                    const int64_t rows = t1 - t0 - t < $MR ? t1 - t0 - t : $MR;
                    int64_t at[$MR];
                    for (int64_t i = 0; i < $MR; i++) at[i] = (t + i) * w->depth;
                    tiles_of[rows - 1](words + k * w->step, at, &w->walk, panel, t == 0 ? w->size : 0, 0,
                                       products + k * w->hop + t * $NR);
                }
            }
            ${S}_leave(w, &o, t0, t1, p, products);
        }
        begin += run;
    }
}

void $S($parameters) {
    if (g->batch <= 0 || g->oh <= 0 || g->ow <= 0) return;
    const int64_t groups = (g->ic + $step - 1) / $step;
    ${S}_work w = {.g = g, .walk = {1, 0, 1, 0, groups}, .zero = (int16_t)$zero};$rounding
    w.depth = (g->ic + $half - 1) / $half * $half;
    w.step = g->most * w.depth + $half; /* positions are no power of two apart */
    w.hop = g->most * $NR + $lanes;
    w.size = 4 * $NR * (2 + groups);
    w.across = (g->ow + 1) / 2;
    w.tiles = (g->oh + 1) / 2 * w.across;
    w.panels = (g->oc + $NR - 1) / $NR;
    w.panels_at = g->w + w.panels * $NR * 4;
    w.chunks = (w.tiles + g->most - 1) / g->most;
    w.parts = g->batch * w.chunks >= $few ? 1 : w.panels < $few ? w.panels : $few;
    const int64_t tasks = g->batch * w.chunks * w.parts;
    const double work = (double)(g->batch * g->oh * g->ow) * (double)g->oc * (double)(9 * g->ic);
    if (!pool || tasks < 2 || work < $worthwhile) ${S}_part(&w, g->own, 0, tasks);
    else irc_divide(pool, tasks, ${S}_part, &w, g->own, g->own_bytes, g->owners);
}
"""


@kernel
class IntegerWinogradKernel(WindowsOfBytes):
    """A generated convolution 3 × 3 of bytes."""

    isa: Isa
    rows: int
    vectors: int
    signed: bool
    zeroed: bool
    stored: DType
    fits: bool
    epilogue: Epilogue

    @classmethod
    def candidates(cls, problem: IntegerConvProblem, isa: Isa) -> Iterator[Self]:
        p = problem
        possible = p.is_regular_3x3 and p.groups == 1 and not p.is_volume and p.ic <= MOST_CHANNELS
        if possible and isa.name in SETS and not isa.fours:
            for rows, vectors in TILES[isa.name]:
                given = (problem.signed, problem.zeroed, problem.stored, problem.rounding.fits, problem.epilogue)
                yield cls(isa, rows, vectors, *given)

    def cycles(self, problem: IntegerConvProblem) -> float:
        """Estimate the products, as `IntegerConvKernel` does, the transforms, and the more of weights."""
        tiles, panels = likely_extent(problem.runs(2, 2)), -(-problem.oc // self.tile.columns)
        groups = -(-problem.ic // STEP["pairs"])

        def tile(rows: int) -> float:
            each = max(2 * rows * self.vectors / self.isa.fma, (rows + self.vectors) / 2)
            return groups * max(each, 4 if rows * self.vectors < 8 else 0) + 2 * rows * self.vectors + 20

        whole, rest = divmod(tiles, self.rows)
        rows = whole * tile(self.rows) + (tile(rest) if rest else 0)
        leave = -(-problem.oc // self.tile.lanes) * (WORDS_LEAVE + 4 * FINISH[self.stored])
        transforms = tiles * (-(-problem.ic // (self.isa.vector // 2)) * WORDS_ENTER + leave)
        near = SECOND_CACHE if problem.resident else costs_of(self.isa).winograd_stream
        weights = (16 * 2 - 9) * problem.oc * problem.ic / near
        return problem.images * (16 * panels * rows + transforms) + weights

    @property
    def tile(self) -> BytesTile:
        return BytesTile(self.isa, "pairs", self.rows, self.vectors)

    @property
    def label(self) -> str:
        return f"winograd {self.rows}x{self.tile.columns}"

    def arguments_for(self, problem: IntegerConvProblem) -> dict[str, Dim]:
        return super().arguments_for(problem) | {"most": Dim.of(self._most(problem))}

    def _most(self, problem: IntegerConvProblem) -> int:
        """Choose how many tiles are transformed at a time."""
        tile = 16 * (2 * self._depth(problem.ic) + 4 * self.tile.columns)
        most = min(max(self.isa.l2 // 2 // tile, LEAST_TILES), MOST_TILES)
        return min(most, problem.runs(2, 2).const or most)

    def _depth(self, ic: int) -> int:
        half = self.isa.vector // 2
        return -(-ic // half) * half

    def own_bytes(self, sizes: Mapping[str, int]) -> int:
        words = sizes["most"] * self._depth(sizes["ic"]) + self.isa.vector // 2
        return 16 * (2 * words + 4 * (sizes["most"] * self.tile.columns + self.tile.lanes))

    def packed(self, problem: IntegerConvProblem) -> Packed:
        """Describe what is added to each output's sums, then panels of transformed weights: [panel of oc][position]."""
        panels, groups = -(-problem.oc // self.tile.columns), -(-problem.ic // STEP["pairs"])
        elements = panels * self.tile.columns * 4 * (1 + 16 * (2 + groups))
        return Packed(("winograd", self.tile.columns), i8, elements, self._pack)

    def _pack(self, rows: Array) -> Array:
        outputs, columns = rows.shape[0], self.tile.columns
        panels, ic = -(-outputs // columns), rows[:, 1:].shape[1] // 9
        whole = np.zeros((16, panels * columns, -(-ic // 2) * 2), np.int16)
        taps, g = rows[:, 1:].reshape(outputs, ic, 3, 3).astype(np.int64), (2 * F2.line(3)).astype(np.int64)
        whole[:, :outputs, :ic] = np.einsum("ay,ocyx,bx->aboc", g, taps, g).reshape(16, outputs, ic)
        own = np.zeros(panels * columns, np.int32)
        own[:outputs] = rows[:, 0]
        apart = whole.reshape(16, panels, columns, -1).transpose(1, 0, 2, 3).reshape(panels * 16, columns, -1)
        return np.concatenate([own.view(np.int8), self.tile.panels(apart, None)])

    def compute(self, reads: Sequence[Array], writes: Sequence[Array], sizes: Mapping[str, int]) -> None:
        oc, ic, columns = sizes["oc"], sizes["ic"], self.tile.columns
        panels = -(-oc // columns)
        head = panels * columns * 4
        own = np.ascontiguousarray(reads[1][:head]).view(np.int32)[:oc]
        whole, _ = self.tile.unpanelled(reads[1][head:], panels * 16, -(-ic // 2))
        u = whole.reshape(panels, 4, 4, columns, -1).transpose(1, 2, 0, 3, 4).reshape(4, 4, panels * columns, -1)
        back = np.linalg.pinv(2 * F2.line(3))
        w = np.einsum("ya,aboc,xb->ocyx", back, u[:, :, :oc, :ic].astype(np.float64), back).round()
        self.convolve(w, own, reads, writes, sizes)

    # ---------------------------------------------------------------------------------- C
    @cached_property
    def symbol(self) -> str:
        words = (self.isa.name, f"{self.rows}x{self.tile.columns}", *self.words)
        return symbol("bytes_winograd", *words, self.key)

    @property
    def pointers(self) -> tuple[tuple[str, str], ...]:
        return self.read

    @property
    def sizes(self) -> tuple[str, ...]:
        return (*super().sizes, "most")

    @property
    def executed(self) -> float:
        return 16 / 36

    @property
    def summary(self) -> str:
        columns = self.tile.columns
        return f"Convolution 3x3 of bytes by Winograd's F(2x2, 3x3), NHWC, {self.rows} tiles x {columns} channels."

    def parts(self) -> list[Part]:
        whole = Tile(self.isa, f32, self.rows, self.vectors)
        given: dict[str, Any] = (
            self.tile.names
            | self.given(whole)
            | {
                "half": self.isa.vector // 2,
                "zero": "*g->zero" if self.zeroed else "0",
                "few": FEW_TASKS,
                "worthwhile": f"{WORTHWHILE:.0f}.0",
                "table": self.tile.table(),
            }
        )
        return [
            *self.shared(whole),
            DIVIDE,
            *self.tile.bodies(),
            fill(_WORK, **given),
            *self.ends(whole, given),
            fill(_TRANSFORMS, **given),
            fill(_BODY, **given),
        ]
