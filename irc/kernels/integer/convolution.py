"""Convolutions and matrix products of bytes, with the channels last, in 32-bit integers.

Weights are packed in panels of output channels, a few neighbouring input channels beside each other: four bytes where
the processor multiplies fours of bytes (VNNI), else two words of 16 bits, whose products `madd` adds, or fours of bytes
of which few pairs could saturate with the bytes that there are (`irc.kernels.integer.saturating`). None saturates, so
sums are exact modulo 2^32, as the operators' are. Fours are products of unsigned bytes of x and signed ones of w: a
signed x gets its highest bit turned, which is 128 more. What the zero point adds to a column is the zero point times
the sum of the column's weights, which stands in front of its panel, followed by what else is added to it.

The input is read where it stands if it can be.  Else it is copied once, with zero points around it: signed bytes and
words, padding, channels of a group that are no whole groups.  Of one group, taps of a row and their channels are one
run.  Threads split the copy, then tiles of pixels and panels.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from typing import Any, Self

import numpy as np

from irc.ir.dim import Dim
from irc.ir.types import DType, f32, i8
from irc.kernels.core.base import Array, Packed
from irc.kernels.core.epilogue import Epilogue
from irc.kernels.core.isa import Isa
from irc.kernels.core.problem import Pair, likely_extent
from irc.kernels.core.registry import kernel
from irc.kernels.core.text import Part, fill, symbol
from irc.kernels.core.tile import Tile
from irc.kernels.integer import text
from irc.kernels.integer.problem import SETS, STEP, IntegerConvProblem, Unit, joined
from irc.kernels.integer.results import FINISH
from irc.kernels.integer.saturating import USUAL, USUAL_AROUND_ZERO, SaturatingTile, order
from irc.kernels.integer.tile import BytesTile
from irc.kernels.integer.vectors import FOURS
from irc.kernels.integer.windows import WindowsOfBytes

TILES: Mapping[tuple[str, Unit], Sequence[tuple[int, int]]] = {
    ("avx512", "fours"): ((6, 4), (8, 3), (8, 2), (8, 1)),
    ("avx512", "pairs"): ((6, 4), (8, 2), (8, 1)),
    ("avx512", "saturating"): (),
    ("avx2", "fours"): ((6, 2), (4, 2), (6, 1)),
    ("avx2", "pairs"): ((6, 2), (4, 2), (6, 1)),
    ("avx2", "saturating"): ((5, 2), (4, 2)),
}
"""Rows and vectors of accumulators, by instruction set and unit."""
SATURATING = (1.3, 2.2)
"""Of a four of neighbours, the products of vectors of pairs that take as long: where its sums fit, and turned."""
LIKELY, LIKELY_AROUND_ZERO = 0.2, 0.8
"""Of pairs whose products may add up to more than a word, the share that does with the largest byte that a tile likely
meets; and where bytes lie on both sides of a zero point, so that most tiles meet large ones."""
ENDED = 25.0
"""Cycles that the end of one of these kinds costs, whose number differs from panel to panel."""
PANELS, ROWS = 4, 8
"""Panels and tiles of rows in a task, at most."""
TASKS = 16
"""Tasks for several threads, at least."""
WORTHWHILE = 400_000
"""Products below which one thread does all."""
SLACK = 4
"""Elements behind a row of the copy, which its last group may reach."""
COPIED = 0.06
"""Cycles to copy an element of the input."""


@kernel
class IntegerConvKernel(WindowsOfBytes):
    """A generated convolution of bytes."""

    isa: Isa
    unit: Unit
    rows: int
    vectors: int
    signed: bool
    zeroed: bool
    copied: bool
    stored: DType
    fits: bool
    epilogue: Epilogue

    @classmethod
    def candidates(cls, problem: IntegerConvProblem, isa: Isa) -> Iterator[Self]:
        if isa.name not in SETS or problem.is_volume:
            return
        run = problem.ic * (problem.window[1] if joined(problem.groups, problem.dilations) else 1)
        apart = run != problem.ic and problem.x[3] != problem.ic
        units: tuple[Unit, ...] = ("fours",) if isa.fours else ("pairs", "saturating")
        for unit in units:
            copied = unit == "pairs" or problem.signed or problem.is_padded or run % 4 != 0 or apart
            given = (problem.signed, problem.zeroed, copied, problem.stored, problem.rounding.fits, problem.epilogue)
            for rows, vectors in TILES[isa.name, unit]:
                yield cls(isa, unit, rows, vectors, *given)

    def cycles(self, problem: IntegerConvProblem) -> float:
        """Estimate products of vectors, two loads of them a cycle, and what a tile of sums costs besides."""
        pixels, columns = problem.pixels, self.columns
        tiles, panels = -(-pixels // self.rows), -(-problem.oc // columns)
        rows = pixels / max(tiles, 1)
        products = rows * self.vectors * self._products(problem)
        each = max(products / self.isa.fma, (rows + self.vectors) / 2)
        latency = 4 if rows * self.vectors < 8 else 0
        finish = rows * -(-problem.oc // (panels * self.tile.lanes)) * FINISH[self.stored]
        tile = self._groups(problem) * max(each, latency) + finish + 2 * rows * self.vectors + 20
        if self.unit == "saturating":
            tile += self._runs(problem.window, problem.groups, problem.dilations[1]) * 3 * ENDED
        elements = likely_extent(problem.size[0]) * likely_extent(problem.size[1]) * problem.channels
        copy = problem.images * elements * COPIED if self.copied else 0.0
        return copy + problem.images * problem.groups * tiles * panels * tile

    def _products(self, problem: IntegerConvProblem) -> float:
        """Estimate the multiplications of a vector of groups: those of pairs, and of sums of products of bytes.

        Fours are by themselves if the pairs of all columns are, with the bytes that there are.
        """
        if self.unit != "saturating":
            return 1 if self.unit == "fours" else 2
        likely = LIKELY_AROUND_ZERO if problem.signed or problem.zeroed else LIKELY
        turned = 1 - (1 - likely * problem.crowded) ** (2 * self.columns)
        fitting, apart = SATURATING
        return 2 * (fitting * (1 - turned) + apart * turned)

    def _groups(self, problem: IntegerConvProblem) -> int:
        """Count the fours or pairs in a sum."""
        kh, kw = problem.window
        if joined(problem.groups, problem.dilations):
            return kh * -(-kw * problem.ic // STEP[self.unit])
        return kh * kw * -(-problem.ic // STEP[self.unit])

    @property
    def tile(self) -> BytesTile:
        if self.unit == "saturating":
            usual = USUAL_AROUND_ZERO if self.signed or self.zeroed else USUAL
            return SaturatingTile(self.isa, self.unit, self.rows, self.vectors, usual)
        return BytesTile(self.isa, self.unit, self.rows, self.vectors)

    @property
    def columns(self) -> int:
        return self.tile.columns

    @property
    def label(self) -> str:
        return f"{self.rows}x{self.columns} {self.unit}"

    def scratch(self, problem: IntegerConvProblem) -> Dim:
        if not self.copied:
            return Dim.of(0)
        per = -(-problem.ic // STEP[self.unit]) * STEP[self.unit] * problem.groups
        sides = zip(problem.result, problem.window, problem.strides, problem.dilations, strict=True)
        tall, wide = ((o - 1) * s + (k - 1) * d + 1 for o, k, s, d in sides)
        return problem.batch * tall * (wide * per + SLACK) * (2 if self.unit == "pairs" else 1)

    def packed(self, problem: IntegerConvProblem) -> Packed:
        """Describe panels of rows: for each output what is added to its sums, then its weights."""
        key = ("integer", self.columns, self.unit, problem.groups, problem.window, problem.dilations[1] == 1)
        panels = problem.groups * -(-problem.oc // self.columns)
        groups, taps = self._groups(problem), self._runs(problem.window, problem.groups, problem.dilations[1])
        elements = panels * (self.tile.head(taps, groups // taps) + self.columns * 4 * groups)
        given = problem.window, problem.dilations, problem.groups
        return Packed(key, i8, elements, lambda rows: self._pack(rows, *given))

    @staticmethod
    def _runs(window: Pair, groups: int, dilation: int) -> int:
        """Count the runs of neighbours under a window."""
        return window[0] * (1 if joined(groups, (1, dilation)) else window[1])

    def _pack(self, rows: Array, window: Pair, dilations: Pair, groups: int) -> Array:
        step, (kh, kw), columns = STEP[self.unit], window, self.columns
        outputs, oc = rows.shape[0], rows.shape[0] // groups
        taps = rows[:, 1:].reshape(outputs, -1, kh, kw).transpose(0, 2, 3, 1)
        if joined(groups, dilations):
            taps = taps.reshape(outputs, kh, 1, -1)
        panels, ic = -(-oc // columns), taps.shape[-1]
        whole = np.zeros((groups, panels * columns, *taps.shape[1:3], -(-ic // step) * step), self.tile.word)
        whole[:, :oc, :, :, :ic] = taps.reshape(groups, oc, *taps.shape[1:])
        own = np.zeros((groups, panels * columns), np.int32)
        own[:, :oc] = rows[:, 0].reshape(groups, oc)
        taps_of = self._runs(window, groups, dilations[1])
        return self.tile.panels(whole.reshape(groups * panels, columns, -1), own, taps_of)

    def _unpack(self, flat: Array, sizes: Mapping[str, int]) -> tuple[Array, Array]:
        """Return what is added to the sums of each output, and the weights [outputs, channels, kh, kw]."""
        groups, oc, ic, kh, kw = (sizes[n] for n in ("groups", "oc", "ic", "kh", "kw"))
        step, one = STEP[self.unit], groups == 1 and sizes["dilation_w"] == 1
        runs, length = (kh, kw * ic) if one else (kh * kw, ic)
        panels, fours = -(-oc // self.columns), runs * -(-length // step)
        whole, own = self.tile.unpanelled(flat, groups * panels, fours, runs)
        taps = whole.reshape(groups, panels * self.columns, runs, -1)[:, :oc, :, :length]
        added = own.reshape(groups, -1)[:, :oc].reshape(-1)
        return added, taps.reshape(groups * oc, kh, kw, ic).transpose(0, 3, 1, 2)

    def compute(self, reads: Sequence[Array], writes: Sequence[Array], sizes: Mapping[str, int]) -> None:
        own, w = self._unpack(reads[1], sizes)
        self.convolve(w, own, reads, writes, sizes)

    # ---------------------------------------------------------------------------------- C
    @cached_property
    def symbol(self) -> str:
        sign, zero, stored = self.words
        copied = "copied" if self.copied else "direct"
        words = (self.isa.name, self.unit, f"{self.rows}x{self.columns}", sign, zero, copied, stored)
        return symbol("bytes", *words, self.key)

    @property
    def pointers(self) -> tuple[tuple[str, str], ...]:
        return (*self.read, ("scratch", "uint8_t *")) if self.copied else self.read

    @property
    def features(self) -> frozenset[str]:
        return self.tile.features

    @property
    def summary(self) -> str:
        where = "of a copy with its padding" if self.copied else "where it stands"
        return f"Convolution of bytes, NHWC, {where}, tiles of {self.rows} pixels x {self.columns} channels."

    def parts(self) -> list[Part]:
        bits, fours = self.isa.vector * 8, self.unit != "pairs"
        whole = Tile(self.isa, f32, self.rows, self.vectors)
        turned = " ^ 0x80" if fours and self.signed else ""
        several = "_mm_xor_si128(v, _mm_set1_epi8((char)0x80))" if turned else "v"
        given: dict[str, Any] = (
            self.tile.names
            | self.given(whole)
            | {
                "widened": f"(source[c]{turned})",
                "vectors": fill(text.COPY_BYTES, several=several) if fours else "",
                "joined": f"(from[j]{turned})",
                "P": PANELS,
                "Q": ROWS,
                "least": TASKS,
                "worthwhile": f"{WORTHWHILE:.0f}.0",
                "zero": f"{'*g->zero' if self.zeroed else '0'}{' + 128' if fours and self.signed else ''}",
                "slack": SLACK,
                "table": self.tile.table(),
                "body": self.tile.name,
                "size": self.tile.size,
                "walk": "&walk" if self.unit == "saturating" else "&w->walk",
            }
        )
        levels = {"levels": text.LEVELS, "find_level": text.FIND_LEVEL, "at_level": text.AT_LEVEL}
        given |= {name: fill(t, **given) if self.unit == "saturating" else "" for name, t in levels.items()}
        given["fetch"] = fill(text.FETCH if self.unit == "saturating" else text.FETCH_IN_TILE, **given)
        given["layout"] = fill(text.IN_A_COPY if self.copied else text.WHERE_IT_STANDS, **given)
        given["copy_all"], given["copy_parts"] = self._copy_calls()
        given["rows"] = self.whole_rows(whole, given)
        given["whole"] = fill(text.IF_WHOLE, **given) if self.in_registers else ""
        return [
            *self.shared(whole),
            *([FOURS[bits]] if self.unit == "fours" else [order()] if self.unit == "saturating" else []),
            *self.tile.bodies(),
            fill(text.WORK, **given),
            *([fill(text.COPY, **given)] if self.copied else []),
            *self.ends(whole, given),
            *([fill(text.WHOLE, **given)] if self.in_registers else []),
            fill(text.BODY, **given),
        ]

    def _copy_calls(self) -> tuple[str, str]:
        """Print the calls that copy the input, by one thread and by all."""
        if not self.copied:
            return "", ""
        one = "        ${S}_copy(&w, 0, g->batch * w.tall);"
        every = "        pool->parallel_for(pool->self, g->batch * w.tall, ${S}_copy, &w);"
        return fill(one, S=self.symbol), fill(every, S=self.symbol)
