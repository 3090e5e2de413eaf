"""Regions of YOLO, and its rearrangement of blocks."""

from irc.ops.yolo import RegionYolo, ReorgYolo
from tests.ops.cases import Case, Spec

CASES = [
    Case(RegionYolo(1, 4, 3, 3, 3), (Spec("f32", (2, 24, 2, 3)),), 1e-5),
    Case(RegionYolo(1, 4, 3, -1, 3, anchors=(1.0, 2.0)), (Spec("f16", (1, 24, 2, 3)),), 1e-2),
    Case(RegionYolo(1, 4, 3, 3, 3, do_softmax=False, mask=(0, 1)), (Spec("f32", (2, 16, 2, 3)),), 1e-5),
    Case(RegionYolo(1, 4, 3, 3, 3, do_softmax=False, mask=(0, 1)), (Spec("f64", (2, 24, 2, 3)),), 1e-9),
    Case(ReorgYolo(2), (Spec("f32", (2, 8, 4, 6)),)),
    Case(ReorgYolo(3), (Spec("i8", (1, 9, 3, 6), -9, 9),)),
]
