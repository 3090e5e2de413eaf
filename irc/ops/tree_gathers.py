"""Decision trees for OpenVINO: all walks of all rows at once, a step of each is a few gathers from the tables."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from irc.arrays import Array
from irc.ir.graph import Value
from irc.ir.types import i64
from irc.opdef.builder import Builder
from irc.opdef.forms import Declined

if TYPE_CHECKING:
    from irc.ops.tree_walk import WalkTrees

MOST = 1 << 27
"""The most numbers in a table of votes: a row of targets for each node."""


def write_gathers(b: Builder, op: WalkTrees, x: Value, *tables: Value | None) -> Value:
    """`write` of WalkTrees: as many steps as the deepest tree has, leaves lead to themselves."""
    steps, values, roots, depths, begin, voted, weights, kinds = _arrays(tables)
    if steps is None or values is None or roots is None or depths is None or weights is None or not roots.size:
        raise Declined
    if len(steps) * op.targets > MOST:
        raise Declined
    node = b.Expand(b.const(roots.reshape(1, -1)), b.Concat(b.Shape(x, end=1), b.const([len(roots)]), axis=0))
    zero = b.const(0)
    for _ in range(int(depths.max(initial=0))):
        given = b.GatherElements(x, b.Gather(b.const(steps >> 32), node, zero), axis=1)
        value = b.Gather(b.const(values, x.dtype), node, zero)
        holds = b.LessOrEqual(given, value)
        if kinds is not None:
            equal, missing = (b.Gather(b.const((kinds & bit) != 0, holds.dtype), node, zero) for bit in (1, 2))
            holds = b.Or(b.And(equal, b.Equal(given, value)), b.And(b.Not(equal), holds))
            holds = b.Or(holds, b.And(b.IsNaN(given), missing))
        node = b.Add(b.Gather(b.const(steps & 0xFFFFFFFF), node, zero), b.Cast(holds, to=i64))
    found = b.Gather(b.const(_votes(op, begin, voted, weights), x.dtype), node, zero)
    if op.extreme is None:
        total = b.ReduceSum(found, [1], keepdims=False)
        return b.Div(total, b.like(float(len(roots)), x)) if op.aggregate == "AVERAGE" else total
    best = b.operation("ReduceMin" if op.aggregate == "MIN" else "ReduceMax")(found, [1], keepdims=False)
    largest = b.like(float(np.finfo(x.dtype.numpy).max), x)
    return b.Where(b.Less(b.Abs(best), largest), best, b.like(0.0, x))


def _arrays(tables: tuple[Value | None, ...]) -> list[Array | None]:
    """Find the numbers of the eight tables, None for one that is absent or not constant."""
    given = [*tables, *[None] * (8 - len(tables))]
    return [None if v is None else v.array for v in given]


def _votes(op: WalkTrees, begin: Array | None, voted: Array | None, weights: Array) -> Array:
    """Make the table of what each node adds to each target, or of its extreme.

    No vote for a target is the largest number, which OpenVINO's plugin makes of infinity in minima and maxima anyway.
    """
    ends = np.arange(len(weights) + 1) if begin is None else begin
    start = 0.0 if op.extreme is None else np.copysign(np.finfo(weights.dtype).max, op.extreme)
    table = np.full((len(ends) - 1, op.targets), start, weights.dtype)
    nodes = np.repeat(np.arange(len(ends) - 1), np.diff(ends))
    target = np.zeros(len(weights), np.int64) if voted is None else voted
    there = target >= 0
    ufunc = {"MIN": np.minimum, "MAX": np.maximum}.get(op.aggregate, np.add)
    ufunc.at(table, (nodes[there], target[there]), weights[there])
    return table
