"""Resize by sizes, scales or a region that only a run knows: `irc.opdef.interpolation` on graph values.

Every axis takes part, because only the run knows which ones are stretched.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from irc.ir.dim import Dim
from irc.ir.graph import Value
from irc.ir.types import f32, f64, i64
from irc.opdef.builder import Builder
from irc.opdef.conversions import as_i64
from irc.opdef.interpolation import (
    CROP,
    REACH,
    Symbolic,
    Symbols,
    coordinates,
    kernel,
    nearest,
    summed,
    summed_rows,
    taps,
)

if TYPE_CHECKING:
    from irc.ops.resize import Resize


def resize_in_run(
    b: Builder, op: Resize, x: Value, roi: Value | None, scales: Value | None, sizes: Value | None
) -> Value:
    """Build Resize of operands that may all be computed."""
    axes = op.axis_list(len(x.shape))
    counts, factors, lengths = run_target(b, [x.shape[k] for k in axes], scales, sizes, op.policy)
    y = x if op.mode == "nearest" or x.dtype in (f32, f64) else b.Cast(x, to=f32)
    for n, axis in enumerate(axes):
        count, factor, length = (b.Gather(v, n, 0) for v in (counts, factors, lengths))
        region = None
        if roi is not None:
            start, end = (Symbolic(b, b.Cast(b.Gather(roi, k, 0), to=f32)) for k in (n, len(axes) + n))
            region = start, end
        y = _axis(b, op, y, axis, count, factor, length, region)
    return y if y.dtype == x.dtype else b.Cast(y, to=x.dtype)


def run_target(
    b: Builder, shape: list[Dim], scales: Value | None, sizes: Value | None, policy: str
) -> tuple[Value, Value, Value]:
    """Compute for each axis the size of the result (i64), the scale, and size · scale before rounding (f64)."""
    there = b.dims(shape)
    size = b.Cast(there, to=f64)
    if sizes is None:
        assert scales is not None
        counts = b.Floor(b.Mul(b.Cast(there, to=f32), scales))
        factors = b.Cast(scales, to=f64)
        return b.Cast(counts, to=i64), factors, b.Mul(factors, size)
    wanted = b.Cast(sizes, to=f64)
    one = b.const(1.0, f64)
    factors = b.Where(b.Equal(there, b.const(0)), one, b.Div(wanted, size))
    if policy == "stretch":
        return as_i64(b, sizes), factors, wanted
    factor = b.ReduceMin(factors, [0]) if policy == "not_larger" else b.ReduceMax(factors, [0])
    lengths = b.Mul(factor, size)
    counts = b.Floor(b.Add(lengths, b.const(0.5, f64)))
    return b.Cast(counts, to=i64), b.Expand(factor, [len(shape)]), lengths


def _axis(
    b: Builder,
    op: Resize,
    y: Value,
    axis: int,
    count: Value,
    factor: Value,
    length: Value,
    region: tuple[Symbolic, Symbolic] | None,
) -> Value:
    """Stretch one axis to `count` elements; count, factor and length are scalars."""
    xp, there = Symbols(b), b.Gather(b.dims([y.shape[axis]]), 0, 0)
    size, n, scale, whole = (Symbolic(b, b.Cast(v, to=f32)) for v in (there, count, factor, length))
    places = b.Range(b.const(0), count, b.const(1))
    start, end = (0.0, 1.0) if region is None else region
    x = coordinates(xp, Symbolic(b, b.Cast(places, to=f32)), size, n, whole, scale, start, end, op.coordinates)
    if op.mode == "nearest":
        found = b.Gather(y, b.Cast(nearest(xp, x, size, scale, op.nearest_mode).v, to=i64), axis)
    elif op.antialias:
        found = summed_rows(b, y, axis, *_widened_taps(b, op, x, size, factor, y))
    else:
        indices, weights = taps(xp, x, size, 1.0, op.mode, op.cubic_coeff_a, op.exclude_outside)
        whither = [b.Cast(k.v, to=i64) for k in indices]
        found = summed(b, y, axis, whither, [b.Cast(w.v, to=y.dtype) for w in weights])
    if op.coordinates == CROP and region is not None:
        outside = b.Or((x < 0.0).v, b.Less((size - 1).v, x.v))
        outside = b.Unsqueeze(outside, list(range(1, len(y.shape) - axis)))
        return b.Where(outside, b.like(op.extrapolation_value, y), found)
    # An axis that stays as it is takes no part in sums, where 0 · ∞ is not 0.
    unchanged = b.And(b.Equal(count, there), b.Equal(factor, b.const(1.0, f64)))
    inside = b.Min(places, b.Sub(there, b.const(1)))  # of places that are not taken too: engines refuse others
    return b.Where(unchanged, b.Gather(y, inside, axis), found)


def _widened_taps(b: Builder, op: Resize, x: Symbolic, size: Symbolic, factor: Value, y: Value) -> tuple[Value, Value]:
    """Compute indices and weights of antialiasing: matrices with a row for each element of the result."""
    xp, one = Symbols(b), b.const(1.0, f64)
    shrink = b.Min(b.Where(b.Less(b.const(0.0, f64), factor), factor, one), one)
    reach = b.Div(b.const(float(REACH[op.mode]), f64), shrink)
    # No result with an element reaches farther than this; one without elements is not to ask for endless taps.
    farthest = b.Mul(b.Cast(size.v, to=f64), b.const(2.0 * REACH[op.mode], f64))
    reach = b.Min(reach, b.Max(farthest, b.const(float(REACH[op.mode]), f64)))
    first = b.Add(b.Cast(b.Floor(b.Neg(reach)), to=i64), b.const(1))
    steps = b.Range(first, b.Sub(b.const(2), first), b.const(1))
    column = Symbolic(b, b.Unsqueeze(x.v, [1]))
    at = xp.floor(column) + Symbolic(b, b.Cast(steps, to=f32))
    weight = kernel(xp, (at - column) * Symbolic(b, b.Cast(shrink, to=f32)), op.mode, op.cubic_coeff_a)
    inner = xp.minimum(xp.maximum(at, 0.0), size - 1)
    if op.exclude_outside:  # that weighs nothing
        weight = Symbolic(b, b.Where(b.Equal(at.v, inner.v), weight.v, b.const(0.0, f32)))
    total = b.ReduceSum(weight.v, [1])
    return b.Cast(inner.v, to=i64), b.Cast(b.Div(weight.v, total), to=y.dtype)
