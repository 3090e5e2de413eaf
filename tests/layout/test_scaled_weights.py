"""Weights are scaled where the channels of what a product reads were: the same results, and when they are not."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from irc.ir.dim import Dim
from irc.ir.verify import problems
from irc.kernels import ISAS
from irc.layout import scaled_weights
from irc.opdef.builder import evaluate
from irc.ops.arithmetic import Mul
from tests.support.lowering import graph_of, random

N = Dim.symbol("n", 1)
PIXELS, SCALES, WEIGHTS = random(1, 56, 56, 96), random(1, 1, 1, 96), random(96, 24)


def excited(b: Any, x: Any, s: Any) -> Any:
    return b.MatMul(b.Mul(x, s), b.const(WEIGHTS, x.dtype))


def on_the_left(b: Any, x: Any, s: Any) -> Any:
    return b.MatMul(b.Mul(s, x), b.const(WEIGHTS.T, x.dtype), transpose_b=True)


def read_twice(b: Any, x: Any, s: Any) -> Any:
    y = b.Mul(x, s)
    return b.Add(b.MatMul(y, b.const(WEIGHTS, x.dtype)), b.ReduceSum(y, b.const([3])))


def computed(b: Any, x: Any, s: Any) -> Any:
    """What computes the pixels scales them."""
    return excited(b, b.MatMul(x, b.const(random(96, 96), x.dtype)), s)


def of_operands(b: Any, x: Any, s: Any) -> Any:
    return b.MatMul(b.Mul(x, s), b.Reshape(b.Mul(s, b.const(random(24, 1, 1, 1), x.dtype)), b.const([96, 24])))


CASES: dict[str, tuple[Callable[..., Any], Any, Any, int]] = {
    "pixels": (excited, PIXELS, SCALES, 1),
    "weights transposed, a scale of less rank": (on_the_left, PIXELS, random(96), 1),
    "two images": (excited, random(2, 56, 56, 96), random(2, 1, 1, 96), 1),
    "doubles": (excited, PIXELS.astype(np.float64), SCALES.astype(np.float64), 1),
    "one scale of two images": (excited, random(2, 28, 56, 96), SCALES, 1),
    "few pixels": (excited, random(1, 3, 5, 96), SCALES, 0),
    "a scale of each pixel": (excited, PIXELS, random(1, 56, 56, 1), 0),
    "a scale of each row": (excited, PIXELS, random(1, 56, 1, 96), 0),
    "a value that nothing else reads": (computed, PIXELS, SCALES, 0),
    "two readers": (read_twice, PIXELS, SCALES, 0),
    "weights that are computed": (of_operands, PIXELS, SCALES, 0),
}


@pytest.mark.parametrize("isa", ["avx512", "avx2"])
@pytest.mark.parametrize("name", CASES)
def test_weights_are_scaled(name: str, isa: str) -> None:
    build, x, s, done = CASES[name]
    g = graph_of(build, x, s)
    feeds = dict(zip(g.inputs, (x, s), strict=True))
    (before,) = evaluate(g, feeds)
    assert scaled_weights.run(g, ISAS[isa]) == done
    assert not problems(g)
    shapes = [node.outputs[0].shape for node in g.nodes if isinstance(node.op, Mul)]
    assert (g.inputs[0].shape in shapes) != bool(done)
    (after,) = evaluate(g, feeds)
    np.testing.assert_allclose(after, before, rtol=1e-4, atol=1e-4)


def test_images_of_any_number() -> None:
    """All images have the same scale, or each one its own, which must be known ones."""
    for s, done in ((SCALES, 1), (random(2, 1, 1, 96), 0)):
        shapes = [(N, 56, 56, 96), (1 if done else N, 1, 1, 96)]
        g = graph_of(excited, random(2, 56, 56, 96), s, shapes=shapes)
        assert scaled_weights.run(g, ISAS["avx512"]) == done
        assert not problems(g)
