"""Selection for MatMul of integers: bytes less a zero point, by a constant of bytes."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from irc.fusion.access import ZERO, Access, row_major
from irc.fusion.epilogues import FusedEpilogue
from irc.ir.dim import Dim, product
from irc.ir.graph import Node, Value
from irc.ir.types import TensorType, i8, i32, u8
from irc.kernels.core.registry import select
from irc.kernels.gemm.integer import IntegerGemmProblem
from irc.ops.arithmetic import Sub
from irc.ops.cast import Cast
from irc.ops.layout import Reshape
from irc.ops.matmul import MatMul
from irc.selection.selector import Selection, Selector, worthwhile


@dataclass(frozen=True)
class _Bytes:
    """An operand of 32-bit integers that are bytes, and the zero point that was taken from them, if any."""

    value: Value
    zero: Value | None


def select_kernel(selector: Selector, node: Node) -> Selection | None:
    """Select a kernel for a MatMul of i32; None if loops compute it."""
    a, b = node.inputs
    assert a is not None and b is not None and isinstance(node.op, MatMul)
    left, result = _bytes(a), node.outputs[0]
    if left is None or b.const is None or b.rank != 2 or len(a.shape) < 2 or node.op.transpose_a or not _fits(b):
        return None
    n, k = (int(d) for d in (b.shape if node.op.transpose_b else b.shape[::-1]))
    m = product(a.shape[:-1])
    if not worthwhile(m, Dim.of(n), Dim.of(k)):
        return None
    problem = IntegerGemmProblem(i32, "highest", left.value.dtype == i8, left.zero is not None, m, n, k)
    kernel = select(problem, selector.isa)
    if kernel is None:
        return None
    constant, turned, packing = b.const, node.op.transpose_b, kernel.packed(problem)
    assert packing is not None
    packed = selector.constant(
        packing, lambda: constant.read().T if turned else constant.read(), (b, "bytes", turned), b.name
    )
    operands = [Access(v, ZERO, row_major(v.shape)) for v in (left.value, left.zero) if v is not None]
    return Selection.of(kernel, problem, operands, FusedEpilogue.plain(result), packed, result)


def _bytes(v: Value) -> _Bytes | None:
    """Find the bytes that an operand is, if it is some, perhaps under another shape."""
    while v.producer is not None and isinstance(v.producer.op, Reshape):
        v = next(v.producer.operands)
    node, whole, zero = v.producer, v.shape, None
    if node is not None and isinstance(node.op, Sub):
        v, zero = node.operands
        if zero.dtype != i32 or not isinstance(zero.type, TensorType) or not _is_one(zero):
            return None
        if v.shape != whole:
            return None
        node = v.producer
    source = node.inputs[0] if node is not None and isinstance(node.op, Cast) else None
    return None if source is None or source.dtype not in (u8, i8) else _Bytes(source, zero)


def _is_one(v: Value) -> bool:
    return all(d.is_const and int(d) == 1 for d in v.shape)


def _fits(b: Value) -> bool:
    """Tell whether all elements of a constant fit into a signed byte."""
    array = b.array
    return array is not None and array.size > 0 and int(np.min(array)) >= -128 and int(np.max(array)) <= 127
