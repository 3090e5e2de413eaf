"""Arithmetic: the four operations, powers, remainders, signs, rounding.

Integers wrap modulo 2ⁿ; f16, bf16 and f8 are computed in f32 and rounded.  Sources: ONNX operator
pages of the same names; OpenVINO specification, "Arithmetic operations".
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from irc.diagnostics import Problem
from irc.diagnostics.codes import conversion
from irc.expr import Bin, Const, Expr, Un, call, select
from irc.ir.dim import Dim
from irc.ir.graph import Value
from irc.ir.types import (
    FLOATS,
    FLOATS_BF16,
    INTEGERS,
    NUMERIC,
    TensorType,
    bf16,
    f16,
    f32,
    f64,
    i8,
    i16,
    i32,
    i64,
    u8,
    u16,
    u32,
    u64,
)
from irc.opdef.base import Array, Op, op
from irc.opdef.broadcasting import AUTO_BROADCAST, LEGACY_BROADCAST, LEGACY_BROADCAST_6, broadcast_shapes
from irc.opdef.builder import Builder
from irc.opdef.codecs import Bool, Enum, Ignored
from irc.opdef.contents import Assuming, Contents
from irc.opdef.elementwise import Elementwise, auto_read, binary, legacy_read, legacy_write, unary
from irc.opdef.forms import PREV, Attributes, Declined, Form, Read, Results, write_only
from irc.opdef.precision import float_read, narrowed, rounded, wide, widely, widened
from irc.opdef.signature import Sig
from irc.ops.early_onnx import write_mod_of_whole, write_round_to_even

WIDE_INTS = frozenset({i32, i64, u32, u64})
NARROW_INTS = frozenset({i8, i16, u8, u16})
OV_NUMERIC = frozenset({f64, f32, f16, bf16, i8, i16, i32, i64, u8, u16, u32, u64})


def legacy_rows(name: str) -> tuple[Form, ...]:
    """The ONNX rows of Add, Sub, Mul, Div: legacy broadcasting until 6, NumPy's from 7 on."""
    return (
        Form(name, 1, attrs=LEGACY_BROADCAST, T=FLOATS, read=legacy_read(name), direct=True, write=legacy_write(name)),
        Form(name, 6, attrs=LEGACY_BROADCAST_6, T=FLOATS | WIDE_INTS),
        Form(name, 7, attrs={}, read=None, write=None),
        Form(name, 13, T=PREV | {bf16}),
        Form(name, 14, T=PREV | NARROW_INTS),
    )


def openvino_rows(name: str, canonical: str) -> tuple[Form, ...]:
    """The OpenVINO row of a binary operation with `auto_broadcast`."""
    return (Form(name, 1, attrs=AUTO_BROADCAST, T=OV_NUMERIC, read=auto_read(canonical), direct=True),)


Add = binary(
    "Add",
    "x + y",
    np.add,
    lambda x, y: x + y,
    T=NUMERIC,
    commutative=True,
    carries_contents=True,
    whole_floats=True,
    modular=True,
    onnx=legacy_rows("Add"),
    openvino=openvino_rows("Add", "Add"),
)
Sub = binary(
    "Sub",
    "x - y",
    np.subtract,
    lambda x, y: x - y,
    T=NUMERIC,
    carries_contents=True,
    whole_floats=True,
    modular=True,
    onnx=legacy_rows("Sub"),
    openvino=openvino_rows("Subtract", "Sub"),
)
Mul = binary(
    "Mul",
    "x · y",
    np.multiply,
    lambda x, y: x * y,
    T=NUMERIC,
    commutative=True,
    carries_contents=True,
    whole_floats=True,
    modular=True,
    onnx=legacy_rows("Mul"),
    openvino=openvino_rows("Multiply", "Mul"),
)


def truncated_quotient(x: Dim, y: Dim) -> Dim:
    """x / y towards zero; y > 0."""
    if x.bounds()[0] >= 0:
        return x // y
    return x.maximum(0) // y - (-x).maximum(0) // y


def quotients(of: Callable[[Dim, Dim], Dim], x: Array, y: Array) -> Contents:
    """`of` each dividend and divisor; assuming that a size that divides is not 0.  None where the sign is unknown."""
    divisors = [Dim.of(d) for d in y.flat]
    if any(d == 0 or d.bounds()[0] < 0 for d in divisors):
        return None
    found = np.frompyfunc(lambda a, b: of(Dim.of(a), Dim.of(b)), 2, 1)(x, y)
    return found if all(d.bounds()[0] > 0 for d in divisors) else Assuming(found)


@op
class Div(Elementwise):
    """x / y.  Integers truncate towards zero; division by zero gives 0.

    OpenVINO's `m_pythondiv` (round down) is part of its specification, but its CPU plugin truncates whatever
    it says; irc follows the plugin, and writes what it computes (`m_pythondiv="false"`).
    """

    sig = Sig("x: T, y: T -> z: T", T=NUMERIC)
    carries_contents = True

    def reference(self, x: Array, y: Array) -> Array:
        if x.dtype.kind not in "iu":
            return np.divide(x, y)
        if x.dtype.kind == "u":
            return np.where(y == 0, 0, np.floor_divide(x, np.where(y == 0, 1, y))).astype(x.dtype)
        down = np.floor_divide(x, np.where(y == 0, 1, y))
        inexact = (down * np.where(y == 0, 1, y) != x) & ((x < 0) != (y < 0))
        return np.where(y == 0, 0, down + inexact).astype(x.dtype)

    def contents(self, x: Array, y: Array) -> Contents:
        return quotients(truncated_quotient, x, y)

    def scalar(self, x: Expr, y: Expr) -> Expr:
        return x / y

    onnx = legacy_rows("Div")
    openvino = (
        Form(
            "Divide",
            1,
            attrs={"m_pythondiv": Bool(False), **AUTO_BROADCAST},
            T=OV_NUMERIC,
            read=auto_read("Div"),
            direct=True,
        ),
    )


# ------------------------------------------------------------------- powers and remainders
INT_POWERS = FLOATS | {i32, i64}


def power(x: Array, y: Array) -> Array:
    """x ** y in x's type; an integer to a negative power truncates (0, except for 1 and -1)."""
    if x.dtype.kind not in "iu":
        return np.power(wide(x), y.astype(wide(x).dtype)).astype(x.dtype)
    if y.dtype.kind not in "iu":
        return np.power(x.astype(np.float64), y.astype(np.float64)).astype(x.dtype)
    positive = np.power(x, np.maximum(y, 0).astype(x.dtype))
    inverse = np.where(x == 1, 1, np.where((x.astype(np.int64) == -1), np.where(y % 2 == 0, 1, -1), 0))
    return np.where(y < 0, inverse, positive).astype(x.dtype)


def same_types(op: Pow, x: Value, y: Value) -> bool:
    """Whether both operands have one element type, as the form demands."""
    return x.dtype == y.dtype


def write_power(b: Builder, op: Pow, x: Value, y: Value) -> Results:
    """Both operands in one type, what OpenVINO and ONNX before opset 12 want; ONNX takes i32 and i64 only."""
    if x.dtype == y.dtype and x.dtype.is_integer and x.dtype not in (i32, i64):
        return b.Cast(b.Pow(b.Cast(x, to=i64), b.Cast(y, to=i64)), to=x.dtype)
    if x.dtype == y.dtype and x.dtype.is_float and x.shape != y.shape:  # ONNX before opset 7
        return legacy_write("Pow")(b, op, x, y)
    if x.dtype == y.dtype:
        types, reason = f"{x.type}, {y.type}", f"its Pow has no {x.dtype}"
        raise Problem(conversion.CANNOT_EXPRESS, op="Pow", types=types, target="this opset", reason=reason)
    if x.dtype.is_integer and y.dtype.is_float:
        return b.Cast(b.Pow(b.Cast(x, to=y.dtype), y), to=x.dtype)
    return b.Pow(x, b.Cast(y, to=x.dtype))


@op
class Pow(Elementwise):
    """x to the power y, in x's element type, which y need not share.

    Integer powers wrap; a negative exponent of an integer truncates the fraction.
    """

    sig = Sig("x: T, y: T1 -> z: T", T=NUMERIC, T1=NUMERIC)

    def infer(self, x: Value, y: Value) -> TensorType:
        return TensorType(x.dtype, broadcast_shapes("Pow", [x.shape, y.shape]))

    def reference(self, x: Array, y: Array) -> Array:
        return power(x, y)

    def scalar(self, x: Expr, y: Expr) -> Expr:
        if x.dtype.is_float:
            wide_type = x.dtype.compute
            return call("pow", x.cast(wide_type), y.cast(wide_type)).cast(x.dtype)
        if y.dtype.is_float:
            return call("pow", x.cast(f64), y.cast(f64)).cast(x.dtype)
        if x.dtype == y.dtype:
            return Bin("pow", x, y)
        common = u64 if not (x.dtype.is_signed or y.dtype.is_signed) else i64
        return Bin("pow", x.cast(common), y.cast(common)).cast(x.dtype)

    onnx = (
        Form(
            "Pow",
            1,
            attrs=LEGACY_BROADCAST_6,
            T={"T": FLOATS, "T1": FLOATS},
            read=legacy_read("Pow"),
            direct=True,
            write=write_power,
            when=same_types,
        ),
        Form("Pow", 7, attrs={}, read=None),
        Form("Pow", 12, T={"T": INT_POWERS, "T1": FLOATS | INTEGERS}, when=None),
        Form("Pow", 13, T={"T": INT_POWERS | {bf16}}),
        Form("Pow", 15, T={"T1": PREV | {bf16}}),
    )
    openvino = (
        Form(
            "Power",
            1,
            attrs=AUTO_BROADCAST,
            T={"T": OV_NUMERIC, "T1": OV_NUMERIC},
            read=auto_read("Pow"),
            direct=True,
            when=same_types,
            write=write_power,
        ),
    )


def remainder(x: Array, y: Array, truncated: bool) -> Array:
    """The remainder with the sign of y, or of x if truncated; an integer modulo 0 is 0."""
    if x.dtype.kind not in "iu":
        return (np.fmod if truncated else np.mod)(wide(x), wide(y)).astype(x.dtype)
    safe = np.where(y == 0, 1, y).astype(y.dtype)
    return np.where(y == 0, 0, (np.fmod if truncated else np.mod)(x, safe)).astype(x.dtype)


def write_floor_mod(b: Builder, op: Mod, x: Value, y: Value) -> Value:
    """ONNX has floats with fmod=1 only: a remainder of the other sign than y gets y added."""
    rest, zero = b.Mod(x, y, fmod=True), b.const(0, x.dtype)
    other = b.And(b.Xor(b.Less(rest, zero), b.Less(y, zero)), b.Not(b.Equal(rest, zero)))
    return b.Where(other, b.Add(rest, y), rest)


def whole_or_fmod(op: Mod, x: Value, y: Value) -> bool:
    return op.fmod or x.dtype.is_integer


def floored(op: Mod, x: Value, y: Value) -> bool:
    """OpenVINO's FloorMod of floats is NaN if the divisor is infinite."""
    return not op.fmod and (y.dtype.is_integer or (y.array is not None and bool(np.isfinite(wide(y.array)).all())))


def write_infinite(b: Builder, op: Mod, x: Value, y: Value) -> Value:
    """OpenVINO: an infinite divisor leaves what has its sign, and takes the place of the rest."""
    if op.fmod or y.dtype.is_integer:
        raise Declined
    end = b.like(float("inf"), x)
    infinite = b.And(b.Less(b.Abs(x), end), b.Equal(b.Abs(y), end))
    other = b.And(b.Xor(b.Less(x, b.like(0, x)), b.Less(y, b.like(0, y))), b.NotEqual(x, b.like(0, x)))
    return b.Where(infinite, b.Where(other, y, x), write_floor_mod(b, op, x, y))


def truncated(op: Mod, x: Value, y: Value) -> bool:
    return op.fmod


@op
class Mod(Elementwise):
    """The remainder of x / y: with the sign of y, or with `fmod` of x.  An integer modulo 0 is 0."""

    fmod: bool = False
    sig = Sig("x: T, y: T -> z: T", T=NUMERIC)
    carries_contents = True

    def reference(self, x: Array, y: Array) -> Array:
        return remainder(x, y, self.fmod)

    def contents(self, x: Array, y: Array) -> Contents:
        def rest(a: Dim, b: Dim) -> Dim:
            return a - b * truncated_quotient(a, b) if self.fmod else a % b

        return quotients(rest, x, y)

    def scalar(self, x: Expr, y: Expr) -> Expr:
        return call("fmod", x, y) if self.fmod else x % y

    onnx = (
        Form("Mod", 10, attrs={"fmod": Bool(False)}, T=FLOATS | INTEGERS, when=whole_or_fmod, write=write_floor_mod),
        Form("Mod", 13, T=PREV | {bf16}),
        Form("Mod", 28),
        write_only(write_mod_of_whole),
    )
    openvino = (
        Form(
            "FloorMod",
            1,
            attrs=AUTO_BROADCAST,
            T=OV_NUMERIC,
            read=auto_read("Mod"),
            direct=True,
            judges=("fmod",),
            when=floored,
        ),
        Form(
            "Mod",
            1,
            attrs=AUTO_BROADCAST,
            T=OV_NUMERIC,
            read=auto_read("Mod", fmod=True),
            direct=True,
            judges=("fmod",),
            when=truncated,
        ),
        write_only(write_infinite),
    )


# ------------------------------------------------------------------------- signs and rounding
SIGNED = frozenset({i8, i16, i32, i64})


def signum(x: Array) -> Array:
    """-1, 0 or 1; NaN of NaN."""
    return np.sign(x)


def sign_expr(x: Expr) -> Expr:
    one, minus = Const(1, x.dtype), Const(-1, x.dtype)
    if not x.dtype.is_signed:
        return select(x.eq(0), x, one)
    return select(
        x.lt(0),
        minus,
        select(Const(0, x.dtype).lt(x), one, x if x.dtype.is_integer else select(x.eq(0), Const(0.0, x.dtype), x)),
    )


def read_rounding(name: str) -> Read:
    """`read` of OpenVINO's rounding functions: integers are whole already."""

    def read(b: Builder, a: Attributes, x: Value) -> Results:
        return (
            b.Identity(x)
            if x.dtype.is_integer
            else b.operation(name)(x, **({"mode": a.mode} if name == "Round" else {}))
        )

    return read


def absolute_sizes(op: Op, x: Array) -> Contents:
    """|x| of integers that are known symbolically."""
    return np.frompyfunc(absolute_size, 1, 1)(x)


def absolute_size(d: Dim) -> Dim:
    return d.maximum(-d)


Neg = unary(
    "Neg",
    "-x",
    np.negative,
    lambda x: -x,
    T=NUMERIC,
    carries_contents=True,
    modular=True,
    onnx=(
        Form("Neg", 1, attrs={"consumed_inputs": Ignored()}, T=FLOATS),
        Form("Neg", 6, attrs={}, T=PREV | SIGNED),
        Form("Neg", 13, T=PREV | {bf16}),
    ),
    openvino=(Form("Negative", 1, T=OV_NUMERIC),),
)
Abs = unary(
    "Abs",
    "|x|; the smallest integer stays itself",
    np.abs,
    lambda x: Un("abs", x) if x.dtype.is_signed else x,
    T=NUMERIC,
    carries_contents=True,
    contents=absolute_sizes,
    onnx=(
        Form("Abs", 1, attrs={"consumed_inputs": Ignored()}, T=FLOATS),
        Form("Abs", 6, attrs={}, T=FLOATS | INTEGERS),
        Form("Abs", 13, T=PREV | {bf16}),
    ),
    openvino=(Form("Abs", 1, T=OV_NUMERIC),),
)
Sign = unary(
    "Sign",
    "-1, 0 or 1; NaN of NaN",
    signum,
    sign_expr,
    T=NUMERIC,
    onnx=(Form("Sign", 9, T=FLOATS | INTEGERS), Form("Sign", 13, T=PREV | {bf16})),
    openvino=(Form("Sign", 1, T=OV_NUMERIC),),
)


def rounding_rows(name: str) -> tuple[Form, ...]:
    """ONNX rows of a float function that exists since opset 1."""
    return (
        Form(name, 1, attrs={"consumed_inputs": Ignored()}, T=FLOATS),
        Form(name, 6, attrs={}),
        Form(name, 13, T=PREV | {bf16}),
    )


Floor = unary(
    "Floor",
    "The largest whole number not above x",
    np.floor,
    lambda x: call("floor", x),
    T=FLOATS_BF16,
    onnx=rounding_rows("Floor"),
    openvino=(Form("Floor", 1, T=OV_NUMERIC, read=read_rounding("Floor"), direct=True),),
)
Ceil = unary(
    "Ceil",
    "The smallest whole number not below x",
    np.ceil,
    lambda x: call("ceil", x),
    T=FLOATS_BF16,
    onnx=rounding_rows("Ceil"),
    openvino=(Form("Ceiling", 1, T=OV_NUMERIC, read=read_rounding("Ceil"), direct=True),),
)


def write_round_away(b: Builder, op: Round, x: Value) -> Results:
    """ONNX rounds halves to even only: away from zero is the whole part, plus the sign where half or more is left."""
    size = b.Abs(x)
    whole = b.Floor(size)
    up = b.GreaterOrEqual(b.Sub(size, whole), b.const(0.5, x.dtype))
    return b.Mul(b.Sign(x), b.Add(whole, b.Cast(up, to=x.dtype)))


@op
class Round(Elementwise):
    """The nearest whole number; halves go to the even one, or away from zero."""

    mode: str = "half_to_even"
    sig = Sig("x: T -> y: T", T=FLOATS_BF16)

    def reference(self, x: Array) -> Array:
        if self.mode == "half_to_even":
            return np.rint(x)
        whole = np.trunc(wide(x))
        return (whole + np.copysign(np.abs(wide(x) - whole) >= 0.5, wide(x))).astype(x.dtype)

    def scalar(self, x: Expr) -> Expr:
        return call("round" if self.mode == "half_to_even" else "round_away", x)

    onnx = (
        Form("Round", 11, T=FLOATS, write=write_round_away),
        Form("Round", 22, T=PREV | {bf16}),
        write_only(write_round_to_even),
    )
    openvino = (
        Form(
            "Round",
            5,
            T=OV_NUMERIC,
            read=read_rounding("Round"),
            direct=True,
            attrs={"mode": Enum(["half_to_even", "half_away_from_zero"], "half_to_even")},
        ),
    )


def reciprocal(x: Array) -> Array:
    return (1.0 / wide(x)).astype(x.dtype)


def write_reciprocal(b: Builder, op: Op, x: Value) -> Value:
    return b.Div(b.const(1.0, x.dtype), x)


Reciprocal = unary(
    "Reciprocal",
    "1 / x",
    reciprocal,
    lambda x: Const(1.0, x.dtype) / x,
    T=FLOATS | {bf16},
    onnx=rounding_rows("Reciprocal"),
    openvino=(write_only(write_reciprocal),),
)
Sqrt = unary(
    "Sqrt",
    "The square root; NaN below 0",
    np.sqrt,
    lambda x: call("sqrt", x),
    T=FLOATS | {bf16},
    onnx=rounding_rows("Sqrt"),
    openvino=(Form("Sqrt", 1, T=OV_NUMERIC, read=float_read("Sqrt"), direct=True),),
)


def squared_difference(x: Array, y: Array) -> Array:
    d = wide(x) - wide(y)
    return rounded(d * d, x)


def write_squared_difference(b: Builder, op: Op, x: Value, y: Value) -> Results:
    d = b.Sub(widened(b, x), widened(b, y))
    return narrowed(b, b.Mul(d, d), x)


SquaredDifference = binary(
    "SquaredDifference",
    "(x - y)²",
    squared_difference,
    widely(lambda x, y: (x - y) * (x - y)),
    T=NUMERIC,
    commutative=True,
    onnx=(write_only(write_squared_difference),),
    openvino=openvino_rows("SquaredDifference", "SquaredDifference"),
)
