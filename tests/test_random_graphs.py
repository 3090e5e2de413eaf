"""Random graphs: compiled results equal the references, formats give the same model back."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, reject, settings, strategies as st

import irc
from irc.diagnostics import Problem
from irc.ir.dim import Dim
from irc.ir.graph import Graph, Model, Value
from irc.ir.types import TensorType, f32
from irc.opdef.builder import Builder, evaluate

UNARY = ["Relu", "Neg", "Abs", "Tanh", "Sigmoid", "Exp", "Sqrt", "Floor", "Identity"]
BINARY = ["Add", "Sub", "Mul", "Max", "Min"]
SIZES = st.integers(1, 5)
QUIET = settings(
    deadline=None, derandomize=True, suppress_health_check=list(HealthCheck), max_examples=12, database=None
)


@st.composite
def graphs(draw: Any, symbolic: bool = False) -> tuple[Model, dict[str, int]]:
    """A model of up to a dozen operations over one or two f32 inputs; sizes of its symbols."""
    graph, sizes = Graph("fuzz"), dict[str, int]()
    b = Builder(graph)
    pool: list[Value] = []
    for i in range(draw(st.integers(1, 2))):
        shape: list[Dim] = []
        for k in range(draw(st.integers(1, 3))):
            size = draw(SIZES)
            if symbolic and draw(st.booleans()):
                sizes[f"s{i}{k}"] = size
                shape.append(Dim.symbol(f"s{i}{k}"))
            else:
                shape.append(Dim.of(size))
        pool.append(graph.add_input(f"x{i}", TensorType(f32, tuple(shape))))
    for _ in range(draw(st.integers(1, 12))):
        try:
            pool.append(draw_node(draw, b, pool))
        except Problem:
            continue  # shapes that do not fit: the operation says no, nothing was added
    wanted = draw(st.lists(st.sampled_from(pool), min_size=1, max_size=3, unique_by=id))
    graph.outputs = [b.Identity(v) if v in graph.inputs else v for v in wanted]
    graph.prune()
    return Model(graph, "onnx", 10, {"": 21}), sizes


def draw_node(draw: Any, b: Builder, pool: list[Value]) -> Value:
    """One more operation over values that are already there."""
    x = draw(st.sampled_from(pool))
    kind = draw(
        st.sampled_from(
            ["unary", "binary", "binary", "reduce", "softmax", "transpose", "matmul", "concat", "flatten", "slice"]
        )
    )
    if kind == "unary":
        return getattr(b, draw(st.sampled_from(UNARY)))(x)
    if kind == "binary":
        return getattr(b, draw(st.sampled_from(BINARY)))(x, draw(st.sampled_from(pool)))
    rank = len(x.shape)
    axis = draw(st.integers(0, max(rank - 1, 0)))
    if kind == "reduce" and rank:
        name = draw(st.sampled_from(["ReduceSum", "ReduceMax", "ReduceMean"]))
        return getattr(b, name)(x, [axis], keepdims=draw(st.booleans()))
    if kind == "softmax" and rank:
        return b.Softmax(x, axis=axis)
    if kind == "transpose" and rank:
        return b.Transpose(x, draw(st.permutations(range(rank))))
    if kind == "concat" and rank:
        return b.Concat(x, draw(st.sampled_from(pool)), axis=axis)
    if kind == "slice" and rank:
        start = draw(st.integers(-3, 3))
        return b.Slice(x, [start], [start + draw(st.integers(0, 4))], [axis])
    if kind == "flatten":
        return b.Reshape(x, [-1])
    return b.MatMul(x, draw(st.sampled_from(pool)))


def feeds(model: Model, sizes: dict[str, int]) -> list[Any]:
    rng = np.random.default_rng(0)
    return [rng.uniform(-2, 2, [d.evaluate(sizes) for d in v.shape]).astype(np.float32) for v in model.inputs]


def reference(model: Model, arrays: list[Any]) -> list[Any]:
    """The results; a drawn model with symbols that does not fit these sizes is not an example."""
    try:
        with np.errstate(all="ignore"):
            return evaluate(model.graph, dict(zip(model.inputs, arrays, strict=True)))
    except ValueError:
        if all(v.type.is_static for v in model.inputs):
            raise
        reject()


def check(got: Any, want: Any) -> None:
    for g, w in zip(got, want, strict=True):
        assert g.dtype == w.dtype and g.shape == w.shape
        np.testing.assert_allclose(g, w, rtol=2e-5, atol=1e-5)


@pytest.mark.parametrize("backend", ["numpy", "c"])
@pytest.mark.parametrize("symbolic", [False, True], ids=["static", "symbolic"])
def test_compiled_equals_reference(backend: str, symbolic: bool) -> None:

    @QUIET
    @given(graphs(symbolic))
    def run(drawn: tuple[Model, dict[str, int]]) -> None:
        model, sizes = drawn
        arrays = feeds(model, sizes)
        want = reference(model, arrays)
        check(irc.compile(model, backend=backend, cache=False)(arrays), want)

    run()


@pytest.mark.parametrize("suffix", [".onnx", ".xml"])
def test_writing_and_reading_keeps_the_results(suffix: str) -> None:
    @QUIET
    @given(graphs(True))
    def run(drawn: tuple[Model, dict[str, int]]) -> None:
        model, sizes = drawn
        arrays = feeds(model, sizes)
        with np.errstate(all="ignore"), tempfile.TemporaryDirectory() as folder:
            want = reference(model, arrays)
            path = Path(folder) / f"m{suffix}"
            irc.save(model, path)
            again = irc.load(path)
            check(evaluate(again.graph, dict(zip(again.inputs, arrays, strict=True))), want)

    run()
