"""TensorScatter: both modes, every axis, with and without indices; indices that lead outside."""

from irc.ops.tensor_scatter import TensorScatter
from tests.ops.cases import Case, Spec


def case(
    op: TensorScatter, start: tuple[int, ...] | None, update: tuple[int, ...] = (3, 2, 4, 5), t: str = "f32"
) -> Case:
    indices = None if start is None else Spec("i64", (len(start),), values=start)
    return Case(op, (Spec(t, (3, 2, 6, 5)), Spec(t, update), indices))


CASES = [
    case(TensorScatter(), (0, 1, 2)),
    case(TensorScatter(), None),
    case(TensorScatter(circular=True), (5, 0, 3)),
    case(TensorScatter(circular=True), (5, -1, 13)),
    case(TensorScatter(circular=True), None),
    case(TensorScatter(axis=1), (0, 1, 1), (3, 1, 6, 5)),
    case(TensorScatter(axis=-1), (0, 3, 1), (3, 2, 6, 2)),
    case(TensorScatter(axis=3, circular=True), (4, 3, 0), (3, 2, 6, 5)),
    case(TensorScatter(), (0, 1, 2), (3, 2, 0, 5)),
    *(case(TensorScatter(), (2, 1, 2), t=t) for t in ("f16", "bf16", "i8", "u4", "bool", "f8e4m3fn")),
    Case(
        TensorScatter(), (Spec("f32", (2, 4, 3)), Spec("f32", (2, 1, 3)), Spec("i64", (2,), values=[3, 0], const=True))
    ),
]
