"""Softmax and its relatives."""

from irc.ops.softmax import Hardmax, LogSoftmax, Softmax
from tests.ops.cases import Case, Spec

LIMITS = {"f32": 2e-6, "f64": 1e-12, "f16": 4e-3, "bf16": 3e-2}

CASES = [
    *(
        Case(op(axis=a), (Spec("f32", (2, 3, 4)),), 2e-6)
        for op in (Softmax, LogSoftmax, Hardmax)
        for a in (-1, 0, 1, 2)
    ),
    *(
        Case(op(axis=-1), (Spec(t, (3, 7), -9, 9),), limit)
        for op in (Softmax, LogSoftmax, Hardmax)
        for t, limit in LIMITS.items()
    ),
    *(Case(op(axis=-1), (Spec("f32", (2, 5), 1e4, 2e4),), 2e-6) for op in (Softmax, LogSoftmax)),
    *(Case(op(axis=0), (Spec("f32", (6,)),), 2e-6) for op in (Softmax, LogSoftmax, Hardmax)),
    Case(Softmax(), (Spec("f32", (0, 4)),)),
    Case(Softmax(), (Spec("f16", (1, 70000), 0, 0),), note="a sum beyond the largest f16"),
    Case(Softmax(), (Spec("f32", (4, 130)),), 2e-6),
]
