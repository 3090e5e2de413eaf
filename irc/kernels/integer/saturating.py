"""The register tile of bytes for processors that add products of bytes in pairs, as words that saturate (VPMADDUBSW).

An instruction adds two products of unsigned bytes of x and signed ones of w.  Their sum fits into a word whatever x
is, if of the two weights neither the positive ones nor the negative ones add up to more than `MOST`.  Weights are
constants, so that this is known when they are packed: of each panel and tap, the fours of neighbours in k come in this
order, and none saturates.

0. Fours whose neighbouring pairs fit for all columns of the panel.
1. Fours that fit when their bytes are paired otherwise: 0 with 2, 1 with 3.  Those of x are shuffled alike.
2. Fours that fit with 0 beside 3, and 1 beside 2.
3. All others: bytes of both become words, of which `madd` adds the products of two.

A panel has the sums of its columns, what is added to them, then its order (for each tap the ends of the four classes,
and where each four stands), then the fours.
"""

from __future__ import annotations

from dataclasses import dataclass
from textwrap import indent
from typing import Any

import numpy as np

from irc.kernels.core.base import Array
from irc.kernels.core.text import Piece, piece
from irc.kernels.integer.problem import STEP
from irc.kernels.integer.tile import BytesTile

MOST = 128
"""255 times as much fits into a word, of either sign."""
PAIRINGS = ((0, 1, 2, 3), (0, 2, 1, 3), (0, 3, 1, 2))
"""Orders of the bytes of a four, whose first two are a pair, and whose last two are one."""
CLASSES = len(PAIRINGS) + 1
LINE = 64
"""The fours begin at a multiple of so many bytes."""

_ORDER = """\
/* The bytes of a panel's order. */
IRC_INLINE int64_t irc_bytes_order_size(const irc_bytes_walk *w) {
    return (w->rows * w->columns * (w->groups + $classes) * 4 + $line - 1) / $line * $line;
}
IRC_INLINE int64_t irc_bytes_order_at(const int8_t *order, int64_t i) {
    int32_t found;
    __builtin_memcpy(&found, order + 4 * i, 4);
    return found;
}
/* Four bytes of x in all lanes. */
IRC_INLINE __m${bits}i irc_bytes_four_$bits(const uint8_t *x) {
    int32_t four;
    __builtin_memcpy(&four, x, 4);
    return ${mm}_set1_epi32(four);
}
"""

_FITTING = """\
for (; j < end; j++, p += 4 * $NR, next += hop) {
    const int64_t k = tap + irc_bytes_order_at(places, j);
    $V b[$NV];
    EACH(v < $NV) b[v] = $load(p + v * $bytes);
    __builtin_prefetch(next, 0, 2);
    IRC_FULL_UNROLL
    for (int i = 0; i < R; i++) {
        const $V all = $four;
        EACH(v < $NV) acc[i][v] = $plus(acc[i][v], $madd(${mm}_maddubs_epi16(all, b[v]), one));
    }
}
"""
"""The products of fours whose pairs fit, up to the end of their class."""

_TILE = """
/* sums[R][$NR] = the columns' own + A . panel - zero * (columns' sums); rows of A begin at a[at[i]].  A line of what is
   `ahead` of each four of the panel is fetched; 0: the first one again, as fetching what is being loaded costs. */
IRC_INLINE void ${tile}(const int R, const $E *a, const int64_t *at, const irc_bytes_walk *w,
                        const int8_t *restrict panel, int64_t ahead, int32_t zero, int32_t *restrict sums) {
    static const int8_t pairings[2][16] = {$shuffles};
    $V acc[$MR][$NV], one = ${mm}_set1_epi16(1);
    __asm__("" : "+x"(one)); /* a register, not a constant in memory for each product */
    IRC_FULL_UNROLL
    for (int v = 0; v < $NV; v++) {
        const $V own = $load(panel + (v + $NV) * $bytes);
        acc[0][v] = $minus(own, $times($load(panel + v * $bytes), $all(zero)));
    }
    EACH(v < $NV, i < R - 1) acc[i + 1][v] = acc[0][v];
    const int64_t hop = ahead ? 4 * $NR : 0;
    const int8_t *order = panel + 8 * $NR, *p = order + irc_bytes_order_size(w), *next = p + ahead;
    const $E *x[$MR];
    EACH(i < R) x[i] = a + at[i];
    for (int64_t r = 0; r < w->rows; r++) {
        for (int64_t s = 0; s < w->columns; s++) {
            const int64_t tap = r * w->row + s * w->column;
            const int8_t *const places = order + 4 * $classes;
            int64_t j = 0, end = irc_bytes_order_at(order, 0);
            $as_they_stand
            for (int c = 0; c < 2; c++) {
                const $V shuffle = $repeat(_mm_loadu_si128((const __m128i *)pairings[c]));
                end = irc_bytes_order_at(order, 1 + c);
                $shuffled
            }
            end = irc_bytes_order_at(order, 3);
            for (; j < end; j++, p += 4 * $NR, next += hop) {
                const int64_t k = tap + irc_bytes_order_at(places, j);
                $V even[$NV], odd[$NV];
                IRC_FULL_UNROLL
                for (int v = 0; v < $NV; v++) {
                    odd[v] = $load(p + v * $bytes);
                    even[v] = ${mm}_srai_epi16(${mm}_slli_epi16(odd[v], 8), 8);
                    odd[v] = ${mm}_srai_epi16(odd[v], 8);
                }
                __builtin_prefetch(next, 0, 2);
                IRC_FULL_UNROLL
                for (int i = 0; i < R; i++) {
                    const $V all = irc_bytes_four_$bits(x[i] + k), first = $and(all, ${mm}_set1_epi16(255));
                    const $V second = ${mm}_srli_epi16(all, 8);
                    IRC_FULL_UNROLL
                    for (int v = 0; v < $NV; v++) {
                        acc[i][v] = $plus(acc[i][v], $madd(first, even[v]));
                        acc[i][v] = $plus(acc[i][v], $madd(second, odd[v]));
                    }
                }
            }
            order = places + 4 * end;
        }
    }
    EACH(i < R, v < $NV) $store(sums + i * $NR + v * $lanes, acc[i][v]);
}
"""


def _fitting(four: str, depth: int) -> str:
    """Print the loop over fours of x that `four` reads, in so many columns."""
    return indent(_FITTING.replace("$four", four), " " * depth).strip()


TILE = _TILE.replace("$as_they_stand", _fitting("irc_bytes_four_$bits(x[i] + k)", 12)).replace(
    "$shuffled", _fitting("${mm}_shuffle_epi8(irc_bytes_four_$bits(x[i] + k), shuffle)", 16)
)


def order(bits: int) -> Piece:
    """Print what reads the order of a panel, and fours of bytes."""
    return piece("IRC_BYTES_ORDER_$bits", _ORDER, classes=CLASSES, line=LINE, bits=bits, mm=f"_mm{bits}")


def crowded(weights: Array) -> float:
    """Compute of weights[outputs, k], neighbours in k side by side, the share of pairs that do not fit into a word."""
    whole = weights.shape[1] // 2 * 2
    if not whole or not len(weights):
        return 0.0
    pairs = weights[:, :whole].astype(np.int16).reshape(len(weights), -1, 2)
    return float(np.mean(_beyond(pairs[..., 0], pairs[..., 1])))


def _beyond(a: Array, b: Array) -> Array:
    return (np.maximum(a, 0) + np.maximum(b, 0) > MOST) | (np.minimum(a, 0) + np.minimum(b, 0) < -MOST)


@dataclass(frozen=True)
class SaturatingTile(BytesTile):
    """A tile of `rows` × `vectors` accumulators whose panels are ordered so that no pair saturates."""

    @property
    def names(self) -> dict[str, Any]:
        mm = self.prefix
        bits = self.isa.vector * 8
        bytes_of = [[4 * d + i for d in range(4) for i in order] for order in PAIRINGS[1:]]
        return super().names | {
            "mm": mm,
            "bits": bits,
            "classes": CLASSES,
            "line": LINE,
            "shuffles": ", ".join(f"{{{', '.join(map(str, b))}}}" for b in bytes_of),
            "plus": f"{mm}_add_epi32",
            "madd": f"{mm}_madd_epi16",
            "and": f"{mm}_and_si{bits}",
            "repeat": f"{mm}_broadcastsi128_si256" if bits == 256 else f"{mm}_broadcast_i32x4",
        }

    @property
    def text(self) -> str:
        return TILE

    @property
    def size(self) -> str:
        return f"{8 * self.columns} + irc_bytes_order_size(&w->walk) + {super().body_size}"

    def head(self, taps: int, groups: int) -> int:
        return 8 * self.columns + -(-taps * (groups + CLASSES) * 4 // LINE) * LINE

    def panels(self, columns: Array, own: Array | None, taps: int = 1) -> Array:
        count, _, k = columns.shape
        step, groups = STEP[self.unit], k // taps // STEP[self.unit]
        fours = columns.astype(np.int16).reshape(count, self.columns, taps, groups, step)
        pairing = np.full((count, taps, groups), len(PAIRINGS), np.int64)
        for kind, (a, b, c, d) in reversed([*enumerate(PAIRINGS)]):
            beyond = _beyond(fours[..., a], fours[..., b]) | _beyond(fours[..., c], fours[..., d])
            pairing[~beyond.any(1)] = kind
        order = np.argsort(pairing, axis=2, kind="stable")
        ordered = np.take_along_axis(fours, order[:, None, :, :, None], 3)
        found = np.take_along_axis(pairing, order, 2)
        for kind in range(1, len(PAIRINGS)):
            ordered = np.where((found == kind)[:, None, :, :, None], ordered[..., PAIRINGS[kind]], ordered)
        ends = (pairing[..., None] <= np.arange(CLASSES)).sum(2)
        table = np.concatenate([ends, order * step], 2).astype(np.int32).reshape(count, -1)
        body = np.ascontiguousarray(ordered.astype(np.int8).transpose(0, 2, 3, 1, 4)).reshape(count, -1)
        head = np.zeros((count, self.head(taps, groups) // 4), np.int32)
        head[:, : self.columns] = columns.sum(2, dtype=np.int32)
        if own is not None:
            head[:, self.columns : 2 * self.columns] = own.reshape(count, self.columns)
        head[:, 2 * self.columns : 2 * self.columns + table.shape[1]] = table
        return np.concatenate([head.view(np.int8), body], 1).reshape(-1)

    def unpanelled(self, flat: Array, count: int, groups: int, taps: int = 1) -> tuple[Array, Array]:
        step, per = STEP[self.unit], groups // taps
        start = self.head(taps, per)
        whole = flat[: count * (start + groups * self.columns * 4)].reshape(count, -1)
        head = np.ascontiguousarray(whole[:, :start]).view(np.int32)
        own = head[:, self.columns : 2 * self.columns]
        table = head[:, 2 * self.columns :][:, : taps * (per + CLASSES)].reshape(count, taps, -1)
        ends, order = table[..., :CLASSES], table[..., CLASSES:].astype(np.int64) // step
        found = (np.arange(per)[:, None] >= ends[:, :, None]).sum(3)
        ordered = whole[:, start:].reshape(count, taps, per, self.columns, step)
        for kind in range(1, len(PAIRINGS)):
            back = ordered[..., np.argsort(PAIRINGS[kind])]
            ordered = np.where((found == kind)[..., None, None], back, ordered)
        fours = np.zeros_like(ordered)
        np.put_along_axis(fours, order[..., None, None], ordered, 2)
        return fours.transpose(0, 3, 1, 2, 4).reshape(count, self.columns, -1), np.ascontiguousarray(own)
