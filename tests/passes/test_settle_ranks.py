"""An If whose branches differ in rank: the one that the rest of the model can take is written."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper
from onnx.reference import ReferenceEvaluator

import irc
from tests.support.random_numbers import RANDOM


def squeezing_model(follow: list[onnx.NodeProto], rank: int, nested: bool = False) -> onnx.ModelProto:
    """y = what follows If(x.shape[2] == 1, Squeeze(x, 2), x); nested: in the first branch of another If."""
    port = helper.make_tensor_value_info
    squeeze = helper.make_node("Squeeze", ["x", "two"], ["less"])
    branches = [
        helper.make_graph([squeeze], "flat", [], [port("less", TensorProto.FLOAT, [None, 4])]),
        helper.make_graph(
            [helper.make_node("Identity", ["x"], ["same"])], "deep", [], [port("same", TensorProto.FLOAT, [None] * 3)]
        ),
    ]
    nodes = [
        helper.make_node("Shape", ["x"], ["shape"]),
        helper.make_node("Gather", ["shape", "two"], ["size"]),
        helper.make_node("Equal", ["size", "one"], ["known"]),
        helper.make_node("If", ["known"], ["z"], then_branch=branches[0], else_branch=branches[1]),
        *follow,
    ]
    weights = RANDOM.normal(size=(2, 4, 1)).astype(np.float32)
    constants = {"one": np.array([1]), "two": np.array([2]), "w": weights, "m": weights[0]}
    tensors = [numpy_helper.from_array(a, n) for n, a in constants.items()]
    out = port("y", TensorProto.FLOAT, [None] * rank)
    inputs = [port("x", TensorProto.FLOAT, ["n", 4, "t"])]
    if nested:
        inputs.append(port("c", TensorProto.BOOL, []))
        zero = helper.make_node("Mul", ["w", "w"], ["y_else"])
        other = helper.make_graph([zero], "other", [], [port("y_else", TensorProto.FLOAT, [None] * rank)])
        nodes[-1].output[0] = "y_then"
        inner = helper.make_graph(nodes, "inner", [], [port("y_then", TensorProto.FLOAT, [None] * rank)])
        nodes = [helper.make_node("If", ["c"], ["y"], then_branch=inner, else_branch=other)]
    graph = helper.make_graph(nodes, "g", inputs, [out], tensors)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def convolved() -> list[onnx.NodeProto]:
    """What accepts two axes only: one more is made of them, and a convolution of one axis follows."""
    return [helper.make_node("Unsqueeze", ["z", "two"], ["u"]), helper.make_node("Conv", ["u", "w"], ["y"])]


def openvino(path: Path, feeds: dict[str, Any]) -> Any:
    core = pytest.importorskip("openvino").Core()
    return core.compile_model(core.read_model(str(path)), "CPU", {"INFERENCE_PRECISION_HINT": "f32"})(feeds)[0]


@pytest.mark.parametrize("nested", [False, True])
def test_the_branch_that_can_be_run_is_written(tmp_path: Path, nested: bool) -> None:
    source = squeezing_model(convolved(), 3, nested)
    notes = irc.convert(source, tmp_path / "a.xml")
    assert "IRC4009" in [d.code for d in notes]
    feeds: dict[str, Any] = {"x": RANDOM.normal(size=(3, 4, 1)).astype(np.float32)}
    feeds |= {"c": np.array(True)} if nested else {}
    expected = ReferenceEvaluator(source).run(None, feeds)[0]
    np.testing.assert_allclose(openvino(tmp_path / "a.xml", feeds), expected, rtol=1e-5, atol=1e-6)


def test_what_accepts_both_ranks_keeps_both_branches(tmp_path: Path) -> None:
    source = squeezing_model([helper.make_node("Relu", ["z"], ["y"])], 2)
    del source.graph.output[0].type.tensor_type.shape.dim[:]
    source.graph.output[0].type.tensor_type.ClearField("shape")
    assert "IRC4009" not in [d.code for d in irc.convert(source, tmp_path / "a.xml")]
    assert 'type="If"' in (tmp_path / "a.xml").read_text()
    for size in (1, 5):
        x = RANDOM.normal(size=(3, 4, size)).astype(np.float32)
        expected = np.maximum(x[:, :, 0] if size == 1 else x, 0)
        np.testing.assert_array_equal(irc.compile(tmp_path / "a.xml", backend="numpy")(x)[0], expected)


@pytest.mark.parametrize("nested", [False, True])
def test_a_branch_that_sizes_decide_is_taken(tmp_path: Path, nested: bool) -> None:
    source = squeezing_model(convolved(), 3, nested)
    irc.convert(source, tmp_path / "a.onnx", shapes={"x": (3, 4, 1)})
    written = onnx.load(tmp_path / "a.onnx")
    onnx.checker.check_model(written)
    outer = written.graph if not nested else helper.get_node_attr_value(written.graph.node[-1], "then_branch")
    assert [n.op_type for n in outer.node] == ["Squeeze", "Unsqueeze", "Conv"]
    feeds: dict[str, Any] = {"x": RANDOM.normal(size=(3, 4, 1)).astype(np.float32)}
    feeds |= {"c": np.array(True)} if nested else {}
    expected = ReferenceEvaluator(source).run(None, feeds)[0]
    np.testing.assert_allclose(ReferenceEvaluator(written).run(None, feeds)[0], expected, rtol=1e-6)
