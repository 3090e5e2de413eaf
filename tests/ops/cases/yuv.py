"""NV12 and I420 to RGB and BGR: one operand or planes of their own, bytes and floats."""

from irc.ops.yuv import I420toRGB, NV12toRGB
from tests.ops.cases import Case, Spec


def plane(dtype: str, *shape: int) -> Spec:
    return Spec(dtype, shape, 0, 255)


CASES = [
    case
    for reverse in (False, True)
    for t, rtol in (("u8", 0), ("f32", 1e-5), ("f16", 1e-2))
    for case in (
        Case(NV12toRGB(reverse=reverse), (plane(t, 2, 6, 6, 1),), rtol),
        Case(NV12toRGB(reverse=reverse), (plane(t, 2, 4, 6, 1), plane(t, 2, 2, 3, 2)), rtol),
        Case(I420toRGB(reverse=reverse), (plane(t, 2, 6, 6, 1),), rtol),
        Case(I420toRGB(reverse=reverse), (plane(t, 1, 4, 6, 1), plane(t, 1, 2, 3, 1), plane(t, 1, 2, 3, 1)), rtol),
    )
]
