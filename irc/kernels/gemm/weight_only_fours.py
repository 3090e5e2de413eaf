"""Matrix product of few rows with weights of 8 bits or fewer, in whole numbers: C = epilogue(A · ((Q - Z) · S)).

Where a core multiplies and adds fours of bytes (VNNI), a vector of 16 words of 4 bits takes three masks and shifts and
six products, instead of 24 conversions and multiply-adds, which memory would wait for.  For each block of k, A is a
whole number of 24 bits times a scale, as near to it as sums in f32 are to theirs: three bytes of either sign, whose
products with the numbers of B are exact.  So is what zero points take away, which sums begin with.  Denormal elements
are zero.

Byte i of a word has the numbers i, 4 + i, ... of its k, so that masked words are fours of neighbours.  The rest is as
in `irc.kernels.gemm.weight_only`.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any, Self

import numpy as np

from irc.ir.types import f32
from irc.kernels.core.base import Array, Packed
from irc.kernels.core.costs import ROW_ENDED, costs_of
from irc.kernels.core.isa import AVX512, Isa
from irc.kernels.core.problem import likely
from irc.kernels.core.registry import kernel
from irc.kernels.core.text import Part, piece
from irc.kernels.core.tile import Tile, heights_of, prelude
from irc.kernels.gemm import weight_only
from irc.kernels.gemm.problem import GemmProblem
from irc.kernels.gemm.weight_only import WeightOnlyGemmKernel
from irc.kernels.integer.vectors import FOURS, MEMORY
from irc.kernels.vector.lanes import folds

TILES = ((1, 4), (3, 2))
"""Rows × vectors of tiles, three sums each."""
MOST_ROWS = 6
"""Rows at most: more are faster in floats."""
LONGEST, LONGEST_SHIFTED = 256, 128
"""Numbers of a block at most, and where it has a zero point of its own, by which sums of 16 bits are multiplied."""
DIGITS = 3
"""Bytes of an element of A."""
ENDED = 2.0
"""Cycles until sums of a vector and a block are floats."""

_TILE = """\
/* $R rows: sums[R][$NR] = Σ over the blocks of s (Σ a q - z Σ a), a panel of B from `b` on. */
static void ${body}_$R(int64_t blocks, int64_t words, const float *a, int64_t a_row, const float *of_blocks,
                       int64_t blocks_row, const unsigned char *b, float *restrict sums) {
    $V total[$R][$NV] = {{{0}}};
    const char *digits = (const char *)a;
    for (int64_t i = 0; i < blocks; i++, of_blocks += 4) {
        const float *const scales = (const float *)(const void *)b;
        const int64_t some = words < $words ? words : $words;
        __m512i acc[$R][$NV][3];
        IRC_FULL_UNROLL
        for (int r = 0; r < $R; r++) {
            int32_t before[3];
            __builtin_memcpy(before, of_blocks + r * blocks_row + 1, sizeof before);
            EACH(t < 3, w < $NV) acc[r][w][t] = $begin;
        }
        b += $head;
        for (int64_t k = 0; k < some; k++, digits += $per * 3, b += $NV * $bytes) {
            __m512i q[$NV];
            IRC_FULL_UNROLL
            for (int w = 0; w < $NV; w++) {
                __builtin_prefetch(b + $near + w * $bytes);
                __builtin_prefetch(b + $far + w * $bytes, 0, 2);
                q[w] = irc_bytes_load_512(b + w * $bytes);
            }
            IRC_FULL_UNROLL
            for (int j = 0; j < $per / 4; j++) {
                __m512i x[$NV];
                IRC_FULL_UNROLL
                for (int w = 0; w < $NV; w++)
                    x[w] = _mm512_and_si512(_mm512_srli_epi32(q[w], $each * j), _mm512_set1_epi8((char)$most));
                IRC_FULL_UNROLL
                for (int r = 0; r < $R; r++) {
                    IRC_FULL_UNROLL
                    for (int t = 0; t < 3; t++) {
                        int32_t four;
                        __builtin_memcpy(&four, digits + r * a_row * 4 + t * $per + 4 * j, 4);
                        const __m512i y = _mm512_set1_epi32(four);
                        EACH(w < $NV) irc_fours_512(&acc[r][w][t], x[w], y);
                    }
                }
            }
        }
        words -= some;
        IRC_FULL_UNROLL
        for (int w = 0; w < $NV; w++) {
            const $V s = ${V}_load(scales + w * $L);
            IRC_FULL_UNROLL
            for (int r = 0; r < $R; r++) {
                const $V high = ($V)_mm512_cvtepi32_ps(acc[r][w][2]), low = ($V)_mm512_cvtepi32_ps(acc[r][w][1]);
                const $V sum = (high * 256.0f + low) * 256.0f + ($V)_mm512_cvtepi32_ps(acc[r][w][0]);
                total[r][w] += s * of_blocks[r * blocks_row] * sum;
            }
        }
    }
    IRC_FULL_UNROLL
    for (int r = 0; r < $R; r++)
        for (int w = 0; w < $NV; w++) ${V}_store(sums + r * $NR + w * $L, total[r][w]);
}
"""

_ROW = """
/* 16 elements of A, `have` of which there are, zeros in the others. */
IRC_INLINE __m512 ${S}_some(const float *a, int64_t a_col, int64_t have) {
    if (a_col == 1) return _mm512_maskz_loadu_ps((__mmask16)(have < 16 ? (1u << have) - 1 : 0xffff), a);
    float copy[16] = {0};
    for (int64_t i = 0; i < 16 && i < have; i++) copy[i] = a[i * a_col];
    return _mm512_loadu_ps(copy);
}

/* A row of A as it meets words of B, the lowest bytes first; then of each block its scale, and what sums of each of the
   bytes begin with.  Whether all are finite. */
static int ${S}_row(const ${S}_args *g, const float *a, float *to) {
    const int64_t whole = ${S}_words(g->k) * $per;
    char *bytes = (char *)to;
    float *of_block = to + ${S}_meeting(g->k);
    for (int64_t k = 0; k < g->k; k += $block, of_block += 4) {
        const int64_t left = g->k - k < $block ? g->k - k : $block, all = whole - k < $block ? whole - k : $block;
        __m512 x[$block / 16], most = _mm512_setzero_ps(), check = most;
        for (int64_t i = 0; i < left; i += 16) {
            x[i / 16] = ${S}_some(a + (k + i) * g->a_col, g->a_col, left - i);
            most = _mm512_max_ps(most, _mm512_abs_ps(x[i / 16]));
            check += x[i / 16] * 0.0f;
        }
        if (${V}_sum_all(($V)check)[0] != 0) return 0;
        /* Of the largest element the scale has the exponent, such that three bytes of either sign hold it. */
        const float largest = ${V}_max_all(($V)most)[0];
        uint32_t exponent;
        __builtin_memcpy(&exponent, &largest, 4);
        exponent >>= 23;
        if (exponent < 23) exponent = 23;
        const uint32_t up = (276 - exponent) << 23, down = (exponent - 22) << 23;
        float scale, back;
        __builtin_memcpy(&scale, &up, 4);
        __builtin_memcpy(&back, &down, 4);
        const __m512 times = _mm512_set1_ps(scale * 0.9921875f);
        const __m512i half = _mm512_set1_epi32(128);
        __m512i sums[3] = {_mm512_setzero_si512(), _mm512_setzero_si512(), _mm512_setzero_si512()};
        for (int64_t i = 0; i < left; i += 16) {
            __m512i rest = _mm512_cvtps_epi32(x[i / 16] * times);
            char digits[3][16];
            IRC_FULL_UNROLL
            for (int t = 0; t < 3; t++) {
                const __m512i next = _mm512_srai_epi32(_mm512_add_epi32(rest, half), 8);
                sums[t] = _mm512_add_epi32(sums[t], _mm512_sub_epi32(rest, _mm512_slli_epi32(next, 8)));
                _mm_storeu_si128((__m128i *)digits[t], _mm512_cvtepi32_epi8(rest));
                rest = next;
            }
            for (int64_t j = 0; j < 16 && i + j < all; j += $per)
                for (int t = 0; t < 3; t++, bytes += $per) __builtin_memcpy(bytes, digits[t] + j, $per);
        }
        of_block[0] = back / 0.9921875f;
        for (int t = 0; t < 3; t++) {
            const int32_t before = -$middle * _mm512_reduce_add_epi32(sums[t]);
            __builtin_memcpy(of_block + 1 + t, &before, 4);
        }
    }
    return 1;
}
"""
_BEGIN = "_mm512_set1_epi32(before[t])"
_BEGIN_SHIFTED = """_mm512_madd_epi16(
                    _mm512_cvtepu8_epi32(_mm_loadu_si128((const __m128i *)(b + ($NR * 4 + w * 16)))),
                    _mm512_set1_epi32(before[t]))"""


@kernel
class WeightOnlyFoursGemmKernel(WeightOnlyGemmKernel):
    """A matrix product with a constant B of few bits, in fours of bytes."""

    form = "_fours"

    @classmethod
    def candidates(cls, problem: GemmProblem, isa: Isa) -> Iterator[Self]:
        narrow = problem.narrow
        if narrow is None or narrow.floats or problem.dtype != f32 or problem.matrices != 1 or problem.count != 1:
            return
        if not isa.fours or isa.vector != AVX512.vector or not problem.m.is_const or int(problem.m) > MOST_ROWS:
            return
        if narrow.block % 16 or narrow.block > (LONGEST_SHIFTED if narrow.zeros else LONGEST):
            return
        for rows, vectors in TILES:
            tile = Tile(isa, f32, rows, vectors)
            yield cls(tile, problem.epilogue, narrow, heights_of(problem.m, rows))

    def cycles(self, problem: GemmProblem) -> float:
        t, n, k, m = self.tile, likely(problem.n), likely(problem.k), int(problem.m)
        fours, tiles, panels = -(-k // 4), -(-m // t.rows), -(-n // t.panel)
        words = t.vectors * fours * (DIGITS * m + tiles) / t.isa.fma
        blocks = panels * t.vectors * -(-k // self.narrow.block) * m * ENDED
        waiting = self.packed_bytes(n, k) / costs_of(t.isa).stream if problem.streamed else 0.0
        return max(panels * words + blocks + panels * m * ROW_ENDED, waiting)

    def packed(self, problem: GemmProblem) -> Packed:
        return replace(super().packed(problem), key=("narrow fours", self.tile.panel, self.narrow))

    @property
    def label(self) -> str:
        return f"{super().label} in fours"

    @property
    def features(self) -> frozenset[str]:
        return frozenset(("avx512_vnni",))

    def parts(self) -> list[Part]:
        given = self._names()
        return [
            prelude(self.tile, self.epilogue),
            folds(self.tile.lanes, f32),
            MEMORY[512],
            FOURS[512],
            *(piece("IRC_TILE_${body}_$R", _TILE, **given, R=r) for r in self.heights),
            self.stored_and_divided(given, weight_only.SIZES + _ROW + weight_only.BODY, weight_only.ENTRY),
        ]

    def _names(self) -> dict[str, Any]:
        given = super()._names()
        given["body"] = body = given["body"].replace("weights", "weights_fours", 1)
        given |= {"table": self.table(body), "begin": _BEGIN_SHIFTED if self.narrow.zeros else _BEGIN}
        given["begin"] = given["begin"].replace("$NR", str(self.tile.panel))
        given["middle"] = 1 if self.narrow.zeros else self.narrow.middle
        given |= {"most": self.narrow.most}
        given["shift"] = f"(i % 4 * 8 + i % {self._per} / 4 * {self.narrow.bits})"
        return given

    @property
    def _shifts(self) -> Array:
        k = np.arange(self._per, dtype=np.uint32)
        return k % 4 * 8 + k // 4 * np.uint32(self.narrow.bits)

    @property
    def _row_floats(self) -> tuple[int, int]:
        return self._per * DIGITS // 4, 1 + DIGITS
