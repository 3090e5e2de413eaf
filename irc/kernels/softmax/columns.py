"""Softmax along an axis that is not the last: some columns at a time, side by side in registers.

The largest elements, then the exponentials of the distances from them and their sums in one pass, then the products
with the inverses of the sums.  For the logarithm the exponentials are not stored.

Threads split the blocks of columns.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from typing import Self

from irc.ir.dim import Dim
from irc.ir.types import f32
from irc.kernels.core.base import Array, Kernel, Sizes
from irc.kernels.core.isa import HEAD, Isa, vector_name, vector_type
from irc.kernels.core.problem import likely
from irc.kernels.core.registry import kernel
from irc.kernels.core.text import Part, fill, symbol
from irc.kernels.softmax.problem import SoftmaxProblem, softmax
from irc.kernels.softmax.rows import EXP_CYCLES, WORTHWHILE
from irc.kernels.vector.lanes import exp_up_to_0
from irc.kernels.vector.vecmath import definitions

VECTORS = 4
"""Vectors of columns in a block."""

_BODY = """
IRC_INLINE $V ${S}_get(const float *p, int64_t count) {
    return count < $L ? ${V}_load_part(p, count) : ${V}_load(p);
}

IRC_INLINE void ${S}_put(float *p, $V v, int64_t count) {
    if (count < $L) ${V}_store_part(p, v, count);
    else ${V}_store(p, v);
}

/* $most vectors of columns, or one of `count` columns. */
IRC_INLINE void ${S}_columns(const int W, const float *x, float *y, int64_t n, int64_t inner, int64_t count) {
    $V m[$most], s[$most];
    EACH(w < W) m[w] = ${V}_all(-INFINITY), s[w] = ($V){0};
    for (int64_t i = 0; i < n; i++) {
        EACH(w < W) m[w] = ${V}_at_least(m[w], ${S}_get(x + i * inner + w * $L, count));
    }
    for (int64_t i = 0; i < n; i++) {
        IRC_FULL_UNROLL
        for (int w = 0; w < W; w++) {
            const $V e = ${V}_$exp(${S}_get(x + i * inner + w * $L, count) - m[w]);
            s[w] += e;$store
        }
    }
    EACH(w < W) s[w] = $inverse;
    for (int64_t i = 0; i < n; i++) {
        IRC_FULL_UNROLL
        for (int w = 0; w < W; w++) {
            const int64_t at = i * inner + w * $L;
            ${S}_put(y + at, $finish, count);
        }
    }
}

static void ${S}_block(const float *x, float *y, int64_t n, int64_t inner) {
    ${S}_columns($most, x, y, n, inner, $L);
}

static void ${S}_vector(const float *x, float *y, int64_t n, int64_t inner) { ${S}_columns(1, x, y, n, inner, $L); }

static void ${S}_edge(const float *x, float *y, int64_t n, int64_t inner, int64_t count) {
    ${S}_columns(1, x, y, n, inner, count);
}

/* Tasks begin to end: outer iterations, then blocks of columns. */
static void ${S}_part(void *given, int64_t begin, int64_t end) {
    const ${S}_args *g = given;
    const int64_t blocks = (g->inner + $block - 1) / $block;
    for (; begin < end; begin++) {
        int64_t at = begin % blocks * $block;
        const int64_t start = begin / blocks * g->n * g->inner, stop = at + $block;
        const float *x = g->x + start;
        float *y = g->y + start;
        if (stop <= g->inner) {
            ${S}_block(x + at, y + at, g->n, g->inner);
            continue;
        }
        for (; at + $L <= g->inner; at += $L) ${S}_vector(x + at, y + at, g->n, g->inner);
        if (at < g->inner) ${S}_edge(x + at, y + at, g->n, g->inner, g->inner - at);
    }
}

void $S($parameters) {
    const int64_t tasks = g->outer * ((g->inner + $block - 1) / $block);
    if (g->n <= 0) return;
    const double work = (double)g->outer * (double)g->n * (double)g->inner;
    if (!pool || tasks < 2 || work < $worthwhile) ${S}_part((void *)g, 0, tasks);
    else pool->parallel_for(pool->self, tasks, ${S}_part, (void *)g);
}
"""
_STORE = """
            ${S}_put(y + i * inner + w * $L, e, count);"""


@kernel
class SoftmaxColumnsKernel(Kernel[SoftmaxProblem]):
    """A generated softmax along columns, or its logarithm."""

    isa: Isa
    log: bool

    problem = SoftmaxProblem

    @property
    def label(self) -> str:
        return "columns"

    @property
    def pointers(self) -> tuple[tuple[str, str], ...]:
        return (("x", "const float *"), ("y", "float *"))

    @property
    def sizes(self) -> tuple[str, ...]:
        return ("outer", "n", "inner")

    @classmethod
    def candidates(cls, problem: SoftmaxProblem, isa: Isa) -> Iterator[Self]:
        if problem.inner != 1 and problem.dtype == f32:
            yield cls(isa, problem.log)

    def cycles(self, problem: SoftmaxProblem) -> float:
        vectors = -(-likely(problem.inner) // self.isa.lanes(f32))
        return likely(problem.outer) * likely(problem.n) * vectors * EXP_CYCLES

    def arguments_for(self, problem: SoftmaxProblem) -> dict[str, Dim]:
        return {"outer": problem.outer, "n": problem.n, "inner": problem.inner}

    def compute(self, reads: Sequence[Array], writes: Sequence[Array], sizes: Mapping[str, int]) -> None:
        softmax(self.log, reads, writes, sizes)

    def flops(self, sizes: Sizes) -> Dim:
        return 4 * sizes["outer"] * sizes["n"] * sizes["inner"]

    @cached_property
    def symbol(self) -> str:
        return symbol("log_softmax_columns" if self.log else "softmax_columns", self.isa.name, "")

    @property
    def summary(self) -> str:
        return f"{'The logarithm of s' if self.log else 'S'}oftmax of columns."

    def parts(self) -> list[Part]:
        lanes = self.isa.lanes(f32)
        v, s = vector_name(lanes, f32), self.symbol
        given: dict[str, object] = {"V": v, "L": lanes, "S": s}
        texts = {
            "store": "" if self.log else fill(_STORE, **given),
            "exp": "exp_up_to_0" if self.log else "exp_scaled",
            "inverse": f"{v}_log(s[w])" if self.log else "1.0f / s[w]",
            "finish": f"{s}_get(x + at, count) - m[w] - s[w]" if self.log else f"{s}_get(y + at, count) * s[w]",
        }
        sizes = {"most": VECTORS, "block": VECTORS * lanes, "worthwhile": WORTHWHILE}
        body = fill(_BODY, **given, **texts, **sizes, **self.interface)
        return [HEAD, *vector_type(lanes, f32), exp_up_to_0(lanes, f32), *definitions(["log"], lanes, f32), body]
