"""Tests whether the largest of some numbers is -∞, as tests of each of them.

OpenVINO's CPU plugin finds the lowest finite number where all are -∞, so that rows of attention which are masked as a
whole, and would be set to 0, become NaN there (docs/adr/0008).  Whether each of them is -∞ it tells right.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from irc.ir.graph import Model, Node, Value
from irc.opdef.base import Op
from irc.opdef.builder import Builder
from irc.ops.cast import Cast, CastLike
from irc.ops.compare import Equal
from irc.ops.reduce import ReduceMax, ReduceMin, Reduction
from irc.passes.replace import put_in_place

LIMITS: dict[type[Op], float] = {ReduceMax: -np.inf, ReduceMin: np.inf}
"""What each reduction finds where it finds nothing larger (or smaller)."""


def test_each_element(model: Model) -> Model:
    """Make a model that tests elements; without such a test, return it itself.  The given model is not changed."""
    if not any(_tested(n) for n in model.graph.nodes):
        return model
    graph = model.graph.copy()
    for node in graph.nodes:
        extreme = _tested(node)
        if extreme is None or not isinstance(extreme.op, Reduction):
            continue
        x, *axes = extreme.operands
        b = Builder(graph, node.name, node.loc)
        fields = {"keepdims": extreme.op.keepdims, "noop_with_empty_axes": extreme.op.noop_with_empty_axes}
        each = b.Equal(x, b.like(LIMITS[type(extreme.op)], x))
        found = b.ReduceLogicalAnd(each, *axes, **fields)
        if found.type == node.outputs[0].type:
            put_in_place(graph, node.outputs[0], found)
    graph.prune()
    return replace(model, graph=graph)


def _tested(node: Node) -> Node | None:
    """Find the reduction whose result is compared with what it finds in nothing else."""
    if not isinstance(node.op, Equal):
        return None
    first, second = node.operands
    for value, other in ((first, second), (second, first)):
        extreme = value.producer
        if extreme is not None and type(extreme.op) in LIMITS and _is(other, LIMITS[type(extreme.op)]):
            return extreme
    return None


def _is(value: Value, number: float) -> bool:
    """Tell whether a value is a constant of this number alone, which a cast to another float leaves infinite."""
    while value.dtype.is_float and value.producer is not None and isinstance(value.producer.op, Cast | CastLike):
        (value, *_) = value.producer.operands
    return value.array is not None and value.array.size == 1 and bool(value.array.reshape(()) == number)
