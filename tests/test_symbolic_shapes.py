"""Shape arithmetic as exporters write it stays symbolic: no size becomes unknown on the way."""

from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

import irc


def constant(name: str, data: Any, dtype: Any = np.int64) -> onnx.NodeProto:
    return helper.make_node("Constant", [], [name], value=numpy_helper.from_array(np.asarray(data, dtype), name))


def load(nodes: list[onnx.NodeProto], outputs: dict[str, int]) -> Any:
    """A model of x: f32[batch, seq, 12] and ids: i64[batch, seq]."""
    inputs = [
        helper.make_tensor_value_info("x", TensorProto.FLOAT, ["batch", "seq", 12]),
        helper.make_tensor_value_info("ids", TensorProto.INT64, ["batch", "seq"]),
    ]
    declared = [helper.make_tensor_value_info(n, t, None) for n, t in outputs.items()]
    graph = helper.make_graph(nodes, "shapes", inputs, declared)
    return irc.load(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8))


def shapes(model: Any) -> list[str]:
    return [str(v.type) for v in model.outputs]


SIZES = [
    helper.make_node("Shape", ["x"], ["shape"]),
    constant("zero", 0), constant("one", 1), constant("axis0", [0]), constant("minus", [-1]),
    helper.make_node("Gather", ["shape", "zero"], ["batch"]),
    helper.make_node("Gather", ["shape", "one"], ["seq"]),
    helper.make_node("Unsqueeze", ["batch", "axis0"], ["batch1"]),
    helper.make_node("Unsqueeze", ["seq", "axis0"], ["seq1"]),
]  # fmt: skip


def test_split_into_heads() -> None:
    nodes = [
        *SIZES, constant("heads", [3, 4]),
        helper.make_node("Concat", ["batch1", "seq1", "heads"], ["to"], axis=0),
        helper.make_node("Reshape", ["x", "to"], ["y"]),
        helper.make_node("Transpose", ["y"], ["z"], perm=[0, 2, 1, 3]),
    ]  # fmt: skip
    assert shapes(load(nodes, {"z": 1})) == ["f32[batch,3,seq,4]"]


def test_expand_as_pytorch_exports_it() -> None:
    """Expand to Where(Equal(shape, -1), 1, shape)."""
    nodes = [
        *SIZES,
        helper.make_node("Concat", ["batch1", "minus"], ["wanted"], axis=0),
        helper.make_node("Shape", ["wanted"], ["rank"]),
        helper.make_node("ConstantOfShape", ["rank"], ["ones"], value=numpy_helper.from_array(np.array([1], np.int64))),
        constant("minus_one", -1),
        helper.make_node("Mul", ["ones", "minus_one"], ["minuses"]),
        helper.make_node("Equal", ["wanted", "minuses"], ["same"]),
        helper.make_node("Where", ["same", "ones", "wanted"], ["to"]),
        helper.make_node("Range", ["zero", "seq", "one"], ["positions"]),
        helper.make_node("Unsqueeze", ["positions", "axis0"], ["row"]),
        helper.make_node("Expand", ["row", "to"], ["y"]),
    ]
    assert shapes(load(nodes, {"positions": 7, "y": 7})) == ["i64[seq]", "i64[batch,seq]"]


def test_mask_of_computed_shape() -> None:
    nodes = [
        *SIZES,
        helper.make_node("Concat", ["seq1", "seq1"], ["square"], axis=0),
        helper.make_node("ConstantOfShape", ["square"], ["zeros"]),
        helper.make_node("Trilu", ["zeros"], ["mask"], upper=1),
        constant("s", [0]), constant("e", [2]), constant("big", [2**63 - 1]),
        helper.make_node("Slice", ["shape", "s", "e"], ["two"]),
        helper.make_node("ConstantOfShape", ["two"], ["y"]),
        helper.make_node("Slice", ["x", "one1", "big", "axis1"], ["tail"]),
        constant("one1", [1]), constant("axis1", [1]),
    ]  # fmt: skip
    nodes = [n for n in nodes if n.op_type == "Constant"] + [n for n in nodes if n.op_type != "Constant"]
    assert shapes(load(nodes, {"mask": 1, "y": 1, "tail": 1})) == [
        "f32[seq,seq]", "f32[batch,seq]", "f32[batch,max(-1 + seq, 0),12]",
    ]  # fmt: skip


def test_flatten_and_size() -> None:
    nodes = [
        helper.make_node("Flatten", ["x"], ["rows"], axis=2),
        helper.make_node("Size", ["ids"], ["count"]), constant("axis0", [0]), constant("twelve", [12]),
        helper.make_node("Unsqueeze", ["count", "axis0"], ["count1"]),
        helper.make_node("Concat", ["count1", "twelve"], ["to"], axis=0),
        helper.make_node("Reshape", ["x", "to"], ["y"]),
    ]  # fmt: skip
    assert shapes(load(nodes, {"rows": 1, "y": 1})) == ["f32[batch*seq,12]", "f32[batch*seq,12]"]


def test_constant_nodes_survive_a_round_trip(tmp_path: Any) -> None:
    """Names, order and kinds of Constant nodes, also of those that nobody uses."""
    nodes = [
        constant("unused", [1, 2]),
        helper.make_node("Constant", [], ["number"], value_float=0.5),
        helper.make_node("Mul", ["x", "number"], ["y"]),
        helper.make_node("Constant", [], ["words"], value_strings=["a", "b"]),
    ]
    model = load(nodes, {"y": 1, "words": 8})
    irc.save(model, tmp_path / "again.onnx")
    again = onnx.load(tmp_path / "again.onnx")
    assert list(again.graph.node) == nodes
    assert not again.graph.initializer
