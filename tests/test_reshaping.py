"""`irc.convert(shapes=…)`: other input shapes for a written model, beside ONNX Runtime and OpenVINO."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper
from onnx.reference import ReferenceEvaluator

import irc
from tests.support.random_numbers import RANDOM


def image_model(target: list[int], shape: tuple[Any, ...] = (1, 3, 8, 8)) -> onnx.ModelProto:
    """A convolution whose result is reshaped to a literal target."""
    weights = onnx.numpy_helper.from_array(RANDOM.normal(size=(4, 3, 3, 3)).astype(np.float32), "W")
    nodes = [
        helper.make_node("Conv", ["x", "W"], ["c"], name="conv", pads=[1, 1, 1, 1]),
        helper.make_node("Reshape", ["c", "s"], ["y"], name="flat"),
    ]
    port = helper.make_tensor_value_info
    sizes = onnx.numpy_helper.from_array(np.array(target), "s")
    inside = [port("c", TensorProto.FLOAT, (shape[0], 4, *shape[2:]))]
    ports = [port("x", TensorProto.FLOAT, shape)], [port("y", TensorProto.FLOAT, [None, None])]
    graph = helper.make_graph(nodes, "g", *ports, [weights, sizes], value_info=inside)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def onnxruntime(path: Path, **feeds: Any) -> Any:
    session = pytest.importorskip("onnxruntime").InferenceSession(str(path), providers=["CPUExecutionProvider"])
    return session.run(None, feeds)[0]


def openvino(path: Path, *arrays: Any) -> Any:
    core = pytest.importorskip("openvino").Core()
    return core.compile_model(core.read_model(str(path)), "CPU", {"INFERENCE_PRECISION_HINT": "f32"})(arrays)[0]


def shapes_of(ports: Any) -> list[list[Any]]:
    return [[d.dim_param or d.dim_value for d in p.type.tensor_type.shape.dim] for p in ports]


def test_fixed_sizes_change(tmp_path: Path) -> None:
    source = image_model([0, -1])
    irc.convert(source, tmp_path / "a.onnx", shapes={"x": (2, 3, 16, 12)})
    irc.convert(source, tmp_path / "a.xml", shapes={"x": (2, 3, 16, 12)})
    written = onnx.load(tmp_path / "a.onnx").graph
    assert shapes_of(written.input) == [[2, 3, 16, 12]]
    assert shapes_of(written.output) == [[2, 4 * 16 * 12]]
    x = RANDOM.normal(size=(2, 3, 16, 12)).astype(np.float32)
    expected = onnxruntime(tmp_path / "a.onnx", x=x)
    np.testing.assert_allclose(openvino(tmp_path / "a.xml", x), expected, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(irc.compile(tmp_path / "a.xml", backend="numpy")(x)[0], expected, rtol=1e-4, atol=1e-5)


def test_openvino_ir_changes(tmp_path: Path) -> None:
    irc.convert(image_model([0, -1]), tmp_path / "a.xml")
    irc.convert(tmp_path / "a.xml", tmp_path / "b.xml", shapes={"x": (3, None, 4, -1)})
    x = RANDOM.normal(size=(3, 3, 4, 8)).astype(np.float32)
    found = openvino(tmp_path / "b.xml", x)
    assert found.shape == (3, 4 * 4 * 8)
    np.testing.assert_allclose(irc.compile(tmp_path / "b.xml", backend="numpy")(x)[0], found, rtol=1e-4, atol=1e-5)


def test_sizes_get_names(tmp_path: Path) -> None:
    irc.convert(image_model([0, -1]), tmp_path / "a.onnx", shapes={"x": ("n", 3, "h", "w")})
    written = onnx.load(tmp_path / "a.onnx").graph
    assert shapes_of(written.input) == [["n", 3, "h", "w"]]
    assert shapes_of(written.output) == [["n", "4*h*w"]]
    x = RANDOM.normal(size=(2, 3, 5, 7)).astype(np.float32)
    assert onnxruntime(tmp_path / "a.onnx", x=x).shape == (2, 140)


def test_a_symbol_is_bound_in_every_input(tmp_path: Path) -> None:
    port = helper.make_tensor_value_info
    ports = [port("a", TensorProto.FLOAT, ["n", 2]), port("b", TensorProto.FLOAT, ["n", 2])]
    node = helper.make_node("Add", ["a", "b"], ["y"])
    graph = helper.make_graph([node], "g", ports, [port("y", TensorProto.FLOAT, ["n", 2])])
    source = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    irc.convert(source, tmp_path / "a.onnx", shapes={"a": (4, 2)})
    written = onnx.load(tmp_path / "a.onnx").graph
    assert shapes_of([*written.input, *written.output]) == [[4, 2]] * 3
    with pytest.raises(irc.ConversionError, match=r"IRC6351.*n was given as 4"):
        irc.convert(source, tmp_path / "b.onnx", shapes={"a": (4, 2), "b": (5, 2)})


def test_a_literal_batch_cannot_follow(tmp_path: Path) -> None:
    with pytest.raises(irc.ConversionError) as said:
        irc.convert(image_model([1, 256]), tmp_path / "a.onnx", shapes={"x": (2, 3, 8, 8)})
    (finding,) = said.value.diagnostics
    assert finding.code == "IRC3107"
    assert '"flat" (Reshape)' in str(finding)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("shapes", "message"),
    [
        ({"z": (1,)}, "IRC6302"),
        ({"x": (1, 3, 8)}, "the rank differs"),
        ({"x": (1, 3, 8, -2)}, "an entry is a number"),
        ({"x": (1, 5, 8, 8)}, "IRC31"),
    ],
)
def test_shapes_that_cannot_be(tmp_path: Path, shapes: Any, message: str) -> None:
    with pytest.raises(irc.ConversionError, match=message):
        irc.convert(image_model([0, -1]), tmp_path / "a.onnx", shapes=shapes)
    assert not list(tmp_path.iterdir())


def test_a_body_follows(tmp_path: Path) -> None:
    port = helper.make_tensor_value_info
    body = helper.make_graph(
        [helper.make_node("Identity", ["go"], ["on"]), helper.make_node("Add", ["v", "x"], ["w"])],
        "body",
        [port("i", TensorProto.INT64, []), port("go", TensorProto.BOOL, []), port("v", TensorProto.FLOAT, [2, 3])],
        [port("on", TensorProto.BOOL, []), port("w", TensorProto.FLOAT, [2, 3])],
    )
    count = onnx.numpy_helper.from_array(np.array(3), "count")
    node = helper.make_node("Loop", ["count", "", "x"], ["y"], body=body)
    ports = [port("x", TensorProto.FLOAT, [2, 3])], [port("y", TensorProto.FLOAT, [2, 3])]
    graph = helper.make_graph([node], "g", *ports, [count])
    source = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    x = RANDOM.normal(size=(4, 5)).astype(np.float32)
    irc.convert(source, tmp_path / "a.onnx", shapes={"x": (4, 5)})
    np.testing.assert_allclose(onnxruntime(tmp_path / "a.onnx", x=x), 4 * x, rtol=1e-5)
    irc.convert(source, tmp_path / "a.xml", shapes={"x": (4, 5)})
    np.testing.assert_allclose(openvino(tmp_path / "a.xml", x), 4 * x, rtol=1e-5)


def branching_model() -> onnx.ModelProto:
    """Of x [1, 1, n] two products by rate, one of windows of 8 and one of rows of 4, and what only n decides."""
    port, node, graph = helper.make_tensor_value_info, helper.make_node, helper.make_graph
    windows = graph([node("Conv", ["x", "W"], ["p"])], "windows", [], [port("p", TensorProto.FLOAT, None)])
    rows = graph([node("MatMul", ["x", "M"], ["q"])], "rows", [], [port("q", TensorProto.FLOAT, None)])
    results = [port("a", TensorProto.FLOAT, None), port("b", TensorProto.FLOAT, None)]
    copied = graph([node("Identity", ["x"], ["a"]), node("Identity", ["two"], ["b"])], "copied", [], results)
    computed = [node("Neg", ["x"], ["a"]), node("Mul", ["two", "two"], ["b"])]
    nodes = [
        node("Equal", ["rate", "sixteen"], ["fast"]),
        node("If", ["fast"], ["y"], "by_rate", then_branch=windows, else_branch=rows),
        node("Shape", ["x"], ["sizes"], start=2),
        node("Equal", ["sizes", "eight"], ["wide"]),
        node("Squeeze", ["wide"], ["whether"]),
        node(
            "If", ["whether"], ["c", "d"], "by_size", then_branch=copied, else_branch=graph(computed, "g", [], results)
        ),
        node("Mul", ["c", "d"], ["z"]),
    ]
    arrays: dict[str, Any] = {
        "W": RANDOM.normal(size=(1, 1, 8)),
        "M": RANDOM.normal(size=(4, 2)),
        "two": np.array([2.0]),
    }
    constants = [onnx.numpy_helper.from_array(v.astype(np.float32), k) for k, v in arrays.items()]
    constants += [onnx.numpy_helper.from_array(np.array(v), k) for k, v in (("sixteen", 16), ("eight", [8]))]
    inputs = [port("x", TensorProto.FLOAT, [1, 1, "n"]), port("rate", TensorProto.INT64, [])]
    outputs = [port("y", TensorProto.FLOAT, [1, 1, None]), port("z", TensorProto.FLOAT, [1, 1, None])]
    whole = graph(nodes, "branching", inputs, outputs, constants)
    return helper.make_model(whole, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


@pytest.mark.parametrize("ending", [".onnx", ".xml"])
@pytest.mark.parametrize(("size", "left_out"), [(8, "else_branch"), (4, "then_branch")])
def test_branches_that_sizes_decide_or_leave_no_run(tmp_path: Path, ending: str, size: int, left_out: str) -> None:
    model = branching_model()
    source, target = tmp_path / f"a{ending}", tmp_path / f"b{ending}"
    irc.convert(model, source)
    notes = irc.convert(source, target, shapes={"x": (1, 1, size)})
    assert [d.code for d in notes] == ["IRC4009"]
    assert left_out in notes[0].message
    assert not any(n.op.name == "If" for n in irc.load(target).graph.nodes)
    feeds = {"x": RANDOM.normal(size=(1, 1, size)).astype(np.float32), "rate": np.array(16 if size == 8 else 8)}
    expected = ReferenceEvaluator(model).run(None, feeds)
    for found, wanted in zip(irc.compile(target, backend="numpy")(*feeds.values()), expected, strict=True):
        np.testing.assert_allclose(found, wanted, rtol=1e-5, atol=1e-6)


def test_sizes_that_neither_branch_takes(tmp_path: Path) -> None:
    with pytest.raises(irc.ConversionError) as error:
        irc.convert(branching_model(), tmp_path / "b.onnx", shapes={"x": (1, 1, 5)})
    assert [d.code for d in error.value.diagnostics if d.severity == "error"] == ["IRC3104", "IRC3109"]
