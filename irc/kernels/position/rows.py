"""Positions along the last axis: the best element of every block of a row, then its place in the best block.

Neither waits for a branch that nobody can predict.  A sum of all elements is NaN where one is NaN (or both infinities
are there): such rows are looked through once more, element by element.

Threads split the rows.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Self

from irc.ir.types import f32
from irc.kernels.core.costs import LANES_FOLDED, PLACED
from irc.kernels.core.isa import HEAD, Isa, vector_name, vector_type
from irc.kernels.core.problem import likely
from irc.kernels.core.registry import kernel
from irc.kernels.core.text import Part, fill
from irc.kernels.position.columns import WORTHWHILE
from irc.kernels.position.problem import PositionKernel, PositionProblem, alone, sign
from irc.kernels.vector.lanes import folds

SHORT = 63
"""Elements of rows that loops look through side by side."""
BLOCK = 256
"""Elements of a block."""

_BODY = """
/* The best of n elements of a block; `sum` += all of them. */
IRC_INLINE float ${S}_best(const float *x, int64_t n, $V *sum) {
    $V m[4], s[4];
    int64_t j = 0;
    EACH(u < 4) m[u] = ${V}_all(-INFINITY), s[u] = ($V){0};
    for (; j + 4 * $L <= n; j += 4 * $L) {
        IRC_FULL_UNROLL
        for (int u = 0; u < 4; u++) {
            const $V v = ${sign}${V}_load(x + j + u * $L);
            m[u] = ${V}_at_least(m[u], v), s[u] += v;
        }
    }
    for (; j + $L <= n; j += $L) {
        const $V v = ${sign}${V}_load(x + j);
        m[0] = ${V}_at_least(m[0], v), s[0] += v;
    }
    if (j < n) {
        const $V v = ${V}_load_part(x + j, n - j);
        s[1] += v, m[1] = ${V}_at_least(m[1], ${V}_select((${V}_mask)(lane < (float)(n - j)), ${sign}v, m[1]));
    }
    *sum += (s[0] + s[1]) + (s[2] + s[3]);
    return ${V}_max_all(${V}_at_least(${V}_at_least(m[0], m[1]), ${V}_at_least(m[2], m[3])))[0];
}

/* The place of the best of n elements of a block. */
IRC_INLINE int64_t ${S}_place(const float *x, int64_t n, float best) {
    const $V top = ${V}_all(${sign}best), step = ${V}_all($by 4 * $L);
    $V place[4], now[4];
    int64_t j = 0;
    EACH(u < 4) place[u] = ($V){0}, now[u] = $start $by (lane + (float)(u * $L));
    for (; j + 4 * $L <= n; j += 4 * $L) {
        IRC_FULL_UNROLL
        for (int u = 0; u < 4; u++) {
            const ${V}_mask hit = (${V}_mask)(${V}_load(x + j + u * $L) == top);
            place[u] = ${V}_at_least(place[u], ($V)(hit & (${V}_mask)now[u])), now[u] += step;
        }
    }
    for (; j < n; j += $L) {
        const int64_t have = n - j < $L ? n - j : $L;
        const $V v = have < $L ? ${V}_load_part(x + j, have) : ${V}_load(x + j);
        const ${V}_mask hit = (${V}_mask)(v == top) & (${V}_mask)(lane < (float)have);
        place[0] = ${V}_at_least(place[0], ($V)(hit & (${V}_mask)now[0])), now[0] += ${V}_all($by $L);
    }
    place[0] = ${V}_at_least(${V}_at_least(place[0], place[1]), ${V}_at_least(place[2], place[3]));
    const int64_t found = (int64_t)${V}_max_all(place[0])[0];
    return $found;
}

static int64_t ${S}_row(const float *x, int64_t n) {
    float best = -INFINITY;
    int64_t block = 0;
    $V sum = {0};
    for (int64_t j = 0; j < n; j += $block) {
        const float top = ${S}_best(x + j, n - j < $block ? n - j : $block, &sum);
        block = top $better best ? j : block;
        best = top > best ? top : best;
    }
    sum = ${V}_sum_all(sum);
    if (sum[0] != sum[0]) return ${S}_alone(x, n, 1);
    return block + ${S}_place(x + block, n - block < $block ? n - block : $block, best);
}

static void ${S}_part(void *given, int64_t begin, int64_t end) {
    const ${S}_args *g = given;
    for (; begin < end; begin++) g->y[begin] = ${S}_row(g->x + begin * g->n, g->n);
}

void $S($parameters) {
    if (g->n <= 0) return;
    if (!pool || g->outer < 2 || (double)g->outer * (double)g->n < $worthwhile) ${S}_part((void *)g, 0, g->outer);
    else pool->parallel_for(pool->self, g->outer, ${S}_part, (void *)g);
}
"""


@kernel
class PositionRowsKernel(PositionKernel):
    """Generated positions of the largest or smallest elements of contiguous rows."""

    @property
    def label(self) -> str:
        return "rows"

    @property
    def sizes(self) -> tuple[str, ...]:
        return ("outer", "n")

    @classmethod
    def candidates(cls, problem: PositionProblem, isa: Isa) -> Iterator[Self]:
        """Yield the variant unless loops over many short rows are faster."""
        if problem.inner == 1 and problem.n.at_most(SHORT) is not True:
            yield cls(isa, problem.smallest, problem.last)

    def cycles(self, problem: PositionProblem) -> float:
        lanes = self.isa.lanes(f32)
        folded = 2 * LANES_FOLDED * (lanes.bit_length() - 1)
        return likely(problem.outer) * (-(-likely(problem.n) // lanes) * PLACED + folded)

    def parts(self) -> list[Part]:
        lanes = self.isa.lanes(f32)
        v, s = vector_name(lanes, f32), self.symbol
        given: dict[str, object] = {"V": v, "L": lanes, "S": s, "block": BLOCK, "worthwhile": WORTHWHILE}
        numbers = ", ".join(map(str, range(lanes)))
        texts = {
            "sign": sign(self.smallest),
            "better": ">=" if self.last else ">",
            "start": f"{v}_all({1 if self.last else BLOCK})",
            "by": "+" if self.last else "-",
            "found": "found - 1" if self.last else f"{BLOCK} - found",
        }
        first = fill("static const $V ${S}_lane = {$numbers};\n", **given, numbers=numbers)
        body = fill(_BODY.replace("lane", "${S}_lane"), **given, **texts, **self.interface)
        slow = alone(s, self.smallest, self.last)
        return [HEAD, *vector_type(lanes, f32), folds(lanes, f32), slow, first, body]
