"""Operations of any number of operands, which broadcast: Min, Max, Sum, Mean.

Sources: ONNX operator pages of the same names; OpenVINO specification, "Minimum" and "Maximum".
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import reduce
from operator import add
from typing import ClassVar

import numpy as np

from irc.diagnostics import require
from irc.diagnostics.codes import operation, shape as shape_codes
from irc.expr import Expr
from irc.ir.dim import Dim
from irc.ir.graph import Value
from irc.ir.relation import every, same
from irc.ir.types import FLOATS, INTEGERS, NUMERIC, TensorType, bf16
from irc.opdef.base import Array, Op, op
from irc.opdef.builder import Builder
from irc.opdef.codecs import Ignored
from irc.opdef.contents import Contents
from irc.opdef.elementwise import Elementwise
from irc.opdef.forms import PREV, Attributes, Form, Read, Results, write_only
from irc.opdef.precision import narrowed, rounded, wide, widened
from irc.opdef.signature import Sig
from irc.ops.arithmetic import openvino_rows
from irc.ops.early_onnx import write_extreme


def one_shape(op: Op, *xs: Value) -> bool:
    """Whether all shapes are equal: before opset 8 these operations did not broadcast."""
    return all(x.shape == xs[0].shape for x in xs)


def read_one_shape(name: str) -> Read:
    """`read` before opset 8: the operands must have one shape."""

    def read(b: Builder, a: Attributes, *xs: Value) -> Results:
        for x in xs[1:]:
            equal = len(x.shape) == len(xs[0].shape) and every(*map(same, x.shape, xs[0].shape))
            require(equal, shape_codes.SHAPES_DIFFER, op=name, first=xs[0].tensor, second=x.tensor)
        return b.operation(name)(*xs)

    return read


def variadic_rows(name: str, *more: Form) -> tuple[Form, ...]:
    """ONNX rows of Min, Max, Sum, Mean until opset 8."""
    return (
        Form(
            name,
            1,
            attrs={"consumed_inputs": Ignored()},
            T=FLOATS,
            read=read_one_shape(name),
            direct=True,
            when=one_shape,
        ),
        Form(name, 6, attrs={}),
        Form(name, 8, read=None, when=None),
        *more,
    )


def chain(name: str) -> Callable[..., Value]:
    """`write` of a variadic operation as a chain of binary ones."""

    def write(b: Builder, op: Op, *xs: Value) -> Value:
        found = xs[0] if len(xs) > 1 else b.Identity(xs[0])  # pyright: ignore[reportGeneralTypeIssues]
        for x in xs[1:]:
            found = b.operation(name)(found, x)
        return found

    return write


class Variadic(Elementwise):
    """f(x0, x1, …) of any number of operands, which broadcast."""

    def infer(self, *xs: Value) -> TensorType:
        require(len(xs) > 0, operation.TOO_FEW_INPUTS, op=self.name, given=0, needed=1, operands=self.sig.operands)
        return super().infer(*xs)


TWO = Sig("x: T, y: T -> z: T", T=NUMERIC)


class Extreme(Variadic):
    """What Min and Max share."""

    widens = "any"
    sig = Sig("*xs: T -> y: T", T=NUMERIC)
    commutative = True
    carries_contents = True
    ufunc: ClassVar[np.ufunc]
    of_sizes: ClassVar[staticmethod[[Dim, Dim], Dim]]
    of_exprs: ClassVar[staticmethod[[Expr, Expr], Expr]]

    def reference(self, *xs: Array) -> Array:
        y = xs[0]
        for x in xs[1:]:
            y = self.ufunc(y, x)
        return y

    def contents(self, *xs: Array) -> Contents:
        return reduce(np.frompyfunc(lambda a, b: self.of_sizes(Dim.of(a), b), 2, 1), xs)

    def scalar(self, *xs: Expr) -> Expr:
        return reduce(self.of_exprs, xs)


def extreme_rows(name: str, canonical: str) -> tuple[Form, ...]:
    """The OpenVINO row of Min or Max: two operands, so that more become a chain."""
    (row,) = openvino_rows(name, canonical)
    return (replace(row, sig=TWO, write=chain(canonical)),)


@op
class Min(Extreme):
    """The smallest of the operands, element by element; NaN where one is NaN."""

    ufunc, of_sizes, of_exprs = np.minimum, staticmethod(Dim.minimum), staticmethod(Expr.min)
    onnx = (
        *variadic_rows("Min", Form("Min", 12, T=FLOATS | INTEGERS), Form("Min", 13, T=PREV | {bf16})),
        write_only(write_extreme(largest=False)),
    )
    openvino = extreme_rows("Minimum", "Min")


@op
class Max(Extreme):
    """The largest of the operands, element by element; NaN where one is NaN."""

    ufunc, of_sizes, of_exprs = np.maximum, staticmethod(Dim.maximum), staticmethod(Expr.max)
    onnx = (
        *variadic_rows("Max", Form("Max", 12, T=FLOATS | INTEGERS), Form("Max", 13, T=PREV | {bf16})),
        write_only(write_extreme(largest=True)),
    )
    openvino = extreme_rows("Maximum", "Max")


def write_sum(b: Builder, op: Sum, *xs: Value) -> Results:
    return narrowed(b, chain("Add")(b, op, *[widened(b, x) for x in xs]), xs[0])


def write_mean(b: Builder, op: Mean, *xs: Value) -> Results:
    total = chain("Add")(b, op, *[widened(b, x) for x in xs])
    return narrowed(b, b.Div(total, b.const(len(xs), total.dtype)), xs[0])


def total(xs: Sequence[Array]) -> Array:
    """The sum from the left, in the type it is computed in."""
    y = wide(xs[0])
    for x in xs[1:]:
        y = y + wide(x)
    return y


def total_scalar(xs: Sequence[Expr]) -> Expr:
    """The sum from the left, in the type it is computed in."""
    return reduce(add, [x.cast(xs[0].dtype.compute) for x in xs])


@op
class Sum(Variadic):
    """x0 + x1 + …, from the left; narrow floats are summed in f32."""

    sig = Sig("*xs: T -> y: T", T=FLOATS | {bf16})

    def reference(self, *xs: Array) -> Array:
        return rounded(total(xs), xs[0])

    def scalar(self, *xs: Expr) -> Expr:
        return total_scalar(xs).cast(xs[0].dtype)

    onnx = variadic_rows("Sum", Form("Sum", 13, T=PREV | {bf16}))
    openvino = (write_only(write_sum),)


@op
class Mean(Variadic):
    """(x0 + x1 + …) / their number; narrow floats are computed in f32."""

    sig = Sig("*xs: T -> y: T", T=FLOATS | {bf16})

    def reference(self, *xs: Array) -> Array:
        return rounded(total(xs) / len(xs), xs[0])

    def scalar(self, *xs: Expr) -> Expr:
        return (total_scalar(xs) / float(len(xs))).cast(xs[0].dtype)

    onnx = variadic_rows("Mean", Form("Mean", 13, T=PREV | {bf16}))
    openvino = (write_only(write_mean),)
