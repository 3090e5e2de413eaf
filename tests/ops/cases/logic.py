"""Logic, choice, bits."""

from irc.ops.logic import And, BitShift, BitwiseAnd, BitwiseNot, BitwiseOr, BitwiseXor, Not, Or, Where, Xor
from tests.ops.cases import Case, Spec

INTS = ("i8", "i16", "i32", "i64", "u8", "u16", "u32", "u64")
EVERY = ("f32", "f64", "f16", "bf16", "bool", *INTS)

CASES = [
    *(Case(op(), (Spec("bool", (4, 5)), Spec("bool", b))) for op in (And, Or, Xor) for b in ((4, 5), (5,), ())),
    Case(Not(), (Spec("bool", (4, 5)),)),
    *(
        Case(op(), (Spec(t, (4, 5), -99, 99), Spec(t, (5,), -99, 99)))
        for op in (BitwiseAnd, BitwiseOr, BitwiseXor)
        for t in INTS
    ),
    *(Case(BitwiseNot(), (Spec(t, (4, 5), -99, 99),)) for t in INTS),
    *(
        Case(BitShift(direction=d), (Spec(t, (4, 5), -99, 99), Spec(t, (4, 5), 0, 9)))
        for d in ("LEFT", "RIGHT")
        for t in INTS
    ),
    *(Case(Where(), (Spec("bool", (4, 5)), Spec(t, (4, 5)), Spec(t, (4, 5)))) for t in EVERY),
    *(
        Case(Where(), (Spec("bool", c), Spec("f32", x), Spec("f32", y)))
        for c, x, y in (((5,), (4, 5), ()), ((4, 1), (5,), (4, 5)), ((), (2, 3), (3,)), ((2, 1, 3), (4, 1), (1,)))
    ),
]
