"""OneHot, in both operand orders."""

from irc.ops.onehot import OneHot, OneHotPair
from tests.ops.cases import Case, Spec


def number(value: float, dtype: str = "i64") -> Spec:
    return Spec(dtype, (), values=value, const=True)


VALUES = Spec("f32", (2,), values=[-1.0, 3.0])
CASES = [
    *(
        Case(OneHot(axis=a, negative=n), (Spec("i64", (2, 3), -6, 6), number(5), number(2.5, "f32"), number(-1, "f32")))
        for a in (0, 1, -1)
        for n in ("ignore", "wrap")
    ),
    Case(OneHot(), (Spec("i32", ()), number(3, "i32"), number(1), number(0))),
    *(Case(OneHotPair(axis=a), (Spec("i64", (2, 3), -6, 6), number(5), VALUES)) for a in (0, 1, -1)),
    Case(OneHotPair(), (Spec("f32", (3,), values=[0, 2, 1]), number(4, "f32"), Spec("i32", (2,)))),
]
