"""Shape, Size, Expand, Tile, Range, Eye, EyeLike, Trilu."""

from irc.ir.types import f16, f32, i32, i64, u8
from irc.ops.range import Range, RangeTo
from irc.ops.shape import Expand, Eye, EyeLike, Shape, Size, Tile, Trilu
from tests.ops.cases import Case, Spec

X = Spec("f32", (2, 3, 4))


def ints(*numbers: int, dtype: str = "i64") -> Spec:
    return Spec(dtype, (len(numbers),), values=numbers, const=True)


def number(value: float, dtype: str = "i64") -> Spec:
    return Spec(dtype, (), values=value, const=True)


CASES = [
    *(
        Case(Shape(start=s, end=e), (X,))
        for s, e in [(0, None), (1, None), (-1, None), (0, 2), (0, -1), (2, 1), (-10, 10)]
    ),
    Case(Shape(output_type=i32), (X,)),
    Case(Shape(), (Spec("bool", ()),)),
    Case(Size(), (X,)),
    Case(Size(), (Spec("i32", (0, 3)),)),
    *(
        Case(Expand(), (Spec("f32", s), ints(*t)))
        for s, t in [
            ((3, 1), (3, 4)),
            ((1,), (2, 3)),
            ((3,), (2, 3)),
            ((), (2, 2)),
            ((3, 1), (2, 1, 6)),
            ((3, 4), (1,)),
            ((2, 1, 4), (3, 1)),
        ]
    ),
    Case(Expand(mode="numpy"), (Spec("f32", (3, 1)), ints(2, 3, 4))),
    *(Case(Expand(), (Spec(t, (1, 3)), ints(2, 3))) for t in ("f16", "bf16", "i8", "u8", "i32", "i64", "bool")),
    *(
        Case(Tile(), (Spec("f32", s), ints(*r)))
        for s, r in [
            ((2, 3), (1, 1)),
            ((2, 3), (2, 1)),
            ((2, 3), (1, 3)),
            ((2, 3), (2, 3)),
            ((3,), (2,)),
            ((2, 3), (0, 1)),
        ]
    ),
    Case(Tile(), (Spec("f32", (3,)), ints(2, 2))),
    Case(Tile(), (Spec("f32", (2, 3)), ints(2))),
    Case(Tile(), (Spec("i64", (2, 1, 3)), ints(1, 2, 2))),
    *(
        Case(Range(), (number(a, t), number(b, t), number(c, t)))
        for a, b, c, t in [
            (0, 5, 1, "i64"),
            (2, 11, 3, "i32"),
            (10, 4, -2, "i64"),
            (5, 5, 1, "i64"),
            (5, 0, 1, "i64"),
            (0.5, 3, 0.75, "f32"),
            (3, 0, -1, "f64"),
            (0, 4, 1, "f16"),
        ]
    ),
    Case(RangeTo(output_type=f32), (number(1), number(8, "f32"), number(2))),
    Case(RangeTo(output_type=i32), (number(1.5, "f32"), number(8, "f32"), number(2.9, "f32"))),
    *(Case(Eye(output_type=t), (number(3), number(4), number(d))) for t, d in [(f32, 0), (i64, 1), (u8, -2), (f16, 9)]),
    Case(Eye(output_type=f32), (number(2), number(2), number(0), ints(2, 3))),
    *(Case(EyeLike(dtype=t, k=k), (Spec("f32", (3, 4)),)) for t, k in [(f32, 0), (i32, 1), (f32, -1)]),
    *(
        Case(Trilu(upper=u), (Spec("f32", (2, 3, 4)), k))
        for u in (True, False)
        for k in (None, number(1), number(-2), number(7))
    ),
    Case(Trilu(), (Spec("i64", (3, 3)),)),
]
