"""Determinants."""

from irc.ops.det import Det
from tests.ops.cases import Case, Spec

CASES = [
    *(
        Case(Det(), (Spec("f32", shape),), 1e-4)
        for shape in [(1, 1), (4, 4), (3, 5, 5), (2, 1, 3, 3), (0, 2, 2), (0, 0)]
    ),
    *(Case(Det(), (Spec(t, (2, 3, 3)),), r) for t, r in (("f64", 1e-10), ("f16", 4e-3), ("bf16", 3e-2))),
    Case(Det(), (Spec("f32", (2, 2), values=[0, 1, 1, 0]),), note="zero pivot"),
    Case(Det(), (Spec("f32", (2, 2), values=[1, 2, 2, 4]),), note="singular"),
    Case(Det(), (Spec("f32", (3, 3), values=[0, 1, 2, 0, 3, 4, 0, 5, 6]),), note="zero column"),
]
