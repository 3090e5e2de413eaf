"""Matrix product with a B that is not constant, C[m, n] = epilogue(A[m, k] · B[k, n]): nothing is packed beforehand.

A tile reads its rows of A where they stand, by broadcasts; many that share lines of the first cache are copied.  Of B a
block, as many columns and as much of k as stay in the second cache, is packed on the stack, where all tiles of rows of
a task meet it: by the first one, while it multiplies, where the columns of a row are contiguous.  A tile or two read B
where it stands, a single one some rows of B at a time.  Between blocks of k the sums stand in C.

Threads split the output into ranges of rows × ranges of columns, never k: results do not depend on them.  Of a B with
as many columns as A has rows each packs and reads a part, else each reads a part of A.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import cached_property
from textwrap import indent
from typing import Any

from irc.ir.dim import Dim
from irc.ir.types import f32, f64
from irc.kernels.core.costs import (
    ROW_ENDED,
    WAY,
    WAYS,
    costs_of,
    halving_functions,
    lengths_for,
    storing_cycles,
    tile_cycles,
)
from irc.kernels.core.isa import Isa
from irc.kernels.core.panels import AHEAD, pack_panels
from irc.kernels.core.problem import likely
from irc.kernels.core.registry import kernel
from irc.kernels.core.text import Part, fill, symbol, tile_body
from irc.kernels.core.tile import ADD_AND_STORE, Variants, names, prelude
from irc.kernels.core.workspace import DIVIDE
from irc.kernels.gemm import in_place
from irc.kernels.gemm.packed import packing_columns
from irc.kernels.gemm.problem import GemmProblem
from irc.kernels.gemm.tasks import WORTHWHILE
from irc.kernels.gemm.tiled import LONGEST_SUM, STARTED, TiledGemmKernel

TILES_PER_TASK = 16
"""Tiles of rows that share a block of B: it is packed again for others."""
TASKS = 4
"""Tasks that ranges of rows are cut for, while there are tiles: threads that have none cost more than packing again."""
SUMS_WAITING = 1 << 16
"""Sums of a range of rows that stand in C meanwhile, if k is packed in parts: they stay in the second cache."""
COLUMNS_PER_TASK = 64
SHORTEST_SUM = 64
"""Products added up before a sum is stored, at least: as many columns as then fit on the stack are packed at once."""
ROWS_AT_ONCE, PIECE = 16, 8192
"""Rows of B that a single tile reads at once where they stand, at least; elements, while there are fewer."""
TURNED = 3
"""How many times as long packing takes where the columns of B are contiguous."""
TILES_IN_PLACE = 2
"""Tiles of rows that read B where it stands, at most: for more it is packed."""
SHORTEST_PIECE = 128
"""Bytes of a row of a panel from which on tiles read B where it stands even if its rows are more than WAY apart."""
COLUMNS_AT_ONCE = 128
"""Columns at most whose panels all stay in a core's own caches, once they are packed."""
FETCHED, AGAIN, MEANWHILE = 0.08, 0.01, 0.8
"""Cycles to read an element of A, and again for each further panel; of the cycles to pack B, the part that the first
tile of rows, which packs it, takes longer."""
LINE = 64
"""Bytes of a line of the cache."""
CONFLICT = 1.1
"""How many times as long products take of more than half of WAYS rows of A that are a multiple of WAY apart (Zen 4)."""
COPIED, COPY_READ = 0.5, 0.08
"""Cycles to copy an element of more than WAYS such rows, a tile at a time; and to read it for a panel of columns."""

_B = {"b": "const $T *", "b_row": "int64_t ", "ahead": "int64_t ", "keep": "$T *"}
_FETCHES = {"next": "int64_t ", "next_row": "int64_t "}
_TILE = (
    """\
typedef void ${body}_run(int64_t k, const $T *a, int64_t a_row, const $T *b, int64_t b_row, int64_t ahead,
                         $T *keep, const $T *from, int64_t from_row, $T *to, int64_t to_row, int64_t next,
                         int64_t next_row);
/* to[R][W vectors] = from + A[R][k] * B[k][W vectors], from NULL: 0.  next: elements from A to that of the next tile,
 * whose rows are next_row apart, to fetch it; or 0.  B that is not packed is fetched as many elements ahead, and packed
 * at `keep`; or not, where these are 0. */
IRC_INLINE void ${body}(const int R, const int W, int64_t k, const $T *restrict a, int64_t a_row,
                        const $T *restrict b, int64_t b_row, int64_t ahead, $T *restrict keep, const $T *from,
                        int64_t from_row, $T *to, int64_t to_row, int64_t next, int64_t next_row) {
    $V acc[$MR][$NV], odd[$MR][$NV], bv[$NV];
    const int U = R * W < 8 ? 2 : 1; /* few sums: twice as many hide the latency of the additions */
    EACH(i < R, w < W) acc[i][w] = odd[i][w] = ${V}_zeros();
    for (; !keep && b_row == $NR && k >= 4; k -= 4) {
        if (next && k % $line < 4) irc_fetch_rows(R, a + next, next_row * $size);
        IRC_UNROLL
        for (int s = 0; s < 4; s += U, a += U, b += U * $NR) {
$packed        }
    }
    for (; k >= U; k -= U, a += U, b += U * b_row) {
        if (next && k % $line < U) irc_fetch_rows(R, a + next, next_row * $size);
$apart    }
    if (U == 2) {
        IRC_FULL_UNROLL
        for (int i = 0; i < R; i++) {
            IRC_FULL_UNROLL
            for (int w = 0; w < W; w++) {
                if (k) acc[i][w] += a[i * a_row] * ${V}_load(b + w * $L);
                acc[i][w] += odd[i][w];
            }
        }
    }
"""
    + ADD_AND_STORE
)

_STEP = """\
        EACH(w < W) bv[w] = ${V}_load_kept(b + w * $L);
$fetch$keep        EACH(i < R, w < W) ${V}_add_product(&acc[i][w], a[i * a_row], bv[w]);
        if (U == 1) continue;
        EACH(w < W) bv[w] = ${V}_load_kept(b + $row + w * $L);
$fetch_next$keep        EACH(i < R, w < W) ${V}_add_product(&odd[i][w], a[i * a_row + 1], bv[w]);
"""

_FETCH = """\
        if (ahead) {
            IRC_FULL_UNROLL
            for (int line = 64; line <= W * $L * $size; line += 64)
                __builtin_prefetch(b + $at + line / $size - 1, 0, 2);
        }
"""

_KEEP = """\
        if (keep) {
            EACH(w < W) ${V}_store(keep + w * $L, bv[w]);
            keep += $NR;
        }
"""

_BODY = """
/* k rows of `columns` columns of B in panels `step` rows apart, anything behind the last column. */
static void ${S}_pack(const ${S}_args *g, const $T *b, int64_t columns, int64_t k, int64_t step, $T *to) {
    if (g->b_col == 1) {
        ${V}_panels_$NV(b, g->b_row, columns, k, step, to);
        return;
    }
    for (int64_t col = 0; col < columns; col += $NR, b += $NR * g->b_col, to += $NR * step) {
        const int64_t have = columns - col < $NR ? columns - col : $NR;
        if (g->b_row == 1) {
            ${S}_pack_columns(b, g->b_col, have, k, to);
            continue;
        }
        for (int64_t j0 = 0; j0 < k; j0 += 8) {
            const int64_t j1 = j0 + 8 < k ? j0 + 8 : k;
            for (int64_t i = 0; i < $NR; i++)
                for (int64_t j = j0; j < j1; j++)
                    to[j * $NR + i] = i < have ? b[j * g->b_row + i * g->b_col] : 0;
        }
    }
}

/* Columns that are packed at once, at most: a single tile of rows waits for B, and reads long pieces of its rows. */
IRC_INLINE int64_t ${S}_span(const ${S}_args *g) { return g->m <= $MR ? $NT : $NS; }

/* Rows of B at its end behind which, read as whole panels, memory may end. */
IRC_INLINE int64_t ${S}_last_rows(const ${S}_args *g) {
    const int64_t behind = ($NR - g->n % $NR) % $NR;
    int64_t rows = 0;
    while (rows < g->k && rows * g->b_row < behind) rows++;
    return rows;
}

/* Columns col0 to col1 of one matrix whose rows are a single tile: B is read where it stands, some whole rows of these
 * columns at a time.  Behind the last columns the next row is read, too; of the last rows, which have none, a copy. */
static void ${S}_few(const ${S}_args *g, const ${S}_out *o, const $T *a, const $T *b, $T *last, int64_t col0,
                     int64_t col1) {
    const int64_t whole_rows = g->k - ${S}_last_rows(g), fit = $piece / g->n;
    const int64_t at_once = fit < $few ? $few : fit < $sum ? fit : $sum;
    int64_t k0 = 0;
    do {
        const int64_t safe = whole_rows - k0, left = safe > 0 ? safe : g->k - k0, most = safe > 0 ? at_once : $few;
        const int64_t k = left < most ? left : most;
        for (int64_t col = col0; col < col1; col += $NR) {
            const $T *panel = b + k0 * g->b_row + col;
            const int whole = safe > 0 || col1 - col >= $NR;
            if (!whole) ${S}_pack(g, panel, col1 - col, k, k, last);
            ${S}_block(o, (int)g->m, 0, col, k, a + k0, g->a_row, whole ? panel : last, whole ? g->b_row : $NR,
                       $few * g->b_row, 0, 0, 0, k0 > 0, k0 + k >= g->k, 0);
        }
        k0 += k;
    } while (k0 < g->k);
}

/* Elements of own memory for the rows of a tile, if the first cache has room for few lines of such: they are copied. */
IRC_INLINE int64_t ${S}_copied(const ${S}_args *g) {
    if ($MR <= $ways || g->m <= $MR || g->a_row % ($way / $size) != 0) return 0;
    const int64_t k = g->k < $room / $NR ? g->k : $room / $NR;
    return ($MR * (k + $line) + $line - 1) / $line * $line;
}

/* rows x k values of A at `to`, where rows are closer together. */
static void ${S}_copy(int rows, int64_t k, const $T *a, int64_t a_row, $T *to, int64_t to_row) {
    for (; rows > 0; rows--, a += a_row, to += to_row)
        for (int64_t j = 0; j < k; j++) to[j] = a[j];
}

/* Tiles of rows t0 to t1, columns col0 to col1 of one matrix.  The first tile packs what it reads of B: whole panels,
 * and of a last one whole blocks of k, behind whose rows others stand.  Few tiles read it there again.  Short pieces of
 * rows that are far apart are packed before, from long ones. */
static void ${S}_range(const ${S}_args *g, const ${S}_out *o, const $T *a, const $T *b, $T *own, int64_t t0,
                       int64_t t1, int64_t col0, int64_t col1) {
    if (g->m <= $MR && g->b_col == 1) {
        ${S}_few(g, o, a, b, own, col0, col1);
        return;
    }
    const int64_t tiles = (g->m + $MR - 1) / $MR, low = g->m / tiles, extra = g->m % tiles, span = ${S}_span(g);
    /* k in blocks that are summed up at once, as long for these columns as for all; a chunk has as many as fit. */
    const int64_t wide = g->n < span ? (g->n + $NR - 1) / $NR * $NR : span, fit = $room / wide;
    const int64_t most = fit < $sum ? fit : $sum, blocks = g->k > 0 ? (g->k + most - 1) / most : 1;
    const int64_t step = (g->k + blocks - 1) / blocks, deep = step > 0 ? fit / step * step : 1;
    const int64_t copied = ${S}_copied(g), whole_rows = g->k - ${S}_last_rows(g);
    const int near = g->b_col == 1 && ($NR * $size >= $piece_bytes || g->b_row * $size <= $way);
    const int64_t whole = near ? col0 + (col1 - col0) / $NR * $NR : col0; /* end of whole panels that a tile packs */
    const int far = ${S}_is_far(g), few = t1 - t0 <= $in_place;
    $T *const panels = own + copied;
    int64_t k0 = 0;
    do {
        const int64_t chunk = g->k - k0 < deep ? g->k - k0 : deep, safe = whole_rows - k0;
        const int64_t stands = !near || safe <= 0 ? 0 : safe >= chunk ? chunk : safe / step * step;
        const $T *const rows = b + k0 * g->b_row;
        if (whole < col1 && stands < chunk)
            ${S}_pack(g, rows + stands * g->b_row + whole * g->b_col, col1 - whole, chunk - stands, chunk,
                      panels + (whole - col0) * chunk + stands * $NR);
        for (int64_t t = t0; t < t1; t++) {
            const int64_t row = t * low + (t < extra ? t : extra);
            const int height = (int)(low + (t < extra)), copies = copied && height > $ways;
            const $T *from = a + row * g->a_row + k0;
            int64_t a_row = g->a_row, next = t + 1 < t1 ? height * g->a_row : 0;
            if (copies) {
                a_row = chunk + $line;
                ${S}_copy(height, chunk, from, g->a_row, own, a_row);
                if (next) next += ((intptr_t)from - (intptr_t)own) / $size;
                from = own;
            }
            /* Lines that drive each other out are fetched again with every panel. */
            for (int64_t col = col0; col < col1; col += $NR, next = copies ? next : 0) {
                $T *const panel = panels + (col - col0) * chunk;
                int64_t k1 = 0;
                do {
                    const int64_t k = chunk - k1 < step ? chunk - k1 : step;
                    const int stays = (t == t0 || few) && (col < whole || k1 < stands);
                    $T *const packed = panel + k1 * $NR;
                    ${S}_block(o, height, row, col, k, from + k1, a_row, stays ? rows + k1 * g->b_row + col : packed,
                               stays ? g->b_row : $NR, stays && t == t0 ? $few * g->b_row : 0,
                               stays && !few ? packed : 0, next, g->a_row, k0 + k1 > 0, k0 + k1 + k >= g->k, far);
                    k1 += k;
                } while (k1 < chunk);
            }
        }
        k0 += chunk;
    } while (k0 < g->k);
}

/* Ranges of rows: of $TT tiles each, of fewer where columns and matrices are few, so that there are $tasks tasks. */
IRC_INLINE int64_t ${S}_down(const ${S}_args *g, int64_t tiles, int64_t across) {
    const int64_t down = (tiles + $TT - 1) / $TT, others = g->batch0 * g->batch1 * across;
    const int64_t wanted = ($tasks + others - 1) / others;
    return down >= wanted ? down : wanted < tiles ? wanted : tiles;
}

/* How many ranges of so many rows, of these, meet what is packed of B before the next part of it is packed: all of
 * them, if their sums need not wait for that. */
IRC_INLINE int64_t ${S}_lines(const ${S}_args *g, int64_t lines, int64_t rows) {
    const int64_t span = ${S}_span(g), wide = g->n < span ? (g->n + $NR - 1) / $NR * $NR : span;
    if (g->k * wide <= $room) return lines;
    const int64_t most = $waiting / (wide * rows);
    return most < 1 ? 1 : most < lines ? most : lines;
}

/* Whether ranges of columns are outermost: then threads pack parts of B of their own, but all of them read A.  To pack
 * an element of B takes as long as to read one of A, or $turned times as long where columns are contiguous. */
IRC_INLINE int ${S}_wide(const ${S}_args *g) { return (g->b_col == 1 ? 1 : $turned) * g->n >= g->m; }

/* Tasks begin to end: matrices outermost, then ranges of rows, then ranges of columns, or these the other way round;
 * those beside each other at once, so that long pieces of the rows of B are read. */
static void ${S}_part(void *given, char *own, int64_t begin, int64_t end) {
    const ${S}_args *g = given;
    const int64_t tiles = (g->m + $MR - 1) / $MR, across = (g->n + $NC - 1) / $NC;
    const int64_t down = ${S}_down(g, tiles, across);
    const int64_t most = ${S}_span(g) / $NC, rows = (g->m + down - 1) / down;
    const int wide = ${S}_wide(g);
    const int64_t inner = wide ? down : across, outer = wide ? across : down;
    while (begin < end) {
        const int64_t image = begin / across / down, i = image / g->batch1, j = image % g->batch1;
        const int64_t line = begin / inner % outer, first = begin % inner, left = inner - first;
        int64_t run = left < end - begin ? left : end - begin, lines = 1;
        if (run == inner) lines = outer - line < (end - begin) / inner ? outer - line : (end - begin) / inner;
        const int64_t row0 = wide ? first : line, row1 = row0 + (wide ? run : lines);
        const int64_t col0 = wide ? line : first, col1 = col0 + (wide ? lines : run);
        ${S}_out o = {.c = g->c + i * g->c_batch0 + j * g->c_batch1, .c_row = g->c_row, .n = g->n};$slot_starts
        for (int64_t row = row0, high; row < row1; row += high) {
            high = col1 - col0 == across || wide ? ${S}_lines(g, row1 - row, rows) : row1 - row;
            for (int64_t at = col0, more; at < col1; at += more) {
                more = col1 - at < most ? col1 - at : most;
                ${S}_range(g, &o, g->a + i * g->a_batch0 + j * g->a_batch1, g->b + i * g->b_batch0 + j * g->b_batch1,
                           ($T *)own, tiles * row / down, tiles * (row + high) / down, at * $NC,
                           (at + more) * $NC < g->n ? (at + more) * $NC : g->n);
            }
        }
        begin += run * lines;
    }
}

void $S($parameters) {
    if (g->m <= 0 || g->n <= 0) return;
    const int64_t tiles = (g->m + $MR - 1) / $MR, across = (g->n + $NC - 1) / $NC;
    const int64_t down = ${S}_down(g, tiles, across);
    const int64_t tasks = g->batch0 * g->batch1 * down * across;
    if (!pool || tasks < 2 || (double)(g->batch0 * g->batch1) * (double)(g->m * g->n) * (double)g->k < $worthwhile)
        ${S}_part((void *)g, g->own, 0, tasks);
    else irc_divide(pool, tasks, ${S}_part, (void *)g, g->own, g->own_bytes, g->owners);
}
"""


@kernel
class StripsGemmKernel(TiledGemmKernel):
    """A matrix product that reads A in place, its columns contiguous (`a_col` is 1), of a B that is not constant."""

    @classmethod
    def candidates(cls, problem: GemmProblem, isa: Isa) -> Iterator[StripsGemmKernel]:
        if problem.dtype not in (f32, f64) or problem.matrices or problem.a[3] != 1:
            return
        for each in _lengths(problem, isa):
            for tile in costs_of(each).tiles_for(in_place=True):
                yield cls.design(each, problem.dtype, problem.m, problem.n, problem.epilogue, False, tile)

    def cycles(self, problem: GemmProblem) -> float:
        t, m, n, k = self.tile, likely(problem.m), likely(problem.n), likely(problem.k)
        costs = costs_of(t.isa)
        tiles, panels = -(-m // t.rows), -(-n // t.panel)
        columns = n if tiles > TILES_IN_PLACE or problem.b[3] != 1 else n % t.panel
        packed = columns if columns <= t.lanes else -(-columns // t.panel) * t.panel
        packing = (
            packed * k * -(-tiles // TILES_PER_TASK) * (costs.copied * MEANWHILE if problem.b[3] == 1 else costs.pack)
        )
        packing += m * k * (FETCHED + AGAIN * (panels - 1)) + tiles * panels * STARTED
        fresh = n <= COLUMNS_AT_ONCE and k >= SHORTEST_SUM  # shorter ones load sums and results, not panels
        products = tile_cycles(t.isa, (t.rows, t.vectors), t.lanes, m, n, in_place=True, fresh=fresh) * k
        height = -(-m // tiles) if in_place.rows_conflict(problem) else 0
        if height > WAYS and tiles > 1:
            packing += m * k * (COPIED + COPY_READ * panels)
        elif height > WAYS // 2:
            products *= CONFLICT
        waiting = problem.streamed * t.dtype.itemsize / costs.stream
        if problem.streamed and m <= t.rows and problem.b[3] == 1:
            waiting += k * panels * costs.met
        ended = m * ROW_ENDED if n % t.lanes else 0
        ended += m * halving_functions(t.isa, n, t.lanes, len(self.epilogue.functions()))
        return likely(problem.count) * (products + storing_cycles(t.isa, m, n, t.lanes) + packing + waiting + ended)

    @property
    def label(self) -> str:
        return f"strips {self.tile.rows}x{self.tile.vectors} of {self.tile.lanes}"

    def scratch(self, problem: GemmProblem) -> Dim:
        return Dim.of(0)

    def own_bytes(self, sizes: Mapping[str, int]) -> int:
        t, k, line, copied = self.tile, sizes["k"], LINE // self.tile.dtype.itemsize, 0
        if WAYS < t.rows < sizes["m"]:
            copied = -(-t.rows * (min(self._room // t.panel, k) + line) // line) * line
        return (copied + min(self._room, k * -(-sizes["n"] // t.panel) * t.panel)) * t.dtype.itemsize

    @property
    def _room(self) -> int:
        return self.tile.isa.packed // self.tile.dtype.itemsize

    @cached_property
    def symbol(self) -> str:
        key = f"{self.epilogue.key()}{self.heights}{self.narrow}"
        return symbol("matmul_strips", self.tile.name.removeprefix("irc_tile_"), key)

    @property
    def pointers(self) -> tuple[tuple[str, str], ...]:
        return super().pointers[:-1]

    def parts(self) -> list[Part]:
        t, s = self.tile, self.symbol
        body, variants = t.name.replace("tile", "strips", 1), Variants(self.heights, self.narrow)
        columns = max(1, COLUMNS_PER_TASK // t.panel) * t.panel
        room = self._room
        given = names(t) | {
            "S": s,
            "body": body,
            "far": AHEAD,
            "few": ROWS_AT_ONCE,
            "piece": PIECE,
            "waiting": SUMS_WAITING,
            "way": WAY,
            "in_place": TILES_IN_PLACE,
            "piece_bytes": SHORTEST_PIECE,
            "ways": WAYS,
            "line": LINE // t.dtype.itemsize,
            "sum": LONGEST_SUM,
            "room": room,
            "NC": columns,
        }
        given |= {"NS": max(1, room // LONGEST_SUM // columns) * columns}
        given |= {"NT": max(1, room // SHORTEST_SUM // columns) * columns}
        given |= {"TT": TILES_PER_TASK, "tasks": TASKS, "turned": TURNED, "worthwhile": WORTHWHILE}
        return [
            prelude(t, self.epilogue),
            DIVIDE,
            tile_body(body, _TILE, **given, **_steps(given)),
            *in_place.instances(t, body, variants, _B, _FETCHES),
            *packing_columns(s, t),
            pack_panels(t),
            in_place.block(s, t, body, self.epilogue, variants, _B, _FETCHES),
            fill(_BODY, **given, **self.interface, slot_starts=self.slot_starts()),
        ]

    @property
    def summary(self) -> str:
        return f"C = epilogue(A B), {self.tile.dtype}, tiles of {self.tile.rows} x {self.tile.panel}, A read in place."


def _lengths(problem: GemmProblem, isa: Isa) -> tuple[Isa, ...]:
    """List the sets that tiles are made of, with halves of vectors where these leave fewer columns empty.

    Not for one half vector of columns and long sums: of 49x512 . 512x8 tiles took 7.3 us, dots 5.4 (Zen 4).
    """
    n, k = problem.n, likely(problem.k)
    if not n.is_const or (k >= LONGEST_SUM and int(n) <= isa.lanes(problem.dtype) // 2):
        return (isa,)
    return lengths_for(isa, problem.dtype, int(n))


def _steps(given: Mapping[str, Any]) -> dict[str, str]:
    """Print steps of a tile: where B is packed, four in a loop, and where it stands, which is fetched."""
    at = {"fetch": "ahead", "fetch_next": "b_row + ahead"}
    packed = fill(_STEP, **given, row=given["NR"], fetch="", fetch_next="", keep="")
    fetched = {name: fill(_FETCH, **given, at=place) for name, place in at.items()}
    apart = fill(_STEP, **given, row="b_row", keep=fill(_KEEP, **given), **fetched)
    return {"packed": indent(packed, " " * 4), "apart": apart}
