"""Random ensembles of decision trees against ONNX Runtime, which walks them node by node."""

from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper

import irc

CONDITIONS = ["BRANCH_LEQ", "BRANCH_LT", "BRANCH_GTE", "BRANCH_GT", "BRANCH_EQ", "BRANCH_NEQ"]
FEATURES = 5


def forest(
    rng: np.random.Generator, trees: int, depth: int, modes: list[str], missing: bool
) -> tuple[dict[str, Any], Any]:
    """Attributes of random trees, and the (tree, node) of their leaves."""
    rows: list[tuple[Any, ...]] = []
    leaves: list[tuple[int, int]] = []
    for tree in range(trees):
        waiting, following = [(0, 0)], 1
        while waiting:
            node, level = waiting.pop(0)
            if level == depth or (level and rng.random() < 0.2):
                rows.append((tree, node, 0, "LEAF", 0.0, 0, 0, 0))
                leaves.append((tree, node))
                continue
            mode, value, feature = str(rng.choice(modes)), float(rng.integers(-2, 3)), int(rng.integers(FEATURES))
            tracks = int(missing and rng.random() < 0.5)
            rows.append((tree, node, feature, mode, value, following, following + 1, tracks))
            waiting += [(following, level + 1), (following + 1, level + 1)]
            following += 2
    names = ("treeids", "nodeids", "featureids", "modes", "values", "truenodeids", "falsenodeids")
    columns = zip((*names, "missing_value_tracks_true"), zip(*rows, strict=True), strict=True)
    return {f"nodes_{name}": list(column) for name, column in columns}, leaves


def compare(name: str, outputs: list[tuple[str, int]], x: Any, **attributes: Any) -> None:
    """Hold both backends to what ONNX Runtime gives."""
    node = helper.make_node(name, ["x"], [n for n, _ in outputs], domain="ai.onnx.ml", **attributes)
    results = [helper.make_tensor_value_info(n, t, None) for n, t in outputs]
    x_info = helper.make_tensor_value_info("x", TensorProto.FLOAT, ["N", FEATURES])
    opsets = [helper.make_opsetid("", 18), helper.make_opsetid("ai.onnx.ml", 3)]
    model = helper.make_model(helper.make_graph([node], "g", [x_info], results), opset_imports=opsets, ir_version=9)
    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    want = session.run(None, {"x": x})
    assert isinstance(model, onnx.ModelProto)
    for backend in ("c", "numpy"):
        for got, expected in zip(irc.compile(model, backend=backend)(x), want, strict=True):
            np.testing.assert_allclose(got, np.asarray(expected), rtol=1e-5, atol=1e-6)


def features(rng: np.random.Generator, rows: int) -> Any:
    x = rng.integers(-2, 3, (rows, FEATURES)).astype(np.float32)
    x[rng.random(x.shape) < 0.1] = np.nan
    x[rng.random(x.shape) < 0.05] = np.inf
    return x


@pytest.mark.parametrize("modes", [CONDITIONS[:1], CONDITIONS], ids=["leq", "all"])
@pytest.mark.parametrize("missing", [False, True])
@pytest.mark.parametrize("aggregate", ["SUM", "AVERAGE", "MIN", "MAX"])
@pytest.mark.parametrize("targets", [1, 3])
def test_regressors(modes: list[str], missing: bool, aggregate: str, targets: int) -> None:
    rng = np.random.default_rng(targets)
    nodes, leaves = forest(rng, 20, 5, modes, missing)
    votes = [(*leaf, target) for leaf in leaves for target in range(targets)]
    trees, numbers, ids = (list(column) for column in zip(*votes, strict=True))
    weights = [float(w) for w in rng.normal(size=len(votes))]
    filed = {"target_treeids": trees, "target_nodeids": numbers, "target_ids": ids, "target_weights": weights}
    base = {"base_values": [0.5] * targets, "n_targets": targets, "aggregate_function": aggregate}
    for rows in (1, 300):
        compare("TreeEnsembleRegressor", [("y", TensorProto.FLOAT)], features(rng, rows), **nodes, **filed, **base)


@pytest.mark.parametrize("transform", ["NONE", "SOFTMAX", "LOGISTIC", "SOFTMAX_ZERO"])
@pytest.mark.parametrize("positive", [False, True])
@pytest.mark.parametrize("classes", [2, 3])
def test_classifiers(transform: str, positive: bool, classes: int) -> None:
    """Of two classes, only class 0 is voted for, as exporters write it."""
    rng = np.random.default_rng(classes)
    nodes, leaves = forest(rng, 9, 4, CONDITIONS, True)
    votes = [(*leaf, c) for leaf in leaves for c in range(classes if classes > 2 else 1)]
    trees, numbers, ids = (list(column) for column in zip(*votes, strict=True))
    weights = [float(w) for w in (rng.uniform(0, 0.1, len(votes)) if positive else rng.normal(size=len(votes)))]
    filed = {"class_treeids": trees, "class_nodeids": numbers, "class_ids": ids, "class_weights": weights}
    labels = {"classlabels_int64s": [7, 3, 5][:classes], "post_transform": transform}
    outputs = [("label", TensorProto.INT64), ("scores", TensorProto.FLOAT)]
    compare("TreeEnsembleClassifier", outputs, features(rng, 40), **nodes, **filed, **labels)
