"""What the tests of passes and of lowering share: graphs, and running them through the interpreter."""

from __future__ import annotations

from typing import Any

import numpy as np

from irc.diagnostics import Sink
from irc.fusion import group
from irc.ir.graph import Graph, Value
from irc.ir.types import TensorType, dtype_from_numpy
from irc.ir.verify import problems
from irc.loops import interp
from irc.loops.ir import Program
from irc.loops.lower import lower
from irc.opdef.builder import Builder, evaluate
from irc.pipelines import COMPILE_C

Array = np.ndarray[Any, Any]


def random(*shape: int, dtype: str = "float32", seed: int = 0) -> Array:
    return np.random.default_rng([seed, *shape]).standard_normal(shape).astype(dtype)


def graph_of(build: Any, *feeds: Array, shapes: list[Any] | None = None) -> Graph:
    """build(builder, *inputs) as a graph; `shapes` replaces the feeds' shapes by symbolic ones."""
    graph = Graph("test")
    inputs = [
        graph.add_input(f"x{k}", TensorType.of(dtype_from_numpy(f.dtype), shapes[k] if shapes else f.shape))
        for k, f in enumerate(feeds)
    ]
    found = build(Builder(graph), *inputs)
    graph.outputs = list(found) if isinstance(found, tuple) else [found]
    return graph


def compiled(graph: Graph) -> Program:
    """The program of a copy of the graph; every pass leaves a consistent graph."""
    graph, sink = graph.copy(), Sink()
    for name, run in COMPILE_C:
        run(graph, sink)
        assert not sink.errors, sink.errors
        assert not problems(graph), (name, problems(graph))
    return lower(graph, group.run(graph), "test")


def assert_same(graph: Graph, *feeds: Array, tolerance: float = 1e-5) -> Program:
    """Interpreting the program gives what the operations' references give."""
    wanted = evaluate(graph, dict(zip(graph.inputs, feeds, strict=True)))
    program = compiled(graph)
    for got, want in zip(interp.run(program, feeds), wanted, strict=True):
        assert got.dtype == want.dtype and got.shape == want.shape
        np.testing.assert_allclose(
            got.astype(np.float64), want.astype(np.float64), rtol=tolerance, atol=tolerance, equal_nan=True
        )
    return program


def names(values: list[Value]) -> list[str]:
    return [v.name for v in values]
