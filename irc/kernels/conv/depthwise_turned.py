"""Depthwise convolution, NCHW, by vectors of channels: planes that are small, or strided.

As many planes as a vector has lanes are turned, a strip of rows at a time, so that their channels stand side by side
on the stack, with the padding around them: there a window is a few whole vectors, whatever the strides, the dilations
and the width of the plane.  Rows of large windows that are in the padding are left out.  A register tile is a few
neighbouring pixels of an output row: it walks the columns of the input under it, and each vector is loaded once for
every row of the window.  The sums of a strip are turned back, through the epilogue.  Rows that two strips share are
moved, not turned again.

A last vector of channels that would not be full overlaps the one before.  Nothing outside the input is read.  Threads
split images, vectors of channels and, where these are few, rows.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from typing import Self

import numpy as np

from irc.ir.dim import Dim, product
from irc.ir.types import f32, f64
from irc.kernels.conv.channels_first import ChannelsFirstKernel
from irc.kernels.conv.problem import ConvProblem
from irc.kernels.conv.reference import convolve, unpacked
from irc.kernels.core.base import Array, Packed, Sizes
from irc.kernels.core.costs import LOADS
from irc.kernels.core.epilogue import Epilogue
from irc.kernels.core.isa import Isa
from irc.kernels.core.registry import kernel
from irc.kernels.core.text import Part, fill, symbol
from irc.kernels.core.tile import Tile, epilogue_of, names, prelude
from irc.kernels.core.workspace import DIVIDE
from irc.kernels.vector.lanes import square
from irc.kernels.vector.pixels import TileRow, pixels_of, slot_starts, window_names

UNROLLED = 9  # taps of a window up to which its rows are unrolled
TURN = 0.9  # cycles of each exchange that turns a vector, from channels to pixels or back
PIECES = 8  # pieces for the threads, at least, if there are enough rows
WORTHWHILE = 50_000  # products below which one thread does all

_TURN = """
typedef struct {$fields
    int64_t pitch, rows, blocks, chunk, chunks; /* the plan: pixels of a turned row, rows of a strip; vectors of
                                                   channels; rows of a piece, pieces of a plane */
} ${S}_call;

/* to[pixel][channel] = from[channel][pixel] for `count` pixels, with a gap behind every `iw` of them. */
static void ${S}_turn(const $T *from, const int64_t *at, int64_t count, int64_t iw, int64_t gap, $T *to) {
    int64_t left = iw;
    for (int64_t p = 0; p < count; p += $L) {
        const int64_t n = count - p < $L ? count - p : $L;
        $V v[$L];
        if (n == $L) {
            EACH(i < $L) v[i] = ${V}_load(from + at[i] + p);
        } else {
            EACH(i < $L) v[i] = ${V}_load_part(from + at[i] + p, n);
        }
        ${V}_square(v);
        if (left > $L && n == $L) {
            EACH(j < $L) ${V}_store(to + j * $L, v[j]);
            to += $L * $L, left -= $L;
            continue;
        }
        IRC_FULL_UNROLL
        for (int j = 0; j < $L; j++) {
            if (j < n) ${V}_store(to, v[j]), to += $L;
            if (--left == 0) to += gap, left = iw;
        }
    }
}

/* Rows `begin` to `end` of the padded input, whose first is row `top` of the input$outside. */
static void ${S}_input(const ${S}_call *g, const $T *x, const int64_t *at, int64_t top, int64_t begin, int64_t end,
                       $T *turned) {
    int64_t first = -top > begin ? -top : begin, last = g->ih - top < end ? g->ih - top : end;
    if (first > end) first = end;
    if (last < first) last = first;
$zeros    if (first < last)
        ${S}_turn(x + (top + first) * g->iw, at, (last - first) * g->iw, g->iw, (g->pitch - g->iw) * $L,
                  turned + (first * g->pitch + g->pad_w) * $L);
}
"""

_BODY = """
/* One row of the window: `from` stands on the tile's first column, `w` are the taps. */
IRC_INLINE void ${S}_taps($V *acc, const $T *from, const $T *w) {
    $V tap[$KW], v;
    EACH(k < $KW) tap[k] = ${V}_load(w + k * $L), ${V}_keep(&tap[k]);
$columns}

/* The sums of some rows of one vector of channels$top_says. */
static void ${S}_rows(const ${S}_call *g, const $T *turned, const $T *w, int64_t rows, ${top}$T *sums) {
    const int64_t last = g->ow - $P, row = g->pitch * $L;
    for (int64_t y = 0; y < rows; y++, sums += g->ow * $L) {
$inside        for (int64_t x = 0;; x += $P) {
            if (x > last) x = last;
            const $T *from = turned + y * $SH * row + x * ($SW * $L);
            $V acc[$P];
            IRC_FULL_UNROLL
            for (int p = 0; p < $P; p++) acc[p] = ${V}_zeros();
$rows ${S}_taps(acc, from + k * $DH * row, w + k * ($KW * $L));
            EACH(p < $P) ${V}_store(sums + (x + p) * $L, acc[p]);
            if (x == last) break;
        }
    }
}

/* Turns the sums of n pixels back, applies the epilogue and stores them: `have` channels, `step` apart. */
static void ${S}_finish(const ${S}_out *given, int64_t channel, int64_t step, int64_t have, int64_t pixel, int64_t n,
                        const $T *sums) {
    const ${S}_out local = *given, *const o = &local; /* so that no store may change it */
    for (int64_t p = 0; p < n; p += $L) {
        if (p > n - $L && n >= $L) p = n - $L; /* the last pixels overlap those before */
        const int64_t part = n - p < $L ? n - p : $L;
        $V v[$L];
        EACH(i < $L) v[i] = ${V}_load(sums + (p + i) * $L);
        ${V}_square(v);
$finish    }
}

/* Pieces begin to end: images, then vectors of channels, then rows. */
static void ${S}_part(void *given, char *own, int64_t begin, int64_t end) {
    const ${S}_call *g = given;
    $T *const turned = ($T *)own;
    const int64_t tall = $window - $SH; /* rows that the next strip needs, too */
    const int64_t all = (g->rows * $SH + (tall > 0 ? tall : 0)) * g->pitch, row = g->pitch * $L;
    const int64_t have = g->channels < $L ? g->channels : $L, multiplier = g->outputs / g->channels;
    $T *const sums = turned + all * $L;
    int64_t at[$L];
    for (int i = 0; i < $L; i++) at[i] = (i < have ? i : have - 1) * g->x_channel;
    for (int64_t j = 0; j < all * $L; j += $L) ${V}_store(turned + j, ($V){0});
    for (; begin < end; begin++) {
        const int64_t y0 = begin % g->chunks * g->chunk, y1 = g->oh - y0 < g->chunk ? g->oh : y0 + g->chunk;
        const int64_t block = begin / g->chunks % g->blocks, image = begin / g->chunks / g->blocks;
        const int64_t channel = block * $L < g->channels - have ? block * $L : g->channels - have;
        const $T *const x = g->x + image * g->x_batch + channel * g->x_channel;
        const $T *const w = g->w + block * multiplier * ($KH * $KW * $L);
        ${S}_out o = {.c = g->y + image * g->y_batch, .c_row = g->y_channel, .n = g->oh * g->ow};$slot_starts
        int64_t ready = 0;
        for (int64_t y = y0; y < y1; y += g->rows) {
            const int64_t rows = y1 - y < g->rows ? y1 - y : g->rows, need = (rows - 1) * $SH + $window;
            if (ready < need) ${S}_input(g, x, at, y * $SH - g->pad_h, ready, need, turned);
            for (int64_t q = 0; q < multiplier; q++) {
                ${S}_rows(g, turned, w + q * ($KH * $KW * $L), rows, ${given_top}sums);
                ${S}_finish(&o, channel * multiplier + q, multiplier, have, y * g->ow, rows * g->ow, sums);
            }
            ready = need - rows * $SH > 0 && y + rows < y1 ? need - rows * $SH : 0;
            for (int64_t j = 0; j < ready * row; j += $L)
                ${V}_store(turned + j, ${V}_load(turned + rows * $SH * row + j));
        }
    }
}

void $S($parameters) {
    ${S}_call call = {$assigned};
    if (g->batch <= 0 || g->channels <= 0 || g->oh <= 0 || g->ow <= 0) return;
    const int64_t right = (g->ow - 1) * $SW + ($KW - 1) * $DW + 1, tall = $window > $SH ? $window - $SH : 0;
    call.pitch = right > g->pad_w + g->iw ? right : g->pad_w + g->iw;
    call.rows = ($room - $L - tall * call.pitch) / ($SH * call.pitch + g->ow);
    call.blocks = (g->channels + $L - 1) / $L;
    const int64_t planes = g->batch * call.blocks, wanted = pool && planes < $pieces ? $pieces / planes : 1;
    call.chunk = (g->oh + wanted - 1) / wanted;
    call.chunks = (g->oh + call.chunk - 1) / call.chunk;
    if (call.rows > call.chunk) call.rows = call.chunk;
    const double work = (double)g->batch * (double)g->outputs * (double)(g->oh * g->ow) * $KH * $KW;
    if (!pool || work < $worthwhile) ${S}_part(&call, g->own, 0, planes * call.chunks);
    else irc_divide(pool, planes * call.chunks, ${S}_part, &call, g->own, g->own_bytes, g->owners);
}
"""

_ALL_ROWS = {
    "outside": "",
    "zeros": """\
    const int64_t row = g->pitch * $L;
    for (int64_t j = begin * row; j < first * row; j += $L) ${V}_store(turned + j, ($V){0});
    for (int64_t j = last * row; j < end * row; j += $L) ${V}_store(turned + j, ($V){0});
""",
    "top_says": "",
    "top": "",
    "given_top": "",
    "inside": "",
    "rows": """\
            IRC_FULL_UNROLL
            for (int k = 0; k < $KH; k++)""",
}
_ROWS_INSIDE = {
    "outside": "; those outside are not read",
    "zeros": "",
    "top_says": ", the first on row `top` of the input: rows of taps outside are left out",
    "top": "int64_t top, ",
    "given_top": "y * $SH - g->pad_h, ",
    "inside": """\
        const int64_t at = top + y * $SH, from_end = g->ih - at + $DH - 1;
        const int first = at < 0 ? (int)((-at + $DH - 1) / $DH) : 0;
        const int end = from_end < $KH * $DH ? (int)(from_end / $DH) : $KH;
""",
    "rows": "            for (int k = first; k < end; k++)",
}
"""The rows of taps of a small window, which are unrolled and read zeros in the padding, and those of a large one."""

_STORE = """\
            {
                const int64_t row = channel + i * step;
                $T *const to = o->c + row * o->c_row + pixel + p;
                if (part == $L) ${V}_store(to, ${S}_epilogue(o, $value, row, pixel + p, $L));
                else ${V}_store_part(to, ${S}_epilogue(o, $value, row, pixel + p, part), part);
            }
"""

_AT_ONCE = """\
        IRC_FULL_UNROLL
        for (int i = 0; i < $L; i++)
            if (i < have)
"""

_ONE_BY_ONE = """\
        _Alignas(64) $T values[$L * $L];
        EACH(i < $L) ${V}_store(values + i * $L, v[i]);
        for (int i = 0; i < have; i++)
"""


@kernel
class TurnedDepthwiseKernel(ChannelsFirstKernel[ConvProblem]):
    """A generated depthwise convolution by vectors of channels; tile.rows is the number of pixels of a tile."""

    tile: Tile
    window: tuple[int, int]
    strides: tuple[int, int]
    dilations: tuple[int, int]
    epilogue: Epilogue

    problem = ConvProblem
    extents = "batch channels outputs ih iw oh ow pad_h pad_w x_batch x_channel y_batch y_channel"

    @classmethod
    def candidates(cls, problem: ConvProblem, isa: Isa) -> Iterator[Self]:
        """Yield the variant for planes of known size of which a strip of one row is not too large."""
        p = problem
        if p.layout != "nchw" or p.is_volume or p.ic != 1 or p.channels < 2 or p.dtype not in (f32, f64):
            return
        if not all(n.is_const and int(n) > 0 for n in (*p.size, *p.result)) or not p.padding[1].is_const:
            return
        room = isa.registers - 2 - p.window[1]  # for what is neither a tap of a row nor the input
        if pixels := pixels_of(p.result[1], p.window[1], p.strides[1], p.dilations[1], room):
            found = cls(Tile(isa, p.dtype, pixels, 1), *p.geometry, p.epilogue)
            if found._rows(p) > 0:
                yield found

    def cycles(self, problem: ConvProblem) -> float:
        p, t = problem, self.tile
        vectors, tiles = -(-p.channels // t.lanes), -(-int(p.result[1]) // t.rows)
        products = t.rows * p.taps / t.isa.fma
        loads = p.window[0] * (len(self._row.columns) + p.window[1]) * 2 * t.isa.vector / 64 / LOADS
        sums = int(p.result[0]) * tiles * (max(products, loads) + t.rows)
        turned = int(p.size[0]) * int(p.size[1]) + p.pixels * p.oc
        exchanges = t.lanes.bit_length() - 1
        return p.images * vectors * (sums * p.oc + turned * exchanges * TURN)

    @property
    def label(self) -> str:
        return "depthwise, turned"

    def arguments_for(self, problem: ConvProblem) -> dict[str, Dim]:
        return problem.arguments() | {"channels": Dim.of(problem.channels), "outputs": Dim.of(problem.outputs)}

    def own_bytes(self, sizes: Mapping[str, int]) -> int:
        (high, right), (sh, sw) = (
            ((k - 1) * d + 1 for k, d in zip(self.window, self.dilations, strict=True)),
            self.strides,
        )
        oh, ow = sizes["oh"], sizes["ow"]
        pitch = max((ow - 1) * sw + right, sizes["pad_w"] + sizes["iw"])
        vectors = (oh * sh + max(high - sh, 0)) * pitch + oh * ow + self.tile.lanes
        return min(self._room, vectors) * self.tile.isa.vector

    def packed(self, problem: ConvProblem) -> Packed:
        channels, lanes = problem.channels, self.tile.lanes
        elements = -(-channels // lanes) * lanes * problem.oc * problem.taps
        key = ("channels of planes", lanes, channels)
        return Packed(key, self.tile.dtype, elements, lambda w: self.pack_weights(w, channels))

    def compute(self, reads: Sequence[Array], writes: Sequence[Array], sizes: Mapping[str, int]) -> None:
        channels, outputs = sizes["channels"], sizes["outputs"]
        shape = (outputs, 1, *self.window)
        w = unpacked(reads[1], shape, self.tile.dtype, lambda w: self.pack_weights(w, channels))
        convolve("nchw", w, channels, self.strides, self.dilations, self.epilogue, reads, writes, sizes)

    @cached_property
    def symbol(self) -> str:
        shape = f"{self.window[0]}x{self.window[1]}_s{self.strides[0]}x{self.strides[1]}"
        words = self.tile.name.removeprefix("irc_tile_")
        return symbol("depthwise_turned", shape, words, f"{self.dilations}{self.epilogue.key()}")

    def pack_weights(self, w: Array, channels: int) -> Array:
        """Pack w[outputs, 1, kh, kw] as flat [vectors of channels, outputs of a channel, kh, kw, lanes].

        A last vector that would not be full overlaps the one before; fewer channels than lanes have zeros behind.
        """
        lanes, taps, per = self.tile.lanes, self.window[0] * self.window[1], w.shape[0] // channels
        full = np.zeros((max(channels, lanes), per, taps), self.tile.dtype.numpy)
        full[:channels] = w.reshape(channels, per, taps)
        starts = [min(c, len(full) - lanes) for c in range(0, len(full), lanes)]
        return np.concatenate([full[c : c + lanes].transpose(1, 2, 0).ravel() for c in starts])

    def flops(self, sizes: Sizes) -> Dim:
        return product(sizes[n] for n in ("batch", "outputs", "oh", "ow")) * (2 * self.window[0] * self.window[1])

    @property
    def summary(self) -> str:
        (kh, kw), (sh, sw) = self.window, self.strides
        return f"Depthwise convolution, NCHW, turned, {self.tile.dtype}: {kh} x {kw}, strides {sh} and {sw}."

    def parts(self) -> list[Part]:
        s, t = self.symbol, self.tile
        given = names(t) | window_names(self.window, self.strides, self.dilations)
        given |= {"S": s, "P": t.rows, "room": self._room, "window": (self.window[0] - 1) * self.dilations[0] + 1}
        given |= {"pieces": PIECES, "worthwhile": WORTHWHILE}
        taps = _ALL_ROWS if self.window[0] * self.window[1] <= UNROLLED else _ROWS_INSIDE
        rows = {name: fill(text, **given) for name, text in taps.items()}
        loop = _ONE_BY_ONE if self.epilogue.functions() else _AT_ONCE
        value = "${V}_load(values + i * $L)" if self.epilogue.functions() else "v[i]"
        finish = fill(loop + _STORE.replace("$value", value), **given)
        return [
            prelude(t, self.epilogue),
            DIVIDE,
            square(t.lanes, t.dtype),
            epilogue_of(s, t, self.epilogue),
            fill(_TURN, **given, **self.interface, **rows),
            fill(
                _BODY,
                **given,
                **self.interface,
                **rows,
                columns="".join(self._columns()),
                finish=finish,
                slot_starts=slot_starts(self.epilogue, "channel"),
            ),
        ]

    @property
    def _room(self) -> int:
        """Vectors of turned rows and of sums, at most."""
        return self.tile.isa.packed // self.tile.isa.vector - 2 * self.tile.lanes

    def _rows(self, p: ConvProblem) -> int:
        """Count the rows of a strip, as the C does."""
        (_, iw), (_, ow), (_, left) = map(int, p.size), map(int, p.result), (0, int(p.padding[1]))
        span = [(k - 1) * d + 1 for k, d in zip(self.window, self.dilations, strict=True)]
        pitch = max((ow - 1) * self.strides[1] + span[1], left + iw)
        return (self._room - self.tile.lanes - max(span[0] - self.strides[0], 0) * pitch) // (
            self.strides[0] * pitch + ow
        )

    @cached_property
    def _row(self) -> TileRow:
        return TileRow(self.tile.rows, self.window[1], self.strides[1], self.dilations[1])

    def _columns(self) -> Iterator[str]:
        """Print the columns under a tile: each is loaded, and multiplied by all taps that meet it."""
        v, lanes = names(self.tile)["V"], self.tile.lanes
        for column in self._row.columns:
            yield f"    v = {v}_load(from + {column * lanes}), {v}_keep(&v);\n"
            for p, kx in self._row.users(column):
                yield f"    acc[{p}] += tap[{kx}] * v;\n"
