"""Weights of few bits stay narrow in C, beside ONNX Runtime and OpenVINO; what is not in blocks becomes floats."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from onnx import TensorProto as T, helper as h, numpy_helper as nh

import irc
from irc.diagnostics import Sink
from irc.ir.graph import Graph
from irc.ir.types import DType, bf16, f16, f32, i4, i8, u4, u8
from irc.kernels.core.isa import AVX2
from irc.layout import narrow_weights
from irc.layout.narrow_weights import NarrowConstant
from irc.opdef.builder import evaluate
from irc.passes import decompose, fold
from tests.support.lowering import graph_of
from tests.support.random_numbers import RANDOM

N, K = 512, 320
X = np.random.default_rng(3).standard_normal((2, K)).astype(np.float32)


def found(graph: Graph) -> list[tuple[int, int, bool]]:
    """Bits, block and own zero points of what the pass finds."""
    narrow_weights.run(graph, AVX2)
    constants = [v.const for node in graph.nodes for v in node.operands if isinstance(v.const, NarrowConstant)]
    return [(c.narrow.bits, c.narrow.block, c.narrow.zeros) for c in constants]


def kept(build: Any) -> list[tuple[int, int, bool]]:
    """What the pass finds, where results stay what they were."""
    graph = graph_of(build, X)
    before = evaluate(graph, {graph.inputs[0]: X})
    kinds = found(graph)
    for was, now in zip(before, evaluate(graph, {graph.inputs[0]: X}), strict=True):
        assert np.allclose(was, now, rtol=1e-3, atol=1e-3 * np.abs(was).max())
    return kinds


def numbers(kind: DType, *shape: int) -> Any:
    low, high = {i4: (-8, 8), u4: (0, 16), i8: (-128, 128), u8: (0, 256)}[kind]
    return RANDOM.integers(low, high, shape).astype(kind.numpy)


def scales(*shape: int) -> Any:
    return (RANDOM.random(shape) + 0.5).astype(np.float32)


@pytest.mark.parametrize(("kind", "bits"), [(i4, 4), (u4, 4), (i8, 8), (u8, 8)])
@pytest.mark.parametrize("wide", [f32, f16])
def test_openvino_blocks(kind: DType, bits: int, wide: DType) -> None:
    """Convert, Subtract, Multiply, Reshape of [n, blocks, block]; f16 is widened behind them."""

    def build(b: Any, x: Any) -> Any:
        w = b.Cast(b.const(numbers(kind, N, 5, 64), kind), to=wide)
        if kind in (u4, u8):
            w = b.Sub(w, b.Cast(b.const(numbers(kind, N, 5, 1), kind), to=wide))
        w = b.Reshape(b.Mul(w, b.const(scales(N, 5, 1).astype(wide.numpy), wide)), [N, K])
        return b.MatMul(x, w if wide == f32 else b.Cast(w, to=f32), transpose_b=True)

    assert kept(build) == [(bits, 64, kind in (u4, u8))]


def test_scale_of_each_column() -> None:
    def build(b: Any, x: Any) -> Any:
        return b.MatMul(x, b.Mul(b.Cast(b.const(numbers(i8, K, N), i8), to=f32), b.const(scales(1, N), f32)))

    assert kept(build) == [(8, 256, False)]


def test_few_levels_of_bytes() -> None:
    """Bytes that hold numbers of 4 bits are stored as these."""

    def build(b: Any, x: Any) -> Any:
        w = b.Cast(b.const(numbers(i4, K, N).astype(np.int8), i8), to=f32)
        return b.MatMul(x, b.Mul(w, b.const(scales(1, N), f32)))

    assert kept(build) == [(4, 256, False)]


def test_dequantize_linear_in_blocks() -> None:
    def build(b: Any, x: Any) -> Any:
        points = b.const(numbers(u4, K // 32, N), u4)
        w = b.DequantizeLinear(
            b.const(numbers(u4, K, N), u4), b.const(scales(K // 32, N), f32), points, axis=0, block_size=32
        )
        return b.Gemm(x, b.Transpose(w, [1, 0]), b.const(scales(N), f32), transB=1)

    assert kept(build) == [(4, 32, True)]


@pytest.mark.parametrize("turned", [False, True])
@pytest.mark.parametrize("kind", [f16, bf16], ids=str)
def test_floats_of_16_bits(kind: DType, turned: bool) -> None:
    """Widened weights, as `ovc` writes them, and products that are of these types."""

    def build(b: Any, x: Any) -> Any:
        w = b.Cast(b.const(scales(*((N, K) if turned else (K, N))).astype(kind.numpy), kind), to=f32)
        return b.MatMul(x, w, transpose_b=turned)

    assert kept(build) == [(16, 1, False)]


@pytest.mark.parametrize("what", ["along the columns", "zero points between", "of the run", "small"])
def test_others_are_left_alone(what: str) -> None:
    """Scales along k, zero points that are no whole numbers, numbers that are not known, few elements."""

    def build(b: Any, x: Any) -> Any:
        size = 8 if what == "small" else N
        w = b.Cast(b.const(numbers(u8, K, size), u8), to=f32)
        if what == "zero points between":
            w = b.Sub(w, b.const(np.full((1, size), 7.5, np.float32), f32))
        if what == "of the run":
            w = b.Add(w, b.ReduceMean(x, [0, 1], keepdims=True))
        return b.MatMul(x, b.Mul(w, b.const(scales(K, 1) if what == "along the columns" else scales(1, size), f32)))

    assert kept(build) == []


def test_constants_behind_many_operations_are_left_alone() -> None:
    """Each value is read once: sums of a value with itself would double the work, long chains the stack."""

    def build(b: Any, x: Any) -> Any:
        w, whole = b.const(scales(K, N), f32), b.const(numbers(u4, K, N).astype(np.int8), i8)
        for _ in range(60):
            w, whole = b.Mul(w, w), b.BitwiseAnd(whole, whole)
        for _ in range(1500):
            w = b.Cast(w, to=f32)
        return b.Add(b.MatMul(x, w), b.MatMul(x, b.Cast(whole, to=f32)))

    assert found(graph_of(build, X)) == []


@pytest.mark.parametrize("rows", [1, 3, "rows"])
@pytest.mark.parametrize("zeros", [False, True])
def test_matmul_nbits_beside_onnx_runtime(tmp_path: Path, rows: Any, zeros: bool) -> None:
    """The artefact holds the numbers: it is smaller than floats alone would be."""
    ort = pytest.importorskip("onnxruntime")
    blocks = K // 32
    given = {
        "b": RANDOM.integers(0, 256, (N, blocks, 16), dtype=np.uint8),
        "s": scales(N * blocks),
        "z": RANDOM.integers(0, 256, N * blocks // 2, dtype=np.uint8),
    }
    names = ["x", "b", "s", *(["z"] if zeros else [])]
    node = h.make_node("MatMulNBits", names, ["y"], domain="com.microsoft", K=K, N=N, bits=4, block_size=32)
    graph = h.make_graph(
        [node],
        "weights",
        [h.make_tensor_value_info("x", T.FLOAT, [rows, K])],
        [h.make_tensor_value_info("y", T.FLOAT, [rows, N])],
        [nh.from_array(given[name], name) for name in names[1:]],
    )
    opsets = [h.make_opsetid("", 21), h.make_opsetid("com.microsoft", 1)]
    path = tmp_path / "weights.onnx"
    path.write_bytes(h.make_model(graph, opset_imports=opsets, ir_version=10).SerializeToString())
    x = RANDOM.standard_normal((5 if rows == "rows" else rows, K)).astype(np.float32)
    session = ort.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    (wanted,) = session.run(None, {"x": x})
    model = irc.compile(path)
    assert np.abs(model(x)[0] - wanted).max() < 1e-5 * np.abs(wanted).max()
    model.save(tmp_path / "made.irc")
    assert (tmp_path / "made.irc").stat().st_size < 3 * N * K


def test_scales_are_not_repeated_to_fold_weights(monkeypatch: pytest.MonkeyPatch) -> None:
    """One for each number would be as large as the weights in floats, beyond what is folded."""

    def build(b: Any, x: Any) -> Any:
        k, n, blocks = K - 10, N, K // 32
        packed = b.const(RANDOM.integers(0, 256, (n, blocks, 16)), u8)
        zeros = b.const(RANDOM.integers(0, 256, n * blocks // 2), u8)
        operands = b.Slice(x, [0], [k], [1]), packed, b.const(scales(n * blocks), f32), zeros
        return b.MatMulNBits(*operands, K=k, N=n, bits=4, block_size=32)

    monkeypatch.setattr(fold, "LARGEST", 1 << 12)
    graph = graph_of(build, X)
    before = evaluate(graph, {graph.inputs[0]: X})[0]
    decompose.run(graph, Sink())
    assert found(graph) == [(4, 32, True)]
    assert np.allclose(evaluate(graph, {graph.inputs[0]: X})[0], before, rtol=1e-4, atol=1e-4 * np.abs(before).max())


def test_int4_of_an_ir_beside_openvino(tmp_path: Path) -> None:
    openvino = pytest.importorskip("openvino")
    ov = openvino.opset13
    x = ov.parameter([1, K], np.float32, name="x")
    w = ov.constant(numbers(i4, N, 5, 64).astype(ml_dtypes.int4).astype(np.int8), dtype=np.int8)
    w = ov.multiply(ov.convert(w, np.float16), ov.constant(scales(N, 5, 1).astype(np.float16)))
    w = ov.convert(ov.reshape(w, ov.constant(np.array([N, K])), False), np.float32)
    model = openvino.Model([ov.matmul(x, w, False, True)], [x])
    path = tmp_path / "weights.xml"
    openvino.save_model(model, path, compress_to_fp16=False)
    exact = {"INFERENCE_PRECISION_HINT": "f32", "DYNAMIC_QUANTIZATION_GROUP_SIZE": 0}
    wanted = openvino.Core().compile_model(model, "CPU", exact)([X[:1]])[0]
    got = irc.compile(path)(X[:1])[0]
    assert np.abs(got - wanted).max() < 1e-5 * np.abs(wanted).max()
