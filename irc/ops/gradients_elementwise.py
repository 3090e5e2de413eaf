"""Derivatives of elementwise operations.

Where one does not exist, 0 or the mean of both sides is taken, as PyTorch does.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from irc.ir.graph import Value
from irc.ir.types import boolean
from irc.opdef.builder import Builder, Rewrite
from irc.opdef.conversions import as_type
from irc.opdef.gradients import Gradients, Step, restated, rule
from irc.ops.activation import (
    write_gelu,
    write_hard_sigmoid,
    write_hard_sigmoid_6,
    write_hard_swish,
    write_mish,
    write_shrink,
    write_softsign,
    write_swish,
    write_thresholded,
)
from irc.ops.dropout import Dropout


def one_minus_square(b: Builder, v: Value) -> Value:
    return b.Sub(b.like(1, v), b.Mul(v, v))


def squared(b: Builder, v: Value, plus: float) -> Value:
    return b.Add(b.Mul(v, v), b.like(plus, v))


def bell(b: Builder, x: Value, y: Value) -> Value:
    """The derivative of erf: 2/√π · e^(-x²)."""
    return b.Mul(b.like(2 / math.sqrt(math.pi), x), b.Exp(b.Neg(b.Mul(x, x))))


FACTORS: dict[str, Callable[[Builder, Value, Value], Value]] = {
    "Abs": lambda b, x, y: b.Sign(x),
    "Exp": lambda b, x, y: y,
    "Log": lambda b, x, y: b.Reciprocal(x),
    "Sqrt": lambda b, x, y: b.Div(b.like(0.5, y), y),
    "Reciprocal": lambda b, x, y: b.Neg(b.Mul(y, y)),
    "Sin": lambda b, x, y: b.Cos(x),
    "Cos": lambda b, x, y: b.Neg(b.Sin(x)),
    "Tan": lambda b, x, y: squared(b, y, 1),
    "Asin": lambda b, x, y: b.Reciprocal(b.Sqrt(one_minus_square(b, x))),
    "Acos": lambda b, x, y: b.Neg(b.Reciprocal(b.Sqrt(one_minus_square(b, x)))),
    "Atan": lambda b, x, y: b.Reciprocal(squared(b, x, 1)),
    "Sinh": lambda b, x, y: b.Cosh(x),
    "Cosh": lambda b, x, y: b.Sinh(x),
    "Tanh": lambda b, x, y: one_minus_square(b, y),
    "Asinh": lambda b, x, y: b.Reciprocal(b.Sqrt(squared(b, x, 1))),
    "Acosh": lambda b, x, y: b.Reciprocal(b.Sqrt(squared(b, x, -1))),
    "Atanh": lambda b, x, y: b.Reciprocal(one_minus_square(b, x)),
    "Erf": bell,
    "Sigmoid": lambda b, x, y: b.Mul(y, b.Sub(b.like(1, y), y)),
    "Softplus": lambda b, x, y: b.Sigmoid(x),
}
"""The derivative of a function of one operand, out of the operand and the result."""


@rule(*FACTORS)
def times_factor(b: Builder, s: Step) -> Gradients:
    return b.Mul(s.g, FACTORS[s.op.name](b, s.x, s.y))


@rule("Floor", "Ceil", "Round", "Sign")
def steps(b: Builder, s: Step) -> Gradients:
    """Constant between their steps."""
    return None


@rule("Identity")
def identity(b: Builder, s: Step) -> Gradients:
    return s.g


@rule("Neg")
def neg(b: Builder, s: Step) -> Gradients:
    return b.Neg(s.g)


@rule("Cast")
def cast(b: Builder, s: Step) -> Gradients:
    return as_type(b, s.g, s.x.dtype)


# ------------------------------------------------------------------------------ activations
def where_positive(b: Builder, x: Value, g: Value, other: Value) -> Value:
    return b.Where(b.Greater(x, b.like(0, x)), g, other)


@rule("Relu")
def relu(b: Builder, s: Step) -> Gradients:
    return where_positive(b, s.x, s.g, b.like(0, s.g))


@rule("LeakyRelu")
def leaky_relu(b: Builder, s: Step) -> Gradients:
    return where_positive(b, s.x, s.g, b.Mul(s.g, b.const(s.attribute("alpha"), s.x.dtype)))


@rule("Elu")
def elu(b: Builder, s: Step) -> Gradients:
    """alpha · e^x is y + alpha, which does not overflow where it is not taken."""
    return where_positive(b, s.x, s.g, b.Mul(s.g, b.Add(s.y, b.const(s.attribute("alpha"), s.y.dtype))))


@rule("Celu")
def celu(b: Builder, s: Step) -> Gradients:
    slope = b.Add(b.Div(s.y, b.const(s.attribute("alpha"), s.y.dtype)), b.like(1, s.y))
    return where_positive(b, s.x, s.g, b.Mul(s.g, slope))


def say_selu(b: Builder, op: Any, x: Value, alpha: Value, scale: Value) -> Value:
    """Selu by Elu, whose derivative does not overflow."""
    return b.Mul(scale, b.Where(b.Greater(x, b.like(0, x)), x, b.Mul(alpha, b.Elu(x))))


def say_prelu(b: Builder, op: Any, x: Value, slope: Value) -> Value:
    """PRelu with the slope of x <= 0 at 0, as LeakyRelu here."""
    return where_positive(b, x, x, b.Mul(x, slope))


RESTATED: dict[str, Rewrite] = {
    "Gelu": write_gelu,
    "HardSigmoid": write_hard_sigmoid,
    "HSigmoid": write_hard_sigmoid_6,
    "HardSwish": write_hard_swish,
    "Mish": write_mish,
    "PRelu": say_prelu,
    "Selu": say_selu,
    "Shrink": write_shrink,
    "Softsign": write_softsign,
    "Swish": write_swish,
    "ThresholdedRelu": write_thresholded,
}
for _name, _rewrite in RESTATED.items():
    restated(_name, _rewrite)


@rule("Clip")
def clip(b: Builder, s: Step) -> Gradients:
    """x where it is between the bounds, these where it is not."""
    x, zero, inside = s.x, b.like(0, s.g), b.const(True, boolean)
    found: list[Value | None] = []
    for k, outside in ((1, b.Less), (2, b.Greater)):
        bound = s.operands[k] if k < len(s.operands) else None
        beyond = None if bound is None else outside(x, bound)
        found.append(None if beyond is None else b.Where(beyond, s.g, zero))
        inside = inside if beyond is None else b.And(inside, b.Not(beyond))
    return [b.Where(inside, s.g, zero), *found]


@rule("Dropout")
def dropout(b: Builder, s: Step) -> Gradients:
    assert isinstance(s.op, Dropout)
    if s.op.is_identity(*s.operands):  # type: ignore[arg-type]
        return s.g
    if any(s.wanted[1:]):
        raise s.problem()
    scale = as_type(b, s.op.scale(b, *s.operands), s.g.dtype)  # type: ignore[arg-type]
    return b.Where(s.results[1], b.Mul(s.g, scale), b.like(0, s.g))


# ------------------------------------------------------------------------------ several operands
@rule("Add")
def add(b: Builder, s: Step) -> Gradients:
    return s.g, s.g


@rule("Sub")
def sub(b: Builder, s: Step) -> Gradients:
    return s.g, b.Neg(s.g)


@rule("Mul")
def mul(b: Builder, s: Step) -> Gradients:
    x, y = s.operands
    return [b.Mul(s.g, v) if wanted else None for wanted, v in zip(s.wanted, (y, x), strict=True)]


@rule("Div")
def div(b: Builder, s: Step) -> Gradients:
    by_x = b.Div(s.g, s.operands[1])
    return by_x, b.Neg(b.Mul(by_x, s.y)) if s.wanted[1] else None


@rule("Mod")
def mod(b: Builder, s: Step) -> Gradients:
    """x - n · y, n constant between the steps."""
    whole = b.Div(b.Sub(s.x, s.y), s.operands[1])
    return s.g, b.Neg(b.Mul(s.g, whole)) if s.wanted[1] else None


@rule("SquaredDifference")
def squared_difference(b: Builder, s: Step) -> Gradients:
    g = b.Mul(s.g, b.Mul(b.like(2, s.g), b.Sub(s.x, s.operands[1])))
    return g, b.Neg(g)


@rule("Pow")
def power(b: Builder, s: Step) -> Gradients:
    """y · x^(y - 1) and x^y · log x, both 0 where a factor of 0 meets what has no end."""
    x, exponent = s.x, s.operand(1)
    n, zero = as_type(b, exponent, x.dtype), b.like(0, x)
    by_x = by_n = None
    if s.wanted[0]:
        slope = b.Mul(n, b.Pow(x, b.Sub(n, b.like(1, n))))
        by_x = b.Mul(s.g, b.Where(b.Equal(n, zero), zero, slope))
    if s.wanted[1]:
        slope = b.Where(b.Equal(x, zero), zero, b.Mul(s.y, b.Log(x)))
        by_n = as_type(b, b.Mul(s.g, slope), exponent.dtype)
    return by_x, by_n


@rule("Max", "Min")
def extreme(b: Builder, s: Step) -> Gradients:
    """Elements that share the extreme share its gradient."""
    found = [b.Equal(x, s.y) for x in s.operands]
    counts = [b.Cast(hit, to=s.g.dtype) for hit in found]
    number = b.Sum(*counts) if len(counts) > 1 else counts[0]
    share = b.Div(s.g, number)
    return [b.Where(hit, share, b.like(0, share)) for hit in found]


@rule("Sum")
def total(b: Builder, s: Step) -> Gradients:
    return [s.g] * len(s.operands)


@rule("Mean")
def mean(b: Builder, s: Step) -> Gradients:
    return [b.Div(s.g, b.like(len(s.operands), s.g))] * len(s.operands)


@rule("Where")
def where(b: Builder, s: Step) -> Gradients:
    condition, zero = s.x, b.like(0, s.g)
    return None, b.Where(condition, s.g, zero), b.Where(condition, zero, s.g)


@rule("CumSum")
def running_sum(b: Builder, s: Step) -> Gradients:
    """The same from the other end."""
    return b.add(replace(s.op, reverse=not s.attribute("reverse")), s.g, *s.operands[1:])  # type: ignore[call-arg]
