"""What is detected in images: DetectionOutput, ExperimentalDetectronDetectionOutput.

Sources: OpenVINO specification, DetectionOutput-1, -8, ExperimentalDetectronDetectionOutput-6; SSD (arXiv:1512.02325).
"""

from __future__ import annotations

from irc.diagnostics import require
from irc.diagnostics.codes import shape as codes
from irc.ir.dim import Dim
from irc.ir.graph import Value
from irc.ir.relation import same
from irc.ir.types import FLOATS_BF16, f8e4m3fn, f8e5m2, f32, i32
from irc.opdef.base import Op, op
from irc.opdef.builder import Builder
from irc.opdef.codecs import Bool, Enum, Float, Floats, Int, Ints
from irc.opdef.conversions import as_type
from irc.opdef.forms import Form, Results
from irc.opdef.signature import Sig
from irc.ops.class_boxes import (
    NOWHERE,
    Found,
    columns,
    only_best,
    ordered,
    padded,
    pairs,
    size_of,
    with_pixels,
    without_class,
)
from irc.ops.select_boxes import suppressed

LOWEST = -3.4028234663852886e38
ATTRIBUTES = {
    "background_label_id": Int(0),
    "top_k": Int(-1),
    "variance_encoded_in_target": Bool(False),
    "keep_top_k": Ints(least=1),
    "code_type": Enum(
        {"caffe.PriorBoxParameter.CORNER": "corner", "caffe.PriorBoxParameter.CENTER_SIZE": "center_size"}, "corner"
    ),
    "share_location": Bool(True),
    "nms_threshold": Float(),
    "confidence_threshold": Float(0.0),
    "clip_after_nms": Bool(False),
    "clip_before_nms": Bool(False),
    "decrease_label_id": Bool(False),
    "normalized": Bool(False),
    "input_height": Int(1),
    "input_width": Int(1),
    "objectness_score": Float(0.0),
}


def clipped(b: Builder, boxes: Value) -> Value:
    """Move coordinates into 0 … 1."""
    return b.Min(b.Max(boxes, b.const(0.0, f32)), b.const(1.0, f32))


def has_classes(op: DetectionOutput, *operands: Value | None) -> bool:
    return op.num_classes is not None


@op
class DetectionOutput(Op):
    """Rows (image, label, score, xmin, ymin, xmax, ymax) of the boxes that NonMaxSuppression leaves of each class.

    box_logits [n, boxes · 4] move priors [1 or n, 2, boxes · 4], the second row of which has variances unless they
    are `variance_encoded_in_target`; confidences are [n, boxes · classes].  Of each image `keep_top_k` rows; behind
    the last one is a row that starts with −1, and zeros.  aux: whether a box is one, how its prior is moved first.
    """

    keep_top_k: tuple[int, ...]
    nms_threshold: float
    num_classes: int | None = None
    background_label_id: int = 0
    top_k: int = -1
    variance_encoded_in_target: bool = False
    code_type: str = "corner"
    share_location: bool = True
    confidence_threshold: float = 0.0
    clip_after_nms: bool = False
    clip_before_nms: bool = False
    decrease_label_id: bool = False
    normalized: bool = False
    input_height: int = 1
    input_width: int = 1
    objectness_score: float = 0.0
    sig = Sig(
        "box_logits: T[2], confidences: T[2], priors: P[3], aux_confidences?: T[2], aux_logits?: T[2] -> rows: T",
        T=FLOATS_BF16,
        P=FLOATS_BF16 | {f8e4m3fn, f8e5m2},
    )

    def decompose(
        self,
        b: Builder,
        box_logits: Value,
        confidences: Value,
        priors: Value,
        aux_confidences: Value | None = None,
        aux_logits: Value | None = None,
    ) -> Value:
        like, width = box_logits.dtype, 4 if self.normalized else 5
        images, count = box_logits.shape[0], priors.shape[2] // width
        classes = confidences.shape[1] // count if self.num_classes is None else Dim.of(self.num_classes)
        sets = Dim.of(1) if self.share_location else classes
        self._check(box_logits, confidences, count, classes, sets)
        logits, scores, priors = (as_type(b, v, f32) for v in (box_logits, confidences, priors))
        scores = b.Reshape(scores, b.dims([images, count, classes]), special_zero=False)
        shape = b.dims([images, count, sets, 4])
        boxes, variances = self._priors(b, priors, count, width)
        if aux_confidences is not None and aux_logits is not None:
            scores = self._only_objects(b, scores, as_type(b, aux_confidences, f32), images, count)
            moved = b.Reshape(as_type(b, aux_logits, f32), shape, special_zero=False)
            boxes = self._decoded(b, boxes, variances, moved)
        boxes = self._decoded(b, boxes, variances, b.Reshape(logits, shape, special_zero=False))
        found = self._left(b, boxes, self._candidates(b, b.Transpose(scores, [0, 2, 1])), classes)
        keep = self.keep_top_k[0]
        found, _ = ordered(b, found, b.dims([images]), keep, "classid", False)
        place = b.Concat(pairs(b, found.image, found.box), b.Unsqueeze(self._set(b, found), [1]), axis=1)
        corners = b.GatherND(boxes, place)
        corners = clipped(b, corners) if self.clip_after_nms else corners
        label = b.Sub(found.kind, b.const(1)) if self.decrease_label_id else found.kind
        numbers = [b.Unsqueeze(b.Cast(v, to=f32), [1]) for v in (found.image, label)]
        rows = b.Concat(*numbers, b.Unsqueeze(found.score, [1]), corners, axis=1)
        room = images * (keep if keep > 0 else self.top_k * classes if self.top_k > 0 else count * classes)
        rows = padded(b, rows, b.dims([room]), -1.0)
        return as_type(b, b.Unsqueeze(rows, [0, 1]), like)

    def _check(self, box_logits: Value, confidences: Value, count: Dim, classes: Dim, sets: Dim) -> None:
        for what, value, wanted in (
            ("logits of a box", box_logits.shape[1], count * sets * 4),
            ("confidences of a box", confidences.shape[1], count * classes),
            ("images", confidences.shape[0], box_logits.shape[0]),
        ):
            facts = {"op": self.name, "what": what, "a": value, "b": wanted}
            require(same(value, wanted), codes.SIZES_DIFFER, **facts)

    def _priors(self, b: Builder, priors: Value, count: Dim, width: int) -> tuple[Value, Value | None]:
        """The priors [1 or n, boxes, 1, 4], and their variances."""
        first = b.Reshape(
            b.Slice(priors, [0], [1], [1]), b.dims([priors.shape[0], count, 1, width]), special_zero=False
        )
        boxes = b.Slice(first, [width - 4], [width], [3])
        if self.variance_encoded_in_target:
            return boxes, None
        second = b.Reshape(b.Slice(priors, [1], [2], [1]), b.dims([priors.shape[0], count * width]), special_zero=False)
        second = b.Slice(second, b.const([0]), b.dims([count * 4]), b.const([1]))
        return boxes, b.Reshape(second, b.dims([priors.shape[0], count, 1, 4]), special_zero=False)

    def _decoded(self, b: Builder, priors: Value, variances: Value | None, logits: Value) -> Value:
        """Move priors."""
        if not self.normalized:
            size = [self.input_width, self.input_height] * 2
            priors = b.Div(priors, b.const(size, f32))
        moves = logits if variances is None else b.Mul(logits, variances)
        if self.code_type == "corner":
            boxes = b.Add(priors, moves)
        else:
            low, high = (b.Slice(priors, [k], [k + 2], [3]) for k in (0, 2))
            shift, growth = (b.Slice(moves, [k], [k + 2], [3]) for k in (0, 2))
            size = b.Sub(high, low)
            centre = b.Add(b.Mul(shift, size), b.Div(b.Add(low, high), b.const(2.0, f32)))
            half = b.Div(b.Mul(b.Exp(growth), size), b.const(2.0, f32))
            boxes = b.Concat(b.Sub(centre, half), b.Add(centre, half), axis=3)
        return clipped(b, boxes) if self.clip_before_nms else boxes

    def _only_objects(self, b: Builder, scores: Value, objects: Value, images: Dim, count: Dim) -> Value:
        """Scores of nothing but the background for boxes that are none."""
        objects = b.Slice(b.Reshape(objects, b.dims([images, count, 2]), special_zero=False), [1], [2], [2])
        none = b.Less(objects, b.const(self.objectness_score, f32))
        classes = b.Range(b.const(0), b.Reshape(size_of(b, scores, 2), []), b.const(1))
        nothing = b.Cast(b.Equal(classes, b.const(self.background_label_id)), to=f32)
        return b.Where(none, nothing, scores)

    def _candidates(self, b: Builder, scores: Value) -> Value:
        """What takes part, [images, classes, boxes]: of each class, or each box in the class of its best score."""
        least = b.const(self.confidence_threshold, f32)
        scores = without_class(b, scores, 1, self.background_label_id)
        if not self.decrease_label_id:
            return only_best(b, b.Where(b.Greater(scores, least), scores, b.const(NOWHERE, f32)), self.top_k)
        scores = without_class(b, scores, 1, 0)
        best = b.ReduceMax(scores, [1], keepdims=True)
        enough = b.And(b.GreaterOrEqual(best, least), b.Greater(best, b.const(-1.0, f32)))
        best = only_best(b, b.Where(enough, best, b.const(NOWHERE, f32)), self.top_k)
        kind = b.ArgMax(scores, axis=1, keepdims=True)
        classes = b.Range(b.const(0), b.Reshape(size_of(b, scores, 1), []), b.const(1))
        return b.Where(b.Equal(kind, b.Unsqueeze(classes, [0, 2])), best, b.const(NOWHERE, f32))

    def _left(self, b: Builder, boxes: Value, scores: Value, classes: Dim) -> Found:
        """What overlaps no better box of its class."""
        images, count = boxes.shape[0], boxes.shape[1]
        groups = b.Transpose(boxes, [0, 2, 1, 3])
        rows = images if self.share_location else images * classes
        groups = with_pixels(b, b.Reshape(groups, b.dims([rows, count, 4]), special_zero=False), True)
        if not self.share_location:
            scores = b.Reshape(scores, b.dims([rows, 1, count]), special_zero=False)
        limits = [b.dims([count]), b.const(self.nms_threshold, f32), b.const(LOWEST, f32)]
        chosen, values = suppressed(b, groups, scores, *limits)
        image, kind, box = columns(b, chosen)
        if not self.share_location:
            each = b.dims([classes])
            image, kind = b.Div(image, each), b.Mod(image, each)
        return Found(image, kind, box, values)

    def _set(self, b: Builder, found: Found) -> Value:
        """Which boxes those of a class are."""
        return b.Mul(found.kind, b.const(0)) if self.share_location else found.kind

    openvino = (
        Form("DetectionOutput", 1, attrs={"num_classes": Int(lo=1), **ATTRIBUTES}, when=has_classes, last=7),
        Form("DetectionOutput", 8, attrs=ATTRIBUTES, when=None, judges=("num_classes",)),
    )


@op
class DetectedBoxes(Op):
    """The boxes that NonMaxSuppression leaves of each class but the first: boxes, classes, scores, zeros behind them.

    rois [n, 4] are moved by deltas [n, classes · 4], which `deltas_weights` divide; scores are [n, classes].
    """

    score_threshold: float
    nms_threshold: float
    max_delta_log_wh: float
    num_classes: int
    post_nms_count: int
    max_detections_per_image: int
    class_agnostic_box_regression: bool = False
    deltas_weights: tuple[float, ...] = ()
    sig = Sig("rois: T[2], deltas: T[2], scores: T[2], info: T[2] -> boxes: T, classes: i32, values: T", T=FLOATS_BF16)

    def decompose(self, b: Builder, rois: Value, deltas: Value, scores: Value, info: Value) -> Results:
        like, classes = rois.dtype, self.num_classes
        rois, deltas, scores = (as_type(b, v, f32) for v in (rois, deltas, scores))
        deltas = b.Reshape(deltas, [-1, classes, 4], special_zero=False)
        weights = b.const(self.deltas_weights or (1.0,) * 4, f32)
        boxes = b.Transpose(self._moved(b, rois, b.Div(deltas, weights)), [1, 0, 2])  # [classes, n, 4]
        low, high = (b.Slice(rois, [k], [k + 2], [1]) for k in (0, 2))
        sound = b.Greater(b.ReduceMin(b.Sub(high, low), [1], keepdims=False), b.const(0.0, f32))
        values = b.Where(sound, b.Transpose(scores, [1, 0]), b.const(0.0, f32))
        values = b.Where(b.Greater(values, b.const(self.score_threshold, f32)), values, b.const(NOWHERE, f32))
        candidates = without_class(b, b.Unsqueeze(values, [1]), 0, 0)
        most = size_of(b, rois, 0)
        most = most if self.post_nms_count < 0 else b.Min(most, b.const([self.post_nms_count]))
        limits = [most, b.const(self.nms_threshold, f32), b.const(LOWEST, f32)]
        rows, left = suppressed(b, with_pixels(b, boxes, False), candidates, *limits)
        kind, image, box = columns(b, rows)
        room = b.const([self.max_detections_per_image])
        found = Found(image, kind, box, left)
        found, _ = ordered(b, found, b.const([1]), self.max_detections_per_image, "score", False)
        corners = b.GatherND(boxes, pairs(b, found.kind, found.box))
        numbers = b.Concat(corners, *(b.Unsqueeze(v, [1]) for v in (b.Cast(found.kind, to=f32), found.score)), axis=1)
        result = padded(b, numbers, room)
        kinds, scored = (b.Squeeze(b.Slice(result, [k], [k + 1], [1]), [1]) for k in (4, 5))
        return as_type(b, b.Slice(result, [0], [4], [1]), like), b.Cast(kinds, to=i32), as_type(b, scored, like)

    def _moved(self, b: Builder, rois: Value, deltas: Value) -> Value:
        """Move boxes [n, 4] by deltas [n, classes, 4], in pixels."""
        one, half, zero = (b.const(v, f32) for v in (1.0, 0.5, 0.0))
        low, high = (b.Unsqueeze(b.Slice(rois, [k], [k + 2], [1]), [1]) for k in (0, 2))
        size = b.Add(b.Sub(high, low), one)
        shift, growth = (b.Slice(deltas, [k], [k + 2], [2]) for k in (0, 2))
        centre = b.Add(b.Mul(shift, size), b.Add(low, b.Mul(half, size)))
        reach = b.Mul(half, b.Mul(b.Exp(b.Min(growth, b.const(self.max_delta_log_wh, f32))), size))
        return b.Max(b.Concat(b.Sub(centre, reach), b.Sub(b.Add(centre, reach), one), axis=2), zero)

    openvino = (
        Form(
            "ExperimentalDetectronDetectionOutput",
            6,
            attrs={
                "score_threshold": Float(assumed=0.0),
                "nms_threshold": Float(assumed=0.0),
                "max_delta_log_wh": Float(assumed=0.0),
                "num_classes": Int(lo=1),
                "post_nms_count": Int(assumed=0),
                "max_detections_per_image": Int(assumed=0, lo=0),
                "class_agnostic_box_regression": Bool(False),
                "deltas_weights": Floats(assumed=()),
            },
            T=FLOATS_BF16,
        ),
    )
