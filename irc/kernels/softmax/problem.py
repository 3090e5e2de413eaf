"""Softmax as a problem: along the middle axis of a dense x[outer, n, inner]; of bytes, and Hardmax, along the last."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from irc.ir.dim import Dim, DimLike
from irc.ir.types import DType, f32
from irc.kernels.core.base import Array
from irc.kernels.core.problem import Problem, likely


@dataclass(frozen=True)
class SoftmaxProblem(Problem):
    """y = softmax(x) along axis 1 of dense x[outer, n, inner], or with `log` its logarithm."""

    log: bool
    outer: Dim
    n: Dim
    inner: Dim

    @classmethod
    def contiguous(
        cls, outer: DimLike, n: DimLike, inner: DimLike = 1, log: bool = False, precision: str = "highest"
    ) -> SoftmaxProblem:
        """State one of f32."""
        return cls(f32, precision, log, Dim.of(outer), Dim.of(n), Dim.of(inner))

    @property
    def elements(self) -> int:
        """How many elements there are, symbolic sizes as `likely` takes them."""
        return likely(self.outer) * likely(self.n) * likely(self.inner)


@dataclass(frozen=True)
class ByteSoftmaxProblem(Problem):
    """The bytes nearest to softmax(scale · x) / result scale, plus `zero`, along the rows of dense x[rows, n], bytes.

    given: the type of x.  The constant operand has the scale, and the inverse of the result's, in f32.
    """

    given: DType
    rows: Dim
    n: Dim
    zero: int


@dataclass(frozen=True)
class HardmaxProblem(Problem):
    """y = hardmax(x) along the rows of a dense x[outer, n]: 1 at the first largest element, else 0."""

    outer: Dim
    n: Dim

    @classmethod
    def contiguous(cls, outer: DimLike, n: DimLike) -> HardmaxProblem:
        """State one of f32."""
        return cls(f32, "highest", Dim.of(outer), Dim.of(n))


def softmax(log: bool, reads: Sequence[Array], writes: Sequence[Array], sizes: Mapping[str, int]) -> None:
    """Compute what a kernel of this family does: the oracle of its calls."""
    shape = sizes["outer"], sizes["n"], sizes.get("inner", 1)
    if 0 in shape:
        return
    count = shape[0] * shape[1] * shape[2]
    x = reads[0][:count].reshape(shape).astype(np.float64)
    d = x - np.max(x, axis=1, keepdims=True)
    total = np.sum(np.exp(d), axis=1, keepdims=True)
    writes[0][:count] = (d - np.log(total) if log else np.exp(d) / total).reshape(-1)
