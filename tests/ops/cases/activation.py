"""Activations."""

from irc.ops.activation import (
    Celu,
    Elu,
    Gelu,
    HardSigmoid,
    HardSwish,
    HSigmoid,
    LeakyRelu,
    Mish,
    PRelu,
    Relu,
    Selu,
    Shrink,
    Sigmoid,
    Softplus,
    Softsign,
    Swish,
    ThresholdedRelu,
)
from irc.ops.clip import Clip
from tests.ops.cases import Case, Spec

LIMITS = {"f32": 2e-6, "f64": 1e-12, "f16": 4e-3, "bf16": 3e-2}
PLAIN = (
    Sigmoid(),
    Softplus(),
    Softsign(),
    HardSwish(),
    HSigmoid(),
    Mish(),
    Gelu(),
    Gelu(approximate="tanh"),
    LeakyRelu(),
    LeakyRelu(alpha=0.25),
    Elu(),
    Elu(alpha=0.5),
    Celu(),
    Celu(alpha=2.0),
    ThresholdedRelu(),
    ThresholdedRelu(alpha=0.5),
    Shrink(),
    Shrink(bias=0.5, lambd=1.0),
    Swish(),
    Relu(),
)


def scalar(dtype: str, value: float) -> Spec:
    return Spec(dtype, (), values=value, const=True)


CASES = [
    *(Case(op, (Spec(t, (4, 9), -4, 4),), limit) for op in PLAIN for t, limit in LIMITS.items()),
    *(
        Case(op, (Spec("f32", (6,), values=(-90, 90, 0, -0.0, float("inf"), float("nan"))),), 2e-6)
        for op in (Relu(), Sigmoid(), Softplus(), LeakyRelu(), Elu(), HardSwish())
    ),
    *(Case(Relu(), (Spec(t, (3, 4), -4, 4),)) for t in ("i8", "i32", "i64", "u8")),
    *(Case(Shrink(bias=1.0, lambd=1.5), (Spec(t, (3, 4), -4, 4),)) for t in ("i8", "i32", "u8")),
    *(
        Case(op(), (Spec(t, (3, 4)), scalar(t, 1.5), scalar(t, 0.5)), limit)
        for op in (Selu, HardSigmoid)
        for t, limit in LIMITS.items()
    ),
    *(Case(op(), (Spec("f32", (3, 4)), Spec("f32", ()), Spec("f32", ())), 2e-6) for op in (Selu, HardSigmoid)),
    *(Case(Swish(), (Spec(t, (3, 4)), scalar(t, 0.75)), limit) for t, limit in LIMITS.items()),
    Case(Swish(), (Spec("f32", (3, 4)), Spec("f32", ())), 2e-6),
    *(
        Case(PRelu(), (Spec("f32", x), Spec("f32", slope, const=const)))
        for const in (True, False)
        for x, slope in (
            ((2, 3), (3,)),
            ((2, 3), (1,)),
            ((2, 3, 4), (3, 1)),
            ((2, 3, 4), (4,)),
            ((2, 3, 3), (3,)),
            ((2, 3, 4), ()),
            ((2, 3, 4), (2, 3, 4)),
            ((1, 3, 2, 2), (3, 1, 1)),
        )
    ),
    *(Case(PRelu(), (Spec(t, (2, 3)), Spec(t, (3,)))) for t in ("f64", "f16", "bf16", "i32", "i64", "u32")),
    *(
        Case(Clip(), (Spec(t, (3, 4), -9, 9), scalar(t, 1), scalar(t, 5)))
        for t in ("f32", "f64", "f16", "bf16", "i8", "i32", "i64", "u8", "u32")
    ),
    Case(Clip(), (Spec("f32", (3, 4)),)),
    Case(Clip(), (Spec("f32", (3, 4)), scalar("f32", 0.5))),
    Case(Clip(), (Spec("f32", (3, 4)), None, scalar("f32", 0.5))),
    Case(Clip(), (Spec("f32", (3, 4)), Spec("f32", (), -1, 0), Spec("f32", (), 0, 1))),
    Case(Clip(), (Spec("f32", (3, 4)), scalar("f32", 1.0), scalar("f32", 0.5)), note="bounds cross"),
]
