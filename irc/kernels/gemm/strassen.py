"""Matrix product by one level of Strassen's algorithm: C = epilogue(A · B), B constant, seven products for eight.

A, B and C are cut into quarters.  Of sums and differences of quarters, made when the operands are packed, seven
products are enough (V. Strassen, Gaussian elimination is not optimal, Numer. Math. 13, 1969).  Each is made tile by
tile and added to the quarters of C that it belongs to while it is in the first cache (J. Huang et al., Strassen's
algorithm reloaded, SC 2016).  B takes 7/4 of the memory.

Such a product mixes a row of the upper half with one of the lower, and a column of the left half with one of the right:
it is rounded like the larger of both, and what is not finite spreads.  Where two rows differ by more than `ALIKE` times
in norm, or one is not finite, their tile is made of eight products instead, of the same operands of B, none of which
mixes rows or columns; so are panels of B with columns that are not finite, as their flags say.  Columns that differ as
much are multiplied by powers of two when B is packed, and their results by the inverse.

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
from irc.kernels.core.tile import (
    LAST_COLUMNS,
    WHOLE_COLUMNS,
    Tile,
    Variants,
    bodies,
    epilogue_of,
    heights_of,
    names,
    prelude,
    table_of,
)
from irc.kernels.core.workspace import DIVIDE
from irc.kernels.gemm import tasks
from irc.kernels.gemm.packed import AHEAD, ENTRY, LINE, SPLIT, packing_rows
from irc.kernels.gemm.problem import GemmProblem, matrices, multiply
from irc.kernels.gemm.tasks import WORTHWHILE
from irc.kernels.gemm.tiled import LONGEST_SUM, TiledGemmKernel

ALIKE = 8.0
"""Times that the norms of rows, and of columns, differ at most that share products."""
FEW_ROWS = 40
"""Rows, of an unknown number, fewer of which are the upper half, all of them, and take four products of a half."""
LARGEST = 1 << 22
"""Elements of B, at most, where the rows may be few: such runs gain nothing, and have to hold 7/4 of the memory."""
LARGEST_EXPONENT = 126
"""Of the factors of columns."""
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
"""Bytes that a workspace begins with; of `ROWS_AT_ONCE` rows there are fewer tiles."""
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

_PACK = """
/* squares[lane] += those of x[k][rows], n elements: row i is in the lanes i, rows + i, 2 * rows + i … */
static void ${S}_squares(const $T *x, int rows, int64_t n, $V *squares) {
    for (; n >= rows * $L; n -= rows * $L)
        for (int w = 0; w < rows; w++, x += $L) {
            const $V v = ${V}_load(x);
            squares[w] += v * v;
        }
    $T *const lanes = ($T *)squares;
    for (int64_t i = 0; i < n; i++) lanes[i] += x[i] * x[i];
}

/* Columns k0 to k1 of a quarter of A, from `a` on, `have` of its rows and `k` of its columns are there: to[k][rows]. */
static void ${S}_pack_quarter(const ${S}_args *g, const $T *a, int rows, int have, int64_t k, int64_t k0, int64_t k1,
                              $T *to) {
    const int64_t last = k1 < k ? k1 : k;
    a += k0 * g->a_col;
    to += k0 * rows;
    if (have == rows) {
        ${V}_pack_rows(a, g->a_row, g->a_col, rows, last - k0, to);
    } else {
        for (int64_t j = 0; j < last - k0; j++)
            for (int i = 0; i < rows; i++) to[j * rows + i] = i < have ? a[i * g->a_row + j * g->a_col] : 0;
    }
    for (int64_t j = (last - k0) * rows; j < (k1 - k0) * rows; j++) to[j] = 0;
}

/* The operands of A of a tile of rows from `a` on, and of `have` rows `half` further down, `slot` elements apart: its
 * quarters, and sums of them.  Returns whether these rows must not share products. */
static int ${S}_pack(const ${S}_args *g, const $T *a, int rows, int have, int64_t half, $T *to, int64_t slot) {
    const int64_t k = (g->k + 1) / 2, right = g->k - k;
    const $T *const below = a + half * g->a_row;
    $V squares[2][$MR + 1] = {{{0}}}; /* of the rows of both halves */
    for (int64_t k0 = 0; k0 < k; k0 += $chunk) {
        const int64_t k1 = k0 + $chunk < k ? k0 + $chunk : k, i0 = k0 * rows, n = (k1 - k0) * rows;
        ${S}_pack_quarter(g, a, rows, rows, k, k0, k1, to);
        ${S}_pack_quarter(g, a + k * g->a_col, rows, rows, right, k0, k1, to + slot);
        if (half == g->m) { /* nothing is below */
            for (int64_t i = i0; i < i0 + n; i += $L)
                ${V}_store(to + 4 * slot + i, ${V}_load(to + i) + ${V}_load(to + slot + i));
            continue;
        }
        ${S}_pack_quarter(g, below, rows, have, k, k0, k1, to + 2 * slot);
        ${S}_pack_quarter(g, below + k * g->a_col, rows, have, right, k0, k1, to + 3 * slot);
        for (int64_t i = i0; i < i0 + n; i += $L) {
            const $V a11 = ${V}_load(to + i), a12 = ${V}_load(to + slot + i);
            const $V a21 = ${V}_load(to + 2 * slot + i), a22 = ${V}_load(to + 3 * slot + i);
            ${V}_store(to + 4 * slot + i, a11 + a12);
            ${V}_store(to + 5 * slot + i, a21 + a22);
            ${V}_store(to + 6 * slot + i, a11 + a22);
            ${V}_store(to + 7 * slot + i, a21 - a11);
            ${V}_store(to + 8 * slot + i, a12 - a22);
        }
        for (int quarter = 0; quarter < 4; quarter++)
            ${S}_squares(to + quarter * slot + i0, rows, n, squares[quarter / 2]);
    }
    if (half == g->m) return 1;
    $T upper[$rows_lanes] = {0}, lower[$rows_lanes] = {0};
    for (int i = 0; i < $L; i++)
        for (int r = 0; r < $rows_lanes; r += $L) {
            ${V}_store(upper + r, ${V}_load(upper + r) + ${V}_load(($T *)squares[0] + i * rows + r));
            ${V}_store(lower + r, ${V}_load(lower + r) + ${V}_load(($T *)squares[1] + i * rows + r));
        }
    int alike = 1;
    for (int i = 0; i < have; i++)
        alike &= upper[i] <= $alike * lower[i] && lower[i] <= $alike * upper[i] && upper[i] < INFINITY;
    return !alike;
}
"""

_HALVES = """
/* The columns of the left half: whole panels. */
IRC_INLINE int64_t ${S}_half(const ${S}_args *g) {
    return (g->n + 2 * $NR - 1) / (2 * $NR) * $NR;
}

/* The elements of flags. */
IRC_INLINE int64_t ${S}_flags(const ${S}_args *g) {
    return (${S}_half(g) / $NR + $flags - 1) / $flags * $flags;
}

/* The rows of the upper half$all. */
IRC_INLINE int64_t ${S}_upper(const ${S}_args *g) {
    return $few_rows(g->m + 1) / 2;
}
"""

_ROW = """
/* One row: columns col and on of the left half, of a pair of panels.  Of its operands, the four in the middle are read
 * abreast; B12 is left with B22, and B21 with B11. */
static void ${S}_row_pair(const ${S}_args *g, const ${S}_out *o, const $T *a, const $T *panel, const $T *factors,
                          int64_t col) {
    const int64_t k = (g->k + 1) / 2, right = g->k - k, a_col = g->a_col, next = k * $NR;
    const int64_t blocks = (k + $sum - 1) / $sum, step = blocks > 0 ? (k + blocks - 1) / blocks : 1;
    const $T *b = panel + next;
    _Alignas(64) $T sums[2 * $NR];
    EACH(i < 2 * $NV) ${V}_store(sums + i * $L, ($V){0});
    for (int p = 0; p < 4; p++) /* where the operands of the next pair begin */
        for (int i = 0; i < $begin; i += $line) __builtin_prefetch(b + ($products + p) * next + i);
    for (int64_t k0 = 0; k0 < k; k0 += step) {
        const int64_t k1 = k0 + step < k ? k0 + step : k;
        $V acc[4][$NV];
        EACH(p < 4, w < $NV) acc[p][w] = ${V}_zeros();
        for (int64_t j = k0; j < k1; j++, b += $NR) {
            const $V x = ${V}_all(a[j * a_col]), y = ${V}_all(j < right ? a[(k + j) * a_col] : 0), both = x + y;
            EACH(w < $NV) acc[0][w] += both * ${V}_load(b + w * $L);
            EACH(w < $NV) acc[1][w] += x * ${V}_load(b + next + w * $L);
            EACH(w < $NV) acc[2][w] += y * ${V}_load(b + 2 * next + w * $L);
            EACH(w < $NV) acc[3][w] += both * ${V}_load(b + 3 * next + w * $L);
        }
        IRC_FULL_UNROLL
        for (int w = 0; w < $NV; w++) {
            $T *const to = sums + w * $L;
            ${V}_store(to, ${V}_load(to) + (acc[0][w] + acc[2][w]));
            ${V}_store(to + $NR, ${V}_load(to + $NR) + (acc[1][w] + acc[3][w]));
        }
    }
    for (int half = 0; half < 2; half++, col += ${S}_half(g)) {
        for (int64_t i = 0; i < $NR && col + i < o->n; i += $L) {
            const int64_t part = o->n - col - i;
            const $V x = ${V}_load(sums + half * $NR + i) * ${V}_load(factors + col + i);
            if (part < $L) ${V}_store_part(o->c + col + i, ${S}_epilogue(o, x, 0, col + i, part), part);
            else ${V}_store(o->c + col + i, ${S}_epilogue(o, x, 0, col + i, $L));
        }
    }
}
"""

_ONE_ROW = """\
    if (g->m == 1) {
        const $T *const factors = b + ${S}_flags(g), *const panels = factors + 2 * ${S}_half(g);
        for (; col0 < col1; col0 += $NR)
            ${S}_row_pair(g, o, a, panels + col0 * $products * ((g->k + 1) / 2), factors, col0);
        return;
    }
"""

_RANGE = (
    """
/* Tiles of rows whose operands are packed.  Areas of sums: quarters of C, 11, 12, 21, 22, and a product. */
typedef struct {
    const $T *packed;
    $T *sums;
    const char *apart; /* of each tile, whether it must not share products */
    int64_t slot, area, k, step, tiles, low, extra;
    int lower; /* whether there are rows of the lower half */
} ${S}_group;

/* What a workspace begins with: the rows that are packed there, which the next part finds if it has the same. */
typedef struct {
    int64_t rows, tiles;
    char apart[$most];
} ${S}_held;

/* What to do with a product: operands of A and B, the area that it goes to, or is added to if `begun`; and other areas
 * that it is then added to, or subtracted from, or copied to if they are empty. */
typedef struct {
    signed char a, b, area, begun, others, other[2];
    char how[2];
} ${S}_step;

static void ${S}_product(const ${S}_group *x, int apart, const ${S}_step *s, const $T *panel) {
    static ${tile}_run *const whole[] = {$whole};
    panel += s->b * x->k * $NR;
    int64_t k1 = 0;
    do {
        const int64_t k = x->k - k1 < x->step ? x->k - k1 : x->step, hop = ($NR + x->tiles - 1) / x->tiles;
        const $T *ahead = panel + (k1 + k) * $NR, *from = x->packed + s->a * x->slot;
        /* A single tile fetches what it needs soon; without a lower half, the next pair follows the fourth operand. */
        if (!x->lower && s->b == 4 && k1 + k >= x->k) ahead += ($products - 4) * x->k * $NR;
        else if (x->tiles == 1) ahead = panel + (k1 + $far) * $NR;
        $T *to = x->sums + s->area * x->area;
        for (int64_t t = 0; t < x->tiles; t++) {
            const int64_t rows = x->low + (t < x->extra);
            if (x->apart[t] == apart) {
                whole[rows - 1](k, from + k1 * rows, panel + k1 * $NR, k1 > 0 || s->begun ? to : 0, $NR, to, $NR,
                                ahead, hop);
                for (int i = 0; k1 + k >= x->k && i < s->others; i++) {
                    $T *const other = to + (s->other[i] - s->area) * x->area;
                    if (s->how[i] == '=')
                        for (int64_t j = 0; j < rows * $NR; j += $L) ${V}_store(other + j, ${V}_load(to + j));
                    else if (s->how[i] == '+')
                        for (int64_t j = 0; j < rows * $NR; j += $L)
                            ${V}_store(other + j, ${V}_load(other + j) + ${V}_load(to + j));
                    else
                        for (int64_t j = 0; j < rows * $NR; j += $L)
                            ${V}_store(other + j, ${V}_load(other + j) - ${V}_load(to + j));
                }
            }
            ahead += hop * k;
            from += rows * x->k;
            to += rows * $NR;
        }
        k1 += k;
    } while (k1 < x->k);
}

/* The sums of all tiles for a pair of panels of B; even: whether columns may share products. */
static void ${S}_pair(const ${S}_group *x, const $T *panel, int even) {
    static const ${S}_step shared[] = {
        {6, 0, 0, 0, 1, {3}, {'='}},         {5, 1, 2, 0, 1, {3}, {'-'}},         {0, 2, 1, 0, 1, {3}, {'+'}},
        {3, 3, 4, 0, 2, {0, 2}, {'+', '+'}}, {4, 4, 4, 0, 2, {0, 1}, {'-', '+'}}, {7, 5, 3, 1, 0, {0}, {0}},
        {8, 6, 0, 1, 0, {0}, {0}},
    };
    static const ${S}_step alone[] = { /* every other one is for the lower half */
        {4, 1, 0, 0, 0, {0}, {0}}, {5, 1, 2, 0, 0, {0}, {0}}, {0, 2, 1, 0, 0, {0}, {0}}, {2, 2, 3, 0, 0, {0}, {0}},
        {1, 3, 0, 1, 0, {0}, {0}}, {3, 3, 2, 1, 0, {0}, {0}}, {4, 4, 1, 1, 0, {0}, {0}}, {5, 4, 3, 1, 0, {0}, {0}},
    };
    int together = 0;
    for (int64_t t = 0; t < x->tiles; t++) together += !x->apart[t];
    if (even && together)
        for (int i = 0; i < 7; i++) ${S}_product(x, 0, &shared[i], panel);
    if (!even && together)
        for (int i = 0; i < 8; i++) ${S}_product(x, 0, &alone[i], panel);
    if (together < x->tiles)
        for (int i = 0; i < 8; i += x->lower ? 1 : 2) ${S}_product(x, 1, &alone[i], panel);
}

/* The sums of a tile, complete, to its place in C, through the epilogue; factors: of the columns, or NULL. */
static void ${S}_finish(const ${S}_out *o, int64_t rows, int64_t row, int64_t col, $T *sums, const $T *factors) {
    for (int64_t i = 0; factors && i < rows * $NR; i += $NR)
        EACH(w < $NV) ${V}_store(sums + i + w * $L, ${V}_load(sums + i + w * $L) * ${V}_load(factors + w * $L));
    $T *c = o->c + row * o->c_row + col;
    const int64_t left = o->n - col;
    const int done = 1;
    if (left >= $NR) {
"""
    + WHOLE_COLUMNS
    + """\
    }
"""
    + LAST_COLUMNS
    + """
/* Tiles of rows in a task: as many as are packed at once, or half of all, where threads could not share few panels. */
IRC_INLINE int64_t ${S}_high(int64_t tiles, int64_t columns) {
    const int64_t panels = columns / $NR;
    return tiles <= $most && panels < $few && panels % 2 ? (tiles + 1) / 2 : $most;
}

/* Tiles t0 to t1 of the upper half, columns col0 to col1 of the left half, and what lies below and right of them.
 * Where all rows fit, all are packed, which are there for the next part too, whatever tiles it has. */
static void ${S}_range(const ${S}_args *g, const ${S}_out *o, const $T *a, const $T *b,
                       char *own, int64_t t0, int64_t t1, int64_t col0, int64_t col1) {
$one_row    const int64_t half = ${S}_upper(g), k = (g->k + 1) / 2, right = ${S}_half(g);
    const ${S}_rows m = ${S}_split(half);
    const int64_t high = m.low + (m.extra > 0), fit = k > 0 ? $room / ($operands * high * k) : $most;
    const int64_t most = fit > $most ? $most : fit > 1 ? fit : 1;
    const int64_t top0 = m.tiles > most ? t0 : 0, top1 = m.tiles > most ? t1 : m.tiles;
    const int64_t groups = (top1 - top0 + most - 1) / most, per = (top1 - top0 + groups - 1) / groups;
    const int64_t blocks = k > 0 ? (k + $sum - 1) / $sum : 1;
    const $T *const even = b, *const factors = b + ${S}_flags(g), *const panels = factors + 2 * right;
    ${S}_held *const held = (${S}_held *)own;
    ${S}_group x = {.k = k, .step = (k + blocks - 1) / blocks, .low = m.low, .lower = half < g->m};
    x.sums = ($T *)(own + $held);
    for (int64_t top = top0; top < top1; top += per) {
        const int64_t end = top + per < top1 ? top + per : top1, tiles = end - top;
        const int64_t first = top < t0 ? t0 : top, last = end < t1 ? end : t1;
        int64_t start = top * m.low + (top < m.extra ? top : m.extra);
        const int64_t from = (int64_t)(intptr_t)(a + start * g->a_row);
        x.area = tiles * high * $NR, x.slot = tiles * high * k + $L;
        $T *to = x.sums + $areas * x.area;
        const int there = held->rows == from && held->tiles == tiles;
        held->rows = from, held->tiles = tiles;
        for (int64_t t = top, r = start; t < end; t++) {
            const int64_t rows = m.low + (t < m.extra), below = g->m - half - r, have = below < rows ? below : rows;
            if (t == first) start = r, x.packed = to;
            if (!there)
                held->apart[t - top] = (char)${S}_pack(g, a + r * g->a_row, (int)rows, (int)(have > 0 ? have : 0), half,
                                                       to, x.slot);
            to += rows * k;
            r += rows;
        }
        x.tiles = last - first, x.extra = m.extra > first ? m.extra - first : 0, x.apart = held->apart + first - top;
        for (int64_t col = col0; col < col1; col += $NR) {
            ${S}_pair(&x, panels + col * $products * k, even[col / $NR] != 0);
            $T *sums = x.sums;
            for (int64_t t = 0, r = start; t < x.tiles; t++) {
                const int64_t rows = m.low + (t < x.extra), below = g->m - half - r, have = below < rows ? below : rows;
                for (int quarter = 0; quarter < 4; quarter++) {
                    const int64_t row = quarter < 2 ? r : half + r, at = quarter % 2 ? right + col : col;
                    const int64_t height = quarter < 2 ? rows : have;
                    if (height > 0 && at < g->n)
                        ${S}_finish(o, height, row, at, sums + quarter * x.area, even[col / $NR] > 1 ? factors + at : 0);
                }
                sums += rows * $NR;
                r += rows;
            }
        }
    }
}
"""
)


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
        return HELD + (AREAS * rows * t.panel + OPERANDS * (rows * k + t.lanes)) * t.dtype.itemsize

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
            "held": HELD,
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
            "far": AHEAD,
            "line": LINE // t.dtype.itemsize,
            "begin": BEGIN // t.dtype.itemsize,
            "rows_lanes": -(-t.rows // t.lanes) * t.lanes,
        }
        packed = "g->b + i * g->b_batch0 + j * g->b_batch1"
        given |= {"rows": f"{s}_upper(g)", "columns": f"{s}_half(g)", "slot_starts": self.slot_starts()}
        given["few_rows"] = f"g->m < {FEW_ROWS} ? g->m : " if self.takes_few else ""
        given["all"] = ", all of which are there if they are few" if self.takes_few else ""
        one_row = fill(_ONE_ROW, **given) if self.takes_few else ""
        return [
            prelude(t, self.epilogue),
            DIVIDE,
            bodies(t, variants),
            epilogue_of(s, t, self.epilogue),
            packing_rows(t),
            fill(SPLIT, **given),
            fill(_PACK, **given),
            fill(_HALVES, **given),
            fill(_ROW, **given) if self.takes_few else "",
            fill(_RANGE, **given, one_row=one_row),
            fill(tasks.PARTS, **given, packed_b=packed, wide=f"{s}_split({s}_upper(g)).tiles <= {self._most}"),
            fill(ENTRY, **given, **self.interface, pack=""),
        ]

    @property
    def _most(self) -> int:
        """The tiles of rows that are packed at once, at most."""
        return ROWS_AT_ONCE // self.tile.rows

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
    return flags, np.where(norms.reshape(*lead, -1) > 0, factors, 0), np.ldexp(b, -exponents[..., None, :])
