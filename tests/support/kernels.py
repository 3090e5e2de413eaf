"""Kernels by themselves: problems of every family, and the cheapest variants for operands without gaps."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any, cast, get_args

from irc.expr import Const, call
from irc.ir.dim import Dim, DimLike
from irc.ir.types import DType, f16, f32, f64, i8, i32, i64, u8
from irc.kernels.attention.problem import AttentionProblem, Empty, Mask
from irc.kernels.attention.split_bf16 import SplitAttentionKernel
from irc.kernels.attention.vector import AttentionKernel
from irc.kernels.conv.depthwise_nhwc import NhwcDepthwiseKernel
from irc.kernels.conv.grouped_nchw import NchwGroupedKernel
from irc.kernels.conv.nchw import NchwConvKernel
from irc.kernels.conv.nhwc import NhwcConvKernel
from irc.kernels.conv.problem import ConvProblem, ConvTransposeProblem, Depth
from irc.kernels.conv.split_bf16 import SplitConvKernel
from irc.kernels.conv.winograd import WinogradKernel
from irc.kernels.core.base import Kernel
from irc.kernels.core.epilogue import Epilogue, acc, plain, slot
from irc.kernels.core.isa import Isa
from irc.kernels.core.problem import Pair, Problem
from irc.kernels.core.registry import candidates, select
from irc.kernels.gemm.packed import GemmKernel
from irc.kernels.gemm.problem import GemmProblem, Narrow
from irc.kernels.gemm.small_b import SmallBGemmKernel
from irc.kernels.gemm.split_bf16 import SplitGemmKernel
from irc.kernels.integer.lstm import QuantizedLstmProblem
from irc.kernels.integer.problem import (
    SUMS,
    IntegerConvProblem,
    IntegerGemmProblem,
    LookupProblem,
    SumProblem,
    product_of_bytes,
)
from irc.kernels.movement.problem import TransposeProblem
from irc.kernels.movement.transpose import TransposeKernel
from irc.kernels.pool.nchw import NchwPoolKernel, PlanePool
from irc.kernels.pool.nhwc import NhwcGlobalPoolKernel, NhwcPoolKernel
from irc.kernels.pool.problem import Counted, GlobalPoolProblem, Mode, PoolProblem
from irc.kernels.position.problem import PositionProblem
from irc.kernels.recurrent.lstm_gru import RecurrentKernel
from irc.kernels.recurrent.problem import Cell, Direction, RecurrentProblem
from irc.kernels.reduction.extremes import ExtremesProblem
from irc.kernels.reduction.problem import Fold, RowReductionProblem
from irc.kernels.resize.problem import InterpolationProblem
from irc.kernels.softmax.problem import ByteSoftmaxProblem, HardmaxProblem, SoftmaxProblem
from irc.kernels.vector.vecmath import FUNCTIONS

M = Dim.symbol("m")
BIASED = Epilogue((acc() + slot(0)).max(Const(0.0, f32)) * slot(1) + slot(2), ("column", "row", "full"))


def every_function() -> Epilogue:
    """Make an epilogue of all vector functions."""
    x = acc()
    for name in sorted(FUNCTIONS):
        x = x + call(name, acc())
    return Epilogue(x)


def reordering(dtype: DType, shape: Sequence[DimLike], order: Sequence[int]) -> TransposeProblem:
    """State a transpose that the kernel computes."""
    problem = TransposeProblem.reordering(dtype, shape, order)
    assert problem is not None
    return problem


def product_of_operands(m: DimLike, n: int, k: int, signed: tuple[bool, bool]) -> IntegerGemmProblem:
    """State the sums of a product of two operands of bytes with zero points, without gaps."""
    stated = GemmProblem.contiguous(SUMS, m, n, k, False)
    return IntegerGemmProblem(**{**vars(stated), "stored": i32, "signed": signed, "zeroed": (True, True)})


DEPTH = Depth(Dim.of(10), Dim.of(8), 3, 1, 1, Dim.of(0))
PROBLEMS: tuple[Problem, ...] = (
    GemmProblem.contiguous(every_function(), M, M, M, True),
    GemmProblem.contiguous(BIASED, M, M, M, False),
    GemmProblem.contiguous(plain(f64), 7, 21, M, True),
    GemmProblem.contiguous(BIASED, M, 40, 60, True),
    replace(GemmProblem.contiguous(BIASED, M, 40, 60, True), a=(Dim.of(0), Dim.of(0), Dim.of(1), Dim.of(M))),
    GemmProblem.contiguous(BIASED, 3, M, M, False),
    *(
        replace(GemmProblem.contiguous(BIASED, m, 200, 300, True), narrow=Narrow(4, 32, own))
        for m in (M, 3)
        for own in (False, True)
    ),
    *(
        replace(GemmProblem.contiguous(BIASED, M, 200, 300, True), narrow=Narrow(16, floats=kind))
        for kind in ("f16", "bf16")
    ),
    *(GemmProblem.contiguous(BIASED, M, n, 60, n > 2) for n in (2, 4, 7)),
    replace(GemmProblem.contiguous(BIASED, 1, 40, 60, False), b=(Dim.of(0), Dim.of(0), Dim.of(1), Dim.of(60))),
    *(GemmProblem.contiguous(BIASED, M, n, 3, n == 8) for n in (8, 40)),
    *(product_of_bytes(M, 70, 33, signed, True) for signed in (False, True)),
    replace(IntegerConvProblem.contiguous("nhwc", plain(), 24, 40, (14, 14), (3, 3)), stored=u8, zeroed=True),
    replace(IntegerConvProblem.contiguous("nhwc", plain(), 40, 40, (14, 14), (3, 3), groups=40), stored=u8),
    *(product_of_operands(M, 70, 33, signs) for signs in ((False, True), (True, False))),
    LookupProblem(u8, "highest", u8, M),
    SumProblem(u8, "highest", (u8, i8), M, 3),
    QuantizedLstmProblem.contiguous(f32, "lstm", "bidirectional", M, M, 64, True, True, "int32_t", True),
    GemmProblem.contiguous(plain(f64), 49, 8, 60, True),
    *(GemmProblem.contiguous(BIASED, M, 200, 300, True, precision) for precision in ("high", "medium")),
    *(ConvProblem.contiguous("nchw", BIASED, 40, 50, (M, M), (5, 5), (s, s)) for s in (1, 2, 3)),
    ConvProblem.contiguous("nchw", BIASED, 24, 24, (14, 14), (3, 3), groups=24),
    ConvProblem.contiguous("nchw", plain(), 24, 24, (14, 14), (5, 5), (2, 2), groups=24),
    ConvProblem.contiguous("nchw", BIASED, 8, 16, (112, 112), (3, 3), groups=8),
    ConvProblem.contiguous("nchw", plain(f64), 16, 24, (112, 112), (5, 5), (2, 2), groups=8),
    ConvProblem.contiguous("nchw", BIASED, 16, 24, (30, 30), (1, 1), groups=8),
    *(ConvProblem.contiguous("nchw", BIASED, 24, 24, (8, 8), (3, 3), groups=groups, depth=DEPTH) for groups in (1, 24)),
    ConvProblem.contiguous("nhwc", BIASED, 24, 24, (M, M), (3, 3), groups=24),
    ConvProblem.contiguous("nhwc", plain(), 24, 24, (56, 56), (5, 5), (2, 2), groups=24),
    ConvProblem.contiguous("nhwc", BIASED, 64, 64, (M, M), (3, 3)),
    ConvProblem.contiguous("nhwc", plain(f64), 64, 64, (56, 56), (3, 3)),
    ConvProblem.contiguous("nhwc", plain(), 3, 64, (112, 112), (7, 7), (2, 2)),
    *(ConvProblem.contiguous("nhwc", BIASED, 64, 48, (56, 56), (3, 3), precision=p) for p in ("high", "medium")),
    ConvTransposeProblem.contiguous("nchw", BIASED, 40, 24, (29, 29), (3, 3), (2, 2)),
    ConvTransposeProblem.contiguous("nchw", plain(f64), 64, 16, (28, 28), (5, 5), (4, 4)),
    ConvTransposeProblem.contiguous("nchw", plain(), 64, 16, (128, 128), (3, 3), (3, 3), (2, 2), groups=2),
    PoolProblem.contiguous("nchw", plain(), "max", (3, 3), (2, 2)),
    PoolProblem.contiguous("nchw", plain(), "average", (3, 3)),
    PoolProblem.contiguous("nchw", plain(), "average", (3, 3), (3, 3), counted="window"),
    replace(PoolProblem.contiguous("nchw", plain(), "average", (3, 3), result=(7, 7)), input=(Dim.of(7), Dim.of(7))),
    PoolProblem.contiguous("nhwc", BIASED, "max", (3, 3), (2, 2)),
    PoolProblem.contiguous("nhwc", BIASED, "average", (3, 3), counted="window", result=(M, M)),
    *(RowReductionProblem.contiguous(fold, M, n, t) for fold in get_args(Fold) for n, t in ((49, f32), (M, f64))),
    *(GlobalPoolProblem.contiguous("nhwc", BIASED, m) for m in ("max", "average")),
    AttentionProblem.contiguous(M, M, 64, 0.125, "add", True, precision="high"),
    AttentionProblem.contiguous(M, M, 64, 0.125, "bool", False, precision="medium"),
    AttentionProblem.contiguous(M, M, 64, 0.125, "none", False, precision="highest"),
    AttentionProblem.contiguous(1, M, 80, 0.125, "bool", empty="zero"),
    RecurrentProblem.contiguous(f32, "lstm", "bidirectional", M, M, 64, True, True, "int32_t"),
    RecurrentProblem.contiguous(f64, "gru", "reverse", M, 7, 64),
    RecurrentProblem.contiguous(f32, "gru_linear", "forward", M, 1, 64, True, False, "int64_t", True),
    *(reordering(dtype, (M, 64), (1, 0)) for dtype in (f32, f64)),
    replace(reordering(f32, (M, 64), (1, 0)), epilogue=Epilogue(acc() * slot(0) + slot(1), ("scalar", "full"))),
    *(reordering(dtype, (50, 64), (1, 0)) for dtype in (u8, f16, i32, i64)),
    *(InterpolationProblem(f32, "highest", M, (20, 28), (30, 42), columns, rows) for columns, rows in ((2, 0), (4, 4))),
    HardmaxProblem.contiguous(M, 100),
    ByteSoftmaxProblem(u8, "highest", i8, M, Dim.of(100), 0),
    *(ExtremesProblem(dtype, "highest", M) for dtype in (f32, f64)),
    *(SoftmaxProblem.contiguous(M, M, inner, log) for inner in (1, M) for log in (False, True)),
    *(PositionProblem.contiguous(M, 100, inner, inner > 1, inner == 1) for inner in (1, 40)),
    PositionProblem.contiguous(M, 20),
)
"""Every kernel solves one of them on some instruction set."""


def variants(cls: type[Kernel[Any]], isa: Isa) -> Iterator[Kernel[Any]]:
    """Yield the cheapest variant of a kernel for each of `PROBLEMS` that it solves."""
    for problem in PROBLEMS:
        if type(problem) is cls.problem and (kernel := cls.best(problem, isa)) is not None:
            yield kernel


def packed_gemm(isa: Isa, dtype: DType, m: DimLike, n: DimLike, epilogue: Epilogue, constant: bool) -> GemmKernel:
    """Select the variant that packs its operands."""
    assert epilogue.dtype == dtype
    kernel = GemmKernel.best(GemmProblem.contiguous(epilogue, m, n, 64, constant), isa)
    assert kernel is not None
    return kernel


def small_b_gemm(
    isa: Isa, dtype: DType, m: DimLike, n: DimLike, k: DimLike, epilogue: Epilogue
) -> SmallBGemmKernel | None:
    """Select the variant for a small constant B, if there is one."""
    assert epilogue.dtype == dtype
    return SmallBGemmKernel.best(GemmProblem.contiguous(epilogue, m, n, k, True), isa)


def split_gemm(isa: Isa, precision: str, m: DimLike, n: int, k: int, epilogue: Epilogue) -> SplitGemmKernel | None:
    """Select the variant from bf16 terms, if it is the cheapest of all kernels."""
    problem = GemmProblem.contiguous(epilogue, m, n, k, True, precision)
    kernel = select(problem, isa)
    return kernel if isinstance(kernel, SplitGemmKernel) else None


def conv_nchw(
    isa: Isa, ic: int, oc: int, result: tuple[DimLike, DimLike], window: Pair, strides: Pair, epilogue: Epilogue
) -> NchwConvKernel:
    """Select the variant for channels first and one group."""
    kernel = NchwConvKernel.best(ConvProblem.contiguous("nchw", epilogue, ic, oc, result, window, strides), isa)
    assert kernel is not None
    return kernel


def depthwise_nchw(
    isa: Isa, window: Pair, strides: Pair, dilations: Pair, epilogue: Epilogue
) -> NchwGroupedKernel | None:
    """Select the variant for channels first and one channel in each group, if the window is not too large."""
    shape = (2, 2, (56, 56), window, strides, dilations, 2)
    return NchwGroupedKernel.best(ConvProblem.contiguous("nchw", epilogue, *shape), isa)


def depthwise_nhwc(
    isa: Isa, window: Pair, strides: Pair, dilations: Pair, epilogue: Epilogue, ow: DimLike, channels: int = 64
) -> NhwcDepthwiseKernel | None:
    """Select the variant for channels last and one channel in each group, if the window is not too wide."""
    channels = max(channels, 2)  # of one channel other kernels are
    shape = (channels, channels, (56, ow), window, strides, dilations, channels)
    return NhwcDepthwiseKernel.best(ConvProblem.contiguous("nhwc", epilogue, *shape), isa)


def direct_conv(
    isa: Isa,
    ic: int,
    oc: int,
    result: tuple[DimLike, DimLike],
    window: Pair,
    strides: Pair,
    dilations: Pair,
    epilogue: Epilogue,
) -> NhwcConvKernel | None:
    """Select the variant for channels last, `ic` and `oc` of each group, if the input under a tile is not too large."""
    return NhwcConvKernel.best(
        ConvProblem.contiguous("nhwc", epilogue, ic, oc, result, window, strides, dilations), isa
    )


def winograd_conv(
    isa: Isa, ic: int, oc: int, result: tuple[DimLike, DimLike], epilogue: Epilogue
) -> WinogradKernel | None:
    """Select the variant by Winograd's algorithm, if it is the cheapest of all kernels."""
    kernel = select(ConvProblem.contiguous("nhwc", epilogue, ic, oc, result, (3, 3)), isa)
    return kernel if isinstance(kernel, WinogradKernel) else None


def split_conv(
    isa: Isa,
    precision: str,
    ic: int,
    oc: int,
    result: tuple[DimLike, DimLike],
    window: Pair,
    strides: Pair,
    epilogue: Epilogue,
) -> SplitConvKernel | None:
    """Select the variant from bf16 terms, if it is cheaper than the direct one."""
    problem = ConvProblem.contiguous("nhwc", epilogue, ic, oc, result, window, strides, precision=precision)
    kernel, direct = SplitConvKernel.best(problem, isa), NhwcConvKernel.best(problem, isa)
    if kernel is None or (direct is not None and direct.cycles(problem) <= kernel.cycles(problem)):
        return None
    return kernel


def pool_nchw(
    isa: Isa, mode: Mode, window: Pair, strides: Pair, dilations: Pair = (1, 1), counted: Counted = "inside"
) -> NchwPoolKernel | None:
    """Select the pool of planes, if there is one."""
    return NchwPoolKernel.best(PoolProblem.contiguous("nchw", plain(), mode, window, strides, dilations, counted), isa)


def pools_nchw(
    isa: Isa,
    mode: Mode,
    window: Pair,
    strides: Pair,
    dilations: Pair,
    counted: Counted,
    result: Pair,
    input: Pair | None = None,
) -> list[PlanePool]:
    """List all pools of planes for this many results; of input without padding if none is given."""
    problem = PoolProblem.contiguous("nchw", plain(), mode, window, strides, dilations, counted, result=result)
    if input is not None:
        problem = replace(problem, input=(Dim.of(input[0]), Dim.of(input[1])))
    return cast("list[PlanePool]", list(candidates(problem, isa).values()))


def pool_nhwc(
    isa: Isa,
    mode: Mode,
    window: Pair,
    strides: Pair,
    dilations: Pair,
    counted: Counted,
    epilogue: Epilogue,
    ow: DimLike,
    channels: int = 64,
) -> NhwcPoolKernel | None:
    """Select the pool with the channels last for rows of `ow` results, if there is one."""
    shape = (mode, window, strides, dilations, counted)
    problem = PoolProblem.contiguous("nhwc", epilogue, *shape, result=(56, ow), channels=channels)
    return NhwcPoolKernel.best(problem, isa)


def global_pool_nhwc(isa: Isa, mode: Mode, epilogue: Epilogue) -> NhwcGlobalPoolKernel:
    """Select the pool of all pixels with the channels last."""
    kernel = NhwcGlobalPoolKernel.best(GlobalPoolProblem.contiguous("nhwc", epilogue, mode), isa)
    assert kernel is not None
    return kernel


def attention(
    isa: Isa,
    rows: DimLike,
    width: DimLike,
    scale: float,
    mask: Mask = "none",
    causal: bool = False,
    empty: Empty = "nan",
) -> AttentionKernel | None:
    """Select the attention in f32, if there is one."""
    return AttentionKernel.best(AttentionProblem.contiguous(rows, M, width, scale, mask, causal, empty), isa)


def split_attention(isa: Isa, precision: str, rows: DimLike, keys: DimLike, width: int) -> SplitAttentionKernel | None:
    """Select the attention from bf16 terms, if it is the cheapest of all kernels."""
    kernel = select(AttentionProblem.contiguous(rows, keys, width, 0.125, precision=precision), isa)
    return kernel if isinstance(kernel, SplitAttentionKernel) else None


def recurrent(
    isa: Isa,
    dtype: DType,
    cell: Cell,
    direction: Direction,
    batch: DimLike,
    h: bool = False,
    c: bool = False,
    lengths: str = "",
    bias: bool = False,
) -> RecurrentKernel:
    """Select the steps of a recurrent layer."""
    problem = RecurrentProblem.contiguous(dtype, cell, direction, M, batch, 64, h, c, lengths, bias)
    kernel = RecurrentKernel.best(problem, isa)
    assert kernel is not None
    return kernel


def transpose(isa: Isa, dtype: DType) -> TransposeKernel:
    """Select the copy that reorders axes."""
    kernel = TransposeKernel.best(reordering(dtype, (M, M), (1, 0)), isa)
    assert kernel is not None
    return kernel
