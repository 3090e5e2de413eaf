"""`for_openvino` before 2022.1: what such a release reads, and computes right."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import numpy as np
import pytest
from numpy.typing import NDArray
from onnx import ModelProto, NodeProto, TensorProto, helper, numpy_helper

import irc
from irc.diagnostics import ConversionError

OLD = "2021.4"


def model(
    nodes: Sequence[NodeProto], shape: Sequence[int | str], constants: dict[str, NDArray[Any]] | None = None
) -> ModelProto:
    """A model from x, an f32 of that shape, to y."""
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, shape)
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, None)
    weights = [numpy_helper.from_array(v, k) for k, v in (constants or {}).items()]
    graph = helper.make_graph(nodes, "g", [x], [y], weights)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=8)


def layers(path: Path) -> list[tuple[str, str, dict[str, str]]]:
    """Type, operation set and attributes of every layer that computes."""
    found: list[tuple[str, str, dict[str, str]]] = []
    for layer in ElementTree.parse(path).iter("layer"):
        data = layer.find("data")
        if layer.attrib["type"] not in ("Const", "Parameter", "Result"):
            found.append((layer.attrib["type"], layer.attrib["version"], {} if data is None else data.attrib))
    return found


def retargeted(source: ModelProto, folder: Path) -> Path:
    """The model for the old release, which computes what the model does."""
    path = folder / "old.xml"
    irc.convert(source, path, for_openvino=OLD)
    x = source.graph.input[0].type.tensor_type.shape
    a = np.random.default_rng(0).standard_normal([d.dim_value or 2 for d in x.dim]).astype(np.float32)
    for one, other in zip(irc.compile(source, backend="numpy")(a), irc.compile(path, backend="numpy")(a), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-5, atol=1e-6)
    openvino = pytest.importorskip("openvino")
    compiled = openvino.Core().compile_model(str(path), "CPU", {"INFERENCE_PRECISION_HINT": "f32"})
    np.testing.assert_allclose(compiled(a)[0], irc.compile(source, backend="numpy")(a)[0], rtol=1e-4, atol=1e-5)
    return path


@pytest.mark.parametrize(
    ("size", "window", "rounding"),
    [
        ((27, 27), {"kernel_shape": [3, 3], "strides": [2, 2]}, "floor"),  # nothing is left over
        ((28, 28), {"kernel_shape": [3, 3], "strides": [2, 2]}, "ceil"),
        ((8, 8), {"kernel_shape": [1, 2], "strides": [5, 5]}, "floor"),
        ((7, 7), {"kernel_shape": [2, 2], "strides": [2, 2], "pads": [1, 0, 1, 0]}, "floor"),  # an axis of each kind
    ],
)
@pytest.mark.parametrize("kind", ["MaxPool", "AveragePool"])
def test_rounding_of_torch(
    tmp_path: Path, kind: str, size: tuple[int, ...], window: dict[str, Any], rounding: str
) -> None:
    node = helper.make_node(kind, ["x"], ["y"], ceil_mode=1, **window)
    ((_, opset, attributes),) = layers(retargeted(model([node], (1, 3, *size)), tmp_path))
    assert opset == "opset1"
    assert attributes["rounding_type"] == (rounding if kind == "MaxPool" else "floor")


def test_constant_in_front_of_a_row(tmp_path: Path) -> None:
    """OpenVINO 2021.4 leaves out such a constant where it joins along axis 1 of one row."""
    rng = np.random.default_rng(1)
    source = model(
        [helper.make_node("Relu", ["x"], ["r"]), helper.make_node("Concat", ["c", "r"], ["y"], axis=1)],
        (1, 6, 4),
        {"c": rng.random((1, 2, 4), np.float32)},
    )
    found = {kind: attributes for kind, _, attributes in layers(retargeted(source, tmp_path))}
    assert found["Concat"]["axis"] == "0" and "Unsqueeze" in found
    irc.convert(source, tmp_path / "new.xml")
    irc.convert(tmp_path / "new.xml", tmp_path / "newer.xml", for_openvino="2022.1")
    assert [kind for kind, _, _ in layers(tmp_path / "newer.xml")] == ["ReLU", "Concat"]
    irc.convert(tmp_path / "new.xml", tmp_path / "old.xml", for_openvino=OLD)
    assert {kind for kind, _, _ in layers(tmp_path / "old.xml")} == {"ReLU", "Squeeze", "Concat", "Unsqueeze"}


def test_sizes_of_the_run(tmp_path: Path) -> None:
    """The old reader takes -1 in a Parameter and nothing negative in a port; irc reads both."""
    source = model([helper.make_node("Relu", ["x"], ["y"])], ("n", 3))
    path = retargeted(source, tmp_path)
    text = path.read_text("utf-8")
    assert 'shape="-1,3"' in text and "<dim>-1</dim>" not in text
    assert not [d for d in irc.validate(path) if d.severity == "error"]


@pytest.mark.parametrize(("kind", "attributes"), [("Add", 'auto_broadcast="pdpd"'), ("Xor", 'auto_broadcast="numpy"')])
def test_layers_that_old_devices_refuse(tmp_path: Path, kind: str, attributes: str) -> None:
    element, precision = ("f32", "FP32") if kind == "Add" else ("boolean", "BOOL")
    axis = 'auto_broadcast.auto_broadcast_axis="1" ' if kind == "Add" else ""
    port = f'precision="{precision}"'
    large, small = "<dim>2</dim><dim>3</dim><dim>4</dim>", "<dim>3</dim><dim>4</dim>"
    (tmp_path / "m.xml").write_text(
        f"""<?xml version="1.0"?>
<net name="m" version="11"><layers>
<layer id="0" name="a" type="Parameter" version="opset1"><data shape="2,3,4" element_type="{element}" />
<output><port id="0" {port} names="a">{large}</port></output></layer>
<layer id="1" name="b" type="Parameter" version="opset1"><data shape="3,4" element_type="{element}" />
<output><port id="0" {port} names="b">{small}</port></output></layer>
<layer id="2" name="op" type="{kind}" version="opset1"><data {attributes} {axis}/>
<input><port id="0" {port}>{large}</port><port id="1" {port}>{small}</port></input>
<output><port id="2" {port} names="y">{large}</port></output></layer>
<layer id="3" name="r" type="Result" version="opset1"><input><port id="0" {port}>{large}</port></input></layer>
</layers><edges>
<edge from-layer="0" from-port="0" to-layer="2" to-port="0" />
<edge from-layer="1" from-port="0" to-layer="2" to-port="1" />
<edge from-layer="2" from-port="2" to-layer="3" to-port="0" /></edges></net>""",
        "utf-8",
    )
    irc.convert(tmp_path / "m.xml", tmp_path / "old.xml", for_openvino=OLD)
    for written, _, found in layers(tmp_path / "old.xml"):
        assert written != "Xor" and found.get("auto_broadcast") != "pdpd"


def test_element_types_that_came_later(tmp_path: Path) -> None:
    source = model(
        [helper.make_node("CastLike", ["x", "f"], ["z"]), helper.make_node("Cast", ["z"], ["y"], to=1)], (4,)
    )
    source.graph.initializer.append(helper.make_tensor("f", TensorProto.FLOAT8E4M3FN, [1], [1.0]))
    source.opset_import[0].version, source.ir_version = 21, 10
    irc.convert(source, tmp_path / "new.xml")
    with pytest.raises(ConversionError, match=r"IRC4007|IRC4003"):
        irc.convert(source, tmp_path / "old.xml", for_openvino=OLD)
    assert sorted(f.name for f in tmp_path.iterdir()) == ["new.bin", "new.xml"]


POOLS: dict[str, dict[str, Any]] = {
    "plain": {"kernel_shape": [3, 3], "strides": [2, 2], "pads": [1, 0, 1, 1]},
    "dilated": {"kernel_shape": [2, 3], "dilations": [2, 1], "strides": [1, 2]},
    "columns": {"kernel_shape": [2, 2], "storage_order": 1},
}


@pytest.mark.parametrize("used", [0, 1])
@pytest.mark.parametrize("fields", POOLS.values(), ids=POOLS)
def test_places_and_dilations_of_pools(fields: dict[str, Any], used: int, tmp_path: Path) -> None:
    """Before version 8 there are neither."""
    pool = helper.make_node("MaxPool", ["x"], ["pooled", "places"], **fields)
    cast = helper.make_node("Cast", [("pooled", "places")[used]], ["y"], to=TensorProto.FLOAT)
    found = [name for name, _, _ in layers(retargeted(model([pool, cast], (2, 3, 7, 9)), tmp_path))]
    assert ("ReduceMin" in found) == bool(used)


@pytest.mark.parametrize(
    ("shape", "node"),
    [
        ((1, 8, 1), helper.make_node("DFT", ["x"], ["z"], axis=1, onesided=1)),
        ((2, 7, 1), helper.make_node("DFT", ["x"], ["z"], axis=1)),
        ((3, 4), helper.make_node("IsInf", ["x"], ["z"], detect_negative=0)),
        ((3, 4), helper.make_node("Einsum", ["x"], ["z"], equation="ij->ji")),
    ],
    ids=lambda value: value.op_type if isinstance(value, NodeProto) else "",
)
def test_operations_that_came_later(shape: tuple[int, ...], node: NodeProto, tmp_path: Path) -> None:
    opset = model([node, helper.make_node("Cast", ["z"], ["y"], to=TensorProto.FLOAT)], shape)
    retargeted(opset, tmp_path)


@pytest.mark.parametrize("signal", [8, 9, 12])
def test_real_transforms_of_pairs(signal: int, tmp_path: Path) -> None:
    """Opset7 has transforms of pairs only."""
    ports = '<port id="0" precision="FP32"><dim>2</dim><dim>5</dim><dim>2</dim></port>'
    made = {"axes": [1], "size": [signal]}
    (tmp_path / "m.bin").write_bytes(b"".join(np.array(v, np.int64).tobytes() for v in made.values()))
    constants = "".join(
        f'<layer id="{i}" name="{name}" type="Const" version="opset1"><data element_type="i64" shape="1"'
        f' offset="{8 * i - 8}" size="8"/><output><port id="0" precision="I64"><dim>1</dim></port></output></layer>'
        for i, name in enumerate(made, 1)
    )
    port = '<port id="{}"><dim>1</dim></port>'
    (tmp_path / "m.xml").write_text(
        '<net name="n" version="11"><layers><layer id="0" name="x" type="Parameter" version="opset1">'
        f'<data shape="2,5,2" element_type="f32"/><output>{ports}</output></layer>{constants}'
        f'<layer id="3" name="y" type="IRDFT" version="opset9"><input>{ports}{port.format(1)}{port.format(2)}</input>'
        f'<output><port id="3" precision="FP32"><dim>2</dim><dim>{signal}</dim></port></output></layer>'
        '<layer id="4" name="r" type="Result" version="opset1">'
        f'<input><port id="0"><dim>2</dim><dim>{signal}</dim></port></input></layer></layers><edges>'
        '<edge from-layer="0" from-port="0" to-layer="3" to-port="0"/><edge from-layer="1" from-port="0" to-layer="3" '
        'to-port="1"/><edge from-layer="2" from-port="0" to-layer="3" to-port="2"/><edge from-layer="3" from-port="3" '
        'to-layer="4" to-port="0"/></edges></net>'
    )
    irc.convert(tmp_path / "m.xml", tmp_path / "old.xml", max_opset="opset7")
    assert not {name for name, _, _ in layers(tmp_path / "old.xml")} & {"IRDFT", "RDFT"}
    x = np.random.default_rng(1).standard_normal((2, 5, 2)).astype(np.float32)
    (got,) = irc.compile(tmp_path / "old.xml", backend="numpy")(x)
    want = np.fft.irfft(x[..., 0] + 1j * x[..., 1], signal, axis=1)
    np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("ratio", [2, 0])
def test_the_largest_of_samples(tmp_path: Path, ratio: int) -> None:
    """OpenVINO 2021.4 takes the largest of the weighted elements around them, and 0."""
    regions = np.array([[0, 0, 5, 4], [-3, 1, 2, 9]], np.float32)
    constants: dict[str, NDArray[Any]] = {"regions": regions, "images": np.array([0, 0])}
    attributes = {"output_height": 2, "output_width": 3, "coordinate_transformation_mode": "output_half_pixel"}
    node = helper.make_node("RoiAlign", ["x", "regions", "images"], ["y"], sampling_ratio=ratio, **attributes)
    irc.convert(model([node], [1, 2, 6, 5], constants), tmp_path / "a.xml")
    text = (tmp_path / "a.xml").read_text()
    (tmp_path / "a.xml").write_text(text.replace('mode="avg"', 'mode="max"'))
    if not ratio:
        with pytest.raises(ConversionError, match=r"IRC4002.*sampling_ratio is 0"):
            irc.convert(tmp_path / "a.xml", tmp_path / "old.xml", for_openvino=OLD)
        return
    irc.convert(tmp_path / "a.xml", tmp_path / "old.xml", for_openvino=OLD)
    written = layers(tmp_path / "old.xml")
    assert [(name, data.get("mode")) for name, _, data in written] == [
        ("ROIAlign", "avg"),
        ("MaxPool", None),
        ("ReLU", None),
    ]
    x = np.random.default_rng(0).standard_normal((1, 2, 6, 5)).astype(np.float32)
    one, other = (irc.compile(tmp_path / name, backend="numpy")(x)[0] for name in ("a.xml", "old.xml"))
    np.testing.assert_allclose(other, one, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(
    ("to", "wanted"),
    [
        (TensorProto.BOOL, {"Equal", "LogicalNot", "Convert"}),
        (TensorProto.UINT8, {"Abs", "Floor", "Sign", "Multiply", "Convert"}),
        (TensorProto.INT16, {"Abs", "Floor", "Sign", "Multiply", "Convert"}),
        (TensorProto.INT32, {"Convert"}),
    ],
)
def test_numbers_of_other_types(tmp_path: Path, to: int, wanted: set[str]) -> None:
    """OpenVINO 2021.4 rounds to bytes, keeps fractions in 16 bits, and numbers as booleans."""
    nodes = [helper.make_node("Abs", ["x"], ["a"])] if to == TensorProto.UINT8 else []
    nodes += [helper.make_node("Cast", ["a" if nodes else "x"], ["c"], to=to)]
    path = retargeted(model([*nodes, helper.make_node("Cast", ["c"], ["y"], to=TensorProto.FLOAT)], (4, 5)), tmp_path)
    assert {type for type, _, _ in layers(path)} == wanted


def test_what_ends_in_a_crash_is_written_in_other_words(tmp_path: Path) -> None:
    """Two levels, blocks of five axes, fewer repeats than axes, indices that count from the end, in 2021.4."""
    openvino = pytest.importorskip("openvino")
    operations = pytest.importorskip("openvino.opset13")
    x = operations.parameter((2, 2, 2, 2, 2), np.float32, name="x")
    made = operations.fake_quantize(x, np.float32(-1), np.float32(1), np.float32(-1), np.float32(1), 2)
    blocks = operations.batch_to_space(made, [1, 2, 1, 1, 1], [0] * 5, [0] * 5)
    tiled = operations.tile(blocks, [3])
    ends = operations.constant(np.full((1, 4, 2, 2, 2), -1))
    updates = operations.constant(np.ones((1, 4, 2, 2, 2), np.float32))
    scattered = operations.scatter_elements_update(tiled, ends, updates, 4)
    source = openvino.Model([scattered], [x])
    openvino.save_model(source, tmp_path / "new.xml", compress_to_fp16=False)
    irc.convert(tmp_path / "new.xml", tmp_path / "old.xml", for_openvino=OLD)
    assert not {type for type, _, _ in layers(tmp_path / "old.xml")} & {"FakeQuantize", "BatchToSpace"}
    a = np.random.default_rng(0).normal(size=(2,) * 5).astype(np.float32)
    compiled = [openvino.Core().compile_model(m, "CPU") for m in (source, str(tmp_path / "old.xml"))]
    np.testing.assert_array_equal(*(c(a)[0] for c in compiled))


def test_states_begin_with_zeros(tmp_path: Path) -> None:
    openvino = pytest.importorskip("openvino")
    operations = pytest.importorskip("openvino.opset6")
    for start in (0.0, 4.0):
        x = operations.parameter((4,), np.float32, name="x")
        total = operations.add(operations.read_value(operations.constant(np.full(4, start, np.float32)), "v"), x)
        kept = operations.assign(total, "v")
        openvino.save_model(openvino.Model([operations.result(total)], [kept], [x], "m"), tmp_path / "new.xml", False)
        if start:
            with pytest.raises(ConversionError, match="begin with zeros"):
                irc.convert(tmp_path / "new.xml", tmp_path / "old.xml", for_openvino=OLD)
        else:
            irc.convert(tmp_path / "new.xml", tmp_path / "old.xml", for_openvino=OLD)
