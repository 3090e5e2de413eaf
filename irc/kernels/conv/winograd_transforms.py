"""The transforms of Winograd's minimal filtering, F(outputs, window), of four, six or eight inputs along an axis.

A tile of m × m outputs of windows of r × r comes of n × n inputs, n = m + r - 1:

    Y = Aᵀ [Σ over ic (G g Gᵀ) · (Bᵀ d B)] A

Axes may differ, and windows of one tap along an axis have lines for tiles.

F(2 × 2, 3 × 3) takes 16 products instead of 36; its transforms only add and subtract, with an error below a direct
sum's, as sums are shorter.  F(4 × 4, 3 × 3) takes 36 instead of 144, and multiplies.  What it loses depends on the
points it interpolates at: with 0, ±1, ±2 and infinity as in the paper, errors are four times those of a direct sum in
f32, the largest eight times; with 0, ±3/4, ±3/2 and infinity, as here, twice.  Six inputs are two outputs of five taps,
F(2 × 2, 5 × 5), 36 products instead of 100, with the same errors; and so have lines of eight inputs, with the points 0,
±1/2, ±1, ±2 and infinity, which are four of five taps or two of seven, 8 products instead of 20 or 14.  All factors of
inputs and outputs are exact in f32.

Sources: Lavin and Gray, "Fast Algorithms for Convolutional Neural Networks", 2015; on points: Barabasz et al., "Error
Analysis and Improving the Accuracy of Winograd Convolution for Deep Neural Networks", 2020.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt

from irc.kernels.core.problem import Pair
from irc.kernels.core.text import Part, piece

_ENTER_LINES = {
    4: """\
IRC_INLINE void irc_winograd_enter_4_$V(const $V d[4], $V t[4]) {
    t[0] = d[2] - d[0];
    t[1] = d[1] + d[2];
    t[2] = d[2] - d[1];
    t[3] = d[3] - d[1];
}
""",
    6: """\
IRC_INLINE void irc_winograd_enter_6_$V(const $V d[6], $V t[6]) {
    const $V near_even = d[4] - ($T)2.25 * d[2], near_odd = d[3] - ($T)2.25 * d[1];
    const $V far_even = d[4] - ($T)0.5625 * d[2], far_odd = d[3] - ($T)0.5625 * d[1];
    t[0] = d[4] - ($T)2.8125 * d[2] + ($T)1.265625 * d[0];
    t[1] = near_even + ($T)0.75 * near_odd;
    t[2] = near_even - ($T)0.75 * near_odd;
    t[3] = far_even + ($T)1.5 * far_odd;
    t[4] = far_even - ($T)1.5 * far_odd;
    t[5] = d[5] - ($T)2.8125 * d[3] + ($T)1.265625 * d[1];
}
""",
    8: """\
IRC_INLINE void irc_winograd_enter_8_$V(const $V d[8], $V t[8]) {
    const $V half_even = d[6] - ($T)5 * d[4] + ($T)4 * d[2], half_odd = d[5] - ($T)5 * d[3] + ($T)4 * d[1];
    const $V one_even = d[6] - ($T)4.25 * d[4] + d[2], one_odd = d[5] - ($T)4.25 * d[3] + d[1];
    const $V two_even = d[6] - ($T)1.25 * d[4] + ($T)0.25 * d[2], two_odd = d[5] - ($T)1.25 * d[3] + ($T)0.25 * d[1];
    t[0] = d[6] - d[0] + ($T)5.25 * (d[2] - d[4]);
    t[1] = half_even + ($T)0.5 * half_odd;
    t[2] = half_even - ($T)0.5 * half_odd;
    t[3] = one_even + one_odd;
    t[4] = one_even - one_odd;
    t[5] = two_even + ($T)2 * two_odd;
    t[6] = two_even - ($T)2 * two_odd;
    t[7] = d[7] - d[1] + ($T)5.25 * (d[3] - d[5]);
}
""",
}
"""By the inputs of a line: their values at the points."""
_LEAVE_LINES = {
    (4, 2): """\
IRC_INLINE void irc_winograd_leave_4_2_$V(const $V m[4], $V y[2]) {
    y[0] = m[0] + m[1] + m[2];
    y[1] = m[1] - m[2] + m[3];
}
""",
    (6, 4): """\
IRC_INLINE void irc_winograd_leave_6_4_$V(const $V m[6], $V y[4]) {
    const $V near_even = m[1] + m[2], near_odd = m[1] - m[2], far_even = m[3] + m[4], far_odd = m[3] - m[4];
    y[0] = m[0] + near_even + far_even;
    y[1] = ($T)0.75 * near_odd + ($T)1.5 * far_odd;
    y[2] = ($T)0.5625 * near_even + ($T)2.25 * far_even;
    y[3] = m[5] + ($T)0.421875 * near_odd + ($T)3.375 * far_odd;
}
""",
    (6, 2): """\
IRC_INLINE void irc_winograd_leave_6_2_$V(const $V m[6], $V y[2]) {
    y[0] = m[0] + (m[1] + m[2]) + (m[3] + m[4]);
    y[1] = m[5] + ($T)0.75 * (m[1] - m[2]) + ($T)1.5 * (m[3] - m[4]);
}
""",
    (8, 4): """\
IRC_INLINE void irc_winograd_leave_8_4_$V(const $V m[8], $V y[4]) {
    const $V half_even = m[1] + m[2], half_odd = m[1] - m[2], one_even = m[3] + m[4], one_odd = m[3] - m[4];
    const $V two_even = m[5] + m[6], two_odd = m[5] - m[6];
    y[0] = m[0] + half_even + one_even + two_even;
    y[1] = ($T)0.5 * half_odd + one_odd + ($T)2 * two_odd;
    y[2] = ($T)0.25 * half_even + one_even + ($T)4 * two_even;
    y[3] = m[7] + ($T)0.125 * half_odd + one_odd + ($T)8 * two_odd;
}
""",
    (8, 2): """\
IRC_INLINE void irc_winograd_leave_8_2_$V(const $V m[8], $V y[2]) {
    y[0] = m[0] + (m[1] + m[2]) + (m[3] + m[4]) + (m[5] + m[6]);
    y[1] = m[7] + ($T)0.5 * (m[1] - m[2]) + (m[3] - m[4]) + ($T)2 * (m[5] - m[6]);
}
""",
}
"""By the positions and the outputs of a line: what the sums at the points make."""

_ENTER = """\
/* One vector of channels of one tile, transformed: $N x $N pixels, those outside (a bit is 0) are zero. */
IRC_INLINE void irc_winograd_${tile}_enter_$V(const int whole, uint64_t inside, const $T *from, int64_t row,
                                          int64_t pixel, int64_t channels, $T *to, int64_t step) {
    $V t[$N][$N]; /* by columns */
    IRC_FULL_UNROLL
    for (int x = 0; x < $N; x++) {
        $V d[$N];
        IRC_FULL_UNROLL
        for (int y = 0; y < $N; y++) {
            const $T *p = from + y * row + x * pixel;
            if (whole) d[y] = ${V}_load(p);
            else if (!(inside >> ($N * y + x) & 1)) d[y] = ($V){0};
            else d[y] = channels >= $L ? ${V}_load(p) : ${V}_load_part(p, channels);
            if (y >= $N - $rows && x < $columns) /* what is new three tiles further on */
                __builtin_prefetch(from + y * row + (2 * $columns + $N + x) * pixel);
        }
        irc_winograd_enter_${N}_$V(d, t[x]);
    }
    IRC_FULL_UNROLL
    for (int y = 0; y < $N; y++) {
        $V line[$N], made[$N];
        EACH(x < $N) line[x] = t[x][y];
        irc_winograd_enter_${N}_$V(line, made);
        EACH(x < $N) ${V}_store(to + ($N * y + x) * step, made[x]);
    }
}
"""

_ENTER_LINE = """\
/* One vector of channels of one tile, transformed: $N pixels in a line, those outside (a bit is 0) are zero. */
IRC_INLINE void irc_winograd_${tile}_enter_$V(const int whole, uint64_t inside, const $T *from, int64_t row,
                                          int64_t pixel, int64_t channels, $T *to, int64_t step) {
    $V d[$N], made[$N];
    (void)row, (void)pixel;
    IRC_FULL_UNROLL
    for (int i = 0; i < $N; i++) {
        const $T *p = from + i * $along;
        if (whole) d[i] = ${V}_load(p);
        else if (!(inside >> i & 1)) d[i] = ($V){0};
        else d[i] = channels >= $L ? ${V}_load(p) : ${V}_load_part(p, channels);
        if (i < $M) __builtin_prefetch(from + (2 * $M + $N + i) * $along); /* what is new three tiles further on */
    }
    irc_winograd_enter_${N}_$V(d, made);
    EACH(i < $N) ${V}_store(to + i * step, made[i]);
}
"""

_LEAVE_LINE = """\
/* The $M outputs of one vector of channels of one tile. */
IRC_INLINE void irc_winograd_${tile}_leave_$V(const $T *from, int64_t step, $V y[$rows][$columns]) {
    $V m[$N];
    EACH(i < $N) m[i] = ${V}_load(from + i * step);
    irc_winograd_leave_${N}_${M}_$V(m, &y[0][0]);
}
"""

_APART = """\
/* As above, of a tile that is all inside and of any other: once for all kernels, because compilers take long. */
IRC_APART void irc_winograd_${tile}_enter_whole_$V(const $T *from, int64_t row, int64_t pixel, $T *to, int64_t step) {
    irc_winograd_${tile}_enter_$V(1, 0, from, row, pixel, $L, to, step);
}
IRC_APART void irc_winograd_${tile}_enter_edge_$V(uint64_t inside, const $T *from, int64_t row, int64_t pixel,
                                               int64_t channels, $T *to, int64_t step) {
    irc_winograd_${tile}_enter_$V(0, inside, from, row, pixel, channels, to, step);
}
"""

_LEAVE = """\
/* The $rows x $columns outputs of one vector of channels of one tile. */
IRC_INLINE void irc_winograd_${tile}_leave_$V(const $T *from, int64_t step, $V y[$rows][$columns]) {
    $V t[$N][$rows];
    IRC_FULL_UNROLL
    for (int i = 0; i < $N; i++) {
        $V m[$N];
        EACH(x < $N) m[x] = ${V}_load(from + ($N * x + i) * step);
        irc_winograd_leave_${N}_${rows}_$V(m, t[i]);
    }
    IRC_FULL_UNROLL
    for (int k = 0; k < $rows; k++) {
        $V line[$N];
        EACH(i < $N) line[i] = t[i][k];
        irc_winograd_leave_${N}_${columns}_$V(line, y[k]);
    }
}
"""


@dataclass(frozen=True)
class Filtering:
    """F(sides, window) from so many inputs along each axis of several taps, by their values at the points.

    The last of them is infinity; along an axis of one tap there is one input, and one output.
    """

    window: Pair
    along: int

    @property
    def inputs(self) -> Pair:
        """The rows and columns of a tile of inputs."""
        down, across = (self.along if taps > 1 else 1 for taps in self.window)
        return down, across

    @property
    def sides(self) -> Pair:
        """The rows and columns of a tile of outputs."""
        down, across = (n - taps + 1 for n, taps in zip(self.inputs, self.window, strict=True))
        return down, across

    @property
    def taps(self) -> int:
        """The taps of a window."""
        return math.prod(self.window)

    @property
    def outputs(self) -> int:
        """The outputs of a tile."""
        return math.prod(self.sides)

    @property
    def positions(self) -> int:
        """The products of a tile, one for each of its inputs."""
        return math.prod(self.inputs)

    @property
    def name(self) -> str:
        """The sides, and the window if it has more than three taps along an axis."""
        sides, window = "{}x{}".format(*self.sides), "{}x{}".format(*self.window)
        return sides if max(self.window) == 3 else f"{sides}_{window}"

    def line(self, taps: int) -> npt.NDArray[np.float64]:
        """Return the matrix G of inputs × taps: the window's polynomial at each point, over the distances to others."""
        points = _POINTS[self.along]
        powers = [[p**k / math.prod(p - q for q in points if q != p) for k in range(taps)] for p in points]
        return np.array([*powers, [0.0] * (taps - 1) + [1.0]])

    @cached_property
    def weights(self) -> npt.NDArray[np.float64]:
        """The matrix of positions × taps, of both axes."""
        down, across = (self.line(taps) if taps > 1 else np.ones((1, 1)) for taps in self.window)
        return np.kron(down, across).astype(np.float64)

    def parts(self, given: Mapping[str, object]) -> list[Part]:
        """Print what transforms vectors, with a kernel's names of types.

        `irc_winograd_NAME_enter_whole_V` and `_enter_edge_V`, and `_leave_V`, which becomes a part of who calls it.
        """
        n, (rows, columns), plane = self.along, self.sides, min(self.window) > 1
        own = {"N": n, "M": max(self.sides), "rows": rows, "columns": columns, "tile": self.name}
        own["along"] = "row" if self.window[1] == 1 else "pixel"
        name = f"enter_{n}_$V"
        found: list[Part] = [piece(f"IRC_WINOGRAD_{name}", _ENTER_LINES[n], f"irc_winograd_{name}", **given)]
        for m in sorted({rows, columns} if plane else {max(self.sides)}):
            name = f"leave_{n}_{m}_$V"
            found.append(piece(f"IRC_WINOGRAD_{name}", _LEAVE_LINES[n, m], f"irc_winograd_{name}", **given))
        texts = (
            ("enter", _ENTER if plane else _ENTER_LINE, ("enter",)),
            ("apart", _APART, ("enter_whole", "enter_edge")),
            ("leave", _LEAVE if plane else _LEAVE_LINE, ("leave",)),
        )
        prefix = f"irc_winograd_{self.name}"
        for way, text, names in texts:
            defined = (f"{prefix}_{name}_$V" for name in names)
            found.append(piece(f"IRC_WINOGRAD_{self.name}_{way}_$V", text, *defined, **{**given, **own}))
        return found


_POINTS = {4: (0.0, 1.0, -1.0), 6: (0.0, 0.75, -0.75, 1.5, -1.5), 8: (0.0, 0.5, -0.5, 1.0, -1.0, 2.0, -2.0)}
"""By the inputs of a line, without infinity."""
_TAPS = {4: (3,), 6: (3, 5), 8: (5, 7)}
"""By the inputs of a line: the taps along it that are filtered so."""
MOST_OF_PLANES = 6
"""Inputs along an axis, at most, where both have several: with eight, 512 channels lose 1.0e-5 of the largest sum."""
F2, F4 = Filtering((3, 3), 4), Filtering((3, 3), 6)


def filterings_of(window: Pair) -> tuple[Filtering, ...]:
    """List how a window can be filtered, which may have one tap along one of the axes."""
    several = [taps for taps in window if taps > 1]
    most = MOST_OF_PLANES if len(several) > 1 else max(_TAPS)
    return tuple(Filtering(window, n) for n, taps in _TAPS.items() if several and {*several} <= {*taps} and n <= most)
