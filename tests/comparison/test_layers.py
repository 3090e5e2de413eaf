"""`irc compare --layers`: a weight that was changed in the middle is found, in both formats and several engines."""

from __future__ import annotations

import gc
import importlib.util
import json
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper

import irc
from irc.cli import main
from irc.comparison.bisection import OUTPUTS_A_RUN
from irc.comparison.layers import compare_layers, judge
from irc.comparison.matching import operands, pairs_of
from irc.comparison.segments import SHARE, segments
from irc.comparison.side import Side
from irc.formats.document import RawGraph
from irc.ir.graph import Constant

Run = Callable[..., tuple[int, str, str]]
WIDTH = 8


@pytest.fixture
def compare(capsys: pytest.CaptureFixture[str]) -> Run:
    def call(*args: str) -> tuple[int, str, str]:
        status = main(("compare", *args))
        said = capsys.readouterr()
        return status, said.out, said.err

    return call


def needs(*engines: str) -> None:
    for engine in engines:
        if engine in ("onnxruntime", "openvino"):
            pytest.importorskip(engine)


def deep(blocks: int, changed: int | None = None, rows: int | str = 3) -> onnx.ModelProto:
    """Blocks of a product, a bias and a Tanh, every fourth with a sum over the block before it."""
    rng, x, before = np.random.default_rng(0), "x", "x"
    nodes: list[onnx.NodeProto] = []
    weights: list[onnx.TensorProto] = []
    for i in range(blocks):
        w = (rng.standard_normal((WIDTH, WIDTH)) / np.sqrt(WIDTH)).astype(np.float32)
        if i == changed:
            w[3, 4] += 0.25
        weights += [numpy_helper.from_array(w, f"w{i}"), numpy_helper.from_array(w[0], f"b{i}")]
        nodes.append(helper.make_node("MatMul", [x, f"w{i}"], [f"product{i}"], name=f"dense_{i}"))
        nodes.append(helper.make_node("Add", [f"product{i}", f"b{i}"], [f"sum{i}"], name=f"bias_{i}"))
        nodes.append(helper.make_node("Tanh", [f"sum{i}"], [f"tanh{i}"], name=f"act_{i}"))
        made = f"tanh{i}"
        if i % 4 == 3:
            nodes.append(helper.make_node("Add", [made, before], [f"skip{i}"], name=f"skip_{i}"))
            made = f"skip{i}"
        before, x = x, made
    shape = [rows, WIDTH]
    ports = [helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, shape) for name in ("x", x)]
    graph = helper.make_graph(nodes, "deep", ports[:1], ports[1:], weights)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def files(folder: Path, blocks: int = 12, changed: int | None = 5, rows: int | str = 3) -> dict[str, str]:
    found: dict[str, str] = {}
    for name, where in (("right", None), ("wrong", changed)):
        path = folder / f"{name}.onnx"
        path.write_bytes(deep(blocks, where, rows).SerializeToString())
        irc.convert(str(path), folder / f"{name}.xml")
        found |= {f"{name}.onnx": str(path), f"{name}.xml": str(folder / f"{name}.xml")}
    return found


@pytest.mark.parametrize(
    ("a", "b", "engines"),
    [
        ("right.onnx", "wrong.onnx", "numpy,numpy"),
        ("right.onnx", "wrong.xml", "onnxruntime,openvino"),
        ("right.xml", "wrong.onnx", "openvino,onnxruntime"),
        ("wrong.xml", "right.xml", "onnxruntime,numpy"),
        ("wrong.onnx", "right.onnx", "openvino,numpy"),
        pytest.param("right.xml", "wrong.onnx", "c,onnxruntime", marks=pytest.mark.compiler),
    ],
)
def test_a_changed_weight_is_found(compare: Run, tmp_path: Path, a: str, b: str, engines: str) -> None:
    needs(*engines.split(","))
    model = files(tmp_path)
    status, out, err = compare(model[a], model[b], "--layers", "--engines", engines, "--json")
    said = json.loads(out)
    first = said["first"]
    assert status == 1 and not said["same"], err
    written = a.endswith(".xml") and engines.startswith("onnxruntime")  # as ONNX: product and sum are one Gemm
    assert first["name"] == ("sum5" if written else "product5") and first["operands_that_agree"] == ["tanh4"]
    layers = [first[side]["layer"] for side in ("a", "b")]
    assert layers == (["bias_5", "bias_5"] if written else ["dense_5", "dense_5"])
    assert [Path(first[side]["file"]).name for side in ("a", "b")] == [a, b]
    for side, name in (("a", a), ("b", b)):
        place = first[side]["where"]
        assert place.startswith("layer ") if name.endswith(".xml") else place.startswith("graph main, node 16 ")
    assert 1e-3 < first["relative"] < 1 and 0.5 < first["cosine"] < 1 and first["ulp"] > 1000
    assert said["matched"] >= (27 if written else 39) and said["runs"] <= 4


def test_what_is_said_to_people(compare: Run, tmp_path: Path) -> None:
    model = files(tmp_path, rows="n")
    status, out, _ = compare(model["right.onnx"], model["wrong.xml"], "--layers", "--shape", "x[4,8]")
    assert status == 1
    assert "DIFFERENT  product5  float32[4,8]: the first tensor out of tolerance" in out
    assert " ULP there, cosine 0." in out and "what it is computed from agrees: tanh4" in out
    assert 'A: MatMul "dense_5" (' in out and "right.onnx: graph main, node 16" in out
    assert 'B: MatMul "dense_5" (' in out and "wrong.xml: layer" in out
    status, out, _ = compare(model["right.onnx"], model["right.xml"], "--layers")
    assert (
        status == 0
        and "same       outputs and samples of what leads to them agree" in out
        and "compared 33 of 39 matched tensors in 5 runs of each" in out
    )


def test_engines_without_layers(compare: Run, tmp_path: Path) -> None:
    needs("onnxruntime", "openvino")
    model = files(tmp_path)
    both = ("--engines", "onnxruntime,openvino")
    status, out, _ = compare(model["right.xml"], model["right.onnx"], *both)
    assert status == 0 and "right.xml (onnxruntime)" in out and "right.onnx (openvino)" in out
    assert compare(model["right.onnx"], model["wrong.xml"], *both)[0] == 1


def test_a_thousand_nodes_in_less_than_a_minute(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Never more outputs at once than few: memory is that of one model."""
    asked: list[int] = []
    run = Side.run

    def counted(self: Side, tensors: Sequence[str], arguments: Sequence[Any]) -> list[Any]:
        asked.append(len(tensors))
        return run(self, tensors, arguments)

    monkeypatch.setattr(Side, "run", counted)
    engine = "onnxruntime" if importlib.util.find_spec("onnxruntime") else "numpy"
    begin = time.monotonic()
    sides = [Side(irc.load(deep(310, changed)), engine) for changed in (None, 150)]
    assert len(sides[0].graph.nodes) > 1000
    found = compare_layers(sides[0], sides[1], [np.ones((3, WIDTH), np.float32)])
    assert found.first is not None and found.first.a.name == "product150"
    assert time.monotonic() - begin < 60
    assert max(asked) <= OUTPUTS_A_RUN and len(asked) == 2 * found.runs <= 20


def test_state_begins_at_its_initial_value(compare: Run, tmp_path: Path) -> None:
    """A variable of an IR is an input and an output of the ONNX model that ONNX Runtime runs."""
    needs("onnxruntime", "openvino")
    path = tmp_path / "sum.xml"
    path.write_text(STATEFUL)
    path.with_suffix(".bin").write_bytes(np.full(3, 2, np.float32).tobytes())
    for engines in ("numpy,numpy", "openvino,onnxruntime", "onnxruntime,openvino"):
        status, out, err = compare(str(path), "--layers", "--engines", engines, "--json")
        assert status == 0 and json.loads(out)["same"], err


def test_a_body_is_one_layer(compare: Run, tmp_path: Path) -> None:
    text = """m (float[2] x, bool c) => (float[2] y) {
        a = Sin(x)
        b = If(c) <then_branch = t () => (float[2] p) { p = Mul(a, k) },
                   else_branch = e () => (float[2] q) { q = Neg(a) }>
        y = Tanh(b) }"""
    paths: list[str] = []
    for factor in (2.0, 3.0):
        model = onnx.parser.parse_model(f'<ir_version: 8, opset_import: ["" : 17]> {text}')
        model.graph.initializer.append(numpy_helper.from_array(np.array(factor, np.float32), "k"))
        paths.append(str(tmp_path / f"{factor}.onnx"))
        Path(paths[-1]).write_bytes(model.SerializeToString())
    np.savez(tmp_path / "given.npz", x=np.array([0.3, 0.4], np.float32), c=np.array(True))
    given = ("--input", str(tmp_path / "given.npz"))
    status, out, err = compare(*paths, "--layers", "--json", *given)
    first = json.loads(out)["first"]
    assert status == 1 and first["name"] == "b" and first["a"]["type"] == "If", err
    assert first["operands_that_agree"] == ["a"]


def test_models_that_do_not_fit(compare: Run, tmp_path: Path) -> None:
    paths: list[str] = []
    for number, ports in enumerate(("float[2] x", "float[2] x, float[2] z")):
        text = f'<ir_version: 8, opset_import: ["" : 17]> m ({ports}) => (float[2] y) {{ y = Neg(x) }}'
        paths.append(str(tmp_path / f"{number}.onnx"))
        Path(paths[-1]).write_bytes(onnx.parser.parse_model(text).SerializeToString())
    status, _, err = compare(*paths, "--layers")
    assert status == 1 and "error[IRC4910]: the models have no inputs in common: 1 and 2 (x; x, z)" in err
    assert compare(str(tmp_path), paths[0], "--layers")[0] == 2
    assert compare(paths[0], "--layers")[0] == 2
    assert compare(paths[0], "--layers", "--engines", "numpy,abacus")[0] == 2


def test_tensors_are_matched_by_their_names_and_those_of_layers(tmp_path: Path) -> None:
    model = files(tmp_path, blocks=4)
    a, b = (Side(model[name], "numpy") for name in ("right.onnx", "right.xml"))
    found = pairs_of(a.graph, b.graph, [(a.own_outputs[0], b.own_outputs[0])])
    assert [p.a.name for p in found] == [p.b.name for p in found] and len(found) == 13
    leading = operands(a.graph, [p.a.key for p in found])
    assert leading[0] == [] and leading[1] == [0] and leading[-1] == [5, 11]  # a skip over one block
    every_third = operands(a.graph, [p.a.key for p in found[2::3]])
    assert every_third[1] == [0]


def test_types_of_other_widths_and_what_is_quantized() -> None:
    x = np.linspace(-1, 1, 20)
    half = judge(x.astype(np.float32), x.astype(np.float16))
    assert not half.differs and half.distance.ulp == 0 and half.allowed == 2e-2
    quantized = judge(np.array([100, 7], np.int8), np.array([101, 7], np.int8))
    assert not quantized.differs and quantized.distance.ulp is None
    assert judge(np.array([100, 7], np.int32), np.array([101, 7], np.int64)).differs
    assert "float64[20] and float64[19]" in judge(x, x[1:]).reason
    assert "bool[1]" in judge(np.array([1.0]), np.array([True])).reason
    ones = np.ones(2, np.float32)
    one = judge(ones, np.nextafter(ones, np.float32(3)))
    assert one.distance.ulp == 1 and one.distance.cosine == pytest.approx(1)


def test_weights_are_not_held_while_engines_run(tmp_path: Path) -> None:
    """Large weights stand in a file, from which a run reads those that it needs and that nothing holds after it."""
    rng = np.random.default_rng(0)
    weight = rng.standard_normal((256, 128)).astype(np.float32)
    node = helper.make_node("MatMul", ["x", "w"], ["y"])
    ports = [
        helper.make_tensor_value_info(n, onnx.TensorProto.FLOAT, [2, size]) for n, size in (("x", 256), ("y", 128))
    ]
    graph = helper.make_graph([node], "m", ports[:1], ports[1:], [numpy_helper.from_array(weight, "w")])
    model = irc.load(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8))
    side = Side(model, "numpy")
    (held,) = side.graph.constants.values()
    assert isinstance(held.load(), np.memmap)
    x = rng.standard_normal((2, 256)).astype(np.float32)
    gc.collect()
    before = sum(isinstance(held, Constant) for held in gc.get_objects())
    gc.disable()
    try:
        (y,) = side({"x": x})
        assert sum(isinstance(held, Constant) for held in gc.get_objects()) == before
    finally:
        gc.enable()
    np.testing.assert_allclose(y, x @ weight, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("engine", ["onnxruntime", "openvino"])
def test_an_engine_gets_one_segment_at_a_time(engine: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Segments give what the whole model does, each has few weights, and none runs twice for what it passed on."""
    needs(engine)
    loaded: list[tuple[int, int]] = []
    run = Side._run  # pyright: ignore[reportPrivateUsage]

    def counted(self: Side, graph: RawGraph, arguments: Sequence[Any]) -> list[Any]:
        loaded.append((sum(t.load().nbytes for t in graph.constants.values()), len(graph.nodes)))
        return run(self, graph, arguments)

    monkeypatch.setattr(Side, "_run", counted)
    path = tmp_path / "m.onnx"
    path.write_bytes(deep(4, rows="n").SerializeToString())
    if engine == "openvino":
        irc.convert(str(path), tmp_path / "m.xml")
        path = tmp_path / "m.xml"
    whole = Side(path, engine)
    keys = [v.key for n in whole.graph.nodes for v in n.outputs if v.names[0] in ("product1", "sum2", "skip3")]
    given = [np.ones((2, WIDTH), np.float32)]
    wanted = whole.run(keys, given)
    assert len(loaded) == 1
    most = loaded.pop()[0] // SHARE + 4 * (WIDTH + 1) * WIDTH
    monkeypatch.setattr("irc.comparison.segments.BYTES", 1)
    parts = Side(path, engine)
    for got, expected in zip(parts.run(keys, given), wanted, strict=True):
        np.testing.assert_allclose(got, expected, rtol=1e-5)
    count = len(loaded)
    assert count > 4 and sum(nodes for _, nodes in loaded) == len(whole.graph.nodes)
    assert all(size <= most for size, _ in loaded)
    parts.run(keys[:1], given)
    assert len(loaded) == count + 1
    (again,) = parts.run(keys[:1], [2 * given[0]])
    assert len(loaded) > count + 2 and abs(again - wanted[0]).max() > 0.1


def test_no_cut_where_a_string_would_pass_it() -> None:
    text = """<ir_version: 8, opset_import: ["" : 20]> m (float[4] x) => (float[4] y)
        <float[4] a = {1, 2, 3, 4}, float[4] b = {1, 2, 3, 4}> {
        p = Add(x, a) s = Cast<to = 8>(p) q = Cast<to = 1>(s) r = Mul(q, b) k = Neg(b) y = Add(r, k) }"""
    graph = Side(irc.load(onnx.parser.parse_model(text)), "numpy").graph
    assert [[n.type for n in part] for part in segments(graph)] == [["Add", "Cast", "Cast", "Mul", "Add"]]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("irc.comparison.segments.BYTES", 1)
        assert [[n.type for n in part] for part in segments(graph)] == [["Add"], ["Cast", "Cast"], ["Mul"], ["Add"]]


STATEFUL = """<?xml version="1.0"?>
<net name="sum" version="11">
  <layers>
    <layer id="0" name="x" type="Parameter" version="opset1"><data shape="3" element_type="f32"/>
      <output><port id="0" precision="FP32" names="x"><dim>3</dim></port></output></layer>
    <layer id="1" name="start" type="Const" version="opset1">
      <data element_type="f32" shape="3" offset="0" size="12"/>
      <output><port id="0" precision="FP32"><dim>3</dim></port></output></layer>
    <layer id="2" name="read" type="ReadValue" version="opset6">
      <data variable_id="v" variable_type="f32" variable_shape="3"/>
      <input><port id="0" precision="FP32"><dim>3</dim></port></input>
      <output><port id="1" precision="FP32" names="before"><dim>3</dim></port></output></layer>
    <layer id="3" name="add" type="Add" version="opset1"><data auto_broadcast="numpy"/>
      <input><port id="0" precision="FP32"><dim>3</dim></port><port id="1" precision="FP32"><dim>3</dim></port></input>
      <output><port id="2" precision="FP32" names="sum"><dim>3</dim></port></output></layer>
    <layer id="4" name="assign" type="Assign" version="opset6">
      <data variable_id="v" variable_type="f32" variable_shape="3"/>
      <input><port id="0" precision="FP32"><dim>3</dim></port></input>
      <output><port id="1" precision="FP32"><dim>3</dim></port></output></layer>
    <layer id="5" name="out" type="Result" version="opset1">
      <input><port id="0" precision="FP32"><dim>3</dim></port></input></layer>
  </layers>
  <edges>
    <edge from-layer="1" from-port="0" to-layer="2" to-port="0"/>
    <edge from-layer="2" from-port="1" to-layer="3" to-port="0"/>
    <edge from-layer="0" from-port="0" to-layer="3" to-port="1"/>
    <edge from-layer="3" from-port="2" to-layer="4" to-port="0"/>
    <edge from-layer="3" from-port="2" to-layer="5" to-port="0"/>
  </edges>
</net>
"""
