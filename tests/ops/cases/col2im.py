"""Col2Im: overlapping blocks, strides, dilations, padding, one to three axes, shapes that the run defines."""

from irc.ops.col2im import Col2Im
from tests.ops.cases import Case, Spec


def sizes(*values: int, dtype: str = "i64", const: bool = True) -> Spec:
    return Spec(dtype, (len(values),), values=values, const=const)


def case(op: Col2Im, rows: int, columns: int, image: tuple[int, ...], block: tuple[int, ...], t: str = "f32") -> Case:
    return Case(op, (Spec(t, (2, rows, columns)), sizes(*image), sizes(*block)), 1e-2 if t in ("f16", "bf16") else 1e-6)


PADDED = Col2Im(strides=(2, 1), dilations=(1, 2), pads_begin=(1, 0), pads_end=(0, 2))
CASES = [
    case(Col2Im(), 5, 5, (5, 5), (1, 5)),
    case(Col2Im(), 8, 12, (4, 5), (2, 2)),
    case(Col2Im(strides=(2, 2)), 18, 4, (5, 5), (3, 3)),
    case(PADDED, 12, 9, (5, 5), (2, 3)),
    case(Col2Im(pads_begin=(1,), pads_end=(1,)), 6, 6, (6,), (3,)),
    case(Col2Im(), 10, 12, (3, 4, 5), (1, 1, 5)),
    *(case(Col2Im(), 8, 12, (4, 5), (2, 2), t) for t in ("f16", "bf16", "f64", "i8", "u32", "i64")),
    Case(PADDED, (Spec("f32", (1, 12, 9)), sizes(5, 5, const=False), sizes(2, 3)), 1e-6),
    Case(PADDED, (Spec("f32", (1, 12, 9)), sizes(5, 5, const=False), sizes(2, 3, const=False)), 1e-6),
    Case(Col2Im(), (Spec("f32", (1, 8, 12)), sizes(4, 5), sizes(2, 2, const=False)), 1e-6),
    Case(Col2Im(), (Spec("f32", (0, 8, 12)), sizes(4, 5, dtype="i32"), sizes(2, 2, dtype="i32"))),
]
