"""Transposing copies with elementwise operations behind them: a residual is added where its elements are stored.

Rows and columns change places through squares of registers, as in `irc.kernels.movement.transpose`.  The operations
are done with the vectors of a square; their operands are read in the order of the result.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from typing import Self

from irc.kernels.core.base import Array
from irc.kernels.core.epilogue import Epilogue
from irc.kernels.core.isa import C_TYPES, Isa
from irc.kernels.core.reference import apply, strided
from irc.kernels.core.registry import kernel
from irc.kernels.core.text import Part, fill, symbol
from irc.kernels.core.tile import Tile, epilogue_of, prelude
from irc.kernels.movement.problem import TransposeProblem
from irc.kernels.movement.transpose import SQUARES, TASKS, TransposeKernel
from irc.kernels.vector.lanes import square


@kernel
class TransposeFusedKernel(TransposeKernel):
    """A generated copy whose rows and columns change places, with operations on its elements."""

    epilogue: Epilogue

    @classmethod
    def candidates(cls, problem: TransposeProblem, isa: Isa) -> Iterator[Self]:
        if problem.dtype.name in C_TYPES and problem.epilogue is not None and problem.rows[2] == 1:
            yield cls(Tile(isa, problem.dtype, 1, 1), problem.epilogue)

    @property
    def label(self) -> str:
        return "squares with an epilogue"

    @cached_property
    def symbol(self) -> str:
        name = self.tile.name.removeprefix("irc_tile_").rsplit("_", 1)[0]
        return symbol("transpose_fused", name, self.epilogue.key())

    @property
    def pointers(self) -> tuple[tuple[str, str], ...]:
        t = self.element
        return (("x", f"const {t} *"), *self.epilogue.pointers(t), ("y", f"{t} *"))

    @property
    def result_strides(self) -> tuple[str, ...]:
        """None: the operands of the epilogue stand as the whole result does."""
        return ()

    def compute(self, reads: Sequence[Array], writes: Sequence[Array], sizes: Mapping[str, int]) -> None:
        """Copy, then apply the epilogue to what was copied."""
        super().compute(reads, writes, sizes)
        shape = [sizes[n] for n in ("n0", "n1", "n2", "rows", "cols")]
        steps = [sizes[n] for n in ("y0", "y1", "y2", "y_row", "y_col")]
        y = strided(writes[0], shape, steps)
        operands = [
            strided(s, shape, steps if axes == "full" else [0] * len(shape))
            for s, axes in zip(reads[1:], self.epilogue.slots, strict=True)
        ]
        y[...] = apply(self.epilogue, y.copy(), operands)

    def parts(self) -> list[Part]:
        t = self.tile
        places = "".join(f", .s{i} = g->s{i}" for i in range(len(self.epilogue.slots)))
        at = "v[j], 0, y + j * y_col - o->c"
        given = self.given() | {
            "of": f"const {self.symbol}_out *o, ",
            "o": "o, ",
            "whole": f"{self.symbol}_epilogue(o, {at}, {t.lanes})",
            "part": f"{self.symbol}_epilogue(o, {at}, rows)",
            "places": f"    const {self.symbol}_out out = {{.c = ({self.element} *)g->y{places}}}, *const o = &out;\n",
            "copies": "",
            "elements": f"        {self.symbol}_stripe(o, g, x, y, rows, cols);\n",
        }
        body = "".join(fill(text, **given, **self.interface) for text in (SQUARES, TASKS))
        own = epilogue_of(self.symbol, t, self.epilogue)
        return [prelude(t, self.epilogue), square(t.lanes, t.dtype), own + body]

    @property
    def summary(self) -> str:
        return f"A copy that exchanges rows and columns, with an epilogue, {self.tile.dtype}."
