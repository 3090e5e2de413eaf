"""Matrix product of dot products, C[m, n] = epilogue(A[m, k] · B[k, n]): the sum over k runs along the vectors' lanes.

Where B has few columns, a tile whose vectors lie along them computes more lanes than there are columns.  Here a tile
is rows of A × columns of B, both read along k, where their elements are contiguous: those of A always, those of B as
they are packed at compile time (`pack_b`), as they stand, or as the kernel packs them into its scratch.  The lanes of
all sums are added up at the end.

Threads split the output into ranges of tiles, never k: results do not depend on them.  Where B stays in the second
cache, all of it meets some rows of A before the next ones, so that A is read once.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from textwrap import indent
from typing import Self

import numpy as np

from irc.ir.dim import Dim, DimLike
from irc.ir.types import DType, f32, f64
from irc.kernels.core.base import Array, Packed
from irc.kernels.core.costs import LATENCY, costs_of
from irc.kernels.core.epilogue import Epilogue
from irc.kernels.core.isa import Isa
from irc.kernels.core.problem import likely
from irc.kernels.core.registry import kernel
from irc.kernels.core.text import Part, fill, piece, symbol, tile_body
from irc.kernels.core.tile import Tile, epilogue_of, heights_of, names, prelude
from irc.kernels.gemm.problem import GemmProblem, matrices, multiply
from irc.kernels.gemm.tasks import FEW_TASKS, WORTHWHILE
from irc.kernels.gemm.tiled import TiledGemmKernel, cached_elements
from irc.kernels.vector.lanes import dots, square

WIDTHS = (2, 3, 4, 6)
"""Columns of tiles."""
HIGHEST = 8
"""Rows of a tile at most."""
BLOCK = 4096
"""Bytes of a row that are multiplied before the next columns: what a tile reads stays in the first cache."""
TILES_DOWN, TILES_ACROSS = 4, 8
"""Tiles of a task."""
MOST_FETCHED = 2
"""Rows that a tile fetches at most while it multiplies: tiles of a range share the fetching of the next rows."""
SHARE = 2
"""A B that stays in the second cache takes it by this, at most: rows of A need room, too."""
STARTED, LOAD = 20.0, 0.1
"""Cycles to begin and end a block of a tile, and what a load costs even where multiply-adds take longer."""
UNFETCHED = 3.0
"""Times as long that many rows wait for constants in no cache: nobody fetches them for tiles of several rows."""
GATHERED, TURNED = 0.35, 0.35
"""Cycles to store an element of B whose columns are not contiguous, and to turn one, of whole vectors of columns."""

_TILE = """\
typedef void ${body}_run(int64_t k, const $T *a, int64_t a_row, const $T *b, int64_t b_col, $T *sums, int64_t row,
                           const $T *next);
/* sums[R][C], rows of them `row` apart, += A[R][k] * B[C][k].  Of F rows from next on, as far apart as A's, what is as
 * long is fetched into the second cache. */
IRC_INLINE void ${body}(const int R, const int C, const int F, int64_t k, const $T *restrict a, int64_t a_row,
                        const $T *restrict b, int64_t b_col, $T *restrict sums, int64_t row, const $T *next) {
    $V all[$MR][$NC], bv[$NC];
    EACH(i < R, c < C) all[i][c] = ${V}_zeros();
    for (; k >= $L; k -= $L, a += $L, b += $L, next += $L) {
        EACH(c < C) bv[c] = ${V}_load_kept(b + c * b_col);
        EACH(i < F) __builtin_prefetch(next + i * a_row, 0, 2);
        IRC_FULL_UNROLL
        for (int i = 0; i < R; i++) {
            $V x = ${V}_load(a + i * a_row);
            ${V}_keep(&x);
            EACH(c < C) all[i][c] += x * bv[c];
        }
    }
    if (k > 0) {
        EACH(c < C) bv[c] = ${V}_load_part(b + c * b_col, k);
        IRC_FULL_UNROLL
        for (int i = 0; i < R; i++) {
            const $V x = ${V}_load_part(a + i * a_row, k);
            EACH(c < C) all[i][c] += x * bv[c];
        }
    }
    IRC_FULL_UNROLL
    for (int i = 0; i < R * C; i += $P) {
        $V acc[$P];
        $T got[$L];
        EACH(u < $P) acc[u] = i + u < R * C ? all[(i + u) / C][(i + u) % C] : ($V){0};
$dots        ${V}_store(got, acc[0]);
        IRC_FULL_UNROLL
        for (int u = 0; u < $P; u++)
            if (i + u < R * C) sums[(i + u) / C * row + (i + u) % C] += got[u];
    }
}
"""

_INSTANCE = """\
static void ${body}_${R}x${C}_$F(int64_t k, const $T *a, int64_t a_row, const $T *b, int64_t b_col, $T *sums,
                                int64_t row, const $T *next) {
    $body($R, $C, $F, k, a, a_row, b, b_col, sums, row, next);
}
"""

_STEP = """
/* Elements from one packed column to the next: an odd number of vectors, so that the first cache holds many at once. */
IRC_INLINE int64_t ${S}_step(int64_t k) { return ((k + $L - 1) / $L | 1) * $L; }
"""

_PACK = """
/* Ranges of $L columns begin to end of the whole batch: [batch][column][k, $L at a time]. */
static void ${S}_pack_part(void *given, int64_t begin, int64_t end) {
    const ${S}_args *g = given;
    const int64_t ranges = (g->n + $L - 1) / $L, step = ${S}_step(g->k);
    for (int64_t p = begin; p < end; p++) {
        const int64_t image = p / ranges, col = p % ranges * $L, have = g->n - col < $L ? g->n - col : $L;
        const $T *from = g->b + image / g->batch1 * g->b_batch0 + image % g->batch1 * g->b_batch1 + col * g->b_col;
        $T *to = g->scratch + (image * g->n + col) * step;
        int64_t k = 0;
        if (g->b_col == 1 && have >= 4) {
            for (; k + $L <= g->k; k += $L) {
                $V x[$L];
                EACH(i < $L) x[i] = ${V}_load_part(from + (k + i) * g->b_row, have);
                ${V}_square(x);
                for (int64_t j = 0; j < have; j++) ${V}_store(to + j * step + k, x[j]);
            }
        }
        for (; k < g->k; k++)
            for (int64_t j = 0; j < have; j++) to[j * step + k] = from[k * g->b_row + j * g->b_col];
    }
}
"""

_BODY = """
/* Whether all ranges of rows follow one another, as B does not stay in the second cache. */
IRC_INLINE int ${S}_rows_first(const ${S}_args *g) { return g->n * g->k > $kept; }

/* Tiles of rows t0 to t1 x tiles of columns u0 to u1, of which there are $TA at most, of one matrix. */
static void ${S}_range(const ${S}_args *g, const ${S}_out *o, const $T *a, const $T *b, int64_t b_col, int64_t t0,
                       int64_t t1, int64_t u0, int64_t u1) {
    static ${body}_run *const runs[$MR][2][$most + 1] = {$runs};
    _Alignas(64) $T sums[$MR * $wide];
    const int64_t tiles = (g->m + $MR - 1) / $MR, low = g->m / tiles, extra = g->m % tiles;
    const int64_t across = (g->n + $NC - 1) / $NC, thin = g->n / across, wider = g->n % across;
    const int64_t col0 = u0 * thin + (u0 < wider ? u0 : wider), col1 = u1 * thin + (u1 < wider ? u1 : wider);
    /* Ranges of columns that follow one another read the same rows. */
    const int far = g->batch0 * g->batch1 * g->m * g->k > $near && (u0 == 0 || ${S}_rows_first(g));
    for (int64_t t = t0; t < t1; t++) {
        const int64_t row = t * low + (t < extra ? t : extra), rows = low + (t < extra);
        for (int64_t i = 0; i < rows * $wide; i++) sums[i] = 0;
        for (int64_t k = 0; k < g->k; k += $block) {
            const int64_t deep = g->k - k < $block ? g->k - k : $block;
            for (int64_t u = u0, col = col0; u < u1; u++) {
                /* The tiles share the fetching of the next rows. */
                const int64_t from = far ? rows * (u - u0) / (u1 - u0) : 0;
                const int64_t fetched = far ? rows * (u - u0 + 1) / (u1 - u0) - from : 0;
                runs[rows - 1][u < wider][fetched < $most ? fetched : $most](
                    deep, a + row * g->a_row + k, g->a_row, b + col * b_col + k, b_col, sums + col - col0, $wide,
                    a + (row + rows + from) * g->a_row + k);
                col += thin + (u < wider);
            }
        }
        for (int64_t i = 0; i < rows; i++) {
            for (int64_t col = col0; col < col1; col += $L) {
                const int64_t part = col1 - col;
                const $V sum = ${V}_load(sums + i * $wide + col - col0);
                const $V x = ${S}_epilogue(o, sum, row + i, col, part < $L ? part : $L);
                if (part < $L) ${V}_store_part(o->c + (row + i) * o->c_row + col, x, part);
                else ${V}_store(o->c + (row + i) * o->c_row + col, x);
            }
        }
    }
}

/* Tasks: matrices outermost, then ranges of rows and of columns; of few an even number, which threads share. */
typedef struct {
    int64_t tiles, columns, down, across, tasks;
} ${S}_plan;

IRC_INLINE ${S}_plan ${S}_tasks(const ${S}_args *g) {
    const int64_t tiles = (g->m + $MR - 1) / $MR, columns = (g->n + $NC - 1) / $NC, all = g->batch0 * g->batch1;
    int64_t down = (tiles + $TD - 1) / $TD, across = (columns + $TA - 1) / $TA;
    if (all * down * across % 2 && all * down * across < $few_tasks) {
        if (down < tiles) down = 2 * down < tiles ? 2 * down : tiles;
        else across = 2 * across < columns ? 2 * across : columns;
    }
    return (${S}_plan){tiles, columns, down, across, all * down * across};
}

static void ${S}_part(void *given, int64_t begin, int64_t end) {
    const ${S}_args *g = given;
    const ${S}_plan plan = ${S}_tasks(g);
    const int64_t tiles = plan.tiles, columns = plan.columns, down = plan.down, across = plan.across;
    const int rows_first = ${S}_rows_first(g);
    for (; begin < end; begin++) {
        const int64_t image = begin / down / across, i = image / g->batch1, j = image % g->batch1;
        /* Ranges of nearly as many tiles each. */
        const int64_t t = rows_first ? begin % down : begin / across % down;
        const int64_t u = rows_first ? begin / down % across : begin % across;
        ${S}_out o = {.c = g->c + i * g->c_batch0 + j * g->c_batch1, .c_row = g->c_row, .n = g->n};$slot_starts
$place        ${S}_range(g, &o, g->a + i * g->a_batch0 + j * g->a_batch1, b, step,
                   tiles * t / down, tiles * (t + 1) / down, columns * u / across, columns * (u + 1) / across);
    }
}

void $S($parameters) {
    if (g->m <= 0 || g->n <= 0) return;
    const int64_t tasks = ${S}_tasks(g).tasks;
    const int alone = !pool || (double)(g->batch0 * g->batch1) * (double)(g->m * g->n) * (double)g->k < $worthwhile;
$pack    if (alone || tasks < 2) ${S}_part((void *)g, 0, tasks);
    else pool->parallel_for(pool->self, tasks, ${S}_part, (void *)g);
}
"""

_CONSTANT = """\
        const int64_t step = ${S}_step(g->k);
        const $T *b = g->b + i * g->b_batch0 + j * g->b_batch1;
"""

_EITHER = """\
        const int64_t whole = ${S}_step(g->k), step = g->b_row == 1 ? g->b_col : whole;
        const $T *b = g->b_row == 1 ? g->b + i * g->b_batch0 + j * g->b_batch1 : g->scratch + image * g->n * whole;
"""

_PACKING = """\
    if (g->b_row != 1) {
        const int64_t ranges = g->batch0 * g->batch1 * ((g->n + $L - 1) / $L);
        if (alone || ranges < 2) ${S}_pack_part((void *)g, 0, ranges);
        else pool->parallel_for(pool->self, ranges, ${S}_pack_part, (void *)g);
    }
"""


@kernel
class DotsGemmKernel(TiledGemmKernel):
    """A matrix product whose vectors lie along k: A's columns contiguous (`a_col` is 1).

    `tile` has its rows; `width` is the columns of its widest tile, `widths` those of all.  `most_fetched` is how many
    rows a tile fetches at most: none, where the caches always hold A.
    """

    width: int = 1
    widths: tuple[int, ...] = (1,)
    most_fetched: int = MOST_FETCHED

    @classmethod
    def of_width(
        cls, isa: Isa, dtype: DType, m: DimLike, n: int, epilogue: Epilogue, constant: bool, width: int
    ) -> Self:
        """Make the variant with tiles so many columns wide, as high as registers allow."""
        rows = min(HIGHEST, (isa.registers - 1 - width) // width)
        heights, widths = heights_of(m, rows), tuple(sorted(heights_of(n, width)))
        return cls(Tile(isa, dtype, rows, 1), epilogue, constant, heights, False, width, widths)

    @classmethod
    def candidates(cls, problem: GemmProblem, isa: Isa) -> Iterator[Self]:
        """Yield the variants for a known number of columns, A's rows contiguous."""
        n, constant = problem.n, bool(problem.matrices)
        if problem.dtype not in (f32, f64) or problem.a[3] != 1 or not n.is_const or int(n) < 2:
            return
        for width in WIDTHS:
            if width <= int(n):
                made = cls.of_width(isa, problem.dtype, problem.m, int(n), problem.epilogue, constant, width)
                elements = problem.count * problem.m * problem.k
                near = elements.is_const and int(elements) <= cached_elements(made.tile)
                yield replace(made, most_fetched=0) if near else made

    def cycles(self, problem: GemmProblem) -> float:
        m, n, k, t = likely(problem.m), likely(problem.n), likely(problem.k), self.tile
        costs, blocks = costs_of(t.isa), -(-k * t.dtype.itemsize // BLOCK)
        total = 0.0
        for height, down in _tiles(m, t.rows):
            for width, across in _tiles(n, self.width):
                loads = height + width
                step = (max(height * width / t.isa.fma, loads / 2, LATENCY) + LOAD * loads) / costs.dots
                block = costs.dot * height * width + STARTED
                total += down * across * (-(-k // t.lanes) * step + blocks * block)
        gathered = 0.0
        if not problem.matrices and problem.b[2] != 1:
            gathered = k * (n * GATHERED + -(-n // t.lanes) * t.lanes * TURNED) + self._packed_apart(problem)
        waiting = (
            problem.streamed * t.dtype.itemsize / costs.stream * (UNFETCHED if m > t.rows and problem.matrices else 1)
        )
        return likely(problem.count) * (total + gathered + waiting)

    def own_bytes(self, sizes: Mapping[str, int]) -> int:
        return 0

    @property
    def label(self) -> str:
        return f"dots {self.tile.rows}x{self.width}"

    def scratch(self, problem: GemmProblem) -> Dim:
        return Dim.of(0) if problem.b[2] == 1 else super().scratch(problem)

    def packed(self, problem: GemmProblem) -> Packed | None:
        if not problem.matrices:
            return None
        elements = int(self.packed_b_elements(problem.n, problem.k)) * problem.matrices
        return Packed(("columns", self.tile.lanes), self.tile.dtype, elements, lambda b: self.pack_b(b).reshape(-1))

    def packed_b_elements(self, n: DimLike, k: DimLike) -> Dim:
        return Dim.of(n) * self._step(Dim.of(k))

    def _step(self, k: Dim) -> Dim:
        """Compute the elements from one packed column to the next, at most if k is unknown."""
        vectors = k.ceildiv(self.tile.lanes)
        return (Dim.of(int(vectors) | 1) if vectors.is_const else vectors + 1) * self.tile.lanes

    def pack_b(self, b: Array) -> Array:
        """Pack B[…, k, n] as […, n, k], zeros behind k to an odd number of vectors."""
        k, n = b.shape[-2:]
        full = np.zeros((*b.shape[:-2], n, int(self._step(Dim.of(k)))), self.tile.dtype.numpy)
        full[..., :k] = np.swapaxes(b, -1, -2)
        return full

    def compute(self, reads: Sequence[Array], writes: Sequence[Array], sizes: Mapping[str, int]) -> None:
        if not self.b_constant:
            super().compute(reads, writes, sizes)
            return
        n, k = sizes["n"], sizes["k"]
        b = np.swapaxes(matrices(reads[1], (n, k), (int(self._step(Dim.of(k))), 1), sizes), -1, -2)
        multiply(b, self.epilogue, reads, writes, sizes)

    @cached_property
    def symbol(self) -> str:
        kind = "gemm_dots" if self.b_constant else "matmul_dots"
        key = f"{self.epilogue.key()}{self.heights}{self.widths}{self.most_fetched}"
        return symbol(kind, self._body.removeprefix("irc_dots_"), key)

    @property
    def _body(self) -> str:
        return f"{self.tile.name.replace('tile', 'dots', 1)}x{self.width}"

    def parts(self) -> list[Part]:
        t, s = self.tile, self.symbol
        group = min(4, t.lanes)
        across = -(-max(self.widths) * TILES_ACROSS // t.lanes) * t.lanes
        given = names(t) | {"S": s, "body": self._body, "NC": self.width, "P": group, "wide": across}
        given["near"] = cached_elements(t)
        given["kept"] = t.isa.l2 // SHARE // t.dtype.itemsize
        given |= {
            "TD": TILES_DOWN,
            "TA": TILES_ACROSS,
            "most": self.most_fetched,
            "few_tasks": FEW_TASKS,
            "block": BLOCK // t.dtype.itemsize,
            "worthwhile": WORTHWHILE,
        }
        fetched = range(self.most_fetched + 1)
        sizes = [(r, c, f) for r in self.heights for c in self.widths for f in fetched]
        runs = ", ".join(f"[{r} - 1] = {{{self._runs(r, 0)}, {self._runs(r, -1)}}}" for r in self.heights)
        return [
            prelude(t, self.epilogue),
            "" if self.b_constant else square(t.lanes, t.dtype),
            tile_body(self._body, _TILE, **given, dots=indent(dots(group, t.lanes, t.dtype), " " * 4)),
            *(piece("IRC_TILE_${body}_${R}x${C}_$F", _INSTANCE, **given, R=r, C=c, F=f) for r, c, f in sizes),
            epilogue_of(s, t, self.epilogue),
            fill(_STEP, **given),
            "" if self.b_constant else fill(_PACK, **given),
            fill(
                _BODY,
                **given,
                **self.interface,
                runs=runs,
                slot_starts=self.slot_starts(),
                place=fill(_CONSTANT if self.b_constant else _EITHER, **given),
                pack="" if self.b_constant else fill(_PACKING, **given),
            ),
        ]

    def _runs(self, height: int, width: int) -> str:
        """Print the tiles of a height and a width, by the rows that they fetch."""
        name = f"{self._body}_{height}x{self.widths[width]}"
        return "{" + ", ".join(f"{name}_{fetched}" for fetched in range(self.most_fetched + 1)) + "}"

    @property
    def summary(self) -> str:
        how = "packed at compile time" if self.b_constant else "read in place or packed when called"
        return f"C = epilogue(A B), {self.tile.dtype}, dot products {self.tile.rows} x {self.width} at once, B {how}."


def _tiles(size: int, most: int) -> Iterator[tuple[int, int]]:
    """Yield the sizes of the tiles that so many rows or columns are cut into, and how many there are of each."""
    if size:
        tiles = -(-size // most)
        low, extra = divmod(size, tiles)
        yield low, tiles - extra
        yield low + 1, extra
