"""Convolution of single pixels with few channels a group, NCHW: windows of 1 × 1 that stand at every pixel.

A register tile is a few output channels × a few vectors of pixels, whatever rows these are of.  The input is read where
it stands: there are too few channels to read it more than a few times, and a group of one is a plane times a number.
Of more input channels than outputs, it is read once or twice, and packing it would take longer than the products.

Threads split images, groups and pixels, and the outputs where these are few.
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
from irc.kernels.core.costs import LATENCY, LOADS, costs_of
from irc.kernels.core.epilogue import Epilogue
from irc.kernels.core.isa import Isa
from irc.kernels.core.registry import kernel
from irc.kernels.core.text import Part, fill, symbol
from irc.kernels.core.tile import Tile, epilogue_of, names, prelude
from irc.kernels.vector.pixels import channel_slots

INPUTS, MOST_INPUTS = 32, 128  # channels of a group's input, at most; and where outputs are of at most two tiles
FEW = 4  # outputs of one group which are products of few rows from more inputs (`irc.layout.pixel_products`)
OUTPUTS = (1, 2, 3, 4, 6, 8, 12)  # output channels of a tile
VECTORS = (1, 2, 3, 4, 6, 8)  # of pixels
CACHED = 4096  # elements of a group's input that all its outputs meet in turn, at least: they stay in the first cache
RUN = 1024  # pixels of a row that are written at once, at least: memory is slow at many shorter pieces
TILE_BEGINS, STORED = 4.0, 1.5  # cycles to begin a tile, and to store a vector
FOLLOWED = 16  # planes that a processor fetches ahead by itself, at most: 96 take two thirds of the time if told
PIECES = 8  # pieces for the threads, at least, if there are enough pixels
WORTHWHILE, PRODUCTS = 50_000, 200_000  # elements read and written, and products, below which one thread does all

_ROWS = """
/* The sums of a tile: $OB outputs, U vectors of pixels. */
IRC_INLINE void ${S}_sums($V acc[$OB][$U], const int U, const $T *x, int64_t step, const $T *w) {
    EACH(k < $OB, u < U) acc[k][u] = ${V}_zeros();
    for (int64_t c = 0; c < $IC; c++, x += step, w += $OB) {
        $V v[$U];
        EACH(u < U) v[u] = ${V}_load(x + u * $L);
$fetch        EACH(k < $OB, u < U) acc[k][u] += w[k] * v[u];
    }
}

/* Outputs `row` to `row` + high <= $OB at pixels p0 to p1. */
static void ${S}_rows(const ${S}_out *given, int64_t row, int64_t high, int64_t p0, int64_t p1, const $T *x,
                      int64_t step, const $T *w) {
    const ${S}_out local = *given, *const o = &local; /* so that no store may change it */
    $V acc[$OB][$U];
    int64_t p = p0;
    for (; p + $U * $L <= p1; p += $U * $L) {
        ${S}_sums(acc, $U, x + p, step, w);
$store    }
    for (; p < p1; p += $L) {
        const int64_t n = p1 - p < $L ? p1 - p : $L;
        if (n == $L) {
            ${S}_sums(acc, 1, x + p, step, w);
        } else {
            const $T *from = x + p;
            EACH(k < $OB) acc[k][0] = ${V}_zeros();
            for (int64_t c = 0; c < $IC; c++, from += step) {
                const $V v = ${V}_load_part(from, n);
                EACH(k < $OB) acc[k][0] += w[c * $OB + k] * v;
            }
        }
        _Alignas(64) $T sums[$OB * $L];
        EACH(k < $OB) ${V}_store(sums + k * $L, acc[k][0]);
        for (int64_t k = 0; k < high; k++) {
            const $V y = ${S}_epilogue(o, ${V}_load(sums + k * $L), row + k, p, n);
            if (n == $L) ${V}_store(o->c + (row + k) * o->c_row + p, y);
            else ${V}_store_part(o->c + (row + k) * o->c_row + p, y, n);
        }
    }
}
"""

_FETCH = "        __builtin_prefetch(x + 128 / $size); /* of this plane, two lines of the cache later */\n"

_AT_ONCE = """\
        IRC_FULL_UNROLL
        for (int k = 0; k < $OB; k++) {
            if (k >= high) break;
            IRC_FULL_UNROLL
            for (int u = 0; u < $U; u++) {
                const $V y = ${S}_epilogue(o, acc[k][u], row + k, p + u * $L, $L);
                ${V}_store(o->c + (row + k) * o->c_row + p + u * $L, y);
            }
        }
"""

_ONE_BY_ONE = """\
        _Alignas(64) $T sums[$OB * $U * $L];
        EACH(i < $OB * $U) ${V}_store(sums + i * $L, acc[i / $U][i % $U]);
        for (int64_t k = 0; k < high; k++) {
            for (int64_t u = 0; u < $U * $L; u += $L) {
                const $V y = ${S}_epilogue(o, ${V}_load(sums + k * $U * $L + u), row + k, p + u, $L);
                ${V}_store(o->c + (row + k) * o->c_row + p + u, y);
            }
        }
"""

_CALL = """
typedef struct {$fields
    /* The plan: pixels of a plane, and of a piece; pieces of a plane; parts of all tiles of outputs, a piece each. */
    int64_t pixels, block, blocks, parts;
} ${S}_call;

/* Pieces begin to end: images, then groups, then pixels, then tiles of outputs. */
static void ${S}_part(void *given, int64_t begin, int64_t end) {
    const ${S}_call *g = given;
    const int64_t tiles = (g->oc + $OB - 1) / $OB;
    for (; begin < end; begin++) {
        const int64_t piece = begin / g->parts, part = begin % g->parts;
        const int64_t matrix = piece / g->blocks, image = matrix / g->groups, group = matrix % g->groups;
        const int64_t p0 = piece % g->blocks * g->block, p1 = p0 + g->block < g->pixels ? p0 + g->block : g->pixels;
        const int64_t channel = group * g->oc;
        $T *const c = g->y + image * g->y_batch + channel * g->y_channel;
        ${S}_out o = {.c = c, .c_row = g->y_channel, .n = g->pixels};$slot_starts
        const $T *const x = g->x + image * g->x_batch + group * $IC * g->x_channel, *w = g->w + group * tiles * $tile;
        for (int64_t i = tiles * part / g->parts; i < tiles * (part + 1) / g->parts; i++) {
            const int64_t row = i * $OB, left = g->oc - row;
            ${S}_rows(&o, row, left < $OB ? left : $OB, p0, p1, x, g->x_channel, w + i * $tile);
        }
    }
}

void $S($parameters) {
    ${S}_call call = {$assigned};
    call.pixels = g->oh * g->ow * g->od;
    const int64_t planes = g->batch * g->groups;
    if (planes <= 0 || call.pixels <= 0 || g->oc <= 0) return;
    const int64_t line = 64 / $size * $U, tiles = (g->oc + $OB - 1) / $OB;
    const int64_t wanted = pool && planes < $pieces ? $pieces / planes : 1;
    const int few = call.pixels < 2 * line * wanted && tiles >= wanted; /* pixels would make uneven pieces */
    int64_t block = few ? call.pixels : (call.pixels + wanted - 1) / wanted;
    if (block > $cached && g->oc > $OB) block = $cached;
    call.block = (block + line - 1) / line * line; /* pieces begin with a line of the cache as the first one does */
    call.blocks = (call.pixels + call.block - 1) / call.block;
    const int64_t shares = planes * call.blocks, more = ($pieces + shares - 1) / shares;
    call.parts = !pool || shares >= $pieces ? 1 : more < tiles ? more : tiles;
    const int64_t pieces = shares * call.parts;
    const double moved = (double)planes * (double)call.pixels * (double)($IC + g->oc);
    const int alone = moved < $worthwhile && moved * (double)$IC * (double)g->oc < $products * (double)($IC + g->oc);
    if (!pool || pieces < 2 || alone) ${S}_part(&call, 0, pieces);
    else pool->parallel_for(pool->self, pieces, ${S}_part, &call);
}
"""


@kernel
class NchwPointwiseKernel(ChannelsFirstKernel[ConvProblem]):
    """A generated convolution of single pixels: of `inputs` channels a group, tiles of `outputs` × vectors."""

    tile: Tile
    inputs: int
    outputs: int
    epilogue: Epilogue

    problem = ConvProblem
    extents = "batch groups oc od oh ow x_batch x_channel y_batch y_channel"

    @classmethod
    def candidates(cls, problem: ConvProblem, isa: Isa) -> Iterator[Self]:
        """Yield the variant of the best tile."""
        p, depth = problem, problem.depth
        most = INPUTS if p.groups == 1 and p.oc <= FEW else MOST_INPUTS
        if p.layout != "nchw" or p.dtype not in (f32, f64) or not 0 < p.ic <= most or not p.oc or p.taps > 1:
            return
        if p.strides != (1, 1) or depth.stride != 1 or any(n != 0 for n in (*p.padding, depth.padding)):
            return
        if p.size != p.result or depth.size != depth.result:
            return
        fewest = 1 if p.ic <= INPUTS else p.oc / 2
        shapes = ((o, v) for o in OUTPUTS for v in VECTORS if o <= p.oc and o * v + v + 1 < isa.registers)
        found = [cls(Tile(isa, p.dtype, 1, v), p.ic, o, p.epilogue) for o, v in shapes if o >= fewest]
        if found:
            fewer = p.ic > INPUTS  # times that X is read, of what is as fast else
            yield min(found, key=lambda k: (k.cycles(p), -k.outputs * fewer))

    def cycles(self, problem: ConvProblem) -> float:
        p, t = problem, self.tile
        rows = -(-p.oc // self.outputs)
        whole, rest = divmod(p.pixels, t.panel)
        single = -(-rest // t.lanes)
        far = rows > 1 and self.block * p.ic * t.dtype.itemsize > t.isa.l2 // 2  # what is read again
        again = t.isa.vector / costs_of(t.isa).stream if far else 0.0

        def tiles(count: int, vectors: int) -> float:
            sums = self.outputs * vectors
            step = max(sums / t.isa.fma, (vectors * 1.5 + self.outputs) / LOADS, LATENCY + 1)
            return count * ((step + again * vectors) * p.ic + TILE_BEGINS + STORED * sums)

        return p.images * p.groups * rows * (tiles(whole, t.vectors) + tiles(single, 1))

    @property
    def label(self) -> str:
        return f"pixels, {self.outputs} x {self.tile.vectors} vectors"

    def arguments_for(self, problem: ConvProblem) -> dict[str, Dim]:
        given = problem.arguments() | problem.channel_arguments()
        given |= {"groups": Dim.of(problem.groups), "od": problem.depth.result}
        return {name: given[name] for name in self.sizes}

    def packed(self, problem: ConvProblem) -> Packed:
        groups, tiles = problem.groups, -(-problem.oc // self.outputs)
        elements = groups * tiles * self.outputs * self.inputs
        key = ("tiles of outputs", self.outputs, groups)
        return Packed(key, self.tile.dtype, elements, lambda w: self.pack_weights(w, groups))

    def pack_weights(self, w: Array, groups: int) -> Array:
        """Pack w[outputs, ic, …] of all groups, flat, as [group][tile of outputs][ic][outputs of a tile]."""
        per = w.shape[0] // groups
        full = np.zeros((groups, -(-per // self.outputs) * self.outputs, self.inputs), self.tile.dtype.numpy)
        full[:, :per] = w.reshape(groups, per, self.inputs)
        tiles = full.reshape(groups, -1, self.outputs, self.inputs).transpose(0, 1, 3, 2)
        return np.ascontiguousarray(tiles).reshape(-1)

    def compute(self, reads: Sequence[Array], writes: Sequence[Array], sizes: Mapping[str, int]) -> None:
        groups, ones = sizes["groups"], (1, 1, 1)
        shape = (groups * sizes["oc"], self.inputs, *ones)
        w = unpacked(reads[1], shape, self.tile.dtype, lambda w: self.pack_weights(w, groups))
        known = {**sizes, "pad_d": 0, "pad_h": 0, "pad_w": 0, "id": sizes["od"], "ih": sizes["oh"], "iw": sizes["ow"]}
        convolve("nchw", w, groups, ones, ones, self.epilogue, reads, writes, known)

    @cached_property
    def symbol(self) -> str:
        words = f"{self.inputs}_{self.outputs}x{self.tile.vectors}_{self.tile.dtype.name}_{self.tile.isa.name}"
        return symbol("pointwise", words, self.epilogue.key())

    def flops(self, sizes: Sizes) -> Dim:
        return product(sizes[n] for n in ("batch", "groups", "oc", "od", "oh", "ow")) * (2 * self.inputs)

    @property
    def summary(self) -> str:
        return f"Convolution of single pixels, NCHW, {self.tile.dtype}: groups of {self.inputs} channels."

    @property
    def block(self) -> int:
        """The pixels that all outputs meet in turn, at most."""
        return max(CACHED // self.inputs, RUN) // self.tile.panel * self.tile.panel

    def parts(self) -> list[Part]:
        t = self.tile
        given = names(t) | {"S": self.symbol, "OB": self.outputs, "U": t.vectors, "IC": self.inputs}
        given |= {"tile": self.outputs * self.inputs, "cached": self.block}
        given |= {
            "pieces": PIECES,
            "worthwhile": WORTHWHILE,
            "products": PRODUCTS,
            "slot_starts": channel_slots(self.epilogue),
        }
        store = fill(_ONE_BY_ONE if self.epilogue.functions() else _AT_ONCE, **given)
        return [
            prelude(t, self.epilogue),
            epilogue_of(self.symbol, t, self.epilogue),
            fill(_ROWS, **given, store=store, fetch=fill(_FETCH, **given) if self.inputs > FOLLOWED else ""),
            fill(_CALL, **given, **self.interface),
        ]
