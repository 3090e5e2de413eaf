"""Operations on bits for ONNX versions that lack them: as arithmetic of i64, a bit at a time along a last axis."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from irc.arrays import Array
from irc.ir.graph import Value
from irc.ir.types import UINTS, DType, i64
from irc.opdef.base import Op
from irc.opdef.builder import Builder
from irc.opdef.conversions import as_i64, as_type
from irc.opdef.forms import Declined, Write

HALF = 32
"""Bits that are added up at once: ONNX Runtime sums i64 in f64."""


def unsigned(dtype: DType) -> DType:
    """The unsigned type of the same width."""
    return next(u for u in UINTS if u.bits == dtype.bits)


def weights_of(dtype: DType) -> Array:
    """What each bit of an integer in i64 counts for; the last, that of the sign, is negative."""
    count = min(dtype.bits + (dtype in UINTS), i64.bits)
    return np.append(1 << np.arange(count - 1, dtype=np.int64), np.left_shift(np.int64(-1), count - 1))


def bits_of(b: Builder, x: Value) -> Value:
    """The bits of x, 0 or 1 as i64, lowest first along a new last axis; the last one is whether x is negative."""
    wide = b.Unsqueeze(as_i64(b, x), [-1])
    weights = b.const(weights_of(x.dtype)[:-1])
    above = b.Div(b.Sub(wide, b.Mod(wide, weights)), weights)
    return b.Concat(b.Mod(above, b.const(2)), as_i64(b, b.Less(wide, b.const(0))), axis=-1)


def from_bits(b: Builder, bits: Value, dtype: DType) -> Value:
    """The integers of these bits."""
    weights = weights_of(dtype)

    def total(first: int, last: int) -> Value:
        terms = b.Mul(b.Slice(bits, [first], [last], [-1]), b.const(weights[first:last] >> first))
        return b.ReduceSum(terms, [-1], keepdims=False)

    low = total(0, min(HALF, weights.size))
    if weights.size > HALF:
        low = b.Add(low, b.Mul(total(HALF, weights.size), b.const(1 << HALF)))
    return as_type(b, low, dtype)


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
    if left:
        return b.Cast(b.BitShift(b.Cast(x, to=kind), b.Cast(y, to=kind), direction="LEFT"), to=x.dtype)
    wide = as_i64(b, x)
    negative = b.Less(wide, b.const(0))
    start = b.Cast(b.Where(negative, b.Sub(b.const(-1), wide), wide), to=kind)
    found = as_i64(b, b.BitShift(start, b.Cast(y, to=kind), direction="RIGHT"))
    return as_type(b, b.Where(negative, b.Sub(b.const(-1), found), found), x.dtype)


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
