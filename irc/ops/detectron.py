"""Detectron's anchors, its best regions, and the features of regions out of a pyramid.

Sources: OpenVINO specification, ExperimentalDetectronPriorGridGenerator-6, …TopKROIs-6, …ROIFeatureExtractor-6.
"""

from __future__ import annotations

import math

from irc.diagnostics import require
from irc.diagnostics.codes import operation, shape as codes
from irc.ir.graph import Value
from irc.ir.relation import same
from irc.ir.types import FLOATS_BF16, f32, i64
from irc.opdef.base import Op, op
from irc.opdef.builder import Builder
from irc.opdef.codecs import Bool, Float, Int, Ints
from irc.opdef.conversions import as_type
from irc.opdef.forms import Form, Results
from irc.opdef.signature import Sig
from irc.ops.class_boxes import numbers, padded, size_of
from irc.ops.sort import TopK

CANONICAL_SIDE = 224.0
CANONICAL_LEVEL = 2.0
"""A region of that side is looked up in that level of the pyramid."""


@op
class PriorGrid(Op):
    """Priors [n, 4] around the cells of a grid, [h · w · n, 4], or [h, w, n, 4] if they are not to be flat.

    The grid has the sizes of the feature map, and cells that cover the image, where no others are given.
    """

    flatten: bool = True
    h: int = 0
    w: int = 0
    stride_x: float = 0.0
    stride_y: float = 0.0
    sig = Sig("priors: T[2], feature_map: T[4], image: T[4] -> rois: T", T=FLOATS_BF16)

    def decompose(self, b: Builder, priors: Value, feature_map: Value, image: Value) -> Value:
        sizes = [b.const([given]) if given else size_of(b, feature_map, k) for given, k in ((self.h, 2), (self.w, 3))]
        centres: list[Value] = []
        for k, stride in enumerate((self.stride_y, self.stride_x)):
            whole = b.Cast(size_of(b, image, 2 + k), to=f32)
            step = b.const([stride], f32) if stride else b.Div(whole, b.Cast(sizes[k], to=f32))
            cells = b.Add(b.Cast(numbers(b, sizes[k]), to=f32), b.const(0.5, f32))
            centres.append(b.Mul(cells, step))
        down, right = b.Unsqueeze(centres[0], [1, 2, 3]), b.Unsqueeze(centres[1], [0, 2, 3])
        shift = b.Add(b.Mul(right, b.const([1, 0, 1, 0], f32)), b.Mul(down, b.const([0, 1, 0, 1], f32)))
        rois = b.Add(shift, as_type(b, priors, f32))
        rois = b.Reshape(rois, [-1, 4], special_zero=False) if self.flatten else rois
        return as_type(b, rois, priors.dtype)

    openvino = (
        Form(
            "ExperimentalDetectronPriorGridGenerator",
            6,
            attrs={
                "flatten": Bool(True),
                "h": Int(0, lo=0),
                "w": Int(0, lo=0),
                "stride_x": Float(0.0),
                "stride_y": Float(0.0),
            },
            T=FLOATS_BF16,
        ),
    )


@op
class TopRois(Op):
    """The `max_rois` regions [n, 4] of the largest probabilities, the best first; zeros where there are fewer."""

    max_rois: int = 0
    sig = Sig("rois: T[2], probabilities: T[1] -> y: T", T=FLOATS_BF16)

    def decompose(self, b: Builder, rois: Value, probabilities: Value) -> Value:
        facts = {"op": self.name, "what": "coordinates of a region", "a": rois.shape[1], "b": 4}
        require(same(rois.shape[1], 4), codes.SIZES_DIFFER, **facts)
        most = b.const([self.max_rois])
        _, order = b.add_all(TopK(axis=0), probabilities, b.Min(size_of(b, probabilities, 0), most))
        best = b.Gather(b.Reshape(rois, [-1, 4], special_zero=False), order, b.const(0))
        return padded(b, best, most)

    openvino = (Form("ExperimentalDetectronTopKROIs", 6, attrs={"max_rois": Int(0, lo=0)}, T=FLOATS_BF16),)


@op
class PyramidFeatures(Op):
    """The features of regions, each out of the level of the pyramid that fits its size, and the regions themselves.

    Operands: regions [n, 4], then a feature map for each level.  A region without area has features of 0.
    """

    output_size: int
    sampling_ratio: int
    pyramid_scales: tuple[int, ...]
    aligned: bool = False
    sig = Sig("*args: T -> features: T, rois: T", T=FLOATS_BF16)

    def decompose(self, b: Builder, *args: Value) -> Results:
        rois, *maps = args
        facts = {"op": self.name, "attribute": "pyramid_scales", "given": len(self.pyramid_scales), "needed": len(maps)}
        require(len(self.pyramid_scales) == len(maps) > 0, operation.ATTRIBUTE_LENGTH, **facts)
        boxes = as_type(b, rois, f32)
        level = b.Unsqueeze(self._levels(b, boxes, len(maps)), [1, 2, 3])
        image = b.Expand(b.const(0), size_of(b, boxes, 0))
        total: Value | None = None
        for k, (x, scale) in enumerate(zip(maps, self.pyramid_scales, strict=True)):
            found = b.RoiAlign(
                as_type(b, x, f32),
                b.Sub(boxes, b.const(scale / 2, f32)) if self.aligned else boxes,
                image,
                output_height=self.output_size,
                output_width=self.output_size,
                sampling_ratio=self.sampling_ratio,
                spatial_scale=1 / scale,
                half_pixel=False,
            )
            found = b.Where(b.Equal(level, b.const(k)), found, b.const(0.0, f32))
            total = found if total is None else b.Add(total, found)
        assert total is not None
        return as_type(b, total, rois.dtype), b.Identity(rois)

    def _levels(self, b: Builder, boxes: Value, count: int) -> Value:
        """The level of each region; `count` where it has no area."""
        sides = b.Sub(b.Slice(boxes, [2], [4], [1]), b.Slice(boxes, [0], [2], [1]))
        area = b.ReduceProd(sides, [1], keepdims=False)
        there = b.Greater(area, b.const(0.0, f32))
        side = b.Div(b.Sqrt(b.Where(there, area, b.const(1.0, f32))), b.const(CANONICAL_SIDE, f32))
        power = b.Div(b.Log(b.Add(side, b.const(1e-6, f32))), b.const(math.log(2.0), f32))
        level = b.Floor(b.Add(power, b.const(CANONICAL_LEVEL, f32)))
        level = b.Max(b.Min(level, b.const(count - 1, f32)), b.const(0.0, f32))
        return b.Where(there, b.Cast(level, to=i64), b.const(count))

    openvino = (
        Form(
            "ExperimentalDetectronROIFeatureExtractor",
            6,
            attrs={
                "output_size": Int(lo=1),
                "sampling_ratio": Int(assumed=0, lo=0),
                "pyramid_scales": Ints(assumed=(), lo=1),
                "aligned": Bool(False),
            },
            T=FLOATS_BF16,
        ),
    )
