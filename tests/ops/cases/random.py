"""Random numbers of known seeds; tests/ops/test_random.py looks at their distributions."""

from irc.ir.types import bf16, boolean, f16, f32, f64, i8, i64
from irc.ops.dropout import Dropout
from irc.ops.random import (
    Bernoulli,
    Multinomial,
    RandomNormal,
    RandomNormalLike,
    RandomRange,
    RandomUniform,
    RandomUniformLike,
)
from irc.ops.random_words import MersenneWords, PhiloxWords, seeded_state
from tests.ops.cases import Case, Spec

SHAPE = Spec("i64", (2,), values=[3, 5], const=True)
KEY = 0x40600000  # 3.5 as an f32
TOLERANCE = {"f16": 2e-3, "bf16": 2e-2, "f32": 1e-6, "f64": 1e-6, "i32": 0, "i64": 0}


def bounds(kind: str, low: float, high: float, const: bool = True) -> tuple[Spec, Spec]:
    return Spec(kind, (), values=low, const=const), Spec(kind, (1,), values=[high], const=const)


CASES = [
    *(
        Case(RandomRange(150, 10, generator), (SHAPE, *bounds(kind, -3, 7)), TOLERANCE[kind], note=kind)
        for generator in ("philox", "mersenne")
        for kind in TOLERANCE
    ),
    Case(RandomRange(7, 0), (SHAPE, *bounds("i32", -(2**31), 2**31 - 1))),
    Case(RandomRange(7, 0, "mersenne"), (SHAPE, *bounds("i64", -(2**62), 2**62))),
    Case(RandomRange(7, 0), (SHAPE, *bounds("i32", 5, 5)), note="no number"),
    Case(RandomRange(KEY), (SHAPE, *bounds("f32", -1, 1, const=False)), 1e-6, note="computed bounds"),
    Case(RandomRange(KEY), (Spec("i32", (3,), values=[2, 3, 1]), *bounds("f32", 0, 1)), 1e-6, note="computed shape"),
    Case(RandomRange(KEY), (Spec("i64", (0,), const=True), *bounds("f32", 0, 1)), 1e-6, note="scalar"),
    Case(RandomRange(KEY), (Spec("i64", (2,), values=[0, 3], const=True), *bounds("f32", 0, 1)), note="no element"),
    *(Case(RandomUniform(KEY, low=-2, high=0.5, dtype=t), (SHAPE,), TOLERANCE[t.name]) for t in (f16, bf16, f32, f64)),
    *(Case(RandomNormal(KEY, mean=3, scale=2, dtype=t), (SHAPE,), max(TOLERANCE[t.name], 1e-5)) for t in (f16, bf16)),
    *(Case(RandomNormal(KEY, mean=3, scale=2, dtype=t), (SHAPE,), 1e-5) for t in (f32, f64)),
    Case(RandomUniformLike(KEY, high=4), (Spec("f32", (3, 2)),), 1e-6),
    Case(RandomUniformLike(KEY, dtype=f64), (Spec("i8", (3, 2)),), 1e-6),
    Case(RandomNormalLike(KEY, mean=1), (Spec("f32", (3, 2)),), 1e-5),
    Case(RandomNormalLike(KEY, dtype=bf16), (Spec("bool", (4,)),), 2e-2),
    *(Case(Bernoulli(KEY), (Spec(t, (4, 9), low=0, high=1),)) for t in ("f16", "bf16", "f32", "f64")),
    *(Case(Bernoulli(KEY, dtype=t), (Spec("f32", (4, 9), low=0, high=1),)) for t in (boolean, i8, f16)),
    Case(Bernoulli(KEY), (Spec("f32", (4,), values=[0, 1, 0, 1]),), note="certain"),
    Case(Multinomial(KEY), (Spec("f32", (3, 5)), Spec("i64", (), values=9, const=True))),
    Case(Multinomial(KEY, dtype=i64), (Spec("f64", (3, 5)), Spec("i64", (), values=9, const=True))),
    Case(Multinomial(KEY, log_probs=False), (Spec("f32", (2, 5), low=0), Spec("i32", (1,), values=[4]))),
    Case(Multinomial(KEY, log_probs=False), (Spec("f16", (1, 3), values=[0, 1, 0]), Spec("i64", (), values=4))),
    Case(Multinomial(KEY), (Spec("f8e5m2", (3, 5)), Spec("u8", (), values=9, const=True))),
    Case(Multinomial(KEY, with_replacement=False), (Spec("f32", (3, 5)), Spec("i64", (), values=5, const=True))),
    Case(
        Multinomial(KEY, with_replacement=False, log_probs=False),
        (Spec("f32", (1, 4), values=[0, 3, 0, 1]), Spec("i64", (), values=2, const=True)),
        note="as many as have a chance",
    ),
    *(
        Case(
            Dropout(seed=5),
            (Spec(t, (3, 4)), Spec(t, (), values=0.25, const=const), Spec("bool", (), values=True, const=const)),
            TOLERANCE[t],
        )
        for t in ("f32", "f16", "bf16", "f64")
        for const in (True, False)
    ),
    Case(Dropout(seed=5), (Spec("f32", (3, 4)), None, Spec("bool", (), values=True, const=True)), 1e-6),
    Case(Dropout(seed=5), (Spec("f32", (3, 4)), None, Spec("bool", (), values=False)), 1e-6),
    Case(Dropout(seed=5), (Spec("f32", (4,)), Spec("f32", (), values=1), Spec("bool", (), values=True))),
    Case(PhiloxWords(2**63 + 1, 2**40, 3), (SHAPE, Spec("i64", (1,), values=[11]))),
    Case(MersenneWords(50), (SHAPE, Spec("u32", (624,), values=seeded_state(9).tolist()))),
]
