"""Convolution of groups with few channels, NCHW: depthwise ones, those with several outputs for each input, images.

A strip of the planes of a group's input is copied, padded, to the stack, split by the phases of the strides; there
every tap of the window is the same row at an offset.  A register tile is a few output channels × a few output rows ×
a few vectors of neighbouring pixels: a vector of the input is loaded once for all rows whose windows hold it, and for
all channels.  Dilated windows share rows that are the dilation apart: these make a tile then (`step`).  The last tile
of a row overlaps the one before.

Nothing outside the input is read.  Threads split images, groups and strips.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from math import gcd
from typing import Self

import numpy as np

from irc.ir.dim import Dim, product
from irc.ir.types import f32, f64
from irc.kernels.conv.channels_first import ChannelsFirstKernel
from irc.kernels.conv.grouped_nchw_text import CALL, PART, ROWS, TILE, copies
from irc.kernels.conv.problem import ConvProblem
from irc.kernels.conv.reference import convolve, unpacked
from irc.kernels.core.base import Array, Packed, Sizes
from irc.kernels.core.costs import FIRST_CACHE_HOLDS, LOADS, SECOND_CACHE, in_halves
from irc.kernels.core.epilogue import Epilogue
from irc.kernels.core.isa import AVX2, Isa
from irc.kernels.core.problem import Pair, likely_extent
from irc.kernels.core.registry import kernel
from irc.kernels.core.text import Part, fill, symbol
from irc.kernels.core.tile import Tile, epilogue_of, names, prelude
from irc.kernels.core.workspace import DIVIDE
from irc.kernels.vector.pixels import slot_starts

INPUTS = 16  # channels of a group's input, at most
MOST_TAPS = 25  # of a window of one group; of more, vectors of outputs are faster
PRODUCTS = 512  # multiply-adds that are unrolled, at most
OUTPUTS = (1, 2, 3, 4, 6, 8)  # output channels of a tile
NEAR = 8  # channels whose strips are near enough for short vectors
ROW, TILE_BEGINS = 8.0, 12.0  # cycles to begin a row that is copied, and a tile
DENSE, DENSE_SHORT, DENSE_IN_HALVES = 0.75, 0.88, 0.97
"""The part of the peak that tiles reach where channels meet several others; and with stride 1 of vectors that are half
a line of the cache, of which few loads meet two lines, and where a core does one vector a cycle, as two halves."""
DENSE_WHOLE, LOADING, CROWDED = 0.95, 0.15, 0.07
"""The same with stride 1 of vectors of a line, which nearly all loads meet two of, if loads took no time; how much less
it is where they take as long as the products, and where sums are in more than half of the registers: so many stores
that follow one another wait for lines of a large result."""
LOADED_IN_HALVES = 0.3
"""What loads add that take more than half as long as the products, where a core loads and multiplies a vector as two
halves: part of what they take more."""
MET_HALF, LINE_MISSED = 8 << 10, 4.0
"""Bytes that a tile meets from which on, there, those of the next tile replace some of it: each of its vectors waits
for the second cache; and the cycles of a vector where there are three times as many."""
STORED_FAR = 6.0
"""Cycles that storing a vector of a result which the second cache does not hold takes besides, where a core stores it
as two halves: the next one is stored before the line of this one has come."""
COPY, SPLIT = 1.5, 5.0  # cycles to copy a vector, and to take one of every second column
WORTHWHILE = 50_000  # products below which one thread does all
PIECES = 16  # pieces for the threads, at least, if there are enough rows
FEW, SEVERAL = 8, 4  # pieces, at least, where there are not, and tiles of outputs in each


@dataclass(frozen=True)
class Shape:
    """A register tile: outputs × rows, `step` apart, × vectors."""

    outputs: int
    rows: int
    vectors: int
    step: int


@kernel
class NchwGroupedKernel(ChannelsFirstKernel[ConvProblem]):
    """A generated convolution of groups with few channels; `inputs` are the channels of a group's input."""

    tile: Tile
    inputs: int
    outputs: int
    step: int
    window: tuple[int, int]
    strides: tuple[int, int]
    dilations: tuple[int, int]
    epilogue: Epilogue

    problem = ConvProblem
    extents = "batch groups ic oc ih iw oh ow pad_h pad_w x_batch x_channel y_batch y_channel"

    @classmethod
    def candidates(cls, problem: ConvProblem, isa: Isa) -> Iterator[Self]:
        """Yield the variant of the best tile."""
        p = problem
        if p.layout != "nchw" or p.is_volume or not 0 < p.ic <= INPUTS or p.dtype not in (f32, f64):
            return
        if p.groups == 1 and p.taps > MOST_TAPS:
            return
        if fitting := [k for k in (cls._of(p, isa, shape) for shape in _shapes(p, isa)) if k._fits]:
            yield min(fitting, key=lambda k: k.cycles(p))

    @classmethod
    def _of(cls, p: ConvProblem, isa: Isa, shape: Shape) -> Self:
        tile = Tile(isa, p.dtype, shape.rows, shape.vectors)
        return cls(tile, p.ic, shape.outputs, shape.step, *p.geometry, p.epilogue)

    def cycles(self, problem: ConvProblem) -> float:
        p, t = problem, self.tile
        oh, ow = (max(likely_extent(n), 1) for n in p.result)
        accumulators = self.outputs * t.rows * t.vectors
        loads = self._loaded * t.vectors * self.window[1] * _crossing(t)
        dense = DENSE
        if p.strides == (1, 1) and in_halves(t.isa):
            dense = DENSE_IN_HALVES
        elif p.strides == (1, 1) and t.isa.vector == AVX2.vector and p.ic <= NEAR:
            dense = DENSE_SHORT
        elif p.strides == (1, 1) and t.isa.vector == 64:
            loading = (loads + self.outputs * p.taps / LOADS) * t.isa.fma / (accumulators * p.taps)
            dense = DENSE_WHOLE - LOADING * min(1.0, loading) - CROWDED * (accumulators > t.isa.registers // 2)
        peak = t.isa.fma * (dense if p.groups == 1 or p.ic > 1 else 1)
        tile = max(accumulators * p.taps / peak, loads, 4.0 * p.taps)
        if in_halves(t.isa):
            tile = max(tile, 2 * loads) + LOADED_IN_HALVES * max(0.0, 2 * loads - tile / 2)
        tile *= p.ic
        met = self._met * t.dtype.itemsize
        if in_halves(t.isa):
            missed = min(max((met - MET_HALF) / MET_HALF, 0.0), 2.0) / 2
            tile += missed * LINE_MISSED * self._loaded * t.vectors * p.ic
        elif met > FIRST_CACHE_HOLDS:
            tile += loads * p.ic * t.lanes * t.dtype.itemsize / SECOND_CACHE
        groups = -(-oh // (t.rows * self.step))
        lines = (groups - 1) * self.step + min(self.step, oh - (groups - 1) * t.rows * self.step)
        tiles = lines * -(-ow // t.panel)
        products = tiles * (p.oc // self.outputs) * (tile + TILE_BEGINS + accumulators)
        result = p.pixels * p.outputs * p.images * t.dtype.itemsize
        if in_halves(t.isa) and p.ic > 1 and p.groups > 1 and result > t.isa.l2:
            products += STORED_FAR * tiles * p.oc * t.rows * t.vectors
        rows = p.ic * (oh + self._reach[0]) * self._phases[0] * self._phases[1]
        copied = -(-likely_extent(p.size[1]) // (self.strides[1] * t.lanes)) * (COPY if self.strides[1] == 1 else SPLIT)
        return p.images * p.groups * (products + rows * (copied + ROW))

    @property
    def label(self) -> str:
        return "small groups"

    def arguments_for(self, problem: ConvProblem) -> dict[str, Dim]:
        return problem.arguments() | problem.channel_arguments() | {"groups": Dim.of(problem.groups)}

    def own_bytes(self, sizes: Mapping[str, int]) -> int:
        t, (taller, wider), (py, px), group = self.tile, self._reach, self._phases, self.tile.rows * self.step
        pitch = -(-(sizes["ow"] + wider) // t.lanes) * t.lanes
        phase = (-(-sizes["oh"] // group) * group + taller) * pitch + t.panel
        return min(self._strip, self.inputs * py * px * phase + wider + 2 * t.panel) * t.dtype.itemsize

    def packed(self, problem: ConvProblem) -> Packed:
        elements = problem.outputs * problem.ic * problem.taps
        return Packed(("grouped", self.outputs), self.tile.dtype, elements, self.pack_weights)

    def compute(self, reads: Sequence[Array], writes: Sequence[Array], sizes: Mapping[str, int]) -> None:
        shape = (sizes["groups"] * sizes["oc"], self.inputs, *self.window)
        w = unpacked(reads[1], shape, self.tile.dtype, self.pack_weights)
        convolve("nchw", w, sizes["groups"], self.strides, self.dilations, self.epilogue, reads, writes, sizes)

    @cached_property
    def symbol(self) -> str:
        shape = f"{self.window[0]}x{self.window[1]}_s{self.strides[0]}x{self.strides[1]}"
        words = self.tile.name.removeprefix("irc_tile_")
        key = f"{self.dilations}{self.inputs}{self.outputs}{self.step}{self.epilogue.key()}"
        return symbol("depthwise" if self.inputs == 1 else "grouped", shape, words, key)

    def pack_weights(self, w: Array) -> Array:
        """Pack w[outputs, ic, kh, kw] as flat [tiles of outputs, ic, kw, kh, outputs of a tile]."""
        tiles = w.reshape(-1, self.outputs, *w.shape[1:]).transpose(0, 2, 4, 3, 1)
        return np.ascontiguousarray(tiles, self.tile.dtype.numpy).reshape(-1)

    def flops(self, sizes: Sizes) -> Dim:
        return product(sizes[n] for n in ("batch", "groups", "ic", "oc", "oh", "ow")) * (
            2 * self.window[0] * self.window[1]
        )

    @property
    def summary(self) -> str:
        kind = "Depthwise convolution" if self.inputs == 1 else "Convolution of small groups"
        (kh, kw), (sh, sw) = self.window, self.strides
        return f"{kind}, NCHW, {self.tile.dtype}: {kh} x {kw}, strides {sh} and {sw}."

    def parts(self) -> list[Part]:
        s, t = self.symbol, self.tile
        given = names(t) | self._numbers() | {"S": s, "rows": "".join(self._rows())}
        given |= {"unroll": "\n        IRC_FULL_UNROLL" if self._unrolled else ""}
        return [
            prelude(t, self.epilogue),
            DIVIDE,
            epilogue_of(s, t, self.epilogue),
            fill(CALL, **given, **self.interface, wide=copies(t, t.lanes, self.strides[1]), quad=self._quad),
            fill(TILE, **given),
            fill(ROWS, **given),
            fill(PART, **given, **self.interface, slot_starts=slot_starts(self.epilogue, "channel")),
        ]

    @property
    def _quad(self) -> str:
        return copies(self.tile, 4, self.strides[1]) if self.tile.lanes > 4 else ""

    def _numbers(self) -> dict[str, object]:
        """Return the numbers of the templates."""
        t, (taller, wider), (py, px) = self.tile, self._reach, self._phases
        pairs = (("K", self.window), ("S", self.strides), ("D", self.dilations))
        found: dict[str, object] = {}
        for letter, pair in pairs:
            found |= {letter + axis: n for axis, n in zip("HW", pair, strict=True)}
        found |= {"OB": self.outputs, "R": t.rows, "U": t.vectors, "D": self.step, "IC": self.inputs}
        found |= {"PY": py, "PX": px, "taller": taller, "wider": wider}
        found |= {"room": self._strip - wider - 2 * t.panel}
        found |= {"light": int(not self.epilogue.functions())}  # else its registers would displace the sums
        found |= {"worthwhile": WORTHWHILE, "pieces": PIECES, "few": FEW, "several": SEVERAL}
        return found | {"group": t.rows * self.step}

    @property
    def _strip(self) -> int:
        """Elements of a padded strip of all channels of a group, at most."""
        return self.tile.isa.packed // 2 // self.tile.dtype.itemsize

    @property
    def _met(self) -> int:
        """Elements of the strip that the windows of a tile span."""
        taller, wider = self._reach
        lines, pixels = (self.tile.rows - 1) * self.step + taller + 1, self.tile.panel + wider
        return self.inputs * self._phases[0] * self._phases[1] * lines * pixels

    @property
    def _reach(self) -> Pair:
        """Rows and columns of a phase that a window has beyond its first."""
        spans = zip(self.window, self.dilations, self.strides, strict=True)
        taller, wider = ((k - 1) * d // s for k, d, s in spans)
        return taller, wider

    @property
    def _phases(self) -> Pair:
        """Phases of the strides that taps meet, along rows and columns: those of the first taps."""
        spans = zip(self.window, self.dilations, self.strides, strict=True)
        rows, columns = (min(k, s // gcd(s, d)) for k, d, s in spans)
        return rows, columns

    @property
    def _fits(self) -> bool:
        """Whether a strip with one row of tiles and a few columns of output is not too large."""
        (taller, wider), (py, px), t = self._reach, self._phases, self.tile
        pitch = -(-(16 + wider) // t.lanes) * t.lanes
        padded = self.inputs * py * px * ((t.rows * self.step + taller) * pitch + t.panel)
        return padded + wider + 2 * t.panel <= self._strip

    @property
    def _unrolled(self) -> bool:
        """Whether the columns of a window are unrolled."""
        t = self.tile
        return self.outputs * t.rows * t.vectors * self.window[0] * self.window[1] <= PRODUCTS

    @cached_property
    def _meetings(self) -> dict[tuple[int, int], list[Pair]]:
        """Return for each row of the input of a tile, by phase and number, the rows and the taps that meet there."""
        found: dict[tuple[int, int], list[Pair]] = {}
        (kh, _), dilation, stride = self.window, self.dilations[0], self.strides[0]
        for r in range(self.tile.rows):
            for ky in range(kh):
                found.setdefault((ky % self._phases[0], r * self.step + ky * dilation // stride), []).append((r, ky))
        return found

    @property
    def _loaded(self) -> int:
        """Rows of the input of a tile."""
        return len(self._meetings)

    def _rows(self) -> Iterator[str]:
        """Print the rows of the input under a tile: each is loaded, and multiplied by all taps that meet it."""
        s = self.symbol
        for (phase, row), pairs in sorted(self._meetings.items()):
            places = ((phase * self._phases[1], "g->phase"), (row, "g->pitch"))
            yield f"            {s}_load(x, col{''.join(f' + {n} * {of}' for n, of in places if n)});\n"
            yield from (f"            {s}_add(acc, {r}, x, w + {ky * self.outputs});\n" for r, ky in pairs)


def _crossing(tile: Tile) -> float:
    """Estimate the cycles to load a vector that stands anywhere, and may cross a line of the cache."""
    return (1 + (tile.isa.vector - tile.dtype.itemsize) / 64) / LOADS


def _shapes(p: ConvProblem, isa: Isa) -> Iterator[Shape]:
    """Yield the tiles that fit the registers."""
    dilation = p.dilations[0] if p.strides[0] == 1 and p.window[0] > 1 else 1
    rows = range(1, 9) if p.window[0] > 1 else (1,)
    for outputs in (n for n in OUTPUTS if p.oc % n == 0):
        for r in rows:
            for vectors in range(1, 9):
                if outputs * r * p.window[0] * vectors > PRODUCTS:
                    break
                if outputs * r * vectors + vectors + min(outputs * p.window[0], 4) > isa.registers:
                    break
                for step in sorted({1, dilation if r > 1 else 1}):
                    yield Shape(outputs, r, vectors, step)
