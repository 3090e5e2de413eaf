"""`irc.convert(simplify=True)`: fewer operations, the same results in ONNX Runtime and OpenVINO."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

import irc
from tests.support.random_numbers import RANDOM


def source(nodes: list[Any], **constants: Any) -> onnx.ModelProto:
    """A model from x, 2 by 4, to y."""
    tensors = [onnx.numpy_helper.from_array(np.asarray(a), n) for n, a in constants.items()]
    ports = [helper.make_tensor_value_info(n, TensorProto.FLOAT, s) for n, s in (("x", [2, 4]), ("y", None))]
    graph = helper.make_graph(nodes, "g", ports[:1], ports[1:], tensors)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def onnxruntime(model: Path | bytes, x: Any) -> Any:
    given = model if isinstance(model, bytes) else str(model)
    return pytest.importorskip("onnxruntime").InferenceSession(given).run(None, {"x": x})[0]


def openvino(path: Path, x: Any) -> Any:
    core = pytest.importorskip("openvino").Core()
    return core.compile_model(core.read_model(str(path)), "CPU", {"INFERENCE_PRECISION_HINT": "f32"})([x])[0]


def kinds(path: Path) -> list[str]:
    return [n.op_type for n in onnx.load(path).graph.node]


def check(tmp_path: Path, model: onnx.ModelProto) -> list[str]:
    """The operations that are left, after comparing the results."""
    x = RANDOM.normal(size=(2, 4)).astype(np.float32)
    expected = onnxruntime(model.SerializeToString(), x)
    irc.convert(model, tmp_path / "m.onnx", simplify=True)
    np.testing.assert_allclose(onnxruntime(tmp_path / "m.onnx", x), expected, rtol=1e-5, atol=1e-6)
    irc.convert(model, tmp_path / "n.xml")
    irc.convert(tmp_path / "n.xml", tmp_path / "m.xml", simplify=True)
    np.testing.assert_allclose(openvino(tmp_path / "m.xml", x), expected, rtol=1e-4, atol=1e-5)
    return kinds(tmp_path / "m.onnx")


def test_constants_sizes_equal_and_unused_nodes(tmp_path: Path) -> None:
    node = helper.make_node
    nodes = [
        node("Mul", ["W", "two"], ["W2"]),
        node("Transpose", ["W2"], ["Wt"]),
        node("Identity", ["x"], ["xi"]),
        node("MatMul", ["xi", "Wt"], ["p"]),
        node("MatMul", ["x", "Wt"], ["q"]),
        node("Add", ["p", "q"], ["s"]),
        node("Shape", ["x"], ["sh"]),
        node("Gather", ["sh", "zero"], ["b"]),
        node("Concat", ["b", "rest"], ["t"], axis=0),
        node("Reshape", ["s", "t"], ["r"]),
        node("HardSwish", ["r"], ["y"]),
        node("Neg", ["r"], ["dead"]),
    ]
    weights = {"W": RANDOM.normal(size=(3, 4)).astype(np.float32), "two": np.float32(2)}
    left = check(tmp_path, source(nodes, **weights, zero=[0], rest=[-1]))
    assert left == ["MatMul", "Add", "Reshape", "HardSwish"]


def test_compressed_weights_stay(tmp_path: Path) -> None:
    nodes = [helper.make_node("Cast", ["W"], ["w"], to=1), helper.make_node("MatMul", ["x", "w"], ["y"])]
    weights = RANDOM.normal(size=(4, 500)).astype(np.float16)
    assert check(tmp_path, source(nodes, W=weights)) == ["Cast", "MatMul"]


def test_random_numbers_stay(tmp_path: Path) -> None:
    nodes = [
        helper.make_node("RandomNormalLike", ["x"], ["a"]),
        helper.make_node("RandomNormalLike", ["x"], ["b"]),
        helper.make_node("Sub", ["a", "b"], ["y"]),
    ]
    irc.convert(source(nodes), tmp_path / "m.onnx", simplify=True)
    assert kinds(tmp_path / "m.onnx") == ["RandomNormalLike", "RandomNormalLike", "Sub"]


def test_what_a_body_uses_stays(tmp_path: Path) -> None:
    out = [helper.make_tensor_value_info("o", TensorProto.FLOAT, [2, 4])]
    then = helper.make_graph([helper.make_node("Neg", ["i"], ["o"])], "then", [], out)
    other = helper.make_graph([helper.make_node("Abs", ["i"], ["o"])], "else", [], out)
    nodes = [
        helper.make_node("Identity", ["x"], ["i"]),
        helper.make_node("ReduceSum", ["x"], ["sum"], keepdims=0),
        helper.make_node("Cast", ["sum"], ["which"], to=9),
        helper.make_node("If", ["which"], ["y"], then_branch=then, else_branch=other),
    ]
    assert check(tmp_path, source(nodes)) == ["Identity", "ReduceSum", "Cast", "If"]


def test_an_output_keeps_its_name(tmp_path: Path) -> None:
    assert check(tmp_path, source([helper.make_node("Identity", ["x"], ["y"])])) == ["Identity"]


def test_a_constant_that_a_body_uses_stays_computed(tmp_path: Path) -> None:
    out = [helper.make_tensor_value_info("o", TensorProto.FLOAT, [2, 4])]
    then = helper.make_graph([helper.make_node("Mul", ["x", "c"], ["o"])], "then", [], out)
    other = helper.make_graph([helper.make_node("Abs", ["x"], ["o"])], "else", [], out)
    nodes = [
        helper.make_node("Neg", ["two"], ["c"]),
        helper.make_node("ReduceSum", ["x"], ["sum"], keepdims=0),
        helper.make_node("Cast", ["sum"], ["which"], to=9),
        helper.make_node("If", ["which"], ["y"], then_branch=then, else_branch=other),
    ]
    assert check(tmp_path, source(nodes, two=np.float32(2))) == ["Neg", "ReduceSum", "Cast", "If"]
