"""What fuzzing found operations to do with operands nobody had checked: every one is a finding at its node now."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

import irc
from irc.diagnostics import Diagnostic
from irc.opdef.signature import Sig
from irc.ops.activation import Elu

BROKEN = {
    "(float[2,4] x) => (float[2,4] y) <int64[1,1] a = {0}> { y = Slice(x, a, a) }": "IRC3105",
    "(float[3] x) => (float[2] y, float[1] z) { y, z = Split<axis = -2, split = [2, 1]>(x) }": "IRC3106",
    "(float[2,3,4,0] q, float[2,3,6,0] k) => (float[2,3,4,0] y) { y = Attention(q, k, k) }": "IRC3109",
    "(float[2,4] q) => (float[2,4] y) { y = Attention(q, q, q) }": "IRC3105",
    "(float[1,3,3] x, float[1,5,3] w, float[1,5,5] r, float[10] b) => (float[1,3,5] y)"
    " { , y = RNN<hidden_size = 5>(x, w, r, b) }": "IRC3105",
    "(float[1,3,3] x, float[1,5,3] w, float[1,5,5] r, float[1,2,5] h) => (float[1,3,5] y)"
    " { , y = RNN<hidden_size = 5>(x, w, r, , , h) }": "IRC3108",
    "(float[2,3] x, float[4] s) => (float[2,3] y) { y = LayerNormalization(x, s) }": "IRC3101",
    "(float[1,3] x, int64[2,2,1] i) => (float[2,2] y) { y = GatherND<batch_dims = 1>(x, i) }": "IRC3108",
    "() => (float[n] y) <float a = {nan}, float b = {1}> { y = Range(a, b, b) }": "IRC2207",
    "(float[2,3] x) => (float[2,3] y) { y = Gelu<approximate = [1, 2]>(x) }": "IRC2204",
    "(float[2,1,4,8] q) => (float[2,1,4,8] y) { y = Attention<qk_matmul_output_mode = 4>(q, q, q) }": "IRC2207",
    "(float[2,3] x) => (int64[2,3] y) { y = Cast<to = 0>(x) }": "IRC2203",
    '() => (float[2] y) <string[2] x = {"1", "one"}> { y = Cast<to = 1>(x) }': "IRC2207",
    "(float[2,3] x, int64[3] p) => (float[n,m] y) { y = Pad(x, p) }": "IRC2208",
    "(float[2,3] x, seq(float[2]) s) => (float[2,3] y) { y = Add(x, s) }": "IRC2104",
}
"""Graphs of one mistake each, and its code."""


def model(graph: str, opset: int) -> onnx.ModelProto:
    return onnx.parser.parse_model(f'<ir_version: 10, opset_import: ["" : {opset}]> g {graph}')


def errors(found: list[Diagnostic]) -> list[str]:
    return [d.code for d in found if d.severity == "error"]


@pytest.mark.parametrize(("graph", "code"), BROKEN.items(), ids=lambda text: text[:60])
def test_a_broken_operand_is_a_finding_at_its_node(graph: str, code: str) -> None:
    broken = model(graph, 6 if "split =" in graph else 23)
    found = irc.validate(broken)
    assert errors(found) == [code]
    assert "node 0" in next(d for d in found if d.severity == "error").location.where
    with pytest.raises(irc.InvalidModel) as refused:
        irc.load(broken)
    assert errors(refused.value.diagnostics) == [code]


TWO = "(float[2] x, float[3] z) => (float[2] w) { y = Elu(x) w = Add(y, z) v = Add(x, z) }"


def boom(*_: Any) -> Any:
    raise AttributeError("nobody foresaw this")


def test_a_crash_at_a_node_hides_no_other_finding(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Elu, "infer", boom)
    found = irc.validate(model(TWO, 17))
    assert errors(found) == ["IRC9002", "IRC3101"]
    assert "node 0" in found[0].location.where and "node 2" in found[1].location.where
    with pytest.raises(irc.InvalidModel) as refused:
        irc.load(model(TWO, 17))
    assert errors(refused.value.diagnostics) == ["IRC9002", "IRC3101"]


def test_a_crash_while_compiling_names_the_node(monkeypatch: pytest.MonkeyPatch) -> None:
    loaded = irc.load(model("(float[2] x) => (float[2] w) { y = Elu(x) w = Relu(y) }", 17))
    monkeypatch.setattr(Elu, "infer", boom)
    with pytest.raises(irc.CompileError) as refused:
        irc.compile(loaded, backend="numpy", cache=False)
    assert errors(refused.value.diagnostics) == ["IRC9002"]
    assert "node 0" in refused.value.diagnostics[0].location.where


@pytest.mark.parametrize("name", ["ReadValue", "Assign", "Conv", "Relu"])
def test_an_operation_of_a_foreign_domain_is_not_ours(name: str) -> None:
    head = '<ir_version: 8, opset_import: ["" : 17, "acme" : 1]>'
    text = f"{head} g (float[2] x) => (float[2] y) {{ y = acme.{name}(x) }}"
    for backend in ("c", "numpy"):
        with pytest.raises(irc.CompileError) as refused:
            irc.compile(onnx.parser.parse_model(text), backend=backend, cache=False)
        assert not any(code.startswith("IRC9") for code in errors(refused.value.diagnostics))


def test_an_input_without_a_name_is_reported() -> None:
    nameless = model("(float[2] x, float[1] z) => (float[2] y) { y = Relu(x) }", 17)
    nameless.graph.input[1].name = ""
    assert errors(irc.validate(nameless)) == ["IRC1527"]


LAYERS = '<net name="ä" version="11"><layers/></net>'


@pytest.mark.parametrize("encoding", ["utf-8", "utf-16", "utf-16-le", "utf-32", "latin-1", "ucs-4", "x-unknown"])
def test_files_of_any_encoding(encoding: str, tmp_path: Path) -> None:
    path = tmp_path / "m.xml"
    known = encoding not in ("ucs-4", "x-unknown")
    path.write_bytes(f'<?xml version="1.0" encoding="{encoding}"?>{LAYERS}'.encode(encoding if known else "utf-8"))
    found = irc.validate(path)
    assert errors(found) == []
    assert ("IRC1008" in [d.code for d in found]) is not known
    assert irc.load(path).graph.name == "ä"


def test_ranks_of_a_signature() -> None:
    sig = Sig("x: T[r>=1], y?: T[r=2..3], k: i64[one], *z: T[2] -> w: T", T={np.float32})  # type: ignore[arg-type]
    assert [str(p.rank) for p in sig.inputs] == ["at least 1", "2 or 3", "0, or 1 with one element", "2"]
    assert [p.rank.variable for p in sig.inputs] == ["r", "r", "", ""]
    with pytest.raises(AssertionError):
        Sig("x: T[two] -> y: T")


BY_DATA = {
    "(float[2,3] x, int64[1] a) => (float[n] y) { y = Squeeze(x, a) }": ([0], "Squeeze"),
    "(float[2,3] x, int64[2] a) => (float[n,m,k,l] y) { y = Unsqueeze(x, a) }": ([1, 1], "Unsqueeze"),
    "(float[2,3] x, int64[2] a) => (float[n,m] y) { y = Reshape(x, a) }": ([4, 2], "Reshape"),
    "(float[2,3] x, int64[3] a) => (float[n,m,k] y) { y = Reshape(x, a) }": ([2, 3, 0], "Reshape"),
    "(float[2,3] x, int64[2] a) => (float[n,m] y) { y = Expand(x, a) }": ([4, 2], "Expand"),
    "(float[2,3] x, int64[1] a) => (float[n,m] y) { y = Slice(x, a, a, a, a) }": ([0], "Slice"),
    "(float[2,3] x, int64[2] a) => (float[n,m] y) { y = ReduceMax(x, a) }": ([1, 1], "ReduceMax"),
    "(float[2,3] x, int64[2] a) => (float[n,3] y) { y = Reshape(x, a) }": ([-2, 3], "Reshape"),
    "(float[2,3] x, int64[1] a) => (float[2,m] y) { y, i = TopK(x, a) }": ([-1], "TopK"),
    "(int64[2,3] x, int64[1] a) => (int64[2,3,m] y) <int64[2] v = {0, 1}> { y = OneHot(x, a, v) }": ([-1], "OneHot"),
    "(float[2,3] x, int64[2] a) => (float[n,3] y, float[m,3] z) { y, z = Split(x, a) }": ([1, 2], "Split"),
    "(float[2,3] x, int64[2] a) => (float[n,m] y) { z = NonZero(x) w = Reshape(z, a) y = Neg(w) }": ([5, 5], "Reshape"),
}
"""Graphs whose operand `a` says what to do, a value that does not fit, and the operation that finds out."""


@pytest.mark.parametrize(("graph", "given"), BY_DATA.items(), ids=[a for _, a in BY_DATA.values()])
def test_data_that_do_not_fit_are_called_so(graph: str, given: tuple[list[int], str]) -> None:
    data, name = given
    loaded = model(graph, 23)
    assert errors(irc.validate(loaded)) == []
    compiled = irc.compile(loaded, backend="numpy", cache=False)
    with pytest.raises(irc.RunError) as refused:
        compiled(np.ones((2, 3), compiled.inputs[0].dtype), np.array(data))
    assert errors(refused.value.diagnostics) == ["IRC6317"]
    found = refused.value.diagnostics[0]
    assert found.message.startswith(f"{name}: ") and name in found.location.where


@pytest.mark.compiler
def test_an_empty_axis_is_resized_to_nothing_else() -> None:
    loaded = model("(float[1,n] x, int64[2] a) => (float[1,4] y) <int64[2] s = {1, 4}> { y = Resize(x, , , s) }", 23)
    for backend in ("numpy", "c"):
        compiled = irc.compile(loaded, backend=backend, cache=False)
        assert compiled(np.ones((1, 2), np.float32), np.zeros(2, np.int64))[0].shape == (1, 4)
        with pytest.raises(irc.RunError, match=r"IRC6313.*n = 0"):
            compiled(np.ones((1, 0), np.float32), np.zeros(2, np.int64))


def test_an_array_that_no_memory_could_hold() -> None:
    loaded = model("(float[2,3] x, int64[4] a) => (float[n,m] y) { y = Pad(x, a) }", 23)
    compiled = irc.compile(loaded, backend="numpy", cache=False)
    for size in (2**31, 2**60, 2**62):
        with pytest.raises(MemoryError, match="IRC6314"):
            compiled(np.ones((2, 3), np.float32), np.array([0, size, size, 0]))


def test_what_folding_computes_is_checked_where_it_is_used() -> None:
    """What the Expand makes is computed by way of floats; that it is too large, compiling shows."""
    graph = """(float[2,3] x) => (float[2,3] y)
    <int64[1] two = {2}, int64[2] s = {2, 3}> {
        n = Shape(x)  f = Cast<to = 1>(n)  g = Sqrt(f)  h = Mul(g, g)  r = Round(h)  k = Cast<to = 7>(r)
        t = Concat<axis = 0>(two, k)  e = Expand(x, t)  y = Reshape(e, s)
    }"""
    loaded = model(graph, 23)
    assert errors(irc.validate(loaded)) == []
    for backend in ("numpy", "c"):
        with pytest.raises(irc.CompileError) as refused:
            irc.compile(loaded, backend=backend, cache=False)
        assert errors(refused.value.diagnostics) == ["IRC3107"]


@pytest.mark.compiler
def test_recurrent_weights_of_a_size_that_only_a_run_tells() -> None:
    operands = "float[2,3,4] x, float[1,15,4] w, float[a,b,c] r"
    graph = f"({operands}) => (float[2,1,3,h] y) {{ y = GRU<hidden_size = 5>(x, w, r) }}"
    rng = np.random.default_rng(0)
    given = [rng.normal(size=s).astype(np.float32) for s in ((2, 3, 4), (1, 15, 4), (1, 15, 5))]
    results = [irc.compile(model(graph, 22), backend=b, cache=False)(given)[0] for b in ("numpy", "c")]
    assert results[0].shape == (2, 1, 3, 5)
    np.testing.assert_allclose(*results, rtol=1e-5, atol=1e-6)
