"""Activations.  Narrow floats are computed in f32 and rounded once.

Sources: ONNX operator pages of the same names; OpenVINO specification, "Activation functions".
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import ClassVar

import numpy as np

from irc.diagnostics import require
from irc.diagnostics.codes import shape as shape_codes
from irc.expr import Const, Expr, IndexFunction, Tensor, call, select
from irc.ir.graph import Value
from irc.ir.relation import stretches_to
from irc.ir.types import (
    FLOATS,
    FLOATS_BF16,
    INTEGERS,
    INTS,
    NUMERIC,
    TensorType,
    bf16,
    f8e4m3fn,
    f8e5m2,
    f32,
    f64,
    i4,
    nf4,
    u1,
    u4,
)
from irc.opdef.base import Array, Op, op
from irc.opdef.broadcasting import broadcast_shapes
from irc.opdef.builder import Builder
from irc.opdef.codecs import AsInput, Enum, Float, Ignored, single
from irc.opdef.elementwise import Elementwise, unary
from irc.opdef.forms import MICROSOFT, PREV, Attributes, Form, Results, write_only
from irc.opdef.precision import float_read, rounded, wide, widely
from irc.opdef.signature import Sig
from irc.ops.arithmetic import OV_NUMERIC, WIDE_INTS
from irc.ops.mathematics import erf, float_rows

CONSUMED = {"consumed_inputs": Ignored()}
OV_LOOSE = OV_NUMERIC | {u1, u4, i4, nf4, f8e4m3fn, f8e5m2}  # what OpenVINO's validation takes


# ------------------------------------------------------------------------------ without attributes
def relu(x: Array) -> Array:
    return np.maximum(x, x.dtype.type(0))


def read_relu(b: Builder, a: Attributes, x: Value) -> Results:
    return b.Relu(x) if x.dtype in NUMERIC or x.dtype.kind == "?" else b.Cast(b.Relu(b.Cast(x, to=f32)), to=x.dtype)


def write_relu(b: Builder, op: Op, x: Value) -> Value:
    """ONNX before opset 14, for integers."""
    return b.Max(x, b.like(0, x))


Relu = unary(
    "Relu",
    "max(x, 0)",
    relu,
    lambda x: x.max(Const(0, x.dtype)),
    T=NUMERIC,
    onnx=(*float_rows("Relu", (1, 6, 13)), Form("Relu", 14, T=PREV | INTS), write_only(write_relu)),
    openvino=(Form("ReLU", 1, T=OV_LOOSE, read=read_relu, direct=True),),
)


def sigmoid(x: Array) -> Array:
    return rounded(1.0 / (1.0 + np.exp(-wide(x))), x)


def sigmoid_expr(x: Expr) -> Expr:
    one = Const(1.0, x.dtype)
    return one / (one + call("exp", -x))


Sigmoid = unary(
    "Sigmoid",
    "1 / (1 + e^-x)",
    sigmoid,
    widely(sigmoid_expr),
    T=FLOATS_BF16,
    onnx=float_rows("Sigmoid", (1, 6, 13)),
    openvino=(Form("Sigmoid", 1, T=OV_LOOSE, read=float_read("Sigmoid"), direct=True),),
)


def softplus(x: Array) -> Array:
    """log(1 + e^x), without overflow for large x."""
    w = wide(x)
    return rounded(np.maximum(w, 0.0) + np.log1p(np.exp(-np.abs(w))), x)


def softplus_expr(x: Expr) -> Expr:
    """Stable for large |x|: max(x, 0) + log1p(e^-|x|)."""
    return x.max(0.0) + call("log1p", call("exp", x.min(-x)))


Softplus = unary(
    "Softplus",
    "log(1 + e^x)",
    softplus,
    widely(softplus_expr),
    T=FLOATS_BF16,
    onnx=(Form("Softplus", 1, T=FLOATS), Form("Softplus", 22, T=PREV | {bf16})),
    openvino=(Form("SoftPlus", 4, T=FLOATS_BF16),),
)


def softsign(x: Array) -> Array:
    w = wide(x)
    return rounded(w / (1.0 + np.abs(w)), x)


def write_softsign(b: Builder, op: Op, x: Value) -> Value:
    return b.Div(x, b.Add(b.const(1.0, x.dtype), b.Abs(x)))


Softsign = unary(
    "Softsign",
    "x / (1 + |x|)",
    softsign,
    widely(lambda x: x / (Const(1.0, x.dtype) + x.max(-x))),
    T=FLOATS_BF16,
    onnx=(Form("Softsign", 1, T=FLOATS), Form("Softsign", 22, T=PREV | {bf16})),
    openvino=(
        Form("SoftSign", 9, T=FLOATS_BF16 | {f8e4m3fn, f8e5m2}, read=float_read("Softsign"), direct=True),
        write_only(write_softsign),
    ),
)


def hard_swish(x: Array) -> Array:
    w = wide(x)
    return rounded(w * np.minimum(np.maximum(w + 3.0, 0.0), 6.0) / 6.0, x)


def write_hard_swish(b: Builder, op: Op, x: Value) -> Results:
    return b.Mul(x, b.HSigmoid(x))


HardSwish = unary(
    "HardSwish",
    "x · min(max(x + 3, 0), 6) / 6",
    hard_swish,
    widely(lambda x: x * (x + 3.0).max(0.0).min(6.0) / 6.0),
    T=FLOATS_BF16,
    onnx=(write_only(write_hard_swish), Form("HardSwish", 14, T=FLOATS), Form("HardSwish", 22, T=PREV | {bf16})),
    openvino=(Form("HSwish", 4, T=FLOATS_BF16), write_only(write_hard_swish)),
)


def hard_sigmoid_6(x: Array) -> Array:
    w = wide(x)
    return rounded(np.minimum(np.maximum(w + 3.0, 0.0), 6.0) / 6.0, x)


def write_hard_sigmoid_6(b: Builder, op: Op, x: Value) -> Results:
    if x.dtype == f64:  # an attribute of ONNX is an f32
        inner = b.Clip(b.Add(x, b.const(3.0, f64)), b.const(0.0, f64), b.const(6.0, f64))
        return b.Div(inner, b.const(6.0, f64))
    return b.HardSigmoid(x, b.const(1 / 6, x.dtype), b.const(0.5, x.dtype))


HSigmoid = unary(
    "HSigmoid",
    "min(max(x + 3, 0), 6) / 6",
    hard_sigmoid_6,
    widely(lambda x: (x + 3.0).max(0.0).min(6.0) / 6.0),
    T=FLOATS_BF16,
    onnx=(write_only(write_hard_sigmoid_6),),
    openvino=(Form("HSigmoid", 5, T=FLOATS_BF16), write_only(write_hard_sigmoid_6)),
)


def mish(x: Array) -> Array:
    w = wide(x)
    return rounded(w * np.tanh(np.maximum(w, 0.0) + np.log1p(np.exp(-np.abs(w)))), x)


def mish_expr(x: Expr) -> Expr:
    """With e = e^x, tanh(log(1 + e)) is n / (n + 2), n = e² + 2e: one exponential; from 20 on it rounds to 1."""
    e = call("exp", x.min(20.0))
    n = e * (e + 2.0)
    return x * (n / (n + 2.0))


def write_mish(b: Builder, op: Op, x: Value) -> Results:
    return b.Mul(x, b.Tanh(b.Softplus(x)))


Mish = unary(
    "Mish",
    "x · tanh(log(1 + e^x))",
    mish,
    widely(mish_expr),
    T=FLOATS_BF16,
    onnx=(write_only(write_mish), Form("Mish", 18, T=FLOATS), Form("Mish", 22, T=PREV | {bf16})),
    openvino=(Form("Mish", 4, T=FLOATS_BF16),),
)


class FloatUnary(Elementwise):
    """A formula of one float operand and attributes."""

    formula: ClassVar[Callable[..., Expr]]
    """formula(self, x), where x is f32 or f64."""

    def scalar(self, x: Expr) -> Expr:
        return widely(self.formula)(x)


GELU_C = math.sqrt(2.0 / math.pi)
SQRT_HALF = math.sqrt(0.5)


def write_gelu(b: Builder, op: Gelu, x: Value) -> Results:
    """Before ONNX opset 20, and the tanh kind before OpenVINO opset 7."""
    half = b.Mul(x, b.const(0.5, x.dtype))
    if op.approximate == "none":
        inner = b.Erf(b.Mul(x, b.const(SQRT_HALF, x.dtype)))
    else:
        cube = b.Mul(b.Mul(x, x), b.Mul(x, b.const(0.044715, x.dtype)))
        inner = b.Tanh(b.Mul(b.Add(x, cube), b.const(GELU_C, x.dtype)))
    return b.Mul(half, b.Add(inner, b.const(1.0, x.dtype)))


@op
class Gelu(FloatUnary):
    """x · Φ(x), Φ the normal distribution; approximate="tanh": x/2 · (1 + tanh(√(2/π)(x + 0.044715 x³)))."""

    approximate: str = "none"
    sig = Sig("x: T -> y: T", T=FLOATS_BF16)

    def reference(self, x: Array) -> Array:
        w = wide(x)
        if self.approximate == "none":
            return rounded(0.5 * w * (1.0 + erf(w * SQRT_HALF)), x)
        return rounded(0.5 * w * (1.0 + np.tanh(GELU_C * (w + 0.044715 * w * w * w))), x)

    def formula(self, x: Expr) -> Expr:
        half, one = x * 0.5, Const(1.0, x.dtype)
        if self.approximate == "none":
            return half * (one + call("erf", x * SQRT_HALF))
        return half * (one + call("tanh", (x + x * 0.044715 * x * x) * GELU_C))

    onnx = (
        write_only(write_gelu),
        Form("Gelu", 20, attrs={"approximate": Enum(["none", "tanh"], "none")}, T=FLOATS_BF16),
        Form("Gelu", 1, domain=MICROSOFT, T=FLOATS_BF16),
    )
    openvino = (
        Form("Gelu", 2, attrs={}, T=FLOATS_BF16, write=write_gelu),
        Form("Gelu", 7, attrs={"approximation_mode": Enum({"ERF": "none", "TANH": "tanh"}, "none", to="approximate")}),
        write_only(write_gelu),
    )


# -------------------------------------------------------------------------------- with attributes
LEAKY_ALPHA = single(0.01)


def write_leaky_relu(b: Builder, op: LeakyRelu, x: Value) -> Value:
    return b.PRelu(x, b.const([op.alpha], x.dtype))


@op
class LeakyRelu(FloatUnary):
    """x where x >= 0, else alpha · x."""

    alpha: float = LEAKY_ALPHA
    sig = Sig("x: T -> y: T", T=FLOATS_BF16)

    def reference(self, x: Array) -> Array:
        w = wide(x)
        return rounded(np.where(w < 0, w * self.alpha, w), x)

    def formula(self, x: Expr) -> Expr:
        return select(x.lt(0.0), x * self.alpha, x)

    onnx = (
        Form("LeakyRelu", 1, attrs={"alpha": Float(LEAKY_ALPHA), **CONSUMED}, T=FLOATS),
        Form("LeakyRelu", 6, attrs={"alpha": Float(LEAKY_ALPHA)}),
        Form("LeakyRelu", 16, T=PREV | {bf16}),
    )
    openvino = (write_only(write_leaky_relu),)


def channel_slope(b: Builder, x: Value, slope: Value) -> Value:
    """A rank-1 slope with one value per channel, as NumPy's rule needs it."""
    channels = x.rank is not None and x.rank > 2 and slope.rank == 1 and slope.shape[0] != 1
    if not channels or slope.shape[0].equals(x.shape[1]) is False:
        return slope
    return b.Unsqueeze(slope, list(range(1, len(x.shape) - 1)))


def read_channel_slope(b: Builder, a: Attributes, x: Value, slope: Value) -> Results:
    return b.PRelu(x, channel_slope(b, x, slope))


def plain_slope(op: PRelu, x: Value, slope: Value) -> bool:
    """Whether OpenVINO aligns the slope as NumPy does."""
    return x.rank == slope.rank or slope.rank == 0 or all(d == 1 for d in slope.shape) or len(x.shape) <= 2


def legacy_slope(op: PRelu, x: Value, slope: Value) -> bool:
    """ONNX before opset 7: one value, or one per channel of a matrix."""
    return len(slope.shape) == 1 and (slope.shape[0] == 1 or (x.rank == 2 and slope.shape[0] == x.shape[1]))


def write_prelu(b: Builder, op: PRelu, x: Value, slope: Value) -> Results:
    missing = len(x.shape) - len(slope.shape)
    if missing:
        return b.PRelu(x, b.Unsqueeze(slope, list(range(missing))))
    zero = b.const(0, x.dtype)
    return b.Where(b.Less(x, zero), b.Mul(x, slope), x)


@op
class PRelu(Elementwise):
    """x where x >= 0, else slope · x; the slope broadcasts to x."""

    sig = Sig("x: T, slope: T -> y: T", T=FLOATS_BF16 | WIDE_INTS)

    def infer(self, x: Value, slope: Value) -> TensorType:
        facts = {"op": "PRelu", "shapes": f"{slope.tensor} to {x.tensor}", "axis": "of slope"}
        require(stretches_to(slope.shape, x.shape), shape_codes.NOT_BROADCASTABLE, **facts)
        return x.tensor

    def reference(self, x: Array, slope: Array) -> Array:
        w = wide(x)
        return rounded(np.where(w < 0, w * wide(slope), w), x)

    def scalar(self, x: Expr, slope: Expr) -> Expr:
        return widely(lambda w, s: select(w.lt(0), w * s, w))(x, slope)

    onnx = (
        Form(
            "PRelu",
            1,
            attrs=CONSUMED,
            T=FLOATS,
            read=read_channel_slope,
            direct=True,
            when=legacy_slope,
            write=write_prelu,
        ),
        Form("PRelu", 6, attrs={}),
        Form("PRelu", 7, read=None, when=None),
        Form("PRelu", 9, T=PREV | WIDE_INTS),
        Form("PRelu", 16, T=PREV | {bf16}),
    )
    openvino = (
        Form("PReLU", 1, T=FLOATS_BF16, read=read_channel_slope, direct=True, when=plain_slope, write=write_prelu),
    )


@op
class Elu(FloatUnary):
    """x where x >= 0, else alpha · (e^x - 1)."""

    alpha: float = 1.0
    sig = Sig("x: T -> y: T", T=FLOATS_BF16)

    def reference(self, x: Array) -> Array:
        w = wide(x)
        return rounded(np.where(w < 0, self.alpha * np.expm1(w), w), x)

    def formula(self, x: Expr) -> Expr:
        return select(x.lt(0.0), call("expm1", x) * self.alpha, x)

    onnx = (
        Form("Elu", 1, attrs={"alpha": Float(1.0), **CONSUMED}, T=FLOATS),
        Form("Elu", 6, attrs={"alpha": Float(1.0)}),
        Form("Elu", 22, T=PREV | {bf16}),
    )
    openvino = (Form("Elu", 1, attrs={"alpha": Float(assumed=0.0)}, T=FLOATS_BF16),)


def write_celu(b: Builder, op: Celu, x: Value) -> Results:
    alpha = b.const(op.alpha, x.dtype)
    return b.Mul(alpha, b.Elu(b.Div(x, alpha), alpha=1.0))


@op
class Celu(FloatUnary):
    """x where x >= 0, else alpha · (e^(x/alpha) - 1)."""

    alpha: float = 1.0
    sig = Sig("x: T -> y: T", T=FLOATS_BF16)

    def reference(self, x: Array) -> Array:
        w = wide(x)
        return rounded(np.where(w < 0, self.alpha * np.expm1(w / self.alpha), w), x)

    def formula(self, x: Expr) -> Expr:
        return select(x.lt(0.0), call("expm1", x / self.alpha) * self.alpha, x)

    onnx = (
        write_only(write_celu),
        Form("Celu", 12, attrs={"alpha": Float(1.0)}, T={f32}),
        Form("Celu", 28, T=FLOATS_BF16),
    )
    openvino = (write_only(write_celu),)


def write_selu(b: Builder, op: Selu, x: Value, alpha: Value, scale: Value) -> Results:
    """With alpha or lambda that is not constant."""
    below = b.Mul(alpha, b.Sub(b.Exp(x), b.const(1.0, x.dtype)))
    return b.Mul(scale, b.Where(b.Greater(x, b.const(0.0, x.dtype)), x, below))


@op
class Selu(Elementwise):
    """lambda · x where x > 0, else lambda · alpha · (e^x - 1); alpha and lambda are scalars."""

    sig = Sig("x: T, alpha: T[one], lambda: T[one] -> y: T", T=FLOATS_BF16)

    def reference(self, x: Array, alpha: Array, scale: Array) -> Array:
        w = wide(x)
        return rounded(wide(scale) * np.where(w > 0, w, wide(alpha) * np.expm1(w)), x)

    def scalar(self, x: Expr, alpha: Expr, scale: Expr) -> Expr:
        return widely(lambda w, a, s: s * select(w.gt(0.0), w, a * call("expm1", w)))(x, alpha, scale)

    onnx = (
        Form(
            "Selu",
            1,
            T=FLOATS,
            write=write_selu,
            attrs={
                "alpha": AsInput(single(1.6732), index=1, scalar=True),
                "gamma": AsInput(single(1.0507), index=2, scalar=True),
                **CONSUMED,
            },
        ),
        Form(
            "Selu",
            6,
            attrs={
                "alpha": AsInput(single(1.67326319217681884765625), index=1, scalar=True),
                "gamma": AsInput(single(1.05070102214813232421875), index=2, scalar=True),
            },
        ),
        Form("Selu", 22, T=PREV | {bf16}),
    )
    openvino = (Form("Selu", 1, T=FLOATS_BF16),)


def write_hard_sigmoid(b: Builder, op: HardSigmoid, x: Value, alpha: Value, beta: Value) -> Results:
    return b.Clip(b.Add(b.Mul(alpha, x), beta), b.const(0.0, x.dtype), b.const(1.0, x.dtype))


@op
class HardSigmoid(Elementwise):
    """max(0, min(1, alpha · x + beta)); alpha and beta are scalars."""

    sig = Sig("x: T, alpha: T[one], beta: T[one] -> y: T", T=FLOATS_BF16)

    def reference(self, x: Array, alpha: Array, beta: Array) -> Array:
        return rounded(np.maximum(np.minimum(wide(alpha) * wide(x) + wide(beta), 1.0), 0.0), x)

    def scalar(self, x: Expr, alpha: Expr, beta: Expr) -> Expr:
        return widely(lambda w, a, c: (a * w + c).min(1.0).max(0.0))(x, alpha, beta)

    onnx = (
        Form(
            "HardSigmoid",
            1,
            T=FLOATS,
            write=write_hard_sigmoid,
            attrs={
                "alpha": AsInput(single(0.2), index=1, scalar=True),
                "beta": AsInput(0.5, index=2, scalar=True),
                **CONSUMED,
            },
        ),
        Form(
            "HardSigmoid",
            6,
            attrs={"alpha": AsInput(single(0.2), index=1, scalar=True), "beta": AsInput(0.5, index=2, scalar=True)},
        ),
        Form("HardSigmoid", 22, T=PREV | {bf16}),
    )
    openvino = (Form("HardSigmoid", 1, T=FLOATS_BF16),)


def write_thresholded(b: Builder, op: ThresholdedRelu, x: Value) -> Results:
    return b.Where(b.Greater(x, b.const(op.alpha, x.dtype)), x, b.const(0.0, x.dtype))


@op
class ThresholdedRelu(FloatUnary):
    """x where x > alpha, else 0."""

    alpha: float = 1.0
    sig = Sig("x: T -> y: T", T=FLOATS_BF16)

    def reference(self, x: Array) -> Array:
        w = wide(x)
        return rounded(np.where(w > self.alpha, w, w.dtype.type(0)), x)

    def formula(self, x: Expr) -> Expr:
        return select(x.gt(self.alpha), x, 0.0)

    onnx = (
        write_only(write_thresholded, since=9),
        Form("ThresholdedRelu", 10, attrs={"alpha": Float(1.0)}, T=FLOATS),
        Form("ThresholdedRelu", 22, T=PREV | {bf16}),
    )
    openvino = (write_only(write_thresholded),)


def write_shrink(b: Builder, op: Shrink, x: Value) -> Results:
    if x.dtype.is_integer:
        y = b.Shrink(b.Cast(x, to=f32), bias=op.bias, lambd=op.lambd)
        return b.Cast(y, to=x.dtype)
    zero, bias = b.const(0.0, x.dtype), b.const(op.bias, x.dtype)
    inner = b.Where(b.Greater(x, b.const(op.lambd, x.dtype)), b.Sub(x, bias), zero)
    return b.Where(b.Less(x, b.const(-op.lambd, x.dtype)), b.Add(x, bias), inner)


@op
class Shrink(Elementwise):
    """x + bias below -lambd, x - bias above lambd, else 0.  Integers are computed in f64 and truncated."""

    bias: float = 0.0
    lambd: float = 0.5
    sig = Sig("x: T -> y: T", T=FLOATS_BF16 | INTEGERS)

    def reference(self, x: Array) -> Array:
        w = x.astype(np.float64) if x.dtype.kind in "iu" else wide(x)
        inner = np.where(w > self.lambd, w - self.bias, w.dtype.type(0))
        return rounded(np.where(w < -self.lambd, w + self.bias, inner), x)

    def scalar(self, x: Expr) -> Expr:
        w = x.cast(f64 if x.dtype.is_integer else x.dtype.compute)
        inner = select(w.gt(self.lambd), w - self.bias, 0.0)
        return select(w.lt(-self.lambd), w + self.bias, inner).cast(x.dtype)

    onnx = (Form("Shrink", 9, attrs={"bias": Float(0.0), "lambd": Float(0.5)}, T=FLOATS | INTEGERS),)
    openvino = (write_only(write_shrink),)


def write_swish(b: Builder, op: Swish, x: Value, beta: Value | None = None) -> Results:
    return b.Mul(x, b.Sigmoid(x if beta is None else b.Mul(x, beta)))


@op
class Swish(Elementwise):
    """x / (1 + e^(-beta x)); beta is a scalar, 1 where absent.  With 1 it is also called SiLU."""

    sig = Sig("x: T, beta?: T[one] -> y: T", T=FLOATS_BF16)

    def infer(self, x: Value, beta: Value | None = None) -> TensorType:
        return TensorType(x.dtype, broadcast_shapes("Swish", [x.shape, *([] if beta is None else [beta.shape])]))

    def reference(self, x: Array, beta: Array | None = None) -> Array:
        w = wide(x)
        return rounded(w / (1.0 + np.exp(-w if beta is None else -(w * wide(beta)))), x)

    def scalar(self, x: Expr, beta: Expr | None = None) -> Expr:
        def formula(w: Expr, *rest: Expr) -> Expr:
            return w / (Const(1.0, w.dtype) + call("exp", -(w * rest[0]) if rest else -w))

        return widely(formula)(x, *([] if beta is None else [beta]))

    def compute(self, out: TensorType, x: Tensor, beta: Tensor | None = None) -> IndexFunction:
        return super().compute(out, *([x] if beta is None else [x, beta]))

    onnx = (
        write_only(write_swish),
        Form("Swish", 24, attrs={"alpha": AsInput(1.0, index=1, scalar=True)}, T=FLOATS_BF16),
    )
    openvino = (Form("Swish", 4, T=FLOATS_BF16),)
