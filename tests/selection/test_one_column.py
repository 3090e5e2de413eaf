"""Products with one column, which are one row by the other operand turned; with sums of few products."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from irc.diagnostics import Sink
from irc.fusion import group
from irc.kernels import ISAS
from irc.kernels.gemm.row_dots import RowDotsGemmKernel
from irc.loops import interp
from irc.loops.ir import KernelCall, walk
from irc.loops.lower import lower
from irc.opdef.builder import evaluate
from irc.pipelines import compile_c
from tests.support.lowering import graph_of, random


def added(b: Any, x: Any, y: Any, r: Any) -> Any:
    return b.Relu(b.Add(b.MatMul(x, y), r))


def moved(b: Any, x: Any, y: Any) -> Any:
    return b.Transpose(b.MatMul(x, y), [1, 0])


def weights(b: Any, x: Any) -> Any:
    return b.Tanh(b.MatMul(x, random(64, 1)))


def matrix(b: Any, x: Any) -> Any:
    return b.MatMul(random(2, 50, 64), x)


def product(b: Any, x: Any, y: Any) -> Any:
    return b.MatMul(x, y)


@pytest.mark.parametrize(
    ("build", "shapes", "kernels"),
    [
        (added, [(3, 37, 24), (3, 24, 1), (37, 1)], [True]),
        (moved, [(3, 37, 24), (24,)], [True]),
        (weights, [(2, 50, 64)], [True]),
        (matrix, [(2, 64, 1)], [False]),  # constant columns are packed
        (product, [(1, 2000), (2000, 1)], []),
        (product, [(2, 4, 1), (2, 1, 1000)], []),  # so few products of a sum are loops' in few rows
        (product, [(2, 4, 3), (2, 3, 1000)], []),
        (product, [(2, 1000, 2), (2, 2, 1)], []),
        (product, [(2, 5, 3), (2, 3, 1000)], [False]),
        (product, [(2, 1000, 1), (2, 1, 4)], [False]),  # tiles write few columns faster
    ],
)
def test_a_product_with_one_column(build: Any, shapes: list[tuple[int, ...]], kernels: list[bool]) -> None:
    """12 x 197x31 . 31x1 14.9 -> 8.7 us (Zen 4); a single number stays a loop."""
    feeds = [random(*shape) for shape in shapes]
    graph, sink = graph_of(build, *feeds), Sink()
    wanted = evaluate(graph, dict(zip(graph.inputs, feeds, strict=True)))
    for _, run in compile_c(ISAS["avx2"]):
        run(graph, sink)
    program = lower(graph, group.run(graph), "test")
    np.testing.assert_allclose(interp.run(program, feeds)[0], wanted[0], rtol=1e-4, atol=1e-4)
    calls = [s.kernel for f in program.functions for s in walk(f.body) if isinstance(s, KernelCall)]
    assert [isinstance(k, RowDotsGemmKernel) for k in calls] == kernels
