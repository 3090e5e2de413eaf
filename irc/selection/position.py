"""Selection for ArgMax and ArgMin of f32 that stands in memory."""

from __future__ import annotations

from irc.ir.graph import Node
from irc.ir.types import f32
from irc.kernels.position.problem import PositionProblem
from irc.ops.argmax import Position
from irc.selection.selector import Selection, Selector, worthwhile
from irc.selection.softmax import around, selected


def select_kernel(selector: Selector, node: Node) -> Selection | None:
    """Select a kernel for positions along an axis; None where loops compute them, or the operand on the way."""
    x, y = node.inputs[0], node.outputs[0]
    assert isinstance(node.op, Position)
    if x is None or x.dtype != f32 or not x.shape or not worthwhile(*x.shape) or not selector.stands(x):
        return None
    problem = PositionProblem(
        y.dtype, selector.precision, node.op.smallest, node.op.select_last_index, *around(x, node.op.axis)
    )
    return selected(selector, problem, x, y)
