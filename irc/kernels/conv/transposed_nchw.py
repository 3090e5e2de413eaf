"""Transposed convolution, NCHW: the products of every pixel with every tap, added up where they meet.

Some output channels at a time, P[channel, tap, pixel] = Σ over a group's inputs of W · X is a matrix product with the
taps as rows, which computes nothing twice and nothing that is not needed.  It stays in the second cache, where each row
of outputs is gathered from it: of every remainder of the columns by the stride a vector, which are then interleaved and
go through the epilogue.  X is packed into panels before, or, of planes so large
that they are computed in many strips of rows, strip by strip.

Threads split images, groups, strips and blocks of channels, never the sum: results do not depend on them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from typing import Self

import numpy as np

from irc.ir.dim import Dim, product
from irc.ir.types import f32, f64
from irc.kernels.conv.problem import ConvTransposeProblem
from irc.kernels.conv.reference import transposed, unpacked
from irc.kernels.core.base import Array, Kernel, Packed, Sizes
from irc.kernels.core.costs import CACHED, GATHERED, GATHERED_ROW, costs_of, tile_cycles
from irc.kernels.core.epilogue import Epilogue, plain
from irc.kernels.core.isa import Isa
from irc.kernels.core.problem import Pair
from irc.kernels.core.registry import kernel
from irc.kernels.core.text import Part, fill, symbol
from irc.kernels.core.tile import Tile, Variants, block, bodies, epilogue_of, heights_of, names, prelude
from irc.kernels.core.workspace import DIVIDE
from irc.kernels.gemm.packed import WORTHWHILE, is_narrow

LINE = 1024  # elements of a row of outputs on the stack
MOST_TILES = 4  # tiles of rows in a block of channels
MOST_TAPS = 64
MANY = 4  # strips of which each packs its part of X
TOGETHER = 4  # panels that are packed together: whole lines of memory that follow one another

_PACK = """
/* Panels first to last of a group's X: to[panel][channel][$NR], zeros behind the last pixel. */
static void ${S}_panels(const ${S}_args *g, int64_t matrix, int64_t first, int64_t last, $T *to) {
    const int64_t image = matrix / g->groups, group = matrix % g->groups, n = g->ih * g->iw;
    for (int64_t p = first, end; p < last; p = end, to += $TOGETHER * g->ic * $NR) {
        const $T *x = g->x + image * g->x_batch + group * g->ic * g->x_channel;
        end = p + $TOGETHER < last ? p + $TOGETHER : last;
        for (int64_t c = 0; c < g->ic; c++, x += g->x_channel) {
            $T *panel = to + c * $NR;
            for (int64_t i = p; i < end; i++, panel += g->ic * $NR) {
                const $T *from = x + i * $NR;
                const int64_t left = n - i * $NR;
                if (left >= $NR) {
                    IRC_FULL_UNROLL
                    for (int w = 0; w < $NV; w++) ${V}_store(panel + w * $L, ${V}_load(from + w * $L));
                    continue;
                }
                for (int w = 0; w < $NV; w++) {
                    const int64_t part = left - w * $L;
                    ${V}_store(panel + w * $L, part > 0 ? ${V}_load_part(from + w * $L, part) : ($V){0});
                }
            }
        }
    }
}
"""

_PACK_ALL = """
/* Units begin to end of all images and groups: $TOGETHER panels each. */
static void ${S}_pack(void *given, int64_t begin, int64_t end) {
    const ${S}_args *g = given;
    const int64_t panels = (g->ih * g->iw + $NR - 1) / $NR, units = (panels + $TOGETHER - 1) / $TOGETHER;
    for (; begin < end; begin++) {
        const int64_t first = begin % units * $TOGETHER, matrix = begin / units;
        const int64_t last = first + $TOGETHER < panels ? first + $TOGETHER : panels;
        ${S}_panels(g, matrix, first, last, g->scratch + (matrix * panels + first) * g->ic * $NR);
    }
}
"""

_PRODUCTS = """
/* Products of `rows` rows of weights, w, with panels first to last: to[row][pixel], rows `pitch` apart. */
static void ${S}_products(const ${S}_args *g, const $T *w, int64_t rows, const $T *x, int64_t first, int64_t last,
                          int64_t pixels, $T *to, int64_t pitch) {
    _Alignas(64) $T sums[$MR * $NR];
    const int64_t tiles = (rows + $MR - 1) / $MR, low = rows / tiles, extra = rows % tiles;
    const int64_t n = pixels - (last - 1) * $NR <= $L ? (last - first - 1) * $NR + $L : (last - first) * $NR;
    const ${S}_sums_out o = {.c = to, .c_row = pitch, .n = n};
    for (int64_t p = first; p < last; p++, x += g->ic * $NR) {
        for (int64_t t = 0, row = 0, height; t < tiles; t++, row += height) {
            height = low + (t < extra);
            const $T *a = w + row * g->ic;
            ${S}_sums_block(&o, (int)height, row, (p - first) * $NR, g->ic, a, x, sums, 1, 1, 0, 1, a + $far,
                            height);
        }
    }
}
"""

_ROW = """
/* The lanes of from[at + i] with 0 <= at + i < n, zeros for the others. */
IRC_INLINE $V ${S}_inside(const $T *from, int64_t at, int64_t n) {
    const ${V}_mask lane = {$iota};
    const ${V}_mask i = lane + ($I)at;
    return ($V)((${V}_mask)${V}_load(from + at) & (${V}_mask)(i >= 0) & (${V}_mask)(i < ($I)n));
}

/* Columns [x0, x1) of a row of outputs, with the padding counted; `from`: the rows of n taps' products. */
static void ${S}_row(const ${S}_out *o, const $T *const *from, int64_t n, int64_t pitch, int64_t iw, int64_t x0,
                     int64_t x1, int64_t pad, int64_t channel, int64_t pixel, $T *line) {
    for (int64_t next; x0 < x1; x0 = next) {
        const int64_t begin = x0 / $SW;
        next = (begin + $LINE / $SW) * $SW < x1 ? (begin + $LINE / $SW) * $SW : x1;
        for (int64_t q = begin; q * $SW < next; q += $L) {
            $V acc[$SW];
            IRC_FULL_UNROLL
            for (int r = 0; r < $SW; r++) acc[r] = ($V){0};
            if (q >= $reach && q + $L <= iw) {
                for (int64_t i = 0; i < n; i++) {
                    const $T *at = from[i] + q;
$interior                }
            } else {
                for (int64_t i = 0; i < n; i++) {
                    const $T *at = from[i];
$border                }
            }
            $T *to = line + (q - begin) * $SW;
$interleave        }
        const $T *sums = line + (x0 - begin * $SW);
        $T *to = o->c + channel * o->c_row + pixel - pad;
        for (int64_t x = x0; x < next; x += $L, sums += $L) {
            const int64_t part = next - x < $L ? next - x : $L;
            const $V y = ${S}_epilogue(o, ${V}_load(sums), channel, pixel + x - pad, part);
            if (part == $L) ${V}_store(to + x, y);
            else ${V}_store_part(to + x, y, part);
        }
    }
}
"""

_BODY = """
typedef struct {
    int64_t o0, o1, first, last, pitch; /* rows of outputs; panels of products; an odd number of vectors, so that rows
                                           of products fall into different sets of the caches */
} ${S}_area;

IRC_INLINE ${S}_area ${S}_strip(const ${S}_args *g, int64_t strip) {
    const int64_t o0 = g->oh * strip / $strips, o1 = g->oh * (strip + 1) / $strips;
    const int64_t low = o0 + g->pad_h - ($KH - 1) * $DH, high = (o1 - 1 + g->pad_h) / $SH + 1;
    const int64_t q1 = high < g->ih ? high : g->ih, q0 = low <= 0 ? 0 : (low + $SH - 1) / $SH;
    if (q0 >= q1) return (${S}_area){o0, o1, 0, 0, 0};
    const int64_t first = q0 * g->iw / $NR, last = (q1 * g->iw + $NR - 1) / $NR;
    return (${S}_area){o0, o1, first, last, ((last - first) * $NV | 1) * $L};
}

/* Output channels c0 to c1 of a group in a strip; x: its panels. */
static void ${S}_channels(const ${S}_args *g, const ${S}_out *o, const ${S}_area *area, const $T *w, const $T *x,
                          int64_t c0, int64_t c1, $T *line) {
    $T *const room = line + $LINE + 2 * $SW * $L;
    const int64_t pitch = area->pitch;
    if (area->first < area->last)
        ${S}_products(g, w, (c1 - c0) * $TAPS, x, area->first, area->last, g->ih * g->iw, room + $slack, pitch);
    for (int64_t c = c0; c < c1; c++) {
        const $T *products = room + $slack + (c - c0) * $TAPS * pitch;
        for (int64_t y = area->o0; y < area->o1; y++) {
            const $T *from[$KH] = {0};
            int64_t n = 0;
            for (int64_t k = 0; k < $KH; k++) {
                const int64_t at = y + g->pad_h - k * $DH;
                if (at >= 0 && at % $SH == 0 && at / $SH < g->ih)
                    from[n++] = products + k * $KW * pitch + (at / $SH * g->iw - area->first * $NR);
            }
            ${S}_row(o, from, n, pitch, g->iw, g->pad_w, g->pad_w + g->ow, g->pad_w, c, y * g->ow,
                     line);
        }
    }
}

/* Tasks begin to end: images, groups, strips, parts of the blocks of channels (innermost). */
static void ${S}_part(void *given, char *own, int64_t begin, int64_t end) {
    const ${S}_args *g = given;
    for (; begin < end; begin++) {
        const int64_t part = begin % $parts, strip = begin / $parts % $strips, matrix = begin / $parts / $strips;
        const int64_t image = matrix / g->groups, group = matrix % g->groups, channel = group * g->oc;
        const ${S}_area area = ${S}_strip(g, strip);
        ${S}_out o = {.c = g->y + image * g->y_batch + channel * g->y_channel, .c_row = g->y_channel};$slot_starts
$panels        for (int64_t b = $blocks * part / $parts; b < $blocks * (part + 1) / $parts; b++) {
            const int64_t c0 = g->oc * b / $blocks, c1 = g->oc * (b + 1) / $blocks;
            ${S}_channels(g, &o, &area, g->w + (channel + c0) * $TAPS * g->ic, x, c0, c1, ($T *)own);
        }
    }
}

void $S($parameters) {
    if (g->batch <= 0 || g->oh <= 0 || g->ow <= 0) return;
    const int64_t matrices = g->batch * g->groups, tasks = matrices * $strips * $parts;
    const double elements = (double)(g->ih * g->iw) * (double)(matrices * g->ic);
    const int alone = !pool || tasks < 2 || elements * (double)(g->oc * $TAPS) < $worthwhile;
$pack    if (alone) ${S}_part((void *)g, g->own, 0, tasks);
    else irc_divide(pool, tasks, ${S}_part, (void *)g, g->own, g->own_bytes, g->owners);
}
"""

_SHARED = """\
        const int64_t panels = (g->ih * g->iw + $NR - 1) / $NR;
        const $T *x = g->scratch + (matrix * panels + area.first) * g->ic * $NR;
"""
_OWN = """\
        $T *x = g->scratch + begin * $columns * g->ic;
        ${S}_panels(g, matrix, area.first, area.last, x);
"""
_PACK_FIRST = """\
    const int64_t together = $NR * $TOGETHER, units = matrices * ((g->ih * g->iw + together - 1) / together);
    if (alone || elements < $worthwhile) ${S}_pack((void *)g, 0, units);
    else pool->parallel_for(pool->self, units, ${S}_pack, (void *)g);
"""


@kernel
class NchwConvTransposeKernel(Kernel[ConvTransposeProblem]):
    """A generated transposed convolution.

    The output channels of a group are computed in `blocks`, the rows of a plane in `strips`; the products of both are
    on the stack.  With many strips each packs the panels of X that it reads, of at most so many `columns`; with
    few, 0, all are packed before.  `heights` are those of the tiles of output channels × taps, `narrow` as in
    `GemmKernel`.
    """

    tile: Tile
    epilogue: Epilogue
    window: Pair
    strides: Pair
    dilations: Pair
    blocks: int
    strips: int
    columns: int
    heights: tuple[int, ...]
    narrow: bool

    problem = ConvTransposeProblem

    @classmethod
    def candidates(cls, problem: ConvTransposeProblem, isa: Isa) -> Iterator[Self]:
        """Yield variants for register tiles and numbers of channels, whose products fit on the stack."""
        p = problem
        if p.layout != "nchw" or p.dtype not in (f32, f64) or p.taps > MOST_TAPS or not p.oc:
            return
        if not (p.has_known_planes and all(n.is_const for n in (*p.size, *p.padding))) or p.strides[1] > LINE // 8:
            return
        for shape in costs_of(isa).tiles:
            tile = Tile(isa, p.dtype, *shape)
            seen: set[int] = set()
            for channels in range(1, p.oc + 1):
                if channels > 1 and channels * p.taps > MOST_TILES * tile.rows:
                    break
                blocks = -(-p.oc // channels)
                if blocks in seen:
                    continue
                seen.add(blocks)
                rows = {n * p.taps for n in (p.oc // blocks, -(-p.oc // blocks))}
                heights = tuple(sorted({h for n in rows for h in heights_of(n, tile.rows)}))
                narrow = is_narrow(tile, p.size[0] * p.size[1])
                for strips in _strips(p, tile, max(rows)):
                    columns = _columns(p, tile, strips) if strips >= MANY else 0
                    geometry = (p.window, p.strides, p.dilations)
                    yield cls(tile, p.epilogue, *geometry, blocks, strips, columns, heights, narrow)

    def cycles(self, problem: ConvTransposeProblem) -> float:
        p, t = problem, self.tile
        rows, columns = -(-p.oc // self.blocks) * p.taps, _columns(p, t, self.strips)
        shape = (t.rows, t.vectors)
        tiles = tile_cycles(t.isa, shape, t.lanes, rows, columns) * p.oc * p.taps / rows * self.strips
        gathered = self.strips * columns / t.lanes * p.oc * p.taps * GATHERED
        stored = (
            p.oc * int(p.result[0]) * (GATHERED_ROW + p.taps / p.strides[0] + int(p.result[1]) / t.lanes * GATHERED)
        )
        packed = int(p.size[0]) * int(p.size[1]) * p.ic * costs_of(t.isa).pack
        panels = columns * p.ic * t.dtype.itemsize  # every block of channels reads them anew
        rate = costs_of(t.isa).stream * (CACHED if panels <= t.isa.l2 // 2 else 1)
        packed += panels * self.blocks * self.strips / rate
        return p.images * p.groups * (tiles * p.ic + gathered + stored + packed)

    @property
    def label(self) -> str:
        return f"tiles {self.tile.rows}x{self.tile.vectors}, {self.blocks} blocks, {self.strips} strips"

    def arguments_for(self, problem: ConvTransposeProblem) -> dict[str, Dim]:
        return problem.arguments() | problem.channel_arguments() | {"groups": Dim.of(problem.groups)}

    def scratch(self, problem: ConvTransposeProblem) -> Dim:
        p, t = problem, self.tile
        columns = self.columns * self.strips or -(-int(p.size[0] * p.size[1]) // t.panel) * t.panel
        return p.batch * p.channels * columns * t.dtype.itemsize

    def own_bytes(self, sizes: Mapping[str, int]) -> int:
        t = self.tile
        pitch = ((-(-sizes["ih"] * sizes["iw"] // t.panel) + 1) * t.vectors | 1) * t.lanes
        rows = -(-sizes["oc"] // self.blocks) * self.window[0] * self.window[1]
        line = LINE + 2 * self.strides[1] * t.lanes
        return (line + min(self._room, rows * pitch) + 2 * self._slack) * t.dtype.itemsize

    @property
    def _room(self) -> int:
        """The products of a strip, at most."""
        return self.tile.isa.packed // self.tile.dtype.itemsize

    @property
    def _slack(self) -> int:
        """The elements before and behind them that windows reach."""
        return -(-self._reach // self.tile.lanes) * self.tile.lanes + self.tile.lanes

    @property
    def _reach(self) -> int:
        return (self.window[1] - 1) * self.dilations[1] // self.strides[1]

    def packed(self, problem: ConvTransposeProblem) -> Packed:
        groups, elements = problem.groups, problem.outputs * problem.ic * problem.taps
        key = ("tiles of channels and taps", self.tile.rows, self.blocks, groups)
        return Packed(key, self.tile.dtype, elements, lambda w: self.pack_weights(w, groups))

    def compute(self, reads: Sequence[Array], writes: Sequence[Array], sizes: Mapping[str, int]) -> None:
        groups = sizes["groups"]
        shape = (groups * sizes["ic"], sizes["oc"], *self.window)
        w = unpacked(reads[1], shape, self.tile.dtype, lambda w: self.pack_weights(w, groups))
        transposed(w, groups, self.strides, self.dilations, self.epilogue, reads, writes, sizes)

    @cached_property
    def symbol(self) -> str:
        words = self.tile.name.removeprefix("irc_tile_")
        shape = f"{self.window[0]}x{self.window[1]}_s{self.strides[0]}x{self.strides[1]}"
        parts = (self.dilations, self.heights, self.narrow, self.blocks, self.strips, self.columns)
        return symbol(f"conv_transpose_{shape}", words, f"{self.epilogue.key()}{parts}")

    @property
    def pointers(self) -> tuple[tuple[str, str], ...]:
        t = str(names(self.tile)["T"])
        read = (("x", f"const {t} *"), ("w", f"const {t} *"), *self.epilogue.pointers(t))
        return (*read, ("y", f"{t} *"), ("scratch", f"{t} *"))

    @property
    def sizes(self) -> tuple[str, ...]:
        slots = [f"s{i}_{f}" for i, f in self.epilogue.strides("batch", "channel")]
        extents = "batch groups ic oc ih iw oh ow pad_h pad_w x_batch x_channel y_batch y_channel"
        return (*extents.split(), *slots)

    def pack_weights(self, w: Array, groups: int = 1) -> Array:
        """Pack w[ic, oc, kh, kw] of all groups, flat: [group][block][tile][ic][rows of the tile: channels × taps]."""
        inputs, per = w.shape[0] // groups, w.shape[1]
        taps = self.window[0] * self.window[1]
        rows = w.reshape(groups, inputs, per * taps)
        parts: list[Array] = []
        for g in range(groups):
            for b in range(self.blocks):
                begin, end = per * b // self.blocks * taps, per * (b + 1) // self.blocks * taps
                tiles = np.array_split(rows[g, :, begin:end], -(-(end - begin) // self.tile.rows), 1)
                parts += [tile.ravel() for tile in tiles]
        return np.concatenate(parts).astype(self.tile.dtype.numpy, copy=False)

    def flops(self, sizes: Sizes) -> Dim:
        pixels = product(sizes[n] for n in ("batch", "groups", "oc", "ic", "ih", "iw"))
        return 2 * pixels * (self.window[0] * self.window[1])

    def parts(self) -> list[Part]:
        s, t = self.symbol, self.tile
        variants = Variants(self.heights, self.narrow)
        given = names(t) | {
            "S": s,
            "I": "int64_t" if t.dtype == f64 else "int32_t",
            "TAPS": self.window[0] * self.window[1],
            "LINE": LINE,
            "far": 64 * t.rows,  # a tile of weights comes from memory
            "blocks": self.blocks,
            "parts": 1 if self.columns else self.blocks,
            "columns": self.columns,
            "strips": self.strips,
            "slack": self._slack,
            "reach": self._reach,
            "iota": ", ".join(map(str, range(t.lanes))),
            "TOGETHER": TOGETHER,
            "worthwhile": WORTHWHILE,
        }
        pairs = (("K", self.window), ("S", self.strides), ("D", self.dilations))
        given |= {letter + axis: n for letter, pair in pairs for axis, n in zip("HW", pair, strict=True)}
        starts = "".join(
            f"\n        o.s{i} = g->s{i} + image * g->s{i}_batch"
            + (
                f" + channel * g->s{i}_channel;\n        o.s{i}_row = g->s{i}_channel;"
                if axes in ("column", "full")
                else ";"
            )
            for i, axes in enumerate(self.epilogue.slots)
        )
        return [
            prelude(t, self.epilogue),
            DIVIDE,
            bodies(t, variants),
            block(f"{s}_sums", t, plain(t.dtype), variants),
            epilogue_of(s, t, self.epilogue),
            fill(_PACK, **given),
            *([] if self.columns else [fill(_PACK_ALL, **given)]),
            fill(_PRODUCTS, **given),
            fill(_ROW, **given, interior=self._taps(True), border=self._taps(False), interleave=self._interleave()),
            fill(
                _BODY,
                **given,
                **self.interface,
                slot_starts=starts,
                panels=fill(_OWN if self.columns else _SHARED, **given),
                pack="" if self.columns else fill(_PACK_FIRST, **given),
            ),
        ]

    @property
    def summary(self) -> str:
        (kh, kw), (sh, sw), t = self.window, self.strides, self.tile
        return f"Transposed convolution, NCHW, {t.dtype}: {kh} x {kw}, strides {sh} and {sw}."

    def _taps(self, interior: bool) -> str:
        """Print the additions of the taps of a row to their remainders."""
        v, lines = names(self.tile)["V"], ""
        for k in range(self.window[1]):
            t, r = divmod(k * self.dilations[1], self.strides[1])
            at = f"at + {k} * pitch"
            value = f"{v}_load({at} - {t})" if interior else f"{self.symbol}_inside({at}, q - {t}, iw)"
            lines += f"                    acc[{r}] += {value};\n"
        return lines

    def _interleave(self) -> str:
        """Print the stores of the remainders beside each other."""
        lanes, stride, v = self.tile.lanes, self.strides[1], names(self.tile)["V"]
        if stride > 8:
            return (
                f"            for (int r = 0; r < {stride}; r++)\n"
                f"                for (int i = 0; i < {lanes}; i++) to[i * {stride} + r] = acc[r][i];\n"
            )
        if stride & (stride - 1):
            return "".join(self._interleaved(j) for j in range(stride))
        low = ", ".join(f"{i}, {i + lanes}" for i in range(lanes // 2))
        high = ", ".join(f"{i}, {i + lanes}" for i in range(lanes // 2, lanes))
        lines: list[str] = []

        def merged(vectors: list[str]) -> list[str]:
            if len(vectors) == 1:
                return vectors
            found: list[str] = []
            for a, b in zip(merged(vectors[::2]), merged(vectors[1::2]), strict=True):
                for picks in (low, high):
                    name = f"v{len(lines)}"
                    lines.append(f"const {v} {name} = __builtin_shufflevector({a}, {b}, {picks});")
                    found.append(name)
            return found

        stores = [
            f"{v}_store(to + {i * lanes}, {x});" for i, x in enumerate(merged([f"acc[{r}]" for r in range(stride)]))
        ]
        return "".join(f"            {line}\n" for line in (*lines, *stores))

    def _interleaved(self, number: int) -> str:
        """Print the store of one vector of those into which the remainders are interleaved, one after the other."""
        lanes, stride, v = self.tile.lanes, self.strides[1], names(self.tile)["V"]
        elements = [divmod(number * lanes + i, stride) for i in range(lanes)]  # each: from where, of which remainder
        text = "acc[0]"
        for r in range(1, stride):
            picks = (lanes + at if of == r else at if r == 1 and not of else i for i, (at, of) in enumerate(elements))
            text = f"__builtin_shufflevector({text}, acc[{r}], {', '.join(map(str, picks))})"
        return f"            {v}_store(to + {number * lanes}, {text});\n"


def _columns(p: ConvTransposeProblem, tile: Tile, strips: int) -> int:
    """Count the columns of the products of a strip, at most: of whole panels."""
    ih, iw, oh = int(p.size[0]), int(p.size[1]), int(p.result[0])
    pixels, rows = ih * iw, -(-oh // strips)
    if strips > 1:
        rows = (rows - 1 + (p.window[0] - 1) * p.dilations[0]) // p.strides[0] + 1
        pixels = min(pixels, rows * iw + tile.panel - 1)
    return -(-pixels // tile.panel) * tile.panel


def _strips(p: ConvTransposeProblem, tile: Tile, rows: int) -> list[int]:
    """List numbers of strips of rows of the result with which this many rows of products fit on the stack.

    The fewest, and the fewest with which the panels of a strip stay in the second cache; none if not even one row fits.
    """
    size, oh = p.dtype.itemsize, max(int(p.result[0]), 1)
    most = tile.isa.packed // size // rows - tile.lanes
    fitting = [n for n in range(1, oh + 1) if _columns(p, tile, n) <= most]
    cached = [n for n in fitting if _columns(p, tile, n) * p.ic * size <= tile.isa.l2 // 2]
    return sorted({*fitting[:1], *cached[:1]})
