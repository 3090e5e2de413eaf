"""Products of few rows with weights of few bits, in fours of bytes, against the definition in f64."""

from __future__ import annotations

import itertools
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from irc.kernels import ISAS
from irc.kernels.core.registry import select
from irc.kernels.gemm.problem import Narrow
from irc.kernels.gemm.weight_only_fours import MOST_ROWS, WeightOnlyFoursGemmKernel
from tests.kernels.test_kernels import M, build, close, compilers, noise
from tests.kernels.test_weight_only import FORMATS, problem, run, same_on_threads
from tests.support.instruction_sets import features_under_test

pytestmark = [
    pytest.mark.skipif(not compilers(), reason="no C compiler"),
    pytest.mark.skipif("avx512_vnni" not in features_under_test(), reason="the tested processor has no AVX512-VNNI"),
]
FOURS = replace(ISAS["avx512"], fours=True)


@pytest.mark.parametrize("narrow", [*FORMATS, Narrow(4, 128, True), Narrow(2, 16, True), Narrow(8, 32, False)], ids=str)
def test_edges(tmp_path: Path, narrow: Narrow) -> None:
    """Any rows, columns and depth, tiles of all widths and heights, with and without an epilogue."""
    sizes = ((1, 70, 300), (3, 1, 5), (2, 64, 128), (4, 33, 130), (MOST_ROWS, 100, 270))
    wanted = [(p, m, n, k) for (m, n, k), p in itertools.product(sizes, (True, False))]
    kernels = [
        (kernel, size)
        for fused, *size in wanted
        for kernel in WeightOnlyFoursGemmKernel.candidates(problem(*size, narrow, fused), FOURS)
    ]
    lib = build(tmp_path, list(dict.fromkeys(kernel for kernel, _ in kernels)))
    for kernel, (m, n, k) in kernels:
        found, defined, _ = run(lib, kernel, (m, n, k))
        close(found, defined, k)


def test_rows_of_any_size(tmp_path: Path) -> None:
    """Rows of large, of tiny and of no elements are scaled; those with an infinity or NaN are computed as defined."""
    narrow = Narrow(4, 32, True)
    (kernel,) = (k for k in WeightOnlyFoursGemmKernel.candidates(problem(6, 50, 70, narrow), FOURS) if k.tile.rows == 3)
    lib = build(tmp_path, [kernel])
    a = noise(6, 70)
    scales = np.array([[1e30], [1e-20], [1e-30], [0], [1], [1]], np.float32)
    a *= scales
    a[4, 33], a[5, 5] = np.inf, np.nan
    c, wanted, _ = run(lib, kernel, (6, 50, 70), a)
    for i, scale in enumerate(scales[:4, 0]):
        close(c[i] / (scale or 1), wanted[i] / (scale or 1), 70)
    assert np.array_equal(c[4:], wanted[4:].astype(np.float32), equal_nan=True)


def test_results_do_not_depend_on_threads(tmp_path: Path) -> None:
    same_on_threads(tmp_path, list(WeightOnlyFoursGemmKernel.candidates(problem(5, 300, 400, FORMATS[0]), FOURS)))


def test_selection() -> None:
    """One row is multiplied in fours, many and unknown ones in floats, as are long blocks."""

    def chosen(m: Any, narrow: Narrow) -> bool:
        return isinstance(select(problem(m, 3072, 768, narrow), FOURS), WeightOnlyFoursGemmKernel)

    assert chosen(1, FORMATS[0]) and chosen(2, Narrow(4, 128, True)) and chosen(1, FORMATS[3])
    assert not chosen(64, FORMATS[0]) and not chosen(M, FORMATS[0]) and not chosen(1, Narrow(4, 768, False))
    assert not isinstance(select(problem(1, 3072, 768, FORMATS[0]), ISAS["avx512"]), WeightOnlyFoursGemmKernel)
