"""Transposing copies: the axes of a tensor in another order.

Axes that stay together are one loop.  What is left are up to three outer loops around a matrix: where its rows and
columns change places it goes through squares of registers, in stripes so that whole lines of both tensors are used;
where the last axis stays, rows are copied.

Threads split outer iterations and stripes.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from typing import Self

from irc.ir.dim import Dim, product
from irc.kernels.core.base import Array, Kernel, Sizes
from irc.kernels.core.costs import costs_of
from irc.kernels.core.epilogue import plain
from irc.kernels.core.isa import C_TYPES, Isa
from irc.kernels.core.problem import likely
from irc.kernels.core.reference import strided
from irc.kernels.core.registry import kernel
from irc.kernels.core.text import Part, fill, symbol
from irc.kernels.core.tile import Tile, names, prelude
from irc.kernels.movement.problem import TransposeProblem
from irc.kernels.vector.lanes import square

STRIPE = 64  # columns of x, or rows where these are copied, in a task
SHORT, WIDE = 4, 1024  # rows of x up to which, and how many columns, if there are few
LINE = 64  # bytes of a line of the cache
BLOCK = 512  # rows of x in a task, about
WORTHWHILE = 50_000  # elements below which one thread does all

SQUARES = """
/* The square of `rows` x `cols` elements, at most $L each way; nothing else is read or written. */
IRC_INLINE void ${S}_edge(${of}const $T *x, int64_t x_row, int64_t rows, int64_t cols, $T *y, int64_t y_col) {
    $V v[$L];
    for (int i = 0; i < $L; i++) v[i] = i < rows ? ${V}_load_part(x + i * x_row, cols) : ($V){0};
    ${V}_square(v);
    for (int j = 0; j < $L && j < cols; j++) ${V}_store_part(y + j * y_col, $part, rows);
}

IRC_INLINE void ${S}_whole(${of}const $T *x, int64_t x_row, $T *y, int64_t y_col) {
    $V v[$L];
    EACH(i < $L) v[i] = ${V}_load(x + i * x_row);
    ${V}_square(v);
    EACH(j < $L) {
        ${V}_store(y + j * y_col, $whole);
        $fetch_line /* next to be written: there are more rows than processors follow */
    }
}

/* The same of all rows, and fewer columns. */
IRC_INLINE void ${S}_part_of_columns(${of}const $T *x, int64_t x_row, int64_t cols, $T *y, int64_t y_col) {
    $V v[$L];
    EACH(i < $L) v[i] = ${V}_load_part(x + i * x_row, cols);
    ${V}_square(v);
    IRC_FULL_UNROLL
    for (int j = 0; j < $L; j++)
        if (j < cols) ${V}_store(y + j * y_col, $whole);
}

/* y[j][i] = x[i][j], rows of both contiguous: all rows of x, some of its columns.  The last square of several ends with
 * the last row: what it shares with the one before is written twice, which is faster than parts of vectors. */
static void ${S}_stripe(${of}const ${S}_args *g, const $T *x, $T *y, int64_t rows, int64_t cols) {
    const int several = rows >= $L;
    for (int64_t i = 0; i < rows; i += $L) {
        const int64_t top = several && rows - i < $L ? rows - $L : i;
        for (int64_t j = 0; j < cols; j += $L) {
            const $T *from = x + top * g->x_row + j;
            $T *to = y + j * g->y_col + top;
            if (!several) ${S}_edge(${o}from, g->x_row, rows - i, cols - j, to, g->y_col);
            else if (cols - j < $L) ${S}_part_of_columns(${o}from, g->x_row, cols - j, to, g->y_col);
            else ${S}_whole(${o}from, g->x_row, to, g->y_col);
        }
    }
}

"""

_FEW = """\
/* The same for few rows or few columns of x, which stand side by side in memory. */
static void ${S}_few(const ${S}_args *g, const $T *x, $T *y, int64_t rows, int64_t cols) {
    if (rows == 2 && g->y_col == 2) {
        int64_t j = 0;
        for (; j + $L <= cols; j += $L) {
            const $V a = ${V}_load(x + j), b = ${V}_load(x + g->x_row + j);
            ${V}_store(y + 2 * j, __builtin_shufflevector(a, b, $low));
            ${V}_store(y + 2 * j + $L, __builtin_shufflevector(a, b, $high));
        }
        for (; j < cols; j++) y[2 * j] = x[j], y[2 * j + 1] = x[g->x_row + j];
$fours    } else if (rows < cols) {
        for (int64_t j = 0; j < cols; j++)
            for (int64_t i = 0; i < rows; i++) y[j * g->y_col + i] = x[i * g->x_row + j];
    } else {
        for (int64_t i = 0; i < rows; i++)
            for (int64_t j = 0; j < cols; j++) y[j * g->y_col + i] = x[i * g->x_row + j];
    }
}

static void ${S}_copy(const $T *x, $T *y, int64_t n) {
    int64_t j = 0;
    for (; j + 2 * $L <= n; j += 2 * $L) {
        ${V}_store(y + j, ${V}_load(x + j));
        ${V}_store(y + j + $L, ${V}_load(x + j + $L));
    }
    for (; j < n; j += $L) ${V}_store_part(y + j, ${V}_load_part(x + j, n - j), n - j);
}

"""

TASKS = """\
/* Columns of a stripe, or rows where these are copied: many where they are short, so that tasks are not. */
IRC_INLINE int64_t ${S}_width(const ${S}_args *g) { return g->y_col == 1 || g->rows > $short ? $stripe : $wide; }

IRC_INLINE int64_t ${S}_stripes(const ${S}_args *g) {
    return ((g->y_col == 1 ? g->rows : g->cols) + ${S}_width(g) - 1) / ${S}_width(g);
}

/* Blocks of rows are of whole squares, but for the last one's end: no square belongs to two. */
IRC_INLINE int64_t ${S}_blocks(const ${S}_args *g) {
    return g->y_col == 1 || g->rows < 2 * $block ? 1 : g->rows / $block;
}

/* Tasks begin to end: outer iterations, then blocks of rows, then stripes. */
static void ${S}_part(void *given, int64_t begin, int64_t end) {
    const ${S}_args *g = given;
    const int64_t stripes = ${S}_stripes(g), blocks = ${S}_blocks(g), width = ${S}_width(g);
$places    for (; begin < end; begin++) {
        const int64_t outer = begin / stripes / blocks, at = begin % stripes * width;
        const int64_t block = begin / stripes % blocks, top = g->rows * block / blocks / $L * $L;
        const int64_t rows = (block + 1 < blocks ? g->rows * (block + 1) / blocks / $L * $L : g->rows) - top;
        const int64_t i2 = outer % g->n2, i1 = outer / g->n2 % g->n1, i0 = outer / g->n2 / g->n1;
        const $T *x = (const $T *)g->x + i0 * g->x0 + i1 * g->x1 + i2 * g->x2;
        $T *y = ($T *)g->y + i0 * g->y0 + i1 * g->y1 + i2 * g->y2;
${copies}        const int64_t cols = g->cols - at < width ? g->cols - at : width;
        x += at + top * g->x_row;
        y += at * g->y_col + top * g->y_row;
$elements    }
}

void $S($parameters) {
    const int64_t outer = g->n0 * g->n1 * g->n2, tasks = outer * ${S}_blocks(g) * ${S}_stripes(g);
    if (outer <= 0 || g->rows <= 0 || g->cols <= 0) return;
    const double work = (double)outer * (double)g->rows * (double)g->cols;
    if (!pool || tasks < 2 || work < $worthwhile) ${S}_part((void *)g, 0, tasks);
    else pool->parallel_for(pool->self, tasks, ${S}_part, (void *)g);
}
"""

_COPIES = """\
        if (g->y_col == 1) {
            for (int64_t i = at; i < at + width && i < g->rows; i++)
                ${S}_copy(x + i * g->x_row, y + i * g->y_row, g->cols);
            continue;
        }
"""

_ELEMENTS = """\
        if (g->y_row != 1) {
            for (int64_t i = 0; i < rows; i++)
                for (int64_t j = 0; j < cols; j++) y[i * g->y_row + j * g->y_col] = x[i * g->x_row + j];
        } else if (rows < $few || cols < $few || (rows == $four && g->y_col == $four)) {
            ${S}_few(g, x, y, rows, cols);
        } else {
            ${S}_stripe(g, x, y, rows, cols);
        }
"""

_FOURS = """\
    } else if (rows == 4 && g->y_col == 4) {
        const $T *const x2 = x + 2 * g->x_row;
        int64_t j = 0;
        for (; j + $L <= cols; j += $L) {
            const $V a = ${V}_load(x + j), b = ${V}_load(x + g->x_row + j);
            const $V c = ${V}_load(x2 + j), d = ${V}_load(x2 + g->x_row + j);
            const $V ab = __builtin_shufflevector(a, b, $low), cd = __builtin_shufflevector(c, d, $low);
            const $V ab_ = __builtin_shufflevector(a, b, $high), cd_ = __builtin_shufflevector(c, d, $high);
            ${V}_store(y + 4 * j, __builtin_shufflevector(ab, cd, $low_pairs));
            ${V}_store(y + 4 * j + $L, __builtin_shufflevector(ab, cd, $high_pairs));
            ${V}_store(y + 4 * j + 2 * $L, __builtin_shufflevector(ab_, cd_, $low_pairs));
            ${V}_store(y + 4 * j + 3 * $L, __builtin_shufflevector(ab_, cd_, $high_pairs));
        }
        for (; j < cols; j++)
            for (int64_t i = 0; i < 4; i++) y[4 * j + i] = x[i * g->x_row + j];
"""


@kernel
class TransposeKernel(Kernel[TransposeProblem]):
    """A generated copy that reorders axes."""

    tile: Tile

    problem = TransposeProblem

    @classmethod
    def candidates(cls, problem: TransposeProblem, isa: Isa) -> Iterator[Self]:
        if problem.dtype.name in C_TYPES and problem.epilogue is None:
            yield cls(Tile(isa, problem.dtype, 1, 1))

    def cycles(self, problem: TransposeProblem) -> float:
        elements = likely(product((problem.rows[0], problem.cols[0], *(extent for extent, _, _ in problem.outer))))
        return 2 * elements * self.tile.dtype.itemsize / costs_of(self.tile.isa).stream

    @property
    def label(self) -> str:
        return "squares"

    def arguments_for(self, problem: TransposeProblem) -> dict[str, Dim]:
        rows, (cols, apart) = problem.rows, problem.cols
        sizes = {"rows": rows[0], "x_row": rows[1], "y_row": rows[2], "cols": cols, "y_col": apart}
        for i, (extent, x, y) in enumerate(problem.outer):
            sizes |= {f"n{i}": extent, f"x{i}": x, f"y{i}": y}
        return sizes

    def compute(self, reads: Sequence[Array], writes: Sequence[Array], sizes: Mapping[str, int]) -> None:
        """Copy element by element, each array by its strides."""
        shape = [sizes[n] for n in ("n0", "n1", "n2", "rows", "cols")]
        x = strided(reads[0], shape, [sizes[n] for n in ("x0", "x1", "x2", "x_row")] + [1])
        strided(writes[0], shape, [sizes[n] for n in ("y0", "y1", "y2", "y_row", "y_col")])[...] = x

    @cached_property
    def symbol(self) -> str:
        return symbol("transpose", self.tile.name.removeprefix("irc_tile_").rsplit("_", 1)[0], "")

    @property
    def pointers(self) -> tuple[tuple[str, str], ...]:
        t = str(names(self.tile)["T"])
        return (("x", f"const {t} *"), ("y", f"{t} *"))

    @property
    def sizes(self) -> tuple[str, ...]:
        """Names of the int64_t arguments, in order.

        n0, n1, n2 outer iterations around a matrix of rows × cols; strides in x and y of each.  The columns of x are
        contiguous; in y either they are (y_col is 1) or the rows, for speed (y_row is 1).
        """
        return tuple("n0 n1 n2 rows cols x0 x1 x2 x_row y0 y1 y2 y_row y_col".split())  # noqa: SIM905

    @property
    def result_strides(self) -> tuple[str, ...]:
        """The strides of the result if its rows are contiguous."""
        return ("y0", "y1", "y2", "y_col")

    def flops(self, sizes: Sizes) -> Dim:
        return Dim.of(0)

    @property
    def summary(self) -> str:
        return f"A copy that reorders axes, {self.tile.dtype}."

    @property
    def element(self) -> str:
        """The C type by which elements are moved."""
        return str(names(self.tile)["T"])

    def parts(self) -> list[Part]:
        t = self.tile
        given = self.given()
        pairs = [i // 2 + i % 2 * t.lanes for i in range(2 * t.lanes)]
        given |= {"low": ", ".join(map(str, pairs[: t.lanes])), "high": ", ".join(map(str, pairs[t.lanes :]))}
        quarter, lanes = t.lanes // 4, range(t.lanes // 2)
        fours = [f"{2 * i}, {2 * i + 1}, {t.lanes + 2 * i}, {t.lanes + 2 * i + 1}" for i in lanes]
        given |= {"low_pairs": ", ".join(fours[:quarter]), "high_pairs": ", ".join(fours[quarter:])}
        given["four"] = 4 if quarter else 0  # else vectors are too short for it
        given["fours"] = fill(_FOURS, **given) if quarter else ""
        given |= {"copies": fill(_COPIES, **given), "elements": fill(_ELEMENTS, **given)}
        body = "".join(fill(text, **given, **self.interface) for text in (SQUARES, _FEW, TASKS))
        return [prelude(t, plain(t.dtype)), square(t.lanes, t.dtype), body]

    def given(self) -> dict[str, object]:
        """Return the names in the templates of squares and tasks, of a copy that stores elements as they are."""
        t = self.tile
        return names(t) | {
            "S": self.symbol,
            "T": self.element,
            "stripe": STRIPE,
            "block": BLOCK,
            "short": SHORT,
            "wide": WIDE,
            "worthwhile": WORTHWHILE,
            "few": max(2, t.lanes // 4),
            "fetch_line": f"__builtin_prefetch(y + j * y_col + {LINE // t.dtype.itemsize}, 1);",
            "of": "",
            "o": "",
            "whole": "v[j]",
            "part": "v[j]",
            "places": "",
        }
