"""Quantized tensors: QuantizeLinear and DequantizeLinear of ONNX, FakeQuantize and compressed weights of OpenVINO."""

from __future__ import annotations

import numpy as np

from irc.arrays import Array
from irc.ir.graph import Constant, Graph, Node, Value
from irc.ir.types import DType, f16, f32, i4, i8, i16, i32, u4, u8, u16, value_range
from irc.opdef.builder import Builder
from irc.ops.arithmetic import Add, Mul, Sub
from irc.ops.cast import Cast
from irc.ops.fake_quantize import FakeQuantize
from irc.ops.layout import Reshape, Transpose, normal_axis
from irc.ops.matmul import Gemm, MatMul
from irc.ops.quantize import DequantizeLinear, QuantizeLinear
from irc.ops.shape import Expand
from irc.passes.recompose import alone
from irc.passes.simplify import is_all

WHOLE = 1e-3
"""How far a zero point that is computed from rounded limits may be from a whole number."""
SHORT = 11
"""How many bits the significands of round numbers have: those of f16."""
ROUNDED = 2.0**-22
"""How far a product of a scale and a whole number may be from a rounded one."""
EXACT = {i4, u4, i8, u8, i16, u16}
"""Types whose differences f32 has exactly."""


# ---------------------------------------------------------------------------- to OpenVINO
def fake_quantize(graph: Graph, node: Node) -> Value | None:
    """Recognise FakeQuantize as QuantizeLinear and DequantizeLinear of the same constants."""
    entry = node.inputs[0].producer if node.inputs[0] is not None else None
    assert isinstance(node.op, DequantizeLinear)
    if entry is None or not isinstance(entry.op, QuantizeLinear) or node.op.block_size or entry.op.block_size:
        return None
    x, kind = entry.inputs[0], entry.outputs[0].dtype
    ours, theirs = [_parameters(n) for n in (node, entry)]
    if x is None or ours is None or theirs is None or x.dtype != f32:
        return None
    if kind not in (i8, u8):  # OpenVINO takes FakeQuantize of 16 bits out, or fails to
        return None
    if node.outputs[0].dtype != f32 or not all(np.array_equal(a, b) for a, b in zip(ours, theirs, strict=True)):
        return None
    scale, zero = ours
    if scale.size > 1 and node.op.axis % len(x.shape) != entry.op.axis % len(x.shape):
        return None
    if scale.size > 1:
        axis = node.op.axis % len(x.shape)
        scale, zero = (a.reshape((-1,) + (1,) * (len(x.shape) - axis - 1)) for a in (scale, zero))
    least, most = value_range(kind)
    b = Builder(graph, node.name, node.loc)
    limits = [b.const((bound - zero.astype(np.int64)) * scale.astype(np.float64), f32) for bound in (least, most)]
    return b.FakeQuantize(x, *limits, *limits, levels=int(most - least) + 1)


def _parameters(node: Node) -> tuple[Array, Array] | None:
    """Return (scale, zero point) of a node, as vectors, where they are constants."""
    scale, zero = (*node.inputs, None)[1:3]
    if scale is None or scale.const is None or scale.dtype != f32 or (zero is not None and zero.const is None):
        return None
    factors = scale.const.array.reshape(-1)
    return factors, np.zeros(
        factors.shape, np.int64
    ) if zero is None or zero.const is None else zero.const.array.reshape(-1)


def decompressed(graph: Graph, node: Node) -> Value | None:
    """Write DequantizeLinear of constants as OpenVINO's compressed weights: Convert, Subtract and Multiply."""
    x, scale, zero = (*node.inputs, None)[:3]
    assert isinstance(node.op, DequantizeLinear)
    if x is None or scale is None or x.const is None or scale.const is None:
        return None
    if node.outputs[0].dtype != f32 or scale.dtype != f32 or not x.dtype.is_integer:
        return None
    b = Builder(graph, node.name, node.loc)
    if node.op.block_size and scale.const.array.size > 1:
        return _blocks(b, node, x.const, scale.const, zero)
    value = b.Cast(x, to=f32)
    if zero is not None and not (zero.const is not None and is_all(zero, 0.0)):
        if x.dtype not in EXACT:
            return None
        value = b.Sub(value, node.op.spread(b, b.Cast(zero, to=f32), x))
    return b.Mul(value, node.op.spread(b, scale, x))


def _blocks(b: Builder, node: Node, x: Constant, factors: Constant, zero: Value | None) -> Value | None:
    """Multiply block by block: blocks are an axis of their own until all is multiplied, as OpenVINO looks for it.

    Its products stumble over blocks along an axis that they do not sum over, also in files of its own converter: such
    weights are written as floats.
    """
    op, scale = node.op, b.graph.add_constant(factors, "scale")
    assert isinstance(op, DequantizeLinear)
    axis = normal_axis(op.name, op.axis, len(x.shape))
    blocks = factors.shape[axis]
    if blocks * op.block_size != x.shape[axis] or x.dtype not in EXACT:
        return None
    if not _is_summed(node.outputs[0], axis):
        zeros = None if zero is None else zero.const
        if zero is not None and zeros is None:
            return None
        return b.graph.add_constant(Constant(f32, x.shape, lambda: _decoded(node, x, factors, zeros)), node.name)
    shape = (*x.shape[:axis], blocks, op.block_size, *x.shape[axis + 1 :])
    value = b.Cast(b.graph.add_constant(x.derived(shape, lambda array: array), "blocks"), to=f32)
    if zero is not None and not (zero.const is not None and is_all(zero, 0.0)):
        value = b.Sub(value, b.Unsqueeze(b.Cast(zero, to=f32), [axis + 1]))
    product = b.Mul(value, b.Unsqueeze(scale, [axis + 1]))
    return b.Reshape(product, b.const(list(x.shape)), special_zero=False)


def in_blocks(graph: Graph, node: Node) -> Value | None:
    """Multiply integers of constants block by block, of the narrowest type, whose scales are repeated for each."""
    for i, value in enumerate(node.operands):
        scale, size = _repeated(node.inputs[1 - i])
        made, zero = value.producer, None
        if scale is None or made is None:
            continue
        if isinstance(made.op, Sub) and alone(graph, made):
            middle, _ = _repeated(made.inputs[1], size)
            zero = made.inputs[1] if middle is None else middle
            made = None if made.inputs[0] is None else made.inputs[0].producer
            if zero is None or zero.const is None or (middle is None and zero.tensor.elements() != 1):
                continue
        x = None if made is None or not isinstance(made.op, Cast) or not alone(graph, made) else made.inputs[0]
        if x is None or x.const is None or x.dtype not in (u8, u4) or x.rank != 2:
            continue
        if scale.const is None or scale.dtype != f32:
            continue
        b, shape = Builder(graph, node.name, node.loc), x.const.shape
        product = b.Cast(b.graph.add_constant(_narrowest(x, (*scale.const.shape[:2], size)), "blocks"), to=f32)
        product = b.Mul(product if zero is None else b.Sub(product, zero), scale)
        return b.Reshape(product, b.const(list(shape)), special_zero=False)
    return None


def in_few_bits(graph: Graph, node: Node) -> Value | None:
    """Multiply integers of constants whose blocks are an axis of their own in 4 bits where they fit."""
    for i, value in enumerate(node.operands):
        scale, made = node.inputs[1 - i], value.producer
        zero: Value | None = None
        if made is not None and isinstance(made.op, Sub) and alone(graph, made):
            whole, zero = made.operands
            made = whole.producer
        x = None if made is None or not isinstance(made.op, Cast) or not alone(graph, made) else made.inputs[0]
        if x is None or x.const is None or x.dtype != u8 or x.rank != 3:
            continue
        stored = _narrowest(x, x.const.shape)
        if scale is None or scale.const is None or scale.dtype != f32 or stored.dtype != u4:
            continue
        if scale.const.shape != (*stored.shape[:2], 1):
            continue
        b = Builder(graph, node.name, node.loc)
        product = b.Cast(graph.add_constant(stored, "blocks"), to=f32)
        return b.Mul(product if zero is None else b.Sub(product, zero), scale)
    return None


def _repeated(value: Value | None, wanted: int = 0) -> tuple[Value | None, int]:
    """Return (constant [rows, blocks, 1], how often) where each of its elements is repeated along the rows."""
    made = None if value is None else value.producer
    spread = None if made is None or not isinstance(made.op, Reshape) or made.inputs[0] is None else made.inputs[0]
    source = None if spread is None or spread.producer is None else spread.producer.inputs[0]
    if value is None or spread is None or spread.producer is None or source is None or source.const is None:
        return None, 0
    shape = source.const.shape
    if not isinstance(spread.producer.op, Expand) or len(shape) != 3 or shape[2] != 1 or not spread.tensor.is_static:
        return None, 0
    size = int(spread.shape[-1])
    if spread.shape != (*shape[:2], size) or value.shape != (shape[0], shape[1] * size) or wanted not in (0, size):
        return None, 0
    return source, size


def _narrowest(x: Value, shape: tuple[int, ...]) -> Constant:
    """Return whole numbers in that shape, in 4 bits where they fit."""
    assert x.const is not None
    kind = u4 if x.dtype == u4 or not np.any(x.const.array > 15) else u8
    const = x.const
    return Constant(kind, shape, lambda: const.array.reshape(shape).astype(kind.numpy))


def narrow_zero_points(graph: Graph) -> None:
    """Store zero points of compressed weights in the type of the weights, which OpenVINO's products are faster with."""
    for node in graph.nodes:
        if not isinstance(node.op, Sub):
            continue
        x, zero = node.operands
        made = x.producer
        stored = made.inputs[0] if made is not None and isinstance(made.op, Cast) else None
        if stored is None or stored.const is None or stored.dtype not in (u8, u4) or zero.const is None:
            continue
        array, kind = zero.const.array, stored.dtype
        if np.any(array != np.clip(np.round(array), 0, 15 if kind == u4 else 255)):
            continue
        narrow = Constant.of(array.reshape(array.shape or (1,)).astype(kind.numpy), kind)
        b = Builder(graph, zero.name, node.loc)
        graph.set_op(node, node.op, [x, b.Cast(graph.add_constant(narrow, zero.name), to=zero.dtype)])


def _is_summed(value: Value, axis: int) -> bool:
    """Tell whether every product that the value goes into sums over the axis, and every Transpose leads to such."""
    rank = len(value.shape)
    for node in value.uses:
        op, side = node.op, node.inputs.index(value)
        if isinstance(op, Transpose):
            perm = node.inputs[1] if len(node.inputs) > 1 else None
            order = list(reversed(range(rank))) if perm is None else perm.ints()
            if order is None or not _is_summed(node.outputs[0], order.index(axis)):
                return False
        elif isinstance(op, MatMul | Gemm):
            turned = (op.transpose_a, op.transpose_b) if isinstance(op, MatMul) else (bool(op.transA), bool(op.transB))
            if side < 2 and axis != rank - 1 - (turned[side] != (side == 1)):
                return False
    return True


def _decoded(node: Node, x: Constant, scale: Constant, zero: Constant | None) -> Array:
    """Compute the floats that integers with a scale and a zero point stand for."""
    op, wide = node.op, x.read().astype(np.int32)
    assert isinstance(op, DequantizeLinear)
    axis = normal_axis(op.name, op.axis, len(x.shape))
    parts = [np.repeat(part.read(), op.block_size, axis) for part in (scale, zero) if part is not None]
    exact = wide if zero is None else wide - parts[1].astype(np.int32)
    return exact.astype(np.float32) * parts[0]


# -------------------------------------------------------------------------------- to ONNX
def quantized_and_back(graph: Graph, node: Node) -> Value | None:
    """Recognise QuantizeLinear and DequantizeLinear as a FakeQuantize whose ranges both hold 0 as one of its levels.

    That is exact: the level of x is the quotient by the step, rounded as it is, plus the level of 0, the zero point.
    Up to 256 levels are bytes: signed where 0 is in their middle, with the zero point 0, else unsigned.  256 saturate
    at the limits; fewer (255 are common) need a Clip before.  The range of the result may have a step and a zero
    point of its own.

    What is halfway between two levels goes to the even level, which is the even quotient where the zero point is even.
    An odd one is left alone if round numbers are halfway.  Else roundings decide what is halfway: those of the limits
    and of the step, which engines compute in ways of their own, or f32 has some halves, in all of its 24 bits.
    """
    x, arrays = node.inputs[0], [v.array for v in node.operands]
    assert isinstance(node.op, FakeQuantize)
    levels = node.op.levels
    if x is None or x.rank is None or levels > 256 or x.dtype != f32 or len(arrays) != 5:
        return None
    limits = [a for a in arrays[1:] if a is not None]
    if len(limits) != 4 or max(a.ndim for a in limits) > x.rank:
        return None
    shape = np.broadcast_shapes(*(a.shape for a in limits))
    axes = [i - len(shape) for i, n in enumerate(shape) if n != 1]
    low, high, out_low, out_high = (np.broadcast_to(a, shape).astype(np.float64) for a in limits)
    entry, result = _steps(low, high, levels), _steps(out_low, out_high, levels)
    if len(axes) > 1 or entry is None or result is None or _rounds_otherwise(low, high, entry[1], levels):
        return None
    b, axis = Builder(graph, node.name, node.loc), axes[0] + x.rank if axes else 1
    if levels < 256:
        x = _limited(b, x, limits[0], limits[1])
    kind, away = (i8, levels // 2) if all(np.all(zero == levels // 2) for _, zero in (entry, result)) else (u8, 0)
    ends: list[tuple[Value, Value]] = []
    for scale, zero in (entry, result):
        if ends and all(np.array_equal(*pair) for pair in zip(entry, result, strict=True)):
            ends.append(ends[0])
            continue
        vector = [-1] if axes else []
        ends.append((b.const(scale.reshape(vector), f32), b.const((zero - away).reshape(vector), kind)))
    return b.DequantizeLinear(b.QuantizeLinear(x, *ends[0], axis=axis), *ends[1], axis=axis)


def _steps(low: Array, high: Array, levels: int) -> tuple[Array, Array] | None:
    """Return (step, level of 0) of ranges, in f64; None where 0 is no level of one, or one has no end."""
    if not np.all((low < high) & np.isfinite(low) & np.isfinite(high)):
        return None
    scale = (high - low) / (levels - 1)
    zero = np.rint(-low / scale)
    whole = np.abs(-low / scale - zero) < WHOLE
    return (scale, zero) if np.all(whole & (zero >= 0) & (zero < levels)) else None


def _rounds_otherwise(low: Array, high: Array, zero: Array, levels: int) -> bool:
    """Tell whether a number of SHORT bits is halfway to an even level whose quotient is odd, as 0 is an odd level."""
    suspects = (zero % 2 == 1) & (zero * (high - low) == -low * (levels - 1))
    least, most = low[suspects][:, None], high[suspects][:, None]
    halves = least + (np.arange(levels - 1) + 0.5) * (most - least) / (levels - 1)
    significands = np.frexp(halves)[0] * (1 << SHORT)
    return bool(np.any(significands == np.rint(significands)))


def _limited(b: Builder, x: Value, low: Array, high: Array) -> Value:
    """Limit x to the range: ONNX's Clip has one number for each limit."""
    least, most = (b.const(a.reshape([]) if a.size == 1 else a, f32) for a in (low, high))
    if low.size == high.size == 1:
        return b.Clip(x, least, most)
    return b.Min(b.Max(x, least), most)


def compressed(graph: Graph, node: Node) -> Value | None:
    """Recognise DequantizeLinear: whole numbers of constants, or bytes of the run, less a zero point, times a scale."""
    for i, value in enumerate(node.operands):
        scale, made = node.inputs[1 - i], value.producer
        if scale is None or scale.const is None or made is None or value.type != node.outputs[0].type:
            continue
        if value.dtype not in (f32, f16) or value.rank is None:
            continue
        zero: Value | None = None
        inner = None if made.inputs[0] is None else made.inputs[0].producer
        if isinstance(made.op, Cast) and inner is not None and isinstance(inner.op, Sub) and alone(graph, made):
            made = inner if inner.outputs[0].dtype == i32 else made
        if isinstance(made.op, Sub) and alone(graph, made):
            zero = made.inputs[1]
            made = None if made.inputs[0] is None else made.inputs[0].producer
        if made is None or not isinstance(made.op, Cast) or not (_is_of_run(made.inputs[0]) or alone(graph, made)):
            continue
        x, b = made.inputs[0], Builder(graph, node.name, node.loc)
        if x is None or not (_is_of_run(x) or (x.const is not None and x.dtype in (i8, u8, i32))):
            continue
        if x.const is None and zero is None and any(isinstance(n.op, Add) for n in node.outputs[0].uses):
            continue  # `shifted` has the zero point
        axis, vector = _granularity(scale, value.rank)
        zeros = None if zero is None else _zero_point(zero, scale, x.dtype, axis, value.rank)
        if vector is None or (zero is not None and zeros is None):
            continue
        points = None if zeros is None else b.const(zeros, x.dtype)
        return b.DequantizeLinear(x, b.const(vector, scale.dtype), points, axis=axis)
    return None


def _is_of_run(x: Value | None) -> bool:
    """Tell whether bytes are computed by the graph: inputs are rather pictures, which nothing has quantized."""
    return x is not None and x.producer is not None and x.dtype in (i8, u8)


def shifted(graph: Graph, node: Node) -> Value | None:
    """Recognise DequantizeLinear of bytes of the run as x · scale + shift, where the shift is whole steps."""
    for i, product in enumerate(node.operands):
        shift, made = node.inputs[1 - i], product.producer
        if shift is None or made is None or not isinstance(made.op, Mul):
            continue
        for k, value in enumerate(made.operands):
            scale = made.inputs[1 - k]
            if scale is not None and value.type == node.outputs[0].type:
                found = _shifted(Builder(graph, node.name, node.loc), value, scale, shift)
                if found is not None:
                    return found
    return None


def _shifted(b: Builder, value: Value, scale: Value, shift: Value) -> Value | None:
    """Build DequantizeLinear of bytes as floats; before a Transpose, as others may read them as they were."""
    source = value.producer
    turned = source if source is not None and isinstance(source.op, Transpose) else None
    widened = source if turned is None or turned.inputs[0] is None else turned.inputs[0].producer
    x = None if widened is None or not isinstance(widened.op, Cast) else widened.inputs[0]
    if x is None or not _is_of_run(x) or scale.dtype != f32 or value.rank is None:
        return None
    axis, factors = _granularity(scale, value.rank)
    own, offset = _granularity(shift, value.rank)
    if factors is None or offset is None or own != axis or offset.shape != factors.shape or not np.all(factors):
        return None
    zeros, (least, most) = np.rint(-offset / factors.astype(np.float64)), value_range(x.dtype)
    if not np.allclose(-zeros * factors, offset, rtol=ROUNDED, atol=0):
        return None
    if np.any((zeros < float(least)) | (zeros > float(most))) or (turned is not None and factors.ndim):
        return None
    y = b.DequantizeLinear(x, b.const(factors, f32), b.const(zeros, x.dtype), axis=axis)
    return y if turned is None else b.add(turned.op, y, *turned.inputs[1:])


def _granularity(scale: Value, rank: int) -> tuple[int, Array | None]:
    """Return (axis, numbers) of a constant that differs along at most one axis; a scalar where along none."""
    if scale.const is None or scale.rank is None or scale.rank > rank:
        return 0, None
    array = scale.const.array
    axes = [i + rank - array.ndim for i, n in enumerate(array.shape) if n != 1]
    if len(axes) > 1:
        return 0, None
    return (axes[0], array.reshape(-1)) if axes else (0, array.reshape(()))


def _zero_point(zero: Value, scale: Value, kind: DType, axis: int, rank: int) -> Array | None:
    """Return the zero point in the scale's shape, where it is whole numbers of that type."""
    made = zero.producer
    source = made.inputs[0] if made is not None and isinstance(made.op, Cast) else zero
    if source is None or source.const is None or kind == i32:
        return None
    own, array = _granularity(source, rank)
    _, factors = _granularity(scale, rank)
    if array is None or factors is None or (array.ndim and own != axis):
        return None
    least, most = value_range(kind)
    numbers = np.asarray(array, np.float64)
    if np.any(numbers != np.rint(numbers)) or np.any(numbers < float(least)) or np.any(numbers > float(most)):
        return None
    return np.broadcast_to(numbers, factors.shape) if array.size in (1, factors.size) else None
