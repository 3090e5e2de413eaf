"""One row by a constant B: several panels of B at once."""

from __future__ import annotations

import ctypes
import itertools
from typing import Any

import numpy as np
import pytest

from irc.ir.types import f32, f64
from irc.kernels import ISAS, plain
from irc.kernels.core.registry import select
from irc.kernels.gemm.dots import DotsGemmKernel
from irc.kernels.gemm.packed import GemmKernel
from irc.kernels.gemm.problem import GemmProblem
from tests.kernels.test_kernels import M, Pool, build, compilers, joined, noise, residual, run_gemm

AVX2 = ISAS["avx2"]
TILES = [(6, 2), (4, 3), (12, 1)]


@pytest.fixture(scope="module")
def kernels(tmp_path_factory: pytest.TempPathFactory) -> tuple[ctypes.CDLL, dict[tuple[Any, ...], GemmKernel]]:
    """Kernels by (vectors of a panel, whether there may be more rows, with the residual epilogue, dtype)."""
    found = {
        (tile[1], more, fused, dtype.name): GemmKernel.design(
            AVX2, dtype, M if more else 1, M, residual() if fused else plain(dtype), True, tile
        )
        for tile, more, fused, dtype in itertools.product(TILES, (False, True), (False, True), (f32, f64))
        if not (fused and dtype == f64)
    }
    return build(tmp_path_factory.mktemp("abreast"), list(found.values())), found


@pytest.mark.skipif(not compilers(), reason="no C compiler")
def test_one_row(kernels: Any) -> None:
    lib, found = kernels
    for (_, _, fused, dtype), g in found.items():
        whole, kind = g.abreast * g.tile.panel, {"f32": f32, "f64": f64}[dtype]
        assert g.abreast > 1
        for n, k in [
            *((n, 9) for n in (1, g.tile.lanes - 1, g.tile.panel, whole - 1, whole, whole + 1, 3 * whole - 5)),
            *((whole + g.tile.panel + 3, k) for k in (0, 1, 2, 3, 256, 257, 1000, 5001)),
        ]:
            slots = [noise(n), noise(1), noise(1), noise(1, n)] if fused else []
            wanted = joined if fused else np.asarray
            for transposed in (False, True):
                a, b = noise(1, k, dtype=kind), noise(k, n, dtype=kind)
                run_gemm(lib, g, a, b, slots, wanted, transposed=transposed)


@pytest.mark.skipif(not compilers(), reason="no C compiler")
def test_results_do_not_depend_on_threads(kernels: Any) -> None:
    """Threads may get ranges that are no whole groups of panels."""
    lib, found = kernels
    for g in found.values():
        if g.epilogue.slots or g.tile.dtype != f32:
            continue
        a, b = noise(1, 900), noise(900, 500)
        alone = run_gemm(lib, g, a, b, [], np.asarray)
        for chunk in (1, 2, 5):
            pool = Pool(chunk)
            assert np.array_equal(alone, run_gemm(lib, g, a, b, [], np.asarray, pool=pool))
            assert pool.calls == 1


@pytest.mark.skipif(not compilers(), reason="no C compiler")
def test_only_its_column_becomes_nan(kernels: Any) -> None:
    lib, found = kernels
    for g in found.values():
        if g.epilogue.slots or g.tile.dtype != f32:
            continue
        b = noise(300, 101)
        b[7, 50] = np.nan
        with np.errstate(invalid="ignore"):
            c = run_gemm(lib, g, noise(1, 300), b, [], np.asarray)
        assert np.isnan(c[0, :101]).nonzero()[0].tolist() == [50]


def test_other_sets_read_one_panel_after_another() -> None:
    """Only AVX2 was measured."""
    for isa in ("avx512", "neon", "sse", "plain"):
        for g in GemmKernel.candidates(GemmProblem.contiguous(plain(), 1, 768, 768, True), ISAS[isa]):
            assert g.abreast == 1
    for g in GemmKernel.candidates(GemmProblem.contiguous(plain(), 2, 768, 768, True), AVX2):
        assert g.abreast == 1
    for g in GemmKernel.candidates(GemmProblem.contiguous(plain(), 1, 768, 768, False), AVX2):
        assert g.abreast == 1


@pytest.mark.parametrize(
    ("n", "k", "kind"), [(768, 768, GemmKernel), (256, 256, GemmKernel), (10, 400, DotsGemmKernel)]
)
def test_selected(n: int, k: int, kind: type) -> None:
    """Zen 3: 1x256 . 256x256 6.2 us by dots, 5.4 in panels; 1x400 . 400x10 1.7 us by dots, 1.8."""
    assert type(select(GemmProblem.contiguous(plain(), 1, n, k, True), AVX2)) is kind
