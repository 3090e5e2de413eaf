"""Convolutions in parallel that become one: the same results, by ONNX Runtime too, and what must stay as it is."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest

import irc
from irc.ir.graph import Graph
from irc.ir.verify import problems
from irc.opdef.builder import evaluate
from irc.passes import merge_branches
from tests.support.lowering import graph_of, random

X = random(2, 6, 7, 5)
SAME = {"pads_begin": (1, 1), "pads_end": (1, 1)}


def conv(b: Any, x: Any, outputs: int = 6, size: int = 3, bias: bool = True, group: int = 1, **fields: Any) -> Any:
    fields = {"pads_begin": (size // 2,) * 2, "pads_end": (size // 2,) * 2} | fields
    w = random(outputs, int(x.shape[1]) // group, size, size)
    return b.Conv(x, w, random(outputs) if bias else None, group=group, **fields)


def norm(b: Any, x: Any) -> Any:
    return b.BatchNormalization(x, *(random(6) for _ in range(3)), np.abs(random(6)))


def block(b: Any, x: Any) -> Any:
    """What MobileOne has: windows of two sizes, one twice, the input itself, and numbers that are added between."""
    y = b.Add(b.Add(conv(b, x, size=1), b.const(0.0, x.dtype)), norm(b, x))
    return b.Relu(b.Add(b.Add(conv(b, x), y), b.Add(random(6, 1, 1), conv(b, x, bias=False))))


# name: (build, convolutions and normalizations left)
CASES: dict[str, tuple[Callable[..., Any], int]] = {
    "two sizes": (lambda b, x: b.Add(conv(b, x), conv(b, x, size=1)), 1),
    "the smaller first": (lambda b, x: b.Add(conv(b, x, size=1, bias=False), conv(b, x, size=5)), 1),
    "with the input": (lambda b, x: b.Add(norm(b, x), conv(b, x)), 1),
    "with the input, in groups": (lambda b, x: b.Add(conv(b, x, group=3), norm(b, x)), 1),
    "by channel": (lambda b, x: b.Add(conv(b, x, group=6), b.Add(norm(b, x), random(6, 1, 1))), 1),
    "one by channel": (lambda b, x: b.Add(conv(b, x), conv(b, x, group=6)), 1),
    "dilated": (lambda b, x: b.Add(conv(b, x, dilations=(2, 2), pads_begin=(2, 2), pads_end=(2, 2)), norm(b, x)), 1),
    "strides": (lambda b, x: b.Add(conv(b, x, strides=(2, 2)), conv(b, x, size=1, strides=(2, 2))), 1),
    "a block": (block, 1),
    "same padding": (lambda b, x: b.Add(conv(b, x, auto_pad="same_upper"), conv(b, x, size=1)), 1),
    "different inputs": (lambda b, x: b.Add(conv(b, x), conv(b, b.Relu(x))), 2),
    "used twice": (lambda b, x: (b.Add(y := conv(b, x), conv(b, x, size=1)), b.Relu(y)), 2),
    "taps apart": (lambda b, x: b.Add(conv(b, x, dilations=(2, 2), pads_begin=(2, 2), pads_end=(2, 2)), conv(b, x)), 2),
    "other channels": (lambda b, x: b.Add(conv(b, x, size=1), conv(b, x, group=6)), 2),
    "broadcast": (lambda b, x: b.Add(conv(b, x), conv(b, x, outputs=1, size=1)), 2),
    "only the input": (lambda b, x: b.Add(norm(b, x), norm(b, x)), 2),
    "a plane is added": (lambda b, x: b.Add(b.Add(conv(b, x), random(1, 6, 7, 5)), conv(b, x, size=1)), 2),
}


def convolutions(graph: Graph) -> int:
    return sum(n.op.name in ("Conv", "BatchNormalization") for n in graph.nodes)


@pytest.mark.parametrize("name", CASES)
def test_the_same_results(name: str) -> None:
    build, left = CASES[name]
    graph = graph_of(build, X)
    wanted = evaluate(graph, {graph.inputs[0]: X})
    before = convolutions(graph)
    assert merge_branches.run(graph) == before - left
    assert convolutions(graph) == left and not problems(graph)
    for got, want in zip(evaluate(graph, {graph.inputs[0]: X}), wanted, strict=True):
        np.testing.assert_allclose(got, want, rtol=1e-5, atol=2e-6 * np.abs(want).max())


MODEL = """<ir_version: 8, opset_import: ["" : 17]>
g (float[1, 4, 9, 8] x, float[4] s) => (float[1, 4, 9, 8] y, float[1, 4, 9, 8] z) {
    a = Conv <pads = [1, 1, 1, 1]> (x, w, b)  c = Conv (x, v)  n = BatchNormalization (x, b, b, b, e)
    ac = Add (a, c)  y = Add (ac, n)
    d = Conv <pads = [1, 1, 1, 1]> (x, w)  r = BatchNormalization (x, s, b, b, e)  z = Add (d, r)
}"""


@pytest.mark.parametrize("backend", [pytest.param("c", marks=pytest.mark.compiler), "numpy"])
def test_beside_onnx_runtime(backend: Any) -> None:
    """Also with a scale that an input gives, which stays."""
    model = onnx.parser.parse_model(MODEL)
    arrays = {"w": random(4, 4, 3, 3), "v": random(4, 4, 1, 1), "b": random(4), "e": np.abs(random(4)) + 0.1}
    model.graph.initializer.extend(onnx.numpy_helper.from_array(a, n) for n, a in arrays.items())
    feeds = {"x": random(1, 4, 9, 8), "s": random(4)}
    session: Any = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    compiled = irc.compile(model, backend=backend)
    for got, want in zip(compiled(feeds), session.run(None, feeds), strict=True):
        np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-5)
