"""What conversion writes for the options given, and what it refuses."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper
from onnx.reference import ReferenceEvaluator

import irc
from irc.border import support
from irc.diagnostics import ConversionError, Diagnostic
from irc.ir.dim import Dim
from irc.ir.graph import Graph, Model
from irc.ir.types import TensorType, f32, i64
from irc.opdef.builder import Builder, evaluate
from irc.opdef.forms import Declined
from irc.opdef.registry import FORMS, load_all
from irc.opdef.sizes import SizeBuilder
from tests.support.random_numbers import RANDOM


def model(path: Path, nodes: list[Any], inputs: dict[str, tuple[Any, ...]], opset: int, **constants: Any) -> Path:
    """An ONNX file with f32 inputs of these shapes and one output, y."""
    ports = [helper.make_tensor_value_info(n, TensorProto.FLOAT, list(s)) for n, s in inputs.items()]
    tensors = [onnx.numpy_helper.from_array(np.asarray(a), n) for n, a in constants.items()]
    out = helper.make_tensor_value_info("y", TensorProto.UNDEFINED, None)
    graph = helper.make_graph(nodes, "g", ports, [out], tensors)
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=8), path)
    return path


def run(path: Path, *arrays: Any) -> Any:
    return irc.compile(path, backend="numpy")(*arrays)[0]


@pytest.mark.parametrize(
    ("op", "x", "y", "written"),
    [
        ("Add", (2, 3), (2, 3), ["Add"]),
        ("Sub", (2, 3), (3,), ["Sub"]),
        ("Div", (2, 3), (), ["Div"]),
        ("Mul", (3,), (2, 3), ["Mul"]),  # swapped
        ("Sub", (3,), (2, 3), ["Unsqueeze", "Tile", "Sub"]),
        ("Less", (2, 1), (1, 3), ["Tile", "Tile", "Less"]),
    ],
)
def test_broadcasting_before_opset_7(tmp_path: Path, op: str, x: Any, y: Any, written: list[str]) -> None:
    source = model(tmp_path / "a.onnx", [helper.make_node(op, ["a", "b"], ["y"])], {"a": x, "b": y}, 13)
    irc.save(irc.load(source), tmp_path / "b.onnx", opset=6)
    back = onnx.load(tmp_path / "b.onnx")
    assert [n.op_type for n in back.graph.node] == written
    said = {a.name: a.i for a in back.graph.node[-1].attribute}
    assert said == ({"broadcast": 1} if len(written) == 1 and x != y else {})
    a, b = RANDOM.normal(size=x).astype(np.float32), RANDOM.normal(size=y).astype(np.float32)
    np.testing.assert_array_equal(run(tmp_path / "b.onnx", a, b), run(source, a, b))


@pytest.mark.parametrize(("c", "count"), [((4,), 1), ((2, 4), 1), ((1, 4), 2)])
def test_gemm_before_opset_7(tmp_path: Path, c: tuple[int, ...], count: int) -> None:
    bias = RANDOM.normal(size=c).astype(np.float32)
    node = helper.make_node("Gemm", ["a", "b", "c"], ["y"])
    source = model(tmp_path / "a.onnx", [node], {"a": (2, 3), "b": (3, 4), "c": c}, 13)
    irc.save(irc.load(source), tmp_path / "b.onnx", opset=6)
    assert len(onnx.load(tmp_path / "b.onnx").graph.node) == count
    a, b = RANDOM.normal(size=(2, 3)).astype(np.float32), RANDOM.normal(size=(3, 4)).astype(np.float32)
    np.testing.assert_allclose(run(tmp_path / "b.onnx", a, b, bias), a @ b + bias, rtol=1e-5)


def test_computed_axes_are_never_dropped(tmp_path: Path) -> None:
    nodes = [helper.make_node("Cast", ["n"], ["i"], to=7), helper.make_node("ReduceL1", ["x", "i"], ["y"], keepdims=0)]
    source = model(tmp_path / "a.onnx", nodes, {"x": (2, 3), "n": (1,)}, 18)
    irc.save(irc.load(source), tmp_path / "b.onnx", opset=17)
    x = np.array([[1, -2, 3], [-4, 5, 6]], np.float32)
    np.testing.assert_array_equal(run(tmp_path / "b.onnx", x, np.array([1], np.float32)), [6, 15])
    np.testing.assert_array_equal(run(tmp_path / "b.onnx", x, np.array([0], np.float32)), [5, 7, 9])
    with pytest.raises(ConversionError, match="needs ONNX opset 9; opset 7 was asked for"):
        irc.save(irc.load(source), tmp_path / "c.onnx", opset=7)


def test_symmetric_padding_of_the_run_is_not_written_as_parts(tmp_path: Path) -> None:
    graph = Graph("padded")
    b = Builder(graph)
    x, pads = graph.add_input("x", TensorType.of(f32, [4, 5])), graph.add_input("pads", TensorType.of(i64, [4]))
    graph.outputs = [b.Pad(x, pads, mode="symmetric")]
    with pytest.raises(ConversionError, match=r"IRC4005.*pads must be known before the model runs"):
        irc.save(Model(graph, "openvino", 11), tmp_path / "b.onnx")


def test_a_window_spelled_out_is_the_one_left_out(tmp_path: Path) -> None:
    """torch writes MaxPool with dilations=[1, 1], which opset 1 has no attribute for."""
    spelled = {"dilations": [1, 1], "strides": [1, 1], "pads": [0] * 4, "ceil_mode": 0, "storage_order": 0}
    node = helper.make_node("MaxPool", ["x"], ["y"], kernel_shape=[2, 2], auto_pad="NOTSET", **spelled)
    source = model(tmp_path / "a.onnx", [node], {"x": (1, 2, 4, 4)}, 12)
    for opset in (7, 8, 9, 10, 13):
        irc.save(irc.load(source), tmp_path / "b.onnx", opset=opset)
        (written,) = onnx.load(tmp_path / "b.onnx").graph.node
        assert (written.op_type == "MaxPool" and "dilations" not in {a.name for a in written.attribute}) or opset > 9
    irc.save(irc.load(source), tmp_path / "b.xml", for_openvino="2021.4")
    assert 'type="MaxPool" version="opset1"' in (tmp_path / "b.xml").read_text("utf-8")


def test_unknown_operations_stay_in_opsets_that_define_them_alike(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    load_all()
    monkeypatch.delitem(FORMS, ("onnx", "", "imagedecoder"))
    row = support.Unsupported("ImageDecoder", 20, "as if irc had no definition")
    monkeypatch.setattr(support, "unsupported", lambda: {("onnx", "", "imagedecoder"): row})
    node = helper.make_node("ImageDecoder", ["n"], ["y"])
    source = model(tmp_path / "a.onnx", [node], {"x": (1,)}, 20, n=np.zeros(8, np.uint8))
    irc.save(irc.load(source), tmp_path / "b.onnx", opset=22)
    assert onnx.load(tmp_path / "b.onnx").graph.node[0].op_type == "ImageDecoder"
    with pytest.raises(ConversionError, match="IRC4006"):
        irc.save(irc.load(source), tmp_path / "c.onnx", opset=19)


def test_window_attributes_are_spelt_out(tmp_path: Path) -> None:
    node = helper.make_node("AveragePool", ["x"], ["y"], kernel_shape=[2, 2])
    source = model(tmp_path / "a.onnx", [node], {"x": (1, 1, 4, 4)}, 13)
    irc.save(irc.load(source), tmp_path / "b.xml")
    text = (tmp_path / "b.xml").read_text()
    assert 'strides="1, 1"' in text and 'pads_begin="0, 0"' in text and 'pads_end="0, 0"' in text


def test_same_padding_of_dilated_windows_becomes_numbers(tmp_path: Path) -> None:
    node = helper.make_node("Conv", ["x", "w"], ["y"], auto_pad="SAME_UPPER", dilations=[2, 2])
    weights = RANDOM.normal(size=(1, 1, 3, 3)).astype(np.float32)
    source = model(tmp_path / "a.onnx", [node], {"x": (1, 1, "h", 6)}, 13, w=weights)
    irc.save(irc.load(source), tmp_path / "b.xml")
    irc.save(irc.load(tmp_path / "b.xml"), tmp_path / "c.onnx")
    said = {a.name: list(a.ints) for a in onnx.load(tmp_path / "c.onnx").graph.node[0].attribute}
    assert said["pads"] == [2, 2, 2, 2] and "auto_pad" not in said


@pytest.mark.parametrize("suffix", [".onnx", ".xml"])
def test_compression_leaves_single_numbers(tmp_path: Path, suffix: str) -> None:
    nodes = [helper.make_node("MatMul", ["x", "w"], ["m"]), helper.make_node("Add", ["m", "e"], ["y"])]
    weights = RANDOM.normal(size=(3, 4)).astype(np.float32)
    source = model(tmp_path / "a.onnx", nodes, {"x": (2, 3)}, 13, w=weights, e=np.float32(1e-12))
    irc.save(irc.load(source), tmp_path / f"b{suffix}", compress_fp16=True)
    kinds = sorted(str(c.dtype) for c in (v.const for v in irc.load(tmp_path / f"b{suffix}").graph.values()) if c)
    assert kinds == ["f16", "f32"]
    x = RANDOM.normal(size=(2, 3)).astype(np.float32)
    np.testing.assert_allclose(run(tmp_path / f"b{suffix}", x), x @ weights, rtol=1e-2, atol=1e-2)


def test_negative_indices_in_old_openvino(tmp_path: Path) -> None:
    nodes = [helper.make_node("Cast", ["n"], ["k"], to=7), helper.make_node("Gather", ["x", "k"], ["y"], axis=0)]
    source = model(tmp_path / "a.onnx", nodes, {"x": (4, 2), "n": (3,)}, 13)
    irc.save(irc.load(source), tmp_path / "b.xml", max_opset=7)
    text = (tmp_path / "b.xml").read_text()
    assert 'type="Select"' in text and "opset8" not in text
    x = RANDOM.normal(size=(4, 2)).astype(np.float32)
    np.testing.assert_array_equal(run(tmp_path / "b.xml", x, np.array([-1, 0, 2], np.float32)), x[[-1, 0, 2]])


@pytest.mark.parametrize("opset", [5, 8, 9])
def test_compression_in_old_opsets(tmp_path: Path, opset: int) -> None:
    """Cast took a name before opset 6; initializers were graph inputs before IR version 4 (opset 9)."""
    weights = RANDOM.normal(size=(3, 4)).astype(np.float32)
    source = model(tmp_path / "a.onnx", [helper.make_node("MatMul", ["x", "w"], ["y"])], {"x": (2, 3)}, 13, w=weights)
    irc.convert(source, tmp_path / "b.onnx", opset=opset, compress_fp16=True)
    onnx.checker.check_model(tmp_path / "b.onnx")
    x = RANDOM.normal(size=(2, 3)).astype(np.float32)
    np.testing.assert_allclose(run(tmp_path / "b.onnx", x), x @ weights, rtol=1e-2, atol=1e-2)


@pytest.mark.parametrize(
    ("name", "options", "codes"),
    [
        ("b.xml", {"opset": 17}, ["IRC6353"]),
        ("b.onnx", {"ir_version": 11, "max_opset": "opset8", "for_openvino": "2021.4"}, ["IRC6353"] * 3),
        ("b.onnx", {"opset": 0}, ["IRC6350"]),
        ("b.onnx", {"opset": 99}, ["IRC6350"]),
        ("b.onnx", {"opset": "17"}, ["IRC6350"]),
        ("b.xml", {"ir_version": 9}, ["IRC6350"]),
        ("b.xml", {"max_opset": "8", "for_openvino": "2019.3"}, ["IRC6350"] * 2),
        ("b.xml", {"max_opset": "opset99"}, ["IRC6350"]),
        ("b.xml", {"ir_version": 11, "for_openvino": "2021.4"}, ["IRC6350"]),
        ("b.pb", {}, ["IRC6350"]),
    ],
)
def test_options_that_cannot_be_obeyed_are_refused(
    tmp_path: Path, name: str, options: dict[str, Any], codes: list[str]
) -> None:
    source = model(tmp_path / "a.onnx", [helper.make_node("Relu", ["x"], ["y"])], {"x": (2, 3)}, 13)
    with pytest.raises(ConversionError) as error:
        irc.convert(source, tmp_path / name, **options)
    assert [d.code for d in error.value.diagnostics] == codes
    assert [f.name for f in tmp_path.iterdir()] == ["a.onnx"]


@pytest.mark.parametrize(
    ("options", "version", "newest"),
    [
        ({}, 11, 8),
        ({"max_opset": "opset7"}, 11, 1),
        ({"max_opset": 7}, 11, 1),
        ({"for_openvino": "2021.4"}, 10, 1),
        ({"for_openvino": "2022.1.2", "ir_version": 10}, 10, 8),
    ],
)
def test_options_of_openvino(tmp_path: Path, options: dict[str, Any], version: int, newest: int) -> None:
    """Softmax has been in opset 8, for negative axes, besides opset 1."""
    source = model(tmp_path / "a.onnx", [helper.make_node("Softmax", ["x"], ["y"], axis=-1)], {"x": (2, 3)}, 13)
    irc.convert(source, tmp_path / "b.xml", **options)
    text = (tmp_path / "b.xml").read_text()
    assert f'<net name="g" version="{version}"' in text
    assert max(int(n) for n in re.findall(r'version="opset(\d+)"', text)) == newest
    x = RANDOM.normal(size=(2, 3)).astype(np.float32)
    np.testing.assert_array_equal(run(tmp_path / "b.xml", x), run(source, x))


def pooled(second: bool, size: str = "6") -> onnx.ModelProto:
    outputs, results = ("y, i", ", int64[1,2,?,?] i") if second else ("y", "")
    return onnx.parser.parse_model(
        f'<ir_version: 8, opset_import: ["" : 17]> m (float[1,2,{size},{size}] x) => (float[1,2,?,?] y'
        f"{results}) {{ {outputs} = MaxPool <kernel_shape = [2, 2], strides = [2, 2]> (x) }}"
    )


def test_a_version_without_the_second_result(tmp_path: Path) -> None:
    irc.convert(pooled(False), tmp_path / "b.onnx", opset=7)
    back = onnx.load(tmp_path / "b.onnx")
    onnx.checker.check_model(back, full_check=True)
    assert [list(n.output) for n in back.graph.node] == [["y"]]
    irc.convert(pooled(False), tmp_path / "b.xml", max_opset="opset1")
    layer = (tmp_path / "b.xml").read_text().partition('type="MaxPool"')[2].partition("</layer>")[0]
    assert layer.partition("<output>")[2].count("<port ") == 1
    x = RANDOM.normal(size=(1, 2, 6, 6)).astype(np.float32)
    np.testing.assert_array_equal(run(tmp_path / "b.xml", x), run(tmp_path / "b.onnx", x))


def test_a_second_result_that_is_used_needs_a_version_with_it(tmp_path: Path) -> None:
    for target, options in (("b.onnx", {"opset": 7}), ("b.xml", {"max_opset": "opset1"})):
        with pytest.raises(ConversionError, match=r"opset ?8"):
            irc.convert(pooled(True, "n"), tmp_path / target, **options)


HEADER = '<ir_version: 10, opset_import: ["": 23]>'
SYMBOLIC = {
    "GroupNormalization": """g (float[n,4,w] x, float[4] s, float[4] b) => (float[n,4,w] y) {
        y = GroupNormalization <num_groups = 2> (x, s, b) }""",
    "Attention": """g (float[n,s,32] q, float[n,t,32] k, float[n,t,32] v) => (float[n,s,32] y) {
        y = Attention <q_num_heads = 4, kv_num_heads = 4> (q, k, v) }""",
    "LSTM": """g (float[t,n,6] x, float[1,16,6] w, float[1,16,4] r) => (float[t,1,n,4] y) {
        y = LSTM <hidden_size = 4> (x, w, r) }""",
    "Dropout": "g (float[n,8] x) => (float[n,8] y, bool[n,8] m) { y, m = Dropout (x) }",
}


@pytest.mark.parametrize("target", ["onnx 13", "onnx 17", "xml"])
@pytest.mark.parametrize("name", SYMBOLIC)
def test_sizes_that_vary_are_computed_from_shapes(name: str, target: str, tmp_path: Path) -> None:
    """Operations whose replacement needs a size: one written model serves every size."""
    source = onnx.parser.parse_model(HEADER + SYMBOLIC[name])
    suffix, _, opset = target.partition(" ")
    written = tmp_path / f"m.{suffix}"
    irc.convert(source, written, **({"opset": int(opset)} if opset else {}))
    a, b = (irc.compile(m, backend="numpy", cache=False) for m in (source, written))
    for n, t, s, w in ((1, 2, 3, 4), (3, 5, 1, 6)):
        sizes = {"n": n, "t": t, "s": s, "w": w}
        shapes = [[sizes.get(d, d) for d in port.shape] for port in a.inputs]
        arrays = [RANDOM.normal(size=shape).astype(np.float32) for shape in shapes]
        for got, want in zip(b(*arrays), a(*arrays), strict=True):
            np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-6)


def test_sizes_by_arithmetic() -> None:
    """Every kind of a size, at sizes for which rounding down and up differ."""
    graph = Graph()
    n, m = Dim.symbol("n"), Dim.symbol("m")
    graph.add_input("x", TensorType.of(f32, [n, m]))
    sizes = [n, m * 2 + 3, n * m - 1, n // 2, (n - 7) // 2, (n + m).ceildiv(3), n % 3]
    sizes += [n.minimum(m), n.maximum(5), Dim.of(4)]
    graph.outputs = [SizeBuilder(graph).dims(sizes)]
    (x,) = graph.inputs
    assert "DimVector" not in {node.op.name for node in graph.nodes}
    for a, b in ((5, 2), (2, 5), (8, 8)):
        (found,) = evaluate(graph, {x: np.zeros((a, b), np.float32)})
        assert found.tolist() == [size.evaluate({"n": a, "m": b}) for size in sizes]
    with pytest.raises(Declined):
        SizeBuilder(graph).dims([Dim.symbol("k")])


# ------------------------------------------------------------------------- without a file
def test_a_message_is_what_a_file_would_be(tmp_path: Path) -> None:
    source = model(tmp_path / "a.onnx", [helper.make_node("Add", ["a", "b"], ["y"])], {"a": (2, 3), "b": (3,)}, 13)
    for options in ({}, {"opset": 17}, {"compress_fp16": True}):
        irc.save(irc.load(source), tmp_path / "b.onnx", **options)
        assert irc.to_onnx(irc.load(source), **options) == onnx.load(tmp_path / "b.onnx")


def test_a_message_has_the_findings_of_a_file(tmp_path: Path) -> None:
    source = model(tmp_path / "a.onnx", [helper.make_node("Gelu", ["a"], ["y"])], {"a": (2, 3)}, 20)
    with pytest.raises(ConversionError) as said:
        irc.to_onnx(irc.load(source), opset=99)
    assert [d.code for d in said.value.diagnostics] == ["IRC6350"]


def test_a_message_has_the_notes_of_a_file(tmp_path: Path) -> None:
    """And both have what the target format has no place for."""
    source = model(tmp_path / "a.onnx", [helper.make_node("Relu", ["a"], ["y"])], {"a": ("n", 3)}, 17)
    assert [d.code for d in irc.convert(source, tmp_path / "b.xml", for_openvino="2021.4")] == ["IRC4906", "IRC4911"]
    loaded = irc.load(tmp_path / "b.xml")
    loaded.graph.inputs[0].names = ("a", "second")
    found: list[Diagnostic] = []
    irc.to_onnx(loaded, notes=found)
    assert [d.message for d in found] == ["ONNX has no place for further names of tensors"]


def test_outputs_that_are_constants_keep_their_names(tmp_path: Path) -> None:
    """Also beside their uses; and a graph without a name gets one, which ONNX's checker wants."""
    text = """m (float[2] x) => (float[2] k, float[2] y) <float[2] k = {1, 2}> { y = Add(x, k) }"""
    model = onnx.parser.parse_model(f'<ir_version: 8, opset_import: ["" : 17]> {text}')
    model.graph.name = ""
    irc.save(irc.load(model), tmp_path / "m.xml")
    back = irc.to_onnx(irc.load(tmp_path / "m.xml"))
    onnx.checker.check_model(back)
    assert [v.name for v in back.graph.output] == ["k", "y"]
    k, y = ReferenceEvaluator(back).run(None, {"x": np.ones(2, np.float32)})
    assert k.tolist() == [1, 2] and y.tolist() == [2, 3]
