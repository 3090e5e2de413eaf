"""Sums of rows of a table."""

from irc.ops.embedding_bag import EmbeddingBagOffsets, EmbeddingBagPacked, EmbeddingSegmentsSum
from tests.ops.cases import Case, Spec

TABLE, CUBE = Spec("f32", (5, 3)), Spec("f32", (5, 2, 3))
INDICES = Spec("i64", (4,), values=[0, 2, 3, 4])
OFFSETS = Spec("i64", (4,), values=[0, 2, 2, 3])
SEGMENTS = Spec("i64", (4,), values=[0, 0, 2, 2])
WEIGHTS = Spec("f32", (4,))


def one(number: int, const: bool = True) -> Spec:
    return Spec("i64", (), values=number, const=const)


CASES = [
    *(
        Case(EmbeddingBagPacked(how), (t, Spec("i64", (3, 2), 0, 4)), 1e-6)
        for how in ("sum", "mean")
        for t in (TABLE, CUBE)
    ),
    Case(EmbeddingBagPacked(), (CUBE, Spec("i32", (3, 2), 0, 4), Spec("f32", (3, 2))), 1e-6),
    Case(EmbeddingBagPacked(), (Spec("i32", (5, 3)), Spec("i32", (3, 2), 0, 4), Spec("i32", (3, 2)))),
    Case(EmbeddingBagPacked(), (Spec("f16", (5, 3)), Spec("i32", (3, 2), 0, 4)), 4e-3),
    *(Case(EmbeddingBagOffsets(how), (t, INDICES, OFFSETS), 1e-6) for how in ("sum", "mean") for t in (TABLE, CUBE)),
    *(Case(EmbeddingBagOffsets(how), (TABLE, INDICES, OFFSETS, one(1)), 1e-6) for how in ("sum", "mean")),
    Case(EmbeddingBagOffsets(), (CUBE, INDICES, OFFSETS, one(-1), WEIGHTS), 1e-6),
    Case(EmbeddingBagOffsets(), (CUBE, INDICES, OFFSETS, one(3, const=False), WEIGHTS), 1e-6),
    Case(EmbeddingSegmentsSum(), (TABLE, INDICES, SEGMENTS, one(4)), 1e-6),
    Case(EmbeddingSegmentsSum(), (CUBE, INDICES, SEGMENTS, one(4), one(1), WEIGHTS), 1e-6),
    Case(EmbeddingSegmentsSum(), (TABLE, INDICES, SEGMENTS, one(2, const=False), one(-1)), 1e-6, note="fewer"),
    Case(EmbeddingSegmentsSum(), (Spec("i64", (5, 3)), INDICES, SEGMENTS, one(3), one(0))),
]
