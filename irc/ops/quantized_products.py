"""Products of quantized operands: matrix products and convolutions of whole numbers.

Zero points are subtracted and products summed in i32, which wraps; of f8, in f32.  The padding of a convolution is
the zero point.  Scales are applied in f32.  Sources: ONNX MatMulInteger, QLinearMatMul, ConvInteger, QLinearConv.
"""

from __future__ import annotations

from irc.diagnostics import require
from irc.diagnostics.codes import shape as codes
from irc.ir.graph import Value
from irc.ir.relation import every, same
from irc.ir.types import F8, DType, bf16, f16, f32, i32
from irc.opdef.base import Op, op, op_base
from irc.opdef.broadcasting import pad_shape
from irc.opdef.builder import Builder
from irc.opdef.codecs import Bool
from irc.opdef.conversions import as_scalar, as_type
from irc.opdef.forms import MICROSOFT, PREV, Attributes, Form
from irc.opdef.signature import Sig
from irc.ops.conv import CONV, Convolution, check_kernel_shape, window_fields
from irc.ops.layout import channels_last, channels_second
from irc.ops.quantize import BYTES, is_single


def centred(b: Builder, x: Value, zero: Value, kind: DType) -> Value:
    """x less its zero point, in a type that holds the difference."""
    return b.Sub(as_type(b, x, kind), as_type(b, zero, kind))


def along(b: Builder, op: Op, part: Value, x: Value, axis: int) -> Value:
    """A scale or a zero point of all of a matrix, of each row (axis -2) or column (axis -1), to broadcast to it."""
    if is_single(part):
        return as_scalar(b, part)
    if len(part.shape) == 1:
        agree = same(part.shape[0], x.shape[axis])
        found = b.Unsqueeze(part, [1]) if axis == -2 else part
    else:
        pairs = zip(part.shape, x.shape, strict=False)
        agree = len(part.shape) == len(x.shape) and every(*(same(p, n) for p, n in pairs if p != 1))
        found = part
    what = "a scale or zero point and its operand"
    require(agree, codes.SIZES_DIFFER, op=op.name, what=what, a=part.tensor, b=x.tensor)
    return found


def matrix(b: Builder, x: Value, axis: int) -> Value:
    """A vector as the row (axis 0) or the column (axis 1) that a product takes it for."""
    return b.Unsqueeze(x, [axis]) if len(x.shape) == 1 else x


def without_vectors(b: Builder, y: Value, left: Value, right: Value) -> Value:
    """The product without the axes that `matrix` inserted."""
    inserted = [axis for axis, x in ((-2, left), (-1, right)) if len(x.shape) == 1]
    return b.Squeeze(y, inserted) if inserted else y


@op
class MatMulInteger(Op):
    """(A - a_zero_point) · (B - b_zero_point) in i32; a zero point for all, or for each row of A or column of B."""

    sig = Sig("A: T1[>=1], B: T2[>=1], a_zero_point?: T1, b_zero_point?: T2 -> Y: i32", T1=BYTES, T2=BYTES)

    def decompose(
        self, b: Builder, A: Value, B: Value, a_zero_point: Value | None = None, b_zero_point: Value | None = None
    ) -> Value:
        left, right = matrix(b, A, 0), matrix(b, B, 1)
        u, v = b.Cast(left, to=i32), b.Cast(right, to=i32)
        if a_zero_point is not None:
            u = centred(b, u, along(b, self, a_zero_point, left, -2), i32)
        if b_zero_point is not None:
            v = centred(b, v, along(b, self, b_zero_point, right, -1), i32)
        return without_vectors(b, b.MatMul(u, v), A, B)

    onnx = (Form("MatMulInteger", 10, T={"T1": BYTES, "T2": BYTES}),)


@op
class QLinearMatMul(Op):
    """The matrix product of two quantized operands, quantized: a scale for all, for each row of a, each column of b."""

    sig = Sig(
        "a: T1[>=1], a_scale: TS, a_zero_point: T1, b: T2[>=1], b_scale: TS, b_zero_point: T2, y_scale: TS[one], "
        "y_zero_point: T3[one] -> y: T3",
        TS={f32, f16, bf16},
        T1=BYTES | F8,
        T2=BYTES | F8,
        T3=BYTES | F8,
    )

    def decompose(
        self,
        builder: Builder,
        a: Value,
        a_scale: Value,
        a_zero_point: Value,
        b: Value,
        b_scale: Value,
        b_zero_point: Value,
        y_scale: Value,
        y_zero_point: Value,
    ) -> Value:
        left, right = matrix(builder, a, 0), matrix(builder, b, 1)
        kind = i32 if a.dtype.is_integer and b.dtype.is_integer else f32
        u = centred(builder, left, along(builder, self, a_zero_point, left, -2), kind)
        v = centred(builder, right, along(builder, self, b_zero_point, right, -1), kind)
        of_rows = as_type(builder, along(builder, self, a_scale, left, -2), f32)
        of_columns = as_type(builder, along(builder, self, b_scale, right, -1), f32)
        product = as_type(builder, builder.MatMul(u, v), f32)
        y = builder.Mul(product, builder.Mul(of_rows, of_columns))
        quantized = builder.QuantizeLinear(y, as_type(builder, y_scale, f32), y_zero_point)
        return without_vectors(builder, quantized, a, b)

    onnx = (
        Form("QLinearMatMul", 10, T={"TS": {f32}, "T1": BYTES, "T2": BYTES, "T3": BYTES}),
        Form("QLinearMatMul", 21, T={"TS": PREV | {f16, bf16}, "T1": PREV | F8, "T2": PREV | F8, "T3": PREV | F8}),
    )


def per_output(b: Builder, op: Op, part: Value, w: Value, axis: int) -> Value:
    """A scale or a zero point of all weights or of each output channel, which stands at `axis` of the same rank."""
    if is_single(part):
        return as_scalar(b, part)
    what = "a scale or zero point and the output channels"
    require(same(part.shape[0], w.shape[0]), codes.SIZES_DIFFER, op=op.name, what=what, a=part.tensor, b=w.shape[0])
    return pad_shape(b, part, axis, len(w.shape))


@op_base
class IntegerConvolution(Convolution):
    """What ConvInteger and QLinearConv share."""

    group: int = 1

    def total(
        self, b: Builder, x: Value, w: Value, x_zero: Value | None, w_zero: Value | None, bias: Value | None
    ) -> Value:
        """The convolution of whole numbers, in i32."""
        u, v = b.Cast(x, to=i32), b.Cast(w, to=i32)
        if x_zero is not None:
            u = centred(b, u, as_scalar(b, x_zero), i32)
        if w_zero is not None:
            v = centred(b, v, per_output(b, self, w_zero, w, 0), i32)
        return b.Conv(u, v, bias, **self.attributes())


def read_conv_integer(b: Builder, a: Attributes, x: Value, w: Value, *zeros: Value | None) -> Value:
    check_kernel_shape("ConvInteger", a, w)
    return b.ConvInteger(x, w, *zeros, **window_fields(a), group=a.group)


@op
class ConvInteger(IntegerConvolution):
    """Conv of x - x_zero_point and w - w_zero_point in i32; w has one zero point or one for each output channel."""

    sig = Sig("x: T1[r>=3], w: T2[r], x_zero_point?: T1[one], w_zero_point?: T2[0..1] -> y: i32", T1=BYTES, T2=BYTES)

    def decompose(
        self, b: Builder, x: Value, w: Value, x_zero_point: Value | None = None, w_zero_point: Value | None = None
    ) -> Value:
        return self.total(b, x, w, x_zero_point, w_zero_point, None)

    onnx = (Form("ConvInteger", 10, attrs=CONV, T={"T1": BYTES, "T2": BYTES}, read=read_conv_integer, direct=True),)


def read_qlinear_conv(b: Builder, a: Attributes, *operands: Value) -> Value:
    check_kernel_shape("QLinearConv", a, operands[3])
    return b.QLinearConv(*operands, **window_fields(a), group=a.group)


def read_microsoft_conv(b: Builder, a: Attributes, x: Value, *operands: Value) -> Value:
    """ONNX Runtime's own has channels last on demand."""
    if not a.channels_last:
        return read_qlinear_conv(b, a, x, *operands)
    return channels_last(b, read_qlinear_conv(b, a, channels_second(b, x), *operands))


@op
class QLinearConv(IntegerConvolution):
    """Conv of quantized operands, quantized; weights have one scale or one for each output channel.

    Sums are multiplied once, by x_scale · w_scale / y_scale, as in onnx's reference.

    The bias is quantized with the product of both scales, and zero point 0.
    """

    sig = Sig(
        "x: T1[r>=3], x_scale: f32[one], x_zero_point: T1[one], w: T2[r], w_scale: f32[0..1], w_zero_point: T2[0..1], "
        "y_scale: f32[one], y_zero_point: T3[one], B?: i32[1] -> y: T3",
        T1=BYTES,
        T2=BYTES,
        T3=BYTES,
    )

    def decompose(
        self,
        b: Builder,
        x: Value,
        x_scale: Value,
        x_zero_point: Value,
        w: Value,
        w_scale: Value,
        w_zero_point: Value,
        y_scale: Value,
        y_zero_point: Value,
        B: Value | None = None,
    ) -> Value:
        total = as_type(b, self.total(b, x, w, x_zero_point, w_zero_point, B), f32)
        scale = b.Div(b.Mul(as_scalar(b, x_scale), per_output(b, self, w_scale, w, 1)), as_scalar(b, y_scale))
        return b.QuantizeLinear(b.Mul(total, scale), b.const(1.0, f32), y_zero_point)

    onnx = (
        Form(
            "QLinearConv",
            10,
            attrs=CONV,
            T={"T1": BYTES, "T2": BYTES, "T3": BYTES},
            read=read_qlinear_conv,
            direct=True,
        ),
        Form(
            "QLinearConv",
            1,
            attrs={**CONV, "channels_last": Bool(False)},
            T={"T1": BYTES, "T2": BYTES, "T3": BYTES},
            read=read_microsoft_conv,
            domain=MICROSOFT,
        ),
    )
