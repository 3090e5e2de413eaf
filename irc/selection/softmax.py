"""Selection for Softmax, of floats or bytes, LogSoftmax and Hardmax of operands that stand in memory.

Where loops would compute the operand or what follows on the way, rows or columns stay with them.
"""

from __future__ import annotations

import numpy as np

from irc.fusion.access import ZERO, Access, row_major
from irc.fusion.epilogues import FusedEpilogue
from irc.ir.dim import Dim, product
from irc.ir.graph import Node, Value
from irc.ir.types import f32
from irc.kernels.core.problem import Problem
from irc.kernels.core.registry import select
from irc.kernels.softmax.problem import ByteSoftmaxProblem, HardmaxProblem, SoftmaxProblem
from irc.layout.softmax_of_bytes import SoftmaxOfBytes
from irc.ops.softmax import Hardmax, LogSoftmax, Softmax
from irc.selection.selector import Selection, Selector, worthwhile


def select_kernel(selector: Selector, node: Node) -> Selection | None:
    """Select a kernel for a softmax or its logarithm; None where loops compute it."""
    x, y = node.inputs[0], node.outputs[0]
    assert isinstance(node.op, Softmax | LogSoftmax)
    after = selector.only_use(y)
    if x is None or y.dtype != f32 or not x.shape or not worthwhile(*x.shape):
        return None
    if not selector.stands(x) or (after is not None and after.op.elementwise):
        return None
    problem = SoftmaxProblem(y.dtype, selector.precision, isinstance(node.op, LogSoftmax), *around(x, node.op.axis))
    return selected(selector, problem, x, y)


def select_softmax_of_bytes(selector: Selector, node: Node) -> Selection | None:
    """Select a kernel for a softmax from bytes to bytes; None where it is decomposed."""
    op, (x,), y = node.op, node.operands, node.outputs[0]
    assert isinstance(op, SoftmaxOfBytes)
    problem = ByteSoftmaxProblem(y.dtype, "highest", x.dtype, product(x.shape[:-1]), x.shape[-1], op.zero)
    kernel = select(problem, selector.isa) if worthwhile(*x.shape) else None
    if kernel is None:
        return None
    terms = (op.scale, 1 / op.result_scale)
    packing = kernel.packed(problem)
    assert packing is not None
    packed = selector.constant(packing, lambda: np.asarray(terms, np.float32), ("softmax", *terms), "terms")
    operands = [Access(x, ZERO, row_major(x.shape))]
    return Selection.of(kernel, problem, operands, FusedEpilogue.plain(y), packed)


def select_hardmax(selector: Selector, node: Node) -> Selection | None:
    """Select a kernel for a hardmax of rows; None where loops compute it."""
    x, y = node.inputs[0], node.outputs[0]
    assert isinstance(node.op, Hardmax)
    if x is None or y.dtype != f32 or not x.shape or node.op.axis % len(x.shape) != len(x.shape) - 1:
        return None
    if not worthwhile(*x.shape) or not selector.stands(x):
        return None
    problem = HardmaxProblem(y.dtype, selector.precision, product(x.shape[:-1]), x.shape[-1])
    return selected(selector, problem, x, y)


def around(x: Value, axis: int) -> tuple[Dim, Dim, Dim]:
    """Return how many elements there are in front of an axis, along it, and behind it."""
    axis %= len(x.shape)
    return product(x.shape[:axis]), x.shape[axis], product(x.shape[axis + 1 :])


def selected(selector: Selector, problem: Problem, x: Value, y: Value) -> Selection | None:
    """Select a kernel from all of x as it stands in memory to y; None if there is none."""
    kernel = select(problem, selector.isa)
    if kernel is None:
        return None
    return Selection.of(kernel, problem, [Access(x, ZERO, row_major(x.shape))], FusedEpilogue.plain(y))
