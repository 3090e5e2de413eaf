"""Depthwise convolution, NCHW: every channel has a window of its own.

A strip of the plane is copied, padded, to the stack, split by the phases of the strides; there every tap of the
window is the same long row at an offset, so the sum runs over whole vectors whatever the width of the image.  The
columns that a row of the strip has beyond the output's are computed too, and dropped.  Nothing outside the input is
read.

Threads split images and channels.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from typing import Self

import numpy as np

from irc.ir.dim import Dim, product
from irc.ir.types import f32, f64
from irc.kernels.conv.problem import ConvProblem
from irc.kernels.conv.reference import convolve
from irc.kernels.core.base import Array, Kernel, Packed, Sizes
from irc.kernels.core.costs import COSTS
from irc.kernels.core.epilogue import Epilogue
from irc.kernels.core.isa import Isa, vector_name, vector_type
from irc.kernels.core.registry import kernel
from irc.kernels.core.text import Part, fill, symbol
from irc.kernels.core.tile import Tile, epilogue_of, names, prelude

STRIP = 8192  # elements of a padded strip, all phases
OUTPUTS = 4096  # elements of the sums of a strip
WIDTH = 256  # output columns of a strip
TAPS = 49

_CALL = """
/* to[j] = from[j * $SW] for j < n; the last vector overlaps the one before. */
IRC_INLINE void ${S}_row(const $T *from, int64_t n, $T *to) {
    int64_t j = 0;$wide$quad
    for (; j < n; j++) to[j] = from[j * $SW];
}

/* Rows y0 + r and columns x0 + j of one phase of the padded plane, r < rows, j < pitch. */
static void ${S}_pad(const ${S}_args *g, const $T *x, int64_t y0, int64_t x0, int64_t rows, int64_t pitch, $T *to) {
    int64_t lo = x0 < 0 ? (-x0 + $SW - 1) / $SW : 0;
    int64_t hi = g->iw > x0 ? (g->iw - x0 - 1) / $SW + 1 : 0;
    if (hi > pitch) hi = pitch;
    if (lo > hi) lo = hi;
    for (int64_t r = 0; r < rows; r++, to += pitch) {
        const int64_t iy = y0 + r * $SH;
        const int inside = iy >= 0 && iy < g->ih;
        const int64_t begin = inside ? lo : 0, end = inside ? hi : 0;
        for (int64_t j = 0; j < begin; j += $L) ${V}_store(to + j, ($V){0}); /* overwritten by what follows */
        if (begin < end) ${S}_row(x + iy * g->iw + x0 + begin * $SW, end - begin, to + begin);
        for (int64_t j = end; j < pitch; j += $L) ${V}_store(to + j, ($V){0});
    }
}
"""

_BODY = """
/* Rows y0 to y0 + rows, columns x0 to x0 + cols of one output plane: sums to `sums`, rows `pitch` apart. */
static void ${S}_strip(const ${S}_args *g, const $T *x, const $T *w, int64_t y0, int64_t x0, int64_t rows,
                       int64_t pitch, $T *padded, $T *sums) {
    const int64_t tall = rows + ($KH - 1) * $DH / $SH;
    for (int64_t py = 0; py < $SH; py++)
        for (int64_t px = 0; px < $SW; px++)
            ${S}_pad(g, x, y0 * $SH + py - g->pad_h, x0 * $SW + px - g->pad_w, tall, pitch,
                     padded + (py * $SW + px) * tall * pitch);
    for (int64_t j = 0; j < rows * pitch; j += $U * $L) {
        $V acc[$U];
        IRC_FULL_UNROLL
        for (int u = 0; u < $U; u++) acc[u] = ($V){0};
        IRC_FULL_UNROLL
        for (int ky = 0; ky < $KH; ky++) {
            const $T *line = padded + j + (ky * $DH % $SH * $SW * tall + ky * $DH / $SH) * pitch;
            IRC_FULL_UNROLL
            for (int kx = 0; kx < $KW; kx++) {
                const $T *from = line + kx * $DW % $SW * tall * pitch + kx * $DW / $SW;
                IRC_FULL_UNROLL
                for (int u = 0; u < $U; u++) acc[u] += w[ky * $KW + kx] * ${V}_load(from + u * $L);
            }
        }
        IRC_FULL_UNROLL
        for (int u = 0; u < $U; u++) ${V}_store(sums + j + u * $L, acc[u]);
    }
}

/* Applies the epilogue to n values of a channel from pixel `col` on, and stores them. */
static void ${S}_finish(const ${S}_out *o, int64_t row, int64_t col, int64_t n, const $T *from) {
    $T *to = o->c + row * o->c_row + col;
    int64_t j = 0;
    for (; j + $L <= n; j += $L) ${V}_store(to + j, ${S}_epilogue(o, ${V}_load(from + j), row, col + j, $L));
    if (j < n) ${V}_store_part(to + j, ${S}_epilogue(o, ${V}_load(from + j), row, col + j, n - j), n - j);
}

static void ${S}_plane(const ${S}_args *g, const ${S}_out *o, const $T *x, const $T *w, int64_t channel) {
    _Alignas(64) $T padded[$strip + $slack], sums[$outputs + $slack], joined[$outputs + $slack];
    const int64_t wider = ($KW - 1) * $DW / $SW, taller = ($KH - 1) * $DH / $SH;
    const int64_t phases = $SH * $SW;
    int64_t cols = g->ow < $width ? g->ow : $width, rows = 0;
    for (;; cols = (cols + 1) / 2) {
        rows = $strip / phases / (cols + wider) - taller;
        if (rows * (cols + wider) > $outputs) rows = $outputs / (cols + wider);
        if (rows > 0 || cols == 1) break;
    }
    if (rows > g->oh) rows = g->oh;
    const int64_t pitch = cols + wider, used = phases * (rows + taller) * pitch;
    for (int64_t i = 0; i < $slack; i++) padded[used + i] = 0;
    for (int64_t y0 = 0; y0 < g->oh; y0 += rows) {
        const int64_t high = g->oh - y0 < rows ? g->oh - y0 : rows;
        for (int64_t x0 = 0; x0 < g->ow; x0 += cols) {
            const int64_t wide = g->ow - x0 < cols ? g->ow - x0 : cols;
            ${S}_strip(g, x, w, y0, x0, high, pitch, padded, sums);
            if (wide < g->ow) {
                for (int64_t r = 0; r < high; r++)
                    ${S}_finish(o, channel, (y0 + r) * g->ow + x0, wide, sums + r * pitch);
                continue;
            }
            for (int64_t r = 0; r < high; r++)
                for (int64_t j = 0; j < wide; j += $L)
                    ${V}_store(joined + r * wide + j, ${V}_load(sums + r * pitch + j));
            ${S}_finish(o, channel, y0 * g->ow, high * wide, joined);
        }
    }
}

/* Planes begin to end: images, then channels. */
static void ${S}_part(void *given, int64_t begin, int64_t end) {
    const ${S}_args *g = given;
    for (; begin < end; begin++) {
        const int64_t image = begin / g->channels, channel = begin % g->channels;
        ${S}_out o = {.c = g->y + image * g->y_batch, .c_row = g->y_channel, .n = g->oh * g->ow};$slot_starts
        ${S}_plane(g, &o, g->x + image * g->x_batch + channel * g->x_channel, g->w + channel * $KH * $KW, channel);
    }
}

void $S($parameters) {
    const int64_t planes = g->batch * g->channels;
    if (planes <= 0 || g->oh <= 0 || g->ow <= 0) return;
    const double work = (double)planes * (double)(g->oh * g->ow) * $KH * $KW;
    if (!pool || planes < 2 || work < $worthwhile) ${S}_part((void *)g, 0, planes);
    else pool->parallel_for(pool->self, planes, ${S}_part, (void *)g);
}
"""


@kernel
class NchwDepthwiseKernel(Kernel[ConvProblem]):
    """A generated depthwise convolution, one output channel for each input channel, of a window that `fits`."""

    tile: Tile
    window: tuple[int, int]
    strides: tuple[int, int]
    dilations: tuple[int, int]
    epilogue: Epilogue

    problem = ConvProblem

    @classmethod
    def candidates(cls, problem: ConvProblem, isa: Isa) -> Iterator[Self]:
        """Yield the variant unless the window is too large."""
        p = problem
        if p.layout != "nchw" or not p.is_depthwise or p.dtype not in (f32, f64):
            return
        if fits(*p.window, p.strides, p.dilations):
            yield cls(Tile(isa, p.dtype, 1, 1), *p.geometry, p.epilogue)

    def cycles(self, problem: ConvProblem) -> float:
        costs, t = COSTS[self.tile.isa.name], self.tile
        copied = self.strides[0] * self.strides[1] * costs.pack
        return problem.images * problem.groups * problem.pixels * (problem.taps / (t.lanes * costs.fma) + copied)

    @property
    def label(self) -> str:
        return "depthwise"

    def arguments_for(self, problem: ConvProblem) -> dict[str, Dim]:
        return problem.arguments() | {"channels": Dim.of(problem.channels)}

    def packed(self, problem: ConvProblem) -> Packed:
        elements = problem.channels * problem.taps
        return Packed(("depthwise",), self.tile.dtype, elements, lambda w: self.pack_weights(w).reshape(-1))

    def compute(self, reads: Sequence[Array], writes: Sequence[Array], sizes: Mapping[str, int]) -> None:
        channels = sizes["channels"]
        w = reads[1][: channels * int(np.prod(self.window))].reshape(channels, 1, *self.window)
        convolve("nchw", w, channels, self.strides, self.dilations, self.epilogue, reads, writes, sizes)

    @cached_property
    def symbol(self) -> str:
        shape = f"{self.window[0]}x{self.window[1]}_s{self.strides[0]}x{self.strides[1]}"
        words = self.tile.name.removeprefix("irc_tile_")
        return symbol("depthwise", shape, words, f"{self.dilations}{self.epilogue.key()}")

    @property
    def pointers(self) -> tuple[tuple[str, str], ...]:
        t = str(names(self.tile)["T"])
        return (("x", f"const {t} *"), ("w", f"const {t} *"), *self.epilogue.pointers(t), ("y", f"{t} *"))

    @property
    def sizes(self) -> tuple[str, ...]:
        extents = "batch channels ih iw oh ow pad_h pad_w x_batch x_channel y_batch y_channel"
        return (*extents.split(), *(f"s{i}_{f}" for i, f in self.epilogue.strides("batch", "channel")))

    def pack_weights(self, w: Array) -> Array:
        """Pack w[channels, 1, kh, kw] as [channels, kh, kw]."""
        return np.ascontiguousarray(w.reshape(w.shape[0], *w.shape[2:]), self.tile.dtype.numpy)

    def flops(self, sizes: Sizes) -> Dim:
        extents = product(sizes[n] for n in ("batch", "channels", "oh", "ow"))
        return extents * (2 * self.window[0] * self.window[1])

    @property
    def summary(self) -> str:
        return f"Depthwise convolution, NCHW, {self.tile.dtype}."

    def parts(self) -> list[Part]:
        s, t = self.symbol, self.tile
        given = names(t) | {"S": s, "U": 4, "worthwhile": 50_000} | self._window()
        given |= {"strip": STRIP, "outputs": OUTPUTS, "slack": 8 * t.lanes, "width": WIDTH}
        return [
            prelude(t, self.epilogue),
            vector_type(4, t.dtype),
            epilogue_of(s, t, self.epilogue),
            fill(_CALL, **given, wide=self._copy(t.lanes), quad=self._copy(4)),
            fill(_BODY, **given, **self.interface, slot_starts="".join(self._starts())),
        ]

    def _window(self) -> dict[str, object]:
        pairs = (("K", self.window), ("S", self.strides), ("D", self.dilations))
        return {letter + axis: n for letter, pair in pairs for axis, n in zip("HW", pair, strict=True)}

    def _copy(self, lanes: int) -> str:
        """Print the part of `NAME_row` that copies by vectors of `lanes`; none unless the stride is 1 or 2."""
        v, stride = vector_name(lanes, self.tile.dtype), self.strides[1]
        if stride not in (1, 2):
            return ""
        picks = ", ".join(str(i) for i in (*range(0, lanes, 2), *range(lanes + 1, 2 * lanes, 2)))
        one = f"{v}_store(to + j, {v}_load(from + j));"
        if stride == 2:
            both = f"{v}_load(from + 2 * j), {v}_load(from + 2 * j + {lanes - 1})"
            one = f"{v}_store(to + j, __builtin_shufflevector({both}, {picks}));"
        return f"""
    if (n >= {lanes}) {{
        for (; j + {lanes} <= n; j += {lanes}) {one}
        if (j == n) return;
        j = n - {lanes};
        {one}
        return;
    }}"""

    def _starts(self) -> Iterator[str]:
        for i, axes in enumerate(self.epilogue.slots):
            yield f"\n        o.s{i} = g->s{i} + image * g->s{i}_batch;"
            if axes in ("column", "full"):
                yield f"\n        o.s{i}_row = g->s{i}_channel;"


def fits(kh: int, kw: int, strides: tuple[int, int], dilations: tuple[int, int]) -> bool:
    """Tell whether a strip with at least one row of output fits on the stack."""
    taller, wider = (kh - 1) * dilations[0] // strides[0], (kw - 1) * dilations[1] // strides[1]
    strip = strides[0] * strides[1] * (1 + taller) * (16 + wider)
    return kh * kw <= TAPS and strip <= STRIP and 16 + wider <= OUTPUTS
