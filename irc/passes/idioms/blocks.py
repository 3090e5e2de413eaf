"""Compressed weights with a scale for each block of an axis, as ONNX has them: DequantizeLinear with block_size.

They are written as products that ONNX Runtime computes as they stand: MatMul and Gemm of a matrix [inputs, outputs] of
blocks become its MatMulNBits, which by default quantizes the other operand to bytes.
"""

from __future__ import annotations

import numpy as np

from irc.arrays import Array
from irc.ir.graph import Constant, Graph, Node, Value
from irc.ir.types import DType, f16, f32, i4, i8, u4, u8, value_range
from irc.opdef.builder import Builder
from irc.ops.arithmetic import Mul, Sub
from irc.ops.cast import Cast
from irc.ops.layout import normal_axis
from irc.ops.matmul import MatMul
from irc.ops.quantize import DequantizeLinear
from irc.passes.recompose import alone


def compressed(graph: Graph, node: Node) -> Value | None:
    """Recognise DequantizeLinear in blocks: they are an axis of their own until all is multiplied."""
    product = node.inputs[0].producer if node.inputs[0] is not None else None
    if product is None or not isinstance(product.op, Mul) or not alone(graph, product):
        return None
    for i, value in enumerate(product.operands):
        scale, made = product.inputs[1 - i], value.producer
        zero: Value | None = None
        if made is not None and isinstance(made.op, Sub) and alone(graph, made):
            zero, made = made.inputs[1], None if made.inputs[0] is None else made.inputs[0].producer
        if made is None or not isinstance(made.op, Cast) or not alone(graph, made):
            continue
        x = made.inputs[0]
        if x is None or x.const is None or scale is None or scale.const is None or x.dtype not in (i4, u4, i8, u8):
            continue
        shape, each, result = x.const.shape, scale.const.shape, node.outputs[0].tensor
        axes = [k for k, n in enumerate(shape) if k and each[k : k + 1] == (1,) and n > 1]
        if len(axes) != 1 or scale.dtype not in (f32, f16):
            continue
        at = axes[0]
        rows, after = shape[: at - 1], shape[at + 1 :]
        if result.shape != (*rows, shape[at - 1] * shape[at], *after) or each != (*shape[:at], 1, *after):
            continue
        numbers = None if zero is None else _zero_points(zero, each, x.dtype)
        if zero is not None and numbers is None:
            continue
        b, flat = Builder(graph, node.name, node.loc), (*shape[:at], *after)
        points = None if numbers is None else b.const(numbers.reshape(flat), x.dtype)
        whole = graph.add_constant(x.const.derived(tuple(int(d) for d in result.dims()), lambda a: a), x.name)
        scales = graph.add_constant(scale.const.derived(flat, lambda a: a), scale.name)
        return b.DequantizeLinear(whole, scales, points, axis=at - 1, block_size=shape[at])
    return None


def _zero_points(zero: Value, shape: tuple[int, ...], kind: DType) -> Array | None:
    """Return the zero point of each block, where they are whole numbers of that type."""
    made = zero.producer
    source = made.inputs[0] if made is not None and isinstance(made.op, Cast) else zero
    if source is None or source.const is None or np.broadcast_shapes(source.const.shape, shape) != shape:
        return None
    least, most = value_range(kind)
    numbers = np.asarray(source.const.array, np.float64)
    if np.any(numbers != np.rint(numbers)) or np.any(numbers < float(least)) or np.any(numbers > float(most)):
        return None
    return np.broadcast_to(numbers, shape)


def widened(graph: Graph, node: Node) -> Value | None:
    """Multiply weights in f32 that are multiplied in f16 and widened, as OpenVINO does when it computes in f32."""
    made = node.inputs[0].producer if node.inputs[0] is not None else None
    if made is None or not isinstance(made.op, DequantizeLinear) or not alone(graph, made):
        return None
    x, scale, zero = (*made.inputs, None)[:3]
    if x is None or x.const is None or scale is None or scale.const is None or scale.dtype != f16:
        return None
    if node.outputs[0].dtype != f32:
        return None
    b, op, const = Builder(graph, node.name, node.loc), made.op, scale.const
    wide = graph.add_constant(Constant(f32, const.shape, lambda: const.array.astype(np.float32)), scale.name)
    return b.DequantizeLinear(x, wide, zero, axis=op.axis, block_size=op.block_size)


def product(graph: Graph, node: Node) -> Value | None:
    """Store blocks as a product takes them that is computed as it stands: Gemm of matrices, else a stack of one."""
    x, w = node.inputs[:2]
    assert isinstance(node.op, MatMul)
    made = None if w is None else w.producer
    if x is None or x.rank is None or made is None or not isinstance(made.op, DequantizeLinear):
        return None
    op, constants = made.op, [v.const for v in made.operands if v.const is not None]
    if not op.block_size or len(constants) != len(list(made.operands)) or not alone(graph, made):
        return None
    if node.op.transpose_a or x.rank < 2 or len(constants[0].shape) != 2:
        return None
    matrices = x.rank == 2
    axis, turned = normal_axis(op.name, op.axis, 2), node.op.transpose_b != matrices
    parts = list[Value]()
    for const in constants:
        found = const.derived(const.shape[::-1], lambda a: a.T) if turned else const
        stored = found if matrices else found.derived((1, *found.shape), lambda a: a[None])
        parts.append(graph.add_constant(stored, made.name))
    b, place = Builder(graph, node.name, node.loc), (1 - axis if turned else axis) + (not matrices)
    weights = b.DequantizeLinear(*parts, axis=place, block_size=op.block_size, output_dtype=op.output_dtype)
    return b.Gemm(x, weights, transB=1) if matrices else b.MatMul(x, weights)
