"""Shape arithmetic as exporters write it stays symbolic: no size becomes unknown on the way."""

from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import irc
from irc import driver


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
    constant("zero", 0),
    constant("one", 1),
    constant("axis0", [0]),
    constant("minus", [-1]),
    helper.make_node("Gather", ["shape", "zero"], ["batch"]),
    helper.make_node("Gather", ["shape", "one"], ["seq"]),
    helper.make_node("Unsqueeze", ["batch", "axis0"], ["batch1"]),
    helper.make_node("Unsqueeze", ["seq", "axis0"], ["seq1"]),
]


def test_split_into_heads() -> None:
    nodes = [
        *SIZES,
        constant("heads", [3, 4]),
        helper.make_node("Concat", ["batch1", "seq1", "heads"], ["to"], axis=0),
        helper.make_node("Reshape", ["x", "to"], ["y"]),
        helper.make_node("Transpose", ["y"], ["z"], perm=[0, 2, 1, 3]),
    ]
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
        constant("s", [0]),
        constant("e", [2]),
        constant("big", [2**63 - 1]),
        helper.make_node("Slice", ["shape", "s", "e"], ["two"]),
        helper.make_node("ConstantOfShape", ["two"], ["y"]),
        helper.make_node("Slice", ["x", "one1", "big", "axis1"], ["tail"]),
        constant("one1", [1]),
        constant("axis1", [1]),
    ]
    nodes = [n for n in nodes if n.op_type == "Constant"] + [n for n in nodes if n.op_type != "Constant"]
    assert shapes(load(nodes, {"mask": 1, "y": 1, "tail": 1})) == [
        "f32[seq,seq]",
        "f32[batch,seq]",
        "f32[batch,max(-1 + seq, 0),12]",
    ]


def test_flatten_and_size() -> None:
    nodes = [
        helper.make_node("Flatten", ["x"], ["rows"], axis=2),
        helper.make_node("Size", ["ids"], ["count"]),
        constant("axis0", [0]),
        constant("twelve", [12]),
        helper.make_node("Unsqueeze", ["count", "axis0"], ["count1"]),
        helper.make_node("Concat", ["count1", "twelve"], ["to"], axis=0),
        helper.make_node("Reshape", ["x", "to"], ["y"]),
    ]
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


def test_parts_of_a_shape() -> None:
    """Split of a shape; the number of parts and what is left over, as `chunk` and `pad` to a multiple compute them."""
    nodes = [
        *SIZES,
        constant("window", 4),
        constant("two", 2),
        constant("depth_at", 2),
        constant("axis1", [1]),
        helper.make_node("Split", ["shape"], ["rows", "columns", "depth"], axis=0),
        helper.make_node("Mod", ["seq", "window"], ["over"]),
        helper.make_node("Sub", ["window", "over"], ["lacking"]),
        helper.make_node("Mod", ["lacking", "window"], ["more"]),
        helper.make_node("Abs", ["more"], ["padding"]),
        helper.make_node("Unsqueeze", ["padding", "axis0"], ["padding1"]),
        constant("before", [0, 0, 0, 0]),
        constant("after", [0]),
        helper.make_node("Concat", ["before", "padding1", "after"], ["pads"], axis=0),
        helper.make_node("Pad", ["x", "pads"], ["padded"]),
        helper.make_node("Concat", ["rows", "columns"], ["both"], axis=0),
        helper.make_node("ReduceSum", ["both", "axis0"], ["count"], keepdims=1),
        helper.make_node("Expand", ["count", "count"], ["counted"]),
        helper.make_node("Gather", ["shape", "depth_at"], ["size"]),
        helper.make_node("Mod", ["size", "two"], ["rest"]),
        helper.make_node("Greater", ["rest", "zero"], ["odd"]),
        helper.make_node("Cast", ["odd"], ["extra"], to=TensorProto.INT64),
        helper.make_node("Div", ["size", "two"], ["whole"]),
        helper.make_node("Add", ["whole", "extra"], ["half"]),
        helper.make_node("Sub", ["size", "half"], ["left"]),
        helper.make_node("Unsqueeze", ["half", "axis0"], ["half1"]),
        helper.make_node("Unsqueeze", ["left", "axis0"], ["left1"]),
        helper.make_node("Concat", ["half1", "left1"], ["lengths"], axis=0),
        helper.make_node("Split", ["x", "lengths"], ["first", "second"], axis=2),
    ]
    found = shapes(load(nodes, {"padded": 1, "counted": 7, "first": 1}))
    assert found == ["f32[batch,-seq%4%4 + seq,12]", "i64[batch + seq]", "f32[batch,seq,6]"]


@pytest.mark.compiler
def test_sizes_that_come_back_are_computed_once() -> None:
    """Offsets in memory are long sums of products of sizes: their quotients have names in P_plan."""
    nodes = [
        *SIZES,
        constant("three", 3),
        constant("four", 4),
        constant("tail", [12]),
        helper.make_node("Div", ["batch", "three"], ["a"]),
        helper.make_node("Unsqueeze", ["a", "axis0"], ["a1"]),
        helper.make_node("Div", ["seq", "four"], ["b"]),
        helper.make_node("Unsqueeze", ["b", "axis0"], ["b1"]),
        helper.make_node("Concat", ["axis0", "axis0"], ["starts"], axis=0),
        helper.make_node("Concat", ["a1", "b1"], ["ends"], axis=0),
        helper.make_node("Slice", ["x", "starts", "ends"], ["part"]),
        helper.make_node("Softmax", ["part"], ["p"], axis=0),
        helper.make_node("Softmax", ["part"], ["q"], axis=1),
        helper.make_node("Softmax", ["p"], ["r"], axis=1),
        helper.make_node("Softmax", ["q"], ["s"], axis=0),
        helper.make_node("Add", ["r", "s"], ["y"]),
    ]
    model = load(nodes, {"y": 1})
    files = driver.sources(model, driver.CompileOptions(backend="c", cache=False)).files
    text = "".join(str(t) for name, t in files.items() if name == "model.c")
    plan = text[text.index("_plan(") :]
    plan = plan[: plan.index("\n}")]
    assert "ctx->at[1] = " in plan and plan.count("/ 3") == 1 and plan.count("/ 4") == 1
    x = np.random.default_rng(0).normal(size=(7, 9, 12)).astype(np.float32)

    def softmax(v: Any, axis: int) -> Any:
        return np.exp(v) / np.exp(v).sum(axis, keepdims=True)

    part = x[:2, :2].astype(np.float64)
    expected = softmax(softmax(part, 0), 1) + softmax(softmax(part, 1), 0)
    for backend in ("c", "numpy"):
        (y,) = irc.compile(model, backend=backend)({"x": x, "ids": np.zeros((7, 9), np.int64)})
        np.testing.assert_allclose(y, expected, rtol=1e-5)


def half_range(size: int | str) -> onnx.ModelProto:
    """exp(range(0, shape[0] · factor)), where the range is one of floats."""
    nodes = [
        helper.make_node("Shape", ["x"], ["shape"]),
        constant("at", 0),
        helper.make_node("Gather", ["shape", "at"], ["n"]),
        helper.make_node("Cast", ["n"], ["f"], to=TensorProto.FLOAT),
        constant("zero", 0, np.float32),
        constant("one", 1, np.float32),
        constant("factor", 2 if isinstance(size, str) else 0.5, np.float32),
        helper.make_node("Mul", ["f", "factor"], ["m"]),
        helper.make_node("Range", ["zero", "m", "one"], ["r"]),
        helper.make_node("Exp", ["r"], ["y"]),
    ]
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, [size])
    graph = helper.make_graph(nodes, "halves", [x], [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


@pytest.mark.parametrize(("size", "count"), [("N", 14), (7, 4)])
@pytest.mark.parametrize("backend", ["c", "numpy"])
def test_sizes_in_float_arithmetic(size: int | str, count: int, backend: str) -> None:
    """Whole numbers stay symbolic; others are known once constants are folded."""
    if size == "N":
        assert shapes(irc.load(half_range(size))) == ["f32[2*N]"]
    (y,) = irc.compile(half_range(size), backend=backend)(np.zeros(7, np.float32))
    np.testing.assert_allclose(y, np.exp(np.arange(count, dtype=np.float32)), rtol=1e-6)


def test_what_is_no_whole_number_is_not_known() -> None:
    """-0, fractions and products that might be -0 have no symbolic contents."""
    nodes = [
        constant("minus", -0.0, np.float32),
        constant("half", 0.5, np.float32),
        constant("whole", 3, np.float32),
        constant("negative", -2, np.float32),
        constant("zero", 0, np.float32),
        helper.make_node("Mul", ["negative", "zero"], ["product"]),
        helper.make_node("Add", ["whole", "whole"], ["sum"]),
        helper.make_node("Sum", ["minus", "half"], ["others"]),
    ]
    graph = load(nodes, {"product": 1, "sum": 1, "others": 1}).graph
    known = {v.name: v.contents is not None for v in graph.values()}
    assert known["sum"] and known["whole"] and not (known["product"] or known["minus"] or known["half"])


@pytest.mark.compiler
def test_roll_as_the_new_exporter_writes_it() -> None:
    """Slices from -2 mod size and up to there, side by side."""
    nodes = [
        helper.make_node("Shape", ["x"], ["size"], start=1, end=2),
        constant("back", [-2]),
        constant("one", [1]),
        helper.make_node("Mod", ["back", "size"], ["at"]),
        constant("none", [0]),
        helper.make_node("Slice", ["x", "at", "size", "one"], ["tail"]),
        helper.make_node("Slice", ["x", "none", "at", "one"], ["head"]),
        helper.make_node("Concat", ["tail", "head"], ["y"], axis=1),
    ]
    model = load(nodes, {"y": 1})
    x = np.random.default_rng(0).normal(size=(2, 9, 12)).astype(np.float32)
    for backend in ("c", "numpy"):
        (y,) = irc.compile(model, backend=backend)({"x": x, "ids": np.zeros((2, 9), np.int64)})
        np.testing.assert_array_equal(y, np.roll(x, 2, 1))


@pytest.mark.compiler
def test_a_reshape_must_fit_when_the_model_runs() -> None:
    """A size that an exporter has written as a number, where kernels and views read the memory behind the reshape."""
    nodes = [
        constant("fixed", [4, 3, 12]),
        helper.make_node("Reshape", ["x", "fixed"], ["rows"]),
        helper.make_node("Transpose", ["rows"], ["turned"], perm=[0, 2, 1]),
        helper.make_node("MatMul", ["rows", "turned"], ["y"]),
    ]
    compiled = irc.compile(load(nodes, {"y": 1}), backend="c")
    rng = np.random.default_rng(0)
    x, ids = rng.normal(size=(6, 2, 12)).astype(np.float32), np.zeros((6, 2), np.int64)
    rows = x.reshape(4, 3, 12)
    np.testing.assert_allclose(compiled({"x": x, "ids": ids})[0], rows @ rows.transpose(0, 2, 1), rtol=1e-5, atol=1e-5)
    with pytest.raises(ValueError, match="IRC6313"):
        compiled({"x": x[:1], "ids": ids[:1]})
