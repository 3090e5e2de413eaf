"""Positions of the largest and the smallest elements."""

from irc.ops.argmax import ArgMax, ArgMin
from tests.ops.cases import Case, Spec

CASES = [
    *(
        Case(op(axis=a, keepdims=k), (Spec("f32", (3, 4, 5)),))
        for op in (ArgMax, ArgMin)
        for a in (0, 1, -1)
        for k in (True, False)
    ),
    *(
        Case(op(axis=0, select_last_index=last), (Spec("i32", (9, 3), 0, 2),))
        for op in (ArgMax, ArgMin)
        for last in (True, False)
    ),
    *(
        Case(op(axis=1), (Spec(t, (3, 4)),))
        for op in (ArgMax, ArgMin)
        for t in ("f64", "f16", "bf16", "i8", "i64", "u8")
    ),
    # ArgMin of NaN has no equal in OpenVINO, whose TopK takes NaN as the largest.
    Case(ArgMax(axis=0), (Spec("f32", (4,), values=(1.0, float("nan"), 3.0, float("nan"))),)),
]
