"""NonMaxSuppression: boxes that overlap, equal scores, thresholds, both spellings of a box."""

from irc.ops.detection import NonMaxSuppression
from tests.ops.cases import Case, Spec

BOXES = Spec(
    "f32", (1, 6, 4), values=[0, 0, 1, 1, 0, 0.1, 1, 1.1, 0, -0.1, 1, 0.9, 0, 10, 1, 11, 1, 11.1, 0, 10.1, 5, 5, 6, 6]
)
SCORES = Spec("f32", (1, 2, 6), values=[0.9, 0.75, 0.6, 0.95, 0.5, 0.3, 0.2, 0.2, 0.7, 0.1, 0.2, 0.2])
MANY = (Spec("f32", (2, 9, 4), 0, 3), Spec("f32", (2, 3, 9), 0, 1))


def number(value: float, dtype: str = "f32", shape: tuple[int, ...] = ()) -> Spec:
    return Spec(dtype, shape, values=value, const=True)


CASES = [
    Case(NonMaxSuppression(), (BOXES, SCORES)),
    Case(NonMaxSuppression(), (BOXES, SCORES, number(0, "i64"))),
    Case(
        NonMaxSuppression(), (BOXES, SCORES, number(3, "i64", (1,)), number(0.5, shape=(1,)), number(0.25, shape=(1,)))
    ),
    Case(NonMaxSuppression(), (BOXES, SCORES, number(100, "i64"), number(0.5), None)),
    Case(NonMaxSuppression(), (BOXES, SCORES, number(2, "i64"), None, number(0.2)), note="as good as the threshold"),
    Case(NonMaxSuppression(), (BOXES, SCORES, number(2, "i64"), number(0.5), number(5))),
    Case(NonMaxSuppression(), (*MANY, number(4, "i64"), number(0.3))),
    Case(NonMaxSuppression(centered=True), (*MANY, number(9, "i64"), number(0.2), number(0.1))),
    Case(NonMaxSuppression(), (Spec("f32", (2, 0, 4)), Spec("f32", (2, 3, 0)), number(4, "i64"))),
]
