"""Hardmax along the last axis: as many rows at a time as a vector has lanes.

The largest elements of the rows are found side by side, and then where they stand first; positions are floats, whose
smaller one is one instruction.  A NaN counts as the largest.

Threads split the rows.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from typing import Self

import numpy as np

from irc.ir.dim import Dim
from irc.ir.types import f32
from irc.kernels.core.base import Array, Kernel, Sizes
from irc.kernels.core.costs import LANES_FOLDED, LOADS
from irc.kernels.core.isa import HEAD, Isa, vector_name, vector_type
from irc.kernels.core.problem import likely
from irc.kernels.core.registry import kernel
from irc.kernels.core.text import Part, fill, symbol
from irc.kernels.softmax.problem import HardmaxProblem
from irc.kernels.softmax.rows import WORTHWHILE
from irc.kernels.vector.lanes import folded_together

LONGEST = 1 << 24
"""Positions up to which floats count exactly."""

_BODY = """
/* $L elements of a row of n from j on, minus infinity behind its end. */
IRC_INLINE $V ${S}_get(const float *x, int64_t j, int64_t n) {
    return n - j < $L ? ${V}_load_between(x + j, 0, n - j, ${V}_all(-INFINITY)) : ${V}_load(x + j);
}

IRC_INLINE $V ${S}_largest(const float *x, int64_t n) {
    $V acc = ${S}_get(x, 0, n);
    for (int64_t j = $L; j < n; j += $L) acc = ${V}_max(acc, ${S}_get(x, j, n));
    return acc;
}

/* Where each lane first has the largest element. */
IRC_INLINE $V ${S}_places(const float *x, int64_t n, float largest) {
    static const $V lane = {$lane};
    $V acc = ${V}_all(INFINITY);
    for (int64_t j = 0; j < n; j += $L) {
        const $V v = ${S}_get(x, j, n);
        const ${V}_mask here = (${V}_mask)(v == ${V}_all(largest)) | (${V}_mask)(v != v);
        acc = ${V}_at_most(acc, ${V}_select(here, lane + ${V}_all((float)j), ${V}_all(INFINITY)));
    }
    return acc;
}

static $V ${S}_fold_largest($V acc[$L]) {
$largest    return acc[0];
}

static $V ${S}_fold_places($V acc[$L]) {
$first    return acc[0];
}

/* `count` rows, at most $L. */
static void ${S}_rows(const float *x, float *y, int64_t n, int64_t count) {
    $V acc[$L];
    float found[$L];
    for (int p = 0; p < $L; p++) acc[p] = p < count ? ${S}_largest(x + p * n, n) : ($V){0};
    ${V}_store(found, ${S}_fold_largest(acc));
    for (int p = 0; p < $L; p++) acc[p] = p < count ? ${S}_places(x + p * n, n, found[p]) : ($V){0};
    ${V}_store(found, ${S}_fold_places(acc));
    int64_t j = 0;
    for (; j + $L <= count * n; j += $L) ${V}_store(y + j, ($V){0});
    for (; j < count * n; j++) y[j] = 0;
    for (int p = 0; p < count; p++) y[p * n + (int64_t)found[p]] = 1;
}

/* Tasks begin to end, of $L rows each. */
static void ${S}_part(void *given, int64_t begin, int64_t end) {
    const ${S}_args *g = given;
    for (; begin < end; begin++) {
        const int64_t row = begin * $L, left = g->outer - row;
        ${S}_rows(g->x + row * g->n, g->y + row * g->n, g->n, left < $L ? left : $L);
    }
}

void $S($parameters) {
    const int64_t tasks = (g->outer + $L - 1) / $L;
    if (g->n <= 0) return;
    if (!pool || tasks < 2 || (double)g->outer * (double)g->n < $worthwhile) ${S}_part((void *)g, 0, tasks);
    else pool->parallel_for(pool->self, tasks, ${S}_part, (void *)g);
}
"""


@kernel
class HardmaxKernel(Kernel[HardmaxProblem]):
    """A generated hardmax of contiguous rows."""

    isa: Isa

    problem = HardmaxProblem

    @property
    def label(self) -> str:
        return "rows"

    @property
    def pointers(self) -> tuple[tuple[str, str], ...]:
        return (("x", "const float *"), ("y", "float *"))

    @property
    def sizes(self) -> tuple[str, ...]:
        return ("outer", "n")

    @classmethod
    def candidates(cls, problem: HardmaxProblem, isa: Isa) -> Iterator[Self]:
        if problem.dtype == f32 and problem.n.at_most(LONGEST) is True:
            yield cls(isa)

    def cycles(self, problem: HardmaxProblem) -> float:
        vectors = -(-likely(problem.n) // self.isa.lanes(f32))
        return likely(problem.outer) * (4 * vectors / LOADS + 2 * LANES_FOLDED)

    def arguments_for(self, problem: HardmaxProblem) -> dict[str, Dim]:
        return {"outer": problem.outer, "n": problem.n}

    def compute(self, reads: Sequence[Array], writes: Sequence[Array], sizes: Mapping[str, int]) -> None:
        outer, n = sizes["outer"], sizes["n"]
        if not outer * n:
            return
        rows = writes[0][: outer * n].reshape(outer, n)
        rows[...] = 0
        rows[np.arange(outer), np.argmax(reads[0][: outer * n].reshape(outer, n), axis=1)] = 1

    def flops(self, sizes: Sizes) -> Dim:
        return 2 * sizes["outer"] * sizes["n"]

    @cached_property
    def symbol(self) -> str:
        return symbol("hardmax_rows", self.isa.name, "")

    @property
    def summary(self) -> str:
        return "Hardmax of rows."

    def parts(self) -> list[Part]:
        lanes = self.isa.lanes(f32)
        v = vector_name(lanes, f32)
        folds = {
            "largest": folded_together(lanes, f"{v}_max({{a}}, {{b}})"),
            "first": folded_together(lanes, f"{v}_at_most({{a}}, {{b}})"),
        }
        lane = ", ".join(map(str, range(lanes)))
        given: dict[str, object] = {"V": v, "L": lanes, "S": self.symbol, "lane": lane, "worthwhile": WORTHWHILE}
        return [HEAD, *vector_type(lanes, f32), fill(_BODY, **given, **folds, **self.interface)]
