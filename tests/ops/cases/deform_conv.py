"""Convolution with moved kernel positions."""

from irc.ops.deform_conv import DeformConv
from tests.ops.cases import Case, Spec

CASES = [
    Case(DeformConv(), (Spec("f32", (1, 2, 5, 5)), Spec("f32", (3, 2, 2, 2)), Spec("f32", (1, 8, 4, 4))), 1e-4),
    Case(
        DeformConv(pads_begin=(1, 1), pads_end=(1, 1), strides=(2, 1), dilations=(1, 2)),
        (
            Spec("f32", (2, 2, 5, 6)),
            Spec("f32", (2, 2, 3, 2)),
            Spec("f32", (2, 12, 3, 6)),
            Spec("f32", (2,)),
            Spec("f32", (2, 6, 3, 6)),
        ),
        1e-4,
    ),
    Case(
        DeformConv(group=2, offset_group=2),
        (
            Spec("f32", (1, 4, 4, 4)),
            Spec("f32", (4, 2, 2, 2)),
            Spec("f32", (1, 16, 3, 3)),
            None,
            Spec("f32", (1, 8, 3, 3)),
        ),
        1e-4,
    ),
    Case(DeformConv(), (Spec("f64", (1, 1, 3, 3)), Spec("f64", (1, 1, 2, 2)), Spec("f64", (1, 8, 2, 2))), 1e-9),
    Case(
        DeformConv(pads_begin=(1, 1), pads_end=(1, 1), clamped=True),
        (Spec("f32", (1, 2, 4, 5)), Spec("f32", (3, 2, 3, 3)), Spec("f32", (1, 18, 4, 5))),
        1e-4,
    ),
    Case(
        DeformConv(group=2, offset_group=2, strides=(1, 2), clamped=True),
        (
            Spec("f32", (2, 4, 4, 5)),
            Spec("f32", (4, 2, 2, 2)),
            Spec("f32", (2, 16, 3, 2)),
            None,
            Spec("f32", (2, 8, 3, 2)),
        ),
        1e-4,
    ),
]
