"""Quantization by ranges of the run, and products of bytes: DynamicQuantizeLinear, MatMulInteger, ConvInteger."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from irc.ir.graph import Constant, Graph, Node, Value
from irc.ir.types import f32, i8, i32, u8, value_range
from irc.opdef.base import Op
from irc.opdef.builder import Builder
from irc.ops.arithmetic import Add, Div, Mul, Neg, Round, Sub
from irc.ops.cast import Cast
from irc.ops.clip import Clip
from irc.ops.compare import Less
from irc.ops.conv import Conv, GroupedConv
from irc.ops.layout import Reshape
from irc.ops.logic import Where
from irc.ops.matmul import MatMul
from irc.ops.quantize import DynamicQuantizeLinear
from irc.ops.reduce import ReduceMax, ReduceMin
from irc.ops.variadic import Max, Min
from irc.passes.idioms import products
from irc.passes.replace import put_in_place

LARGEST = 255.0
"""Of u8."""


def quantized_by_range(graph: Graph, node: Node) -> Value | None:
    """Recognise DynamicQuantizeLinear: round(x / scale) + zero point as u8, both of the range of x and 0."""
    shifted = _made(_saturated(node.inputs[0]), Add)
    if shifted is None or node.outputs[0].dtype != u8:
        return None
    for rounded, added in _both(shifted):
        quotient, widened = _made(_rounded(rounded), Div), _made(added, Cast)
        zero = None if widened is None else widened.inputs[0]
        scale = None if zero is None else _scale_of(zero)
        span = None if scale is None else _times(scale, 1 / LARGEST)
        if quotient is None or zero is None or scale is None or span is None or scale.rank != 0 or zero.rank != 0:
            continue
        x, divisor = quotient.operands
        if divisor is span:
            x = _times(x, LARGEST)
        elif divisor is not scale:
            continue
        if x is None or x.dtype != f32 or not _is_range(span, x) or not _is_middle(zero, span):
            continue
        b = Builder(graph, node.name, node.loc)
        found, *rest = b.add_all(DynamicQuantizeLinear(), x)
        for old, new in zip((scale, zero), rest, strict=True):
            new.name, new.names = old.name, old.names
            put_in_place(graph, old, new)
        return found
    return None


def product_of_bytes(graph: Graph, node: Node) -> Value | None:
    """Recognise MatMulInteger: a product in i32 of bytes less their zero points."""
    assert isinstance(node.op, MatMul)
    if node.outputs[0].dtype != i32:
        return None
    b, operands, zeros = Builder(graph, node.name, node.loc), list[Value](), list[Value | None]()
    for value, turned in zip(node.operands, (node.op.transpose_a, node.op.transpose_b), strict=True):
        found = _bytes(b, value)
        if found is None or value.rank is None:
            return None
        x, zero = found
        order = [*range(value.rank - 2), value.rank - 1, value.rank - 2]
        operands.append(b.Transpose(x, order) if turned else x)
        zeros.append(zero)
    return b.MatMulInteger(*operands, *zeros)


def convolution_of_bytes(graph: Graph, node: Node) -> Value | None:
    """Recognise ConvInteger: a convolution in i32 of bytes less their zero points."""
    if node.outputs[0].dtype != i32 or len(node.inputs) != 2:
        return None
    whole = products.groups(graph, node) if isinstance(node.op, GroupedConv) else node.outputs[0]
    made = None if whole is None else _made(whole, Conv)
    if made is None:
        return None
    b = Builder(graph, node.name, node.loc)
    found = [_bytes(b, value) for value in made.operands]
    operands = [f[0] for f in found if f is not None]
    zeros = [f[1] for f in found if f is not None]
    return b.ConvInteger(*operands, *zeros, **made.op.attributes()) if len(operands) == 2 else None


def _bytes(b: Builder, value: Value) -> tuple[Value, Value | None] | None:
    """Return (bytes, zero point or None) that make these numbers of i32."""
    moved = _made(value, Reshape)
    if moved is not None:
        found = None if moved.inputs[0] is None else _bytes(b, moved.inputs[0])
        return None if found is None else (b.add(moved.op, found[0], *moved.inputs[1:]), found[1])
    if value.const is not None:
        return _of_constant(b, value, value.const)
    less, zero = _made(value, Sub), None
    if less is not None:
        value, zero = less.operands
    widened = _made(value, Cast)
    x = None if widened is None else widened.inputs[0]
    if x is None or x.dtype not in (i8, u8):
        return None
    if zero is None:
        return x, None
    if zero.const is not None and zero.tensor.elements() == 1:
        least, most = value_range(x.dtype)
        number = int(zero.const.array.reshape(()))
        return (x, b.const(number, x.dtype)) if least <= number <= most else None
    widened = _made(zero, Cast)
    zero = None if widened is None else widened.inputs[0]
    return (x, zero) if zero is not None and zero.dtype == x.dtype and zero.rank == 0 else None


def _of_constant(b: Builder, value: Value, const: Constant) -> tuple[Value, Value | None] | None:
    """Return whole numbers as i8 or, where they only fit so, as u8 and a zero point."""
    array = const.array
    if not array.size or array.max(initial=0) - array.min(initial=0) > LARGEST:
        return None
    if array.min() >= -128 and array.max() <= 127:
        return b.graph.add_constant(Constant(i8, const.shape, lambda: const.array.astype(np.int8)), value.name), None
    zero = max(0, -int(array.min()))
    shifted = Constant(u8, const.shape, lambda: (const.array + zero).astype(np.uint8))
    return b.graph.add_constant(shifted, value.name), b.const(zero, u8)


def _scale_of(zero: Value) -> Value | None:
    """Return what a zero point in u8 is a rounded quotient by."""
    made = _made(zero, Cast)
    quotient = None if made is None else _made(_rounded(_saturated(made.inputs[0])), Div)
    return None if quotient is None else quotient.inputs[1]


def _is_middle(zero: Value, span: Value) -> bool:
    """Tell whether a zero point divides minus the lower end of the range."""
    made = _made(zero, Cast)
    quotient = None if made is None else _made(_rounded(_saturated(made.inputs[0])), Div)
    ends, numerator = _made(span, Sub), None if quotient is None else quotient.inputs[0]
    negated, less = _made(numerator, Neg), _made(numerator, Sub)
    if ends is None:
        return False
    if negated is not None:
        return negated.inputs[0] is ends.inputs[1]
    return less is not None and _number(less.inputs[0]) == 0.0 and less.inputs[1] is ends.inputs[1]


def _is_range(span: Value, x: Value) -> bool:
    """Tell whether a value is max(x, 0) - min(x, 0) over all of x."""
    ends = _made(span, Sub)
    if ends is None or x.rank is None:
        return False
    for end, limited, reduced in zip(ends.operands, (Max, Min), (ReduceMax, ReduceMin), strict=True):
        made = _made(end, limited)
        if made is None or len(made.inputs) != 2:
            return False
        if not any(_number(zero) == 0.0 and _is_of_all(_made(found, reduced), x) for found, zero in _both(made)):
            return False
    return True


def _is_of_all(reduction: Node | None, x: Value) -> bool:
    """Tell whether a reduction is one of x over all its axes."""
    if reduction is None or reduction.inputs[0] is not x or x.rank is None:
        return False
    given = reduction.inputs[1] if len(reduction.inputs) > 1 else None
    axes = None if given is None else given.ints()
    return axes is not None and {a % x.rank for a in axes} == set(range(x.rank))


def _saturated(value: Value | None) -> Value | None:
    """Return what is limited to 0 … 255, as formats write it."""
    clip, chosen = _made(value, Clip), _made(value, Where)
    if clip is not None:
        limits = [_number(v) for v in (*clip.inputs, None, None)[1:3]]
        return clip.inputs[0] if limits == [0.0, LARGEST] else None
    if chosen is None:
        return None
    test, least = _made(chosen.inputs[0], Less), _made(chosen.inputs[1], Min)
    if test is None or least is None or _number(test.inputs[0]) != 0.0 or _number(chosen.inputs[2]) != 0.0:
        return None
    x = test.inputs[1]
    same = len(least.inputs) == 2 and any(a is x and _number(b) == LARGEST for a, b in _both(least))
    return x if same else None


def _times(value: Value, factor: float) -> Value | None:
    """Return x of x · factor, or of its quotient by one over it."""
    product, quotient = _made(value, Mul), _made(value, Div)
    for x, number in _both(product) if product is not None else ():
        if _number(number) == np.float32(factor):
            return x
    if quotient is not None and _number(quotient.inputs[1]) == np.float32(1 / factor):
        return quotient.inputs[0]
    return None


def _rounded(value: Value | None) -> Value | None:
    """Return what is rounded to the nearest, halves to the even one."""
    made = _made(value, Round)
    return (
        made.inputs[0] if made is not None and isinstance(made.op, Round) and made.op.mode == "half_to_even" else None
    )


def _made(value: Value | None, kind: type[Op]) -> Node | None:
    """Return the node of that operation that computes a value."""
    made = None if value is None else value.producer
    return made if made is not None and isinstance(made.op, kind) else None


def _both(node: Node) -> Iterator[tuple[Value, Value]]:
    """Return two operands in both orders."""
    a, b = node.operands
    yield a, b
    yield b, a


def _number(value: Value | None) -> float | None:
    """Return the only number of a constant."""
    if value is None or value.const is None or value.tensor.elements() != 1:
        return None
    return float(value.const.array.reshape(()))
