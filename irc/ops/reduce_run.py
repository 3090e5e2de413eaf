"""Reductions over axes that only a run tells, for ONNX versions whose axes are attributes."""

from __future__ import annotations

from irc.ir.graph import Value
from irc.ir.types import boolean, i32, value_range
from irc.opdef.base import Op
from irc.opdef.builder import Builder
from irc.opdef.forms import Declined
from irc.opdef.precision import narrowed, widened
from irc.opdef.run_sizes import named


def reduce_extreme(b: Builder, op: Op, x: Value, axes: Value | None = None) -> Value:
    """`write` of ReduceMax and ReduceMin in a wider type, whose extreme of nothing is not that of the own."""
    if x.dtype.is_float or (x.dtype.is_integer and x.dtype.bits > MOST):
        raise Declined
    least, most = (0, 1) if x.dtype == boolean else value_range(x.dtype)
    found = b.operation(op.name)(b.Cast(x, to=i32), axes, **op.attributes())
    found = b.Max(found, b.const(least, i32)) if op.name == "ReduceMax" else b.Min(found, b.const(most, i32))
    return b.Cast(found, to=x.dtype)


MOST = 16
"""The bits of an integer that i32 has more of, whether it is signed or not."""
BY_AXIS = ("ReduceSum", "ReduceProd", "ReduceMin", "ReduceMax")
"""Reductions of integers and floats that may go an axis at a time."""
FLOATS_BY_AXIS = ("ReduceL1", "ReduceL2", "ReduceLogSumExp", "ReduceMean")
"""Those that may for floats."""


def reduce_by_axis(b: Builder, op: Op, x: Value, axes: Value | None = None) -> Value:
    """`write` of reductions: each axis is reduced, and the result taken where the axes name it."""
    if axes is None or axes.array is not None or not x.shape or not op.attributes()["keepdims"]:
        raise Declined
    fields, name, wide = op.attributes(), op.name, widened(b, x)
    if name == "ReduceSumSquare":
        return narrowed(b, b.ReduceSum(b.Mul(wide, wide), axes, **fields), x)
    if name == "ReduceLogSum":
        return narrowed(b, b.Log(b.ReduceSum(wide, axes, **fields)), x)
    if name not in BY_AXIS and not (name in FLOATS_BY_AXIS and x.dtype.is_float):
        raise Declined
    rank = len(x.shape)
    _, counts = named(b, axes, rank)
    gone = b.Less(b.const(0), counts)
    if not fields["noop_with_empty_axes"]:  # no axes mean all of them
        gone = b.Or(gone, b.Equal(b.ReduceSum(counts, [0]), b.const(0)))
    start = b.Where(gone, b.const(0), b.const(1))
    end = b.Where(gone, b.const(1), b.Add(b.Shape(x), b.const(1)))
    y = wide
    for k in range(rank):
        both = b.Concat(b.operation(name)(y, [k], keepdims=True), y, axis=k)
        bounds = (b.Slice(v, [k], [k + 1], [0]) for v in (start, end))
        y = b.Slice(both, *bounds, [k])
    return narrowed(b, y, x)
