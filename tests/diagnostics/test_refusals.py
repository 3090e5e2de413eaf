"""Refusals that no model file alone shows: of compiling, binding and running, of the C interface, and our own bugs."""

from __future__ import annotations

import ctypes
import os
import re
import subprocess
import sys
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

import irc
from irc.backends.numpy.functions import Library as NumpyLibrary
from irc.border import support
from irc.diagnostics import Problem
from irc.diagnostics.codes import runtime
from irc.expr import Load
from irc.fusion.elements import trace_node
from irc.ir.dim import Dim
from irc.ir.graph import Graph, Model, Value
from irc.ir.types import TensorType, f32, f64
from irc.ir.verify import verify
from irc.loops.ir import Program
from irc.opdef.base import Op
from irc.opdef.builder import Builder
from irc.opdef.registry import find_op
from irc.opdef.signature import Sig
from tests.support.c_program import Library, buffer, elementwise

HEAD = '<ir_version: 8, opset_import: ["" : 17]>'
STATE = """<?xml version="1.0"?>
<net name="m" version="11">
  <layers>
    <layer id="0" name="x" type="Parameter" version="opset1">
      <data element_type="f32" shape="1,3"/>
      <output><port id="0" precision="FP32" names="x"><dim>1</dim><dim>3</dim></port></output>
    </layer>
    <layer id="1" name="past" type="ReadValue" version="opset6">
      <data variable_id="cache" variable_type="f32" variable_shape="?,3"/>
      <output><port id="1" precision="FP32" names="past"><dim>-1</dim><dim>3</dim></port></output>
    </layer>
    <layer id="2" name="longer" type="Concat" version="opset1">
      <data axis="0"/>
      <input>
        <port id="0" precision="FP32"><dim>-1</dim><dim>3</dim></port>
        <port id="1" precision="FP32"><dim>1</dim><dim>3</dim></port>
      </input>
      <output><port id="2" precision="FP32" names="y"><dim>-1</dim><dim>3</dim></port></output>
    </layer>
    <layer id="3" name="keep" type="Assign" version="opset6">
      <data variable_id="cache"/>
      <input><port id="0" precision="FP32"><dim>-1</dim><dim>3</dim></port></input>
      <output><port id="1" precision="FP32"><dim>-1</dim><dim>3</dim></port></output>
    </layer>
    <layer id="4" name="r" type="Result" version="opset1">
      <input><port id="0" precision="FP32"><dim>-1</dim><dim>3</dim></port></input>
    </layer>
  </layers>
  <edges>
    <edge from-layer="1" from-port="1" to-layer="2" to-port="0"/>
    <edge from-layer="0" from-port="0" to-layer="2" to-port="1"/>
    <edge from-layer="2" from-port="2" to-layer="3" to-port="0"/>
    <edge from-layer="2" from-port="2" to-layer="4" to-port="0"/>
  </edges>
</net>
"""


def parsed(text: str) -> onnx.ModelProto:
    """A model of ONNX's text form, without its first line."""
    return onnx.parser.parse_model(HEAD + text)


def compiled(text: str, backend: str = "numpy", **options: Any) -> irc.CompiledModel:
    return irc.compile(parsed(text), backend=backend, cache=False, **options)


def refused(code: str, kind: type[Exception], run: Any, *args: Any, **options: Any) -> str:
    """What `run` is refused with, which has this code and no other."""
    with pytest.raises(kind) as caught:
        run(*args, **options)
    assert isinstance(caught.value, irc.IrcError)
    assert {d.code for d in caught.value.diagnostics} == {code}, str(caught.value)
    return caught.value.diagnostics[0].message


# -------------------------------------------------------------------------- compiling
@pytest.mark.compiler
def test_an_operation_without_loops() -> None:
    @dataclass(frozen=True)
    class Unwritten(Op):
        sig = Sig("x: f32 -> y: f32")

        def infer(self, x: Value) -> TensorType:
            return x.tensor

    graph = Graph("g")
    x = graph.add_input("x", TensorType.of(f32, [3]))
    graph.outputs.append(Builder(graph).add(Unwritten(), x))
    model = Model(graph, "onnx", 10, {"": 17})
    assert "Unwritten" in refused("IRC5002", irc.CompileError, irc.compile, model, backend="c", cache=False)


@pytest.mark.compiler
def test_a_size_that_is_no_axis_of_an_input() -> None:
    graph = Graph("g")
    x = graph.add_input("x", TensorType.of(f32, [Dim.symbol("n") * 2]))
    graph.outputs.append(Builder(graph).Neg(x))
    model = Model(graph, "onnx", 10, {"": 17})
    said = refused("IRC5005", irc.CompileError, irc.compile, model, backend="c", cache=False)
    assert said == "the size n of x is not itself the size of an axis of an input"


def test_a_bound_of_an_unknown_size() -> None:
    text = "g (float[n] x) => (float[n] y) { y = Abs(x) }"
    said = refused("IRC6352", irc.CompileError, compiled, text, bounds={"detections": 100})
    assert "'detections'" in said
    assert compiled(text, bounds={"n": 100})(np.float32([-1]))[0] == 1


@pytest.mark.compiler
def test_a_state_of_varying_size(tmp_path: Path) -> None:
    (tmp_path / "m.xml").write_text(STATE)
    (tmp_path / "m.bin").touch()
    said = refused("IRC6362", irc.CompileError, irc.compile, tmp_path / "m.xml", backend="c", cache=False)
    assert "cache" in said
    model = irc.compile(tmp_path / "m.xml", backend="numpy", cache=False)
    row = np.ones((1, 3), np.float32)
    assert [len(model(row)[0]) for _ in range(3)] == [1, 2, 3]


# ------------------------------------------------------------------ binding and running
def test_a_size_outside_its_declared_range() -> None:
    graph = Graph("g")
    x = graph.add_input("x", TensorType.of(f32, [Dim.symbol("n", 2, 8)]))
    graph.outputs.append(Builder(graph).Neg(x))
    model = irc.compile(Model(graph, "onnx", 10, {"": 17}), backend="numpy", cache=False)
    assert len(model(np.zeros(8, np.float32))[0]) == 8
    for size in (1, 9):
        said = refused("IRC6306", ValueError, model, np.zeros(size, np.float32))
        assert f" is {size} " in said and "2..8" in said


@pytest.mark.parametrize("backend", ["numpy", "c"])
def test_a_wrong_number_of_arrays_for_the_outputs(backend: str) -> None:
    model = compiled("g (float[n] x) => (float[n] y, float[n] z) { y = Abs(x) z = Neg(x) }", backend)
    x = np.ones(3, np.float32)
    for out in ([], [np.ones_like(x)], [np.ones_like(x)] * 3):
        assert f"has 2 outputs; {len(out)} " in refused("IRC6309", ValueError, model, x, out=out)
        refused("IRC6309", ValueError, model.bind, [x], outputs=out)


def test_what_has_no_buffer_is_not_bound() -> None:
    model = compiled("g (string[n] x) => (string[n] y) { y = Identity(x) }")
    words = np.array(["a", "b"], object)
    assert model(words)[0].tolist() == ["a", "b"]
    assert "input 'x'" in refused("IRC6310", TypeError, model.bind, [words])
    assert "output 'y'" in refused("IRC6310", TypeError, model, words, out=[words.copy()])


def test_values_that_an_operation_is_not_defined_for() -> None:
    model = compiled("g (float[n] x, int64[2] s) => (float[a,b] y) { y = Reshape(x, s) }")
    said = refused("IRC6317", ValueError, model, np.ones(6, np.float32), np.array([4, 2]))
    assert said.startswith("Reshape: ") and "size 6 into shape (4,2)" in said
    with pytest.raises(irc.RunError, match="node 0"):
        model(np.ones(6, np.float32), np.array([4, 2]))
    assert model(np.ones(6, np.float32), np.array([3, 2]))[0].shape == (3, 2)


def test_a_failure_that_no_data_explain(tmp_path: Path) -> None:
    """A module that was edited: what it does to operands of known sizes is not for the data to decide."""
    compiled("g (float[2,3] x) => (float[2,3] y) { y = Softmax(x) }").save(tmp_path / "m")
    module, manifest = tmp_path / "m" / "model.py", tmp_path / "m" / "manifest.json"
    old = module.read_text("utf-8")
    new = re.sub(r"(?m)^        y = .*$", "        y = x.reshape(7)", old)
    assert new != old
    module.write_text(new, "utf-8")
    recorded = manifest.read_text("utf-8").replace(sha256(old.encode()).hexdigest(), sha256(new.encode()).hexdigest())
    manifest.write_text(recorded.replace(f": {len(old.encode())}", f": {len(new.encode())}"), "utf-8")
    said = refused("IRC6311", irc.RunError, irc.load_compiled(tmp_path / "m"), np.ones((2, 3), np.float32))
    assert "cannot reshape" in said


@pytest.mark.compiler
def test_compiled_code_says_what_it_returns() -> None:
    """A tensor of 2^63 elements between inputs of 8 MiB."""
    text = """g (float[n,1,1] x, float[1,m,1] y, float[1,1,k] z) => (float s) {
        axis = Constant <value = int64 {0}> ()
        a = Mul(x, y)  b = Mul(a, z)  c = CumSum(b, axis)  s = ReduceMean <keepdims = 0> (c)
    }"""
    model, long = compiled(text, "c"), np.ones(1 << 21, np.float32)
    shapes = (-1, 1, 1), (1, -1, 1), (1, 1, -1)
    said = refused("IRC6312", ValueError, model, *(long.reshape(s) for s in shapes))
    assert "IRC6105" in said and "2^62" in said
    assert model(*(long[:2].reshape(s) for s in shapes))[0] == np.float32(1.5)


@pytest.mark.compiler
@pytest.mark.skipif(sys.platform != "linux", reason="the limit is Linux's")
def test_threads_that_cannot_be_started(tmp_path: Path) -> None:
    compiled("g (float[n] x) => (float[n] y) { y = Exp(x) }", "c", threads=2).save(tmp_path / "m")
    code = (
        "import re, resource, sys, irc\n"
        "import numpy as np\n"
        "x = np.zeros(3, np.float32)\n"
        "irc.load_compiled(sys.argv[1], threads=1)(x)\n"  # imports and loads everything else
        "used = int(re.search(r'VmSize:\\s+(\\d+)', open('/proc/self/status').read())[1]) << 10\n"
        "resource.setrlimit(resource.RLIMIT_AS, (used + (64 << 20), used + (64 << 20)))\n"
        "try:\n    irc.load_compiled(sys.argv[1], threads=64)(x)\n"
        "except irc.RunError as e:\n    print(e.diagnostics[0].code)\n"
    )
    env = {**os.environ, "PYTHONPATH": str(Path(irc.__file__).parent.parent)}
    done = subprocess.run(
        [sys.executable, "-c", code, str(tmp_path / "m")], env=env, capture_output=True, text=True, check=False
    )
    assert done.stdout == "IRC6325\n", done.stderr


# ------------------------------------------------------------------------- C interface
@pytest.mark.compiler
def test_misaligned_memory_and_a_run_without_sizes(tmp_path: Path) -> None:
    n = Dim.symbol("n", 1, 64)
    x, y = buffer("x", f32, (n,), "input"), buffer("y", f32, (n,), "output")
    f = elementwise("twice", y, lambda i: Load(x, (i,)) * 2.0, [x])
    library = Library(Program("m", [x], [y], [], [f], ["n"]), tmp_path)
    init, run = (library._function(name) for name in ("init", "run"))
    memory = np.zeros(4096 + 64, np.uint8)
    start = memory.ctypes.data + -memory.ctypes.data % 64
    assert init(None, None, None) == runtime.MEMORY_MISALIGNED.number
    one = (ctypes.c_int64 * 1)(4)
    assert run(ctypes.c_void_p(start), None, None, None) == runtime.NOT_INITIALISED.number
    assert library._function("plan")(ctypes.c_void_p(start), one) == runtime.NOT_INITIALISED.number
    assert run(None, None, None, None) == runtime.MEMORY_MISALIGNED.number
    assert init(ctypes.c_void_p(start + 8), None, None) == runtime.MEMORY_MISALIGNED.number
    assert init(ctypes.c_void_p(start), None, None) == 0
    a, b = np.ones(4, np.float32), np.zeros(4, np.float32)
    ins, outs = ((ctypes.c_void_p * 1)(v.ctypes.data) for v in (a, b))
    assert run(ctypes.c_void_p(start), ins, outs, None) == runtime.NOT_PLANNED.number
    assert library._function("plan")(ctypes.c_void_p(start), (ctypes.c_int64 * 1)(4)) == 0
    assert run(ctypes.c_void_p(start), ins, outs, None) == 0
    assert b.tolist() == [2, 2, 2, 2]


# ----------------------------------------------------------------------- our own bugs
class Halved(Op):
    """Declares f32 and computes f64."""

    sig = Sig("x: f32 -> y: f32")

    def infer(self, x: Any) -> TensorType:
        return x.tensor

    reference = eval("lambda self, x: x")  # a function without source

    def compute(self, out: TensorType, x: Any) -> Any:
        return lambda *i: x[i].cast(f64)


def test_loops_of_another_element_type() -> None:
    graph = Graph()
    x = graph.add_input("x", TensorType.of(f32, [2]))
    (y,) = Builder(graph).add_all(Halved(), x)
    assert y.producer is not None
    with pytest.raises(Problem, match="Halved declares f32 but computes f64") as caught:
        trace_node(y.producer)
    assert caught.value.code.id == "IRC5006"


def test_a_reference_without_source() -> None:
    with pytest.raises(Problem, match="Halved") as caught:
        NumpyLibrary().operation(Halved(), [])
    assert caught.value.code.id == "IRC6360"


def test_an_operation_that_irc_does_not_have() -> None:
    with pytest.raises(Problem, match="Multiplyy") as caught:
        find_op("Multiplyy")
    assert caught.value.code.id == "IRC9001"


def test_an_inconsistent_graph() -> None:
    graph, other = Graph(), Graph()
    x = graph.add_input("x", TensorType.of(f32, [2]))
    graph.outputs.append(Builder(graph).Neg(x))
    verify(graph, "reading")
    graph.outputs.append(Builder(other).Neg(other.add_input("z", TensorType.of(f32, [2]))))
    with pytest.raises(Problem, match="after reading") as caught:
        verify(graph, "reading")
    assert caught.value.code.id == "IRC9003"


def test_an_operation_without_a_definition_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    """A row of unsupported.toml, whether or not there is one."""
    row = support.Unsupported("Imagined", 1, "no definition yet")
    monkeypatch.setattr(support, "unsupported", lambda: {("onnx", "", "imagined"): row})
    model = onnx.parser.parse_model(HEAD + "m (float[2] x) => (y) { y = Imagined (x) }")
    (found,) = [d for d in irc.validate(model.SerializeToString()) if d.code == "IRC2002"]
    assert "no definition yet" in str(found)
