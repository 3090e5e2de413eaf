"""Regions where objects may be: anchors, limits, sizes, rows behind the last region."""

from irc.ir.types import i32
from irc.ops.proposals import GenerateProposals, Proposal, SingleImageProposals
from tests.ops.cases import Case, Spec

FIELDS = {
    "base_size": 16,
    "pre_nms_topn": 20,
    "post_nms_topn": 6,
    "nms_thresh": 0.5,
    "feat_stride": 16,
    "min_size": 4,
    "ratio": (0.5, 1.0),
    "scale": (1.0, 2.0),
}
CELLS = (Spec("f32", (2, 8, 3, 4), 0, 1), Spec("f32", (2, 16, 3, 4), -0.5, 0.5), Spec("f32", (3,), values=[48, 64, 1]))
TWO_SCALES = (*CELLS[:2], Spec("f32", (4,), values=[48, 64, 9, 1]))
ANCHORS = (
    Spec("f32", (2, 3), values=[48, 64, 1] * 2),
    Spec("f32", (3, 4, 2, 4), values=[[4 * k, 3 * k, 4 * k + 9, 3 * k + 8] for k in range(24)]),
    Spec("f32", (2, 8, 3, 4), -0.5, 0.5),
    Spec("f32", (2, 2, 3, 4), 0, 1),
)
ONE = (
    Spec("f32", (3,), values=[48, 64, 1]),
    Spec("f32", (24, 4), values=ANCHORS[1].values),
    Spec("f32", (8, 3, 4), -0.5, 0.5),
    Spec("f32", (2, 3, 4), 0, 1),
)

CASES = [
    Case(Proposal(**FIELDS), CELLS, 1e-4),
    Case(Proposal(**FIELDS, framework="tensorflow", normalize=True), CELLS, 1e-4),
    Case(Proposal(**{**FIELDS, "min_size": 3}, clip_before_nms=False, clip_after_nms=True), TWO_SCALES, 1e-4),
    Case(Proposal(**{**FIELDS, "nms_thresh": 0.0}, box_size_scale=2.0, box_coordinate_scale=4.0), CELLS, 1e-4),
    Case(GenerateProposals(1.0, 0.5, 5, 20), ANCHORS, 1e-4),
    Case(GenerateProposals(9.0, 0.3, 5, 20, normalized=False, roi_num_type=i32), ANCHORS, 1e-4),
    Case(GenerateProposals(1.0, 0.8, 8, 20, nms_eta=0.8), ANCHORS, 1e-4, note="a limit that adapts"),
    Case(SingleImageProposals(0.0, 0.5, 5, 20), ONE, 1e-4),
    Case(SingleImageProposals(20.0, 0.5, 9, 6), ONE, 1e-4),
]
