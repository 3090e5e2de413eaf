"""Matrix product with very few columns, C[m, n] = epilogue(A[m, k] · B[k, n]): a vector is cut into segments.

Each column has a segment of every vector, whose lanes are neighbours along k: a step reads that many elements of a row
of A once, repeated in every segment, and multiplies them by as many of all columns.  Where columns are half a vector or
less, tiles whose vectors lie along columns leave the other lanes idle, and dot products add up all lanes of each sum.

B is packed as [k / segment][column][segment], zero padded: at compile time where it is constant, else by the kernel
into its scratch.  A is read in place.  Threads split the rows: results do not depend on them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from typing import Self

import numpy as np

from irc.ir.dim import Dim, DimLike
from irc.ir.types import f32, f64
from irc.kernels.core.base import Array, Packed
from irc.kernels.core.costs import LATENCY, in_halves
from irc.kernels.core.isa import Isa
from irc.kernels.core.problem import likely
from irc.kernels.core.registry import kernel
from irc.kernels.core.text import Part, fill, piece, symbol
from irc.kernels.core.tile import Tile, epilogue_of, names, prelude
from irc.kernels.gemm.problem import GemmProblem, matrices, multiply
from irc.kernels.gemm.tasks import WORTHWHILE
from irc.kernels.gemm.tiled import LONGEST_SUM, TiledGemmKernel
from irc.kernels.vector.lanes import segment_sums

ROWS = 8
"""Rows of a tile: as many sums as hide the latency of an addition."""
TILES_PER_TASK = 8
LEAST = 32
"""Bytes of a vector, at least: for these one instruction loads and repeats a segment."""
REACHED, REACHED_LONG = 0.65, 0.5
"""The part of the rate of loads and multiply-adds that a tile reaches; and with vectors of 64 bytes."""
ENDED, STARTED = 4.0, 20.0
"""Cycles to fold the sums of a row and to store it, and to begin and end a tile."""
GATHERED = 1.5
"""Cycles to pack an element of B, those of padding included."""

_REPEATED = """/* A segment of $segment elements from memory, in every segment of a vector. */
IRC_INLINE $V ${V}_repeated_$segment(const $T *p) {
    $V x;
#if (defined(__AVX512F__) && $bytes == 64) || (defined(__AVX__) && $bytes == 32)
    __asm__("$load %1, %0" : "=v"(x) : "m"(*(const $T(*)[$segment])p));
#else
    for (int i = 0; i < $L; i++) x[i] = p[i % $segment];
#endif
    return x;
}
"""

_BODY = """
/* Rows row to row + rows, at most $R, of one matrix. */
IRC_INLINE void ${S}_tile(const ${S}_out *o, int64_t row, const int64_t rows, int64_t k, const $T *a,
                          int64_t a_row, const $T *b) {
    const int64_t whole = k / $segment * $segment;
    const $T *from[$R];
    $V sums[$R];
    IRC_FULL_UNROLL
    for (int i = 0; i < $R; i++) {
        from[i] = a + (i < rows ? i : rows - 1) * a_row;
        sums[i] = ($V){0};
    }
    for (int64_t at = 0; at < whole;) { /* long sums are sums of sums, which lose less */
        const int64_t end = whole - at < $longest ? whole : at + $longest;
        /* No array: gcc would store one in each step, for the assembly reads memory. */
        $V $zeros;
        for (; at < end; at += $segment, b += $L) {
            const $V x = ${V}_load(b);
$products        }
$added    }
    if (whole < k) {
        const $V x = ${V}_load(b);
        IRC_FULL_UNROLL
        for (int i = 0; i < $R; i++) {
            const $V part = ${V}_load_part(from[i] + whole, k - whole);
            sums[i] += __builtin_shufflevector(part, part, $repeat) * x;
        }
    }
$fold    $T *c = o->c + row * o->c_row;
$together    _Alignas(64) $T rest[$R * $L];
$apart    for (int64_t i = 0; i < rows; i++) {
        const $V x = ${V}_load(rest + i * $L);
        ${V}_store_part(c + i * o->c_row, ${S}_epilogue(o, x, row + i, 0, $n), $n);
    }
}

IRC_APART void ${S}_last(const ${S}_out *o, int64_t row, int64_t rows, int64_t k, const $T *a, int64_t a_row,
                          const $T *b) {
    ${S}_tile(o, row, rows, k, a, a_row, b);
}

/* Tasks begin to end: $task rows of a matrix, matrices outermost. */
static void ${S}_part(void *given, int64_t begin, int64_t end) {
    const ${S}_args *g = given;
    const int64_t down = (g->m + $task - 1) / $task;
    for (; begin < end; begin++) {
        const int64_t image = begin / down, i = image / g->batch1, j = image % g->batch1, first = begin % down * $task;
        const int64_t last = first + $task < g->m ? first + $task : g->m;
        ${S}_out o = {.c = g->c + i * g->c_batch0 + j * g->c_batch1, .c_row = g->c_row, .n = g->n};$slot_starts
        const $T *const a = g->a + i * g->a_batch0 + j * g->a_batch1, *const b = $packed_b;
        int64_t row = first;
        for (; row + $R <= last; row += $R) ${S}_tile(&o, row, $R, g->k, a + row * g->a_row, g->a_row, b);
        if (row < last) ${S}_last(&o, row, last - row, g->k, a + row * g->a_row, g->a_row, b);
    }
}

void $S($parameters) {
    if (g->m <= 0 || g->n <= 0) return;
    const int64_t matrices = g->batch0 * g->batch1, tasks = matrices * ((g->m + $task - 1) / $task);
    const int alone = !pool || (double)matrices * (double)(g->m * g->n) * (double)g->k < $worthwhile;
$pack    if (alone || tasks < 2) ${S}_part((void *)g, 0, tasks);
    else pool->parallel_for(pool->self, tasks, ${S}_part, (void *)g);
}
"""

_TOGETHER = """\
    if (rows == $R && o->c_row == $n) { /* rows that follow one another */
        EACH(i < $R / $segment) ${V}_store(c + i * $L, ${S}_epilogue(o, sums[i], row, 0, $L));
        return;
    }
"""

_PACK = """
/* Matrices begin to end. */
static void ${S}_pack_part(void *given, int64_t begin, int64_t end) {
    const ${S}_args *g = given;
    for (; begin < end; begin++) {
        const $T *from = g->b + begin / g->batch1 * g->b_batch0 + begin % g->batch1 * g->b_batch1;
        $T *to = g->scratch + begin * ((g->k + $segment - 1) / $segment * $L);
        for (int64_t k = 0; k < g->k; k += $segment, to += $L)
            for (int i = 0; i < $L; i++) {
                const int64_t col = i / $segment, row = k + i % $segment;
                to[i] = col < $n && row < g->k ? from[row * g->b_row + col * g->b_col] : 0;
            }
    }
}
"""

_PACKING = """\
    if (alone || matrices < 2) ${S}_pack_part((void *)g, 0, matrices);
    else pool->parallel_for(pool->self, matrices, ${S}_pack_part, (void *)g);
"""


@kernel
class SegmentsGemmKernel(TiledGemmKernel):
    """A matrix product of `columns` columns, each with a segment of the vectors: A's columns contiguous.

    `tile` has the rows of a tile.
    """

    columns: int = 1

    @classmethod
    def candidates(cls, problem: GemmProblem, isa: Isa) -> Iterator[Self]:
        """Yield the variant for a known number of columns, half a vector at most."""
        n, dtype = problem.n, problem.dtype
        if dtype not in (f32, f64) or problem.a[3] != 1 or not n.is_const or isa.vector < LEAST:
            return
        if 2 <= int(n) <= isa.lanes(dtype) // 2:
            halves = in_halves(isa) and int(n) <= isa.lanes(dtype) // 4
            tile = Tile(isa.halved() if halves else isa, dtype, ROWS, 1)
            yield cls(tile, problem.epilogue, bool(problem.matrices), (), False, int(n))

    def cycles(self, problem: GemmProblem) -> float:
        m, k, t = likely(problem.m), likely(problem.k), self.tile
        step = max(t.rows / t.isa.fma, (t.rows + 1) / 2, LATENCY)
        step /= REACHED_LONG if t.isa.vector == 64 else REACHED
        cycles = -(-m // t.rows) * (-(-k // self.segment) * step + STARTED) + m * ENDED
        if not self.b_constant:
            cycles += -(-k // self.segment) * t.lanes * GATHERED
        return likely(problem.count) * cycles

    def own_bytes(self, sizes: Mapping[str, int]) -> int:
        return 0

    @property
    def segment(self) -> int:
        """The elements along k in each segment: as many as leave every column one."""
        return self.tile.lanes >> (self.columns - 1).bit_length()

    @property
    def label(self) -> str:
        return f"segments of {self.segment}"

    def packed(self, problem: GemmProblem) -> Packed | None:
        if not problem.matrices:
            return None
        elements = int(self.packed_b_elements(problem.n, problem.k)) * problem.matrices
        key = ("segments", self.tile.lanes, self.segment)
        return Packed(key, self.tile.dtype, elements, lambda b: self.pack_b(b).reshape(-1))

    def packed_b_elements(self, n: DimLike, k: DimLike) -> Dim:
        return Dim.of(k).ceildiv(self.segment) * self.tile.lanes

    def pack_b(self, b: Array) -> Array:
        """Pack B[…, k, n] as […, k / segment, column, segment], zeros behind k and n."""
        segment, lanes, (k, n) = self.segment, self.tile.lanes, b.shape[-2:]
        steps = -(-k // segment)
        full = np.zeros((*b.shape[:-2], steps * segment, lanes // segment), self.tile.dtype.numpy)
        full[..., :k, :n] = b
        apart = full.reshape(*b.shape[:-2], steps, segment, lanes // segment)
        return np.ascontiguousarray(np.swapaxes(apart, -1, -2))

    def compute(self, reads: Sequence[Array], writes: Sequence[Array], sizes: Mapping[str, int]) -> None:
        if not self.b_constant:
            super().compute(reads, writes, sizes)
            return
        n, k, segment, lanes = sizes["n"], sizes["k"], self.segment, self.tile.lanes
        shape, strides = (-(-k // segment), segment, lanes // segment), (lanes, 1, segment)
        b = matrices(reads[1], shape, strides, sizes)
        b = b.reshape(*b.shape[:2], -1, lanes // segment)[..., :k, :n]
        multiply(b, self.epilogue, reads, writes, sizes)

    @cached_property
    def symbol(self) -> str:
        kind = "gemm_segments" if self.b_constant else "matmul_segments"
        name = f"{self.tile.name.removeprefix('irc_tile_')}_{self.columns}"
        return symbol(kind, name, self.epilogue.key())

    def parts(self) -> list[Part]:
        t, s, segment = self.tile, self.symbol, self.segment
        given = names(t) | {"S": s, "R": t.rows, "segment": segment, "n": self.columns, "worthwhile": WORTHWHILE}
        given |= {"task": t.rows * TILES_PER_TASK, "longest": LONGEST_SUM * segment, "bytes": t.isa.vector}
        given["load"] = {8: "vbroadcastsd", 16: "vbroadcastf32x4", 32: "vbroadcastf64x4"}[segment * t.dtype.itemsize]
        if t.isa.vector == LEAST and given["load"] == "vbroadcastf32x4":
            given["load"] = "vbroadcastf128"
        wide = t.lanes // segment
        apart = "".join(
            f"    {given['V']}_store(rest + {i * t.lanes}, __builtin_shufflevector(sums[{i // segment}],"
            f" sums[{i // segment}], {_numbers((i % segment * wide + j) % t.lanes for j in range(t.lanes))}));\n"
            for i in range(t.rows)
        )
        together = self.columns == wide and not self.epilogue.slots
        whole = f"(g->k + {segment - 1}) / {segment} * {t.lanes}"
        return [
            prelude(t, self.epilogue),
            piece("IRC_VECTOR_${V}_repeated_$segment", _REPEATED, "${V}_repeated_$segment", **given),
            epilogue_of(s, t, self.epilogue),
            "" if self.b_constant else fill(_PACK, **given),
            fill(
                _BODY,
                **given,
                **self.interface,
                repeat=_numbers(i % segment for i in range(t.lanes)),
                fold=segment_sums("sums", t.rows, segment, t.lanes),
                together=fill(_TOGETHER, **given) if together else "",
                **self._sums(),
                apart=apart,
                slot_starts=self.slot_starts(),
                packed_b="g->b + i * g->b_batch0 + j * g->b_batch1"
                if self.b_constant
                else f"g->scratch + image * ({whole})",
                pack="" if self.b_constant else fill(_PACKING, **given),
            ),
        ]

    def _sums(self) -> dict[str, str]:
        """Print the sums of a run of k, a variable for each row."""
        v, segment, rows = names(self.tile)["V"], self.segment, range(self.tile.rows)
        return {
            "zeros": ", ".join(f"acc{i} = ({v}){{0}}" for i in rows),
            "products": "".join(f"            acc{i} += {v}_repeated_{segment}(from[{i}] + at) * x;\n" for i in rows),
            "added": "".join(f"        sums[{i}] += acc{i};\n" for i in rows),
        }

    @property
    def summary(self) -> str:
        what = "B packed at compile time" if self.b_constant else "B packed when called"
        columns = f"{self.columns} columns, {self.segment} products of each at once"
        return f"C = epilogue(A B), {self.tile.dtype}, {columns}, {what}."


def _numbers(numbers: Iterator[int]) -> str:
    return ", ".join(map(str, numbers))
