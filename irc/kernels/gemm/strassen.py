"""Matrix product by one level of Strassen's algorithm: C = epilogue(A · B), B constant, seven products for eight.

A, B and C are cut into quarters.  Of sums and differences of quarters, made when the operands are packed, seven
products are enough (V. Strassen, Gaussian elimination is not optimal, Numer. Math. 13, 1969).  Each is made tile by
tile and added to the quarters of C that it belongs to while it is in the first cache (J. Huang et al., Strassen's
algorithm reloaded, SC 2016).  B takes 7/4 of the memory.

Such a product mixes a row of the upper half with one of the lower, and a column of the left half with one of the right:
it is rounded like the larger of both, and what is not finite spreads.  Where two of them differ by more than
`ALIKE` times in norm, they are multiplied by powers of two when they are packed, and their results by the inverse.
Where one is not finite, the tile, or the panel of B, is made of eight products instead, of the same operands, none of
which mixes rows or columns.

B is packed as flags, one for each pair of panels, the factors of the results of all columns, and then
[pair][operand][k / 2][panel].  Threads split the output, never k: results do not depend on them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from typing import Self

import numpy as np

from irc.ir.dim import Dim, DimLike
from irc.ir.types import f32
from irc.kernels.core.base import Array, Packed
from irc.kernels.core.costs import costs_of, packing_cycles, relative, tile_cycles
from irc.kernels.core.isa import Isa, vector_name
from irc.kernels.core.problem import fewest, likely
from irc.kernels.core.registry import kernel
from irc.kernels.core.text import Part, fill, symbol
from irc.kernels.core.tile import Tile, Variants, bodies, epilogue_of, heights_of, names, prelude, table_of
from irc.kernels.core.workspace import DIVIDE, aligned
from irc.kernels.gemm import tasks
from irc.kernels.gemm.packed import AHEAD, ENTRY, LINE, SPLIT, UNFETCHED, packing_rows
from irc.kernels.gemm.problem import GemmProblem, matrices, multiply
from irc.kernels.gemm.strassen_text import HALVES, ONE_ROW, PACK, RANGE, ROW
from irc.kernels.gemm.tasks import WORTHWHILE
from irc.kernels.gemm.tiled import LONGEST_SUM, TiledGemmKernel

ALIKE = 8.0
"""Times that the norms of rows, and of columns, differ at most that share products."""
FEW_ROWS = 40
"""Rows, of an unknown number, fewer of which are the upper half, all of them, and take four products of a half."""
LARGEST = 1 << 22
"""Elements of B, at most, where the rows may be few: such runs gain nothing, and have to hold 7/4 of the memory."""
LEAST = 1e-30
"""Squares of rows, but for 0, below which they say too little of them, since those of their elements are lost."""
LARGEST_EXPONENT = 126
"""The exponent, at most, of the power of two by which the results of a column are multiplied."""
PRODUCTS, OPERANDS, AREAS = 7, 9, 5
"""Products; packed operands of A, its quarters among them; and tiles of sums: quarters of C, and a product."""
BEGIN = 1024
"""Bytes of each operand of the next pair that one row fetches: processors notice only later where it goes on."""
ROOM = 1 << 20
"""Elements of the operands of A that are packed at once: they are read in order, from the third cache if need be."""
ROWS_AT_ONCE = 64
"""Rows of a half, in whole tiles, that meet a panel of B, at most."""
CHUNK = 64
"""Columns of a quarter of A that are packed and combined at once, while they are in the first cache."""
HELD = 64
"""Bytes that a workspace begins with, besides factors of rows; of `ROWS_AT_ONCE` rows there are fewer tiles."""
FEW_PANELS = 16
"""Panels of columns for fewer of which, if they are odd, threads share the rows too."""
FLAGS = 16
"""Flags of pairs of panels are padded to a multiple of so many, so that panels begin at lines of the caches."""
ADDED = 22.0
"""Vectors of sums that are stored for each of a product's, where they are added to quarters and read again."""
PAID = 1.02
"""Times as long as they take that products count: what is won has to pay for the larger B."""
COMBINED = 0.9
"""Cycles to make the operands of A of an element: they are stored, and loaded from further off."""


@kernel
class StrassenGemmKernel(TiledGemmKernel):
    """A matrix product with a constant B by Strassen's algorithm."""

    @classmethod
    def candidates(cls, problem: GemmProblem, isa: Isa) -> Iterator[Self]:
        if problem.dtype != f32 or not problem.matrices or isa.tiles:  # cores with AMX do packed products at 0.97
            return
        if not problem.m.is_const and fewest(problem.m) < FEW_ROWS and likely(problem.n) * likely(problem.k) > LARGEST:
            return
        for shape in costs_of(isa).tiles:
            tile = Tile(isa, f32, *shape)
            yield cls(tile, problem.epilogue, True, _heights(problem.m, tile.rows), False)

    def cycles(self, problem: GemmProblem) -> float:
        m, n, k, t = likely(problem.m), likely(problem.n), likely(problem.k), self.tile
        half, deep = -(-m // 2), -(-k // 2)
        columns = _pairs(n, t.panel) * t.panel
        products = PRODUCTS * tile_cycles(t.isa, (t.rows, t.vectors), t.lanes, half, columns) * deep * PAID
        added = ADDED * half * columns / t.lanes * relative(t.isa)
        packing = packing_cycles(t.isa, m * k, t.dtype.itemsize) + m * k * COMBINED
        once = self._waiting(problem)
        again = once * (PRODUCTS / 4 - 1)  # behind products, unless these are as short
        waiting = once + again * min(1.0, PRODUCTS / 4 * once / products) if products else once
        return likely(problem.count) * (products + added + packing) + waiting

    @property
    def takes_few(self) -> bool:
        """Whether it has a path for few rows: its tiles may be of any height."""
        return len(self.heights) == self.tile.rows

    @property
    def label(self) -> str:
        return f"Strassen {self.tile.rows}x{self.tile.vectors}"

    @property
    def executed(self) -> float:
        return PRODUCTS / 8

    def own_bytes(self, sizes: Mapping[str, int]) -> int:
        t, m, k = self.tile, sizes["m"], (sizes["k"] + 1) // 2
        half = max(m if self.takes_few and m < FEW_ROWS else (m + 1) // 2, 1)
        tiles = -(-half // t.rows)
        high = -(-half // tiles)
        rows = min(tiles, self._most, max(1, ROOM // (OPERANDS * high * max(k, 1)))) * high
        return self._held + (AREAS * rows * t.panel + OPERANDS * (rows * k + t.lanes)) * t.dtype.itemsize

    def packed(self, problem: GemmProblem) -> Packed | None:
        elements = int(self.packed_b_elements(problem.n, problem.k)) * problem.matrices
        return Packed(("strassen", self.tile.panel), self.tile.dtype, elements, lambda b: self.pack_b(b).reshape(-1))

    def compute(self, reads: Sequence[Array], writes: Sequence[Array], sizes: Mapping[str, int]) -> None:
        n, k, panel = sizes["n"], sizes["k"], self.tile.panel
        pairs, deep, flags = _pairs(n, panel), -(-k // 2), _flags(n, panel)
        shape, size, columns = (pairs, PRODUCTS, deep, panel), panel * deep, 2 * pairs * panel
        factors = matrices(reads[1][flags:], (1, columns), (0, 1), sizes)
        b = matrices(reads[1][flags + columns :], shape, (PRODUCTS * size, size, panel, 1), sizes)
        of = np.moveaxis(b, -4, -2).reshape(*b.shape[:2], PRODUCTS, deep, -1)
        left, right, upper, lower = of[:, :, 1], of[:, :, 4], of[:, :, 2], of[:, :, 3]
        whole = np.concatenate(
            [np.concatenate([left, upper + right], -1), np.concatenate([lower + left, right], -1)], -2
        )
        multiply((whole * factors)[..., :k, :n], self.epilogue, reads, writes, sizes)

    def packed_b_elements(self, n: DimLike, k: DimLike) -> Dim:
        pairs = Dim.of(n).ceildiv(2 * self.tile.panel)
        return pairs.ceildiv(FLAGS) * FLAGS + pairs * self.tile.panel * (2 + PRODUCTS * Dim.of(k).ceildiv(2))

    def pack_b(self, b: Array) -> Array:
        """Pack B[…, k, n] as […, elements]: flags, factors, then [pair, operand, k / 2, panel].

        A flag is 0 where columns must not be mixed, 2 where their results have factors other than 1, else 1.
        """
        panel, (k, n) = self.tile.panel, b.shape[-2:]
        pairs, deep = _pairs(n, panel), -(-k // 2)
        right = pairs * panel
        full = np.zeros((*b.shape[:-2], 2 * deep, 2 * right), self.tile.dtype.numpy)
        full[..., :k, :n] = b
        flags, factors, full = _alike(full, n, panel)
        b11, b12, b21, b22 = (full[..., r : r + deep, c : c + right] for r in (0, deep) for c in (0, right))
        operands = np.stack([b11 + b22, b11, b12 - b22, b21 - b11, b22, b11 + b12, b21 + b22], -3)
        panels = np.moveaxis(operands.reshape(*operands.shape[:-1], pairs, panel), -2, -4)
        lead = b.shape[:-2]
        return np.concatenate([flags, factors, panels.reshape(*lead, -1)], -1)

    @cached_property
    def symbol(self) -> str:
        signature = f"{self.epilogue.key()}{self.heights}"
        return symbol("gemm_strassen", self.tile.name.removeprefix("irc_tile_"), signature)

    def parts(self) -> list[Part]:
        s, t, variants = self.symbol, self.tile, Variants(self.heights, False)
        given = names(t) | {
            "S": s,
            "Q": vector_name(4, t.dtype),
            "whole": table_of(t.name, variants, t.vectors),
            **tasks.names(t.panel),
            "TT": f"{s}_high(tiles, columns)",
            "few": FEW_PANELS,
            "held": self._held,
            "least": f"{LEAST}f",
            "worthwhile": WORTHWHILE,
            "sum": LONGEST_SUM,
            "most": self._most,
            "room": ROOM,
            "alike": f"{ALIKE**2}f",
            "operands": OPERANDS,
            "products": PRODUCTS,
            "areas": AREAS,
            "flags": FLAGS,
            "chunk": CHUNK,
            "far": f"(x->low <= {UNFETCHED} ? 0 : {AHEAD})" if costs_of(t.isa).abreast else AHEAD,
            "line": LINE // t.dtype.itemsize,
            "begin": BEGIN // t.dtype.itemsize,
            "rows_lanes": -(-t.rows // t.lanes) * t.lanes,
        }
        packed = "g->b + i * g->b_batch0 + j * g->b_batch1"
        given |= {"rows": f"{s}_upper(g)", "columns": f"{s}_half(g)", "slot_starts": self.slot_starts()}
        given["few_rows"] = f"g->m < {FEW_ROWS} ? g->m : " if self.takes_few else ""
        given["all"] = ", all of which are there if they are few" if self.takes_few else ""
        one_row = fill(ONE_ROW, **given) if self.takes_few else ""
        return [
            prelude(t, self.epilogue),
            DIVIDE,
            bodies(t, variants),
            epilogue_of(s, t, self.epilogue),
            packing_rows(t),
            fill(SPLIT, **given),
            fill(PACK, **given),
            fill(HALVES, **given),
            fill(ROW, **given) if self.takes_few else "",
            fill(RANGE, **given, one_row=one_row),
            fill(tasks.PARTS, **given, packed_b=packed, wide=f"{s}_split({s}_upper(g)).tiles <= {self._most}"),
            fill(ENTRY, **given, **self.interface, pack=""),
        ]

    @property
    def _most(self) -> int:
        """The tiles of rows that are packed at once, at most."""
        return ROWS_AT_ONCE // self.tile.rows

    @property
    def _held(self) -> int:
        """The bytes that a workspace begins with: what is packed there, and the factors of its rows."""
        return HELD + aligned(self._most * 2 * self.tile.rows * self.tile.dtype.itemsize)

    @property
    def summary(self) -> str:
        return f"C = epilogue(A B) by Strassen's algorithm, f32, tiles of {self.tile.rows} x {self.tile.panel}."


def _heights(m: DimLike, rows: int) -> tuple[int, ...]:
    """List the heights of tiles of half the rows, and of one row fewer where m is odd."""
    size = Dim.of(m)
    if not size.is_const:
        return heights_of(m, rows)
    half = -(-int(size) // 2)
    upper = heights_of(half, rows)
    return tuple(sorted({*upper, *(h for h in (min(upper) - 1, max(upper) - 1) if h and int(size) % 2)}, reverse=True))


def _pairs(n: int, panel: int) -> int:
    return -(-n // (2 * panel))


def _flags(n: int, panel: int) -> int:
    return -(-_pairs(n, panel) // FLAGS) * FLAGS


def _alike(b: Array, n: int, panel: int) -> tuple[Array, Array, Array]:
    """Make the columns of the left half of B[…, k, 2 · half] like those of the right, where they are not.

    Returns the flags of pairs of panels, the factors of the results of all columns, powers of two, and B divided by
    them.  A column of zeros has the factor 0, so that nothing remains of what is added and subtracted again.
    """
    lead, half = b.shape[:-2], b.shape[-1] // 2
    with np.errstate(over="ignore"):
        norms = np.sqrt(np.square(b, dtype=np.float64).sum(-2)).reshape(*lead, 2, -1, panel)
    left, right = norms[..., 0, :, :], norms[..., 1, :, :]
    alike = (left <= ALIKE * right) & (right <= ALIKE * left)
    alike |= (np.arange(half) >= n - half).reshape(-1, panel)  # columns that are not there
    finite, even = np.isfinite(left + right).all(-1), alike.all(-1)
    flags = np.zeros((*lead, _flags(n, panel)), b.dtype)
    flags[..., : half // panel] = np.where(finite, np.where(even, 1, 2), 0)
    exponents = np.where((finite & ~even)[..., None, :, None], np.frexp(norms)[1], 0).clip(max=LARGEST_EXPONENT)
    exponents = exponents.reshape(*lead, -1)
    factors = np.ldexp(np.ones((), b.dtype), exponents)
    scaled = np.ldexp(b, -exponents[..., None, :]) if exponents.any() else b
    return flags, np.where(norms.reshape(*lead, -1) > 0, factors, 0), scaled
