"""BatchToSpace, SpaceToBatch, ExtractImagePatches, SliceScatter: blocks, crops, pads, windows, slices either way."""

from irc.ops.patches import ExtractImagePatches
from irc.ops.scatter import SliceScatter
from irc.ops.space_to_depth import BatchToSpace, SpaceToBatch
from tests.ops.cases import Case, Spec


def ints(*values: int) -> Spec:
    return Spec("i64", (len(values),), values=values, const=True)


def patches(sizes: tuple[int, int], strides: tuple[int, int], rates: tuple[int, int], pad: str, size: int = 7) -> Case:
    made = ExtractImagePatches(sizes=sizes, strides=strides, rates=rates, auto_pad=pad)
    return Case(made, (Spec("f32", (2, 3, 6, size)),))


ZEROS = ints(0, 0, 0, 0, 0)
PADS = ("same_upper", "same_lower", "valid")
CASES = [
    Case(BatchToSpace(), (Spec("f32", (8, 2, 3, 4)), ints(1, 1, 4, 2), ints(0, 0, 1, 0), ints(0, 1, 2, 1))),
    Case(BatchToSpace(), (Spec("i8", (6, 4)), ints(1, 3), ints(0, 0), ints(0, 0))),
    Case(BatchToSpace(), (Spec("bool", (12, 1, 2, 2, 3)), ints(1, 1, 2, 3, 2), ints(0, 0, 1, 1, 1), ZEROS)),
    Case(BatchToSpace(), (Spec("f16", (4, 2, 3)), ints(1, 2, 2), ints(0, 4, 0), ints(0, 0, 0))),
    Case(SpaceToBatch(), (Spec("f32", (2, 2, 6, 5)), ints(1, 2, 4, 2), ints(0, 1, 1, 0), ints(0, 1, 1, 1))),
    Case(SpaceToBatch(), (Spec("i64", (3, 4), -9, 9), ints(1, 2), ints(0, 0), ints(0, 0))),
    Case(SpaceToBatch(), (Spec("bf16", (1, 2, 4, 6, 1)), ints(1, 1, 2, 3, 1), ZEROS, ints(0, 2, 0, 0, 0))),
    *(
        patches((2, 3), s, r, p)
        for p in ("same_upper", "same_lower", "valid")
        for s, r in (((1, 2), (1, 1)), ((2, 1), (2, 2)))
    ),
    patches((3, 3), (4, 5), (1, 1), "same_upper"),
    patches((6, 7), (1, 1), (1, 1), "valid"),
    Case(SliceScatter(), (Spec("f32", (5, 4)), Spec("f32", (2, 4)), ints(1), ints(3), ints(1))),
    Case(SliceScatter(), (Spec("i32", (5, 4)), Spec("i32", (5, 2)), ints(-1), ints(-5), ints(-2), ints(1))),
    Case(SliceScatter(), (Spec("f32", (3, 4, 5)), Spec("f32", (3, 4, 5)), ints(-100), ints(100), ints(1), ints(2))),
    Case(
        SliceScatter(), (Spec("i8", (4, 5, 3)), Spec("i8", (2, 5, 2)), ints(3, 0), ints(0, 3), ints(-2, 2), ints(0, -1))
    ),
    Case(SliceScatter(), (Spec("f32", (3, 4)), Spec("f32", (0, 4)), ints(2), ints(1), ints(1))),
]
