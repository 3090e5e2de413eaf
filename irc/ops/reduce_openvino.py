"""Reductions for OpenVINO: over no axes, over axes that only a run tells, of booleans and of nothing."""

from __future__ import annotations

import numpy as np

from irc.ir.graph import Value
from irc.ir.types import boolean, i32
from irc.opdef.base import Op
from irc.opdef.builder import Builder
from irc.opdef.forms import Declined
from irc.opdef.run_sizes import from_the_start


def noop_known(axes: Value) -> bool:
    """Whether the axes are known not to be empty, so that noop_with_empty_axes makes no difference."""
    return axes.rank == 0 or (axes.rank is not None and axes.tensor.elements().bounds()[0] > 0)


def openvino_when(op: Op, x: Value, axes: Value | None = None) -> bool:
    """Whether OpenVINO's reduction means the same, and has a rank.

    Its processor plugin makes nothing of axes that a run does not give, and has no logical reductions over axes of a
    run; over axes of a run that go, OpenVINO has no rank.
    """
    if axes is None or _of_nothing(op, x, axes) or (x.dtype == boolean and axes.array is None):
        return False
    if axes.array is None and not (noop_known(axes) and op.attributes()["keepdims"]):
        return False
    return bool(op.attributes()["noop_with_empty_axes"]) or noop_known(axes)


def write_no_axes(b: Builder, op: Op, x: Value, axes: Value | None = None) -> Value:
    """No axes: all of them, or none with noop_with_empty_axes."""
    if axes is not None and not axes.tensor.elements().equals(0):
        raise Declined
    noop = bool(op.attributes()["noop_with_empty_axes"])
    every = b.const(np.array([] if noop else list(range(len(x.shape))), np.int64))
    return b.operation(op.name)(x, every, keepdims=op.attributes()["keepdims"], noop_with_empty_axes=True)


def write_run_axes(b: Builder, op: Op, x: Value, axes: Value | None = None) -> Value:
    """Axes that may be none when the model runs: with one more axis in front, or with all of them behind."""
    if axes is None or noop_known(axes) or axes.array is not None or not op.attributes()["keepdims"]:
        raise Declined
    rank = len(x.shape)
    given = from_the_start(b, axes, rank)
    if op.attributes()["noop_with_empty_axes"]:
        front = b.Concat(b.const([0]), b.Add(given, b.const(1)), axis=0)
        return b.Squeeze(b.operation(op.name)(b.Unsqueeze(x, [0]), front, keepdims=True), [0])
    count = b.Mul(b.const([rank]), b.Cast(b.Equal(b.Shape(given), b.const([0])), to=given.dtype))
    every = b.Slice(b.const(list(range(rank))), b.const([0]), count, b.const([0]))
    return b.operation(op.name)(x, b.Concat(given, every, axis=0), keepdims=True, noop_with_empty_axes=True)


def write_of_nothing(b: Builder, op: Op, x: Value, axes: Value | None = None) -> Value:
    """ReduceMax and ReduceMin of booleans, and of no floats: OpenVINO has none, and starts from the largest number."""
    fields = op.attributes()
    if x.dtype == boolean:
        return b.operation("ReduceLogicalOr" if op.name == "ReduceMax" else "ReduceLogicalAnd")(x, axes, **fields)
    if not _of_nothing(op, x, axes):
        raise Declined
    start = b.like(float("-inf" if op.name == "ReduceMax" else "inf"), x)
    return b.Add(b.operation("ReduceSum")(x, axes, **fields), start)


def write_counted(b: Builder, op: Op, x: Value, axes: Value | None = None) -> Value:
    """ReduceLogicalOr and ReduceLogicalAnd over axes of the run: by how many are true, or are not."""
    if axes is None or axes.array is not None:
        raise Declined
    some = op.name == "ReduceLogicalOr"
    count = b.ReduceSum(b.Cast(x if some else b.Not(x), to=i32), axes, **op.attributes())
    return (b.NotEqual if some else b.Equal)(count, b.const(0, i32))


def _of_nothing(op: Op, x: Value, axes: Value | None) -> bool:
    """Whether floats are compared of which there are none."""
    empty = x.dtype.is_float and x.rank is not None and bool(x.tensor.elements().equals(0))
    return empty and op.name in ("ReduceMax", "ReduceMin")
