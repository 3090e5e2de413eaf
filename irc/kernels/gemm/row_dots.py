"""One row by a matrix that is not constant, C[n] = epilogue(a[k] · B[k, n]), the columns of B contiguous: dot products.

This is a matrix by a column, too.  Each element of B is read once, so that what counts is how B is read, and how the
lanes of the sums are added up: those of a vector of results at a time.  Of short columns, so many are read side by
side; of long ones one after the other, each into several sums, which memory gives sooner.

Threads split the columns, never k: results do not depend on them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import cached_property
from typing import Self

from irc.ir.dim import Dim
from irc.ir.types import f32, f64
from irc.kernels.core.costs import LANES_FOLDED, LATENCY, LOADS, costs_of
from irc.kernels.core.epilogue import Epilogue
from irc.kernels.core.isa import Isa
from irc.kernels.core.problem import likely
from irc.kernels.core.registry import kernel
from irc.kernels.core.text import Part, fill, piece, symbol
from irc.kernels.core.tile import Tile, epilogue_of, names, prelude
from irc.kernels.gemm.problem import GemmProblem
from irc.kernels.gemm.tasks import WORTHWHILE
from irc.kernels.gemm.tiled import LONGEST_SUM, TiledGemmKernel
from irc.kernels.vector.lanes import dots

SHORT = 512
"""Bytes of columns that are read side by side, at most: then neighbouring ones are in the same page."""
BESIDE = 4
"""Columns that are."""
HALF = 8
"""Lanes, at least, of vectors that are half as long where columns are no longer."""
SUMS = 4
"""Sums of a longer column."""
TASK = 1 << 14
"""Elements of B that a task reads, at least."""
STARTED = 12.0
"""Cycles to begin and end a longer column."""

_COLUMNS = """
/* Of $L columns the sums of a[k] * b[k], in the lanes of the result.  far: b is not in the caches, the next columns are
 * fetched. */
IRC_INLINE $V ${V}_beside(int64_t k, const $T *restrict a, const $T *restrict b, int64_t b_col, int far) {
    $V acc[$L];
    IRC_FULL_UNROLL
    for (int i = 0; i < $L; i += $beside, b += $beside * b_col) {
        int64_t j = 0;
        EACH(u < $beside) acc[i + u] = ${V}_zeros();
        for (; j + $L <= k; j += $L) {
            const $V x = ${V}_load(a + j);
            if (far) {
                EACH(u < $beside) __builtin_prefetch(b + ($L + u) * b_col + j);
            }
            EACH(u < $beside) acc[i + u] += x * ${V}_load(b + u * b_col + j);
        }
        if (j == k) continue;
        const $V x = ${V}_load_part(a + j, k - j);
        EACH(u < $beside) acc[i + u] += x * ${V}_load_part(b + u * b_col + j, k - j);
    }
$dots    return acc[0];
}

/* The lanes of the sum of a[k] * b[k]; long sums are sums of sums, which lose less. */
static $V ${V}_along(int64_t k, const $T *restrict a, const $T *restrict b) {
    $V all = {0};
    while (k > 0) {
        $V acc[$sums];
        EACH(u < $sums) acc[u] = ${V}_zeros();
        int64_t some = k < $longest ? k : $longest;
        k -= some;
        for (; some >= $sums * $L; some -= $sums * $L, a += $sums * $L, b += $sums * $L) {
            EACH(u < $sums) acc[u] += ${V}_load(a + u * $L) * ${V}_load(b + u * $L);
        }
        for (; some >= $L; some -= $L, a += $L, b += $L) acc[0] += ${V}_load(a) * ${V}_load(b);
        if (some > 0) acc[1] += ${V}_load_part(a, some) * ${V}_load_part(b, some);
        IRC_FULL_UNROLL
        for (int u = 1; u < $sums; u++) acc[0] += acc[u];
        all += acc[0];
    }
    return all;
}

/* The same as V_beside, of `have` columns, one after the other. */
static $V ${V}_in_turn(int64_t k, const $T *a, const $T *b, int64_t b_col, int64_t have) {
    $V acc[$L];
    for (int64_t i = 0; i < $L; i++) acc[i] = i < have ? ${V}_along(k, a, b + i * b_col) : ($V){0};
$dots    return acc[0];
}
"""

_BODY = """
/* The columns of a task. */
IRC_INLINE int64_t ${S}_columns(const ${S}_args *g) {
    const int64_t fit = g->k < $task ? $task / (g->k + 1) : 1;
    return (fit + $L - 1) / $L * $L;
}

/* Tasks begin to end: matrices outermost, then ranges of columns. */
static void ${S}_part(void *given, int64_t begin, int64_t end) {
    const ${S}_args *g = given;
    const int64_t columns = ${S}_columns(g), across = (g->n + columns - 1) / columns;
    const int far = g->batch0 * g->batch1 * g->n * g->k > $own;
    for (; begin < end; begin++) {
        const int64_t image = begin / across, i = image / g->batch1, j = image % g->batch1;
        const int64_t first = begin % across * columns, last = g->n - first < columns ? g->n : first + columns;
        ${S}_out o = {.c = g->c + i * g->c_batch0 + j * g->c_batch1, .c_row = g->c_row, .n = g->n};$slot_starts
        const $T *const a = g->a + i * g->a_batch0 + j * g->a_batch1;
        const $T *const b = g->b + i * g->b_batch0 + j * g->b_batch1;
        for (int64_t col = first; col < last; col += $L) {
            const int64_t have = last - col < $L ? last - col : $L;
            const $T *const from = b + col * g->b_col;
            const $V sum = g->k <= $short && have == $L ? ${V}_beside(g->k, a, from, g->b_col, far)
                                                        : ${V}_in_turn(g->k, a, from, g->b_col, have);
            const $V x = ${S}_epilogue(&o, sum, 0, col, have);
            if (have < $L) ${V}_store_part(o.c + col, x, have);
            else ${V}_store(o.c + col, x);
        }
    }
}

void $S($parameters) {
    if (g->m <= 0 || g->n <= 0) return;
    const int64_t tasks = g->batch0 * g->batch1 * ((g->n + ${S}_columns(g) - 1) / ${S}_columns(g));
    if (!pool || tasks < 2 || (double)(g->batch0 * g->batch1) * (double)g->n * (double)g->k < $worthwhile)
        ${S}_part((void *)g, 0, tasks);
    else pool->parallel_for(pool->self, tasks, ${S}_part, (void *)g);
}
"""


@kernel
class RowDotsGemmKernel(TiledGemmKernel):
    """A matrix product of one row whose B is not constant, its columns contiguous (`a_col` and `b_row` are 1)."""

    @classmethod
    def candidates(cls, problem: GemmProblem, isa: Isa) -> Iterator[Self]:
        if problem.dtype not in (f32, f64) or problem.matrices or not isa.has_vectors:
            return
        if problem.m == 1 and problem.a[3] == 1 and problem.b[2] == 1:
            half = isa.lanes(problem.dtype) // 2
            short = problem.k.is_const and int(problem.k) <= half >= HALF
            yield cls.of(isa.halved() if short else isa, problem.epilogue)

    @classmethod
    def of(cls, isa: Isa, epilogue: Epilogue) -> Self:
        """Make the variant for this set of instructions."""
        return cls(Tile(isa, epilogue.dtype, 1, 1), epilogue, False, (1,), False)

    def cycles(self, problem: GemmProblem) -> float:
        n, k, t = likely(problem.n), likely(problem.k), self.tile
        vectors = -(-k // t.lanes)
        if k <= self._short:
            column = vectors * max(1 / t.isa.fma, (1 + 1 / t.lanes) / LOADS)
        else:
            column = max(vectors * max(1 / t.isa.fma, 2 / LOADS), vectors * LATENCY / SUMS) + STARTED
        waiting = problem.streamed * t.dtype.itemsize / costs_of(t.isa).stream
        return likely(problem.count) * (n * (column + LANES_FOLDED) + waiting)

    @property
    def _short(self) -> int:
        return SHORT // self.tile.dtype.itemsize

    @property
    def label(self) -> str:
        return "dots of a row"

    def scratch(self, problem: GemmProblem) -> Dim:
        return Dim.of(0)

    def own_bytes(self, sizes: Mapping[str, int]) -> int:
        return 0

    @cached_property
    def symbol(self) -> str:
        return symbol("matmul_row_dots", self.tile.name.removeprefix("irc_tile_"), self.epilogue.key())

    @property
    def pointers(self) -> tuple[tuple[str, str], ...]:
        return super().pointers[:-1]

    def parts(self) -> list[Part]:
        t, s = self.tile, self.symbol
        given = names(t) | {"S": s, "sums": SUMS, "longest": LONGEST_SUM * SUMS * t.lanes, "short": self._short}
        given |= {
            "beside": min(BESIDE, t.lanes),
            "own": t.isa.l2 // 2 // t.dtype.itemsize,
            "task": TASK,
            "worthwhile": WORTHWHILE,
        }
        return [
            prelude(t, self.epilogue),
            piece("IRC_ROW_DOTS_${V}", _COLUMNS, **given, dots=dots(t.lanes, t.lanes, t.dtype)),
            epilogue_of(s, t, self.epilogue),
            fill(_BODY, **given, **self.interface, slot_starts=self.slot_starts()),
        ]

    @property
    def summary(self) -> str:
        return f"C = epilogue(a B), {self.tile.dtype}, one row, columns of B contiguous."
