"""Interpolations as problems: each element of a result is a sum of a few neighbours, by constant weights.

Along the last axis of dense planes, and perhaps along the one before it first.  What neighbours and which weights are
constant operands of a call.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from irc.arrays import Array
from irc.ir.dim import Dim
from irc.kernels.core.problem import Problem


@dataclass(frozen=True)
class Taps:
    """The terms of sums along one axis: of each result, which elements of the input, and the weight of each.

    places: int64[results, terms].  weights: of the input's type, [results, terms].
    """

    places: Array
    weights: Array

    @property
    def count(self) -> int:
        """The terms of a sum."""
        return int(self.places.shape[1])


@dataclass(frozen=True)
class InterpolationProblem(Problem):
    """y[p, i, j] = Σ rows(i) Σ columns(j) x[p, ·, ·] of dense planes.

    planes: how many there are.  x, y: rows and columns of a plane.  columns: the terms of a sum along the last axis.
    rows: those along the one before, which are summed up first; 0: rows of y are made of those of x.
    """

    planes: Dim
    x: tuple[int, int]
    y: tuple[int, int]
    columns: int
    rows: int


def apply_taps(x: Array, taps: Taps, axis: int) -> Array:
    """Interpolate an array along an axis."""
    shape = [1] * x.ndim
    shape[axis] = len(taps.places)
    parts = (
        np.take(x, taps.places[:, t], axis) * taps.weights[:, t].reshape(shape).astype(x.dtype)
        for t in range(taps.count)
    )
    return sum(parts, np.zeros((), x.dtype))
