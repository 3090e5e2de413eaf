"""The catalogue: which register tile a contraction gets.

One row per tile shape and instruction set: rows × vectors, and its quality, the part of the multiply-add peak that a
full tile reaches.  The cost of a row is the cycles that the tiles need to cover the output, edges included, over its
quality; the cheapest row is taken, the first of equals.  Unknown sizes count as large.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from irc.ir.dim import Dim, DimLike
from irc.ir.types import DType, f32
from irc.kernels.attention.split_bf16 import FEW_KEYS, AmxAttentionKernel, fits as tiles_fit
from irc.kernels.attention.vector import WIDEST, AttentionKernel, Mask
from irc.kernels.conv.depthwise_nchw import DepthwiseKernel, fits
from irc.kernels.conv.depthwise_nhwc import DepthwiseLastKernel
from irc.kernels.conv.nchw import ConvKernel
from irc.kernels.conv.nhwc import DirectConvKernel, block_of, fits as direct_fits
from irc.kernels.conv.small_nchw import PIXELS, SmallConvKernel
from irc.kernels.conv.split_bf16 import AmxConvKernel, few_of, positions
from irc.kernels.conv.winograd import WinogradKernel
from irc.kernels.conv.winograd_bf16 import DEEPEST as DEEPEST_DOTS, DotWinogradKernel
from irc.kernels.core.costs import BLOCK, CONFIGURE, SPLIT_PRODUCTS, SPLITTING, SPLITTING_B, unit_of
from irc.kernels.core.epilogue import Epilogue
from irc.kernels.core.isa import Isa
from irc.kernels.core.tile import Tile, heights_of
from irc.kernels.gemm.split_bf16 import widths_of
from irc.kernels.movement.transpose import TransposeKernel
from irc.kernels.pool.nchw import Counted, GlobalPoolKernel, Mode, PoolKernel, fits as pool_fits
from irc.kernels.pool.nhwc import GlobalPoolLastKernel, PoolLastKernel
from irc.kernels.recurrent.lstm_gru import GATES, Cell, Direction, RecurrentKernel
from irc.kernels.split_bf16 import bf16_terms
from irc.kernels.vector.pixels import pixels_of

UNKNOWN = 4096  # what a symbolic size is taken for
TYPICAL = 224  # what each symbol of a height or a width is taken for


@dataclass(frozen=True)
class Row:
    """A tile shape; `quality` is measured by bench/kernels.py."""

    isa: str
    rows: int
    vectors: int
    quality: float


ROWS = (
    Row("avx512", 14, 2, 1.00),
    Row("avx512", 8, 3, 0.96),
    Row("avx512", 24, 1, 0.85),
    Row("avx2", 6, 2, 1.00),
    Row("avx2", 4, 3, 0.95),
    Row("avx2", 12, 1, 0.85),
    Row("neon", 12, 2, 1.00),
    Row("neon", 8, 3, 1.00),
    Row("sse", 6, 2, 1.00),
    Row("sse", 12, 1, 0.85),
    Row("plain", 4, 2, 1.00),
)


def known(size: DimLike) -> int:
    """The size, or what an unknown one is taken for."""
    dim = Dim.of(size)
    return int(dim) if dim.is_const else UNKNOWN


def expected(extent: DimLike) -> int:
    """A height or width, or what it is in an image of `TYPICAL` size: deep in a network planes are small."""
    dim = Dim.of(extent)
    sizes = {s.name: int(min(max(TYPICAL, s.lo), TYPICAL if s.hi is None else s.hi)) for s in dim.symbols()}
    return dim.evaluate(sizes)


def cost(row: Row, isa: Isa, dtype: DType, m: int, n: int) -> float:
    """Cycles for each step of k: two multiply-adds and two loads a cycle, and the latency of an addition is four."""
    lanes = isa.lanes(dtype)
    panels, rest = divmod(n, lanes * row.vectors)
    widths = {row.vectors: panels}
    if rest:
        last = 1 if rest <= lanes else row.vectors
        widths[last] = widths.get(last, 0) + 1
    tiles = -(-m // row.rows)
    heights = {m // tiles: tiles - m % tiles, m // tiles + 1: m % tiles} if m else {}
    return (
        sum(
            count * times * max(height * width / 2, (height + width) / 2, 2 if height <= 3 else 4)
            for width, times in widths.items()
            for height, count in heights.items()
        )
        / row.quality
    )


def choose(isa: Isa, dtype: DType, m: DimLike, n: DimLike) -> Tile:
    """The tile for an output of m rows and n columns."""
    rows = [row for row in ROWS if row.isa == isa.name]
    best = min(rows, key=lambda row: cost(row, isa, dtype, known(m), known(n)))
    return Tile(isa, dtype, best.rows, best.vectors)


def _narrow(tile: Tile, n: DimLike) -> bool:
    columns = Dim.of(n)
    return tile.vectors > 1 and (not columns.is_const or 0 < int(columns) % tile.panel <= tile.lanes)


def tiles(isa: Isa, dtype: DType) -> list[Tile]:
    """Every register tile that `choose` chooses from."""
    return [Tile(isa, dtype, row.rows, row.vectors) for row in ROWS if row.isa == isa.name]


FMA = 27.0  # products a cycle of `select_gemm`'s kernels with 512-bit vectors: 85 % of the peak
PACKING = 0.25  # the same for `select_gemm`'s A


def select_matrix_conv(
    isa: Isa,
    precision: str,
    dtype: DType,
    oc: int,
    ic: int,
    window: tuple[int, int],
    strides: tuple[int, int],
    dilations: tuple[int, int],
    oh: DimLike,
    ow: DimLike,
    epilogue: Epilogue,
    rival: float = 1.0,
) -> AmxConvKernel | None:
    """The kernel from bf16 terms, NHWC, `oc` output and `ic` input channels of each group; None where FMA is as fast.

    precision: as `select_matrix_gemm`'s.  The size of the output must be known.  rival: how many times faster than
    the direct convolution the best kernel in f32 is.
    """
    height, width, terms = Dim.of(oh), Dim.of(ow), bf16_terms.TERMS[precision]
    unit = unit_of(isa, terms)
    if unit is None or dtype != f32 or not (height.is_const and width.is_const and oc and ic):
        return None
    few = few_of(ic, window, dilations)
    kernel = AmxConvKernel(terms, window, strides, dilations, epilogue, widths_of(oc), few, unit)
    taps, pixels = window[0] * window[1], int(height) * int(width)
    rows = positions(int(height), int(width), kernel)
    depth, panels, copied = (
        kernel.depth(ic),
        -(-oc // bf16_terms.PANEL),
        few or -(-ic // bf16_terms.CHUNK) * bf16_terms.CHUNK,
    )
    tiles = (
        rows
        * -(-oc // bf16_terms.ROWS)
        * bf16_terms.ROWS
        * depth
        * len(bf16_terms.ORDER[terms])
        / SPLIT_PRODUCTS[unit, terms]
    )
    tiles += pixels * strides[0] * strides[1] * copied * SPLITTING[terms] + oc * depth * SPLITTING_B[terms]
    tiles += CONFIGURE + BLOCK * -(-rows // 32) * panels
    return kernel if tiles < pixels * oc * ic * taps / (FMA * rival) else None


def select_conv(
    isa: Isa, dtype: DType, oc: DimLike, depth: DimLike, pixels: DimLike, stride_w: int, epilogue: Epilogue
) -> ConvKernel:
    """The kernel for `oc` output channels of each group and that many output pixels of an image.

    depth: products in a sum, input channels of a group × window.
    """
    tile = choose(isa, dtype, oc, pixels)
    # Weights that stay in the second cache may be read often; others are read once for as many pixels as possible.
    panels = 2 if known(oc) * known(depth) * dtype.itemsize <= isa.l2 // 2 else 4
    stride = stride_w if stride_w in (1, 2) else 0
    return ConvKernel(tile, epilogue, stride, panels, heights_of(oc, tile.rows), _narrow(tile, pixels))


def select_depthwise(
    isa: Isa,
    dtype: DType,
    window: tuple[int, int],
    strides: tuple[int, int],
    dilations: tuple[int, int],
    epilogue: Epilogue,
) -> DepthwiseKernel | None:
    """The kernel for one input and one output channel in each group; None where the window is too large for it."""
    tile = Tile(isa, dtype, 1, 1)
    return DepthwiseKernel(tile, window, strides, dilations, epilogue) if fits(*window, strides, dilations) else None


def select_depthwise_last(
    isa: Isa,
    dtype: DType,
    window: tuple[int, int],
    strides: tuple[int, int],
    dilations: tuple[int, int],
    epilogue: Epilogue,
    ow: DimLike,
) -> DepthwiseLastKernel | None:
    """The kernel for channels last and rows of `ow` outputs; None where the window is too wide for it."""
    room = REGISTERS.get(isa.name, 16) - 2 - window[1]  # beside the taps of a row and the input
    pixels = pixels_of(ow, window[1], strides[1], dilations[1], room)
    return DepthwiseLastKernel(Tile(isa, dtype, pixels, 1), window, strides, dilations, epilogue) if pixels else None


def select_attention(
    isa: Isa,
    rows: DimLike,
    width: DimLike,
    scale: float,
    mask: Mask = "none",
    causal: bool = False,
    empty: Literal["nan", "zero"] = "nan",
) -> AttentionKernel | None:
    """The kernel for softmax(scale · Q Kᵀ + mask) V, f32; None where a row of Q or V is too wide or of unknown width.

    rows: queries that meet the same keys, queries × query heads of a group; width: the wider of Q's rows and V's.
    """
    if not Dim.of(width).is_const or not 0 < int(Dim.of(width)) <= WIDEST:
        return None
    tile = Tile(isa, f32, isa.rows, isa.vectors)
    heights = heights_of(rows, tile.rows) if Dim.of(rows).is_const else (*range(2, tile.rows, 2), tile.rows)
    return AttentionKernel(tile, int(Dim.of(width)), scale, mask, causal, empty, heights)


def select_matrix_attention(
    isa: Isa, precision: str, plain: AttentionKernel, rows: DimLike, keys: DimLike
) -> AmxAttentionKernel | None:
    """The kernel from bf16 terms for what `plain` computes; None where that is as fast.

    precision: as `select_matrix_gemm`'s.  rows, keys: of one key-value head; unknown ones count as large.
    """
    terms, m, n = bf16_terms.TERMS[precision], known(rows), known(keys)
    unit = unit_of(isa, terms)
    if unit is None or plain.tile.dtype != f32 or not tiles_fit(Dim.of(rows), Dim.of(plain.width)):
        return None
    wide, blocks = -(-plain.width // bf16_terms.CHUNK) * bf16_terms.CHUNK, -(-m // (2 * bf16_terms.ROWS))
    covered = blocks * 2 * bf16_terms.ROWS * -(-n // bf16_terms.CHUNK) * bf16_terms.CHUNK
    tiles = 2 * covered * wide * len(bf16_terms.ORDER[terms]) / SPLIT_PRODUCTS[unit, terms] + covered * SPLITTING[terms]
    tiles += 2 * n * wide * 2 * SPLITTING[terms] + CONFIGURE + BLOCK * (covered + blocks * 32 * wide) / 1024
    if n < FEW_KEYS or tiles >= 2 * m * n * plain.width / FMA + 2 * n * plain.width * PACKING:
        return None
    return AmxAttentionKernel(plain, terms, unit)


def select_recurrent(
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
    """The kernel for the steps of an LSTM or a GRU over `batch` sequences; see `RecurrentKernel` for the operands."""
    gates = GATES[cell]
    rows = max(1, (REGISTERS.get(isa.name, 16) - 1 - gates) // gates)
    return RecurrentKernel(Tile(isa, dtype, rows, 1), cell, direction, heights_of(batch, rows), h, c, lengths, bias)


def select_pool(
    isa: Isa,
    dtype: DType,
    mode: Mode,
    window: tuple[int, int],
    strides: tuple[int, int],
    dilations: tuple[int, int] = (1, 1),
    counted: Counted = "inside",
) -> PoolKernel | None:
    """The kernel for the largest element or the mean of every window, NCHW; None where a window is too wide for it."""
    tile = Tile(isa, dtype, 1, 1)
    return (
        PoolKernel(tile, mode, window, strides, dilations, counted) if pool_fits(window, strides, dilations) else None
    )


def select_global_pool(isa: Isa, dtype: DType, mode: Mode) -> GlobalPoolKernel:
    """The kernel for the largest element or the mean of whole planes."""
    return GlobalPoolKernel(Tile(isa, dtype, 1, 1), mode)


def select_pool_last(
    isa: Isa,
    dtype: DType,
    mode: Mode,
    window: tuple[int, int],
    strides: tuple[int, int],
    dilations: tuple[int, int],
    counted: Counted,
    epilogue: Epilogue,
    ow: DimLike,
) -> PoolLastKernel | None:
    """The kernel for channels last and rows of `ow` outputs; None where the window is too wide for it."""
    pixels = pixels_of(ow, window[1], strides[1], dilations[1], REGISTERS.get(isa.name, 16) - 4)
    tile = Tile(isa, dtype, pixels, 1)
    return PoolLastKernel(tile, mode, window, strides, dilations, counted, epilogue) if pixels else None


def select_global_pool_last(isa: Isa, dtype: DType, mode: Mode, epilogue: Epilogue) -> GlobalPoolLastKernel:
    """The kernel for the largest element or the mean of all pixels of an image, channels last."""
    return GlobalPoolLastKernel(Tile(isa, dtype, 4, 4 if isa.name in REGISTERS else 2), mode, epilogue)


def select_transpose(isa: Isa, dtype: DType) -> TransposeKernel:
    """The kernel for a copy that reorders axes; see `irc.kernels.movement.transpose.transposed` for its sizes."""
    return TransposeKernel(Tile(isa, dtype, 1, 1))


def select_small_conv(
    isa: Isa, dtype: DType, oc: DimLike, pixels: DimLike, epilogue: Epilogue
) -> SmallConvKernel | None:
    """The kernel with pixels as rows, for `oc` output channels of each group; None where `select_conv`'s is better."""
    if not Dim.of(pixels).is_const or not 0 < int(Dim.of(pixels)) <= PIXELS:
        return None
    tile, other = choose(isa, dtype, pixels, oc), choose(isa, dtype, oc, pixels)
    if _cycles(tile, isa, pixels, oc) >= 0.9 * _cycles(other, isa, oc, pixels):
        return None
    return SmallConvKernel(tile, epilogue, heights_of(pixels, tile.rows), _narrow(tile, oc))


def _cycles(tile: Tile, isa: Isa, m: DimLike, n: DimLike) -> float:
    row = next(r for r in ROWS if (r.isa, r.rows, r.vectors) == (isa.name, tile.rows, tile.vectors))
    return cost(row, isa, tile.dtype, known(m), known(n))


REGISTERS = {"avx512": 32, "neon": 32}  # of vectors; 16 elsewhere
SEGMENTS = 4  # rows of output pixels in one tile, at most
DIRECT_WIDTHS = (2, 3, 4, 6, 1)  # of a tile of `select_direct_conv`, in vectors: the first of about equals is taken


def select_direct_conv(
    isa: Isa,
    dtype: DType,
    oc: int,
    ic: int,
    window: tuple[int, int],
    strides: tuple[int, int],
    dilations: tuple[int, int],
    oh: DimLike,
    ow: DimLike,
    epilogue: Epilogue,
    widths_allowed: Sequence[int] = DIRECT_WIDTHS,
) -> DirectConvKernel | None:
    """The kernel for NHWC tensors, `oc` output and `ic` input channels of each group; None where it does not fit.

    oh, ow: the output's; a kernel that is selected for a known width must be called with it.  widths_allowed: of the
    register tile, in vectors.
    """
    best: tuple[float, DirectConvKernel] | None = None
    lanes = isa.lanes(dtype)
    for vectors in widths_allowed:
        reach = (REGISTERS.get(isa.name, 16) - 1 - vectors) // vectors
        if reach < 1 or -(-oc // lanes) < vectors:
            continue
        heights = heights_of(ow, reach)
        whole = Dim.of(ow).is_const and known(ow) <= reach  # a row of the output is one segment of a tile
        segments = max(1, min(reach // heights[-1], known(oh), SEGMENTS)) if whole else 1
        tile, block = Tile(isa, dtype, segments * heights[-1], vectors), block_of(ic)
        if not direct_fits(tile, segments, window, strides, dilations, block):
            continue
        widths = _widths(oc, lanes, vectors)
        cycles = _direct_cycles(known(ow), reach, segments, widths)
        if best is None or cycles < 0.99 * best[0]:
            have = tuple(sorted(widths))
            kernel = DirectConvKernel(tile, segments, window, strides, dilations, block, epilogue, heights, have)
            best = (cycles, kernel)
    return best[1] if best else None


def _widths(columns: int, lanes: int, vectors: int) -> dict[int, int]:
    """How many panels of so many vectors cover the columns; the last one is as wide as it must be."""
    panels, rest = divmod(columns, lanes * vectors)
    widths = {vectors: panels} if panels else {}
    if rest:
        widths[-(-rest // lanes)] = widths.get(-(-rest // lanes), 0) + 1
    return widths


def _direct_cycles(width: int, reach: int, segments: int, widths: dict[int, int]) -> float:
    """Cycles for one product of every sum in a row of outputs: multiply-adds, loads, latency, weights from a cache."""
    tiles = -(-width // reach)
    heights = {width // tiles: tiles - width % tiles, width // tiles + 1: width % tiles}
    return sum(
        panels * count * max(rows * vectors / 2, (rows + vectors) / 2, 4.0, vectors * 2.0) / segments
        for vectors, panels in widths.items()
        for rows, count in ((segments * height, count) for height, count in heights.items())
    )


def select_winograd(
    isa: Isa, dtype: DType, oc: DimLike, ic: int, oh: DimLike, ow: DimLike, epilogue: Epilogue
) -> WinogradKernel | None:
    """The kernel for windows of 3 × 3 at every pixel, NHWC, one group; None where `select_direct_conv`'s is better.

    With few channels the transforms cost more than they save; its weights are 16 / 9 as many, so that there must be
    enough pixels to make up for reading them.  Symbolic sizes count as `expected`.
    """
    height, width = Dim.of(oh), Dim.of(ow)
    vectors = min(isa.vectors, -(-known(oc) // isa.lanes(dtype)))
    if ic < 32 or known(oc) < 16 or expected(height) * expected(width) < 128:
        return None
    rows = heights_of(height.ceildiv(2) * width.ceildiv(2), isa.rows)[-1]
    return WinogradKernel(Tile(isa, dtype, rows, vectors), epilogue)


def select_matrix_winograd(
    isa: Isa, precision: str, dtype: DType, oc: int, ic: int, oh: DimLike, ow: DimLike, epilogue: Epilogue
) -> DotWinogradKernel | None:
    """The kernel from bf16 terms for windows of 3 × 3 at every pixel, NHWC, one group; None where
    `select_matrix_conv`'s is better.  precision: as `select_matrix_gemm`'s."""
    height, width, terms = Dim.of(oh), Dim.of(ow), bf16_terms.TERMS[precision]
    if unit_of(isa, terms) != "dot" or dtype != f32 or not (height.is_const and width.is_const):
        return None
    if ic < 32 or oc < 32 or int(height) * int(width) < 128 or ic > DEEPEST_DOTS * bf16_terms.CHUNK:
        return None
    return DotWinogradKernel(epilogue, widths_of(oc))
