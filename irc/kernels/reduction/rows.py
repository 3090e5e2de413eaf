"""Reductions of rows: as many rows at a time as a vector has lanes.

Each row is folded into a vector; then the lanes of these vectors are folded together by shuffles, to a vector of
results: less than folding the lanes of each alone.  A row may consist of pieces that are apart.

Threads split the rows.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cached_property
from typing import Any, Self

import numpy as np

from irc.ir.dim import Dim, product
from irc.kernels.core.base import Array, Kernel, Sizes
from irc.kernels.core.costs import LANES_FOLDED, LOADS
from irc.kernels.core.epilogue import plain
from irc.kernels.core.isa import C_TYPES, Isa
from irc.kernels.core.problem import likely
from irc.kernels.core.reference import strided
from irc.kernels.core.registry import kernel
from irc.kernels.core.text import Part, fill, symbol
from irc.kernels.core.tile import Tile, names, prelude
from irc.kernels.reduction.problem import Fold, RowReductionProblem
from irc.kernels.vector.lanes import folded_together

WORTHWHILE = 16_000
"""Elements below which one thread does all."""
SHORTEST = 7
"""Elements of a piece from which on loops, which take several short rows as one, are slower."""
LONG = 8
"""Vectors from which on a row takes several sums, each of which waits for its last."""
FAR = 1 << 15
"""Elements of a row from which on both of its halves are read at once: memory gives two streams sooner than one."""
SUMS, UNROLLED = 4, 4
"""How many sums those are; and the vectors below which all rows stand in the code, one behind the other."""

_BODY = """
/* n elements: what their vectors are folded to. */
IRC_INLINE $V ${S}_piece(const $T *x, int64_t n) {
    $V acc = ${V}_all($empty);$whole
    return acc;
}

/* A row: its pieces. */
IRC_INLINE $V ${S}_row(const ${S}_args *g, const $T *x) {
    if (g->pieces <= 0) return ${V}_all($empty);
    $V acc = ${S}_piece(x, g->n);
    for (int64_t r = 1; r < g->pieces; r++) {
        const $V next = ${S}_piece(x + r * g->x_piece, g->n);
        acc = $fold;
    }
    return acc;
}

/* What the lanes of $L rows are folded to, in the lanes of a vector. */
IRC_INLINE $V ${S}_together(const ${S}_args *g, $V acc[$L]) {
    (void)g;
$together    return $result;
}

static $V ${S}_rows(const ${S}_args *g, const $T *x) {
    $V acc[$L];
    $unroll
    for (int p = 0; p < $L; p++) acc[p] = ${S}_row(g, x + p * g->x_row);
    return ${S}_together(g, acc);
}

static $V ${S}_few(const ${S}_args *g, const $T *x, int64_t count) {
    $V acc[$L];
    for (int p = 0; p < $L; p++) acc[p] = p < count ? ${S}_row(g, x + p * g->x_row) : ${V}_all($empty);
    return ${S}_together(g, acc);
}

/* Tasks begin to end: outer iterations, then $L rows each. */
static void ${S}_part(void *given, int64_t begin, int64_t end) {
    const ${S}_args *g = given;
    const int64_t blocks = (g->rows + $L - 1) / $L;
    int64_t outer = begin / blocks, row = begin % blocks * $L;
    for (; begin < end; begin++) {
        const $T *const x = g->x + outer * g->x_outer + row * g->x_row;
        $T *const y = g->y + outer * g->rows + row;
        const int64_t left = g->rows - row;
        if (left >= $L) ${V}_store(y, ${S}_rows(g, x));
        else ${V}_store_part(y, ${S}_few(g, x, left), left);$after
        row += $L;
        if (row >= g->rows) row = 0, outer++;
    }
}

void $S($parameters) {
    const int64_t tasks = g->outer * ((g->rows + $L - 1) / $L);
    if (tasks <= 0) return;
    const double work = (double)g->outer * (double)g->rows * (double)g->pieces * (double)g->n;
    if (!pool || tasks < 2 || work < $worthwhile) ${S}_part((void *)g, 0, tasks);
    else pool->parallel_for(pool->self, tasks, ${S}_part, (void *)g);
}
"""

_LOOP = """
    int64_t j = 0;
    if (n >= $sums * $L) {
        const int64_t whole = n / ($sums * $L) * ($sums * $L);
        const int far = n >= $far; /* halves of a row that comes from memory are read beside each other */
        const int64_t apart = far ? whole / 2 : $sums / 2 * $L, step = far ? $sums / 2 * $L : $sums * $L;
        $V others[$others];
        EACH(u < $others) others[u] = acc;
        for (; j < (far ? apart : whole); j += step) {
            {
                const $V x_ = ${V}_load(x + j), next = $term;
                acc = $fold;
            }
            IRC_FULL_UNROLL
            for (int u = 0; u < $others; u++) {
                const int64_t at = (u + 1) % ($sums / 2) * $L + (u + 1 < $sums / 2 ? 0 : apart);
                const $V x_ = ${V}_load(x + j + at), next = $term, acc_ = others[u];
                others[u] = $fold_other;
            }
        }
        j = whole;
        IRC_FULL_UNROLL
        for (int u = 0; u < $others; u++) {
            const $V next = others[u];
            acc = $fold;
        }
    }
    for (; j + $L <= n; j += $L) {
        const $V x_ = ${V}_load(x + j), next = $term;
        acc = $fold;
    }
    if (j < n) {
        const $V x_ = ${V}_load_between(x + j, 0, n - j, ${V}_all($empty)), next = $term;
        acc = $fold;
    }"""
_WHOLE = """
    {
        const $V x_ = ${V}_load(x + $at), next = $term;
        acc = $fold;
    }"""
_REST = """
    if (n > $at) {
        const $V x_ = ${V}_load_between(x + $at, 0, n - $at, ${V}_all($empty)), next = $term;
        acc = $fold;
    }"""
_ROOTS = """
        for (int p = 0; p < $L && p < left; p++) y[p] = $sqrt(y[p]);"""

_SUMS = ("{acc} + {next}", "0", np.sum)
_FOLDS: Mapping[Fold, tuple[str, str, Callable[..., Any]]] = {
    **dict.fromkeys(("sum", "mean", "l1", "l2"), _SUMS),
    "prod": ("{acc} * {next}", "1", np.prod),
    "max": ("$V_max({acc}, {next})", "-INFINITY", np.max),
    "min": ("$V_min({acc}, {next})", "INFINITY", np.min),
}
"""Of each fold: the expression in C, its identity, and what NumPy does."""
_TERMS: Mapping[Fold, str] = {"l1": "$V_abs(x_)", "l2": "x_ * x_"}


@kernel
class RowReductionKernel(Kernel[RowReductionProblem]):
    """A generated reduction of rows.

    whole: the whole vectors of a piece where they are known and fewer than `LONG`, else `LONG`.
    """

    tile: Tile
    fold: Fold
    whole: int

    problem = RowReductionProblem

    @property
    def label(self) -> str:
        return "rows"

    @property
    def sizes(self) -> tuple[str, ...]:
        return ("outer", "rows", "pieces", "n", "x_outer", "x_row", "x_piece")

    @classmethod
    def candidates(cls, problem: RowReductionProblem, isa: Isa) -> Iterator[Self]:
        """Yield the variant, but of pieces that are known to be very short."""
        n = problem.n
        if problem.dtype.name in C_TYPES and not (n.is_const and int(n) < SHORTEST):
            tile = Tile(isa, problem.dtype, 1, 1)
            vectors = int(n) // tile.lanes if n.is_const else LONG
            yield cls(tile, problem.fold, min(vectors, LONG))

    def cycles(self, problem: RowReductionProblem) -> float:
        rows = likely(problem.outer[0]) * likely(problem.rows[0])
        vectors = likely(problem.pieces[0]) * -(-likely(problem.n) // self.tile.lanes)
        return rows * (vectors / LOADS + LANES_FOLDED)

    def arguments_for(self, problem: RowReductionProblem) -> dict[str, Dim]:
        loops = {"outer": problem.outer, "row": problem.rows, "piece": problem.pieces}
        extents = {"outer": problem.outer[0], "rows": problem.rows[0], "pieces": problem.pieces[0], "n": problem.n}
        return extents | {f"x_{name}": stride for name, (_, stride) in loops.items()}

    def compute(self, reads: Sequence[Array], writes: Sequence[Array], sizes: Mapping[str, int]) -> None:
        shape = [sizes[n] for n in ("outer", "rows", "pieces", "n")]
        if 0 in shape[:2]:
            return
        x = strided(reads[0], shape, [sizes[n] for n in ("x_outer", "x_row", "x_piece")] + [1]).astype(np.float64)
        terms = np.abs(x) if self.fold == "l1" else x * x if self.fold == "l2" else x
        y = _FOLDS[self.fold][2](terms, axis=(2, 3))
        y = y / (shape[2] * shape[3]) if self.fold == "mean" else np.sqrt(y) if self.fold == "l2" else y
        writes[0][: shape[0] * shape[1]] = y.reshape(-1)

    def flops(self, sizes: Sizes) -> Dim:
        return product(sizes[n] for n in ("outer", "rows", "pieces", "n"))

    @cached_property
    def symbol(self) -> str:
        words = self.tile.name.removeprefix("irc_tile_").rsplit("_", 1)[0]
        return symbol("reduce_rows", self.fold, str(self.whole), words, "")

    @property
    def pointers(self) -> tuple[tuple[str, str], ...]:
        t = str(names(self.tile)["T"])
        return (("x", f"const {t} *"), ("y", f"{t} *"))

    @property
    def summary(self) -> str:
        return f"The {self.fold} of every row, {self.tile.dtype}."

    def parts(self) -> list[Part]:
        t = self.tile
        given = names(t) | {
            "S": self.symbol,
            "sums": SUMS,
            "far": FAR,
            "others": SUMS - 1,
            "empty": _FOLDS[self.fold][1],
            "term": self._in_vectors(_TERMS.get(self.fold, "x_")),
            "fold": self._folded("acc", "next"),
            "fold_other": self._folded("acc_", "next"),
            "worthwhile": WORTHWHILE,
            "unroll": "IRC_FULL_UNROLL" if self.whole < UNROLLED else "",
            "together": folded_together(t.lanes, self._folded("{a}", "{b}")),
            "sqrt": "sqrtf" if t.dtype.name == "f32" else "sqrt",
        }
        given["result"] = "acc[0]"
        if self.fold == "mean":
            given["result"] = fill("acc[0] / ${V}_all(($T)(g->pieces * g->n))", **given)
        after = fill(_ROOTS, **given) if self.fold == "l2" else ""
        return [
            prelude(t, plain(t.dtype)),
            fill(_BODY, **given, whole=self._piece(given), after=after, **self.interface),
        ]

    def _piece(self, given: Mapping[str, object]) -> str:
        if self.whole == LONG:
            return fill(_LOOP, **given)
        lanes = self.tile.lanes
        texts = [fill(_WHOLE, at=k * lanes, **given) for k in range(self.whole)]
        return "".join([*texts, fill(_REST, at=self.whole * lanes, **given)])

    def _folded(self, acc: str, value: str) -> str:
        return self._in_vectors(_FOLDS[self.fold][0].format(acc=acc, next=value))

    def _in_vectors(self, text: str) -> str:
        return text.replace("$V", str(names(self.tile)["V"]))
