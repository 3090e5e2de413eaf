"""Zeros around what a convolution reads are its padding."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from irc.ir.types import f32, i64
from irc.ir.verify import problems
from irc.opdef.builder import evaluate
from irc.ops.conv import Conv, GroupedConv
from irc.passes import padding, simplify
from tests.support.lowering import graph_of, random

X = random(2, 4, 7, 6)
W = random(6, 4, 3, 3, seed=1)


def run(build: Any) -> list[str]:
    """Apply the rule. Returns the operations there are then, which give what they gave."""
    graph = graph_of(build, X)
    (wanted,) = evaluate(graph, {graph.inputs[0]: X})
    simplify.run(graph, padding.RULES)
    assert not problems(graph)
    np.testing.assert_array_equal(evaluate(graph, {graph.inputs[0]: X})[0], wanted)
    return [n.op.name for n in graph.nodes]


@pytest.mark.parametrize("own", [{}, {"auto_pad": "valid"}, {"pads_begin": (1, 0), "pads_end": (0, 2)}], ids=str)
@pytest.mark.parametrize("axes", [None, [-2, 3]], ids=str)
def test_padding_is_the_convolution_s(own: dict[str, Any], axes: list[int] | None) -> None:
    pads = [0, 0, 0, 1, 0, 0, 2, 1] if axes is None else [0, 1, 2, 1]

    def build(b: Any, x: Any) -> Any:
        named = None if axes is None else b.const(axes, i64)
        padded = b.Pad(x, b.const(pads, i64), b.const(np.float32(0), f32), named)
        return b.add(Conv(strides=(2, 2), **own), padded, b.const(W, f32))

    assert run(build) == ["Conv"]


def test_padding_of_groups() -> None:
    def build(b: Any, x: Any) -> Any:
        padded = b.PadEach(x, b.const([0, 0, 1, 1], i64), b.const([0, 0, 0, 3], i64))
        return b.add(GroupedConv(), padded, b.const(random(2, 3, 2, 3, 3), f32))

    assert run(build) == ["GroupedConv"]


@pytest.mark.parametrize(
    ("pads", "value", "mode", "own"),
    [
        ([0, 0, 1, 1, 0, 0, 1, 1], 0.5, "constant", {}),
        ([0, 0, 1, 1, 0, 0, 1, 1], 0.0, "edge", {}),
        ([1, 0, 1, 1, 0, 0, 1, 1], 0.0, "constant", {}),
        ([0, 0, 1, 1, 0, 0, -1, 1], 0.0, "constant", {}),
        ([0, 0, 1, 1, 0, 0, 1, 1], 0.0, "constant", {"auto_pad": "same_upper"}),
    ],
    ids=["other number", "edge", "batch", "cut", "same"],
)
def test_other_padding_stays(pads: list[int], value: float, mode: str, own: dict[str, Any]) -> None:
    def build(b: Any, x: Any) -> Any:
        number = b.const(np.float32(value), f32) if mode == "constant" else None
        return b.add(Conv(**own), b.Pad(x, b.const(pads, i64), number, mode=mode), b.const(W, f32))

    assert run(build) == ["Pad", "Conv"]
