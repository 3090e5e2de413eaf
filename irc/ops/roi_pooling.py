"""Pooling of regions of interest: of all their elements, or of channels that belong to places in the region.

Sources: OpenVINO specification, ROIPooling-2, PSROIPooling-1, DeformablePSROIPooling-1; Fast R-CNN (arXiv:1504.08083);
R-FCN (arXiv:1605.06409); Deformable ConvNets (arXiv:1703.06211).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from irc.diagnostics import require
from irc.diagnostics.codes import shape as codes
from irc.expr import Const, Expr, Tensor, Var, call, index, select
from irc.ir.dim import Dim
from irc.ir.graph import Value
from irc.ir.relation import same
from irc.ir.types import FLOATS_BF16, DType, TensorType, boolean, f8e4m3fn, f8e5m2, i64
from irc.loops.builder import LoopBuilder
from irc.opdef.base import Array, Op, op
from irc.opdef.builder import Builder
from irc.opdef.codecs import Enum, Float, Ignored, Int
from irc.opdef.forms import Form, write_only
from irc.opdef.precision import wide
from irc.opdef.signature import Sig
from irc.ops.place_pooling_onnx import write_corners, write_moved, write_places
from irc.ops.regions_last import RegionOp
from irc.ops.shape import zero

FAR = 1e9
"""Coordinates are taken to be at most that far away."""
NARROWEST = 0.1
"""The least side of a region that places move in."""


def check_rois(name: str, x: Value, rois: Value, channels: Dim | int, least: int) -> None:
    """Require five numbers for each region, so many channels, and sizes of which the least is positive."""
    facts = {"op": name, "what": "numbers of a region", "a": rois.shape[1], "b": 5}
    require(same(rois.shape[1], 5), codes.SIZES_DIFFER, **facts)
    facts = {"op": name, "what": "channels", "a": x.shape[1], "b": channels}
    require(same(x.shape[1], channels), codes.SIZES_DIFFER, **facts)
    facts = {"op": name, "what": "a size", "value": least, "expected": "1 or more"}
    require(least > 0, codes.SIZE_RANGE, **facts)


def finite(numbers: Array) -> Array:
    """Numbers that are near enough for integers; 0 for what is none."""
    return np.clip(np.where(numbers == numbers, numbers, 0), -FAR, FAR).astype(numbers.dtype)


def rounded_away(numbers: Array) -> Array:
    """The nearest whole numbers, of two as near the larger in size."""
    return np.trunc(numbers + np.copysign(numbers.dtype.type(0.5), numbers))


def between(planes: Array, y: Array, x: Array) -> Array:
    """The elements of planes [k, h, w] near a place inside, by their nearness."""
    top, left = int(np.floor(y)), int(np.floor(x))
    bottom, right = min(int(np.ceil(y)), planes.shape[1] - 1), min(int(np.ceil(x)), planes.shape[2] - 1)
    top, left = min(top, planes.shape[1] - 1), min(left, planes.shape[2] - 1)
    down, along = y - planes.dtype.type(top), x - planes.dtype.type(left)
    upper = planes[:, top, left] + (planes[:, top, right] - planes[:, top, left]) * along
    lower = planes[:, bottom, left] + (planes[:, bottom, right] - planes[:, bottom, left]) * along
    return upper + (lower - upper) * down


def near(number: Expr) -> Expr:
    """`finite` of one number."""
    return select(number.eq(number), number.max(-FAR).min(FAR), Const(0.0, number.dtype))


def whole(number: Expr) -> Expr:
    """`rounded_away` of one number."""
    return select(number.lt(0.0), call("ceil", number - 0.5), call("floor", number + 0.5))


Taps = tuple[tuple[Expr, Expr, Expr], tuple[Expr, Expr, Expr]]
"""Of rows and of columns: the elements before and behind a place, and the way from the former."""


def taps_between(b: LoopBuilder, places: Sequence[Expr], sizes: Sequence[Dim]) -> Taps:
    """Find what a place, which is inside, stands between."""
    taps: list[tuple[Expr, Expr, Expr]] = []
    for place, size in zip(places, sizes, strict=True):
        last = index(size) - 1
        low = b.let(call("floor", place).cast(i64).min(last).max(0), "low")
        high = b.let(call("ceil", place).cast(i64).min(last).max(0), "high")
        taps.append((low, high, b.let(place - low.cast(place.dtype), "way")))
    return taps[0], taps[1]


def mixed(b: LoopBuilder, taps: Taps, element: Callable[[Expr, Expr], Expr]) -> Expr:
    """`between` of the elements at rows and columns."""
    (top, bottom, down), (left, right, along) = taps
    rows: list[Expr] = []
    for row in (top, bottom):
        first, second = (b.let(element(row, column).cast(down.dtype), "element") for column in (left, right))
        rows.append(b.let(first + (second - first) * along, "row"))
    return b.let(rows[0] + (rows[1] - rows[0]) * down, "value")


def between_at(b: LoopBuilder, x: Tensor, at: Sequence[Expr], places: Sequence[Expr]) -> Expr:
    """`between` of one element; the place is inside."""
    return mixed(b, taps_between(b, places, x.shape[2:]), lambda row, column: x[(*at, row, column)])


def image_of(b: LoopBuilder, x: Tensor, rois: Tensor, r: Expr, plane: Sequence[Dim] | None = None) -> tuple[Expr, Expr]:
    """The number of a region's image, and whether there is such an image with elements in its planes."""
    image = b.let(near(rois[r, 0].cast(x.dtype.compute)).cast(i64), "image")
    known: Expr = image.ge(0).logical_and(image.lt(index(x.shape[0])))
    for size in plane or x.shape[2:]:
        known = known.logical_and(index(size).gt(0))
    return image, b.let(known, "known")


def image_number(rois: Array, x: Array) -> list[int]:
    """The numbers of the regions' images, -1 where there is no such image with elements."""
    found = [int(n) for n in finite(wide(rois)[:, 0])]
    return [n if 0 <= n < len(x) and x.shape[2] * x.shape[3] > 0 else -1 for n in found]


@op
class RoiPooling(Op):
    """MaxRoiPool of each region (image, x1, y1, x2, y2), or (`method` bilinear) CornerRoiPooling."""

    output_height: int
    output_width: int
    spatial_scale: float
    method: str = "max"
    sig = Sig("x: T[4], rois: T[2] -> y: T", T=FLOATS_BF16)

    def decompose(self, b: Builder, x: Value, rois: Value) -> Value:
        shape = (self.output_height, self.output_width)
        if self.method == "max":
            return b.MaxRoiPool(x, rois, pooled_shape=shape, spatial_scale=self.spatial_scale)
        return b.CornerRoiPooling(x, rois, pooled_shape=shape)

    openvino = (
        Form(
            "ROIPooling",
            2,
            attrs={
                "output_size": Ignored(),
                "output_roi": Ignored(),
                "pooled_h": Int(to="output_height", lo=1),
                "pooled_w": Int(to="output_width", lo=1),
                "spatial_scale": Float(),
                "method": Enum(["max", "bilinear"], "max"),
            },
            T=FLOATS_BF16,
        ),
    )


@op
class CornerRoiPooling(RegionOp):
    """What RoiPooling between elements is compiled to: those near the corners of cells of a region, by nearness.

    Regions (image, x1, y1, x2, y2) are parts of the image.  A corner outside, or of no image, gives 0.
    """

    pooled_shape: tuple[int, ...]
    sig = Sig("x: T[4], rois: T[2] -> y: T", T=FLOATS_BF16)

    def infer(self, x: Value, rois: Value) -> TensorType:
        check_rois(self.name, x, rois, x.shape[1], min(self.pooled_shape))
        return x.tensor.with_shape([rois.shape[0], x.shape[1], *self.pooled_shape])

    def reference(self, x: Array, rois: Array) -> Array:
        data, boxes = wide(x), finite(wide(rois))
        y = np.zeros((len(rois), x.shape[1], *self.pooled_shape), data.dtype)
        for r, image in enumerate(image_number(rois, x)):
            if image >= 0:
                rows = self._places(boxes[r, 2], boxes[r, 4], self.pooled_shape[0], x.shape[2])
                across = self._places(boxes[r, 1], boxes[r, 3], self.pooled_shape[1], x.shape[3])
                for i, down in enumerate(rows):
                    for j, along in enumerate(across):
                        if 0 <= down <= x.shape[2] - 1 and 0 <= along <= x.shape[3] - 1:
                            y[r, :, i, j] = between(data[image], down, along)
        return y.astype(x.dtype)

    def _places(self, low: Array, high: Array, count: int, size: int) -> list[Array]:
        """Where the corners of cells stand along an axis."""
        kind = low.dtype.type
        if count == 1:
            return [kind(0.5) * (low + high) * kind(size - 1)]
        step = (high - low) * kind(size - 1) / kind(count - 1)
        return [*(kind(k) * step + low * kind(size - 1) for k in range(count - 1)), kind(size - 1) * high]

    def loops_last(self, b: LoopBuilder, x: Tensor, rois: Tensor, y: Tensor) -> None:
        kind, plane = x.dtype.compute, x.shape[1:3]
        with b.for_(rois.shape[0], "parallel", "r") as r:
            image, known = image_of(b, x, rois, r, plane)
            ends = [[b.let(near(rois[r, k].cast(kind)), "end") for k in pair] for pair in ((2, 4), (1, 3))]
            with b.nest(self.pooled_shape) as at:
                places, inside = self._corner(b, plane, ends, at)
                with b.if_(known.logical_and(inside)):
                    taps = taps_between(b, places, plane)
                    with b.for_(x.shape[3], "simd", "c") as c:
                        value = mixed(b, taps, lambda row, column: x[image, row, column, c])
                        b.store(y, (r, *at, c), value.cast(y.dtype))
                with b.else_(), b.for_(x.shape[3], "simd", "c") as c:
                    b.store(y, (r, *at, c), zero(y.dtype))

    def _corner(
        self, b: LoopBuilder, plane: Sequence[Dim], ends: Sequence[Sequence[Expr]], place: Sequence[Expr]
    ) -> tuple[list[Expr], Expr]:
        """Where the corner of a cell stands along both axes, and whether that is inside."""
        places: list[Expr] = []
        inside: Expr = Const(True, boolean)
        for (low, high), k, count, size in zip(ends, place, self.pooled_shape, plane, strict=True):
            reach = b.let((index(size) - 1).cast(low.dtype), "reach")
            if count == 1:
                found: Expr = (low + high) * 0.5 * reach
            else:
                step = (high - low) * reach / float(count - 1)
                found = select(k.eq(count - 1), reach * high, k.cast(low.dtype) * step + low * reach)
            places.append(b.let(found, "place"))
            inside = inside.logical_and(places[-1].ge(0.0)).logical_and(places[-1].le(reach))
        return places, inside

    onnx = (write_only(write_corners, since=13),)


@op
class PlaceRoiPooling(Op):
    """The mean of each of group_size² parts of each region (image, x1, y1, x2, y2), of a channel of its own.

    bilinear: each of spatial bins in a region, which is a part of the image, has channels of its own; the mean over the
    bins of the elements near the corners of group_size² cells, by their nearness.
    """

    output_dim: int
    spatial_scale: float
    group_size: int = 1
    mode: str = "average"
    spatial_bins_x: int = 1
    spatial_bins_y: int = 1
    sig = Sig("x: T[4], rois: P[2] -> y: T", T=FLOATS_BF16, P=FLOATS_BF16 | {f8e4m3fn, f8e5m2})

    def infer(self, x: Value, rois: Value) -> TensorType:
        bins = self.spatial_bins_x * self.spatial_bins_y
        parts = self.group_size**2 if self.mode == "average" else bins
        check_rois(self.name, x, rois, parts * self.output_dim, min(self.group_size, self.output_dim, bins))
        return x.tensor.with_shape([rois.shape[0], self.output_dim, self.group_size, self.group_size])

    def reference(self, x: Array, rois: Array) -> Array:
        data, boxes = wide(x), finite(wide(rois).astype(wide(x).dtype))
        n, classes = self.group_size, self.output_dim
        y = np.zeros((len(rois), classes, n, n), data.dtype)
        for r, image in enumerate(image_number(rois, x)):
            if image < 0:
                continue
            if self.mode == "average":
                parts = data[image].reshape(classes, n, n, *x.shape[2:])
                rows, across = (self._spans(boxes[r, k], boxes[r, k + 2], x.shape[4 - k]) for k in (2, 1))
                for i, (top, bottom) in enumerate(rows):
                    for j, (left, right) in enumerate(across):
                        if top < bottom and left < right:
                            y[r, :, i, j] = parts[:, i, j, top:bottom, left:right].mean((1, 2))
            else:
                parts = data[image].reshape(-1, classes, *x.shape[2:])
                for k, bin in enumerate(parts):
                    row, column = divmod(k, self.spatial_bins_x)
                    rows = self._places(boxes[r, 2], boxes[r, 4], row, self.spatial_bins_y, x.shape[2])
                    across = self._places(boxes[r, 1], boxes[r, 3], column, self.spatial_bins_x, x.shape[3])
                    for i, down in enumerate(rows):
                        for j, along in enumerate(across):
                            if 0 <= down < x.shape[2] and 0 <= along < x.shape[3]:
                                y[r, :, i, j] += between(bin, down, along) / data.dtype.type(len(parts))
        return y.astype(x.dtype)

    def _spans(self, low: Array, high: Array, size: int) -> list[tuple[int, int]]:
        """The first element of each part along an axis, and the one behind the last."""
        kind = low.dtype.type
        start = rounded_away(low) * kind(self.spatial_scale)
        step = ((rounded_away(high) + kind(1)) * kind(self.spatial_scale) - start) / kind(self.group_size)
        firsts = [int(np.floor(start + kind(k) * step)) for k in range(self.group_size)]
        lasts = [int(np.ceil(start + kind(k + 1) * step)) for k in range(self.group_size)]
        return [(min(max(p, 0), size - 1), min(max(q, 0), size)) for p, q in zip(firsts, lasts, strict=True)]

    def _places(self, low: Array, high: Array, bin: int, bins: int, size: int) -> list[Array]:
        """Where the corners of cells of a bin stand along an axis."""
        kind, n = low.dtype.type, self.group_size
        start, end = low * kind(self.spatial_scale), high * kind(self.spatial_scale)
        length = (end - start) / kind(bins)
        first = start + kind(bin) * length
        if n == 1:
            return [(first + first + length) * kind(size - 1) / kind(2)]
        step = length * kind(size - 1) / kind(n - 1)
        return [kind(k) * step + first * kind(size - 1) for k in range(n)]

    def loops(self, b: LoopBuilder, x: Tensor, rois: Tensor, y: Tensor) -> None:
        kind, n = x.dtype.compute, self.group_size
        with b.for_(rois.shape[0], "parallel", "r") as r:
            image, known = image_of(b, x, rois, r)
            ends = [[b.let(near(rois[r, k].cast(kind)), "end") for k in pair] for pair in ((2, 4), (1, 3))]
            with b.nest([self.output_dim, n, n]) as (c, *place):
                total = b.var(Const(0.0, kind), "total")
                with b.if_(known):
                    if self.mode == "average":
                        channel = (c * n + place[0]) * n + place[1]
                        self._mean(b, x, (image, channel), ends, place, total)
                    else:
                        for row in range(self.spatial_bins_y):
                            for column in range(self.spatial_bins_x):
                                at = (image, c + (row * self.spatial_bins_x + column) * self.output_dim)
                                self._bin(b, x, at, ends, place, (row, column), total)
                b.store(y, (r, c, *place), total.cast(y.dtype))

    def _mean(
        self,
        b: LoopBuilder,
        x: Tensor,
        at: Sequence[Expr],
        ends: Sequence[Sequence[Expr]],
        place: Sequence[Expr],
        total: Var,
    ) -> None:
        kind = x.dtype.compute
        spans: list[tuple[Expr, Expr]] = []
        for (low, high), k, size in zip(ends, place, x.shape[2:], strict=True):
            start = b.let(whole(low) * self.spatial_scale, "start")
            step = b.let(((whole(high) + 1.0) * self.spatial_scale - start) / float(self.group_size), "step")
            first = call("floor", near(start + k.cast(kind) * step)).cast(i64)
            last = call("ceil", near(start + (k + 1).cast(kind) * step)).cast(i64)
            n = index(size)
            spans.append((b.let(first.max(0).min(n - 1), "first"), b.let(last.max(0).min(n), "last")))
        (top, bottom), (left, right) = spans
        rows, across = b.let((bottom - top).max(0), "rows"), b.let((right - left).max(0), "across")
        with b.for_(rows) as i, b.for_(across) as j:
            b.assign(total, total + x[(*at, top + i, left + j)].cast(kind))
        b.assign(total, total / (rows * across).max(1).cast(kind))

    def _bin(
        self,
        b: LoopBuilder,
        x: Tensor,
        at: Sequence[Expr],
        ends: Sequence[Sequence[Expr]],
        place: Sequence[Expr],
        bin: tuple[int, int],
        total: Var,
    ) -> None:
        kind, n = x.dtype.compute, self.group_size
        bins = (self.spatial_bins_y, self.spatial_bins_x)
        places: list[Expr] = []
        inside: Expr = Const(True, boolean)
        for (low, high), k, own, amount, size in zip(ends, place, bin, bins, x.shape[2:], strict=True):
            reach = (index(size) - 1).cast(kind)
            start = low * self.spatial_scale
            length = b.let((high * self.spatial_scale - start) / float(amount), "length")
            first = b.let(start + length * float(own), "first")
            if n == 1:
                found: Expr = (first + first + length) * reach / 2.0
            else:
                found = k.cast(kind) * (length * reach / float(n - 1)) + first * reach
            places.append(b.let(found, "place"))
            inside = inside.logical_and(places[-1].ge(0.0)).logical_and(places[-1].lt(index(size).cast(kind)))
        with b.if_(inside):
            value = between_at(b, x, at, places) / float(bins[0] * bins[1])
            b.assign(total, total + value)

    onnx = (write_only(write_places, since=13),)
    openvino = (
        Form(
            "PSROIPooling",
            1,
            attrs={
                "output_dim": Int(lo=1),
                "group_size": Int(1, lo=1),
                "spatial_scale": Float(),
                "mode": Enum(["average", "bilinear"], "average"),
                "spatial_bins_x": Int(1, lo=1),
                "spatial_bins_y": Int(1, lo=1),
            },
            T={"T": FLOATS_BF16, "P": FLOATS_BF16 | {f8e4m3fn, f8e5m2}},
        ),
    )


@op
class MovedRoiPooling(Op):
    """The mean of samples in each of group_size² parts of each region (image, x1, y1, x2, y2), of a channel of its own.

    Offsets [regions, 2 · classes, parts, parts] move the parts, as fractions of the region times `trans_std`.  A sample
    stands between elements, which have weights by their nearness; those outside the image do not count.
    """

    output_dim: int
    spatial_scale: float
    group_size: int = 1
    mode: str = "bilinear_deformable"
    spatial_bins_x: int = 1
    spatial_bins_y: int = 1
    trans_std: float = 1.0
    part_size: int = 1
    sig = Sig("x: T[4], rois: T[2], offsets?: T[4] -> y: T", T=FLOATS_BF16)

    def infer(self, x: Value, rois: Value, offsets: Value | None = None) -> TensorType:
        least = min(self.group_size, self.output_dim, self.spatial_bins_x, self.spatial_bins_y)
        check_rois(self.name, x, rois, self.group_size**2 * self.output_dim, least)
        if offsets is not None:
            pairs = ((rois.shape[0], 0), (self.part_size, 2), (self.part_size, 3))
            for wanted, axis in pairs:
                facts = {"op": self.name, "what": "sizes of the offsets", "a": offsets.shape[axis], "b": wanted}
                require(same(offsets.shape[axis], wanted), codes.SIZES_DIFFER, **facts)
            moved = offsets.shape[1]
            fits = not moved.is_const or (int(moved) > 0 and int(moved) % 2 == 0 and self.output_dim >= int(moved) // 2)
            facts = {"op": self.name, "what": "offsets", "value": moved, "expected": "two for each of some classes"}
            require(fits, codes.SIZE_RANGE, **facts)
        return x.tensor.with_shape([rois.shape[0], self.output_dim, self.group_size, self.group_size])

    def reference(self, x: Array, rois: Array, offsets: Array | None = None) -> Array:
        data, boxes = wide(x), finite(wide(rois))
        kind, n, classes = data.dtype.type, self.group_size, self.output_dim
        y = np.zeros((len(rois), classes, n, n), data.dtype)
        moves = None if offsets is None else wide(offsets)
        for r, image in enumerate(image_number(rois, x)):
            if image < 0:
                continue
            start = rounded_away(boxes[r, 1:3]) * kind(self.spatial_scale) - kind(0.5)
            end = (rounded_away(boxes[r, 3:5]) + kind(1)) * kind(self.spatial_scale) - kind(0.5)
            side = np.maximum(end - start, kind(NARROWEST))
            step = side / kind(n)
            for k in range(classes * n * n):
                c, i, j = k // (n * n), k // n % n, k % n
                first = start + np.array([j, i]).astype(data.dtype) * step
                if moves is not None and moves.shape[1] > 1:
                    own = min(c // max(classes // (moves.shape[1] // 2), 1), moves.shape[1] // 2 - 1)
                    part = i * self.part_size // n, j * self.part_size // n
                    first = first + moves[r, 2 * own : 2 * own + 2, part[0], part[1]] * kind(self.trans_std) * side
                y[r, c, i, j] = self._mean(data[image, k : k + 1], first, step)
        return y.astype(x.dtype)

    def _mean(self, plane: Array, first: Array, step: Array) -> Array:
        """The mean of the samples of a part."""
        kind = plane.dtype.type
        found: list[Any] = []
        for p in range(self.spatial_bins_y):
            down = first[1] + kind(p) * (step[1] / kind(self.spatial_bins_y))
            for q in range(self.spatial_bins_x):
                along = first[0] + kind(q) * (step[0] / kind(self.spatial_bins_x))
                height, width = plane.shape[1:]
                if -0.5 <= down <= height - 0.5 and -0.5 <= along <= width - 0.5:
                    inside = np.clip(down, kind(0), kind(height - 1)), np.clip(along, kind(0), kind(width - 1))
                    found.append(between(plane, inside[0], inside[1])[0])
        return sum(found, start=kind(0)) / kind(max(len(found), 1))

    def loops(self, b: LoopBuilder, x: Tensor, rois: Tensor, offsets: Tensor | None, y: Tensor) -> None:
        kind, n = x.dtype.compute, self.group_size
        with b.for_(rois.shape[0], "parallel", "r") as r:
            image, known = image_of(b, x, rois, r)
            ends = [[b.let(whole(near(rois[r, k].cast(kind))), "end") for k in pair] for pair in ((2, 4), (1, 3))]
            starts = [b.let(low * self.spatial_scale - 0.5, "start") for low, _ in ends]
            stops = [(high + 1.0) * self.spatial_scale - 0.5 for _, high in ends]
            sides = [b.let((q - p).max(NARROWEST), "side") for p, q in zip(starts, stops, strict=True)]
            with b.nest([self.output_dim, n, n]) as (c, *place):
                total = b.var(Const(0.0, kind), "total")
                count = b.var(Const(0.0, kind), "count")
                with b.if_(known):
                    firsts = [p + k.cast(kind) * (s / float(n)) for p, k, s in zip(starts, place, sides, strict=True)]
                    if offsets is not None:
                        firsts = self._moved(offsets, (r, c), place, sides, firsts, kind)
                    firsts = [b.let(v, "first") for v in firsts]
                    at = (image, (c * n + place[0]) * n + place[1])
                    with b.for_(self.spatial_bins_y) as p, b.for_(self.spatial_bins_x) as q:
                        self._sample(b, x, at, firsts, sides, (p, q), [total, count])
                b.store(y, (r, c, *place), (total / count.max(1.0)).cast(y.dtype))

    def _moved(
        self,
        offsets: Tensor,
        at: tuple[Expr, Expr],
        place: Sequence[Expr],
        sides: Sequence[Expr],
        firsts: Sequence[Expr],
        kind: DType,
    ) -> list[Expr]:
        """Where the first sample of a part stands, moved by the offsets."""
        r, c = at
        pairs = index(offsets.shape[1]) // 2
        each = (Const(self.output_dim, i64) // pairs.max(1)).max(1)
        own = (c // each).min(pairs - 1).max(0)
        parts = [k * self.part_size // self.group_size for k in place]
        found: list[Expr] = []
        for axis, (first, side) in enumerate(zip(firsts, sides, strict=True)):
            move = offsets[(r, own * 2 + (1 - axis), *parts)].cast(kind)
            found.append(first + move * self.trans_std * side)
        return found

    def _sample(
        self,
        b: LoopBuilder,
        x: Tensor,
        at: Sequence[Expr],
        firsts: Sequence[Expr],
        sides: Sequence[Expr],
        numbers: Sequence[Expr],
        sums: Sequence[Var],
    ) -> None:
        kind = x.dtype.compute
        places: list[Expr] = []
        inside: Expr = Const(True, boolean)
        bins = (self.spatial_bins_y, self.spatial_bins_x)
        for first, side, k, amount, size in zip(firsts, sides, numbers, bins, x.shape[2:], strict=True):
            place = b.let(first + k.cast(kind) * (side / float(self.group_size) / float(amount)), "place")
            reach = (index(size) - 1).cast(kind)
            inside = inside.logical_and(place.ge(-0.5)).logical_and(place.le(reach + 0.5))
            places.append(place.max(0.0).min(reach))
        with b.if_(inside):
            held = [b.let(place, "held") for place in places]
            b.assign(sums[0], sums[0] + between_at(b, x, at, held))
            b.assign(sums[1], sums[1] + 1.0)

    onnx = (write_only(write_moved, since=13),)
    openvino = (
        Form(
            "DeformablePSROIPooling",
            1,
            attrs={
                "output_dim": Int(lo=1),
                "spatial_scale": Float(),
                "group_size": Int(1, lo=1),
                "mode": Enum(["bilinear_deformable"], "bilinear_deformable"),
                "spatial_bins_x": Int(1, lo=1),
                "spatial_bins_y": Int(1, lo=1),
                "trans_std": Float(1.0),
                "part_size": Int(1, lo=1),
            },
            T=FLOATS_BF16,
        ),
    )
