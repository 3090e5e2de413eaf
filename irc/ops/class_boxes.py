"""Non-maximum suppression of several classes with one order of what is left: MulticlassNms, MatrixNms.

Sources: OpenVINO specification, MulticlassNms-8, -9, MatrixNms-8; Matrix NMS (arXiv:2003.10152).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from irc.diagnostics import require
from irc.diagnostics.codes import shape as codes
from irc.expr import Const, Expr, Tensor, call, select
from irc.ir.graph import Value
from irc.ir.relation import same
from irc.ir.types import FLOATS_BF16, INTEGERS, DType, TensorType, f32, i32, i64
from irc.loops.builder import LoopBuilder
from irc.opdef.base import Array, Op, op
from irc.opdef.builder import Builder
from irc.opdef.codecs import Bool, DTypeAttr, Enum, Float, Int
from irc.opdef.conversions import as_i64, as_type
from irc.opdef.forms import Form, Results, write_only
from irc.opdef.signature import Sig
from irc.ops.select_boxes import check_boxes, suppressed
from irc.ops.sort import TopK

ORDERS = ["none", "score", "classid"]
NOWHERE = -math.inf
"""The score of a box that is no candidate."""


def size_of(b: Builder, x: Value, axis: int) -> Value:
    """Compute the size of an axis, as a vector of one element."""
    return b.Slice(b.Shape(x), [axis], [axis + 1], [0])


def numbers(b: Builder, size: Value) -> Value:
    """Compute 0, 1 … below a size."""
    return b.Range(b.const(0), b.Reshape(size, []), b.const(1))


def without_class(b: Builder, scores: Value, axis: int, background: int) -> Value:
    """Take every candidate of the background class away; without one (below 0) nothing."""
    if background < 0:
        return scores
    others = [k for k in range(3) if k != axis]
    here = b.Unsqueeze(b.Equal(numbers(b, size_of(b, scores, axis)), b.const(background)), others)
    return b.Where(here, b.const(NOWHERE, f32), scores)


def best_of_class(b: Builder, scores: Value, most: int) -> tuple[Value, Value]:
    """The best scores of each class and where they stand; `most` of them, or all of them where it is below 0."""
    size = size_of(b, scores, 2)
    values, places = b.add_all(TopK(axis=2), scores, size if most < 0 else b.Min(size, b.const([most])))
    return values, places


def only_best(b: Builder, scores: Value, most: int) -> Value:
    """Take away what is not among the `most` best candidates of its class."""
    if most < 0 or scores.shape[2].bounds()[1] <= most:
        return scores
    values, places = best_of_class(b, scores, most)
    return b.ScatterElements(b.Expand(b.const(NOWHERE, f32), b.Shape(scores)), places, values, b.const(2))


def with_pixels(b: Builder, boxes: Value, normalized: bool) -> Value:
    """Boxes whose second corner is not before the first, which lies in the box too if they are counted in pixels."""
    low, high = b.Slice(boxes, [0], [2], [2]), b.Slice(boxes, [2], [4], [2])
    high = high if normalized else b.Add(high, b.const(1.0, f32))
    return b.Concat(low, b.Max(high, low), axis=2)


@dataclass(frozen=True)
class Found:
    """Boxes that are left: vectors of their images, classes, numbers and scores."""

    image: Value
    kind: Value
    box: Value
    score: Value

    def picked(self, b: Builder, order: Value) -> Found:
        """Pick those at these places."""
        return Found(*(b.Gather(v, order, b.const(0)) for v in (self.image, self.kind, self.box, self.score)))

    def by(self, b: Builder, key: Value, largest: bool) -> Found:
        """Sort by a key; what has the same stays in order."""
        if (
            key.dtype == i64
        ):  # of images, classes and boxes there are few: elements of 32 bits are sorted by their bytes
            key = b.Cast(key, to=i32)
        _, order = b.add_all(TopK(axis=0, largest=largest), key, b.Shape(key))
        return self.picked(b, order)


def padded(b: Builder, rows: Value, room: Value, end: float = 0.0) -> Value:
    """Put rows of 0 behind rows, up to `room` of them; the first of these starts with `end`."""
    width = int(rows.shape[1])
    last = b.const([[end, *[0.0] * (width - 1)]], rows.dtype)
    rest = b.Expand(b.like(0.0, rows), b.Concat(room, b.const([width]), axis=0))
    return b.Slice(b.Concat(rows, last, rest, axis=0), b.const([0]), room, b.const([0]))


def places_in_images(b: Builder, image: Value, images: Value) -> tuple[Value, Value]:
    """Number what each image has, of vectors that are sorted by image.  Returns numbers, and how many each has."""
    each = b.Equal(b.Unsqueeze(image, [1]), b.Unsqueeze(numbers(b, images), [0]))
    counts = b.ReduceSum(b.Cast(each, to=i64), [0], keepdims=False)
    first = b.CumSum(counts, b.const(0), exclusive=True)
    ones = b.Add(b.Mul(image, b.const(0)), b.const(1))
    return b.Sub(b.CumSum(ones, b.const(0), exclusive=True), b.Gather(first, image, b.const(0))), counts


def ordered(b: Builder, found: Found, images: Value, keep: int, order: str, across: bool) -> tuple[Found, Value]:
    """Keep the best of each image and put them in order.  Returns them, and how many there are of each image."""
    found = found.by(b, found.score, True)
    found = found.by(b, found.image, False)
    place, counts = places_in_images(b, found.image, images)
    if keep >= 0:
        best = b.Reshape(b.NonZero(b.Less(place, b.const(keep))), [-1])
        found, counts = found.picked(b, best), b.Min(counts, b.const(keep))
    if across and order == "score":
        found = found.by(b, found.score, True)
    if order == "classid":
        found = found.by(b, found.kind, False)
        found = found if across else found.by(b, found.image, False)
    return found, counts


def said(b: Builder, found: Found, boxes: Value, flat: Value, counts: Value, to: DType, like: DType) -> Results:
    """Say what is left as OpenVINO does: (class, score, box), the number in the flattened boxes, how many there are."""
    kind, score = (b.Unsqueeze(v, [1]) for v in (b.Cast(found.kind, to=f32), found.score))
    rows = b.Concat(kind, score, boxes, axis=1)
    return as_type(b, rows, like), as_type(b, b.Unsqueeze(flat, [1]), to), as_type(b, counts, to)


def pairs(b: Builder, first: Value, second: Value) -> Value:
    """Put two vectors side by side, as the columns of a matrix."""
    return b.Concat(b.Unsqueeze(first, [1]), b.Unsqueeze(second, [1]), axis=1)


def columns(b: Builder, rows: Value) -> list[Value]:
    """The three columns of a matrix, as vectors."""
    return [b.Squeeze(b.Slice(rows, [k], [k + 1], [1]), [1]) for k in range(3)]


COMMON = {
    "sort_result_type": Enum(ORDERS, "none", to="order"),
    "output_type": DTypeAttr(i64),
    "nms_top_k": Int(-1),
    "keep_top_k": Int(-1),
    "sort_result_across_batch": Bool(False, to="across"),
    "score_threshold": Float(0.0),
    "background_class": Int(-1),
    "normalized": Bool(True),
}
RESULTS = "rows: T, indices: X, counts: X"


@op
class MulticlassNms(Op):
    """The best boxes of each image, of every class those that NonMaxSuppression leaves of its `nms_top_k` best.

    boxes: [images, n, 4] of all classes with scores [images, classes, n], or [classes, n, 4] with scores [classes, n],
    of which each image has the next `roisnum`. Rows are (class, score, box); indices count boxes in memory.
    """

    order: str = "none"
    output_type: DType = i64
    nms_top_k: int = -1
    keep_top_k: int = -1
    across: bool = False
    iou_threshold: float = 0.0
    score_threshold: float = 0.0
    background_class: int = -1
    nms_eta: float = 1.0
    normalized: bool = True
    sig = Sig(
        f"boxes: T[3], scores: T[2..3], roisnum?: I[1] -> {RESULTS}",
        T=FLOATS_BF16,
        I=FLOATS_BF16 | INTEGERS,
        X={i32, i64},
    )

    def decompose(self, b: Builder, boxes: Value, scores: Value, roisnum: Value | None = None) -> Results:
        facts = {
            "op": "MulticlassNms",
            "operand": "scores",
            "type": scores.tensor,
            "expected": 3 if roisnum is None else 2,
        }
        require(len(scores.shape) == facts["expected"], codes.WRONG_RANK, **facts)
        like, boxes, scores = boxes.dtype, as_type(b, boxes, f32), as_type(b, scores, f32)
        if roisnum is None:
            images, candidates, axis = size_of(b, scores, 0), scores, 1
        else:
            images, candidates, axis = b.Shape(roisnum), self._by_image(b, scores, as_i64(b, roisnum)), 0
        check_boxes("MulticlassNms", boxes, candidates)
        candidates = only_best(b, without_class(b, candidates, axis, self.background_class), self.nms_top_k)
        limits = [size_of(b, boxes, 1)]
        limits += [b.const(v, f32) for v in (self.iou_threshold, self.score_threshold)]
        adapted = {} if self.nms_eta >= 1 else {"eta": self.nms_eta}
        areas = with_pixels(b, boxes, self.normalized)
        rows, values = suppressed(b, areas, candidates, *limits, **adapted)  # pyright: ignore[reportArgumentType]
        first, second, box = columns(b, rows)
        found = Found(first, second, box, values) if roisnum is None else Found(second, first, box, values)
        found, counts = ordered(b, found, images, self.keep_top_k, self.order, self.across)
        if roisnum is None:
            flat = b.Add(b.Mul(found.image, size_of(b, boxes, 1)), found.box)
            chosen = b.GatherND(boxes, pairs(b, found.image, found.box))
        else:
            flat = b.Add(b.Mul(found.box, size_of(b, boxes, 0)), found.kind)
            chosen = b.GatherND(boxes, pairs(b, found.kind, found.box))
        return said(b, found, chosen, flat, counts, self.output_type, like)

    def _by_image(self, b: Builder, scores: Value, roisnum: Value) -> Value:
        """Scores [classes, images, n]: an image has no candidates among the boxes of the others."""
        amounts = b.Max(roisnum, b.const(0))
        ends = b.Unsqueeze(b.CumSum(amounts, b.const(0)), [1])
        place = b.Unsqueeze(numbers(b, size_of(b, scores, 1)), [0])
        own = b.And(b.Less(place, ends), b.GreaterOrEqual(place, b.Sub(ends, b.Unsqueeze(amounts, [1]))))
        return b.Where(b.Unsqueeze(own, [0]), b.Unsqueeze(scores, [1]), b.const(NOWHERE, f32))

    openvino = (
        Form(
            "MulticlassNms",
            8,
            attrs={**COMMON, "iou_threshold": Float(0.0), "nms_eta": Float(1.0)},
            sig=Sig(f"boxes: T[3], scores: T[3] -> {RESULTS}", T=FLOATS_BF16, X={i32, i64}),
        ),
        Form("MulticlassNms", 9, sig=None),
    )


@op
class MatrixNms(Op):
    """The best boxes of each image by scores that decay with the overlaps of boxes of better scores of their class.

    Of each class the `nms_top_k` best above the score threshold count; what decays to `post_threshold` is left out.
    """

    order: str = "none"
    output_type: DType = i64
    nms_top_k: int = -1
    keep_top_k: int = -1
    across: bool = False
    score_threshold: float = 0.0
    background_class: int = -1
    decay_function: str = "linear"
    gaussian_sigma: float = 2.0
    post_threshold: float = 0.0
    normalized: bool = True
    sig = Sig(f"boxes: T[3], scores: T[3] -> {RESULTS}", T=FLOATS_BF16, X={i32, i64})

    def decompose(self, b: Builder, boxes: Value, scores: Value) -> Results:
        like, boxes, scores = boxes.dtype, as_type(b, boxes, f32), as_type(b, scores, f32)
        check_boxes("MatrixNms", boxes, scores)
        candidates = without_class(b, scores, 1, self.background_class)
        enough = b.Greater(candidates, b.const(self.score_threshold, f32))
        candidates = b.Where(enough, candidates, b.const(NOWHERE, f32))
        values, places = best_of_class(b, candidates, self.nms_top_k)
        sigma = self.gaussian_sigma if self.decay_function == "gaussian" else None
        decayed = b.DecayedScores(boxes, values, places, sigma=sigma, pixels=not self.normalized)
        left = b.And(b.Greater(decayed, b.const(self.post_threshold, f32)), b.Greater(values, b.const(NOWHERE, f32)))
        rows = b.Transpose(b.NonZero(left), [1, 0])
        image, kind, _ = columns(b, rows)
        found = Found(image, kind, b.GatherND(places, rows), b.GatherND(decayed, rows))
        images = size_of(b, scores, 0)
        order = self.order if self.across else "score"
        found, counts = ordered(b, found, images, self.keep_top_k, order, self.across)
        flat = b.Add(b.Mul(found.image, size_of(b, boxes, 1)), found.box)
        chosen = b.GatherND(boxes, pairs(b, found.image, found.box))
        return said(b, found, chosen, flat, counts, self.output_type, like)

    openvino = (
        Form(
            "MatrixNms",
            8,
            attrs={
                **COMMON,
                "decay_function": Enum(["linear", "gaussian"], "linear"),
                "gaussian_sigma": Float(2.0),
                "post_threshold": Float(0.0),
            },
        ),
    )


def part_of_union(one: Array, others: Array, extra: Array) -> Array:
    """Which part of their union a box shares with each of the others; a side is longer than its coordinates by `extra`.

    Boxes that do not touch share nothing, and a box whose second corner is before its first has no area.
    """
    sides = np.minimum(others[:, 2:], one[2:]) - np.maximum(others[:, :2], one[:2])
    both = np.concatenate([one[None], others])
    lengths = both[:, 2:] - both[:, :2]
    area = np.where((lengths >= 0).all(1), (lengths[:, 0] + extra) * (lengths[:, 1] + extra), np.float32(0))
    shared = np.where((sides >= 0).all(1), (sides[:, 0] + extra) * (sides[:, 1] + extra), np.float32(0))
    union = area[1:] + area[0] - shared
    there = (shared > 0) & (union > 0)
    return np.where(there, shared / np.where(there, union, np.float32(1)), np.float32(0))


def area_of(b: Builder, sides: Value, extra: Value) -> Value:
    """The product of two sides, which are the last axis; 0 where one is negative."""
    positive = b.GreaterOrEqual(b.ReduceMin(sides, [-1], keepdims=False), b.const(0.0, f32))
    return b.Where(positive, b.ReduceProd(b.Add(sides, extra), [-1], keepdims=False), b.const(0.0, f32))


def write_as_matrices(b: Builder, op: DecayedScores, boxes: Value, scores: Value, places: Value) -> Value:
    """Decayed scores by matrices of what each box shares with each other."""
    zero, one = b.const(0.0, f32), b.const(1.0, f32)
    extra = one if op.pixels else zero
    own = b.Gather(boxes, places, b.const(1), batch_dims=1)
    low, high = b.Slice(own, [0], [2], [3]), b.Slice(own, [2], [4], [3])
    tops = b.Min(b.Unsqueeze(high, [3]), b.Unsqueeze(high, [2]))
    shared = area_of(b, b.Sub(tops, b.Max(b.Unsqueeze(low, [3]), b.Unsqueeze(low, [2]))), extra)
    area = area_of(b, b.Sub(high, low), extra)
    union = b.Sub(b.Add(b.Unsqueeze(area, [2]), b.Unsqueeze(area, [3])), shared)
    count = numbers(b, size_of(b, scores, 2))
    better = b.Less(b.Unsqueeze(count, [0]), b.Unsqueeze(count, [1]))
    there = b.And(better, b.And(b.Greater(shared, zero), b.Greater(union, zero)))
    part = b.Where(there, b.Div(shared, b.Where(there, union, one)), zero)
    before = b.Unsqueeze(b.ReduceMax(part, [3], keepdims=False), [2])
    if op.sigma is None:
        decay = b.Div(b.Sub(one, part), b.Add(b.Sub(one, before), b.const(1e-10, f32)))
    else:
        decay = b.Exp(b.Mul(b.Sub(b.Mul(before, before), b.Mul(part, part)), b.const(op.sigma, f32)))
    least = b.Min(b.ReduceMin(b.Where(better, decay, one), [3], keepdims=False), one)
    return b.Where(b.Greater(scores, b.const(NOWHERE, f32)), b.Mul(least, scores), scores)


@op
class DecayedScores(Op):
    """What MatrixNms is compiled to: each score times the smallest decay by the overlap with a box of a better one.

    Scores descend along the last axis, and `places` says which box each is of.  The decay by a box that itself
    overlaps one of a better score is less.  sigma: exp((m² − o²)·σ) instead of (1 − o) / (1 − m).
    """

    sigma: float | None = None
    pixels: bool = False
    sig = Sig("boxes: f32[3], scores: f32[3], places: i64[3] -> y: f32")

    def infer(self, boxes: Value, scores: Value, places: Value) -> TensorType:
        for k in range(3):
            facts = {"op": "DecayedScores", "first": scores.tensor, "second": places.tensor}
            require(same(scores.shape[k], places.shape[k]), codes.SHAPES_DIFFER, **facts)
        return scores.tensor

    def reference(self, boxes: Array, scores: Array, places: Array) -> Array:
        y = scores.copy()
        for image in range(scores.shape[0]):
            for kind in range(scores.shape[1]):
                most = np.zeros(scores.shape[2], np.float32)
                own = boxes[image][np.clip(places[image, kind], 0, max(boxes.shape[1] - 1, 0))]
                for k in range(scores.shape[2]):
                    if k == 0 or not scores[image, kind, k] > -np.inf:
                        continue
                    part = part_of_union(own[k], own[:k], np.float32(1 if self.pixels else 0))  # pyright: ignore[reportArgumentType]
                    most[k] = part.max()
                    if self.sigma is not None:
                        decay = np.exp((most[:k] * most[:k] - part * part) * np.float32(self.sigma))
                    else:
                        decay = (np.float32(1) - part) / (np.float32(1) - most[:k] + np.float32(1e-10))
                    y[image, kind, k] = min(np.float32(1), decay.min()) * scores[image, kind, k]
        return y

    def loops(self, b: LoopBuilder, boxes: Tensor, scores: Tensor, places: Tensor, y: Tensor) -> None:
        images, classes, count = scores.shape
        most = b.alloc(f32, [count], "most")
        with b.nest([images, classes]) as (image, kind), b.for_(count) as k:
            score = b.let(scores[image, kind, k], "score")
            largest, least = b.var(Const(0.0, f32), "largest"), b.var(Const(1.0, f32), "least")
            with b.if_(score.gt(NOWHERE)):
                own = self._box(b, boxes, image, places[image, kind, k])
                with b.for_(k) as j:
                    part = self._part(b, own, self._box(b, boxes, image, places[image, kind, j]))
                    b.assign(largest, largest.max(part))
                    before = b.let(most[j], "before")
                    b.assign(least, least.min(self._decay(part, before)))
            b.store(most, (k,), largest)
            b.store(y, (image, kind, k), select(score.gt(NOWHERE), least * score, score))

    def _decay(self, part: Expr, before: Expr) -> Expr:
        if self.sigma is not None:
            return call("exp", (before * before - part * part) * self.sigma)
        return (1.0 - part) / (1.0 - before + 1e-10)

    def _box(self, b: LoopBuilder, boxes: Tensor, image: Expr, place: Expr) -> list[Expr]:
        at = b.let(place.max(0).min(boxes.shape[1] - 1), "at")
        return [b.let(boxes[image, at, k], "corner") for k in range(4)]

    def _part(self, b: LoopBuilder, one: list[Expr], other: list[Expr]) -> Expr:
        sides = [b.let(one[k + 2].min(other[k + 2]) - one[k].max(other[k]), "side") for k in (0, 1)]
        shared = b.let(self._area(sides), "shared")
        areas = [self._area([box[k + 2] - box[k] for k in (0, 1)]) for box in (one, other)]
        union = b.let(areas[1] + areas[0] - shared, "union")
        both = shared.gt(0.0).logical_and(union.gt(0.0))
        return b.let(select(both, shared / select(both, union, Const(1.0, f32)), Const(0.0, f32)), "part")

    def _area(self, sides: Sequence[Expr]) -> Expr:
        """The product of two sides, 0 where one is negative."""
        extra = 1.0 if self.pixels else 0.0
        positive = sides[0].ge(0.0).logical_and(sides[1].ge(0.0))
        return select(positive, (sides[0] + extra) * (sides[1] + extra), Const(0.0, f32))

    onnx = (write_only(write_as_matrices, since=13),)
