"""Chains of kernels around a depthwise convolution, in bands of rows."""

from __future__ import annotations

import ctypes
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from irc.diagnostics import Sink
from irc.fusion import group
from irc.ir.graph import Graph
from irc.ir.types import bf16
from irc.ir.verify import problems
from irc.kernels import ISAS
from irc.kernels.core import choices
from irc.loops import interp
from irc.loops.ir import KernelCall, walk
from irc.loops.lower import lower
from irc.loops.work import work_of
from irc.opdef.builder import evaluate
from irc.pipelines import compile_c
from irc.selection import bands
from irc.selection.bands import Bands
from tests.kernels.test_kernels import Pool
from tests.support.c_program import Library
from tests.support.instruction_sets import isa_under_test
from tests.support.lowering import graph_of, random

CHANNELS = 48
CHAINS: dict[str, tuple[str, int, dict[str, Any]]] = {
    "expand, depthwise, project": ("edp", 3, {"pads_begin": (1, 1), "pads_end": (1, 1)}),
    "five taps": ("edp", 5, {"pads_begin": (2, 2), "pads_end": (2, 2)}),
    "a stride": ("edp", 3, {"pads_begin": (0, 1), "pads_end": (1, 1), "strides": (2, 2)}),
    "a stride without rows that windows share": ("edp", 2, {"strides": (2, 2)}),
    "rows between windows": ("edp", 2, {"strides": (3, 1)}),
    "a dilation": ("edp", 3, {"pads_begin": (3, 3), "pads_end": (3, 3), "dilations": (3, 3)}),
    "expand, depthwise": ("ed", 3, {"pads_begin": (1, 1), "pads_end": (1, 1)}),
    "depthwise, project": ("dp", 3, {"pads_begin": (1, 1), "pads_end": (1, 1)}),
}


def chain(name: str) -> Any:
    """Build a chain of an input of 16 channels, or of as many as are between the kernels."""
    parts, taps, fields = CHAINS[name]

    def build(b: Any, x: Any) -> Any:
        y = x
        if "e" in parts:
            y = b.Sigmoid(b.Conv(y, random(CHANNELS, 16, 1, 1), random(CHANNELS)))
        y = b.Relu(b.Conv(y, random(CHANNELS, 1, taps, taps), random(CHANNELS), group=CHANNELS, **fields))
        if "p" in parts:
            y = b.Conv(y, random(16, CHANNELS, 1, 1), random(16))
            y = b.Add(y, x) if y.shape == x.shape else y
        return y

    return build


def banded(
    build: Any, x: Any, isa: Any, monkeypatch: pytest.MonkeyPatch, far: int = 0, precision: str = "highest"
) -> Graph:
    """Compile a chain as if second caches had room for twelve rows."""
    monkeypatch.setattr(bands, "FAR", far)
    monkeypatch.setattr(bands, "AGAIN", 5)
    monkeypatch.setattr(bands, "BAND", 12 * 44 * CHANNELS * 4 / max(isa.l2, bands.LEAST))
    graph, sink = graph_of(build, x), Sink()
    for _, run in compile_c(isa, precision):
        run(graph, sink)
    assert not problems(graph)
    return graph


@pytest.mark.compiler
@pytest.mark.parametrize("name", CHAINS)
def test_the_same_results(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As code, on one thread and several, and by what its statements mean."""
    x = random(1, 16 if "e" in CHAINS[name][0] else CHANNELS, 61, 44)
    graph = graph_of(chain(name), x)
    (wanted,) = evaluate(graph, {graph.inputs[0]: x})
    graph = banded(chain(name), x, isa_under_test(), monkeypatch)
    (node,) = (n for n in graph.nodes if isinstance(n.op, Bands))
    assert isinstance(node.op, Bands) and len(node.op.steps) == len(CHAINS[name][0])
    program = lower(graph, group.run(graph), "test")
    (function,) = (f for f in program.functions if len([s for s in walk(f.body) if isinstance(s, KernelCall)]) > 1)
    whole = sum(int(s.op.kernel.flops(bands.dims_of(s.op))) for s in node.op.steps)
    assert work_of(function).flops == whole
    library = Library(program, tmp_path)
    pool = Pool(1)
    one, two = (library.run(library.context(pool=p), [x], [wanted.shape])[0] for p in (None, ctypes.byref(pool)))
    assert pool.calls
    np.testing.assert_array_equal(one, two)
    for found in (one, *interp.run(program, [x])):
        np.testing.assert_allclose(found, wanted, rtol=1e-5, atol=3e-6 * np.abs(wanted).max())


def test_tensors_of_halves(monkeypatch: pytest.MonkeyPatch) -> None:
    """Between kernels, a lower precision stores bf16."""

    def build(b: Any, x: Any) -> Any:
        return chain("expand, depthwise, project")(b, b.Relu(b.Conv(x, random(16, 16, 1, 1), random(16))))

    x = random(1, 16, 61, 44)
    graph = graph_of(build, x)
    (wanted,) = evaluate(graph, {graph.inputs[0]: x})
    graph = banded(build, x, ISAS["avx512_bf16"], monkeypatch, precision="medium")
    (op,) = (n.op for n in graph.nodes if isinstance(n.op, Bands))
    assert bf16 in op.between
    (found,) = interp.run(lower(graph, group.run(graph), "test"), [x])
    np.testing.assert_allclose(found, wanted, rtol=0.02, atol=0.02 * np.abs(wanted).max())


def test_each_row_is_computed_once_in_a_part(monkeypatch: pytest.MonkeyPatch) -> None:
    """What a step computes for a band follows what it has computed; its input's memory holds all that it reads."""
    name = "five taps"
    graph = banded(chain(name), random(1, 16, 61, 44), ISAS["avx2"], monkeypatch)
    (op,) = (n.op for n in graph.nodes if isinstance(n.op, Bands))
    calls = [*bands.calls_of(op.steps, op.rows, op.parts, op.count)]
    assert op.parts > 1 and op.count > 1 and len(calls) == op.parts * op.count
    for before, after in pairwise(calls):
        same_part = after[1].kept > 0
        if same_part:
            assert [c.first for c in after] == [c.end for c in before]
        assert after[1].begin + after[1].kept == after[0].first and after[1].stop == after[0].end
    assert (calls[0][2].first, calls[-1][2].end) == (0, 61)
    assert all(a[2].end == b[2].first for a, b in pairwise(calls))


def test_small_tensors_stay_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    """The last cache holds them; and a tuner measures kernels one by one."""
    x, name = random(1, 16, 61, 44), "expand, depthwise, project"
    held = 2 * 61 * 44 * CHANNELS * 4
    for far, found in ((held, True), (held + 1, False)):
        graph = banded(chain(name), x, ISAS["avx512"], monkeypatch, far)
        assert any(isinstance(n.op, Bands) for n in graph.nodes) is found
    with choices.using(choices.Recorder(0)):
        graph = banded(chain(name), x, ISAS["avx512"], monkeypatch)
    assert not any(isinstance(n.op, Bands) for n in graph.nodes)


def test_what_else_is_read_stays_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    """A tensor that somebody else reads is not cut into bands."""

    def build(b: Any, x: Any) -> Any:
        y = b.Sigmoid(b.Conv(x, random(CHANNELS, 16, 1, 1), random(CHANNELS)))
        z = b.Conv(y, random(CHANNELS, 1, 3, 3), group=CHANNELS, pads_begin=(1, 1), pads_end=(1, 1))
        return b.Add(b.Conv(z, random(CHANNELS, CHANNELS, 1, 1)), y)

    graph = banded(build, random(1, 16, 61, 44), ISAS["avx2"], monkeypatch)
    (op,) = (n.op for n in graph.nodes if isinstance(n.op, Bands))
    assert len(op.steps) == 2
