"""Products of dequantized matrices are computed from their integers, where a kernel takes them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import irc
from irc.ir.graph import Graph, Model
from irc.ir.types import f32, i8, u8
from irc.ir.verify import problems
from irc.kernels.core.isa import AVX2, AVX512, NEON
from irc.layout import integer_products
from irc.opdef.builder import evaluate
from tests.support.lowering import graph_of
from tests.support.random_numbers import RANDOM

X = np.random.default_rng(3).integers(0, 256, (2, 9, 40)).astype(np.uint8)
WEIGHTS = np.random.default_rng(4).integers(-128, 128, (40, 17)).astype(np.int8)


def product_of(weights: Any = WEIGHTS, scale: Any = None, zero: Any = None, axis: int = 1) -> Graph:
    """Write DequantizeLinear(x) · DequantizeLinear(weights)."""
    scale = (RANDOM.random(17) + 0.5).astype(np.float32) if scale is None else scale
    zero = np.zeros(np.shape(scale), weights.dtype) if zero is None else zero

    def build(b: Any, x: Any) -> Any:
        a = b.DequantizeLinear(x, b.const(0.03, f32), b.const(121, u8))
        kind = i8 if weights.dtype == np.int8 else u8
        right = b.const(weights, kind), b.const(scale, f32), b.const(zero, kind)
        return b.MatMul(a, b.DequantizeLinear(*right, axis=axis))

    return graph_of(build, X)


@pytest.mark.parametrize("isa", [AVX512, AVX2], ids=str)
@pytest.mark.parametrize(
    "more",
    [
        {},
        {"scale": np.float32(0.5)},
        {"weights": (WEIGHTS.astype(np.int16) + 128).astype(np.uint8), "zero": np.full(17, 128, np.uint8)},
        {"axis": -1},
    ],
    ids=["columns", "one scale", "unsigned", "last axis"],
)
def test_the_sums_are_of_integers(more: dict[str, Any], isa: Any) -> None:
    graph = product_of(**more)
    (wanted,) = evaluate(graph, {graph.inputs[0]: X})
    assert integer_products.run(graph, isa) == 1
    assert not problems(graph)
    assert next(n for n in graph.nodes if n.op.name == "MatMul").outputs[0].dtype.name == "i32"
    (got,) = evaluate(graph, {graph.inputs[0]: X})
    np.testing.assert_allclose(got, wanted, rtol=1e-5, atol=1e-5 * np.abs(wanted).max())


@pytest.mark.parametrize(
    "more",
    [{"axis": 0, "scale": np.ones(40, np.float32)}, {"weights": (WEIGHTS.astype(np.int16) + 128).astype(np.uint8)}],
    ids=["a scale for each row", "wider than a signed byte"],
)
def test_others_stay_as_they_are(more: dict[str, Any]) -> None:
    assert integer_products.run(product_of(**more), AVX512) == 0


def test_without_a_kernel_nothing_changes() -> None:
    assert integer_products.run(product_of(), NEON) == 0


@pytest.mark.parametrize("target", ["native", "x86-64-v2"])
def test_in_c(target: str) -> None:
    graph = product_of()
    (wanted,) = evaluate(graph, {graph.inputs[0]: X})
    (got,) = irc.compile(Model(graph, "onnx", 10, {"": 21}), backend="c", target=target)([X])
    np.testing.assert_allclose(got, wanted, rtol=1e-5, atol=1e-5 * np.abs(wanted).max())


def test_gemm_of_turned_weights_is_a_product_of_integers() -> None:
    scale = (RANDOM.random(17) + 0.5).astype(np.float32)
    bias = RANDOM.standard_normal(17).astype(np.float32)

    def build(b: Any, x: Any) -> Any:
        a = b.DequantizeLinear(x, b.const(0.03, f32), b.const(121, u8))
        right = b.const(WEIGHTS.T.copy(), i8), b.const(scale, f32), b.const(np.zeros(17, np.int8), i8)
        return b.Gemm(a, b.DequantizeLinear(*right, axis=0), b.const(bias, f32), transB=1)

    graph = graph_of(build, X[0])
    (wanted,) = evaluate(graph, {graph.inputs[0]: X[0]})
    assert integer_products.run(graph, AVX512) == 1
    assert not problems(graph) and not [n for n in graph.nodes if n.op.name == "Gemm"]
    (got,) = evaluate(graph, {graph.inputs[0]: X[0]})
    np.testing.assert_allclose(got, wanted, rtol=1e-5, atol=1e-5 * np.abs(wanted).max())


@pytest.mark.parametrize("turned", [False, True])
@pytest.mark.parametrize("flipped", [False, True])
def test_products_of_two_operands_are_of_integers(flipped: bool, turned: bool) -> None:
    """As those of attention: neither matrix is constant, and each may be read the other way."""
    one = X.swapaxes(1, 2).copy() if flipped else X
    other = np.random.default_rng(5).integers(0, 256, (2, 17, 40) if turned else (2, 40, 17)).astype(np.uint8)

    def build(b: Any, x: Any, y: Any) -> Any:
        left = b.DequantizeLinear(x, b.const(0.03, f32), b.const(121, u8))
        right = b.DequantizeLinear(y, b.const(0.02, f32), b.const(100, u8))
        return b.MatMul(left, right, transpose_a=flipped, transpose_b=turned)

    graph = graph_of(build, one, other)
    feeds = dict(zip(graph.inputs, (one, other), strict=True))
    (wanted,) = evaluate(graph, feeds)
    assert integer_products.run(graph, AVX512) == 1
    assert not problems(graph)
    (got,) = evaluate(graph, feeds)
    np.testing.assert_allclose(got, wanted, rtol=1e-5, atol=1e-5 * np.abs(wanted).max())
    (found,) = irc.compile(Model(graph_of(build, one, other), "onnx", 10, {"": 21}), backend="c")([one, other])
    np.testing.assert_allclose(found, wanted, rtol=1e-5, atol=1e-5 * np.abs(wanted).max())


@pytest.mark.parametrize(
    "shapes", [((2, 9, 40), (1, 40, 17)), ((2, 1, 40), (2, 40, 17)), ((1, 2, 40000), (1, 40000, 3))]
)
def test_operands_without_a_kernel_stay(shapes: Any) -> None:
    """Those of which one is repeated for the other's matrices, rows by themselves, and sums beyond 32 bits."""

    def build(b: Any, x: Any, y: Any) -> Any:
        left, right = (b.DequantizeLinear(v, b.const(0.03, f32), b.const(121, u8)) for v in (x, y))
        return b.MatMul(left, right)

    graph = graph_of(build, *(np.zeros(shape, np.uint8) for shape in shapes))
    assert integer_products.run(graph, AVX512) == 0
