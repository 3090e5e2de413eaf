"""Recurrent layers over sequences whose length and batch are known only when the model runs."""

import numpy as np
import pytest

import irc
from irc.ir.dim import Dim
from irc.ir.graph import Graph, Model
from irc.ir.types import TensorType, f32
from irc.opdef.builder import Builder, evaluate
from irc.opdef.registry import find_op


@pytest.mark.parametrize("backend", ["numpy", "c"])
@pytest.mark.parametrize("name", ["LSTM", "GRU", "RNN"])
def test_symbolic_length_and_batch(name: str, backend: str) -> None:
    gates, rng = {"LSTM": 4, "GRU": 3, "RNN": 1}[name], np.random.default_rng(1)
    graph = Graph(name)
    x = graph.add_input("x", TensorType.of(f32, (Dim.symbol("steps"), Dim.symbol("batch"), 5)))
    shapes = ((2, gates * 7, 5), (2, gates * 7, 7), (2, gates * 14))
    weights = [rng.uniform(-1, 1, shape).astype(np.float32) for shape in shapes]
    layer = find_op(name)(hidden_size=7, direction="bidirectional")
    graph.outputs = list(Builder(graph).add_all(layer, x, *weights))
    compiled = irc.compile(Model(graph, "onnx", 10, {"": 22}), backend=backend, cache=False)
    for steps, batch in ((4, 1), (9, 3), (1, 2), (9, 0), (0, 3)):
        data = rng.uniform(-1, 1, (steps, batch, 5)).astype(np.float32)
        for got, want in zip(compiled([data]), evaluate(graph, {x: data}), strict=True):
            np.testing.assert_allclose(got, want, rtol=0, atol=2e-6)
