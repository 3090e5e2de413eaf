"""Pipelines of scikit-learn, as its converter writes them, agree with ONNX Runtime in both backends; and by hand, where
the converter is not installed, what these showed."""

from collections.abc import Callable
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

import irc
from irc.opdef.forms import MICROSOFT

BACKENDS = ("numpy", "c")
SENTENCES = np.array(["the quick brown fox", "hello, world! hello", "", "über dog"], object)


def same(got: Any, want: Any) -> None:
    if isinstance(want, list):
        assert [set(g) for g in got] == [set(w) for w in want]
        rows = [[[g[key] for key in w] for g, w in zip(part, want, strict=True)] for part in (got, want)]
        got, want = np.array(rows[0]), np.array(rows[1])
    assert np.shape(got) == np.shape(want)
    if np.asarray(want).dtype.kind == "f":
        np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-4)
    else:
        np.testing.assert_array_equal(got, want)


def agree(model: onnx.ModelProto, feeds: dict[str, Any]) -> None:
    """Compare both backends with ONNX Runtime."""
    runtime = pytest.importorskip("onnxruntime")
    session = runtime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    for backend in BACKENDS:
        for got, want in zip(irc.compile(model, backend=backend)(feeds), session.run(None, feeds), strict=True):
            same(got, want)


def words_of(splitter: onnx.NodeProto, opset: int) -> onnx.ModelProto:
    """A model that counts words which a node finds in sentences [n, 1]."""
    nodes = [
        splitter,
        helper.make_node("Flatten", ["words"], ["flat"], axis=1),
        helper.make_node(
            "TfIdfVectorizer",
            ["flat"],
            ["y"],
            mode="TFIDF",
            min_gram_length=1,
            max_gram_length=2,
            max_skip_count=0,
            ngram_counts=[0, 3],
            ngram_indexes=[0, 2, 1, 3],
            pool_strings=["quick", "hello", "fox", "quick", "brown"],
            weights=[1.0, 0.5, 2.0, 3.0],
        ),
    ]
    x = helper.make_tensor_value_info("x", TensorProto.STRING, ["n", 1])
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, ["n", 4])
    opsets = [helper.make_opsetid("", opset), helper.make_opsetid(MICROSOFT, 1)]
    return helper.make_model(helper.make_graph(nodes, "words", [x], [y]), opset_imports=opsets, ir_version=9)


@pytest.mark.parametrize("pattern", ["[a-zA-Z0-9_]+", "[^ ]+"])
def test_tokens_are_counted(pattern: str) -> None:
    attributes = {"mark": 0, "mincharnum": 1, "pad_value": "#", "tokenexp": pattern}
    node = helper.make_node("Tokenizer", ["x"], ["words"], domain=MICROSOFT, **attributes)
    agree(words_of(node, 18), {"x": SENTENCES.reshape(-1, 1)})


def test_parts_of_strings_are_counted() -> None:
    """The size that StringSplit gives keeps its name behind the operations that take it."""
    model = words_of(helper.make_node("StringSplit", ["x"], ["words", "counts"], delimiter=" "), 20)
    for backend in BACKENDS:
        found = irc.compile(model, backend=backend)(SENTENCES.reshape(-1, 1))[0]
        np.testing.assert_array_equal(found, [[1, 2, 0, 3], [0, 0, 0.5, 0], [0] * 4, [0] * 4])


def pipelines() -> dict[str, Callable[[], tuple[Any, Any, Any, dict[str, Any]]]]:
    """Estimators by names: each with its features, its target and the options of the converter."""
    linear = pytest.importorskip("sklearn.linear_model")
    from sklearn import ensemble, neighbors, svm
    from sklearn.compose import ColumnTransformer
    from sklearn.decomposition import PCA
    from sklearn.feature_extraction.text import TfidfVectorizer
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import OneHotEncoder, StandardScaler

    rng = np.random.default_rng(0)
    x = rng.normal(size=(90, 4)).astype(np.float32)
    number = np.arange(90) % 3
    x[:, 0] += number
    word = np.array(["a", "ü", "c"])[number]
    codes = rng.integers(0, 4, (90, 4)).astype(np.float32)
    value = x @ np.array([1, -2, 0.5, 0], np.float32)
    plain = {"zipmap": False}
    columns = ColumnTransformer([("scaled", StandardScaler(), [0, 1]), ("codes", OneHotEncoder(), [2, 3])])
    both = np.concatenate([x[:, :2], codes[:, 2:]], axis=1)
    forest = {"n_estimators": 7, "random_state": 0}
    return {
        "scaler": lambda: (make_pipeline(StandardScaler(), PCA(2), linear.LogisticRegression()), x, word, {}),
        "encoder": lambda: (make_pipeline(columns, linear.LogisticRegression()), both, word, plain),
        "forest": lambda: (ensemble.RandomForestClassifier(**forest), x, word, {}),
        "boosting": lambda: (ensemble.GradientBoostingClassifier(**forest), x, number, plain),
        "leaves": lambda: (ensemble.RandomForestRegressor(**forest), x, value, {}),
        "machine": lambda: (svm.SVC(), x, number, plain),
        "two classes": lambda: (svm.SVC(kernel="poly"), x, word == "a", plain),
        "sides": lambda: (svm.OneClassSVM(), x, None, {}),
        "curve": lambda: (svm.SVR(kernel="sigmoid"), x, value, {}),
        "nu": lambda: (svm.NuSVC(nu=0.1), x, word, plain),
        "neighbours": lambda: (neighbors.KNeighborsClassifier(5), x, word, {}),
        "distances": lambda: (neighbors.KNeighborsRegressor(3, weights="distance"), x, value, {}),
        "words": lambda: (TfidfVectorizer(), SENTENCES, None, {"locale": "C"}),
    }


NAMES = (
    "scaler",
    "encoder",
    "forest",
    "boosting",
    "leaves",
    "machine",
    "two classes",
    "sides",
    "curve",
    "nu",
    "neighbours",
    "distances",
    "words",
)


@pytest.mark.parametrize("name", NAMES)
def test_converted_pipelines_agree(name: str) -> None:
    converter = pytest.importorskip("skl2onnx")
    types = pytest.importorskip("skl2onnx.common.data_types")
    estimator, x, y, options = pipelines()[name]()
    estimator.fit(x, y)
    kind = types.StringTensorType([None, 1]) if x.dtype == object else types.FloatTensorType([None, x.shape[1]])
    opsets = {"": 18, "ai.onnx.ml": 3}
    given = {id(estimator): options} if options else None
    model = converter.convert_sklearn(estimator, initial_types=[("x", kind)], options=given, target_opset=opsets)
    agree(model, {"x": x.reshape(-1, 1) if x.dtype == object else x[:23]})
