"""What moves dequantized bytes moves the bytes, and so does what is quantized afterwards."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from irc.ir.graph import Graph
from irc.ir.types import f32, i8, i64, u8
from irc.ir.verify import problems
from irc.kernels.core.isa import AVX512, NEON
from irc.layout import moved_bytes
from irc.opdef.builder import evaluate
from irc.ops.concat import Split
from irc.ops.pool import MaxPool
from irc.ops.slice import Slice
from tests.support.lowering import graph_of

RNG = np.random.default_rng(5)
X = RNG.integers(-128, 128, (2, 8, 6, 4)).astype(np.int8)
Y = RNG.integers(-128, 128, (2, 4, 6, 4)).astype(np.int8)
SCALES = np.linspace(0.01, 0.08, 8, dtype=np.float32)
POINTS = np.arange(-4, 4, dtype=np.int8)


def dequantized(b: Any, x: Any, scale: Any = 0.03, zero: Any = 5) -> Any:
    return b.DequantizeLinear(x, b.const(np.float32(scale), f32), b.const(zero, i8), axis=1)


def pair(b: Any, x: Any, y: Any) -> Any:
    return b.Concat(dequantized(b, x), dequantized(b, y), axis=1)


def of_two_scales(b: Any, x: Any, y: Any) -> Any:
    return b.Concat(dequantized(b, x), dequantized(b, y, 0.07, -3), axis=-3)


def of_channels(b: Any, x: Any, y: Any) -> Any:
    return tuple(b.add_all(Split(), dequantized(b, x, SCALES, POINTS), b.const(1, i64), b.const([3, 5], i64)))


def along_another_axis(b: Any, x: Any, y: Any) -> Any:
    return tuple(b.add_all(Split(), dequantized(b, x, SCALES, POINTS), b.const(-1, i64), b.const([3, 1], i64)))


def picked(b: Any, x: Any, y: Any) -> Any:
    taken = b.Gather(dequantized(b, x), b.const([3, 0, 0], i64), b.const(2, i64))
    return b.add(Slice(), taken, *(b.const(v, i64) for v in ([0], [5], [1], [2])))


def turned(b: Any, x: Any, y: Any) -> Any:
    return b.Reshape(b.Transpose(dequantized(b, x), b.const([0, 2, 3, 1], i64)), b.const([2, -1], i64))


def windows(b: Any, x: Any, y: Any) -> Any:
    return b.add_all(MaxPool((3, 3), strides=(2, 2), pads_begin=(1, 1), pads_end=(1, 1)), dequantized(b, x))[0]


def windows_beyond_the_end(b: Any, x: Any, y: Any) -> Any:
    return b.add_all(MaxPool((3, 3), strides=(2, 2), rounding="ceil"), dequantized(b, x))[0]


def reflected(b: Any, x: Any, y: Any) -> Any:
    return b.Pad(dequantized(b, x), b.const([0, 0, 2, 1, 0, 0, 1, 2], i64), 0.5, mode="reflect")


def repeated_at_the_edge(b: Any, x: Any, y: Any) -> Any:
    return b.PadEach(dequantized(b, x), b.const([0, 0, 2, 1], i64), b.const([0, 1, 1, 2], i64), 0.5, mode="edge")


Build = Callable[[Any, Any, Any], Any]


IN_ORDER = [pair, of_two_scales, of_channels, along_another_axis, picked, turned, windows, windows_beyond_the_end]
MOVED = [*IN_ORDER, reflected, repeated_at_the_edge]


@pytest.mark.parametrize("build", MOVED, ids=lambda f: f.__name__)
def test_bytes_are_moved(build: Build) -> None:
    graph = graph_of(build, X, Y)
    feeds = dict(zip(graph.inputs, (X, Y), strict=True))
    wanted = evaluate(graph, feeds)
    assert moved_bytes.run(graph, AVX512) > 0
    assert not problems(graph)
    assert all(v.producer is not None and v.producer.op.name == "DequantizeLinear" for v in graph.outputs)
    floats = [n for n in graph.nodes if n.op.name != "DequantizeLinear" and any(v.dtype == f32 for v in n.outputs)]
    assert not floats
    for got, want in zip(evaluate(graph, feeds), wanted, strict=True):
        np.testing.assert_array_equal(got, want)


def test_sizes_that_the_run_tells_keep_their_names() -> None:
    count = np.array([3], np.int64)

    def build(b: Any, x: Any, n: Any) -> Any:
        taken = b.add(Slice(), dequantized(b, x), b.const([0], i64), n, b.const([1], i64))
        return b.Relu(taken)

    graph = graph_of(build, X, count)
    shape = graph.outputs[0].shape
    assert moved_bytes.run(graph, AVX512) == 1
    assert not problems(graph)
    assert graph.outputs[0].shape == shape
    sliced = next(n.outputs[0] for n in graph.nodes if n.op.name == "Slice")
    assert sliced.dtype == i8 and sliced.shape == shape


def test_operands_are_quantized_before_they_are_joined() -> None:
    def build(b: Any, x: Any, y: Any) -> Any:
        joined = b.Concat(b.Exp(dequantized(b, x)), b.Neg(dequantized(b, y)), axis=1)
        return b.QuantizeLinear(joined, b.const(np.float32(0.4), f32), b.const(3, u8))

    graph = graph_of(build, X, Y)
    feeds = dict(zip(graph.inputs, (X, Y), strict=True))
    (wanted,) = evaluate(graph, feeds)
    assert moved_bytes.run(graph, AVX512) == 1
    assert Counter(n.op.name for n in graph.nodes)["QuantizeLinear"] == 2
    assert [n.op.name for n in graph.nodes][-1] == "Concat"
    np.testing.assert_array_equal(evaluate(graph, feeds)[0], wanted)


def test_elements_are_quantized_before_they_are_repeated_and_turned() -> None:
    def build(b: Any, x: Any, y: Any) -> Any:
        joined = b.Concat(b.Exp(dequantized(b, x)), b.Neg(dequantized(b, y)), axis=1)
        heads = b.Reshape(joined, b.const([2, 12, 1, 6, 4], i64))
        many = b.Reshape(b.Expand(heads, b.const([2, 12, 3, 6, 4], i64)), b.const([2, 36, 6, 4], i64))
        return b.QuantizeLinear(b.Transpose(many, [0, 1, 3, 2]), b.const(np.float32(0.4), f32), b.const(3, u8))

    graph = graph_of(build, X, Y)
    feeds = dict(zip(graph.inputs, (X, Y), strict=True))
    (wanted,) = evaluate(graph, feeds)
    assert moved_bytes.run(graph, AVX512) == 5
    assert not problems(graph)
    made = [v.producer for n in graph.nodes if n.op.name == "QuantizeLinear" for v in n.inputs[:1] if v is not None]
    assert {n.op.name for n in made if n is not None} == {"Exp", "Neg"}
    np.testing.assert_array_equal(evaluate(graph, feeds)[0], wanted)


def _of_floats(b: Any, x: Any, y: Any) -> Any:
    return b.Concat(dequantized(b, x), b.Neg(dequantized(b, y)), axis=1)


def _of_other_bytes(b: Any, x: Any, y: Any) -> Any:
    other = b.DequantizeLinear(b.Cast(y, to=u8), b.const(np.float32(0.03), f32), b.const(5, u8))
    return b.Concat(dequantized(b, x), other, axis=1)


def _falling(b: Any, x: Any, y: Any) -> Any:
    return b.add_all(MaxPool((2, 2), strides=(2, 2)), dequantized(b, x, -0.03))[0]


def _of_padding_alone(b: Any, x: Any, y: Any) -> Any:
    return b.add_all(MaxPool((2, 2), strides=(2, 2), pads_end=(1, 1), rounding="ceil"), dequantized(b, x))[0]


def _filled(b: Any, x: Any, y: Any) -> Any:
    return b.Pad(dequantized(b, x), b.const([0, 0, 2, 1, 0, 0, 1, 2], i64), 0.5)


def _by_channels(b: Any, x: Any, y: Any) -> Any:
    return b.Transpose(dequantized(b, x, SCALES, POINTS), b.const([0, 2, 3, 1], i64))


STAYING = [_of_floats, _of_other_bytes, _falling, _of_padding_alone, _filled, _by_channels]


@pytest.mark.parametrize("build", STAYING, ids=lambda f: f.__name__)
def test_what_is_not_of_such_bytes_stays(build: Build) -> None:
    graph: Graph = graph_of(build, X, Y)
    before = [n.op for n in graph.nodes]
    assert moved_bytes.run(graph, AVX512) == 0
    assert [n.op for n in graph.nodes] == before


def test_without_kernels_of_bytes_nothing_is_moved() -> None:
    assert moved_bytes.run(graph_of(pair, X, Y), NEON) == 0
