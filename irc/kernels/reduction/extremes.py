"""The least and the largest of all elements in one pass, as dynamic quantization needs them.

NaN is seen by a sum: it is NaN where an element is, or where both infinities are there.  Such elements are looked
through once more, one by one.  Threads take pieces, whose results are put together at the end.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Self

import numpy as np

from irc.ir.dim import Dim
from irc.kernels.core.base import Array, Kernel, Sizes
from irc.kernels.core.costs import LOADS
from irc.kernels.core.epilogue import plain
from irc.kernels.core.isa import C_TYPES, Isa
from irc.kernels.core.problem import Problem, likely
from irc.kernels.core.registry import kernel
from irc.kernels.core.text import Part, fill, symbol
from irc.kernels.core.tile import Tile, names, prelude
from irc.kernels.vector.lanes import folds

PIECES, PIECE = 32, 1 << 13
"""Pieces that threads take, at most, and elements of one, at least."""
SUMS = 4
"""Vectors of each fold, which do not wait for one another."""

_BODY = """
IRC_INLINE $T ${S}_least($T a, $T b) { return b < a || b != b ? b : a; } /* NaN stays */
IRC_INLINE $T ${S}_largest($T a, $T b) { return b > a || b != b ? b : a; }

/* n elements. */
static void ${S}_some(const $T *x, int64_t n, $T *to) {
    $V low[$sums], high[$sums], sum[$sums];
    EACH(u < $sums) low[u] = ${V}_all(INFINITY), high[u] = -low[u], sum[u] = ${V}_zeros();
    int64_t j = 0;
    for (; j + $sums * $L <= n; j += $sums * $L) {
        IRC_FULL_UNROLL
        for (int u = 0; u < $sums; u++) {
            const $V v = ${V}_load(x + j + u * $L);
            low[u] = ${V}_at_most(low[u], v), high[u] = ${V}_at_least(high[u], v), sum[u] += v;
        }
    }
    IRC_FULL_UNROLL
    for (int u = 1; u < $sums; u++) {
        low[0] = ${V}_at_most(low[0], low[u]), high[0] = ${V}_at_least(high[0], high[u]), sum[0] += sum[u];
    }
    $T least = -${V}_max_all(-low[0])[0], largest = ${V}_max_all(high[0])[0];
    const $T all = ${V}_sum_all(sum[0])[0];
    if (all != all) j = 0, least = INFINITY, largest = -INFINITY;
    for (; j < n; j++) least = ${S}_least(least, x[j]), largest = ${S}_largest(largest, x[j]);
    to[0] = least, to[1] = largest;
}

IRC_INLINE int64_t ${S}_pieces(int64_t n) {
    const int64_t pieces = n / $piece;
    return pieces < 1 ? 1 : pieces < $pieces ? pieces : $pieces;
}

static void ${S}_part(void *given, int64_t begin, int64_t end) {
    const ${S}_args *g = given;
    const int64_t pieces = ${S}_pieces(g->n);
    for (; begin < end; begin++) {
        const int64_t first = g->n * begin / pieces, last = g->n * (begin + 1) / pieces;
        ${S}_some(g->x + first, last - first, g->scratch + 2 * begin);
    }
}

void $S($parameters) {
    const int64_t pieces = ${S}_pieces(g->n);
    if (!pool || pieces < 2) ${S}_part((void *)g, 0, pieces);
    else pool->parallel_for(pool->self, pieces, ${S}_part, (void *)g);
    $T least = g->scratch[0], largest = g->scratch[1];
    for (int64_t i = 1; i < pieces; i++) {
        least = ${S}_least(least, g->scratch[2 * i]);
        largest = ${S}_largest(largest, g->scratch[2 * i + 1]);
    }
    g->y[0] = least, g->y[1] = largest;
}
"""


@dataclass(frozen=True)
class ExtremesProblem(Problem):
    """y = [least, largest] of the n elements of a dense x; infinities where there are none, NaN where one is."""

    n: Dim


@kernel
class ExtremesKernel(Kernel[ExtremesProblem]):
    """A generated fold of all elements to the least and the largest one."""

    tile: Tile

    problem = ExtremesProblem

    @classmethod
    def candidates(cls, problem: ExtremesProblem, isa: Isa) -> Iterator[Self]:
        if problem.dtype.name in C_TYPES:
            yield cls(Tile(isa, problem.dtype, 1, 1))

    def cycles(self, problem: ExtremesProblem) -> float:
        return likely(problem.n) / self.tile.lanes / LOADS

    @property
    def label(self) -> str:
        return "pieces"

    @property
    def sizes(self) -> tuple[str, ...]:
        """Names of the int64_t arguments: the elements of x."""
        return ("n",)

    def arguments_for(self, problem: ExtremesProblem) -> dict[str, Dim]:
        return {"n": problem.n}

    def scratch(self, problem: ExtremesProblem) -> Dim:
        return Dim.of(2 * PIECES * self.tile.dtype.itemsize)

    def compute(self, reads: Sequence[Array], writes: Sequence[Array], sizes: Mapping[str, int]) -> None:
        x = reads[0][: sizes["n"]]
        writes[0][:2] = np.min(x, initial=np.inf), np.max(x, initial=-np.inf)

    def flops(self, sizes: Sizes) -> Dim:
        return 2 * sizes["n"]

    @cached_property
    def symbol(self) -> str:
        return symbol("extremes", self.tile.name.removeprefix("irc_tile_").rsplit("_", 1)[0], "")

    @property
    def pointers(self) -> tuple[tuple[str, str], ...]:
        t = str(names(self.tile)["T"])
        return (("x", f"const {t} *"), ("y", f"{t} *"), ("scratch", f"{t} *"))

    @property
    def summary(self) -> str:
        return f"The least and the largest element, {self.tile.dtype}."

    def parts(self) -> list[Part]:
        t = self.tile
        given = names(t) | {"S": self.symbol, "sums": SUMS, "pieces": PIECES, "piece": PIECE}
        return [prelude(t, plain(t.dtype)), folds(t.lanes, t.dtype), fill(_BODY, **given, **self.interface)]
