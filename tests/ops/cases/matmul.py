"""MatMul and Gemm."""

from irc.ops.matmul import Gemm, MatMul
from tests.ops.cases import Case, Spec


def f32(*shape: int) -> Spec:
    return Spec("f32", shape)


CASES = [
    *(
        Case(MatMul(), (f32(*a), f32(*b)), 1e-5)
        for a, b in [
            ((3, 4), (4, 5)),
            ((4,), (4,)),
            ((4,), (4, 5)),
            ((3, 4), (4,)),
            ((2, 3, 4), (4, 5)),
            ((3, 4), (2, 4, 5)),
            ((2, 1, 3, 4), (1, 6, 4, 5)),
            ((1, 1), (1, 1)),
            ((2, 0), (0, 3)),
            ((0, 3), (3, 2)),
            ((17, 33), (33, 19)),
            ((2, 3, 4), (4,)),
            ((4,), (2, 4, 5)),
            ((1, 64), (64, 100)),
            ((65, 130), (130, 1)),
        ]
    ),
    *(
        Case(MatMul(transpose_a=ta, transpose_b=tb), (f32(*a), f32(*b)), 1e-5)
        for ta, tb, a, b in [
            (True, False, (4, 3), (4, 5)),
            (False, True, (3, 4), (5, 4)),
            (True, True, (4, 3), (5, 4)),
            (False, True, (2, 3, 4), (2, 5, 4)),
            (True, False, (4, 3), (4,)),
            (False, True, (4,), (5, 4)),
            (False, True, (33, 65), (47, 65)),
            (True, False, (2, 65, 33), (65, 20)),
        ]
    ),
    *(
        Case(MatMul(), (Spec(t, (3, 4)), Spec(t, (4, 5))), r)
        for t, r in [
            ("f64", 1e-12),
            ("f16", 2e-3),
            ("bf16", 2e-2),
            ("i32", 0),
            ("i64", 0),
            ("u32", 0),
            ("u64", 0),
            ("i8", 0),
            ("u8", 0),
        ]
    ),
    *(
        Case(Gemm(transA=ta, transB=tb, alpha=0.5, beta=2.0), (f32(*a), f32(*b), f32(4, 5)), 1e-5)
        for ta, tb, a, b in [
            (0, 0, (4, 3), (3, 5)),
            (1, 0, (3, 4), (3, 5)),
            (0, 1, (4, 3), (5, 3)),
            (1, 1, (3, 4), (5, 3)),
        ]
    ),
    *(Case(Gemm(), (f32(4, 3), f32(3, 5), f32(*c)), 1e-5) for c in [(5,), (1, 5), (4, 1), (1,), ()]),
    Case(Gemm(), (f32(4, 3), f32(3, 5)), 1e-5),
    Case(Gemm(alpha=0.5), (Spec("i32", (2, 3)), Spec("i32", (3, 2)), Spec("i32", (2, 2)))),
    Case(Gemm(alpha=2.0), (Spec("f16", (2, 3)), Spec("f16", (3, 2)), Spec("f16", (2,))), 4e-3),
]
