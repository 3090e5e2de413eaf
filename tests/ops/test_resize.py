"""Resize of images whose size is known only when the model runs."""

from typing import Any

import numpy as np
import pytest

import irc
from irc.ir.dim import Dim
from irc.ir.graph import Graph, Model
from irc.ir.types import TensorType, f32
from irc.opdef.base import Op
from irc.opdef.builder import Builder
from irc.ops.adaptive import AdaptiveAvgPool, AdaptiveMaxPool


@pytest.mark.parametrize("backend", ["numpy", "c"])
@pytest.mark.parametrize(
    "fields",
    [
        {"mode": "nearest", "coordinates": "asymmetric", "nearest_mode": "floor"},
        {"mode": "nearest"},
        {"mode": "linear"},
        {"mode": "linear", "coordinates": "align_corners"},
        {"mode": "cubic", "coordinates": "pytorch_half_pixel"},
    ],
    ids=lambda f: "-".join(f.values()),
)
def test_symbolic_size(fields: dict[str, Any], backend: str) -> None:
    graph, rng = Graph("resize"), np.random.default_rng(1)
    x = graph.add_input("x", TensorType.of(f32, (1, 2, Dim.symbol("h", 1), Dim.symbol("w", 1))))
    b = Builder(graph)
    y = b.Resize(x, None, np.array([1, 1, 2, 1.5], np.float32), **fields)
    sizes = b.dims([*x.shape[:2], Dim.of(7), x.shape[3] + 3])
    graph.outputs = [y, b.Resize(x, None, None, sizes, **fields)]
    compiled = irc.compile(Model(graph, "onnx", 10, {"": 22}), backend=backend, cache=False)
    for h, w in ((4, 6), (9, 5), (1, 2)):
        data = rng.uniform(-1, 1, (1, 2, h, w)).astype(np.float32)
        sized = np.array([1, 2, 7, w + 3])
        wanted = [
            y.producer.op.reference(data, None, np.array([1, 1, 2, 1.5], np.float32)),
            y.producer.op.reference(data, None, None, sized),
        ]
        for got, want in zip(compiled([data]), wanted, strict=True):
            np.testing.assert_allclose(got, want, rtol=0, atol=2e-6)


@pytest.mark.parametrize("backend", ["numpy", "c"])
def test_the_middle_of_nothing(backend: str) -> None:
    """Symmetric coordinates relate to the size before rounding, which is 0 here."""
    graph = Graph("resize")
    x = graph.add_input("x", TensorType.of(f32, (1, Dim.symbol("h"))))
    scales = np.array([1, 0.6], np.float32)
    graph.outputs = [Builder(graph).Resize(x, None, scales, coordinates="half_pixel_symmetric")]
    compiled = irc.compile(Model(graph, "onnx", 10, {"": 22}), backend=backend, cache=False)
    assert compiled([np.zeros((1, 0), np.float32)])[0].shape == (1, 0)


@pytest.mark.parametrize("backend", ["numpy", "c"])
@pytest.mark.parametrize("mode", ["nearest", "linear", "cubic"])
def test_of_nothing_only_nothing_is_made(mode: str, backend: str) -> None:
    """An axis without elements keeps its size or gets none; to make elements of it is refused before the run."""
    graph = Graph("resize")
    x = graph.add_input("x", TensorType.of(f32, (Dim.symbol("n"), 1, Dim.symbol("h"))))
    b = Builder(graph)
    sizes = b.dims([x.shape[0], Dim.of(1), Dim.of(4)])
    graph.outputs = [b.Resize(x, None, None, sizes, mode=mode)]
    compiled = irc.compile(Model(graph, "onnx", 10, {"": 22}), backend=backend, cache=False)
    assert compiled([np.zeros((0, 1, 3), np.float32)])[0].shape == (0, 1, 4)
    with pytest.raises(irc.RunError, match=r"IRC6313.*h = 0"):
        compiled([np.zeros((1, 1, 0), np.float32)])


@pytest.mark.parametrize("backend", ["numpy", "c"])
@pytest.mark.parametrize("op", [AdaptiveAvgPool(), AdaptiveMaxPool()], ids=lambda op: op.name)
def test_windows_of_nothing(op: Op, backend: str) -> None:
    """A window has an element to pool; without channels there is no window."""
    graph = Graph("pool")
    x = graph.add_input("x", TensorType.of(f32, (1, Dim.symbol("c"), Dim.symbol("h"))))
    graph.outputs = [*Builder(graph).add_all(op, x, np.array([2]))]
    compiled = irc.compile(Model(graph, "onnx", 10, {"": 22}), backend=backend, cache=False)
    assert compiled([np.zeros((1, 0, 5), np.float32)])[0].shape == (1, 0, 2)
    with pytest.raises(irc.RunError, match=r"IRC6313.*h = 0"):
        compiled([np.zeros((1, 3, 0), np.float32)])
