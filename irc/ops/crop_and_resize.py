"""Crops of images, resized to one size.  Source: ONNX Runtime, com.microsoft CropAndResize."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from irc.diagnostics import require
from irc.diagnostics.codes import shape as codes
from irc.expr import Expr, IndexFunction, Tensor, call, index, select
from irc.ir.dim import Dim
from irc.ir.graph import Value
from irc.ir.relation import same
from irc.ir.types import FLOATS, TensorType, i64
from irc.opdef.base import Array, Op, op
from irc.opdef.builder import Builder
from irc.opdef.codecs import Enum, Float
from irc.opdef.conversions import as_i64
from irc.opdef.forms import MICROSOFT, Form
from irc.opdef.precision import rounded, wide
from irc.opdef.run_sizes import each
from irc.opdef.signature import Sig


def places(first: Array, last: Array, size: int, count: int) -> Array:
    """Where the pixels of each crop stand along an axis of `size` pixels, [crops, count]."""
    reach = first.dtype.type(size - 1)
    if count <= 1:
        return ((first + last) * first.dtype.type(0.5) * reach)[:, None] + np.zeros((1, count), first.dtype)
    step = (last - first) * reach / first.dtype.type(count - 1)
    return (first * reach)[:, None] + np.arange(count, dtype=first.dtype)[None, :] * step[:, None]


@op
class CropAndResize(Op):
    """Crops of x [n, channels, height, width], resized.

    `rois` are y1, x1, y2, x2; 0 and 1 are the centres of the first and the last pixel.  What lies outside is
    `extrapolation_value`, and so is a crop of an image that there is not.
    """

    extrapolation_value: float = 0.0
    mode: str = "bilinear"
    sig = Sig("x: T[4], rois: T[2], batch_indices: i32[1], crop_size: i32[1] -> y: T", T=FLOATS)

    def infer(self, x: Value, rois: Value, batch_indices: Value, crop_size: Value) -> TensorType:
        facts = {"op": self.name, "what": "columns of rois", "a": rois.shape[1], "b": 4}
        require(same(rois.shape[1], 4), codes.SIZES_DIFFER, **facts)
        facts = {"op": self.name, "what": "rois and batch_indices", "a": rois.shape[0], "b": batch_indices.shape[0]}
        require(same(rois.shape[0], batch_indices.shape[0]), codes.SIZES_DIFFER, **facts)
        facts = {"op": self.name, "what": "sizes of a crop", "a": crop_size.shape[0], "b": 2}
        require(same(crop_size.shape[0], 2), codes.SIZES_DIFFER, **facts)
        height, width = crop_size.dims() or (Dim.fresh("crop"), Dim.fresh("crop"))
        return TensorType(x.dtype, (rois.shape[0], x.shape[1], height, width))

    def run_sizes(
        self, b: Builder, out: TensorType, x: Value, rois: Value, batch_indices: Value, crop_size: Value
    ) -> Iterable[tuple[Dim, Value]]:
        yield from each(b, out.dims()[2:], as_i64(b, crop_size))

    def reference(self, x: Array, rois: Array, batch_indices: Array, crop_size: Array) -> Array:
        w, corners = wide(x), wide(rois)
        sizes = x.shape[2:]
        counts = [int(n) for n in crop_size]
        at = [places(corners[:, k], corners[:, 2 + k], sizes[k], counts[k]) for k in range(2)]
        there = (batch_indices >= 0) & (batch_indices < x.shape[0])
        inside = [(p >= 0) & (p <= n - 1) for p, n in zip(at, sizes)]
        valid = inside[0][:, :, None] & inside[1][:, None, :] & there[:, None, None]
        outside = w.dtype.type(self.extrapolation_value)
        if not x.size:
            return np.full((len(rois), x.shape[1], *counts), outside, x.dtype)
        batch = np.where(there, batch_indices, 0)[:, None, None]
        rows, columns = [np.where(ok, p, w.dtype.type(0)) for ok, p in zip(inside, at)]
        if self.mode == "nearest":
            v, h = (np.floor(p + w.dtype.type(0.5)).astype(np.int64) for p in (rows, columns))
            found = w[batch, :, v[:, :, None], h[:, None, :]]
        else:
            top, left = np.floor(rows), np.floor(columns)
            v, h = ((rows - top)[:, :, None, None], (columns - left)[:, None, :, None])
            ends = [np.stack([np.floor(p), np.ceil(p)]).astype(np.int64) for p in (rows, columns)]
            corner = [[w[batch, :, ends[0][i][:, :, None], ends[1][j][:, None, :]] for j in (0, 1)] for i in (0, 1)]
            upper = corner[0][0] + (corner[0][1] - corner[0][0]) * h
            lower = corner[1][0] + (corner[1][1] - corner[1][0]) * h
            found = upper + (lower - upper) * v
        y = np.where(valid[..., None], found, outside)
        return rounded(np.ascontiguousarray(y.transpose(0, 3, 1, 2)), x)

    def compute(
        self, out: TensorType, x: Tensor, rois: Tensor, batch_indices: Tensor, crop_size: Tensor
    ) -> IndexFunction:
        kind = x.dtype.compute
        counts, sizes = out.dims()[2:], x.shape[2:]

        def place(n: Expr, k: int, i: Expr) -> Expr:
            first, last = rois[n, k].cast(kind), rois[n, k + 2].cast(kind)
            reach = (index(sizes[k]) - 1).cast(kind)
            step = (last - first) * reach / (index(counts[k]) - 1).cast(kind)
            return select(index(counts[k]).gt(1), first * reach + i.cast(kind) * step, (first + last) * 0.5 * reach)

        def element(n: Expr, c: Expr, i: Expr, j: Expr) -> Expr:
            batch = batch_indices[n].cast(i64)
            y, h = place(n, 0, i), place(n, 1, j)
            ends = [(index(size) - 1).cast(kind) for size in sizes]
            ok = y.ge(0.0).logical_and(y.le(ends[0])).logical_and(h.ge(0.0)).logical_and(h.le(ends[1]))
            ok = ok.logical_and(batch.ge(0)).logical_and(batch.lt(index(x.shape[0])))

            def pixel(v: Expr, u: Expr) -> Expr:
                return x[batch, c, v.cast(i64), u.cast(i64)].cast(kind)

            if self.mode == "nearest":
                found = pixel(call("floor", y + 0.5), call("floor", h + 0.5))
            else:
                top, left = call("floor", y), call("floor", h)
                bottom, right = call("ceil", y), call("ceil", h)
                upper = pixel(top, left) + (pixel(top, right) - pixel(top, left)) * (h - left)
                lower = pixel(bottom, left) + (pixel(bottom, right) - pixel(bottom, left)) * (h - left)
                found = upper + (lower - upper) * (y - top)
            return select(ok, found, self.extrapolation_value).cast(x.dtype)

        return element

    onnx = (
        Form(
            "CropAndResize",
            1,
            attrs={"extrapolation_value": Float(0.0), "mode": Enum(["bilinear", "nearest"], "bilinear")},
            T=FLOATS,
            domain=MICROSOFT,
        ),
    )
