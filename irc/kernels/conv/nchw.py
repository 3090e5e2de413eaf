"""Convolution, NCHW, as an implicit matrix product: Y[oc, pixels] = epilogue(W[oc, taps × ic] · X[taps × ic, pixels]).

Weights are packed at compile time, [group][block of taps × ic][tile of oc][kd, kh, kw, ic][rows of the tile].  A block
of the matrix X (some panels of output pixels × a range of taps and channels) is gathered beforehand, which also
settles padding, strides and dilations; it then meets all output channels.  Taps that are in padding for a whole panel
are left out.  Nothing outside the input is read.

Threads split images, groups, pixels and output channels, never the sum: results do not depend on them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from math import lcm, prod
from typing import Self

import numpy as np

from irc.ir.dim import Dim, product
from irc.ir.types import f32, f64
from irc.kernels.conv.channels_first import ChannelsFirstKernel
from irc.kernels.conv.problem import ConvProblem
from irc.kernels.conv.reference import convolve, unpacked
from irc.kernels.core.base import Array, Packed, Sizes
from irc.kernels.core.costs import SPAN, SPAN_STRIDED, WAY, costs_of, in_halves, tile_cycles
from irc.kernels.core.epilogue import Epilogue
from irc.kernels.core.isa import C_TYPES, Isa, vector_name, vector_type
from irc.kernels.core.panels import pack_panels
from irc.kernels.core.problem import likely, likely_extent
from irc.kernels.core.registry import kernel
from irc.kernels.core.text import Part, fill, symbol
from irc.kernels.core.tile import Tile, Variants, block, bodies, heights_of, names, prelude
from irc.kernels.core.workspace import DIVIDE
from irc.kernels.gemm.tasks import WORTHWHILE
from irc.kernels.gemm.tiled import is_narrow
from irc.kernels.vector.pixels import channel_slots

FEW_TASKS = 16  # with fewer blocks of pixels than this, output channels are split too
CHANNEL_PARTS = 8
TILE, SPAN_BEGINS = 180.0, 40.0  # cycles of a tile at least; to begin a run of a tap's pixels, of all channels
LONE_SPAN_BEGINS = 15.0  # the same where there is one tap
CONFLICT = 1.8  # times as long to gather where channels are a multiple of WAY apart
STORED_IN_HALVES = 6.0  # cycles that a vector of results takes besides its products
ROWS_AHEAD = 8  # of the matrix X, that are fetched ahead
MOST_PANELS = 16  # of pixels that meet the weights at a time

_SPAN = """
/* to[c][j] = from[c][j * stride_w] for j < n <= $NR; the last vector overlaps the one before. */
static void ${S}_span(const $T *from, int64_t channel, int64_t channels, int64_t n, int64_t stride, $T *to) {
    (void)stride;
    const $T *const end = to + channels * $NR;
$cases    for (; to < end; from += channel, to += $NR)
        for (int64_t j = 0; j < n; j++) to[j] = from[j * $stride];
}
"""

_SHIFTED = """
/* Whether what a tap sees of pixels p0 to p1 stands as they do, whatever rows they are of. */
IRC_INLINE int ${S}_is_shifted(const ${S}_args *g, int64_t p0, int64_t p1) {
    const int64_t plane = g->oh * g->ow;
    const int whole = g->oh == g->ih && g->stride_d == 1;
    return g->ow == g->iw && g->stride_h == 1 && (whole || p0 / plane == (p1 - 1) / plane);
}

/* Pixels p0 to p1 of such a panel, the first one at z0, y0, x0, and rows k0 to k1 of the matrix X, as [k][$NR]: whole
   vectors, and 0 where a tap is in padding. */
static void ${S}_shifted(const ${S}_args *g, const $T *x, int64_t p0, int64_t p1, int64_t z0, int64_t y0, int64_t x0,
                         int64_t k0, int64_t k1, $T *to) {
    const int64_t all = (g->ic - 1) * g->x_channel + g->id * g->ih * g->iw, far = 1 << 30;
    ${V}_mask columns[$NV], rows[$NV], planes[$NV];
    int64_t ox = x0, oy = y0, oz = z0 * g->stride_d;
    for (int64_t j = 0; j < $NR; j++) {
        columns[j / $L][j % $L] = ($I)(j < p1 - p0 ? ox : far);
        rows[j / $L][j % $L] = ($I)oy;
        planes[j / $L][j % $L] = ($I)oz;
        if (++ox < g->ow) continue;
        ox = 0;
        if (++oy == g->oh) oy = 0, oz += g->stride_d;
    }
    for (int64_t at = k0, n; at < k1; at += n) {
        const int64_t tap = at / g->ic, c = at % g->ic, line = tap / g->kw;
        const int64_t dz = line / g->kh * g->dilation_d - g->pad_d, dy = line % g->kh * g->dilation_h - g->pad_h;
        const int64_t dx = tap % g->kw * g->dilation_w - g->pad_w;
        int64_t from = c * g->x_channel + ((z0 * g->stride_d + dz) * g->ih + y0 + dy) * g->iw + x0 + dx;
        ${V}_mask inside[$NV];
        for (int w = 0; w < $NV; w++) {
            const ${V}_mask u = columns[w] + ($I)dx, v = rows[w] + ($I)dy, t = planes[w] + ($I)dz;
            inside[w] = (u >= 0) & (u < ($I)g->iw) & (v >= 0) & (v < ($I)g->ih) & (t >= 0) & (t < ($I)g->id);
        }
        n = g->ic - c < k1 - at ? g->ic - c : k1 - at;
        for (int64_t i = 0; i < n; i++, from += g->x_channel, to += $NR) {
            if (from < 0 || from + $NR > all) { /* whole vectors would reach beyond the input */
                for (int64_t j = 0; j < $NR; j++) to[j] = inside[j / $L][j % $L] ? x[from + j] : 0;
                continue;
            }
            __builtin_prefetch(x + from + $rows_ahead * g->x_channel + $NR - 1);
            IRC_FULL_UNROLL
            for (int w = 0; w < $NV; w++)
                ${V}_store(to + w * $L, ${V}_select(inside[w], ${V}_load(x + from + w * $L), ($V){0}));
        }
    }
}
"""

_CHOOSE_SHIFTED = """\
    if (${S}_is_shifted(g, p0, p1)) {
        ${S}_shifted(g, x, p0, p1, z0, y0, x0, k0, k1, to);
        return;
    }
"""

_GATHER = """
/* The rows of the matrix X that a panel of pixels needs: `length` of every `step`, from `begin` on, before `end`.  The
   others are of taps that are in padding for all of the pixels. */
typedef struct {
    int64_t begin, end, step, length;
} ${S}_rows;

/* The taps t < *end, t >= *begin, of which some position in [low, high] * stride - pad + t * dilation is in
   [0, size). */
IRC_INLINE void ${S}_taps(int64_t low, int64_t high, int64_t stride, int64_t pad, int64_t dilation, int64_t size,
                          int64_t count, int64_t *begin, int64_t *end) {
    const int64_t before = pad - high * stride, room = size + pad - low * stride;
    *begin = before > 0 ? (before + dilation - 1) / dilation : 0;
    *end = room > 0 ? (room - 1) / dilation + 1 : 0;
    if (*end > count) *end = count;
    if (*begin > *end) *begin = *end;
}

static ${S}_rows ${S}_needed(const ${S}_args *g, int64_t p0, int64_t p1) {
    const int64_t plane = g->oh * g->ow, z0 = p0 / plane, z1 = (p1 - 1) / plane, row = g->kw * g->ic;
    const int64_t y0 = z0 < z1 ? 0 : (p0 - z0 * plane) / g->ow;
    const int64_t y1 = z0 < z1 ? g->oh - 1 : (p1 - 1 - z0 * plane) / g->ow;
    int64_t d0, d1, h0, h1;
    ${S}_taps(z0, z1, g->stride_d, g->pad_d, g->dilation_d, g->id, g->kd, &d0, &d1);
    ${S}_taps(y0, y1, g->stride_h, g->pad_h, g->dilation_h, g->ih, g->kh, &h0, &h1);
    if (g->kd == 1 && g->kh == 1 && z0 == z1 && y0 == y1 && d0 < d1 && h0 < h1 && row > 0) {
        const int64_t x0 = (z0 * g->oh + y0) * g->ow; /* one row of taps and of pixels: taps that see any of them */
        ${S}_taps(p0 - x0, p1 - 1 - x0, $stride, g->pad_w, g->dilation_w, g->iw, g->kw, &d0, &d1);
        if (d0 < d1) return (${S}_rows){d0 * g->ic, d1 * g->ic, (d1 - d0) * g->ic, (d1 - d0) * g->ic};
    }
    if (d0 >= d1 || h0 >= h1 || row == 0) return (${S}_rows){0, 0, 1, 0};
    const int64_t plane_rows = row * g->kh, planes = d1 - d0, length = (h1 - h0) * row;
    if (h1 - h0 == g->kh) return (${S}_rows){d0 * plane_rows, d1 * plane_rows, planes * length, planes * length};
    return (${S}_rows){d0 * plane_rows + h0 * row, (d1 - 1) * plane_rows + h1 * row, plane_rows, length};
}

/* The first rows from `at` on, before `end`, that are needed: *begin to *stop. Returns whether there are any. */
IRC_INLINE int ${S}_next(const ${S}_rows *r, int64_t at, int64_t end, int64_t *begin, int64_t *stop) {
    int64_t from = at > r->begin ? at : r->begin, start = from - (from - r->begin) % r->step;
    if (from >= start + r->length) from = start += r->step;
    *begin = from;
    *stop = start + r->length < end ? start + r->length : end;
    return from < r->end && from < end;
}

$shifted/* Pixels p0 to p1 of one panel and rows k0 to k1 of the matrix X, as [k][$NR]. */
static void ${S}_gather(const ${S}_args *g, const $T *x, int64_t p0, int64_t p1, int64_t k0, int64_t k1, $T *to) {
    const int64_t z0 = p0 / (g->oh * g->ow), y0 = p0 / g->ow % g->oh, x0 = p0 % g->ow;
$choose_shifted    for (int64_t at = k0, n; at < k1; at += n, to += n * $NR) {
        const int64_t tap = at / g->ic, c = at % g->ic, line = tap / g->kw;
        const int64_t dz = line / g->kh * g->dilation_d - g->pad_d, dy = line % g->kh * g->dilation_h - g->pad_h;
        const int64_t dx = tap % g->kw * g->dilation_w - g->pad_w;
        n = g->ic - c < k1 - at ? g->ic - c : k1 - at;
        int64_t lo = dx < 0 ? (-dx + $stride - 1) / $stride : 0;
        int64_t hi = g->iw - dx > 0 ? (g->iw - dx - 1) / $stride + 1 : 0;
        if (hi > g->ow) hi = g->ow;
        if (lo > hi) lo = hi;
        int64_t iz = z0 * g->stride_d + dz, iy = y0 * g->stride_h + dy, oy = y0, ox = x0;
        for (int64_t p = p0, most; p < p1; p += most) {
            most = p1 - p < g->ow - ox ? p1 - p : g->ow - ox;
            $T *out = to + (p - p0);
            int64_t begin = lo > ox ? lo - ox : 0, end = hi > ox ? hi - ox : 0;
            if (iy < 0 || iy >= g->ih || iz < 0 || iz >= g->id) begin = end = 0;
            if (end > most) end = most;
            if (begin > end) begin = end;
            if (begin > 0 || end < most) {
                for (int64_t j = 0; j < most; j++) { /* column by column: for those of a row compilers call memset */
                    if (j >= begin && j < end) continue;
                    for (int64_t i = 0; i < n; i++) out[i * $NR + j] = 0;
                }
            }
            if (begin < end) {
                const $T *from = x + c * g->x_channel + (iz * g->ih + iy) * g->iw + (ox + begin) * $stride + dx;
                ${S}_span(from, g->x_channel, n, end - begin, $stride, out + begin);
            }
            ox = 0;
            iy += g->stride_h;
            if (++oy == g->oh) oy = 0, iy = dy, iz += g->stride_d;
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
    const int64_t tiles = (g->oc + $MR - 1) / $MR, panels = (g->od * g->oh * g->ow + $NR - 1) / $NR;
    const int64_t blocks = (panels + $NPB - 1) / $NPB;
    const int64_t parts = g->batch * g->groups * blocks >= $few ? 1 : tiles < $most_parts ? tiles : $most_parts;
    return (${S}_plan){tiles, g->oc / tiles, g->oc % tiles, panels, blocks, parts};
}

/* Pixels p0 to p1 of the output channels in tiles t0 to t1 of one group. */
static void ${S}_range(const ${S}_args *g, const ${S}_out *o, const ${S}_plan *plan, const $T *x, const $T *w,
                       $T *packed, int64_t p0, int64_t p1, int64_t t0, int64_t t1) {
    _Alignas(64) $T sums[$MR * $NR];
    const int64_t depth = g->ic * g->kd * g->kh * g->kw, count = (depth + $room - 1) / $room;
    const int64_t step = count ? (depth + count - 1) / count : 0;
    ${S}_rows needed[$NPB];
    for (int64_t p = p0; p < p1; p += $NR) needed[(p - p0) / $NR] = ${S}_needed(g, p, p + $NR < p1 ? p + $NR : p1);
    /* windows of one pixel, which stand in one row */
    const int lone = depth == g->ic && g->iw == g->ow && g->ih == 1 && g->oh == 1 && g->id == 1 && g->od == 1
                     && !g->pad_w && !g->pad_h && !g->pad_d;
    int64_t k0 = 0, from, to, next = 0, next_to = 0;
    do {
        const int64_t k = depth - k0 < step ? depth - k0 : step, k1 = k0 + k;
        if (lone) ${V}_panels_$NV(x + k0 * g->x_channel + p0, g->x_channel, p1 - p0, k, k, packed);
        for (int64_t p = p0; p < p1 && !lone; p += $NR)
            for (to = k0; ${S}_next(needed + (p - p0) / $NR, to, k1, &from, &to);)
                ${S}_gather(g, x, p, p + $NR < p1 ? p + $NR : p1, from, to, packed + (p - p0) * k + (from - k0) * $NR);
        for (int64_t t = t0; t < t1; t++) {
            const int height = (int)(plan->low + (t < plan->extra));
            const int64_t row = t * plan->low + (t < plan->extra ? t : plan->extra);
            const $T *const tile = w + k0 * g->oc + row * k;
            for (int64_t p = p0; p < p1; p += $NR) {
                const ${S}_rows *const rows = needed + (p - p0) / $NR;
                const int begun = rows->begin < k0 && rows->begin < rows->end;
                int more = ${S}_next(rows, k0, k1, &from, &to);
                if (!more && k1 < depth) continue;
                if (!more) from = to = k0; /* nothing to add: what there is goes through the epilogue */
                for (int first = 1;; first = 0, from = next, to = next_to) {
                    const $T *const a = tile + (from - k0) * height, *const b = packed + (p - p0) * k;
                    more = more && ${S}_next(rows, to, k1, &next, &next_to);
                    ${S}_block(o, height, row, p, to - from, a, b + (from - k0) * $NR, sums, first, !more, begun,
                               k1 >= depth, a + $far, height);
                    if (!more) break;
                }
            }
        }
        k0 += k;
    } while (k0 < depth);
}

/* Tasks begin to end: images, groups, blocks of pixels, parts of the channels (innermost; neighbours are joined). */
static void ${S}_part(void *given, char *own, int64_t begin, int64_t end) {
    const ${S}_args *g = given;
    const ${S}_plan plan = ${S}_split(g);
    while (begin < end) {
        const int64_t part = begin % plan.parts, pixels = begin / plan.parts % plan.blocks;
        const int64_t matrix = begin / plan.parts / plan.blocks, image = matrix / g->groups, group = matrix % g->groups;
        const int64_t run = plan.parts - part < end - begin ? plan.parts - part : end - begin;
        const int64_t channel = group * g->oc, n = g->od * g->oh * g->ow;
        const int64_t p0 = plan.panels * pixels / plan.blocks * $NR;
        const int64_t p1 = plan.panels * (pixels + 1) / plan.blocks * $NR;
        $T *c = g->y + image * g->y_batch + channel * g->y_channel;
        ${S}_out o = {.c = c, .c_row = g->y_channel, .n = n};$slot_starts
        ${S}_range(g, &o, &plan, g->x + image * g->x_batch + group * g->ic * g->x_channel,
                   g->w + channel * g->ic * g->kd * g->kh * g->kw, ($T *)own, p0, p1 < n ? p1 : n,
                   plan.tiles * part / plan.parts, plan.tiles * (part + run) / plan.parts);
        begin += run;
    }
}

void $S($parameters) {
    ${S}_args call = *g;
    if (g->batch <= 0 || g->od <= 0 || g->oh <= 0 || g->ow <= 0) return;
    if (g->kh == 1 && g->kw == 1 && g->stride_h == 1 && g->stride_w == 1 && g->ih == g->oh && g->iw == g->ow) {
        call.iw = call.ow = g->iw * g->ih; /* one long row */
        call.ih = call.oh = 1;
        if (g->kd == 1 && g->stride_d == 1 && g->id == g->od) {
            call.iw = call.ow = call.iw * g->id;
            call.id = call.od = 1;
        }
    }
    const ${S}_plan plan = ${S}_split(&call);
    const int64_t tasks = g->batch * g->groups * plan.blocks * plan.parts;
    const double pixels = (double)(g->batch * g->od * g->oh * g->ow), channels = (double)(g->oc * g->groups);
    const double work = pixels * channels * (double)(g->ic * g->kd * g->kh * g->kw);
    if (!pool || tasks < 2 || work < $worthwhile)
        ${S}_part(&call, g->own, 0, tasks);
    else
        irc_divide(pool, tasks, ${S}_part, &call, g->own, g->own_bytes, g->owners);
}
"""


@kernel
class NchwConvKernel(ChannelsFirstKernel[ConvProblem]):
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
    extents = (
        "batch groups ic oc id ih iw od oh ow kd kh kw stride_d stride_h stride_w dilation_d dilation_h dilation_w"
        " pad_d pad_h pad_w x_batch x_channel y_batch y_channel"
    )

    @classmethod
    def candidates(cls, problem: ConvProblem, isa: Isa) -> Iterator[Self]:
        """Yield a variant for each register tile.

        Weights that stay in the second cache may be read often; others are read once for as many pixels as possible.
        """
        p = problem
        if p.layout != "nchw" or p.dtype not in (f32, f64):
            return
        pixels = p.depth.result * p.result[0] * p.result[1]
        fewest = 2 if p.oc * p.ic * p.taps * p.dtype.itemsize <= isa.l2 // 2 else 4
        stride = p.strides[1] if p.strides[1] in (1, 2) else 0
        for shape in costs_of(isa).tiles:
            tile, panels = Tile(isa, p.dtype, *shape), fewest
            while panels < MOST_PANELS and 4 * p.ic * p.taps * panels * tile.panel * p.dtype.itemsize <= isa.packed:
                panels *= 2  # few products: rows of the result are written in longer pieces
            yield cls(tile, p.epilogue, stride, panels, heights_of(p.oc, tile.rows), is_narrow(tile, pixels))

    def cycles(self, problem: ConvProblem) -> float:
        p, t, depth = problem, self.tile, problem.ic * problem.taps
        pixels = max(likely(p.depth.result * p.result[0] * p.result[1]), 1)
        weights = p.waiting(t.isa, p.outputs * depth * t.dtype.itemsize)
        read = (self._products(p) + self._gathering(p) * depth) * (p.pixels / pixels) * p.seen(t.panel)
        return max(p.images * p.groups * read, weights)  # which are fetched ahead

    def _products(self, problem: ConvProblem) -> float:
        """Estimate the cycles of the products of one group of an image."""
        p, t = problem, self.tile
        pixels, depth = max(likely(p.depth.result * p.result[0] * p.result[1]), 1), p.ic * p.taps
        products = tile_cycles(t.isa, (t.rows, t.vectors), t.lanes, p.oc, pixels) * depth
        if in_halves(t.isa):
            return products + p.oc * -(-pixels // t.lanes) * STORED_IN_HALVES
        return max(products, -(-p.oc // t.rows) * -(-pixels // t.panel) * TILE)  # few wait for their stores

    def _gathering(self, problem: ConvProblem) -> float:
        """Estimate the cycles to gather one row of the matrix X: of each run of pixels in a panel, of each pixel."""
        (oh, ow), p = (max(likely_extent(n), 1) for n in problem.result), problem
        oh *= likely_extent(p.depth.result)
        if p.taps == 1 and p.strides == (1, 1):
            oh, ow = 1, oh * ow
        pixels, panel = oh * ow, self.tile.panel
        runs = oh + pixels // panel - pixels // lcm(ow, panel)
        if p.strides == (1, 1) and p.size[1] == p.result[1]:
            runs = -(-pixels // panel)
        run, pixel = SPAN if p.strides[1] == 1 else SPAN_STRIDED
        begins = SPAN_BEGINS if p.taps > 1 else LONE_SPAN_BEGINS
        cycles = runs * (run + begins / p.ic) + pixels * pixel * (16 / self.tile.lanes)
        conflict = p.ic > 1 and p.taps > 1 and p.x[1] % (WAY // p.dtype.itemsize) == 0
        return cycles * CONFLICT if conflict else cycles

    def imbalance(self, problem: ConvProblem) -> float:
        """Count tasks as the C does, and that pixels are gathered again where tasks of their channels are parted.

        Those are the middle of all tasks, and where a thread's share is, which it takes in two pieces.
        """
        p, pixels = problem, problem.depth.result * problem.result[0] * problem.result[1]
        if not p.batch.is_const or not pixels.is_const or p.images * p.pixels * p.outputs * p.ic * p.taps < WORTHWHILE:
            return 1.0
        panels, tiles = -(-int(pixels) // self.tile.panel), -(-p.oc // self.tile.rows)
        blocks = int(p.batch) * p.groups * -(-panels // self.panels)
        parts = 1 if blocks >= FEW_TASKS else min(tiles, CHANNEL_PARTS)
        tasks = blocks * parts
        if not tasks or parts == 1:
            return (tasks + tasks % 2) / max(tasks, 1)
        gathering = self._gathering(p) * p.ic * p.taps
        again = (blocks % 2 > 0) + 2 * (blocks % 8 > 0)
        return min((tasks + tasks % 2) / tasks + again / blocks * gathering / (gathering + self._products(p)), 2.0)

    @property
    def label(self) -> str:
        return f"tiles {self.tile.rows}x{self.tile.vectors}"

    def arguments_for(self, problem: ConvProblem) -> dict[str, Dim]:
        names = ("kh", "kw", "stride_h", "stride_w", "dilation_h", "dilation_w")
        values = (n for pair in problem.geometry for n in pair)
        window = {name: Dim.of(n) for name, n in zip(names, values, strict=True)}
        d = problem.depth
        window |= {"kd": Dim.of(d.window), "stride_d": Dim.of(d.stride), "dilation_d": Dim.of(d.dilation)}
        window |= {"id": d.size, "od": d.result, "pad_d": d.padding}
        return problem.arguments() | problem.channel_arguments() | window | {"groups": Dim.of(problem.groups)}

    def own_bytes(self, sizes: Mapping[str, int]) -> int:
        depth, pixels = prod(sizes[n] for n in ("ic", "kd", "kh", "kw")), prod(sizes[n] for n in ("od", "oh", "ow"))
        panels = min(self.panels, -(-pixels // self.tile.panel))
        return min(depth, self._room) * panels * self.tile.panel * self.tile.dtype.itemsize

    def packed(self, problem: ConvProblem) -> Packed:
        groups, elements = problem.groups, problem.outputs * problem.ic * problem.taps
        key = ("tiles of channels", self.tile.rows, self._room, groups)
        return Packed(key, self.tile.dtype, elements, lambda w: self.pack_weights(w, groups))

    def compute(self, reads: Sequence[Array], writes: Sequence[Array], sizes: Mapping[str, int]) -> None:
        groups = sizes["groups"]
        shape = (groups * sizes["oc"], sizes["ic"], sizes["kd"], sizes["kh"], sizes["kw"])
        w = unpacked(reads[1], shape, self.tile.dtype, lambda w: self.pack_weights(w, groups))
        strides, dilations = (tuple(sizes[f"{n}_{a}"] for a in "dhw") for n in ("stride", "dilation"))
        convolve("nchw", w, groups, strides, dilations, self.epilogue, reads, writes, sizes)

    @cached_property
    def symbol(self) -> str:
        words = self.tile.name.removeprefix("irc_tile_")
        return symbol(f"conv_s{self.stride}", words, f"{self.epilogue.key()}{self.heights}{self.narrow}{self.panels}")

    def pack_weights(self, w: Array, groups: int = 1) -> Array:
        """Pack w[oc, ic, kd, kh, kw] of all groups, flat, without filling up."""
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
        return self.tile.isa.packed // self.tile.dtype.itemsize // (self.panels * self.tile.panel)

    def flops(self, sizes: Sizes) -> Dim:
        return 2 * product(sizes[n] for n in ("batch", "groups", "oc", "ic", "od", "oh", "ow", "kd", "kh", "kw"))

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
            "I": C_TYPES[t.dtype.name][1],
            "rows_ahead": ROWS_AHEAD,
        }
        stride = str(self.stride) if self.stride else "g->stride_w"
        shifted = {"shifted": fill(_SHIFTED, **given), "choose_shifted": fill(_CHOOSE_SHIFTED, **given)}
        if self.stride != 1:
            shifted = dict.fromkeys(shifted, "")
        lanes, cases = _lanes(t.lanes), " else ".join(_span_cases(t, self.stride))
        return [
            prelude(t, self.epilogue),
            DIVIDE,
            *(vector_type(n, t.dtype) for n in lanes),
            pack_panels(t),
            bodies(t, variants),
            block(s, t, self.epilogue, variants),
            fill(_SPAN, **given, stride=self.stride or "stride", cases=f"    {cases}\n" if cases else ""),
            fill(_GATHER, **given, stride=stride, **shifted),
            fill(_BODY, **given, **self.interface, slot_starts=channel_slots(self.epilogue)),
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
