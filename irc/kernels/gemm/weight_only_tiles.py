"""Matrix product with weights of 8 bits or fewer on AMX: C = epilogue(A · ((Q - Z) · S)), f32.

Q - Z is exact in one bf16 term, so that only A is split: three products for three terms ("highest"), where floats take
six.  The sums of a piece, some chunks of one block, are multiplied by the scales of their columns and added up in f32.

B is packed in panels of 64 columns, [n / 64][piece]: scales, zero points if each block has its own, then for each
chunk of 32 k words of 16 bits, in the order of tiles: [16 columns][some pairs of k][column][2], a pair's vector of bf16
out of each number of the words.  Between products on tiles vectors widen the numbers of the next piece, and scale the
sums of the one before; both stand in a task's own memory.

Few rows take about as long as sixteen.  Rows with an infinity, a NaN or a number so large
that sums of it might overflow are computed as defined.  Rows are done 64 at a time, for which A is split once; threads
split the panels, never k: results do not depend on them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import cached_property
from typing import Self

import numpy as np

from irc.ir.dim import Dim
from irc.ir.types import f32, u8
from irc.kernels.core.base import Array, Packed
from irc.kernels.core.costs import CONFIGURE, NUMBERS_TILE, SPLITTING, SUMS_SCALED, WIDENED, WIDENED_BYTES, costs_of
from irc.kernels.core.isa import Isa
from irc.kernels.core.problem import likely
from irc.kernels.core.registry import kernel
from irc.kernels.core.text import Part, fill, piece, symbol
from irc.kernels.core.tile import Tile, epilogue_of, names, prelude
from irc.kernels.core.workspace import DIVIDE
from irc.kernels.gemm import weight_only_tiles_text as text
from irc.kernels.gemm.narrow import FAR, STORE, NarrowGemmKernel
from irc.kernels.gemm.problem import GemmProblem
from irc.kernels.split_bf16 import bf16_terms
from irc.kernels.split_bf16.bf16_terms import CHUNK, TILE_ROWS

PANEL = 64
"""Columns of a panel: four tiles of sums."""
ROWS = 64
"""Rows for which A is split, and B widened, at once, at most."""
STRIPE = 1536 << 10
"""Bytes of the terms of A for these rows, unless they are one tile: the second cache has room for B besides."""
MOST_CHUNKS = 4
"""Chunks of a piece: two pieces of bf16, 4 KiB a chunk, and sums of rows are in the first cache."""
WORD = 16
"""Bits of a word, in which numbers of one column and parity of k stand beside each other."""
WORTHWHILE = 20_000
"""Cycles of products below which one thread does them."""
SPLIT_ALONE = 1 << 15
"""Elements of A below which one thread splits them."""


@kernel
class WeightOnlyTilesGemmKernel(NarrowGemmKernel):
    """A matrix product with a constant B of few bits on AMX.

    terms: of an element of A.
    """

    terms: int = 3

    @classmethod
    def candidates(cls, problem: GemmProblem, isa: Isa) -> Iterator[Self]:
        narrow = problem.narrow
        if narrow is None or narrow.floats or narrow.block % CHUNK or problem.dtype != f32 or problem.matrices != 1:
            return
        if problem.count == 1 and isa.tiles:
            tile = Tile(isa, f32, ROWS, PANEL // TILE_ROWS)
            yield cls(tile, problem.epilogue, narrow, (), bf16_terms.TERMS[problem.precision])

    def cycles(self, problem: GemmProblem) -> float:
        """Estimate the cycles; of an unknown number of rows those of one."""
        n, k, m = likely(problem.n), likely(problem.k), int(problem.m) if problem.m.is_const else 1
        panels, chunks = -(-n // PANEL), -(-k // CHUNK)
        widened = WIDENED_BYTES if self.narrow.bits == 8 else WIDENED
        cycles = 0.0
        for rows in self._stripes(m, k):
            tiles = -(-rows // TILE_ROWS)
            each = max(tiles * self.terms * 4 * NUMBERS_TILE, widened) + rows * SUMS_SCALED / self._chunks
            cycles += panels * chunks * each + rows * k * SPLITTING[self.terms]
        waiting = self.packed_bytes(n, k) / costs_of(self.tile.isa).stream if problem.streamed else 0.0
        return CONFIGURE["amx"] + max(cycles, waiting)

    @property
    def label(self) -> str:
        return f"weights of {self.narrow.bits} bits on AMX"

    def scratch(self, problem: GemmProblem) -> Dim:
        """Count the bytes of the terms of A and of a mark for each row."""
        stripes = self._stripes(int(problem.m), int(problem.k)) if problem.m.is_const else [ROWS]
        rows = max(map(_padded, stripes), default=0)
        return problem.k.ceildiv(CHUNK) * (CHUNK * 2 * self.terms * rows) + 4 * ROWS

    def own_bytes(self, sizes: Mapping[str, int]) -> int:
        rows = min(sizes["m"], ROWS)
        return 2 * self._chunks * CHUNK * PANEL * 2 + 2 * TILE_ROWS * PANEL * 4 + rows * PANEL * 4

    def packed(self, problem: GemmProblem) -> Packed:
        n, k = int(problem.n), int(problem.k)
        return Packed(("narrow tiles", self.narrow), u8, self.packed_bytes(n, k), lambda b: self.pack_b(b, k))

    def packed_bytes(self, n: int, k: int) -> int:
        chunks = -(-k // CHUNK)
        return -(-n // PANEL) * (-(-chunks // self._chunks) * self._head + chunks * self._chunk_bytes)

    def pack_b(self, rows: Array, k: int) -> Array:
        """Pack B as `Narrow` rows state it, [n, k + blocks (+ blocks)]: numbers, scales, zero points; flat bytes."""
        narrow, n = self.narrow, len(rows)
        blocks, chunks, panels, per = -(-k // narrow.block), -(-k // CHUNK), -(-n // PANEL), self._per
        full = np.zeros((panels * PANEL, rows.shape[1]), np.float32)
        full[:n] = rows
        numbers = np.zeros((panels * PANEL, chunks * CHUNK), np.uint16)
        numbers[:, :k] = full[:, :k]
        # [panel, column tile, column, chunk, vector, number of the word, parity]
        words = numbers.reshape(panels, 4, TILE_ROWS, chunks, TILE_ROWS // per, per, 2)
        shifts = (np.arange(per, dtype=np.uint16) * np.uint16(narrow.bits))[:, None]
        joined = np.bitwise_or.reduce(words << shifts, axis=5).transpose(0, 3, 1, 4, 2, 5)
        body = np.ascontiguousarray(joined.astype("<u2")).view(np.uint8).reshape(panels, chunks, -1)
        scales = full[:, k : k + blocks].astype("<f4").reshape(panels, PANEL, blocks)
        zeros = full[:, k + blocks :].astype(np.uint8).reshape(panels, PANEL, -1)
        parts: list[Array] = []
        for first in range(0, chunks, self._chunks):
            block = first * CHUNK // narrow.block
            parts.append(np.ascontiguousarray(scales[:, :, block]).view(np.uint8))
            if narrow.zeros:
                parts.append(zeros[:, :, block])
            parts.append(body[:, first : first + self._chunks].reshape(panels, -1))
        return np.concatenate(parts, 1).reshape(-1)

    def unpack_b(self, packed: Array, n: int, k: int) -> Array:
        """Unpack B[k, n] as floats."""
        chunks, panels, per, head = -(-k // CHUNK), -(-n // PANEL), self._per, self._head
        most = np.uint16(self.narrow.most)
        whole = np.ascontiguousarray(packed[: self.packed_bytes(n, k)]).reshape(panels, -1)
        made = np.zeros((panels, PANEL, chunks * CHUNK), np.float32)
        shifts = (np.arange(per, dtype=np.uint16) * np.uint16(self.narrow.bits))[:, None]
        at = 0
        for first in range(0, chunks, self._chunks):
            some = min(self._chunks, chunks - first)
            scales = np.ascontiguousarray(whole[:, at : at + PANEL * 4]).view("<f4")
            zeros = whole[:, at + PANEL * 4 : at + head].astype(np.float32) if self.narrow.zeros else self.narrow.middle
            body = np.ascontiguousarray(whole[:, at + head : at + head + some * self._chunk_bytes]).view("<u2")
            words = body.reshape(panels, some, 4, TILE_ROWS // per, TILE_ROWS, 1, 2) >> shifts & most
            flat = words.transpose(0, 2, 4, 1, 3, 5, 6).reshape(panels, PANEL, some * CHUNK).astype(np.float32)
            less = np.reshape(zeros, (panels, PANEL, 1)) if self.narrow.zeros else zeros
            made[:, :, first * CHUNK : (first + some) * CHUNK] = (flat - less) * scales[..., None]
            at += head + some * self._chunk_bytes
        return made.reshape(panels * PANEL, -1)[:n, :k].T

    @cached_property
    def symbol(self) -> str:
        n = self.narrow
        kind = f"weights{n.bits}_{n.block}{'z' if n.zeros else ''}_amx"
        return symbol(kind, self.terms, self.epilogue.key())

    @property
    def pointers(self) -> tuple[tuple[str, str], ...]:
        read = ("a", "const float *"), ("b", "const unsigned char *"), *self.epilogue.pointers("float")
        return (*read, ("c", "float *"), ("scratch", "uint16_t *"))

    @property
    def features(self) -> frozenset[str]:
        return bf16_terms.FEATURES["amx"]

    def parts(self) -> list[Part]:
        narrow, t = self.narrow, self.terms
        numbers = f"irc_numbers{narrow.bits}{'z' if narrow.zeros else ''}"
        given = names(self.tile) | {
            "S": self.symbol,
            "N": numbers,
            "T": t,
            "bits": narrow.bits,
            "per": self._per,
            "most": narrow.most,
            "middle": narrow.middle,
            "head": self._head,
            "chunks": self._chunks,
            "chunk_bytes": self._chunk_bytes,
            "far": FAR,
            "zero_at": f"b[{PANEL * 4} + col]" if narrow.zeros else f"{narrow.middle}.0f",
            "worthwhile": WORTHWHILE,
            "split_alone": SPLIT_ALONE,
            "stripe": STRIPE,
            "tile_cycles": round(4 * t * NUMBERS_TILE),
            "widened_cycles": round(WIDENED),
            "slot_starts": self.slot_starts(),
        }
        less = text.LESS_OWN if narrow.zeros else text.LESS_MIDDLE if narrow.bits == 8 else ""
        widen = text.WIDEN_BYTES if narrow.bits == 8 else text.WIDEN_DIFFERENCE if narrow.zeros else text.WIDEN_FEW
        entries = [i - 32 * (i > 15) if narrow.zeros else i % (narrow.most + 1) - narrow.middle for i in range(32)]
        given["table"] = ", ".join(f"0x{_bf16(x):04x}" for x in entries)
        given["zero"] = fill(less, **given)
        given["widened"] = fill(widen, **given)
        return [
            prelude(self.tile, self.epilogue),
            DIVIDE,
            bf16_terms.TYPES,
            bf16_terms.head("amx"),
            bf16_terms.split(t),
            piece("IRC_NUMBERS_$N", text.NUMBERS, **given),
            text.SCALING,
            piece("IRC_NUMBERS_PRODUCTS_${N}_$T", text.PRODUCTS, **given, body="\n".join(self._products(numbers))),
            epilogue_of(self.symbol, self.tile, self.epilogue),
            fill(STORE, **given),
            fill(text.SPLIT, **given),
            fill(text.PART, **given),
            fill(text.ENTRY, **given, **self.interface),
        ]

    def _products(self, numbers: str) -> Iterator[str]:
        """Print the products of a chunk, and what vectors do between them; B's tiles are loaded once."""
        held: list[int | None] = [None, None]
        for half in range(2):
            for w in range(2):
                yield f"        _tile_loadd({6 + w}, b + {512 * (2 * half + w)}, 64);"
            for term in range(self.terms) if half == 0 else reversed(range(self.terms)):
                place = 4 + term % 2
                if held[term % 2] != term:
                    yield f"        _tile_loadd({place}, a + {term} * height * 32, 64);"
                held[term % 2] = term
                for w in range(2):
                    yield f"        _tile_dpbf16ps({2 * half + w}, {place}, {6 + w});"
            yield f"        {numbers}_some(numbers, widened);"
            yield "        irc_scaling_some(scaling, scaled);"

    @property
    def summary(self) -> str:
        n = self.narrow
        each = "a scale and a zero point" if n.zeros else "a scale"
        return f"C = epilogue(A B) on AMX, weights of {n.bits} bits, {each} for each {n.block} of a column."

    def _stripes(self, m: int, k: int) -> list[int]:
        """Cut rows into as few stripes as there must be, of about equal heights."""
        held = STRIPE // (-(-k // CHUNK) * CHUNK * 2 * self.terms) // TILE_ROWS * TILE_ROWS
        count = -(-m // max(TILE_ROWS, min(ROWS, held)))
        each = -(-m // count) if count else 1
        return [min(each, m - first) for first in range(0, m, each)]

    @property
    def _chunks(self) -> int:
        """The chunks of a piece."""
        return next(c for c in range(MOST_CHUNKS, 0, -1) if self.narrow.block // CHUNK % c == 0)

    @property
    def _per(self) -> int:
        """The numbers of a word."""
        return WORD // self.narrow.bits

    @property
    def _head(self) -> int:
        """The bytes of a piece in front of its words."""
        return PANEL * (5 if self.narrow.zeros else 4)

    @property
    def _chunk_bytes(self) -> int:
        return CHUNK * PANEL * self.narrow.bits // 8


def _padded(rows: int) -> int:
    """Count the rows of tiles of equal height."""
    tiles = -(-rows // TILE_ROWS)
    return tiles * -(-rows // tiles)


def _bf16(x: int) -> int:
    return int(np.float32(x).view(np.uint32)) >> 16
