"""FlexAttention whose scores and weights are changed by graphs of the model, which are read in place."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from onnx import GraphProto, ModelProto, TensorProto, helper

import irc
from irc.border import WriteOptions, read_model, write_model
from irc.diagnostics import Sink
from irc.formats.onnx import reader, writer

SHAPES = {"q": (2, 4, 3, 8), "k": (2, 2, 5, 8), "v": (2, 2, 5, 6), "bias": (1, 4, 3, 5)}
SCORES = (2, 4, 3, 5)


def typed(name: str, shape: tuple[int, ...]) -> Any:
    return helper.make_tensor_value_info(name, TensorProto.FLOAT, shape)


def graph(operator: str, *others: str, shape: tuple[int, ...] = SCORES) -> GraphProto:
    """A graph `y = operator(x, …)`; the other operands are of the graph around it."""
    node = helper.make_node(operator, ["x", *others], ["y"], "change")
    return helper.make_graph([node], "change", [typed("x", SCORES)], [typed("y", shape)])


def model(**changes: GraphProto) -> ModelProto:
    """Two attentions, whose graphs have values of the same names."""
    nodes = [
        helper.make_node("Neg", ["bias"], ["negative"]),
        helper.make_node("FlexAttention", ["q", "k", "v"], ["a"], "first", domain="ai.onnx.preview", **changes),
        helper.make_node("FlexAttention", ["q", "k", "v"], ["b"], "second", domain="ai.onnx.preview", **changes),
        helper.make_node("Add", ["a", "b"], ["sum"]),
    ]
    inputs, out = [typed(n, s) for n, s in SHAPES.items()], typed("sum", (2, 4, 3, 6))
    opsets = [helper.make_opsetid("", 26), helper.make_opsetid("ai.onnx.preview", 1)]
    return helper.make_model(helper.make_graph(nodes, "attention", inputs, [out]), opset_imports=opsets, ir_version=11)


CHANGING = {"score_mod": graph("Add", "negative"), "prob_mod": graph("Mul", "bias")}


def arrays() -> dict[str, Any]:
    rng = np.random.default_rng(7)
    return {n: rng.uniform(-1, 1, s).astype(np.float32) for n, s in SHAPES.items()}


def expected(q: Any, k: Any, v: Any, bias: Any) -> Any:
    """Twice softmax(q·kᵀ / √8 - bias) · bias · v."""
    k, v = np.repeat(k, 2, axis=1), np.repeat(v, 2, axis=1)
    e = np.exp(q @ k.swapaxes(2, 3) / np.sqrt(8) - bias)
    return 2 * (e / e.sum(axis=3, keepdims=True) * bias) @ v


@pytest.mark.parametrize("backend", ["c", "numpy"])
def test_graphs_see_the_values_around_them(backend: str) -> None:
    feeds = arrays()
    (got,) = irc.compile(model(**CHANGING), backend=backend)(list(feeds.values()))
    np.testing.assert_allclose(got, expected(**feeds), rtol=1e-4, atol=1e-5)


def test_the_node_is_written_as_it_was() -> None:
    sink = Sink()
    read = read_model(reader.read(model(**CHANGING), sink), sink)
    proto = writer.to_proto(write_model(read, WriteOptions("onnx", {"": 26, "ai.onnx.preview": 1}, version=11), sink))
    assert not sink.errors, sink.errors
    assert [n.op_type for n in proto.graph.node] == ["Neg", "FlexAttention", "FlexAttention", "Add"]
    (got,) = irc.compile(proto, backend="numpy")(list(arrays().values()))
    np.testing.assert_allclose(got, expected(**arrays()), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(
    ("changed", "code"),
    [
        (helper.make_graph([helper.make_node("Neg", ["bias"], ["y"])], "none", [], [typed("y", (1,))]), "IRC2203"),
        (graph("ReduceSum", shape=(1, 1, 1, 1)), "IRC3102"),
    ],
    ids=["no input", "another shape"],
)
def test_graphs_of_another_interface_are_refused(changed: GraphProto, code: str) -> None:
    sink = Sink()
    read_model(reader.read(model(score_mod=changed), sink), sink)
    assert [d.code for d in sink.errors] == [code, code]
