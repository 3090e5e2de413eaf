"""Convolutions and matrix products of bytes on AMX, with the channels last, in 32-bit integers.

Tiles of 16 pixels × 64 bytes times tiles of 64 bytes × 16 outputs: x of either sign by signed weights, so that nothing
is turned.  Four accumulators are two row tiles × two column tiles.  A chunk is 64 neighbours of a row of the window, or
of a group's channels; what stands beyond them meets weights of zero.  In front of a panel of 32 outputs stand the sums
of their weights, which the zero point is multiplied by, and what else is added to theirs.

Where the input stands without padding, or is a row, tiles load it where it is.  Else it is copied once with zero points
around it, so that pixels of windows are everywhere equally far apart: the lines of a stride's phases stand one after
the other, and a row tile runs on from line to line, the padding between them among its rows.

While a block is multiplied, the rows of the one before become results, and weights of the next panel come nearer.
Threads split the copy, then blocks of pixels and panels of outputs.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from typing import Any, Self

import numpy as np

from irc.ir.dim import Dim
from irc.ir.types import DType, f32, i8, i32
from irc.kernels.core.base import Array, Packed
from irc.kernels.core.costs import BYTE_BLOCK, BYTE_CALL, BYTE_ROW, BYTE_TILE, BYTES_COPIED, BYTES_COPIED_ALONE
from irc.kernels.core.epilogue import Epilogue
from irc.kernels.core.isa import Isa
from irc.kernels.core.problem import Pair, likely_extent
from irc.kernels.core.registry import kernel
from irc.kernels.core.text import Part, Piece, fill, piece, symbol
from irc.kernels.core.tile import Tile
from irc.kernels.core.workspace import DIVIDE
from irc.kernels.integer import matrix_unit_text
from irc.kernels.integer.problem import BYTES, IntegerConvProblem, joined
from irc.kernels.integer.results import FINISH
from irc.kernels.integer.windows import WindowsOfBytes
from irc.kernels.split_bf16.bf16_terms import PANEL, TILE_ROWS, TILES

CHUNK = 64
"""Neighbours that one instruction adds up."""
TASKS = 8
"""Tasks for several threads, at least."""
WORTHWHILE = 24_000
"""Cycles of all blocks, about, below which one thread does them."""
HEAVY = 4
"""How many times the bytes of the input and of results those of weights are, above which threads divide these."""
MANY = 160
"""Rows from which on products take as long as it takes every thread to read all weights, so that it divides rows."""
COPIED_ALONE = 32 << 10
"""Bytes below which one thread copies the input."""
STRIP = 1 << 20
"""Bytes of the input and of results in a task, about: all panels of weights meet them in the second cache."""
OWN = 8192 + 2048 + 64
"""Bytes of a workspace: sums of two blocks, last chunks of two row tiles, and numbers of rows."""


@kernel
class MatrixUnitConvKernel(WindowsOfBytes):
    """A generated convolution of bytes on AMX."""

    isa: Isa
    signed: bool
    zeroed: bool
    copied: bool
    stored: DType
    fits: bool
    epilogue: Epilogue

    @classmethod
    def candidates(cls, problem: IntegerConvProblem, isa: Isa) -> Iterator[Self]:
        if not isa.byte_tiles or problem.is_volume:
            return
        given = (problem.stored, problem.rounding.fits, problem.epilogue)
        yield cls(isa, problem.signed, problem.zeroed, _is_copied(problem), *given)

    def cycles(self, problem: IntegerConvProblem) -> float:
        """Estimate products of tiles, the rows of blocks that become results, and the copy."""
        positions, panels = self._positions(problem), -(-problem.oc // PANEL)
        tiles = -(-positions // TILE_ROWS)
        columns = -(-problem.oc // 16)
        products = tiles * columns * _chunks(problem) * BYTE_TILE + -(-tiles // 2) * panels * BYTE_BLOCK
        rows = problem.pixels * (columns * FINISH[self.stored] + panels * BYTE_ROW)
        copy = 0.0
        if self.copied:
            kw, step = problem.window[1], problem.strides[1]
            lines = 1 if problem.window[0] == 1 else problem.strides[0]
            copied = problem.images * positions * lines * (1 if kw == 1 else step)
            copy = copied * (problem.channels * BYTES_COPIED + BYTES_COPIED_ALONE * (kw == 1 and step != 1))
        return BYTE_CALL + copy + problem.images * problem.groups * (products + rows)

    def _positions(self, problem: IntegerConvProblem) -> int:
        """Estimate the pixels of an image of the result and what stands between its lines."""
        oh, ow = map(likely_extent, problem.result)
        if not self.copied or problem.window[1] == 1:
            return problem.pixels
        reach = (problem.window[1] - 1) * problem.dilations[1] // problem.strides[1]
        return (oh - 1) * (ow + reach) + ow

    @property
    def label(self) -> str:
        return "AMX"

    def scratch(self, problem: IntegerConvProblem) -> Dim:
        """Count the bytes of the chunks' places, and of the copy with what its last chunk reads beyond it."""
        table = Dim.of(-(-_chunks(problem) // 8) * 64)
        if not self.copied:
            return table
        sizes = zip(problem.result, problem.window, problem.strides, problem.dilations, strict=True)
        tall, wide = (o if k == 1 else (o - 1) * s + (k - 1) * d + s for o, k, s, d in sizes)
        return table + problem.batch * tall * wide * problem.channels + CHUNK

    def own_bytes(self, sizes: Mapping[str, int]) -> int:
        return OWN

    def packed(self, problem: IntegerConvProblem) -> Packed:
        """Describe panels of rows: for each output what is added to its sums, then its weights."""
        key = ("integer tiles", problem.groups, problem.window, problem.dilations[1] == 1)
        panels = problem.groups * -(-problem.oc // PANEL)
        elements = panels * PANEL * (8 + _chunks(problem) * CHUNK)
        window, dilations, groups = problem.window, problem.dilations, problem.groups
        return Packed(key, i8, elements, lambda rows: _pack(rows, window, dilations, groups))

    def compute(self, reads: Sequence[Array], writes: Sequence[Array], sizes: Mapping[str, int]) -> None:
        own, w = _unpack(reads[1], sizes)
        self.convolve(w, own, reads, writes, sizes)

    # ---------------------------------------------------------------------------------- C
    @cached_property
    def symbol(self) -> str:
        sign, zero, stored = self.words
        copied = "copied" if self.copied else "direct"
        return symbol("bytes_amx", sign, zero, copied, stored, self.key)

    @property
    def pointers(self) -> tuple[tuple[str, str], ...]:
        return (*self.read, ("scratch", "uint8_t *"))

    @property
    def features(self) -> frozenset[str]:
        return frozenset(("amx_tile", "amx_int8"))

    @property
    def summary(self) -> str:
        where = "of a copy with its padding" if self.copied else "where it stands"
        return f"Convolution of bytes, NHWC, {where}, on AMX, blocks of 32 pixels x {PANEL} channels."

    def parts(self) -> list[Part]:
        whole = Tile(self.isa, f32, TILE_ROWS, 2)
        given: dict[str, Any] = self.given(whole) | {
            "zero": "*g->zero" if self.zeroed else "0",
            "worthwhile": WORTHWHILE,
            "chunk_cycles": round(4 * BYTE_TILE),
            "block_cycles": round(BYTE_BLOCK + 64 * FINISH[self.stored]),
            "copied_alone": COPIED_ALONE,
            "least": TASKS,
            "heavy": HEAVY,
            "many": MANY,
            "strip": STRIP,
            "itemsize": self.stored.itemsize,
            "line": "line % w.phases * w.tall * w.row + line / w.phases * w.row" if self.copied else "line",
        }
        code = matrix_unit_text
        given["layout"] = fill(code.IN_A_COPY if self.copied else code.WHERE_IT_STANDS, **given)
        given["copy_all"] = fill(code.COPY_ALL, **given) if self.copied else ""
        variants = [(r, w) for r in (2, 1) for w in (2, 1)]
        sign = "signed" if self.signed else "unsigned"
        given["choose"] = _choice(sign, variants)
        return [
            *self.shared(whole),
            DIVIDE,
            TILES,
            code.BLOCK_TYPES,
            *(_block(sign, r, w) for r, w in variants),
            fill(code.WORK, **given),
            *([fill(code.COPY, **given)] if self.copied else []),
            self.out(whole, given),
            fill({i32: code.SUMS_ROW, f32: code.FLOATS_ROW}.get(self.stored, code.BYTES_ROW), **given),
            fill(code.PAIR_OF_BYTES if self.stored in BYTES else code.PAIR, **given),
            fill(code.STORING, **given),
            fill(code.PART, **given),
            fill(code.ENTRY, **given),
        ]


def _choice(sign: str, variants: list[tuple[int, int]]) -> str:
    """Print the call of the block that has the rows and columns that are left, the largest of the variants first."""
    lines: list[str] = []
    for rows, columns in variants:
        needed = [*(["two"] if rows == 2 else []), *(["left > 16"] if columns == 2 else [])]
        test = f"if ({' && '.join(needed)}) " if needed else ""
        lines.append(f"{'else ' if lines else ''}{test}irc_bytes_block_{sign}_{rows}x{columns}(&k, to);")
    return "\n".join(f"                {line}" for line in lines)


def _block(sign: str, rows: int, columns: int) -> Piece:
    """Print `irc_bytes_block_SIGN_RxC`."""
    sums = [(r, w, 2 * r + w) for r in range(rows) for w in range(columns)]
    product = "_tile_dpbssd" if sign == "signed" else "_tile_dpbusd"
    body: list[str] = []
    for r, w, s in sums:
        if w == 0:
            body.append(f"_tile_loadd({4 + r}, a{r}, row{r});")
        if r == 0:
            body.append(f"_tile_loadd({6 + w}, b + {1024 * w}, 64);")
        body.append(f"{product}({s}, {4 + r}, {6 + w});")
    return piece(
        "IRC_BYTES_BLOCK_${sign}_${R}x$W",
        matrix_unit_text.BLOCK,
        sign=sign,
        R=rows,
        W=columns,
        zero="".join(f"    _tile_zero({s});\n" for *_, s in sums),
        body="".join(f"        {line}\n" for line in body),
        store="".join(f"    _tile_stored({s}, sums + {r} * k->height * 32 + {16 * w}, 128);\n" for r, w, s in sums),
    )


def _is_copied(problem: IntegerConvProblem) -> bool:
    """Tell whether tiles cannot load the input where it stands: one row of a window, equally far apart everywhere."""
    kw = problem.window[1]
    if problem.is_padded or problem.window[0] != 1:
        return True
    if kw != 1 and (not joined(problem.groups, problem.dilations) or problem.x[3] != problem.ic):
        return True
    in_line = problem.result[0] == 1
    side_by_side = problem.strides == (1, 1) and kw == 1 and problem.x[2] == problem.size[1] * problem.x[3]
    return not (in_line or side_by_side)


def _chunks(problem: IntegerConvProblem) -> int:
    """Count the chunks of a sum."""
    kh, kw = problem.window
    if joined(problem.groups, problem.dilations):
        return kh * -(-kw * problem.ic // CHUNK)
    return kh * kw * -(-problem.ic // CHUNK)


def _pack(rows: Array, window: Pair, dilations: Pair, groups: int) -> Array:
    (kh, kw), outputs, oc = window, rows.shape[0], rows.shape[0] // groups
    taps = rows[:, 1:].reshape(outputs, -1, kh, kw).transpose(0, 2, 3, 1)
    if joined(groups, dilations):
        taps = taps.reshape(outputs, kh, 1, -1)
    panels, run = -(-oc // PANEL), taps.shape[-1]
    whole = np.zeros((groups, panels * PANEL, *taps.shape[1:3], -(-run // CHUNK) * CHUNK), np.int8)
    whole[:, :oc, ..., :run] = taps.reshape(groups, oc, *taps.shape[1:])
    columns = whole.reshape(groups * panels, 2, 16, -1, 16, 4)
    head = np.zeros((groups * panels, 2, PANEL), np.int32)
    head[:, 0] = columns.sum((3, 4, 5), dtype=np.int32).reshape(-1, PANEL)
    own = np.zeros((groups, panels * PANEL), np.int32)
    own[:, :oc] = rows[:, 0].reshape(groups, oc)
    head[:, 1] = own.reshape(-1, PANEL)
    body = np.ascontiguousarray(columns.transpose(0, 3, 1, 4, 2, 5)).reshape(groups * panels, -1)
    return np.concatenate([head.view(np.int8).reshape(groups * panels, -1), body], 1).reshape(-1)


def _unpack(flat: Array, sizes: Mapping[str, int]) -> tuple[Array, Array]:
    """Return what is added to the sums of each output, and the weights [outputs, channels, kh, kw]."""
    groups, oc, ic, kh, kw = (sizes[n] for n in ("groups", "oc", "ic", "kh", "kw"))
    one = groups == 1 and sizes["dilation_w"] == 1
    runs, length = (kh, kw * ic) if one else (kh * kw, ic)
    panels, chunks = -(-oc // PANEL), runs * -(-length // CHUNK)
    whole = flat[: groups * panels * PANEL * (8 + chunks * CHUNK)].reshape(groups * panels, -1)
    own = np.ascontiguousarray(whole[:, 128:256]).view(np.int32)
    body = whole[:, 256:].reshape(groups * panels, chunks, 2, 16, 16, 4).transpose(0, 2, 4, 1, 3, 5)
    taps = body.reshape(groups, panels * PANEL, runs, -1)[:, :oc, :, :length]
    return own.reshape(groups, -1)[:, :oc].reshape(-1), taps.reshape(groups * oc, kh, kw, ic).transpose(0, 3, 1, 2)
