"""Taps that see nothing but padding are cut off, and nothing else."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from irc.ir.dim import Dim
from irc.ir.graph import Graph
from irc.ir.verify import problems
from irc.layout import trim_taps
from irc.opdef.builder import evaluate
from tests.support.lowering import graph_of, random

CASES: dict[str, tuple[tuple[int, ...], tuple[int, ...], dict[str, Any], tuple[int, ...]]] = {
    # the input, the window, the attributes, the window that is left
    "one of many": ((2, 6, 64), (15,), {"dilations": (256,), "pads_begin": (1792,), "pads_end": (1792,)}, (1,)),
    "of both ends": ((1, 4, 40), (9,), {"dilations": (16,), "pads_begin": (64,), "pads_end": (64,)}, (5,)),
    "only before": ((1, 4, 10), (3,), {"dilations": (8,), "pads_begin": (16,), "pads_end": (0,)}, (2,)),
    "rows": ((1, 4, 5, 9), (3, 3), {"dilations": (5, 1), "pads_begin": (5, 1), "pads_end": (5, 1)}, (1, 3)),
    "groups": ((1, 8, 5), (7,), {"dilations": (4,), "pads_begin": (12,), "pads_end": (12,), "group": 2}, (3,)),
    "a stride": ((1, 4, 5), (9,), {"strides": (3,), "pads_begin": (8,), "pads_end": (8,)}, (9,)),
    "a slice": ((1, 4, 12), (2,), {"strides": (1,), "dilations": (20,), "pads_begin": (14,), "pads_end": (3,)}, (1,)),
    "volumes": ((1, 2, 3, 2, 2), (3, 1, 1), {"dilations": (3, 1, 1), "pads_begin": (6, 0, 0)}, (1, 1, 1)),
}  # fmt: skip


def conv_of(size: tuple[int, ...], window: tuple[int, ...], bias: bool = True, **fields: Any) -> tuple[Graph, Any]:
    x = random(*size)
    w = random(12, size[1] // fields.get("group", 1), *window)
    return graph_of(lambda b, v: b.Conv(v, w, random(12) if bias else None, **fields), x), x


@pytest.mark.parametrize("name", CASES)
def test_what_is_left(name: str) -> None:
    size, window, fields, left = CASES[name]
    graph, x = conv_of(size, window, **fields)
    (wanted,) = evaluate(graph, {graph.inputs[0]: x})
    assert trim_taps.run(graph) == (left != window)
    assert not problems(graph)
    weights = next(n for n in graph.nodes if n.op.name == "Conv").inputs[1]
    assert weights is not None and tuple(map(int, weights.shape[2:])) == left
    (got,) = evaluate(graph, {graph.inputs[0]: x})
    np.testing.assert_allclose(got, wanted, rtol=1e-5, atol=1e-6 * np.abs(wanted).max())


@pytest.mark.parametrize("bias", [True, False])
def test_no_tap_is_left(bias: bool) -> None:
    graph, x = conv_of((2, 4, 64), (8,), bias, dilations=(256,), pads_begin=(896,), pads_end=(896,))
    (wanted,) = evaluate(graph, {graph.inputs[0]: x})
    assert trim_taps.run(graph) == 1
    assert not problems(graph) and not any(n.op.name == "Conv" for n in graph.nodes)
    (got,) = evaluate(graph, {graph.inputs[0]: x})
    np.testing.assert_array_equal(got, wanted)


def test_random_windows() -> None:
    rng = np.random.default_rng(7)
    trimmed = 0
    for _ in range(60):
        n, k, s, d = (int(rng.integers(1, high)) for high in (9, 8, 4, 6))
        before, after = (int(rng.integers(0, d * k + 1)) for _ in range(2))
        if n + before + after < d * (k - 1) + 1:
            continue
        graph, x = conv_of((1, 2, n), (k,), strides=(s,), dilations=(d,), pads_begin=(before,), pads_end=(after,))
        (wanted,) = evaluate(graph, {graph.inputs[0]: x})
        trimmed += trim_taps.run(graph)
        (got,) = evaluate(graph, {graph.inputs[0]: x})
        np.testing.assert_allclose(got, wanted, rtol=1e-5, atol=1e-6 * np.abs(wanted).max() + 1e-30)
    assert trimmed > 5


def test_sizes_of_the_run_keep_all_taps() -> None:
    x, w = random(1, 4, 5), random(8, 4, 3)
    fields = {"dilations": (8,), "pads_begin": (8,), "pads_end": (8,)}
    assert trim_taps.run(graph_of(lambda b, v: b.Conv(v, w, None, **fields), x, shapes=[(1, 4, Dim.symbol("n"))])) == 0
