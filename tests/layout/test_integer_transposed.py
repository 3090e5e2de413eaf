"""Transposed convolutions of bytes are convolutions, or a product, of integers, as other engines compute them."""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np
import onnx
import pytest

import irc
from irc.ir.graph import Graph
from irc.ir.types import f32, i8
from irc.ir.verify import problems
from irc.kernels.core.isa import AVX2, AVX512, NEON
from irc.layout import fake_quantized, fold_taps, integer_convolutions, integer_products, integer_transposed
from irc.opdef.builder import evaluate
from irc.toolchain.processor import cpu_features
from tests.support.instruction_sets import of_other_kernels
from tests.support.lowering import graph_of, random

LIMITS = -128 / 40, 127 / 40
# input, outputs, window, stride, padding in front and behind, output padding; and the convolutions, and products, of it
CASES: dict[str, tuple[tuple[int, ...], int, tuple[int, ...], int, int, int, tuple[int, int]]] = {
    "windows twice the stride": ((1, 16, 20, 20), 24, (4, 4), 2, 1, 0, (1, 0)),
    "a plane so small that much is computed around it": ((2, 24, 5, 4), 16, (4, 4), 2, 1, 0, (4, 0)),
    "windows that the stride does not divide": ((1, 16, 20, 20), 32, (3, 3), 2, 1, 1, (4, 0)),
    "the same, to outputs that fill no vector": ((1, 16, 20, 20), 3, (3, 3), 2, 1, 1, (1, 0)),
    "windows as large as the stride": ((1, 16, 6, 7), 8, (2, 2), 2, 0, 0, (1, 0)),
    "stride 1": ((1, 16, 6, 7), 8, (3, 3), 1, 1, 0, (1, 0)),
    "one axis": ((1, 16, 50), 8, (16,), 8, 4, 0, (1, 0)),
    "one pixel": ((3, 32, 1, 1), 8, (4, 4), 1, 0, 0, (0, 1)),
}


def network(name: str, one_scale: bool = False, tanh: bool = False) -> tuple[Graph, np.ndarray[Any, Any]]:
    """Write a case as OpenVINO's NNCF does: fake quantization, weights that are multiplied, a bias, a Relu."""
    shape, outputs, window, stride, pad, extra, _ = CASES[name]
    draws, rank = np.random.default_rng(3), len(window)
    weights = draws.integers(-127, 128, (shape[1], outputs, *window)).astype(np.int8)
    around = (1,) * rank
    scales = (draws.random((1, 1 if one_scale else outputs, *around)) * 0.001 + 0.001).astype(np.float32)
    bias = draws.standard_normal((1, outputs, *around))

    def quantized(b: Any, x: Any, low: float, high: float) -> Any:
        limits = b.const(low, f32), b.const(high, f32)
        return b.FakeQuantize(x, *limits, *limits, levels=256)

    def build(b: Any, x: Any) -> Any:
        w = b.Mul(b.Cast(b.const(weights, i8), to=f32), b.const(scales, f32))
        fields = {"strides": (stride,) * rank, "pads_begin": (pad,) * rank, "pads_end": (pad,) * rank}
        y = b.ConvTranspose(quantized(b, x, *LIMITS), w, **fields, output_padding=(extra,) * rank)
        y = b.Add(y, b.const(bias, f32))
        return b.Tanh(y) if tanh else quantized(b, b.Relu(y), 0, 3)

    x = random(*shape)
    return graph_of(build, x), x


def rewritten(graph: Graph, isa: Any = AVX512) -> Counter[str]:
    """Count the operations with i32 or with bytes as their results, after the passes over what is quantized."""
    fake_quantized.run(graph, isa)
    integer_transposed.run(graph, isa)
    integer_products.run(graph, isa)
    integer_convolutions.run(graph, isa)
    assert not problems(graph)
    return Counter(f"{n.op.name} {n.outputs[0].dtype.name}" for n in graph.nodes)


@pytest.mark.parametrize("one_scale", [False, True])
@pytest.mark.parametrize("name", CASES)
def test_sums_are_those_of_integers(name: str, one_scale: bool) -> None:
    graph, x = network(name, one_scale)
    (wanted,) = evaluate(graph, {graph.inputs[0]: x})
    found, (convolutions, products) = rewritten(graph), CASES[name][-1]
    assert (found["Conv i32"], found["MatMul i32"]) == (convolutions, products)
    assert not found["ConvTranspose f32"] and not found["Conv f32"] and not found["FakeQuantize f32"]
    assert found["Interleave u8"] == (1 if CASES[name][3] > 1 else 0)  # bytes are moved
    (got,) = evaluate(graph, {graph.inputs[0]: x})
    steps = np.abs(got - wanted) * 255 / 3
    assert np.quantile(steps, 0.99) < 0.01 and steps.max() < 1.5


def test_results_that_nobody_quantizes_are_floats() -> None:
    graph, x = network("windows that the stride does not divide", tanh=True)
    (wanted,) = evaluate(graph, {graph.inputs[0]: x})
    found = rewritten(graph)
    assert found["Conv i32"] == 4 and found["Interleave f32"] == 1
    np.testing.assert_allclose(evaluate(graph, {graph.inputs[0]: x})[0], wanted, rtol=1e-5, atol=1e-5)


def test_what_stays() -> None:
    """Without kernels of bytes nothing is rewritten; nor groups, whose channels are few each."""
    graph, _ = network("stride 1")
    assert fake_quantized.run(graph, AVX512) == 1
    assert integer_transposed.run(graph, NEON) == 0
    weights = np.ones((16, 1, 3, 3), np.int8)

    def build(b: Any, x: Any) -> Any:
        x = b.DequantizeLinear(b.QuantizeLinear(x, b.const(0.1, f32)), b.const(0.1, f32))
        return b.ConvTranspose(x, b.DequantizeLinear(b.const(weights, i8), b.const(0.1, f32)), group=16)

    assert integer_transposed.run(graph_of(build, random(1, 16, 5, 5)), AVX512) == 0


@pytest.mark.parametrize("isa", [AVX512, AVX2], ids=["avx512", "avx2"])
def test_taps_of_bytes_are_channels_where_outputs_are_few(isa: Any) -> None:
    weights = np.random.default_rng(1).integers(-127, 128, (3, 64, 7, 7)).astype(np.int8)

    def build(b: Any, x: Any) -> Any:
        x = b.DequantizeLinear(
            b.QuantizeLinear(x, b.const(0.02, f32), b.const(9, i8)), b.const(0.02, f32), b.const(9, i8)
        )
        y = b.Conv(x, b.DequantizeLinear(b.const(weights, i8), b.const(0.01, f32)), pads_begin=(3, 3), pads_end=(3, 3))
        return b.Tanh(b.Mul(y, b.const(0.01, f32)))

    x = random(1, 64, 9, 8)
    graph = graph_of(build, x)
    (wanted,) = evaluate(graph, {graph.inputs[0]: x})
    assert integer_convolutions.run(graph, isa) == 1
    assert fold_taps.run(graph, isa) == 1
    (folded,) = (n for n in graph.nodes if n.op.name == "Conv")
    assert folded.outputs[0].dtype.name == "i32" and folded.outputs[0].shape[1] == 21
    np.testing.assert_allclose(evaluate(graph, {graph.inputs[0]: x})[0], wanted, rtol=1e-4, atol=1e-5)


def written(name: str) -> onnx.ModelProto:
    """Write a case as ONNX Runtime's quantizer does: DequantizeLinear in front, QuantizeLinear behind."""
    shape, outputs, window, stride, pad, extra, _ = CASES[name]
    draws, rank = np.random.default_rng(4), len(window)
    constants = {
        "w": draws.integers(-127, 128, (shape[1], outputs, *window)).astype(np.int8),
        "ws": (draws.random(outputs) * 0.001 + 0.001).astype(np.float32),
        "wz": np.zeros(outputs, np.int8),
        "s": np.float32(0.025),
        "z": np.uint8(117),
        "t": np.float32(0.02),
        "y0": np.uint8(3),
    }
    constants |= {"b": draws.integers(-9000, 9000, outputs).astype(np.int32), "bs": constants["ws"] * constants["s"]}
    node = onnx.helper.make_node
    fields: dict[str, Any] = {"strides": [stride] * rank, "pads": [pad] * 2 * rank}
    nodes = [
        node("QuantizeLinear", ["x", "s", "z"], ["xq"]),
        node("DequantizeLinear", ["xq", "s", "z"], ["xd"]),
        node("DequantizeLinear", ["w", "ws", "wz"], ["wd"], axis=1),
        node("DequantizeLinear", ["b", "bs"], ["bd"], axis=0),
        node("ConvTranspose", ["xd", "wd", "bd"], ["c"], **fields, output_padding=[extra] * rank),
        node("QuantizeLinear", ["c", "t", "y0"], ["cq"]),
        node("DequantizeLinear", ["cq", "t", "y0"], ["y"]),
    ]
    x = onnx.helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, shape)
    y = onnx.helper.make_tensor_value_info("y", onnx.TensorProto.FLOAT, None)
    kept = [onnx.numpy_helper.from_array(np.asarray(v), k) for k, v in constants.items()]
    graph = onnx.helper.make_graph(nodes, "transposed", [x], [y], kept)
    return onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 17)], ir_version=8)


@pytest.mark.skipif(not {"avx2"} <= cpu_features(), reason="needs AVX2")
@pytest.mark.parametrize("target", of_other_kernels("native", "x86-64-v3"))
@pytest.mark.parametrize("name", CASES)
def test_results_are_those_of_onnx_runtime(name: str, target: str) -> None:
    ort = pytest.importorskip("onnxruntime")
    model, x = written(name), random(*CASES[name][0])
    session = ort.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    (wanted,) = session.run(None, {"x": x})
    (got,) = irc.compile(model, backend="c", target=target)([x])
    steps = np.abs(got - wanted) / 0.02
    assert got.shape == wanted.shape and np.quantile(steps, 0.99) < 0.01 and steps.max() < 1.5
