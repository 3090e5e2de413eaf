"""Detection of objects: NonMaxSuppression.

Sources: ONNX NonMaxSuppression; OpenVINO specification, NonMaxSuppression-1, -3, -4, -5, -9, NMSRotated-13.
"""

from __future__ import annotations

from irc.ir.graph import Value
from irc.ir.types import FLOATS_BF16, INTEGERS, DType, f8e4m3fn, f8e5m2, f32, i32, i64
from irc.opdef.base import Op, op
from irc.opdef.builder import Builder
from irc.opdef.codecs import Bool, DTypeAttr, Enum
from irc.opdef.conversions import as_type
from irc.opdef.forms import Attributes, Form, Results, write_only
from irc.opdef.signature import Sig
from irc.ops.select_boxes import OPERANDS, SelectBoxes, room, suppressed
from irc.ops.sort import TopK

LOWEST = -3.4028234663852886e38
"""The score threshold that every number passes."""


def write_without_scores(
    b: Builder,
    op: NonMaxSuppression,
    boxes: Value,
    scores: Value,
    most: Value | None = None,
    overlap: Value | None = None,
    least: Value | None = None,
) -> Value:
    """NonMaxSuppression as OpenVINO has it: thresholds that are absent have a value of their own there."""
    most = b.const(0) if most is None else most
    overlap = b.const(0.0, f32) if overlap is None else overlap
    least = b.const(LOWEST, f32) if least is None else least
    scored = ScoredBoxes(centered=op.centered, across=False)
    return b.add_all(scored, boxes, scores, most, overlap, least)[0]


@op
class NonMaxSuppression(Op):
    """The boxes that overlap none of a better score of their class by more than `overlap`.

    Each row is (batch, class, box), of every class by descending score, of equal ones the first first. most: how many
    of a class at most, 0 where absent. A score below `least`, or NaN, is left out.
    boxes: [batch, n, 4], two opposite corners (y, x, y, x), or `centered` (x, y, width, height).
    """

    centered: bool = False
    sig = Sig(f"{OPERANDS} -> rows: i64")

    def decompose(
        self,
        b: Builder,
        boxes: Value,
        scores: Value,
        most: Value | None = None,
        overlap: Value | None = None,
        least: Value | None = None,
    ) -> Value:
        select_boxes = SelectBoxes(centered=self.centered, room=room(most))
        rows, _, count = b.add_all(select_boxes, boxes, scores, most, overlap, least)
        return b.Slice(rows, [0], count, [0])

    onnx = (
        Form("NonMaxSuppression", 10, attrs={"center_point_box": Bool(False, to="centered")}),
        Form("NonMaxSuppression", 11),
    )
    openvino = (write_only(write_without_scores, since=9),)


def sorted_by_score(b: Builder, values: Value, *others: Value) -> list[Value]:
    """Sort values and what belongs to them, the largest first, of equal ones the first first."""
    values, order = b.add_all(TopK(axis=0), values, b.Shape(values))
    return [values, *(b.Gather(other, order, b.const(0)) for other in others)]


def scored(b: Builder, rows: Value, values: Value, across: bool, to: DType) -> Results:
    """Say selected boxes as OpenVINO does: rows, the rows with the score in the box's place, how many there are."""
    if across:
        values, rows = sorted_by_score(b, values, rows)
    places = b.Cast(b.Slice(rows, [0], [2], [1]), to=f32)
    scores = b.Concat(places, b.Unsqueeze(values, [1]), axis=1)
    return as_type(b, rows, to), scores, as_type(b, b.Shape(values), to)


SCORED = Sig(
    "boxes: B[3], scores: S[3], most?: I[one], overlap?: O[one], least?: L[one], sigma?: W[one]"
    " -> rows: X, values: f32, count: X",
    **dict.fromkeys("BSOLW", FLOATS_BF16),
    I=INTEGERS,
    X={i32, i64},
)
ROWS_ONLY = Sig(
    "boxes: B[3], scores: S[3], most?: I[one], overlap?: O[one], least?: L[one] -> rows: X",
    **dict.fromkeys("BSOL", FLOATS_BF16),
    I=INTEGERS,
    X={i32, i64},
)
FIRST = {
    "box_encoding": Enum({"corner": False, "center": True}, False, to="centered"),
    "sort_result_descending": Bool(True, to="across"),
}
"""The attributes of opset 1."""


def read_limited(b: Builder, a: Attributes, *operands: Value | None) -> Results:
    """Read NonMaxSuppression-5, which drops what overlaps too much also where scores decay."""
    soft = len(operands) > 5 and operands[5] is not None
    fields = {k: v for k, v in vars(a).items() if k not in ("outputs", "opset")}
    return b.add_all(ScoredBoxes(**fields, limited=soft), *operands)


@op
class ScoredBoxes(Op):
    """NonMaxSuppression with the scores of the rows, and their number; `across`: sorted by score over all classes.

    sigma: instead of dropping what overlaps a selected box, its score decays (and it is dropped too if `limited`).
    An absent threshold is 0.
    """

    centered: bool = False
    across: bool = True
    output_type: DType = i64
    limited: bool = False
    sig = SCORED

    def decompose(
        self,
        b: Builder,
        boxes: Value,
        scores: Value,
        most: Value | None = None,
        overlap: Value | None = None,
        least: Value | None = None,
        sigma: Value | None = None,
    ) -> Results:
        soft = sigma is not None and not (sigma.array is not None and float(sigma.array.reshape(-1)[0]) <= 0)
        attributes = {"centered": self.centered} | ({"limited": self.limited} if soft else {})
        least = b.const(0.0, f32) if least is None else least
        found = suppressed(b, boxes, scores, most, overlap, least, sigma if soft else None, **attributes)
        return scored(b, *found, self.across, self.output_type)

    openvino = (
        Form("NonMaxSuppression", 1, attrs=FIRST, sig=ROWS_ONLY, direct=True),
        Form("NonMaxSuppression", 3, attrs={**FIRST, "output_type": DTypeAttr(i64)}),
        Form("NonMaxSuppression", 4),
        Form("NonMaxSuppression", 5, sig=None, read=read_limited, direct=True, judges=("limited",)),
        Form("NonMaxSuppression", 9, read=None, judges=()),
    )


@op
class RotatedBoxes(Op):
    """ScoredBoxes of boxes (x, y, width, height, angle); angles are in radians."""

    across: bool = True
    output_type: DType = i64
    clockwise: bool = True
    sig = Sig(
        "boxes: B[3], scores: S[3], most: I[one], overlap: O[one], least: L[one] -> rows: X, values: f32, count: X",
        **dict.fromkeys("BSOL", FLOATS_BF16 | {f8e4m3fn, f8e5m2}),
        I=INTEGERS,
        X={i32, i64},
    )

    def decompose(self, b: Builder, boxes: Value, scores: Value, most: Value, overlap: Value, least: Value) -> Results:
        boxes = as_type(b, boxes, f32)
        turned = boxes if self.clockwise else b.Mul(boxes, b.const([1, 1, 1, 1, -1], f32))
        found = suppressed(b, turned, scores, most, overlap, least, rotated=True)
        return scored(b, *found, self.across, self.output_type)

    openvino = (
        Form(
            "NMSRotated",
            13,
            attrs={
                "sort_result_descending": Bool(True, to="across"),
                "output_type": DTypeAttr(i64),
                "clockwise": Bool(True),
            },
        ),
    )
