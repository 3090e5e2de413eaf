"""Convolution of small planes, NCHW, as a matrix product: Y[pixels, oc] = X[pixels, taps × ic] · W[taps × ic, oc].

With pixels as the rows of the register tile, planes such as 7 × 7 fill it, and the output channels fill its vectors.
Weights are packed at compile time, [group][panel of oc][kh, kw, ic][panel], and each is read once for a block of
pixels; the pixels of a block are gathered on the stack, sums are collected there, transposed, and stored.  Nothing
outside the input is read.

Threads split images, groups and panels, never the sum: results do not depend on them.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from irc.ir.dim import Dim, product
from irc.kernels.core.base import Kernel, Sizes
from irc.kernels.core.epilogue import Epilogue
from irc.kernels.core.isa import C_TYPES
from irc.kernels.core.text import Part, fill, symbol
from irc.kernels.core.tile import Tile, Variants, bodies, body_of, epilogue_of, names, prelude
from irc.kernels.gemm.packed import WORTHWHILE
from irc.kernels.vector.lanes import square

PIXELS = 64  # pixels of a block, at most
DEPTH = 256  # products of a sum that are done at a time
SUMS = 25600  # elements of a block of sums

_CALL = """
typedef struct {
    const $T *x, *w;
    $T *y;
    int64_t batch, groups, ic, oc, ih, iw, oh, ow, kh, kw, stride_h, stride_w, dilation_h, dilation_w, pad_h, pad_w;
    int64_t x_batch, x_channel, y_batch, y_channel;$slot_fields
} ${S}_call;

/* p[i] where mask[i] is not 0, else 0; the others are not read. */
IRC_INLINE $V ${S}_some(const $T *p, const $I *mask) {
    $T lanes[$L] __attribute__((aligned(64)));
    for (int i = 0; i < $L; i++) lanes[i] = mask[i] ? p[i] : 0;
    return ${V}_load(lanes);
}

/* Pixels p0 to p0 + rows, products k0 to k0 + k, as [k][rows]; up to $L more elements are overwritten. */
static void ${S}_gather(const ${S}_call *g, const $T *x, int64_t p0, int64_t rows, int64_t k0, int64_t k, $T *to) {
    const int straight = g->stride_h == 1 && g->stride_w == 1 && g->ow == g->iw;
    for (int64_t at = k0, n; at < k0 + k; at += n) {
        const int64_t tap = at / g->ic, c = at % g->ic, dy = tap / g->kw * g->dilation_h - g->pad_h;
        const int64_t dx = tap % g->kw * g->dilation_w - g->pad_w;
        const $T *plane = x + c * g->x_channel;
        $I inside[$MR + $L] = {0};
        int64_t place[$MR];
        n = g->ic - c < k0 + k - at ? g->ic - c : k0 + k - at;
        for (int64_t r = 0; r < rows; r++) {
            const int64_t iy = (p0 + r) / g->ow * g->stride_h + dy, ix = (p0 + r) % g->ow * g->stride_w + dx;
            inside[r] = iy >= 0 && iy < g->ih && ix >= 0 && ix < g->iw;
            place[r] = iy * g->iw + ix;
        }
        if (straight) {
            for (int64_t i = 0; i < n; i++, to += rows, plane += g->x_channel)
                for (int64_t r = 0; r < rows; r += $L) ${V}_store(to + r, ${S}_some(plane + place[0] + r, inside + r));
            continue;
        }
        for (int64_t i = 0; i < n; i++, to += rows, plane += g->x_channel)
            for (int64_t r = 0; r < rows; r++) to[r] = inside[r] ? plane[place[r]] : 0;
    }
}
"""

_BODY = """
/* Sums of `pixels` pixels from p0 on and channels from `first` on, `row` apart, through the epilogue to the output. */
static void ${S}_finish(const ${S}_out *o, const $T *sums, int64_t row, int64_t p0, int64_t pixels, int64_t first,
                        int64_t channels) {
    for (int64_t c = 0; c < channels; c += $L) {
        for (int64_t p = 0; p < pixels; p += $L) {
            const int64_t left = pixels - p;
            $V v[$L];
            for (int i = 0; i < $L; i++) v[i] = ${V}_load(sums + (i < left ? p + i : p) * row + c);
            ${V}_square(v);
            for (int i = 0; i < $L && i < channels - c; i++) {
                $T *to = o->c + (first + c + i) * o->c_row + p0 + p;
                const $V y = ${S}_epilogue(o, v[i], first + c + i, p0 + p, left);
                if (left >= $L) ${V}_store(to, y);
                else ${V}_store_part(to, y, left);
            }
        }
    }
}

/* Pixels p0 to p1 of the channels in panels n0 to n1 of one group. */
static void ${S}_range(const ${S}_call *g, const ${S}_out *o, const $T *x, const $T *w, int64_t p0, int64_t p1,
                       int64_t n0, int64_t n1) {
    static ${tile}_run *const whole[] = {$whole};$narrow_table
    _Alignas(64) $T packed[$pixels * $depth + $L], sums[$sums];
    const int64_t depth = g->ic * g->kh * g->kw, row = (n1 - n0) * $NR, tiles = (p1 - p0 + $MR - 1) / $MR;
    const int64_t low = (p1 - p0) / tiles, extra = (p1 - p0) % tiles;
    const int64_t count = (depth + $depth - 1) / $depth, step = count ? (depth + count - 1) / count : 0;
    int64_t k0 = 0;
    do {
        const int64_t k = depth - k0 < step ? depth - k0 : step;
        for (int64_t t = 0, r = 0; t < tiles; t++) {
            const int64_t height = low + (t < extra);
            ${S}_gather(g, x, p0 + r, height, k0, k, packed + r * k);
            r += height;
        }
        for (int64_t n = n0; n < n1; n++) {
            const $T *panel = w + (n * depth + k0) * $NR;
            const int64_t left = g->oc - n * $NR;
            (void)left;
            for (int64_t t = 0, r = 0; t < tiles; t++) {
                const int64_t height = low + (t < extra);
                $T *sum = sums + r * row + (n - n0) * $NR;
                ${choose}(k, packed + r * k, panel, k0 > 0 ? sum : 0, row, sum, row, panel + 16 * $NR, $NR);
                r += height;
            }
        }
        k0 += k;
    } while (k0 < depth);
    ${S}_finish(o, sums, row, p0, p1 - p0, n0 * $NR, (n1 * $NR < g->oc ? n1 * $NR : g->oc) - n0 * $NR);
}

/* Tasks begin to end: images, groups, panels of channels (innermost; neighbours are joined). */
static void ${S}_part(void *given, int64_t begin, int64_t end) {
    const ${S}_call *g = given;
    const int64_t panels = (g->oc + $NR - 1) / $NR, n = g->oh * g->ow, blocks = (n + $pixels - 1) / $pixels;
    while (begin < end) {
        const int64_t at = begin % panels, matrix = begin / panels, image = matrix / g->groups;
        const int64_t group = matrix % g->groups, channel = group * g->oc;
        const int64_t most = $sums / ($pixels * $NR) > 1 ? $sums / ((n < $pixels ? n : $pixels) * $NR) : 1;
        int64_t run = panels - at < end - begin ? panels - at : end - begin;
        if (run > most) run = most;
        ${S}_out o = {.c = g->y + image * g->y_batch + channel * g->y_channel, .n = n};
        o.c_row = g->y_channel;$slot_starts
        for (int64_t b = 0; b < blocks; b++)
            ${S}_range(g, &o, g->x + image * g->x_batch + group * g->ic * g->x_channel,
                       g->w + group * panels * $NR * g->ic * g->kh * g->kw, n * b / blocks, n * (b + 1) / blocks, at,
                       at + run);
        begin += run;
    }
}

void $S($parameters) {
    ${S}_call g = {$fields};
    if (batch <= 0 || oh <= 0 || ow <= 0) return;
    const int64_t tasks = batch * groups * ((oc + $NR - 1) / $NR);
    const double work = (double)(batch * oh * ow) * (double)(oc * groups) * (double)(ic * kh * kw);
    if (!pool || tasks < 2 || work < $worthwhile) ${S}_part(&g, 0, tasks);
    else pool->parallel_for(pool->self, tasks, ${S}_part, &g);
}
"""


@dataclass(frozen=True)
class SmallConvKernel(Kernel[Any]):
    """A generated convolution whose tiles have pixels as rows; called like `ConvKernel`, its weights packed its way.

    `heights`: of the tiles of pixels; `narrow`: it has bodies one vector wide, for the last channels.
    """

    tile: Tile
    epilogue: Epilogue
    heights: tuple[int, ...]
    narrow: bool

    @cached_property
    def symbol(self) -> str:
        words = self.tile.name.removeprefix("irc_tile_")
        return symbol("small_conv", words, f"{self.epilogue.key()}{self.heights}{self.narrow}")

    @property
    def pointers(self) -> tuple[tuple[str, str], ...]:
        """Name and C type of the pointers, in the order of the call."""
        t = str(names(self.tile)["T"])
        return (("x", f"const {t} *"), ("w", f"const {t} *"), *self.epilogue.pointers(t), ("y", f"{t} *"))

    @property
    def sizes(self) -> tuple[str, ...]:
        """Names of the int64_t arguments, in order; as those of `ConvKernel`."""
        slots = [f"s{i}_{f}" for i, f in self.epilogue.strides("batch", "channel")]
        window = "kh kw stride_h stride_w dilation_h dilation_w pad_h pad_w"
        extents = f"batch groups ic oc ih iw oh ow {window} x_batch x_channel y_batch y_channel"
        return (*extents.split(), *slots)

    def scratch_bytes(self) -> Dim:
        """Bytes of scratch: none."""
        return Dim.of(0)

    def packed_elements(self, oc: int, depth: int, groups: int = 1) -> int:
        """Elements of packed weights: `oc` output channels of a group, `depth` products in a sum."""
        return groups * -(-oc // self.tile.panel) * self.tile.panel * depth

    def pack_weights(self, w: np.ndarray[Any, Any], groups: int = 1) -> np.ndarray[Any, Any]:
        """w[oc, ic, kh, kw] of all groups as the kernel reads it: flat, channels of a group filled up to panels."""
        panel, per = self.tile.panel, w.shape[0] // groups
        depth, count = int(np.prod(w.shape[1:])), -(-per // panel)  # pyright: ignore
        full = np.zeros((groups, depth, count * panel), self.tile.dtype.numpy)
        full[:, :, :per] = w.reshape(groups, per, w.shape[1], -1).transpose(0, 3, 2, 1).reshape(groups, depth, per)
        return np.ascontiguousarray(full.reshape(groups, depth, count, panel).transpose(0, 2, 1, 3)).ravel()

    def flops(self, sizes: Sizes) -> Dim:
        """Floating-point operations of a call: two for each product of the definition."""
        return 2 * product(sizes[n] for n in ("batch", "groups", "oc", "ic", "oh", "ow", "kh", "kw"))

    def parts(self) -> list[Part]:
        s, t = self.symbol, self.tile
        variants = Variants(self.heights, self.narrow)
        given = names(t) | {
            "S": s,
            "I": C_TYPES[t.dtype.name][1],
            "pixels": PIXELS,
            "depth": DEPTH * 4 // t.dtype.itemsize,
            "sums": max(SUMS * 4 // t.dtype.itemsize, PIXELS * t.panel),
            "worthwhile": WORTHWHILE,
        }
        fields = self.epilogue.fields(str(given["T"]), "batch", "channel")
        narrow = f"\n    static {t.name}_run *const narrow[] = {{{self._table(variants, 1)}}};"
        body = fill(
            _BODY,
            **given,
            parameters=self.parameters,
            fields=", ".join(f".{n} = {n}" for n, _ in self.arguments[1:]),
            slot_starts="".join(self._starts()),
            whole=self._table(variants, t.vectors),
            narrow_table=narrow if self.narrow else "",
            choose=body_of(t, self.narrow, "height"),
        )
        shared = [prelude(t, self.epilogue), square(t.lanes, t.dtype), bodies(t, variants)]
        return [shared, epilogue_of(s, t, self.epilogue), fill(_CALL, **given, slot_fields=fields), body]

    @property
    def summary(self) -> str:
        """One line for the reader of the generated code."""
        t = self.tile
        return f"Convolution of small planes, NCHW, {t.dtype}, tiles of {t.rows} pixels x {t.panel} channels."

    def _table(self, variants: Variants, width: int) -> str:
        """Bodies by height; 0 where no tile is as high."""
        rows = range(1, max(self.heights) + 1)
        return ", ".join(f"{self.tile.name}_{variants.instance(r, width)}" if r in self.heights else "0" for r in rows)

    def _starts(self) -> list[str]:
        found: list[str] = []
        for i, axes in enumerate(self.epilogue.slots):
            found.append(f"\n        o.s{i} = g->s{i} + image * g->s{i}_batch")
            if axes in ("column", "full"):
                found.append(f" + channel * g->s{i}_channel;\n        o.s{i}_row = g->s{i}_channel")
            found.append(";")
        return found
