"""Pooling of regions of interest whose edges are rounded to whole elements.  Sources: Fast R-CNN (arXiv:1504.08083);
ONNX MaxRoiPool; ONNX Runtime for the rounding."""

from __future__ import annotations

import numpy as np

from irc.diagnostics import require
from irc.diagnostics.codes import operation as operation_codes, shape as codes
from irc.expr import Const, Expr, Tensor, call, index, select
from irc.ir.graph import Value
from irc.ir.relation import same
from irc.ir.types import FLOATS, FLOATS_BF16, TensorType, bf16, i64
from irc.loops.builder import LoopBuilder
from irc.opdef.base import Array, op
from irc.opdef.builder import Builder
from irc.opdef.codecs import Float, Ints
from irc.opdef.forms import PREV, Form, write_only
from irc.opdef.precision import wide
from irc.opdef.signature import Sig
from irc.ops.regions_last import RegionOp, totals

FAR = float(1 << 20)
"""Edges are moved to within this distance: no image is as large, and NaN becomes one of them."""


def write_roi_pooling(b: Builder, op: MaxRoiPool, x: Value, rois: Value) -> Value:
    height, width = op.pooled_shape
    return b.RoiPooling(x, rois, output_height=height, output_width=width, spatial_scale=op.spatial_scale)


@op
class MaxRoiPool(RegionOp):
    """The largest element in each of height × width parts of each region [image, x1, y1, x2, y2], both ends included.

    The parts of a region overlap where its size is no multiple of theirs.  An empty part, as of an image that there is
    not, gives 0.
    """

    pooled_shape: tuple[int, ...]
    spatial_scale: float = 1.0
    sig = Sig("x: T[4], rois: T[2] -> y: T", T=FLOATS_BF16)

    def infer(self, x: Value, rois: Value) -> TensorType:
        facts = {"op": "MaxRoiPool", "attribute": "pooled_shape", "given": len(self.pooled_shape), "needed": 2}
        require(len(self.pooled_shape) == 2, operation_codes.ATTRIBUTE_LENGTH, **facts)
        facts = {"op": "MaxRoiPool", "what": "numbers of a region", "a": rois.shape[1], "b": 5}
        require(same(rois.shape[1], 5), codes.SIZES_DIFFER, **facts)
        return x.tensor.with_shape([rois.shape[0], x.shape[1], *self.pooled_shape])

    def reference(self, x: Array, rois: Array) -> Array:
        data, regions = wide(x), wide(rois)
        y = np.zeros((len(rois), x.shape[1], *self.pooled_shape), data.dtype)
        for r in range(len(rois)):
            image = regions[r, 0]
            if not 0 <= image < len(x):
                continue
            left, top, right, bottom = regions[r, 1:]
            rows = self._parts(top, bottom, self.pooled_shape[0], x.shape[2])
            columns = self._parts(left, right, self.pooled_shape[1], x.shape[3])
            for i, (low, high) in enumerate(rows):
                for j, (start, end) in enumerate(columns):
                    part = data[int(image), :, low:high, start:end]
                    if part.size:
                        y[r, :, i, j] = np.fmax.reduce(part.reshape(len(part), -1), axis=1, initial=-np.inf)
        return y.astype(x.dtype)

    def _parts(self, start: Array, end: Array, count: int, size: int) -> list[tuple[int, int]]:
        """Where parts begin and end along an axis of the image."""
        kind = start.dtype.type
        edges: list[int] = []
        for edge in (start * kind(self.spatial_scale), end * kind(self.spatial_scale)):
            near = edge if edge < FAR else kind(FAR)
            near = near if near > -FAR else kind(-FAR)
            whole = np.trunc(near)
            edges.append(int(whole + (np.sign(near) if abs(near - whole) >= 0.5 else 0)))
        step = kind(max(edges[1] - edges[0] + 1, 1)) / kind(count)
        found: list[tuple[int, int]] = []
        for k in range(count):
            low, high = edges[0] + int(np.floor(kind(k) * step)), edges[0] + int(np.ceil(kind(k + 1) * step))
            found.append((min(max(low, 0), size), min(max(high, 0), size)))
        return found

    def loops_last(self, b: LoopBuilder, x: Tensor, rois: Tensor, y: Tensor) -> None:
        kind = x.dtype.compute
        images, height, width, channels = x.shape
        with b.for_(rois.shape[0], "parallel", "r") as r:
            image = b.let(rois[r, 0].cast(kind), "image")
            known = b.let(image.ge(0.0).logical_and(image.lt(index(images).cast(kind))), "known")
            number = b.let(select(known, image, Const(0.0, kind)).cast(i64), "number")
            starts, steps = list[Expr](), list[Expr]()
            for axis, count in ((1, self.pooled_shape[0]), (0, self.pooled_shape[1])):
                first, last = (self._edge(b, rois[r, k].cast(kind)) for k in (axis + 1, axis + 3))
                starts.append(first)
                steps.append(b.let((last - first + 1).max(1).cast(kind) / float(count), "step"))
            with b.nest(self.pooled_shape) as (i, j):
                (low, high), (left, right) = (
                    self._part(b, first, step, k, index(size))
                    for first, step, k, size in zip(starts, steps, (i, j), (height, width), strict=True)
                )
                some = high.gt(low).logical_and(right.gt(left)).logical_and(known)
                start = b.let(select(some, Const(float("-inf"), kind), Const(0.0, kind)), "start")
                with totals(b, kind, channels, start) as found:
                    with b.if_(known), b.for_(high - low, name="p") as p, b.for_(right - left, name="q") as q:
                        at = (number, b.let(low + p, "row"), b.let(left + q, "column"))

                        def larger(c: Expr, best: Expr, at: tuple[Expr, ...] = at) -> Expr:
                            value = x[(*at, c)].cast(kind)
                            return select(value.gt(best), value, best)

                        found.update(larger)
                    found.store(y, (r, i, j), lambda best: best)

    def _edge(self, b: LoopBuilder, place: Expr) -> Expr:
        """Round an edge to the nearest element, halves away from 0."""
        kind = place.dtype
        scaled = b.let(place * self.spatial_scale, "scaled")
        near = b.let(select(scaled.lt(FAR), scaled, Const(FAR, kind)), "near")
        near = b.let(select(near.gt(-FAR), near, Const(-FAR, kind)), "near")
        whole = b.let(near.cast(i64), "whole")
        rest = b.let(near - whole.cast(kind), "rest")
        up, down = rest.ge(0.5), rest.le(-0.5)
        return b.let(whole + select(up, Const(1, i64), select(down, Const(-1, i64), Const(0, i64))), "edge")

    def _part(self, b: LoopBuilder, first: Expr, step: Expr, k: Expr, size: Expr) -> tuple[Expr, Expr]:
        """Where part k begins and ends along an axis of the image; it does not end before it begins."""
        kind = step.dtype
        low = first + call("floor", k.cast(kind) * step).cast(i64)
        high = first + call("ceil", (k + 1).cast(kind) * step).cast(i64)
        low = b.let(low.max(0).min(size), "low")
        return low, b.let(high.max(0).min(size).max(low), "high")

    onnx = (
        Form("MaxRoiPool", 1, attrs={"pooled_shape": Ints(lo=1), "spatial_scale": Float(1.0)}, T=FLOATS),
        Form("MaxRoiPool", 22, T=PREV | {bf16}),
    )
    openvino = (write_only(write_roi_pooling, since=2),)
