"""Concat and Split."""

from irc.ops.concat import Concat, Split
from tests.ops.cases import Case, Spec


def f32(*shape: int) -> Spec:
    return Spec("f32", shape)


def ints(*numbers: int, dtype: str = "i64") -> Spec:
    return Spec(dtype, (len(numbers),), values=numbers, const=True)


def axis(number: int) -> Spec:
    return Spec("i64", (), values=number, const=True)


CASES = [
    *(Case(Concat(axis=a), (f32(2, 3, 4), f32(2, 3, 4))) for a in (0, 1, 2, -1, -3)),
    Case(Concat(axis=1), (f32(2, 1), f32(2, 3), f32(2, 5))),
    Case(Concat(axis=0), (f32(3),)),
    Case(Concat(axis=0), (f32(0, 3), f32(2, 3), f32(0, 3))),
    Case(Concat(axis=-1), (f32(2, 0), f32(2, 0))),
    *(
        Case(Concat(axis=0), (Spec(t, (2, 2)), Spec(t, (1, 2))))
        for t in ("f64", "f16", "bf16", "i8", "u8", "i32", "i64", "bool")
    ),
    *(Case(Split(num=n), (f32(6, 4), axis(a))) for n, a in [(2, 0), (3, 0), (2, 1), (4, -1), (1, 0)]),
    Case(Split(num=3), (f32(7, 2), axis(0)), note="the last is smaller"),
    *(
        Case(Split(), (f32(6, 4), axis(a), ints(*n)))
        for a, n in [(0, (1, 2, 3)), (0, (6,)), (1, (1, 3)), (-2, (2, 4)), (0, (0, 6))]
    ),
    Case(Split(), (f32(6, 4), axis(0), ints(2, -1)), note="-1: the rest"),
    Case(Split(), (Spec("i64", (5,)), axis(0), ints(2, 3))),
]
