"""Identity, Reshape, Flatten, Transpose, Squeeze, Unsqueeze."""

from irc.ops.layout import Flatten, Identity, Reshape, Squeeze, Transpose, Unsqueeze
from tests.ops.cases import Case, Spec

X = Spec("f32", (2, 3, 4))


def ints(*numbers: int, dtype: str = "i64") -> Spec:
    return Spec(dtype, (len(numbers),), values=numbers, const=True)


def scalar(number: int) -> Spec:
    return Spec("i64", (), values=number, const=True)


def f32(*shape: int) -> Spec:
    return Spec("f32", shape)


CASES = [
    Case(Identity(), (X,)),
    Case(Identity(), (Spec("bool", (3,)),)),
    *(
        Case(Reshape(), (X, ints(*s)))
        for s in [(24,), (-1,), (4, 6), (0, 12), (0, 0, -1), (6, -1), (2, 3, 2, 2), (1, 24)]
    ),
    Case(Reshape(), (f32(1, 1), ints())),
    Case(Reshape(), (f32(), ints(1, 1, 1))),
    Case(Reshape(), (X, ints(3, 8, dtype="i32"))),
    Case(Reshape(special_zero=False), (f32(0, 3), ints(3, 0))),
    *(Case(Reshape(), (Spec(t, (2, 6)), ints(3, 4))) for t in ("f64", "f16", "bf16", "i8", "u8", "i32", "i64", "bool")),
    *(Case(Flatten(axis=a), (X,)) for a in (0, 1, 2, 3, -1, -3)),
    Case(Flatten(), (f32(5),)),
    Case(Flatten(), (f32(2, 0, 4),)),
    *(Case(Transpose(), (X, ints(*p))) for p in [(0, 1, 2), (0, 2, 1), (1, 0, 2), (2, 1, 0), (2, 0, 1)]),
    Case(Transpose(), (X,)),
    Case(Transpose(), (X, ints())),
    Case(Transpose(), (f32(2, 3, 4, 5), ints(0, 2, 3, 1))),
    Case(Transpose(), (f32(5), ints(0))),
    *(Case(Transpose(), (Spec(t, (33, 17)), ints(1, 0))) for t in ("f32", "f16", "i8", "i64", "bool")),
    *(
        Case(Squeeze(), (f32(1, 3, 1, 4), a))
        for a in [ints(0), ints(2), ints(0, 2), ints(-2), ints(-4, 2), scalar(0), None]
    ),
    Case(Squeeze(), (f32(1, 1), None)),
    Case(Squeeze(allow_axis_skip=True), (f32(1, 3, 1), ints(0, 1))),
    *(Case(Unsqueeze(), (X, a)) for a in [ints(0), ints(3), ints(-1), ints(0, 2), ints(4, 0), ints(-4), scalar(1)]),
    Case(Unsqueeze(), (f32(), ints(0, 1))),
    Case(Unsqueeze(), (Spec("i32", (2,)), ints(1))),
]
