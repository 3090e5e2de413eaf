"""SearchSorted, Bucketize, GatherTree, SegmentMax, SparseFillEmptyRows, UniqueAlong, ConvertPromoteTypes."""

from irc.ir.types import f64, i32, i64
from irc.ops.beam import GatherTree
from irc.ops.promote import ConvertPromoteTypes
from irc.ops.search_sorted import Bucketize, SearchSorted
from irc.ops.segments import SegmentMax, SparseFillEmptyRows
from irc.ops.unique import UniqueAlong
from tests.ops.cases import Case, Spec

NAN = float("nan")
ROW = Spec("f32", (6,), values=[-1.5, -1, -1, 0, 0.5, 2])
ROWS = Spec("i32", (2, 3), values=[1, 3, 3, -2, 0, 9])
TWO = Spec("i64", (), values=2, const=True)


def promoted(p: str, q: str, target: str = "f32", rank: int = 2) -> Case:
    made = ConvertPromoteTypes(
        promote_unsafe=True,
        pytorch_scalar_promotion=rank == 0,
        u64_integer_promotion_target=f64 if target == "f64" else ConvertPromoteTypes().u64_integer_promotion_target,
    )
    return Case(made, (Spec(p, (2, 3)), Spec(q, (2, 3)[:rank])))


CASES = [
    *(Case(SearchSorted(right_mode=r), (ROW, Spec("f32", (3, 4)))) for r in (False, True)),
    *(Case(SearchSorted(right_mode=r, output_type=i32), (ROWS, Spec("i32", (2, 4), -3, 10))) for r in (False, True)),
    Case(SearchSorted(), (ROW, Spec("f32", (4,), values=[-1, 0.5, 2, 3]))),
    Case(SearchSorted(right_mode=True), (ROW, Spec("f32", ()))),
    Case(SearchSorted(), (Spec("u8", (0,)), Spec("u8", (3,)))),
    *(Case(Bucketize(with_right_bound=r), (Spec("f32", (3, 4)), ROW)) for r in (False, True)),
    Case(Bucketize(output_type=i32), (Spec("i64", (5,), -3, 3), ROW)),
    Case(Bucketize(), (Spec("f16", (5,), -3, 3), Spec("i8", (3,), values=[-1, 0, 2]))),
    Case(Bucketize(), (Spec("u64", (5,), 0, 9), Spec("u32", (3,), values=[1, 4, 5]))),
    Case(
        GatherTree(),
        (
            Spec("i32", (4, 2, 3), 0, 5),
            Spec("i32", (4, 2, 3), 0, 2),
            Spec("i32", (2,), values=[4, 2]),
            Spec("i32", (), values=3),
        ),
    ),
    Case(
        GatherTree(),
        (
            Spec("f32", (3, 1, 4)),
            Spec("f32", (3, 1, 4), -2, 9),
            Spec("f32", (1,), values=[9]),
            Spec("f32", (1,), values=[7]),
        ),
    ),
    *(
        Case(SegmentMax(fill_mode=m), (Spec(t, (5, 3)), Spec("i64", (5,), values=[0, 0, 1, 3, 3])))
        for m in ("zero", "lowest")
        for t in ("f32", "i8", "bf16")
    ),
    Case(SegmentMax(), (Spec("u32", (4,), 0, 9), Spec("i32", (4,), values=[0, 1, 1, 6]), Spec("i32", (), values=5))),
    Case(
        SegmentMax(fill_mode="lowest"), (Spec("f64", (0, 2)), Spec("i64", (0,)), Spec("i64", (), values=2, const=True))
    ),
    Case(
        SparseFillEmptyRows(),
        (
            Spec("f32", (4,)),
            Spec("i64", (2,), values=[6, 5]),
            Spec("i64", (4, 2), values=[0, 1, 0, 3, 2, 0, 3, 1]),
            Spec("f32", (), values=9),
        ),
    ),
    Case(
        SparseFillEmptyRows(),
        (
            Spec("i8", (2,)),
            Spec("i32", (2,), values=[2, 2]),
            Spec("i32", (2, 2), values=[0, 1, 1, 0]),
            Spec("i8", (1,)),
        ),
    ),
    *(
        Case(UniqueAlong(sorted=s, index_element_type=t), (Spec("i32", (4, 3, 2), 0, 1), a))
        for s, t in ((True, i32), (False, i64))
        for a in (None, Spec("i64", (), values=-1, const=True), Spec("i32", (1,), values=[0], const=True))
    ),
    Case(UniqueAlong(count_element_type=i32), (Spec("f32", (6,), values=[2, 1, 1, 3, 4, 3]),)),
    *(promoted(p, q) for p, q in (("i8", "u8"), ("f16", "bf16"), ("bool", "i32"), ("f32", "i64"), ("u16", "i64"))),
    promoted("u64", "i8"),
    promoted("u64", "i8", "f64"),
    promoted("u8", "i64", rank=0),
    promoted("i8", "f16", rank=0),
]
