"""Softmax of dequantized bytes along the last axis, quantized again: a row at a time, which stays in the first cache.

The largest byte of a row is found among bytes.  The exponentials of the distances from it, times the scale, go to a
workspace, and their sum into the factor that makes bytes of them.  What lies nearest to the middle of two bytes may
become the other one than that of a division.  Threads divide the rows.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from typing import Self

import numpy as np

from irc.ir.dim import Dim
from irc.ir.types import DType, f32, value_range
from irc.kernels.core.base import Array, Kernel, Packed, Sizes
from irc.kernels.core.isa import C_NAMES, HEAD, Isa, vector_name, vector_type
from irc.kernels.core.problem import likely
from irc.kernels.core.registry import kernel
from irc.kernels.core.text import Part, fill, symbol
from irc.kernels.core.workspace import DIVIDE
from irc.kernels.integer.problem import SETS
from irc.kernels.integer.vectors import MEMORY, PUT, rounding, saturate, widen
from irc.kernels.softmax.problem import ByteSoftmaxProblem
from irc.kernels.softmax.rows import EXP_CYCLES
from irc.kernels.vector.lanes import exp_below, folds

LONGEST = 8192
"""Bytes of a row whose exponentials stay in the caches."""
WORTHWHILE = 10_000
"""Bytes below which one thread does all."""

_TEXT = """
IRC_HELPER __m128i ${S}_sixteen(const $B *x) {
    return ${turn}_mm_loadu_si128((const __m128i *)x)$turned;
}

/* The largest of n bytes. */
IRC_INLINE float ${S}_largest(const $B *x, int64_t n) {
    uint8_t most = 0;
    if (n >= 16) {
        __m128i all = ${S}_sixteen(x + n - 16);
        for (int64_t j = 0; j + 16 < n; j += 16) all = _mm_max_epu8(all, ${S}_sixteen(x + j));
        all = _mm_max_epu8(all, _mm_srli_si128(all, 8));
        all = _mm_max_epu8(all, _mm_srli_si128(all, 4));
        all = _mm_max_epu8(all, _mm_srli_si128(all, 2));
        all = _mm_max_epu8(all, _mm_srli_si128(all, 1));
        most = (uint8_t)_mm_cvtsi128_si32(all);
    }
    for (int64_t j = 0; n < 16 && j < n; j++) most = (uint8_t)(x[j]$flip) > most ? (uint8_t)(x[j]$flip) : most;
    return ($B)(most$flip);
}

/* A row of n bytes; e: room for as many floats, and for those that make the vectors of bytes whole. */
static void ${S}_row(const ${S}_args *g, const $B *x, $Y *y, float *e) {
    const int64_t n = g->n, whole = n - n % $L, rest = n - whole;
    const $V largest = ${V}_all(${S}_largest(x, n)), scale = ${V}_all(g->terms[0]);
    const ${V}_mask lane = {$lane}, there = (${V}_mask)(lane < (int32_t)rest);
    $V sums[4] = {{0}};
    int64_t j = 0;
    for (; j + 4 * $L <= whole; j += 4 * $L) {
        IRC_FULL_UNROLL
        for (int v = 0; v < 4; v++) {
            const $V one = ${V}_exp_below((${V}_of_$given(x + j + v * $L) - largest) * scale);
            ${V}_store(e + j + v * $L, one);
            sums[v] += one;
        }
    }
    for (; j < whole; j += $L) {
        const $V one = ${V}_exp_below((${V}_of_$given(x + j) - largest) * scale);
        ${V}_store(e + j, one);
        sums[0] += one;
    }
    if (rest) {
        const $V some = ${V}_exp_below((${V}_of_${given}_part(x + j, rest) - largest) * scale);
        const $V last = ($V)((${V}_mask)some & there);
        ${V}_store(e + j, last);
        sums[1] += last;
        j += $L;
    }
    for (; j % (4 * $L); j += $L) ${V}_store(e + j, ($V){0});
    const $V factor = g->terms[1] / ${V}_sum_all((sums[0] + sums[1]) + (sums[2] + sums[3]));
    const __m${bits}i zero = ${mm}_set1_epi16((short)g->zero);
    for (j = 0; j < n; j += 4 * $L) {
        __m${bits}i near[4];
        EACH(v < 4) near[v] = irc_bytes_near_$bits((__m$bits)(${V}_load(e + j + v * $L) * factor));
        const __m${bits}i bytes = irc_bytes_${kind}_$bits(zero, near[0], near[1], near[2], near[3]);
        irc_bytes_put_$bits(y + j, bytes, n - j < 4 * $L ? n - j : 4 * $L);
    }
}

static void ${S}_part(void *given, char *own, int64_t begin, int64_t end) {
    const ${S}_args *const g = given;
    for (; begin < end; begin++) ${S}_row(g, g->x + begin * g->n, g->y + begin * g->n, (float *)(void *)own);
}

void $S($parameters) {
    if (g->n <= 0) return;
    if (!pool || g->rows < 2 || (double)g->rows * (double)g->n < $worthwhile)
        ${S}_part((void *)g, g->own, 0, g->rows);
    else irc_divide(pool, g->rows, ${S}_part, (void *)g, g->own, g->own_bytes, g->owners);
}
"""


@kernel
class ByteSoftmaxKernel(Kernel[ByteSoftmaxProblem]):
    """A generated softmax of rows of bytes."""

    isa: Isa
    given: DType
    found: DType

    problem = ByteSoftmaxProblem

    @classmethod
    def candidates(cls, problem: ByteSoftmaxProblem, isa: Isa) -> Iterator[Self]:
        if isa.name in SETS and problem.n.is_const and int(problem.n) <= LONGEST:
            yield cls(isa, problem.given, problem.dtype)

    def cycles(self, problem: ByteSoftmaxProblem) -> float:
        return likely(problem.rows) * -(-likely(problem.n) // self.isa.lanes(f32)) * EXP_CYCLES

    @property
    def label(self) -> str:
        return "rows of bytes"

    def arguments_for(self, problem: ByteSoftmaxProblem) -> dict[str, Dim]:
        return {"rows": problem.rows, "n": problem.n, "zero": Dim.of(problem.zero)}

    def own_bytes(self, sizes: Mapping[str, int]) -> int:
        return -(-min(sizes["n"], LONGEST) // self.isa.vector) * self.isa.vector * 4

    def packed(self, problem: ByteSoftmaxProblem) -> Packed:
        """Describe the scale of the bytes, and the inverse of that of the results."""
        return Packed(("terms",), f32, 2, np.ascontiguousarray)

    def compute(self, reads: Sequence[Array], writes: Sequence[Array], sizes: Mapping[str, int]) -> None:
        shape = sizes["rows"], sizes["n"]
        scale, inverse = (float(t) for t in reads[1][:2])
        x = reads[0][: shape[0] * shape[1]].reshape(shape).astype(np.float64)
        e = np.exp((x - x.max(axis=1, keepdims=True, initial=-np.inf)) * scale)
        near = np.rint(e / e.sum(axis=1, keepdims=True) * inverse) + sizes["zero"]
        writes[0][: shape[0] * shape[1]] = near.clip(*value_range(self.found)).reshape(-1)

    @cached_property
    def symbol(self) -> str:
        return symbol("softmax_bytes", self.isa.name, self.given.name, self.found.name, "")

    @property
    def pointers(self) -> tuple[tuple[str, str], ...]:
        x, y = f"const {C_NAMES[self.given]} *", f"{C_NAMES[self.found]} *"
        return (("x", x), ("terms", "const float *"), ("y", y))

    @property
    def sizes(self) -> tuple[str, ...]:
        return ("rows", "n", "zero")

    def flops(self, sizes: Sizes) -> Dim:
        return 4 * sizes["rows"] * sizes["n"]

    @property
    def summary(self) -> str:
        return "Softmax of rows of dequantized bytes, as bytes."

    def parts(self) -> list[Part]:
        bits, lanes, signed = self.isa.vector * 8, self.isa.lanes(f32), self.given.is_signed
        text = fill(
            _TEXT,
            S=self.symbol,
            V=vector_name(lanes, f32),
            L=lanes,
            B=C_NAMES[self.given],
            Y=C_NAMES[self.found],
            bits=bits,
            mm=f"_mm{bits}",
            given=self.given.name,
            kind=self.found.name,
            flip=" ^ 0x80" if signed else "",
            turn="_mm_xor_si128(" if signed else "",
            turned=", _mm_set1_epi8((char)0x80))" if signed else "",
            lane=", ".join(map(str, range(lanes))),
            worthwhile=WORTHWHILE,
            **self.interface,
        )
        vectors = [*vector_type(lanes, f32), folds(lanes, f32), exp_below(lanes, f32)]
        of_bytes = [MEMORY[bits], widen(self.given, bits), *PUT[bits], rounding(bits), saturate(self.found, bits)]
        return [HEAD, *vectors, *of_bytes, DIVIDE, text]
