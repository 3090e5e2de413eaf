"""Linear models and support vector machines: every transform, kernel, type of features and of labels."""

from typing import Any

from irc.ops.linear import LinearClassifier, LinearRegressor
from irc.ops.svm import CoupleProbabilities, SVMClassifier, SVMRegressor
from tests.ops.cases import ALONE, Case, Spec

NAN = float("nan")
X = (Spec("f32", (7, 3)),)
TRANSFORMS = ("NONE", "SOFTMAX", "LOGISTIC", "SOFTMAX_ZERO", "PROBIT")
KERNELS = ("LINEAR", "POLY", "RBF", "SIGMOID")
THREE = {
    "coefficients": (0.5, -0.25, 0.1, 0.3, 0.2, -0.7, -0.4, 0.6, 0.05),
    "intercepts": (0.1, 0.4, 0.3),
    "classlabels_ints": (5, -3, 7),
}
ONE = {"coefficients": (0.5, -0.25, 0.1), "intercepts": (0.4,), "classlabels_ints": (4, 2)}
SMALL = (Spec("f32", (9, 3), 0, 0.5),)
"""Features whose scores lie between 0 and 1."""


def machine(count: int, **others: Any) -> dict[str, Any]:
    """Support vectors of three features, and parameters of a kernel."""
    vectors = tuple(((k * 37) % 19 - 9) / 8 for k in range(3 * count))
    return {"support_vectors": vectors, "kernel_params": (0.3, 0.2, 3.0), **others}


def classifier(classes: int, **others: Any) -> SVMClassifier:
    per_class = tuple(2 + k % 3 for k in range(classes))
    count, pairs = sum(per_class), classes * (classes - 1) // 2
    fields = {
        **machine(count),
        "coefficients": tuple(((k * 23) % 17 - 8) / 8 for k in range(count * (classes - 1))),
        "rho": tuple(((k * 5) % 7 - 3) / 8 for k in range(pairs)),
        "vectors_per_class": per_class,
        "classlabels_ints": tuple(range(10, 10 + classes)),
    }
    return SVMClassifier(**{**fields, **others})


def certain(classes: int, **others: Any) -> SVMClassifier:
    """A classifier that gives probabilities."""
    pairs = classes * (classes - 1) // 2
    scaling = {"prob_a": tuple(-1 - k / 4 for k in range(pairs)), "prob_b": tuple(k / 8 - 0.125 for k in range(pairs))}
    return classifier(classes, **{"kernel_type": "RBF", **scaling, **others})


def regressor(**others: Any) -> SVMRegressor:
    count = {"coefficients": (0.4, -1.2, 0.7, 0.9), "n_supports": 4, "rho": (0.25,)}
    return SVMRegressor(**{**machine(4), **count, **others})


CASES = [
    *(Case(LinearClassifier(**THREE, post_transform=t), SMALL, rtol=1e-5) for t in TRANSFORMS),
    *(
        Case(LinearClassifier(**ONE, post_transform=t), SMALL, rtol=1e-5, note=ALONE if t == "PROBIT" else "")
        for t in TRANSFORMS
    ),
    *(Case(LinearClassifier(**THREE), (Spec(t, (4, 3)),), rtol=1e-5) for t in ("f64", "i32", "i64")),
    Case(LinearClassifier(**{**THREE, "classlabels_ints": (), "classlabels_strings": ("a", "", "ü")}), X, rtol=1e-5),
    Case(LinearClassifier(**{**ONE, "classlabels_ints": (), "classlabels_strings": ("no", "yes")}), X, rtol=1e-5),
    Case(LinearClassifier(**{**ONE, "classlabels_ints": (9,)}), X, rtol=1e-5, note=ALONE),
    Case(
        LinearClassifier(**{**ONE, "classlabels_ints": (), "classlabels_strings": ("yes",)}), X, rtol=1e-5, note=ALONE
    ),
    Case(LinearClassifier(**THREE), (Spec("f32", (3,)),), rtol=1e-5),
    Case(LinearClassifier(**THREE), (Spec("f32", (0, 3)),)),
    Case(LinearClassifier(**THREE), (Spec("f32", (2, 3), values=[NAN, 1, 2, 0, NAN, 3]),), note=ALONE),
    Case(LinearRegressor(coefficients=(0.5, -0.25, 0.1), intercepts=(0.4,)), X, rtol=1e-5),
    Case(LinearRegressor(coefficients=(0.5, -0.25, 0.1)), (Spec("f32", (3,)),), rtol=1e-5),
    *(
        Case(LinearRegressor(coefficients=(0.5, -0.25, 0.1)), (Spec(t, (4, 3)),), rtol=1e-5, note=ALONE)
        for t in ("f64", "i32", "i64")
    ),
    *(
        Case(LinearRegressor(THREE["coefficients"], THREE["intercepts"], 3, t), SMALL, rtol=1e-5)  # type: ignore[arg-type]
        for t in TRANSFORMS
    ),
    *(Case(regressor(kernel_type=k), X, rtol=1e-4) for k in KERNELS),
    *(Case(regressor(kernel_type="POLY", kernel_params=(0.3, 2.5, d)), X, rtol=1e-4) for d in (1.0, 2.0, 4.0)),
    Case(regressor(one_class=True, kernel_type="RBF"), X),
    Case(regressor(one_class=True, kernel_type="RBF"), (Spec("f32", (1, 3), values=[NAN, 0, 0]),)),
    Case(SVMRegressor(coefficients=(0.4, -1.2, 0.7), rho=(0.5,), kernel_params=(0.0, 0.0, 0.0)), X, rtol=1e-5),
    Case(regressor(), (Spec("f32", (3,)),), rtol=1e-5),
    Case(regressor(), (Spec("i64", (5, 3)),), rtol=1e-5, note=ALONE),
    *(Case(classifier(4, kernel_type=k), X, rtol=1e-4) for k in KERNELS),
    *(
        Case(classifier(n, post_transform=t, kernel_type="RBF"), SMALL, rtol=1e-4, note=ALONE if t == "PROBIT" else "")
        for n in (2, 3)
        for t in TRANSFORMS
    ),
    *(Case(certain(n, post_transform=t), X, rtol=1e-4) for n, t in ((4, "NONE"), *((2, t) for t in TRANSFORMS))),
    Case(certain(2, classlabels_ints=(), classlabels_strings=("x", "y")), X, rtol=1e-4),
    *(Case(certain(2), (Spec(t, (6, 3)),), rtol=1e-4) for t in ("f64", "i32", "i64")),
    Case(certain(2), (Spec("f32", (3,)),), rtol=1e-4),
    Case(certain(3), (Spec("f32", (0, 3)),)),
    *(
        Case(
            SVMClassifier(
                c, rho=(0.1,), kernel_params=(0.0, 0.0, 0.0), classlabels_ints=tuple(range(n)), post_transform=t
            ),
            SMALL,
            rtol=1e-5,
        )
        for n, c in (
            (2, (0.5, -0.25, 0.1, 0.3, 0.2, -0.7)),
            (2, (0.5, 0.25, 0.1, 0.3, 0.2, 0.7)),
            (3, THREE["coefficients"]),
        )
        for t in TRANSFORMS
    ),
    Case(CoupleProbabilities(classes=4), (Spec("f32", (5, 6), 0.01, 0.99),), rtol=1e-5),
    Case(CoupleProbabilities(classes=40), (Spec("f32", (3, 780), 0.1, 0.9),), rtol=1e-4),
    Case(CoupleProbabilities(classes=2), (Spec("f32", (3, 1), values=[NAN, 1e-7, 0.5]),), rtol=1e-5),
]
