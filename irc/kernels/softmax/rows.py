"""Softmax along the last axis: a row at a time, which stays in the first cache.

The largest element of a row, then the exponentials of the distances from it and their sum in one pass, then the
products with the inverse of the sum.  For the logarithm the exponentials are not stored.

Threads split the rows.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from typing import Self

from irc.ir.dim import Dim
from irc.ir.types import f32
from irc.kernels.core.base import Array, Kernel, Sizes
from irc.kernels.core.costs import LANES_FOLDED
from irc.kernels.core.isa import HEAD, Isa, vector_name, vector_type
from irc.kernels.core.problem import likely
from irc.kernels.core.registry import kernel
from irc.kernels.core.text import Part, fill, symbol
from irc.kernels.softmax.problem import SoftmaxProblem, softmax
from irc.kernels.vector.lanes import exp_below, exp_up_to_0, folds

WORTHWHILE = 10_000
"""Elements below which one thread does all."""
EXP_CYCLES = 14.0
"""Cycles of the exponentials of a vector."""

_BODY = """
/* A row of n elements. */
static void ${S}_row(const float *x, float *y, int64_t n) {
    const int64_t whole = n - n % $L, wide = n - n % (4 * $L), rest = n - whole;
    const ${V}_mask lane = {$lane}, last = (${V}_mask)(lane < (int32_t)rest);
    int64_t j = 0;
    $V m0 = ${V}_all(-INFINITY), m1 = m0, m2 = m0, m3 = m0;
    for (; j < wide; j += 4 * $L) {
        m0 = ${V}_at_least(m0, ${V}_load(x + j)), m1 = ${V}_at_least(m1, ${V}_load(x + j + $L));
        m2 = ${V}_at_least(m2, ${V}_load(x + j + 2 * $L)), m3 = ${V}_at_least(m3, ${V}_load(x + j + 3 * $L));
    }
    for (; j < whole; j += $L) m0 = ${V}_at_least(m0, ${V}_load(x + j));
    const $V end = rest ? ${V}_load_part(x + whole, rest) : m0;
    m0 = ${V}_at_least(m0, ${V}_select(last, end, m0));
    const $V m = ${V}_max_all(${V}_at_least(${V}_at_least(m0, m1), ${V}_at_least(m2, m3)));
    $V s0 = {0}, s1 = s0, s2 = s0, s3 = s0;
    for (j = 0; j < wide; j += 4 * $L) {
        const $V e0 = ${exp}(${V}_load(x + j) - m), e1 = ${exp}(${V}_load(x + j + $L) - m);
        const $V e2 = ${exp}(${V}_load(x + j + 2 * $L) - m);
        const $V e3 = ${exp}(${V}_load(x + j + 3 * $L) - m);
        s0 += e0, s1 += e1, s2 += e2, s3 += e3;$store_wide
    }
    for (; j < whole; j += $L) {
        const $V e = ${exp}(${V}_load(x + j) - m);
        s0 += e;$store
    }
    const $V e = ($V)((${V}_mask)${exp}(end - m) & last);
    const $V sum = ${V}_sum_all((s0 + s1) + (s2 + s3) + e);$finish
}

static void ${S}_part(void *given, int64_t begin, int64_t end) {
    const ${S}_args *g = given;
    for (; begin < end; begin++) ${S}_row(g->x + begin * g->n, g->y + begin * g->n, g->n);
}

void $S($parameters) {
    if (g->n <= 0) return;
    if (!pool || g->outer < 2 || (double)g->outer * (double)g->n < $worthwhile) ${S}_part((void *)g, 0, g->outer);
    else pool->parallel_for(pool->self, g->outer, ${S}_part, (void *)g);
}
"""
_STORE_WIDE = """
        ${V}_store(y + j, e0), ${V}_store(y + j + $L, e1);
        ${V}_store(y + j + 2 * $L, e2), ${V}_store(y + j + 3 * $L, e3);"""
_STORE = """
        ${V}_store(y + j, e);"""
_FINISH = """
    const $V q = 1.0f / sum;
    for (j = 0; j < whole; j += $L) ${V}_store(y + j, ${V}_load(y + j) * q);
    if (rest) ${V}_store_part(y + whole, e * q, rest);"""
_FINISH_LOG = """
    const $V l = ${V}_all(logf(sum[0]));
    for (j = 0; j < whole; j += $L) ${V}_store(y + j, ${V}_load(x + j) - m - l);
    if (rest) ${V}_store_part(y + whole, end - m - l, rest);"""


@kernel
class SoftmaxRowsKernel(Kernel[SoftmaxProblem]):
    """A generated softmax of contiguous rows, or its logarithm."""

    isa: Isa
    log: bool

    problem = SoftmaxProblem

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
    def candidates(cls, problem: SoftmaxProblem, isa: Isa) -> Iterator[Self]:
        if problem.inner == 1 and problem.dtype == f32:
            yield cls(isa, problem.log)

    def cycles(self, problem: SoftmaxProblem) -> float:
        lanes = self.isa.lanes(f32)
        folded = 2 * LANES_FOLDED * (lanes.bit_length() - 1)
        return likely(problem.outer) * (-(-likely(problem.n) // lanes) * EXP_CYCLES + folded)

    def arguments_for(self, problem: SoftmaxProblem) -> dict[str, Dim]:
        return {"outer": problem.outer, "n": problem.n}

    def compute(self, reads: Sequence[Array], writes: Sequence[Array], sizes: Mapping[str, int]) -> None:
        softmax(self.log, reads, writes, sizes)

    def flops(self, sizes: Sizes) -> Dim:
        return 4 * sizes["outer"] * sizes["n"]

    @cached_property
    def symbol(self) -> str:
        return symbol("log_softmax_rows" if self.log else "softmax_rows", self.isa.name, "")

    @property
    def summary(self) -> str:
        return f"{'The logarithm of s' if self.log else 'S'}oftmax of rows."

    def parts(self) -> list[Part]:
        lanes = self.isa.lanes(f32)
        v, exp = vector_name(lanes, f32), exp_below if self.log else exp_up_to_0  # a logarithm needs only their sum
        given: dict[str, object] = {"V": v, "L": lanes, "exp": f"{v}_exp_below" if self.log else f"{v}_exp_scaled"}
        texts = {
            "store_wide": "" if self.log else fill(_STORE_WIDE, **given),
            "store": "" if self.log else fill(_STORE, **given),
            "finish": fill(_FINISH_LOG if self.log else _FINISH, **given),
        }
        lane = ", ".join(map(str, range(lanes)))
        body = fill(_BODY, S=self.symbol, lane=lane, worthwhile=WORTHWHILE, **given, **texts, **self.interface)
        return [HEAD, *vector_type(lanes, f32), folds(lanes, f32), exp(lanes, f32), body]
