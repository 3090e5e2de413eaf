"""Sums of dequantized bytes that are quantized again are divided by nothing."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest

import irc
from irc.diagnostics import Sink
from irc.ir.dim import Dim
from irc.ir.graph import Graph
from irc.ir.types import DType, i8, u8
from irc.kernels.core.isa import AVX2, AVX512, NEON
from irc.kernels.core.registry import select
from irc.kernels.integer.problem import SumProblem
from irc.layout import quantized_sums
from irc.layout.quantized_sums import SumOfBytes
from irc.ops.quantize import QuantizeLinear
from irc.pipelines import compile_c
from irc.toolchain.c_compiler import find_compiler
from tests.support.instruction_sets import of_other_kernels

helper = onnx.helper
RELU = [helper.make_node("Add", ["a", "b"], ["s"]), helper.make_node("Relu", ["s"], ["r"])]
LESS = [helper.make_node("Sub", ["a", "b"], ["s"]), helper.make_node("Relu", ["s"], ["r"])]
CLIP = [helper.make_node("Add", ["a", "b"], ["s"]), helper.make_node("Clip", ["s", "least", "most"], ["r"])]
BIAS = [helper.make_node("Add", ["a", "bias"], ["s"]), helper.make_node("Max", ["s", "b"], ["r"])]
TWICE = [helper.make_node("Add", ["a", "b"], ["s"]), helper.make_node("Add", ["s", "s"], ["r"])]
TIMES = [helper.make_node("Add", ["a", "b"], ["s"]), helper.make_node("Mul", ["s", "a"], ["r"])]


DTYPE: dict[Any, DType] = {np.uint8: u8, np.int8: i8}


def model_of(steps: list[onnx.NodeProto], kind: type[Any] = np.uint8, also: str = "", rows: int = 9) -> onnx.ModelProto:
    """Write steps from a and b to r between bytes x, y and z; also: another result of the model."""
    arrays = {
        "xs": np.float32(0.051),
        "ys": np.float32(0.033),
        "zs": np.float32(0.07),
        "xz": kind(7),
        "yz": kind(20),
        "zz": kind(11),
        "least": np.float32(-1),
        "most": np.float32(6),
        "bias": np.linspace(-2, 2, 39).astype(np.float32),
    }
    nodes = [helper.make_node("DequantizeLinear", [n, f"{n}s", f"{n}z"], [m]) for n, m in (("x", "a"), ("y", "b"))]
    nodes += [*steps, helper.make_node("QuantizeLinear", ["r", "zs", "zz"], ["z"])]
    used = {n for node in nodes for n in node.input}
    constants = [onnx.numpy_helper.from_array(np.asarray(v), n) for n, v in arrays.items() if n in used]
    written = helper.np_dtype_to_tensor_dtype(np.dtype(kind))
    inputs = [helper.make_tensor_value_info(n, written, [rows, 39]) for n in "xy"]
    outputs = [helper.make_tensor_value_info("z", written, [rows, 39])]
    outputs += [helper.make_tensor_value_info(also, onnx.TensorProto.FLOAT, [rows, 39])] if also else []
    graph = helper.make_graph(nodes, "bytes", inputs, outputs, constants)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def graph_of(model: onnx.ModelProto) -> Graph:
    graph = irc.load(model).graph
    for name, run in compile_c(AVX512):
        if name == "quantized-sums":
            break
        run(graph, Sink())
    return graph


@pytest.mark.skipif(find_compiler() is None, reason="no C compiler")
@pytest.mark.parametrize("kind", [np.uint8, np.int8])
@pytest.mark.parametrize("steps", [RELU, CLIP, LESS, BIAS, TWICE], ids=["relu", "clip", "less", "bias", "twice"])
def test_bytes_are_the_nearest(steps: list[onnx.NodeProto], kind: type[Any]) -> None:
    model, random = model_of(steps, kind), np.random.default_rng(3)
    for isa in (AVX512, NEON):
        graph = graph_of(model)
        assert quantized_sums.run(graph, isa) == 1
        joined = [n for n in graph.nodes if isinstance(n.op, SumOfBytes)]
        assert len(joined) == (isa is AVX512 and steps in (RELU, CLIP, TWICE))
        for last in (n for n in graph.nodes if isinstance(n.op, QuantizeLinear)):
            scale = last.inputs[1]
            assert scale is not None and scale.array is not None and scale.array == 1
    limits = np.iinfo(kind)
    given = [random.integers(limits.min, limits.max + 1, (9, 39)).astype(kind) for _ in range(2)]
    (wanted,) = irc.compile(model, backend="numpy")(given)
    (got,) = irc.compile(model, backend="c")(given)
    difference = np.abs(got.astype(int) - wanted)
    assert difference.max() <= 1 and difference.mean() < 0.01 and np.unique(got).size > 40


@pytest.mark.parametrize(("steps", "also"), [(TIMES, ""), (RELU, "s")], ids=["product", "kept"])
def test_others_are_divided(steps: list[onnx.NodeProto], also: str) -> None:
    assert quantized_sums.run(graph_of(model_of(steps, also=also)), AVX512) == 0


@pytest.mark.skipif(find_compiler() is None, reason="no C compiler")
@pytest.mark.parametrize("target", of_other_kernels("native", "x86-64-v3"))
@pytest.mark.parametrize("kind", [np.uint8, np.int8])
def test_kernel_computes_what_its_oracle_does(kind: type[Any], target: str) -> None:
    """Of one task and of several, with a rest."""
    written = DTYPE[kind]
    for rows in (1, 9, 300):
        model, random = model_of(RELU, kind, rows=rows), np.random.default_rng(rows)
        limits = np.iinfo(kind)
        given = [random.integers(limits.min, limits.max + 1, (rows, 39)).astype(kind) for _ in range(2)]
        (got,) = irc.compile(model, backend="c", target=target, threads=2)(given)
        problem = SumProblem(written, "highest", (written, written), Dim.of(rows * 39), 11)
        for isa in (AVX512, AVX2):
            kernel = select(problem, isa)
            assert kernel is not None
            y = np.empty(rows * 39, kind)
            xs, numbers = [x.reshape(-1) for x in given], [0.051 / 0.07, 7, 0.033 / 0.07, 20, 0, np.inf]
            kernel.compute([xs[0], np.array(numbers, np.float32), xs[1]], [y], {"n": y.size, "zero": 11})
            difference = np.abs(got.reshape(-1).astype(int) - y)
            assert difference.max() <= 1 and difference.mean() < 0.001


def test_reference_is_what_was_there() -> None:
    op = SumOfBytes((0.5, 0.25), (7, 20), (0.0, 100.0), 11, u8)
    x, y = np.arange(200, dtype=np.uint8), np.arange(200, dtype=np.uint8)[::-1]
    wanted = np.rint(((x - 7.0) * 0.5 + (y - 20.0) * 0.25).clip(0, 100)) + 11
    np.testing.assert_array_equal(op.reference(x, y), wanted)


@pytest.mark.parametrize("scale", [np.nan, np.inf, 1e30])
def test_what_does_not_fit_into_32_bits_is_not_joined(scale: float) -> None:
    model = model_of(RELU)
    (initial,) = (t for t in model.graph.initializer if t.name == "xs")
    initial.CopyFrom(onnx.numpy_helper.from_array(np.asarray(np.float32(scale)), "xs"))
    graph = graph_of(model)
    quantized_sums.run(graph, AVX512)
    assert not any(isinstance(n.op, SumOfBytes) for n in graph.nodes)
