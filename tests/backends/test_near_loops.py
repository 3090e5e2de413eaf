"""Loops around functions of angles take shorter helpers where all are near, and are right where one is not."""

from __future__ import annotations

import numpy as np
import pytest

import irc
from irc.ir.graph import Graph, Model
from irc.ir.types import TensorType, f32
from irc.opdef.base import load_all
from irc.opdef.builder import Builder


@pytest.mark.parametrize("name", ["Sin", "Cos", "Tan"])
@pytest.mark.parametrize("far", [None, 3e6, -1e30, np.nan])
def test_any_angles(name: str, far: float | None) -> None:
    load_all()
    graph = Graph("angles")
    x = graph.add_input("x", TensorType.of(f32, (3, 1000)))
    b = Builder(graph)
    graph.outputs = [b.Add(getattr(b, name)(b.Mul(x, x)), b.Cos(x))]
    compiled = irc.compile(Model(graph), backend="c", cache=False)
    given = np.random.default_rng(1).uniform(-1000, 1000, (3, 1000)).astype(np.float32)
    if far is not None:
        given[1, 17] = far
    (found,) = compiled({"x": given})
    with np.errstate(all="ignore"):
        function = {"Sin": np.sin, "Cos": np.cos, "Tan": np.tan}[name]
        wanted = function((given * given).astype(np.float64)) + np.cos(given.astype(np.float64))
    np.testing.assert_allclose(found, wanted, rtol=1e-6, atol=3e-7)
