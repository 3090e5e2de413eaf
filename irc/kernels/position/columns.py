"""Positions along an axis that is not the last: vectors of columns, the best elements so far and their places.

Places are floats, which vectors of floats keep like the elements themselves: a new place is later than all before, so
that it is the larger one.  A sum of all elements is NaN where one is NaN (or both infinities are there): such columns
are looked through once more, element by element.

Threads split the blocks of columns.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Self

from irc.ir.types import f32
from irc.kernels.core.costs import PLACED
from irc.kernels.core.isa import HEAD, Isa, vector_name, vector_type
from irc.kernels.core.problem import likely
from irc.kernels.core.registry import kernel
from irc.kernels.core.text import Part, fill
from irc.kernels.position.problem import PositionKernel, PositionProblem, alone, sign
from irc.kernels.vector.lanes import folds

VECTORS = 4
"""Vectors of columns in a block."""
NARROW = 3
"""Columns of which loops make as much."""
EXACT = 1 << 24
"""Elements of a column whose places are exact as floats."""
WORTHWHILE = 30_000
"""Elements below which one thread does all."""

_BODY = """
/* W vectors of columns, the last one `end` behind the first and of `count` columns. */
IRC_INLINE void ${S}_columns(const int W, const float *x, int64_t *y, int64_t n, int64_t inner, int64_t end,
                             int64_t count) {
    $V best[W], place[W], sum[W], now = {0};
    const $V one = ${V}_all(1);
    EACH(w < W) best[w] = ${V}_all(-INFINITY), place[w] = sum[w] = ($V){0};
    for (int64_t i = 0; i < n; i++, x += inner, now += one) {
        IRC_FULL_UNROLL
        for (int w = 0; w < W; w++) {
            const float *from = x + (w < W - 1 ? w * $L : end);
            const $V v = ${sign}(count < $L ? ${V}_load_part(from, count) : ${V}_load(from));
            const ${V}_mask better = (${V}_mask)(v $better best[w]);
            place[w] = ${V}_at_least(place[w], ($V)(better & (${V}_mask)now));
            best[w] = ${V}_at_least(best[w], v), sum[w] += v;
        }
    }
    x -= n * inner;
    $V all = {0};
    EACH(w < W) all += sum[w];
    all = ${V}_sum_all(all);
    IRC_FULL_UNROLL
    for (int w = 0; w < W; w++) {
        const int64_t at = w < W - 1 ? w * $L : end;
        if (all[0] != all[0]) {
            for (int64_t c = 0; c < count; c++) y[at + c] = ${S}_alone(x + at + c, n, inner);
            continue;
        }
        float places[$L];
        ${V}_store(places, place[w]);
        for (int64_t c = 0; c < count; c++) y[at + c] = (int32_t)places[c];
    }
}

typedef void ${S}_run(const float *x, int64_t *y, int64_t n, int64_t inner, int64_t end);
$instances
/* Tasks begin to end: outer iterations, then blocks of columns.  The last vector overlaps the one before. */
static void ${S}_part(void *given, int64_t begin, int64_t end) {
    static ${S}_run *const runs[$most] = {$runs};
    const ${S}_args *g = given;
    const int64_t n = g->n, inner = g->inner, blocks = (inner + $block - 1) / $block;
    for (; begin < end; begin++) {
        const int64_t at = begin % blocks * $block, left = inner - at < $block ? inner - at : $block;
        const float *x = g->x + begin / blocks * n * inner + at;
        int64_t *y = g->y + begin / blocks * inner + at;
        if (inner < $L) ${S}_columns(1, x, y, n, inner, 0, inner);
        else runs[(left - 1) / $L](x, y, n, inner, left - $L);
    }
}

void $S($parameters) {
    if (g->n <= 0) return;
    const int64_t tasks = g->outer * ((g->inner + $block - 1) / $block);
    const double work = (double)g->outer * (double)g->n * (double)g->inner;
    if (!pool || tasks < 2 || work < $worthwhile) ${S}_part((void *)g, 0, tasks);
    else pool->parallel_for(pool->self, tasks, ${S}_part, (void *)g);
}
"""
_INSTANCE = """\
static void ${S}_$W(const float *x, int64_t *y, int64_t n, int64_t inner, int64_t end) {
    ${S}_columns($W, x, y, n, inner, end, $L);
}
"""


@kernel
class PositionColumnsKernel(PositionKernel):
    """Generated positions of the largest or smallest elements of columns."""

    @property
    def label(self) -> str:
        return "columns"

    @property
    def sizes(self) -> tuple[str, ...]:
        return ("outer", "n", "inner")

    @classmethod
    def candidates(cls, problem: PositionProblem, isa: Isa) -> Iterator[Self]:
        """Yield the variant if there are enough columns and their places are exact."""
        if problem.inner.at_most(NARROW) is not True and problem.n.at_most(EXACT) is True:
            yield cls(isa, problem.smallest, problem.last)

    def cycles(self, problem: PositionProblem) -> float:
        vectors = -(-likely(problem.inner) // self.isa.lanes(f32))
        return likely(problem.outer) * likely(problem.n) * vectors * PLACED

    def parts(self) -> list[Part]:
        lanes = self.isa.lanes(f32)
        given: dict[str, object] = {"V": vector_name(lanes, f32), "L": lanes, "S": self.symbol}
        texts = {
            "sign": sign(self.smallest),
            "better": ">=" if self.last else ">",
            "instances": "".join(fill(_INSTANCE, W=w, **given) for w in range(1, VECTORS + 1)),
            "runs": ", ".join(f"{self.symbol}_{w}" for w in range(1, VECTORS + 1)),
        }
        sizes = {"most": VECTORS, "block": VECTORS * lanes, "worthwhile": WORTHWHILE}
        body = fill(_BODY, **given, **texts, **sizes, **self.interface)
        slow = alone(self.symbol, self.smallest, self.last)
        return [HEAD, *vector_type(lanes, f32), folds(lanes, f32), slow, body]
