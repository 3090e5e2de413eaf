"""Products with weights of few bits on AMX, or on emulated tiles, against the definition in f64."""

from __future__ import annotations

import ctypes
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from irc.kernels import ISAS, plain
from irc.kernels.core.registry import select
from irc.kernels.gemm.problem import GemmProblem, Narrow
from irc.kernels.gemm.weight_only_tiles import WeightOnlyTilesGemmKernel
from tests.kernels.test_integer_matrix_unit import library
from tests.kernels.test_kernels import M, Pool, invoke, noise
from tests.kernels.test_split_bf16_gemm import pytestmark as needs_x86
from tests.kernels.test_weight_only import problem, run, weights

pytestmark = needs_x86
FORMATS = [
    Narrow(4, 32),
    Narrow(4, 64, True),
    Narrow(4, 256),
    Narrow(8, 128, True),
    Narrow(8, 96),
    Narrow(2, 128, True),
]
SIZES = [(1, 64, 32), (1, 70, 300), (3, 1, 5), (16, 64, 128), (17, 130, 310), (70, 33, 64), (40, 5, 8200)]
ERROR = {"highest": 1e-6, "high": 1e-4, "medium": 1e-2}


def made(narrow: Narrow, fused: bool = False, precision: str = "highest") -> WeightOnlyTilesGemmKernel:
    given = replace(problem(M, 9, 9, narrow, fused), precision=precision)
    (kernel,) = WeightOnlyTilesGemmKernel.candidates(given, ISAS["amx"])
    return kernel


ALL = {(n, f): made(n, f) for n in FORMATS for f in (False, True)}
ROUGH = {p: made(FORMATS[0], precision=p) for p in ERROR}


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> ctypes.CDLL:
    return library(tmp_path_factory.mktemp("amx"), [*ALL.values(), *ROUGH.values()])


@pytest.mark.parametrize("fused", [False, True])
@pytest.mark.parametrize("narrow", FORMATS, ids=str)
@pytest.mark.parametrize("size", SIZES, ids=str)
def test_edges(built: Any, size: tuple[int, int, int], narrow: Narrow, fused: bool) -> None:
    """Any rows, columns and depth, stripes of rows, last pieces and chunks; threads change nothing."""
    kernel, a = ALL[narrow, fused], noise(size[0], size[2])
    found, wanted, scale = run(built, kernel, size, a)
    assert (np.abs(found - wanted) <= 1e-6 * scale).all()
    if not fused:
        assert np.array_equal(found, run(built, kernel, size, a, Pool(1))[0])


@pytest.mark.parametrize("precision", ERROR)
def test_fewer_terms_are_rougher(built: Any, precision: str) -> None:
    found, wanted, _ = run(built, ROUGH[precision], (20, 100, 200))
    error = np.linalg.norm(found - wanted) / np.linalg.norm(wanted)
    assert ERROR[precision] / 1000 < error < ERROR[precision]


@pytest.mark.parametrize("odd", [np.inf, -np.inf, np.nan, 3e38])
def test_rows_that_have_no_terms_are_computed_as_defined(built: Any, odd: float) -> None:
    """An infinity meets numbers that are 0, which gives NaN, and others; other rows stay as they are."""
    for narrow in FORMATS:
        a = noise(19, 300)
        a[18, 33] = odd
        found, wanted, scale = run(built, ALL[narrow, False], (19, 70, 300), a)
        assert np.array_equal(np.isnan(found), np.isnan(wanted))
        with np.errstate(over="ignore"):
            assert np.allclose(found[18], wanted[18].astype(np.float32), rtol=1e-4, equal_nan=True)
        assert (np.abs(found[:18] - wanted[:18]) <= 1e-6 * scale[:18]).all()


def test_columns_of_a_that_are_rows(built: Any) -> None:
    """A is read with any stride between its elements."""
    kernel, (m, n, k) = ALL[FORMATS[1], False], (18, 40, 130)
    b, rows = weights(n, k, kernel.narrow)
    a, c = noise(k, m), np.zeros((m, n), np.float32)
    scratch = np.zeros(int(kernel.scratch(problem(m, n, k, kernel.narrow))) // 2, np.uint16)
    strides = {"m": m, "n": n, "k": k, "a_row": 1, "a_col": m, "c_row": n}
    invoke(built, kernel, a, kernel.pack_b(rows, k), c, scratch, *[strides[name] for name in kernel.sizes])
    assert (np.abs(c - a.T.astype(np.float64) @ b) <= 1e-6 * (np.abs(a.T) @ np.abs(b))).all()


def test_numpy_oracle() -> None:
    """What programs are interpreted with computes the same."""
    for kernel in (made(n) for n in FORMATS):
        b, rows = weights(40, 100, kernel.narrow)
        a, c = noise(4, 100), np.zeros(160, np.float32)
        sizes = {"m": 4, "n": 40, "k": 100, "a_row": 100, "a_col": 1, "c_row": 40}
        kernel.compute([a.reshape(-1), kernel.pack_b(rows, 100)], [c], sizes)
        assert np.allclose(c.reshape(4, 40), a.astype(np.float64) @ b, rtol=1e-4, atol=1e-4)


def test_selection() -> None:
    """From some rows on; one row takes as long by multiply-adds, and blocks of 16 are no whole chunks."""

    def chosen(m: int, narrow: Narrow, isa: str = "amx") -> bool:
        given = replace(GemmProblem.contiguous(plain(), m, 3072, 768, True), narrow=narrow)
        return isinstance(select(given, ISAS[isa]), WeightOnlyTilesGemmKernel)

    assert chosen(16, FORMATS[0]) and chosen(64, FORMATS[0]) and chosen(512, FORMATS[0])
    assert not chosen(1, FORMATS[0])
    assert not chosen(16, Narrow(4, 16)) and not chosen(16, FORMATS[0], "avx512")
