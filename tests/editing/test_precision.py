"""`compress_fp16` and `to`: narrower weights, or narrower graphs, that both engines load and compute."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

import irc
from irc.ir.types import bf16, f16, f32
from tests.support.random_numbers import RANDOM

node = helper.make_node
MASK = np.float32(-3e38)


def model(nodes: list[Any], opset: int = 17, **constants: Any) -> onnx.ModelProto:
    """A model from x, 2 by 4 by 6, to y."""
    tensors = [onnx.numpy_helper.from_array(np.asarray(a), n) for n, a in constants.items()]
    ports = [helper.make_tensor_value_info(n, TensorProto.FLOAT, s) for n, s in (("x", [2, 4, 6]), ("y", None))]
    graph = helper.make_graph(nodes, "g", ports[:1], ports[1:], tensors)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=8)


def weights(*shape: int) -> Any:
    return (RANDOM.normal(size=shape) / 4).astype(np.float32)


def product() -> onnx.ModelProto:
    return model([node("MatMul", ["x", "w"], ["p"], "product"), node("Relu", ["p"], ["y"])], w=weights(6, 5))


def onnxruntime(given: bytes | Path, x: Any) -> Any:
    """The output, in f32; bf16 arrays have no type in NumPy."""
    ort = pytest.importorskip("onnxruntime")
    session = ort.InferenceSession(given if isinstance(given, bytes) else str(given))
    code = {"tensor(float)": 1, "tensor(float16)": 10, "tensor(bfloat16)": 16}[session.get_inputs()[0].type]
    if code != 16:
        array = x.astype(np.float32 if code == 1 else np.float16)
        return session.run(None, {"x": array})[0].astype(np.float32)
    value = ort.OrtValue.ortvalue_from_numpy_with_onnx_type(x.astype(ml_dtypes.bfloat16).view(np.uint16), 16)
    (result,) = session.run_with_ort_values(None, {"x": value})
    assert result.data_type() == "tensor(bfloat16)"
    return None


def openvino(path: Path, x: Any) -> Any:
    ov = pytest.importorskip("openvino")
    core = ov.Core()
    compiled = core.compile_model(core.read_model(str(path)), "CPU", {"INFERENCE_PRECISION_HINT": "f32"})
    if compiled.input(0).get_element_type() != ov.Type.bf16:
        given = x.astype(compiled.input(0).get_element_type().to_dtype())
        return np.asarray(compiled([given])[0], np.float32)
    narrow = x.astype(ml_dtypes.bfloat16)
    request = compiled.create_infer_request()
    request.infer({0: ov.Tensor(narrow.view(np.uint16), ov.Shape(x.shape), ov.Type.bf16)})
    return request.get_output_tensor(0).data.view(ml_dtypes.bfloat16).astype(np.float32)


def written(tmp_path: Path, source: onnx.ModelProto, tolerance: float, **options: Any) -> list[Any]:
    """Convert to both formats and from IR back, and compare both engines; the notes of ONNX."""
    x = RANDOM.normal(size=(2, 4, 6)).astype(np.float16).astype(np.float32)
    expected = onnxruntime(source.SerializeToString(), x)
    irc.convert(source, tmp_path / "plain.xml")
    notes = irc.convert(source, tmp_path / "a.onnx", **options)
    irc.convert(tmp_path / "plain.xml", tmp_path / "b.onnx", **options)
    irc.convert(source, tmp_path / "c.xml", **options)
    irc.convert(tmp_path / "plain.xml", tmp_path / "d.xml", **options)
    for path in (tmp_path / "a.onnx", tmp_path / "b.onnx"):
        onnx.checker.check_model(path, full_check=True)
        got = onnxruntime(path, x)
        if got is not None:
            np.testing.assert_allclose(got, expected, rtol=tolerance, atol=tolerance)
    for name in ("a.onnx", "b.onnx", "c.xml", "d.xml"):
        np.testing.assert_allclose(openvino(tmp_path / name, x), expected, rtol=tolerance, atol=tolerance)
    return notes


def types(path: Path) -> list[Any]:
    """The element types of input, output and constants of more than one number."""
    graph = irc.load(path).graph
    constants = {v.const.dtype for v in graph.constants() if v.const is not None and np.prod(v.const.shape) > 1}
    return [graph.inputs[0].dtype, graph.outputs[0].dtype, constants - {d for d in constants if not d.is_float}]


@pytest.mark.parametrize("opset", [5, 8, 13, 21])
def test_a_whole_graph_in_f16(tmp_path: Path, opset: int) -> None:
    assert written(tmp_path, product(), 1e-2, to="f16") == []
    assert types(tmp_path / "a.onnx") == types(tmp_path / "d.xml") == [f16, f16, {f16}]
    assert [n.op_type for n in onnx.load(tmp_path / "a.onnx").graph.node] == ["MatMul", "Relu"]
    irc.convert(product(), tmp_path / "old.onnx", opset=opset, to="f16")
    onnx.checker.check_model(tmp_path / "old.onnx")
    assert irc.load(tmp_path / "old.onnx").graph.outputs[0].dtype == f16


def test_a_whole_graph_in_bf16(tmp_path: Path) -> None:
    """ONNX Runtime has conversions of bf16 on CPUs and nothing else."""
    (note,) = written(tmp_path, product(), 5e-2, to="bf16")
    assert note.code == "IRC4008" and 'MatMul "product"' in note.message and "bf16" in note.message
    for name in ("a.onnx", "b.onnx", "c.xml", "d.xml"):
        assert types(tmp_path / name) == [bf16, bf16, {bf16}]
    assert "Convert" not in (tmp_path / "c.xml").read_text()
    with pytest.raises(irc.ConversionError, match="IRC4003"):
        irc.convert(product(), tmp_path / "old.onnx", opset=12, to="bf16")
    assert not (tmp_path / "old.onnx").exists()


def test_numbers_beyond_f16_stay_until_they_are_bounded(tmp_path: Path) -> None:
    nodes = [
        node("Greater", ["x", "zero"], ["c"]),
        node("Where", ["c", "x", "mask"], ["m"], "masked"),
        node("Add", ["m", "x"], ["s"], "sum"),
        node("Softmax", ["s"], ["p"], "softmax", axis=-1),
        node("MatMul", ["p", "w"], ["y"], "product"),
    ]
    notes = written(tmp_path, model(nodes, zero=np.float32(0), mask=MASK, w=weights(6, 3)), 1e-2, to="f16")
    text = "\n".join(n.message for n in notes)
    assert all(name in text for name in ('"masked"', '"sum"', '"softmax"', '"mask"')) and '"product"' not in text
    assert types(tmp_path / "a.onnx")[2] == {f16}


def test_an_epsilon_protects_its_division(tmp_path: Path) -> None:
    nodes = [
        node("Sub", ["x", "x"], ["d"]),
        node("Add", ["d", "eps"], ["e"], "plus"),
        node("Sqrt", ["e"], ["r"]),
        node("Div", ["d", "r"], ["q"], "quotient"),
        node("Add", ["q", "x"], ["y"], "last"),
    ]
    (first, second) = written(tmp_path, model(nodes, eps=np.float32(1e-12)), 1e-2, to="f16")
    assert '"plus"' in first.message and '"quotient"' in first.message and '"last"' not in first.message
    assert 'constant "eps"' in second.message


def test_sizes_and_scales_stay(tmp_path: Path) -> None:
    nodes = [
        node("Shape", ["x"], ["n"]),
        node("Cast", ["n"], ["nf"], "sizes", to=1),
        node("Mul", ["nf", "two"], ["n2"]),
        node("Cast", ["n2"], ["big"], to=7),
        node("Expand", ["one", "big"], ["e"]),
        node("Resize", ["x", "", "scales"], ["r"], "resize", mode="linear"),
        node("Add", ["e", "r"], ["y"]),
    ]
    constants = {"two": np.array([1, 1, 2], np.float32), "one": np.float32(1)}
    source = model(nodes, scales=np.array([1, 1, 2], np.float32), **constants)
    irc.convert(source, tmp_path / "a.onnx", to="f16")
    resize = next(n for n in onnx.load(tmp_path / "a.onnx").graph.node if n.op_type == "Resize")
    scales = next(t for t in onnx.load(tmp_path / "a.onnx").graph.initializer if t.name == resize.input[2])
    assert scales.data_type == TensorProto.FLOAT
    x = RANDOM.normal(size=(2, 4, 6)).astype(np.float32)
    got = onnxruntime(tmp_path / "a.onnx", x)
    np.testing.assert_allclose(got, onnxruntime(source.SerializeToString(), x), rtol=1e-2, atol=1e-2)


def test_operators_without_the_type_and_bodies_stay(tmp_path: Path) -> None:
    """RoiAlign of opset 10 and 16 takes f16; NonMaxSuppression never does.  A body uses its captures in f32."""
    then = helper.make_graph(
        [node("Mul", ["h", "factor"], ["t"])], "then", [], [helper.make_tensor_value_info("t", 1, None)]
    )
    other = helper.make_graph([node("Neg", ["h"], ["o"])], "else", [], [helper.make_tensor_value_info("o", 1, None)])
    nodes = [
        node("Relu", ["x"], ["h"]),
        node("ReduceSum", ["x"], ["s"], keepdims=0),
        node("Greater", ["s", "zero"], ["c"]),
        node("If", ["c"], ["b"], "branch", then_branch=then, else_branch=other),
        node("Add", ["b", "h"], ["y"]),
    ]
    source = model(nodes, zero=np.float32(0), factor=np.float32(3))
    (note,) = irc.convert(source, tmp_path / "a.onnx", to="f16")
    assert 'If "branch"' in note.message
    onnx.checker.check_model(tmp_path / "a.onnx", full_check=True)
    for x in (np.ones((2, 4, 6), np.float32), -np.ones((2, 4, 6), np.float32)):
        np.testing.assert_array_equal(onnxruntime(tmp_path / "a.onnx", x), onnxruntime(source.SerializeToString(), x))
    irc.convert(source, tmp_path / "a.xml", to="f16")
    np.testing.assert_array_equal(openvino(tmp_path / "a.xml", x), onnxruntime(source.SerializeToString(), x))


def test_a_transposed_batch_in_front_of_a_product(tmp_path: Path) -> None:
    """ONNX Runtime 1.32 crashes on this in f16."""
    nodes = [node("Transpose", ["x"], ["t"], "moved", perm=[1, 0, 2]), node("MatMul", ["t", "w"], ["y"])]
    notes = written(tmp_path, model(nodes, w=weights(6, 5)), 1e-2, to="f16")
    assert len(notes) == 1 and '"moved"' in notes[0].message


def test_conversions_that_say_nothing_any_more_go(tmp_path: Path) -> None:
    """Weights that are stored as f16 already, and floats made of integers."""
    irc.convert(product(), tmp_path / "packed.onnx", compress_fp16=True)
    irc.convert(tmp_path / "packed.onnx", tmp_path / "a.onnx", to="f16")
    assert [n.op_type for n in onnx.load(tmp_path / "a.onnx").graph.node] == ["MatMul", "Relu"]
    nodes = [node("Cast", ["x"], ["i"], to=7), node("Cast", ["i"], ["f"], to=1), node("Add", ["f", "x"], ["y"])]
    assert written(tmp_path, model(nodes), 1e-2, to="f16") == []
    assert [n.op_type for n in onnx.load(tmp_path / "a.onnx").graph.node] == ["Cast", "Cast", "Add"]


def test_compressed_weights(tmp_path: Path) -> None:
    """OpenVINO sees how the conversions are marked; weights out of range, of Constant nodes too, are f32 still."""
    ov = pytest.importorskip("openvino")
    large = weights(5, 3)
    large[0, 0] = 1e5
    nodes = [
        node("Constant", [], ["w"], value=onnx.numpy_helper.from_array(weights(6, 5))),
        node("MatMul", ["x", "w"], ["p"]),
        node("MatMul", ["p", "large"], ["y"]),
    ]
    (note,) = written(tmp_path, model(nodes, large=large), 2e-2, compress_fp16=True)
    assert note.code == "IRC4008" and '"large"' in note.message
    assert types(tmp_path / "a.onnx") == [f32, f32, {f16, f32}]
    converts = [op for op in ov.Core().read_model(str(tmp_path / "c.xml")).get_ops() if op.get_type_name() == "Convert"]
    assert [list(op.get_rt_info()) for op in converts] == [["decompression_0"]]


def test_options(tmp_path: Path) -> None:
    loaded = irc.load(product())
    for options in ({"to": "f8"}, {"to": "f16", "compress_fp16": True}):
        with pytest.raises(irc.ConversionError, match="IRC6350"):
            irc.save(loaded, tmp_path / "a.onnx", **options)
    proto = irc.to_onnx(loaded, to="f16", shapes={"x": (3, 4, 6)}, simplify=True)
    said = proto.graph.input[0].type.tensor_type
    assert said.elem_type == TensorProto.FLOAT16 and said.shape.dim[0].dim_value == 3
