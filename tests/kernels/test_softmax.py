"""Softmax kernels against NumPy in float64, at the edges of their vectors; which softmaxes of a model they compute."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from irc.diagnostics import Sink
from irc.ir.types import f32
from irc.kernels import ISAS
from irc.kernels.core.isa import HEAD, vector_name, vector_type
from irc.kernels.core.registry import select
from irc.kernels.core.text import standalone
from irc.kernels.softmax.problem import HardmaxProblem, SoftmaxProblem, softmax
from irc.kernels.vector.lanes import exp_up_to_0
from irc.ops.sort import TopK
from irc.pipelines import compile_c
from irc.selection.selector import KernelOp
from tests.kernels.test_kernels import Pool, build, compilers, guarded, invoke
from tests.support import foreign
from tests.support.lowering import graph_of, random

COMPILED = pytest.mark.skipif(not compilers(), reason="no C compiler")
ROWS = [(1, 1), (3, 5), (2, 15), (2, 16), (2, 17), (5, 63), (2, 64), (2, 65), (3, 197), (2, 1000), (0, 7), (3, 0)]
COLUMNS = [(1, 3, 2), (2, 5, 15), (1, 7, 16), (2, 4, 49), (1, 33, 64), (2, 9, 150), (1, 1, 70), (0, 3, 5), (2, 0, 5)]


def kernel_of(isa: str, inner: int, log: bool) -> Any:
    found = select(SoftmaxProblem.contiguous(1, 1, inner, log), ISAS[isa])
    assert found is not None
    return found


@COMPILED
@pytest.mark.parametrize("log", [False, True])
@pytest.mark.parametrize("isa", ["avx512", "avx2", "plain"])
def test_every_size(tmp_path: Path, isa: str, log: bool) -> None:
    rows, columns = kernel_of(isa, 1, log), kernel_of(isa, 2, log)
    lib = build(tmp_path, [rows, columns])
    calls = [(rows, shape) for shape in [*ROWS, (50, 900)]] + [(columns, shape) for shape in [*COLUMNS, (3, 100, 150)]]
    for (kernel, shape), pool in itertools.product(calls, (None, Pool(1))):
        x = guarded(*shape) * np.float32(8)
        whole, wanted = np.full(x.size + 64, 77, np.float32), np.empty(x.size)
        invoke(lib, kernel, x, whole[32:], *shape, pool=pool)
        softmax(log, [x.reshape(-1)], [wanted], dict(zip(kernel.sizes, shape, strict=True)))
        np.testing.assert_allclose(whole[32:-32], wanted, rtol=5e-6, atol=2e-6 if log else 1e-40)
        assert (whole[:32] == 77).all() and (whole[-32:] == 77).all()


@COMPILED
@pytest.mark.parametrize("isa", ["avx512", "avx2", "plain"])
def test_hardmax(tmp_path: Path, isa: str) -> None:
    """The first largest element of each row is found, or the first NaN, also where all are minus infinity."""
    kernel: Any = select(HardmaxProblem.contiguous(1, 1), ISAS[isa])
    lib = build(tmp_path, [kernel])
    for (outer, n), pool in itertools.product([*ROWS, (37, 20), (600, 33)], (None, Pool(1))):
        x = np.round(guarded(outer, n) * 2)
        x[1::5], x[2::5, n // 2 :] = -np.inf, np.nan
        whole, wanted = np.full(x.size + 64, 77, np.float32), np.empty(x.size, np.float32)
        invoke(lib, kernel, x, whole[32:], outer, n, pool=pool)
        kernel.compute([x.reshape(-1)], [wanted], {"outer": outer, "n": n})
        np.testing.assert_array_equal(whole[32:-32], wanted)
        assert (whole[:32] == 77).all() and (whole[-32:] == 77).all()


@COMPILED
@pytest.mark.parametrize("isa", ["avx512", "avx2", "plain"])
def test_infinities_and_nan(tmp_path: Path, isa: str) -> None:
    rows, columns = kernel_of(isa, 1, False), kernel_of(isa, 2, False)
    lib = build(tmp_path, [rows, columns])
    x = random(4, 70)
    x[0, 3], x[1, 69], x[2], x[3, 7] = -np.inf, np.nan, -np.inf, np.inf
    y, turned = np.empty_like(x), np.empty((70, 4), np.float32)
    invoke(lib, rows, x, y, 4, 70)
    invoke(lib, columns, np.ascontiguousarray(x.T), turned, 1, 70, 4)
    for found in (y, turned.T):
        assert found[0, 3] == 0 and abs(found[0].sum() - 1) < 1e-6
        assert np.isnan(found[1]).all() and np.isnan(found[2]).all() and np.isnan(found[3, 7])


@COMPILED
@pytest.mark.parametrize("lanes", [16, 8, 4])
def test_exponentials(tmp_path: Path, lanes: int) -> None:
    v = vector_name(lanes, f32)
    text = f"void f(const float *x, float *y, int64_t n) {{\n    for (int64_t i = 0; i < n; i += {lanes}) "
    text += f"{v}_store(y + i, {v}_exp_up_to_0({v}_load(x + i)));\n}}\n"
    lib = build(tmp_path, [], standalone([HEAD, vector_type(lanes, f32), exp_up_to_0(lanes, f32), text]))
    special = np.array([0, -0.0, -1e-45, -88, -103.9, -104.1, -np.inf, np.nan] * 2)
    steps: list[float] = np.logspace(-9, np.log10(110), 2**16).tolist()
    x = np.concatenate([-np.array(steps), special]).astype(np.float32)
    y = np.empty_like(x)
    foreign.call(lib, "f", x, y, len(x))
    assert np.array_equal(np.isnan(x), np.isnan(y)) and (y[x == 0] == 1).all() and (y[x < -104] == 0).all()
    number = ~np.isnan(x)
    exact = np.exp(x[number].astype(np.float64))
    assert (np.abs(y[number] - exact) <= 1.5 * np.spacing(exact.astype(np.float32))).all()


def kernels_of(build: Callable[[Any, Any], Any], *shapes: tuple[int, ...]) -> list[str]:
    graph = graph_of(build, *(random(*shape) for shape in shapes))
    for _, run in compile_c(ISAS["avx2"]):
        run(graph, Sink())
    return [n.op.kernel.label for n in graph.nodes if isinstance(n.op, KernelOp)]


def test_softmax_of_what_stands_in_memory() -> None:
    assert kernels_of(lambda b, x: b.Softmax(x, axis=-1), (8, 500)) == ["rows"]
    assert kernels_of(lambda b, x: b.LogSoftmax(x, axis=1), (2, 50, 40)) == ["columns"]
    w = random(64, 200)
    found = kernels_of(lambda b, x: b.Softmax(b.Mul(b.MatMul(x, w), 0.5), axis=-1), (16, 64))
    assert len(found) == 2 and "rows" in found
    assert kernels_of(lambda b, x: b.Softmax(b.add_all(TopK(axis=-1), x, np.int64(64))[0], axis=-1), (64, 300)) == [
        "rows"
    ]


def test_softmax_between_loops_stays_with_them() -> None:
    assert not kernels_of(lambda b, x: b.Softmax(b.Mul(x, 0.5), axis=-1), (8, 500))
    assert not kernels_of(lambda b, x: b.Neg(b.Softmax(x, axis=-1)), (8, 500))
    assert not kernels_of(lambda b, x: b.Softmax(b.Transpose(x, [1, 0]), axis=-1), (50, 80))
    turned = kernels_of(lambda b, x: b.Softmax(b.Transpose(x, [1, 0]), axis=-1), (500, 80))
    assert turned == ["squares"], "much is copied first; rows of it are of loops all the same"


@COMPILED
@pytest.mark.parametrize("isa", ["avx512", "avx2", "plain"])
def test_weights_below_the_normal_range(tmp_path: Path, isa: str) -> None:
    rows, columns = kernel_of(isa, 1, False), kernel_of(isa, 2, False)
    lib = build(tmp_path, [rows, columns])
    x = np.tile(np.linspace(0, -110, 70, dtype=np.float32), (4, 1))
    y, turned = np.empty_like(x), np.empty((70, 4), np.float32)
    invoke(lib, rows, x, y, 4, 70)
    invoke(lib, columns, np.ascontiguousarray(x.T), turned, 1, 70, 4)
    exact = np.exp(x.astype(np.float64))
    exact /= exact.sum(axis=1, keepdims=True)
    for found in (y, turned.T):
        assert (np.abs(found - exact) <= 4 * np.spacing(exact.astype(np.float32))).all()
        assert (found[:, -1] == 0).all() and (found[exact > 1e-44] > 0).all()
