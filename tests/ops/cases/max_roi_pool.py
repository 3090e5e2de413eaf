"""Pooling of regions of interest with rounded edges."""

from irc.ops.max_roi_pool import MaxRoiPool
from tests.ops.cases import ALONE, Case, Spec

INF, NAN = float("inf"), float("nan")
INSIDE = [0, 0, 0, 4, 5, 1, 1.5, 2, 6.5, 3, 0, 5, 4, 2, 1, 0, 2.5, 0.5, 9, 9, 1, 3, 3, 3, 3]
OUTSIDE = [0, 30, 30, 40, 40, 1, -50, -2, -40, 1, 0, -2, -1, 9, 9, 1, -0.5, -1.5, 20, 2]
ODD = [2, 0, 0, 3, 3, -1, 0, 0, 3, 3, NAN, 0, 0, 3, 3, 0, NAN, 0, 4, INF, 0, -INF, -INF, INF, INF, 1, 3e38, 0, 3e38, 1]


def x(kind: str) -> Spec:
    return Spec(kind, (2, 3, 6, 7))


def regions(kind: str, values: list[float]) -> Spec:
    return Spec(kind, (len(values) // 5, 5), values=values)


CASES = [
    *(
        Case(MaxRoiPool(pooled_shape=shape), (x("f32"), regions("f32", values)))
        for shape in ((2, 3), (1, 1), (7, 6))
        for values in (INSIDE, OUTSIDE)
    ),
    *(Case(MaxRoiPool((2, 2), scale), (x("f32"), regions("f32", INSIDE))) for scale in (0.5, 1.7)),
    Case(MaxRoiPool((2, 2)), (x("f32"), regions("f32", ODD)), note=ALONE),
    *(Case(MaxRoiPool((2, 3)), (x(kind), regions(kind, INSIDE)), note=ALONE) for kind in ("f16", "f64", "bf16")),
    Case(
        MaxRoiPool((2, 2)),
        (Spec("f32", (1, 1, 2, 2), values=[NAN, -INF, NAN, 3]), regions("f32", [0, 0, 0, 1, 1])),
        note=ALONE,
    ),
    Case(MaxRoiPool((2, 2)), (x("f32"), Spec("f32", (0, 5)))),
]
