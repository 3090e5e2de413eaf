"""Derivatives against those of PyTorch, also at kinks; skipped where it is not installed."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from irc.ir.graph import Graph, Value
from irc.ir.types import TensorType, f64, i64
from irc.opdef.builder import Builder, evaluate
from irc.opdef.gradients import gradients
from irc.ops.loss import SoftmaxCrossEntropyLoss
from irc.ops.pool import MaxPool

torch = pytest.importorskip("torch")
F = torch.nn.functional
RNG = np.random.default_rng(0)


def smooth(*shape: int) -> np.ndarray[Any, Any]:
    return RNG.standard_normal(shape)


TIES = np.round(smooth(4, 6) * 2)
PAIR = (TIES, TIES[::-1].copy())
ONE_ROW_OF_ZEROS = TIES * [[0], [1], [1], [1]]
IMAGES = smooth(2, 3, 8, 7)
PLACES = RNG.integers(-5, 5, (3, 4))
PADDED = {"strides": (2, 2), "pads_begin": (1, 1), "pads_end": (1, 1)}


def average(counted: str) -> Callable[..., Value]:
    fields = {"kernel": (3, 3), "rounding": "ceil_torch", "counted": counted, **PADDED}
    return lambda b, x: b.Sin(b.AveragePool(x, **fields))


def numbered(b: Builder, y: Value) -> Value:
    return b.Mul(y, b.const(np.arange(6.0), f64))


CASES: dict[str, tuple[Callable[..., Value], Callable[..., Any], tuple[Any, ...]]] = {
    "Relu": (lambda b, x: b.Relu(x), lambda x: x.relu(), (TIES,)),
    "Abs": (lambda b, x: b.Abs(x), lambda x: x.abs(), (TIES,)),
    "Max": (lambda b, x, y: b.Max(x, y), torch.maximum, PAIR),
    "Min": (lambda b, x, y: b.Min(x, y), torch.minimum, PAIR),
    "ReduceMax": (lambda b, x: b.ReduceMax(x, [1], keepdims=False), lambda x: x.amax(1), (TIES,)),
    "ReduceProd": (lambda b, x: b.ReduceProd(x, [1], keepdims=False), lambda x: x.prod(1), (TIES,)),
    "ReduceL2": (
        lambda b, x: b.ReduceL2(x, [1], keepdims=False),
        lambda x: x.norm(dim=1),
        (TIES * [[0], [1], [1], [1]],),
    ),
    "Clip": (lambda b, x: b.Clip(x, b.const(-1.0, f64), b.const(1.0, f64)), lambda x: x.clamp(-1, 1), (TIES,)),
    "Pow": (lambda b, x, y: b.Pow(x, y), torch.pow, (abs(TIES), abs(smooth(4, 6)))),
    "Pow of 0": (lambda b, x: b.Pow(x, b.const(0.0, f64)), lambda x: x**0.0, (TIES,)),
    "PRelu": (lambda b, x, s: b.PRelu(x, s), F.prelu, (TIES, smooth(1))),
    "Elu": (lambda b, x: b.Elu(x), F.elu, (TIES * 300,)),
    "Mish": (lambda b, x: b.Mish(x), F.mish, (smooth(4, 4),)),
    "Gelu": (lambda b, x: b.Gelu(x), F.gelu, (smooth(4, 4),)),
    "Softmax": (lambda b, x: numbered(b, b.Softmax(x)), lambda x: x.softmax(1) * torch.arange(6.0), (TIES,)),
    "LayerNormalization": (
        lambda b, x, s, c: numbered(b, b.LayerNormalization(x, s, c)),
        lambda x, s, c: F.layer_norm(x, (6,), s, c) * torch.arange(6.0),
        (smooth(4, 6), smooth(6), smooth(6)),
    ),
    "MaxPool": (
        lambda b, x: b.add_all(MaxPool(kernel=(3, 3), **PADDED), x)[0],
        lambda x: F.max_pool2d(x, 3, 2, 1),
        (np.round(smooth(2, 3, 7, 8) * 2),),
    ),
    "AveragePool of the padding": (average("padded"), lambda x: F.avg_pool2d(x, 3, 2, 1, True, True).sin(), (IMAGES,)),
    "AveragePool": (average("inside"), lambda x: F.avg_pool2d(x, 3, 2, 1, True, False).sin(), (IMAGES,)),
    "Conv": (
        lambda b, x, w, c: b.Sin(b.Conv(x, w, c, strides=(2, 3), pads_begin=(1, 0), pads_end=(1, 0), group=2)),
        lambda x, w, c: F.conv2d(x, w, c, (2, 3), (1, 0), 1, 2).sin(),
        (smooth(2, 4, 9, 10), smooth(8, 2, 3, 3), smooth(8)),
    ),
    "ConvTranspose": (
        lambda b, x, w, c: b.Sin(b.ConvTranspose(x, w, c, strides=(2, 1), dilations=(1, 2), group=2)),
        lambda x, w, c: F.conv_transpose2d(x, w, c, (2, 1), 0, 0, 2, (1, 2)).sin(),
        (smooth(2, 8, 5, 6), smooth(8, 2, 3, 3), smooth(4)),
    ),
    "Gather": (
        lambda b, x, i: b.Sin(b.Gather(x, i, b.const(1))),
        lambda x, i: x[:, i].sin(),
        (smooth(3, 5, 2), PLACES),
    ),
    "SoftmaxCrossEntropyLoss": (
        lambda b, x, t: b.add_all(SoftmaxCrossEntropyLoss(), x, t)[0],
        F.cross_entropy,
        (smooth(6, 4), RNG.integers(0, 4, 6)),
    ),
    "Det": (lambda b, x: b.Sin(b.Det(x)), lambda x: torch.det(x).sin(), (smooth(2, 3, 3),)),
    "Inverse": (lambda b, x: b.Sin(b.Inverse(x)), lambda x: torch.inverse(x).sin(), (smooth(2, 3, 3),)),
}


@pytest.mark.parametrize("name", CASES)
def test_gradients_are_those_of_torch(name: str) -> None:
    ours, theirs, arrays = CASES[name]
    graph = Graph()
    inputs = [
        graph.add_input(f"x{k}", TensorType.of(f64 if a.dtype == float else i64, a.shape)) for k, a in enumerate(arrays)
    ]
    b = Builder(graph)
    y = ours(b, *inputs)
    graph.outputs = [y, *gradients(b, y, [x for x in inputs if x.dtype == f64])]
    tensors = [torch.tensor(a, requires_grad=a.dtype == float) for a in arrays]
    result = theirs(*tensors)
    result.sum().backward()
    wanted = [result.detach().numpy(), *(t.grad.numpy() for t in tensors if t.requires_grad)]
    for got, want in zip(evaluate(graph, dict(zip(inputs, arrays, strict=True))), wanted, strict=True):
        np.testing.assert_allclose(got, want, rtol=1e-9, atol=1e-9)
