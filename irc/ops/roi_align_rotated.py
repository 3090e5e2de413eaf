"""Pooling of turned regions of interest at interpolated places.  Source: OpenVINO specification, ROIAlignRotated-15."""

from __future__ import annotations

import numpy as np

from irc.diagnostics import require
from irc.diagnostics.codes import shape as codes
from irc.expr import Const, Tensor, call, index
from irc.ir.graph import Value
from irc.ir.relation import same
from irc.ir.types import FLOATS_BF16, INTEGERS, TensorType, f8e4m3fn, f8e5m2
from irc.loops.builder import LoopBuilder
from irc.opdef.base import Array, op
from irc.opdef.builder import Builder
from irc.opdef.codecs import Bool, Float, Int
from irc.opdef.conversions import as_i64
from irc.opdef.forms import Attributes, Form, write_only
from irc.opdef.precision import wide
from irc.opdef.signature import Sig
from irc.ops.regions_last import RegionOp, totals
from irc.ops.regions_onnx import write_rotated
from irc.ops.roi_align import add_sample, sample_count, sample_places, taps_near


def read_rotated(b: Builder, a: Attributes, x: Value, rois: Value, batch: Value) -> Value:
    """Read the operation, whose image numbers may be of any integer type."""
    fields = {k: v for k, v in vars(a).items() if k not in ("outputs", "opset")}
    return b.RoiAlignRotated(x, rois, as_i64(b, batch), **fields)


@op
class RoiAlignRotated(RegionOp):
    """The mean of samples in each of height × width parts of each region (centre x and y, width, height, angle).

    A sample stands between four elements, which have weights by their nearness.  `sampling_ratio` samples a part along
    each axis; 0: one for each element in it.  A region of an image that there is not gives zeros.
    """

    output_height: int = 1
    output_width: int = 1
    sampling_ratio: int = 0
    spatial_scale: float = 1.0
    clockwise: bool = False
    sig = Sig("x: T[4], rois: T[2], batch: i64[1] -> y: T", T=FLOATS_BF16 | {f8e4m3fn, f8e5m2})

    def infer(self, x: Value, rois: Value, batch: Value) -> TensorType:
        facts = {"op": self.name, "what": "numbers of a region", "a": rois.shape[1], "b": 5}
        require(same(rois.shape[1], 5), codes.SIZES_DIFFER, **facts)
        facts = {"op": self.name, "what": "regions and image numbers", "a": rois.shape[0], "b": batch.shape[0]}
        require(same(rois.shape[0], batch.shape[0]), codes.SIZES_DIFFER, **facts)
        return x.tensor.with_shape([rois.shape[0], x.shape[1], self.output_height, self.output_width])

    def reference(self, x: Array, rois: Array, batch: Array) -> Array:
        data, kind = wide(x), wide(x).dtype.type
        y = np.zeros((len(rois), x.shape[1], self.output_height, self.output_width), data.dtype)
        boxes = wide(rois)
        for r in range(len(rois)):
            if 0 <= batch[r] < len(x):
                centre = boxes[r, :2] * kind(self.spatial_scale) - kind(0.5)
                width, height = boxes[r, 2:4] * kind(self.spatial_scale)
                angle = -boxes[r, 4] if self.clockwise else boxes[r, 4]
                rows = self._samples(height, self.output_height, x.shape[2])[:, None, :, None]
                columns = self._samples(width, self.output_width, x.shape[3])[None, :, None, :]
                cosine, sine = np.cos(angle), np.sin(angle)
                down = rows * cosine - columns * sine + centre[1]
                right = rows * sine + columns * cosine + centre[0]
                y[r] = self._pooled(data[batch[r]], down, right)
        return y.astype(x.dtype)

    def _samples(self, extent: Array, parts: int, size: int) -> Array:
        """Where samples stand along an axis of the region, from its centre, [parts, samples of a part]."""
        kind = extent.dtype.type
        return sample_places(-extent / kind(2), extent / kind(parts), parts, self.sampling_ratio, size)

    def _pooled(self, image: Array, rows: Array, columns: Array) -> Array:
        parts, across, count, more = rows.shape
        total = np.zeros((len(image), rows.size), image.dtype)
        inside = (rows.reshape(-1) >= -1) & (rows.reshape(-1) <= image.shape[1])
        inside &= (columns.reshape(-1) >= -1) & (columns.reshape(-1) <= image.shape[2])
        for weight_y, at_y in taps_near(rows.reshape(-1), image.shape[1]):
            for weight_x, at_x in taps_near(columns.reshape(-1), image.shape[2]):
                if image.shape[1] and image.shape[2]:
                    total += np.where(inside, image[:, at_y, at_x] * (weight_y * weight_x), 0).astype(image.dtype)
        held = total.reshape(len(image), parts, across, count * more)
        return held.sum(3) / image.dtype.type(max(count * more, 1))

    def loops_last(self, b: LoopBuilder, x: Tensor, rois: Tensor, batch: Tensor, y: Tensor) -> None:
        kind = x.dtype.compute
        images, height, width, channels = x.shape
        shape = (self.output_height, self.output_width)
        with b.for_(rois.shape[0], "parallel", "r") as r:
            image = b.let(batch[r], "image")
            known = b.let(image.ge(0).logical_and(image.lt(index(images))), "known")
            box = [b.let(rois[r, k].cast(kind), "number") for k in range(5)]
            angle = -box[4] if self.clockwise else box[4]
            cosine, sine = b.let(call("cos", angle), "cosine"), b.let(call("sin", angle), "sine")
            centres = [b.let(box[k] * self.spatial_scale - 0.5, "centre") for k in (1, 0)]
            extents = [b.let(box[k] * self.spatial_scale, "extent") for k in (3, 2)]
            steps = [b.let(e / float(n), "step") for e, n in zip(extents, shape, strict=True)]
            sizes = (height, width)
            counts = [
                b.let(sample_count(self.sampling_ratio, s, index(n) + 8), "count")
                for s, n in zip(steps, sizes, strict=True)
            ]
            amount = b.let((counts[0] * counts[1]).max(1).cast(kind), "amount")
            with b.nest(shape) as (i, j), totals(b, kind, channels, Const(0.0, kind)) as found:
                with b.if_(known), b.for_(counts[0], name="p") as p, b.for_(counts[1], name="q") as q:
                    down, right = (
                        b.let(-e / 2 + k.cast(kind) * t + (n.cast(kind) + 0.5) * t / m.max(1).cast(kind), "place")
                        for e, k, t, n, m in zip(extents, (i, j), steps, (p, q), counts, strict=True)
                    )
                    places = [
                        b.let(down * cosine - right * sine + centres[0], "row"),
                        b.let(down * sine + right * cosine + centres[1], "column"),
                    ]
                    add_sample(b, "avg", x, image, places, found)
                found.store(y, (r, i, j), lambda total: total / amount)

    onnx = (write_only(write_rotated, since=13),)
    openvino = (
        Form(
            "ROIAlignRotated",
            15,
            attrs={
                "pooled_h": Int(to="output_height", lo=1),
                "pooled_w": Int(to="output_width", lo=1),
                "sampling_ratio": Int(assumed=0, lo=0),
                "spatial_scale": Float(),
                "clockwise_mode": Bool(to="clockwise", assumed=False),
            },
            T=FLOATS_BF16 | {f8e4m3fn, f8e5m2},
            sig=Sig("x: T[4], rois: T[2], batch: I[1] -> y: T", T=FLOATS_BF16 | {f8e4m3fn, f8e5m2}, I=INTEGERS),
            read=read_rotated,
            direct=True,
        ),
    )
