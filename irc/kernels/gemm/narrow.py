"""What products with narrow constant weights share: tiles of rows by panels of columns, which threads divide."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar, Self

from irc.ir.dim import Dim
from irc.ir.types import f32
from irc.kernels.core.base import Array, Kernel, Sizes
from irc.kernels.core.costs import LATENCY, ROW_ENDED, costs_of
from irc.kernels.core.epilogue import Epilogue
from irc.kernels.core.isa import Isa
from irc.kernels.core.problem import likely
from irc.kernels.core.text import Part, fill
from irc.kernels.core.tile import Tile, epilogue_of, heights_of
from irc.kernels.gemm.problem import GemmProblem, Narrow, multiply
from irc.kernels.gemm.tasks import WORTHWHILE

WIDTHS = (4, 2)
"""Vectors of columns in a tile."""
SPARE = 6
"""Registers of a tile beside its sums and its words: numbers on their way, and elements of A."""
REACHED = 0.85
"""The part of the peak of multiply-adds that is reached."""
NEAR, FAR = 1024, 16384
"""How many bytes of a panel the fetching into the first and the second cache is ahead."""

STORE = """
/* The sums of a tile at (row, col), through the epilogue. */
static void ${S}_store(const ${S}_out *o, const float *sums, int64_t rows, int64_t row, int64_t col) {
    for (int64_t i = 0; i < rows; i++) {
        float *const c = o->c + (row + i) * o->c_row + col;
        for (int64_t j = 0; j < $NR && col + j < o->n; j += $L) {
            const int64_t part = o->n - col - j;
            const $V x = ${V}_load(sums + i * $NR + j);
            if (part < $L) ${V}_store_part(c + j, ${S}_epilogue(o, x, row + i, col + j, part), part);
            else ${V}_store(c + j, ${S}_epilogue(o, x, row + i, col + j, $L));
        }
    }
}
"""
DIVIDE_PANELS = """
/* Panels begin to end, each for all rows. */
static void ${S}_part(void *given, int64_t begin, int64_t end) {
    const ${S}_args *g = given;
    const int64_t tiles = (g->m + $MR - 1) / $MR, low = g->m / tiles, extra = g->m % tiles;
    ${S}_out o = {.c = g->c, .c_row = g->c_row, .n = g->n};$slot_starts
    for (; begin < end; begin++) {
$abreast        int64_t row = 0;
        for (int64_t t = 0; t < tiles; t++) {
            const int64_t rows = low + (t < extra);
            ${S}_tile(g, &o, rows, row, begin * $NR);
            row += rows;
        }
    }
}

IRC_INLINE void ${S}_divide(const irc_pool *pool, const ${S}_args *g) {
    const int64_t panels = (g->n + $NR - 1) / $NR;
    if (!pool || panels < 2 || (double)g->m * (double)g->n * (double)g->k < $worthwhile)
        ${S}_part((void *)g, 0, panels);
    else pool->parallel_for(pool->self, panels, ${S}_part, (void *)g);
}
"""


@dataclass(frozen=True)
class NarrowGemmKernel(Kernel[GemmProblem]):
    """A matrix product with a constant B that is stored narrower than f32.

    tile: `rows` × `vectors` sums.  heights: of the tiles that it has bodies for.  floats: the types of B's elements, ""
    for whole numbers.  widened: cycles to widen a vector.
    """

    tile: Tile
    epilogue: Epilogue
    narrow: Narrow
    heights: tuple[int, ...]

    floats: ClassVar[tuple[str, ...]]
    widened: ClassVar[float]
    problem = GemmProblem

    @classmethod
    def candidates(cls, problem: GemmProblem, isa: Isa) -> Iterator[Self]:
        """Yield tiles of as many rows as there are registers for, for one product of f32."""
        narrow = problem.narrow
        if narrow is None or narrow.floats not in cls.floats or problem.dtype != f32 or problem.matrices != 1:
            return
        for vectors in WIDTHS if problem.count == 1 else ():
            rows = max(1, (isa.registers - SPARE - vectors) // vectors)
            yield cls(Tile(isa, f32, rows, vectors), problem.epilogue, narrow, heights_of(problem.m, rows))

    def cycles(self, problem: GemmProblem) -> float:
        """Estimate the cycles; of an unknown number of rows those of one, whose weights cost the most to read."""
        t, n, k = self.tile, likely(problem.n), likely(problem.k)
        m = int(problem.m) if problem.m.is_const else 1
        tiles = -(-m // t.rows)
        each = tiles * max(m / tiles / t.isa.fma / REACHED + self.widened, LATENCY / t.vectors)
        waiting = self.packed_bytes(n, k) / costs_of(t.isa).stream if problem.streamed else 0.0
        return -(-n // t.panel) * (t.vectors * k * each + m * ROW_ENDED) + waiting

    def packed_bytes(self, n: int, k: int) -> int:
        """Count the bytes of a packed B[k, n]."""
        raise NotImplementedError

    def unpack_b(self, packed: Array, n: int, k: int) -> Array:
        """Unpack B[k, n] as floats."""
        raise NotImplementedError

    @property
    def takes_narrow(self) -> bool:
        return True

    def arguments_for(self, problem: GemmProblem) -> dict[str, Dim]:
        sizes = problem.arguments(Dim.of(1))
        return {name: size for name, size in sizes.items() if name in self.sizes}

    def compute(self, reads: Sequence[Array], writes: Sequence[Array], sizes: Mapping[str, int]) -> None:
        b = self.unpack_b(reads[1], sizes["n"], sizes["k"])[None, None]
        none = dict.fromkeys(("a_batch0", "a_batch1", "c_batch0", "c_batch1"), 0)
        none |= {f"s{i}_batch{axis}": 0 for i in range(len(self.epilogue.slots)) for axis in (0, 1)}
        multiply(b, self.epilogue, reads, writes, none | {"batch0": 1, "batch1": 1} | dict(sizes))

    @property
    def sizes(self) -> tuple[str, ...]:
        return ("m", "n", "k", "a_row", "a_col", "c_row", *(f"s{i}_row" for i, _ in self.epilogue.strides("row")))

    def flops(self, sizes: Sizes) -> Dim:
        return 2 * sizes["m"] * sizes["n"] * sizes["k"]

    def table(self, body: str) -> str:
        """Print the bodies by the number of rows, 0 for those that it has none for."""
        return ", ".join(f"{body}_{r}" if r in self.heights else "0" for r in range(1, max(self.heights) + 1))

    def stored_and_divided(self, given: Mapping[str, object], tile: str, entry: str, abreast: str = "") -> list[Part]:
        """Print what stands behind the bodies: tiles and the entry by these templates, and what both call.

        abreast: statements that may compute several panels at once, from panel `begin` on.
        """
        several = {**given, "abreast": abreast}
        return [
            epilogue_of(self.symbol, self.tile, self.epilogue),
            fill(STORE, **given),
            fill(tile, **given),
            fill(DIVIDE_PANELS, **several, worthwhile=WORTHWHILE, slot_starts=self.slot_starts()),
            fill(entry, **given, **self.interface),
        ]

    def slot_starts(self) -> str:
        """Print statements that place the epilogue's operands in `o`."""
        return "".join(
            f"\n    o.s{i} = g->s{i};" + (f"\n    o.s{i}_row = g->s{i}_row;" if axes in ("column", "full") else "")
            for i, axes in enumerate(self.epilogue.slots)
        )
