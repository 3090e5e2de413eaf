"""Pools of volumes, halves and bytes become pools of planes of f32, and give the same."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from irc.ir.graph import Graph
from irc.ir.verify import problems
from irc.layout import plane_pools
from irc.opdef.builder import evaluate
from irc.ops.pool import AveragePool, MaxPool
from tests.support.lowering import graph_of, random

SAME = {"pads_begin": (1, 1, 1), "pads_end": (1, 1, 1)}
VOLUMES: dict[str, tuple[tuple[int, ...], dict[str, Any]]] = {
    "stride 2": ((3, 3, 3), {"strides": (2, 2, 2), **SAME}),
    "stride 1": ((3, 3, 3), SAME),
    "dilated": ((2, 2, 2), {"dilations": (2, 1, 2), "pads_begin": (1, 0, 1), "pads_end": (0, 1, 1)}),
    "of planes": ((1, 2, 2), {"strides": (1, 2, 2)}),
    "along the first axis": ((3, 1, 1), {"pads_begin": (1, 0, 0), "pads_end": (1, 0, 0)}),
    "rounded up": ((2, 3, 2), {"strides": (2, 2, 2), "rounding": "ceil_torch"}),
    "same": ((3, 2, 3), {"strides": (2, 2, 1), "auto_pad": "same_upper"}),
}


def pooled_alike(op: MaxPool | AveragePool, x: Any, rtol: float) -> Graph:
    graph = graph_of(lambda b, v: b.add_all(op, v)[0], x)
    (wanted,) = evaluate(graph, {graph.inputs[0]: x})
    assert plane_pools.run(graph) == 1 and not problems(graph)
    (got,) = evaluate(graph, {graph.inputs[0]: x})
    assert got.dtype == wanted.dtype
    np.testing.assert_allclose(got, wanted, rtol=rtol)
    return graph


@pytest.mark.parametrize("name", VOLUMES)
@pytest.mark.parametrize("mode", ["max", "inside", "padded"])
def test_volumes(name: str, mode: str) -> None:
    kernel, fields = VOLUMES[name]
    op = MaxPool(kernel, **fields) if mode == "max" else AveragePool(kernel, counted=mode, **fields)
    graph = pooled_alike(op, random(2, 3, 5, 6, 7) + 4, 0 if mode == "max" else 1e-6)
    pools = [n.op for n in graph.nodes if isinstance(n.op, MaxPool | AveragePool)]
    assert [len(p.kernel) for p in pools] == [2] * len(pools)


def test_halves_and_bytes() -> None:
    window = {"strides": (2, 1), "pads_begin": (1, 1), "pads_end": (1, 1)}
    pooled_alike(MaxPool((3, 3), **window), random(2, 3, 6, 7).astype(np.float16), 0)
    pooled_alike(AveragePool((3, 3), **window), random(2, 3, 6, 7).astype(np.float16) + 4, 1e-3)
    for dtype in (np.int8, np.uint8):
        x = np.random.default_rng(1).integers(np.iinfo(dtype).min, np.iinfo(dtype).max + 1, (2, 3, 6, 7)).astype(dtype)
        pooled_alike(MaxPool((3, 3), **window), x, 0)


@pytest.mark.parametrize(
    "op",
    [
        MaxPool((2, 2), pads_begin=(2, 0), pads_end=(0, 0)),  # windows of padding alone
        MaxPool((3, 3), strides=(2, 2), rounding="ceil"),
        MaxPool((2, 2), dilations=(2, 2)),
        AveragePool((2, 2)),
    ],
)
def test_bytes_that_stay(op: MaxPool | AveragePool) -> None:
    x = np.arange(60, dtype=np.uint8).reshape(1, 2, 5, 6)
    assert not plane_pools.run(graph_of(lambda b, v: b.add_all(op, v)[0], x))


def test_indices_stay() -> None:
    graph = graph_of(lambda b, v: b.add_all(MaxPool((2, 2, 2)), v)[1], random(1, 2, 4, 4, 4))
    assert not plane_pools.run(graph)
