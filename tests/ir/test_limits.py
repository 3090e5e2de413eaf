"""Small files stay small: what is beyond a limit is a finding at its node, before the work is done."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper

import irc
from irc.diagnostics import Problem
from irc.ir import limits
from irc.ir.dim import Dim, total

Y = helper.make_tensor_value_info("y", TensorProto.FLOAT, None)


def floats(name: str, shape: list[Any]) -> Any:
    return helper.make_tensor_value_info(name, TensorProto.FLOAT, shape)


def model(nodes: list[Any], inputs: list[Any], constants: dict[str, Any] | None = None, outputs: Any = (Y,)) -> bytes:
    made = [numpy_helper.from_array(np.asarray(v), k) for k, v in (constants or {}).items()]
    graph = helper.make_graph(nodes, "g", inputs, list(outputs), made)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=8).SerializeToString()


def codes(source: Any) -> list[str]:
    return [f.code for f in irc.validate(source) if f.severity == "error"]


# -------------------------------------------------------------------------- formulas of sizes
def test_divisions_of_divisions_are_one() -> None:
    n = Dim.symbol("N")
    assert ((n // 2 + 3) // 5) == (n + 6) // 10
    assert ((n - 1).ceildiv(2) + 1).ceildiv(3) == (n + 1).ceildiv(6)
    assert str(((n - 3).maximum(0) // 2 - 4).maximum(0) // 3) == "max((-11 + N)//6, 0)"
    size = n
    for _ in range(200):
        size = (size - 1).maximum(0).ceildiv(2)
    assert size == 0  # no axis has 2^200 elements


STEPS: tuple[tuple[Any, Any], ...] = (
    (lambda a, b, k: a + b, lambda a, b, k: a + b),
    (lambda a, b, k: a - b, lambda a, b, k: a - b),
    (lambda a, b, k: a // k, lambda a, b, k: a // k),
    (lambda a, b, k: a.ceildiv(k), lambda a, b, k: -(-a // k)),
    (lambda a, b, k: a % k, lambda a, b, k: a % k),
    (lambda a, b, k: a.maximum(b), lambda a, b, k: max(a, b)),
    (lambda a, b, k: a.minimum(b), lambda a, b, k: min(a, b)),
)
"""What to do with a formula, another and a positive number: to Dims and to numbers."""


def test_formulas_compute_what_they_say() -> None:
    """Random formulas beside Python's numbers."""
    rng = np.random.default_rng(0)
    for _ in range(1500):
        numbers = [int(n) for n in rng.integers(0, 40, 2)]
        pairs: list[tuple[Dim, int]] = [(Dim.symbol("N"), numbers[0]), (Dim.symbol("M"), numbers[1])]
        for _ in range(int(rng.integers(1, 7))):
            k, constant = int(rng.integers(1, 7)), int(rng.integers(-6, 7))
            (a, x) = pairs[int(rng.integers(len(pairs)))]
            (b, y) = [*pairs, (Dim.of(constant), constant)][int(rng.integers(len(pairs) + 1))]
            of_dims, of_numbers = STEPS[int(rng.integers(len(STEPS)))]
            pairs.append((of_dims(a, b, k), of_numbers(x, y, k)))
        dim, number = pairs[-1]
        lo, hi = dim.bounds()
        assert lo <= number == dim.evaluate({"N": numbers[0], "M": numbers[1]}) <= hi, (str(dim), numbers)


def test_formulas_that_grow_are_refused_at_once() -> None:
    sizes = [Dim.symbol(f"s{k}") for k in range(3000)]
    began = time.monotonic()
    for grow in (
        lambda: total(sizes),
        lambda: _folded(lambda d, s: (d - s).maximum(d.minimum(s)), sizes),
        lambda: _folded(lambda d, s: d * (s + 1), sizes),
        lambda: _folded(lambda d, _: d * d, sizes),
    ):
        with pytest.raises(Problem, match="limit"):
            grow()
    assert time.monotonic() - began < 30


def _folded(step: Any, sizes: list[Dim]) -> Dim:
    found = sizes[0]
    for size in sizes[1:]:
        found = step(found, size)
    return found


def test_contents_that_grow_are_computed_by_the_run() -> None:
    """A polynomial of degree 128 of four sizes, as data."""
    nodes = [helper.make_node("Shape", ["x"], ["s"]), helper.make_node("ReduceSum", ["s"], ["q0"], keepdims=1)]
    nodes += [helper.make_node("Mul", [f"q{k}"] * 2, [f"q{k + 1}"]) for k in range(7)]
    y = helper.make_tensor_value_info("q7", TensorProto.INT64, None)
    source = model(nodes, [floats("x", ["N", "M", "K", "L"])], outputs=[y])
    assert codes(source) == []
    for backend in ("numpy", "c"):
        (found,) = irc.compile(source, backend=backend, cache=False)([np.zeros((1, 2, 0, 0), np.float32)])
        assert np.asarray(found).tolist() == [np.int64(3**128 % 2**64 - (2**64 if 3**128 % 2**64 >= 2**63 else 0))]


def test_shapes_that_grow_are_findings() -> None:
    nodes = [helper.make_node("Concat", ["x", "z"], ["c0"], axis=0)]
    nodes += [helper.make_node("Gemm", [f"c{k}", f"c{k}"], [f"g{k}"], transB=1) for k in range(3)]
    nodes += [helper.make_node("Reshape", [f"g{k}", "flat"], [f"c{k + 1}"]) for k in range(3)]
    nodes.append(helper.make_node("Flatten", ["c3"], ["y"]))
    nodes = [nodes[0], *(n for k in range(3) for n in (nodes[1 + k], nodes[4 + k])), nodes[-1]]
    inputs = [floats("x", ["N", 1]), floats("z", ["M", 1])]
    began = time.monotonic()
    found = codes(model(nodes, inputs, {"flat": np.int64([-1, 1])}))
    assert set(found) <= {"IRC3301"} and time.monotonic() - began < 20


@pytest.mark.parametrize("op", ["Reshape", "Expand", "Tile"])
def test_a_shape_of_very_many_sizes(op: str) -> None:
    shape = helper.make_tensor_value_info("s", TensorProto.INT64, [2**32])
    assert codes(model([helper.make_node(op, ["x", "s"], ["y"])], [floats("x", [2, 4]), shape])) == ["IRC3301"]


# ------------------------------------------------------------------------------------ depth
@pytest.mark.parametrize("backend", ["numpy", "c"])
def test_long_chains_are_cut_into_groups(backend: str) -> None:
    nodes = [helper.make_node("Sin", [f"v{k}" if k else "x"], [f"v{k + 1}"]) for k in range(1500)]
    source = model([*nodes, helper.make_node("Neg", ["v1500"], ["y"])], [floats("x", [4])])
    x = np.linspace(0.1, 3, 4, dtype=np.float32)
    expected = x
    for _ in range(1500):
        expected = np.sin(expected)
    (found,) = irc.compile(source, backend=backend, cache=False)([x])
    np.testing.assert_allclose(found, -expected, rtol=1e-4)


@pytest.mark.parametrize("kind", [np.float32, np.float16])
@pytest.mark.parametrize("op", ["Sum", "Mean", "Max", "Min", "Concat"])
def test_very_many_operands(op: str, kind: Any) -> None:
    """Equal to the bit: also f16, which is rounded once."""
    names = [f"x{k % 7}" for k in range(50)]
    inputs = [
        helper.make_tensor_value_info(f"x{k}", helper.np_dtype_to_tensor_dtype(np.dtype(kind)), [2, 3])
        for k in range(7)
    ]
    axis = {"axis": 1} if op == "Concat" else {}
    y = helper.make_tensor_value_info("y", helper.np_dtype_to_tensor_dtype(np.dtype(kind)), None)
    source = model([helper.make_node(op, names, ["y"], **axis)], inputs, outputs=[y])
    arrays = list(np.random.default_rng(0).normal(size=(7, 2, 3)).astype(kind))
    (a,), (b,) = (irc.compile(source, backend=e, cache=False)(arrays) for e in ("c", "numpy"))
    np.testing.assert_array_equal(a, b)
    assert np.asarray(a).dtype == kind


@pytest.mark.parametrize("backend", ["numpy", "c"])
def test_slices_of_slices(backend: str) -> None:
    nodes = [helper.make_node("Slice", [f"v{k}" if k else "x", "a", "b", "i", "s"], [f"v{k + 1}"]) for k in range(60)]
    constants = {"a": np.int64([1]), "b": np.int64([2**62]), "i": np.int64([0]), "s": np.int64([2])}
    source = model([*nodes, helper.make_node("Neg", ["v60"], ["y"])], [floats("x", ["N", 4])], constants)
    (found,) = irc.compile(source, backend=backend, cache=False)([np.ones((70, 4), np.float32)])
    assert found.shape == (0, 4)


def test_functions_inside_functions() -> None:
    opsets = [helper.make_opsetid("", 18), helper.make_opsetid("f", 1)]
    made = []
    for k in range(500):
        inner = helper.make_node(f"F{k - 1}" if k else "Relu", ["a"], ["b"], domain="f" if k else "")
        made.append(helper.make_function("f", f"F{k}", ["a"], ["b"], [inner], opsets))
    graph = helper.make_graph([helper.make_node("F499", ["x"], ["y"], domain="f")], "g", [floats("x", [2])], [Y])
    whole = helper.make_model(graph, opset_imports=opsets, ir_version=8, functions=made)
    assert codes(whole.SerializeToString()) == ["IRC1546"]


# ----------------------------------------------------------------------------------- memory
def test_constants_that_grow_are_left_to_the_run() -> None:
    """Two hundred tensors of 16 MB out of one number.  What ru_maxrss says includes the process that starts another."""
    nodes = [helper.make_node("ConstantOfShape", ["s"], [f"v{k}"]) for k in range(200)]
    nodes += [helper.make_node("Add", [f"v{k}", "x"], [f"w{k}"]) for k in range(200)]
    outputs = [helper.make_tensor_value_info(f"w{k}", TensorProto.FLOAT, None) for k in range(200)]
    source = model(nodes, [floats("x", [1])], {"s": np.int64([2048, 2048])}, outputs)
    text = (
        "import sys, irc\n"
        "irc.compile(sys.stdin.buffer.read(), backend='numpy', cache=False)\n"
        "status = dict(line.split(':', 1) for line in open('/proc/self/status'))\n"
        "print(int(status['VmHWM'].split()[0]) >> 10)\n"
    )
    done = subprocess.run([sys.executable, "-c", text], input=source, capture_output=True, check=True)
    assert int(done.stdout) < 1024, "megabytes"


@pytest.mark.parametrize("backend", ["numpy", "c"])
def test_a_run_that_needs_too_much_memory(backend: str) -> None:
    nodes = [helper.make_node("Expand", ["x", "s"], ["e"]), helper.make_node("CumSum", ["e", "a"], ["y"])]
    source = model(nodes, [floats("x", [1])], {"s": np.int64([2**20, 2**20]), "a": np.int64(0)})
    with pytest.raises(irc.CompileError) as refused:
        irc.compile(source, backend=backend, cache=False)
    assert {d.code for d in refused.value.diagnostics} == {"IRC5008"}


def test_max_memory_of_the_command(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    from irc.cli import main

    path = tmp_path / "m.onnx"
    path.write_bytes(model([helper.make_node("Relu", ["x"], ["y"])], [floats("x", [1024])]))
    command = ["run", str(path), "--backend", "numpy", "--max-memory"]
    assert main([*command, "4095"]) == 1
    assert "IRC5008" in capfd.readouterr().err
    assert main([*command, "4096"]) == 0


def test_every_limit_says_why() -> None:
    table = [v for v in vars(limits).values() if isinstance(v, limits.Limit)]
    assert len(table) > 5 and all(v.what and v.why and v.most > 0 for v in table)


# --------------------------------------------------------------------------- time of loading
def _many_names() -> bytes:
    return model([helper.make_node("Sin", [f"q{k}"], [f"v{k}"]) for k in range(5000)], [floats("x", [2])])


def _many_operations() -> bytes:
    return model([helper.make_node(f"Foo{k}", ["x"], [f"v{k}"]) for k in range(5000)], [floats("x", [2])])


def _many_sizes() -> bytes:
    inputs = [floats(f"i{k}", [f"n{k}"]) for k in range(5000)]
    return model([helper.make_node("Concat", [i.name for i in inputs], ["y"], axis=0)], inputs)


@pytest.mark.parametrize("make", [_many_names, _many_operations, _many_sizes])
def test_findings_take_time_that_is_linear(make: Any) -> None:
    source = make()
    began = time.process_time()
    irc.validate(source)
    assert time.process_time() - began < 10
