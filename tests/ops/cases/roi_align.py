"""Pooling of regions of interest."""

from irc.ops.roi_align import RoiAlign
from irc.ops.roi_align_rotated import RoiAlignRotated
from tests.ops.cases import Case, Spec

X = Spec("f32", (2, 3, 6, 7))
ROIS = Spec("f32", (3, 4), values=[0, 0, 4, 5, 1.5, 2, 6.5, 3, -2, -1, 9, 9])
BATCH = Spec("i64", (3,), values=[0, 1, 0])
TURNED = Spec("f32", (3, 5), values=[2, 3, 4, 2, 0.5, 3, 2, 1, 3, -2, 4, 4, 12, 9, 7])
CASES = [
    Case(RoiAlign(output_height=2, output_width=3), (X, ROIS, BATCH), 1e-4),
    Case(RoiAlign(output_height=2, output_width=2, half_pixel=False), (X, ROIS, BATCH), 1e-4),
    Case(RoiAlign(output_height=3, output_width=2, sampling_ratio=2, spatial_scale=0.5), (X, ROIS, BATCH), 1e-4),
    Case(RoiAlign("max", 2, 2, 2), (X, ROIS, BATCH), 1e-4),
    Case(RoiAlign("max", 2, 2, half_pixel=False), (X, ROIS, BATCH), 1e-4),
    Case(
        RoiAlign(output_height=1, output_width=1),
        (Spec("f64", (1, 1, 3, 3)), Spec("f64", (1, 4), values=[0, 0, 2, 2]), Spec("i64", (1,), values=[0])),
        1e-9,
    ),
    Case(RoiAlign("max_sample", 2, 2, 2), (X, ROIS, BATCH), 1e-4),
    Case(RoiAlign("max_sample", 2, 3, half_pixel=False), (X, ROIS, BATCH), 1e-4),
    Case(RoiAlignRotated(2, 3), (X, TURNED, BATCH), 1e-4),
    Case(RoiAlignRotated(3, 2, sampling_ratio=2, spatial_scale=0.5, clockwise=True), (X, TURNED, BATCH), 1e-4),
    Case(RoiAlignRotated(2, 2, 1), (X, TURNED, Spec("i64", (3,), values=[0, 7, -1])), 1e-4, note="no such image"),
]
