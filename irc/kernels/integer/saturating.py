"""The register tile of bytes for processors that add products of bytes in pairs, as words that saturate (VPMADDUBSW).

An instruction adds two products of unsigned bytes and signed ones.  Weights are constants, so that when they are packed
it is known up to which byte of x the sums of fours of neighbours in k fit into words; how large the bytes of a tile's
rows are is known before they are multiplied, and is what decides.  Of each panel and tap, fours come in pairs of a
small and a large one (`irc.kernels.integer.pairing`), in an order for which it is known at each of some levels of the
largest byte how many at the end of it do not fit

0. two by two, where the sums of both are added as words before they are widened,
1. by themselves.

What does not fit by itself is turned: a product is w (x - 128) + 128 w, or |w| (127 - x) - 127 |w| where w is negative.
There |w| is an unsigned byte and what it is multiplied with a signed one: the bits of x, of which the highest or all
others are turned.  The sum of two such products fits into a word whatever x and w are.

A panel has the sums of its columns, what is added to them, what turning adds to them at each level, its order (for each
tap both numbers at each level, and where each four stands), then the fours.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from irc.kernels.core.base import Array
from irc.kernels.core.text import Part, Piece, piece
from irc.kernels.integer.pairing import partners
from irc.kernels.integer.problem import STEP
from irc.kernels.integer.tile import BytesTile

MOST = 128
"""255 times as much fits into a word, of either sign."""
LEVELS, LEVEL = 16, 8
"""Levels of the largest byte, from 255 downwards, and the bytes of each."""
ENDS = 2 * LEVELS
USUAL, USUAL_AROUND_ZERO = 231, 255
"""The largest byte of most tiles is at most this one, beyond which fours that would fit may be turned; the second one
where bytes lie on both sides of a zero point."""
LINE = 64
"""The fours begin at a multiple of so many bytes."""
HIGHEST = 128
"""The highest bit of a byte of x."""
HEAD = 2 + LEVELS
"""Numbers for each column in front of a panel's order."""

_ORDER = """\
/* The bytes of a panel's order. */
IRC_INLINE int64_t irc_bytes_order_size(const irc_bytes_walk *w) {
    return (w->rows * w->columns * (w->groups + $ends) * 4 + $line - 1) / $line * $line;
}
IRC_INLINE int64_t irc_bytes_order_at(const int8_t *order, int64_t i) {
    int32_t found;
    __builtin_memcpy(&found, order + 4 * i, 4);
    return found;
}
/* Four bytes of x in all lanes. */
IRC_INLINE __m256i irc_bytes_four(const uint8_t *x) {
    int32_t four;
    __builtin_memcpy(&four, x, 4);
    return _mm256_set1_epi32(four);
}
/* Sums of two products of bytes, as words; w stays in memory, as registers are full of sums. */
IRC_INLINE __m256i irc_bytes_two(__m256i x, const int8_t *w) {
    __m256i sums;
    __asm__("vpmaddubsw %2, %1, %0" : "=x"(sums) : "x"(x), "m"(*(const int8_t(*)[32])w));
    return sums;
}
/* *sum += x, in the register of the sum: GCC would move sums about. */
IRC_INLINE void irc_bytes_add(__m256i *sum, __m256i x) { __asm__("vpaddd %1, %0, %0" : "+x"(*sum) : "x"(x)); }
/* A one in each word, made where it stands, so that it takes no register elsewhere. */
IRC_INLINE __m256i irc_bytes_ones(void) {
    __m256i all;
    __asm__("vpcmpeqw %0, %0, %0" : "=x"(all));
    return _mm256_srli_epi16(all, 15);
}
/* *sum += what the words of x add up to in twos, by ones in memory, as registers are full of sums. */
IRC_INLINE void irc_bytes_add_twos(__m256i *sum, __m256i x) {
    static const int16_t ones[16] __attribute__((aligned(32))) = {$ones};
    __asm__("vpmaddwd %1, %0, %0" : "+x"(x) : "m"(ones));
    irc_bytes_add(sum, x);
}
/* The bits of x that are turned for weights w. */
IRC_INLINE __m256i irc_bytes_turn(__m256i w) {
    static const uint8_t highest[32] __attribute__((aligned(32))) = {$highest};
    __m256i bits;
    __asm__("vpxor %0, %0, %0; vpcmpgtb %1, %0, %0; vpxor %2, %0, %0" : "=&x"(bits) : "x"(w), "m"(highest));
    return bits;
}
/* The level of the largest byte under the windows of some rows of A. */
IRC_HELPER int64_t irc_bytes_level(const uint8_t *a, const int64_t *at, int64_t rows, const irc_bytes_walk *w) {
    const int64_t run = 4 * w->groups;
    __m256i most = _mm256_setzero_si256();
    for (int64_t i = 0; i < rows; i++) {
        for (int64_t t = 0; t < w->rows * w->columns; t++) {
            const uint8_t *x = a + at[i] + t / w->columns * w->row + t % w->columns * w->column;
            int64_t k = 0;
            for (; k + 32 <= run; k += 32)
                most = _mm256_max_epu8(most, _mm256_loadu_si256((const __m256i *)(x + k)));
            for (; k < run; k += 4) most = _mm256_max_epu8(most, irc_bytes_four(x + k));
        }
    }
    __m128i near = _mm_max_epu8(_mm256_castsi256_si128(most), _mm256_extracti128_si256(most, 1));
    near = _mm_max_epu8(near, _mm_srli_epi16(near, 8));
    near = _mm_minpos_epu16(_mm_xor_si128(_mm_and_si128(near, _mm_set1_epi16(255)), _mm_set1_epi16(255)));
    const int64_t level = (_mm_cvtsi128_si32(near) & 255) / $level;
    return level < $levels ? level : $levels - 1;
}
"""

_TILE = """
/* sums[R][$NR] = the columns' own + A . panel - zero * (columns' sums); rows of A begin at a[at[i]]. */
IRC_INLINE void ${tile}(const int R, const $E *a, const int64_t *at, const irc_bytes_walk *w,
                        const int8_t *restrict panel, int32_t zero, int32_t *restrict sums) {
    $V acc[$MR][$NV];
    int64_t turned = 0;
    IRC_FULL_UNROLL
    for (int v = 0; v < $NV; v++) {
        const $V own = $load(panel + (v + $NV) * $bytes);
        acc[0][v] = $minus(own, $times($load(panel + v * $bytes), $all(zero)));
    }
    EACH(v < $NV, i < R - 1) acc[i + 1][v] = acc[0][v];
    const int8_t *order = panel + $head * $NR, *p = order + irc_bytes_order_size(w);
    for (int64_t r = 0; r < w->rows; r++) {
        for (int64_t s = 0; s < w->columns; s++) {
            const int64_t tap = r * w->row + s * w->column;
            const int64_t two = w->groups / 2 * 2 - irc_bytes_order_at(order, 2 * w->level);
            const int64_t one_by_one = w->groups - irc_bytes_order_at(order, 2 * w->level + 1);
            const int8_t *const places = order + 4 * $ends;
            const $E *x[$MR];
            EACH(i < R) x[i] = a + at[i] + tap;
            int64_t j = 0;
            $V one = irc_bytes_ones();
            for (; j < two; j += 2, p += 8 * $NR) {
                const int64_t k = irc_bytes_order_at(places, j), l = irc_bytes_order_at(places, j + 1);
                IRC_FULL_UNROLL
                for (int i = 0; i < R; i++) {
                    const $V first = irc_bytes_four(x[i] + k), second = irc_bytes_four(x[i] + l);
                    IRC_FULL_UNROLL
                    for (int v = 0; v < $NV; v++) {
                        const $V a_pair = irc_bytes_two(first, p + v * $bytes);
                        const $V b_pair = irc_bytes_two(second, p + 4 * $NR + v * $bytes);
                        irc_bytes_add(&acc[i][v], ${mm}_madd_epi16(${mm}_add_epi16(a_pair, b_pair), one));
                    }
                }
            }
            one = irc_bytes_ones();
            for (; j < one_by_one; j++, p += 4 * $NR) {
                const int64_t k = irc_bytes_order_at(places, j);
                IRC_FULL_UNROLL
                for (int i = 0; i < R; i++) {
                    const $V all = irc_bytes_four(x[i] + k);
                    EACH(v < $NV) irc_bytes_add(&acc[i][v], ${mm}_madd_epi16(irc_bytes_two(all, p + v * $bytes), one));
                }
            }
            turned += w->groups - one_by_one;
            p += (w->groups - one_by_one) * 4 * $NR;
            order = places + 4 * w->groups;
        }
    }
    EACH(i < R, v < $NV) $store(sums + i * $NR + v * $lanes, acc[i][v]);
    if (turned) ${tile}_turned[R - 1](a, at, w, panel, sums);
}
"""

_TURNED = """
/* Adds to sums[R][$NR] what fours make that do not fit by themselves: apart from the others, as it takes so many
   registers that GCC would keep sums in memory in their loops, too. */
IRC_APART void ${tile}_turned_$R(const $E *a, const int64_t *at, const irc_bytes_walk *w,
                                 const int8_t *restrict panel, int32_t *restrict sums) {
    $V acc[$R][$NV];
    for (int v = 0; v < $NV; v++) {
        const $V more = $load(panel + ((2 + w->level) * $NV + v) * $bytes);
        EACH(i < $R) acc[i][v] = ${mm}_add_epi32($load(sums + i * $NR + v * $lanes), more);
    }
    const int8_t *order = panel + $head * $NR, *of_tap = order + irc_bytes_order_size(w);
    const $E *x[$R];
    EACH(i < $R) x[i] = a + at[i];
    for (int64_t r = 0; r < w->rows; r++) {
        for (int64_t s = 0; s < w->columns; s++) {
            const int64_t tap = r * w->row + s * w->column;
            const int8_t *const places = order + 4 * $ends;
            int64_t j = w->groups - irc_bytes_order_at(order, 2 * w->level + 1);
            for (; j < w->groups; j++) {
                const int8_t *const p = of_tap + 4 * $NR * j;
                const int64_t k = tap + irc_bytes_order_at(places, j);
                $V turn[$NV], size[$NV];
                EACH(v < $NV) turn[v] = irc_bytes_turn($load(p + v * $bytes));
                EACH(v < $NV) size[v] = ${mm}_abs_epi8($load(p + v * $bytes));
                IRC_FULL_UNROLL
                for (int i = 0; i < $R; i++) {
                    const $V all = irc_bytes_four(x[i] + k);
                    IRC_FULL_UNROLL
                    for (int v = 0; v < $NV; v++)
                        irc_bytes_add_twos(&acc[i][v], ${mm}_maddubs_epi16(size[v], ${mm}_xor_si256(all, turn[v])));
                }
            }
            order = places + 4 * w->groups;
            of_tap += 4 * $NR * w->groups;
        }
    }
    EACH(i < $R, v < $NV) $store(sums + i * $NR + v * $lanes, acc[i][v]);
}
"""

_TURNED_OF = """
static void (*const ${tile}_turned[])(const $E *, const int64_t *, const irc_bytes_walk *, const int8_t *,
                                      int32_t *) = {$table};
"""


def order() -> Piece:
    """Print what reads the order of a panel, fours of bytes, and how large they are."""
    given = {"ones": ", ".join(["1"] * 16), "highest": ", ".join(["128"] * 32)}
    return piece("IRC_BYTES_ORDER", _ORDER, ends=ENDS, line=LINE, level=LEVEL, levels=LEVELS, **given)


def crowded(weights: Array) -> float:
    """Compute of weights[outputs, k], neighbours in k side by side, the share of pairs that do not fit into a word."""
    whole = weights.shape[1] // 2 * 2
    if not whole or not len(weights):
        return 0.0
    pairs = weights[:, :whole].astype(np.int16).reshape(len(weights), -1, 2)
    beyond: Array = _sums(pairs).max(0) > MOST
    return float(np.mean(beyond))


def _sums(fours: Array) -> Array:
    """Compute of fours[..., 4] what the weights of a sign of each pair add up to: [sign, ..., pair]."""
    pairs = fours.astype(np.int16).reshape(*fours.shape[:-1], -1, 2)
    return np.stack([np.maximum(pairs, 0).sum(-1), -np.minimum(pairs, 0).sum(-1)])


def _beyond(most: Array) -> Array:
    """Count, for each level, of sums of weights [..., n] the first that does not fit and all behind it."""
    least = np.maximum.accumulate(most, axis=-1)[..., None, :].astype(np.int32)
    bytes_of = 255 - LEVEL * np.arange(LEVELS, dtype=np.int32)
    return (least * bytes_of[:, None] >= 1 << 15).sum(-1)


@dataclass(frozen=True)
class SaturatingTile(BytesTile):
    """A tile of `rows` × `vectors` accumulators whose panels are ordered so that no pair saturates.

    usual: what the largest byte of most tiles is at most.
    """

    usual: int = USUAL

    @property
    def names(self) -> dict[str, Any]:
        mm = self.prefix
        return super().names | {"mm": mm, "ends": ENDS, "head": 4 * HEAD, "ahead": "", "ahead_parameter": ""}

    @property
    def text(self) -> str:
        return _TILE

    def bodies(self) -> Iterator[Part]:
        for r in range(1, self.rows + 1):
            yield piece("IRC_TURNED_${tile}_$R", _TURNED, **self.names, R=r)
        table = ", ".join(f"{self.name}_turned_{r}" for r in range(1, self.rows + 1))
        yield piece("IRC_TURNED_${tile}", _TURNED_OF, **self.names, table=table)
        yield from super().bodies()

    @property
    def size(self) -> str:
        return f"{HEAD * 4 * self.columns} + irc_bytes_order_size(&w->walk) + {super().body_size}"

    def head(self, taps: int, groups: int) -> int:
        return HEAD * 4 * self.columns + -(-taps * (groups + ENDS) * 4 // LINE) * LINE

    def panels(self, columns: Array, own: Array | None, taps: int = 1) -> Array:
        count, n, k = columns.shape
        step, groups = STEP[self.unit], k // taps // STEP[self.unit]
        fours = columns.astype(np.int8).reshape(count, n, taps, groups, step).transpose(0, 2, 3, 1, 4)
        order, ends = _ordered(fours, self.usual)
        ordered = np.take_along_axis(fours, order[..., None, None], 2)
        table = np.concatenate([ends, order * step], 2).astype(np.int32).reshape(count, -1)
        head = np.zeros((count, self.head(taps, groups) // 4), np.int32)
        head[:, :n] = columns.sum(2, dtype=np.int32)
        if own is not None:
            head[:, n : 2 * n] = own.reshape(count, n)
        head[:, 2 * n : HEAD * n] = _of_turning(ordered, ends[..., 1::2]).reshape(count, -1)
        head[:, HEAD * n : HEAD * n + table.shape[1]] = table
        body = np.ascontiguousarray(ordered).reshape(count, -1)
        return np.concatenate([head.view(np.int8), body], 1).reshape(-1)

    def unpanelled(self, flat: Array, count: int, groups: int, taps: int = 1) -> tuple[Array, Array]:
        step, per, n = STEP[self.unit], groups // taps, self.columns
        start = self.head(taps, per)
        whole = flat[: count * (start + groups * n * 4)].reshape(count, -1)
        head = np.ascontiguousarray(whole[:, :start]).view(np.int32)
        table = head[:, HEAD * n :][:, : taps * (per + ENDS)].reshape(count, taps, -1)
        order = table[..., ENDS:].astype(np.int64) // step
        ordered = whole[:, start:].reshape(count, taps, per, n, step)
        fours = np.zeros_like(ordered)
        np.put_along_axis(fours, order[..., None, None], ordered, 2)
        columns = fours.transpose(0, 3, 1, 2, 4).reshape(count, n, -1)
        return columns, np.ascontiguousarray(head[:, n : 2 * n])


def _ordered(fours: Array, usual: int) -> tuple[Array, Array]:
    """Choose the order of fours[panel, tap, four, column, byte], and find the ends of both kinds at each level.

    Fours come in pairs of partners; first those that are not turned where the largest byte is `usual` at most, then by
    the sums of both.
    """
    count, taps, groups = fours.shape[:3]
    sums = _sums(fours).transpose(1, 2, 3, 0, 4, 5).reshape(count * taps, groups, -1)
    limit = ((1 << 15) - 1) // usual
    two = partners(sums, limit)
    each = np.take_along_axis(sums, two.reshape(count * taps, -1, 1), 1).reshape(*two.shape, sums.shape[2])
    alone, both = each.max((2, 3), initial=0), each.sum(2).max(2, initial=0)
    by = np.argsort(np.maximum(alone - limit, 0) * (1 << 10) + both, axis=1, kind="stable")
    order = np.take_along_axis(two, by[..., None], 1).reshape(count * taps, -1)
    if groups % 2:
        order = np.concatenate([order, groups * (groups - 1) // 2 - order.sum(1, keepdims=True)], 1)
    most = np.take_along_axis(sums.max(2), order, 1)
    ends = np.stack([2 * _beyond(np.take_along_axis(both, by, 1)), _beyond(most)], -1)
    return order.reshape(count, taps, groups), ends.reshape(count, taps, ENDS)


def _of_turning(fours: Array, turned: Array) -> Array:
    """Compute what is added to the sums of each column at each level, where so many fours of each tap are turned.

    fours[panel, tap, four, column, byte], turned[panel, tap, level]: [panel, level, column].
    """
    each = np.where(fours < 0, HIGHEST - 1, HIGHEST) * fours.astype(np.int32)
    ends = np.cumsum(each.sum(4, dtype=np.int32)[:, :, ::-1], axis=2, dtype=np.int32)
    ends = np.concatenate([np.zeros_like(ends[:, :, :1]), ends], 2)
    return np.take_along_axis(ends, turned[..., None], 2).sum(1, dtype=np.int32)
