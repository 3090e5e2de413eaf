"""MaxUnpool: strides, padding, one to three axes, a shape that is given, indices that lead outside."""

from irc.ops.max_unpool import MaxUnpool
from tests.ops.cases import Case, Spec

X = Spec("f32", (1, 1, 2, 2), values=[1, 2, 3, 4])
PLACES = Spec("i64", (1, 1, 2, 2), values=[5, 7, 13, 15])


def shape(*sizes: int, const: bool = True) -> Spec:
    return Spec("i64", (len(sizes),), values=sizes, const=const)


def numbers(*sizes: int, high: int) -> Spec:
    return Spec("i64", sizes, 0, high)


TWO = MaxUnpool(kernel=(2, 2), strides=(2, 2))
CASES = [
    Case(TWO, (X, PLACES)),
    Case(TWO, (X, PLACES, shape(1, 1, 5, 5))),
    Case(TWO, (X, PLACES, shape(1, 1, 4, 6, const=False)), note="of the run"),
    Case(MaxUnpool(kernel=(3, 3), strides=(2, 2), pads_begin=(1, 0), pads_end=(0, 1)), (X, PLACES)),
    Case(MaxUnpool(kernel=(2,)), (Spec("f64", (2, 3, 4)), numbers(2, 3, 4, high=29))),
    Case(
        MaxUnpool(kernel=(2, 1, 2), strides=(2, 1, 1)), (Spec("f16", (1, 2, 2, 3, 2)), numbers(1, 2, 2, 3, 2, high=71))
    ),
    Case(TWO, (Spec("bf16", (1, 2, 2, 2)), Spec("i64", (1, 2, 2, 2), values=[0, 3, 99, 31, -1, -99, 1 << 62, 17]))),
    Case(TWO, (Spec("f32", (0, 2, 2, 2)), Spec("i64", (0, 2, 2, 2)))),
]
