"""Concatenations along the channels are written in place: the same results, and nothing copied that a kernel writes."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from irc.diagnostics import Sink
from irc.fusion import group
from irc.ir.dim import Dim
from irc.ir.graph import Graph
from irc.ir.verify import problems
from irc.layout import concat_in_place
from irc.layout.destination import Destination, DestinationPart
from irc.loops import interp
from irc.loops.lower import lower
from irc.opdef.builder import evaluate
from irc.ops.concat import Split
from irc.ops.pool import MaxPool
from irc.pipelines import compile_c
from irc.selection.selector import KernelOp
from tests.layout.test_channels_last import SAME, conv
from tests.support.c_program import Library
from tests.support.instruction_sets import isa_under_test
from tests.support.lowering import Array, graph_of, random

X = random(2, 16, 9, 10)


def fire(b: Any, x: Any) -> Any:
    squeezed = b.Relu(conv(b, x, 16, size=1))
    wide = b.Concat(b.Relu(conv(b, squeezed, 16, size=1)), b.Relu(conv(b, squeezed, 32, **SAME)), axis=1)
    return conv(b, wide, 16, size=1)


def halves(b: Any, x: Any) -> Any:
    """Both halves of a value and what is made of the second one."""
    y = b.Relu(conv(b, x, 32, size=1))
    left, right = b.add_all(Split(num=None), y, 1, [16, 16])
    other = b.Add(right, b.Relu(conv(b, right, 16, **SAME)))
    return conv(b, b.Concat(left, right, other, conv(b, other, 16, **SAME), axis=1), 16, size=1)


def dense(b: Any, x: Any) -> Any:
    """Each layer reads all that were before it."""
    parts = [conv(b, x, 16, **SAME)]
    for _ in range(3):
        whole = b.Concat(*parts, axis=1) if len(parts) > 1 else parts[0]
        parts.append(conv(b, b.Relu(b.Mul(whole, random(int(whole.shape[1]), 1, 1))), 16, **SAME))
    return conv(b, b.Concat(*parts, axis=1), 16, size=1)


def nested(b: Any, x: Any) -> Any:
    """Each concatenation adds one to the one before."""
    whole = conv(b, x, 16, **SAME)
    for _ in range(3):
        scaled = b.Relu(b.Mul(whole, random(int(whole.shape[1]), 1, 1)))
        whole = b.Concat(whole, conv(b, scaled, 16, **SAME), axis=1)
    return conv(b, whole, 16, size=1)


def again(b: Any, x: Any) -> Any:
    """A concatenation that is an operand of two others."""
    y, z = conv(b, x, 16, **SAME), b.Relu(conv(b, x, 16, size=1))
    both = b.Concat(y, z, axis=1)
    last, other = conv(b, both, 16, **SAME), conv(b, z, 16, **SAME)
    return conv(b, b.Concat(both, last, axis=1), 8, size=1), conv(b, b.Concat(other, both, axis=1), 8, size=1)


def skip(b: Any, x: Any) -> Any:
    """A part that is pooled before the other is computed, by loops."""
    y = b.Relu(conv(b, x, 16, **SAME))
    small = conv(b, b.add_all(MaxPool(kernel=(3, 2), strides=(3, 2)), y)[0], 16, **SAME)
    tall = b.Gather(small, b.const(np.repeat(np.arange(3), 3)), b.const(2))
    big = b.Gather(tall, b.const(np.repeat(np.arange(5), 2)), b.const(3))
    return conv(b, b.Concat(b.Sigmoid(big), y, axis=1), 16, **SAME)


def kept(b: Any, x: Any) -> Any:
    """A part that is a result too; what is in place in one concatenation is copied to another."""
    y, z = conv(b, x, 16, **SAME), b.Relu(conv(b, x, 16, size=1))
    first = conv(b, b.Concat(y, z, axis=1), 16, size=1)
    return y, first, conv(b, b.Concat(z, y, axis=1), 16, size=1)


def linear(b: Any, x: Any) -> Any:
    """Products of rows side by side."""
    rows = b.Reshape(x, [2, 16, 90])
    made = [b.Tanh(b.Add(b.MatMul(rows, random(90, n)), random(n))) for n in (8, 24)]
    return b.MatMul(b.Concat(*made, axis=-1), random(32, 16))


def rows(b: Any, x: Any) -> Any:
    """Row groups before and behind a concatenation of which loops compute a part."""
    x = b.Reshape(x, [2, 16, 90])
    even = b.Div(x, b.Sqrt(b.ReduceSum(b.Mul(x, x), [2], keepdims=True)))
    made = b.MatMul(even, random(90, 24))
    other = b.Sigmoid(b.Mul(made, random(24)))
    y = b.Concat(made, even, other, axis=-1)
    return b.Div(y, b.Sqrt(b.ReduceSum(b.Mul(y, y), [2], keepdims=True)))


def heads(b: Any, x: Any) -> Any:
    """What is found in planes of several sizes, one after the other, channels first."""
    y = conv(b, x, 16, **SAME)
    small = conv(b, y, 16, strides=(2, 2), **SAME)
    found = [b.Concat(conv(b, z, 16, size=1), conv(b, z, 8, **SAME), axis=1) for z in (y, small)]
    return b.Mul(b.Concat(*[b.Reshape(z, [2, 24, -1]) for z in found], axis=2), random(24, 1))


# name: (build, concatenations gone, results that kernels write to a part)
MODELS: dict[str, tuple[Callable[..., Any], int, int]] = {
    "squeeze and expand": (fire, 1, 2),
    "halves": (halves, 1, 3),
    "dense": (dense, 3, 4),
    "nested": (nested, 3, 4),
    "again": (again, 3, 4),
    "skip": (skip, 1, 1),
    "a part that is a result": (kept, 1, 2),
    "linear layers": (linear, 1, 2),
    "rows": (rows, 1, 1),
    "heads": (heads, 3, 6),
}


def prepared(build: Callable[..., Any], x: Array, stop: str = "", shapes: list[Any] | None = None) -> tuple[Graph, int]:
    """The graph after the passes up to `stop`, and how many concatenations were written in place."""
    graph, sink, gone = graph_of(build, x, shapes=shapes), Sink(), 0
    for name, run in compile_c(isa_under_test()):
        if name == "concat-in-place":
            gone = concat_in_place.run(graph)
        else:
            run(graph, sink)
        assert not sink.errors and not problems(graph)
        if name == stop:
            break
    return graph, gone


@pytest.mark.parametrize("name", MODELS)
def test_the_graph_means_the_same(name: str) -> None:
    build, count, _ = MODELS[name]
    graph = graph_of(build, X)
    wanted = evaluate(graph, {graph.inputs[0]: X})
    graph, gone = prepared(build, X, "concat-in-place")
    assert gone == count
    assert sum(isinstance(n.op, Destination) for n in graph.nodes) >= 1
    for got, want in zip(evaluate(graph, {graph.inputs[0]: X}), wanted, strict=True):
        np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-6 * np.abs(want).max())


@pytest.mark.compiler
@pytest.mark.parametrize("name", MODELS)
def test_compiled(name: str, tmp_path: Path) -> None:
    build, _, written = MODELS[name]
    graph = graph_of(build, X)
    wanted = evaluate(graph, {graph.inputs[0]: X})
    graph, _ = prepared(build, X)
    assert sum(isinstance(n.op, KernelOp) and n.op.part_of is not None for n in graph.nodes) == written
    program = lower(graph, group.run(graph), "test")
    library = Library(program, tmp_path)
    compiled = library.run(library.context(), [X], [w.shape for w in wanted])
    for got, want in zip([*compiled, *interp.run(program, [X])], [*wanted, *wanted], strict=True):
        np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-6 * np.abs(want).max())


def test_what_stays() -> None:
    """What no kernel computes, a concatenation along another axis, one that is a result, and a value twice in one."""
    builds: list[Callable[..., Any]] = [
        lambda b, x: conv(b, b.Concat(b.Relu(x), b.Sigmoid(x), axis=1), 8),
        lambda b, x: b.Relu(b.Concat(conv(b, x, 8, size=1), conv(b, x, 8, size=1), axis=2)),
        lambda b, x: b.Concat(b.MatMul(x, random(10, 8)), b.MatMul(x, random(10, 8)), axis=-1),
        lambda b, x: conv(b, b.Concat(y := conv(b, x, 8, **SAME), y, axis=1), 8),
    ]
    for build in builds:
        graph, gone = prepared(build, X, "concat-in-place")
        assert gone == 0
        assert not any(isinstance(n.op, DestinationPart) for n in graph.nodes)


@pytest.mark.compiler
@pytest.mark.parametrize("name", ["squeeze and expand", "halves", "dense"])
def test_unknown_sizes(name: str, tmp_path: Path) -> None:
    build, _, written = MODELS[name]
    graph = graph_of(build, X)
    wanted = evaluate(graph, {graph.inputs[0]: X})
    graph, _ = prepared(build, X, shapes=[(*map(Dim.symbol, "n"), 16, *map(Dim.symbol, "hw"))])
    assert sum(isinstance(n.op, KernelOp) and n.op.part_of is not None for n in graph.nodes) == written
    program = lower(graph, group.run(graph), "test")
    library = Library(program, tmp_path)
    compiled = library.run(library.context([2, 9, 10]), [X], [w.shape for w in wanted])
    for got, want in zip([*compiled, *interp.run(program, [X])], [*wanted, *wanted], strict=True):
        np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-6 * np.abs(want).max())
