"""The transforms of Winograd's minimal filtering of 3 × 3 windows, F(2 × 2, 3 × 3) and F(4 × 4, 3 × 3).

A tile of m × m outputs comes of n × n inputs, n = m + 2: Y = Aᵀ [Σ over ic (G g Gᵀ) · (Bᵀ d B)] A.

F(2 × 2) takes 16 products instead of 36; its transforms only add and subtract, with an error below a direct sum's, as
sums are shorter.  F(4 × 4) takes 36 instead of 144, and multiplies.  What it loses depends on the points it
interpolates at: with 0, ±1, ±2 and infinity as in the paper, errors are four times those of a direct sum in f32, the
largest eight times; with 0, ±3/4, ±3/2 and infinity, as here, twice.  All its factors are exact in f32.

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

from irc.kernels.core.text import Part, piece

_LINES = {
    (2, "enter"): """\
IRC_INLINE void irc_winograd_2x2_enter_line_$V(const $V d[4], $V t[4]) {
    t[0] = d[2] - d[0];
    t[1] = d[1] + d[2];
    t[2] = d[2] - d[1];
    t[3] = d[3] - d[1];
}
""",
    (2, "leave"): """\
IRC_INLINE void irc_winograd_2x2_leave_line_$V(const $V m[4], $V y[2]) {
    y[0] = m[0] + m[1] + m[2];
    y[1] = m[1] - m[2] + m[3];
}
""",
    (4, "enter"): """\
IRC_INLINE void irc_winograd_4x4_enter_line_$V(const $V d[6], $V t[6]) {
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
    (4, "leave"): """\
IRC_INLINE void irc_winograd_4x4_leave_line_$V(const $V m[6], $V y[4]) {
    const $V near_even = m[1] + m[2], near_odd = m[1] - m[2], far_even = m[3] + m[4], far_odd = m[3] - m[4];
    y[0] = m[0] + near_even + far_even;
    y[1] = ($T)0.75 * near_odd + ($T)1.5 * far_odd;
    y[2] = ($T)0.5625 * near_even + ($T)2.25 * far_even;
    y[3] = m[5] + ($T)0.421875 * near_odd + ($T)3.375 * far_odd;
}
""",
}
"""Of a line of inputs or sums, by the side of a tile of outputs."""

_ENTER = """\
/* One vector of channels of one tile, transformed: $N x $N pixels, those outside (a bit is 0) are zero. */
IRC_INLINE void irc_winograd_${M}x${M}_enter_$V(const int whole, uint64_t inside, const $T *from, int64_t row,
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
            if (y > 1 && x < $M) /* what is new three tiles further on */
                __builtin_prefetch(from + y * row + (3 * $M + 2 + x) * pixel);
        }
        irc_winograd_${M}x${M}_enter_line_$V(d, t[x]);
    }
    IRC_FULL_UNROLL
    for (int y = 0; y < $N; y++) {
        $V line[$N], made[$N];
        EACH(x < $N) line[x] = t[x][y];
        irc_winograd_${M}x${M}_enter_line_$V(line, made);
        EACH(x < $N) ${V}_store(to + ($N * y + x) * step, made[x]);
    }
}
"""

_APART = """\
/* As above, of a tile that is all inside and of any other: once for all kernels, because compilers take long. */
IRC_APART void irc_winograd_${M}x${M}_enter_whole_$V(const $T *from, int64_t row, int64_t pixel, $T *to, int64_t step) {
    irc_winograd_${M}x${M}_enter_$V(1, 0, from, row, pixel, $L, to, step);
}
IRC_APART void irc_winograd_${M}x${M}_enter_edge_$V(uint64_t inside, const $T *from, int64_t row, int64_t pixel,
                                               int64_t channels, $T *to, int64_t step) {
    irc_winograd_${M}x${M}_enter_$V(0, inside, from, row, pixel, channels, to, step);
}
"""

_LEAVE = """\
/* The $M x $M outputs of one vector of channels of one tile. */
IRC_INLINE void irc_winograd_${M}x${M}_leave_$V(const $T *from, int64_t step, $V y[$M][$M]) {
    $V t[$N][$M];
    IRC_FULL_UNROLL
    for (int i = 0; i < $N; i++) {
        $V m[$N];
        EACH(x < $N) m[x] = ${V}_load(from + ($N * x + i) * step);
        irc_winograd_${M}x${M}_leave_line_$V(m, t[i]);
    }
    IRC_FULL_UNROLL
    for (int k = 0; k < $M; k++) {
        $V line[$N];
        EACH(i < $N) line[i] = t[i][k];
        irc_winograd_${M}x${M}_leave_line_$V(line, y[k]);
    }
}
"""


@dataclass(frozen=True)
class Filtering:
    """F(outputs × outputs, 3 × 3), along each axis by interpolation at the points and at infinity."""

    outputs: int
    points: tuple[float, ...]

    @property
    def inputs(self) -> int:
        """The side of a tile of inputs."""
        return self.outputs + 2

    @property
    def positions(self) -> int:
        """The products of a tile, one for each of its inputs."""
        return self.inputs**2

    @property
    def name(self) -> str:
        return f"{self.outputs}x{self.outputs}"

    @cached_property
    def weights(self) -> npt.NDArray[np.float64]:
        """The matrix G of inputs × 3: the window's polynomial at each point, over the distances to the others."""
        rows = [np.array([1.0, p, p * p]) / math.prod(p - q for q in self.points if q != p) for p in self.points]
        return np.array([*rows, [0.0, 0.0, 1.0]])

    def parts(self, given: Mapping[str, object]) -> list[Part]:
        """Print what transforms vectors, with a kernel's names of types.

        `irc_winograd_MxM_enter_whole_V` and `_enter_edge_V`, and `_leave_V`, which becomes a part of who calls it.
        """
        names = {**given, "M": self.outputs, "N": self.inputs}
        prefix = f"irc_winograd_{self.name}"
        return [
            piece(
                f"IRC_WINOGRAD_{self.name}_{way}_$V",
                _LINES.get((self.outputs, way), "") + text,
                *(f"{prefix}_{defined}_$V" for defined in defines),
                **names,
            )
            for way, text, defines in (
                ("enter", _ENTER, ("enter",)),
                ("apart", _APART, ("enter_whole", "enter_edge")),
                ("leave", _LEAVE, ("leave",)),
            )
        ]


F2 = Filtering(2, (0.0, 1.0, -1.0))
F4 = Filtering(4, (0.0, 0.75, -0.75, 1.5, -1.5))
