"""Pooling of regions: all elements of a part, channels of places, places that move."""

from irc.ops.roi_pooling import MovedRoiPooling, PlaceRoiPooling, RoiPooling
from tests.ops.cases import Case, Spec

X = Spec("f32", (2, 3, 6, 7))
ROIS = Spec("f32", (4, 5), values=[0, 0, 0, 4, 5, 1, 1.5, 2, 6.5, 3, 0, -2, -1, 9, 9, 5, 0, 0, 3, 3])
PARTS = Spec("f32", (4, 5), values=[0, 0, 0, 0.5, 1, 1, 0.1, 0.2, 0.9, 0.6, 0, -0.5, 0.5, 1.5, 0.5, -1, 0, 0, 1, 1])
PLACES = Spec("f32", (2, 8, 6, 7))
HOSTILE = Spec("f32", (3, 5), values=[0, -1e30, 1e30, 3e38, -3e38, float("nan"), 0, 0, 4, 4, 1, float("nan"), 1, 5, 5])

CASES = [
    Case(RoiPooling(2, 3, 1.0), (X, ROIS)),
    Case(RoiPooling(3, 2, 0.5), (X, ROIS)),
    Case(RoiPooling(2, 3, 1.0, "bilinear"), (X, PARTS), 1e-4),
    Case(RoiPooling(1, 1, 1.0, "bilinear"), (X, PARTS), 1e-4),
    Case(RoiPooling(2, 2, 1.0), (X, HOSTILE), note="numbers that are none"),
    Case(RoiPooling(2, 2, 1.0, "bilinear"), (X, HOSTILE), note="numbers that are none"),
    Case(RoiPooling(2, 2, 1.0), (Spec("f16", (1, 1, 4, 4)), Spec("f16", (1, 5), values=[0, 0, 0, 3, 3]))),
    Case(PlaceRoiPooling(2, 1.0, 2), (PLACES, ROIS), 1e-4),
    Case(PlaceRoiPooling(2, 0.5, 2), (PLACES, ROIS), 1e-4),
    Case(PlaceRoiPooling(2, 1.0, 2), (PLACES, HOSTILE), 1e-4, note="numbers that are none"),
    Case(PlaceRoiPooling(2, 1.0, 3, "bilinear", 2, 2), (PLACES, PARTS), 1e-4),
    Case(PlaceRoiPooling(4, 0.5, 1, "bilinear", 2, 1), (PLACES, PARTS), 1e-4),
    Case(MovedRoiPooling(2, 1.0, 2, spatial_bins_x=2, spatial_bins_y=3), (PLACES, ROIS), 1e-4),
    Case(
        MovedRoiPooling(2, 0.5, 2, spatial_bins_x=2, spatial_bins_y=2, trans_std=0.1, part_size=2),
        (PLACES, ROIS, Spec("f32", (4, 4, 2, 2))),
        1e-4,
    ),
    Case(MovedRoiPooling(2, 1.0, 2, part_size=1), (PLACES, HOSTILE, Spec("f32", (3, 2, 1, 1))), 1e-4, note="hostile"),
]
