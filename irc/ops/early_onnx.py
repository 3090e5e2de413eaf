"""Operations that ONNX got later, or for fewer element types first, in those of opset 9."""

from __future__ import annotations

import numpy as np

from irc.ir.graph import Value
from irc.ir.types import f64, i64
from irc.opdef.base import Op
from irc.opdef.builder import Builder
from irc.opdef.conversions import as_i64, as_type, as_vector
from irc.opdef.forms import Declined, Write


def write_extreme(largest: bool) -> Write:
    """`write` of Max or Min of integers, before opset 12: a comparison chooses."""

    def write(b: Builder, op: Op, top: Value, *others: Value) -> Value:
        if top.dtype.is_float:
            raise Declined  # NaN is neither less nor greater
        found = top if others else b.Identity(top)
        for x in others:
            first, second = (found, x) if largest else (x, found)
            found = b.Where(b.Less(first, second), x, found)
        return found

    return write


def write_clip_by_extremes(b: Builder, op: Op, x: Value, lo: Value | None = None, hi: Value | None = None) -> Value:
    """Clip by Max and Min."""
    if lo is None and hi is None:
        return b.Identity(x)
    y = x if lo is None else b.Max(x, lo)
    return y if hi is None else b.Min(y, hi)


def write_equal_by_order(b: Builder, op: Op, x: Value, y: Value) -> Value:
    """Equal of numbers, before opset 11: neither less nor greater, and no NaN, whose size is not above -1."""
    if not (x.dtype.is_float or x.dtype.is_integer):
        raise Declined
    found = b.Not(b.Or(b.Less(x, y), b.Greater(x, y)))
    if x.dtype.is_float:
        for v in (x, y):
            found = b.And(found, b.Greater(b.Abs(v), b.like(-1, v)))
    return found


def write_mod_of_whole(b: Builder, op: Op, x: Value, y: Value) -> Value:
    """Mod of integers, before opset 10; modulo 0 is 0."""
    if not x.dtype.is_integer:
        raise Declined
    zero = b.like(0, x)
    y = y if y.array is not None and np.all(y.array != 0) else b.Where(b.Equal(y, zero), b.like(1, x), y)
    rest = b.Sub(x, b.Mul(b.Div(x, y), y))
    if op.attributes()["fmod"]:
        return rest
    other = b.And(b.Xor(b.Less(rest, zero), b.Less(y, zero)), b.Not(b.Equal(rest, zero)))
    return b.Where(other, b.Add(rest, y), rest)


def write_round_to_even(b: Builder, op: Op, x: Value) -> Value:
    """Round, before opset 11: half or more is rounded up, of an even number only more."""
    if op.attributes()["mode"] != "half_to_even":
        raise Declined
    half = b.like(0.5, x)
    whole = b.Floor(x)
    rest = b.Sub(x, whole)
    odd = b.Less(b.like(0, x), b.Sub(whole, b.Mul(b.Floor(b.Mul(whole, half)), b.like(2, x))))
    up = b.Or(b.Greater(rest, half), b.And(b.Equal(rest, half), odd))
    return b.Add(whole, b.Cast(up, to=x.dtype))


def counted(b: Builder, count: Value) -> Value:
    """The numbers 0, 1, … of an i64 vector of one element, before Range: the places of as many ones."""
    return b.Reshape(b.NonZero(b.Expand(b.const(1), count)), [-1])


def write_range_by_count(b: Builder, op: Op, start: Value, limit: Value, step: Value) -> Value:
    """Range, before opset 11."""
    if all(v.array is not None for v in (start, limit, step)):
        return b.graph.add_constant(op.reference(start.array, limit.array, step.array))
    first, last, by = (as_vector(b, as_type(b, v, i64 if v.dtype.is_integer else f64)) for v in (start, limit, step))
    if start.dtype.is_integer:
        beyond = b.Where(b.Less(b.const(0), by), b.const(-1), b.const(1))
        count = b.Div(b.Add(b.Add(b.Sub(last, first), by), beyond), by)
    else:
        count = b.Cast(b.Ceil(b.Div(b.Sub(last, first), by)), to=i64)
    numbers = counted(b, b.Max(count, b.const(0)))
    kind = start.dtype.compute
    from_start, step_wide = (as_type(b, b.Reshape(v, []), kind) for v in (start, step))
    return as_type(b, b.Add(from_start, b.Mul(b.Cast(numbers, to=kind), step_wide)), start.dtype)


def write_slice_by_places(
    b: Builder, op: Op, x: Value, starts: Value, ends: Value, axes: Value | None = None, steps: Value | None = None
) -> Value:
    """Slice with steps, or bounds that are computed, before opset 10: a Gather along each axis."""
    count = starts.tensor.elements()
    along = list(range(int(count))) if axes is None else axes.ints()
    by = [1] * int(count) if steps is None else steps.ints()
    if along is None or by is None:
        raise Declined
    sizes, found = b.Shape(x), x
    for k, (axis, step) in enumerate(zip(along, by, strict=True)):
        size = b.Gather(sizes, b.const(axis % len(x.shape)), b.const(0))
        low, high = (b.const(0), size) if step > 0 else (b.const(-1), b.Sub(size, b.const(1)))
        bounds: list[Value] = []
        for v in (starts, ends):
            bound = b.Gather(as_i64(b, v), b.const(k), b.const(0))
            bound = b.Where(b.Less(bound, b.const(0)), b.Add(bound, size), bound)
            bounds.append(b.Min(b.Max(bound, low), high))
        places = b.Range(bounds[0], bounds[1], b.const(step))
        found = b.Gather(found, places, b.const(axis))
    return found
