"""Residuals are added where they stand, behind the Transpose that brings a result back to them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from irc.ir.types import f32, u8
from irc.ir.verify import problems
from irc.kernels.movement.transpose_fused import TransposeFusedKernel
from irc.layout import residual_transposes
from irc.opdef.builder import evaluate
from irc.ops.layout import Transpose
from tests.selection.test_select import kernels, selected
from tests.support.lowering import graph_of, random

WEIGHTS = random(64, 64)


def last(b: Any, x: Any) -> Any:
    return b.Transpose(x, [0, 2, 3, 1])


def first(b: Any, x: Any) -> Any:
    return b.Transpose(x, [0, 3, 1, 2])


def product(b: Any, x: Any) -> Any:
    return b.MatMul(x, b.const(WEIGHTS, x.dtype))


def residual(b: Any, x: Any) -> Any:
    return first(b, b.Add(last(b, x), product(b, last(b, x))))


def shared(b: Any, x: Any) -> Any:
    """One Transpose has two readers."""
    y = last(b, x)
    return first(b, b.Add(product(b, y), y))


def gated(b: Any, x: Any) -> Any:
    return first(b, b.Where(b.Greater(last(b, x), 0.5), last(b, x), product(b, last(b, x))))


def sum_read_twice(b: Any, x: Any) -> Any:
    y = b.Add(last(b, x), product(b, last(b, x)))
    return b.Add(first(b, y), b.ReduceSum(y, b.const([1, 2, 3])))


def two_results(b: Any, x: Any) -> Any:
    return first(b, b.Add(b.Mul(product(b, last(b, x)), last(b, x)), product(b, b.Relu(last(b, x)))))


def read_through(b: Any, x: Any) -> Any:
    return b.MatMul(b.const(WEIGHTS[:, :28], x.dtype), b.Transpose(residual(b, x), [0, 1, 3, 2]))


def of_bytes(b: Any, x: Any) -> Any:
    """Kernels of the product would add and round."""
    quantized = b.Cast(b.Add(last(b, x), product(b, last(b, x))), to=u8)
    return b.Cast(first(b, b.Add(b.Cast(last(b, x), to=u8), quantized)), to=f32)


def other_order(b: Any, x: Any) -> Any:
    return b.Transpose(b.Add(last(b, x), product(b, last(b, x))), [0, 3, 2, 1])


CASES: dict[str, tuple[Callable[..., Any], int]] = {
    "a residual": (residual, 1),
    "one Transpose of two readers": (shared, 1),
    "another operand": (gated, 0),
    "a sum that is read twice": (sum_read_twice, 0),
    "two results": (two_results, 0),
    "a result that a product reads through": (read_through, 0),
    "bytes": (of_bytes, 0),
    "another order": (other_order, 0),
}


@pytest.mark.parametrize("name", CASES)
def test_residuals_stay_where_they_are(name: str) -> None:
    build, done = CASES[name]
    x = random(1, 64, 28, 28)
    g = graph_of(build, x)
    (before,) = evaluate(g, {g.inputs[0]: x})
    assert residual_transposes.run(g) == done
    assert not problems(g)
    if done:
        assert g.outputs[0].producer is not None and not isinstance(g.outputs[0].producer.op, Transpose)
    (after,) = evaluate(g, {g.inputs[0]: x})
    np.testing.assert_allclose(after, before, rtol=1e-6, atol=1e-6)


def test_the_sum_is_taken_on_the_way() -> None:
    """One kernel brings the result back and adds the residual."""
    found = kernels(selected(graph_of(residual, random(1, 64, 56, 56))).functions)
    assert sum(isinstance(k, TransposeFusedKernel) for k in found) == 1
