"""The matrix product that reads A in place and meets a constant B in blocks, against its definition."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from irc.ir.types import DType, f32, f64
from irc.kernels import ISAS, plain
from irc.kernels.core.registry import candidates, select
from irc.kernels.gemm.blocks import BlocksGemmKernel
from irc.kernels.gemm.problem import GemmProblem
from irc.kernels.gemm.small_b import SmallBGemmKernel
from tests.kernels.test_kernels import M, Pool, build, compilers, edges, invoke, noise, residual, run_gemm

pytestmark = pytest.mark.skipif(not compilers(), reason="no C compiler")
BLOCKS = [(7, 40, 300), (29, 130, 1100), (13, 700, 70), (25, 33, 2100), (14, 17, 0)]
"""Rows, columns and depth: sums of one part and of several, blocks of k and of columns, none."""


def made(
    isa: str, fused: bool = False, dtype: DType = f32, m: Any = M, tile: tuple[int, int] = (6, 2)
) -> BlocksGemmKernel:
    return BlocksGemmKernel.design(ISAS[isa], dtype, m, M, residual() if fused else plain(dtype), True, tile)


@pytest.mark.parametrize(
    ("isa", "fused", "dtype", "tile"),
    [
        ("avx512", True, f32, (14, 2)),
        ("avx512", True, f32, (6, 4)),
        ("avx2", True, f32, (6, 2)),
        ("avx2", False, f64, (6, 2)),
        ("sse", False, f32, (6, 2)),
    ],
)
def test_edges(tmp_path: Path, isa: str, fused: bool, dtype: DType, tile: tuple[int, int]) -> None:
    kernel = made(isa, fused, dtype, tile=tile)
    lib = build(tmp_path, [kernel])
    for m, n, k in (*edges(ISAS[isa], kernel.tile.panel), *BLOCKS):
        slots = [noise(n, dtype=dtype), noise(m, dtype=dtype), noise(1, dtype=dtype), noise(m, n, dtype=dtype)]

        def wanted(x: Any, *s: Any) -> Any:
            return np.maximum(x + s[0], 0) * s[1][:, None] * s[2] + s[3] if s else x

        run_gemm(lib, kernel, noise(m, k, dtype=dtype), noise(k, n, dtype=dtype), slots if fused else [], wanted)


def test_results_do_not_depend_on_threads(tmp_path: Path) -> None:
    kernel = made("avx2")
    lib = build(tmp_path, [kernel])
    for m, n, k in ((401, 90, 90), *BLOCKS[1:3]):
        a, b = noise(m, k), noise(k, n)
        alone = run_gemm(lib, kernel, a, b, [], lambda x: x)
        for chunk in (1, 2, 5):
            pool = Pool(chunk)
            assert np.array_equal(alone, run_gemm(lib, kernel, a, b, [], lambda x: x, pool=pool))
            assert pool.calls == 1


def test_long_sums_are_sums_of_sums(tmp_path: Path) -> None:
    """256 products at a time are added up: adding ones to 2^24 would lose all of them."""
    kernel = made("avx2", m=12)
    lib = build(tmp_path, [kernel])
    a, b, c = np.ones((12, 1000), np.float32), np.ones((1000, 16), np.float32), np.zeros((12, 16), np.float32)
    a[:, 0] = 2.0**24
    invoke(lib, kernel, a, kernel.pack_b(b), c, 12, 16, 1000, 0, 0, 1000, 1, 0, 0, 0, 0, 16, 1, 1)
    assert (c == 2.0**24 + 744).all()


def test_selection() -> None:
    """Long sums of few columns, where it was measured: packing A would pay for many of them only."""

    def chosen(isa: str, m: int, n: int, k: int) -> type:
        return type(select(GemmProblem.contiguous(plain(), m, n, k, True), ISAS[isa]))

    assert chosen("avx2", 512, 64, 2048) is chosen("avx2", 300, 40, 1300) is BlocksGemmKernel
    assert chosen("avx2", 3136, 64, 64) is SmallBGemmKernel
    assert chosen("avx512", 512, 64, 2048) is chosen("avx512", 512, 64, 3072) is BlocksGemmKernel
    assert BlocksGemmKernel not in {chosen(isa, 128, 768, 768) for isa in ("avx512", "avx2")}
    assert chosen("avx512", 1000, 128, 1024) is BlocksGemmKernel
    few, more = (GemmProblem.contiguous(plain(), 1536, n, 2048, True) for n in (64, 16))
    first = [
        next(k for k in candidates(p, ISAS["avx512"]).values() if type(k) is BlocksGemmKernel) for p in (few, more)
    ]
    assert [(k.tile.rows, k.tile.vectors) for k in first] == [(6, 4), (8, 3)], "few rows where rows of A conflict"
