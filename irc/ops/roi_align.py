"""Pooling of regions of interest at interpolated places.  Sources: Mask R-CNN (arXiv:1703.06870); ONNX RoiAlign."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence

import numpy as np

from irc.diagnostics import require
from irc.diagnostics.codes import shape as codes
from irc.expr import Const, Expr, Tensor, Var, call, index, select
from irc.ir.graph import Value
from irc.ir.relation import same
from irc.ir.types import FLOATS, FLOATS_BF16, INTEGERS, TensorType, bf16, boolean, i64
from irc.loops.builder import LoopBuilder
from irc.opdef.base import Array, op
from irc.opdef.builder import Builder
from irc.opdef.codecs import Enum, Float, Int
from irc.opdef.conversions import as_i64
from irc.opdef.forms import PREV, Attributes, Declined, Form, write_only
from irc.opdef.precision import wide
from irc.opdef.signature import Sig
from irc.ops.pool import MaxPool
from irc.ops.regions_last import RegionOp, Totals, totals
from irc.ops.regions_onnx import write_largest_part, write_samples

SPREAD = 8
"""A region takes at most this many samples for each row or column of the image, and a few: one that is larger lies
mostly outside."""


FIRST = {
    "mode": Enum(["avg", "max"], "avg"),
    "output_height": Int(1, lo=1),
    "output_width": Int(1, lo=1),
    "sampling_ratio": Int(0, lo=0),
    "spatial_scale": Float(1.0),
}
"""The attributes of opset 10."""


def read_first(b: Builder, a: Attributes, x: Value, rois: Value, batch: Value) -> Value:
    """Read the RoiAlign of opset 10, which does not move regions by half a pixel."""
    fields = {k: v for k, v in vars(a).items() if k not in ("outputs", "opset")}
    return b.RoiAlign(x, rois, batch, half_pixel=False, **fields)


def not_moved(op: RoiAlign, *operands: Value | None) -> bool:
    return not op.half_pixel


def read_openvino(b: Builder, a: Attributes, x: Value, rois: Value, batch: Value) -> Value:
    """Read OpenVINO's operation, which can move regions by half a pixel of the image that they were found in, too."""
    aligned = getattr(a, "half_pixel", False)
    if aligned == "half_pixel":
        rois = b.Add(rois, b.like(0.5, rois))
    fields = {k: v for k, v in vars(a).items() if k not in ("outputs", "opset", "half_pixel")}
    return b.RoiAlign(x, rois, as_i64(b, batch), half_pixel=bool(aligned), **fields)


def write_sample_pool(b: Builder, op: RoiAlign, x: Value, rois: Value, batch: Value) -> Value:
    """The largest of samples and 0: the samples by a mean of one each, and a pool over them."""
    count = op.sampling_ratio
    if op.mode != "max_sample" or count <= 0:
        raise Declined
    one = dataclasses.replace(
        op, mode="avg", sampling_ratio=1, output_height=op.output_height * count, output_width=op.output_width * count
    )
    pool = MaxPool(kernel=(count, count), strides=(count, count))
    return b.Relu(b.add_all(pool, b.add(one, x, rois, batch))[0])


def openvino_says(op: RoiAlign, *operands: Value | None) -> bool:
    return op.mode != "max"


def openvino_says_unmoved(op: RoiAlign, *operands: Value | None) -> bool:
    return op.mode != "max" and not op.half_pixel


OV_ALIGN = {
    "pooled_h": Int(to="output_height", lo=1),
    "pooled_w": Int(to="output_width", lo=1),
    "sampling_ratio": Int(assumed=0, lo=0),
    "spatial_scale": Float(),
    "mode": Enum({"avg": "avg", "max": "max_sample"}, assumed="avg"),
}
ALIGNED = Enum({"asymmetric": False, "half_pixel_for_nn": True, "half_pixel": "half_pixel"}, False, to="half_pixel")


def sample_places(start: Array, step: Array, parts: int, ratio: int, size: int) -> Array:
    """Place samples along an axis of parts that are `step` long, [parts, samples of a part]; see `sample_count`."""
    kind, count = step.dtype.type, ratio
    if count <= 0:
        exact = math.ceil(step) if np.isfinite(step) else 0
        count = min(max(exact, 0), SPREAD * (size + 8))
    place = (np.arange(count).astype(step.dtype) + kind(0.5)) * step / kind(max(count, 1))
    return start + np.arange(parts).astype(step.dtype)[:, None] * step + place


@op
class RoiAlign(RegionOp):
    """The mean (or the largest) of samples in each of height × width parts of each region [x1, y1, x2, y2].

    A sample stands between four elements, which have weights by their nearness; `mode` max takes the largest of the
    weighted elements, `max_sample` that of the samples and 0.  `sampling_ratio` samples a part along each axis; 0: one
    for each element in it.  A region of an image that there is not gives zeros.
    """

    mode: str = "avg"
    output_height: int = 1
    output_width: int = 1
    sampling_ratio: int = 0
    spatial_scale: float = 1.0
    half_pixel: bool = True
    sig = Sig("x: T[4], rois: T[2], batch: i64[1] -> y: T", T=FLOATS_BF16)

    def infer(self, x: Value, rois: Value, batch: Value) -> TensorType:
        facts = {"op": "RoiAlign", "what": "coordinates of a region", "a": rois.shape[1], "b": 4}
        require(same(rois.shape[1], 4), codes.SIZES_DIFFER, **facts)
        facts = {"op": "RoiAlign", "what": "regions and image numbers", "a": rois.shape[0], "b": batch.shape[0]}
        require(same(rois.shape[0], batch.shape[0]), codes.SIZES_DIFFER, **facts)
        return x.tensor.with_shape([rois.shape[0], x.shape[1], self.output_height, self.output_width])

    def reference(self, x: Array, rois: Array, batch: Array) -> Array:
        data, kind = wide(x), wide(x).dtype.type
        offset = kind(0.5 if self.half_pixel else 0)
        y = np.zeros((len(rois), x.shape[1], self.output_height, self.output_width), data.dtype)
        boxes = wide(rois) * kind(self.spatial_scale) - offset
        for r in range(len(rois)):
            if 0 <= batch[r] < len(x):
                left, top, right, bottom = boxes[r]
                rows = self._samples(top, bottom, self.output_height, x.shape[2])
                columns = self._samples(left, right, self.output_width, x.shape[3])
                y[r] = self._pooled(data[batch[r]], rows, columns)
        return y.astype(x.dtype)

    def _samples(self, start: Array, end: Array, parts: int, size: int) -> Array:
        """Where samples stand along an axis, [parts, samples of a part]."""
        kind = start.dtype.type
        extent = end - start if self.half_pixel else np.maximum(end - start, kind(1))
        return sample_places(start, extent / kind(parts), parts, self.sampling_ratio, size)

    def _pooled(self, image: Array, rows: Array, columns: Array) -> Array:
        parts, count = rows.shape
        across, more = columns.shape
        found: list[Array] = []
        for weight_y, at_y in taps_near(rows.reshape(-1), image.shape[1]):
            for weight_x, at_x in taps_near(columns.reshape(-1), image.shape[2]):
                values = image[:, at_y][:, :, at_x] * (weight_y[:, None] * weight_x)
                found.append(values.reshape(len(image), parts, count, across, more))
        if not count * more:
            return np.zeros((len(image), parts, across), image.dtype)
        if self.mode == "max":
            return np.maximum.reduce(found).max((2, 4))
        if self.mode == "max_sample":
            return sum(found, start=np.zeros_like(found[0])).max((2, 4)).clip(0)
        return sum(found, start=np.zeros_like(found[0])).sum((2, 4)) / image.dtype.type(count * more)

    def loops_last(self, b: LoopBuilder, x: Tensor, rois: Tensor, batch: Tensor, y: Tensor) -> None:
        kind = x.dtype.compute
        images, height, width, channels = x.shape
        shape = (self.output_height, self.output_width)
        with b.for_(rois.shape[0], "parallel", "r") as r:
            image = b.let(batch[r], "image")
            known = b.let(image.ge(0).logical_and(image.lt(index(images))), "known")
            starts, steps, counts = list[Expr](), list[Expr](), list[Expr]()
            for axis, size in ((1, height), (0, width)):
                start, end = (
                    rois[r, k].cast(kind) * self.spatial_scale - (0.5 if self.half_pixel else 0.0)
                    for k in (axis, axis + 2)
                )
                start = b.let(start, "start")
                extent = end - start if self.half_pixel else (end - start).max(1.0)
                step = b.let(extent / float(shape[1 - axis]), "step")
                starts.append(start)
                steps.append(step)
                counts.append(b.let(sample_count(self.sampling_ratio, step, index(size) + 8), "count"))
            amount = b.let((counts[0] * counts[1]).max(1).cast(kind), "amount")
            with b.nest(shape) as (i, j), totals(b, kind, channels, Const(0.0, kind)) as found:
                first = b.var(Const(True, boolean), "first") if self.mode == "max" else None
                with b.if_(known), b.for_(counts[0], name="p") as p, b.for_(counts[1], name="q") as q:
                    places = [
                        b.let(s + k.cast(kind) * t + (n.cast(kind) + 0.5) * t / m.max(1).cast(kind), "place")
                        for s, k, t, n, m in zip(starts, (i, j), steps, (p, q), counts, strict=True)
                    ]
                    add_sample(b, self.mode, x, image, places, found, first)
                found.store(y, (r, i, j), lambda total: total / amount if self.mode == "avg" else total)

    onnx = (
        Form(
            "RoiAlign", 10, attrs=FIRST, T=FLOATS, read=read_first, direct=True, when=not_moved, judges=("half_pixel",)
        ),
        Form(
            "RoiAlign",
            16,
            attrs={
                **FIRST,
                "coordinate_transformation_mode": Enum(
                    {"half_pixel": True, "output_half_pixel": False}, True, to="half_pixel"
                ),
            },
            read=None,
            when=None,
            judges=(),
            write=write_sample_pool,
        ),
        Form("RoiAlign", 22, T=PREV | {bf16}),
        write_only(write_samples, since=13),
    )
    openvino = (
        Form(
            "ROIAlign",
            3,
            attrs=OV_ALIGN,
            T=FLOATS_BF16,
            sig=Sig("x: T[4], rois: T[2], batch: I[1] -> y: T", T=FLOATS_BF16, I=INTEGERS),
            read=read_openvino,
            direct=True,
            when=openvino_says_unmoved,
            judges=("half_pixel",),
            last=8,
        ),
        Form("ROIAlign", 9, attrs={**OV_ALIGN, "aligned_mode": ALIGNED}, when=openvino_says, judges=()),
        write_only(write_largest_part, since=5),
    )


def taps_near(places: Array, size: int) -> list[tuple[Array, Array]]:
    """The two elements near each place along an axis: their weights, and where they are; weights of 0 outside."""
    kind = places.dtype.type
    inside = (places >= -1) & (places <= size) & (size > 0)
    safe = np.where(inside, np.maximum(places, 0), 0)
    low = safe.astype(np.int64)
    last = max(size - 1, 0)
    way = np.where(low >= last, kind(0), safe - low.astype(places.dtype)).astype(places.dtype)
    held = inside.astype(places.dtype)
    return [((kind(1) - way) * held, np.minimum(low, last)), (way * held, np.minimum(low + 1, last))]


def add_sample(
    b: LoopBuilder, mode: str, x: Tensor, image: Expr, places: Sequence[Expr], found: Totals, first: Var | None = None
) -> None:
    """Take the samples of all channels at a place of an image into their totals; the channels of x are last.

    first: of mode max, whether there is none yet.
    """
    kind, sizes = x.dtype.compute, x.shape[1:3]
    inside: Expr = Const(True, boolean)
    for place, size in zip(places, sizes, strict=True):
        n = index(size)
        near = place.ge(-1.0).logical_and(place.le(n.cast(kind)))
        inside = inside.logical_and(near).logical_and(n.gt(0))
    with b.if_(inside):
        taps: list[list[tuple[Expr, Expr]]] = []
        for place, size in zip(places, sizes, strict=True):
            safe = b.let(place.max(0.0), "safe")
            low = b.let(safe.cast(i64), "low")
            last = index(size) - 1
            way = b.let(select(low.ge(last), Const(0.0, kind), safe - low.cast(kind)), "way")
            taps.append([(1.0 - way, b.let(low.min(last), "at")), (way, b.let((low + 1).min(last), "at"))])
        weighed = [(b.let(w * v, "weight"), row, column) for w, row in taps[0] for v, column in taps[1]]

        def taken(c: Expr, total: Expr) -> Expr:
            products = [x[image, row, column, c].cast(kind) * weight for weight, row, column in weighed]
            sample = products[0] + products[1] + products[2] + products[3]
            if first is None:
                return total + sample if mode == "avg" else total.max(sample)
            best = products[0].max(products[1]).max(products[2]).max(products[3])
            return select(first, best, total.max(best))

        found.update(taken)
    if first is not None:
        with b.else_():
            found.update(lambda c, total: select(first, Const(0.0, kind), total.max(0.0)))
        b.assign(first, Const(False, boolean))


def sample_count(ratio: int, step: Expr, limit: Expr) -> Expr:
    """How many samples a part of `step` elements takes along an axis: `ratio`, or one for each element."""
    if ratio > 0:
        return Const(ratio, i64)
    most = (limit * SPREAD).cast(step.dtype)
    bounded = select(step.gt(0.0), call("ceil", select(step.lt(most), step, most)), Const(0.0, step.dtype))
    return select(step.lt(math.inf), bounded, Const(0.0, step.dtype)).cast(i64)
