"""NonZero and Compress: result sizes depend on the data."""

from irc.ir.types import i32
from irc.ops.nonzero import Compress, NonZero
from tests.ops.cases import Case, Spec

SOME = Spec("f32", (2, 3), values=[0, 1, 0, 2, 0, 3])
CASES = [
    Case(NonZero(), (SOME,)),
    Case(NonZero(output_type=i32), (SOME,)),
    Case(NonZero(), (Spec("bool", (4,)),)),
    Case(NonZero(), (Spec("i32", (2, 2), values=[0, 0, 0, 0]),)),
    *(
        Case(Compress(axis=a), (Spec("f32", (3, 4)), Spec("bool", (3,), values=[True, False, True])))
        for a in (0, 1, None)
    ),
]
