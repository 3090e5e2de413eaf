"""How products are divided among threads: equal shares, the estimate of those, and the same results."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from irc.ir.dim import Dim
from irc.ir.types import f32
from irc.kernels import ISAS, plain
from irc.kernels.core.registry import candidates, select
from irc.kernels.core.tile import Tile
from irc.kernels.gemm import tasks
from irc.kernels.gemm.blocks import BlocksGemmKernel
from irc.kernels.gemm.packed import GemmKernel
from irc.kernels.gemm.problem import GemmProblem
from tests.kernels.test_kernels import M, Pool, build, compilers, noise, run_gemm

needs_compiler = pytest.mark.skipif(not compilers(), reason="no C compiler")
AVX512 = ISAS["avx512"]


def as_it_is(x: Any) -> Any:
    return x


def product(m: int, n: int, k: int) -> GemmProblem:
    return GemmProblem.contiguous(plain(), m, n, k, True)


@pytest.mark.parametrize(
    ("m", "n", "shape", "wanted"),
    [
        (8, 48, (8, 3), 2),  # one panel, one tile of rows
        (16, 48, (8, 3), 1),  # a tile of rows each
        (8, 48, (24, 1), 4 / 3),  # panels of 16: 32 columns and 16
        (12, 100, (8, 3), 8 / 7),  # 48 and 52 columns, the last four of one vector
        (12, 144, (8, 3), 1),  # three panels, in two tiles of rows each
        (8, 144, (8, 3), 4 / 3),
        (8, 67, (8, 3), 1),  # the second panel takes as long as the first
        (8, 52, (8, 3), 3 / 2),
        (2000, 700, (8, 3), 1),
    ],
)
def test_the_longer_share(m: int, n: int, shape: tuple[int, int], wanted: float) -> None:
    assert tasks.imbalance(product(m, n, 4096), Tile(AVX512, f32, *shape), True) == pytest.approx(wanted)


def test_what_one_thread_does_or_is_not_known_has_no_shares() -> None:
    tile = Tile(AVX512, f32, 8, 3)
    assert tasks.imbalance(product(8, 48, 16), tile, True) == 1
    unknown = GemmProblem.contiguous(plain(), Dim.symbol("m"), 48, 4096, True)
    assert tasks.imbalance(unknown, tile, True) == 1


def test_a_kernel_that_two_threads_share_is_selected() -> None:
    """8 x 48: in tiles of 8 x 3 vectors one thread is as fast as in others, and two are not faster than one."""
    problem = product(8, 48, 4096)
    chosen = select(problem, AVX512)
    assert chosen is not None and chosen.imbalance(problem) < 1.5
    slowest = next(k for k in candidates(problem, AVX512).values() if k.label == "packed 8x3")
    assert slowest.imbalance(problem) == 2 and slowest.cycles(problem) < 1.05 * chosen.cycles(problem)


@needs_compiler
@pytest.mark.parametrize("kind", [GemmKernel, BlocksGemmKernel])
def test_every_number_of_tasks_covers_the_result(kind: type[GemmKernel], tmp_path: Path) -> None:
    kernel = kind.design(ISAS["avx2"], f32, M, M, plain(), True, (6, 2))
    lib = build(tmp_path, [kernel])
    for m in (1, 5, 7, 13, 25, 40, 100):
        for n in (15, 33, 35, 64, 68, 76, 96, 100, 132, 163):
            a, b = noise(m, 90), noise(90, n)
            alone = run_gemm(lib, kernel, a, b, [], as_it_is)
            for chunk in (1, 2, 3):
                pool = Pool(chunk)
                assert np.array_equal(alone, run_gemm(lib, kernel, a, b, [], as_it_is, pool=pool))
                count = math.prod(tasks.ranges(m, n, 1, kernel.tile))
                divided = count > 1 and m * n * 90 >= tasks.WORTHWHILE
                assert kind is GemmKernel or pool.pieces == [count] * divided  # that one has pieces of workspaces
