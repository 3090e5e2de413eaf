"""How pooling of regions of interest is written where a format's RoiAlign does not say it: a loop over the regions.

What a run gives is a vector: engines stack vectors alike.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import reduce
from typing import TYPE_CHECKING

import numpy as np

from irc.ir.graph import Value
from irc.ir.types import DType, i64
from irc.opdef.builder import Builder
from irc.opdef.conversions import as_i64, as_scalar, as_type
from irc.opdef.forms import Declined
from irc.ops.embedding_bag import counted
from irc.ops.loop_forms import repeated

if TYPE_CHECKING:
    from irc.ops.roi_align import RoiAlign
    from irc.ops.roi_align_rotated import RoiAlignRotated

SPREAD = 8
"""As in `irc.ops.roi_align`."""
Pooled = Callable[[Builder, Value, Value, Value], Value]
"""pooled(b, image, sizes, region) pools an image [c, h · w] for the numbers of one region, [c, …]; sizes: h, w."""


def over_regions(
    b: Builder, x: Value, rois: Value, batch: Value, shape: tuple[int, int], pooled: Pooled, classes: int | None = None
) -> Value:
    """Add the loop that pools every region; of an image that there is not, 0.

    classes: how many the result has, by default as many as x has channels.
    """
    images, channels, height, width = x.shape
    kind = x.dtype.compute
    flat = b.Reshape(as_type(b, x, kind), b.dims([images, channels, height * width]), special_zero=False)
    number, sizes = as_i64(b, batch), b.dims([height, width])
    known = b.And(b.GreaterOrEqual(number, b.const(0)), b.Less(number, b.dims([images])))
    captured = [flat, b.Where(known, number, b.const(0)), known, as_type(b, rois, kind), sizes]

    def step(
        b: Builder, number: Value, carried: Sequence[Value], captured: Sequence[Value]
    ) -> tuple[list[Value], list[Value]]:
        flat, images, known, regions, sizes = captured
        image, there, region = (b.Gather(v, number, b.const(0)) for v in (images, known, regions))
        found = b.Reshape(pooled(b, b.Gather(flat, image, b.const(0)), sizes, region), [-1])
        return [], [b.Where(there, found, b.like(0.0, found))]

    (y,) = repeated(b, as_scalar(b, b.dims([rois.shape[0]])), [], captured, step)
    return as_type(
        b,
        b.Reshape(y, b.dims([rois.shape[0], channels if classes is None else classes, *shape]), special_zero=False),
        x.dtype,
    )


def places(b: Builder, start: Value, step: Value, parts: int, ratio: int, size: Value) -> tuple[Value, Value]:
    """Place samples along an axis of parts, `sample_places` of `irc.ops.roi_align`.  Returns them and their number."""
    kind = step.dtype
    if ratio > 0:
        count = b.const(ratio)
    else:
        most = as_type(b, b.Mul(b.Add(size, b.const(8)), b.const(SPREAD)), kind)
        positive = b.And(b.Greater(step, b.const(0.0, kind)), b.Less(step, b.const(np.inf, kind)))
        count = b.Cast(b.Ceil(b.Where(positive, b.Min(step, most), b.const(0.0, kind))), to=i64)
    within = b.Div(
        b.Mul(b.Add(b.Cast(counted(b, count), to=kind), b.const(0.5, kind)), step),
        b.Cast(b.Max(count, b.const(1)), to=kind),
    )
    first = b.Add(start, b.Mul(b.const(np.arange(parts)[:, None], kind), step))
    return b.Add(first, b.Unsqueeze(within, [0])), count


def taps(b: Builder, place: Value, size: Value, inside: Value) -> list[tuple[Value, Value]]:
    """Find the two elements near each place along an axis: their weights, and where they are."""
    kind = place.dtype
    safe = b.Where(inside, b.Max(place, b.const(0.0, kind)), b.const(0.0, kind))
    low, last = b.Cast(b.Floor(safe), to=i64), b.Sub(size, b.const(1))
    zero, one = b.const(0.0, kind), b.const(1.0, kind)
    way = b.Where(b.GreaterOrEqual(low, last), zero, b.Sub(safe, b.Cast(low, to=kind)))
    return [(b.Sub(one, way), b.Min(low, last)), (way, b.Min(b.Add(low, b.const(1)), last))]


def samples(b: Builder, image: Value, sizes: Value, down: Value, right: Value) -> Value:
    """Read an image at places between its elements, [c, places of `down` and `right`, which broadcast]."""
    first, *others = weighted(b, image, sizes, down, right)
    return reduce(b.Add, others, first)


def weighted(b: Builder, image: Value, sizes: Value, down: Value, right: Value) -> list[Value]:
    """Take the four elements around each place, times their weights."""
    kind = image.dtype
    height, width = (b.Gather(sizes, b.const(k), b.const(0)) for k in (0, 1))
    inside: Value | None = None
    for place, size in ((down, height), (right, width)):
        near = b.And(b.GreaterOrEqual(place, b.const(-1.0, kind)), b.LessOrEqual(place, as_type(b, size, kind)))
        inside = near if inside is None else b.And(inside, near)
    assert inside is not None
    found: list[Value] = []
    for weight, row in taps(b, down, height, inside):
        for other, column in taps(b, right, width, inside):
            element = b.Gather(image, b.Add(b.Mul(row, width), column), b.const(1))
            found.append(b.Mul(b.Where(inside, element, b.const(0.0, kind)), b.Mul(weight, other)))
    return found


def mean(b: Builder, found: Value, counts: Sequence[Value]) -> Value:
    """The mean of the samples of each part [c, i, j, p, q]; 0 of none."""
    amount = b.Max(b.Mul(*counts), b.const(1))
    return b.Div(b.ReduceSum(found, [3, 4], keepdims=False), b.Cast(amount, to=found.dtype))


def write_rotated(b: Builder, op: RoiAlignRotated, x: Value, rois: Value, batch: Value) -> Value:
    kind = x.dtype.compute

    def pooled(b: Builder, image: Value, sizes: Value, region: Value) -> Value:
        numbers = [b.Gather(region, b.const(k), b.const(0)) for k in range(5)]
        scale = b.const(op.spatial_scale, kind)
        angle = b.Neg(numbers[4]) if op.clockwise else numbers[4]
        cosine, sine = b.Cos(angle), b.Sin(angle)
        found: list[Value] = []
        counts: list[Value] = []
        for axis, parts in enumerate((op.output_height, op.output_width)):
            extent = b.Mul(numbers[3 - axis], scale)
            start, step = b.Div(b.Neg(extent), b.const(2.0, kind)), b.Div(extent, b.const(float(parts), kind))
            size = b.Gather(sizes, b.const(axis), b.const(0))
            along, count = places(b, start, step, parts, op.sampling_ratio, size)
            found.append(b.Unsqueeze(along, [1, 3] if axis == 0 else [0, 2]))
            counts.append(count)
        rows, columns = found
        centre = [b.Sub(b.Mul(numbers[k], scale), b.const(0.5, kind)) for k in (1, 0)]
        down = b.Add(b.Sub(b.Mul(rows, cosine), b.Mul(columns, sine)), centre[0])
        right = b.Add(b.Add(b.Mul(rows, sine), b.Mul(columns, cosine)), centre[1])
        return mean(b, samples(b, image, sizes, down, right), counts)

    return over_regions(b, x, rois, batch, (op.output_height, op.output_width), pooled)


def write_samples(b: Builder, op: RoiAlign, x: Value, rois: Value, batch: Value) -> Value:
    """The largest of samples and 0, whose number only the region tells."""
    if op.mode != "max_sample":
        raise Declined

    def largest(b: Builder, image: Value, sizes: Value, places: Sequence[Value], counts: Sequence[Value]) -> Value:
        values = samples(b, image, sizes, *places)
        # A sample of 0 more: the largest of none is 0, and no negative one is larger.
        padded = b.Pad(values, b.const([0, 0, 0, 0, 0, 0, 0, 0, 1, 1]))
        return b.Relu(b.ReduceMax(padded, [3, 4], keepdims=False))

    return aligned(b, op, x, rois, batch, largest)


def write_largest_part(b: Builder, op: RoiAlign, x: Value, rois: Value, batch: Value) -> Value:
    """The largest of the weighted elements around the samples; 0 where there is no sample."""
    if op.mode != "max":
        raise Declined

    def largest(b: Builder, image: Value, sizes: Value, places: Sequence[Value], counts: Sequence[Value]) -> Value:
        values = b.Max(*weighted(b, image, sizes, *places))
        padded = b.Pad(values, b.const([0, 0, 0, 0, 0, 0, 0, 0, 1, 1]), b.like(-np.inf, values))
        found = b.ReduceMax(padded, [3, 4], keepdims=False)
        return b.Where(b.Greater(b.Mul(*counts), b.const(0)), found, b.like(0.0, found))

    return aligned(b, op, x, rois, batch, largest)


def aligned(
    b: Builder,
    op: RoiAlign,
    x: Value,
    rois: Value,
    batch: Value,
    largest: Callable[[Builder, Value, Value, Sequence[Value], Sequence[Value]], Value],
) -> Value:
    """Add the loop over the regions; `largest` gets the image, its sizes, and the places and numbers of samples."""
    kind: DType = x.dtype.compute

    def pooled(b: Builder, image: Value, sizes: Value, region: Value) -> Value:
        numbers = b.Mul(region, b.const(op.spatial_scale, kind))
        numbers = b.Sub(numbers, b.const(0.5, kind)) if op.half_pixel else numbers
        found: list[Value] = []
        counts: list[Value] = []
        for axis, parts in enumerate((op.output_height, op.output_width)):
            start, end = (b.Gather(numbers, b.const(k), b.const(0)) for k in (1 - axis, 3 - axis))
            extent = b.Sub(end, start)
            extent = extent if op.half_pixel else b.Max(extent, b.const(1.0, kind))
            step = b.Div(extent, b.const(float(parts), kind))
            size = b.Gather(sizes, b.const(axis), b.const(0))
            along, count = places(b, start, step, parts, op.sampling_ratio, size)
            found.append(b.Unsqueeze(along, [1, 3] if axis == 0 else [0, 2]))
            counts.append(count)
        return largest(b, image, sizes, found, counts)

    return over_regions(b, x, rois, batch, (op.output_height, op.output_width), pooled)
