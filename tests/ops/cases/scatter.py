"""ScatterElements, ScatterND, ScatterUpdate."""

from irc.ops.scatter import ScatterElements, ScatterND, ScatterUpdate
from tests.ops.cases import Case, Spec

X = Spec("f32", (3, 4))


def axis(number: int) -> Spec:
    return Spec("i64", (), values=number, const=True)


def places(shape: tuple[int, ...], *numbers: int) -> Spec:
    return Spec("i64", shape, values=numbers)


TWICE = places((2, 4), 0, 1, 2, 0, -1, 1, 0, 0)
CASES = [
    *(Case(ScatterElements(), (X, places((2, 2), 0, 1, 2, -1), Spec("f32", (2, 2)), axis(a))) for a in (0, 1, -1)),
    *(
        Case(ScatterElements(reduction=r, use_init=u), (X, TWICE, Spec("f32", (2, 4)), axis(0)), 1e-6)
        for r in ("add", "mul", "min", "max", "mean")
        for u in (True, False)
    ),
    *(
        Case(ScatterElements(reduction=r), (Spec("i32", (3, 4)), TWICE, Spec("i32", (2, 4), -9, 9), axis(0)))
        for r in ("add", "mul", "min", "max", "mean")
    ),
    Case(ScatterND(), (X, places((2, 1), 2, 0), Spec("f32", (2, 4)))),
    Case(ScatterND(), (X, places((3, 2), 2, 0, -1, 3, 0, 0), Spec("f32", (3,)))),
    Case(ScatterND(), (Spec("f32", (2, 3, 4)), places((2, 2, 2), 0, 0, 1, 2, 1, 1, 0, 2), Spec("f32", (2, 2, 4)))),
    *(
        Case(ScatterND(reduction=r), (X, places((3, 1), 2, 2, 0), Spec("f32", (3, 4))), 1e-6)
        for r in ("add", "sub", "mul", "min", "max")
    ),
    Case(ScatterND(reduction="add"), (Spec("i64", (4,)), places((3, 1), 1, 1, -1), Spec("i64", (3,)))),
    Case(ScatterUpdate(), (X, places((2,), 2, 0), Spec("f32", (2, 4)), axis(0))),
    Case(ScatterUpdate(), (X, places((2,), 3, -3), Spec("f32", (3, 2)), axis(1))),
    Case(ScatterUpdate(), (Spec("f32", (2, 3, 4)), places((1, 2), 2, 0), Spec("f32", (2, 1, 2, 4)), axis(1))),
]
