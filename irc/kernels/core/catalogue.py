"""The catalogue: selectors of the kernels that are not found by the problems that they solve."""

from __future__ import annotations

from typing import Literal

from irc.ir.dim import Dim, DimLike
from irc.ir.types import DType, f32
from irc.kernels.attention.split_bf16 import FEW_KEYS, AmxAttentionKernel, fits as tiles_fit
from irc.kernels.attention.vector import WIDEST, AttentionKernel, Mask
from irc.kernels.core.costs import BLOCK, CONFIGURE, SPLIT_PRODUCTS, SPLITTING, unit_of
from irc.kernels.core.epilogue import Epilogue
from irc.kernels.core.isa import Isa
from irc.kernels.core.tile import Tile, heights_of
from irc.kernels.movement.transpose import TransposeKernel
from irc.kernels.pool.nchw import Counted, GlobalPoolKernel, Mode, PoolKernel, fits as pool_fits
from irc.kernels.pool.nhwc import GlobalPoolLastKernel, PoolLastKernel
from irc.kernels.recurrent.lstm_gru import GATES, Cell, Direction, RecurrentKernel
from irc.kernels.split_bf16 import bf16_terms
from irc.kernels.vector.pixels import pixels_of

UNKNOWN = 4096  # what a symbolic size is taken for


def known(size: DimLike) -> int:
    """The size, or what an unknown one is taken for."""
    dim = Dim.of(size)
    return int(dim) if dim.is_const else UNKNOWN


FMA = 27.0  # products a cycle of `select_gemm`'s kernels with 512-bit vectors: 85 % of the peak
PACKING = 0.25  # the same for `select_gemm`'s A


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


REGISTERS = {"avx512": 32, "neon": 32}  # of vectors; 16 elsewhere
