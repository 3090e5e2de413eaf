"""Operations of any number of operands."""

from irc.ops.variadic import Max, Mean, Min, Sum
from tests.ops.cases import Case, Spec
from tests.ops.cases.arithmetic import EDGES, FLOATS, INTS, two

CASES = [
    *(Case(op(), two(t)) for op in (Min, Max) for t in (*FLOATS, *INTS)),
    *(Case(op(), (Spec("f32", (12,), values=EDGES), Spec("f32", ()))) for op in (Min, Max)),
    *(Case(op(), tuple(Spec("f32", (2, 3)) for _ in range(n))) for op in (Min, Max, Sum, Mean) for n in (1, 2, 3)),
    *(Case(op(), (Spec("f32", (2, 3)), Spec("f32", (3,)), Spec("f32", (2, 1)))) for op in (Min, Max, Sum, Mean)),
    *(Case(op(), tuple(Spec(t, (2, 3)) for _ in range(3))) for op in (Sum, Mean) for t in ("f64", "f16", "bf16")),
]
