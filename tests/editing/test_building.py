"""Graphs that are built and changed in Python, and how they are shown."""

from __future__ import annotations

import json
import pydoc
import subprocess
import sys
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import numpy as np
import pytest

import irc

ROOT = Path(__file__).resolve().parents[2]
DIGITS = ROOT / "samples" / "digits" / "digits.onnx"
W = np.arange(24, dtype=np.float32).reshape(8, 3) / 8


def scorer() -> irc.Builder:
    """Softmax(Relu(x · W))."""
    b = irc.Builder(name="scorer")
    x = b.input("x", "f32", ("batch", 8))
    b.output(b.Softmax(b.Relu(b.MatMul(x, b.constant(W))), axis=1), "scores")
    return b


@pytest.mark.parametrize("name", ["m.onnx", "m.xml"])
def test_a_graph_from_nothing_is_written_and_runs(tmp_path: Path, name: str) -> None:
    model = scorer().model()
    irc.save(model, tmp_path / name)
    assert irc.validate(tmp_path / name) == []
    x = np.random.default_rng(0).standard_normal((5, 8)).astype(np.float32)
    y = np.exp(np.maximum(x @ W, 0))
    (found,) = irc.compile(tmp_path / name, backend="numpy", cache=False)(x)
    np.testing.assert_allclose(found, y / y.sum(1, keepdims=True), rtol=1e-5)
    assert [v.name for v in irc.load(tmp_path / name).outputs] == ["scores"]


def test_what_does_not_fit_is_refused_and_changes_nothing() -> None:
    b = scorer()
    before = str(b.graph)
    with pytest.raises(irc.InvalidModel, match="IRC3104"):
        b.MatMul(b.graph.inputs[0], np.zeros((7, 3), np.float32))
    matmul = b.graph.nodes[0]
    with pytest.raises(irc.InvalidModel, match="IRC3"):
        b.swap(b.graph.nodes[-1], irc.ops.Softmax(axis=7))
    with pytest.raises(irc.InvalidModel, match="IRC3106"):
        b.insert(matmul.outputs[0], irc.ops.ReduceMax(keepdims=False), [0, 1])
    assert str(b.graph) == before
    misspelt = "Reluu"
    with pytest.raises(AttributeError, match="did you mean Relu"):
        getattr(b, misspelt)(b.graph.inputs[0])
    with pytest.raises(ValueError, match="no element type"):
        b.input("z", "float", (1,))
    b.model()


def test_a_swap_is_written_and_the_rest_stays() -> None:
    model = irc.load(DIGITS)
    b = irc.Builder(model)
    for node in model.graph.nodes:
        if node.op.name == "Relu":
            b.swap(node, irc.ops.LeakyRelu(alpha=0.5))
    nodes = irc.to_onnx(b.model()).graph.node
    assert [n.op_type for n in nodes].count("LeakyRelu") == 2
    untouched = [n for n in irc.to_onnx(irc.load(DIGITS)).graph.node if n.op_type != "Relu"]
    assert [n for n in nodes if n.op_type != "LeakyRelu"] == untouched


def test_an_inserted_node_takes_the_name_of_the_output() -> None:
    model = irc.load(DIGITS)
    made = irc.Builder(model).insert(model.outputs[0], irc.ops.Softmax(axis=1))
    assert made is model.outputs[0]
    proto = irc.to_onnx(model)
    assert [v.name for v in proto.graph.output] == ["scores"]
    assert (proto.graph.node[-1].op_type, list(proto.graph.node[-1].output)) == ("Softmax", ["scores"])
    x = np.ones((2, 1, 8, 8), np.float32)
    np.testing.assert_allclose(irc.compile(proto, backend="numpy", cache=False)(x)[0].sum(1), 1, rtol=1e-5)


def test_an_inserted_node_stands_before_all_users() -> None:
    model = irc.load(DIGITS)
    first = model.graph.nodes[0].outputs[0]
    made = irc.Builder(model).insert(first, irc.ops.Neg())
    assert [n.op.name for n in first.uses] == ["Neg"]
    assert [n.op.name for n in made.uses] == ["Relu"]


# ------------------------------------------------------------------------------- shown
def test_the_package_shows_its_api_only() -> None:
    code = "import irc, sys; irc.load; print(dir(irc) == irc.__all__, 'networkx' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=ROOT)
    assert done.stdout.split() == ["True", "False"]
    for name in irc.__all__:
        assert getattr(irc, name) is not None
    assert "Relu" in dir(irc.ops)
    assert irc.ops.Relu.__name__ == "Relu"
    with pytest.raises(AttributeError):
        _ = irc.ops.Reluu
    text = pydoc.render_doc(irc, renderer=pydoc.plaintext)
    assert "CLASSES" in text
    assert all(f"class {name}(" in text for name in ("Builder", "CompiledModel", "Diagnostic", "Graph", "InvalidModel"))


def test_options_are_checked_when_they_are_given() -> None:
    wrong: Any = {"opsett": 3}
    with pytest.raises(TypeError, match="opsett"):
        irc.convert(DIGITS, "never.onnx", **wrong)


def test_a_type_checker_finds_wrong_options(tmp_path: Path) -> None:
    pytest.importorskip("pyright")
    lines = ["import irc", 'irc.convert("m.onnx", "m.xml", opsett=3)', 'irc.compile("m.onnx", threads="2")']
    lines += ['irc.save(irc.load("m.onnx"), "n.onnx", opset=21)', 'irc.compile("m.onnx", backend="c", threads=2)']
    (tmp_path / "wrong.py").write_text("\n".join(lines) + "\n", "utf-8")
    command = [sys.executable, "-m", "pyright", "--outputjson", str(tmp_path / "wrong.py")]
    said = json.loads(subprocess.run(command, capture_output=True, text=True, check=False, cwd=ROOT).stdout)
    assert [d["range"]["start"]["line"] for d in said["generalDiagnostics"]] == [1, 2]


def test_operations_print_as_the_call_that_makes_them() -> None:
    assert repr(irc.ops.Relu()) == "Relu()"
    conv = irc.load(DIGITS).graph.nodes[0].op
    assert repr(conv) == "Conv(pads_begin=(1, 1), pads_end=(1, 1))"


def test_models_print_their_graph() -> None:
    model = irc.load(DIGITS)
    lines = str(model).splitlines()
    assert lines[0] == "graph 'digits': 7 nodes"
    assert "  %r1: f32[batch,8,8,8] = Relu %c1" in lines
    assert repr(model).startswith("<model 'digits' (ONNX): 7 nodes, image: f32[batch,1,8,8] -> scores: ")
    assert repr(model.graph) == "<graph 'digits' of 7 nodes>"
    assert repr(model.graph.nodes[0].loc).startswith("<place ")


def test_html_is_a_table_and_a_picture_of_texts() -> None:
    b = irc.Builder(name="<script>")
    x = b.input("<img src=x>", "f32", (1,))
    b.output(b.Add(b.Neg(x), b.Relu(x)), "\x1b&y")
    html = b.model()._repr_html_()
    root = ElementTree.fromstring(f"<div>{html}</div>")
    labels = [t.text for t in root.iter() if t.get("class") == "op"]
    assert labels == ["input", "Neg", "Relu", "Add", "output"]
    assert len([t for t in root.iter() if t.tag.endswith("path")]) == 5
    assert "<script" not in html and "<img" not in html and "\x1b" not in html
    assert len(list(root.iter("tr"))) == 1 + 1 + 3 + 1


def test_large_graphs_are_cut() -> None:
    b = irc.Builder()
    value = b.input("x", "f32", (1,))
    for _ in range(200):
        value = b.Neg(value)
    b.output(value)
    assert "  … 120 more" in str(b.model()).splitlines()
    assert "<svg" not in b.model()._repr_html_()
