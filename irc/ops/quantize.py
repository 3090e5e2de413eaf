"""Quantization: whole numbers (or narrow floats) with a scale and a zero point in the place of floats.

Rounding is to the nearest, halves to even; what does not fit becomes the nearest that does, and NaN the least whole
number.  Sources: ONNX QuantizeLinear, DequantizeLinear, DynamicQuantizeLinear.
"""

from __future__ import annotations

from collections.abc import Callable

from irc.diagnostics import require
from irc.diagnostics.codes import operation as codes, shape as shape_codes
from irc.ir.graph import Value
from irc.ir.relation import every, same
from irc.ir.types import (
    F8,
    DType,
    TensorType,
    bf16,
    dynamic,
    f4e2m1,
    f6e2m3,
    f6e3m2,
    f8e8m0,
    f16,
    f32,
    f64,
    i2,
    i4,
    i8,
    i16,
    i32,
    u2,
    u4,
    u8,
    u16,
    value_range,
)
from irc.opdef.base import Op, op, op_base
from irc.opdef.broadcasting import pad_shape
from irc.opdef.builder import Builder
from irc.opdef.codecs import Bool, Codec, DTypeAttr, Int
from irc.opdef.conversions import as_scalar, as_type
from irc.opdef.forms import MICROSOFT, PREV, Form
from irc.opdef.precision import widened
from irc.opdef.signature import Sig
from irc.ops.layout import normal_axis

FLOAT_TYPES = frozenset({f32, f16, bf16})
BYTES = frozenset({i8, u8})
QUANTIZED = {
    19: BYTES | F8,
    21: BYTES | F8 | {i16, u16, i4, u4},
    23: BYTES | F8 | {i16, u16, i4, u4, f4e2m1},
    25: BYTES | F8 | {i16, u16, i4, u4, f4e2m1, i2, u2},
    28: BYTES | F8 | {i16, u16, i4, u4, f4e2m1, i2, u2, f6e2m3, f6e3m2},
}
"""The quantized types from each of these ONNX opsets on."""
OF_MICROSOFT = BYTES | {i16, u16, i4, u4}
"""Those of ONNX Runtime's own."""
AXIS: dict[str, Codec] = {"axis": Int(1)}
SATURATED: dict[str, Codec] = {"saturate": Bool(True)}
BLOCKED: dict[str, Codec] = {"block_size": Int(0, lo=0)}


def is_single(x: Value) -> bool:
    """Whether it is a scalar or a vector of one element."""
    return len(x.shape) == 0 or (len(x.shape) == 1 and x.shape[0] == 1)


@op_base
class Granular(Op):
    """What has scales and zero points per tensor, per index of `axis` (vectors), or per block of it of `block_size`."""

    axis: int = 1
    block_size: int = 0
    output_dtype: DType = dynamic

    def check_granularity(self, x: Value, scale: Value, zero: Value | None) -> None:
        if zero is not None:
            equal = (is_single(scale) and is_single(zero)) or (
                len(scale.shape) == len(zero.shape) and every(*map(same, scale.shape, zero.shape))
            )
            require(equal, shape_codes.SHAPES_DIFFER, op=self.name, first=scale.tensor, second=zero.tensor)
        if is_single(scale):
            return
        rank = len(x.shape)
        axis = normal_axis(self.name, self.axis, rank)
        wanted = rank if self.block_size else 1
        fits = len(scale.shape) == wanted
        require(fits, shape_codes.WRONG_RANK, op=self.name, operand="scale", type=scale.tensor, expected=wanted)
        if self.block_size:
            blocks = [d.ceildiv(self.block_size) if k == axis else d for k, d in enumerate(x.shape)]
            agree = every(*map(same, scale.shape, blocks))
        else:
            agree = same(scale.shape[0], x.shape[axis])
        what = "the scale's shape and that of x" + f" in blocks of {self.block_size}" * bool(self.block_size)
        require(agree, shape_codes.SIZES_DIFFER, op=self.name, what=what, a=scale.tensor, b=x.tensor)

    def spread(self, b: Builder, part: Value, x: Value) -> Value:
        """The scale or the zero point in a shape that broadcasts to that of x."""
        if is_single(part):
            return as_scalar(b, part)
        rank = len(x.shape)
        axis = normal_axis(self.name, self.axis, rank)
        if not self.block_size:
            return pad_shape(b, part, axis, rank)
        before, blocks, after = part.shape[:axis], part.shape[axis], part.shape[axis + 1 :]
        copies = b.Expand(b.Unsqueeze(part, [axis + 1]), b.dims([*before, blocks, self.block_size, *after]))
        row = b.Reshape(copies, b.dims([*before, blocks * self.block_size, *after]), special_zero=False)
        if blocks * self.block_size == x.shape[axis]:
            return row
        return b.Slice(row, [0], b.dims([x.shape[axis]]), [axis])


def when(types: frozenset[DType], per_axis: bool = True, one_type: bool = False) -> Callable[..., bool]:
    """Make the condition of a row: zero points of these types, x and its scale of one type."""

    def holds(op: Granular, x: Value, scale: Value, zero: Value | None = None) -> bool:
        known = (per_axis or is_single(scale)) and (not one_type or x.dtype == scale.dtype)
        return known and (zero is None or zero.dtype in types)

    return holds


@op
class QuantizeLinear(Granular):
    """saturate(round(x / scale) + zero point), of the zero point's type.

    The division is done in type `precision`, by default the scale's.  saturate: of an f8, values beyond its range
    become its largest.  output_dtype: the type where there is no zero point, by default u8.
    """

    saturate: bool = True
    precision: DType = dynamic
    sig = Sig(
        "x: T1, y_scale: T2, y_zero_point?: T3 -> y: T3",
        T1=FLOAT_TYPES | {i32},
        T2=FLOAT_TYPES | {i32, f8e8m0},
        T3=QUANTIZED[28],
    )

    def result_dtype(self, zero: Value | None) -> DType:
        if zero is None:
            return u8 if self.output_dtype == dynamic else self.output_dtype
        return zero.dtype

    def infer(self, x: Value, y_scale: Value, y_zero_point: Value | None = None) -> TensorType:
        to, given = self.result_dtype(y_zero_point), self.output_dtype
        if to == dynamic:
            return TensorType(to, x.tensor.shape)
        what = "a quantized type" if y_zero_point is None else f"{to}, the zero point's type"
        ok = to in QUANTIZED[28] and given in (dynamic, to)
        require(ok, codes.ATTRIBUTE_RANGE, op=self.name, attribute="output_dtype", value=given, expected=what)
        ok = self.precision == dynamic or (self.precision.is_float and self.precision.bits >= 16)
        expected = "a float of 16 bits or more"
        require(ok, codes.ATTRIBUTE_RANGE, op=self.name, attribute="precision", value=self.precision, expected=expected)
        self.check_granularity(x, y_scale, y_zero_point)
        return TensorType(to, x.tensor.shape)

    def divided_in(self, scale: DType) -> DType:
        """The type of the division: quotients of i32 are exact enough in f64 to be rounded right."""
        if self.precision != dynamic:
            return self.precision
        return f64 if scale == i32 else f32 if scale == f8e8m0 else scale

    def decompose(self, b: Builder, x: Value, y_scale: Value, y_zero_point: Value | None = None) -> Value:
        to, kind = self.result_dtype(y_zero_point), self.divided_in(y_scale.dtype)
        quotient = b.Div(as_type(b, x, kind), self.spread(b, as_type(b, y_scale, kind), x))
        if to.is_integer:
            quotient = b.Round(quotient)
        w = widened(b, quotient)
        if y_zero_point is not None:
            w = b.Add(w, self.spread(b, as_type(b, y_zero_point, w.dtype), x))
        if to.is_integer:
            least, largest = (b.const(bound, w.dtype) for bound in value_range(to))
            w = b.Where(b.Less(least, w), b.Min(w, largest), least)  # NaN compares to nothing
        return b.Cast(w, to=to, saturate=self.saturate)

    onnx = (
        Form(
            "QuantizeLinear",
            10,
            T={"T1": {f32, i32}, "T2": {f32}, "T3": BYTES},
            sig=Sig("x: T1, y_scale: T2[one], y_zero_point?: T3[one] -> y: T3"),
            when=when(BYTES, per_axis=False),
        ),
        Form(
            "QuantizeLinear",
            13,
            attrs=AXIS,
            sig=Sig("x: T1, y_scale: T2[0..1], y_zero_point?: T3[0..1] -> y: T3"),
            when=when(BYTES),
        ),
        Form(
            "QuantizeLinear",
            19,
            attrs=AXIS | SATURATED,
            T={"T1": PREV | {f16, bf16}, "T2": FLOAT_TYPES | {i32}, "T3": QUANTIZED[19]},
            sig=Sig("x: T1, y_scale: T1[0..1], y_zero_point?: T3[0..1] -> y: T3"),
            when=when(QUANTIZED[19], one_type=True),
        ),
        Form(
            "QuantizeLinear",
            21,
            attrs=AXIS | SATURATED | BLOCKED | {"output_dtype": DTypeAttr(dynamic)},
            T={"T3": QUANTIZED[21]},
            sig=Sig("x: T1, y_scale: T1, y_zero_point?: T3 -> y: T3"),
            when=when(QUANTIZED[21], one_type=True),
        ),
        Form(
            "QuantizeLinear",
            23,
            attrs=AXIS | SATURATED | BLOCKED | {"output_dtype": DTypeAttr(dynamic), "precision": DTypeAttr(dynamic)},
            T={"T3": QUANTIZED[23]},
            sig=None,
            when=when(QUANTIZED[23]),
        ),
        Form("QuantizeLinear", 24, T={"T2": PREV | {f8e8m0}}),
        Form("QuantizeLinear", 25, T={"T3": QUANTIZED[25]}, when=when(QUANTIZED[25])),
        Form("QuantizeLinear", 28, T={"T3": QUANTIZED[28]}, when=when(QUANTIZED[28])),
        Form(
            "QuantizeLinear",
            1,
            attrs=AXIS,
            T={"T1": {f32, f16}, "T3": OF_MICROSOFT},
            sig=Sig("x: T1, y_scale: T1[0..1], y_zero_point?: T3[0..1] -> y: T3"),
            when=when(OF_MICROSOFT, one_type=True),
            domain=MICROSOFT,
        ),
    )


@op
class DequantizeLinear(Granular):
    """(x - zero point) · scale, in `output_dtype`, by default the scale's type.

    The difference of integers is exact; the product is rounded once, to the result's type.
    """

    sig = Sig(
        "x: T1, x_scale: T2, x_zero_point?: T1 -> y: T3",
        T1=QUANTIZED[28] | {i32},
        T2=FLOAT_TYPES | {f8e8m0},
        T3=FLOAT_TYPES,
    )

    def result_dtype(self, scale: Value) -> DType:
        return scale.dtype if self.output_dtype == dynamic else self.output_dtype

    def infer(self, x: Value, x_scale: Value, x_zero_point: Value | None = None) -> TensorType:
        to = self.result_dtype(x_scale)
        ok, expected = to in FLOAT_TYPES | {dynamic}, "f32, f16 or bf16"
        require(ok, codes.ATTRIBUTE_RANGE, op=self.name, attribute="output_dtype", value=to, expected=expected)
        self.check_granularity(x, x_scale, x_zero_point)
        return TensorType(to, x.tensor.shape)

    def decompose(self, b: Builder, x: Value, x_scale: Value, x_zero_point: Value | None = None) -> Value:
        difference = x
        if x_zero_point is not None:
            kind = i32 if x.dtype.is_integer else f32
            zero = self.spread(b, as_type(b, x_zero_point, kind), x)
            difference = b.Sub(as_type(b, x, kind), zero)
        scale = self.spread(b, as_type(b, x_scale, f32), x)
        return as_type(b, b.Mul(as_type(b, difference, f32), scale), self.result_dtype(x_scale))

    onnx = (
        Form(
            "DequantizeLinear",
            10,
            T={"T1": BYTES | {i32}, "T2": {f32}, "T3": {f32}},
            sig=Sig("x: T1, x_scale: T2[one], x_zero_point?: T1[one] -> y: T3"),
            when=when(BYTES | {i32}, per_axis=False),
        ),
        Form(
            "DequantizeLinear",
            13,
            attrs=AXIS,
            sig=Sig("x: T1, x_scale: T2[0..1], x_zero_point?: T1[0..1] -> y: T3"),
            when=when(BYTES | {i32}),
        ),
        Form(
            "DequantizeLinear",
            19,
            T={"T1": QUANTIZED[19] | {i32}, "T2": FLOAT_TYPES, "T3": FLOAT_TYPES},
            when=when(QUANTIZED[19] | {i32}),
        ),
        Form(
            "DequantizeLinear",
            21,
            attrs=AXIS | BLOCKED,
            T={"T1": QUANTIZED[21] | {i32}},
            when=when(QUANTIZED[21] | {i32}),
            sig=None,
        ),
        Form(
            "DequantizeLinear",
            23,
            attrs=AXIS | BLOCKED | {"output_dtype": DTypeAttr(dynamic)},
            T={"T1": QUANTIZED[23] | {i32}},
            when=when(QUANTIZED[23] | {i32}),
        ),
        Form("DequantizeLinear", 24, T={"T2": PREV | {f8e8m0}}),
        Form("DequantizeLinear", 25, T={"T1": QUANTIZED[25] | {i32}}, when=when(QUANTIZED[25] | {i32})),
        Form("DequantizeLinear", 28, T={"T1": QUANTIZED[28] | {i32}}, when=when(QUANTIZED[28] | {i32})),
        Form(
            "DequantizeLinear",
            1,
            attrs=AXIS,
            T={"T1": OF_MICROSOFT | {i32}, "T2": {f32, f16}, "T3": {f32, f16}},
            sig=Sig("x: T1, x_scale: T2[0..1], x_zero_point?: T1[0..1] -> y: T3"),
            when=when(OF_MICROSOFT | {i32}),
            domain=MICROSOFT,
        ),
    )


@op
class DynamicQuantizeLinear(Op):
    """x as u8, with the scale (max(x, 0) - min(x, 0)) / 255 and the zero point round(-min(x, 0) / scale).

    Where all of x is 0, so are the scale, the zero point and the result.
    """

    sig = Sig("x: T1 -> y: T2, y_scale: f32, y_zero_point: T2", T1={f32}, T2={u8})

    def decompose(self, b: Builder, x: Value) -> tuple[Value, Value, Value]:
        scale, zero = self.steps(b, x)
        return b.QuantizeLinear(x, scale, zero), scale, zero

    @staticmethod
    def steps(b: Builder, x: Value) -> tuple[Value, Value]:
        """Compute the scale and the zero point."""
        axes = list(range(len(x.shape)))
        extremes = (b.ReduceMin(x, axes, keepdims=False), b.ReduceMax(x, axes, keepdims=False))
        return DynamicQuantizeLinear.of_range(b, *extremes)

    @staticmethod
    def of_range(b: Builder, least: Value, largest: Value) -> tuple[Value, Value]:
        """Compute the scale and the zero point for numbers between these, and 0."""
        origin = b.const(0.0, f32)
        least, largest = b.Min(least, origin), b.Max(largest, origin)
        scale = b.Div(b.Sub(largest, least), b.const(255.0, f32))
        return scale, b.QuantizeLinear(b.Neg(least), scale)

    onnx = (Form("DynamicQuantizeLinear", 11, T={"T1": {f32}, "T2": {u8}}),)
