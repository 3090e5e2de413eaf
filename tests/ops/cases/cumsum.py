"""Running totals."""

from irc.ops.cumsum import CumProd, CumSum
from tests.ops.cases import Case, Spec


def axis(value: int) -> Spec:
    return Spec("i64", (), values=value, const=True)


CASES = [
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
