"""Reductions."""

from irc.ops.reduce import (
    ReduceL1,
    ReduceL2,
    ReduceLogicalAnd,
    ReduceLogicalOr,
    ReduceLogSum,
    ReduceLogSumExp,
    ReduceMax,
    ReduceMean,
    ReduceMin,
    ReduceProd,
    ReduceSum,
    ReduceSumSquare,
)
from tests.ops.cases import Case, Spec

ALL = (
    ReduceSum,
    ReduceMean,
    ReduceMax,
    ReduceMin,
    ReduceProd,
    ReduceL1,
    ReduceL2,
    ReduceLogSum,
    ReduceLogSumExp,
    ReduceSumSquare,
)
EXACT = (ReduceMax, ReduceMin)
LIMITS = {"f32": 1e-6, "f64": 1e-12, "f16": 2e-3, "bf16": 1.6e-2}


def axes(*values: int) -> Spec:
    return Spec("i64", (len(values),), values=values, const=True)


CASES = [
    *(
        Case(op(keepdims=keep), (Spec("f32", (2, 3, 4), 0.1, 2), a), 2e-6)
        for op in ALL
        for keep in (True, False)
        for a in (axes(0), axes(1), axes(-1), axes(0, 2), axes(0, 1, 2))
    ),
    *(Case(op(), (Spec("f32", (2, 3, 4), 0.1, 2),), 2e-6) for op in ALL),
    *(Case(op(noop_with_empty_axes=True), (Spec("f32", (2, 3), 0.1, 2), axes()), 2e-6) for op in ALL),
    *(Case(op(noop_with_empty_axes=True), (Spec("f32", (2, 3), 0.1, 2),), 2e-6) for op in ALL),
    *(Case(op(), (Spec(t, (3, 5), 0.1, 2), axes(1)), limit) for op in ALL for t, limit in LIMITS.items()),
    *(
        Case(op(), (Spec(t, (3, 5), -3, 5), axes(0)))
        for op in ALL[:6]
        for t in ("i8", "i32", "i64", "u8", "u32", "u64")
    ),
    *(Case(op(), (Spec(t, (3, 5), 1, 5), axes(0))) for op in ALL[6:] for t in ("i32", "i64", "u32")),
    *(
        Case(op(), (Spec("f32", (0, 3)), axes(0)))
        for op in (ReduceSum, ReduceProd, ReduceMax, ReduceMin, ReduceL1, ReduceL2)
    ),
    *(
        Case(op(), (Spec("f32", (17, 130)), a), 2e-6)
        for op in (ReduceSum, ReduceMax, ReduceMean)
        for a in (axes(0), axes(1))
    ),
    *(Case(op(), (Spec("f32", (4,), values=(1.0, float("nan"), 2.0, float("-inf"))), axes(0))) for op in EXACT),
    *(
        Case(op(keepdims=keep), (Spec("bool", (4, 3)), axes(0)))
        for keep in (True, False)
        for op in (ReduceLogicalAnd, ReduceLogicalOr, ReduceMax, ReduceMin)
    ),
    Case(ReduceLogSumExp(), (Spec("f32", (2, 3), 80, 200), axes(1)), 2e-6),
    Case(ReduceSum(), (Spec("f32", ()),)),
]
