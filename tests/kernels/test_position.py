"""Kernels of positions against NumPy, at the edges of vectors and blocks; which nodes of a model they compute."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from irc.kernels import ISAS
from irc.kernels.core.registry import select
from irc.kernels.position.problem import PositionProblem, positions
from irc.ops.pool import MaxPool
from tests.kernels.test_kernels import Pool, build, compilers, guarded, invoke
from tests.kernels.test_softmax import kernels_of

COMPILED = pytest.mark.skipif(not compilers(), reason="no C compiler")
ROWS = [(1, 1), (3, 5), (2, 16), (5, 63), (2, 64), (2, 65), (3, 255), (2, 256), (3, 257), (2, 1000), (0, 7), (3, 0)]
SHORT = [(1, 16), (7, 17), (8, 31), (9, 8), (33, 63), (40, 24), (0, 20)]
COLUMNS = [(1, 3, 2), (2, 5, 7), (1, 7, 8), (2, 4, 17), (1, 33, 64), (2, 9, 150), (1, 1, 70), (0, 3, 5), (2, 0, 5)]
MODES = list(itertools.product((False, True), (False, True)))
SETS = ["avx512", "avx2", "plain"]


def kernel_of(isa: str, shape: tuple[int, int], smallest: bool, last: bool) -> Any:
    found = select(PositionProblem.contiguous(1, *shape, smallest=smallest, last=last), ISAS[isa])
    assert found is not None
    return found


def held(lib: Any, kernel: Any, x: Any, shape: tuple[int, ...], pool: Any = None) -> None:
    """Call a kernel, and hold its result and what stands around it against the oracle."""
    count = shape[0] * (shape[2] if len(shape) == 3 else 1)
    whole, wanted = np.full(count + 64, 77, np.int64), np.full(count, 77, np.int64)
    invoke(lib, kernel, x, whole[32:], *shape, pool=pool)
    positions(kernel.smallest, kernel.last, [x.reshape(-1)], [wanted], dict(zip(kernel.sizes, shape, strict=True)))
    np.testing.assert_array_equal(whole[32:-32], wanted)
    assert (whole[:32] == 77).all() and (whole[-32:] == 77).all()


@COMPILED
@pytest.mark.parametrize(("smallest", "last"), MODES)
@pytest.mark.parametrize("isa", SETS)
def test_every_size(tmp_path: Path, isa: str, smallest: bool, last: bool) -> None:
    rows, columns = kernel_of(isa, (64, 1), smallest, last), kernel_of(isa, (2, 64), smallest, last)
    short = [kernel_of(isa, (n, 1), smallest, last) for _, n in SHORT]
    lib = build(tmp_path, list(dict.fromkeys([rows, columns, *short])))
    calls = [*zip(short, SHORT, strict=True), (short[0], (3000, 16))]
    calls += [(rows, shape) for shape in [*ROWS, (50, 900)]] + [(columns, shape) for shape in [*COLUMNS, (3, 100, 150)]]
    for (kernel, shape), pool in itertools.product(calls, (None, Pool(1))):
        held(lib, kernel, guarded(*shape), shape, pool)
        few = guarded(*shape)
        few[...] = np.round(few)  # many are equal
        held(lib, kernel, few, shape, pool)


@COMPILED
@pytest.mark.parametrize(("smallest", "last"), MODES)
@pytest.mark.parametrize("isa", SETS)
def test_infinities_zeros_and_nan(tmp_path: Path, isa: str, smallest: bool, last: bool) -> None:
    rows, columns = kernel_of(isa, (64, 1), smallest, last), kernel_of(isa, (2, 64), smallest, last)
    short = kernel_of(isa, (20, 1), smallest, last)
    lib = build(tmp_path, [rows, columns, short])
    x = np.random.default_rng(0).standard_normal((9, 600)).astype(np.float32)
    x[0, 300], x[1, 599], x[2], x[3], x[4, [5, 70]] = np.nan, np.nan, -np.inf, np.inf, np.nan
    x[5, ::7], x[6, 9], x[6, 10], x[7], x[8, ::2] = -np.inf, np.inf, -np.inf, 0.0, 0.0
    x[7, ::3], x[8, 1::2] = -0.0, -0.0
    held(lib, rows, x, x.shape)
    held(lib, short, np.ascontiguousarray(x.reshape(-1, 20)), (270, 20))
    held(lib, columns, np.ascontiguousarray(x.T), (1, *x.T.shape))


def test_what_a_kernel_computes() -> None:
    assert kernels_of(lambda b, x: b.ArgMax(x, axis=-1), (8, 500)) == ["rows"]
    assert kernels_of(lambda b, x: b.ArgMax(x, axis=-1), (200, 20)) == ["short rows"]
    assert kernels_of(lambda b, x: b.ArgMin(x, axis=1, keepdims=False), (2, 50, 40)) == ["columns"]
    assert kernels_of(lambda b, x: b.ArgMax(x, axis=0, select_last_index=True), (50, 80)) == ["columns"]


def test_what_kernels_store_is_in_memory() -> None:
    def pooled(b: Any, x: Any) -> Any:
        return b.add_all(MaxPool(kernel=(2, 2), strides=(2, 2)), x)[0]

    found = kernels_of(lambda b, x: b.ArgMax(pooled(b, x), axis=1), (1, 32, 56, 56))
    assert len(found) == 2 and "columns" in found


def test_what_loops_compute() -> None:
    assert not kernels_of(lambda b, x: b.ArgMax(b.Mul(x, 0.5), axis=-1), (8, 500))
    assert not kernels_of(lambda b, x: b.ArgMax(x, axis=-1), (500, 7))
    assert not kernels_of(lambda b, x: b.ArgMax(x, axis=1), (50, 40, 3))
    assert select(PositionProblem.contiguous(1, (1 << 24) + 1, 64), ISAS["avx2"]) is None
