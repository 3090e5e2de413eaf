"""Operations whose sizes or structure depend on operands that only a run knows: C gives what the references give."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from onnx import ModelProto, TensorProto, helper

import irc
from irc.diagnostics import RunError

Array = np.ndarray[Any, Any]
RANDOM = np.random.default_rng(20)


def f32(*shape: int) -> Array:
    return RANDOM.standard_normal(shape).astype(np.float32)


def i64(*numbers: int) -> Array:
    return np.array(numbers, np.int64)


def scalar(number: float, dtype: str = "i8") -> Array:
    return np.array(number, dtype)


SCALES = np.array([1, 1, 1.5, 0.6], np.float32)
CROP = {"coordinate_transformation_mode": "tf_crop_and_resize", "extrapolation_value": 10.0}
CASES: list[tuple[str, list[Array | None], dict[str, Any]]] = [
    ("Reshape", [f32(2, 3, 4), i64(4, 6)], {}),
    ("Reshape", [f32(2, 3, 4), i64(2, 0, -1)], {}),
    ("Reshape", [f32(0, 3, 4), i64(3, 4, 0)], {"allowzero": 1}),
    ("Slice", [f32(5, 6), i64(1, 0), i64(4, 5), i64(0, 1), i64(2, 1)], {}),
    ("Slice", [f32(5, 6), i64(-1, 1000), i64(-1000, -1000), i64(1, 0), i64(-1, -2)], {}),
    ("Slice", [f32(5, 6), i64(-3), i64(1000), i64(-1)], {}),
    ("Slice", [f32(5, 6), i64(3, -(1 << 62)), i64(1, (1 << 63) - 1)], {}),
    ("Expand", [f32(3, 1), i64(2, 1, 6)], {}),
    ("Tile", [f32(3, 2), i64(2, 3)], {}),
    ("Tile", [f32(3, 2), i64(0, 3)], {}),
    ("TopK", [f32(3, 7), i64(3)], {}),
    ("Unique", [np.array([2, 1, 1, 3, 4, 3], np.float32)], {}),
    ("Unique", [np.array([[1, 0, 1], [2, 3, 2]], np.float32)], {"axis": 1, "sorted": 0}),
    ("Range", [scalar(1), scalar(300), scalar(3)], {}),
    ("Range", [scalar(5), scalar(-300), scalar(-3)], {}),
    ("Range", [scalar(5), scalar(1), scalar(3)], {}),
    ("Range", [scalar(1, "f4"), scalar(5.5, "f4"), scalar(0.5, "f4")], {}),
    ("HannWindow", [scalar(9)], {}),
    ("HammingWindow", [scalar(0)], {"periodic": 0}),
    ("BlackmanWindow", [scalar(70, "i4")], {"periodic": 0}),
    ("OneHot", [i64(1, 2, 0), scalar(4), np.array([0, 1], np.float32)], {}),
    ("Pad", [f32(3, 4), i64(1, 0, 2, -1), scalar(2, "f4")], {}),
    ("Pad", [f32(3, 4), i64(1, 2), scalar(2, "f4"), i64(-1)], {}),
    ("Pad", [f32(3, 4), i64(1, 0, 2, 1)], {"mode": "reflect"}),
    ("ReduceSum", [f32(3, 4, 5), i64(1)], {"keepdims": 1}),
    ("ReduceSum", [f32(3, 4, 5), i64(1)], {"keepdims": 0}),
    ("ReduceMean", [f32(3, 4, 5), i64(-1, 0)], {"keepdims": 0}),
    ("ReduceMax", [f32(3, 4, 5), i64(-2)], {"keepdims": 1}),
    ("ReduceLogSumExp", [f32(3, 4, 5), i64(0, 2)], {"keepdims": 1}),
    ("ReduceL2", [f32(3, 4, 5), i64(0, 2)], {"keepdims": 0}),
    ("Squeeze", [f32(3, 1, 5, 1), i64(1, -1)], {}),
    ("Unsqueeze", [f32(3, 5), i64(0, -1)], {}),
    ("NonZero", [np.array([[True, False], [True, True]])], {}),
    ("NonZero", [f32(0, 3)], {}),
    ("Compress", [f32(3, 4), np.array([False, True, True])], {"axis": 0}),
    ("Compress", [f32(3, 4), np.array([False, True, True, False, True])], {}),
    ("ConstantOfShape", [i64(3, 4)], {}),
    ("CumSum", [f32(7), i64(-1)], {}),
    ("CumSum", [f32(2, 3, 4), scalar(0)], {"exclusive": 1}),
    ("CumSum", [f32(2, 3, 4), scalar(-2)], {"reverse": 1}),
    ("CumSum", [f32(2, 0, 4), scalar(2)], {}),
    ("NonMaxSuppression", [f32(2, 9, 4), f32(2, 3, 9), i64(4), scalar(0.3, "f4"), scalar(0.1, "f4")], {}),
    ("NonMaxSuppression", [f32(2, 9, 4), f32(2, 3, 9), i64(-1)], {}),
    ("Resize", [f32(1, 2, 4, 5), None, SCALES], {}),
    (
        "Resize",
        [f32(1, 2, 4, 5), None, SCALES],
        {"mode": "linear", "coordinate_transformation_mode": "pytorch_half_pixel"},
    ),
    ("Resize", [f32(1, 2, 4, 5), None, SCALES], {"mode": "linear", "antialias": 1}),
    ("Resize", [f32(0, 2, 4, 5), None, SCALES], {"mode": "linear"}),
    ("Resize", [f32(4, 5), None, SCALES[2:]], {"mode": "cubic", "exclude_outside": 1, "antialias": 1}),
    ("Resize", [f32(4, 5), None, None, i64(3, 8)], {"mode": "cubic", "coordinate_transformation_mode": "asymmetric"}),
    ("Resize", [f32(4, 5), None, None, i64(3, 8)], {"keep_aspect_ratio_policy": "not_larger", "mode": "linear"}),
    ("Resize", [f32(4, 5), None, None, i64(7)], {"keep_aspect_ratio_policy": "not_smaller", "axes": [1]}),
    ("Resize", [np.array([[1, np.inf], [2, 3]], np.float32), None, SCALES[:2]], {"mode": "linear"}),
    ("Resize", [f32(4, 5), np.array([0.4, -0.6, 1.2, 0.8], np.float32), None, i64(3, 6)], {**CROP, "mode": "linear"}),
    ("Split", [f32(7, 2), i64(3, 4)], {"axis": 0}),
]
RESULTS = {
    "TopK": (TensorProto.FLOAT, TensorProto.INT64),
    "Split": (TensorProto.FLOAT, TensorProto.FLOAT),
    "Unique": (TensorProto.FLOAT, *[TensorProto.INT64] * 3),
}
RESULT = dict.fromkeys(("NonZero", "NonMaxSuppression"), TensorProto.INT64)


def element_type(array: Array) -> int:
    return helper.np_dtype_to_tensor_dtype(array.dtype)


def model_of(op: str, operands: list[Array | None], attributes: Mapping[str, Any]) -> ModelProto:
    """The operation with every operand an input."""
    given = {f"x{k}": a for k, a in enumerate(operands) if a is not None}
    inputs = [helper.make_tensor_value_info(n, element_type(a), a.shape) for n, a in given.items()]
    first = RESULT.get(
        op, element_type(operands[0]) if op == "Range" and operands[0] is not None else TensorProto.FLOAT
    )
    types = RESULTS.get(op, (first,))
    outputs = [helper.make_tensor_value_info(f"y{k}", t, None) for k, t in enumerate(types)]
    names = [f"x{k}" if a is not None else "" for k, a in enumerate(operands)]
    node = helper.make_node(op, names, [o.name for o in outputs], **attributes)
    graph = helper.make_graph([node], op, inputs, outputs)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=8)


@pytest.mark.parametrize(("op", "operands", "attributes"), CASES, ids=lambda x: x if isinstance(x, str) else None)
def test_c_gives_what_numpy_gives(
    tmp_path: Path, op: str, operands: list[Array | None], attributes: dict[str, Any]
) -> None:
    (tmp_path / "model.onnx").write_bytes(model_of(op, operands, attributes).SerializeToString())
    feeds = {f"x{k}": a for k, a in enumerate(operands) if a is not None}
    c, numpy = (irc.compile(tmp_path / "model.onnx", backend=b, cache=False) for b in ("c", "numpy"))
    for got, want in zip(c(feeds), numpy(feeds), strict=True):
        assert got.dtype == want.dtype and got.shape == want.shape
        np.testing.assert_allclose(got, want, rtol=1e-5)


def sines() -> ModelProto:
    """sin(0), sin(1), … less their mean, up to a number that is an input."""
    nodes = [
        helper.make_node("Range", ["zero", "n", "one"], ["r"]),
        helper.make_node("Cast", ["r"], ["f"], to=TensorProto.FLOAT),
        helper.make_node("Sin", ["f"], ["s"]),
        helper.make_node("ReduceMean", ["s"], ["m"], keepdims=1),
        helper.make_node("Sub", ["s", "m"], ["y"]),
    ]
    constants = [helper.make_tensor(n, TensorProto.INT64, [], [v]) for n, v in (("zero", 0), ("one", 1))]
    ends = (
        [helper.make_tensor_value_info("n", TensorProto.INT64, [])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)],
    )
    graph = helper.make_graph(nodes, "sines", *ends, constants)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=8)


def test_a_size_that_nothing_bounds_gets_memory_when_it_needs_it(tmp_path: Path) -> None:
    (tmp_path / "sines.onnx").write_bytes(sines().SerializeToString())
    compiled = irc.compile(tmp_path / "sines.onnx", backend="c")
    for n in (5, 600, 0, 10, 5000, 1):
        (y,) = compiled(scalar(n))
        x = np.sin(np.arange(n, dtype=np.float32))
        np.testing.assert_allclose(y, x - (x.mean() if n else 0), atol=1e-5)


def test_bound_buffers_get_memory_when_a_run_needs_it(tmp_path: Path) -> None:
    model = sines()
    model.graph.node.append(helper.make_node("ReduceMax", ["y"], ["top"], keepdims=0))
    model.graph.output[0].CopyFrom(helper.make_tensor_value_info("top", TensorProto.FLOAT, []))
    (tmp_path / "top.onnx").write_bytes(model.SerializeToString())
    n = scalar(3)
    call = irc.compile(tmp_path / "top.onnx", backend="c").bind([n])
    for size in (3, 2000, 7):
        n[...] = size
        x = np.sin(np.arange(size, dtype=np.float32))
        np.testing.assert_allclose(call()[0], (x - x.mean()).max(), atol=1e-5)


def test_a_bound_of_the_user_holds(tmp_path: Path) -> None:
    (tmp_path / "sines.onnx").write_bytes(sines().SerializeToString())
    compiled = irc.compile(tmp_path / "sines.onnx", backend="c", bounds={"r": 100})
    assert compiled(scalar(100))[0].shape == (100,)
    with pytest.raises(ValueError, match="IRC6108"):
        compiled(scalar(101))
    assert compiled(scalar(7))[0].shape == (7,)


def test_a_running_sum_along_an_axis_that_is_not_there_is_refused(tmp_path: Path) -> None:
    operands: list[Array | None] = [np.zeros((4, 6), np.float32), scalar(2)]
    (tmp_path / "model.onnx").write_bytes(model_of("CumSum", operands, {}).SerializeToString())
    compiled = irc.compile(tmp_path / "model.onnx", backend="c")
    with pytest.raises((ValueError, RunError)):
        compiled([a for a in operands if a is not None])


@pytest.mark.parametrize("shape", [(4, 7), (5, 6, 1), (1 << 40, 1), (-5, 6), (0, 0)])
def test_a_shape_of_another_size_is_refused(tmp_path: Path, shape: tuple[int, ...]) -> None:
    """Nothing is read beyond the operand, whatever sizes the data claim."""
    operands: list[Array | None] = [np.zeros((4, 6), np.float32), np.array(shape, np.int64)]
    (tmp_path / "model.onnx").write_bytes(model_of("Reshape", operands, {"allowzero": 1}).SerializeToString())
    compiled = irc.compile(tmp_path / "model.onnx", backend="c")
    with pytest.raises((ValueError, RunError)):
        compiled([a for a in operands if a is not None])
