"""DepthToSpace, SpaceToDepth and ShuffleChannels."""

from irc.ops.space_to_depth import DepthToSpace, ShuffleChannels, SpaceToDepth
from tests.ops.cases import Case, Spec

MODES = ("blocks_first", "depth_first")
CASES = [
    *(
        Case(DepthToSpace(block_size=b, mode=m), (Spec("f32", s),))
        for m in MODES
        for b, s in [(2, (1, 8, 2, 3)), (3, (2, 9, 1, 2)), (1, (1, 2, 3, 4)), (2, (1, 16, 2, 1, 2)), (2, (2, 4, 3))]
    ),
    *(
        Case(SpaceToDepth(block_size=b, mode=m), (Spec("f32", s),))
        for m in MODES
        for b, s in [(2, (1, 2, 4, 6)), (3, (2, 1, 3, 6)), (1, (1, 2, 3, 4)), (2, (1, 1, 2, 4, 2)), (2, (2, 3, 4))]
    ),
    Case(ShuffleChannels(group=2), (Spec("f32", (2, 6, 3, 2)),)),
    Case(ShuffleChannels(axis=-1, group=3), (Spec("i32", (2, 9)),)),
    Case(ShuffleChannels(axis=0, group=1), (Spec("f16", (3, 2)),)),
    Case(ShuffleChannels(axis=1, group=4), (Spec("f32", (2, 0, 3)),)),
]
