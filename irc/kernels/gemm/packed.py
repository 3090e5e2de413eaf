"""Matrix product: C[m, n] = epilogue(A[m, k] · B[k, n]), with up to two batch axes.

B is packed in panels of `panel` columns, [n / panel][k][panel], zero padded: at compile time (`pack_b`) where it is
constant, else by the kernel into its scratch.  A is read in place with any strides and packed by each task, as many
tiles of rows and as much of k as stay in the second cache; each panel of B then meets all of them while the next one is
fetched.  Rows are split into tiles of nearly equal height, k into blocks of which a panel stays in the first cache.

Threads split the output into tasks (a range of rows × a range of panels), never k: results do not depend on them.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from typing import Any, Self

import numpy as np

from irc.ir.dim import Dim, DimLike, product
from irc.ir.types import DType, f32, f64
from irc.kernels.core.base import Array, Kernel, Packed, Sizes
from irc.kernels.core.costs import (
    LATENCY,
    ROW_ENDED,
    costs_of,
    halving_functions,
    in_halves,
    packing_cycles,
    storing_cycles,
    tile_cycles,
)
from irc.kernels.core.epilogue import Epilogue
from irc.kernels.core.isa import Isa, vector_name
from irc.kernels.core.problem import likely
from irc.kernels.core.registry import kernel
from irc.kernels.core.text import Part, fill, piece, symbol
from irc.kernels.core.tile import Tile, Variants, block, bodies, epilogue_of, heights_of, names, prelude
from irc.kernels.core.workspace import DIVIDE
from irc.kernels.gemm import tasks
from irc.kernels.gemm.abreast import ABREAST, ONE_ROW, row_cycles
from irc.kernels.gemm.problem import STREAMED, GemmProblem, matrices, multiply
from irc.kernels.gemm.skinny import SKINNY, SKINNY_COLUMNS, SKINNY_ROWS
from irc.kernels.vector.lanes import square

ROWS_AT_ONCE = 70  # whole tiles, that meet a panel of B; more need more pages of memory than are found quickly
AHEAD = 32  # of the rows of a panel, where there is one tile of rows: how far the fetching of B is ahead
LINE = 64  # bytes of a line of the caches
WAYS, WAY = 8, 4096  # lines at places a multiple of so many bytes apart that the first cache holds
EVICTED = 12.0  # cycles to store a line of C that is evicted before it is full, while products go on
PACKED = 384 << 10  # bytes of A, packed, at most: 1400 products of ROWS_AT_ONCE rows
LONGEST_SUM = 256  # products added up in one accumulator: longer sums are sums of such sums, which lose less
FEW_ROWS = 3.0  # times as long as else takes the packing of an element of two or three rows
STORED = 2  # times that a packed B which does not stay in the second cache goes to memory and back, besides its reading
EXPOSED = 0.3  # of the cycles of one row's products, what is not hidden behind waiting for a B from memory
ONE_LINE = 0.45  # of them, what one row takes in halves where a row of a panel is a line: caches give lines in order
NEAR = 8  # of such rows, how far the fetching of B is ahead of one row of A
SECOND_CACHES = 4  # of so many the caches are taken to hold an A that is read in place

_PACK_ROWS = """
/* rows x k values of A as [k][rows]: squares are transposed in registers.  Up to $L more elements are overwritten. */
static void ${V}_pack_rows(const $T *a, int64_t row, int64_t col, const int rows, int64_t k, $T *to) {
    int64_t done = 0;
    if (row == 1 && col != 1) {
        for (int64_t j = 0; j < k; j++)
            for (int i = 0; i < rows; i++) to[j * rows + i] = a[j * col + i];
        return;
    }
    if (col == 1 && rows == 1) {
        for (int64_t j = 0; j < k; j++) to[j] = a[j];
        return;
    }
    if (col == 1 && rows >= 4 && rows <= $L) {
        done = k / $L * $L;
        for (int64_t j = 0; j < done; j += $L) {
            $V x[$L];
            EACH(i < $L) x[i] = ${V}_load(a + (i < rows ? i : rows - 1) * row + j);
            ${V}_square(x);
            EACH(i < $L) ${V}_store(to + (j + i) * rows, x[i]);
        }
    } else if (col == 1) {
        const int64_t second = rows > 1 ? row : 0, third = rows > 2 ? 2 * row : 0, fourth = rows > 3 ? 3 * row : 0;
        done = k / 4 * 4;
        for (int i = 0; i < rows; i += 4) {
            const int r = i + 4 <= rows ? i : rows > 4 ? rows - 4 : 0;
            const $T *from = a + r * row;
            $T *at = to + r;
            for (int64_t j = 0; j < done; j += 4, at += 4 * rows) {
                const $Q x0 = ${Q}_load(from + j), x1 = ${Q}_load(from + second + j);
                const $Q x2 = ${Q}_load(from + third + j), x3 = ${Q}_load(from + fourth + j);
                const $Q y0 = __builtin_shufflevector(x0, x1, 0, 4, 1, 5);
                const $Q y1 = __builtin_shufflevector(x0, x1, 2, 6, 3, 7);
                const $Q y2 = __builtin_shufflevector(x2, x3, 0, 4, 1, 5);
                const $Q y3 = __builtin_shufflevector(x2, x3, 2, 6, 3, 7);
                ${Q}_store(at, __builtin_shufflevector(y0, y2, 0, 1, 4, 5));
                ${Q}_store(at + rows, __builtin_shufflevector(y0, y2, 2, 3, 6, 7));
                ${Q}_store(at + 2 * rows, __builtin_shufflevector(y1, y3, 0, 1, 4, 5));
                ${Q}_store(at + 3 * rows, __builtin_shufflevector(y1, y3, 2, 3, 6, 7));
            }
        }
    }
    for (int64_t j = done; j < k; j++)
        for (int i = 0; i < rows; i++) to[j * rows + i] = a[i * row + j * col];
}
"""

_PACK_COLUMNS = """
/* k rows of a panel of B whose columns are contiguous, `step` apart: `have` of them, then copies of the last.  Squares
   are transposed in registers, small ones of the last rows. */
static void ${S}_pack_columns(const $T *b, int64_t step, int64_t have, int64_t k, $T *to) {
    const int64_t whole = k / $L * $L;
    for (int w = 0; w < $NV && whole > 0; w++) {
        const $T *of[$L];
        for (int i = 0; i < $L; i++) of[i] = b + (w * $L + i < have ? w * $L + i : have - 1) * step;
        for (int64_t j = 0; j < whole; j += $L) {
            $V x[$L];
            EACH(i < $L) x[i] = ${V}_load(of[i] + j);
            ${V}_square(x);
            EACH(i < $L) ${V}_store(to + (j + i) * $NR + w * $L, x[i]);
        }
    }
    if (whole == k) return;
$rest}
"""

_REST = """\
    const $T *const last = b + (have - 1) * step;
    for (int col = 0; col < $NR; col += 4, b += 4 * step) {
        const $T *const p0 = col < have ? b : last, *const p1 = col + 1 < have ? b + step : last;
        const $T *const p2 = col + 2 < have ? b + 2 * step : last, *const p3 = col + 3 < have ? b + 3 * step : last;
        $T *at = to + whole * $NR + col;
        for (int64_t j = whole; j < k; j += 4, at += 4 * $NR) {
            const int64_t rows = k - j;
            if (rows < 4) {
                for (int64_t i = 0; i < rows; i++)
                    at[i * $NR] = p0[j + i], at[i * $NR + 1] = p1[j + i], at[i * $NR + 2] = p2[j + i],
                    at[i * $NR + 3] = p3[j + i];
                break;
            }
            const $Q x0 = ${Q}_load(p0 + j), x1 = ${Q}_load(p1 + j), x2 = ${Q}_load(p2 + j), x3 = ${Q}_load(p3 + j);
            const $Q y0 = __builtin_shufflevector(x0, x1, 0, 4, 1, 5);
            const $Q y1 = __builtin_shufflevector(x0, x1, 2, 6, 3, 7);
            const $Q y2 = __builtin_shufflevector(x2, x3, 0, 4, 1, 5);
            const $Q y3 = __builtin_shufflevector(x2, x3, 2, 6, 3, 7);
            ${Q}_store(at, __builtin_shufflevector(y0, y2, 0, 1, 4, 5));
            ${Q}_store(at + $NR, __builtin_shufflevector(y0, y2, 2, 3, 6, 7));
            ${Q}_store(at + 2 * $NR, __builtin_shufflevector(y1, y3, 0, 1, 4, 5));
            ${Q}_store(at + 3 * $NR, __builtin_shufflevector(y1, y3, 2, 3, 6, 7));
        }
    }
"""

_REST_ONE_BY_ONE = """\
    for (int64_t j = whole; j < k; j++)
        for (int i = 0; i < $NR; i++) to[j * $NR + i] = b[(i < have ? i : have - 1) * step + j];
"""

_PACK_B = """
/* Panels begin to end of the whole batch: [batch][panel][k][$NR], anything beyond the last column. */
static void ${S}_pack_part(void *given, int64_t begin, int64_t end) {
    const ${S}_args *g = given;
    const int64_t panels = (g->n + $NR - 1) / $NR;
    for (int64_t p = begin; p < end; p++) {
        const int64_t image = p / panels, col = p % panels * $NR;
        const int64_t have = g->n - col < $NR ? g->n - col : $NR;
        const $T *from = g->b + image / g->batch1 * g->b_batch0 + image % g->batch1 * g->b_batch1 + col * g->b_col;
        $T *to = g->scratch + p * g->k * $NR;
        if (g->b_row == 1) {
            ${S}_pack_columns(from, g->b_col, have, g->k, to);
        } else if (g->b_col == 1) {
            for (int64_t k = 0; k < g->k; k++)
                for (int w = 0; w < $NV; w++) {
                    const $T *row = from + k * g->b_row + w * $L;
                    const int64_t part = have - w * $L;
                    ${V}_store(to + k * $NR + w * $L, part < $L ? ${V}_load_part(row, part) : ${V}_load(row));
                }
        } else {
            for (int64_t k0 = 0; k0 < g->k; k0 += 8) {
                const int64_t k1 = k0 + 8 < g->k ? k0 + 8 : g->k;
                for (int64_t j = 0; j < $NR; j++)
                    for (int64_t k = k0; k < k1; k++)
                        to[k * $NR + j] = j < have ? from[k * g->b_row + j * g->b_col] : 0;
            }
        }
    }
}
"""

_ONE_ROW = """\
    if (g->m == 1) {
        ${S}_row(g, o, a, b, col0, col1);
        return;
    }
"""

SPLIT = """
typedef struct {
    int64_t tiles, low, extra; /* the first `extra` tiles are one row higher than `low` */
} ${S}_rows;

IRC_INLINE ${S}_rows ${S}_split(int64_t m) {
    const int64_t tiles = m > 0 ? (m + $MR - 1) / $MR : 1;
    return (${S}_rows){tiles, m / tiles, m % tiles};
}
"""
"""How rows are cut into tiles of nearly equal height."""
_RANGE = """
/* Tiles t0 to t1, columns col0 to col1 of one matrix. */
static void ${S}_range(const ${S}_args *g, const ${S}_out *o, const $T *a, const $T *b,
                       char *own, int64_t t0, int64_t t1, int64_t col0, int64_t col1) {
$one_row    const ${S}_rows m = ${S}_split(g->m);
    const int64_t high = m.low + (m.extra > 0);
    const int64_t groups = (t1 - t0 + $most - 1) / $most, per = (t1 - t0 + groups - 1) / groups;
    $T *const sums = ($T *)own, *const packed = sums + per * high * $NR;
    /* k in blocks that are summed up at once; a chunk is as many of them as A has room for. */
    const int64_t blocks = g->k > 0 ? (g->k + $sum - 1) / $sum : 1, step = (g->k + blocks - 1) / blocks;
    const int64_t fit = step > 0 ? $room / (per * high * step) : 1, chunks = (blocks + fit - 1) / fit;
    const int64_t deep = (blocks + chunks - 1) / chunks * step;
    int64_t k0 = 0;
    do {
        const int64_t chunk = g->k - k0 < deep ? g->k - k0 : deep;
        for (int64_t top = t0; top < t1; top += per) {
            const int64_t end = top + per < t1 ? top + per : t1, hop = ($NR + end - top - 1) / (end - top);
            const int64_t start = top * m.low + (top < m.extra ? top : m.extra);
            const int64_t stop = end * m.low + (end < m.extra ? end : m.extra);
            for (int64_t k1 = 0; k1 < chunk; k1 += step) {
                const int64_t k = chunk - k1 < step ? chunk - k1 : step;
                $T *to = packed + (stop - start) * k1;
                for (int64_t t = top, r = start; t < end; t++) {
                    const int height = (int)(m.low + (t < m.extra));
                    ${V}_pack_rows(a + r * g->a_row + (k0 + k1) * g->a_col, g->a_row, g->a_col, height, k, to);
                    to += height * k;
                    r += height;
                }
            }
            for (int64_t col = col0; col < col1; col += $NR) {
                int64_t k1 = 0;
                do {
                    const int64_t k = chunk - k1 < step ? chunk - k1 : step;
                    const $T *panel = b + col * g->k + (k0 + k1) * $NR, *from = packed + (stop - start) * k1;
                    /* The tiles share the fetching of what comes next of B; a single one fetches what it needs soon. */
                    const $T *ahead = panel + (k1 + k < chunk ? k : g->k - k1) * $NR;
                    if (end - top == 1) ahead = panel + $far * $NR;
                    for (int64_t t = top, r = start; t < end; t++) {
                        const int height = (int)(m.low + (t < m.extra));
                        ${S}_block(o, height, r, col, k, from, panel, sums + (r - start) * $NR, k1 == 0,
                                   k1 + k >= chunk, k0 > 0, k0 + chunk >= g->k, ahead, hop);
                        from += height * k;
                        ahead += hop * k;
                        r += height;
                    }
                    k1 += k;
                } while (k1 < chunk);
            }
        }
        k0 += chunk;
    } while (k0 < g->k);
}
"""

ENTRY = """
void $S($parameters) {
    if (g->m <= 0 || g->n <= 0) return;
    const ${S}_plan plan = ${S}_tasks(g);
    const int64_t tasks = g->batch0 * g->batch1 * plan.inner * plan.outer;
    const int alone = !pool || (double)(g->batch0 * g->batch1) * (double)(g->m * g->n) * (double)g->k < $worthwhile;
$pack    irc_divide(alone ? 0 : pool, tasks, ${S}_part, (void *)g, g->own, g->own_bytes, g->owners);
}
"""

_PACK = """    if (${S}_is_skinny(g)) {
        const int64_t ranges = g->batch0 * g->batch1 * ((g->n + $TN - 1) / $TN);
        if (alone || ranges < 2) ${S}_skinny_part((void *)g, 0, ranges);
        else pool->parallel_for(pool->self, ranges, ${S}_skinny_part, (void *)g);
        return;
    }
    const int64_t panels = g->batch0 * g->batch1 * ((g->n + $NR - 1) / $NR);
    if (alone || panels < 2) ${S}_pack_part((void *)g, 0, panels);
    else pool->parallel_for(pool->self, panels, ${S}_pack_part, (void *)g);
"""


@kernel
class GemmKernel(Kernel[GemmProblem]):
    """A matrix product whose operands are packed.

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
    by_ranges = True  # as `irc.kernels.gemm.tasks` divides it among threads

    @classmethod
    def design(
        cls, isa: Isa, dtype: DType, m: DimLike, n: DimLike, epilogue: Epilogue, constant: bool, tile: tuple[int, int]
    ) -> Self:
        """Make the variant with this register tile for products of m × n results; constant: B is."""
        t = Tile(isa, dtype, *tile)
        return cls(t, epilogue, constant, heights_of(m, t.rows), is_narrow(t, n))

    @classmethod
    def candidates(cls, problem: GemmProblem, isa: Isa) -> Iterator[Self]:
        if problem.dtype in (f32, f64):
            for tile in costs_of(isa).tiles:
                constant = bool(problem.matrices)
                yield cls.design(isa, problem.dtype, problem.m, problem.n, problem.epilogue, constant, tile)

    def cycles(self, problem: GemmProblem) -> float:
        m, n, k, costs = likely(problem.m), likely(problem.n), likely(problem.k), costs_of(self.tile.isa)
        if not self.b_constant and m <= SKINNY_ROWS and problem.b[2] == 1 and problem.a[3] == 1:
            return likely(problem.count) * m * n * self._skinny_dot(k) + self._waiting(problem)
        few = FEW_ROWS if 1 < m < 4 else 1.0
        packing = packing_cycles(self.tile.isa, m * k, self.tile.dtype.itemsize) * few
        if not self.b_constant:
            packing += -(-n // self.tile.panel) * self.tile.panel * k * costs.pack + self._packed_apart(problem)
        apart = m * n * self.tile.dtype.itemsize / LINE * costs.stored_apart
        return max(self.product_cycles(problem), self._storing(problem)) + likely(problem.count) * (packing + apart)

    def imbalance(self, problem: GemmProblem) -> float:
        return tasks.imbalance(problem, self.tile, self.narrow) if self.by_ranges else 1.0

    def _packed_apart(self, problem: GemmProblem) -> float:
        """Estimate the cycles that a B which is packed with all others of a call is on its way between caches."""
        one, size = likely(problem.n) * likely(problem.k), self.tile.dtype.itemsize
        apart = likely(problem.count) * one >= STREAMED
        return STORED * one * size / costs_of(self.tile.isa).stream if apart else 0.0

    def _storing(self, problem: GemmProblem) -> float:
        """Estimate the cycles of storing C where the rows of a panel are at the same places of the first cache."""
        step = likely(problem.c[2]) * self.tile.dtype.itemsize
        apart = WAY // math.gcd(step, WAY)
        if likely(problem.m) <= WAYS * apart:
            return 0.0
        lines = likely(problem.count) * likely(problem.m) * likely(problem.n) * self.tile.dtype.itemsize / LINE
        return lines * EVICTED / apart

    def product_cycles(self, problem: GemmProblem) -> float:
        """Estimate the cycles of multiplying and of waiting for B."""
        t, m, n, k = self.tile, likely(problem.m), likely(problem.n), likely(problem.k)
        ended = m * ROW_ENDED if n % t.lanes else 0
        if m == 1 and self.abreast > 1:
            products = row_cycles(self.abreast, t.vectors, -(-n // t.panel)) * k
        else:
            products = tile_cycles(t.isa, (t.rows, t.vectors), t.lanes, m, n, in_place=self.reads_in_place) * k
        exposed = 1.0
        if problem.m == 1 and problem.streamed and problem.distant:
            exposed = EXPOSED
        elif problem.m == 1 and in_halves(t.isa) and t.vectors == 1:
            exposed = ONE_LINE
        ended += storing_cycles(t.isa, m, n, t.lanes)
        ended += m * halving_functions(t.isa, n, t.lanes, len(self.epilogue.functions()))
        return likely(problem.count) * (products * exposed + ended) + self._waiting(problem)

    def _waiting(self, problem: GemmProblem) -> float:
        """Estimate the cycles of waiting for all of B."""
        t = self.tile
        return likely(problem.count) * problem.streamed * t.dtype.itemsize / costs_of(t.isa).stream

    def _skinny_dot(self, k: int) -> float:
        """Estimate the cycles of one of the four dot products that `SKINNY` makes together, lanes added one by one."""
        lanes = self.tile.lanes
        return LATENCY * (-(-k // lanes) + lanes) / 4

    @property
    def label(self) -> str:
        return f"packed {self.tile.rows}x{self.tile.vectors}"

    def joined(self, other: Kernel[Any]) -> Self | None:
        """Make the kernel that has the bodies of both, unless it had some one vector wide that none needs."""
        if not isinstance(other, type(self)) or replace(other, heights=self.heights, narrow=self.narrow) != self:
            return None
        if self.heights == other.heights:
            return replace(self, narrow=True) if other.narrow else self
        heights = tuple(sorted({*self.heights, *other.heights}, reverse=True))
        return replace(self, heights=heights) if self.narrow == other.narrow else None

    def arguments_for(self, problem: GemmProblem) -> dict[str, Dim]:
        return problem.arguments(self.packed_b_elements(problem.n, problem.k) if problem.matrices else Dim.of(1))

    def scratch(self, problem: GemmProblem) -> Dim:
        return self.scratch_bytes(problem.n, problem.k, problem.count)

    def own_bytes(self, sizes: Mapping[str, int]) -> int:
        t, m = self.tile, max(sizes["m"], 1)
        tiles = -(-m // t.rows)
        rows = min(tiles, self._most) * -(-m // tiles)
        return (rows * t.panel + min(self._room, rows * sizes["k"]) + t.lanes) * t.dtype.itemsize

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
        slots = [f"s{i}_{f}" for i, f in self.epilogue.strides("batch0", "batch1", "row")]
        b = "" if self.b_constant else "b_row b_col"
        matrices = f"m n k a_batch0 a_batch1 a_row a_col b_batch0 b_batch1 {b} c_batch0 c_batch1 c_row batch0 batch1"
        return (*matrices.split(), *slots)

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
        return "".join(
            f"\n        o.s{i} = g->s{i} + i * g->s{i}_batch0 + j * g->s{i}_batch1;"
            + (f"\n        o.s{i}_row = g->s{i}_row;" if axes in ("column", "full") else "")
            for i, axes in enumerate(self.epilogue.slots)
        )

    def parts(self) -> list[Part]:
        s, t = self.symbol, self.tile
        variants = Variants(self.heights, self.narrow)
        given = names(t) | {
            "S": s,
            "Y": names(t)["T"],
            "Q": vector_name(4, t.dtype),
            **tasks.names(tasks.columns(t)),
            "room": self._room,
            "worthwhile": tasks.WORTHWHILE,
            "TN": SKINNY_COLUMNS,
            "far": NEAR if self.heights == (1,) and self.tile.panel * self.tile.dtype.itemsize == LINE else AHEAD,
            "sum": LONGEST_SUM,
            "most": self._most,
            "abreast": self.abreast,
        }
        starts = self.slot_starts()
        row = fill(ABREAST, **given) if self.abreast > 1 else ""
        if row and self.heights == (1,):
            rows = [fill(SPLIT, **given), epilogue_of(s, t, self.epilogue), row, fill(ONE_ROW, **given)]
        else:
            one_row = fill(_ONE_ROW, **given) if row else ""
            rows = [
                bodies(t, variants),
                block(s, t, self.epilogue, variants),
                packing_rows(t),
                *([] if self.b_constant else [*packing_columns(s, t), fill(_PACK_B, **given)]),
                "" if self.b_constant else fill(SKINNY, **given, skinny=SKINNY_ROWS, slot_starts=starts),
                fill(SPLIT, **given),
                row,
                fill(_RANGE, **given, one_row=one_row),
            ]
        whole = f"(g->n + {t.panel - 1}) / {t.panel} * {t.panel} * g->k"
        packed = "g->b + i * g->b_batch0 + j * g->b_batch1" if self.b_constant else f"g->scratch + image * ({whole})"
        return [
            prelude(t, self.epilogue),
            DIVIDE,
            *rows,
            fill(
                tasks.PARTS, **given, slot_starts=starts, packed_b=packed, rows="g->m", columns="g->n", wide=tasks.WIDE
            ),
            fill(ENTRY, **given, **self.interface, pack="" if self.b_constant else fill(_PACK, **given)),
        ]

    @property
    def abreast(self) -> int:
        """The panels of B that one row meets at once; 1: there is no path of its own."""
        if not self.b_constant or 1 not in self.heights:
            return 1
        return costs_of(self.tile.isa).abreast.get(self.tile.vectors, 1)

    @property
    def _room(self) -> int:
        """The elements of A that are packed at once, at most."""
        return min(self.tile.isa.l2 * 3 // 8, PACKED) // self.tile.dtype.itemsize

    @property
    def _most(self) -> int:
        """The tiles of rows that are, at most."""
        return min(ROWS_AT_ONCE, self._room // LONGEST_SUM) // self.tile.rows

    @property
    def summary(self) -> str:
        what = "B packed at compile time" if self.b_constant else "B packed when called"
        return f"C = epilogue(A B), {self.tile.dtype}, tiles of {self.tile.rows} x {self.tile.panel}, {what}."


def packing_rows(tile: Tile) -> list[Part]:
    """Print `V_pack_rows`, which packs a tile of A, and what it needs: the same for all kernels with these vectors."""
    given = names(tile) | {"Q": vector_name(4, tile.dtype)}
    return [square(tile.lanes, tile.dtype), piece("IRC_PACK_ROWS_$V", _PACK_ROWS, "${V}_pack_rows", **given)]


def packing_columns(symbol: str, tile: Tile) -> list[Part]:
    """Print `NAME_pack_columns`, which packs a panel of a B whose columns are contiguous, and what it needs."""
    given = names(tile) | {"S": symbol, "Q": vector_name(4, tile.dtype)}
    rest = fill(_REST if tile.lanes >= 4 else _REST_ONE_BY_ONE, **given)
    return [square(tile.lanes, tile.dtype), fill(_PACK_COLUMNS, **given, rest=rest)]


def cached_elements(tile: Tile) -> int:
    """Return how many elements of A the caches are taken to hold: of more, the rows that come next are fetched."""
    return SECOND_CACHES * tile.isa.l2 // tile.dtype.itemsize


def is_narrow(tile: Tile, n: DimLike) -> bool:
    """Tell whether the last columns of n may fit a tile one vector wide."""
    columns = Dim.of(n)
    return tile.vectors > 1 and (not columns.is_const or 0 < int(columns) % tile.panel <= tile.lanes)
