"""Selection for products of integers of two operands that are bytes, neither of them constant."""

from __future__ import annotations

from dataclasses import fields

from irc.fusion.access import ZERO, Access, Space, row_major
from irc.ir.graph import Node
from irc.ir.types import i8
from irc.kernels.core.registry import select
from irc.kernels.integer.problem import IntegerGemmProblem
from irc.layout.integer_operands import bytes_of
from irc.ops.matmul import MatMul
from irc.selection import matmul
from irc.selection.integer import result_of
from irc.selection.selector import Selection, Selector, worthwhile


def select_matmul(selector: Selector, node: Node) -> Selection | None:
    """Select a kernel for a MatMul of i32 of two operands; None if loops compute it."""
    a, b = node.inputs
    assert a is not None and b is not None and isinstance(node.op, MatMul)
    left, right, p = bytes_of(a), bytes_of(b), matmul.product_of(node, a, b)
    if left is None or right is None or not worthwhile(*p.space) or not (p.rows and p.columns):
        return None
    if left.value.shape != a.shape or right.value.shape != b.shape:
        return None
    space, op = Space(p.space), node.op
    places = [
        matmul.operand(selector, space, p, left.value, op.transpose_a, right=False),
        matmul.operand(selector, space, p, right.value, op.transpose_b, right=True),
    ]
    found = result_of(selector, node.outputs[0], lambda access: matmul.fits(p, access))
    value, strides = selector.stored(found.value)
    if places[0] is None or places[1] is None:
        return None
    stated = matmul.problem_of(selector, p, places[0], places[1], found.fused, p.of_result(strides))
    if stated is None:
        return None
    problem = IntegerGemmProblem(
        **{f.name: getattr(stated, f.name) for f in fields(stated)},
        stored=found.stored,
        rounding=found.rounding,
        signed=(left.value.dtype == i8, right.value.dtype == i8),
        zeroed=(left.zero is not None, right.zero is not None),
    )
    kernel = select(problem, selector.isa)
    if kernel is None:
        return None
    zeros = [Access(z, ZERO, row_major(z.shape)) for z in (left.zero, right.zero) if z is not None]
    return Selection.of(kernel, problem, [places[0], places[1], *zeros], found.fused, None, value)
