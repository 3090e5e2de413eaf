"""Transposes of dequantized bytes as transposes of the bytes: a quarter of the memory is moved.

What is between them treats all elements alike.  Bytes that are quantized in front of a Transpose are moved as such
already.
"""

from __future__ import annotations

from irc.ir.graph import Graph, Node, Value
from irc.ir.types import TensorType, i8, u8
from irc.kernels.core.isa import Isa
from irc.kernels.integer.problem import SETS
from irc.opdef.builder import Builder
from irc.ops.layout import Transpose
from irc.ops.reduce import Reduction
from irc.passes.replace import replace_value
from irc.passes.simplify import order_of

LONGEST = 8
"""Operations between the bytes and the Transpose, at most."""


def run(graph: Graph, isa: Isa) -> int:
    """Move Transposes to the bytes, in place, for an instruction set with kernels for them.  Returns how many."""
    if isa.name not in SETS:
        return 0
    done = 0
    for node in graph.nodes:
        if isinstance(node.op, Transpose) and order_of(node) is not None:
            done += _moved(graph, node)
    if done:
        graph.prune()
    return done


def _moved(graph: Graph, node: Node) -> bool:
    steps: list[tuple[Node, Value]] = []
    x, out = node.inputs[0], node.outputs[0]
    while x is not None and x.dtype not in (u8, i8):
        source = _only_operand(x)
        if source is None or x.producer is None or len(x.uses) != 1 or graph.keeps(x) or len(steps) == LONGEST:
            return False
        steps.append((x.producer, source))
        x = source
    if x is None or not steps or x.const is not None or out.dtype.itemsize == 1:
        return False
    if any(isinstance(user.op, Reduction) for user in out.uses):  # whose kernels read through a Transpose
        return False
    b = Builder(graph, node.name, node.loc, layers=())
    order = order_of(node)
    assert order is not None
    made = b.Transpose(x, order)
    for step, source in reversed(steps):
        kind = TensorType(step.outputs[0].dtype, made.shape)
        moved = graph.new_value(step.outputs[0].name, kind)
        graph.add_node(
            step.op, [made if v is source else v for v in step.inputs], [moved], step.name, step.loc, step.layers
        )
        made = moved
    return replace_value(graph, out, made)


def _only_operand(v: Value) -> Value | None:
    """Return the operand of an elementwise operation whose other ones are constants of one element, if it is one."""
    node = v.producer
    if node is None or not node.op.elementwise or len(node.outputs) != 1:
        return None
    moving = [x for x in node.operands if x.const is None]
    single = all(all(d == 1 for d in x.shape) for x in node.operands if x.const is not None)
    return moving[0] if len(moving) == 1 and single and moving[0].shape == v.shape else None
