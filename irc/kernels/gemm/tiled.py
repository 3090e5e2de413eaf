"""What matrix products in register tiles have in common: operands, packed panels of B, and what their tiles take."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Self

import numpy as np

from irc.ir.dim import Dim, DimLike, product
from irc.ir.types import DType
from irc.kernels.core.base import Array, Kernel, Packed, Sizes
from irc.kernels.core.costs import ROW_ENDED, costs_of, halving_functions, storing_cycles, tile_cycles
from irc.kernels.core.epilogue import Epilogue
from irc.kernels.core.isa import Isa
from irc.kernels.core.problem import likely
from irc.kernels.core.text import symbol
from irc.kernels.core.tile import Tile, heights_of, names
from irc.kernels.gemm.abreast import row_cycles
from irc.kernels.gemm.problem import STREAMED, GemmProblem, matrices, multiply, sizes_of

LONGEST_SUM = 256  # products added up in one accumulator: longer sums are sums of such sums, which lose less
STARTED = 20.0  # cycles to begin a tile, which short sums with a B that is not constant do not hide
EXPOSED = 0.3  # of the cycles of one row's products, what is not hidden behind waiting for a B from memory
STORED = 2  # times that a packed B which does not stay in the second cache goes to memory and back, besides its reading
SECOND_CACHES = 4  # of so many the caches are taken to hold an A that is read in place


@dataclass(frozen=True)
class TiledGemmKernel(Kernel[GemmProblem]):
    """A matrix product in register tiles, C[m, n] = epilogue(A[m, k] · B[k, n]), with up to two batch axes.

    `heights` are the tile heights it has bodies for: all up to `tile.rows`, unless the number of rows is known;
    `narrow`: it has bodies one vector wide, for the last columns.
    """

    tile: Tile
    epilogue: Epilogue
    b_constant: bool
    heights: tuple[int, ...]
    narrow: bool

    problem = GemmProblem
    reads_in_place = False  # tiles of A, which are not packed

    @classmethod
    def design(
        cls, isa: Isa, dtype: DType, m: DimLike, n: DimLike, epilogue: Epilogue, constant: bool, tile: tuple[int, int]
    ) -> Self:
        """Make the variant with this register tile for products of m × n results; constant: B is."""
        t = Tile(isa, dtype, *tile)
        return cls(t, epilogue, constant, heights_of(m, t.rows), is_narrow(t, n))

    def product_cycles(self, problem: GemmProblem) -> float:
        """Estimate the cycles of multiplying and of waiting for B."""
        t, m, n, k = self.tile, likely(problem.m), likely(problem.n), likely(problem.k)
        ended = m * ROW_ENDED if n % t.lanes else 0
        if m == 1 and self.abreast > 1:
            products = row_cycles(t.isa, self.abreast, t.vectors, -(-n // t.panel)) * k
        else:
            products = tile_cycles(t.isa, (t.rows, t.vectors), t.lanes, m, n, in_place=self.reads_in_place) * k
        exposed = 1.0
        if problem.m == 1 and problem.streamed and problem.distant:
            exposed = EXPOSED
        ended += storing_cycles(t.isa, m, n, t.lanes)
        ended += m * halving_functions(t.isa, n, t.lanes, len(self.epilogue.functions()))
        return likely(problem.count) * (products * exposed + ended) + self._waiting(problem)

    def _waiting(self, problem: GemmProblem) -> float:
        """Estimate the cycles of waiting for all of B."""
        t = self.tile
        return likely(problem.count) * problem.streamed * t.dtype.itemsize / costs_of(t.isa).stream

    def _packed_apart(self, problem: GemmProblem) -> float:
        """Estimate the cycles that a B which is packed with all others of a call is on its way between caches."""
        one, size = likely(problem.n) * likely(problem.k), self.tile.dtype.itemsize
        apart = likely(problem.count) * one >= STREAMED
        return STORED * one * size / costs_of(self.tile.isa).stream if apart else 0.0

    def joined(self, other: Kernel[Any]) -> Self | None:
        """Make the kernel that has the bodies of both, unless it had some one vector wide that none needs."""
        if not isinstance(other, type(self)) or replace(other, heights=self.heights, narrow=self.narrow) != self:
            return None
        if self.heights == other.heights:
            return replace(self, narrow=True) if other.narrow else self
        heights = tuple(sorted({*self.heights, *other.heights}, reverse=True))
        return replace(self, heights=heights) if self.narrow == other.narrow else None

    def for_rows(self, counts: Collection[int]) -> Self:
        """Make the kernel that has the bodies which these numbers of rows need."""
        heights = {h for m in counts for h in heights_of(m, self.tile.rows)}
        return replace(self, heights=tuple(sorted(heights, reverse=True)))

    def arguments_for(self, problem: GemmProblem) -> dict[str, Dim]:
        return problem.arguments(self.packed_b_elements(problem.n, problem.k) if problem.matrices else Dim.of(1))

    def scratch(self, problem: GemmProblem) -> Dim:
        return self.scratch_bytes(problem.n, problem.k, problem.count)

    def packed(self, problem: GemmProblem) -> Packed | None:
        if not problem.matrices:
            return None
        elements = int(self.packed_b_elements(problem.n, problem.k)) * problem.matrices
        return Packed(("panels", self.tile.panel), self.tile.dtype, elements, lambda b: self.pack_b(b).reshape(-1))

    def compute(self, reads: Sequence[Array], writes: Sequence[Array], sizes: Mapping[str, int]) -> None:
        n, k, panel = sizes["n"], sizes["k"], self.tile.panel
        if self.b_constant:
            panels = matrices(reads[1], (-(-n // panel), k, panel), (k * panel, panel, 1), sizes)
            b = np.moveaxis(panels, -2, -3).reshape(sizes["batch0"], sizes["batch1"], k, -1)[..., :n]
        else:
            b = matrices(reads[1], (k, n), (sizes["b_row"], sizes["b_col"]), sizes)
        multiply(b, self.epilogue, reads, writes, sizes)

    @cached_property
    def symbol(self) -> str:
        kind = "gemm" if self.b_constant else "matmul"
        return symbol(
            kind, self.tile.name.removeprefix("irc_tile_"), f"{self.epilogue.key()}{self.heights}{self.narrow}"
        )

    @property
    def pointers(self) -> tuple[tuple[str, str], ...]:
        """Name and C type of the pointers: read, written, scratch (where `b_constant` is false)."""
        t = str(names(self.tile)["T"])
        scratch = () if self.b_constant else (("scratch", f"{t} *"),)
        return (("a", f"const {t} *"), ("b", f"const {t} *"), *self.epilogue.pointers(t), ("c", f"{t} *"), *scratch)

    @property
    def sizes(self) -> tuple[str, ...]:
        return sizes_of(self.epilogue, self.b_constant)

    def packed_b_elements(self, n: DimLike, k: DimLike) -> Dim:
        """Count the elements of one packed matrix B[k, n]: also the batch stride of packed constants."""
        return Dim.of(n).ceildiv(self.tile.panel) * self.tile.panel * Dim.of(k)

    def scratch_bytes(self, n: DimLike, k: DimLike, batch: DimLike = 1) -> Dim:
        """Count the bytes of scratch for a call with these sizes; 0 if B is constant."""
        if self.b_constant:
            return Dim.of(0)
        return self.packed_b_elements(n, k) * Dim.of(batch) * self.tile.dtype.itemsize

    def pack_b(self, b: Array) -> Array:
        """Pack B[…, k, n] as […, n / panel, k, panel], C-contiguous."""
        panel, (k, n) = self.tile.panel, b.shape[-2:]
        count = -(-n // panel)
        full = np.zeros((*b.shape[:-2], k, count * panel), self.tile.dtype.numpy)
        full[..., :n] = b
        return np.ascontiguousarray(np.moveaxis(full.reshape(*b.shape[:-2], k, count, panel), -2, -3))

    def flops(self, sizes: Sizes) -> Dim:
        return 2 * product(sizes[n] for n in ("batch0", "batch1", "m", "n", "k"))

    def slot_starts(self) -> str:
        """Print statements that place the epilogue's operands `o` of matrix i, j."""
        return slot_starts(self.epilogue)

    @property
    def abreast(self) -> int:
        """The panels of B that one row meets at once; 1: there is no path of its own."""
        if not self.b_constant or 1 not in self.heights:
            return 1
        return costs_of(self.tile.isa).abreast.get(self.tile.vectors, 1)


def slot_starts(epilogue: Epilogue) -> str:
    """Print statements that place an epilogue's operands `o` of matrix i, j of a call."""
    return "".join(
        f"\n        o.s{i} = g->s{i} + i * g->s{i}_batch0 + j * g->s{i}_batch1;"
        + (f"\n        o.s{i}_row = g->s{i}_row;" if axes in ("column", "full") else "")
        for i, axes in enumerate(epilogue.slots)
    )


def cached_elements(tile: Tile) -> int:
    """Return how many elements of A the caches are taken to hold: of more, the rows that come next are fetched."""
    return SECOND_CACHES * tile.isa.l2 // tile.dtype.itemsize


def is_narrow(tile: Tile, n: DimLike) -> bool:
    """Tell whether the last columns of n may fit a tile one vector wide."""
    columns = Dim.of(n)
    return tile.vectors > 1 and (not columns.is_const or 0 < int(columns) % tile.panel <= tile.lanes)
