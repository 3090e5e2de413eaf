"""Selection for MatMul and Conv of integers: bytes less a zero point, by a constant of bytes."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from irc.expr import Bin, Call, Const, Expr, Select, Un, Var, call
from irc.fusion.access import ZERO, Access, row_major
from irc.fusion.epilogues import MOST_SLOTS, FusedEpilogue, merged
from irc.ir.dim import Dim, product
from irc.ir.graph import Graph, Node, Value
from irc.ir.types import DType, TensorType, f32, i8, i32, u8, value_range
from irc.kernels.core.base import Array
from irc.kernels.core.epilogue import Axes, axes_of, slot
from irc.kernels.core.registry import select
from irc.kernels.integer.problem import IntegerConvProblem, LookupProblem, Rounding, SumProblem, product_of_bytes
from irc.kernels.integer.saturating import crowded
from irc.layout.byte_tables import Lookup
from irc.layout.channels_last_op import ChannelsLast
from irc.layout.integer_operands import bytes_of, fits_bytes
from irc.layout.quantized_sums import SumOfBytes
from irc.ops.cast import Cast
from irc.ops.conv import Conv
from irc.ops.matmul import MatMul
from irc.selection.planes import input_of, planes_of
from irc.selection.selector import Selection, Selector, worthwhile
from irc.traversal import fold, replaced, variables

FULL = Rounding()
"""The rounding of a problem that stores no bytes."""
MOST = 2.0**31 - 256
"""A number up to which floats fit into 32 bits, however they were rounded on the way."""


@dataclass(frozen=True)
class Result:
    """What a kernel stores: a value, its type, the epilogue, and how what that computes becomes a byte."""

    fused: FusedEpilogue
    value: Value
    stored: DType
    rounding: Rounding = FULL


def select_matmul(selector: Selector, node: Node) -> Selection | None:
    """Select a kernel for a MatMul of i32; None if loops compute it."""
    a, b = node.inputs
    assert a is not None and b is not None and isinstance(node.op, MatMul)
    left, result = bytes_of(a), node.outputs[0]
    if left is None or b.const is None or b.rank != 2 or len(a.shape) < 2 or node.op.transpose_a or not fits_bytes(b):
        return None
    n, k = (int(d) for d in (b.shape if node.op.transpose_b else b.shape[::-1]))
    m = product(a.shape[:-1])
    if not worthwhile(m, Dim.of(n), Dim.of(k)):
        return None

    def row(access: Access) -> Dim | None:
        axes = merged(result.shape[:-1], access.strides[:-1])
        return None if len(axes) > 1 else axes[0][1] if axes else ZERO

    def fits(access: Access) -> bool:
        return row(access) is not None and access.strides[-1] in (0, 1)

    found = result_of(selector, result, fits)
    rows = [row(s) or ZERO for s in found.fused.slots]
    kinds: list[Axes] = [axes_of(r, s.strides[-1]) for r, s in zip(rows, found.fused.slots, strict=True)]
    epilogue = found.fused.along(kinds)
    signs = (left.value.dtype == i8, left.zero is not None)
    problem = product_of_bytes(m, n, k, *signs, epilogue, found.stored, tuple(rows), found.rounding)
    constant, turned = b.const, node.op.transpose_b

    def weights() -> Array:
        return _rows(constant.read() if turned else constant.read().T, None)

    operands = [Access(v, ZERO, row_major(v.shape)) for v in (left.value, left.zero) if v is not None]
    return _selection(selector, problem, operands, found, weights, (b, turned))


def select_conv(selector: Selector, node: Node) -> Selection | None:
    """Select a kernel for a Conv of i32 with the channels last; None if loops compute it."""
    op = node.op.op if isinstance(node.op, ChannelsLast) else None
    x, w, *rest = node.inputs
    if not isinstance(op, Conv) or x is None or w is None or w.const is None or not fits_bytes(w):
        return None
    found, bias = bytes_of(x), rest[0] if rest else None
    if found is None or found.value.shape != x.shape or (bias is not None and bias.const is None):
        return None
    out, shape = node.outputs[0], tuple(int(d) for d in w.shape)
    planes = planes_of(op, "nhwc", x, out, shape[2:])
    if planes is None or not planes.channels.is_const or not worthwhile(*out.shape, *map(Dim.of, shape[1:])):
        return None
    result, source = result_of(selector, out, planes.fits), input_of(selector, planes, found.value)
    problem = planes.problem(
        IntegerConvProblem,
        "highest",
        shape[0],
        op.group,
        source,
        result.fused,
        stored=result.stored,
        rounding=result.rounding,
        signed=found.value.dtype == i8,
        zeroed=found.zero is not None,
    )
    constant, own = w.const, None if bias is None else bias.const

    def weights() -> Array:
        return _rows(constant.read().reshape(shape[0], -1), None if own is None else own.read())

    operands = [source, *([Access(found.zero, ZERO, row_major(found.zero.shape))] if found.zero is not None else [])]
    return _selection(selector, problem, operands, result, weights, (w, bias))


def select_lookup(selector: Selector, node: Node) -> Selection | None:
    """Select a kernel for bytes of a table, whose place does not matter."""
    op = node.op.op if isinstance(node.op, ChannelsLast) else node.op
    if not isinstance(op, Lookup):
        return None
    (x, table), y = node.inputs, node.outputs[0]
    if x is None or table is None or table.const is None:
        return None
    problem = LookupProblem(y.dtype, "highest", x.dtype, product(x.shape))
    kernel = select(problem, selector.isa)
    if kernel is None:
        return None
    packing = kernel.packed(problem)
    assert packing is not None
    packed = selector.constant(packing, table.const.read, ("table", table), "table")
    operands = [Access(x, ZERO, row_major(x.shape))]
    return Selection.of(kernel, problem, operands, FusedEpilogue.plain(y), packed)


def select_sum(selector: Selector, node: Node) -> Selection | None:
    """Select a kernel for sums of dequantized bytes."""
    op, y = node.op, node.outputs[0]
    assert isinstance(op, SumOfBytes)
    xs = list(node.operands)
    problem = SumProblem(y.dtype, "highest", tuple(x.dtype for x in xs), product(y.shape), op.zero)
    kernel = select(problem, selector.isa)
    if kernel is None:
        return None
    packing = kernel.packed(problem)
    assert packing is not None
    numbers = [n for pair in zip(op.scales, op.zeros, strict=True) for n in pair] + [*op.bounds]
    packed = selector.constant(packing, lambda: np.asarray(numbers, np.float32), ("sum", *numbers), "terms")
    operands = [Access(x, ZERO, row_major(x.shape)) for x in xs]
    return Selection.of(kernel, problem, operands, FusedEpilogue.plain(y), packed)


def _rows(weights: Array, bias: Array | None) -> Array:
    """Join what is added to each output and its weights [outputs, …]."""
    own = np.zeros(len(weights), np.int32) if bias is None else bias
    return np.concatenate([own.astype(np.int32).reshape(-1, 1), weights.astype(np.int32)], 1)


def _selection(
    selector: Selector,
    problem: IntegerConvProblem,
    operands: list[Access],
    result: Result,
    weights: Callable[[], Array],
    key: tuple[object, ...],
) -> Selection | None:
    if not selector.isa.fours:
        rows = weights()[:, 1:]
        side_by_side = rows.reshape(len(rows), -1, problem.taps).swapaxes(1, 2).reshape(rows.shape)
        problem = replace(problem, crowded=crowded(side_by_side))
    kernel = select(problem, selector.isa)
    if kernel is None:
        return None
    packing = kernel.packed(problem)
    assert packing is not None
    packed = selector.constant(packing, weights, ("bytes", *key), "weights")
    return Selection.of(kernel, problem, operands, result.fused, packed, result.value)


def result_of(selector: Selector, sums: Value, fits: Callable[[Access], bool]) -> Result:
    """Find what is stored: sums, or what elementwise operations make of them in f32, perhaps as bytes."""
    rounded = _cast(selector, sums, f32)
    if rounded is None:
        return Result(FusedEpilogue.plain(sums), sums, i32)
    fused = selector.collector.epilogue_of(rounded, [], fits)
    for kind in (u8, i8):
        narrow = _cast(selector, fused.value, kind)
        found = None if narrow is None else _rounded(selector.graph, fused, kind)
        if narrow is not None and found is not None:
            result = Result(found[0], narrow, kind, found[1])
            return _summed(selector, result, fits) or result
    return Result(fused, fused.value, f32)


def _summed(selector: Selector, result: Result, fits: Callable[[Access], bool]) -> Result | None:
    """Add bytes to those that a kernel would store, if a sum of bytes is all that reads these.

    What is clamped is a byte with its zero point, so that the bounds are those of all layers.
    """
    user, own = selector.only_use(result.value), result.rounding
    op = user.op if user is not None else None
    if user is None or not isinstance(op, SumOfBytes) or not own.fits:
        return None
    terms = list(zip(user.operands, op.scales, strict=True))
    others = [(Access(x, ZERO, row_major(x.shape)), scale) for x, scale in terms if x is not result.value]
    slots = [*result.fused.slots, *(access for access, _ in others)]
    if len(others) + 1 != len(terms) or len(slots) > MOST_SLOTS or not all(fits(access) for access, _ in others):
        return None
    found: Expr = Const(-math.fsum(s * z for s, z in zip(op.scales, op.zeros, strict=True)), f32)
    for k, (_, scale) in enumerate(others):
        found = slot(len(result.fused.slots) + k, f32) * Const(scale, f32) + found
    byte = call("round", result.fused.expr)
    byte = _clamped(byte + Const(float(own.zero), f32) if own.zero else byte, value_range(result.stored))
    (scale,) = (scale for x, scale in terms if x is result.value)
    found = byte * Const(scale, f32) + found
    least, largest = (float(n - op.zero) for n in value_range(op.stored))
    low, high = op.bounds
    found = found.max(Const(low, f32)) if low > least else found
    found = found.min(Const(high, f32)) if high < largest else found
    fused = replace(result.fused, expr=found, slots=slots)
    return Result(fused, user.outputs[0], op.stored, Rounding(op.zero, True))


def _clamped(e: Expr, bounds: tuple[float, float]) -> Expr:
    least, largest = bounds
    return e.max(Const(float(least), f32)).min(Const(float(largest), f32))


def _cast(selector: Selector, value: Value, kind: DType) -> Value | None:
    """Return what a value is cast to that type for, if nothing else reads it."""
    user = selector.only_use(value)
    if user is None or not isinstance(user.op, Cast) or user.outputs[0].dtype != kind:
        return None
    return user.outputs[0] if isinstance(user.outputs[0].type, TensorType) else None


def _rounded(graph: Graph, fused: FusedEpilogue, kind: DType) -> tuple[FusedEpilogue, Rounding] | None:
    """Divide an epilogue that ends as QuantizeLinear does into what is rounded, and how; None if it ends otherwise."""
    least, largest = value_range(kind)
    match fused.expr:
        case Select(Bin("lt", Const(low), x), Bin("min", y, Const(high)), Const(other)):
            if x != y or low != least or other != least or high != largest:
                return None
        case _:
            return None
    match x:
        case Call("round", (value,)):
            zero: int | None = 0
        case Bin("add", Call("round", (value,)), added) | Bin("add", added, Call("round", (value,))):
            zero = _whole(added, fused.slots)
        case _:
            return None
    if zero is None:
        return None
    kept = _without_unread(_multiplied(graph, replace(fused, expr=value)))
    return kept, Rounding(zero, _most(kept.expr, kept.slots) <= MOST)


def _multiplied(graph: Graph, fused: FusedEpilogue) -> FusedEpilogue:
    """Divide the constants that sums are multiplied by, and those that are added, instead of what they make."""
    match fused.expr:
        case Bin("div", value, divisor):
            by = _constant(divisor, fused.slots)
        case _:
            return fused
    if by is None or by.size != 1 or not 2.0**-64 < float(by.reshape(-1)[0]) < 2.0**64:
        return fused
    slots, scale = list(fused.slots), float(by.reshape(-1)[0])

    def divided(e: Expr) -> Expr | None:
        array = _constant(e, slots)
        if array is not None:
            quotients = (array.astype(np.float64) / scale).astype(np.float32)
            if isinstance(e, Const):
                return Const(float(quotients), f32)
            slots.append(replace(slots[_number(e)], value=graph.add_constant(quotients, "const")))
            return slot(len(slots) - 1, f32)
        match e:
            case Bin("mul", a, b):
                first = divided(b)
                second = divided(a) if first is None else None
                return replace(e, b=first) if first else replace(e, a=second) if second else None
            case Bin("add" | "sub" | "min" | "max", a, b):
                first, second = divided(a), divided(b)
                return replace(e, a=first, b=second) if first and second else None
            case _:
                return None

    expr = divided(value)
    return fused if expr is None else replace(fused, expr=expr, slots=slots)


def _constant(e: Expr, slots: Sequence[Access]) -> Array | None:
    """Find the elements of an expression that is a constant."""
    match e:
        case Const(value):
            return np.asarray(value, np.float32)
        case Var() if e.name.startswith("slot"):
            return slots[_number(e)].value.array
        case _:
            return None


def _number(e: Expr) -> int:
    assert isinstance(e, Var)
    return int(e.name[4:])


def _most(e: Expr, slots: Sequence[Access]) -> float:
    """Bound the absolute value of an expression of sums in i32 and constants; infinite if that is not known."""

    def bound(e: Expr, parts: tuple[float, ...]) -> float:
        match e:
            case Const(value):
                return abs(float(value))  # type: ignore[arg-type]
            case Var("acc"):
                return 2.0**31
            case Var(name):
                array = slots[int(name[4:])].value.array
                return float(np.abs(array).max(initial=0)) if array is not None else math.inf
            case Bin("mul"):
                return math.prod(parts)
            case Bin("add" | "sub"):
                return sum(parts)
            case Bin("min" | "max") | Un("neg" | "abs"):
                return max(parts)
            case _:
                return math.inf

    return fold(e, bound)


def _whole(e: Expr, slots: Sequence[Access]) -> int | None:
    """Find the whole number that an expression is; None if it is none, or none that is known."""
    match e:
        case Const(value):
            number = float(value)  # type: ignore[arg-type]
        case Var(name) if name.startswith("slot"):
            array = slots[int(name[4:])].value.array
            if array is None or array.size != 1:
                return None
            number = float(array.reshape(-1)[0])
        case _:
            return None
    return int(number) if number.is_integer() else None


def _without_unread(fused: FusedEpilogue) -> FusedEpilogue:
    """Drop the operands that an epilogue's expression does not read."""
    read = {v.name for v in variables(fused.expr)}
    kept = [k for k in range(len(fused.slots)) if f"slot{k}" in read]
    names = {f"slot{k}": slot(i, fused.expr.dtype) for i, k in enumerate(kept)}
    expr = replaced(fused.expr, lambda e: names.get(e.name) if isinstance(e, Var) else None)
    return replace(fused, expr=expr, slots=[fused.slots[k] for k in kept])
