"""SwiGLU."""

from irc.ops.swiglu import SwiGLU
from tests.ops.cases import Case, Spec

LIMITS = {"f32": 4e-6, "f64": 1e-12, "f16": 4e-3, "bf16": 3e-2}

CASES = [
    *(Case(SwiGLU(alpha=a), (Spec(t, (3, 7)), Spec(t, (3, 7))), r) for t, r in LIMITS.items() for a in (1.0, 1.75)),
    Case(SwiGLU(), (Spec("f32", ()), Spec("f32", ())), 4e-6),
    Case(SwiGLU(), (Spec("f32", (0, 2)), Spec("f32", (0, 2)))),
]
