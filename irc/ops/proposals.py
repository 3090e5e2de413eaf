"""Regions where objects may be: Proposal, GenerateProposals and Detectron's for one image.

Sources: OpenVINO specification, Proposal-1, -4, GenerateProposals-9,
ExperimentalDetectronGenerateProposalsSingleImage-6;
Faster R-CNN (arXiv:1506.01497).
"""

from __future__ import annotations

import math

import numpy as np

from irc.diagnostics import require
from irc.diagnostics.codes import shape as codes
from irc.ir.graph import Value
from irc.ir.relation import same
from irc.ir.types import FLOATS_BF16, DType, f32, i32, i64
from irc.opdef.base import Op, op
from irc.opdef.builder import Builder
from irc.opdef.codecs import Bool, DTypeAttr, Enum, Float, Floats, Int
from irc.opdef.conversions import as_type
from irc.opdef.forms import Form, Results
from irc.opdef.signature import Sig
from irc.ops.class_boxes import best_of_class, columns, numbers, padded, pairs, places_in_images, size_of, with_pixels
from irc.ops.select_boxes import suppressed

LOWEST = -3.4028234663852886e38
LARGEST_GROWTH = math.log(1000 / 16)
"""The largest logarithm of a growth of an anchor."""


def moved(b: Builder, boxes: Value, deltas: Value, extra: float, pixels: float, growth: float = math.inf) -> Value:
    """Move boxes [n, boxes, 4] by deltas; a side is longer than its coordinates by `extra`, a moved one by `pixels`."""
    half = b.const(0.5, f32)
    low, high = (b.Slice(boxes, [k], [k + 2], [2]) for k in (0, 2))
    shift, logarithm = (b.Slice(deltas, [k], [k + 2], [2]) for k in (0, 2))
    logarithm = b.Min(logarithm, b.const(growth, f32)) if growth < math.inf else logarithm
    size = b.Add(b.Sub(high, low), b.const(extra, f32))
    centre = b.Add(b.Mul(shift, size), b.Add(low, b.Mul(half, size)))
    reach = b.Mul(half, b.Mul(b.Exp(logarithm), size))
    return b.Concat(b.Sub(centre, reach), b.Sub(b.Add(centre, reach), b.const(pixels, f32)), axis=2)


def within(b: Builder, boxes: Value, limits: Value) -> Value:
    """Move coordinates into 0 … limits."""
    return b.Max(b.Min(boxes, limits), b.const(0.0, f32))


def large_enough(b: Builder, boxes: Value, least: Value, extra: float) -> Value:
    """Whether both sides of boxes are at least as long as `least`."""
    sides = b.Add(b.Sub(b.Slice(boxes, [2], [4], [2]), b.Slice(boxes, [0], [2], [2])), b.const(extra, f32))
    fits = b.Cast(b.GreaterOrEqual(sides, least), to=f32)
    return b.Greater(b.ReduceMin(fits, [2], keepdims=False), b.const(0.0, f32))


def kept_regions(
    b: Builder, boxes: Value, scores: Value, most: int, overlap: float, pixels: bool, eta: float = 1.0
) -> tuple[Value, Value, Value]:
    """Of boxes [n, boxes, 4] with scores [n, 1, boxes] those that overlap no better one.

    Returns their images, corners and scores.
    """
    limits = [b.const([most]), b.const(overlap, f32), b.const(LOWEST, f32)]
    adapted = {} if eta >= 1 else {"eta": eta}
    areas = with_pixels(b, boxes, not pixels)
    rows, left = suppressed(b, areas, scores, *limits, **adapted)  # pyright: ignore[reportArgumentType]
    image, _, box = columns(b, rows)
    return image, b.GatherND(boxes, pairs(b, image, box)), left


def best_regions(b: Builder, boxes: Value, scores: Value, most: int) -> tuple[Value, Value, Value]:
    """The boxes of the best scores [n, boxes] of each image.  Returns boxes, scores [n, 1, most] and their places."""
    values, places = best_of_class(b, b.Unsqueeze(scores, [1]), most)
    places = b.Squeeze(places, [1])
    return b.Gather(boxes, places, b.const(1), batch_dims=1), values, places


def in_order_of_anchors(b: Builder, scores: Value, deltas: Value) -> tuple[Value, Value]:
    """Scores [n, anchors, h, w] and deltas [n, anchors · 4, h, w] by cell, then anchor, in one axis."""
    n, anchors, height, width = scores.shape
    shape = b.dims([n, anchors, 4, height, width])
    deltas = b.Transpose(b.Reshape(deltas, shape, special_zero=False), [0, 3, 4, 1, 2])
    flat = b.dims([n, height * width * anchors])
    each = b.dims([n, height * width * anchors, 4])
    scores = b.Reshape(b.Transpose(scores, [0, 2, 3, 1]), flat, special_zero=False)
    return scores, b.Reshape(deltas, each, special_zero=False)


ROIS_ONLY = Sig("probabilities: T[4], deltas: T[4], image: I[1] -> rois: T", T=FLOATS_BF16, I=FLOATS_BF16)
PROPOSAL = {
    "base_size": Int(assumed=0),
    "pre_nms_topn": Int(assumed=0, lo=0),
    "post_nms_topn": Int(assumed=0, lo=0),
    "nms_thresh": Float(assumed=0.0),
    "feat_stride": Int(assumed=1),
    "min_size": Int(assumed=1),
    "ratio": Floats(assumed=()),
    "scale": Floats(assumed=()),
    "clip_before_nms": Bool(True),
    "clip_after_nms": Bool(False),
    "normalize": Bool(False),
    "box_size_scale": Float(1.0),
    "box_coordinate_scale": Float(1.0),
    "framework": Enum(["", "tensorflow"], ""),
}


@op
class Proposal(Op):
    """The best regions of each image, (image, x1, y1, x2, y2), and their scores.

    Anchors of each ratio and scale stand around each cell of a grid of `feat_stride` pixels and are moved by deltas.
    Of the `pre_nms_topn` best `post_nms_topn` are left by non-maximum suppression.  Behind the last one of an image is
    a row that starts with −1, and zeros.  image: height, width and scale, or scales of both.
    """

    base_size: int
    pre_nms_topn: int
    post_nms_topn: int
    nms_thresh: float
    feat_stride: int
    min_size: int
    ratio: tuple[float, ...]
    scale: tuple[float, ...]
    clip_before_nms: bool = True
    clip_after_nms: bool = False
    normalize: bool = False
    box_size_scale: float = 1.0
    box_coordinate_scale: float = 1.0
    framework: str = ""
    sig = Sig("probabilities: T[4], deltas: T[4], image: I[1] -> rois: T, scores: T", T=FLOATS_BF16, I=FLOATS_BF16)

    def decompose(self, b: Builder, probabilities: Value, deltas: Value, image: Value) -> Results:
        like, anchors = probabilities.dtype, len(self.ratio) * len(self.scale)
        for what, value, wanted in (
            ("scores of a cell", probabilities.shape[1], 2 * anchors),
            ("deltas of a cell", deltas.shape[1], 4 * anchors),
        ):
            facts = {"op": self.name, "what": what, "a": value, "b": wanted}
            require(same(value, wanted), codes.SIZES_DIFFER, **facts)
        probabilities, deltas, image = (as_type(b, v, f32) for v in (probabilities, deltas, image))
        extra = 0.0 if self.framework else 1.0
        scores, moves = in_order_of_anchors(b, b.Slice(probabilities, [anchors], [2 * anchors], [1]), deltas)
        size, least = self._sizes(b, image)
        boxes = self._anchors(b, probabilities)
        boxes = within(b, boxes, size) if self.framework else boxes
        scales = [self.box_coordinate_scale] * 2 + [self.box_size_scale] * 2
        boxes = moved(b, boxes, b.Div(moves, b.const(scales, f32)), extra, 0.0)
        boxes = within(b, boxes, b.Sub(size, b.const(extra, f32))) if self.clip_before_nms else boxes
        scores = b.Where(large_enough(b, boxes, least, extra), scores, b.const(0.0, f32))
        boxes, scores, _ = best_regions(b, boxes, scores, self.pre_nms_topn)
        images, rois, left = kept_regions(b, boxes, scores, self.post_nms_topn, self.nms_thresh, extra > 0)
        rois = within(b, rois, size) if self.clip_after_nms else rois
        rois = b.Div(rois, size) if self.normalize else rois
        rows = b.Concat(b.Unsqueeze(b.Cast(images, to=f32), [1]), rois, b.Unsqueeze(left, [1]), axis=1)
        result = self._in_places(b, rows, images, size_of(b, probabilities, 0))
        found = b.Squeeze(b.Slice(result, [5], [6], [1]), [1])
        return as_type(b, b.Slice(result, [0], [5], [1]), like), as_type(b, found, like)

    def _sizes(self, b: Builder, image: Value) -> tuple[Value, Value]:
        """The limits of coordinates, and of the sides of a region."""
        swapped = [0, 1, 0, 1] if self.framework else [1, 0, 1, 0]
        scales = b.Gather(image, b.const([-1, 2]), b.const(0))
        return b.Gather(image, b.const(swapped), b.const(0)), b.Mul(scales, b.const(float(self.min_size), f32))

    def _anchors(self, b: Builder, probabilities: Value) -> Value:
        """The anchors of every cell, [1, height · width · anchors, 4]."""
        own = np.array([self._anchor(r, s) for r in self.ratio for s in self.scale], np.float32)
        cells = [b.Cast(numbers(b, size_of(b, probabilities, k)), to=f32) for k in (2, 3)]
        steps = [b.Mul(v, b.const(float(self.feat_stride), f32)) for v in cells]
        down, right = b.Unsqueeze(steps[0], [1, 2, 3]), b.Unsqueeze(steps[1], [0, 2, 3])
        first, second = ([1, 0, 1, 0], [0, 1, 0, 1]) if self.framework else ([0, 1, 0, 1], [1, 0, 1, 0])
        shift = b.Add(b.Mul(down, b.const(first, f32)), b.Mul(right, b.const(second, f32)))
        return b.Reshape(b.Add(shift, b.const(own, f32)), [1, -1, 4], special_zero=False)

    def _anchor(self, ratio: float, scale: float) -> list[float]:
        """The corners of one anchor of the first cell."""
        extra = 0.0 if self.framework else 1.0
        width = math.sqrt(self.base_size**2 / ratio)
        width = width if self.framework else math.floor(width + 0.5)
        height = width * ratio if self.framework else math.floor(width * ratio + 0.5)
        centre = 0.0 if self.framework else (self.base_size - extra) / 2
        reach = [(width * scale - extra) / 2, (height * scale - extra) / 2]
        return [centre - reach[0], centre - reach[1], centre + reach[0], centre + reach[1]]

    def _in_places(self, b: Builder, rows: Value, image: Value, images: Value) -> Value:
        """Put the rows of each image into as many as it has room for."""
        room = self.post_nms_topn
        place, counts = places_in_images(b, image, images)
        ends = b.Equal(b.Unsqueeze(counts, [1]), b.const([list(range(room))]))
        first = b.Unsqueeze(b.Neg(b.Cast(b.Reshape(ends, [-1]), to=f32)), [1])
        nothing = b.Mul(first, b.const([1.0, *[0.0] * 5], f32))
        at = b.Unsqueeze(b.Add(b.Mul(image, b.const(room)), place), [1])
        return b.ScatterND(nothing, at, rows)

    openvino = (Form("Proposal", 1, attrs=PROPOSAL, sig=ROIS_ONLY, last=3), Form("Proposal", 4, sig=None))


@op
class GenerateProposals(Op):
    """The best regions of each image, [x1, y1, x2, y2], their scores, and how many each image has.

    Anchors [h, w, anchors, 4] are moved by deltas [n, anchors · 4, h, w].  Of the `pre_nms_count` best
    `post_nms_count` are left by non-maximum suppression.  info: for each image height, width, one or two scales.
    """

    min_size: float
    nms_threshold: float
    post_nms_count: int
    pre_nms_count: int
    normalized: bool = True
    nms_eta: float = 1.0
    roi_num_type: DType = i64
    sig = Sig(
        "info: T[2], anchors: T[4], deltas: T[4], scores: T[4] -> rois: T, values: T, counts: X",
        T=FLOATS_BF16,
        X={i32, i64},
    )

    def decompose(self, b: Builder, info: Value, anchors: Value, deltas: Value, scores: Value) -> Results:
        like = scores.dtype
        info, anchors, deltas, scores = (as_type(b, v, f32) for v in (info, anchors, deltas, scores))
        boxes = b.Reshape(anchors, [1, -1, 4], special_zero=False)
        image, rois, left = self.left_of(b, info, boxes, deltas, scores)
        _, counts = places_in_images(b, image, size_of(b, scores, 0))
        return as_type(b, rois, like), as_type(b, left, like), as_type(b, counts, self.roi_num_type)

    def left_of(
        self, b: Builder, info: Value, anchors: Value, deltas: Value, scores: Value
    ) -> tuple[Value, Value, Value]:
        """The images, corners and scores of what is left."""
        extra = 0.0 if self.normalized else 1.0
        values, moves = in_order_of_anchors(b, scores, deltas)
        size = b.Unsqueeze(b.Gather(info, b.const([1, 0, 1, 0]), b.const(1)), [1])
        scale = b.Unsqueeze(b.Gather(info, b.const([-1, 2]), b.const(1)), [1])
        boxes = moved(b, anchors, moves, extra, extra, LARGEST_GROWTH)
        boxes = within(b, boxes, b.Sub(size, b.const(extra, f32)))
        enough = large_enough(b, boxes, b.Mul(scale, b.const(self.min_size, f32)), extra)
        sound = as_type(b, b.Unsqueeze(enough, [2]), f32)
        boxes, values, places = best_regions(b, boxes, values, self.pre_nms_count)
        sound = b.Transpose(b.Gather(sound, places, b.const(1), batch_dims=1), [0, 2, 1])
        values = b.Where(b.Greater(sound, b.const(0.0, f32)), values, b.const(-math.inf, f32))
        most, overlap = self.post_nms_count, self.nms_threshold
        return kept_regions(b, boxes, values, most, overlap, not self.normalized, self.nms_eta)

    openvino = (
        Form(
            "GenerateProposals",
            9,
            attrs={
                "min_size": Float(assumed=0.0),
                "nms_threshold": Float(assumed=0.0),
                "post_nms_count": Int(lo=0),
                "pre_nms_count": Int(lo=0),
                "normalized": Bool(True),
                "nms_eta": Float(1.0),
                "roi_num_type": DTypeAttr(i64),
            },
        ),
    )


@op
class SingleImageProposals(Op):
    """GenerateProposals of one image in pixels, with `post_nms_count` rows: zeros are behind the last region."""

    min_size: float
    nms_threshold: float
    post_nms_count: int
    pre_nms_count: int
    sig = Sig("info: T[1], anchors: T[2], deltas: T[3], scores: T[3] -> rois: T, values: T", T=FLOATS_BF16)

    def decompose(self, b: Builder, info: Value, anchors: Value, deltas: Value, scores: Value) -> Results:
        like = scores.dtype
        given = [b.Unsqueeze(as_type(b, v, f32), [0]) for v in (info, anchors, deltas, scores)]
        several = GenerateProposals(**self.attributes(), normalized=False)
        _, rois, left = several.left_of(b, *given)
        rows = padded(b, b.Concat(rois, b.Unsqueeze(left, [1]), axis=1), b.const([self.post_nms_count]))
        found = b.Squeeze(b.Slice(rows, [4], [5], [1]), [1])
        return as_type(b, b.Slice(rows, [0], [4], [1]), like), as_type(b, found, like)

    openvino = (
        Form(
            "ExperimentalDetectronGenerateProposalsSingleImage",
            6,
            attrs={
                "min_size": Float(assumed=0.0),
                "nms_threshold": Float(assumed=0.0),
                "post_nms_count": Int(assumed=0, lo=0),
                "pre_nms_count": Int(assumed=0, lo=0),
            },
            T=FLOATS_BF16,
        ),
    )
