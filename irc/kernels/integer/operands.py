"""Matrix products of two operands of bytes, neither of which is constant, in 32-bit integers.

The sum of (A - za) (B - zb) is that of A B, less za times the sum of the column of B, less zb times the sum of the row
of A, plus k za zb.  B is packed in panels of columns when it is called, neighbours in k beside each other: four signed
bytes where the processor multiplies fours (VNNI), to which bytes of the other sign are shifted with their zero point;
else two words, of which the zero point is taken right away.  What the sums of a column begin with stands in front of
its panel; what those of a row begin with is added up where B has a zero point.  No product saturates.

A is read where it stands if it can be: unsigned bytes whose rows are whole fours.  Else its rows are copied.  Threads
divide the packing and copying, then tiles of rows and panels.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Self

import numpy as np

from irc.ir.dim import Dim, product
from irc.ir.types import DType, f32
from irc.kernels.core.base import Array, Sizes
from irc.kernels.core.epilogue import Epilogue
from irc.kernels.core.isa import C_NAMES, Isa
from irc.kernels.core.problem import likely
from irc.kernels.core.reference import apply
from irc.kernels.core.registry import kernel
from irc.kernels.core.text import Part, fill, piece, symbol, tile_body
from irc.kernels.core.tile import Tile
from irc.kernels.gemm.problem import matrices, sizes_of, slots_of
from irc.kernels.gemm.tiled import slot_starts
from irc.kernels.integer import convolution, operands_text
from irc.kernels.integer.convolution import TASKS, WORTHWHILE
from irc.kernels.integer.problem import BYTES, SETS, STEP, IntegerGemmProblem, Unit
from irc.kernels.integer.results import FINISH, SumsOfBytes
from irc.kernels.integer.tile import BytesTile
from irc.kernels.integer.vectors import FOURS

TILES = {**convolution.TILES, ("avx2", "pairs"): ((4, 2), (6, 1))}
"""Rows and vectors of accumulators, by instruction set and unit; twelve words of AVX2 took 1.2 to 1.4 times as long."""
PANELS, ROWS = 4, 8
"""Panels and tiles of rows in a task, at most."""
PACKED, COPIED = 0.15, 0.06
"""Cycles to pack an element of B, to copy one of A."""


@dataclass(frozen=True)
class OperandsTile(BytesTile):
    """The register tile of two operands: rows of A a stride apart, and what their sums begin with."""

    @property
    def name(self) -> str:
        return f"irc_operands_{self.unit}_{self.isa.vector * 8}_{self.rows}x{self.vectors}"

    @property
    def names(self) -> dict[str, Any]:
        return super().names | {"add": f"{self.prefix}_add_epi32"}

    def bodies(self) -> Iterator[Part]:
        yield tile_body(self.name, operands_text.TILE, **self.names)
        for r in range(1, self.rows + 1):
            yield piece("IRC_TILE_${tile}_$R", operands_text.INSTANCE, **self.names, R=r)


@kernel
class OperandsOfBytesKernel(SumsOfBytes[IntegerGemmProblem]):
    """A generated product of two matrices of bytes; signs and zero points are those of A and of B."""

    isa: Isa
    unit: Unit
    rows: int
    vectors: int
    signed: tuple[bool, bool]
    zeroed: tuple[bool, bool]
    copied: bool
    stored: DType
    fits: bool
    epilogue: Epilogue

    problem = IntegerGemmProblem

    @classmethod
    def candidates(cls, problem: IntegerGemmProblem, isa: Isa) -> Iterator[Self]:
        if isa.name not in SETS:
            return
        unit: Unit = "fours" if isa.fours else "pairs"
        whole = problem.a[3] == 1 and problem.k.is_const and int(problem.k) % STEP[unit] == 0
        copied = unit == "pairs" or problem.signed[0] or not whole
        given = (problem.signed, problem.zeroed, copied, problem.stored, problem.rounding.fits, problem.epilogue)
        for rows, vectors in TILES[isa.name, unit]:
            yield cls(isa, unit, rows, vectors, *given)

    def cycles(self, problem: IntegerGemmProblem) -> float:
        """Estimate products of vectors, two loads of them a cycle, what tiles cost besides, and packing."""
        m, n, k, t = likely(problem.m), likely(problem.n), likely(problem.k), self.tile
        tiles, panels, groups = -(-m // t.rows), -(-n // t.columns), -(-k // STEP[self.unit])
        rows = m / max(tiles, 1)
        products = rows * t.vectors * (1 if self.unit == "fours" else 2)
        each = max(products / self.isa.fma, (rows + t.vectors) / 2, 4 if rows * t.vectors < 8 else 0)
        finish = rows * -(-n // (panels * t.lanes)) * FINISH[self.stored]
        tile = groups * each + finish + 2 * rows * t.vectors + 20
        ready = panels * t.columns * k * PACKED + (m * k * COPIED if self.copied else 0)
        return likely(problem.count) * (tiles * panels * tile + ready)

    @property
    def tile(self) -> OperandsTile:
        return OperandsTile(self.isa, self.unit, self.rows, self.vectors)

    @property
    def label(self) -> str:
        return f"operands {self.rows}x{self.tile.columns} {self.unit}"

    # ------------------------------------------------------------------------------- call
    def arguments_for(self, problem: IntegerGemmProblem) -> dict[str, Dim]:
        zero = {"y_zero": Dim.of(problem.rounding.zero)} if self.stored in BYTES else {}
        return problem.arguments(Dim.of(0)) | zero

    def scratch(self, problem: IntegerGemmProblem) -> Dim:
        groups = problem.k.ceildiv(STEP[self.unit])
        packed = problem.n.ceildiv(self.tile.columns) * self.tile.columns * 4 * (groups + 1)
        return problem.count * (packed + problem.m * (4 + (groups * 4 if self.copied else 0)))

    def compute(self, reads: Sequence[Array], writes: Sequence[Array], sizes: Mapping[str, int]) -> None:
        m, n, k = sizes["m"], sizes["n"], sizes["k"]
        a_zero = int(reads[2][0]) if self.zeroed[0] else 0
        b_zero = int(reads[2 + self.zeroed[0]][0]) if self.zeroed[1] else 0
        a = matrices(reads[0], (m, k), (sizes["a_row"], sizes["a_col"]), sizes, "a").astype(np.int64) - a_zero
        b = matrices(reads[1], (k, n), (sizes["b_row"], sizes["b_col"]), sizes).astype(np.int64) - b_zero
        sums = np.matmul(a, b).astype(np.int32).astype(self.epilogue.dtype.numpy)
        found = apply(self.epilogue, sums, slots_of(self.epilogue, reads[2 + sum(self.zeroed) :], sizes))
        matrices(writes[0], (m, n), (sizes["c_row"], 1), sizes, "c")[...] = self.rounded(found, sizes)

    # ---------------------------------------------------------------------------------- C
    @cached_property
    def symbol(self) -> str:
        signs = "".join("s" if s else "u" for s in self.signed)
        words = (self.isa.name, self.unit, f"{self.rows}x{self.tile.columns}", signs, self.stored.name)
        return symbol("bytes_operands", *words, f"{self.key}{self.zeroed}{self.copied}")

    @property
    def pointers(self) -> tuple[tuple[str, str], ...]:
        kinds = ["const int8_t *" if signed else "const uint8_t *" for signed in self.signed]
        names = [n for n, zeroed in zip(("a_zero", "b_zero"), self.zeroed, strict=True) if zeroed]
        read = (("a", kinds[0]), ("b", kinds[1]), *((n, "const int32_t *") for n in names))
        return (*read, *self.epilogue.pointers("float"), ("c", f"{C_NAMES[self.stored]} *"), ("scratch", "uint8_t *"))

    @property
    def sizes(self) -> tuple[str, ...]:
        return (*sizes_of(self.epilogue, False), *(("y_zero",) if self.stored in BYTES else ()))

    def flops(self, sizes: Sizes) -> Dim:
        return 2 * product(sizes[n] for n in ("batch0", "batch1", "m", "n", "k"))

    @property
    def features(self) -> frozenset[str]:
        return self.tile.features

    @property
    def summary(self) -> str:
        where = "copied" if self.copied else "read in place"
        return f"C = epilogue((A - za) (B - zb)) of bytes, tiles of {self.rows} x {self.tile.columns}, A {where}."

    def parts(self) -> list[Part]:
        t, bits, fours = self.tile, self.isa.vector * 8, self.unit == "fours"
        whole = Tile(self.isa, f32, self.rows, self.vectors)
        kinds = ["int8_t" if signed else "uint8_t" for signed in self.signed]
        given: dict[str, Any] = t.names | self.given(whole)
        given |= {"AB": kinds[0], "BB": kinds[1], "W": "int8_t" if fours else "int16_t"}
        given |= {"P": PANELS, "Q": ROWS, "least": TASKS, "worthwhile": f"{WORTHWHILE:.0f}.0"}
        given |= {"many": 16 if fours else 8, "long": 16 if fours else 8, "table": t.table(), "body": t.name}
        given |= {"slot_starts": slot_starts(self.epilogue), **self._signs(fours)}
        given |= {"fours": operands_text.FOURS_OF_COLUMNS}
        given["copy"] = fill(operands_text.COPY, **given) if self.copied else ""
        given["sum"] = fill(operands_text.SUM, **given, summed="to" if self.copied else "from") if fours else ""
        given["prepares"] = "1" if self.copied else "w.b_zero"
        given["head"] = fill(operands_text.HEAD_OF_FOURS if fours else operands_text.HEAD_OF_PAIRS, **given)
        layout = operands_text.COPIED + (operands_text.STARTS if fours else "")
        given["layout"] = fill(layout if self.copied else operands_text.IN_PLACE, **given)
        ends = self.given(whole)
        given["rows"] = self.whole_rows(whole, ends)
        given["whole"] = fill(operands_text.WHOLE, **given) if self.in_registers else ""
        given["if_whole"] = fill(operands_text.IF_WHOLE, **given) if self.in_registers else ""
        return [
            *self.shared(whole),
            *([FOURS[bits]] if fours else []),
            *t.bodies(),
            fill(operands_text.WORK, **given),
            *self.ends(whole, ends),
            fill(operands_text.TURN_FOURS if fours else operands_text.TURN_PAIRS, **given),
            fill(operands_text.PACK, **given),
            fill(operands_text.ROWS, **given),
            fill(operands_text.BODY, **given),
        ]

    def _signs(self, fours: bool) -> dict[str, str]:
        """Print what makes numbers of the kind that the instruction takes of bytes, and their zero points."""
        zeros = [f"*g->{n}_zero" if zeroed else "0" for n, zeroed in zip("ab", self.zeroed, strict=True)]
        a_signed, b_signed = self.signed
        if not fours:
            changes = {"a_change": " - w->a_zero", "b_change": " - w->b_zero"}
            return {
                "a_zero": zeros[0],
                "b_zero": zeros[1],
                "words": f"_mm_cvtep{'i' if b_signed else 'u'}8_epi16",
            } | changes
        return {
            "a_zero": zeros[0] + (" + 128" if a_signed else ""),
            "b_zero": zeros[1] + ("" if b_signed else " - 128"),
            "a_change": " ^ 0x80" if a_signed else "",
            "b_change": "" if b_signed else " ^ 0x80",
            "flip": "" if b_signed else "_mm_xor_si128(",
            "flipped": "" if b_signed else ", _mm_set1_epi8((char)0x80))",
        }
