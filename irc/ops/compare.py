"""Comparisons, and tests for NaN and infinity.  Results are boolean.

Sources: ONNX operator pages of the same names; OpenVINO specification, "Comparison operations", IsNaN, IsInf,
IsFinite.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import ClassVar

import numpy as np

from irc.expr import Const, Expr, Un
from irc.ir.dim import Dim
from irc.ir.graph import Value
from irc.ir.types import (
    F8,
    FLOATS,
    FLOATS_BF16,
    INTEGERS,
    NUMERIC,
    TensorType,
    bf16,
    boolean,
    f8e4m3fn,
    f8e5m2,
    f32,
    f64,
    i32,
    i64,
    string,
)
from irc.opdef.base import Array, Op, op
from irc.opdef.broadcasting import AUTO_BROADCAST, LEGACY_BROADCAST_6
from irc.opdef.builder import Builder
from irc.opdef.codecs import Bool
from irc.opdef.contents import Contents
from irc.opdef.elementwise import Elementwise, auto_read, comparison, legacy_read, legacy_write
from irc.opdef.forms import PREV, Form, Types, write_only
from irc.opdef.precision import wide
from irc.opdef.signature import Sig
from irc.ops.arithmetic import OV_NUMERIC
from irc.ops.early_onnx import write_equal_by_order

OV_COMPARED = OV_NUMERIC | {boolean}
COMPARED = NUMERIC | {boolean}


def openvino_rows(name: str, canonical: str) -> tuple[Form, ...]:
    return (Form(name, 1, attrs=AUTO_BROADCAST, T=OV_COMPARED, read=auto_read(canonical), direct=True),)


def legacy_row(name: str, T: Types) -> Form:
    """The ONNX row before opset 7."""
    return Form(name, 1, attrs=LEGACY_BROADCAST_6, T=T, read=legacy_read(name), direct=True, write=legacy_write(name))


def _not(known: bool | None) -> bool | None:
    return None if known is None else not known


def decided(compare: Callable[[Dim, Dim], bool | None]) -> dict[str, object]:
    """Members for a comparison of sizes: known where it does not depend on the symbols."""

    def contents(self: Op, x: Array, y: Array) -> Contents:
        found = np.vectorize(compare, otypes=[object])(x, y)
        return None if any(f is None for f in found.flat) else np.vectorize(Dim.of, otypes=[object])(found)

    return {"carries_contents": True, "whole_floats": True, "contents": contents}


Equal = comparison(
    "Equal",
    "x == y; NaN equals nothing",
    np.equal,
    lambda x, y: x.eq(y),
    T=COMPARED | {string},
    commutative=True,
    onnx=(
        legacy_row("Equal", {boolean, i32, i64}),
        Form("Equal", 7, attrs={}, read=None, write=None),
        Form("Equal", 11, T=FLOATS | INTEGERS | {boolean}),
        Form("Equal", 13, T=PREV | {bf16}),
        Form("Equal", 19, T=PREV | {string}),
        write_only(write_equal_by_order),
    ),
    openvino=openvino_rows("Equal", "Equal"),
    **decided(lambda a, b: a.equals(b)),
)


def write_not_equal(b: Builder, op: Op, x: Value, y: Value) -> Value:
    return b.Not(b.Equal(x, y))


NotEqual = comparison(
    "NotEqual",
    "x != y; NaN differs from everything",
    np.not_equal,
    lambda x, y: x.ne(y),
    T=COMPARED,
    commutative=True,
    onnx=(write_only(write_not_equal),),
    openvino=openvino_rows("NotEqual", "NotEqual"),
    **decided(lambda a, b: _not(a.equals(b))),
)


def order_rows(name: str) -> tuple[Form, ...]:
    """ONNX rows of Less and Greater."""
    return (
        legacy_row(name, FLOATS),
        Form(name, 7, attrs={}, read=None, write=None),
        Form(name, 9, T=FLOATS | INTEGERS),
        Form(name, 13, T=PREV | {bf16}),
    )


def order_equal_rows(name: str, strict: str) -> tuple[Form, ...]:
    """ONNX rows of LessOrEqual and GreaterOrEqual; before opset 12 they are written as `strict` or equal."""

    def write_or_equal(b: Builder, op: Op, x: Value, y: Value) -> Value:
        return b.Or(getattr(b, strict)(x, y), b.Equal(x, y))

    return (write_only(write_or_equal, since=7), Form(name, 12, T=FLOATS | INTEGERS), Form(name, 16, T=PREV | {bf16}))


Less = comparison(
    "Less",
    "x < y",
    np.less,
    lambda x, y: x.lt(y),
    T=COMPARED,
    onnx=order_rows("Less"),
    openvino=openvino_rows("Less", "Less"),
    **decided(lambda a, b: a.less_than(b)),
)
LessOrEqual = comparison(
    "LessOrEqual",
    "x <= y",
    np.less_equal,
    lambda x, y: x.le(y),
    T=COMPARED,
    onnx=order_equal_rows("LessOrEqual", "Less"),
    openvino=openvino_rows("LessEqual", "LessOrEqual"),
    **decided(lambda a, b: a.at_most(b)),
)
Greater = comparison(
    "Greater",
    "x > y",
    np.greater,
    lambda x, y: x.gt(y),
    T=COMPARED,
    onnx=order_rows("Greater"),
    openvino=openvino_rows("Greater", "Greater"),
    **decided(lambda a, b: b.less_than(a)),
)
GreaterOrEqual = comparison(
    "GreaterOrEqual",
    "x >= y",
    np.greater_equal,
    lambda x, y: x.ge(y),
    T=COMPARED,
    onnx=order_equal_rows("GreaterOrEqual", "Greater"),
    openvino=openvino_rows("GreaterEqual", "GreaterOrEqual"),
    **decided(lambda a, b: b.at_most(a)),
)


# ------------------------------------------------------------------------- NaN and infinity
OV_CLASSED = FLOATS_BF16 | {f8e4m3fn, f8e5m2}


class Test(Elementwise):
    """A boolean for each element of one float operand."""

    def infer(self, x: Value) -> TensorType:
        return TensorType(boolean, x.shape)

    def scalar(self, x: Expr) -> Expr:
        return self.test(x.cast(x.dtype.compute))

    test: ClassVar[Callable[..., Expr]]
    """test(self, x), where x is wide enough to compute with."""


def write_is_nan(b: Builder, op: Op, x: Value) -> Value:
    return b.NotEqual(x, x)


@op
class IsNaN(Test):
    """Whether x is NaN."""

    sig = Sig("x: T -> y: bool", T=FLOATS_BF16 | F8)

    def reference(self, x: Array) -> Array:
        return np.isnan(wide(x))

    def test(self, x: Expr) -> Expr:
        return x.ne(x)

    onnx = (Form("IsNaN", 9, T=FLOATS), Form("IsNaN", 13, T=PREV | {bf16}), Form("IsNaN", 20, T=PREV | F8))
    openvino = (Form("IsNaN", 10, T=OV_CLASSED), write_only(write_is_nan))


def write_is_infinite(b: Builder, op: IsInf, x: Value) -> Value:
    """OpenVINO before version 10: an infinity is equal to itself."""
    above, below = (b.Equal(x, b.like(limit, x)) for limit in (math.inf, -math.inf))
    if op.detect_positive and op.detect_negative:
        return b.Or(above, below)
    if not op.detect_positive and not op.detect_negative:
        return b.And(above, below)
    return above if op.detect_positive else below


def write_is_small(b: Builder, op: Op, x: Value) -> Value:
    """OpenVINO before version 10: what is less than infinity is no NaN either."""
    return b.Less(b.Abs(x), b.like(math.inf, x))


@op
class IsInf(Test):
    """Whether x is infinite, of the signs asked for."""

    detect_negative: bool = True
    detect_positive: bool = True
    sig = Sig("x: T -> y: bool", T=FLOATS_BF16 | F8)

    def reference(self, x: Array) -> Array:
        w = wide(x)
        return (
            np.isinf(w) & (w > 0 if not self.detect_negative else True) & (w < 0 if not self.detect_positive else True)
        )

    def test(self, x: Expr) -> Expr:
        if self.detect_negative and self.detect_positive:
            return Un("abs", x).eq(float("inf"))
        if not (self.detect_negative or self.detect_positive):
            return x.eq(x).logical_and(x.ne(x))
        return x.eq(float("-inf") if self.detect_negative else float("inf"))

    onnx = (
        Form("IsInf", 10, T={f32, f64}, attrs={"detect_negative": Bool(True), "detect_positive": Bool(True)}),
        Form("IsInf", 20, T=FLOATS_BF16 | F8),
    )
    openvino = (
        Form("IsInf", 10, T=OV_CLASSED, attrs={"detect_negative": Bool(True), "detect_positive": Bool(True)}),
        write_only(write_is_infinite),
    )


def write_is_finite(b: Builder, op: Op, x: Value) -> Value:
    return b.Not(b.Or(b.IsNaN(x), b.IsInf(x)))


@op
class IsFinite(Test):
    """Whether x is neither NaN nor infinite."""

    sig = Sig("x: T -> y: bool", T=FLOATS_BF16 | F8)

    def reference(self, x: Array) -> Array:
        return np.isfinite(wide(x))

    def test(self, x: Expr) -> Expr:
        return Un("abs", x).lt(Const(float("inf"), x.dtype))

    onnx = (write_only(write_is_finite, since=10),)
    openvino = (Form("IsFinite", 10, T=OV_CLASSED), write_only(write_is_small))
