"""Two neighbouring axes of a row group as one: of short rows, vectors would be few and mostly not full."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from irc.expr import Expr, Load, Var
from irc.fusion.indexing import Ranges, local_name
from irc.ir.dim import Dim
from irc.loops.schedule import TILE, Axis
from irc.loops.stages import mergeable, pinned_in
from irc.traversal import walk

NARROW = 64
"""Elements of a tile where wide ones would be too few for all threads."""
ENOUGH = 16
"""Tiles that are enough for any number of threads."""


@dataclass(frozen=True)
class JoinedAxes:
    """Two axes and the one that runs over both, the inner one faster."""

    outer: Axis
    inner: Axis
    whole: Axis

    @classmethod
    def of(cls, ranges: Ranges, outer: Axis, inner: Axis, whole: Var, elements: Iterable[Expr]) -> JoinedAxes | None:
        """Join two axes, the inner one being short, if every load of the elements goes on where a row ends."""
        if inner.size is None or outer.size is None or inner.size >= TILE:
            return None
        for e in elements:
            used = pinned_in(e)
            if outer.var in used or inner.var in used:
                return None
            for x in walk(e):
                if isinstance(x, Load) and not mergeable(ranges.flat(x.index, _shape(x)), outer, inner):
                    return None
        size = outer.extent * inner.extent
        ranges.declare(whole, size)
        return cls(outer, inner, Axis(whole, size))

    def position(self, ranges: Ranges, at: tuple[Expr, ...], shape: tuple[Dim, ...]) -> Expr:
        """Return the row-major position of an index, by the variable of the whole."""
        moved = {local_name(self.outer.var): Dim.of(0), local_name(self.inner.var): ranges.symbol(self.whole.var)}
        return ranges.expr(ranges.flat(at, shape).subs(moved))

    def width(self, rows: Dim) -> int:
        """Choose how long tiles are: shorter where there would be too few of all rows together."""
        most = NARROW if (rows * self.whole.extent.ceildiv(TILE)).at_most(ENOUGH - 1) else TILE
        return min(most, self.whole.size or most)


def _shape(x: Load) -> tuple[Dim, ...]:
    return (Dim.of(0),) if len(x.index) == 1 else x.buffer.shape
