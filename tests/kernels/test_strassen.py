"""Strassen's products against their definition: edges of halves and tiles, rows and columns that must not be mixed."""

from __future__ import annotations

import ctypes
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from irc.ir.dim import Dim
from irc.kernels import ISAS, Epilogue, plain
from irc.kernels.core.isa import Isa
from irc.kernels.core.registry import select
from irc.kernels.gemm.problem import GemmProblem
from irc.kernels.gemm.strassen import ALIKE, FEW_ROWS, LARGEST, StrassenGemmKernel
from tests.kernels.test_kernels import Pool, build, close, compilers, invoke, noise, residual, run_gemm
from tests.support import foreign

pytestmark = pytest.mark.skipif(not compilers(), reason="no C compiler")
MANY = Dim.symbol("m", FEW_ROWS)
"""A number of rows for which the kernel is a candidate; it computes any."""


def made(isa: Isa, m: Any, epilogue: Epilogue | None = None) -> StrassenGemmKernel:
    """The kernel with the first tile, for m rows."""
    problem = GemmProblem.contiguous(epilogue or plain(), m, 64, 64, constant=True)
    return next(iter(StrassenGemmKernel.candidates(problem, isa)))


def same(x: Any) -> Any:
    """The epilogue that stores the sums."""
    return x


def product(lib: ctypes.CDLL, kernel: StrassenGemmKernel, a: np.ndarray[Any, Any], b: np.ndarray[Any, Any]) -> Any:
    """A · B, of matrices without gaps."""
    (m, k), n = a.shape, b.shape[1]
    c = np.zeros((m, n), np.float32)
    invoke(lib, kernel, a, kernel.pack_b(b), c, m, n, k, 0, 0, k, 1, 0, 0, 0, 0, n, 1, 1)
    return c


@pytest.mark.parametrize(("isa", "fused"), [("avx512", False), ("avx512", True), ("avx2", True), ("plain", False)])
def test_edges(tmp_path: Path, isa: str, fused: bool) -> None:
    """Any rows, columns and depth, odd ones and one of each, in one kernel; columns of A side by side, too."""
    kernel = made(ISAS[isa], MANY, residual() if fused else None)
    lib, panel, rows = build(tmp_path, [kernel]), kernel.tile.panel, kernel.tile.rows
    sizes = [(m, panel + 1, 5) for m in (*range(1, 2 * rows + 3), 4 * rows - 1, 20 * rows + 3)]
    sizes += [(rows + 3, n, 6) for n in (1, panel - 1, panel, panel + 1, 2 * panel, 2 * panel + 1, 6 * panel - 1)]
    sizes += [
        (m, panel + 5, k) for k in (1, 2, 3, 127, 128, 129, 130, 511, 600, 1100) for m in (1, rows, FEW_ROWS - 1, 79)
    ]
    sizes += [(1, n, 6) for n in (1, panel, 2 * panel, 2 * panel + 1, 6 * panel - 1)]
    for i, (m, n, k) in enumerate(sizes):
        slots = [noise(n), noise(m), noise(1), noise(m, n)] if fused else []

        def wanted(x: Any, *s: Any) -> Any:
            return np.maximum(x + s[0], 0) * s[1][:, None] * s[2] + s[3] if s else x

        run_gemm(lib, kernel, noise(m, k), noise(k, n), slots, wanted, transposed=i % 2 == 1)


@pytest.mark.parametrize("m", [33, 64, 97])
def test_known_rows(tmp_path: Path, m: int) -> None:
    """There are bodies for the heights of both halves."""
    kernel = made(ISAS["avx2"], m)
    run_gemm(build(tmp_path, [kernel]), kernel, noise(m, 70), noise(70, 90), [], same)


def test_rows_of_any_number_of_images(tmp_path: Path) -> None:
    """Are none or enough, which sizes that are no multiples may not be."""
    images, pixels = Dim.symbol("n"), FEW_ROWS + 3
    kernel = made(ISAS["avx2"], images * pixels)
    lib, b = build(tmp_path, [kernel]), noise(64, 64)
    for n in (1, 2):
        run_gemm(lib, kernel, noise(n * pixels, 64), b, [], same)
    assert product(lib, kernel, noise(0, 64), b).shape == (0, 64)
    for m in (images, images * (FEW_ROWS - 1), images * pixels + 1, images * pixels - 1, images * pixels):
        large = GemmProblem.contiguous(plain(), m, 2 * LARGEST // 1024, 1024, constant=True)
        assert bool([*StrassenGemmKernel.candidates(large, ISAS["avx2"])]) == (m == images * pixels)


def test_results_do_not_depend_on_threads(tmp_path: Path) -> None:
    kernel = made(ISAS["avx2"], MANY)
    lib, a, b = build(tmp_path, [kernel]), noise(301, 90), noise(90, 300)
    alone = run_gemm(lib, kernel, a, b, [], same)
    for chunk in (1, 2, 5):
        assert np.array_equal(alone, run_gemm(lib, kernel, a, b, [], same, pool=Pool(chunk)))


@pytest.mark.parametrize(("panels", "tasks"), [(3, 6), (4, 4), (5, 10)])
def test_threads_share_an_odd_number_of_panels(tmp_path: Path, panels: int, tasks: int) -> None:
    """Of few panels of columns, if they are odd, threads have half of the rows each."""
    kernel = made(ISAS["avx2"], MANY)
    m, n = 4 * kernel.tile.rows, 2 * panels * kernel.tile.panel
    lib, a, b = build(tmp_path, [kernel]), noise(m, 90), noise(90, n)
    alone = run_gemm(lib, kernel, a, b, [], same)
    for chunk in (1, 2, 3):
        pool = Pool(chunk)
        assert np.array_equal(alone, run_gemm(lib, kernel, a, b, [], same, pool=pool))
        assert pool.pieces == [tasks]


def test_error_is_that_of_a_sum(tmp_path: Path) -> None:
    """In norm it stays below what one sum of all products loses, and that of seven products is not lost either."""
    kernel = made(ISAS["avx2"], 64)
    lib, a, b = build(tmp_path, [kernel]), noise(64, 768), noise(768, 64)
    exact = a.astype(np.float64) @ b.astype(np.float64)
    summed = np.zeros((64, 64), np.float32)
    for k in range(768):
        summed += np.outer(a[:, k], b[k])
    errors = [np.linalg.norm(c - exact) / np.linalg.norm(exact) for c in (product(lib, kernel, a, b), summed)]
    assert errors[0] < 1.1 * errors[1] and errors[0] < 8e-7


@pytest.mark.parametrize("value", [np.nan, np.inf, 1e30])
def test_what_is_in_one_row_stays_there(tmp_path: Path, value: float) -> None:
    """The other rows have the results that they have without it, to rounding: none shares a product with it."""
    kernel = made(ISAS["avx512"], MANY)
    lib, a, b = build(tmp_path, [kernel]), noise(80, 100), noise(100, 70)
    exact = a.astype(np.float64) @ b.astype(np.float64)
    for row in (0, 39, 40, 79):
        changed = a.copy()
        changed[row, 7] = value
        others = np.arange(80) != row
        np.testing.assert_allclose(product(lib, kernel, changed, b)[others], exact[others], rtol=0, atol=2e-4)


def test_small_rows_and_columns_beside_large_ones(tmp_path: Path) -> None:
    """Each result is as near as the product of its own row and column: one of them times 10000 costs none a digit."""
    kernel = made(ISAS["avx2"], MANY)
    lib = build(tmp_path, [kernel])
    for large in (2 * ALIKE, 1e4):
        for row, column in ((0, 0), (70, 0), (0, 90), (33, 61)):
            a, b = noise(72, 200), noise(200, 100)
            a[row] *= large
            b[:, column] *= large
            sizes = np.linalg.norm(a, axis=1)[:, None] * np.linalg.norm(b, axis=0)
            error = np.abs(product(lib, kernel, a, b) - a.astype(np.float64) @ b.astype(np.float64)) / sizes
            assert error.max() < 1e-6, (large, row, column)


@pytest.mark.parametrize("isa", ["avx512", "avx2", "plain"])
@pytest.mark.parametrize("m", [1, 7, FEW_ROWS - 1, 50, 81])
def test_rows_and_columns_of_any_size(tmp_path: Path, isa: str, m: int) -> None:
    """Sizes from the least to the largest that are normal, each row's and each column's own: none costs a digit."""
    kernel = made(ISAS[isa], MANY)
    lib, rng = build(tmp_path, [kernel]), np.random.default_rng(m)
    a, b = noise(m, 131), noise(131, 200)
    a *= np.ldexp(np.float32(1), rng.integers(-40, 40, (m, 1)))
    b *= np.ldexp(np.float32(1), rng.integers(-80, 80, 200))
    sizes = np.linalg.norm(a.astype(np.float64), axis=1)[:, None] * np.linalg.norm(b.astype(np.float64), axis=0)
    errors = np.abs(product(lib, kernel, a, b) - a.astype(np.float64) @ b.astype(np.float64)) / sizes
    assert errors.max() < 1e-6


def test_rows_whose_squares_vanish(tmp_path: Path) -> None:
    """Beside others they take eight products, and have all of their digits."""
    kernel = made(ISAS["avx2"], MANY)
    a, b = noise(80, 100), noise(100, 64)
    for row, size in ((0, 1e-24), (41, 1e-18), (79, 1e-30)):
        a[row] *= np.float32(size)
    sizes = np.linalg.norm(a.astype(np.float64), axis=1)[:, None] * np.linalg.norm(b.astype(np.float64), axis=0)
    errors = np.abs(product(build(tmp_path, [kernel]), kernel, a, b) - a.astype(np.float64) @ b.astype(np.float64))
    assert (errors / sizes).max() < 1e-6


@pytest.mark.parametrize("m", [1, 20, 48])
def test_zeros_stay_zeros(tmp_path: Path, m: int) -> None:
    """Padding beside other rows and columns: nothing of them remains of what is added and subtracted again."""
    kernel = made(ISAS["avx2"], MANY)
    a, b = noise(m, 100), noise(100, 64)
    a[(m + 1) // 2 :] = 0
    b[:, 40:] = 0
    b[:, 3] = 0
    c = product(build(tmp_path, [kernel]), kernel, a, b)
    assert not c[(m + 1) // 2 :].any() and not c[:, 40:].any() and not c[:, 3].any() and c[0, 0]


def test_columns_that_do_not_count_for_anything(tmp_path: Path) -> None:
    """Of channels that a training has driven to zero, norms are denormal: the others' panels share products."""
    kernel = made(ISAS["avx2"], MANY)
    a, b = noise(64, 100), noise(100, 128)
    b[:, ::7] *= np.float32(1e-38)
    packed = kernel.pack_b(b)
    assert (packed[: 128 // 2 // kernel.tile.panel] == 2).all()
    exact = a.astype(np.float64) @ b.astype(np.float64)
    c = product(build(tmp_path, [kernel]), kernel, a, b)
    np.testing.assert_allclose(c, exact, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(c[:, ::7], exact[:, ::7], rtol=1e-3, atol=1e-40)


@pytest.mark.parametrize("chunk", [0, 1])
def test_a_call_packs_its_own_rows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, chunk: int) -> None:
    """Parts of one call share rows that are packed, but not calls whose workspaces and operands are in one place."""
    kernel = made(ISAS["avx2"], MANY)
    lib, a, b = build(tmp_path, [kernel]), noise(90, 60), noise(60, 500)
    (m, k), n = a.shape, b.shape[1]
    packed, c = kernel.pack_b(b), np.zeros((m, n), np.float32)
    arguments = a, packed, c, m, n, k, 0, 0, k, 1, 0, 0, 0, 0, n, 1, 1
    kept = foreign.workspaces(kernel, arguments)

    def same_place(*_: Any) -> list[Any]:
        return kept

    monkeypatch.setattr(foreign, "workspaces", same_place)
    for scale in (1, 3):
        a *= scale
        invoke(lib, kernel, *arguments, pool=Pool(chunk) if chunk else None)
        close(c, a.astype(np.float64) @ b.astype(np.float64), 3 * k)


def test_selection() -> None:
    """Of many products for each element; of few rows, or short sums, the additions and the larger B cost more."""
    for isa in (ISAS["avx512"], ISAS["avx2"]):
        for m, n, k in ((128, 1536, 384), (1, 3072, 768), (8, 3072, 768), (3136, 64, 32)):
            kernel = select(GemmProblem.contiguous(plain(), m, n, k, constant=True), isa)
            assert isinstance(kernel, StrassenGemmKernel) == (m == 128), (isa.name, m, n, k)
    narrow = GemmProblem.contiguous(plain(), 128, 64, 2048, constant=True)  # 364 us, else 327 (Zen 4)
    assert not isinstance(select(narrow, ISAS["avx2"]), StrassenGemmKernel)
    assert not list(StrassenGemmKernel.candidates(GemmProblem.contiguous(plain(), 128, 1536, 384, False), ISAS["avx2"]))
    deep = GemmProblem.contiguous(plain(), 64, 4096, 1024, constant=True)  # packed 4.8 ms, this 6.4 (Emerald Rapids)
    assert not list(StrassenGemmKernel.candidates(deep, ISAS["amx"]))
