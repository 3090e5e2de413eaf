"""`irc.extract`: the part of a graph between some values, beside ONNX Runtime and OpenVINO."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

import irc
from tests.support.random_numbers import RANDOM


def source() -> onnx.ModelProto:
    """y = relu(x + W) · a, z = topk of that; one node that neither needs."""
    weights = onnx.numpy_helper.from_array(RANDOM.normal(size=(3,)).astype(np.float32), "W")
    count = onnx.numpy_helper.from_array(np.array([2]), "k")
    nodes = [
        helper.make_node("Add", ["x", "W"], ["s"], name="sum"),
        helper.make_node("Relu", ["s"], ["r"], name="relu"),
        helper.make_node("Mul", ["r", "a"], ["y"], name="scale"),
        helper.make_node("TopK", ["y", "k"], ["best", "where"], name="top"),
        helper.make_node("Concat", ["y", "y"], ["twice"], name="twin", axis=0),
        helper.make_node("Neg", ["twice"], ["z"], name="last"),
    ]
    port, f32 = helper.make_tensor_value_info, TensorProto.FLOAT
    inputs = [port("x", f32, ["n", 3]), port("a", f32, ["n", 3])]
    outputs = [port("z", f32, None), port("best", f32, None), port("where", TensorProto.INT64, None)]
    graph = helper.make_graph(nodes, "g", inputs, outputs, [weights, count])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def both(path: Path, model: Any, **feeds: Any) -> list[Any]:
    """The results of ONNX Runtime, after comparing those of OpenVINO."""
    irc.save(model, path.with_suffix(".onnx"))
    irc.save(model, path.with_suffix(".xml"))
    session = pytest.importorskip("onnxruntime").InferenceSession(str(path.with_suffix(".onnx")))
    expected = session.run(None, feeds)
    core = pytest.importorskip("openvino").Core()
    found = core.compile_model(core.read_model(str(path.with_suffix(".xml"))), "CPU")(feeds)
    for i, array in enumerate(expected):
        np.testing.assert_allclose(found[i], array, rtol=1e-5)
    return expected


@pytest.mark.parametrize("format", [".onnx", ".xml"])
def test_a_part(tmp_path: Path, format: str) -> None:
    irc.convert(source(), tmp_path / f"m{format}")
    model = irc.load(tmp_path / f"m{format}")
    part = irc.extract(model, ["s", "a"], ["y"])
    assert [v.name for v in part.inputs] == ["s", "a"]
    assert len(part.graph) == 2
    assert str(part.inputs[0].type).startswith("f32[")
    assert part.inputs[0].rank == 2
    s, a = RANDOM.normal(size=(2, 2, 3)).astype(np.float32)
    (y,) = both(tmp_path / "p", part, s=s, a=a)
    np.testing.assert_allclose(y, np.maximum(s, 0) * a, rtol=1e-5)
    assert len(irc.load(tmp_path / f"m{format}").graph) == len(model.graph)


def test_layers_stand_for_their_results(tmp_path: Path) -> None:
    part = irc.extract(irc.load(source()), inputs=["scale"], outputs=["top", "twin"])
    assert [v.name for v in part.inputs] == ["y"]
    assert [v.name for v in part.outputs] == ["best", "where", "twice"]
    y = RANDOM.normal(size=(2, 3)).astype(np.float32)
    _, where, twice = both(tmp_path / "p", part, y=y)
    np.testing.assert_array_equal(where, np.argsort(-y, axis=1)[:, :2])
    np.testing.assert_array_equal(twice, np.concatenate([y, y]))


def test_the_inputs_that_are_needed(tmp_path: Path) -> None:
    part = irc.extract(irc.load(source()), outputs=["r"])
    assert [v.name for v in part.inputs] == ["x"]
    both(tmp_path / "p", part, x=RANDOM.normal(size=(2, 3)).astype(np.float32))


def test_a_computed_size_is_one_of_its_own() -> None:
    part = irc.extract(irc.load(source()), inputs=["twice"], outputs=["z"])
    assert str(part.inputs[0].type) == "f32[twice_0,3]"


def test_one_of_two_results_as_an_input(tmp_path: Path) -> None:
    part = irc.extract(irc.load(source()), inputs=["best", "y"], outputs=["best", "where"])
    assert [v.name for v in part.inputs] == ["best", "y"]
    irc.save(part, tmp_path / "p.onnx")
    irc.load(tmp_path / "p.onnx")


def test_an_unknown_name() -> None:
    with pytest.raises(irc.ConversionError) as said:
        irc.extract(irc.load(source()), inputs=["sums"], outputs=["tops"])
    assert [d.code for d in said.value.diagnostics] == ["IRC6354"] * 2
    assert "sum" in str(said.value.diagnostics[0])


def test_an_input_that_is_needed_too() -> None:
    with pytest.raises(irc.ConversionError, match=r"IRC6355.*'a'"):
        irc.extract(irc.load(source()), inputs=["x"], outputs=["y"])
