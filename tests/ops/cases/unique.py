"""Unique: of elements and of slices, both orders, equal and NaN elements, nothing at all."""

from irc.ops.unique import Unique
from tests.ops.cases import Case, Spec

NAN = float("nan")
CASES = [
    *(Case(Unique(sorted=s), (Spec("f32", (6,), values=[2, 1, 1, 3, 4, 3]),)) for s in (True, False)),
    *(Case(Unique(axis=a, sorted=s), (Spec("i32", (4, 3, 2), 0, 1),)) for a in (0, 1, -1) for s in (True, False)),
    Case(Unique(), (Spec("i8", (5, 7), -3, 3),)),
    Case(Unique(sorted=False), (Spec("i64", (100,), -9, 9),)),
    Case(Unique(), (Spec("bool", (3, 4)),)),
    Case(Unique(), (Spec("bf16", (7,), values=[1, 2, 1, 0, -1, 2, 1]),)),
    Case(Unique(), (Spec("f64", (6,), values=[NAN, 1, 0, NAN, 1, -1]),)),
    Case(Unique(axis=0), (Spec("f32", (3, 2), values=[1, NAN, 1, 0, 1, NAN]),)),
    Case(Unique(), (Spec("u8", (0,)),)),
    Case(Unique(), (Spec("u8", ()),)),
    Case(Unique(axis=1), (Spec("f32", (0, 3)),)),
    Case(Unique(axis=0), (Spec("f32", (0, 3)),)),
    Case(Unique(axis=2), (Spec("f32", (2, 0, 3)),)),
]
