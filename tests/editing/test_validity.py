"""Graphs that were built or changed by hand are checked before they are written."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import irc
from irc.ir.graph import Graph, Model, Node
from irc.ir.types import TensorType, f32
from irc.ops.activation import Relu
from irc.ops.matmul import Gemm


def built(weights: tuple[int, int] = (3, 4), said: tuple[int, int] = (2, 4)) -> Model:
    """A product and a Relu, put together without inference."""
    graph = Graph("g")
    x = graph.add_input("x", TensorType.of(f32, [2, 3]), names=("x",))
    w = graph.add_constant(np.ones(weights, np.float32), "w")
    y = graph.new_value("y", TensorType.of(f32, said))
    z = graph.new_value("z", TensorType.of(f32, said), names=("z",))
    graph.add_node(Gemm(), [x, w], [y], "product")
    graph.add_node(Relu(), [y], [z], "relu")
    graph.outputs = [z]
    return Model(graph, "onnx", 8, {"": 17})


def node(model: Model, kind: str) -> Node:
    return next(n for n in model.graph.dag if n.op.name == kind)


def refused(model: Model, code: str, folder: Path) -> str:
    """The message with which validate finds the mistake, and save and to_onnx refuse it, without a file."""
    found = [d for d in irc.validate(model) if d.severity == "error"]
    assert [d.code for d in found] == [code]
    for ending in ("onnx", "xml"):
        with pytest.raises(irc.ConversionError) as e:
            irc.save(model, folder / f"m.{ending}")
        assert [d.code for d in e.value.diagnostics] == [code]
    with pytest.raises(irc.ConversionError, match=code):
        irc.to_onnx(model)
    assert not list(folder.iterdir())
    return found[0].message


def test_a_sound_graph_is_written(tmp_path: Path) -> None:
    assert irc.validate(built()) == []
    irc.save(built(), tmp_path / "m.onnx")
    x = np.full((2, 3), -1, np.float32)
    np.testing.assert_array_equal(irc.compile(tmp_path / "m.onnx", backend="numpy")(x)[0], np.zeros((2, 4)))


def test_operands_that_do_not_fit(tmp_path: Path) -> None:
    assert 'Gemm "product"' in refused(built(weights=(5, 4)), "IRC3104", tmp_path)


def test_a_result_of_another_shape(tmp_path: Path) -> None:
    assert "f32[2,5]" in refused(built(said=(2, 5)), "IRC3303", tmp_path)


def test_a_cycle(tmp_path: Path) -> None:
    model = built()
    product, relu = node(model, "Gemm"), node(model, "Relu")
    model.graph.set_op(product, product.op, [relu.outputs[0], product.inputs[1]])
    message = refused(model, "IRC2402", tmp_path)
    assert "product" in message and "relu" in message


def test_an_output_of_a_removed_node(tmp_path: Path) -> None:
    model = built()
    model.graph.remove(node(model, "Relu"))
    assert "%z" in refused(model, "IRC2401", tmp_path)


def test_a_change_of_a_model_that_was_read(tmp_path: Path) -> None:
    irc.save(built(), tmp_path / "m.onnx")
    model = irc.load(tmp_path / "m.onnx")
    (tmp_path / "m.onnx").unlink()
    product = node(model, "Gemm")
    narrow = model.graph.add_constant(np.ones((7, 4), np.float32), "other")
    model.graph.set_op(product, product.op, [product.inputs[0], narrow])
    refused(model, "IRC3104", tmp_path)
