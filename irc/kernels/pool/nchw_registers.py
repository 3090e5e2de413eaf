"""Pooling, NCHW, in registers: the rows under a vector of windows are folded, then the windows' columns by permuting.

Two vectors hold the columns under a vector of neighbouring windows, as many windows as fit.  Nothing is kept between
them, so that a row of a small plane costs little more than its loads; columns outside the input are never read, and
count as -inf for the maximum and as nothing in the sum.

Threads split planes (images × channels).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from irc.kernels.core.costs import BLENDED_ROW, CUT_ROW, LOADS, LONG_ROW_IN_HALVES, PERMUTED, PERMUTED_APART, in_halves
from irc.kernels.core.epilogue import plain
from irc.kernels.core.problem import likely, likely_extent
from irc.kernels.core.registry import kernel
from irc.kernels.core.text import Part, fill
from irc.kernels.core.tile import prelude
from irc.kernels.pool.nchw import CALL, PlanePool
from irc.kernels.pool.problem import PoolProblem

_BODY = """
/* A vector of columns of n rows `step` apart, folded: the columns low to high - 1. */
IRC_INLINE $V ${S}_rows(const $T *x, int64_t step, int64_t n, int64_t low, int64_t high) {
    if (low >= $L || high <= 0) return ${V}_all($empty);
    if (low <= 0 && high >= $L) {
        $V acc = ${V}_load(x);
        for (int64_t k = 1; k < n; k++) {
            const $V next = ${V}_load(x + k * step);
            acc = $fold;
        }
        return acc;
    }
    $V acc = ${V}_load_between(x, low, high, ${V}_all($empty));
    for (int64_t k = 1; k < n; k++) {
        const $V next = ${V}_load_between(x + k * step, low, high, ${V}_all($empty));
        acc = $fold;
    }
    return acc;
}

/* $P windows next to one another, of the columns in a and in b behind it. */
IRC_INLINE $V ${S}_windows($V a, $V b) {
    (void)b;
    $V acc = $first;
$taps    return acc;
}

/* A row of outputs, of n rows of the input; y has room for `left` of them. */
IRC_INLINE void ${S}_row(const ${S}_args *g, const $T *x, int64_t n, $T *y, int64_t left$shares) {
    $V a = ${V}_all($empty);
    for (int64_t j = 0; j < g->ow; j += $P) {
        const int64_t low = g->pad_w - j * $SW, high = g->iw + low;
        if ($apart || !j) a = ${S}_rows(x - low, $DH * g->iw, n, low, high);
        const $V b = ${S}_rows(x - low + $L, $DH * g->iw, n, low - $L, high - $L);
        $V acc = ${S}_windows(a, b);$divide
        if (left - j >= $L) ${V}_store(y + j, acc); /* what is too much is written over */
        else ${V}_store_part(y + j, acc, g->ow - j < $P ? g->ow - j : $P);
        a = b;
    }
}

static void ${S}_plane(const ${S}_args *g, const $T *x, $T *y$counts) {$room
    for (int64_t oy = 0; oy < g->oh; oy++) {
        int64_t first;
        const int64_t top = oy * $SH - g->pad_h, n = ${S}_taps(top, 0, g->ih, $KH, $DH, &first);
        const int64_t left = (g->oh - oy) * g->ow;
        const $T *from = x + (top + first * $DH) * g->iw;
        $T *to = y + oy * g->ow;$share
        if (n == $KH) ${S}_row(g, from, $KH, to, left$given);
        else if (n) ${S}_row(g, from, n, to, left$given);
        else for (int64_t j = 0; j < g->ow; j++) to[j] = $nothing;
    }
}
"""

_SHARE = """
        int64_t ignored;
        const int64_t taps = ${S}_taps(top, $low_h, $high_h, $KH, $DH, &ignored);
        if (taps != known) { /* divisions take long: once for all rows of as many taps */
            for (int64_t j = 0; j < g->ow; j += $P)
                ${V}_store(shares + j, 1 / (${V}_all(($T)taps) * ${V}_load(counts + j)));
            known = taps;
        }"""

_COUNTS = """
    static const $T ones[$L] = {$ones};
    $T *const counts = ($T *)own, *const shares = counts + g->ow + $L;
    for (int64_t j = 0; j < g->ow; j += $P) {
        const int64_t low = $low_w + g->pad_w - j * $SW, high = $high_w + g->pad_w - j * $SW;
        const $V a = ${V}_load_between(ones, low, high, ($V){0});
        ${V}_store(counts + j, ${S}_windows(a, ${V}_load_between(ones, low - $L, high - $L, ($V){0})));
    }"""


@kernel
class NchwRegisterPoolKernel(PlanePool):
    """A generated pool of planes whose rows follow one another, of windows whose columns two vectors hold."""

    def fits(self, problem: PoolProblem) -> bool:
        # The shares of windows that are counted need memory for a row.
        return self._pixels > 1 and (not self.counts or problem.result[1].is_const)

    def cycles(self, problem: PoolProblem) -> float:
        oh, ow = map(likely_extent, problem.result)
        vectors = -(-ow // self._pixels)
        folded = vectors * (2 * self.window[0] if self._apart else self.window[0]) + self.window[0]
        ends = BLENDED_ROW
        if self.tile.isa.name == "avx512":  # vectors lie across lines of the cache, and each has its masks
            folded, ends = LOADS * folded, vectors * CUT_ROW
        one = PERMUTED if self.strides[1] == 1 or self.tile.isa.name == "avx512" else PERMUTED_APART
        permuted = vectors * self.window[1] * one
        row = folded / LOADS + permuted + ends
        if in_halves(self.tile.isa) and self.strides[1] == 1 and likely_extent(problem.input[1]) > 2 * self.tile.lanes:
            row *= LONG_ROW_IN_HALVES
        return likely(problem.batch) * likely(problem.channels) * oh * row

    @property
    def label(self) -> str:
        return "registers"

    def own_bytes(self, sizes: Mapping[str, int]) -> int:
        return 2 * (sizes["ow"] + self.tile.lanes) * self.tile.dtype.itemsize if self.counts else 0

    @property
    def _pixels(self) -> int:
        """Windows of a vector."""
        return max(0, min(self.tile.lanes, (2 * self.tile.lanes - self.span) // self.strides[1] + 1))

    @property
    def _apart(self) -> bool:
        """Whether the second vector of columns is not the first one of the next windows."""
        return self._pixels * self.strides[1] != self.tile.lanes

    def parts(self) -> list[Part]:
        t, given = self.tile, self.given
        shares: dict[str, object] = dict.fromkeys(("shares", "divide", "counts", "room", "share", "given"), "")
        first = passed = ""
        shares["nothing"] = given["empty"]
        if self.counted == "window" and self.mode == "average":
            shares["divide"] = f"\n        acc *= ({given['T']})1 / {self.window[0] * self.window[1]};"
        elif self.counts:
            ones = ", ".join("1" * t.lanes)
            more = given | self.bounds | {"P": self._pixels, "ones": ones}
            shares = {
                "shares": f", const {given['T']} *shares",
                "divide": f"\n        acc *= {given['V']}_load(shares + j);",
                "counts": f", const {given['T']} *counts, {given['T']} *shares",
                "room": "\n    int64_t known = -1;",
                "share": fill(_SHARE, **more),
                "given": ", shares",
                "nothing": "0 * shares[j]",
            }
            first, passed = fill(_COUNTS, **more), ", counts, shares"
        body = given | shares | {"P": self._pixels, "apart": int(self._apart)}
        return [
            prelude(t, plain(t.dtype)),
            fill(CALL, **given),
            fill(_BODY, **body, first=self._columns(0), taps="".join(self._taps())),
            *self.division(first, passed),
        ]

    @property
    def summary(self) -> str:
        (kh, kw), (sh, sw) = self.window, self.strides
        return f"Pool in registers, NCHW, {self.tile.dtype}: {self.mode} of {kh} x {kw} windows, strides {sh} and {sw}."

    def _columns(self, tap: int) -> str:
        """Print the vector of the columns that are a tap of the windows; lanes behind them hold anything."""
        last = 2 * self.tile.lanes - 1
        lanes = [min(tap * self.dilations[1] + i * self.strides[1], last) for i in range(self.tile.lanes)]
        if lanes == list(range(self.tile.lanes)):
            return "a"
        return f"__builtin_shufflevector(a, b, {', '.join(map(str, lanes))})"

    def _taps(self) -> Iterator[str]:
        for k in range(1, self.window[1]):
            yield f"    acc = {self.folded(self._columns(k))};\n"
