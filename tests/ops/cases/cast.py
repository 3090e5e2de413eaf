"""Conversions of element types."""

from irc.ir.types import dtype
from irc.ops.cast import Cast, CastLike
from tests.ops.cases import Case, Spec

WIDE = ("f32", "f64", "f16", "bf16", "i8", "i16", "i32", "i64", "u8", "u16", "u32", "u64", "bool")
NARROW = ("f8e4m3fn", "f8e4m3fnuz", "f8e5m2", "f8e5m2fnuz", "i4", "u4")
ROUNDED = (-1.75, -1.5, -0.5, 0.0, 0.25, 0.5, 1.5, 2.5, 3.99)
BEYOND = (500.0, -500.0, 1e9, -1e9, float("inf"), float("-inf"), float("nan"), 448.0, 464.0, 1e-9)

CASES = [
    *(Case(Cast(to=dtype(t)), (Spec(s, (3, 4), 0, 9),)) for s in WIDE for t in WIDE if s != t),
    *(Case(Cast(to=dtype(t)), (Spec(s, (3, 4), 0, 3),)) for s in ("f32", "f16") for t in NARROW),
    *(Case(Cast(to=dtype(t)), (Spec(s, (3, 4), 0, 3),)) for s in NARROW for t in ("f32", "f16", "f64")),
    *(
        Case(Cast(to=dtype(t)), (Spec(s, (9,), values=ROUNDED),))
        for s in ("f32", "f64", "f16", "bf16")
        for t in ("i8", "i16", "i32", "i64", "bool", "f16", "bf16", "f32")
        if s != t
    ),
    *(
        Case(Cast(to=dtype(t), saturate=saturate), (Spec("f32", (10,), values=BEYOND),))
        for t in NARROW[:4]
        for saturate in (True, False)
    ),
    *(
        Case(Cast(to=dtype(t)), (Spec("i32", (6,), values=(300, -300, 70000, -70000, 2**31 - 1, -(2**31))),))
        for t in ("i8", "u8", "i16", "u16", "i64", "u64")
    ),
    *(
        Case(
            Cast(to=dtype("f8e8m0"), round_mode=m),
            (Spec("f32", (9,), values=(0.0, 0.3, 1.0, 1.4, 1.5, 1.6, 2.0, 3.0, 1e30)),),
        )
        for m in ("up", "down", "nearest")
    ),
    *(Case(CastLike(), (Spec("f32", (3, 4), 0, 9), Spec(t, (1,)))) for t in ("i64", "f16", "bool", "f64")),
]
