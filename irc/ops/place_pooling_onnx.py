"""How pooling of channels that belong to places of a region is written to ONNX: a loop over the regions."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import numpy as np

from irc.ir.graph import Value
from irc.ir.types import i64
from irc.opdef.builder import Builder
from irc.opdef.conversions import as_type
from irc.opdef.forms import Declined
from irc.ops.regions_onnx import over_regions

if TYPE_CHECKING:
    from irc.ops.roi_pooling import CornerRoiPooling, MovedRoiPooling, PlaceRoiPooling

FAR = 1e9
NARROWEST = 0.1
"""As in `irc.ops.roi_pooling`."""


def near(b: Builder, numbers: Value) -> Value:
    """Compute numbers that are near enough for integers; 0 for what is none."""
    held = b.Min(b.Max(numbers, b.like(-FAR, numbers)), b.like(FAR, numbers))
    return b.Where(b.Equal(numbers, numbers), held, b.like(0.0, numbers))


def whole(b: Builder, numbers: Value) -> Value:
    """Compute the nearest whole numbers, of two as near the larger in size."""
    half = b.like(0.5, numbers)
    below = b.Less(numbers, b.like(0.0, numbers))
    return b.Where(below, b.Ceil(b.Sub(numbers, half)), b.Floor(b.Add(numbers, half)))


def ends(b: Builder, region: Value, axis: int) -> tuple[Value, Value]:
    """Take where a region begins and ends along an axis of the image."""
    low, high = (b.Gather(region, b.const(k - axis), b.const(0)) for k in (2, 4))
    return low, high


def between(b: Builder, sizes: Value, places: Sequence[Value], read: Callable[[Builder, Value], Value]) -> Value:
    """Compute the elements near places by their nearness; `read` takes those at places of the flat image."""
    taps: list[tuple[Value, Value, Value]] = []
    for axis, place in enumerate(places):
        last = b.Sub(b.Gather(sizes, b.const(axis), b.const(0)), b.const(1))
        low, high = (b.Max(b.Min(b.Cast(v, to=i64), last), b.const(0)) for v in (b.Floor(place), b.Ceil(place)))
        taps.append((low, high, b.Sub(place, b.Cast(low, to=place.dtype))))
    (top, bottom, way), (left, right_, along) = taps
    width = b.Gather(sizes, b.const(1), b.const(0))
    rows: list[Value] = []
    for row in (top, bottom):
        first, second = (read(b, b.Add(b.Mul(row, width), column)) for column in (left, right_))
        rows.append(b.Add(first, b.Mul(b.Sub(second, first), along)))
    return b.Add(rows[0], b.Mul(b.Sub(rows[1], rows[0]), way))


def by_image(b: Builder, x: Value, rois: Value, *more: Value) -> tuple[Value, Value]:
    """Prepare regions, with `more` numbers of each, and the numbers of their images."""
    kind = x.dtype.compute
    numbers = near(b, as_type(b, rois, kind))
    images = b.Cast(b.Squeeze(b.Slice(numbers, [0], [1], [1]), [1]), to=i64)
    flat = [b.Reshape(as_type(b, v, kind), b.dims([v.shape[0], -1]), special_zero=False) for v in more]
    return b.Concat(numbers, *flat, axis=1) if flat else numbers, images


def write_corners(b: Builder, op: CornerRoiPooling, x: Value, rois: Value) -> Value:
    """The elements near the corners of the cells of each region."""
    regions, images = by_image(b, x, rois)
    height, width = op.pooled_shape

    def pooled(b: Builder, image: Value, sizes: Value, region: Value) -> Value:
        kind = image.dtype
        places: list[Value] = []
        inside: list[Value] = []
        for axis, count in enumerate((height, width)):
            low, high = ends(b, region, axis)
            reach = b.Cast(b.Sub(b.Gather(sizes, b.const(axis), b.const(0)), b.const(1)), to=kind)
            if count == 1:
                place = b.Unsqueeze(b.Mul(b.Mul(b.Add(low, high), b.const(0.5, kind)), reach), [0])
            else:
                step = b.Div(b.Mul(b.Sub(high, low), reach), b.const(float(count - 1), kind))
                place = b.Add(b.Mul(b.const(np.arange(count - 1), kind), step), b.Mul(low, reach))
                place = b.Concat(place, b.Unsqueeze(b.Mul(reach, high), [0]), axis=0)
            here = b.And(b.GreaterOrEqual(place, b.const(0.0, kind)), b.LessOrEqual(place, reach))
            places.append(b.Unsqueeze(place, [1 - axis]))
            inside.append(b.Unsqueeze(here, [1 - axis]))
        value = between(b, sizes, places, lambda b, index: b.Gather(image, index, b.const(1)))
        return b.Where(b.And(*inside), value, b.const(0.0, kind))

    return over_regions(b, x, regions, images, (height, width), pooled)


def write_places(b: Builder, op: PlaceRoiPooling, x: Value, rois: Value) -> Value:
    regions, images = by_image(b, x, rois)
    n = op.group_size
    pooled = mean_of_parts(op) if op.mode == "average" else mean_of_bins(op)
    return over_regions(b, x, regions, images, (n, n), pooled, op.output_dim)


def mean_of_parts(op: PlaceRoiPooling) -> Callable[[Builder, Value, Value, Value], Value]:
    n = op.group_size

    def pooled(b: Builder, image: Value, sizes: Value, region: Value) -> Value:
        kind = image.dtype
        masks: list[Value] = []
        amounts: list[Value] = []
        for axis in (0, 1):
            low, high = ends(b, region, axis)
            size, scale = b.Gather(sizes, b.const(axis), b.const(0)), b.const(op.spatial_scale, kind)
            start = b.Mul(whole(b, low), scale)
            end = b.Mul(b.Add(whole(b, high), b.const(1.0, kind)), scale)
            step = b.Div(b.Sub(end, start), b.const(float(n), kind))
            borders = (b.Add(start, b.Mul(b.const(np.arange(n) + k, kind), step)) for k in (0, 1))
            first, last = (b.Cast(r(near(b, v)), to=i64) for r, v in zip((b.Floor, b.Ceil), borders, strict=True))
            first = b.Min(b.Max(first, b.const(0)), b.Sub(size, b.const(1)))
            last = b.Min(b.Max(last, b.const(0)), size)
            place = b.Range(b.const(0), size, b.const(1))
            here = b.And(b.GreaterOrEqual(place, b.Unsqueeze(first, [1])), b.Less(place, b.Unsqueeze(last, [1])))
            masks.append(b.Unsqueeze(here, [1, 3] if axis == 0 else [0, 2]))
            amounts.append(b.Unsqueeze(b.Max(b.Sub(last, first), b.const(0)), [1 - axis]))
        apart = b.Concat(b.const([op.output_dim, n, n]), sizes, axis=0)
        parts = b.Where(b.And(*masks), b.Reshape(image, apart, special_zero=False), b.const(0.0, kind))
        amount = b.Cast(b.Max(b.Mul(*amounts), b.const(1)), to=kind)
        return b.Div(b.ReduceSum(parts, [3, 4], keepdims=False), b.Unsqueeze(amount, [0]))

    return pooled


def mean_of_bins(op: PlaceRoiPooling) -> Callable[[Builder, Value, Value, Value], Value]:
    n, classes, amounts = op.group_size, op.output_dim, (op.spatial_bins_y, op.spatial_bins_x)
    bins = amounts[0] * amounts[1]

    def pooled(b: Builder, image: Value, sizes: Value, region: Value) -> Value:
        kind = image.dtype
        places: list[Value] = []
        inside: list[Value] = []
        for axis, amount in enumerate(amounts):
            low, high = ends(b, region, axis)
            size, scale = b.Gather(sizes, b.const(axis), b.const(0)), b.const(op.spatial_scale, kind)
            reach = b.Cast(b.Sub(size, b.const(1)), to=kind)
            start = b.Mul(low, scale)
            length = b.Div(b.Sub(b.Mul(high, scale), start), b.const(float(amount), kind))
            first = b.Add(start, b.Mul(b.const(np.arange(amount)[:, None], kind), length))
            if n == 1:
                place = b.Div(b.Mul(b.Add(b.Add(first, first), length), reach), b.const(2.0, kind))
            else:
                step = b.Div(b.Mul(length, reach), b.const(float(n - 1), kind))
                place = b.Add(b.Mul(b.const(np.arange(n), kind), step), b.Mul(first, reach))
            here = b.And(b.GreaterOrEqual(place, b.const(0.0, kind)), b.Less(place, b.Cast(size, to=kind)))
            others = [1, 3] if axis == 0 else [0, 2]
            places.append(b.Unsqueeze(place, others))
            inside.append(b.Unsqueeze(here, others))
        parts = b.Reshape(image, b.const([bins, classes, -1]))

        def read(b: Builder, index: Value) -> Value:
            index = b.Expand(b.Reshape(index, b.const([bins, 1, n * n])), b.const([bins, classes, n * n]))
            found = b.Reshape(b.GatherElements(parts, index, axis=2), b.const([*amounts, classes, n, n]))
            return b.Transpose(found, [2, 0, 1, 3, 4])

        value = b.Where(b.And(*inside), between(b, sizes, places, read), b.const(0.0, kind))
        return b.ReduceSum(b.Div(value, b.const(float(bins), kind)), [1, 2], keepdims=False)

    return pooled


def write_moved(b: Builder, op: MovedRoiPooling, x: Value, rois: Value, offsets: Value | None = None) -> Value:
    moved = None if offsets is None else offsets.shape[1]
    if moved is not None and not moved.is_const:
        raise Declined
    pairs = 0 if moved is None else int(moved) // 2
    regions, images = by_image(b, x, rois, *([offsets] if pairs and offsets is not None else []))
    n = op.group_size
    return over_regions(b, x, regions, images, (n, n), mean_of_samples(op, pairs), op.output_dim)


def mean_of_samples(op: MovedRoiPooling, pairs: int) -> Callable[[Builder, Value, Value, Value], Value]:
    n, classes, amounts = op.group_size, op.output_dim, (op.spatial_bins_y, op.spatial_bins_x)
    own = np.minimum(np.arange(classes) // max(classes // max(pairs, 1), 1), max(pairs - 1, 0))
    parts = np.arange(n) * op.part_size // n

    def moves(b: Builder, region: Value, axis: int) -> Value:
        offsets = b.Reshape(
            b.Slice(region, [5], [5 + 2 * pairs * op.part_size**2], [0]), [2 * pairs, *[op.part_size] * 2]
        )
        for k, places in enumerate((2 * own + (1 - axis), parts, parts)):
            offsets = b.Gather(offsets, b.const(places), b.const(k))
        return b.Unsqueeze(offsets, [3, 4])

    def pooled(b: Builder, image: Value, sizes: Value, region: Value) -> Value:
        kind = image.dtype
        places: list[Value] = []
        inside: Value | None = None
        for axis, amount in enumerate(amounts):
            low, high = ends(b, region, axis)
            scale, half, one = (b.const(v, kind) for v in (op.spatial_scale, 0.5, 1.0))
            start = b.Sub(b.Mul(whole(b, low), scale), half)
            stop = b.Sub(b.Mul(b.Add(whole(b, high), one), scale), half)
            side = b.Max(b.Sub(stop, start), b.const(NARROWEST, kind))
            step = b.Div(side, b.const(float(n), kind))
            each: list[int] = [1] * 5
            each[1 + axis] = n
            first = b.Add(start, b.Mul(b.const(np.arange(n).reshape(each), kind), step))
            if pairs:
                first = b.Add(first, b.Mul(b.Mul(moves(b, region, axis), b.const(op.trans_std, kind)), side))
            each[1 + axis], each[3 + axis] = 1, amount
            within = b.Div(step, b.const(float(amount), kind))
            place = b.Add(first, b.Mul(b.const(np.arange(amount).reshape(each), kind), within))
            reach = b.Cast(b.Sub(b.Gather(sizes, b.const(axis), b.const(0)), b.const(1)), to=kind)
            here = b.And(b.GreaterOrEqual(place, b.Neg(half)), b.LessOrEqual(place, b.Add(reach, half)))
            inside = here if inside is None else b.And(inside, here)
            places.append(b.Min(b.Max(place, b.const(0.0, kind)), reach))
        assert inside is not None
        shape: Sequence[int] = [classes, n, n, *amounts]

        def read(b: Builder, index: Value) -> Value:
            index = b.Reshape(b.Expand(index, b.const(shape)), b.const([classes * n * n, -1]))
            return b.Reshape(b.GatherElements(image, index, axis=1), b.const(shape))

        inside = b.Expand(inside, b.const(shape))
        value = b.Where(inside, between(b, sizes, places, read), b.const(0.0, kind))
        count = b.ReduceSum(b.Cast(inside, to=kind), [3, 4], keepdims=False)
        return b.Div(b.ReduceSum(value, [3, 4], keepdims=False), b.Max(count, b.const(1.0, kind)))

    return pooled
