"""Reverse, ReverseSequence, Roll."""

from irc.ops.reverse import Reverse, ReverseSequence, Roll
from tests.ops.cases import Case, Spec

X = Spec("f32", (3, 4, 5))


def ints(*numbers: int, dtype: str = "i64") -> Spec:
    return Spec(dtype, (len(numbers),), values=numbers, const=True)


CASES = [
    *(Case(Reverse(), (X, ints(*a))) for a in [(0,), (1, 2), (-1,), ()]),
    Case(Reverse(mode="mask"), (X, Spec("bool", (3,), values=[True, False, True], const=True))),
    Case(ReverseSequence(batch_axis=0, time_axis=1), (X, Spec("i64", (3,), values=[1, 4, 2]))),
    Case(ReverseSequence(batch_axis=1, time_axis=0), (X, Spec("i64", (4,), values=[0, 1, 2, 3]))),
    Case(ReverseSequence(batch_axis=0, time_axis=2), (X, Spec("i32", (3,), values=[5, 0, 3]))),
    *(  # shifts that are known when the model runs: one for each axis, one for all of them
        Case(Roll(), (X, Spec(t, (len(s),), values=s), ints(*a)))
        for t, s, a in [("i64", (2,), (1,)), ("i32", (-3, 9), (0, 2)), ("i64", (1,), (0, 1)), ("i32", (2,), (-1,))]
    ),
    *(
        Case(Roll(), (X, ints(*s), ints(*a)))
        for s, a in [
            ((1,), (0,)),
            ((-2,), (2,)),
            ((7,), (1,)),
            ((1, 2), (0, 2)),
            ((0,), (0,)),
            ((2, 1), (1, 1)),
            ((1,), (0, -1)),
        ]
    ),
]
