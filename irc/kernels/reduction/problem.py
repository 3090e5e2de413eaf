"""Reductions of rows as problems."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from irc.ir.dim import Dim, DimLike
from irc.ir.types import DType, f32
from irc.kernels.core.problem import Problem

Fold = Literal["sum", "mean", "max", "min", "prod", "l1", "l2"]
"""What is made of the elements of a row: as the operations ReduceSum, ReduceMean, … of ONNX define it."""


@dataclass(frozen=True)
class RowReductionProblem(Problem):
    """y[i, j] = fold of x[i, j, r, 0 … n - 1] over the pieces r, contiguous elements each; y is dense.

    outer, rows, pieces: extent and stride in x.
    """

    fold: Fold
    outer: tuple[Dim, Dim]
    rows: tuple[Dim, Dim]
    pieces: tuple[Dim, Dim]
    n: Dim

    @classmethod
    def contiguous(cls, fold: Fold, rows: DimLike, n: DimLike, dtype: DType = f32) -> RowReductionProblem:
        """State the reduction of rows that follow one another."""
        none, n = (Dim.of(1), Dim.of(0)), Dim.of(n)
        return cls(dtype, "highest", fold, none, (Dim.of(rows), n), none, n)
