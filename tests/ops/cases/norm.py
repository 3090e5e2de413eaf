"""Normalisations and Dropout."""

from irc.ops.dropout import Dropout
from irc.ops.lp_norm import GRN, LRN, LpNormalization, NormalizeL2
from irc.ops.norm import (
    BatchNormalization,
    GroupNormalization,
    InstanceNormalization,
    LayerNormalization,
    MeanVarianceNormalization,
    RMSNormalization,
)
from tests.ops.cases import Case, Spec

LIMITS = {"f32": 4e-6, "f64": 1e-12, "f16": 1e-2, "bf16": 8e-2}


def axes(*values: int) -> Spec:
    return Spec("i64", (len(values),), values=values, const=True)


def weights(dtype: str, n: int, count: int, const: bool = True) -> tuple[Spec, ...]:
    return tuple(Spec(dtype, (n,), 0.5, 2, const=const) for _ in range(count))


CASES = [
    *(
        Case(BatchNormalization(), (Spec("f32", x), *weights("f32", 3, 4, const)), 4e-6)
        for x in ((2, 3), (2, 3, 4), (2, 3, 4, 5), (1, 3, 2, 2, 2))
        for const in (True, False)
    ),
    *(
        Case(BatchNormalization(epsilon=0.5), (Spec(t, (2, 3, 4)), *weights(t, 3, 4)), limit)
        for t, limit in LIMITS.items()
    ),
    Case(BatchNormalization(), (Spec("f16", (2, 3, 4)), *weights("f32", 3, 4)), 1e-2),
    *(
        Case(LayerNormalization(axis=a), (Spec("f32", (2, 3, 4)), Spec("f32", s), Spec("f32", s)), 4e-6)
        for a, s in ((-1, (4,)), (1, (3, 4)), (0, (2, 3, 4)), (2, (4,)))
    ),
    Case(LayerNormalization(), (Spec("f32", (2, 3, 4)), Spec("f32", (4,))), 4e-6),
    *(Case(LayerNormalization(), (Spec(t, (3, 8)), *weights(t, 8, 2)), limit) for t, limit in LIMITS.items()),
    *(
        Case(RMSNormalization(axis=a), (Spec("f32", (2, 3, 4)), Spec("f32", s)), 4e-6)
        for a, s in ((-1, (4,)), (1, (3, 4)), (0, (4,)))
    ),
    *(Case(RMSNormalization(), (Spec(t, (3, 8)), *weights(t, 8, 1)), limit) for t, limit in LIMITS.items()),
    *(Case(InstanceNormalization(), (Spec(t, (2, 3, 4, 5)), *weights(t, 3, 2)), limit) for t, limit in LIMITS.items()),
    *(Case(GroupNormalization(num_groups=g), (Spec("f32", (2, 4, 3)), *weights("f32", 4, 2)), 4e-6) for g in (1, 2, 4)),
    *(
        Case(GroupNormalization(num_groups=2), (Spec(t, (2, 4, 3)), *weights(t, 4, 2)), limit)
        for t, limit in LIMITS.items()
    ),
    *(
        Case(
            MeanVarianceNormalization(eps=e, eps_mode=m, normalize_variance=v),
            (Spec("f32", (2, 3, 4, 5)), axes(*a)),
            4e-6,
        )
        for e, m in ((1e-9, "outside"), (1e-3, "inside"))
        for v in (True, False)
        for a in ((0, 2, 3), (2, 3), (1,), (-1,))
    ),
    *(Case(LpNormalization(axis=a, p=p), (Spec("f32", (3, 4)),), 2e-6) for a in (0, -1) for p in (1, 2)),
    Case(LpNormalization(), (Spec("f32", (2, 2), values=(0, 0, 3, 4)),), 2e-6),
    *(
        Case(NormalizeL2(eps=0.01, eps_mode=m), (Spec("f32", (2, 3, 4)), axes(*a)), 2e-6)
        for m in ("add", "max")
        for a in ((1,), (1, 2), (-1,), ())
    ),
    Case(GRN(bias=0.5), (Spec("f32", (2, 3, 4)),), 2e-6),
    *(
        Case(LRN(size=n, alpha=0.1, bias=2.0), (Spec("f32", (1, 6, 5, 5)), *a), 4e-6)
        for n in (1, 3, 4, 5, 99)
        for a in ((), (axes(1),))
    ),
    *(
        Case(LRN(size=3, alpha=0.1, bias=b), (Spec("f32", (1, 6, 5, 5)), axes(*a)), 4e-6)
        for b in (1.0, 1.5)
        for a in ((2, 3), (2,))
    ),
    *(Case(LRN(size=3), (Spec(t, (1, 6, 4)),), limit) for t, limit in LIMITS.items()),
    *(Case(LRN(size=3, alpha=0.1, beta=b), (Spec("f32", (1, 6, 40)),), 4e-6) for b in (0.5, 0.6, 1.0)),
    Case(Dropout(), (Spec("f32", (3, 4)),)),
    Case(
        Dropout(),
        (Spec("f32", (3, 4)), Spec("f32", (), values=0.3, const=True), Spec("bool", (), values=False, const=True)),
    ),
]
