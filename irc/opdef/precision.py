"""Narrow floats (f16, bf16, f8) in formulas of several steps: widen to f32, compute, round once."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from irc.arrays import Array
from irc.expr import Expr
from irc.ir.graph import Value
from irc.ir.types import FLOATS_BF16, f32
from irc.opdef.builder import Builder
from irc.opdef.forms import Attributes, Read, Results


def wide(x: Array) -> Array:
    """The array in the type its arithmetic is done in: f32 for narrow floats."""
    return x.astype(np.float32) if x.dtype.itemsize < 4 and x.dtype.kind not in "iub" else x


def rounded(y: Array, like: Array) -> Array:
    """The array in the element type of `like`."""
    return y if y.dtype == like.dtype else y.astype(like.dtype)


Formula = Callable[[Expr], Expr] | Callable[[Expr, Expr], Expr] | Callable[[Expr, Expr, Expr], Expr]


def widely(formula: Formula) -> Callable[..., Expr]:
    """A scalar formula that computes narrow floats in f32 and rounds at the end."""

    def scalar(*args: Expr) -> Expr:
        compute: Callable[..., Expr] = formula
        return compute(*[a.cast(a.dtype.compute) for a in args]).cast(args[0].dtype)

    return scalar


def widened(b: Builder, x: Value) -> Value:
    """The value in the type its arithmetic is done in."""
    return x if x.dtype == x.dtype.compute else b.Cast(x, to=x.dtype.compute)


def narrowed(b: Builder, x: Value, like: Value) -> Value:
    """The value in the element type of `like`."""
    return x if x.dtype == like.dtype else b.Cast(x, to=like.dtype)


def float_read(name: str) -> Read:
    """`read` of OpenVINO operations that take integers too: computed in f32, rounded to the nearest (even)."""

    def read(b: Builder, a: Attributes, x: Value) -> Results:
        op = b.operation(name)
        if x.dtype in FLOATS_BF16 or x.dtype.kind == "?":
            return op(x)
        y = op(b.Cast(x, to=f32))
        return b.Cast(b.Round(y) if x.dtype.is_integer else y, to=x.dtype)

    return read
