"""Matrix product of bytes, C[m, n] = (A[m, k] - zero) · B[k, n] in 32-bit integers, with a constant B.

B is packed in panels of columns, a few neighbours in k of a column beside each other: four bytes where the processor
multiplies fours of bytes (VNNI), else two words of 16 bits, whose products `madd` adds.  Neither saturates, so sums are
exact modulo 2^32, as the operator's are.  Fours are products of unsigned bytes of A and signed ones of B: a signed A
gets its highest bit turned, which is 128 more.  What the zero point adds to a column is the zero point times the sum of
the column of B, which stands in front of its panel.

A is copied once: each row to whole fours, or pairs of words.  Threads split the copy, then tiles of rows and panels.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Literal, Self

import numpy as np

from irc.ir.dim import Dim
from irc.ir.types import i8
from irc.kernels.core.base import Array, Kernel, Packed, Sizes
from irc.kernels.core.isa import HEAD, Isa
from irc.kernels.core.problem import Problem, likely
from irc.kernels.core.registry import kernel
from irc.kernels.core.text import Part, Piece, fill, symbol

Unit = Literal["fours", "pairs"]
"""What one instruction adds up: products of four bytes, or of two words."""
TILES = {("avx512", "fours"): ((6, 4), (8, 2), (8, 1)), ("avx512", "pairs"): ((6, 4), (8, 2), (8, 1))}
NARROW_TILES = ((4, 2), (6, 1))
"""Rows and vectors of accumulators, by instruction set; those of 256-bit vectors."""
SETS = ("avx512", "avx2")
"""Instruction sets that have this kernel."""
STEP = {"fours": 4, "pairs": 2}
PANELS, ROWS = 4, 8
"""Panels and tiles of rows in a task."""
WORTHWHILE = 400_000
"""Products below which one thread does all."""


@dataclass(frozen=True)
class IntegerGemmProblem(Problem):
    """C[m, n] = Σ (A[m, k] - zero) · B[k, n] in i32 of rows without gaps; B is constant and fits into 8 bits.

    signed: whether A's bytes are.  zeroed: whether there is a zero point, an i32 that the call reads.
    """

    signed: bool
    zeroed: bool
    m: Dim
    n: int
    k: int

    @property
    def work(self) -> str | None:
        return f"integer product {self.m}x{self.n}x{self.k}" if self.m.is_const else None


_TEXT = """
typedef struct { const ${S}_args *g; $E *a; int64_t step; } ${S}_work;

/* Rows of A as whole groups of $step. */
static void ${S}_rows(void *given, int64_t begin, int64_t end) {
    const ${S}_work *w = given;
    const int64_t k = w->g->k;
    for (int64_t i = begin; i < end; i++) {
        const $B *restrict from = w->g->a + i * k;
        $E *restrict to = w->a + i * w->step;
        for (int64_t j = 0; j < k; j++) to[j] = ($E)$widened;
        for (int64_t j = k; j < w->step; j++) to[j] = 0;
    }
}

/* R rows of a panel; `columns` of it are in C. */
IRC_INLINE void ${S}_tile(const int R, const $E *restrict a, int64_t step, const int8_t *restrict panel, int64_t groups,
                          int32_t zero, int32_t *c, int64_t c_row, int64_t columns) {
    $V acc[$MR][$NV], b[$NV];
    const int8_t *p = panel + 4 * $NR;
    IRC_FULL_UNROLL
    for (int i = 0; i < R; i++) {
        IRC_FULL_UNROLL
        for (int v = 0; v < $NV; v++) acc[i][v] = $zeros();
    }
    for (; groups > 0; groups--, a += $step, p += 4 * $NR) {
        IRC_FULL_UNROLL
        for (int v = 0; v < $NV; v++) b[v] = $load(p + v * $bytes);
        IRC_FULL_UNROLL
        for (int i = 0; i < R; i++) {
            int32_t group;
            __builtin_memcpy(&group, a + i * step, 4);
            const $V x = $all(group);
            IRC_FULL_UNROLL
            for (int v = 0; v < $NV; v++) $dot;
        }
    }
    IRC_FULL_UNROLL
    for (int v = 0; v < $NV; v++) {
        const $V shift = $times($load(panel + v * $bytes), $all(zero));
        IRC_FULL_UNROLL
        for (int i = 0; i < R; i++) acc[i][v] = $minus(acc[i][v], shift);
    }
    if (columns >= $NR) {
        IRC_FULL_UNROLL
        for (int i = 0; i < R; i++) {
            IRC_FULL_UNROLL
            for (int v = 0; v < $NV; v++) $store(c + i * c_row + v * $lanes, acc[i][v]);
        }
        return;
    }
    int32_t rows[$MR][$NR];
    IRC_FULL_UNROLL
    for (int i = 0; i < R; i++) {
        IRC_FULL_UNROLL
        for (int v = 0; v < $NV; v++) $store(rows[i] + v * $lanes, acc[i][v]);
    }
    for (int i = 0; i < R; i++) __builtin_memcpy(c + i * c_row, rows[i], (size_t)columns * 4);
}
$instances
/* Tasks: some panels of some tiles of rows. */
static void ${S}_part(void *given, int64_t begin, int64_t end) {
    const ${S}_work *w = given;
    const ${S}_args *g = w->g;
    const int64_t groups = (g->k + $step - 1) / $step, size = 4 * $NR * (1 + groups);
    const int64_t tiles = (g->m + $MR - 1) / $MR, panels = (g->n + $NR - 1) / $NR, across = (panels + $P - 1) / $P;
    const int64_t low = g->m / tiles, extra = g->m % tiles;
    const int32_t zero = $zero;
    for (; begin < end; begin++) {
        const int64_t first = begin / across * $Q, last = first + $Q < tiles ? first + $Q : tiles;
        const int64_t left = begin % across * $P, right = left + $P < panels ? left + $P : panels;
        for (int64_t j = left; j < right; j++) {
            const int8_t *panel = g->b + j * size;
            for (int64_t t = first; t < last; t++) {
                const int64_t row = t * low + (t < extra ? t : extra), rows = low + (t < extra);
                const $E *a = w->a + row * w->step;
                int32_t *c = g->c + row * g->n + j * $NR;
                switch (rows) {
$cases                }
            }
        }
    }
}

void $S($parameters) {
    if (g->m <= 0) return;
    const int64_t groups = (g->k + $step - 1) / $step, tiles = (g->m + $MR - 1) / $MR;
    const int64_t panels = (g->n + $NR - 1) / $NR, tasks = (tiles + $Q - 1) / $Q * ((panels + $P - 1) / $P);
    ${S}_work w = {g, ($E *)g->scratch, groups * $step};
    if (!pool || (double)g->m * (double)g->n * (double)g->k < $worthwhile) {
        ${S}_rows(&w, 0, g->m);
        ${S}_part(&w, 0, tasks);
    } else {
        pool->parallel_for(pool->self, g->m, ${S}_rows, &w);
        pool->parallel_for(pool->self, tasks, ${S}_part, &w);
    }
}
"""

_INSTANCE = """
static void ${S}_$R(const $E *a, int64_t step, const int8_t *panel, int64_t groups, int32_t zero, int32_t *c,
                    int64_t c_row, int64_t columns) {
    ${S}_tile($R, a, step, panel, groups, zero, c, c_row, columns);
}
"""

_CASE = """\
                case $R: ${S}_$R(a, w->step, panel, groups, zero, c, g->n, g->n - j * $NR); break;
"""


@kernel
class IntegerGemmKernel(Kernel[IntegerGemmProblem]):
    """A generated product of bytes."""

    isa: Isa
    unit: Unit
    rows: int
    vectors: int
    signed: bool
    zeroed: bool

    problem = IntegerGemmProblem

    @classmethod
    def candidates(cls, problem: IntegerGemmProblem, isa: Isa) -> Iterator[Self]:
        if isa.name not in SETS:
            return
        unit: Unit = "fours" if isa.fours else "pairs"
        for rows, vectors in TILES.get((isa.name, unit), NARROW_TILES):
            yield cls(isa, unit, rows, vectors, problem.signed, problem.zeroed)

    def cycles(self, problem: IntegerGemmProblem) -> float:
        """Estimate two products of vectors a cycle, or as many loads, and what a tile of sums costs besides."""
        m, columns = likely(problem.m), self.columns
        tiles, panels, groups = -(-m // self.rows), -(-problem.n // columns), -(-problem.k // STEP[self.unit])
        rows = m / tiles
        each = max(rows * self.vectors * (1 if self.unit == "fours" else 2), rows + self.vectors) / 2
        latency = 4 if rows * self.vectors < 8 else 0
        return tiles * panels * (groups * max(each, latency) + 2 * rows * self.vectors + 20)

    @property
    def columns(self) -> int:
        return self.vectors * self.isa.vector // 4

    @property
    def label(self) -> str:
        return f"{self.rows}x{self.columns} {self.unit}"

    def arguments_for(self, problem: IntegerGemmProblem) -> dict[str, Dim]:
        return {"m": problem.m, "n": Dim.of(problem.n), "k": Dim.of(problem.k)}

    def scratch(self, problem: IntegerGemmProblem) -> Dim:
        return problem.m * (-(-problem.k // STEP[self.unit]) * 4)

    def packed(self, problem: IntegerGemmProblem) -> Packed:
        n, k, columns, step = problem.n, problem.k, self.columns, STEP[self.unit]
        panels, groups = -(-n // columns), -(-k // step)

        def pack(b: Array) -> Array:
            whole = np.zeros((groups * step, panels * columns), np.int16 if step == 2 else np.int8)
            whole[:k, :n] = b
            grouped = whole.reshape(groups, step, panels, columns).transpose(2, 0, 3, 1)
            sums = whole.sum(0, dtype=np.int32).reshape(panels, 1, columns)
            rows = np.ascontiguousarray(grouped).view(np.int8).reshape(panels, groups, columns * 4)
            return np.concatenate([sums.view(np.int8), rows], 1).reshape(-1)

        return Packed(("integer", columns, step), i8, panels * columns * 4 * (1 + groups), pack)

    def compute(self, reads: Sequence[Array], writes: Sequence[Array], sizes: Mapping[str, int]) -> None:
        m, n, k = sizes["m"], sizes["n"], sizes["k"]
        columns, step = self.columns, STEP[self.unit]
        panels, groups = -(-n // columns), -(-k // step)
        packed = reads[1][: panels * columns * 4 * (1 + groups)].reshape(panels, 1 + groups, columns * 4)[:, 1:]
        words = np.ascontiguousarray(packed).view(np.int16 if step == 2 else np.int8)
        b = words.reshape(panels, groups, columns, step).transpose(1, 3, 0, 2).reshape(groups * step, -1)[:k, :n]
        a = reads[0][: m * k].reshape(m, k).astype(np.int64)
        a = a - int(reads[2][0]) if self.zeroed else a
        writes[0][: m * n] = (a @ b.astype(np.int64)).astype(np.int32).reshape(-1)

    # ---------------------------------------------------------------------------------- C
    @cached_property
    def symbol(self) -> str:
        sign, zero = "signed" if self.signed else "unsigned", "zero" if self.zeroed else "plain"
        return symbol("integer_gemm", self.isa.name, self.unit, f"{self.rows}x{self.columns}", sign, zero, "")

    @property
    def pointers(self) -> tuple[tuple[str, str], ...]:
        read = (("a", "const int8_t *" if self.signed else "const uint8_t *"), ("b", "const int8_t *"))
        zero = (("zero", "const int32_t *"),) if self.zeroed else ()
        return (*read, *zero, ("c", "int32_t *"), ("scratch", "uint8_t *"))

    @property
    def sizes(self) -> tuple[str, ...]:
        return ("m", "n", "k")

    def flops(self, sizes: Sizes) -> Dim:
        return sizes["m"] * sizes["n"] * sizes["k"] * 2

    @property
    def features(self) -> frozenset[str]:
        if self.unit == "pairs":
            return frozenset()
        return frozenset(("avx512_vnni",) if self.isa.vector == 64 else ("avx_vnni",))

    @property
    def summary(self) -> str:
        return f"C[m, n] = A[m, k] . B[k, n] of bytes in i32, tiles of {self.rows} x {self.columns}, {self.unit} in k"

    def parts(self) -> list[Part]:
        bits, fours = self.isa.vector * 8, self.unit == "fours"
        prefix = f"_mm{'' if bits == 128 else bits}"
        memory = f"__m{bits}i"
        names = {
            "S": self.symbol,
            "B": "int8_t" if self.signed else "uint8_t",
            "E": "uint8_t" if fours else "int16_t",
            "widened": "(from[j] ^ 0x80)" if fours and self.signed else "from[j]",
            "V": memory,
            "MR": self.rows,
            "NV": self.vectors,
            "NR": self.columns,
            "lanes": self.isa.vector // 4,
            "bytes": self.isa.vector,
            "step": STEP[self.unit],
            "P": PANELS,
            "Q": ROWS,
            "worthwhile": f"{WORTHWHILE:.0f}.0",
            "zeros": f"{prefix}_setzero_si{bits}",
            "all": f"{prefix}_set1_epi32",
            "load": f"irc_bytes_load_{bits}",
            "store": f"irc_bytes_store_{bits}",
            "times": f"{prefix}_mullo_epi32",
            "minus": f"{prefix}_sub_epi32",
            "zero": self._zero(fours),
            **self.interface,
        }
        if fours:
            names["dot"] = f"irc_fours_{bits}(&acc[i][v], x, b[v])"
        else:
            names["dot"] = f"acc[i][v] = {prefix}_add_epi32(acc[i][v], {prefix}_madd_epi16(x, b[v]))"
        heights = range(1, self.rows + 1)
        names["instances"] = "".join(fill(_INSTANCE, R=r, **names) for r in heights)
        names["cases"] = "".join(fill(_CASE, R=r, **names) for r in heights)
        return [HEAD, _MEMORY[bits], *([_FOURS[bits]] if fours else []), fill(_TEXT, **names)]

    def _zero(self, fours: bool) -> str:
        given = "*g->zero" if self.zeroed else "0"
        return f"{given} + 128" if fours and self.signed else given


def _memory(bits: int) -> Piece:
    code = f"""#include <immintrin.h>
IRC_HELPER __m{bits}i irc_bytes_load_{bits}(const void *p) {{ return _mm{bits}_loadu_si{bits}((const __m{bits}i *)p); }}
IRC_HELPER void irc_bytes_store_{bits}(void *p, __m{bits}i x) {{ _mm{bits}_storeu_si{bits}((__m{bits}i *)p, x); }}
"""
    return Piece(f"IRC_BYTES_{bits}", code)


def _fours(bits: int) -> Piece:
    prefix = "" if bits == 512 else "%{vex%} "
    code = f"""/* Adds products of unsigned bytes of x and signed ones of y, in fours; the intrinsic copies sums. */
IRC_INLINE void irc_fours_{bits}(__m{bits}i *sums, __m{bits}i x, __m{bits}i y) {{
    __asm__("{prefix}vpdpbusd %2, %1, %0" : "+v"(*sums) : "v"(x), "v"(y));
}}
"""
    return Piece(f"IRC_FOURS_{bits}", code)


_MEMORY = {bits: _memory(bits) for bits in (256, 512)}
_FOURS = {bits: _fours(bits) for bits in (256, 512)}
