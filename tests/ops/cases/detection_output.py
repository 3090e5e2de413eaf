"""Rows of what is detected: codes of boxes, variances, shared boxes, both styles, aux operands."""

from irc.ops.detection_output import DetectedBoxes, DetectionOutput
from tests.ops.cases import Case, Spec


def given(shared: bool = True, rows: int = 2, width: int = 4) -> tuple[Spec, ...]:
    """Operands for two images of five boxes and three classes."""
    priors = [[0] * (width - 4) + [k / 8, k / 9, k / 8 + 0.4, k / 9 + 0.3] for k in range(5)]
    variances = [[0.1, 0.1, 0.2, 0.2] for _ in range(5)] + [[0.0] * (width - 4)] * 5
    flat = [x for p in priors for x in p] + ([x for v in variances for x in v] if rows == 2 else [])
    return (
        Spec("f32", (2, 20 if shared else 60), -1, 1),
        Spec("f32", (2, 15), 0, 1),
        Spec("f32", (1, rows, 5 * width), values=flat),
    )


AUX = (Spec("f32", (2, 10), 0, 1), Spec("f32", (2, 20), -1, 1))
NORMAL = {"normalized": True}
ROIS = (
    Spec("f32", (5, 4), values=[[k, k, k + 5, k + 4] for k in range(4)] + [[5, 5, 5, 9]]),
    Spec("f32", (5, 12), -1, 1),
    Spec("f32", (5, 3), 0, 1),
    Spec("f32", (1, 3), values=[20, 20, 1]),
)

CASES = [
    Case(DetectionOutput((5,), 0.5, **NORMAL), given(), 1e-4),
    Case(DetectionOutput((-1,), 0.4, top_k=2, **NORMAL, clip_after_nms=True, num_classes=3), given(), 1e-4),
    Case(DetectionOutput((-1,), 0.4, **NORMAL, code_type="center_size", clip_before_nms=True), given(), 1e-4),
    Case(DetectionOutput((4,), 0.3, variance_encoded_in_target=True, **NORMAL), given(rows=1), 1e-4),
    Case(DetectionOutput((6,), 0.3, input_height=2, input_width=3, background_label_id=-1), given(width=5), 1e-4),
    Case(DetectionOutput((6,), 0.3, share_location=False, confidence_threshold=0.3, **NORMAL), given(False), 1e-4),
    Case(DetectionOutput((6,), 0.3, decrease_label_id=True, top_k=4, **NORMAL), given(), 1e-4),
    Case(DetectionOutput((6,), 0.3, objectness_score=0.4, confidence_threshold=0.1, **NORMAL), (*given(), *AUX), 1e-4),
    Case(DetectedBoxes(0.1, 0.5, 4.1, 3, 10, 5, deltas_weights=(10.0, 10.0, 5.0, 5.0)), ROIS, 1e-4),
    Case(DetectedBoxes(0.5, 0.2, 1.0, 3, 1, 9, deltas_weights=(2.0, 2.0, 1.0, 1.0)), ROIS, 1e-4),
]
