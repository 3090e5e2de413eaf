"""The largest of rows of every length, wherever a NaN stands: the last vector overlaps the one before."""

from __future__ import annotations

import numpy as np
import pytest

import irc
from irc.ir.graph import Graph, Model
from irc.ir.types import TensorType, f32
from irc.opdef.base import load_all
from irc.opdef.builder import Builder


@pytest.mark.parametrize("n", [15, 16, 17, 47, 75])
def test_largest_of_rows(n: int) -> None:
    load_all()
    graph = Graph("rows")
    x = graph.add_input("x", TensorType.of(f32, (1, n + 1, n)))
    graph.outputs = [Builder(graph).ReduceMax(x, [2], keepdims=True)]
    rows = np.random.default_rng(n).standard_normal((1, n + 1, n)).astype(np.float32) - 5
    for k in range(n):
        rows[0, k, k] = np.nan if k % 2 else 7
    (found,) = irc.compile(Model(graph), backend="c", cache=False)({"x": rows})
    np.testing.assert_array_equal(found, rows.max(-1, keepdims=True))


@pytest.mark.parametrize("n", [3, 16, 49, 75])
@pytest.mark.parametrize("op", ["ReduceMax", "ReduceMean"])
def test_planes_together(n: int, op: str) -> None:
    """Planes give the same whether they are folded as many at a time as a vector has lanes, or, the last, alone."""
    load_all()
    planes = np.random.default_rng(n).standard_normal((1, 74, n)).astype(np.float32)
    planes[0, 57, n // 2] = np.nan
    graph = Graph("planes")
    x = graph.add_input("x", TensorType.of(f32, planes.shape))
    graph.outputs = [getattr(Builder(graph), op)(x, [2], keepdims=True)]
    compiled = irc.compile(Model(graph), backend="c", cache=False)
    assert compiled.backend == "c"
    (found,) = compiled({"x": planes})
    expected = planes.max(-1) if op == "ReduceMax" else planes.astype(np.float64).mean(-1)
    np.testing.assert_allclose(found[..., 0], expected, rtol=1e-5, atol=1e-6)
    (turned,) = compiled({"x": np.roll(planes, 10, 1)})
    np.testing.assert_array_equal(np.roll(turned, -10, 1), found)
