"""Detectron's anchors, best regions and features of a pyramid."""

from irc.ops.detectron import PriorGrid, PyramidFeatures, TopRois
from tests.ops.cases import Case, Spec

GRID = (Spec("f32", (3, 4)), Spec("f32", (1, 2, 3, 4)), Spec("f32", (1, 3, 24, 32)))
ROIS = Spec("f32", (4, 4), values=[0, 0, 9, 8, 10, 20, 200, 300, 5, 5, 5, 9, 1, 2, 500, 700])
PYRAMID = (ROIS, Spec("f32", (1, 2, 12, 10)), Spec("f32", (1, 2, 6, 5)), Spec("f32", (1, 2, 3, 3)))

CASES = [
    Case(PriorGrid(), GRID, 1e-5),
    Case(PriorGrid(flatten=False, h=2, w=5, stride_x=4.0, stride_y=8.0), GRID, 1e-5),
    Case(PriorGrid(), (Spec("f16", (2, 4)), Spec("f16", (1, 1, 2, 2)), Spec("f16", (1, 1, 8, 8))), 1e-2),
    Case(TopRois(3), (Spec("f32", (5, 4)), Spec("f32", (5,), 0, 1))),
    Case(TopRois(7), (Spec("f32", (5, 4)), Spec("f32", (5,), 0, 1)), note="more than there are"),
    Case(PyramidFeatures(3, 2, (4, 8, 16), aligned=True), PYRAMID, 1e-4),
    Case(PyramidFeatures(2, 0, (4, 8, 16)), PYRAMID, 1e-4),
]
