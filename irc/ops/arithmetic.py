"""Arithmetic: the four operations, powers, remainders, signs, rounding.

Integers wrap modulo 2ⁿ; f16, bf16 and f8 are computed in f32 and rounded.  Sources: ONNX operator
pages of the same names; OpenVINO specification, "Arithmetic operations".
"""

from __future__ import annotations

from typing import Any

import numpy as np

from irc.expr import Expr
from irc.ir.graph import Value
from irc.ir.types import (
    FLOATS, NUMERIC, bf16, f16, f32, f64, i8, i16, i32, i64, u8, u16, u32, u64,
)  # fmt: skip
from irc.ops.base import Array, op
from irc.ops.broadcasting import AUTO_BROADCAST, LEGACY_BROADCAST, LEGACY_BROADCAST_6
from irc.ops.codecs import Bool
from irc.ops.elementwise import Elementwise, auto_read, binary, legacy_read
from irc.ops.forms import PREV, Form
from irc.ops.signature import Sig

WIDE_INTS = frozenset({i32, i64, u32, u64})
NARROW_INTS = frozenset({i8, i16, u8, u16})
OV_NUMERIC = frozenset({f64, f32, f16, bf16, i8, i16, i32, i64, u8, u16, u32, u64})


def same_shape(op: Any, x: Value, y: Value) -> bool:
    """Whether no broadcasting is needed: all that ONNX rows before opset 7 are written for."""
    return x.shape == y.shape


def legacy_rows(name: str) -> tuple[Form, ...]:
    """The ONNX rows of Add, Sub, Mul, Div: legacy broadcasting until 6, NumPy's from 7 on."""
    return (
        Form(name, 1, attrs=LEGACY_BROADCAST, T=FLOATS, read=legacy_read(name), direct=True, when=same_shape),
        Form(name, 6, attrs=LEGACY_BROADCAST_6, T=FLOATS | WIDE_INTS),
        Form(name, 7, attrs={}, read=None, when=None),
        Form(name, 13, T=PREV | {bf16}),
        Form(name, 14, T=PREV | NARROW_INTS),
    )


def openvino_rows(name: str, canonical: str) -> tuple[Form, ...]:
    """The OpenVINO row of a binary operation with `auto_broadcast`."""
    return (Form(name, 1, attrs=AUTO_BROADCAST, T=OV_NUMERIC, read=auto_read(canonical), direct=True),)


Add = binary(
    "Add", "x + y", np.add, lambda x, y: x + y, T=NUMERIC, commutative=True, carries_contents=True,
    onnx=legacy_rows("Add"), openvino=openvino_rows("Add", "Add"),
)  # fmt: skip
Sub = binary(
    "Sub", "x - y", np.subtract, lambda x, y: x - y, T=NUMERIC, carries_contents=True,
    onnx=legacy_rows("Sub"), openvino=openvino_rows("Subtract", "Sub"),
)  # fmt: skip
Mul = binary(
    "Mul", "x · y", np.multiply, lambda x, y: x * y, T=NUMERIC, commutative=True, carries_contents=True,
    onnx=legacy_rows("Mul"), openvino=openvino_rows("Multiply", "Mul"),
)  # fmt: skip


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

    def contents(self, x: Array, y: Array) -> Any:
        """Sizes are not negative, so truncation and rounding down agree."""
        return None if any(d == 0 for d in y.flat) else x // y

    def scalar(self, x: Expr, y: Expr) -> Expr:
        return x / y

    onnx = legacy_rows("Div")
    openvino = (
        Form(
            "Divide", 1, attrs={"m_pythondiv": Bool(False), **AUTO_BROADCAST}, T=OV_NUMERIC,
            read=auto_read("Div"), direct=True,
        ),
    )  # fmt: skip
