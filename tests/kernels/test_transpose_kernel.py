"""The kernel that transposes against NumPy, at the edges of its tiles."""

from __future__ import annotations

import itertools
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from irc.ir.dim import Dim
from irc.ir.types import f32, f64
from irc.kernels import ISAS, Epilogue, acc, slot
from irc.kernels.movement.problem import TransposeProblem
from irc.kernels.movement.transpose_fused import TransposeFusedKernel
from tests.kernels.test_kernels import Pool, build, compilers, guarded, invoke, noise
from tests.support.kernels import reordering, transpose

pytestmark = pytest.mark.skipif(not compilers(), reason="no C compiler")
M = Dim.symbol("m")
Array = np.ndarray[Any, Any]


TRANSPOSES = [
    ((5, 7), (1, 0)),
    ((16, 16), (1, 0)),
    ((33, 130), (1, 0)),
    ((130, 3), (1, 0)),
    ((3, 200), (1, 0)),
    ((4, 75), (1, 0)),
    ((4, 2100), (1, 0)),
    ((2, 3, 2100), (0, 2, 1)),
    ((2100, 4), (1, 0)),
    ((2, 19, 3, 21), (0, 2, 1, 3)),
    ((2, 19, 3, 21), (0, 2, 3, 1)),
    ((1, 6, 17, 18), (0, 2, 3, 1)),
    ((2, 3, 4, 5, 6), (0, 3, 1, 4, 2)),
    ((2, 3, 4, 5, 6), (4, 3, 2, 1, 0)),
    ((3, 2, 2, 20, 18), (0, 3, 1, 4, 2)),
    ((4, 5, 6), (0, 1, 2)),
    ((4, 0, 6), (2, 1, 0)),
    ((1, 1), (1, 0)),
    ((), ()),
    ((2, 40, 100), (2, 0, 1)),
    ((2, 1, 40, 1, 33), (4, 1, 0, 3, 2)),
]
LARGE_TRANSPOSES = [
    ((300, 330), (1, 0)),
    ((1027, 70), (1, 0)),
    ((2, 1601, 3), (0, 2, 1)),
    ((1030, 2, 3, 9), (3, 2, 0, 1)),
]
"""Several tasks, also along the rows, whose number is no multiple of a vector's."""


@pytest.mark.parametrize(("isa", "dtype"), [("avx512", f32), ("avx512", f64), ("avx2", f32), ("plain", f32)])
def test_transpose(tmp_path: Path, isa: str, dtype: Any) -> None:
    kernel = transpose(ISAS[isa], dtype)
    lib = build(tmp_path, [kernel])
    for (shape, order), pool in itertools.product([*TRANSPOSES, *LARGE_TRANSPOSES], (None, Pool(1))):
        x = guarded(*shape) if dtype == f32 else noise(*shape, dtype=f64)
        wanted = np.transpose(x, order)
        whole = np.full(wanted.size + 64, 77, dtype.numpy)
        sizes = kernel.arguments_for(reordering(dtype, shape, order))
        invoke(lib, kernel, x, whole[32:], *(sizes[n] for n in kernel.sizes), pool=pool)
        assert np.array_equal(whole[32:-32].reshape(wanted.shape), wanted)
        assert (whole[:32] == 77).all() and (whole[-32:] == 77).all()


@pytest.mark.parametrize(("isa", "dtype"), [("avx512", f32), ("avx512", f64), ("avx2", f32), ("plain", f32)])
def test_operations_on_the_way(tmp_path: Path, isa: str, dtype: Any) -> None:
    """What is added to elements stands as the result does; nothing else is read or written."""
    epilogue = Epilogue((acc(dtype) + slot(0, dtype)).max(slot(1, dtype)) * acc(dtype), ("full", "scalar"))
    problem = replace(reordering(dtype, (M, 64), (1, 0)), epilogue=epilogue)
    kernel = TransposeFusedKernel.best(problem, ISAS[isa])
    assert kernel is not None
    lib = build(tmp_path, [kernel])
    turned = [(shape, order) for shape, order in [*TRANSPOSES, *LARGE_TRANSPOSES] if order[-1:] != (len(shape) - 1,)]
    for (shape, order), pool in itertools.product(turned, (None, Pool(1))):
        stated = replace(reordering(dtype, shape, order), epilogue=epilogue)
        if stated.rows[2] != 1:
            continue
        x = guarded(*shape) if dtype == f32 else noise(*shape, dtype=f64)
        there = np.transpose(x, order)
        z = guarded(*there.shape) if dtype == f32 else noise(*there.shape, dtype=f64)
        bound, whole = np.array([0.25], dtype.numpy), np.full(x.size + 64, 77, dtype.numpy)
        sizes = kernel.arguments_for(stated)
        invoke(lib, kernel, x, z, bound, whole[32:], *(sizes[n] for n in kernel.sizes), pool=pool)
        assert np.array_equal(whole[32:-32].reshape(there.shape), np.maximum(there + z, bound) * there)
        assert (whole[:32] == 77).all() and (whole[-32:] == 77).all()


def test_transpose_of_symbolic_shapes() -> None:
    problem = reordering(f32, (M, 12, 64), (1, 0, 2))
    assert (str(problem.rows[0]), str(problem.cols[0]), str(problem.rows[2])) == ("m", "64", "64")
    assert TransposeProblem.reordering(f32, (2,) * 6, (5, 4, 3, 2, 1, 0)) is None


@pytest.mark.full
@pytest.mark.parametrize("compiler", compilers()[1:])
def test_other_compilers(tmp_path: Path, compiler: list[str]) -> None:
    kernel = transpose(ISAS["avx512"], f32)
    lib = build(tmp_path, [kernel], compiler=compiler)
    x, y = noise(70, 50), np.zeros((50, 70), np.float32)
    sizes = kernel.arguments_for(reordering(f32, (70, 50), (1, 0)))
    invoke(lib, kernel, x, y, *(sizes[n] for n in kernel.sizes))
    assert np.array_equal(x.T, y)
