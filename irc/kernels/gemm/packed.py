"""Matrix product: C[m, n] = epilogue(A[m, k] · B[k, n]), with up to two batch axes.

B is packed in panels of `panel` columns, [n / panel][k][panel], zero padded: at compile time (`pack_b`) where it is
constant, else by the kernel into its scratch.  A is read in place with any strides and packed by each task, as many
tiles of rows and as much of k as stay in the second cache; each panel of B then meets all of them while the next one is
fetched.  Rows are split into tiles of nearly equal height, k into blocks of which a panel stays in the first cache.

Threads split the output into tasks (a range of rows × a range of panels), never k: results do not depend on them.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import Self

from irc.ir.types import f32, f64
from irc.kernels.core.costs import LATENCY, WAY, WAYS, costs_of, packing_cycles
from irc.kernels.core.isa import Isa, vector_name
from irc.kernels.core.problem import likely
from irc.kernels.core.registry import kernel
from irc.kernels.core.text import Part, fill, piece
from irc.kernels.core.tile import Tile, Variants, block, bodies, epilogue_of, names, prelude
from irc.kernels.core.workspace import DIVIDE
from irc.kernels.gemm import tasks
from irc.kernels.gemm.abreast import ABREAST, ONE_ROW
from irc.kernels.gemm.problem import GemmProblem
from irc.kernels.gemm.skinny import SKINNY, SKINNY_COLUMNS, SKINNY_ROWS
from irc.kernels.gemm.tiled import LONGEST_SUM, STARTED, TiledGemmKernel
from irc.kernels.vector.lanes import square

ROWS_AT_ONCE = 70  # whole tiles, that meet a panel of B; more need more pages of memory than are found quickly
AHEAD = 32  # of the rows of a panel, where there is one tile of rows: how far the fetching of B is ahead
LINE = 64  # bytes of a line of the caches
TURNED = 0.5  # cycles more to pack an element of a B whose columns are contiguous, of whole squares
EVICTED = 12.0  # cycles to store a line of C that is evicted before it is full, while products go on
PACKED = 384 << 10  # bytes of A, packed, at most: 1400 products of ROWS_AT_ONCE rows
FEW_ROWS = 3.0  # times as long as else takes the packing of an element of two or three rows
UNFETCHED = 3  # rows of a single tile, at most, that fetch nothing where one row, which reads panels abreast, does not
NEAR = 8  # of such rows, how far the fetching of B is ahead of one row of A

_PACK_ROWS = """
/* rows x k values of A as [k][rows]: squares are transposed in registers.  Up to $L more elements are overwritten. */
static void ${V}_pack_rows(const $T *a, int64_t row, int64_t col, const int rows, int64_t k, $T *to) {
    int64_t done = 0;
    if (row == 1 && col != 1) {
        /* Whole vectors reach into the next ones' places: what they write there is overwritten. */
        const int64_t whole = rows >= 4 && col >= $L ? k - 1 : 0;
        for (; done < whole; done++)
            for (int i = 0; i < rows; i += $L) ${V}_store(to + done * rows + i, ${V}_load(a + done * col + i));
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
class GemmKernel(TiledGemmKernel):
    """A matrix product whose operands are packed."""

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
            panels = -(-n // self.tile.panel)
            squares = k // self.tile.lanes * self.tile.lanes if problem.b[2] == 1 else 0
            pack = k * costs.pack + squares * TURNED
            packing += panels * (self.tile.panel * pack + -(-m // self.tile.rows) * STARTED)
            packing += self._packed_apart(problem)
        apart = m * n * self.tile.dtype.itemsize / LINE * costs.stored_apart
        return max(self.product_cycles(problem), self._storing(problem)) + likely(problem.count) * (packing + apart)

    def imbalance(self, problem: GemmProblem) -> float:
        return tasks.imbalance(problem, self.tile, self.narrow)

    def _storing(self, problem: GemmProblem) -> float:
        """Estimate the cycles of storing C where the rows of a panel are at the same places of the first cache."""
        step = likely(problem.c[2]) * self.tile.dtype.itemsize
        apart = WAY // math.gcd(step, WAY)
        if likely(problem.m) <= WAYS * apart:
            return 0.0
        lines = likely(problem.count) * likely(problem.m) * likely(problem.n) * self.tile.dtype.itemsize / LINE
        return lines * EVICTED / apart

    def _skinny_dot(self, k: int) -> float:
        """Estimate the cycles of one of the four dot products that `SKINNY` makes together, lanes added one by one."""
        lanes = self.tile.lanes
        return LATENCY * (-(-k // lanes) + lanes) / 4

    @property
    def label(self) -> str:
        return f"packed {self.tile.rows}x{self.tile.vectors}"

    def own_bytes(self, sizes: Mapping[str, int]) -> int:
        t, m = self.tile, max(sizes["m"], 1)
        tiles = -(-m // t.rows)
        rows = min(tiles, self._most) * -(-m // tiles)
        return (rows * t.panel + min(self._room, rows * sizes["k"]) + t.lanes) * t.dtype.itemsize

    def parts(self) -> list[Part]:
        s, t = self.symbol, self.tile
        variants = Variants(self.heights, self.narrow)
        far = NEAR if self.heights == (1,) and self.tile.panel * self.tile.dtype.itemsize == LINE else AHEAD
        given = names(t) | {
            "S": s,
            "Y": names(t)["T"],
            "Q": vector_name(4, t.dtype),
            **tasks.names(tasks.columns(t)),
            "room": self._room,
            "worthwhile": tasks.WORTHWHILE,
            "TN": SKINNY_COLUMNS,
            "far": f"(m.low <= {UNFETCHED} ? 0 : {far})" if costs_of(t.isa).abreast else far,
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
