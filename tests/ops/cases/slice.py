"""Slice and StridedSlice."""

from irc.ops.slice import Slice, StridedSlice
from tests.ops.cases import Case, Spec

X = Spec("f32", (5, 6, 7))
BIG = 2**63 - 1


def ints(*numbers: int, dtype: str = "i64") -> Spec:
    return Spec(dtype, (len(numbers),), values=numbers, const=True)


def one(s: int, e: int, axis: int, step: int) -> Case:
    return Case(Slice(), (X, ints(s), ints(e), ints(axis), ints(step)), note=f"[{s}:{e}:{step}] of axis {axis}")


CASES = [
    *(
        one(s, e, a, t)
        for a in (0, -1)
        for s, e, t in [
            (0, BIG, 1),
            (1, 3, 1),
            (-2, BIG, 1),
            (0, -1, 1),
            (1, 100, 2),
            (-100, 2, 1),
            (3, 3, 1),
            (4, 1, 1),
            (3, 0, -1),
            (BIG, -BIG, -1),
            (-1, -100, -2),
            (4, 0, -2),
            (100, -100, -3),
            (0, 5, 7),
        ]
    ),
    Case(Slice(), (X, ints(1, 2), ints(4, 5))),
    Case(Slice(), (X, ints(1, 2), ints(4, 5), ints(0, 2))),
    Case(Slice(), (X, ints(1, 6), ints(4, 0), ints(2, 1), ints(2, -2))),
    Case(Slice(), (X, ints(1, dtype="i32"), ints(4, dtype="i32"), ints(1, dtype="i32"))),
    Case(Slice(), (Spec("f32", (0, 3)), ints(0), ints(2), ints(1), ints(1))),
    *(
        Case(Slice(), (Spec(t, (6,)), ints(1), ints(5), ints(0), ints(2)))
        for t in ("f16", "bf16", "i8", "u8", "i64", "bool")
    ),
    Case(StridedSlice(), (X, ints(1, 2, 0), ints(4, 5, 7), ints(1, 2, 3))),
    Case(StridedSlice(begin_mask=(0, 1, 0), end_mask=(1, 0, 0)), (X, ints(1, 2, 3), ints(2, 5, 7), ints(1, 1, 1))),
    Case(StridedSlice(begin_mask=(1, 1), end_mask=(1, 1)), (X, ints(0, 0), ints(0, 0), ints(-1, 2))),
    Case(StridedSlice(shrink_axis_mask=(1,)), (X, ints(2), ints(3), ints(1))),
    Case(StridedSlice(shrink_axis_mask=(0, 1)), (X, ints(1, -1), ints(4, 0), ints(1, 1))),
    Case(StridedSlice(new_axis_mask=(1, 0)), (X, ints(0, 1), ints(0, 4), ints(1, 1))),
    Case(StridedSlice(new_axis_mask=(0, 1, 0)), (X, ints(1, 0, 2), ints(4, 0, 5), ints(1, 1, 1))),
    Case(StridedSlice(ellipsis_mask=(1, 0)), (X, ints(0, 1), ints(0, 4), ints(1, 1))),
    Case(StridedSlice(ellipsis_mask=(0, 1, 0)), (X, ints(1, 0, 2), ints(4, 0, 5), ints(1, 1, 2))),
    Case(StridedSlice(ellipsis_mask=(1, 0), shrink_axis_mask=(0, 1)), (X, ints(0, 3), ints(0, 4), ints(1, 1))),
    Case(
        StridedSlice(ellipsis_mask=(0, 1, 0, 0), new_axis_mask=(1, 0, 0, 1)),
        (X, ints(0, 0, 1, 0), ints(0, 0, 3, 0), ints(1, 1, 1, 1)),
    ),
    Case(StridedSlice(), (X, ints(1), ints(-1))),
]
