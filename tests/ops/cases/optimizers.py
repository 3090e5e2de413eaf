"""Steps of training."""

from irc.ops.optimizers import Adagrad, Adam, Momentum
from tests.ops.cases import Case, Spec

RATE, EARLY, LATER = Spec("f32", (), values=0.1), Spec("i64", (), values=0), Spec("i64", (1,), values=[7])
X, LARGER = Spec("f32", (3, 4)), Spec("f32", (2, 3, 5))
SQUARES, MORE_SQUARES = Spec("f32", (3, 4), low=0), Spec("f32", (2, 3, 5), low=0)
DOUBLE, POSITIVE = Spec("f64", (5,)), Spec("f64", (5,), low=0)

CASES = [
    *(
        Case(Adagrad(norm_coefficient=0.01, decay_factor=0.1, epsilon=1e-5), (RATE, at, X, X, SQUARES), 1e-5)
        for at in (EARLY, LATER)
    ),
    Case(Adagrad(), (RATE, LATER, X, LARGER, X, LARGER, SQUARES, MORE_SQUARES), 1e-5),
    Case(Adagrad(), (RATE, LATER, DOUBLE, DOUBLE, POSITIVE), 1e-6),
    *(
        Case(Adam(0.01, 0.5, 0.9, 1e-5, 0.1), (RATE, at, X, X, X, SQUARES), 1e-5, note="every attribute")
        for at in (EARLY, LATER)
    ),
    Case(Adam(), (RATE, LATER, X, LARGER, X, LARGER, X, LARGER, SQUARES, MORE_SQUARES), 1e-5),
    Case(Adam(), (Spec("f64", (1,), values=[0.5]), LATER, X, X, X, SQUARES), 1e-5),
    Case(Adam(), (RATE, LATER, DOUBLE, DOUBLE, DOUBLE, POSITIVE), 1e-6),
    *(
        Case(Momentum(0.01, 0.95, 0.1, nesterov), (RATE, at, X, X, X), 1e-5)
        for nesterov in (False, True)
        for at in (EARLY, LATER)
    ),
    Case(Momentum(0.0, 0.5, 0.75), (RATE, LATER, X, LARGER, X, LARGER, X, LARGER), 1e-5),
    Case(Momentum(0.0, 0.5, 0.75), (RATE, LATER, DOUBLE, DOUBLE, DOUBLE), 1e-6),
    Case(Momentum(0.0, 0.5, 0.75), (RATE, LATER, X, DOUBLE, X, DOUBLE, X, DOUBLE), 1e-5, note="two types"),
    Case(Adam(), (RATE, LATER, DOUBLE, X, DOUBLE, X, DOUBLE, X, POSITIVE, SQUARES), 1e-5, note="two types"),
]
