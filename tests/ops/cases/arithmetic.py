"""Arithmetic."""

from irc.ops.arithmetic import (
    Abs,
    Add,
    Ceil,
    Div,
    Floor,
    Mod,
    Mul,
    Neg,
    Pow,
    Reciprocal,
    Round,
    Sign,
    Sqrt,
    SquaredDifference,
    Sub,
)
from tests.ops.cases import Case, Spec

FLOATS = ("f32", "f64", "f16", "bf16")
INTS = ("i8", "i16", "i32", "i64", "u8", "u16", "u32", "u64")
PAIRS = (((2, 3), (2, 3)), ((2, 3), (3,)), ((2, 1, 4), (3, 1)), ((), (2, 3)), ((3,), ()), ((0, 3), (3,)))
EDGES = (-2.5, -1.5, -0.5, -0.0, 0.0, 0.5, 1.5, 2.5, 3.4999, float("inf"), float("-inf"), float("nan"))


def two(dtype: str, *, low: float = -9, high: float = 9) -> tuple[Spec, Spec]:
    return Spec(dtype, (4, 5), low, high), Spec(dtype, (4, 5), low, high)


CASES = [
    *(Case(op(), (Spec("f32", a), Spec("f32", b))) for op in (Add, Sub, Mul, SquaredDifference) for a, b in PAIRS),
    *(Case(op(), two(t)) for op in (Add, Sub, Mul, Div, Mod, SquaredDifference) for t in (*FLOATS[1:], *INTS)),
    *(
        Case(op(), (Spec("i32", (3,), values=(-(2**31), 2**31 - 1, 7)), Spec("i32", (3,), values=(-1, 2, 0))))
        for op in (Add, Sub, Mul, Div, Mod)
    ),
    *(
        Case(op, (Spec(t, (8,), values=(7, -7, 7, -7, 5, 0, 2, 3)), Spec(t, (8,), values=(3, 3, -3, -3, -1, 2, -2, 4))))
        for op in (Mod(), Mod(fmod=True), Div())
        for t in ("f32", "i32", "i64", "i8")
    ),
    *(Case(Pow(), (Spec(t, (3, 4), 0.1, 3), Spec(t, (3, 4), -2, 2)), 2e-6 if t == "f32" else 2e-2) for t in FLOATS),
    *(Case(Pow(), (Spec(t, (3, 4), -5, 5), Spec(t, (3, 4), 0, 4))) for t in INTS),
    Case(Pow(), (Spec("i32", (6,), values=(2, 1, -1, -1, 0, 5)), Spec("i32", (6,), values=(-1, -3, -3, -2, -1, -2)))),
    Case(Pow(), (Spec("f32", (3, 4), 0.5, 3), Spec("i64", (4,), -2, 3)), 1e-6),
    Case(Pow(), (Spec("i32", (3, 4), 1, 5), Spec("f32", (4,), values=(0.5, 1, 2, 2.5)))),
    *(Case(op(), (Spec(t, (3, 5), -4, 4),)) for op in (Neg, Abs, Sign) for t in (*FLOATS, *INTS)),
    *(
        Case(op, (Spec(t, (3, 5), -4, 4),))
        for op in (Floor(), Ceil(), Round(), Round(mode="half_away_from_zero"))
        for t in FLOATS
    ),
    *(
        Case(op, (Spec("f32", (12,), values=EDGES),))
        for op in (Neg(), Abs(), Sign(), Floor(), Ceil(), Round(), Round(mode="half_away_from_zero"), Reciprocal())
    ),
    *(Case(op(), (Spec(t, (3, 5), 0.1, 4),)) for op in (Sqrt, Reciprocal) for t in FLOATS),
]
