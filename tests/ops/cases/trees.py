"""Ensembles of decision trees: every condition, missing values, aggregates, transforms, votes for one and two classes.

tests/ops/test_trees.py compares random ones with ONNX Runtime.
"""

from typing import Any

from irc.ops.trees import TreeEnsemble, TreeEnsembleClassifier, TreeEnsembleRegressor
from tests.ops.cases import Case, Spec

NAN = float("nan")
INF = float("inf")
X = (Spec("f32", (6, 2), values=[-1, 0, 0, 1, 1, -1, NAN, 2, INF, NAN, 0, -INF]),)
MANY = (Spec("f32", (300, 2)),)
CONDITIONS = ("BRANCH_LEQ", "BRANCH_LT", "BRANCH_GTE", "BRANCH_GT", "BRANCH_EQ", "BRANCH_NEQ")


def two_trees(mode: str = "BRANCH_LEQ", value: float = 0, **others: Any) -> dict[str, Any]:
    """A tree of three leaves and one of two."""
    return {
        "nodes_treeids": (0, 0, 0, 0, 0, 7, 7, 7),
        "nodes_nodeids": (0, 1, 2, 3, 4, 5, 6, 8),
        "nodes_featureids": (0, 0, 1, 0, 0, 1, 0, 0),
        "nodes_modes": (mode, "LEAF", mode, "LEAF", "LEAF", mode, "LEAF", "LEAF"),
        "nodes_values": (value, 0.0, 1.0, 0.0, 0.0, value, 0.0, 0.0),
        "nodes_truenodeids": (1, 0, 3, 0, 0, 6, 0, 0),
        "nodes_falsenodeids": (2, 0, 4, 0, 0, 8, 0, 0),
        **others,
    }


def votes(whose: str, ids: tuple[int, ...], weights: tuple[float, ...] = (0.25, 0.5, 0.125, 0.0, 0.75)) -> Any:
    found = {"treeids": (0, 0, 0, 7, 7), "nodeids": (1, 3, 4, 6, 8), "ids": ids, "weights": weights}
    return {f"{whose}_{name}": values for name, values in found.items()}


SIGNED = (-0.25, 0.5, 0.125, -1.0, 0.75)
ONE, THREE = (0,) * 5, (0, 1, 2, 1, 0)
TARGETS = {"n_targets": 3, **votes("target", THREE, SIGNED)}
TWICE = {  # a leaf that votes twice
    "n_targets": 2,
    "target_treeids": (0, 0, 0, 0, 7, 7),
    "target_nodeids": (1, 1, 3, 4, 6, 8),
    "target_ids": (0, 1, 0, 1, 1, 1),
    "target_weights": (1.0, 2.0, 3.0, 4.0, 5.0, 6.0),
}
LABELS = {2: (10, 20), 3: (5, 3, 4)}
FLAT = {
    "nodes_featureids": (0, 1, 0),
    "nodes_modes": (0, 4, 3),
    "nodes_splits": (0.5, 1.0, -0.5),
    "nodes_truenodeids": (1, 0, 2),
    "nodes_falsenodeids": (0, 1, 3),
    "nodes_trueleafs": (0, 1, 1),
    "nodes_falseleafs": (1, 1, 1),
    "tree_roots": (0, 2),
    "leaf_targetids": (0, 1, 0, 1),
    "leaf_weights": (1.0, 2.0, 4.0, 8.0),
    "n_targets": 2,
}
MEMBERS = {**FLAT, "nodes_modes": (6, 0, 6), "membership_values": (0.0, 1.0, -1.0, NAN, 2.0, NAN)}


def regressor(**attributes: Any) -> TreeEnsembleRegressor:
    return TreeEnsembleRegressor(**{**two_trees(), **votes("target", ONE), **attributes})


def classifier(classes: int, ids: tuple[int, ...], **attributes: Any) -> TreeEnsembleClassifier:
    labels = {} if "classlabels_strings" in attributes else {"classlabels_int64s": LABELS[classes]}
    return TreeEnsembleClassifier(**{**two_trees(), **votes("class", ids, SIGNED), **labels, **attributes})


CASES = [
    *(
        Case(regressor(**two_trees(mode, value, nodes_missing_value_tracks_true=missing)), X)
        for mode in CONDITIONS
        for value in (0.0, -INF, NAN)
        for missing in ((), (1, 0, 0, 0, 0, 0, 0, 0))
    ),
    Case(regressor(), MANY, rtol=1e-6),
    Case(regressor(**{**TWICE, "n_targets": 1, "target_ids": (*ONE, 0)}), X),
    Case(regressor(), (Spec("f32", (0, 2)),)),
    Case(regressor(), (Spec("f32", (2,)),)),
    Case(regressor(), (Spec("f64", (9, 2)),)),
    Case(regressor(), (Spec("i32", (9, 2)),)),
    Case(regressor(), (Spec("i64", (9, 2)),)),
    Case(regressor(nodes_values=(), nodes_values_as_tensor=(0.1, 0, 1.0, 0, 0, 0.1, 0, 0)), (Spec("f64", (9, 2)),)),
    *(Case(regressor(**TARGETS, aggregate_function=a), X) for a in ("SUM", "AVERAGE", "MIN", "MAX")),
    *(Case(regressor(aggregate_function=a, base_values=(0.5,)), X) for a in ("SUM", "AVERAGE", "MIN", "MAX")),
    *(Case(regressor(**TWICE, aggregate_function=a), X) for a in ("SUM", "AVERAGE", "MIN", "MAX")),
    *(
        Case(regressor(**TARGETS, base_values=(0.5, 0.25, 0.0), post_transform=t), X, rtol=1e-5)
        for t in ("SOFTMAX", "LOGISTIC", "SOFTMAX_ZERO", "PROBIT")
    ),
    *(
        Case(classifier(n, ids, class_weights=w, post_transform=t), X, rtol=1e-5)
        for n, ids in ((2, (0,) * 5), (2, (1,) * 5), (2, (0, 1, 0, 1, 1)), (3, THREE))
        for w in (SIGNED, (0.25, 0.5, 0.125, 0.0, 0.75))
        for t in ("NONE", "SOFTMAX", "LOGISTIC", "SOFTMAX_ZERO", "PROBIT")
    ),
    *(Case(classifier(2, ids, base_values=(0.5, 0.25)), X) for ids in ((0,) * 5, (1,) * 5, (0, 1, 0, 1, 1))),
    Case(classifier(2, (0,) * 5, base_values=(0.5,)), X),
    Case(classifier(3, THREE), MANY, rtol=1e-6),
    *(Case(TreeEnsemble(**FLAT, aggregate_function=a), X) for a in ("SUM", "AVERAGE", "MIN", "MAX")),
    *(Case(TreeEnsemble(**FLAT), (Spec(t, (9, 2)),)) for t in ("f16", "f64")),
    *(
        Case(TreeEnsemble(**MEMBERS, nodes_missing_value_tracks_true=m), (Spec("f32", (40, 2), values=v),))
        for v in ([-1, 2, 0, 1, 1, 1, 2, 2, NAN, 0] * 8,)
        for m in ((), (1, 0, 1))
    ),
]
