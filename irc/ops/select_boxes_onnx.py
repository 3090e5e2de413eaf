"""How SelectBoxes is written to ONNX where NonMaxSuppression does not say it: a loop that selects a box of every class.

Rows and columns of what is carried: images, classes, boxes.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from irc.ir.graph import Value
from irc.ir.types import f32, i64
from irc.opdef.builder import Builder
from irc.opdef.conversions import as_scalar, as_vector
from irc.ops.embedding_bag import counted
from irc.ops.loop_forms import Step, repeated
from irc.ops.rotated_boxes import SIGNS

if TYPE_CHECKING:
    from irc.ops.select_boxes import SelectBoxes

LOWEST = float(np.finfo(np.float32).min)
ADAPTS_ABOVE = 0.5
"""The overlap down to which `eta` lowers the limit."""


def number(b: Builder, value: Value, place: int) -> Value:
    """Take one of the numbers that the last axis holds."""
    return b.Gather(value, b.const(place), b.const(-1))


def spans(b: Builder, boxes: Value, centered: bool) -> Value:
    """Compute the smaller and the larger coordinates of boxes, along the last axis, then their areas."""
    first, second = b.Slice(boxes, [0], [2], [-1]), b.Slice(boxes, [2], [4], [-1])
    if centered:
        half = b.Div(second, b.const(2.0, f32))
        first, second = b.Sub(first, half), b.Add(first, half)
    low, high = b.Min(first, second), b.Max(first, second)
    sides = b.Sub(high, low)
    area = b.Mul(number(b, sides, 0), number(b, sides, 1))
    return b.Concat(low, high, b.Unsqueeze(area, [-1]), axis=-1)


def shared(b: Builder, one: Value, other: Value) -> Value:
    """Compute what boxes share, of `spans`."""
    top = b.Min(b.Slice(one, [2], [4], [-1]), b.Slice(other, [2], [4], [-1]))
    bottom = b.Max(b.Slice(one, [0], [2], [-1]), b.Slice(other, [0], [2], [-1]))
    sides = b.Max(b.Sub(top, bottom), b.const(0.0, f32))
    return b.Mul(number(b, sides, 0), number(b, sides, 1))


def rotated_spans(b: Builder, boxes: Value) -> Value:
    """Compute cosine and sine, half the sides, the centre, and the area of rotated boxes, along the last axis."""
    angle = b.Slice(boxes, [4], [5], [-1])
    area = b.Mul(b.Slice(boxes, [2], [3], [-1]), b.Slice(boxes, [3], [4], [-1]))
    half = b.Div(b.Slice(boxes, [2], [4], [-1]), b.const(2.0, f32))
    return b.Concat(b.Cos(angle), b.Sin(angle), half, b.Slice(boxes, [0], [2], [-1]), area, axis=-1)


def rotated_shared(b: Builder, one: Value, other: Value) -> Value:
    """Compute what boxes share, of `rotated_spans`: `shared_area_of_rotated` of `irc.ops.rotated_boxes`."""
    c, s, width, height, x0, y0, area = (number(b, one, k) for k in range(7))
    cosine, sine, *sides, x1, y1, other_area = (number(b, other, k) for k in range(7))
    centre = b.Sub(x1, x0), b.Sub(y1, y0)
    half = width, height
    outline: list[tuple[Value, Value]] = []
    for signs in SIGNS:
        across, along = (v if sign > 0 else b.Neg(v) for v, sign in zip(sides, signs, strict=True))
        x = b.Sub(b.Add(centre[0], b.Mul(across, cosine)), b.Mul(along, sine))
        y = b.Add(b.Add(centre[1], b.Mul(across, sine)), b.Mul(along, cosine))
        outline.append((b.Add(b.Mul(x, c), b.Mul(y, s)), b.Sub(b.Mul(y, c), b.Mul(x, s))))
    parts = [enclosed(b, outline[k], outline[(k + 1) % 4], half) for k in range(4)]
    found = b.Div(b.Abs(b.Sum(*parts)), b.const(2.0, f32))
    zero = b.const(0.0, f32)
    return b.Where(b.And(b.Greater(area, zero), b.Greater(other_area, zero)), found, zero)


def enclosed(b: Builder, start: tuple[Value, Value], end: tuple[Value, Value], half: tuple[Value, Value]) -> Value:
    """Compute twice the area between the centre and a side of an outline, of which what is outside is moved inside."""
    zero, one = b.const(0.0, f32), b.const(1.0, f32)

    def between(x: Value, low: Value, high: Value) -> Value:
        return b.Min(b.Max(x, low), high)

    steps = [b.Sub(q, p) for p, q in zip(start, end, strict=True)]
    low: list[Value] = []
    high: list[Value] = []
    for p, step, reach in zip(start, steps, half, strict=True):
        flat = b.Equal(step, zero)
        way = b.Where(flat, one, step)
        first, second = (between(b.Div(b.Sub(v, p), way), zero, one) for v in (b.Neg(reach), reach))
        low.append(b.Where(flat, zero, b.Min(first, second)))
        high.append(b.Where(flat, zero, b.Max(first, second)))
    second, third = b.Max(*low), b.Min(*high)
    places = [b.Min(*low), b.Min(second, third), b.Max(second, third), b.Max(*high), one]
    total: Value | None = None
    x, y = (between(p, b.Neg(reach), reach) for p, reach in zip(start, half, strict=True))
    for place in places:
        p, q = (
            between(b.Add(v, b.Mul(place, step)), b.Neg(reach), reach)
            for v, step, reach in zip(start, steps, half, strict=True)
        )
        part = b.Sub(b.Mul(x, q), b.Mul(y, p))
        total = part if total is None else b.Add(total, part)
        x, y = p, q
    assert total is not None
    return total


def selecting(op: SelectBoxes, limited_below: bool) -> Step:
    """Make the step that selects a box of every class; what it captures ends with the least score, and with sigma."""

    def step(
        b: Builder, number: Value, carried: Sequence[Value], captured: Sequence[Value]
    ) -> tuple[list[Value], list[Value]]:
        (left, current, limits), (known, order, *more) = carried, captured
        lowest = more.pop(0) if limited_below else None
        candidates = b.Where(left, b.Max(current, b.const(LOWEST, f32)), b.const(-np.inf, f32))
        box = b.ArgMax(candidates, axis=2, keepdims=True)
        valid = b.Greater(b.ReduceMax(b.Cast(left, to=i64), [2], keepdims=True), b.const(0))
        chosen = b.Unsqueeze(b.GatherND(known, box, batch_dims=1), [2])
        gives = b.GatherElements(current, box, axis=2)
        left = b.And(left, b.Not(b.Equal(order, box)))
        if op.eta != 1.0:
            adapts = b.And(valid, b.Greater(limits, b.const(ADAPTS_ABOVE, f32)))
            limits = b.Where(adapts, b.Mul(limits, b.const(op.eta, f32)), limits)
        part = overlaps(b, chosen, b.Unsqueeze(known, [1]), op.rotated)
        over = b.Greater(part, limits)
        if more:
            (width,) = more
            soft = b.Greater(width, b.const(0.0, f32))
            scale = b.Div(b.const(-0.5, f32), b.Where(soft, width, b.const(1.0, f32)))
            weight = b.Exp(b.Mul(b.Mul(scale, part), part))
            current = b.Where(b.And(soft, valid), b.Mul(current, weight), current)
            if lowest is not None:
                left = b.And(left, b.GreaterOrEqual(current, lowest))
            over = over if op.limited else b.And(over, b.Not(soft))
        left = b.And(left, b.Not(over))
        flat = (b.Reshape(v, [-1]) for v in (box, gives, valid))  # engines stack vectors alike
        return [left, current, limits], list(flat)

    return step


def write_by_loop(
    b: Builder,
    op: SelectBoxes,
    boxes: Value,
    scores: Value,
    most: Value | None = None,
    overlap: Value | None = None,
    least: Value | None = None,
    sigma: Value | None = None,
) -> list[Value]:
    """A loop that selects the best box left of every class; at the end, the rows of those that were there."""
    batches, classes, n = scores.shape
    zero, none = b.const(0.0, f32), b.const(0)
    lowest, limit, width = (None if v is None else as_scalar(b, v) for v in (least, overlap, sigma))
    left = b.Equal(scores, scores) if lowest is None else b.GreaterOrEqual(scores, lowest)
    limits = b.Expand(zero if limit is None else limit, b.dims([batches, classes, 1]))
    known = rotated_spans(b, boxes) if op.rotated else spans(b, boxes, op.centered)
    size = as_scalar(b, b.dims([n]))
    runs = none if most is None else b.Min(b.Max(as_scalar(b, most), none), size)
    order = counted(b, size)
    captured = [known, order, *(v for v in (lowest, width) if v is not None)]

    *_, places, values, there = repeated(b, runs, [left, scores, limits], captured, selecting(op, least is not None))
    apart = b.Concat(as_vector(b, runs), b.dims([batches, classes]), axis=0)
    places, values, there = (
        b.Transpose(b.Reshape(v, apart, special_zero=False), [1, 2, 0]) for v in (places, values, there)
    )
    index = b.Transpose(b.NonZero(there), [1, 0])
    rows = b.Concat(b.Slice(index, [0], [2], [1]), b.Unsqueeze(b.GatherND(places, index), [1]), axis=1)
    count = b.Slice(b.Shape(index), [0], [1], [0])
    room = n if op.room is None else n.minimum(op.room)
    behind = b.Sub(b.dims([batches * classes * room]), count)
    rows = b.Pad(rows, b.Concat(b.const([0, 0]), behind, b.const([0]), axis=0))
    return [rows, b.Pad(b.GatherND(values, index), b.Concat(b.const([0]), behind, axis=0)), count]


def overlaps(b: Builder, one: Value, other: Value, rotated: bool) -> Value:
    """Compute which part of their union boxes share; 0 where there is none."""
    common = rotated_shared(b, one, other) if rotated else shared(b, one, other)
    union = b.Sub(b.Add(number(b, other, -1), number(b, one, -1)), common)
    zero = b.const(0.0, f32)
    there = b.And(b.Greater(common, zero), b.Greater(union, zero))
    return b.Where(there, b.Div(common, b.Where(there, union, b.const(1.0, f32))), zero)
