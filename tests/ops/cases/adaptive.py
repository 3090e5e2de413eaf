"""Adaptive pools: windows of equal and of different sizes, that overlap, more windows than elements."""

from irc.ir.types import i32
from irc.ops.adaptive import AdaptiveAvgPool, AdaptiveMaxPool
from tests.ops.cases import Case, Spec


def shape(*sizes: int, dtype: str = "i64") -> Spec:
    return Spec(dtype, (len(sizes),), values=sizes, const=True)


PLANE = Spec("f32", (2, 3, 7, 10))
SHAPES = [(PLANE, shape(*s)) for s in ((1, 1), (7, 5), (3, 4), (6, 10), (9, 11), (1, 3))]
OTHERS = [
    (Spec("f32", (2, 3, 11)), shape(4, dtype="i32")),
    (Spec("f32", (1, 2, 4, 5, 6)), shape(2, 3, 4)),
    *((Spec(t, (1, 2, 5, 7)), shape(2, 3)) for t in ("f16", "bf16", "f64")),
]
CASES = [
    *(Case(AdaptiveAvgPool(), operands, 1e-6) for operands in [*SHAPES, *OTHERS]),
    *(Case(AdaptiveMaxPool(), operands) for operands in [*SHAPES, *OTHERS]),
    Case(AdaptiveMaxPool(index_type=i32), (PLANE, shape(3, 3))),
    Case(AdaptiveMaxPool(), (Spec("f32", (1, 2, 6, 6), values=[1.0] * 72), shape(4, 4)), note="equal elements"),
]
