"""TopK."""

from irc.ir.types import i32
from irc.ops.sort import TopK
from tests.ops.cases import Case, Spec


def k(number: int, vector: bool = True) -> Spec:
    return Spec("i64", (1,) if vector else (), values=[number] if vector else number, const=True)


CASES = [
    *(
        Case(TopK(axis=a, largest=g), (Spec("f32", (3, 7)), k(n)))
        for a, n in [(-1, 3), (0, 2), (1, 7), (1, 1)]
        for g in (True, False)
    ),
    *(Case(TopK(largest=g), (Spec("i32", (4, 9), -2, 2), k(5)), note="many are equal") for g in (True, False)),
    *(Case(TopK(sort=s, index_type=i32), (Spec("f32", (2, 8)), k(4, False))) for s in ("value", "index", "none")),
    Case(TopK(axis=1), (Spec("f32", (2, 5, 3)), k(2))),
    *(Case(TopK(), (Spec(t, (6,)), k(3))) for t in ("f64", "f16", "i8", "u8", "i64")),
    Case(TopK(), (Spec("f32", (200,)), k(100))),
]
