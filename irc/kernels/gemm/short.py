"""Matrix product of short sums, C[m, n] = epilogue(A[m, k] · B[k, n]) with a known k of few products: C decides.

Tiles of other kernels end before they have paid for their beginning, and write pieces of many rows.  Here B stays in
the first cache, as many columns of it at a time as fit; some rows of A stand in registers, an element in all lanes
each, and meet a column of vectors after the other: rows of C are written from one end to the other.  Where a vector
takes a row of C, B stands in the registers instead.

B is packed as [n / lanes][k][lanes], zero padded: at compile time where it is constant, else by the kernel into its
scratch.  A is read in place with any strides.  Threads split the rows: results do not depend on them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import cached_property
from typing import Self

from irc.ir.dim import Dim, DimLike
from irc.ir.types import DType, f32, f64
from irc.kernels.core.costs import FIRST_CACHE_HOLDS, LATENCY, ROW_ENDED
from irc.kernels.core.epilogue import Epilogue
from irc.kernels.core.isa import Isa
from irc.kernels.core.problem import likely
from irc.kernels.core.registry import kernel
from irc.kernels.core.text import Part, fill, symbol
from irc.kernels.core.tile import Tile, epilogue_of, names, prelude
from irc.kernels.gemm.problem import GemmProblem
from irc.kernels.gemm.tasks import WORTHWHILE
from irc.kernels.gemm.tiled import TiledGemmKernel

MOST_PRODUCTS = 8
"""Products of a sum at most."""
MOST_ROWS = 8
"""Rows that meet a vector of B at most."""
NEAR = FIRST_CACHE_HOLDS
"""Bytes of B, packed, that meet all rows of A in turn: they stay in the first cache."""
WIDE = 64
"""Bytes of vectors of which tiles compute products with a constant B of several vectors as fast: A stays in place."""
TASK = 8192
"""Elements of C that a task computes, about."""
REACHED = 0.95
"""The part of the peak of multiply-adds that is reached, apart from what stores take."""
STARTED, PACKING_STARTED = 2.0, 10.0
"""Cycles to begin some rows, beside those of a tile, and to begin packing a column of vectors."""
CALLED = 2.0
"""Cycles that a vector takes besides where functions need the registers of A."""
PACKED = 0.5
"""Cycles to pack an element of a B that is not constant."""

_PACK = """
/* B of all matrices. */
static void ${S}_pack(const ${S}_args *g) {
    $T *to = g->scratch;
    for (int64_t image = 0; image < g->batch0 * g->batch1; image++) {
        const $T *const b = g->b + image / g->batch1 * g->b_batch0 + image % g->batch1 * g->b_batch1;
        for (int64_t col = 0; col < g->n; col += $L) {
            const int64_t have = g->n - col < $L ? g->n - col : $L;
            for (int j = 0; j < $k; j++, to += $L) {
                const $T *const from = b + j * g->b_row + col * g->b_col;
                if (g->b_col == 1) {
                    ${V}_store(to, have < $L ? ${V}_load_part(from, have) : ${V}_load(from));
                } else {
                    for (int64_t i = 0; i < $L; i++) to[i] = i < have ? from[i * g->b_col] : 0;
                }
            }
        }
    }
}
"""

_ROWS = """
/* Rows row to row + R, columns col to col1; `a` is the first one of A. */
IRC_INLINE void ${S}_rows(const int R, const ${S}_out *o, int64_t row, int64_t col, int64_t col1, const $T *a,
                          int64_t a_row, int64_t a_col, const $T *b) {
    $V x[$R][$k], sums[$R], bv;
    EACH(i < R, j < $k) x[i][j] = ${V}_all(a[i * a_row + j * a_col]);
    $T *const c = o->c + row * o->c_row;
    for (; col + $L <= col1; col += $L, b += $k * $L) {
$summed$stored    }
    if (col == col1) return;
$summed    const int64_t part = o->n - col;
    for (int i = 0; i < R; i++)
        ${V}_store_part(c + i * o->c_row + col, ${S}_epilogue(o, sums[i], row + i, col, part), part);
}

static void ${S}_some(const ${S}_out *o, int64_t row, int64_t last, int64_t col, int64_t col1, const $T *a,
                      int64_t a_row, int64_t a_col, const $T *b) {
    for (; row + $R <= last; row += $R) ${S}_rows($R, o, row, col, col1, a + row * a_row, a_row, a_col, b);
    for (; row < last; row++) ${S}_rows(1, o, row, col, col1, a + row * a_row, a_row, a_col, b);
}

/* The same where a vector takes a row. */
static void ${S}_thin(const ${S}_out *o, int64_t row, int64_t last, const $T *a, int64_t a_row, int64_t a_col,
                      const $T *b) {
    $V bv[$k];
    EACH(j < $k) bv[j] = ${V}_load(b + j * $L);
    $T *c = o->c + row * o->c_row;
    a += row * a_row;
    for (; row < last; row++, a += a_row, c += o->c_row) {
        $V sum = ${V}_all(a[0]) * bv[0];
        IRC_FULL_UNROLL
        for (int j = 1; j < $k; j++) sum += ${V}_all(a[j * a_col]) * bv[j];
        const $V x = ${S}_epilogue(o, sum, row, 0, o->n);
        if (o->n == $L) ${V}_store(c, x);
        else ${V}_store_part(c, x, o->n);
    }
}
"""

_SUMMED = """\
        bv = ${V}_load(b);
        EACH(i < R) sums[i] = x[i][0] * bv;
        IRC_FULL_UNROLL
        for (int j = 1; j < $k; j++) {
            bv = ${V}_load(b + j * $L);
            EACH(i < R) sums[i] += x[i][j] * bv;
        }
"""
_AT_ONCE = "        EACH(i < R) ${V}_store(c + i * o->c_row + col, ${S}_epilogue(o, sums[i], row + i, col, $L));\n"
_ONE_BY_ONE = """\
        for (int i = 0; i < R; i++) /* functions need registers of their own */
            ${V}_store(c + i * o->c_row + col, ${S}_epilogue(o, sums[i], row + i, col, $L));
"""

_BODY = """
/* Rows of a task. */
IRC_INLINE int64_t ${S}_task(const ${S}_args *g) {
    const int64_t fit = ($task + g->n - 1) / g->n;
    return (fit + $R - 1) / $R * $R;
}

/* Tasks begin to end: ranges of rows of a matrix, matrices outermost; those beside each other at once. */
static void ${S}_part(void *given, int64_t begin, int64_t end) {
    const ${S}_args *g = given;
    const int64_t high = ${S}_task(g), down = (g->m + high - 1) / high;
    for (int64_t run; begin < end; begin += run) {
        const int64_t image = begin / down, i = image / g->batch1, j = image % g->batch1, task = begin % down;
        run = down - task < end - begin ? down - task : end - begin;
        const int64_t first = task * high, last = (task + run) * high < g->m ? (task + run) * high : g->m;
        ${S}_out o = {.c = g->c + i * g->c_batch0 + j * g->c_batch1, .c_row = g->c_row, .n = g->n};$slot_starts
        const $T *const a = g->a + i * g->a_batch0 + j * g->a_batch1, *const b = $packed_b;
        if (g->n <= $L) {
            ${S}_thin(&o, first, last, a, g->a_row, g->a_col, b);
            continue;
        }
        for (int64_t col = 0, col1; col < g->n; col = col1) { /* of B what stays in the first cache */
            col1 = g->n - col < $near ? g->n : col + $near;
            ${S}_some(&o, first, last, col, col1, a, g->a_row, g->a_col, b + col * $k);
        }
    }
}

void $S($parameters) {
    if (g->m <= 0 || g->n <= 0) return;
    const int64_t matrices = g->batch0 * g->batch1, high = ${S}_task(g), tasks = matrices * ((g->m + high - 1) / high);
$pack    if (!pool || tasks < 2 || (double)matrices * (double)(g->m * g->n) * $least < $worthwhile)
        ${S}_part((void *)g, 0, tasks);
    else pool->parallel_for(pool->self, tasks, ${S}_part, (void *)g);
}
"""


@kernel
class ShortGemmKernel(TiledGemmKernel):
    """A matrix product of `products` products in each sum.

    `tile` has the rows that meet a vector of B at once.
    """

    products: int = 1

    @classmethod
    def candidates(cls, problem: GemmProblem, isa: Isa) -> Iterator[Self]:
        """Yield the variant for a known k: of a constant B of several vectors, of those shorter than `WIDE` only."""
        k, n, dtype = problem.k, problem.n, problem.dtype
        if dtype not in (f32, f64) or not isa.has_vectors or not k.is_const or not 1 <= int(k) <= MOST_PRODUCTS:
            return
        if problem.matrices:
            fits = n.is_const and (int(n) <= isa.lanes(dtype) or isa.vector < WIDE)
        else:
            fits = likely(n) * int(k) * dtype.itemsize <= NEAR
        if fits:
            yield cls.of_products(isa, dtype, n, problem.epilogue, bool(problem.matrices), int(k))

    @classmethod
    def of_products(cls, isa: Isa, dtype: DType, n: DimLike, epilogue: Epilogue, constant: bool, products: int) -> Self:
        """Make the variant for so many products: as many rows as leave a register for B, shorter vectors for few n."""
        columns = Dim.of(n)
        if isa.vector == 64 and columns.is_const and int(columns) <= isa.lanes(dtype) // 2:
            isa = isa.halved()
        rows = max(1, min(MOST_ROWS, (isa.registers - 2) // (products + 1)))
        return cls(Tile(isa, dtype, rows, 1), epilogue, constant, (), False, products)

    def cycles(self, problem: GemmProblem) -> float:
        m, n, k, t = likely(problem.m), likely(problem.n), self.products, self.tile
        vectors, groups = -(-n // t.lanes), -(-m // t.rows)
        if vectors == 1:
            cycles = m * max(k / t.isa.fma, (k + 1) / 2, 1) / REACHED + STARTED
        else:
            step = max(t.rows * k / t.isa.fma, k / 2, LATENCY / 2)
            cycles = groups * (vectors * step / REACHED + t.rows * k / 2 + STARTED)
        cycles += m * vectors * CALLED if self.epilogue.functions() else 0
        cycles += m * ROW_ENDED / 2 if n % t.lanes else 0
        if not self.b_constant:
            cycles += vectors * (PACKING_STARTED + k * t.lanes * PACKED)
        return likely(problem.count) * cycles

    def own_bytes(self, sizes: Mapping[str, int]) -> int:
        return 0

    @property
    def label(self) -> str:
        return f"short {self.tile.rows}x{self.products}"

    @cached_property
    def symbol(self) -> str:
        kind = "gemm_short" if self.b_constant else "matmul_short"
        return symbol(kind, f"{self.tile.name.removeprefix('irc_tile_')}_{self.products}", self.epilogue.key())

    def parts(self) -> list[Part]:
        t, s = self.tile, self.symbol
        given = names(t) | {"S": s, "R": t.rows, "k": self.products, "task": TASK, "worthwhile": WORTHWHILE}
        given |= {
            "least": max(4, self.products),
            "near": NEAR // (t.panel * self.products * t.dtype.itemsize) * t.panel,
        }
        whole = f"(g->n + {t.lanes - 1}) / {t.lanes} * {t.lanes * self.products}"
        stored = _ONE_BY_ONE if self.epilogue.functions() else _AT_ONCE
        return [
            prelude(t, self.epilogue),
            epilogue_of(s, t, self.epilogue),
            "" if self.b_constant else fill(_PACK, **given),
            fill(_ROWS, **given, summed=fill(_SUMMED, **given), stored=fill(stored, **given)),
            fill(
                _BODY,
                **given,
                **self.interface,
                slot_starts=self.slot_starts(),
                packed_b="g->b + i * g->b_batch0 + j * g->b_batch1"
                if self.b_constant
                else f"g->scratch + image * ({whole})",
                pack="" if self.b_constant else f"    {s}_pack(g);\n",
            ),
        ]

    @property
    def summary(self) -> str:
        what = "B packed at compile time" if self.b_constant else "B packed when called"
        return f"C = epilogue(A B), {self.tile.dtype}, sums of {self.products} products, {what}."
