"""Inverses of matrices."""

from irc.ops.det import Inverse
from tests.ops.cases import ALONE, Case, Spec

MATRIX = (4.0, -7.0, 2.0, 0.0, 3.0, 1.0, 2.0, 1.0, 8.0)
SWAPPED = (0.0, 2.0, 4.0, 0.0)


CASES = [
    *(Case(Inverse(), (Spec("f32", shape),), 1e-3) for shape in ((1, 1), (4, 4), (2, 3, 3, 3))),
    Case(Inverse(), (Spec("f32", (3, 3), values=MATRIX),), 1e-6),
    Case(Inverse(), (Spec("f64", (2, 2), values=SWAPPED),), 1e-12),
    Case(Inverse(), (Spec("f16", (3, 3), values=MATRIX),), 2e-3),
    *(Case(Inverse(), (Spec(k, (2, 2), values=SWAPPED),), 0.02, ALONE) for k in ("bf16", "f8e5m2", "f8e4m3fn")),
    *(
        Case(Inverse(adjoint=True), (Spec("f32", (n, n), values=v),), 1e-5, ALONE)
        for n, v in ((3, MATRIX), (2, SWAPPED))
    ),
    Case(Inverse(), (Spec("f32", (0, 2, 2)),), 0, ALONE),
    Case(Inverse(), (Spec("f32", (2, 2), values=(1.0, 2.0, 2.0, 4.0)),), 0, ALONE),
]
