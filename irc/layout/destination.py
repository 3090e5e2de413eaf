"""Memory that several operations write parts of: what `irc.layout.concat_in_place` makes of a concatenation."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from irc.expr import Expr, IndexFunction, Tensor, index, select
from irc.ir.dim import Dim
from irc.ir.graph import Value
from irc.ir.types import DType, TensorType
from irc.opdef.base import Array, Op
from irc.opdef.signature import Sig


@dataclass(frozen=True)
class Destination(Op):
    """Memory of this type whose contents are not yet written."""

    dtype: DType
    shape: tuple[Dim, ...]
    sig: ClassVar[Sig] = Sig("-> y: any")

    def infer(self) -> TensorType:
        return TensorType(self.dtype, self.shape)

    def reference(self) -> Array:
        """Fill it with a number that shows where unwritten memory is read."""
        return np.full([int(d) for d in self.shape], 77, self.dtype.numpy)


@dataclass(frozen=True)
class DestinationPart(Op):
    """`destination` with `x` from `start` on along the last axis, in the same memory."""

    start: int
    sig: ClassVar[Sig] = Sig("destination: any, x: any -> y: any")
    part_of: ClassVar[int | None] = 0

    def infer(self, destination: Value, x: Value) -> TensorType:
        return destination.tensor

    def reference(self, destination: Array, x: Array) -> Array:
        whole = destination.copy()
        whole[..., self.start : self.start + x.shape[-1]] = x
        return whole

    def compute(self, out: TensorType, destination: Tensor, x: Tensor) -> IndexFunction:  # pyright: ignore
        def element(*at: Expr) -> Expr:
            inside = at[-1].ge(self.start).logical_and(at[-1].lt(index(x.shape[-1] + self.start)))
            return select(inside, x[(*at[:-1], at[-1] - self.start)], destination[at])

        return element
