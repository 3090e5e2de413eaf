"""Matrix product with a small B, C[m, n] = epilogue(A[m, k] · B[k, n]): A is read where it stands.

Where B has few columns, packing A would cost as much as the products: here a tile reads its rows of A by broadcasts.
An A that stands the other way (its rows are contiguous) is copied, the rows of a tile at a time: the first cache holds
them for all columns.
All of B stays in the caches, packed at compile time as `GemmKernel` packs it, so tiles of rows are the outer loop: A is
read once, C is written row by row, each element once, the epilogue applied in registers.

Threads split the rows, and the columns of few.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import replace
from functools import cached_property
from textwrap import indent
from typing import Any, Self

from irc.expr import Expr
from irc.ir.dim import Dim, DimLike
from irc.ir.types import DType
from irc.kernels.core.base import RESIDUALS, Kernel
from irc.kernels.core.costs import costs_of, lengths_for
from irc.kernels.core.epilogue import Epilogue
from irc.kernels.core.isa import Isa
from irc.kernels.core.problem import likely
from irc.kernels.core.registry import kernel
from irc.kernels.core.text import Part, fill, piece, symbol, tile_body
from irc.kernels.core.tile import Tile, epilogue_of, heights_of, names, prelude
from irc.kernels.core.workspace import DIVIDE
from irc.kernels.gemm.in_place import far_results
from irc.kernels.gemm.packed import packing_rows
from irc.kernels.gemm.problem import GemmProblem
from irc.kernels.gemm.tasks import WORTHWHILE
from irc.kernels.gemm.tiled import LONGEST_SUM, TiledGemmKernel, cached_elements, is_narrow
from irc.kernels.vector import bf16_io

DEEPEST = 1023
"""Products in a sum at most: rows of 1024 elements share few sets of the first cache."""
DEEPEST_COPIED = 256
"""The same where rows of A are copied: the first cache holds those of a tile."""
FEW_TASKS = 16
"""With fewer tiles of rows than this, columns are divided too."""
LINE = 64
"""Bytes of a line of the caches."""
SHARE = 3 / 4
"""Part of the second cache that B may take."""

_SUMS = """\
/* acc[R][W vectors] = A[R][k] * B[k][$NR]; `sums` has room for a tile.  far: A is not in the caches, lines of the next
 * R rows are fetched. */
IRC_INLINE void ${body}(const int R, const int W, int64_t k, const $T *restrict a, int64_t a_row,
                        const $T *restrict b, int far, $T *sums, $V acc[$MR][$NV]) {
    $V bv[$NV];$products}
"""

_FEW = """\
static void ${body}_${R}x$W(int64_t k, const $T *a, int64_t a_row, const $T *b, int far, $T *sums) {
    $V acc[$MR][$NV];
    $body($R, $W, k, a, a_row, b, far, sums, acc);
    EACH(i < $R, w < $W) ${V}_store(sums + i * $NR + w * $L, acc[i][w]);
}
"""

_EDGE = """
/* Some rows of the columns of a panel, from their sums. */
static void ${S}_edge(const ${S}_out *o, int rows, int64_t row, int64_t col, const $T *sums) {
    const int64_t left = o->n - col < $NR ? o->n - col : $NR;
    int64_t at = 0;
    for (; at + $L <= left; at += $L) {
        $Y *c = o->c + row * o->c_row + col + at;
        for (int i = 0; i < rows; i++, c += o->c_row)
            $SY(c, ${S}_epilogue(o, ${V}_load(sums + i * $NR + at), row + i, col + at, $L));
    }
    if (at == left) return;
    $Y *c = o->c + row * o->c_row + col + at;
    for (int i = 0; i < rows; i++, c += o->c_row)
        ${SY}_part(c, ${S}_epilogue(o, ${V}_load(sums + i * $NR + at), row + i, col + at, left - at), left - at);
}
"""

_TILE = """\
/* Rows row to row + R, columns col to col + W vectors; `a` is the first of the rows of A, `b` the panel. */
IRC_INLINE void ${S}_tile(const int R, const int W, const ${S}_out *o, int64_t row, int64_t col, int64_t k,
                          const $T *restrict a, int64_t a_row, const $T *restrict b, int far) {
    _Alignas(64) $T sums[$MR * $NR];
    $V acc[$MR][$NV];
    $body(R, W, k, a, a_row, b, far, sums, acc);
    if (o->n - col < W * $L) {
        EACH(i < R, w < W) ${V}_store(sums + i * $NR + w * $L, acc[i][w]);
        ${S}_edge(o, R, row, col, sums);
        return;
    }
    $Y *c = o->c + row * o->c_row + col;
    IRC_FULL_UNROLL
    for (int i = 0; i < R; i++, c += o->c_row) {
        IRC_FULL_UNROLL
        for (int w = 0; w < W; w++)
            $SY(c + w * $L, ${S}_epilogue(o, acc[i][w], row + i, col + w * $L, $L));
    }
}
"""

_SHORT = """
    (void)sums, (void)a_row, (void)far;
    EACH(i < R, w < W) acc[i][w] = ${V}_zeros();
    int64_t left = k;
$loops"""

_DEEP = """
    const $T *so_far = 0; /* long sums are sums of sums, which lose less */
    for (;; k -= $sum) {
        EACH(i < R, w < W) acc[i][w] = ${V}_zeros();
        int64_t left = k < $sum ? k : $sum;
$loops        if (so_far) {
            EACH(i < R, w < W) acc[i][w] += ${V}_load(so_far + i * $NR + w * $L);
        }
        if (k <= $sum) break;
        EACH(i < R, w < W) ${V}_store(sums + i * $NR + w * $L, acc[i][w]);
        so_far = sums;
    }
"""

_STEPS = """\
    for (; left >= 4; left -= 4) {
$fetch        IRC_UNROLL
        for (int s = 0; s < 4; s++, a += $next, b += $NR) {
$step        }
    }
    for (; left > 0; left--, a += $next, b += $NR) {
$step    }
"""

_STEPS_ROLLED = """\
    for (; left > 0; left -= 4) {
$fetch        for (int64_t s = left < 4 ? left : 4; s > 0; s--, a += $next, b += $NR) {
$step        }
    }
"""

_STEP = """\
            EACH(w < W) bv[w] = ${V}_load_kept(b + w * $L);
            EACH(i < R, w < W) ${V}_add_product(&acc[i][w], a[i * $apart], bv[w]);
"""

_PACK = """\
            ${V}_pack_rows(a + row, 1, g->a_col, (int)rows, g->k, packed);
"""

_FETCH = """\
        if (far && left % $line < 4) irc_fetch_rows(R, a + R * a_row, a_row * $size);
"""

_INSTANCE = """
IRC_APART void ${S}_${R}x$W(const ${S}_out *o, int64_t row, int64_t col, int64_t k, const $T *a, int64_t a_row,
                            const $T *b, int far) {
    ${S}_tile($R, $W, o, row, col, k, a, a_row, b, far);
}
"""

_BODY = """
typedef void ${S}_run(const ${S}_out *o, int64_t row, int64_t col, int64_t k, const $T *a, int64_t a_row, const $T *b,
                      int far);
$few_type
/* Where a tile starts. */
IRC_INLINE int64_t ${S}_start(int64_t m, int64_t tile) {
$start
}

/* Some tiles of one matrix, columns col0 to col1. */
static void ${S}_range(const ${S}_args *g, const ${S}_out *o, const $T *a, const $T *b, int64_t tile, int64_t last,
                       int64_t col0, int64_t col1$packed) {
$tables
    const int far = g->batch0 * g->batch1 * g->m * g->k > $near;
    const int far_results = ${S}_is_far(g);
    for (; tile < last; tile++) {
        const int64_t end = ${S}_start(g->m, tile + 1);
        for (int64_t row = ${S}_start(g->m, tile), rows; row < end; row += rows) {
            rows = $height;
$pack            for (int64_t col = col0; col < col1; col += $NR) {
                const $T *const from = $from, *const panel = b + col * g->k;
                if (far_results) ${S}_fetch(o, (int)rows, row, col);
$call            }
        }
    }
}

/* Tasks: tiles of rows, matrices outermost; of few tiles, parts of their columns, innermost. */
typedef struct {
    int64_t tiles, panels, cuts, tasks;
} ${S}_plan;

IRC_INLINE ${S}_plan ${S}_tasks(const ${S}_args *g) {
    const int64_t tiles = (g->m + $MR - 1) / $MR, panels = (g->n + $NR - 1) / $NR;
    const int64_t all = g->batch0 * g->batch1 * tiles, wanted = all ? ($wanted + all - 1) / all : 1;
    const int64_t cuts = wanted < panels ? wanted : panels;
    return (${S}_plan){tiles, panels, cuts, all * cuts};
}

static void ${S}_part(void *given, ${own}int64_t begin, int64_t end) {
    const ${S}_args *g = given;
    const ${S}_plan plan = ${S}_tasks(g);
    while (begin < end) {
        const int64_t at = begin / plan.cuts, cut = begin % plan.cuts, left = end - begin;
        const int64_t image = at / plan.tiles, first = at % plan.tiles, i = image / g->batch1, j = image % g->batch1;
        int64_t tiles = 1, parts = plan.cuts - cut < left ? plan.cuts - cut : left;
        if (parts == plan.cuts) tiles = left / parts < plan.tiles - first ? left / parts : plan.tiles - first;
        const int64_t col0 = plan.panels * cut / plan.cuts * $NR, col1 = plan.panels * (cut + parts) / plan.cuts * $NR;
        ${S}_out o = {.c = g->c + i * g->c_batch0 + j * g->c_batch1, .c_row = g->c_row, .n = g->n};$slot_starts
        ${S}_range(g, &o, g->a + i * g->a_batch0 + j * g->a_batch1, g->b + i * g->b_batch0 + j * g->b_batch1, first,
                   first + tiles, col0, col1 < g->n ? col1 : g->n$given);
        begin += tiles * parts;
    }
}

void $S($parameters) {
    if (g->m <= 0 || g->n <= 0) return;
    const int64_t tasks = ${S}_tasks(g).tasks;
    const int alone = !pool || tasks < 2
                      || (double)(g->batch0 * g->batch1) * (double)(g->m * g->n) * (double)g->k < $worthwhile;
$divide}
"""

_DIVIDE = """\
    if (alone) ${S}_part((void *)g, 0, tasks);
    else pool->parallel_for(pool->self, tasks, ${S}_part, (void *)g);
"""

_DIVIDE_WITH_ROWS = """\
    irc_divide(alone ? 0 : pool, tasks, ${S}_part, (void *)g, g->own, g->own_bytes, g->owners);
"""

_EVEN = """    const int64_t tiles = (m + $MR - 1) / $MR, low = m / tiles, extra = m % tiles;
    return tile * low + (tile < extra ? tile : extra);"""

_WHOLE = """    return tile * $MR < m ? tile * $MR : m;"""


_CALL = """                $whole(o, row, col, g->k, from, g->a_row, panel, far && col == col0);
"""

_FEW_CALL = """\
                $few[rows](g->k, from, g->a_row, panel, far && col == col0, sums);
                ${S}_edge(o, (int)rows, row, col, sums);
"""

_CALL_OR_FEW = """                if (rows == $MR) {
                    $whole(o, row, col, g->k, from, g->a_row, panel, far && col == col0);
                } else {
                    $few[rows](g->k, from, g->a_row, panel, far && col == col0, sums);
                    ${S}_edge(o, (int)rows, row, col, sums);
                }
"""

_FEW_TYPE = "typedef void ${S}_few(int64_t k, const $T *a, int64_t a_row, const $T *b, int far, $T *sums);\n"


def heights_for(m: DimLike, rows: int) -> tuple[int, ...]:
    """Choose heights that cover m rows, of nearly equal tiles.

    If m is unknown: of whole tiles, and of the parts of what is left, highest first.
    """
    return heights_of(m, rows) if Dim.of(m).is_const else (rows, *(h for h in (8, 4, 2, 1) if h < rows))


def is_small(problem: GemmProblem, isa: Isa) -> bool:
    """Tell whether B stays in the second cache, and few enough rows of A are in each set of the first."""
    n, k = problem.n, problem.k
    if not (n.is_const and k.is_const and 0 < int(k) <= DEEPEST):
        return False
    return int(n) * int(k) * problem.dtype.itemsize <= isa.l2 * SHARE


@kernel
class SmallBGemmKernel(TiledGemmKernel):
    """A matrix product that reads A in place: its columns contiguous (`a_col` is 1), B constant.

    `heights` as `heights_for` finds them; `even`: for a number of rows that is known.  `deep`: takes more than
    LONGEST_SUM products in a sum.  `turned`: the rows of A are contiguous instead (`a_row` is 1), and copied.
    `y_bf16`: C is bf16 (`irc.kernels.vector.bf16_io`), for 16 lanes of f32.
    """

    even: bool = False
    deep: bool = True
    turned: bool = False
    y_bf16: bool = False

    reads_in_place = True

    @classmethod
    def of_depth(
        cls, isa: Isa, dtype: DType, m: DimLike, n: DimLike, k: int, epilogue: Epilogue, tile: tuple[int, int]
    ) -> Self:
        """Make the variant with this register tile for products of m × n results, sums of k products."""
        t = Tile(isa, dtype, *tile)
        heights, even = heights_for(m, t.rows), Dim.of(m).is_const
        return cls(t, epilogue, True, heights, is_narrow(t, n), even, k > LONGEST_SUM)

    @classmethod
    def candidates(cls, problem: GemmProblem, isa: Isa) -> Iterator[Self]:
        """Yield the variants if B is a constant that stays in the second cache."""
        m, n, k, dtype = problem.m, problem.n, problem.k, problem.dtype
        turned = problem.a[3] != 1
        if not problem.matrices or not is_small(problem, isa):
            return
        if turned and (problem.a[2] != 1 or int(k) > DEEPEST_COPIED):
            return
        for each in lengths_for(isa, dtype, int(n)):
            for tile in costs_of(each).tiles_for(in_place=True):
                # Low tiles read B so often that it must come from the first cache, as a strip of one panel does.
                low = tile not in costs_of(each).tiles and int(n) > tile[1] * each.lanes(dtype)
                if likely(m) >= tile[0] and not low:
                    yield replace(cls.of_depth(each, dtype, m, n, int(k), problem.epilogue, tile), turned=turned)

    def cycles(self, problem: GemmProblem) -> float:
        copied = costs_of(self.tile.isa).copied if self.turned else 0.0
        return self.product_cycles(problem) + likely(problem.count) * likely(problem.m) * likely(problem.k) * copied

    def joined(self, other: Kernel[Any]) -> Self | None:
        """Make the kernel that takes long sums, too, if one of both does: short ones are of one part."""
        if not isinstance(other, type(self)):
            return None
        deep = self.deep or other.deep
        found = super().joined(replace(other, deep=self.deep))
        return None if found is None else replace(found, deep=deep)

    def own_bytes(self, sizes: Mapping[str, int]) -> int:
        rows = self.tile.rows * min(sizes["k"], DEEPEST_COPIED) + self.tile.lanes
        return rows * self.tile.dtype.itemsize if self.turned else 0

    @property
    def label(self) -> str:
        return f"small B {self.tile.rows}x{self.tile.vectors} of {self.tile.lanes}{', turned' * self.turned}"

    def reads_bf16(self, operand: int) -> bool:
        return self.tile.is_wide and self.epilogue.is_residual(operand - RESIDUALS)

    def writes_bf16(self, sizes: Mapping[str, Expr]) -> bool:
        return self.tile.is_wide

    @cached_property
    def symbol(self) -> str:
        kind = self.tile.name.removeprefix("irc_tile_")
        key = f"{self.epilogue.key()}{self.heights}{self.narrow}{self.even}{self.deep}{self.turned}"
        return symbol("gemm_rows", kind, f"{key}{bf16_io.key(False, self.y_bf16)}")

    @property
    def pointers(self) -> tuple[tuple[str, str], ...]:
        found = super().pointers
        return (*found[:-1], ("c", "uint16_t *")) if self.y_bf16 else found

    def for_rows(self, counts: Collection[int]) -> Self:
        return super().for_rows(counts) if self.even else self  # uneven tiles are of any number of rows

    def parts(self) -> list[Part]:
        t, s = self.tile, self.symbol
        body = f"{t.name.replace('tile', 'rows', 1)}{'_deep' * self.deep}{'_turned' * self.turned}"
        given = names(t) | bf16_io.names(False, self.y_bf16, t) | {"S": s, "worthwhile": WORTHWHILE, "sum": LONGEST_SUM}
        given |= {"next": "R", "apart": 1} if self.turned else {"next": 1, "apart": "a_row"}
        given |= {"body": body, "line": LINE // t.dtype.itemsize, "near": cached_elements(t), "wanted": FEW_TASKS}
        widths = {"whole": t.vectors} | ({"narrow": 1} if self.narrow else {})
        greedy = "".join(f"end - row >= {r} ? {r} : " for r in self.heights[:-1]) + str(self.heights[-1])
        return [
            prelude(t, self.epilogue),
            *((DIVIDE, *packing_rows(t)) if self.turned else ()),
            tile_body(body, _SUMS, **given, products=self._products(given)),
            *(piece("IRC_TILE_${body}_${R}x$W", _FEW, **given, R=r, W=w) for w in widths.values() for r in self._few),
            bf16_io.text(self.y_bf16, self.epilogue.bf16_slots),
            epilogue_of(s, t, self.epilogue, given["Y"]),
            far_results(s, t),
            fill(_EDGE, **given),
            fill(_TILE, **given) if self._own else "",
            *(fill(_INSTANCE, **given, R=r, W=w) for w in widths.values() for r in self._own),
            fill(
                _BODY,
                **given,
                few_type=fill(_FEW_TYPE, **given) if self._few else "",
                tables="".join(self._tables(widths, body)).rstrip(),
                call=self._call(given),
                **self._rows(given),
                start=fill(_EVEN if self.even else _WHOLE, **given),
                height="end - row" if self.even else greedy,
                slot_starts=self.slot_starts(),
                **self.interface,
            ),
        ]

    def _rows(self, given: Mapping[str, object]) -> dict[str, str]:
        """Print where a tile finds its rows of A, and what copies them into the memory of the part of the call."""
        if not self.turned:
            plain = {"pack": "", "from": "a + row * g->a_row", "packed": "", "own": "", "given": ""}
            return plain | {"divide": fill(_DIVIDE, **given)}
        texts = {
            "pack": _PACK,
            "from": "packed",
            "packed": ", $T *packed",
            "own": "char *own, ",
            "given": ", ($T *)own",
        }
        return {name: fill(text, **given) for name, text in (texts | {"divide": _DIVIDE_WITH_ROWS}).items()}

    def _products(self, given: Mapping[str, object]) -> str:
        """Print the loops of a tile's products."""
        rolled = self.tile.isa.name == "avx512"  # products of a step are so many that its other instructions are few
        each, fetch = fill(_STEP, **given), "" if self.turned else fill(_FETCH, **given)
        steps = fill(_STEPS_ROLLED if rolled else _STEPS, **given, step=each, fetch=fetch)
        return fill(_DEEP, **given, loops=indent(steps, "    ")) if self.deep else fill(_SHORT, **given, loops=steps)

    @property
    def _own(self) -> tuple[int, ...]:
        """The heights of tiles that apply the epilogue in registers, where functions would need some of their own."""
        if self.epilogue.functions():
            return ()
        return self.heights if self.even else self.heights[:1]

    @property
    def _few(self) -> tuple[int, ...]:
        """The heights of tiles whose sums are stored first: kernels in one file share these."""
        return self.heights[len(self._own) :]

    def _tables(self, widths: Mapping[str, int], body: str) -> Iterator[str]:
        """Print the tables of tiles by their heights, and the memory for sums that those of few rows need."""
        for name, w in widths.items():
            if self._own:
                own = ", ".join(f"[{r}] = {self.symbol}_{r}x{w}" for r in self._own)
                yield f"    static {self.symbol}_run *const {name}[] = {{{own}}};\n"
            if self._few:
                few = ", ".join(f"[{r}] = {body}_{r}x{w}" for r in self._few)
                yield f"    static {self.symbol}_few *const {name}_few[] = {{{few}}};\n"
        if self._few:
            yield fill("    _Alignas(64) $T sums[$MR * $NR];\n", **names(self.tile))

    def _call(self, given: Mapping[str, object]) -> str:
        """Print the call of the tile of `rows` rows."""

        def table(end: str) -> str:
            narrow = f"(g->n - col <= {self.tile.lanes} ? narrow{end} : whole{end})"
            return narrow if self.narrow else f"whole{end}"

        whole = f"{table('')}[rows]"
        text = _FEW_CALL if not self._own else _CALL_OR_FEW if self._few else _CALL
        return fill(text, **given, whole=whole, few=table("_few"))

    @property
    def summary(self) -> str:
        read = "rows of A copied" if self.turned else "A read in place"
        return f"C = epilogue(A B), {self.tile.dtype}, tiles of {self.tile.rows} x {self.tile.panel}, {read}."
