"""Transposed convolution, NCHW: the products of every pixel with every tap, added up where they meet.

Some output channels at a time, P[channel, tap, pixel] = Σ over a group's inputs of W · X is a matrix product with the
taps as rows, which computes nothing twice and nothing that is not needed.  It stays in the second cache, where each row
of outputs is gathered from it: of every remainder of the columns by the stride a vector, which are then interleaved and
go through the epilogue.  X is packed into panels by each thread for itself, of large planes a strip of rows at a time:
what another one has packed comes from that one's caches, which takes longer.  Only where panels of so many channels do
not stay in the second cache all are packed before.

Threads split images, groups, strips and blocks of channels, never the sum: results do not depend on them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from typing import Self

import numpy as np

from irc.ir.dim import Dim, product
from irc.ir.types import f32, f64
from irc.kernels.conv import transposed_nchw_text as text
from irc.kernels.conv.channels_first import ChannelsFirstKernel
from irc.kernels.conv.problem import ConvTransposeProblem
from irc.kernels.conv.reference import transposed, unpacked
from irc.kernels.core.base import Array, Packed, Sizes
from irc.kernels.core.costs import GATHERED, GATHERED_ROW, costs_of, lengths_for, tile_cycles
from irc.kernels.core.epilogue import Epilogue, plain
from irc.kernels.core.isa import Isa
from irc.kernels.core.problem import Pair
from irc.kernels.core.registry import kernel
from irc.kernels.core.text import Part, fill, symbol
from irc.kernels.core.tile import Tile, Variants, block, bodies, epilogue_of, heights_of, names, prelude
from irc.kernels.core.workspace import ALIGNMENT, DIVIDE
from irc.kernels.gemm.tasks import WORTHWHILE
from irc.kernels.gemm.tiled import is_narrow

LINE = 1024  # elements of a row of outputs on the stack
MOST_TILES = 4  # tiles of rows in a block of channels
MOST_TAPS = 64
FEW_STRIPS = (2, 4)  # that are tried for threads which would have too little to do
TOGETHER = 4  # panels that are packed together: whole lines of memory that follow one another
CHANNELS = 64  # of them, which a thread packs at a time
FEW = 4_000  # elements of X below which one thread packs them
COPIED = 0.5  # of what packing takes else: rows of pixels are copied as they are
IDLE = 0.1  # what a cycle counts which of two or of four threads one waits or does again what another one did


@kernel
class NchwConvTransposeKernel(ChannelsFirstKernel[ConvTransposeProblem]):
    """A generated transposed convolution.

    The output channels of a group are computed in `blocks`, the rows of a plane in `strips`; the products of both are
    on the stack.  Each thread packs the panels of X that a strip reads, of at most so many `columns`; where that is 0,
    all are packed before.  `heights` are those of the tiles of output channels × taps, `narrow` as in `GemmKernel`.
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
    extents = "batch groups ic oc ih iw oh ow pad_h pad_w x_batch x_channel y_batch y_channel"

    @classmethod
    def candidates(cls, problem: ConvTransposeProblem, isa: Isa) -> Iterator[Self]:
        """Yield variants for register tiles and numbers of channels, whose products fit on the stack."""
        p = problem
        if p.layout != "nchw" or p.dtype not in (f32, f64) or p.taps > MOST_TAPS or not p.oc:
            return
        if not (p.has_known_planes and all(n.is_const for n in (*p.size, *p.padding))) or p.strides[1] > LINE // 8:
            return
        pixels = int(p.size[0] * p.size[1])
        for tile in (
            Tile(part, p.dtype, *s) for part in lengths_for(isa, p.dtype, pixels) for s in costs_of(part).tiles
        ):
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
                narrow = is_narrow(tile, pixels)
                for strips in _strips(p, tile, max(rows)):
                    columns = _columns(p, tile, strips) if _stays(p, tile, strips) else 0
                    geometry = (p.window, p.strides, p.dilations)
                    yield cls(tile, p.epilogue, *geometry, blocks, strips, columns, heights, narrow)

    def cycles(self, problem: ConvTransposeProblem) -> float:
        p, t = problem, self.tile
        rows, columns = -(-p.oc // self.blocks) * p.taps, _columns(p, t, self.strips)
        pixels = min(columns, int(p.size[0] * p.size[1]))
        shape = (t.rows, t.vectors)
        tiles = tile_cycles(t.isa, shape, t.lanes, rows, pixels) * p.ic * p.oc * p.taps / rows
        gathered = columns / t.lanes * p.oc * p.taps * GATHERED
        stored = (
            p.oc * int(p.result[0]) * (GATHERED_ROW + p.taps / p.strides[0] + int(p.result[1]) / t.lanes * GATHERED)
        )
        rate = t.isa.vector if _stays(p, t, self.strips) else costs_of(t.isa).stream  # bytes a cycle
        read = columns * p.ic * t.dtype.itemsize * self.blocks / rate  # every block of channels reads the panels anew
        packed = columns * p.ic * costs_of(t.isa).pack * COPIED
        strips = p.images * p.groups * self.strips
        computed = tiles + gathered + stored / self.strips + read
        products = p.images * p.outputs * p.taps * p.ic * int(p.size[0]) * int(p.size[1])
        return strips * (packed + computed) if products < WORTHWHILE else self._with_idle(packed, computed, strips)

    def _with_idle(self, packed: float, computed: float, strips: int) -> float:
        """Add up the cycles of all strips, and weigh those that two and four threads wait or pack again."""

        def spent(threads: int) -> float:
            some = -(-strips // threads) if self.columns else strips
            return threads * (some * packed + -(-strips * self.blocks // threads) * computed / self.blocks)

        return spent(1) + IDLE * (spent(2) + spent(4) - 2 * spent(1))

    @property
    def label(self) -> str:
        t = self.tile
        return f"tiles {t.rows}x{t.vectors} of {t.lanes} lanes, {self.blocks} blocks, {self.strips} strips"

    def arguments_for(self, problem: ConvTransposeProblem) -> dict[str, Dim]:
        return problem.arguments() | problem.channel_arguments() | {"groups": Dim.of(problem.groups)}

    def scratch(self, problem: ConvTransposeProblem) -> Dim:
        p, t = problem, self.tile
        if self.columns:
            return Dim.of(0)
        columns = -(-int(p.size[0] * p.size[1]) // t.panel) * t.panel
        return p.batch * p.channels * columns * t.dtype.itemsize

    def own_bytes(self, sizes: Mapping[str, int]) -> int:
        t = self.tile
        pitch = ((-(-sizes["ih"] * sizes["iw"] // t.panel) + 1) * t.vectors | 1) * t.lanes
        rows = -(-sizes["oc"] // self.blocks) * self.window[0] * self.window[1]
        line = LINE + 2 * self.strides[1] * t.lanes
        own = min(self._room, rows * pitch) + 2 * self._slack + line + self.columns * sizes["ic"]
        return own * t.dtype.itemsize + (ALIGNMENT if self.columns else 0)

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
        scratch = () if self.columns else (("scratch", f"{names(self.tile)['T']} *"),)
        return (*super().pointers, *scratch)

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
            "columns": self.columns,
            "line": ALIGNMENT,
            "strips": self.strips,
            "slack": self._slack,
            "reach": self._reach,
            "iota": ", ".join(map(str, range(t.lanes))),
            "TOGETHER": TOGETHER,
            "CHANNELS": CHANNELS,
            "worthwhile": WORTHWHILE,
            "few": FEW,
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
            fill(text.PACK, **given),
            *([] if self.columns else [fill(text.PACK_ALL, **given)]),
            fill(text.PRODUCTS, **given),
            fill(text.ROW, **given, interior=self._taps(True), border=self._taps(False), interleave=self._interleave()),
            fill(
                text.BODY,
                **given,
                **self.interface,
                slot_starts=starts,
                panels=fill(text.OWN if self.columns else text.SHARED, **given),
                pack="" if self.columns else fill(text.PACK_FIRST, **given),
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
        made = "acc[0]"
        for r in range(1, stride):
            picks = (lanes + at if of == r else at if r == 1 and not of else i for i, (at, of) in enumerate(elements))
            made = f"__builtin_shufflevector({made}, acc[{r}], {', '.join(map(str, picks))})"
        return f"            {v}_store(to + {number * lanes}, {made});\n"


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

    The fewest, the fewest with which the panels of a strip stay in the second cache, and those for threads; none if not
    even one row fits.
    """
    size, oh = p.dtype.itemsize, max(int(p.result[0]), 1)
    most = tile.isa.packed // size // rows - tile.lanes
    fitting = [n for n in range(1, oh + 1) if _columns(p, tile, n) <= most]
    cached = [n for n in fitting if _stays(p, tile, n)]
    return sorted({*fitting[:1], *cached[:1], *(n for n in FEW_STRIPS if n in cached)})


def _stays(p: ConvTransposeProblem, tile: Tile, strips: int) -> bool:
    """Tell whether the panels of a strip stay in the second cache."""
    return _columns(p, tile, strips) * p.ic * tile.dtype.itemsize <= tile.isa.l2 // 4 * 3
