"""Tables of 256 bytes: each byte is the one that the table has for it.

AVX-512-VBMI looks up 64 bytes at once in two halves of the table, which its registers hold; elsewhere each is a load.
Threads split the bytes.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from typing import Self

import numpy as np

from irc.ir.dim import Dim
from irc.ir.types import DType, i8
from irc.kernels.core.base import Array, Kernel, Packed, Sizes
from irc.kernels.core.isa import C_NAMES, HEAD, Isa
from irc.kernels.core.problem import likely
from irc.kernels.core.registry import kernel
from irc.kernels.core.text import Part, fill, symbol
from irc.kernels.integer.problem import SETS, LookupProblem

BLOCK = 4096
"""Bytes of a task."""
WORTHWHILE = 32768
"""Bytes below which one thread does all."""

_TEXT = """
#ifdef __AVX512VBMI__
#include <immintrin.h>
#endif

/* Tasks: blocks of bytes. */
static void ${S}_part(void *given, int64_t begin, int64_t end) {
    const ${S}_args *g = given;
    const uint8_t *const x = (const uint8_t *)g->x, *const table = (const uint8_t *)g->table;
    uint8_t *const y = (uint8_t *)g->y;
    const int64_t last = end * $block < g->n ? end * $block : g->n;
    int64_t i = begin * $block;
#ifdef __AVX512VBMI__
    const __m512i t0 = _mm512_loadu_si512(table), t1 = _mm512_loadu_si512(table + 64);
    const __m512i t2 = _mm512_loadu_si512(table + 128), t3 = _mm512_loadu_si512(table + 192);
    for (; i < last; i += 64) {
        const __mmask64 part = last - i < 64 ? ((__mmask64)1 << (last - i)) - 1 : ~(__mmask64)0;
        const __m512i at = _mm512_maskz_loadu_epi8(part, x + i);
        const __m512i low = _mm512_permutex2var_epi8(t0, at, t1), high = _mm512_permutex2var_epi8(t2, at, t3);
        _mm512_mask_storeu_epi8(y + i, part, _mm512_mask_blend_epi8(_mm512_movepi8_mask(at), low, high));
    }
#endif
    for (; i + 8 <= last; i += 8) {
        uint8_t found[8];
        IRC_FULL_UNROLL
        for (int k = 0; k < 8; k++) found[k] = table[x[i + k]];
        __builtin_memcpy(y + i, found, 8);
    }
    for (; i < last; i++) y[i] = table[x[i]];
}

void $S($parameters) {
    const int64_t blocks = (g->n + $block - 1) / $block;
    if (!pool || g->n < $worthwhile) ${S}_part((void *)g, 0, blocks);
    else pool->parallel_for(pool->self, blocks, ${S}_part, (void *)g);
}
"""


@kernel
class LookupKernel(Kernel[LookupProblem]):
    """A generated lookup of bytes in a table."""

    isa: Isa
    given: DType
    found: DType

    problem = LookupProblem

    @classmethod
    def candidates(cls, problem: LookupProblem, isa: Isa) -> Iterator[Self]:
        if isa.name in SETS:
            yield cls(isa, problem.given, problem.dtype)

    def cycles(self, problem: LookupProblem) -> float:
        return float(likely(problem.n))

    @property
    def label(self) -> str:
        return "table"

    def arguments_for(self, problem: LookupProblem) -> dict[str, Dim]:
        return {"n": problem.n}

    def packed(self, problem: LookupProblem) -> Packed:
        """Describe the table, in the order of unsigned bytes, as bytes of no sign."""
        return Packed(("table",), i8, 256, lambda table: np.ascontiguousarray(table).view(np.int8))

    def compute(self, reads: Sequence[Array], writes: Sequence[Array], sizes: Mapping[str, int]) -> None:
        n = sizes["n"]
        writes[0][:n] = reads[1].view(self.found.numpy)[np.ascontiguousarray(reads[0][:n]).view(np.uint8)]

    @cached_property
    def symbol(self) -> str:
        return symbol("bytes_table", self.isa.name, self.given.name, self.found.name, "")

    @property
    def pointers(self) -> tuple[tuple[str, str], ...]:
        x, y = f"const {C_NAMES[self.given]} *", f"{C_NAMES[self.found]} *"
        return (("x", x), ("table", "const int8_t *"), ("y", y))

    @property
    def sizes(self) -> tuple[str, ...]:
        return ("n",)

    def flops(self, sizes: Sizes) -> Dim:
        return sizes["n"]

    @property
    def summary(self) -> str:
        return "Bytes of a table."

    def parts(self) -> list[Part]:
        return [HEAD, fill(_TEXT, S=self.symbol, block=BLOCK, worthwhile=WORTHWHILE, **self.interface)]
