"""Models that are trained by their own operators: Gradient, and the steps of optimizers."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx.parser
import pytest

import irc
from irc.diagnostics import Problem
from irc.ir.graph import Graph
from irc.ir.types import TensorType, f32, f64, i64
from irc.opdef.builder import Builder
from irc.ops.optimizers import Momentum

TRAINING = "ai.onnx.preview.training"
PERCEPTRON = f"""<ir_version: 8, opset_import: ["" : 17, "{TRAINING}" : 1]>
m (float[n,2] x, int64[n] t, float[2,8] w, float[8] b, float[8,2] u, float rate, int64 count,
   float[2,8] vw, float[8] vb, float[8,2] vu, float[2,8] hw, float[8] hb, float[8,2] hu)
  => (float loss, float[2,8] w1, float[8] b1, float[8,2] u1, float[2,8] vw1, float[8] vb1, float[8,2] vu1,
      float[2,8] hw1, float[8] hb1, float[8,2] hu1) {{
  product = MatMul (x, w)
  shifted = Add (product, b)
  hidden = Tanh (shifted)
  scores = MatMul (hidden, u)
  loss = SoftmaxCrossEntropyLoss (scores, t)
  dw, db, du = {TRAINING}.Gradient <xs = ["w", "b", "u"], zs = ["x", "t"], y = "loss"> (w, b, u, x, t)
  w1, b1, u1, vw1, vb1, vu1, hw1, hb1, hu1 =
    {TRAINING}.Adam (rate, count, w, b, u, dw, db, du, vw, vb, vu, hw, hb, hu)
}}"""


@pytest.mark.parametrize("backend", ["numpy", "c"])
def test_a_perceptron_learns_exclusive_or(backend: str) -> None:
    compiled = irc.compile(onnx.parser.parse_model(PERCEPTRON), backend=backend)
    x = np.array([[0, 0], [0, 1], [1, 0], [1, 1]], np.float32)
    t, rng = np.array([0, 1, 1, 0]), np.random.default_rng(1)
    weights = [rng.standard_normal(s).astype(np.float32) for s in ((2, 8), (8,), (8, 2))]
    state: list[Any] = [*weights, *(np.zeros_like(w) for w in weights * 2)]
    losses: list[float] = []
    for count in range(1, 151):
        loss, *state = compiled([x, t, *state[:3], np.float32(0.05), np.int64(count), *state[3:]])
        losses.append(float(loss))
    assert losses[0] > 0.5 and losses[-1] < 0.01


@pytest.mark.parametrize(("types", "code"), [((f32, f64), "IRC2105"), ((i64, i64), "IRC2104")])
def test_a_tensor_and_its_gradient_have_one_type(types: tuple[Any, Any], code: str) -> None:
    graph = Graph()
    rate, count = graph.add_input("r", TensorType.of(f32, ())), graph.add_input("c", TensorType.of(i64, ()))
    x, g = (graph.add_input(name, TensorType.of(t, (3,))) for name, t in zip("xg", types, strict=True))
    with pytest.raises(Problem, match=r"tensor 0") as caught:
        Builder(graph).add_all(Momentum(), rate, count, x, g, x)
    assert caught.value.code.id == code
