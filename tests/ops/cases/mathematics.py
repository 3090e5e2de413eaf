"""Elementary functions."""

from irc.opdef.registry import OPS, load_all
from tests.ops.cases import Case, Spec

load_all()
RANGES = {
    "Exp": (-5, 5),
    "Log": (0.01, 9),
    "Sin": (-9, 9),
    "Cos": (-9, 9),
    "Tan": (-1.4, 1.4),
    "Asin": (-1, 1),
    "Acos": (-0.9, 0.9),
    "Atan": (-9, 9),
    "Sinh": (-4, 4),
    "Cosh": (-4, 4),
    "Tanh": (-4, 4),
    "Asinh": (-9, 9),
    "Acosh": (1.1, 9),
    "Atanh": (-0.9, 0.9),
    "Erf": (-4, 4),
}
LIMITS = {"f32": 1e-6, "f64": 1e-12, "f16": 2e-3, "bf16": 1.6e-2}

CASES = [
    *(
        Case(OPS[name](), (Spec(t, (3, 7), *span),), limit)
        for name, span in RANGES.items()
        for t, limit in LIMITS.items()
    ),
    *(
        Case(OPS[name](), (Spec("f32", (5,), values=(0.0, -0.0, float("nan"), float("inf"), float("-inf"))),), 1e-6)
        for name in ("Exp", "Log", "Tanh", "Atan", "Sinh", "Asinh", "Erf")
    ),
    Case(OPS["Exp"](), (Spec("f32", ()),), 1e-6),
    Case(OPS["Exp"](), (Spec("f32", (0, 3)),)),
]
