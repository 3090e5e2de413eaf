"""Results of widened products, in f32 through what is computed of them.

`irc.layout.wide_products` rounds the sums of a product of f16 or bf16.  Elementwise operations, normalisations and
changes of shape and order behind it get the sums themselves, and what they compute is rounded where an operation of
another kind reads it.  So they are epilogues of kernels, attention is one kernel, and nothing is rounded between two
products.
"""

from __future__ import annotations

from irc.ir.graph import Graph, Node, Value
from irc.ir.types import TensorType, bf16, f16, f32
from irc.layout.moved_bytes import VIEWS
from irc.opdef.base import Op
from irc.opdef.builder import Builder
from irc.ops.activation import FloatUnary, PRelu, Relu, Sigmoid, Swish
from irc.ops.arithmetic import Add, Div, Mul, Neg, Sub
from irc.ops.cast import Cast
from irc.ops.clip import Clip
from irc.ops.layout import Transpose
from irc.ops.mathematics import Erf, Tanh
from irc.ops.norm import LayerNormalization
from irc.ops.softmax import Softmax
from irc.passes.replace import put_in_place

FOLLOWING: tuple[type[Op], ...] = (
    *(Add, Clip, Div, Erf, FloatUnary, Mul, Neg, PRelu, Relu, Sigmoid, Sub, Swish, Tanh),
    *(LayerNormalization, Softmax),
)
"""Operations whose operands are all of one type, and so is their result."""
MOVES = VIEWS | Transpose
"""Operations whose result has the elements of their first operand."""


def carry(graph: Graph, rounded: dict[Value, Value]) -> None:
    """Compute what follows rounded sums from the sums, in place.  rounded: the sums in f32, by their roundings."""
    for node in graph.nodes:
        x = node.inputs[0] if node.inputs else None
        if isinstance(node.op, Cast) and x in rounded and node.outputs[0].dtype == f32:
            if node.outputs[0] not in graph.outputs:
                graph.replace_uses(node.outputs[0], rounded[x])
        elif _follows(node, rounded):
            _widen(graph, node, rounded)


def _follows(node: Node, rounded: dict[Value, Value]) -> bool:
    """Tell whether a node computes something of rounded sums that f32 is computed of likewise."""
    if isinstance(node.op, MOVES):
        return node.inputs[0] in rounded and node.outputs[0].rank is not None
    old = node.outputs[0] if isinstance(node.op, FOLLOWING) else None
    if old is None or not any(v in rounded for v in node.operands):
        return False
    return old.dtype in (f16, bf16) and all(v.dtype == old.dtype for v in node.operands)


def _widen(graph: Graph, node: Node, rounded: dict[Value, Value]) -> None:
    """Compute a node in f32, and note its result by what rounds it."""
    old = node.outputs[0]
    b = Builder(graph, node.name or node.op.name, node.loc)
    operands = [v if v is None or v.dtype != old.dtype else rounded.get(v) or b.Cast(v, to=f32) for v in node.inputs]
    wide = b.add(node.op, *operands)
    wide.type = TensorType(f32, old.shape)  # with the names of sizes that only the run tells
    made = b.Cast(wide, to=old.dtype)
    put_in_place(graph, old, made)
    rounded[made] = wide
