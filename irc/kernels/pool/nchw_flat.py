"""Pooling, NCHW, of small planes whose rows stay as long as they are: pixels are vectors wherever their rows end.

The rows of the windows are folded into a plane in memory, along all rows of as many taps at once; then the windows'
columns, which are the elements before and behind each.  Those of other rows are blended out by masks, which are the
same for all planes.  What was just stored cannot be loaded at other places at once: several planes are folded first.

Threads split planes (images × channels).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from irc.kernels.core.costs import FOLDED_PLANE, LOADS, MASKED_TAP
from irc.kernels.core.epilogue import plain
from irc.kernels.core.problem import likely
from irc.kernels.core.registry import kernel
from irc.kernels.core.text import Part, fill
from irc.kernels.core.tile import prelude
from irc.kernels.pool.nchw import CALL, PlanePool
from irc.kernels.pool.problem import PoolProblem

LARGEST = 2560
"""Elements of a plane at most: of larger ones, masks come from too far."""
TOGETHER = 2048
"""Elements of planes that are folded before columns are."""

_BODY = """
/* Rows that follow one another, folded: to[j] from n elements `step` apart; behind them a vector may be written. */
IRC_INLINE void ${S}_rows(const $T *x, int64_t step, int64_t n, int64_t count, $T *to) {
    int64_t j = 0;
    for (; j + $L <= count; j += $L) {
        $V acc = ${V}_load(x + j);
        for (int64_t k = 1; k < n; k++) {
            const $V next = ${V}_load(x + k * step + j);
            acc = $fold;
        }
        ${V}_store(to + j, acc);
    }
    if (j < count) {
        $V acc = ${V}_load_part(x + j, count - j);
        for (int64_t k = 1; k < n; k++) {
            const $V next = ${V}_load_part(x + k * step + j, count - j);
            acc = $fold;
        }
        ${V}_store(to + j, acc);
    }
}

/* The rows of all windows of a plane. */
IRC_INLINE void ${S}_folded(const ${S}_args *g, const $T *x, $T *to) {
    const int64_t all = ${S}_least(g->oh, g->ih - ($KH - 1) * $DH + g->pad_h); /* below it, no window is cut off */
    for (int64_t oy = 0; oy < g->oh;) {
        int64_t first, rows = 1;
        const int64_t top = oy - g->pad_h, n = ${S}_taps(top, 0, g->ih, $KH, $DH, &first);
        const $T *from = x + (top + first * $DH) * g->iw;
        if (n == $KH) ${S}_rows(from, $DH * g->iw, $KH, (rows = all - oy) * g->iw, to + oy * g->ow);
        else if (n) ${S}_rows(from, $DH * g->iw, n, g->iw, to + oy * g->ow);
        else for (int64_t j = 0; j < g->ow; j++) to[oy * g->ow + j] = $empty;
        oy += rows;
    }
}

/* The columns of all windows of a plane; the tap `sure` stands in the row of its window. */
IRC_INLINE void ${S}_columns(const ${S}_args *g, const $T *rows, const $T *masks, $T *y, const int sure$shares) {
    const int64_t count = g->oh * g->ow;
    for (int64_t j = 0; j < count; j += $L) {
        $V acc = ${V}_all($empty);
        $unroll
        for (int k = 0; k < $KW; k++) {
            $V next = ${V}_load(rows + j + k * $DW - g->pad_w);
            if (k != sure) next = ${V}_select(${V}_load(masks + k * $pitch + j) > 0, next, ${V}_all($empty));
            acc = k ? $fold : next;
        }$divide
        if (count - j >= $L) ${V}_store(y + j, acc);
        else ${V}_store_part(y + j, acc, count - j);
    }
}
"""

_PART = """
/* Planes begin to end: images, then channels. */
static void ${S}_part(void *given, char *own, int64_t begin, int64_t end) {
    const ${S}_args *g = given;
    $T *const masks = ($T *)own, *const planes = masks + $tables * $pitch + $halo;
    for (int k = 0; k < $KW; k++)
        for (int64_t p = 0; p < $pitch; p += g->ow)
            for (int64_t j = 0, at = k * $DW - g->pad_w; j < g->ow && p + j < $pitch; j++, at++)
                masks[k * $pitch + p + j] = at >= 0 && at < g->iw;$count
    while (begin < end) {
        const int64_t n = ${S}_least(end - begin, $together);
        for (int64_t k = 0; k < n; k++) {
            const int64_t image = (begin + k) / g->channels, channel = (begin + k) % g->channels;
            ${S}_folded(g, g->x + image * g->x_batch + channel * g->x_channel, planes + k * $room);
        }
        for (int64_t k = 0; k < n; k++) {
            const int64_t image = (begin + k) / g->channels, channel = (begin + k) % g->channels;
            $T *to = g->y + image * g->y_batch + channel * g->y_channel;
            if (g->pad_w == $KW / 2 * $DW) ${S}_columns(g, planes + k * $room, masks, to, $KW / 2$given);
            else ${S}_columns(g, planes + k * $room, masks, to, -1$given);
        }
        begin += n;
    }
}
"""

_COUNT = """
    $T *const shares = masks + $KW * $pitch;
    for (int64_t p = 0; p < $pitch; p++) shares[p] = 0; /* whole vectors are read */
    for (int64_t oy = 0; oy < g->oh; oy++) {
        int64_t ignored;
        const int64_t high = ${S}_taps(oy - g->pad_h, $low_h, $high_h, $KH, $DH, &ignored);
        for (int64_t j = 0; j < g->ow; j++) {
            const int64_t wide = ${S}_taps(j - g->pad_w, $low_w, $high_w, $KW, $DW, &ignored);
            shares[oy * g->ow + j] = 1 / ($T)(high * wide);
        }
    }"""


@kernel
class NchwFlatPoolKernel(PlanePool):
    """A generated pool of small planes whose results have as many columns, at strides of one."""

    plane: tuple[int, int] = (0, 0)  # rows and columns of results

    @classmethod
    def variant(cls, problem: PoolProblem) -> dict[str, Any]:
        known = all(n.is_const for n in problem.result)
        return {"plane": tuple(map(int, problem.result))} if known else {}

    def fits(self, problem: PoolProblem) -> bool:
        (high, wide), left = self.plane, problem.padding[0][1]
        if not 0 < high * wide <= LARGEST or self.strides != (1, 1) or self.span > LARGEST:
            return False
        return problem.input[1] == problem.result[1] and left.is_const and int(left) < self.span

    def cycles(self, problem: PoolProblem) -> float:
        vectors = -(-self.plane[0] * self.plane[1] // self.tile.lanes)
        cut = min(self.plane[0], self.window[0] - 1) / 2  # rows with fewer taps, which are folded apart
        folded, taps = (vectors + cut) * self.window[0] / LOADS, vectors * self.window[1] * MASKED_TAP
        return likely(problem.batch) * likely(problem.channels) * (folded + taps + FOLDED_PLANE)

    @property
    def label(self) -> str:
        return "flat"

    def own_bytes(self, sizes: Mapping[str, int]) -> int:
        floats = self._tables * self._pitch + self._halo + self._together * self._room + self._pitch
        return floats * self.tile.dtype.itemsize

    @property
    def _tables(self) -> int:
        return self.window[1] + self.counts

    @property
    def _pitch(self) -> int:
        """Elements of a plane in whole vectors."""
        return -(-self.plane[0] * self.plane[1] // self.tile.lanes) * self.tile.lanes

    @property
    def _halo(self) -> int:
        """Elements before and behind a plane that are loaded with it, in whole vectors."""
        return -(-self.span // self.tile.lanes) * self.tile.lanes

    @property
    def _room(self) -> int:
        """Elements from one folded plane to the next."""
        return self._pitch + self._halo + self.tile.lanes

    @property
    def _together(self) -> int:
        return max(1, min(16, TOGETHER // self._room))

    @property
    def places(self) -> tuple[str, ...]:
        return ("x".join(map(str, self.plane)),)

    def parts(self) -> list[Part]:
        given: dict[str, object] = self.given | {
            "pitch": self._pitch,
            "halo": self._halo,
            "room": self._room,
            "tables": self._tables,
            "together": self._together,
            "unroll": "IRC_FULL_UNROLL" if self.window[1] <= 16 else "",
        }
        more = dict.fromkeys(("shares", "divide", "count", "given"), "")
        if self.counts:
            more["shares"] = f", const {given['T']} *shares"
            more["divide"] = f"\n        acc *= {given['V']}_load(shares + j);"
            more["count"] = fill(_COUNT, **given, **self.bounds)
            more["given"] = ", shares"
        elif self.mode == "average":
            more["divide"] = f"\n        acc *= ({given['T']})1 / {self.window[0] * self.window[1]};"
        return [
            prelude(self.tile, plain(self.tile.dtype)),
            fill(CALL, **given),
            fill(_BODY, **given, **more),
            *self.division(part=fill(_PART, **given, **more)),
        ]

    @property
    def summary(self) -> str:
        (kh, kw), (high, wide) = self.window, self.plane
        dtype = self.tile.dtype
        return f"Pool of planes of {high} x {wide} pixels, NCHW, {dtype}: {self.mode} of {kh} x {kw} windows."
