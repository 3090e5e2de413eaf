"""Quantized operators of ONNX Runtime: what the floats that the operands stand for give, quantized again.

Operands come with a scale and a zero point (0 where it is absent).  Sums of products are whole numbers in i32.
Source: ONNX Runtime, contributed operators.
"""

from __future__ import annotations

import math
from collections.abc import Callable

from irc.diagnostics import Problem, require
from irc.diagnostics.codes import operation as codes
from irc.ir.dim import Dim
from irc.ir.graph import Value
from irc.ir.types import DType, dynamic, f16, f32, i32
from irc.opdef.base import Op, op
from irc.opdef.builder import Builder
from irc.opdef.codecs import Bool, Float, Int
from irc.opdef.composed import composed, contributed
from irc.opdef.conversions import as_scalar, as_type
from irc.opdef.forms import Attributes, Results
from irc.opdef.signature import Sig
from irc.opdef.window import ONNX_WINDOW
from irc.ops.layout import channels_last, channels_second, normal_axis, reshaped
from irc.ops.pool import KERNEL, ONNX_COUNTED, ONNX_ROUNDING, some_inside
from irc.ops.quantize import BYTES, DynamicQuantizeLinear
from irc.ops.quantized_products import along, centred, matrix, without_vectors


def value_of(b: Builder, x: Value, scale: Value, zero: Value | None) -> Value:
    """The floats that a quantized operand stands for."""
    return b.DequantizeLinear(x, as_scalar(b, scale), None if zero is None else as_scalar(b, zero))


def quantized(b: Builder, y: Value, scale: Value, zero: Value | None, kind: DType) -> Value:
    """Floats as whole numbers."""
    if zero is None:
        return b.QuantizeLinear(y, as_scalar(b, scale), output_dtype=kind)
    return b.QuantizeLinear(y, as_scalar(b, scale), as_scalar(b, zero))


def scaled_product(
    b: Builder,
    op: Op,
    operands: tuple[Value, Value],
    zeros: tuple[Value | None, Value | None],
    scales: tuple[Value, Value],
) -> Value:
    """The matrix product in f32; a scale and a zero point for all, for each row of A, each column of B."""
    left, right = matrix(b, operands[0], 0), matrix(b, operands[1], 1)
    u, v = b.Cast(left, to=i32), b.Cast(right, to=i32)
    if zeros[0] is not None:
        u = centred(b, u, along(b, op, zeros[0], left, -2), i32)
    if zeros[1] is not None:
        v = centred(b, v, along(b, op, zeros[1], right, -1), i32)
    rows, columns = along(b, op, scales[0], left, -2), along(b, op, scales[1], right, -1)
    y = b.Mul(b.Cast(b.MatMul(u, v), to=f32), b.Mul(as_type(b, rows, f32), as_type(b, columns, f32)))
    return without_vectors(b, y, *operands)


@op
class DynamicQuantizeMatMul(Op):
    """A, quantized as DynamicQuantizeLinear does, times B, which is quantized, plus a bias: in floats."""

    sig = Sig("A: f32[>=1], B: T2[>=1], b_scale: f32, b_zero_point?: T2, bias?: f32[1] -> Y: f32", T2=BYTES)

    def decompose(
        self,
        b: Builder,
        A: Value,
        B: Value,
        b_scale: Value,
        b_zero_point: Value | None = None,
        bias: Value | None = None,
    ) -> Value:
        u, a_scale, a_zero = b.add_all(DynamicQuantizeLinear(), A)
        y = scaled_product(b, self, (u, B), (a_zero, b_zero_point), (a_scale, b_scale))
        return y if bias is None else b.Add(y, bias)

    onnx = (contributed("DynamicQuantizeMatMul", T={"T2": BYTES}),)


@op
class MatMulIntegerToFloat(Op):
    """The product of quantized operands plus a bias, in floats."""

    sig = Sig(
        "A: T1[>=1], B: T2[>=1], a_scale: T3, b_scale: T3, a_zero_point?: T1, b_zero_point?: T2, bias?: T3[1] -> Y: T3",
        T1=BYTES,
        T2=BYTES,
        T3={f32, f16},
    )

    def decompose(
        self,
        b: Builder,
        A: Value,
        B: Value,
        a_scale: Value,
        b_scale: Value,
        a_zero_point: Value | None = None,
        b_zero_point: Value | None = None,
        bias: Value | None = None,
    ) -> Value:
        y = scaled_product(b, self, (A, B), (a_zero_point, b_zero_point), (a_scale, b_scale))
        y = y if bias is None else b.Add(y, as_type(b, bias, f32))
        return as_type(b, y, a_scale.dtype)

    onnx = (contributed("MatMulIntegerToFloat", T={"T1": BYTES, "T2": BYTES, "T3": {f32, f16}}),)


@op
class QGemm(Op):
    """alpha · A' · B' + C of quantized operands, in floats, or quantized where `y_scale` is given.

    C is in i32, quantized with the product of the scales and alpha, and zero point 0.
    """

    alpha: float = 1.0
    transA: bool = False
    transB: bool = False
    sig = Sig(
        "A: TA[2], a_scale: f32[one], a_zero_point: TA[one], B: TB[2], b_scale: f32[0..1], b_zero_point: TB[0..1], "
        "C?: i32[0..2], y_scale?: f32[one], y_zero_point?: TY[one] -> Y: any",
        TA=BYTES,
        TB=BYTES,
        TY=BYTES,
    )

    def decompose(
        self,
        b: Builder,
        A: Value,
        a_scale: Value,
        a_zero_point: Value,
        B: Value,
        b_scale: Value,
        b_zero_point: Value,
        C: Value | None = None,
        y_scale: Value | None = None,
        y_zero_point: Value | None = None,
    ) -> Value:
        u = centred(b, A, as_scalar(b, a_zero_point), i32)
        u = b.Transpose(u, [1, 0]) if self.transA else u
        v = b.Transpose(B, [1, 0]) if self.transB else B
        v = centred(b, v, along(b, self, b_zero_point, v, -1), i32)
        total = b.MatMul(u, v)
        total = total if C is None else b.Add(total, C)
        scale = b.Mul(b.Mul(as_scalar(b, a_scale), b.const(self.alpha, f32)), along(b, self, b_scale, v, -1))
        y = b.Mul(b.Cast(total, to=f32), scale)
        if y_scale is None:
            return y
        require(y_zero_point is not None, codes.MISSING_OPERAND, op=self.name, operand="y_zero_point", index=8)
        return quantized(b, y, y_scale, y_zero_point, A.dtype)

    onnx = (
        contributed(
            "QGemm",
            attrs={"alpha": Float(1.0), "transA": Bool(False), "transB": Bool(False)},
            T={"TA": BYTES, "TB": BYTES, "TY": BYTES},
        ),
    )


UNARY = Sig("X: T, X_scale: f32[one], X_zero_point?: T[one], Y_scale: f32[one], Y_zero_point?: T[one] -> Y: T", T=BYTES)
BINARY = Sig(
    "A: T, A_scale: f32[one], A_zero_point?: T[one], B: T, B_scale: f32[one], B_zero_point?: T[one], "
    "C_scale: f32[one], C_zero_point?: T[one] -> C: T",
    T=BYTES,
)


def of_two(name: str) -> Callable[..., Value]:
    """Make the decomposition of an operation on two quantized operands: that of their values, quantized."""

    def decompose(
        op: Op,
        b: Builder,
        A: Value,
        A_scale: Value,
        A_zero_point: Value | None,
        B: Value,
        B_scale: Value,
        B_zero_point: Value | None,
        C_scale: Value,
        C_zero_point: Value | None = None,
    ) -> Value:
        y = b.operation(name)(value_of(b, A, A_scale, A_zero_point), value_of(b, B, B_scale, B_zero_point))
        return quantized(b, y, C_scale, C_zero_point, A.dtype)

    return decompose


@op
class QLinearAdd(Op):
    """A + B of quantized operands, quantized."""

    sig = BINARY

    decompose = of_two("Add")

    onnx = (contributed("QLinearAdd", T=BYTES),)


@op
class QLinearMul(Op):
    """A · B of quantized operands, quantized."""

    sig = BINARY

    decompose = of_two("Mul")

    onnx = (contributed("QLinearMul", T=BYTES),)


@op
class QLinearSigmoid(Op):
    """Sigmoid of a quantized operand, quantized."""

    sig = UNARY

    def decompose(
        self,
        b: Builder,
        X: Value,
        X_scale: Value,
        X_zero_point: Value | None,
        Y_scale: Value,
        Y_zero_point: Value | None = None,
    ) -> Value:
        y = b.Sigmoid(value_of(b, X, X_scale, X_zero_point))
        return quantized(b, y, Y_scale, Y_zero_point, X.dtype)

    onnx = (contributed("QLinearSigmoid", T=BYTES),)


@op
class QLinearLeakyRelu(Op):
    """LeakyRelu of a quantized operand, quantized."""

    alpha: float = 0.009999999776482582
    sig = UNARY

    def decompose(
        self,
        b: Builder,
        X: Value,
        X_scale: Value,
        X_zero_point: Value | None,
        Y_scale: Value,
        Y_zero_point: Value | None = None,
    ) -> Value:
        y = b.LeakyRelu(value_of(b, X, X_scale, X_zero_point), alpha=self.alpha)
        return quantized(b, y, Y_scale, Y_zero_point, X.dtype)

    onnx = (contributed("QLinearLeakyRelu", attrs={"alpha": Float(0.009999999776482582)}, T=BYTES),)


@op
class QLinearSoftmax(Op):
    """Softmax of a quantized operand, quantized: over `axis`.

    Where it was `written_for` an ONNX opset before 13, over all axes from there on.
    """

    axis: int = -1
    written_for: int = 13
    sig = Sig(
        "X: T, X_scale: f32[one], X_zero_point?: T[one], Y_scale: f32[one], Y_zero_point: T[one] -> Y: T", T=BYTES
    )

    def decompose(
        self, b: Builder, X: Value, X_scale: Value, X_zero_point: Value | None, Y_scale: Value, Y_zero_point: Value
    ) -> Value:
        x = value_of(b, X, X_scale, X_zero_point)
        axis = normal_axis(self.name, self.axis, len(X.shape))
        if self.written_for >= 13:
            y = b.Softmax(x, axis=axis)
        else:
            rows, columns = (math.prod(part, start=Dim.of(1)) for part in (X.shape[:axis], X.shape[axis:]))
            y = reshaped(b, b.Softmax(reshaped(b, x, [rows, columns]), axis=1), X.shape)
        return quantized(b, y, Y_scale, Y_zero_point, X.dtype)

    onnx = (contributed("QLinearSoftmax", attrs={"axis": Int(-1), "opset": Int(to="written_for")}, T=BYTES),)


@op
class QLinearConcat(Op):
    """Concat of operands, each with its scale and its zero point, quantized anew."""

    axis: int = 0
    sig = Sig("Y_scale: f32[one], Y_zero_point: T[one], *inputs: any -> Y: T", T=BYTES)

    def decompose(self, b: Builder, Y_scale: Value, Y_zero_point: Value, *inputs: Value) -> Value:
        given, needed = len(inputs) + 2, "2 and 3 for each operand"
        whole = bool(inputs) and len(inputs) % 3 == 0
        require(whole, codes.TOO_FEW_INPUTS, op=self.name, given=given, needed=needed, operands=self.sig.operands)
        parts: list[Value] = []
        for x, scale, zero in zip(inputs[::3], inputs[1::3], inputs[2::3], strict=True):
            for name, value, allowed in (("an operand", x, BYTES), ("a scale", scale, {f32}), ("a zero", zero, BYTES)):
                if value.dtype not in allowed | {dynamic}:
                    names = ", ".join(sorted(map(str, allowed)))
                    facts = {"op": self.name, "operand": name, "dtype": value.dtype}
                    raise Problem(codes.TYPE_NOT_ALLOWED, **facts, allowed=names)
            parts.append(value_of(b, x, scale, zero))
        return quantized(b, b.Concat(*parts, axis=self.axis), Y_scale, Y_zero_point, Y_zero_point.dtype)

    onnx = (contributed("QLinearConcat", attrs={"axis": Int()}, T=BYTES),)


@op
class QLinearWhere(Op):
    """Where of quantized operands, quantized."""

    sig = Sig(
        "condition: bool, X: T, x_scale: f32[one], x_zero_point: T[one], Y: T, y_scale: f32[one], y_zero_point: T[one],"
        " z_scale: f32[one], z_zero_point: T[one] -> Z: T",
        T=BYTES,
    )

    def decompose(self, b: Builder, condition: Value, *operands: Value) -> Value:
        x, x_scale, x_zero_point, y, y_scale, y_zero_point, z_scale, z_zero_point = operands
        first, second = value_of(b, x, x_scale, x_zero_point), value_of(b, y, y_scale, y_zero_point)
        return quantized(b, b.Where(condition, first, second), z_scale, z_zero_point, x.dtype)

    onnx = (contributed("QLinearWhere", T=BYTES),)


@op
class QLinearGlobalAveragePool(Op):
    """The mean over all spatial axes of a quantized operand, quantized; the sum is of whole numbers."""

    channels_last: bool = False
    sig = Sig(
        "X: T[>=3], x_scale: f32[one], x_zero_point: T[one], y_scale: f32[one], y_zero_point: T[one] -> Y: T", T=BYTES
    )

    def decompose(
        self, b: Builder, X: Value, x_scale: Value, x_zero_point: Value, y_scale: Value, y_zero_point: Value
    ) -> Value:
        rank = len(X.shape)
        axes = list(range(1, rank - 1) if self.channels_last else range(2, rank))
        total = b.ReduceSum(centred(b, X, as_scalar(b, x_zero_point), i32), axes, keepdims=True)
        count = as_scalar(b, b.dims([math.prod((X.shape[k] for k in axes), start=Dim.of(1))]))
        mean = b.Div(b.Cast(total, to=f32), b.Cast(count, to=f32))
        return quantized(b, b.Mul(mean, as_scalar(b, x_scale)), y_scale, y_zero_point, X.dtype)

    onnx = (contributed("QLinearGlobalAveragePool", attrs={"channels_last": Bool(False)}, T=BYTES),)


def read_average_pool(b: Builder, a: Attributes, *operands: Value | None) -> Results:
    if a.counted == "inside" and a.auto_pad == "explicit":
        some_inside(b.label, a)
    return composed("QLinearAveragePool")(b, a, *operands)


@op
class QLinearAveragePool(Op):
    """AveragePool of a quantized operand, quantized."""

    kernel: tuple[int, ...]
    strides: tuple[int, ...] = ()
    pads_begin: tuple[int, ...] = ()
    pads_end: tuple[int, ...] = ()
    auto_pad: str = "explicit"
    rounding: str = "floor"
    counted: str = "inside"
    channels_last: bool = False
    sig = Sig(
        "X: T[>=3], x_scale: f32[one], x_zero_point?: T[one], y_scale: f32[one], y_zero_point?: T[one] -> Y: T", T=BYTES
    )

    def decompose(
        self,
        b: Builder,
        X: Value,
        x_scale: Value,
        x_zero_point: Value | None,
        y_scale: Value,
        y_zero_point: Value | None = None,
    ) -> Value:
        x = value_of(b, X, x_scale, x_zero_point)
        fields = {k: v for k, v in self.attributes().items() if k != "channels_last"}
        y = b.AveragePool(channels_second(b, x) if self.channels_last else x, **fields)
        return quantized(b, channels_last(b, y) if self.channels_last else y, y_scale, y_zero_point, X.dtype)

    onnx = (
        contributed(
            "QLinearAveragePool",
            attrs={
                **ONNX_WINDOW,
                **KERNEL,
                "ceil_mode": ONNX_ROUNDING,
                "count_include_pad": ONNX_COUNTED,
                "channels_last": Bool(False),
            },
            T=BYTES,
            read=read_average_pool,
        ),
    )
