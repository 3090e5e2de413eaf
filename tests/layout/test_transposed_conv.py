"""ConvTranspose as Conv."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from irc.diagnostics import Sink
from irc.kernels import ISAS
from irc.kernels.movement.transpose import TransposeKernel
from irc.layout import channels_last, transposed_conv
from irc.opdef.builder import evaluate
from irc.ops.conv import Conv
from irc.pipelines import compile_c
from irc.selection.selector import KernelOp
from tests.support.lowering import graph_of, random

# window, pads in front, pads behind, groups, and whether a Conv has just these results
CASES = {
    "padded as it was": ((3, 3), (1, 1), (1, 1), 1, True),
    "no padding": ((3, 5), (0, 0), (0, 0), 1, True),
    "other padding behind": ((4, 3), (0, 2), (2, 1), 2, True),
    "more padding than the window has neighbours": ((2, 2), (2, 0), (0, 0), 1, False),
    "volume": ((3, 2, 2), (1, 1, 0), (1, 0, 1), 1, True),
}


@pytest.mark.parametrize("name", CASES)
def test_stride_1_is_one_convolution(name: str) -> None:
    window, begin, end, groups, one = CASES[name]
    weights = random(4, 6 // groups, *window)

    def build(b: Any, x: Any) -> Any:
        y = b.ConvTranspose(x, weights, random(6), pads_begin=begin, pads_end=end, group=groups)
        return b.Relu(y)

    x = random(2, 4, 9, 7, 5)[(..., *[0] * (3 - len(window)))]
    graph = graph_of(build, x)
    feeds = {graph.inputs[0]: x}
    wanted = evaluate(graph, feeds)
    assert transposed_conv.run(graph) == 1
    kinds = [type(node.op) for node in graph.nodes]
    assert Conv in kinds
    assert (len(kinds) == 2) == one  # a Conv and Relu
    np.testing.assert_allclose(evaluate(graph, feeds)[0], wanted[0], rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("groups", [1, 2])
@pytest.mark.parametrize(
    ("dilations", "begin", "end", "done"),
    [((2, 3), (1, 2), (3, 0), 1), ((1, 4), (0, 0), (0, 0), 1), ((2, 2), (5, 0), (0, 0), 0)],
    ids=["padded", "no padding", "more padding than the window reaches"],
)
def test_dilated_windows_of_stride_1(dilations: Any, begin: Any, end: Any, done: int, groups: int) -> None:
    weights, x = random(4, 6 // groups, 3, 2), random(2, 4, 9, 7)

    def build(b: Any, x: Any) -> Any:
        given = {"pads_begin": begin, "pads_end": end, "dilations": dilations, "group": groups}
        return b.Relu(b.ConvTranspose(x, weights, random(6), **given))

    graph = graph_of(build, x)
    feeds = {graph.inputs[0]: x}
    wanted = evaluate(graph, feeds)
    assert transposed_conv.run(graph) == done
    assert (Conv in [type(node.op) for node in graph.nodes]) == bool(done)
    np.testing.assert_allclose(evaluate(graph, feeds)[0], wanted[0], rtol=1e-5, atol=1e-5)


def test_dilated_windows_with_a_stride_stay() -> None:
    weights = random(4, 6, 3, 3)
    graph = graph_of(lambda b, x: b.ConvTranspose(x, weights, strides=(2, 2), dilations=(2, 2)), random(1, 4, 9, 7))
    assert transposed_conv.run(graph) == 0


def test_what_a_convolution_leaves_out_counts() -> None:
    """Of a plane no larger than the window, most products of its own kernel are added to nothing that is kept."""
    weights = random(72, 768, 5, 5)

    def build(b: Any, x: Any) -> Any:
        return b.ConvTranspose(x, weights, pads_begin=(2, 2), pads_end=(2, 2))

    graph = graph_of(build, random(1, 72, 5, 5))
    assert transposed_conv.run(graph, replace(ISAS["avx512"], fma=1)) == 1
    assert [type(node.op) for node in graph.nodes] == [Conv]


@pytest.mark.parametrize("isa", ["avx512", "avx2"])
def test_windows_as_large_as_the_stride(isa: str) -> None:
    """Of narrow planes the kernel would gather short rows, which loops interleave with less."""
    weights = random(16, 384, 2, 2)

    def build(b: Any, x: Any) -> Any:
        return b.ConvTranspose(x, weights, strides=(2, 2))

    graph = graph_of(build, random(1, 16, 14, 14))
    assert transposed_conv.run(graph, ISAS[isa]) == 1
    assert [node.op.name for node in graph.nodes] == ["Conv", "Interleave"]


@pytest.mark.parametrize(("channels", "plane"), [(24, 10), (256, 5)])
def test_remainders_alone_keep_their_layout(channels: int, plane: int) -> None:
    """Convolutions that compute one ConvTranspose do not make a region: its result would be rearranged twice."""
    weights = random(channels, 512, 4, 4)

    def build(b: Any, x: Any) -> Any:
        return b.ConvTranspose(x, weights, strides=(2, 2), pads_begin=(1, 1), pads_end=(1, 1))

    graph = graph_of(build, random(1, channels, plane, plane))
    assert transposed_conv.run(graph, ISAS["avx512"]) == 1
    assert sum(isinstance(node.op, Conv) for node in graph.nodes) == 4
    assert channels_last.run(graph, ISAS["avx512"], "highest") == 0


def test_remainders_are_put_together_before_the_channels_come_first() -> None:
    """24x64x64 -> 256, k5 s2: 25.6 -> 15.5 ms (Zen 4); reading through both moves, each element came from far away."""
    weights = random(64, 128, 5, 5)

    def build(b: Any, x: Any) -> Any:
        return b.Relu(b.ConvTranspose(x, weights, strides=(2, 2), pads_begin=(2, 2), pads_end=(2, 2)))

    graph, sink = graph_of(build, random(1, 64, 28, 28)), Sink()
    for _, run in compile_c(ISAS["avx512"]):
        run(graph, sink)
    last = graph.outputs[0].producer
    assert last is not None and isinstance(last.op, KernelOp) and isinstance(last.op.kernel, TransposeKernel)
