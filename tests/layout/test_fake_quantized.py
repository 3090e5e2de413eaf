"""Fake quantization around products is bytes between them, and what their range implies is left out."""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np
import pytest

from irc.ir.graph import Graph
from irc.ir.types import f32, i8, i64
from irc.ir.verify import problems
from irc.kernels.core.isa import AVX512, NEON
from irc.layout import fake_quantized, integer_convolutions, integer_products, moved_bytes
from irc.opdef.builder import evaluate
from irc.ops.pool import MaxPool
from tests.support.lowering import graph_of
from tests.support.random_numbers import RANDOM

X = np.random.default_rng(7).standard_normal((1, 16, 9, 8)).astype(np.float32)
LEVELS = 255 / 6


def network(most: float = 6.0, odd: bool = False) -> Graph:
    """Write a convolution with a bias and a Clip, then a depthwise one of channels with scales of their own."""
    weights = RANDOM.integers(-127, 128, (24, 16, 3, 3)).astype(np.int8)
    windows = RANDOM.integers(-127, 128, (24, 1, 1, 3, 3)).astype(np.int8)
    scales = (RANDOM.random((24, 1, 1, 1)) * 0.001 + 0.001).astype(np.float32)
    largest = (RANDOM.random((1, 24, 1, 1)) * 2 + 4).astype(np.float32)

    def quantized(b: Any, x: Any, low: Any, high: Any) -> Any:
        limits = b.const(low, f32), b.const(high, f32)
        return b.FakeQuantize(x, *limits, *limits, levels=256)

    def weight(b: Any, integers: Any, scale: Any) -> Any:
        return b.Mul(b.Cast(b.const(integers, i8), to=f32), b.const(scale, f32))

    def build(b: Any, x: Any) -> Any:
        low = -(127 if odd else 128) / LEVELS
        x = quantized(b, x, low, low + 255 / LEVELS)
        y = b.Conv(x, weight(b, weights, scales), pads_begin=(1, 1), pads_end=(1, 1))
        y = b.Add(y, b.const(RANDOM.standard_normal((1, 24, 1, 1)), f32))
        y = quantized(b, b.Clip(y, b.const(0.0, f32), b.const(most, f32)), np.zeros_like(largest), largest)
        y = b.GroupedConv(y, weight(b, windows, scales[..., None]), pads_begin=(1, 1), pads_end=(1, 1))
        return quantized(b, y, -128 / LEVELS, 127 / LEVELS)

    return graph_of(build, X)


@pytest.mark.parametrize(("most", "left"), [(6.0, 0), (2.0, 1)], ids=["needless", "needed"])
@pytest.mark.parametrize("odd", [False, True])
def test_convolutions_become_those_of_bytes(most: float, left: int, odd: bool) -> None:
    graph = network(most, odd)
    (wanted,) = evaluate(graph, {graph.inputs[0]: X})
    assert fake_quantized.run(graph, AVX512) == 2
    assert integer_convolutions.run(graph, AVX512) == 2
    assert not problems(graph)
    names = Counter(n.op.name for n in graph.nodes)
    assert names["Conv"] == 2 and not names["GroupedConv"] and not names["FakeQuantize"]
    assert all(n.outputs[0].dtype.name == "i32" for n in graph.nodes if n.op.name == "Conv")
    assert (names["Max"], names["Min"], names["DequantizeLinear"]) == (0, left, 1)
    (got,) = evaluate(graph, {graph.inputs[0]: X})
    steps = np.abs(got - wanted) * LEVELS
    assert np.quantile(steps, 0.99) < 0.01 and steps.max() < 2.5


def test_levels_behind_a_max_pool_and_another_shape_are_bytes() -> None:
    weights = RANDOM.integers(-127, 128, (8, 16, 1, 1)).astype(np.int8)
    matrix = RANDOM.integers(-127, 128, (16 * 16, 5)).astype(np.int8)

    def build(b: Any, x: Any) -> Any:
        limits = b.const([[[[-128 / LEVELS]]]], f32), b.const([[[[127 / LEVELS]]]], f32)
        x, _ = b.add_all(MaxPool((2, 2), strides=(2, 2)), b.FakeQuantize(x, *limits, *limits, levels=256))
        y, z = (b.Conv(x, b.Mul(b.Cast(b.const(weights, i8), to=f32), b.const(s, f32))) for s in (0.01, 0.02))
        flat = b.Reshape(x, b.const([1, 16 * 16], i64))
        return b.Add(y, z), b.MatMul(flat, b.Mul(b.Cast(b.const(matrix, i8), to=f32), b.const(0.01, f32)))

    graph = graph_of(build, X)
    wanted = evaluate(graph, {graph.inputs[0]: X})
    assert fake_quantized.run(graph, AVX512) == 3
    assert not problems(graph)
    assert moved_bytes.run(graph, AVX512) == 2
    assert Counter(n.op.name for n in graph.nodes)["QuantizeLinear"] == 1
    assert (integer_convolutions.run(graph, AVX512), integer_products.run(graph, AVX512)) == (2, 1)
    for got, want in zip(evaluate(graph, {graph.inputs[0]: X}), wanted, strict=True):
        np.testing.assert_allclose(got, want, atol=1e-4 * np.abs(want).max())


def test_groups_have_scales_of_their_own_outputs() -> None:
    weights = RANDOM.integers(-120, 121, (4, 6, 4, 3, 3)).astype(np.int8)
    scales = (RANDOM.random((4, 6, 1, 1, 1)) * 0.001 + 0.001).astype(np.float32)
    points = RANDOM.integers(-3, 4, (4, 1, 1, 1, 1)).astype(np.float32)

    def build(b: Any, x: Any) -> Any:
        limits = b.const(-128 / LEVELS, f32), b.const(127 / LEVELS, f32)
        x = b.FakeQuantize(x, *limits, *limits, levels=256)
        w = b.Mul(b.Sub(b.Cast(b.const(weights, i8), to=f32), b.const(points, f32)), b.const(scales, f32))
        one = b.Mul(b.Cast(b.const(weights, i8), to=f32), b.const(0.01, f32))
        return b.GroupedConv(x, w, strides=(2, 1)), b.GroupedConv(x, one)

    graph = graph_of(build, X)
    wanted = evaluate(graph, {graph.inputs[0]: X})
    assert fake_quantized.run(graph, AVX512) == 2
    assert integer_convolutions.run(graph, AVX512) == 2
    assert not problems(graph)
    for got, want in zip(evaluate(graph, {graph.inputs[0]: X}), wanted, strict=True):
        np.testing.assert_allclose(got, want, atol=1e-4 * np.abs(want).max())


@pytest.mark.parametrize(("channels", "taken"), [(8, 0), (16, 1)])
def test_depthwise_convolutions_of_few_channels_are_of_floats(channels: int, taken: int) -> None:
    weights = RANDOM.integers(-120, 121, (channels, 1, 1, 3, 3)).astype(np.int8)

    def build(b: Any, x: Any) -> Any:
        limits = b.const(-128 / LEVELS, f32), b.const(127 / LEVELS, f32)
        x = b.FakeQuantize(x, *limits, *limits, levels=256)
        return b.GroupedConv(x, b.Mul(b.Cast(b.const(weights, i8), to=f32), b.const(0.01, f32)))

    graph = graph_of(build, X[:, :channels])
    assert fake_quantized.run(graph, AVX512) == 1
    assert integer_convolutions.run(graph, AVX512) == taken


def test_what_no_product_of_bytes_reads_stays() -> None:
    def build(b: Any, x: Any) -> Any:
        limits = b.const(-1.0, f32), b.const(1.0, f32)
        return b.Relu(b.FakeQuantize(x, *limits, *limits, levels=256))

    assert not fake_quantized.run(graph_of(build, X), AVX512)
    assert not fake_quantized.run(network(), NEON)
