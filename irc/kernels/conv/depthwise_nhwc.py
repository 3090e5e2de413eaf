"""Depthwise convolution, channels last: every channel has a window of its own, and vectors run over channels.

A register tile is one vector of channels of few neighbouring pixels of an output row.  It walks the columns of the
input under it: each vector is loaded once for every row of the window and serves all pixels whose windows hold it.
Tiles that reach over the input skip the columns and rows outside; the others have no conditions.  A row that is no
multiple of the tile ends with a tile that overlaps the one before.  Nothing outside the input is read.

The innermost loop is that over the vectors of a block of channels: it reads and writes neighbouring lines, and its
tiles do not wait for one another.  Around it are the pixels of a strip of output rows, and the blocks.  Threads split
images, strips and blocks.  Where planes have no room in a core's own cache, and every row of pixels has one of the
input to itself, a tile fetches what the next one reads of that row, and what it writes: from a cache that others use,
too, lines come late, and no processor guesses such steps.  With longer strides there is too little to compute beside.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from typing import Self

import numpy as np

from irc.expr import Expr
from irc.ir.dim import Dim, product
from irc.ir.types import f32, f64
from irc.kernels.conv.problem import ConvProblem
from irc.kernels.conv.reference import convolve, unpacked
from irc.kernels.core.base import RESIDUALS, Array, Kernel, Packed, Sizes
from irc.kernels.core.epilogue import Epilogue
from irc.kernels.core.isa import Isa
from irc.kernels.core.registry import kernel
from irc.kernels.core.text import Part, fill, symbol
from irc.kernels.core.tile import Tile, epilogue_of, names, prelude
from irc.kernels.vector import bf16_io
from irc.kernels.vector.pixels import STRIDES, TileRow, bounds, few_channels, pixels_of, slot_starts, window_names

UNROLLED = 9  # taps of a window up to which its rows are unrolled
BLOCK_VECTORS = 8  # vectors of channels, at most
STRIP = 512 << 10  # bytes of the input rows of a strip
FAR = 4 << 20  # bytes of an image and its result for which a core's own cache has no room
PIECES = 16  # pieces for the threads, at least, if there are enough rows
WORTHWHILE = 50_000  # products below which one thread does all

_CALL = """
typedef struct {$fields
    int64_t strip, blocks; /* the plan: rows of a strip, blocks of channels */
    int far;               /* whether planes have no room in the core's own cache */
} ${S}_call;
"""

_TILE = """
/* One row of the window: `from` stands on the tile's first column, `w` are the taps; without `inside` only the columns
   in `in` exist. */
IRC_INLINE void ${S}_taps($V *acc, const int inside, const $X *from, int64_t step, const $T *w, uint64_t in) {
    $V tap[$KW], v;
    (void)in;
    EACH(k < $KW) tap[k] = ${V}_load(w + k * $L), ${V}_keep(&tap[k]);
$columns}

/* Applies the epilogue to n pixels of a vector of channels, and stores them. */
IRC_INLINE void ${S}_finish(const ${S}_out *o, $V *acc, int64_t pixel, int64_t n, int64_t channel) {
    $Y *to = o->c + pixel * o->c_row + channel;
    IRC_FULL_UNROLL
    for (int p = 0; p < $P; p++, to += o->c_row) {
        if (p >= n) return;
        $SY(to, ${S}_epilogue(o, acc[p], pixel + p, channel, $L));
    }
}

/* Output rows y0 to y1 of the vectors of channels from `begin` to `end`; the last of all may overlap the one before. */
static void ${S}_rows(const ${S}_call *g, const ${S}_out *given, const $X *x, int64_t y0, int64_t y1, int64_t begin,
                      int64_t end) {
    const ${S}_out local = *given, *const o = &local; /* so that no store may change it */
    const $T *const weights = g->w;
    const int64_t last = g->ow > $P ? g->ow - $P : 0, n = g->ow < $P ? g->ow : $P, most = g->channels - $L;
    const int64_t step = g->x_pixel, down = $DH * g->x_row;
    for (int64_t oy = y0; oy < y1; oy++) {
        int64_t first;
        const int64_t top = oy * $SH - g->pad_h, stop = ${S}_inside(top, g->ih, $DH, $KH, &first);
        const int tall = first == 0 && stop == $KH && n == $P;
        for (int64_t ox = 0;; ox += $P) {
            if (ox > last) ox = last;
            const int64_t left = ox * $SW - g->pad_w, pixel = oy * g->ow + ox;
            const int whole = tall && left >= 0 && left + $span <= g->iw;
            const uint64_t in = whole ? 0 : ${S}_columns(left, g->iw);
            const $X *const corner = x + top * g->x_row + left * step;
            for (int64_t vector = begin; vector < end; vector++) {
                const int64_t channel = vector * $L < most ? vector * $L : most;
                const $T *const w = weights + vector * ($KH * $KW * $L);
                const $X *at = corner + channel;
                $V acc[$P];
                EACH(p < $P) acc[p] = ${V}_zeros();
                if (whole) {$fetch$unroll
                    for (int k = 0; k < $KH; k++, at += down) ${S}_taps(acc, 1, at, step, w + k * ($KW * $L), 0);
                } else {
                    at += first * down;
                    for (int64_t k = first; k < stop; k++, at += down)
                        ${S}_taps(acc, 0, at, step, w + k * ($KW * $L), in);
                }
                ${S}_finish(o, acc, pixel, n, channel);
            }
            if (ox == last) break;
        }
    }
}
"""
_FETCH = """
                    if (g->far) {
                        const $X *next = at + ($KH - 1) * down + $span * step;
                        const $Y *to = o->c + (pixel + $P) * o->c_row + channel;
                        IRC_FULL_UNROLL
                        for (int p = 0; p < $P; p++, next += step, to += o->c_row) {
                            IRC_STEP(next);
                            IRC_STEP(to);
                            __builtin_prefetch(next);
                            __builtin_prefetch(to, 1);
                        }
                    }"""
_MULTIPLIED = """\
                    acc += ${V}_load(g->w + (ky * $KW + kx) * $L) * ${LX}_part(at, g->channels);
"""

_BODY = """
/* Pieces begin to end: images, then strips, then blocks of channels. */
static void ${S}_part(void *given, int64_t begin, int64_t end) {
    const ${S}_call *g = given;
    const int64_t vectors = (g->channels + $L - 1) / $L, strips = (g->oh + g->strip - 1) / g->strip;
    for (; begin < end; begin++) {
        const int64_t block = begin % g->blocks, v0 = block * vectors / g->blocks;
        const int64_t v1 = (block + 1) * vectors / g->blocks;
        const int64_t image = begin / g->blocks / strips, y0 = begin / g->blocks % strips * g->strip;
        const int64_t y1 = g->oh - y0 < g->strip ? g->oh : y0 + g->strip;
        ${S}_out o = {.c = g->y + image * g->y_batch, .c_row = g->y_pixel, .n = g->channels};$slot_starts
        const $X *const x = g->x + image * g->x_batch;
        if (g->channels < $L) ${S}_few(g, &o, x, y0, y1);
        else ${S}_rows(g, &o, x, y0, y1, v0, v1);
    }
}

void $S($parameters) {
    ${S}_call call = {$assigned};
    if (g->batch <= 0 || g->channels <= 0 || g->oh <= 0 || g->ow <= 0) return;
    call.blocks = (g->channels + $block * $L - 1) / ($block * $L);
    const int64_t bytes = g->iw * g->channels * (int64_t)sizeof *g->x * $SH;
    const int64_t rows = bytes > 0 && bytes < $strip ? $strip / bytes : 1;
    const int64_t wanted = pool ? $pieces / (g->batch * call.blocks) + 1 : 1;
    const int64_t most = g->oh / wanted > 1 ? g->oh / wanted : 1;
    const int64_t strips = (g->oh - 1) / (rows < most ? rows : most) + 1;
    call.strip = (g->oh + strips - 1) / strips;
    call.far = g->channels * (g->ih * g->iw * (int64_t)sizeof *g->x + g->oh * g->ow * (int64_t)sizeof *g->y) > $far;
    const int64_t pieces = g->batch * ((g->oh + call.strip - 1) / call.strip) * call.blocks;
    const double work = (double)g->batch * (double)g->channels * (double)(g->oh * g->ow) * $KH * $KW;
    if (!pool || pieces < 2 || work < $worthwhile) ${S}_part(&call, 0, pieces);
    else pool->parallel_for(pool->self, pieces, ${S}_part, &call);
}
"""


@kernel
class NhwcDepthwiseKernel(Kernel[ConvProblem]):
    """A generated depthwise convolution, channels last; tile.rows is the number of pixels of a register tile.

    The epilogue's rows are pixels and its columns channels: a bias is a `row`, a residual `full`.
    x_bf16, y_bf16: x, y are bf16 (`irc.kernels.vector.bf16_io`), for 16 lanes of f32.
    """

    tile: Tile
    window: tuple[int, int]
    strides: tuple[int, int]
    dilations: tuple[int, int]
    epilogue: Epilogue
    x_bf16: bool = False
    y_bf16: bool = False

    problem = ConvProblem

    @classmethod
    def candidates(cls, problem: ConvProblem, isa: Isa) -> Iterator[Self]:
        """Yield the variant unless the window is too wide; one channel alone would fill no vector."""
        p = problem
        if p.layout != "nhwc" or not p.is_depthwise or p.channels == 1 or p.dtype not in (f32, f64):
            return
        room = isa.registers - 2 - p.window[1]  # for what is neither a tap of a row nor the input
        if pixels := pixels_of(p.result[1], p.window[1], p.strides[1], p.dilations[1], room):
            yield cls(Tile(isa.filled_by(p.dtype, p.channels), p.dtype, pixels, 1), *p.geometry, p.epilogue)

    def cycles(self, problem: ConvProblem) -> float:
        t = self.tile
        vectors = -(-problem.channels // t.lanes)
        return problem.images * problem.pixels * vectors * problem.taps / t.isa.fma

    @property
    def label(self) -> str:
        return "depthwise"

    def arguments_for(self, problem: ConvProblem) -> dict[str, Dim]:
        return problem.arguments() | {"channels": Dim.of(problem.channels)}

    def packed(self, problem: ConvProblem) -> Packed:
        elements = self.packed_elements(problem.channels)
        return Packed(("vectors of channels", self.tile.lanes), self.tile.dtype, elements, self.pack_weights)

    def compute(self, reads: Sequence[Array], writes: Sequence[Array], sizes: Mapping[str, int]) -> None:
        channels = sizes["channels"]
        w = unpacked(reads[1], (channels, 1, *self.window), self.tile.dtype, self.pack_weights)
        convolve("nhwc", w, channels, self.strides, self.dilations, self.epilogue, reads, writes, sizes)

    def reads_bf16(self, operand: int) -> bool:
        return self.tile.is_wide and (operand == 0 or self.epilogue.is_residual(operand - RESIDUALS))

    def writes_bf16(self, sizes: Mapping[str, Expr]) -> bool:
        return self.tile.is_wide

    @cached_property
    def symbol(self) -> str:
        shape = f"{self.window[0]}x{self.window[1]}_s{self.strides[0]}x{self.strides[1]}"
        words = self.tile.name.removeprefix("irc_tile_")
        key = f"{self.dilations}{self.epilogue.key()}{bf16_io.key(self.x_bf16, self.y_bf16)}"
        return symbol("depthwise_last", shape, words, key)

    @property
    def pointers(self) -> tuple[tuple[str, str], ...]:
        t = str(names(self.tile)["T"])
        x, y = ("uint16_t" if half else t for half in (self.x_bf16, self.y_bf16))
        return (("x", f"const {x} *"), ("w", f"const {t} *"), *self.epilogue.pointers(t), ("y", f"{y} *"))

    @property
    def sizes(self) -> tuple[str, ...]:
        extents = "batch channels ih iw oh ow pad_h pad_w x_batch x_row x_pixel y_batch y_pixel"
        return (*extents.split(), *(f"s{i}_{f}" for i, f in self.epilogue.strides(*STRIDES)))

    def packed_elements(self, channels: int) -> int:
        """Count the elements of packed weights."""
        return -(-channels // self.tile.lanes) * self.tile.lanes * self.window[0] * self.window[1]

    def pack_weights(self, w: Array) -> Array:
        """Pack w[channels, 1, kh, kw] as flat [vectors of channels, kh, kw, lanes].

        A last vector that would not be full overlaps the one before; fewer channels than lanes have zeros behind.
        """
        count, lanes, taps = w.shape[0], self.tile.lanes, self.window[0] * self.window[1]
        full = np.zeros((max(count, lanes), taps), self.tile.dtype.numpy)
        full[:count] = w.reshape(count, taps)
        starts = [min(c, len(full) - lanes) for c in range(0, len(full), lanes)]
        return np.concatenate([full[c : c + lanes].T.ravel() for c in starts])

    def flops(self, sizes: Sizes) -> Dim:
        extents = product(sizes[n] for n in ("batch", "channels", "oh", "ow"))
        return extents * (2 * self.window[0] * self.window[1])

    def parts(self) -> list[Part]:
        t = self.tile
        given = names(t) | window_names(self.window, self.strides, self.dilations)
        given |= {"S": self.symbol, "P": t.rows, "block": BLOCK_VECTORS, "strip": STRIP}
        given |= {"pieces": PIECES, "worthwhile": WORTHWHILE}
        given |= bf16_io.names(self.x_bf16, self.y_bf16, t)
        given |= {"span": self._row.columns[-1] + 1, "far": FAR}
        fetch = fill(_FETCH, **given) if self.strides == (1, 1) else ""
        starts = slot_starts(self.epilogue)
        unroll = "\n                IRC_FULL_UNROLL" if self.window[0] * self.window[1] <= UNROLLED else ""
        return [
            prelude(t, self.epilogue),
            bf16_io.text(self.x_bf16, self.y_bf16, self.epilogue.bf16_slots),
            epilogue_of(self.symbol, t, self.epilogue, given["Y"]),
            fill(_CALL, **given, **self.interface),
            bounds(self.symbol, self._row.columns),
            fill(_TILE, **given, columns="".join(self._row.walk(self._column)), fetch=fetch, unroll=unroll),
            few_channels(given, "{0}", _MULTIPLIED),
            fill(_BODY, **given, **self.interface, slot_starts=starts),
        ]

    @property
    def summary(self) -> str:
        (kh, kw), (sh, sw) = self.window, self.strides
        return f"Depthwise convolution, channels last, {self.tile.dtype}: {kh} x {kw}, strides {sh} and {sw}."

    @cached_property
    def _row(self) -> TileRow:
        return TileRow(self.tile.rows, self.window[1], self.strides[1], self.dilations[1])

    def _column(self, column: int) -> str:
        """Print a column under a tile: it is loaded, and multiplied by all taps that meet it."""
        v, load = names(self.tile)["V"], bf16_io.names(self.x_bf16, self.y_bf16, self.tile)["LX"]
        products = "".join(f"        acc[{p}] += tap[{kx}] * v;\n" for p, kx in self._row.users(column))
        return f"        v = {load}(from);\n        {v}_keep(&v);\n{products}"
