"""Pools of regions with the channels last: where elements stand is computed once for all channels, which stand side by
side, and these are added up as vectors.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, ClassVar

from irc.expr import Const, Expr, Tensor, index
from irc.ir.dim import Dim
from irc.ir.graph import Value
from irc.ir.types import ANY, DType, TensorType
from irc.loops.builder import LoopBuilder
from irc.opdef.base import Array, Op, op
from irc.opdef.builder import Builder
from irc.opdef.forms import write_only
from irc.opdef.precision import narrowed, widened
from irc.opdef.signature import Sig

FIRST, LAST = [0, 3, 1, 2], [0, 2, 3, 1]
"""The orders of axes that put the channels before and behind those of a plane."""
TOGETHER = 256
"""Channels that are accumulated together, at most."""


class RegionOp(Op):
    """Base of operations on x (n, channels, rows, columns) with results (regions, channels, rows, columns)."""

    loops_last: ClassVar[Callable[..., None]]
    """loops_last(self, b, x, *operands, y): write loops over x and y with the channels last."""

    def decompose(self, b: Builder, x: Value, *more: Value) -> Value:
        given = [v if v.dtype.kind != "f" else widened(b, v) for v in more]
        found = b.add(RegionsLast(self), b.Transpose(widened(b, x), LAST), *given)
        return narrowed(b, b.Transpose(found, FIRST), x)


def write_first(b: Builder, op: RegionsLast, x: Value, *more: Value) -> Value:
    return b.Transpose(b.add(op.op, b.Transpose(x, FIRST), *more), LAST)


@op
class RegionsLast(Op):
    """What pools of regions are compiled to: `op` on x (n, rows, columns, channels), of results in the same order."""

    op: RegionOp
    sig = Sig("x: T[4], *more: any -> y: T", T=ANY)

    def infer(self, x: Value, *more: Value) -> TensorType:
        found = self.op.infer(Value("x", _ordered(x.tensor, FIRST)), *more)
        assert isinstance(found, TensorType)
        return _ordered(found, LAST)

    def reference(self, x: Array, *more: Array) -> Array:
        found: Any = self.op.reference(x.transpose(0, 3, 1, 2), *more)
        return found.transpose(0, 2, 3, 1)

    def loops(self, b: LoopBuilder, x: Tensor, *more: Tensor) -> None:
        self.op.loops_last(b, x, *more)

    onnx = (write_only(write_first),)
    openvino = (write_only(write_first),)


def _ordered(t: TensorType, order: Sequence[int]) -> TensorType:
    return t.with_shape([t.dims()[k] for k in order])


class Totals:
    """Accumulators of some channels, from `first` on."""

    def __init__(self, b: LoopBuilder, kind: DType, first: Expr, width: Expr, start: Expr) -> None:
        self.b, self.first, self.width = b, first, width
        self.values = b.alloc(kind, [TOGETHER], "totals")
        self.update(lambda c, total: start)

    def update(self, value: Callable[[Expr, Expr], Expr]) -> None:
        """Replace each total by what `value` makes of the number of its channel and of it."""
        with self.b.for_(self.width, "simd", "c") as c:
            self.b.store(self.values, (c,), value(self.first + c, self.values[c]))

    def store(self, y: Tensor, at: Sequence[Expr], value: Callable[[Expr], Expr]) -> None:
        """Store what `value` makes of each total."""
        with self.b.for_(self.width, "simd", "c") as c:
            self.b.store(y, (*at, self.first + c), value(self.values[c]).cast(y.dtype))


@contextmanager
def totals(b: LoopBuilder, kind: DType, channels: Dim, start: Expr) -> Iterator[Totals]:
    """Open the loop over pieces of the channels; the accumulators of each are `start` at first."""
    if channels.at_most(TOGETHER):
        yield Totals(b, kind, Const(0, index(channels).dtype), index(channels), start)
        return
    with b.for_(channels.ceildiv(TOGETHER), name="m") as m:
        first = b.let(m * TOGETHER, "first")
        width = b.let((index(channels) - first).min(TOGETHER), "width")
        yield Totals(b, kind, first, width, start)
