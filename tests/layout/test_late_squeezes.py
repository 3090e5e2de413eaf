"""Elementwise operations stand in front of the Squeeze behind a convolution, where they are its epilogue."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from irc.ir.dim import Dim
from irc.ir.verify import problems
from irc.layout import late_squeezes
from irc.opdef.builder import evaluate
from irc.ops.layout import Squeeze, Transpose
from tests.support.lowering import graph_of, random

LATE = Squeeze | Transpose  # what stands last where elementwise operations were moved
N = Dim.symbol("n", 1)
FEW, WIDE = random(6, 1), random(1, 6, 9)


def squeezed(b: Any, x: Any) -> Any:
    return b.Squeeze(b.Conv(x, b.const(random(6, 4, 2, 1), x.dtype), None), b.const([3]))


def activated(b: Any, y: Any, bias: Any = FEW) -> Any:
    y = b.Add(y, b.const(bias, y.dtype))
    return b.Mul(y, b.Sigmoid(y))


def of_all(b: Any, x: Any) -> Any:
    """The batch is sliced up to what no batch reaches."""
    y = b.Conv(x, b.const(random(6, 4, 2, 1), x.dtype), None)
    y = b.Slice(y, b.const([0]), b.const([10**9]), b.const([0]), b.const([1]))
    return activated(b, b.Squeeze(y, b.const([3])))


def of_product(b: Any, x: Any) -> Any:
    return activated(b, b.Squeeze(b.MatMul(x, b.const(random(1, 1), x.dtype)), b.const([3])), 1.5)


def tokens(b: Any, y: Any) -> Any:
    return b.Transpose(b.Reshape(y, b.const([0, 6, -1]), special_zero=True), b.const([0, 2, 1]))


def of_tokens(b: Any, x: Any, bias: Any = 1.5) -> Any:
    return activated(b, tokens(b, b.Conv(x, b.const(random(6, 4, 2, 1), x.dtype), None)), bias)


def with_another(b: Any, x: Any) -> Any:
    return b.Add(squeezed(b, x), b.Squeeze(b.ReduceSum(x, b.const([1, 2])), b.const([3])))


def read_twice(b: Any, x: Any) -> Any:
    y = b.Conv(x, b.const(random(6, 4, 2, 1), x.dtype), None)
    return b.Add(b.Relu(b.Squeeze(y, b.const([3]))), b.ReduceSum(y, b.const([3]), keepdims=False))


CASES: dict[str, tuple[Callable[[Any, Any], Any], int]] = {
    "an activation": (lambda b, x: activated(b, squeezed(b, x)), 3),
    "a constant of all places": (lambda b, x: activated(b, squeezed(b, x), WIDE), 3),
    "slices": (of_all, 3),
    "a product": (of_product, 3),
    "tokens": (of_tokens, 3),
    "tokens, each with a bias of its own": (lambda b, x: of_tokens(b, x, random(1, 6)), 0),
    "another operand": (with_another, 0),
    "of more rank": (lambda b, x: b.Add(squeezed(b, x), b.const(random(2, 1, 1, 1), x.dtype)), 0),
    "two readers": (read_twice, 0),
}


@pytest.mark.parametrize("name", CASES)
def test_what_is_moved(name: str) -> None:
    build, moved = CASES[name]
    x = random(3, 4, 10, 1)
    graph = graph_of(build, x, shapes=[(N, 4, 10, 1)])
    (wanted,) = evaluate(graph, {graph.inputs[0]: x})
    assert late_squeezes.run(graph) == moved
    assert not problems(graph)
    assert (graph.outputs[0].producer is not None and isinstance(graph.outputs[0].producer.op, LATE)) == bool(moved)
    (got,) = evaluate(graph, {graph.inputs[0]: x})
    np.testing.assert_allclose(got, wanted, rtol=1e-5, atol=1e-6)


def test_axes_that_are_dropped() -> None:
    one, two, n = Dim.of(1), Dim.of(2), N
    assert late_squeezes.dropped((n, two, one), (n, two)) == (2,)
    assert late_squeezes.dropped((one, n, one, two), (n, two)) == (0, 2)
    assert late_squeezes.dropped((n, two), (n, two)) == late_squeezes.dropped((n, two), (two, n)) == ()
