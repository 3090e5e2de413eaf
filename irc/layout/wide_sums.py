"""Results of widened products, in f32 through the elementwise operations behind them.

`irc.layout.wide_products` rounds the sums of a product of f16 or bf16.  Where elementwise operations come next, they
get the sums themselves, and what they compute is rounded where an operation of another kind reads it.  So they are
epilogues of kernels, and nothing is rounded between two products.
"""

from __future__ import annotations

from irc.ir.graph import Graph, Node, Value
from irc.ir.types import TensorType, bf16, f16, f32
from irc.opdef.base import Op
from irc.opdef.builder import Builder
from irc.ops.activation import FloatUnary, PRelu, Relu, Sigmoid, Swish
from irc.ops.arithmetic import Add, Div, Mul, Neg, Sub
from irc.ops.cast import Cast
from irc.ops.clip import Clip
from irc.ops.mathematics import Erf, Tanh
from irc.passes.replace import put_in_place

FOLLOWING: tuple[type[Op], ...] = (
    *(Add, Clip, Div, Erf, FloatUnary, Mul, Neg, PRelu, Relu, Sigmoid, Sub, Swish, Tanh),
)
"""Operations whose operands are all of one type, and so is their result."""


def carry(graph: Graph, rounded: dict[Value, Value]) -> None:
    """Compute what follows rounded sums from the sums, in place.  rounded: the sums in f32, by their roundings."""
    for node in graph.nodes:
        x = node.inputs[0] if node.inputs else None
        if isinstance(node.op, Cast) and x in rounded and node.outputs[0].dtype == f32:
            if node.outputs[0] not in graph.outputs:
                graph.replace_uses(node.outputs[0], rounded[x])
        elif isinstance(node.op, FOLLOWING) and any(v in rounded for v in node.operands):
            old = node.outputs[0]
            if old.dtype in (f16, bf16) and all(v.dtype == old.dtype for v in node.operands):
                made = _widened(graph, node, rounded)
                rounded[made] = _sum_of(made)


def _widened(graph: Graph, node: Node, rounded: dict[Value, Value]) -> Value:
    """Compute a node in f32, and return what is its result rounded."""
    old = node.outputs[0]
    b = Builder(graph, node.name or node.op.name, node.loc)
    operands = [None if v is None else rounded[v] if v in rounded else b.Cast(v, to=f32) for v in node.inputs]
    made = b.Cast(b.add(node.op, *operands), to=old.dtype)
    made.type = TensorType(old.dtype, old.shape)
    put_in_place(graph, old, made)
    return made


def _sum_of(rounding: Value) -> Value:
    """Return what a Cast rounds."""
    node = rounding.producer
    assert node is not None and node.inputs[0] is not None
    return node.inputs[0]
