"""Matrix product with a constant B in blocks, C[m, n] = epilogue(A[m, k] · B[k, n]): A is read where it stands.

A block, as many columns of B and as much of k as take half of the second cache, meets all tiles of rows, which read A
by broadcasts, while the next block is fetched: no operand is waited for, and nothing is packed.  Between blocks of k
the sums stand in C.  Blocks that stay in the second cache are those of GotoBLAS (K. Goto and R. van de Geijn, Anatomy
of high-performance matrix multiplication, ACM TOMS 34, 2008), which packs A, too.

B is packed at compile time as `GemmKernel` packs it.  Threads split the output into ranges of rows × ranges of
columns, never k: results do not depend on them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import cached_property

from irc.kernels.core.costs import ROW_ENDED, WAYS, costs_of, storing_cycles, tile_cycles
from irc.kernels.core.isa import Isa
from irc.kernels.core.problem import likely
from irc.kernels.core.registry import kernel
from irc.kernels.core.text import Part, fill, symbol, tile_body
from irc.kernels.core.tile import ADD_AND_STORE, Variants, names, prelude
from irc.kernels.gemm import in_place, tasks
from irc.kernels.gemm.packed import SPLIT, GemmKernel
from irc.kernels.gemm.problem import GemmProblem
from irc.kernels.gemm.small_b import is_small
from irc.kernels.gemm.tasks import WORTHWHILE
from irc.kernels.gemm.tiled import LONGEST_SUM

LINE = 64
"""Bytes of a line of the caches."""
SHARE = 2
"""A block of B takes the second cache by this: the next one and rows of A need room, too."""
DEEP = 2
"""Sums of LONGEST_SUM products that a tile adds up in a block, at most: C is read and written once for each."""
READ_AGAIN = 0.5
"""Cycles to read an element of A again for the next columns."""
CONFLICT, CONFLICTS = 1.09, 4.0
"""How many times as long products take if the rows of a tile of A are more lines than the first cache holds at places
that are a multiple of WAY apart; and if they are more than twice as many (as measured on Zen 5)."""

_B, _FETCH = {"b": "const $T *"}, {"next": "int64_t ", "ahead": "const $T *", "hop": "int64_t "}
_TILE = (
    """\
typedef void ${body}_run(int64_t k, const $T *a, int64_t a_row, const $T *b, const $T *from, int64_t from_row, $T *to,
                         int64_t to_row, int64_t next, const $T *ahead, int64_t hop);
/* to[R][W vectors] = from + A[R][k] * B[k][$NR], from NULL: 0.  For each line of a row of A one is fetched `next`
 * elements on, unless that is 0, and `hop` lines from `ahead` on: into the second cache, as rows that are a multiple of
 * 4 KiB long would displace each other in the first. */
IRC_INLINE void ${body}(const int R, const int W, int64_t k, const $T *restrict a, int64_t a_row,
                        const $T *restrict b, const $T *from, int64_t from_row, $T *to, int64_t to_row, int64_t next,
                        const $T *ahead, int64_t hop) {
    $V acc[$MR][$NV], odd[$MR][$NV], bv[$NV];
    _Alignas(64) $T before[$MR * $NR];
    const int U = R * W < 8 ? 2 : 1; /* few sums: twice as many hide the latency of the additions */
    for (int first = 1;; first = 0, k -= $sum) { /* long sums are sums of sums, which lose less */
        EACH(i < R, w < W) acc[i][w] = odd[i][w] = ${V}_zeros();
        int64_t left = k < $sum ? k : $sum;
        for (; left >= 4; left -= 4) {
            if (left % $line < 4) { /* a line of the cache of each row */
                if (next) {
                    const $T *line = a + next;
                    IRC_FULL_UNROLL
                    for (int i = 0; i < R; i++, line += a_row) {
                        IRC_STEP(line);
                        __builtin_prefetch(line, 0, 2);
                    }
                }
                for (int64_t line = 0; line < hop; line++, ahead += $line) __builtin_prefetch(ahead, 0, 2);
            }
            IRC_UNROLL
            for (int s = 0; s < 4; s += U, a += U, b += U * $NR) {
                EACH(w < W) bv[w] = ${V}_load_kept(b + w * $L);
                EACH(i < R, w < W) ${V}_add_product(&acc[i][w], a[i * a_row], bv[w]);
                if (U == 1) continue;
                EACH(w < W) bv[w] = ${V}_load_kept(b + $NR + w * $L);
                EACH(i < R, w < W) ${V}_add_product(&odd[i][w], a[i * a_row + 1], bv[w]);
            }
        }
        for (; left > 0; left--, a++, b += $NR) {
            EACH(w < W) bv[w] = ${V}_load_kept(b + w * $L);
            EACH(i < R, w < W) ${V}_add_product(&acc[i][w], a[i * a_row], bv[w]);
        }
        if (U == 2) {
            EACH(i < R, w < W) acc[i][w] += odd[i][w];
        }
        if (!first) {
            EACH(i < R, w < W) acc[i][w] += ${V}_load(before + i * $NR + w * $L);
        }
        if (k <= $sum) break;
        EACH(i < R, w < W) ${V}_store(before + i * $NR + w * $L, acc[i][w]);
    }
"""
    + ADD_AND_STORE
)

_RANGE = """
/* Tiles t0 to t1, columns col0 to col1 of one matrix. */
static void ${S}_range(const ${S}_args *g, const ${S}_out *o, const $T *a, const $T *b, char *own, int64_t t0,
                       int64_t t1, int64_t col0, int64_t col1) {
    (void)own;
    const ${S}_rows m = ${S}_split(g->m);
    /* k in sums, as many as a block is deep; columns, as many as a block is wide. */
    const int64_t sums = g->k > 0 ? (g->k + $sum - 1) / $sum : 1, step = (g->k + sums - 1) / sums;
    const int64_t chunks = (sums + $deep - 1) / $deep, deep = (sums + chunks - 1) / chunks * step;
    const int64_t fit = deep > 0 ? $room / (deep * $NR) : 1, wide = (fit > 1 ? fit : 1) * $NR;
    const int far = ${S}_is_far(g);
    for (int64_t left = col0; left < col1; left += wide) {
        const int64_t right = left + wide < col1 ? left + wide : col1;
        int64_t k0 = 0;
        do {
            const int64_t chunk = g->k - k0 < deep ? g->k - k0 : deep;
            /* What comes next: the columns on from `later`, k from `then` on. */
            const int64_t then = k0 + chunk < g->k ? k0 + chunk : 0, later = then ? left : right;
            const int64_t coming = (g->k - then < deep ? g->k - then : deep) * $NR;
            for (int64_t t = t0; t < t1; t++) {
                const int64_t row = t * m.low + (t < m.extra ? t : m.extra);
                const int height = (int)(m.low + (t < m.extra));
                const $T *fetched = b + then * $NR + coming * (t - t0) / (t1 - t0) / $line * $line;
                for (int64_t col = left; col < right; col += $NR) {
                    const $T *panel = b + col * g->k + k0 * $NR;
                    const int64_t next = t + 1 < t1 && col == left ? height * g->a_row : 0;
                    const int64_t same = later + col - left;
                    const int64_t lines = same < col1 ? coming / $line / (t1 - t0) + 1 : 0, turns = chunk / $line;
                    const int64_t hop = turns > 0 ? (lines + turns - 1) / turns : 0;
                    const $T *ahead = lines ? fetched + same * g->k : b;
                    ${S}_block(o, height, row, col, chunk, a + row * g->a_row + k0, g->a_row, panel, next, ahead, hop,
                               k0 > 0, k0 + chunk >= g->k, far);
                }
            }
            k0 += chunk;
        } while (k0 < g->k);
    }
}
"""

_ENTRY = """
static void ${S}_tasks_of(void *given, int64_t begin, int64_t end) { ${S}_part(given, 0, begin, end); }

void $S($parameters) {
    if (g->m <= 0 || g->n <= 0) return;
    const ${S}_plan plan = ${S}_tasks(g);
    const int64_t tasks = g->batch0 * g->batch1 * plan.inner * plan.outer;
    if (!pool || tasks < 2 || (double)(g->batch0 * g->batch1) * (double)(g->m * g->n) * (double)g->k < $worthwhile)
        ${S}_tasks_of((void *)g, 0, tasks);
    else pool->parallel_for(pool->self, tasks, ${S}_tasks_of, (void *)g);
}
"""


@kernel
class BlocksGemmKernel(GemmKernel):
    """A matrix product that reads A in place, its columns contiguous (`a_col` is 1), of a constant B of any size."""

    @classmethod
    def candidates(cls, problem: GemmProblem, isa: Isa) -> Iterator[BlocksGemmKernel]:
        """Yield the variants if B is a constant that does not stay in the second cache as a whole."""
        if not costs_of(isa).blocks or not problem.matrices or problem.a[3] != 1 or is_small(problem, isa):
            return
        for tile in costs_of(isa).tiles_for(in_place=True):
            if likely(problem.m) > tile[0]:
                yield cls.design(isa, problem.dtype, problem.m, problem.n, problem.epilogue, True, tile)

    def cycles(self, problem: GemmProblem) -> float:
        t, m, n, k = self.tile, likely(problem.m), likely(problem.n), likely(problem.k)
        quality = costs_of(t.isa).blocks / max(costs_of(t.isa).tiles.values())
        products = tile_cycles(t.isa, (t.rows, t.vectors), t.lanes, m, n, in_place=True) * k / quality
        rows = min(m, t.rows)
        if rows > WAYS and in_place.rows_conflict(problem):
            products *= CONFLICT if rows <= 2 * WAYS else CONFLICTS
        ended = storing_cycles(t.isa, m, n, t.lanes) + (m * ROW_ENDED if n % t.lanes else 0)
        again = m * k * (-(-n // self._columns(k)) - 1) * READ_AGAIN
        return likely(problem.count) * (products + again + ended) + self._waiting(problem)

    def _columns(self, k: int) -> int:
        """Count the columns of a block."""
        deep = min(k, DEEP * LONGEST_SUM)
        return max(1, self._room // (deep * self.tile.panel)) * self.tile.panel

    @property
    def label(self) -> str:
        return f"blocks {self.tile.rows}x{self.tile.vectors}"

    def own_bytes(self, sizes: Mapping[str, int]) -> int:
        return 0

    @property
    def _room(self) -> int:
        """The elements of a block."""
        return self.tile.isa.l2 // SHARE // self.tile.dtype.itemsize

    @cached_property
    def symbol(self) -> str:
        key = f"{self.epilogue.key()}{self.heights}{self.narrow}"
        return symbol("gemm_blocks", self.tile.name.removeprefix("irc_tile_"), key)

    def parts(self) -> list[Part]:
        t, s = self.tile, self.symbol
        body, variants = t.name.replace("tile", "blocks", 1), Variants(self.heights, self.narrow)
        given = names(t) | {
            "S": s,
            "body": body,
            "line": LINE // t.dtype.itemsize,
            "sum": LONGEST_SUM,
            "deep": DEEP,
            "room": self._room,
            **tasks.names(tasks.columns(t)),
            "worthwhile": WORTHWHILE,
        }
        return [
            prelude(t, self.epilogue),
            tile_body(body, _TILE, **given),
            *in_place.instances(t, body, variants, _B, _FETCH),
            in_place.block(s, t, body, self.epilogue, variants, _B, _FETCH),
            fill(SPLIT, **given),
            fill(_RANGE, **given),
            fill(
                tasks.PARTS,
                **given,
                slot_starts=self.slot_starts(),
                packed_b="g->b + i * g->b_batch0 + j * g->b_batch1",
                rows="g->m",
                columns="g->n",
                wide=tasks.WIDE,
            ),
            fill(_ENTRY, **given, **self.interface),
        ]

    @property
    def summary(self) -> str:
        return f"C = epilogue(A B), {self.tile.dtype}, tiles of {self.tile.rows} x {self.tile.panel}, B in blocks."
