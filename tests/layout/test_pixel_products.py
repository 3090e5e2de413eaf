"""Convolutions of single pixels to few output channels become products: the same results, and when they do not."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from irc.ir.graph import Graph
from irc.ir.verify import problems
from irc.kernels import ISAS
from irc.layout import pixel_products
from irc.opdef.builder import evaluate
from irc.ops.conv import Conv
from irc.ops.matmul import MatMul
from tests.support.lowering import graph_of, random


def graph(shape: tuple[int, ...], outputs: int, bias: bool = True, **fields: Any) -> Graph:
    """A convolution of single pixels of this input."""
    w = random(outputs, shape[1] // fields.get("group", 1), *[1] * (len(shape) - 2))

    def build(b: Any, x: Any) -> Any:
        return b.Conv(x, w, random(outputs) if bias else None, **fields)

    return graph_of(build, random(*shape))


@pytest.mark.parametrize("isa", ["avx512", "avx2"])
@pytest.mark.parametrize(("shape", "outputs"), [((1, 384, 1000), 1), ((2, 64, 56, 56), 2), ((1, 64, 4, 30, 20), 3)])
@pytest.mark.parametrize("bias", [True, False])
def test_few_outputs_are_a_product(shape: tuple[int, ...], outputs: int, bias: bool, isa: str) -> None:
    g, x = graph(shape, outputs, bias), random(*shape)
    (before,) = evaluate(g, {g.inputs[0]: x})
    assert pixel_products.run(g, ISAS[isa]) == 1
    assert [type(node.op) for node in g.nodes if isinstance(node.op, Conv | MatMul)] == [MatMul]
    assert not problems(g)
    (after,) = evaluate(g, {g.inputs[0]: x})
    np.testing.assert_allclose(after, before, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(
    ("outputs", "fields"), [(8, {}), (2, {"group": 2}), (2, {"strides": (2, 2)}), (2, {"pads_end": (0, 1)})]
)
def test_others_stay_convolutions(outputs: int, fields: dict[str, Any]) -> None:
    assert pixel_products.run(graph((1, 64, 56, 56), outputs, **fields), ISAS["avx512"]) == 0
