"""Gather, GatherElements, GatherND."""

from irc.ops.gather import Gather, GatherElements, GatherND
from tests.ops.cases import Case, Spec

X = Spec("f32", (3, 4, 5))


def indices(shape: tuple[int, ...], low: int, high: int, dtype: str = "i64") -> Spec:
    return Spec(dtype, shape, low, high)


def at(*numbers: int, dtype: str = "i64") -> Spec:
    return Spec(dtype, (len(numbers),), values=numbers, const=True)


def axis(number: int) -> Spec:
    return Spec("i64", (), values=number, const=True)


CASES = [
    *(Case(Gather(), (X, indices((2, 3), -3, 2), axis(a))) for a in (0, 1, 2, -1)),
    Case(Gather(), (X, indices((), 0, 2), axis(0))),
    Case(Gather(), (X, indices((4,), 0, 2, "i32"), axis(1))),
    Case(Gather(), (X, Spec("i64", (), values=1, const=True), axis(1))),
    Case(Gather(), (X, at(2, 0, -1), axis(0))),
    *(  # regular ones: repeated, by strides, backwards, all the same; and a last run that is shorter
        Case(Gather(), (X, at(*numbers), axis(2)))
        for numbers in ((0, 0, 1, 1, 2, 2), (0, 2, 4), (4, 3, 2, 1), (3, 3, 3), (1, 1, 3, 3), (0, 0, 1, 1, 2))
    ),
    Case(Gather(batch_dims=1), (X, at(1, 1, 0), axis(1))),
    Case(Gather(), (X, indices((0,), 0, 2), axis(0))),
    *(
        Case(Gather(), (Spec(t, (6,)), indices((4,), -6, 5), axis(0)))
        for t in ("f16", "bf16", "i8", "u8", "i64", "bool")
    ),
    *(
        Case(Gather(batch_dims=b), (Spec("f32", (2, 3, 4, 5)), indices(s, -3, 2), axis(a)))
        for b, s, a in [
            (1, (2, 2), 1),
            (1, (2, 2), 2),
            (1, (2,), 3),
            (2, (2, 3, 2), 2),
            (2, (2, 3), 3),
            (-1, (2, 2), 1),
        ]
    ),
    *(
        Case(GatherElements(axis=a), (X, indices(s, -3, 2)))
        for a, s in [(0, (2, 4, 5)), (1, (3, 6, 5)), (-1, (3, 4, 2)), (1, (1, 2, 3))]
    ),
    Case(GatherElements(axis=0), (X, indices((3, 4, 5), 0, 2, "i32"))),
    *(
        Case(GatherND(batch_dims=b), (Spec("f32", (2, 3, 4)), indices(s, -2, 1)))
        for b, s in [(0, (1,)), (0, (5, 2)), (0, (2, 2, 3)), (0, (4, 1)), (1, (2, 1)), (1, (2, 3, 2)), (2, (2, 3, 1))]
    ),
]
