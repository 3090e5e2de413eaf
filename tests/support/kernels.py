"""Kernels by themselves: problems of every family, and the cheapest variants for operands without gaps."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from irc.expr import Const, call
from irc.ir.dim import Dim, DimLike
from irc.ir.types import DType, f32, f64
from irc.kernels.core.base import Kernel
from irc.kernels.core.epilogue import Epilogue, acc, plain, slot
from irc.kernels.core.isa import Isa
from irc.kernels.core.problem import Problem
from irc.kernels.core.registry import select
from irc.kernels.gemm.packed import GemmKernel
from irc.kernels.gemm.problem import GemmProblem
from irc.kernels.gemm.small_b import RowsGemmKernel
from irc.kernels.gemm.split_bf16 import AmxGemmKernel
from irc.kernels.vector.vecmath import FUNCTIONS

M = Dim.symbol("m")
BIASED = Epilogue((acc() + slot(0)).max(Const(0.0, f32)) * slot(1) + slot(2), ("column", "row", "full"))


def every_function() -> Epilogue:
    """Make an epilogue of all vector functions."""
    x = acc()
    for name in sorted(FUNCTIONS):
        x = x + call(name, acc())
    return Epilogue(x)


PROBLEMS: tuple[Problem, ...] = (
    GemmProblem.contiguous(every_function(), M, M, M, True),
    GemmProblem.contiguous(BIASED, M, M, M, False),
    GemmProblem.contiguous(plain(f64), 7, 21, M, True),
    GemmProblem.contiguous(BIASED, M, 40, 60, True),
    GemmProblem.contiguous(plain(f64), 49, 8, 60, True),
    *(GemmProblem.contiguous(BIASED, M, 200, 300, True, precision) for precision in ("high", "medium")),
)
"""Every kernel solves one of them on some instruction set."""


def variants(cls: type[Kernel[Any]], isa: Isa) -> Iterator[Kernel[Any]]:
    """Yield the cheapest variant of a kernel for each of `PROBLEMS` that it solves."""
    for problem in PROBLEMS:
        if isinstance(problem, cls.problem) and (kernel := cls.best(problem, isa)) is not None:
            yield kernel


def packed_gemm(isa: Isa, dtype: DType, m: DimLike, n: DimLike, epilogue: Epilogue, constant: bool) -> GemmKernel:
    """Select the variant that packs its operands."""
    assert epilogue.dtype == dtype
    kernel = GemmKernel.best(GemmProblem.contiguous(epilogue, m, n, 64, constant), isa)
    assert kernel is not None
    return kernel


def small_b_gemm(
    isa: Isa, dtype: DType, m: DimLike, n: DimLike, k: DimLike, epilogue: Epilogue
) -> RowsGemmKernel | None:
    """Select the variant for a small constant B, if there is one."""
    assert epilogue.dtype == dtype
    return RowsGemmKernel.best(GemmProblem.contiguous(epilogue, m, n, k, True), isa)


def split_gemm(isa: Isa, precision: str, m: DimLike, n: int, k: int, epilogue: Epilogue) -> AmxGemmKernel | None:
    """Select the variant from bf16 terms, if it is the cheapest of all kernels."""
    problem = GemmProblem.contiguous(epilogue, m, n, k, True, precision)
    kernel = select(problem, isa)
    return kernel if isinstance(kernel, AmxGemmKernel) else None
