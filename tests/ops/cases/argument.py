"""Positions and running totals."""

from irc.ops.argument import ArgMax, ArgMin, CumProd, CumSum
from tests.ops.cases import Case, Spec


def axis(value: int) -> Spec:
    return Spec("i64", (), values=value, const=True)


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
    *(
        Case(op(exclusive=e, reverse=r), (Spec("f32", (3, 4, 5), 0.5, 2), axis(a)), 2e-6)
        for op in (CumSum, CumProd)
        for e in (True, False)
        for r in (True, False)
        for a in (0, 1, -1)
    ),
    *(
        Case(CumSum(), (Spec(t, (3, 4)), axis(1)), limit)
        for t, limit in (("f64", 1e-12), ("f16", 4e-3), ("bf16", 3e-2), ("i32", 0), ("i64", 0), ("u32", 0))
    ),
    Case(CumSum(), (Spec("i32", (5,)),)),
]
