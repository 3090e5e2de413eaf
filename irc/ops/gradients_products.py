"""Derivatives of matrix products, reductions over axes, and of what is built on them."""

from __future__ import annotations

from irc.ir.dim import product
from irc.ir.graph import Value
from irc.opdef.builder import Builder, with_fields
from irc.opdef.gradients import Gradients, Step, rule, shaped_like, sizes_of, summed_to
from irc.ops.layout import reshaped
from irc.ops.matmul import Gemm, MatMul
from irc.ops.softmax import AlongAxis


# ------------------------------------------------------------------------------ products
def of_product(
    b: Builder, g: Value, x: Value, y: Value, flipped: tuple[bool, bool], wanted: tuple[bool, ...]
) -> list[Value | None]:
    """The gradients of x · y, matrices of which each may be flipped first."""
    first, second = flipped
    by_x = by_y = None
    if wanted[0] and not first:
        by_x = b.MatMul(g, y, transpose_b=not second)
    elif wanted[0]:
        by_x = b.MatMul(y, g, transpose_a=second, transpose_b=True)
    if wanted[1] and not second and not first and len(y.shape) == 2 < len(x.shape):  # one product instead of many
        rows = [reshaped(b, v, [product(v.shape[:-1]), v.shape[-1]]) for v in (x, g)]
        by_y = b.MatMul(*rows, transpose_a=True)
    elif wanted[1] and not second:
        by_y = b.MatMul(x, g, transpose_a=not first)
    elif wanted[1]:
        by_y = b.MatMul(g, x, transpose_a=True, transpose_b=first)
    return [by_x, by_y]


@rule("MatMul")
def matmul(b: Builder, s: Step) -> Gradients:
    assert isinstance(s.op, MatMul)
    x, y, g = s.x, s.operand(1), s.g
    row, column = len(x.shape) == 1, len(y.shape) == 1
    if column:
        g = b.Unsqueeze(g, [len(g.shape)])
    if row:
        g = b.Unsqueeze(g, [len(g.shape) - 1])
    matrices = (b.Unsqueeze(x, [0]) if row else x, b.Unsqueeze(y, [1]) if column else y)
    flipped = (s.op.transpose_a and not row, s.op.transpose_b and not column)
    found = of_product(b, g, *matrices, flipped, s.wanted)
    return [
        None if d is None else shaped_like(b, summed_to(b, d, matrix), v)
        for d, matrix, v in zip(found, matrices, (x, y), strict=True)
    ]


@rule("Gemm")
def gemm(b: Builder, s: Step) -> Gradients:
    assert isinstance(s.op, Gemm)
    if not s.x.dtype.is_float:
        raise s.problem()
    g = s.g if s.op.alpha == 1 else b.Mul(s.g, b.const(s.op.alpha, s.g.dtype))
    found = of_product(b, g, s.x, s.operand(1), (bool(s.op.transA), bool(s.op.transB)), s.wanted)
    return [*found, s.g if s.op.beta == 1 else b.Mul(s.g, b.const(s.op.beta, s.g.dtype))]


@rule("Det")
def det(b: Builder, s: Step) -> Gradients:
    """det x · (x⁻¹)ᵀ."""
    rank = len(s.x.shape)
    scale = b.Unsqueeze(b.Mul(s.g, s.y), [rank - 2, rank - 1])
    return b.Mul(scale, flipped_matrix(b, b.Inverse(s.x)))


@rule("Inverse")
def inverse(b: Builder, s: Step) -> Gradients:
    """-yᵀ · g · yᵀ."""
    if s.attribute("adjoint"):
        raise s.problem()
    return b.Neg(b.MatMul(b.MatMul(s.y, s.g, transpose_a=True), s.y, transpose_b=True))


def flipped_matrix(b: Builder, v: Value) -> Value:
    rank = len(v.shape)
    return b.Transpose(v, [*range(rank - 2), rank - 1, rank - 2])


# ------------------------------------------------------------------------------ reductions
def kept(b: Builder, s: Step, *values: Value) -> list[Value]:
    """Values in the shape of the result, under that which it has with keepdims."""
    if s.attribute("keepdims"):
        return list(values)
    axes = s.operands[1] if len(s.operands) > 1 else None
    whole = b.add(with_fields(s.op, keepdims=True), s.x, axes)
    return [shaped_like(b, v, whole) for v in values]


def over_same_axes(b: Builder, s: Step, name: str, v: Value) -> Value:
    """Reduce over the axes of the step, with keepdims."""
    noop = bool(s.attribute("noop_with_empty_axes"))
    return b.operation(name)(v, *s.operands[1:], keepdims=True, noop_with_empty_axes=noop)


@rule("ReduceSum")
def reduce_sum(b: Builder, s: Step) -> Gradients:
    (g,) = kept(b, s, s.g)
    return b.Expand(g, sizes_of(b, s.x))


@rule("ReduceMean")
def reduce_mean(b: Builder, s: Step) -> Gradients:
    """As of the sum, over how many there are for each result."""
    (g,) = kept(b, s, s.g)
    kind = g.dtype
    number = b.Div(*(b.Cast(b.Size(v), to=kind) for v in (s.x, s.y)))
    return b.Expand(b.Div(g, number), sizes_of(b, s.x))


@rule("ReduceMax", "ReduceMin")
def reduce_extreme(b: Builder, s: Step) -> Gradients:
    """Elements that share the extreme share its gradient."""
    g, y = kept(b, s, s.g, s.y)
    hits = b.Equal(s.x, y)
    count = over_same_axes(b, s, "ReduceSum", b.Cast(hits, to=g.dtype))
    return b.Where(hits, b.Div(g, count), b.like(0, g))


@rule("ReduceL1")
def reduce_l1(b: Builder, s: Step) -> Gradients:
    (g,) = kept(b, s, s.g)
    return b.Mul(g, b.Sign(s.x))


@rule("ReduceL2")
def reduce_l2(b: Builder, s: Step) -> Gradients:
    g, y = kept(b, s, s.g, s.y)
    zero = b.like(0, y)
    return b.Where(b.Equal(y, zero), zero, b.Mul(g, b.Div(s.x, y)))


@rule("ReduceLogSumExp")
def reduce_log_sum_exp(b: Builder, s: Step) -> Gradients:
    g, y = kept(b, s, s.g, s.y)
    return b.Mul(g, b.Exp(b.Sub(s.x, y)))


@rule("ReduceProd")
def reduce_product(b: Builder, s: Step) -> Gradients:
    """The product of the others, also where one element is 0; where two are, it is 0."""
    (g,) = kept(b, s, s.g)
    zero, one = b.like(0, s.x), b.like(1, s.x)
    missing = b.Equal(s.x, zero)
    others = over_same_axes(b, s, "ReduceProd", b.Where(missing, one, s.x))
    count = over_same_axes(b, s, "ReduceSum", b.Cast(missing, to=g.dtype))
    there = b.Where(b.Equal(count, zero), b.Div(others, b.Where(missing, one, s.x)), zero)
    return b.Mul(g, b.Where(missing, b.Where(b.Equal(count, one), others, zero), there))


@rule("Softmax")
def softmax(b: Builder, s: Step) -> Gradients:
    assert isinstance(s.op, AlongAxis)
    g = b.Mul(s.g, s.y)
    return b.Sub(g, b.Mul(s.y, b.ReduceSum(g, [s.op.axis])))


@rule("LogSoftmax")
def log_softmax(b: Builder, s: Step) -> Gradients:
    assert isinstance(s.op, AlongAxis)
    return b.Sub(s.g, b.Mul(b.Exp(s.y), b.ReduceSum(s.g, [s.op.axis])))
