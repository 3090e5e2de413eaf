"""Conversion of element types.

Floats to integers truncate towards zero; what does not fit is taken modulo 2ⁿ or is the machine's
indefinite value, as NumPy has it.  Anything to boolean: whether it differs from 0.
Sources: ONNX Cast, CastLike; OpenVINO specification, Convert-1, ConvertLike-1.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeGuard

import numpy as np

from irc.arrays import NumpyType
from irc.diagnostics import Facts, Problem
from irc.diagnostics.codes import conversion, operation
from irc.expr import Bin, Const, Expr, Un, select
from irc.formats.document import Attr
from irc.ir.graph import Constant, Value
from irc.ir.literal import AttributeValue
from irc.ir.types import (
    ANY,
    F8,
    FLOATS,
    INTEGERS,
    NF4_VALUES,
    DType,
    TensorType,
    bf16,
    boolean,
    dynamic,
    f4e2m1,
    f6e2m3,
    f6e3m2,
    f8e4m3fn,
    f8e5m2,
    f8e8m0,
    f32,
    i2,
    i4,
    nf4,
    string,
    u1,
    u2,
    u3,
    u4,
    u6,
    u8,
)
from irc.opdef.base import Array, Op, op
from irc.opdef.builder import Builder
from irc.opdef.codecs import Bool, Codec, DTypeAttr, Enum, Reading
from irc.opdef.contents import Contents
from irc.opdef.elementwise import Elementwise
from irc.opdef.forms import Attributes, Form, Results
from irc.opdef.signature import Sig
from irc.ops.arithmetic import OV_NUMERIC

F8_LARGEST = {"f8e4m3fn": 448.0, "f8e4m3fnuz": 240.0, "f8e5m2": 57344.0, "f8e5m2fnuz": 57344.0}
UINT8_MASKS = {"u1": 1, "u3": 7, "u6": 63}


def to_nf4(x: Array) -> Array:
    """The nearest of the 16 values, as f32."""
    table = np.array(NF4_VALUES, np.float32)
    middles = (table[1:] + table[:-1]) / 2
    return table[np.searchsorted(middles, x.astype(np.float32), side="left")]


def to_e8m0(x: Array, round_mode: str, saturate: bool, kind: NumpyType) -> Array:
    """The power of two next to |x|, rounded in the direction `round_mode`; the byte is its exponent + 127, 255 NaN."""
    w = np.abs(x.astype(np.float64))
    mantissa, exponent = np.frexp(w)  # w = mantissa · 2^exponent, mantissa in 0.5..1
    power = exponent - 1
    if round_mode == "up":
        power = power + (mantissa > 0.5)
    elif round_mode == "nearest":
        power = power + (mantissa >= 0.75)
    power = np.where(w == 0, -127, power)
    too_large = (power > 127) | np.isinf(w)
    byte = np.clip(power, -127, 127) + 127
    byte = np.where(np.isnan(w) | (too_large & (not saturate)), 255, np.where(too_large, 254, byte))
    return byte.astype(np.uint8).view(kind)


def is_float(value: object) -> TypeGuard[float]:
    return isinstance(value, float | np.floating)


def text_of(value: object) -> str:
    """A number as ONNX writes it: NaN, INF, -INF, the fewest decimal digits, as Python places them."""
    if is_float(value):
        if np.isnan(value):
            return "NaN"
        if np.isinf(value):
            return "INF" if value > 0 else "-INF"
    if type(value) in (np.float32, np.float64):
        number: Any = value
        digits = np.format_float_scientific(number, trim="-", exp_digits=2)
        plain = -5 < int(digits.partition("e")[2]) < 16
        return np.format_float_positional(number, trim="0") if plain else digits
    return str(value)


def to_text(x: Array) -> Array:
    found = np.empty(x.shape, object)
    found.ravel()[:] = [text_of(v) for v in x.ravel()]
    return found


def from_text(x: Array, kind: NumpyType) -> Array:
    """Numbers written as decimal, in scientific notation, or NaN, INF, +INF, -INF in any case."""
    numbers = np.array([float(v) for v in x.ravel()], np.float64).reshape(x.shape)
    return numbers.astype(kind)


def check_numerals(words: Array) -> None:
    """Require that each word of a constant is a number."""
    for word in words.ravel():
        try:
            float(word)
        except ValueError:
            expected = "a number in decimal, NaN or INF"
            facts: Facts = {"op": "Cast", "attribute": "x", "value": repr(word), "expected": expected}
            raise Problem(operation.ATTRIBUTE_RANGE, **facts) from None


def convert(x: Array, to: str, kind: NumpyType, saturate: bool, round_mode: str) -> Array:
    """`x` in element type `to`, whose arrays are of `kind`."""
    if to == "dynamic":
        return x
    if to == "string":
        return x if x.dtype == object else to_text(x)
    if x.dtype.kind in "OUS":
        return from_text(x, np.dtype(np.float32) if to in F8_LARGEST else kind).astype(kind)
    if to == "bool":
        return x.astype(np.float32) != 0 if x.dtype.kind == "V" else x != 0
    if x.dtype.kind == "V" and x.dtype != kind:  # ml_dtypes converts not every pair; f32 holds all of these exactly
        x = x.astype(np.float32)
    if to == "nf4":
        return to_nf4(x)
    if to == "f8e8m0":
        return to_e8m0(x, round_mode, saturate, kind)
    if to in UINT8_MASKS:
        return x.astype(np.int64).astype(np.uint8) & UINT8_MASKS[to]
    if to in F8_LARGEST and saturate:
        w = x.astype(np.float64 if x.dtype == np.float64 else np.float32)
        return np.clip(w, -F8_LARGEST[to], F8_LARGEST[to]).astype(kind)
    if to in ("i4", "u4", "i2", "u2") and x.dtype != kind:
        return narrow_integer(x, to).astype(kind)
    return x.astype(kind)


def narrow_integer(x: Array, to: str) -> Array:
    """The low bits of the truncated value, in -2^(n-1).. or 0..2^n-1."""
    bits = int(to[1:])
    low = x.astype(np.int64) & ((1 << bits) - 1)
    return (
        np.where(low >= 1 << (bits - 1), low - (1 << bits), low).astype(np.int8)
        if to[0] == "i"
        else low.astype(np.uint8)
    )


# ---------------------------------------------------------------------------------- type sets
ONNX_CAST_1 = FLOATS | INTEGERS | {boolean}
ONNX_CAST = {
    1: ONNX_CAST_1,
    6: ONNX_CAST_1,
    9: ONNX_CAST_1 | {string},
    13: ONNX_CAST_1 | {string, bf16},
    19: ONNX_CAST_1 | {string, bf16} | F8,
    21: ONNX_CAST_1 | {string, bf16, i4, u4} | F8,
    23: ONNX_CAST_1 | {string, bf16, i4, u4, f4e2m1} | F8,
    24: ONNX_CAST_1 | {string, bf16, i4, u4, f4e2m1, f8e8m0} | F8,
    25: ONNX_CAST_1 | {string, bf16, i4, u4, f4e2m1, f8e8m0, i2, u2} | F8,
    28: ONNX_CAST_1 | {string, bf16, i4, u4, f4e2m1, f8e8m0, i2, u2, f6e2m3, f6e3m2} | F8,
}
OV_CONVERT = OV_NUMERIC | {boolean}
OV_CONVERT_ALL = OV_CONVERT | {u1, u2, u3, u4, u6, i4, nf4, f4e2m1, f8e4m3fn, f8e5m2, f8e8m0}
"""What the reader and constant folding convert too, besides the types the CPU executes."""
ROUND_MODES = Enum(["up", "down", "nearest"], "up")


class CastTarget(DTypeAttr):
    """ONNX `to`: opset 1 has the type's name, later ones its number."""

    def decode(self, raw: Attr, r: Reading) -> DType:
        if isinstance(raw, str) and r.format == "onnx":
            found = ONNX_NAMES.get(raw.upper())
            if found is None:
                raise r.bad(raw, f"one of {', '.join(ONNX_NAMES)}")
            return found
        found = super().decode(raw, r)
        if found == dynamic and r.format == "onnx":
            raise r.bad(raw, "an element type")
        return found


class CastTargetName(CastTarget):
    """As Cast-1 writes it."""

    def encode(self, value: AttributeValue, format: str) -> Attr:
        for name, dtype in ONNX_NAMES.items():
            if dtype == value:
                return name
        raise ValueError(f"{value} has no name in Cast-1")


def _onnx_names() -> dict[str, DType]:
    names = (
        "FLOAT f32",
        "UINT8 u8",
        "INT8 i8",
        "UINT16 u16",
        "INT16 i16",
        "INT32 i32",
        "INT64 i64",
        "BOOL bool",
        "FLOAT16 f16",
        "DOUBLE f64",
        "UINT32 u32",
        "UINT64 u64",
    )
    by_name = {d.name: d for d in ANY}
    return {n.split()[0]: by_name[n.split()[1]] for n in names}


ONNX_NAMES = _onnx_names()


# ------------------------------------------------------------------------------------ operations
def onnx_when(opset: int) -> Callable[[Cast, Value], bool]:
    """Whether ONNX's Cast of that opset has the target type."""

    def when(op: Cast, x: Value) -> bool:
        return op.to in ONNX_CAST[opset]

    return when


def write_constant(b: Builder, op: Cast, x: Value) -> Results:
    """A constant of a type ONNX lacks (u1, nf4 …) is converted now."""
    if x.array is None or op.to == dynamic:
        reason = f"it converts no {x.dtype} to {op.to}"
        raise Problem(conversion.CANNOT_EXPRESS, op=str(op), types=str(x.type), target="ONNX", reason=reason)
    return b.graph.add_constant(Constant.of(np.asarray(op.reference(x.array)), op.to), b.hint)


def cast_rows() -> tuple[Form, ...]:
    rows: list[Form] = []
    for opset, types in ONNX_CAST.items():
        attrs: dict[str, Codec] = {"to": CastTarget() if opset > 1 else CastTargetName()}
        if opset >= 19:
            attrs["saturate"] = Bool(True)
        if opset >= 24:
            attrs["round_mode"] = ROUND_MODES
        rows.append(
            Form("Cast", opset, attrs=attrs, T={"T1": types, "T2": types}, when=onnx_when(opset), write=write_constant)
        )
    return tuple(rows)


def read_convert(b: Builder, a: Attributes, x: Value) -> Results:
    """OpenVINO does not saturate to f8."""
    return b.Cast(x, to=a.to, saturate=a.to not in F8)


def openvino_when(op: Cast, x: Value) -> bool:
    return (
        op.to.ov is not None and (op.to == dynamic or op.to in OV_CONVERT_ALL) and (op.to not in F8 or not op.saturate)
    )


def write_convert(b: Builder, op: Cast, x: Value) -> Results:
    """Saturation to f8 by a Clip before the conversion."""
    if not (op.saturate and op.to in OV_CONVERT_ALL and op.to.name in F8_LARGEST):
        lacking = next((t for t in (x.dtype, op.to) if t.ov is None), None)
        reason = f"it has no element type {lacking}" if lacking else f"it converts no {x.dtype} to {op.to}"
        raise Problem(conversion.CANNOT_EXPRESS, op=str(op), types=str(x.type), target="OpenVINO", reason=reason)
    largest = F8_LARGEST[op.to.name]
    w = b.Cast(x, to=f32)
    return b.Cast(b.Clip(w, b.const(-largest, f32), b.const(largest, f32)), to=op.to, saturate=False)


@op
class Cast(Elementwise):
    """The operand in element type `to`.

    saturate: values beyond the range of an f8 become its largest (else NaN, or infinite where it has that).
    round_mode: for f8e8m0, which power of two: up, down or nearest.
    """

    to: DType
    saturate: bool = True
    round_mode: str = "up"
    sig = Sig("x: T1 -> y: T2", T1=ANY, T2=ANY)
    carries_contents = modular = True
    whole_floats = True

    def infer(self, x: Value) -> TensorType:
        if x.const is not None and x.dtype == string and self.to != string:
            check_numerals(x.const.array)
        return TensorType(self.to, x.tensor.shape)

    def result_types(self, inputs: Sequence[Value]) -> list[TensorType]:
        self.check(inputs)
        return [self.infer(*inputs)]

    def reference(self, x: Array) -> Array:
        return convert(x, self.to.name, self.to.numpy, self.saturate, self.round_mode)

    def contents(self, x: Array) -> Contents:
        """Whole numbers stay what they are, as far as they fit."""
        return x if self.to.is_integer or self.to.name in ("f32", "f64") else None

    def scalar(self, x: Expr) -> Expr:
        to = self.to
        if to == boolean:
            return x if x.dtype == boolean else x.ne(0)
        if to.name in F8_LARGEST and self.saturate:
            w = x.cast(x.dtype.compute if x.dtype.is_float else f32)
            return w.min(F8_LARGEST[to.name]).max(-F8_LARGEST[to.name]).cast(to)
        if to.name in UINT8_MASKS:
            return Bin("bitand", x.cast(u8), Const(UINT8_MASKS[to.name], u8)).cast(to)
        if to == f8e8m0:
            return power_of_two(x.cast(f32), self.round_mode, self.saturate)
        if to == nf4:
            return nearest_nf4(x.cast(f32))
        return x.cast(to)

    onnx = cast_rows()
    openvino = (
        Form(
            "Convert",
            1,
            attrs={"destination_type": DTypeAttr(assumed=dynamic, to="to")},
            T={"T1": OV_CONVERT_ALL, "T2": OV_CONVERT_ALL},
            read=read_convert,
            direct=True,
            judges=("saturate",),
            when=openvino_when,
            write=write_convert,
        ),
    )


def power_of_two(x: Expr, round_mode: str, saturate: bool) -> Expr:
    """`to_e8m0` of one f32: the power below |x|, then doubled where the mode says so."""
    w = Un("abs", x)
    near = w.max(2.0**-127).min(2.0**127).cast(f8e8m0).cast(f32)
    below = select(w.lt(near), near * 0.5, near).max(2.0**-127)
    found = below
    if round_mode == "up":
        found = select(below.lt(w), below * 2.0, below)
    elif round_mode == "nearest":
        found = select((below * 1.5).le(w), below * 2.0, below)
    found = select(w.eq(float("inf")), w, found)
    return (found.min(2.0**127) if saturate else found).cast(f8e8m0)


def nearest_nf4(x: Expr) -> Expr:
    table = np.array(NF4_VALUES, np.float32)
    middles = (table[1:] + table[:-1]) / 2
    found: Expr = Const(float(table[-1]), f32)
    for value, middle in zip(table[-2::-1], middles[::-1], strict=True):
        found = select(x.le(float(middle)), Const(float(value), f32), found)
    return found.cast(nf4)


def read_convert_like(b: Builder, a: Attributes, x: Value, like: Value) -> Value:
    """OpenVINO's narrow floats of eight bits do not saturate."""
    return b.CastLike(x, like, saturate=like.dtype not in F8)


def says_saturation(op: CastLike, x: Value, like: Value) -> bool:
    return like.dtype not in F8 or not op.saturate


@op
class CastLike(Op):
    """The first operand in the second's element type; the second's elements do not matter."""

    saturate: bool = True
    round_mode: str = "up"
    sig = Sig("x: T1, like: T2 -> y: T2", T1=ANY, T2=ANY)

    def infer(self, x: Value, like: Value) -> TensorType:
        return TensorType(like.dtype, x.tensor.shape)

    def result_types(self, inputs: Sequence[Value]) -> list[TensorType]:
        self.check(inputs)
        return [self.infer(*inputs)]

    def decompose(self, b: Builder, x: Value, like: Value) -> Value:
        return b.Cast(x, to=like.dtype, saturate=self.saturate, round_mode=self.round_mode)

    onnx = tuple(
        Form(
            "CastLike",
            n,
            T={"T1": ONNX_CAST[m], "T2": ONNX_CAST[m]},
            attrs={**({"saturate": Bool(True)} if n >= 19 else {}), **({"round_mode": ROUND_MODES} if n >= 24 else {})},
        )
        for n, m in ((15, 13), (19, 19), (21, 21), (23, 23), (24, 24), (25, 25))
    )
    openvino = (
        Form(
            "ConvertLike",
            1,
            T={"T1": OV_CONVERT_ALL, "T2": OV_CONVERT_ALL},
            judges=("saturate",),
            read=read_convert_like,
            direct=True,
            when=says_saturation,
        ),
    )
