"""Sums of dequantized bytes that are quantized again are divided by nothing."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest

import irc
from irc.diagnostics import Sink
from irc.ir.graph import Graph
from irc.kernels.core.isa import AVX512
from irc.layout import quantized_sums
from irc.ops.quantize import QuantizeLinear
from irc.pipelines import compile_c
from irc.toolchain.c_compiler import find_compiler

helper = onnx.helper
RELU = [helper.make_node("Add", ["a", "b"], ["s"]), helper.make_node("Relu", ["s"], ["r"])]
CLIP = [helper.make_node("Sub", ["a", "b"], ["s"]), helper.make_node("Clip", ["s", "least", "most"], ["r"])]
BIAS = [helper.make_node("Add", ["a", "bias"], ["s"]), helper.make_node("Max", ["s", "b"], ["r"])]
TWICE = [helper.make_node("Add", ["a", "b"], ["s"]), helper.make_node("Add", ["s", "s"], ["r"])]
TIMES = [helper.make_node("Add", ["a", "b"], ["s"]), helper.make_node("Mul", ["s", "a"], ["r"])]


def model_of(steps: list[onnx.NodeProto], kind: type[Any] = np.uint8, also: str = "") -> onnx.ModelProto:
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
        "bias": np.linspace(-2, 2, 40).astype(np.float32),
    }
    nodes = [helper.make_node("DequantizeLinear", [n, f"{n}s", f"{n}z"], [m]) for n, m in (("x", "a"), ("y", "b"))]
    nodes += [*steps, helper.make_node("QuantizeLinear", ["r", "zs", "zz"], ["z"])]
    used = {n for node in nodes for n in node.input}
    constants = [onnx.numpy_helper.from_array(np.asarray(v), n) for n, v in arrays.items() if n in used]
    written = helper.np_dtype_to_tensor_dtype(np.dtype(kind))
    inputs = [helper.make_tensor_value_info(n, written, [9, 40]) for n in "xy"]
    outputs = [helper.make_tensor_value_info("z", written, [9, 40])]
    outputs += [helper.make_tensor_value_info(also, onnx.TensorProto.FLOAT, [9, 40])] if also else []
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
@pytest.mark.parametrize("steps", [RELU, CLIP, BIAS, TWICE], ids=["relu", "clip", "bias", "twice"])
def test_bytes_are_the_nearest(steps: list[onnx.NodeProto], kind: type[Any]) -> None:
    model, random = model_of(steps, kind), np.random.default_rng(3)
    graph = graph_of(model)
    assert quantized_sums.run(graph) == 1
    (last,) = (n for n in graph.nodes if isinstance(n.op, QuantizeLinear))
    scale = last.inputs[1]
    assert scale is not None and scale.array is not None and scale.array == 1
    limits = np.iinfo(kind)
    given = [random.integers(limits.min, limits.max + 1, (9, 40)).astype(kind) for _ in range(2)]
    (wanted,) = irc.compile(model, backend="numpy")(given)
    (got,) = irc.compile(model, backend="c")(given)
    difference = np.abs(got.astype(int) - wanted)
    assert difference.max() <= 1 and difference.mean() < 0.01 and np.unique(got).size > 60


@pytest.mark.parametrize(("steps", "also"), [(TIMES, ""), (RELU, "s")], ids=["product", "kept"])
def test_others_are_divided(steps: list[onnx.NodeProto], also: str) -> None:
    assert quantized_sums.run(graph_of(model_of(steps, also=also))) == 0
