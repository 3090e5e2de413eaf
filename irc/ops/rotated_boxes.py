"""Boxes [x, y, width, height, angle] that overlap: the area of the intersection.

In the frame of one box, the outline of the other is split where it crosses the lines of that box's sides, and what
is outside is moved to the nearest place inside: what the outline encloses then is the intersection.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from irc.arrays import Array
from irc.expr import Const, Expr, call, select
from irc.ir.types import f32
from irc.loops.builder import LoopBuilder

SIGNS = ((-1.0, -1.0), (1.0, -1.0), (1.0, 1.0), (-1.0, 1.0))
"""The corners of a box in order, in halves of its sides."""


def shared_area_of_rotated(boxes: Array, chosen: int) -> tuple[Array, Array]:
    """What each box [n, 5] shares with the chosen one, and the area of each."""
    half, centre = boxes[:, 2:4] / np.float32(2), boxes[:, :2] - boxes[chosen, :2]
    cosine, sine = np.cos(boxes[:, 4]), np.sin(boxes[:, 4])
    c, s = cosine[chosen], sine[chosen]
    outline: list[tuple[Array, Array]] = []
    for right, up in ((-1.0, -1.0), (1.0, -1.0), (1.0, 1.0), (-1.0, 1.0)):
        across, along = half[:, 0] * np.float32(right), half[:, 1] * np.float32(up)
        x, y = centre[:, 0] + across * cosine - along * sine, centre[:, 1] + across * sine + along * cosine
        outline.append((x * c + y * s, y * c - x * s))
    total = np.zeros(len(boxes), np.float32)
    for k in range(4):
        total += enclosed(outline[k], outline[(k + 1) % 4], half[chosen])
    area = boxes[:, 2] * boxes[:, 3]
    shared = np.abs(total) / np.float32(2)
    return np.where((area > 0) & (area[chosen] > 0), shared, np.float32(0)), area


def enclosed(start: tuple[Array, Array], end: tuple[Array, Array], half: Array) -> Array:
    """Twice the area between the centre and a side of the outline, of which what is outside is moved inside."""
    low: list[Array] = []
    high: list[Array] = []
    for k in range(2):
        step = end[k] - start[k]
        way = np.where(step == 0, np.float32(1), step)
        first, second = (np.clip((sign * half[k] - start[k]) / way, 0, 1) for sign in (np.float32(-1), np.float32(1)))
        low.append(np.where(step == 0, np.float32(0), np.minimum(first, second)))
        high.append(np.where(step == 0, np.float32(0), np.maximum(first, second)))
    second, third = np.maximum(low[0], low[1]), np.minimum(high[0], high[1])
    places = [np.minimum(low[0], low[1]), np.minimum(second, third), np.maximum(second, third)]
    places += [np.maximum(high[0], high[1]), np.ones_like(second)]
    total = np.zeros_like(second)
    x, y = (np.clip(start[k], -half[k], half[k]) for k in range(2))
    for place in places:
        p, q = (np.clip(start[k] + place * (end[k] - start[k]), -half[k], half[k]) for k in range(2))
        total += x * q - y * p
        x, y = p, q
    return total


def rotated_corners(b: LoopBuilder, box: Sequence[Expr]) -> list[Expr]:
    """A box as its five numbers, the cosine and the sine of its angle, and the coordinates of its corners."""
    x, y, width, height, angle = (b.let(v, "number") for v in box)
    cosine, sine = b.let(call("cos", angle), "cosine"), b.let(call("sin", angle), "sine")
    found: list[Expr] = [x, y, width, height, angle, cosine, sine]
    for right, up in SIGNS:
        across, along = width * (right / 2), height * (up / 2)
        found.append(b.let(x + (across * cosine - along * sine), "x"))
        found.append(b.let(y + (across * sine + along * cosine), "y"))
    return found


def rotated_intersection(b: LoopBuilder, one: Sequence[Expr], other: Sequence[Expr]) -> Expr:
    """The area that two boxes of `rotated_corners` share."""
    c, s = one[5], one[6]
    half = [b.let(one[k] / 2, "half") for k in (2, 3)]
    outline: list[tuple[Expr, Expr]] = []
    for k in range(4):
        x, y = (b.let(other[7 + 2 * k + axis] - one[axis], "from_centre") for axis in (0, 1))
        outline.append((b.let(x * c + y * s, "across"), b.let(y * c - x * s, "along")))
    total = b.var(Const(0.0, f32), "total")
    for k in range(4):
        _enclose(b, outline[k], outline[(k + 1) % 4], half, total)
    positive = (one[2] * one[3]).gt(0).logical_and((other[2] * other[3]).gt(0))
    return b.let(select(positive, total.max(-total) / 2, Const(0.0, f32)), "shared")


def _enclose(b: LoopBuilder, start: Sequence[Expr], end: Sequence[Expr], half: Sequence[Expr], total: Expr) -> None:
    """Add `enclosed` of one side to the total."""
    low, high = list[Expr](), list[Expr]()
    steps = [b.let(q - p, "step") for p, q in zip(start, end, strict=True)]
    for p, step, reach in zip(start, steps, half, strict=True):
        flat = step.eq(0)
        way = b.let(select(flat, Const(1.0, f32), step), "way")
        first, second = (b.let(((bound - p) / way).max(0.0).min(1.0), "place") for bound in (-reach, reach))
        low.append(b.let(select(flat, Const(0.0, f32), first.min(second)), "low"))
        high.append(b.let(select(flat, Const(0.0, f32), first.max(second)), "high"))
    second, third = b.let(low[0].max(low[1]), "second"), b.let(high[0].min(high[1]), "third")
    places: list[Expr] = [low[0].min(low[1]), second.min(third), second.max(third), high[0].max(high[1])]
    x, y = (b.let(p.max(-reach).min(reach), "corner") for p, reach in zip(start, half, strict=True))
    for place in [*places, Const(1.0, f32)]:
        p, q = (
            b.let((v + place * step).max(-reach).min(reach), "corner")
            for v, step, reach in zip(start, steps, half, strict=True)
        )
        b.assign(total, total + (x * q - y * p))  # pyright: ignore[reportArgumentType]
        x, y = p, q
