"""Pad, in both operand orders."""

from irc.ops.pad import Pad, PadEach
from tests.ops.cases import Case, Spec

X = Spec("f32", (3, 4))


def ints(*numbers: int, dtype: str = "i64") -> Spec:
    return Spec(dtype, (len(numbers),), values=numbers, const=True)


SEVEN = Spec("f32", (), values=7.5, const=True)
CASES = [
    *(Case(Pad(), (X, ints(*p))) for p in [(0, 0, 0, 0), (1, 2, 3, 0), (0, 0, 2, 2), (-1, 0, 0, 2), (1, -2, -1, 0)]),
    Case(Pad(), (X, ints(1, 1, 1, 1), SEVEN)),
    Case(Pad(), (X, ints(1, 1, 1, 1), Spec("f32", ())), note="value known when run"),
    Case(Pad(), (X, ints(1, 2), None, ints(1))),
    Case(Pad(), (X, ints(1, 2), SEVEN, ints(-2))),
    *(
        Case(Pad(mode=m), (X, ints(*p)))
        for m in ("edge", "reflect", "symmetric", "wrap")
        for p in [(1, 2, 2, 1), (0, 3, 0, 0), (2, 0, 0, 3), (0, 0, 0, 0)]
    ),
    Case(Pad(mode="edge"), (X, ints(5, 0, 0, 6))),
    Case(Pad(mode="wrap"), (Spec("f32", (3,)), ints(5, 4)), note="wrapped more than once"),
    Case(Pad(mode="edge"), (X, ints(-1, 0, 2, 0)), note="crops and pads"),
    *(Case(Pad(), (Spec(t, (2, 2)), ints(1, 0, 0, 1))) for t in ("f16", "bf16", "i8", "u8", "i32", "i64", "bool")),
    *(Case(PadEach(mode=m), (X, ints(1, 2), ints(2, 0))) for m in ("constant", "edge", "reflect", "symmetric")),
    Case(PadEach(), (X, ints(-1, 2), ints(0, -1), SEVEN)),
]
