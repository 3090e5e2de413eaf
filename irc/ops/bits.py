"""Operations on bits for ONNX versions that lack them: as arithmetic of i64, a bit at a time along a last axis."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from irc.ir.graph import Value
from irc.ir.types import UINTS, DType, i64
from irc.opdef.base import Op
from irc.opdef.builder import Builder
from irc.opdef.conversions import as_i64, as_type
from irc.opdef.forms import Declined, Write

TOP = 63
"""The bit of an i64 whose weight is negative."""


def unsigned(dtype: DType) -> DType:
    """The unsigned type of the same width."""
    return next(u for u in UINTS if u.bits == dtype.bits)


def bits_of(b: Builder, x: Value) -> Value:
    """The bits of x, 0 or 1 as i64, lowest first along a new last axis; the last one is whether x is negative."""
    wide = b.Unsqueeze(as_i64(b, x), [-1])
    weights = b.const(1 << np.arange(TOP, dtype=np.int64))
    above = b.Div(b.Sub(wide, b.Mod(wide, weights)), weights)
    low = b.Mod(above, b.const(2))
    return b.Concat(low, as_i64(b, b.Less(wide, b.const(0))), axis=-1)


def from_bits(b: Builder, bits: Value, dtype: DType) -> Value:
    """The integers of these bits."""
    weights = np.append(1 << np.arange(TOP, dtype=np.int64), np.iinfo(np.int64).min)
    return as_type(b, b.ReduceSum(b.Mul(bits, b.const(weights)), [-1], keepdims=False), dtype)


def write_bits(combine: Callable[[Builder, Value, Value], Value]) -> Write:
    """`write` of an operation on the bits of two operands, in terms of one on 0 and 1."""

    def write(b: Builder, op: Op, x: Value, y: Value) -> Value:
        return from_bits(b, combine(b, bits_of(b, x), bits_of(b, y)), x.dtype)

    return write


def write_not(b: Builder, op: Op, x: Value) -> Value:
    """All bits inverted are -1 - x, modulo 2ⁿ."""
    return as_type(b, b.Sub(b.const(-1), as_i64(b, x)), x.dtype)


def write_shift(b: Builder, op: Op, x: Value, y: Value) -> Value:
    """Shifts of signed integers by those of unsigned ones."""
    if x.dtype in UINTS:
        raise Declined
    kind = unsigned(x.dtype)
    left = op.attributes()["direction"] == "LEFT"
    negative = b.Less(x, b.like(0, x))
    start = x if left else b.Where(negative, b.Sub(b.like(-1, x), x), x)
    moved = b.BitShift(b.Cast(start, to=kind), b.Cast(y, to=kind), direction=op.attributes()["direction"])
    found = b.Cast(moved, to=x.dtype)
    return found if left else b.Where(negative, b.Sub(b.like(-1, x), found), found)


def write_shift_by_powers(b: Builder, op: Op, x: Value, y: Value) -> Value:
    """Shifts as products with, or quotients of, powers of 2."""
    width = x.dtype.bits
    if width == i64.bits and x.dtype in UINTS and op.attributes()["direction"] == "RIGHT":
        raise Declined  # the quotient of a number that i64 does not hold
    wide, by = as_i64(b, x), as_i64(b, y)
    stays = b.And(b.Less(by, b.const(width)), b.GreaterOrEqual(by, b.const(0)))
    powers = b.const(np.left_shift(np.int64(1), np.arange(width, dtype=np.int64)))
    power = b.Gather(powers, b.Where(stays, by, b.const(0)), b.const(0))
    if op.attributes()["direction"] == "LEFT":
        found = b.Mul(wide, power)
        return as_type(b, b.Where(stays, found, b.const(0)), x.dtype)
    negative = b.Less(wide, b.const(0))
    start = b.Where(negative, b.Sub(b.const(-1), wide), wide)
    last = b.Equal(power, b.const(np.iinfo(np.int64).min))  # shifting by 63 leaves nothing of what is not negative
    found = b.Where(b.And(stays, b.Not(last)), b.Div(start, b.Where(last, b.const(1), power)), b.const(0))
    return as_type(b, b.Where(negative, b.Sub(b.const(-1), found), found), x.dtype)
