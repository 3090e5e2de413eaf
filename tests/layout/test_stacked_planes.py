"""Convolutions of volumes as convolutions of planes, where these cost less."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from irc.diagnostics import Sink
from irc.fusion import group
from irc.ir.graph import Graph
from irc.ir.verify import problems
from irc.kernels import ISAS
from irc.layout import channels_last
from irc.layout.channels_last_op import ChannelsLast
from irc.loops import interp
from irc.loops.lower import lower
from irc.opdef.builder import evaluate
from irc.ops.conv import Conv
from irc.ops.pool import MaxPool
from irc.pipelines import compile_c
from irc.selection.selector import KernelOp
from tests.support.c_program import Library
from tests.support.instruction_sets import isa_under_test
from tests.support.lowering import graph_of, random

AROUND: dict[str, Any] = {"pads_begin": (1, 1, 1), "pads_end": (1, 1, 1)}
VOLUMES: dict[str, tuple[tuple[int, ...], dict[str, Any]]] = {
    "window of three planes": ((3, 3, 3), AROUND),
    "strides, dilations, unequal padding": (
        (2, 3, 3),
        {"strides": (2, 1, 2), "dilations": (2, 1, 1), "pads_begin": (2, 1, 0), "pads_end": (1, 0, 1)},
    ),
    "groups": ((3, 3, 3), {"group": 4, **AROUND}),
    "window of one plane": ((1, 3, 3), {"pads_begin": (0, 1, 1), "pads_end": (0, 1, 1)}),
    "same": ((3, 2, 3), {"strides": (2, 1, 1), "auto_pad": "same_upper"}),
    "planes of padding alone": ((1, 3, 3), {"pads_begin": (1, 1, 1), "pads_end": (0, 1, 1), "strides": (2, 1, 1)}),
}


def convolution(shape: tuple[int, ...], outputs: int, window: tuple[int, ...], fields: dict[str, Any]) -> Graph:
    """State a Conv of an input of that shape."""

    def build(b: Any, x: Any) -> Any:
        w = random(outputs, shape[1] // fields.get("group", 1), *window)
        return b.Conv(x, w, random(outputs), **fields)

    return graph_of(build, random(*shape))


def is_stacked(graph: Graph, isa: str) -> bool:
    channels_last.run(graph, ISAS[isa])
    assert not problems(graph)
    return any(isinstance(n.op, ChannelsLast) and isinstance(n.op.op, Conv) for n in graph.nodes)


@pytest.mark.parametrize("name", VOLUMES)
def test_the_same_results(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def always(*_: Any) -> bool:
        return True

    monkeypatch.setattr(channels_last, "channels_last_pays", always)
    graph = convolution((2, 16, 5, 6, 7), 8, *VOLUMES[name])
    feeds = {graph.inputs[0]: random(2, 16, 5, 6, 7)}
    (wanted,) = evaluate(graph, feeds)
    assert is_stacked(graph, "avx512")
    (got,) = evaluate(graph, feeds)
    np.testing.assert_allclose(got, wanted, rtol=1e-5, atol=1e-5 * np.abs(wanted).max())


@pytest.mark.parametrize("isa", ["avx512", "avx2"])
def test_where_it_pays(isa: str) -> None:
    """Winograd's algorithm saves most products of 3 × 3 × 3; a copy of seven planes and a stride leave nothing to save.

    Nor do groups of one channel.
    """
    assert is_stacked(convolution((1, 64, 16, 16, 16), 64, (3, 3, 3), AROUND), isa)
    wide: dict[str, Any] = {"pads_begin": (3, 3, 3), "pads_end": (3, 3, 3), "strides": (2, 2, 2)}
    assert not is_stacked(convolution((1, 24, 8, 8, 8), 192, (7, 7, 7), wide), isa)
    assert not is_stacked(convolution((1, 64, 16, 16, 16), 64, (3, 3, 3), {"group": 64, **AROUND}), isa)


def test_small_volumes() -> None:
    """Weights that the last cache holds do not wait for long."""
    assert is_stacked(convolution((1, 128, 4, 4, 4), 48, (3, 3, 3), AROUND), "avx2")


def network(b: Any, x: Any) -> Any:
    """A residual, a concatenation in place, groups, unequal padding, a stride; the pool is one of planes."""
    y = b.Relu(b.Conv(x, random(32, 32, 3, 3, 3), random(32), **AROUND))
    z = b.Relu(b.Add(b.Conv(y, random(32, 32, 3, 3, 3, seed=1), random(32), **AROUND), y))
    fields: dict[str, Any] = {"strides": (2, 1, 1), "pads_begin": (2, 1, 1), "pads_end": (0, 1, 1)}
    y = b.Conv(b.Concat(z, b.Sigmoid(y), axis=1), random(64, 32, 3, 3, 3), group=2, **fields)
    return b.add_all(MaxPool(kernel=(1, 2, 2), strides=(1, 2, 2)), y)[0]


@pytest.mark.compiler
def test_compiled(tmp_path: Path) -> None:
    """As code and by what its statements mean; several volumes, whose planes are images all the same."""
    x, sink = random(2, 32, 3, 16, 16), Sink()
    graph = graph_of(network, x)
    (wanted,) = evaluate(graph, {graph.inputs[0]: x})
    for _, run in compile_c(isa_under_test()):
        run(graph, sink)
    kernels = [n.op.spelled() for n in graph.nodes if isinstance(n.op, KernelOp)]
    assert any("winograd" in k and "batch=6" in k for k in kernels)
    program = lower(graph, group.run(graph), "test")
    library = Library(program, tmp_path)
    (got,) = library.run(library.context(), [x], [wanted.shape])
    for found in (got, *interp.run(program, [x])):
        np.testing.assert_allclose(found, wanted, rtol=1e-5, atol=3e-6 * np.abs(wanted).max())
