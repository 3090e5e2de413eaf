"""Sums with a residual that is rearranged, and rearranged back: they are taken where the residual stands.

Where a layout is changed around a block, transpose(f(x') + p) with x' = transpose⁻¹(x) is f(x) + transpose(p): one
rearrangement instead of two, and kernels add the residual on the way of the other (`TransposeFusedKernel`).
"""

from __future__ import annotations

from collections.abc import Sequence

from irc.ir.graph import Graph, Node, Value
from irc.ir.types import TensorType, f32, f64
from irc.opdef.builder import Builder
from irc.ops.layout import Reshape, Transpose
from irc.ops.matmul import MatMul
from irc.passes.replace import replace_value
from irc.passes.simplify import order_of

FLOATS = (f32, f64)
"""Types of which kernels add on the way; sums of bytes are done by the kernels of what is added."""
READ_THROUGH = MatMul | Reshape | Transpose
"""Operations that read through a Transpose, or are read through with it: to them it costs nothing."""


def run(graph: Graph) -> int:
    """Move Transposes in front of elementwise operations on one result and on rearranged operands. Returns how many."""
    done = 0
    for node in graph.nodes:
        if isinstance(node.op, Transpose):
            done += _moved(graph, node)
    graph.prune()
    return done


def _moved(graph: Graph, node: Node) -> bool:
    x, y, order = node.inputs[0], node.outputs[0], order_of(node)
    if x is None or order is None or graph.only_use(x) is not node or x.producer is None:
        return False
    step = x.producer
    if not step.op.elementwise or len(step.outputs) != 1 or y.dtype not in FLOATS:
        return False
    before = {v: there for v in step.operands if (there := _before(v, order)) is not None}
    new = [v for v in step.operands if v not in before]
    if not before or len(new) != 1 or graph.only_use(new[0]) is not step or new[0].shape != x.shape:
        return False
    if new[0].dtype != y.dtype or any(isinstance(user.op, READ_THROUGH) for user in y.uses):
        return False
    b = Builder(graph, node.name or node.op.name, node.loc, layers=node.layers)
    turned = b.Transpose(new[0], order)
    b = Builder(graph, step.name or step.op.name, step.loc, layers=step.layers)
    made = b.add(step.op, *(None if v is None else before.get(v, turned) for v in step.inputs))
    made.type = TensorType(y.dtype, y.shape)
    return replace_value(graph, y, made)


def _before(value: Value | None, order: Sequence[int]) -> Value | None:
    """Find the value which a Transpose rearranges so that `order` brings its axes back; None of any other."""
    if value is None or value.producer is None or not isinstance(value.producer.op, Transpose):
        return None
    there = order_of(value.producer)
    back = there is not None and len(there) == len(order) and all(there[a] == i for i, a in enumerate(order))
    return value.producer.inputs[0] if back else None
