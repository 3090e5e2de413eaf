"""Comparisons, NaN and infinity."""

from irc.ops.compare import Equal, Greater, GreaterOrEqual, IsFinite, IsInf, IsNaN, Less, LessOrEqual, NotEqual
from tests.ops.cases import Case, Spec

TYPES = ("f32", "f64", "f16", "bf16", "i8", "i16", "i32", "i64", "u8", "u16", "u32", "u64", "bool")
OPS = (Equal, NotEqual, Less, LessOrEqual, Greater, GreaterOrEqual)
ODD = Spec("f32", (6,), values=(float("nan"), float("inf"), float("-inf"), 0.0, -0.0, 1.0))

CASES = [
    *(Case(op(), (Spec(t, (4, 5), -2, 2), Spec(t, (5,), -2, 2))) for op in OPS for t in TYPES),
    *(Case(op(), (ODD, Spec("f32", (6,), values=(float("nan"), float("inf"), 0, -0.0, 0.0, 2.0)))) for op in OPS),
    *(Case(op(), (Spec("i32", (2, 1, 3), -1, 1), Spec("i32", (4, 1), -1, 1))) for op in OPS),
    *(
        Case(op, (Spec(t, (6,), values=ODD.values),))
        for t in ("f32", "f64", "f16", "bf16", "f8e5m2")
        for op in (
            IsNaN(),
            IsFinite(),
            IsInf(),
            IsInf(detect_negative=False),
            IsInf(detect_positive=False),
            IsInf(detect_negative=False, detect_positive=False),
        )
    ),
]
