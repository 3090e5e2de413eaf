"""Matrix product of few rows, C[m, n] = epilogue(A[m, k] · B[k, n]), with a B that is not constant: B is read in order.

Such a product waits for B, which is read once, and memory is fastest where it is read as it stands: some rows of B at
a time meet all rows of A, and add to sums of a piece of the columns, which stay in the first cache.  Tiles that keep
their sums in registers read short pieces of many rows of B instead, each in another page.

Threads split the columns, never k: results do not depend on them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import cached_property
from typing import Self

from irc.ir.dim import Dim
from irc.ir.types import f32, f64
from irc.kernels.core.costs import costs_of
from irc.kernels.core.isa import Isa
from irc.kernels.core.problem import likely
from irc.kernels.core.registry import kernel
from irc.kernels.core.text import Part, fill, piece, symbol, tile_body
from irc.kernels.core.tile import Tile, epilogue_of, names, prelude
from irc.kernels.core.workspace import DIVIDE
from irc.kernels.gemm.problem import GemmProblem
from irc.kernels.gemm.tasks import WORTHWHILE
from irc.kernels.gemm.tiled import LONGEST_SUM, TiledGemmKernel

MOST_ROWS = 4
"""Rows of A at most, and rows of B that meet them at once, where there are registers for their products."""
SUMS = 4096
"""Sums of a piece of the columns."""
TASKS, LEAST_COLUMNS = 4, 192
"""Tasks that the columns are cut into, of so many at least: of short pieces of rows memory is not as fast."""
LEAST_HALF = 32
"""Columns of two tasks, at least, where there are not enough for more: two caches hold what one does not."""
REACHED = 0.8
"""The part of the rate of loads, stores and multiply-adds that is reached."""
ROW_STARTED = 12.0
"""Cycles to begin some rows of a piece of B."""

_TILE = """\
/* sums[$R][n] += A[$R][G] * B[G][n]; of the last vector of B nothing behind column n is read. */
IRC_INLINE void ${body}(const int G, int64_t n, const $T *a, int64_t a_row, int64_t a_col,
                        const $T *restrict b, int64_t b_row, $T *restrict sums, int64_t row) {
    $V x[$R][$at_once], bv[$at_once];
    EACH(i < $R, g < G) x[i][g] = ${V}_all(a[i * a_row + g * a_col]);
    int64_t j = 0;
    for (; j + $L <= n; j += $L) {
        EACH(g < G) bv[g] = ${V}_load(b + g * b_row + j);
        IRC_FULL_UNROLL
        for (int i = 0; i < $R; i++) {
            $V sum = ${V}_load(sums + i * row + j);
            EACH(g < G) sum += x[i][g] * bv[g];
            ${V}_store(sums + i * row + j, sum);
        }
    }
    if (j == n) return;
    IRC_FULL_UNROLL
    for (int g = 0; g < G; g++) {
        const $V last = ${V}_load_part(b + g * b_row + j, n - j);
        IRC_FULL_UNROLL
        for (int i = 0; i < $R; i++) {
            $T *const at = sums + i * row + j;
            ${V}_store(at, ${V}_load(at) + x[i][g] * last);
        }
    }
}
"""

_INSTANCE = """\
static void ${body}_${R}x$G(int64_t n, const $T *a, int64_t a_row, int64_t a_col, const $T *b, int64_t b_row, $T *sums,
                            int64_t row) {
    $body($G, n, a, a_row, a_col, b, b_row, sums, row);
}
"""

_BODY = """
/* sums[m][n] = A[m][k] * B[k][n], rows of sums `wide` apart. */
static void ${S}_sums(const ${S}_args *g, int64_t n, int64_t k, const $T *a, const $T *b, $T *sums, int64_t wide) {
    for (int64_t j = 0; j < g->m * wide; j += $L) ${V}_store(sums + j, ($V){0});
    int64_t i = 0;
    for (; i + $at_once <= k; i += $at_once)
        ${body}_${R}x$at_once(n, a + i * g->a_col, g->a_row, g->a_col, b + i * g->b_row, g->b_row, sums, wide);
    for (; i < k; i++)
        ${body}_${R}x1(n, a + i * g->a_col, g->a_row, g->a_col, b + i * g->b_row, g->b_row, sums, wide);
}

/* Columns col to col + n of one matrix; long sums are sums of sums, which lose less. */
static void ${S}_piece(const ${S}_args *g, const ${S}_out *o, const $T *a, const $T *b, $T *sums, int64_t col,
                       int64_t n) {
    const int64_t wide = (n + $L - 1) / $L * $L;
    $T *const more = sums + g->m * wide;
    int64_t k = g->k < $longest ? g->k : $longest;
    ${S}_sums(g, n, k, a, b + col, sums, wide);
    for (int64_t some; k < g->k; k += some) {
        some = g->k - k < $longest ? g->k - k : $longest;
        ${S}_sums(g, n, some, a + k * g->a_col, b + k * g->b_row + col, more, wide);
        for (int64_t j = 0; j < g->m * wide; j += $L) ${V}_store(sums + j, ${V}_load(sums + j) + ${V}_load(more + j));
    }
    for (int64_t i = 0; i < g->m; i++) {
        $T *const c = o->c + i * o->c_row + col;
        for (int64_t j = 0; j < n; j += $L) {
            const int64_t part = n - j;
            const $V x = ${V}_load(sums + i * wide + j);
            if (part < $L) ${V}_store_part(c + j, ${S}_epilogue(o, x, i, col + j, part), part);
            else ${V}_store(c + j, ${S}_epilogue(o, x, i, col + j, $L));
        }
    }
}

/* The columns of a task. */
IRC_INLINE int64_t ${S}_columns(const ${S}_args *g) {
    const int64_t fit = g->n / $least, tasks = fit > $tasks ? $tasks : fit > 2 ? fit : g->n < 2 * $half ? 1 : 2;
    return (g->n + tasks * $L - 1) / (tasks * $L) * $L;
}

/* Tasks begin to end: matrices outermost, then ranges of columns; those beside each other at once. */
static void ${S}_part(void *given, char *own, int64_t begin, int64_t end) {
    const ${S}_args *g = given;
    const int64_t columns = ${S}_columns(g), across = (g->n + columns - 1) / columns;
    while (begin < end) {
        const int64_t image = begin / across, i = image / g->batch1, j = image % g->batch1, first = begin % across;
        const int64_t run = across - first < end - begin ? across - first : end - begin;
        const int64_t stop = (first + run) * columns, last = stop < g->n ? stop : g->n;
        ${S}_out o = {.c = g->c + i * g->c_batch0 + j * g->c_batch1, .c_row = g->c_row, .n = g->n};$slot_starts
        for (int64_t col = first * columns; col < last; col += $fit)
            ${S}_piece(g, &o, g->a + i * g->a_batch0 + j * g->a_batch1, g->b + i * g->b_batch0 + j * g->b_batch1,
                       ($T *)own, col, last - col < $fit ? last - col : $fit);
        begin += run;
    }
}

void $S($parameters) {
    if (g->m <= 0 || g->n <= 0) return;
    const int64_t tasks = g->batch0 * g->batch1 * ((g->n + ${S}_columns(g) - 1) / ${S}_columns(g));
    if (!pool || tasks < 2 || (double)(g->batch0 * g->batch1) * (double)(g->m * g->n) * (double)g->k < $worthwhile)
        ${S}_part((void *)g, g->own, 0, tasks);
    else irc_divide(pool, tasks, ${S}_part, (void *)g, g->own, g->own_bytes, g->owners);
}
"""


@kernel
class StreamsGemmKernel(TiledGemmKernel):
    """A matrix product of few rows whose B is not constant, its rows contiguous (`b_col` is 1)."""

    @classmethod
    def candidates(cls, problem: GemmProblem, isa: Isa) -> Iterator[Self]:
        m, dtype = problem.m, problem.dtype
        if dtype not in (f32, f64) or problem.matrices or problem.b[3] != 1 or not m.is_const:
            return
        if 0 < int(m) <= MOST_ROWS:
            yield cls(Tile(isa, dtype, int(m), 1), problem.epilogue, False, (int(m),), False)

    def cycles(self, problem: GemmProblem) -> float:
        m, n, k, t, g = int(problem.m), likely(problem.n), likely(problem.k), self.tile, self._at_once
        costs = costs_of(t.isa)
        step = max(m * g / t.isa.fma, (g + m) / 2, m) / REACHED
        pieces = -(-n // self._fit)
        products = (k // g + k % g) * (-(-n // t.lanes) * step + pieces * ROW_STARTED)
        waiting = problem.streamed * t.dtype.itemsize / costs.stream
        return likely(problem.count) * (products + waiting)

    @property
    def label(self) -> str:
        return "streams"

    def scratch(self, problem: GemmProblem) -> Dim:
        return Dim.of(0)

    def own_bytes(self, sizes: Mapping[str, int]) -> int:
        wide = -(-min(sizes["n"], self._fit) // self.tile.lanes) * self.tile.lanes
        return 2 * self.tile.rows * wide * self.tile.dtype.itemsize

    @property
    def _fit(self) -> int:
        """The columns of a piece."""
        return SUMS // self.tile.rows // self.tile.lanes * self.tile.lanes

    @property
    def _at_once(self) -> int:
        """The rows of B that are read at once."""
        registers = (self.tile.rows + 1) * MOST_ROWS + 1
        return MOST_ROWS if registers <= self.tile.isa.registers else MOST_ROWS // 2

    @cached_property
    def symbol(self) -> str:
        return symbol("matmul_streams", self.tile.name.removeprefix("irc_tile_"), self.epilogue.key())

    @property
    def pointers(self) -> tuple[tuple[str, str], ...]:
        return super().pointers[:-1]

    def parts(self) -> list[Part]:
        t, s, at_once = self.tile, self.symbol, self._at_once
        body = t.name.replace("tile", "streams", 1)
        given = names(t) | {"S": s, "body": body, "at_once": at_once, "longest": LONGEST_SUM}
        given |= {
            "R": t.rows,
            "tasks": TASKS,
            "least": LEAST_COLUMNS,
            "half": LEAST_HALF,
            "fit": self._fit,
            "worthwhile": WORTHWHILE,
        }
        return [
            prelude(t, self.epilogue),
            DIVIDE,
            tile_body(body, _TILE, **given),
            *(piece("IRC_TILE_${body}_${R}x$G", _INSTANCE, **given, G=step) for step in (1, at_once)),
            epilogue_of(s, t, self.epilogue),
            fill(_BODY, **given, **self.interface, slot_starts=self.slot_starts()),
        ]

    @property
    def summary(self) -> str:
        return f"C = epilogue(A B), {self.tile.dtype}, {self.tile.rows} rows, B read in order."
