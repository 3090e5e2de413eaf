"""Transposes as problems: copies that reorder axes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from irc.ir.dim import Dim, DimLike
from irc.ir.types import DType
from irc.kernels.core.epilogue import Epilogue
from irc.kernels.core.problem import Problem

OUTER = 3


@dataclass(frozen=True)
class TransposeProblem(Problem):
    """A copy of matrices: loops around each, (extent, stride in x, stride in y) from the outside in, then its axes.

    rows: likewise.  cols: extent and stride in y; in x they stand side by side, and in y either they or the rows do.
    epilogue: what is done with the elements on the way, if anything; its operands, of as many as y or of one, are
    dense in the order of y.
    """

    outer: tuple[tuple[Dim, Dim, Dim], ...]
    rows: tuple[Dim, Dim, Dim]
    cols: tuple[Dim, Dim]
    epilogue: Epilogue | None = None

    @classmethod
    def reordering(cls, dtype: DType, shape: Sequence[DimLike], order: Sequence[int]) -> TransposeProblem | None:
        """State y = transpose(x, order) of a dense x[shape]; None if more than `OUTER` loops are around a matrix.

        Axes that stay together are one.
        """
        dims = [Dim.of(d) for d in shape]
        axes = _merged(dims, order)
        strides = _strides([extent for _, extent in sorted(axes)])
        place = {first: strides[i] for i, (first, _) in enumerate(sorted(axes))}
        extents = [extent for _, extent in axes]
        loops = list(zip(extents, (place[first] for first, _ in axes), _strides(extents), strict=True))
        last = max(range(len(axes)), key=lambda i: axes[i][0])
        row = len(axes) - 1 if last != len(axes) - 1 else len(axes) - 2
        outer = [loop for i, loop in enumerate(loops) if i not in (last, row)]
        if len(outer) > OUTER:
            return None
        none = (Dim.of(1), Dim.of(0), Dim.of(0))
        cols, _, apart = loops[last]
        padded = (*[none] * (OUTER - len(outer)), *outer)
        return cls(dtype, "highest", padded, loops[row] if row >= 0 else none, (cols, apart))


def _merged(dims: list[Dim], order: Sequence[int]) -> list[tuple[int, Dim]]:
    """List the axes of y as (first axis of x, extent), without those of extent 1; axes that stay together are one."""
    kept = [a for a in range(len(dims)) if not (dims[a].is_const and int(dims[a]) == 1)]
    rank = {a: i for i, a in enumerate(kept)}
    axes: list[tuple[int, Dim]] = []
    before = -2
    for a in order:
        if a not in rank:
            continue
        if axes and rank[a] == before + 1:
            axes[-1] = (axes[-1][0], axes[-1][1] * dims[a])
        else:
            axes.append((rank[a], dims[a]))
        before = rank[a]
    return axes or [(0, Dim.of(1))]


def _strides(extents: list[Dim]) -> list[Dim]:
    strides, step = [Dim.of(1)] * len(extents), Dim.of(1)
    for i in reversed(range(len(extents))):
        strides[i] = step
        step = step * extents[i]
    return strides
