"""Losses of classification."""

from irc.ops.loss import NegativeLogLikelihoodLoss, SoftmaxCrossEntropyLoss
from tests.ops.cases import Case, Spec

X = Spec("f32", (3, 5, 2))
TARGET = Spec("i64", (3, 2), values=[0, 4, 2, 2, 1, 3])
WEIGHT = Spec("f32", (5,), 0.1, 2)
LIMITS = {"f32": 1e-5, "f64": 1e-12, "f16": 4e-3, "bf16": 3e-2}

CASES = [
    *(
        Case(op(ignore_index=ignored, reduction=reduction), (X, TARGET, *weight), 1e-5)
        for op in (NegativeLogLikelihoodLoss, SoftmaxCrossEntropyLoss)
        for reduction in ("none", "sum", "mean")
        for ignored in (None, 2)
        for weight in ((), (WEIGHT,))
    ),
    *(
        Case(op(), (Spec(t, (4, 3)), Spec("i32", (4,), values=[2, 0, 1, 1]), Spec(t, (3,), 0.1, 2)), limit)
        for op in (NegativeLogLikelihoodLoss, SoftmaxCrossEntropyLoss)
        for t, limit in LIMITS.items()
    ),
    *(
        Case(
            op(ignore_index=ignored, reduction="none"),
            (Spec("f32", (2, 3)), Spec("i64", (2,), values=[1, ignored]), Spec("f32", (3,), 1, 2)),
            1e-5,
            note="ignored outside",
        )
        for op in (NegativeLogLikelihoodLoss, SoftmaxCrossEntropyLoss)
        for ignored in (-1, -100, 10)
    ),
    *(
        Case(op(reduction=reduction), (Spec("f32", (0, 3, 2)), Spec("i64", (0, 2))))
        for op in (NegativeLogLikelihoodLoss, SoftmaxCrossEntropyLoss)
        for reduction in ("none", "sum", "mean")
    ),
]
