"""Sums of dequantized bytes that become bytes again: residual connections of quantized networks.

Four vectors of floats make a vector of bytes; scales, zero points and bounds are numbers of the call, so that all sums
of a model are one function.  The last bytes go through memory of their own.  Threads split the bytes.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from typing import Self

import numpy as np

from irc.expr import Expr
from irc.ir.dim import Dim
from irc.ir.types import DType, f32, value_range
from irc.kernels.core.base import Array, Kernel, Packed, Sizes
from irc.kernels.core.isa import C_NAMES, HEAD, Isa
from irc.kernels.core.problem import likely
from irc.kernels.core.registry import kernel
from irc.kernels.core.text import Part, fill, symbol
from irc.kernels.integer.problem import SETS, SumProblem
from irc.kernels.integer.vectors import MEMORY, PUT, rounding, saturate

BLOCK = 4096
"""Bytes of a task."""
WORTHWHILE = 65536
"""Bytes below which one thread does all."""

_TEXT = """
/* The sums of a vector of bytes of each operand. */
IRC_INLINE __m${bits}i ${S}_sums(const ${S}_args *g, __m${bits}i zero$operands) {
    const float *const t = (const float *)g->terms;
    const __m$bits least = ${mm}_set1_ps(t[2 * $count]), most = ${mm}_set1_ps(t[2 * $count + 1]);
    __m${bits}i y[4];
    IRC_FULL_UNROLL
    for (int v = 0; v < 4; v++) {
        __m$bits sum;
$terms        sum = ${mm}_min_ps(${mm}_max_ps(sum, least), most);
        y[v] = irc_bytes_near_$bits(sum);
    }
    return irc_bytes_${kind}_$bits(zero, y[0], y[1], y[2], y[3]);
}

/* Tasks: blocks of bytes. */
static void ${S}_part(void *given, int64_t begin, int64_t end) {
    const ${S}_args *const g = given;
    const int64_t last = end * $block < g->n ? end * $block : g->n;
    const __m${bits}i zero = ${mm}_set1_epi16((short)g->zero);
    int64_t i = begin * $block;
    for (; i + $bytes <= last; i += $bytes) irc_bytes_store_$bits(g->y + i, ${S}_sums(g, zero$here));
    if (i == last) return;
    uint8_t rest[$count][$bytes] = {{0}};
$copies    irc_bytes_put_$bits(g->y + i, ${S}_sums(g, zero$there), last - i);
}

void $S($parameters) {
    const int64_t blocks = (g->n + $block - 1) / $block;
    if (!pool || g->n < $worthwhile) ${S}_part((void *)g, 0, blocks);
    else pool->parallel_for(pool->self, blocks, ${S}_part, (void *)g);
}
"""

_TERM = """\
        const __m$bits x$k = ${mm}_cvtepi32_ps(${mm}_cvtep${sign}8_epi32($load));
        sum = ${before}${mm}_mul_ps(${mm}_sub_ps(x$k, ${mm}_set1_ps(t[2 * $k + 1])), ${mm}_set1_ps(t[2 * $k]))$after;
"""


@kernel
class SumKernel(Kernel[SumProblem]):
    """A generated sum of bytes."""

    isa: Isa
    given: tuple[DType, ...]
    found: DType

    problem = SumProblem

    @classmethod
    def candidates(cls, problem: SumProblem, isa: Isa) -> Iterator[Self]:
        if isa.name in SETS:
            yield cls(isa, problem.given, problem.dtype)

    def cycles(self, problem: SumProblem) -> float:
        return float(likely(problem.n)) * len(self.given) / 8

    @property
    def label(self) -> str:
        return "sums"

    def arguments_for(self, problem: SumProblem) -> dict[str, Dim]:
        return {"n": problem.n, "zero": Dim.of(problem.zero)}

    def packed(self, problem: SumProblem) -> Packed:
        """Describe the numbers as they are."""
        return Packed(("terms",), f32, 2 * len(self.given) + 2, np.ascontiguousarray)

    def overwrites(self, sizes: Mapping[str, Expr]) -> frozenset[int]:
        return frozenset({0, *range(2, len(self.given) + 1)})

    def compute(self, reads: Sequence[Array], writes: Sequence[Array], sizes: Mapping[str, int]) -> None:
        n, numbers = sizes["n"], np.asarray(reads[1], np.float32)
        sums = np.zeros(n, np.float32)
        for k, x in enumerate([reads[0], *reads[2:]]):
            sums += (x[:n].astype(np.float32) - numbers[2 * k + 1]) * numbers[2 * k]
        count = 2 * len(self.given)
        rounded = np.rint(sums.clip(numbers[count], numbers[count + 1])) + sizes["zero"]
        writes[0][:n] = rounded.clip(*value_range(self.found))

    @cached_property
    def symbol(self) -> str:
        return symbol("bytes_sum", self.isa.name, *(x.name for x in self.given), self.found.name, "")

    @property
    def pointers(self) -> tuple[tuple[str, str], ...]:
        first, *others = [(f"x{k}", f"const {C_NAMES[x]} *") for k, x in enumerate(self.given)]
        return (first, ("terms", "const float *"), *others, ("y", f"{C_NAMES[self.found]} *"))

    @property
    def sizes(self) -> tuple[str, ...]:
        return ("n", "zero")

    def flops(self, sizes: Sizes) -> Dim:
        return sizes["n"] * (3 * len(self.given))

    @property
    def summary(self) -> str:
        return f"Bytes nearest to sums of {len(self.given)} dequantized bytes."

    def parts(self) -> list[Part]:
        bits, count = self.isa.vector * 8, len(self.given)
        lanes, numbers = self.isa.vector // 4, range(count)
        load = f"_mm_loadu_si128((const __m128i *)(from$k + v * {lanes}))"
        if bits == 256:
            load = load.replace("loadu_si128", "loadl_epi64")
        terms = [
            fill(
                _TERM,
                bits=bits,
                mm=f"_mm{bits}",
                k=k,
                sign="i" if x.is_signed else "u",
                load=fill(load, k=k),
                before=f"_mm{bits}_add_ps(sum, " if k else "",
                after=")" if k else "",
            )
            for k, x in enumerate(self.given)
        ]
        text = fill(
            _TEXT,
            S=self.symbol,
            bits=bits,
            mm=f"_mm{bits}",
            kind=self.found.name,
            count=count,
            bytes=self.isa.vector,
            block=BLOCK,
            worthwhile=WORTHWHILE,
            terms="".join(terms),
            operands="".join(f", const char *from{k}" for k in numbers),
            here="".join(f", (const char *)g->x{k} + i" for k in numbers),
            there="".join(f", (const char *)rest[{k}]" for k in numbers),
            copies="".join(f"    __builtin_memcpy(rest[{k}], g->x{k} + i, (size_t)(last - i));\n" for k in numbers),
            **self.interface,
        )
        return [HEAD, MEMORY[bits], *PUT[bits], rounding(bits), saturate(self.found, bits), text]
