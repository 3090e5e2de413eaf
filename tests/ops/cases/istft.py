"""ISTFT: frames that overlap or not, shorter windows, centred, normalized, cut and filled up."""

from irc.ops.istft import ISTFT
from tests.ops.cases import Case, Spec


def number(n: int, const: bool = True) -> Spec:
    return Spec("i64", (), values=n, const=const)


WINDOW = Spec("f32", (8,), 0.5, 1, const=True)
CASES = [
    *(
        Case(ISTFT(center=c, normalized=n), (Spec("f32", (2, 5, 6, 2)), WINDOW, number(8), number(3)), 1e-5)
        for c in (False, True)
        for n in (False, True)
    ),
    Case(ISTFT(), (Spec("f32", (6, 4, 2)), Spec("f32", (7,), 0.5, 1), number(11), number(4)), 1e-4),
    *(
        Case(ISTFT(center=c), (Spec("f32", (5, 3, 2)), WINDOW, number(8), number(9), number(n)), 1e-5)
        for c in (False, True)
        for n in (5, 40)
    ),
    Case(ISTFT(center=True), (Spec("f32", (5, 3, 2)), WINDOW, number(8, False), number(2, False)), 1e-5),
    Case(ISTFT(), (Spec("f64", (3, 4, 2)), Spec("f64", (4,), 0.5, 1), number(4), number(2)), 1e-11),
]
