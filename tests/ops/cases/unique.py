"""Unique: of elements and of slices, both orders, equal and NaN elements, nothing at all."""

from irc.ops.unique import Unique
from tests.ops.cases import Case, Spec

NAN, INF = float("nan"), float("inf")
MANY = [NAN, 0.0, -0.0, -1.5, INF, 2.0, -INF, NAN, 1.5, -1e-3] * 40
"""So many that they are sorted by digits."""
WIDE = [-(1 << 63), (1 << 63) - 1, 0, -1, 5, 1 << 40, 5, -(1 << 63)] * 50
CASES = [
    *(Case(Unique(sorted=s), (Spec("f32", (6,), values=[2, 1, 1, 3, 4, 3]),)) for s in (True, False)),
    *(Case(Unique(axis=a, sorted=s), (Spec("i32", (4, 3, 2), 0, 1),)) for a in (0, 1, -1) for s in (True, False)),
    Case(Unique(), (Spec("i8", (5, 7), -3, 3),)),
    Case(Unique(sorted=False), (Spec("i64", (100,), -9, 9),)),
    *(Case(Unique(), (Spec("bool", shape),)) for shape in ((3, 4), (20, 20))),
    Case(Unique(), (Spec("bf16", (7,), values=[1, 2, 1, 0, -1, 2, 1]),)),
    Case(Unique(), (Spec("f64", (6,), values=[NAN, 1, 0, NAN, 1, -1]),)),
    *(Case(Unique(), (Spec(kind, (400,), values=MANY),)) for kind in ("f32", "f64", "f16", "bf16")),
    *(Case(Unique(sorted=s), (Spec("i64", (400,), values=WIDE),)) for s in (True, False)),
    Case(Unique(), (Spec("u64", (400,), values=[v % (1 << 64) for v in WIDE]),)),
    *(Case(Unique(sorted=s), (Spec("i64", (5000,), -9000, 9000),)) for s in (True, False)),
    *(Case(Unique(), (Spec(kind, (700,), 0, 100),)) for kind in ("u8", "i32", "u16", "u32")),
    Case(Unique(axis=1), (Spec("i32", (1, 600), -50, 50),)),
    Case(Unique(axis=0), (Spec("f32", (3, 2), values=[1, NAN, 1, 0, 1, NAN]),)),
    Case(Unique(), (Spec("u8", (0,)),)),
    Case(Unique(), (Spec("u8", ()),)),
    Case(Unique(axis=1), (Spec("f32", (0, 3)),)),
    Case(Unique(axis=0), (Spec("f32", (0, 3)),)),
    Case(Unique(axis=2), (Spec("f32", (2, 0, 3)),)),
]
