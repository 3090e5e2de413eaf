"""CenterCropPad: cropping, padding, both; odd differences; some axes; sizes that the run defines."""

from irc.ops.center_crop_pad import CenterCropPad
from tests.ops.cases import Case, Spec


def shape(*sizes: int, dtype: str = "i64", const: bool = True) -> Spec:
    return Spec(dtype, (len(sizes),), values=sizes, const=const)


X = Spec("f32", (5, 8, 3))
CASES = [
    *(Case(CenterCropPad(), (X, shape(*s))) for s in [(3, 5, 1), (8, 11, 4), (4, 9, 3), (5, 8, 3), (0, 1, 2)]),
    *(
        Case(CenterCropPad(axes=a), (X, shape(*s)))
        for a, s in [((0,), (2,)), ((-1, 0), (6, 2)), ((1,), (13,)), ((), ())]
    ),
    *(
        Case(CenterCropPad(axes=(1, 0)), (Spec(t, (3, 4)), shape(7, 2)))
        for t in ("f16", "bf16", "i8", "u64", "bool", "f64")
    ),
    Case(CenterCropPad(), (Spec("c64", (3, 4)), shape(2, 7))),
    Case(CenterCropPad(), (X, shape(3, 11, 3, dtype="i32"))),
    Case(CenterCropPad(), (X, shape(3, 11, 4, const=False))),
    Case(CenterCropPad(axes=(1,)), (X, shape(2, dtype="i32", const=False))),
    Case(CenterCropPad(), (Spec("f32", (0, 3)), shape(2, 2))),
]
