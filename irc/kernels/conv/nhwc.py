"""Convolution, NHWC: Y[pixels, oc] = epilogue(sum over window and ic of X[pixel + tap, ic] · W[oc, ic, tap]).

Rows of the register tile are output pixels beside each other, columns are output channels.  For a strip of output rows
the input it needs is copied to the stack once, as [block of ic][row][column][channel of the block], zeros standing for
the padding: the operands of a tile then are a constant distance apart, and no product is skipped or tested.  Weights
are packed at compile time, [group][panel of oc][block of ic][kh][kw][channel of the block][panel]; some of their rows
meet all tiles of a strip while they are in the first caches.  Nothing outside the input is read.

Threads split images, groups, strips and panels of channels, never the sum: results do not depend on them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from typing import Any, Self

import numpy as np

from irc.expr import Expr, constant_of
from irc.ir.dim import Dim, product
from irc.ir.types import f32, f64
from irc.kernels.conv.problem import ConvProblem
from irc.kernels.conv.reference import convolve, unpacked
from irc.kernels.core.base import Array, Kernel, Packed, Sizes
from irc.kernels.core.costs import COSTS, DIRECT
from irc.kernels.core.epilogue import Epilogue
from irc.kernels.core.isa import Isa, vector_name, vector_type
from irc.kernels.core.problem import likely
from irc.kernels.core.registry import kernel
from irc.kernels.core.text import Part, fill, piece, symbol
from irc.kernels.core.tile import Tile, epilogue_of, heights_of, names, prelude
from irc.kernels.gemm.packed import WORTHWHILE
from irc.kernels.vector import bf16_io
from irc.kernels.vector.pixels import STRIDES

BLOCK = 16  # channels of a block of the input, where there are as many
STRIP = 16  # tiles of a strip for which weights are worth reading
FEW_TASKS = 16  # with fewer strips than this, output channels are split too
CHANNEL_PARTS = 8
LONGEST_SUM = 288  # products added up in one accumulator: longer sums are sums of such sums, which lose less
UNROLL = 4  # products of a sum in one round of the loop
NEAR = 16  # products ahead whose weights are fetched
SEGMENTS = 4  # rows of output pixels in one tile, at most
DENSE = 6  # with a larger dilation, rows that no tap meets are left out

_TILE = """typedef struct {
    int64_t n, dy;         /* rows of taps, and which row of the window the first one is */
    int64_t x_row, x_wrap; /* from a row of taps to the next, and what is added after $KH of them */
    int64_t c_row, hop;    /* elements of `ahead` from one fetch of two lines to the next */
} ${body}_shape;
/* acc[S segments of R pixels][W vectors] = sum over taps of X[pixel, tap] * weights[tap], + C where not `first`. */
IRC_INLINE void ${body}(const int S, const int R, const int W, const ${body}_shape *g, const $T *restrict x,
                        const $T *restrict w, const $T *ahead, const $T *c, int first, $V acc[$MR][$NV]) {
    const int64_t c_row = g->c_row, hop = g->hop;
    int64_t dy = g->dy;
    $V bv[$NV];
    IRC_FULL_UNROLL
    for (int i = 0; i < S * R; i++) {
        IRC_FULL_UNROLL
        for (int v = 0; v < W; v++) {
            acc[i][v] = ($V){0};
            if (v * $L * $size % 64 == 0) __builtin_prefetch(c + i * c_row + v * $L, 1);
        }
    }
    for (int64_t q = g->n; q > 0; q--) {
        for (int64_t dx = 0; dx < $TAPS; dx++) {
            const $T *at = x + dx * $DX;
            for (int j = 0; j < $RUN; j += $U, at += $U, w += $U * $NR, ahead += hop) {
                __builtin_prefetch(ahead, 0, 2);
                __builtin_prefetch(ahead + 64 / $size, 0, 2);
                IRC_FULL_UNROLL
                for (int u = 0; u < $U; u++) {
                    IRC_FULL_UNROLL
                    for (int v = 0; v < W; v++) {
                        bv[v] = ${V}_load(w + u * $NR + v * $L);
                        if (v * $L * $size % 64 == 0) __builtin_prefetch(w + $near + u * $NR + v * $L);
                    }
                    IRC_FULL_UNROLL
                    for (int s = 0; s < S; s++) {
                        IRC_FULL_UNROLL
                        for (int i = 0; i < R; i++) {
                            IRC_FULL_UNROLL
                            for (int v = 0; v < W; v++) acc[s * R + i][v] += at[s * $SEGMENT + i * $PIXEL + u] * bv[v];
                        }
                    }
                }
            }
        }
        x += g->x_row;
        if (++dy == $KH) {
            dy = 0;
            x += g->x_wrap;
        }
    }
    if (first) return;
    IRC_FULL_UNROLL
    for (int i = 0; i < S * R; i++) {
        IRC_FULL_UNROLL
        for (int v = 0; v < W; v++) acc[i][v] += ${V}_load(c + i * c_row + v * $L);
    }
}
"""

_INSTANCE = """
/* C[S x R pixels][W vectors] (+)= the sums; the epilogue of pixel `row` and channel `col` on where `last`, when C is
   what is stored in the end, else sums. */
static void ${S}_$instance(const ${S}_out *o, int64_t row, int64_t col, const ${body}_shape *g, const $T *x,
                           const $T *w, const $T *ahead, void *c, int first, int last) {
    (void)o, (void)row, (void)col, (void)last;
    $V acc[$MR][$NV];
    $body($segments, $height, $width, g, x, w, ahead, c, first, acc);
    const int64_t c_row = g->c_row;
    if ($light && last) {
        $Y *const to = c;
        IRC_FULL_UNROLL
        for (int i = 0; i < $segments * $height; i++) {
            IRC_FULL_UNROLL
            for (int v = 0; v < $width; v++)
                $SY(to + i * c_row + v * $L, ${S}_epilogue(o, acc[i][v], row + i, col + v * $L, $L));
        }
        return;
    }
    $T *const to = c;
    IRC_FULL_UNROLL
    for (int i = 0; i < $segments * $height; i++) {
        IRC_FULL_UNROLL
        for (int v = 0; v < $width; v++) ${V}_store(to + i * c_row + v * $L, acc[i][v]);
    }
}
"""

_BLOCK = """
typedef void ${S}_run(const ${S}_out *o, int64_t row, int64_t col, const ${body}_shape *g, const $T *x, const $T *w,
                      const $T *ahead, void *c, int first, int last);

/* The tile of `pixels` pixels at (row, col), adds a part of its sums; the epilogue when that is the last one. */
static void ${S}_block(const ${S}_out *o, ${S}_run *const *bodies, int64_t row, int64_t col, int64_t pixels,
                       ${body}_shape *g, const $T *x, const $T *w, const $T *ahead, int first, int last) {
    const int64_t left = o->n - col;
    $Y *c = o->c + row * o->c_row + col;
$whole    $T part[$MR * $NR];
    for (int64_t i = 0; i < pixels && !first; i++)
        for (int64_t v = 0; v * $L < left; v++)
            ${V}_store(part + i * $NR + v * $L, ${LY}_part(c + i * o->c_row + v * $L, left - v * $L));
    g->c_row = $NR;
    bodies[left < $NR ? (left - 1) / $L : $NV - 1](o, row, col, g, x, w, ahead, part, first, 0);
    for (int64_t i = 0; i < pixels; i++) {
        for (int64_t v = 0; v < $NV && v * $L < left; v++) {
            $V y = ${V}_load(part + i * $NR + v * $L);
            if (last) y = ${S}_epilogue(o, y, row + i, col + v * $L, left - v * $L);
            ${SY}_part(c + i * o->c_row + v * $L, y, left - v * $L);
        }
    }
}
"""

_WHOLE = """    if (left >= $NR) {
        g->c_row = o->c_row;
        bodies[$NV - 1](o, row, col, g, x, w, ahead, c, first, last);
$epilogue        return;
    }
"""

_LATER = """        for (int64_t i = 0; i < pixels && last; i++) {
            IRC_FULL_UNROLL
            for (int v = 0; v < $NV; v++) {
                $T *at = c + i * o->c_row + v * $L;
                ${V}_store(at, ${S}_epilogue(o, ${V}_load(at), row + i, col + v * $L, $L));
            }
        }
"""

_CALL = """
typedef struct {
    const $T *x, *w;
    $Y *y;
    int64_t batch, groups, ic, oc, ih, iw, oh, ow, pad_h, pad_w, x_batch, x_row, x_pixel, y_batch, y_pixel;$slot_fields
    /* The plan: blocks and panels of channels; strips of `rows` rows and `across` parts of the tiles of a row; `chunk`
       blocks of input channels are copied at a time; `parts` of the panels are tasks of their own. */
    int64_t blocks, panels, tiles, strips, across, chunk, parts;
} ${S}_call;

IRC_INLINE int64_t ${S}_least(int64_t a, int64_t b) { return a < b ? a : b; }

/* Rows and columns of the input under n outputs. */
IRC_INLINE int64_t ${S}_tall(int64_t n) { return $tall; }
IRC_INLINE int64_t ${S}_wide(int64_t n) { return $wide; }

/* Where tile t of a row begins. */
IRC_INLINE int64_t ${S}_edge(const ${S}_call *g, int64_t t) {
    return g->ow / g->tiles * t + ${S}_least(t, g->ow % g->tiles);
}

static void ${S}_plan(${S}_call *g) {
    g->blocks = (g->ic + $B - 1) / $B;
    g->panels = (g->oc + $NR - 1) / $NR;
    g->tiles = (g->ow + $R - 1) / $R;
    const int64_t low = ${S}_least(g->blocks, $low), segments = ${S}_least(g->oh, $S_);
    const int64_t pixels = (g->ow + g->tiles - 1) / g->tiles;
    int64_t cols = g->tiles, rows = segments;
    while (cols > 1 && ${S}_tall(rows) * ${S}_wide(cols * pixels) * low > $room) cols = (cols + 1) / 2;
    const int64_t wide = ${S}_wide(cols * pixels);
    for (int64_t next; rows < g->oh; rows = next) {
        next = ${S}_least(rows + segments, g->oh);
        if (${S}_tall(next) * wide * (rows * cols < $strip * segments ? low : g->blocks) > $room) break;
    }
    const int64_t high = (rows + $S_ - 1) / $S_, groups = (g->oh + $S_ - 1) / $S_;
    g->strips = (groups + high - 1) / high;
    g->across = (g->tiles + cols - 1) / cols;
    const int64_t most = $room / (${S}_tall(rows) * wide), chunks = (g->blocks + most - 1) / most;
    g->chunk = (g->blocks + chunks - 1) / chunks;
    const int64_t tasks = g->batch * g->groups * g->strips * g->across;
    g->parts = tasks >= $few ? 1 : ${S}_least(g->panels, $most_parts);
}
"""

_COPY = """
/* `blocks` blocks of channels from `block` on, of `tall` x `wide` pixels that begin at (y, x) of the padded input.  Of
   an image that leaves no room in the second cache, what the next call copies is fetched. */
static void ${S}_copy(const ${S}_call *g, const $T *image, int64_t block, int64_t blocks, int64_t y, int64_t x,
                      int64_t tall, int64_t wide, $T *to) {
    const int64_t ix = x - g->pad_w;
    const int64_t lo = ${S}_least(ix < 0 ? (-ix + $SC - 1) / $SC : 0, wide);
    const int64_t end = ${S}_least(g->iw > ix ? (g->iw - ix - 1) / $SC + 1 : 0, wide), hi = end < lo ? lo : end;
    const int64_t pitch = tall * wide * $B, step = g->x_pixel * $SC;
    const int64_t whole = ${S}_least(blocks, g->ic / $B - block), rest = g->ic - (block + whole) * $B;
    const int large = g->ih * g->x_row * $size > $l2 / 2;
    const int64_t later = large ? ${S}_least(blocks, g->blocks - block - blocks) * $B : 0;
    for (int64_t r = 0; r < tall; r++, to += wide * $B) {
        const int64_t iy = y + $line - g->pad_h;
        const int inside = iy >= 0 && iy < g->ih;
        const int64_t begin = inside ? lo : wide, stop = inside ? hi : wide;
        for (int64_t b = 0; b < blocks; b++) {
            for (int64_t j = 0; j < begin * $B; j++) to[b * pitch + j] = 0;
            for (int64_t j = stop * $B; j < wide * $B; j++) to[b * pitch + j] = 0;
        }
        if (begin >= stop) continue;
        const $T *from = image + iy * g->x_row + (ix + begin * $SC) * g->x_pixel + block * $B;
        $T *at = to + begin * $B, *const last = to + stop * $B;
        if (step == $B && whole == 1) {
            for (; at + $L <= last; at += $L, from += $L) ${V}_store(at, ${V}_load(from));
            for (; at < last; at++, from++) *at = *from;
        }
        for (; at < last; at += $B, from += step) {
            const $T *in = from;
            $T *out = at;
            for (int64_t b = 0; b < whole; b++, in += $B, out += pitch) {
$pieces            }
            for (int64_t c = 0; c < later; c += 64 / $size) __builtin_prefetch(from + blocks * $B + c, 0, 2);
            for (int64_t c = 0; c < $B && whole < blocks; c++) out[c] = c < rest ? in[c] : 0;
        }
    }
}
"""

_BODY = """
static ${S}_run *const ${S}_bodies[$S_][$R][$NV] = {$table};

typedef struct {
    int64_t image, group, y0, y1, t0, t1; /* rows y0 to y1 of the output, tiles t0 to t1 of each */
    const $T *from;                       /* the input that is under them: `rows` times `length` elements */
    int64_t rows, length;
} ${S}_strip;

/* Strip number `at`: images outermost, then groups, rows, and parts of the rows. */
static ${S}_strip ${S}_find(const ${S}_call *g, int64_t at) {
    const int64_t t = at % g->across, y = at / g->across % g->strips, matrix = at / g->across / g->strips;
    const int64_t rows = (g->oh + $S_ - 1) / $S_;
    ${S}_strip s = {.image = matrix / g->groups, .group = matrix % g->groups};
    s.y0 = rows * y / g->strips * $S_;
    s.y1 = ${S}_least(rows * (y + 1) / g->strips * $S_, g->oh);
    s.t0 = g->tiles * t / g->across;
    s.t1 = g->tiles * (t + 1) / g->across;
    const int64_t top = s.y0 * $SH - g->pad_h, left = ${S}_edge(g, s.t0) * $SW - g->pad_w;
    const int64_t y0 = top < 0 ? 0 : top, x0 = left < 0 ? 0 : left;
    s.rows = ${S}_least(top + (s.y1 - s.y0 - 1) * $SH + $KH * $DH, g->ih) - y0;
    s.length = (${S}_least(left + ${S}_wide(${S}_edge(g, s.t1) - ${S}_edge(g, s.t0)) * $SC, g->iw) - x0) * g->x_pixel;
    s.from = g->x + s.image * g->x_batch + s.group * g->ic + y0 * g->x_row + x0 * g->x_pixel;
    if (s.length <= 0 || s.rows <= 0 || g->x_pixel > 2 * g->ic) s.rows = 0;
    return s;
}

/* Panels p0 to p1 of the output channels of a strip.  Fetches what comes next: weights, or the input of strip `next`
   where there is one and the weights are in a cache already. */
static void ${S}_do(const ${S}_call *g, const ${S}_out *o, const ${S}_strip *s, const ${S}_strip *next, int64_t p0,
                    int64_t p1) {
    _Alignas(64) $T copy[$room * $B];
    const $T *image = g->x + s->image * g->x_batch + s->group * g->ic;
    const $T *w = g->w + s->group * g->panels * g->blocks * ($B * $KH * $KW * $NR);
    const int64_t y0 = s->y0, y1 = s->y1, t0 = s->t0, t1 = s->t1, x0 = ${S}_edge(g, t0);
    const int64_t tall = ${S}_tall(y1 - y0), wide = ${S}_wide(${S}_edge(g, t1) - x0);
    const int64_t depth = g->blocks * $KH, tiles = (y1 - y0 + $S_ - 1) / $S_ * (t1 - t0);
    const int stay = next && (p1 - p0) * depth * ($KW * $B * $NR * $size) <= $l2 / 8 * 5; /* in a cache */
    const int64_t todo = stay ? next->rows * next->length : 0, rounds = $KW * $B / $U; /* in a row of taps */
    const int64_t hop = ${S}_least(todo / (tiles * depth * (p1 - p0) * rounds) + 1, 128 / $size);
    int64_t fetched = 0;
    ${body}_shape shape = {.x_row = wide * $B * $DY};
    shape.x_wrap = tall * wide * $B - $KH * shape.x_row;
    for (int64_t b = 0; b < g->blocks; b += g->chunk) {
        const int64_t taps = ${S}_least(g->chunk, g->blocks - b) * $KH;
        const int64_t count = (taps * $KW * $B + $sum - 1) / $sum, step = (taps + count - 1) / count;
        ${S}_copy(g, image, b, taps / $KH, y0 * $SH, x0 * $SW, tall, wide, copy);
        for (int64_t p = p0; p < p1; p++) {
            for (int64_t q = 0; q < taps; q += step) {
                shape.n = ${S}_least(step, taps - q);
                shape.dy = q % $KH;
                shape.hop = stay ? hop : ${S}_least($U * $NR / tiles + 1, 128 / $size);
                const $T *from = copy + q / $KH * tall * wide * $B + shape.dy * shape.x_row;
                const $T *weights = w + (p * depth + b * $KH + q) * ($KW * $B * $NR);
                const $T *ahead = weights + (q + step < taps ? step : depth - q) * ($KW * $B * $NR);
                const int first = b == 0 && q == 0, last = b * $KH + q + shape.n == depth;
                for (int64_t y = y0; y < y1; y += $S_) {
                    const int64_t segments = ${S}_least(y1 - y, $S_);
                    for (int64_t t = t0; t < t1; t++) {
                        const int64_t x = ${S}_edge(g, t), pixels = ${S}_edge(g, t + 1) - x;
                        if (stay) {
                            ahead = weights;
                            shape.hop = fetched < todo ? hop : 0;
                            if (shape.hop)
                                ahead = next->from + fetched / next->length * g->x_row + fetched % next->length;
                            fetched += hop * shape.n * rounds;
                        }
                        ${S}_block(o, ${S}_bodies[segments - 1][pixels - 1], y * g->ow + x, p * $NR, segments * pixels,
                                   &shape, from + (y - y0) * $YS * wide * $B + (x - x0) * $PIXEL, weights, ahead, first,
                                   last);
                        if (!stay) ahead += shape.hop * shape.n * rounds;
                    }
                }
            }
        }
    }
}

/* Tasks begin to end: images, groups, strips, parts of the panels (innermost; neighbours are joined). */
static void ${S}_part(void *given, int64_t begin, int64_t end) {
    const ${S}_call *g = given;
    for (int first = 1; begin < end; first = 0) {
        const int64_t at = begin / g->parts, part = begin % g->parts, run = ${S}_least(g->parts - part, end - begin);
        const ${S}_strip strip = ${S}_find(g, at), next = ${S}_find(g, begin + run < end ? at + 1 : at);
        const int64_t image = strip.image, channel = strip.group * g->oc;
        ${S}_out o = {.c = g->y + image * g->y_batch + channel, .c_row = g->y_pixel, .n = g->oc};$slot_starts
        ${S}_do(g, &o, &strip, first ? 0 : &next, g->panels * part / g->parts, g->panels * (part + run) / g->parts);
        begin += run;
    }
}

void $S($parameters) {
    ${S}_call g = {$fields};
    if (batch <= 0 || groups <= 0 || oc <= 0 || oh <= 0 || ow <= 0) return;
    ${S}_plan(&g);
    const int64_t tasks = batch * groups * g.strips * g.across * g.parts;
    const double work = (double)(batch * oh * ow) * (double)(oc * groups) * (double)(ic * $KH * $KW);
    if (!pool || tasks < 2 || work < $worthwhile) ${S}_part(&g, 0, tasks);
    else pool->parallel_for(pool->self, tasks, ${S}_part, &g);
}
"""


@kernel
class NhwcConvKernel(Kernel[ConvProblem]):
    """A generated convolution of NHWC tensors.

    tile: `segments` rows of output pixels × vectors of output channels; with more than one segment, a segment is a
    whole row, and the width of the output must be `heights[0]`.  heights: of segments, those that a row is cut into.
    widths: vectors of the tiles that there are, the last panel of channels included.  block: input channels that are
    copied side by side.  y_half: y is bf16 (`irc.kernels.vector.bf16_io`), for 16 lanes of f32; only where
    `is_one_sum`, because partial sums stand in it.
    """

    tile: Tile
    segments: int
    window: tuple[int, int]
    strides: tuple[int, int]
    dilations: tuple[int, int]
    block: int
    epilogue: Epilogue
    heights: tuple[int, ...]
    widths: tuple[int, ...]
    y_half: bool = False

    problem = ConvProblem

    @classmethod
    def candidates(cls, problem: ConvProblem, isa: Isa) -> Iterator[Self]:
        """Yield a variant for each width of the register tile; none if the input under a tile is too large."""
        p = problem
        if p.layout != "nhwc" or p.dtype not in (f32, f64):
            return
        ow, lanes = p.result[1], isa.lanes(p.dtype)
        for vectors in DIRECT:
            reach = (isa.registers - 1 - vectors) // vectors
            if reach < 1 or -(-p.oc // lanes) < vectors:
                continue
            heights = heights_of(ow, reach)
            whole = ow.is_const and int(ow) <= reach  # a row of the output is one segment of a tile
            segments = max(1, min(reach // heights[-1], likely(p.result[0]), SEGMENTS)) if whole else 1
            tile, block = Tile(isa, p.dtype, segments * heights[-1], vectors), block_of(p.ic)
            if fits(tile, segments, *p.geometry, block):
                widths = tuple(sorted(_widths(p.oc, lanes, vectors)))
                yield cls(tile, segments, *p.geometry, block, p.epilogue, heights, widths)

    def cycles(self, problem: ConvProblem) -> float:
        p, t = problem, self.tile
        width = likely(p.result[1])
        products = self._row_cycles(width, p.oc) * p.pixels / max(width, 1) * p.ic * p.taps / DIRECT[t.vectors]
        weights = p.waiting(t.isa, p.outputs * p.ic * p.taps * t.dtype.itemsize)
        return p.images * p.groups * products + weights

    def _row_cycles(self, width: int, oc: int) -> float:
        """Estimate the cycles for one product of every sum in a row of outputs.

        Of multiply-adds, loads, the latency of an addition, and weights from the second cache.
        """
        reach = (self.tile.isa.registers - 1 - self.tile.vectors) // self.tile.vectors
        tiles, fma, segments = -(-width // reach), COSTS[self.tile.isa.name].fma, self.segments
        heights = {width // tiles: tiles - width % tiles, width // tiles + 1: width % tiles} if tiles else {}
        return sum(
            panels * count * max(rows * vectors / fma, (rows + vectors) / 2, 4.0, vectors * 2.0) / segments
            for vectors, panels in _widths(oc, self.tile.lanes, self.tile.vectors).items()
            for rows, count in ((segments * height, count) for height, count in heights.items())
        )

    @property
    def label(self) -> str:
        return f"direct, {self.tile.vectors} vectors"

    def arguments_for(self, problem: ConvProblem) -> dict[str, Dim]:
        return problem.arguments() | problem.channel_arguments() | {"groups": Dim.of(problem.groups)}

    def packed(self, problem: ConvProblem) -> Packed:
        groups, elements = problem.groups, self.packed_elements(problem.oc, problem.ic, problem.groups)
        key = ("panels of taps", self.tile.panel, self.block, groups)
        return Packed(key, self.tile.dtype, elements, lambda w: self.pack_weights(w, groups))

    def compute(self, reads: Sequence[Array], writes: Sequence[Array], sizes: Mapping[str, int]) -> None:
        groups = sizes["groups"]
        shape = (groups * sizes["oc"], sizes["ic"], *self.window)
        w = unpacked(reads[1], shape, self.tile.dtype, lambda w: self.pack_weights(w, groups))
        convolve("nhwc", w, groups, self.strides, self.dilations, self.epilogue, reads, writes, sizes)

    def writes_bf16(self, sizes: Mapping[str, Expr]) -> bool:
        ic = constant_of(sizes["ic"])
        return self.tile.is_wide and ic is not None and self.is_one_sum(ic)

    @cached_property
    def symbol(self) -> str:
        words = self._body.removeprefix("irc_direct_")
        key = f"{self.epilogue.key()}{self.heights}{self.widths}{bf16_io.key(False, self.y_half)}"
        return symbol("direct_conv", words, key)

    @property
    def pointers(self) -> tuple[tuple[str, str], ...]:
        """Name and C type of the pointers, in the order of the call."""
        t = str(names(self.tile)["T"])
        y = "uint16_t" if self.y_half else t
        return (("x", f"const {t} *"), ("w", f"const {t} *"), *self.epilogue.pointers(t), ("y", f"{y} *"))

    def is_one_sum(self, ic: int) -> bool:
        """Whether the sums of ic input channels are finished at once."""
        return ic <= self.block and self.window[0] * self.window[1] * self.block <= LONGEST_SUM

    @property
    def sizes(self) -> tuple[str, ...]:
        """Names of the int64_t arguments, in order; ic and oc are those of one group, strides of memory in elements."""
        extents = "batch groups ic oc ih iw oh ow pad_h pad_w x_batch x_row x_pixel y_batch y_pixel"
        return (*extents.split(), *(f"s{i}_{f}" for i, f in self.epilogue.strides(*STRIDES)))

    def packed_elements(self, oc: int, ic: int, groups: int = 1) -> int:
        """Elements of packed weights: `oc` output and `ic` input channels of a group."""
        panels, blocks = -(-oc // self.tile.panel), -(-ic // self.block)
        return groups * panels * self.tile.panel * blocks * self.block * self.window[0] * self.window[1]

    def pack_weights(self, w: np.ndarray[Any, Any], groups: int = 1) -> np.ndarray[Any, Any]:
        """w[oc, ic, kh, kw] of all groups as the kernel reads it, flat; channels filled up with zeros."""
        oc, ic, (kh, kw) = w.shape[0] // groups, w.shape[1], self.window
        panels, blocks = -(-oc // self.tile.panel), -(-ic // self.block)
        full = np.zeros((groups, panels * self.tile.panel, blocks * self.block, kh, kw), self.tile.dtype.numpy)
        full[:, :oc, :ic] = w.reshape(groups, oc, ic, kh, kw)
        split = full.reshape(groups, panels, self.tile.panel, blocks, self.block, kh, kw)
        return np.ascontiguousarray(split.transpose(0, 1, 3, 5, 6, 4, 2)).ravel()

    def flops(self, sizes: Sizes) -> Dim:
        """Floating-point operations of a call: two for each product of the definition."""
        extents = product(sizes[n] for n in ("batch", "groups", "oc", "ic", "oh", "ow"))
        return extents * (2 * self.window[0] * self.window[1])

    def parts(self) -> list[Part]:
        """What it is made of; needs the type irc_pool."""
        s, t = self.symbol, self.tile
        given = names(t) | self._constants() | {"S": s, "body": self._body, "parameters": self.parameters}
        given["fields"] = ", ".join(f".{n} = {n}" for n, _ in self.arguments[1:])
        given |= bf16_io.names(False, self.y_half, t)
        given["light"] = int(not self.epilogue.functions())  # else its registers would push the sums out of theirs
        given["slot_fields"] = self.epilogue.fields(str(given["T"]), *STRIDES)
        given["slot_starts"] = "".join(self._starts())
        given["whole"] = self._whole(given)
        given["pieces"] = "".join(self._pieces())
        given["table"] = self._table()
        return [
            prelude(t, self.epilogue),
            *(vector_type(n, t.dtype) for n in _lanes(t.lanes)),
            piece("IRC_TILE_$body", _TILE, **given),
            bf16_io.text(self.y_half, self.epilogue.halves),
            epilogue_of(s, t, self.epilogue, given["Y"]),
            *(
                fill(_INSTANCE, **given, segments=n, height=r, width=v, instance=f"{n}x{r}x{v}")
                for n, r, v in self._instances()
            ),
            *(fill(text, **given) for text in (_BLOCK, _CALL, _COPY, _BODY)),
        ]

    def _whole(self, given: dict[str, Any]) -> str:
        """How a tile of whole vectors goes to the output itself."""
        if given["light"]:
            return fill(_WHOLE, **given, epilogue="")
        return "" if self.y_half else fill(_WHOLE, **given, epilogue=fill(_LATER, **given))

    @property
    def summary(self) -> str:
        """One line for the reader of the generated code."""
        (kh, kw), (sh, sw), t = self.window, self.strides, self.tile
        return f"Convolution {kh}x{kw}/{sh}x{sw}, NHWC, {t.dtype}, tiles of {t.rows} pixels x {t.panel} channels."

    @property
    def _body(self) -> str:
        """The C name of the tile's body, which holds all constants that it depends on."""
        (kh, kw), (sh, sw), (dh, dw), t = self.window, self.strides, self.dilations, self.tile
        shape = f"{t.dtype.name}_{t.isa.name}_{self.segments}x{self._reach}x{t.vectors}"
        shape += f"_k{kh}x{kw}_s{sh}x{sw}_d{dh}x{dw}_b{self.block}"
        return f"irc_direct_{shape}"

    @property
    def _reach(self) -> int:
        return self.tile.rows // self.segments

    def _constants(self) -> dict[str, Any]:
        """What the templates call the constants of the geometry."""
        (kh, kw), (sh, sw), dw, block = self.window, self.strides, self.dilations[1], self.block
        dense = dw == 1  # the taps of a row and their channels stand side by side
        run = kw * block if dense else block
        column = sw if kw == 1 else 1  # of every so many columns, one is copied
        rows = _rows(self.window, self.strides, self.dilations)
        return rows | {
            "KH": kh,
            "KW": kw,
            "SH": sh,
            "SW": sw,
            "SC": column,
            "B": block,
            "S_": self.segments,
            "R": self._reach,
            "PIXEL": sw // column * block,
            "SEGMENT": rows["YS"] * ((self._reach - 1) * (sw // column) + (kw - 1) * dw + 1) * block,
            "TAPS": 1 if dense else kw,
            "DX": dw * block,
            "RUN": run,
            "U": max(u for u in range(1, UNROLL + 1) if run % u == 0),
            "near": NEAR * self.tile.panel,
            "sum": LONGEST_SUM,
            "room": _room(self.tile, block),
            "low": -(-LONGEST_SUM // (kh * kw * block)),
            "strip": STRIP,
            "few": FEW_TASKS,
            "most_parts": CHANNEL_PARTS,
            "worthwhile": WORTHWHILE,
            "l2": self.tile.isa.l2,
            "DH": self.dilations[0],
            "wide": _span("n", kw, sw // column, dw),
        }

    def _instances(self) -> Iterator[tuple[int, int, int]]:
        """Segments, height and vectors of the bodies."""
        for n in range(1, self.segments + 1):
            for r in self.heights:
                for v in self.widths:
                    yield n, r, v

    def _table(self) -> str:
        have = set(self._instances())

        def entry(*key: int) -> str:
            return f"{self.symbol}_{key[0]}x{key[1]}x{key[2]}" if key in have else "0"

        def row(n: int, r: int) -> str:
            return "{" + ", ".join(entry(n, r, v) for v in range(1, self.tile.vectors + 1)) + "}"

        def plane(n: int) -> str:
            return "{" + ", ".join(row(n, r) for r in range(1, self._reach + 1)) + "}"

        return ", ".join(plane(n) for n in range(1, self.segments + 1))

    def _pieces(self) -> Iterator[str]:
        """The copy of one block of channels."""
        at = 0
        for lanes in _lanes(self.tile.lanes):
            v = vector_name(lanes, self.tile.dtype)
            for _ in range((self.block - at) // lanes):
                yield f"                {v}_store(out + {at}, {v}_load(in + {at}));\n"
                at += lanes
        for c in range(at, self.block):
            yield f"                out[{c}] = in[{c}];\n"

    def _starts(self) -> Iterator[str]:
        for i, axes in enumerate(self.epilogue.slots):
            channel = " + channel" if axes in ("row", "full") else ""
            yield f"\n        o.s{i} = g->s{i} + image * g->s{i}_batch{channel};"
            if axes in ("column", "full"):
                yield f"\n        o.s{i}_row = g->s{i}_pixel;"


def _widths(columns: int, lanes: int, vectors: int) -> dict[int, int]:
    """Count the panels of each width, in vectors, that cover the columns; the last one is as wide as it must be."""
    panels, rest = divmod(columns, lanes * vectors)
    widths = {vectors: panels} if panels else {}
    if rest:
        widths[-(-rest // lanes)] = widths.get(-(-rest // lanes), 0) + 1
    return widths


def _span(n: str, window: int, stride: int, dilation: int) -> str:
    """Elements of the input along one axis under n outputs."""
    return f"({n} - 1) * {stride} + {(window - 1) * dilation + 1}"


def _rows(window: tuple[int, int], strides: tuple[int, int], dilations: tuple[int, int]) -> dict[str, Any]:
    """Constants of the rows that are copied: those between the first and the last one, or only those that taps meet."""
    kh, sh, dh = window[0], strides[0], dilations[0]
    if sh > kh or dh > DENSE:
        return {"tall": f"n * {kh}", "line": f"r / {kh} * {sh} + r % {kh} * {dh}", "DY": 1, "YS": kh}
    return {"tall": _span("n", kh, sh, dh), "line": "r", "DY": dh, "YS": sh}


def _room(tile: Tile, block: int) -> int:
    """Pixels × blocks of the input that fit on the stack."""
    return tile.isa.stack // tile.dtype.itemsize // block


def _lanes(most: int) -> list[int]:
    found = [most]
    while found[-1] > 4:
        found.append(found[-1] // 2)
    return found


def block_of(ic: int) -> int:
    """Channels of a block: as many as there are, or about `BLOCK`, so that few are filled up."""
    return BLOCK if ic % BLOCK == 0 else -(-ic // max(1, round(ic / BLOCK)))


def fits(
    tile: Tile, segments: int, window: tuple[int, int], strides: tuple[int, int], dilations: tuple[int, int], block: int
) -> bool:
    """Whether the input under one tile fits on the stack, a block of channels at a time."""
    (kh, kw), (sh, sw), (dh, dw) = window, strides, dilations
    tall = segments * kh if sh > kh or dh > DENSE else (segments - 1) * sh + (kh - 1) * dh + 1
    wide = tile.rows // segments if kw == 1 else (tile.rows // segments - 1) * sw + (kw - 1) * dw + 1
    return tall * wide <= _room(tile, block)
