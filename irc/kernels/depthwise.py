"""Depthwise convolution, NCHW: every channel has a window of its own.

A strip of the plane is copied, padded, to the stack, split by the phases of the strides; there every tap of the
window is the same long row at an offset, so the sum runs over whole vectors whatever the width of the image.  The
columns that a row of the strip has beyond the output's are computed too, and dropped.  Nothing outside the input is
read.

Threads split images and channels.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from irc.kernels.base import Kernel
from irc.kernels.epilogue import Epilogue
from irc.kernels.isa import vector_name, vector_type
from irc.kernels.text import fill, symbol
from irc.kernels.tile import Tile, epilogue_of, names, prelude

STRIP = 8192  # elements of a padded strip, all phases
OUTPUTS = 4096  # elements of the sums of a strip
WIDTH = 256  # output columns of a strip
TAPS = 256

_CALL = """
typedef struct {
    const $T *x, *w;
    $T *y;
    int64_t batch, channels, ih, iw, oh, ow, kh, kw, stride_h, stride_w, dilation_h, dilation_w, pad_h, pad_w;
    int64_t x_batch, x_channel, y_batch, y_channel;$slot_fields
} ${S}_call;

/* to[j] = from[j * stride] for j < n. */
static void ${S}_row(const $T *from, int64_t stride, int64_t n, $T *to) {
    int64_t j = 0;
    if (stride == 1) {
        for (; j + $L <= n; j += $L) ${V}_store(to + j, ${V}_load(from + j));
        for (; j + 4 <= n; j += 4) ${Q}_store(to + j, ${Q}_load(from + j));
    } else if (stride == 2) {
        for (; j + $L <= n; j += $L) {
            const $V low = ${V}_load(from + 2 * j), high = ${V}_load(from + 2 * j + $L - 1);
            ${V}_store(to + j, __builtin_shufflevector(low, high, $picks));
        }
        for (; j + 4 <= n; j += 4) {
            const $Q low = ${Q}_load(from + 2 * j), high = ${Q}_load(from + 2 * j + 3);
            ${Q}_store(to + j, __builtin_shufflevector(low, high, 0, 2, 5, 7));
        }
    }
    for (; j < n; j++) to[j] = from[j * stride];
}

/* Rows y0 + r and columns x0 + j of one phase of the padded plane, r < rows, j < pitch. */
static void ${S}_pad(const ${S}_call *g, const $T *x, int64_t y0, int64_t x0, int64_t rows, int64_t pitch, $T *to) {
    int64_t lo = x0 < 0 ? (-x0 + g->stride_w - 1) / g->stride_w : 0;
    int64_t hi = g->iw > x0 ? (g->iw - x0 - 1) / g->stride_w + 1 : 0;
    if (hi > pitch) hi = pitch;
    if (lo > hi) lo = hi;
    for (int64_t r = 0; r < rows; r++, to += pitch) {
        const int64_t iy = y0 + r * g->stride_h;
        const int inside = iy >= 0 && iy < g->ih;
        const int64_t begin = inside ? lo : 0, end = inside ? hi : 0;
        for (int64_t j = 0; j < begin; j++) to[j] = 0;
        if (begin < end) ${S}_row(x + iy * g->iw + x0 + begin * g->stride_w, g->stride_w, end - begin, to + begin);
        for (int64_t j = end; j < pitch; j++) to[j] = 0;
    }
}
"""

_BODY = """
/* Rows y0 to y0 + rows, columns x0 to x0 + cols of one output plane: sums to `sums`, rows `pitch` apart. */
static void ${S}_strip(const ${S}_call *g, const $T *x, const $T *w, int64_t y0, int64_t x0, int64_t rows,
                       int64_t pitch, $T *padded, $T *sums) {
    int64_t at[$taps];
    const int64_t tall = rows + (g->kh - 1) * g->dilation_h / g->stride_h, taps = g->kh * g->kw;
    for (int64_t py = 0; py < g->stride_h; py++)
        for (int64_t px = 0; px < g->stride_w; px++)
            ${S}_pad(g, x, y0 * g->stride_h + py - g->pad_h, x0 * g->stride_w + px - g->pad_w, tall, pitch,
                     padded + (py * g->stride_w + px) * tall * pitch);
    for (int64_t t = 0; t < taps; t++) {
        const int64_t dy = t / g->kw * g->dilation_h, dx = t % g->kw * g->dilation_w;
        const int64_t phase = dy % g->stride_h * g->stride_w + dx % g->stride_w;
        at[t] = (phase * tall + dy / g->stride_h) * pitch + dx / g->stride_w;
    }
    for (int64_t j = 0; j < rows * pitch; j += $U * $L) {
        $V acc[$U];
        IRC_FULL_UNROLL
        for (int u = 0; u < $U; u++) acc[u] = ($V){0};
        for (int64_t t = 0; t < taps; t++) {
            const $T *from = padded + at[t] + j;
            IRC_FULL_UNROLL
            for (int u = 0; u < $U; u++) acc[u] += w[t] * ${V}_load(from + u * $L);
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

static void ${S}_plane(const ${S}_call *g, const ${S}_out *o, const $T *x, const $T *w, int64_t channel) {
    _Alignas(64) $T padded[$strip + $slack], sums[$outputs + $slack], joined[$outputs + $slack];
    const int64_t wider = (g->kw - 1) * g->dilation_w / g->stride_w, taller = (g->kh - 1) * g->dilation_h / g->stride_h;
    const int64_t phases = g->stride_h * g->stride_w;
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
    const ${S}_call *g = given;
    for (; begin < end; begin++) {
        const int64_t image = begin / g->channels, channel = begin % g->channels;
        ${S}_out o = {.c = g->y + image * g->y_batch, .c_row = g->y_channel, .n = g->oh * g->ow};$slot_starts
        ${S}_plane(g, &o, g->x + image * g->x_batch + channel * g->x_channel, g->w + channel * g->kh * g->kw, channel);
    }
}

void $S($parameters) {
    ${S}_call g = {$fields};
    const int64_t planes = batch * channels;
    if (planes <= 0 || oh <= 0 || ow <= 0) return;
    const double work = (double)planes * (double)(oh * ow) * (double)(kh * kw);
    if (!pool || planes < 2 || work < $worthwhile) ${S}_part(&g, 0, planes);
    else pool->parallel_for(pool->self, planes, ${S}_part, &g);
}
"""


@dataclass(frozen=True)
class DepthwiseKernel(Kernel):
    """A generated depthwise convolution, one output channel for each input channel; any window that `fits`."""

    tile: Tile
    epilogue: Epilogue

    @cached_property
    def symbol(self) -> str:
        return symbol("depthwise", self.tile.name.removeprefix("irc_tile_"), self.epilogue.key())

    @property
    def pointers(self) -> tuple[tuple[str, str], ...]:
        t = str(names(self.tile)["T"])
        slots = tuple((f"s{i}", f"const {t} *") for i in range(len(self.epilogue.slots)))
        return (("x", f"const {t} *"), ("w", f"const {t} *"), *slots, ("y", f"{t} *"))

    @property
    def sizes(self) -> tuple[str, ...]:
        """Names of the int64_t arguments, in order."""
        window = "kh kw stride_h stride_w dilation_h dilation_w pad_h pad_w"
        extents = f"batch channels ih iw oh ow {window} x_batch x_channel y_batch y_channel"
        return (*extents.split(), *(f"s{i}_{f}" for i, f in self._slot_sizes()))

    def pack_weights(self, w: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
        """w[channels, 1, kh, kw] as the kernel reads it: [channels, kh, kw]."""
        return np.ascontiguousarray(w.reshape(w.shape[0], *w.shape[2:]), self.tile.dtype.numpy)

    def source(self) -> str:
        s, t = self.symbol, self.tile
        picks = ", ".join(str(i) for i in (*range(0, t.lanes, 2), *range(t.lanes + 1, 2 * t.lanes, 2)))
        given = names(t) | {"S": s, "Q": vector_name(4, t.dtype), "U": 4, "picks": picks, "worthwhile": 50_000}
        given |= {"strip": STRIP, "outputs": OUTPUTS, "slack": 8 * t.lanes, "width": WIDTH, "taps": TAPS}
        fields = "".join(f"\n    const {given['T']} *s{i};" for i in range(len(self.epilogue.slots)))
        fields += "".join(f"\n    int64_t s{i}_{f};" for i, f in self._slot_sizes())
        assigned = ", ".join(f".{n} = {n}" for n, _ in self.arguments[1:])
        return "".join(
            (
                prelude(t, self.epilogue),
                vector_type(4, t.dtype),
                f"/* Depthwise convolution, NCHW, {t.dtype}. */",
                epilogue_of(s, t, self.epilogue),
                fill(_CALL, **given, slot_fields=fields),
                fill(_BODY, **given, parameters=self.parameters, fields=assigned, slot_starts="".join(self._starts())),
            )
        )

    def _slot_sizes(self) -> list[tuple[int, str]]:
        axes = enumerate(self.epilogue.slots)
        return [(i, f) for i, a in axes for f in (("batch", "channel") if a in ("column", "full") else ("batch",))]

    def _starts(self) -> Iterator[str]:
        for i, axes in enumerate(self.epilogue.slots):
            yield f"\n        o.s{i} = g->s{i} + image * g->s{i}_batch;"
            if axes in ("column", "full"):
                yield f"\n        o.s{i}_row = g->s{i}_channel;"


def fits(kh: int, kw: int, strides: tuple[int, int], dilations: tuple[int, int]) -> bool:
    """Whether a strip with at least one row of output fits on the stack."""
    taller, wider = (kh - 1) * dilations[0] // strides[0], (kw - 1) * dilations[1] // strides[1]
    strip = strides[0] * strides[1] * (1 + taller) * (16 + wider)
    return kh * kw <= TAPS and strip <= STRIP and 16 + wider <= OUTPUTS
