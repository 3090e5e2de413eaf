"""Positions along a short last axis: as many rows as a vector has lanes are turned into columns of vectors.

Places are floats, as in `columns`.  The last columns that are turned overlap those before; nothing in them is better
than what was found.  A sum of all elements is NaN where one is NaN (or both infinities are there): such rows are looked
through once more, element by element.

Threads split the rows.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property
from typing import Self

from irc.ir.types import f32
from irc.kernels.core.costs import LANES_FOLDED, PLACED
from irc.kernels.core.isa import HEAD, Isa, vector_name, vector_type
from irc.kernels.core.problem import likely
from irc.kernels.core.registry import kernel
from irc.kernels.core.text import Part, fill
from irc.kernels.position.columns import WORTHWHILE
from irc.kernels.position.problem import PositionKernel, PositionProblem, alone, sign
from irc.kernels.position.rows import SHORT
from irc.kernels.vector.lanes import folds, square

LEAST = 8
"""Elements of rows that loops look through as fast."""

_BODY = """
/* $L rows. */
static void ${S}_some(const float *x, int64_t *y, int64_t n) {
    $V best = ${V}_all(-INFINITY), place = {0}, sum = {0};
    const $V one = ${V}_all(1);
    for (int64_t j = 0; j < n; j += $L) {
        const int64_t at = j + $L <= n ? j : n - $L;
        $V v[$L], now = ${V}_all((float)at);
        EACH(i < $L) v[i] = ${V}_load(x + i * n + at);
        ${V}_square(v);
        IRC_FULL_UNROLL
        for (int i = 0; i < $L; i++) {
            const $V w = ${sign}v[i];
            const ${V}_mask better = (${V}_mask)(w $better best);
            place = ${V}_at_least(place, ($V)(better & (${V}_mask)now)), now += one;
            best = ${V}_at_least(best, w), sum += w;
        }
    }
    sum = ${V}_sum_all(sum);
    float places[$L];
    ${V}_store(places, place);
    if (sum[0] != sum[0])
        for (int64_t i = 0; i < $L; i++) y[i] = ${S}_alone(x + i * n, n, 1);
    else
        for (int64_t i = 0; i < $L; i++) y[i] = (int32_t)places[i];
}

/* Tasks begin to end: $L rows each, the last ones overlap those before. */
static void ${S}_part(void *given, int64_t begin, int64_t end) {
    const ${S}_args *g = given;
    for (; begin < end; begin++) {
        const int64_t row = begin * $L + $L <= g->outer ? begin * $L : g->outer - $L;
        if (row >= 0) ${S}_some(g->x + row * g->n, g->y + row, g->n);
        else
            for (int64_t i = 0; i < g->outer; i++) g->y[i] = ${S}_alone(g->x + i * g->n, g->n, 1);
    }
}

void $S($parameters) {
    const int64_t tasks = (g->outer + $L - 1) / $L;
    if (!pool || tasks < 2 || (double)g->outer * (double)g->n < $worthwhile) ${S}_part((void *)g, 0, tasks);
    else pool->parallel_for(pool->self, tasks, ${S}_part, (void *)g);
}
"""


@kernel
class PositionShortRowsKernel(PositionKernel):
    """Generated positions of the largest or smallest elements of rows of a few vectors."""

    @property
    def label(self) -> str:
        return "short rows"

    @cached_property
    def symbol(self) -> str:
        return f"{super().symbol}_{self.isa.lanes(f32)}"

    @property
    def sizes(self) -> tuple[str, ...]:
        return ("outer", "n")

    @classmethod
    def candidates(cls, problem: PositionProblem, isa: Isa) -> Iterator[Self]:
        """Yield the variant for rows of a known size, shorter vectors for those that fill no longer ones."""
        n = problem.n
        if problem.inner != 1 or not isa.has_vectors or not n.is_const or not LEAST <= int(n) <= SHORT:
            return
        if isa.lanes(f32) > int(n):
            isa = isa.halved()
        yield cls(isa, problem.smallest, problem.last)

    def cycles(self, problem: PositionProblem) -> float:
        lanes = self.isa.lanes(f32)
        turned = lanes * LANES_FOLDED * (lanes.bit_length() - 1) / 2
        blocks = -(-likely(problem.n) // lanes)
        return -(-likely(problem.outer) // lanes) * blocks * (turned + lanes * PLACED)

    def parts(self) -> list[Part]:
        lanes = self.isa.lanes(f32)
        given: dict[str, object] = {"V": vector_name(lanes, f32), "L": lanes, "S": self.symbol}
        texts = {"sign": sign(self.smallest), "better": ">=" if self.last else ">", "worthwhile": WORTHWHILE}
        body = fill(_BODY, **given, **texts, **self.interface)
        slow = alone(self.symbol, self.smallest, self.last)
        return [HEAD, *vector_type(lanes, f32), folds(lanes, f32), square(lanes, f32), slow, body]
