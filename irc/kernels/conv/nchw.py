"""Convolution, NCHW, as an implicit matrix product: Y[oc, pixels] = epilogue(W[oc, taps × ic] · X[taps × ic, pixels]).

Weights are packed at compile time, [group][block of taps × ic][tile of oc][kh, kw, ic][rows of the tile].  A block
of the matrix X (some panels of output pixels × a range of taps and channels) is gathered on the stack, which also
settles padding, strides and dilations; it then meets all output channels.  Nothing outside the input is read.

Threads split images, groups, pixels and output channels, never the sum: results do not depend on them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from math import lcm
from typing import Self

import numpy as np

from irc.ir.dim import Dim, product
from irc.ir.types import f32, f64
from irc.kernels.conv.problem import ConvProblem
from irc.kernels.conv.reference import convolve, unpacked
from irc.kernels.core.base import Array, Kernel, Packed, Sizes
from irc.kernels.core.costs import COSTS, SPAN, SPAN_STRIDED, tile_cycles
from irc.kernels.core.epilogue import Epilogue
from irc.kernels.core.isa import Isa, vector_name, vector_type
from irc.kernels.core.problem import likely, likely_extent
from irc.kernels.core.registry import kernel
from irc.kernels.core.text import Part, fill, symbol
from irc.kernels.core.tile import Tile, Variants, block, bodies, heights_of, names, prelude
from irc.kernels.gemm.packed import WORTHWHILE, is_narrow

FEW_TASKS = 16  # with fewer blocks of pixels than this, output channels are split too
CHANNEL_PARTS = 8

_SPAN = """
/* to[c][j] = from[c][j * stride_w] for j < n <= $NR; the last vector overlaps the one before. */
static void ${S}_span(const $T *from, int64_t channel, int64_t channels, int64_t n, int64_t stride, $T *to) {
    (void)stride;
    const $T *const end = to + channels * $NR;
$cases    for (; to < end; from += channel, to += $NR)
        for (int64_t j = 0; j < n; j++) to[j] = from[j * $stride];
}
"""

_GATHER = """
typedef struct {
    int64_t begin, end; /* rows of the matrix X that are not of padding alone, of some pixels */
} ${S}_depth;

/* Taps of one axis that see the input of `size` elements at outputs `first` to `last`. */
IRC_INLINE ${S}_depth ${S}_taps(int64_t taps, int64_t size, int64_t pad, int64_t stride, int64_t dilation,
                                int64_t first, int64_t last) {
    const int64_t above = pad - last * stride, left = size + pad - first * stride;
    const int64_t begin = above > 0 ? (above + dilation - 1) / dilation : 0;
    const int64_t end = left > 0 ? (left - 1) / dilation + 1 : 0;
    return (${S}_depth){begin, end < taps ? end : taps};
}

/* Of pixels p0 to p1: rows of taps that see any of them; with one row of taps and of pixels, taps that do. */
static ${S}_depth ${S}_seen(const ${S}_args *g, int64_t p0, int64_t p1) {
    const int64_t y0 = p0 / g->ow, y1 = (p1 - 1) / g->ow;
    ${S}_depth d = ${S}_taps(g->kh, g->ih, g->pad_h, g->stride_h, g->dilation_h, y0, y1);
    int64_t each = g->kw * g->ic;
    if (g->kh == 1 && d.begin < d.end && y0 == y1) {
        each = g->ic;
        d = ${S}_taps(g->kw, g->iw, g->pad_w, $stride, g->dilation_w, p0 - y0 * g->ow, p1 - 1 - y0 * g->ow);
    }
    return d.begin < d.end ? (${S}_depth){d.begin * each, d.end * each} : (${S}_depth){0, 0};
}

/* Pixels p0 to p1 and rows k0 to k0 + k of the matrix X, as [panel][k][$NR]; only those rows that are in `seen`. */
static void ${S}_gather(const ${S}_args *g, const $T *x, int64_t p0, int64_t p1, int64_t k0, int64_t k,
                        ${S}_depth seen, $T *to) {
    const int64_t stop = seen.end < k0 + k ? seen.end : k0 + k, y0 = p0 / g->ow, x0 = p0 % g->ow;
    for (int64_t at = k0 > seen.begin ? k0 : seen.begin, n; at < stop; at += n) {
        const int64_t tap = at / g->ic, c = at % g->ic, dy = tap / g->kw * g->dilation_h - g->pad_h;
        const int64_t dx = tap % g->kw * g->dilation_w - g->pad_w;
        n = g->ic - c < stop - at ? g->ic - c : stop - at;
        int64_t lo = dx < 0 ? (-dx + $stride - 1) / $stride : 0;
        int64_t hi = g->iw - dx > 0 ? (g->iw - dx - 1) / $stride + 1 : 0;
        if (hi > g->ow) hi = g->ow;
        if (lo > hi) lo = hi;
        int64_t oy = y0, ox = x0;
        for (int64_t p = p0, next; p < p1; p = next) {
            const int64_t col = (p - p0) % $NR, iy = oy * g->stride_h + dy;
            int64_t most = $NR - col < p1 - p ? $NR - col : p1 - p;
            if (most > g->ow - ox) most = g->ow - ox;
            next = p + most;
            $T *out = to + (p - p0) / $NR * $NR * k + (at - k0) * $NR + col;
            int64_t begin = lo > ox ? lo - ox : 0, end = hi > ox ? hi - ox : 0;
            if (iy < 0 || iy >= g->ih) begin = end = 0;
            if (end > most) end = most;
            if (begin > end) begin = end;
            if (begin > 0 || end < most) {
                for (int64_t i = 0; i < n; i++) {
                    for (int64_t j = 0; j < begin; j++) out[i * $NR + j] = 0;
                    for (int64_t j = end; j < most; j++) out[i * $NR + j] = 0;
                }
            }
            if (begin < end) {
                const $T *from = x + c * g->x_channel + iy * g->iw + (ox + begin) * $stride + dx;
                ${S}_span(from, g->x_channel, n, end - begin, $stride, out + begin);
            }
            ox += most;
            if (ox == g->ow) {
                ox = 0;
                oy++;
            }
        }
    }
}
"""

_BODY = """
typedef struct {
    int64_t tiles, low, extra; /* tiles of channels; the first `extra` are one row higher than `low` */
    int64_t panels, blocks, parts; /* tasks: blocks of panels of pixels, parts of the tiles */
} ${S}_plan;

IRC_INLINE ${S}_plan ${S}_split(const ${S}_args *g) {
    const int64_t tiles = (g->oc + $MR - 1) / $MR, panels = (g->oh * g->ow + $NR - 1) / $NR;
    const int64_t blocks = (panels + $NPB - 1) / $NPB;
    const int64_t parts = g->batch * g->groups * blocks >= $few ? 1 : tiles < $most_parts ? tiles : $most_parts;
    return (${S}_plan){tiles, g->oc / tiles, g->oc % tiles, panels, blocks, parts};
}

/* Pixels p0 to p1 of the output channels in tiles t0 to t1 of one group. */
static void ${S}_range(const ${S}_args *g, const ${S}_out *o, const ${S}_plan *plan, const $T *x, const $T *w,
                       int64_t p0, int64_t p1, int64_t t0, int64_t t1) {
    _Alignas(64) $T packed[$room * $NB], sums[$MR * $NR];
    const int64_t depth = g->ic * g->kh * g->kw, count = (depth + $room - 1) / $room;
    const int64_t step = count ? (depth + count - 1) / count : 0;
    int64_t k0 = 0;
    ${S}_depth seen[$NPB], any = {depth, 0};
    for (int64_t p = p0; p < p1; p += $NR) {
        const ${S}_depth d = seen[(p - p0) / $NR] = ${S}_seen(g, p, p + $NR < p1 ? p + $NR : p1);
        if (d.begin < any.begin) any.begin = d.begin;
        if (d.end > any.end) any.end = d.end;
    }
    do {
        const int64_t k = depth - k0 < step ? depth - k0 : step;
        ${S}_gather(g, x, p0, p1, k0, k, any, packed);
        for (int64_t t = t0; t < t1; t++) {
            const int height = (int)(plan->low + (t < plan->extra));
            const int64_t row = t * plan->low + (t < plan->extra ? t : plan->extra);
            for (int64_t p = p0; p < p1; p += $NR) {
                const ${S}_depth d = seen[(p - p0) / $NR];
                const int64_t begin = d.begin > k0 ? d.begin - k0 : 0, end = d.end < k0 + k ? d.end - k0 : k;
                const int64_t from = begin < end ? begin : 0;
                const $T *rows = w + k0 * g->oc + row * k + from * height;
                ${S}_block(o, height, row, p, begin < end ? end - begin : 0, rows, packed + (p - p0) * k + from * $NR,
                           sums, 1, 1, k0 > 0, k0 + k >= depth, rows + $far, height);
            }
        }
        k0 += k;
    } while (k0 < depth);
}

/* Tasks begin to end: images, groups, blocks of pixels, parts of the channels (innermost; neighbours are joined). */
static void ${S}_part(void *given, int64_t begin, int64_t end) {
    const ${S}_args *g = given;
    const ${S}_plan plan = ${S}_split(g);
    while (begin < end) {
        const int64_t part = begin % plan.parts, pixels = begin / plan.parts % plan.blocks;
        const int64_t matrix = begin / plan.parts / plan.blocks, image = matrix / g->groups, group = matrix % g->groups;
        const int64_t run = plan.parts - part < end - begin ? plan.parts - part : end - begin;
        const int64_t channel = group * g->oc, n = g->oh * g->ow;
        const int64_t p0 = plan.panels * pixels / plan.blocks * $NR;
        const int64_t p1 = plan.panels * (pixels + 1) / plan.blocks * $NR;
        $T *c = g->y + image * g->y_batch + channel * g->y_channel;
        ${S}_out o = {.c = c, .c_row = g->y_channel, .n = n};$slot_starts
        ${S}_range(g, &o, &plan, g->x + image * g->x_batch + group * g->ic * g->x_channel,
                   g->w + channel * g->ic * g->kh * g->kw, p0, p1 < n ? p1 : n,
                   plan.tiles * part / plan.parts, plan.tiles * (part + run) / plan.parts);
        begin += run;
    }
}

void $S($parameters) {
    ${S}_args call = *g;
    if (g->batch <= 0 || g->oh <= 0 || g->ow <= 0) return;
    if (g->kh == 1 && g->kw == 1 && g->stride_h == 1 && g->stride_w == 1 && g->ih == g->oh && g->iw == g->ow) {
        call.iw = call.ow = g->iw * g->ih; /* one long row */
        call.ih = call.oh = 1;
    }
    const ${S}_plan plan = ${S}_split(&call);
    const int64_t tasks = g->batch * g->groups * plan.blocks * plan.parts;
    const double pixels = (double)(g->batch * g->oh * g->ow), channels = (double)(g->oc * g->groups);
    const double work = pixels * channels * (double)(g->ic * g->kh * g->kw);
    if (!pool || tasks < 2 || work < $worthwhile)
        ${S}_part(&call, 0, tasks);
    else
        pool->parallel_for(pool->self, tasks, ${S}_part, &call);
}
"""


@kernel
class NchwConvKernel(Kernel[ConvProblem]):
    """A generated convolution.

    `stride` is the stride along the width that it is specialised for (0: any), `panels` how many
    panels of pixels meet the weights at a time.  `heights` are the heights of the
    tiles of output channels (of one group), `narrow` as in `GemmKernel`.
    """

    tile: Tile
    epilogue: Epilogue
    stride: int
    panels: int
    heights: tuple[int, ...]
    narrow: bool

    problem = ConvProblem

    @classmethod
    def candidates(cls, problem: ConvProblem, isa: Isa) -> Iterator[Self]:
        """Yield a variant for each register tile.

        Weights that stay in the second cache may be read often; others are read once for as many pixels as possible.
        """
        p = problem
        if p.layout != "nchw" or p.dtype not in (f32, f64):
            return
        pixels = p.result[0] * p.result[1]
        panels = 2 if p.oc * p.ic * p.taps * p.dtype.itemsize <= isa.l2 // 2 else 4
        stride = p.strides[1] if p.strides[1] in (1, 2) else 0
        for shape in COSTS[isa.name].tiles:
            tile = Tile(isa, p.dtype, *shape)
            yield cls(tile, p.epilogue, stride, panels, heights_of(p.oc, tile.rows), is_narrow(tile, pixels))

    def cycles(self, problem: ConvProblem) -> float:
        p, t = problem, self.tile
        pixels, depth = max(likely(p.result[0] * p.result[1]), 1), p.ic * p.taps
        products = tile_cycles(t.isa, (t.rows, t.vectors), t.lanes, p.oc, pixels) * depth
        weights = p.waiting(t.isa, p.outputs * depth * t.dtype.itemsize)
        read = (products + self._gathering(p) * depth) * (p.pixels / pixels) * p.seen(t.panel)
        return p.images * p.groups * read + weights

    def _gathering(self, problem: ConvProblem) -> float:
        """Estimate the cycles to gather one row of the matrix X: of each run of pixels in a panel, of each pixel."""
        (oh, ow), p = (max(likely_extent(n), 1) for n in problem.result), problem
        if p.taps == 1 and p.strides == (1, 1):
            oh, ow = 1, oh * ow
        pixels, panel = oh * ow, self.tile.panel
        runs = oh + pixels // panel - pixels // lcm(ow, panel)
        run, pixel = SPAN if p.strides[1] == 1 else SPAN_STRIDED
        return runs * run + pixels * pixel * (16 / self.tile.lanes)

    @property
    def label(self) -> str:
        return f"tiles {self.tile.rows}x{self.tile.vectors}"

    def arguments_for(self, problem: ConvProblem) -> dict[str, Dim]:
        names = ("kh", "kw", "stride_h", "stride_w", "dilation_h", "dilation_w")
        values = (n for pair in problem.geometry for n in pair)
        window = {name: Dim.of(n) for name, n in zip(names, values, strict=True)}
        return problem.arguments() | problem.channel_arguments() | window | {"groups": Dim.of(problem.groups)}

    def packed(self, problem: ConvProblem) -> Packed:
        groups, elements = problem.groups, problem.outputs * problem.ic * problem.taps
        key = ("tiles of channels", self.tile.rows, self._room, groups)
        return Packed(key, self.tile.dtype, elements, lambda w: self.pack_weights(w, groups))

    def compute(self, reads: Sequence[Array], writes: Sequence[Array], sizes: Mapping[str, int]) -> None:
        groups = sizes["groups"]
        shape = (groups * sizes["oc"], sizes["ic"], sizes["kh"], sizes["kw"])
        w = unpacked(reads[1], shape, self.tile.dtype, lambda w: self.pack_weights(w, groups))
        strides, dilations = (sizes["stride_h"], sizes["stride_w"]), (sizes["dilation_h"], sizes["dilation_w"])
        convolve("nchw", w, groups, strides, dilations, self.epilogue, reads, writes, sizes)

    @cached_property
    def symbol(self) -> str:
        words = self.tile.name.removeprefix("irc_tile_")
        return symbol(f"conv_s{self.stride}", words, f"{self.epilogue.key()}{self.heights}{self.narrow}{self.panels}")

    @property
    def pointers(self) -> tuple[tuple[str, str], ...]:
        t = str(names(self.tile)["T"])
        return (("x", f"const {t} *"), ("w", f"const {t} *"), *self.epilogue.pointers(t), ("y", f"{t} *"))

    @property
    def sizes(self) -> tuple[str, ...]:
        slots = [f"s{i}_{f}" for i, f in self.epilogue.strides("batch", "channel")]
        window = "kh kw stride_h stride_w dilation_h dilation_w pad_h pad_w"
        extents = f"batch groups ic oc ih iw oh ow {window} x_batch x_channel y_batch y_channel"
        return (*extents.split(), *slots)

    def pack_weights(self, w: Array, groups: int = 1) -> Array:
        """Pack w[oc, ic, kh, kw] of all groups, flat, without filling up."""
        per = w.shape[0] // groups
        depth = int(np.prod(w.shape[1:]))  # pyright: ignore
        count = max(1, -(-depth // self._room))
        step = -(-depth // count)
        flat = w.reshape(groups, per, w.shape[1], -1).transpose(0, 3, 2, 1).reshape(groups, depth, per)
        parts = [
            flat[g, k : k + step, begin:end].ravel()
            for g in range(groups)
            for k in range(0, depth, max(step, 1))
            for begin, end in _tiles(per, self.tile.rows)
        ]
        return np.concatenate(parts).astype(self.tile.dtype.numpy, copy=False)

    @property
    def _room(self) -> int:
        """The rows of the matrix X in a block, at most."""
        return self.tile.isa.stack // self.tile.dtype.itemsize // (self.panels * self.tile.panel)

    def flops(self, sizes: Sizes) -> Dim:
        return 2 * product(sizes[n] for n in ("batch", "groups", "oc", "ic", "oh", "ow", "kh", "kw"))

    def parts(self) -> list[Part]:
        s, t = self.symbol, self.tile
        variants = Variants(self.heights, self.narrow)
        given = names(t) | {
            "S": s,
            "far": 64 * t.rows,  # a tile of weights comes from memory
            "NB": self.panels * t.panel,
            "NPB": self.panels,
            "room": self._room,
            "few": FEW_TASKS,
            "most_parts": CHANNEL_PARTS,
            "worthwhile": WORTHWHILE,
        }
        starts = "".join(
            f"\n        o.s{i} = g->s{i} + image * g->s{i}_batch"
            + (
                f" + channel * g->s{i}_channel;\n        o.s{i}_row = g->s{i}_channel;"
                if axes in ("column", "full")
                else ";"
            )
            for i, axes in enumerate(self.epilogue.slots)
        )
        stride = str(self.stride) if self.stride else "g->stride_w"
        lanes, cases = _lanes(t.lanes), " else ".join(_span_cases(t, self.stride))
        return [
            prelude(t, self.epilogue),
            *(vector_type(n, t.dtype) for n in lanes),
            bodies(t, variants),
            block(s, t, self.epilogue, variants),
            fill(_SPAN, **given, stride=self.stride or "stride", cases=f"    {cases}\n" if cases else ""),
            fill(_GATHER, **given, stride=stride),
            fill(_BODY, **given, **self.interface, slot_starts=starts),
        ]

    @property
    def summary(self) -> str:
        along = f"stride {self.stride} along the width" if self.stride else "any stride"
        t = self.tile
        return f"Convolution, NCHW, {t.dtype}, tiles of {t.rows} channels x {t.panel} pixels, {along}."


def _tiles(channels: int, rows: int) -> Iterator[tuple[int, int]]:
    """Yield the ranges of output channels that tiles cover."""
    count = max(1, -(-channels // rows))
    low, extra = divmod(channels, count)
    begin = 0
    for t in range(count):
        end = begin + low + (t < extra)
        yield begin, end
        begin = end


def _lanes(most: int) -> list[int]:
    found = [most]
    while found[-1] > 4:
        found.append(found[-1] // 2)
    return found


def _span_cases(tile: Tile, stride: int) -> Iterator[str]:
    """Print copies by vectors of falling width: n >= width, and the last vector overlaps."""
    if stride not in (1, 2):
        return
    for lanes in _lanes(tile.lanes):
        v = vector_name(lanes, tile.dtype)
        picks = ", ".join(str(i) for i in (*range(0, lanes, 2), *range(lanes + 1, 2 * lanes, 2)))

        def one(at: str | int, v: str = v, lanes: int = lanes, picks: str = picks) -> str:
            twice = 2 * at if isinstance(at, int) else f"2 * ({at})"
            given: dict[str, object] = {"V": v, "at": at, "twice": twice, "next": lanes - 1, "picks": picks}
            if stride == 1:
                return fill("${V}_store(to + $at, ${V}_load(from + $at));", **given)
            both = fill("${V}_load(from + $twice), ${V}_load(from + $twice + $next)", **given)
            return fill("${V}_store(to + $at, __builtin_shufflevector($both, $picks));", **given, both=both)

        pieces = range(tile.panel // lanes if lanes == tile.lanes else 1)
        if lanes == tile.lanes:
            yield (
                f"if (n == {tile.panel}) {{\n        for (; to < end; from += channel, to += {tile.panel}) {{\n"
                + "".join(f"            {one(w * lanes)}\n" for w in pieces)
                + "        }\n    }"
            )
        for more in reversed(pieces):
            low = lanes * (more + 1)
            steps = [one(w * lanes) for w in range(more + 1)] + [one(f"n - {lanes}")]
            yield (
                f"if (n >= {low}) {{\n        for (; to < end; from += channel, to += {tile.panel}) {{\n"
                + "".join(f"            {s}\n" for s in steps)
                + "        }\n    }"
            )
