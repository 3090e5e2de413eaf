"""Non-maximum suppression: boxes that overlap, equal scores, thresholds, spellings of a box, scores that decay."""

from irc.ir.types import i32
from irc.ops.detection import NonMaxSuppression, RotatedBoxes, ScoredBoxes
from tests.ops.cases import Case, Spec

BOXES = Spec(
    "f32", (1, 6, 4), values=[0, 0, 1, 1, 0, 0.1, 1, 1.1, 0, -0.1, 1, 0.9, 0, 10, 1, 11, 1, 11.1, 0, 10.1, 5, 5, 6, 6]
)
SCORES = Spec("f32", (1, 2, 6), values=[0.9, 0.75, 0.6, 0.95, 0.5, 0.3, 0.2, 0.2, 0.7, 0.1, 0.2, 0.2])
MANY = (Spec("f32", (2, 9, 4), 0, 3), Spec("f32", (2, 3, 9), 0, 1))
TURNED = (Spec("f32", (2, 9, 5), 0.2, 3), Spec("f32", (2, 3, 9), 0, 1))
SAME_TURNED = Spec(
    "f32", (1, 6, 5), values=[[3, 3, 2, 2, 1.5707963 * k] for k in range(4)] + [[3, 3, 2, 0, 0], [9, 3, 2, 2, 1]]
)


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
    Case(
        NonMaxSuppression(),
        (
            Spec("f32", (2, 150, 4), 0, 9),
            Spec("f32", (2, 2, 150), values=[(k * 37 % 101 - 30) / 16 for k in range(600)]),  # some are equal
            number(140, "i64"),
            number(0.1),
            number(-1.5),
        ),
        note="more than are compared with one another",
    ),
    Case(ScoredBoxes(), (BOXES, SCORES)),
    Case(ScoredBoxes(), (BOXES, SCORES, number(3, "i64"), number(0.5), number(0.15))),
    Case(ScoredBoxes(across=False), (BOXES, SCORES, number(3, "i32"), number(0.5, shape=(1,)))),
    Case(ScoredBoxes(output_type=i32, centered=True), (*MANY, number(4, "u8", (1,)), number(0.3), number(0.1))),
    Case(ScoredBoxes(), (*MANY, number(9, "i64"), number(0.2), number(0.1), number(0)), note="no decay"),
    Case(ScoredBoxes(), (*MANY, number(9, "i64"), number(0.2), number(0.1), number(0.5)), rtol=1e-5),
    Case(ScoredBoxes(), (*MANY, number(9, "i64"), number(0.2), number(0.1), Spec("f32", (), 0.3, 0.4)), rtol=1e-5),
    Case(ScoredBoxes(limited=True), (*MANY, number(9, "i64"), number(0.2), number(0.1), number(0.5)), rtol=1e-5),
    Case(
        ScoredBoxes(),
        (Spec("f16", (2, 5, 4), 0, 3), Spec("f16", (2, 3, 5), 0, 1), number(4, "i64"), number(0.3), number(0.1, "f16")),
    ),
    Case(RotatedBoxes(), (*TURNED, number(4, "i64"), number(0.2), number(0.1)), rtol=1e-5),
    Case(
        RotatedBoxes(across=False, clockwise=False, output_type=i32),
        (*TURNED, number(9, "i64", (1,)), number(0.3), number(0)),
        rtol=1e-5,
    ),
    Case(RotatedBoxes(), (SAME_TURNED, SCORES, number(9, "i64"), number(0.99), number(0)), note="the same box turned"),
]
