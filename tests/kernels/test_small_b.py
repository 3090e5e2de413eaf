"""The matrix product that reads A in place, against its definition at the edges of its tiles."""

from __future__ import annotations

import itertools
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from irc.expr import call
from irc.ir.dim import Dim
from irc.ir.types import DType, f32, f64
from irc.kernels import ISAS, Epilogue, acc, plain, slot
from irc.kernels.core.registry import candidates
from irc.kernels.gemm.in_place import FAR
from irc.kernels.gemm.problem import GemmProblem
from irc.kernels.gemm.small_b import DEEPEST_COPIED, SmallBGemmKernel, heights_for
from irc.kernels.gemm.tiled import cached_elements
from tests.kernels.test_kernels import M, Pool, build, compilers, edges, invoke, noise, residual, run_gemm
from tests.support.kernels import small_b_gemm

pytestmark = pytest.mark.skipif(not compilers(), reason="no C compiler")
AVX512 = ISAS["avx512"]
TURNED = (Dim.of(0), Dim.of(0), Dim.of(1), Dim.of(M))
"""The strides of an A whose rows are contiguous."""


def made(isa: str, m: Any, fused: bool = False, dtype: DType = f32, n: int = 33, k: int = 16) -> SmallBGemmKernel:
    """A kernel for m rows; bodies for n columns, 33: of all widths; k above 256: for long sums."""
    kernel = small_b_gemm(ISAS[isa], dtype, m, n, k, residual() if fused else plain(dtype))
    assert kernel is not None
    return kernel


@pytest.mark.parametrize(
    ("isa", "fused", "k"), [("avx512", False, 257), ("avx512", True, 16), ("avx2", True, 300), ("plain", False, 256)]
)
def test_edges(tmp_path: Path, isa: str, fused: bool, k: int) -> None:
    """Any rows, columns and depth, in one kernel."""
    kernel = made(isa, M, fused, k=k)
    assert kernel.deep == (k > 256)
    lib = build(tmp_path, [kernel])
    for m, n, k in edges(ISAS[isa], kernel.tile.panel):
        slots = [noise(n), noise(m), noise(1), noise(m, n)] if fused else []

        def wanted(x: Any, *s: Any) -> Any:
            return np.maximum(x + s[0], 0) * s[1][:, None] * s[2] + s[3] if s else x

        run_gemm(lib, kernel, noise(m, k), noise(k, n), slots, wanted)


@pytest.mark.parametrize(("isa", "fused"), [("avx512", True), ("avx2", False), ("plain", False)])
def test_rows_that_are_contiguous(tmp_path: Path, isa: str, fused: bool) -> None:
    """A stands the other way: tiles copy their rows, up to 256 elements of each, and read nothing behind the last."""
    problem = replace(GemmProblem.contiguous(residual() if fused else plain(), M, 33, 16, True), a=TURNED)
    kernel = SmallBGemmKernel.best(problem, ISAS[isa])
    assert kernel is not None
    assert kernel.turned and not kernel.deep
    lib = build(tmp_path, [kernel])
    for m, n, k in edges(ISAS[isa], kernel.tile.panel):
        slots = [noise(n), noise(m), noise(1), noise(m, n)] if fused else []

        def wanted(x: Any, *s: Any) -> Any:
            return np.maximum(x + s[0], 0) * s[1][:, None] * s[2] + s[3] if s else x

        a, b = noise(m, min(k, DEEPEST_COPIED)), noise(min(k, DEEPEST_COPIED), n)
        alone = run_gemm(lib, kernel, a, b, slots, wanted, transposed=True)
        assert np.array_equal(alone, run_gemm(lib, kernel, a, b, slots, wanted, Pool(1), transposed=True))
    deeper = replace(problem, k=Dim.of(DEEPEST_COPIED + 1))
    assert SmallBGemmKernel.best(deeper, ISAS[isa]) is None


def test_double(tmp_path: Path) -> None:
    kernel = made("avx2", M, dtype=f64)
    lib = build(tmp_path, [kernel])
    for m, n, k in edges(ISAS["avx2"], kernel.tile.panel):
        run_gemm(lib, kernel, noise(m, k, dtype=f64), noise(k, n, dtype=f64), [], lambda x: x)


def test_known_rows(tmp_path: Path) -> None:
    """Tiles as equal as possible, whatever number of them a thread does."""
    rows = {m: made("avx512", m, n=40) for m in (14, 28, 49, 27)}
    lib = build(tmp_path, list(dict.fromkeys(rows.values())))
    assert {m: kernel.heights for m, kernel in rows.items()} == {14: (14,), 28: (14,), 49: (12, 13), 27: (13, 14)}
    for m, kernel in rows.items():
        run_gemm(lib, kernel, noise(m, 20), noise(20, 40), [], lambda x: x)
        run_gemm(lib, kernel, noise(m, 600), noise(600, 40), [], lambda x: x, pool=Pool(1))


@pytest.mark.parametrize(("m", "n", "tasks"), [(49, 200, 16), (14, 200, 7), (300, 200, 22)])
def test_few_tiles_are_cut_for_threads(tmp_path: Path, m: int, n: int, tasks: int) -> None:
    """Columns are divided where there are few tiles of rows."""
    kernel = small_b_gemm(AVX512, f32, M, n, 64, plain())
    assert kernel is not None
    lib, a, b = build(tmp_path, [kernel]), noise(m, 64), noise(64, n)
    alone = run_gemm(lib, kernel, a, b, [], lambda x: x)
    for chunk in (1, 3, 7):
        pool = Pool(chunk)
        assert np.array_equal(alone, run_gemm(lib, kernel, a, b, [], lambda x: x, pool=pool))
        assert pool.pieces == [tasks]


@pytest.mark.parametrize("isa", ["avx512", "avx2"])
def test_results_that_are_in_no_cache(tmp_path: Path, isa: str) -> None:
    """A C of more than FAR bytes, lines of which are fetched before they are written, but for columns left over."""
    kernel = made(isa, M)
    lib = build(tmp_path, [kernel])
    for n in (40, 64):
        m = FAR // (4 * n) + 5
        run_gemm(lib, kernel, noise(m, 7), noise(7, n), [], lambda x: x)


def test_functions_are_computed_of_stored_sums(tmp_path: Path) -> None:
    """Functions need registers: no tile keeps its sums in them for an epilogue that calls one."""
    epilogue = Epilogue(call("tanh", acc() + slot(0)), ("row",))
    kernels = [small_b_gemm(AVX512, f32, m, 33, 16, epilogue) for m in (M, 27)]
    lib = build(tmp_path, [k for k in kernels if k is not None])
    for kernel, m, n in itertools.product(kernels, (1, 5, 14, 27, 31), (1, 16, 33, 64, 75)):
        if kernel is not None and (m == 27 or not kernel.even):
            run_gemm(lib, kernel, noise(m, 7), noise(7, n), [noise(n)], lambda x, bias: np.tanh(x + bias))


def test_heights_cover_any_number_of_rows() -> None:
    for rows in (4, 6, 8, 12, 14, 24):
        heights = heights_for(M, rows)
        assert heights[0] == rows and heights[-1] == 1 and list(heights) == sorted(heights, reverse=True)
        assert all(2 * low >= high or high == rows for high, low in itertools.pairwise(heights))
        for m in range(1, 3 * rows):
            tiles = -(-m // rows)
            assert set(heights_for(m, rows)) == {m // tiles, -(-m // tiles)}


def test_long_sums_are_sums_of_sums(tmp_path: Path) -> None:
    """A deep kernel adds up 256 products at a time: adding ones to 2^24 would lose all of them."""
    kernel = made("avx512", 14, n=32, k=257)
    lib = build(tmp_path, [kernel])
    a, b, c = np.ones((14, 1000), np.float32), np.ones((1000, 32), np.float32), np.zeros((14, 32), np.float32)
    a[:, 0] = 2.0**24
    invoke(lib, kernel, a, kernel.pack_b(b), c, 14, 32, 1000, 0, 0, 1000, 1, 0, 0, 0, 0, 32, 1, 1)
    assert (c == 2.0**24 + 744).all()


@pytest.mark.parametrize("k", [90, 300])
def test_rows_that_are_in_no_cache(tmp_path: Path, k: int) -> None:
    """An A of more than `cached_elements`, whose next rows are fetched."""
    kernel = made("avx2", M)
    m = cached_elements(kernel.tile) // k + 5
    run_gemm(build(tmp_path, [kernel]), kernel, noise(m, k), noise(k, 20), [], lambda x: x)


def test_results_do_not_depend_on_threads(tmp_path: Path) -> None:
    kernel = made("avx512", M)
    lib = build(tmp_path, [kernel])
    a, b = noise(401, 90), noise(90, 50)
    alone = run_gemm(lib, kernel, a, b, [], lambda x: x)
    for chunk in (1, 2, 5):
        pool = Pool(chunk)
        assert np.array_equal(alone, run_gemm(lib, kernel, a, b, [], lambda x: x, pool=pool))
        assert pool.calls == 1


def test_selection() -> None:
    """Rows of A not too far apart, a B that stays in the cache, a tile full of rows."""
    assert small_b_gemm(AVX512, f32, 3136, 24, 144, plain()) is not None
    assert small_b_gemm(AVX512, f32, 3136, 24, 1024, plain()) is None
    assert small_b_gemm(AVX512, f32, 3136, 1024, 256, plain()) is None
    assert small_b_gemm(AVX512, f32, 3136, M, 16, plain()) is None
    assert small_b_gemm(AVX512, f32, 3136, 24, M, plain()) is None
    assert small_b_gemm(AVX512, f32, 5, 24, 144, plain()) is None


def test_half_a_vector_of_columns() -> None:
    """24 columns are three halves: 3136x24x144 took 195 us with them, 262 with two whole vectors."""
    problem = GemmProblem.contiguous(plain(), 3136, 24, 144, constant=True)
    first = [
        next(k for k in candidates(problem, isa).values() if isinstance(k, SmallBGemmKernel))
        for isa in (replace(ISAS["avx512"], fma=1), ISAS["avx512"])
    ]
    assert [(k.tile.lanes, k.tile.vectors) for k in first] == [(8, 3), (16, 2)]


def test_functions_of_half_vectors() -> None:
    """1024x31 . 31x100 and a SiLU: 106 us in 13 half vectors, 94 in seven whole ones, Zen 4; without it 65 and 66."""
    for epilogue, lanes in ((plain(), 8), (Epilogue(call("sigmoid", acc()) * acc()), 16)):
        problem = replace(GemmProblem.contiguous(plain(), 1024, 100, 31, constant=True), epilogue=epilogue)
        found = next(iter(candidates(problem, replace(ISAS["avx512"], fma=1)).values()))
        assert isinstance(found, SmallBGemmKernel)
        assert found.tile.lanes == lanes


def test_selection_where_vectors_are_two_halves() -> None:
    """There tiles of three vectors are the faster ones: 3136x64x256 took 0.98 ms with them, 1.15 with 14 x 2.

    Otherwise a panel of four, if it is the only one: 3136x64x384 took 1.05 ms with it, 1.26 with 14 x 2.
    """
    problem, wider = (GemmProblem.contiguous(plain(), 3136, n, 256, constant=True) for n in (64, 80))
    halves = replace(ISAS["avx512"], fma=1)
    first = [next(iter(candidates(problem, isa).values())) for isa in (halves, ISAS["avx512"])]
    assert [(type(k), k.tile.rows, k.tile.vectors) for k in first] == [
        (SmallBGemmKernel, 8, 3),
        (SmallBGemmKernel, 6, 4),
    ]
    assert not any(
        (k.tile.rows, k.tile.vectors) == (6, 4) for k in candidates(wider, AVX512).values() if "small" in k.label
    )


def test_one_panel_of_four_vectors(tmp_path: Path) -> None:
    problem = GemmProblem.contiguous(plain(), M, 64, 300, constant=True)
    kernel = next(k for k in candidates(problem, AVX512).values() if k.label == "small B 6x4 of 16")
    lib = build(tmp_path, [kernel])
    for m, n, k in ((6, 64, 300), (23, 50, 300), (401, 64, 31), (5, 17, 600)):
        run_gemm(lib, kernel, noise(m, k), noise(k, n), [], lambda x: x, pool=Pool(2))
