"""Pooling, NCHW: the largest element or the mean of every window.

A row of outputs takes two steps: the rows of the window are folded, vector by vector along the width, into one padded
row on the stack; then the taps of the window along that row.  Nothing outside the input is read.  Padding counts as
-inf for the maximum and is left out of the sum.

Threads split planes (images × channels).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Self

from irc.ir.dim import Dim, product
from irc.kernels.core.base import Array, Kernel, Sizes
from irc.kernels.core.costs import KEPT_IN_HALVES, LOADS, STORED_ROW, in_halves
from irc.kernels.core.epilogue import plain
from irc.kernels.core.isa import Isa
from irc.kernels.core.problem import likely, likely_extent
from irc.kernels.core.reference import strided
from irc.kernels.core.registry import kernel
from irc.kernels.core.text import Part, fill, symbol
from irc.kernels.core.tile import Tile, names, prelude
from irc.kernels.core.workspace import DIVIDE
from irc.kernels.pool.problem import Counted, Mode, PoolProblem
from irc.kernels.pool.reference import pooled

ROW = 4096  # elements of a padded row
WORTHWHILE = 50_000  # elements below which one thread does all

CALL = """
IRC_INLINE int64_t ${S}_least(int64_t a, int64_t b) { return a < b ? a : b; }

/* The taps of a window that starts at `at` which stand in [low, high): from *begin on; returns how many. */
IRC_INLINE int64_t ${S}_taps(int64_t at, int64_t low, int64_t high, int64_t taps, int64_t step, int64_t *begin) {
    *begin = at < low ? ${S}_least((low - at + step - 1) / step, taps) : 0;
    const int64_t end = at < high ? ${S}_least((high - at + step - 1) / step, taps) : 0;
    return end > *begin ? end - *begin : 0;
}
"""

_BODY = """
/* Columns lo to hi of the rows of a window, folded: to[j] from n rows `step` apart. */
IRC_INLINE void ${S}_rows(const $T *x, int64_t step, int64_t n, int64_t lo, int64_t hi, $T *to) {
    int64_t j = lo;
    for (; j + $L <= hi; j += $L) {
        $V acc = ${V}_load(x + j);
        for (int64_t k = 1; k < n; k++) {
            const $V next = ${V}_load(x + k * step + j);
            acc = $fold;
        }
        ${V}_store(to + j, acc);
    }
    if (j < hi) {
        $V acc = ${V}_load_part(x + j, hi - j);
        for (int64_t k = 1; k < n; k++) {
            const $V next = ${V}_load_part(x + k * step + j, hi - j);
            acc = $fold;
        }
        ${V}_store_part(to + j, acc, hi - j);
    }
}

/* Every $SW-th element from `from` on. */
IRC_INLINE $V ${S}_take(const $T *from) {
$take}

/* The columns of the windows: n outputs from the padded row. */
IRC_INLINE void ${S}_columns(const $T *row, int64_t n, $T *y$counts) {
    for (int64_t j = 0; j < n; j += $L) {
        $V acc = ${S}_take(row + j * $SW);
        $unroll
        for (int k = 1; k < $KW; k++) {
            const $V next = ${S}_take(row + j * $SW + k * $DW);
            acc = $fold;
        }$divide
        if (n - j >= $L) ${V}_store(y + j, acc);
        else ${V}_store_part(y + j, acc, n - j);
    }
}

static void ${S}_plane(const ${S}_args *g, const $T *x, $T *y, $T *room) {
    const int64_t most = ($row - $span) / $SW;$count_room
    for (int64_t x0 = 0; x0 < g->ow; x0 += most) {
        const int64_t cols = ${S}_least(g->ow - x0, most), at = x0 * $SW - g->pad_w;
        const int64_t width = (cols - 1) * $SW + $span;
        const int64_t lo = at < 0 ? ${S}_least(-at, width) : 0;
        const int64_t end = g->iw - at < 0 ? 0 : ${S}_least(g->iw - at, width), hi = end < lo ? lo : end;
        /* A row that was just written cannot be read at other places at once: several are, before the first is read. */
        const int64_t pitch = (width + $slack + 15) / 16 * 16, together = 4 * pitch <= $row + $slack ? 4 : 1;
        for (int64_t j = 0; j < (together - 1) * pitch + width + $slack; j++) room[j] = $empty;$count_columns
        for (int64_t y0 = 0; y0 < g->oh; y0 += together) {
            const int64_t rows = ${S}_least(g->oh - y0, together);
            for (int64_t r = 0; r < rows; r++) {
                int64_t first;
                const int64_t top = (y0 + r) * $SH - g->pad_h, n = ${S}_taps(top, 0, g->ih, $KH, $DH, &first);
                $T *row = room + r * pitch;
                if (n == $KH) ${S}_rows(x + top * g->iw + at, $DH * g->iw, $KH, lo, hi, row);
                else if (n) ${S}_rows(x + (top + first * $DH) * g->iw + at, $DH * g->iw, n, lo, hi, row);
                else for (int64_t j = lo; j < hi; j++) row[j] = $empty;
            }
            for (int64_t r = 0; r < rows; r++) {$count_row
                ${S}_columns(room + r * pitch, cols, y + (y0 + r) * g->ow + x0$counts_given);
            }
        }
    }
}
"""

_PART = """
/* Planes begin to end: images, then channels. */
static void ${S}_part(void *given$own_parameter, int64_t begin, int64_t end) {
    const ${S}_args *g = given;$fill
    for (; begin < end; begin++) {
        const int64_t image = begin / g->channels, channel = begin % g->channels;
        ${S}_plane(g, g->x + image * g->x_batch + channel * g->x_channel,
                   g->y + image * g->y_batch + channel * g->y_channel$passed);
    }
}
"""

_SPLIT = """
void $S($parameters) {
    const int64_t planes = g->batch * g->channels;
    if (planes <= 0 || g->oh <= 0 || g->ow <= 0) return;
    const double work = (double)planes * (double)(g->oh * g->ow) * ($KH + $KW);
    if (!pool || planes < 2 || work < $worthwhile) ${S}_part((void *)g$own_given, 0, planes);
    else $divided;
}
"""

_COUNT_ROOM = """
    const int64_t widest = (${S}_least(g->ow, most) + $L) / $L * $L;
    $T *const counts = room, *const shares = room + widest;
    for (int64_t j = 0; j < 2 * widest; j++) room[j] = 0; /* whole vectors are read */
    room += 2 * widest;"""

_COUNT_COLUMNS = """
        for (int64_t j = 0; j < cols; j++)
            counts[j] = ($T)${S}_taps(at + j * $SW, $low_w, $high_w, $KW, $DW, &(int64_t){0});
        for (int64_t j = cols; j < cols + $L; j++) shares[j] = 0;
        int64_t known = -1;"""

_COUNT_ROW = """
                int64_t ignored;
                const int64_t taps = ${S}_taps((y0 + r) * $SH - g->pad_h, $low_h, $high_h, $KH, $DH, &ignored);
                if (taps != known) { /* divisions take long: once for all rows of as many taps */
                    for (int64_t j = 0; j < cols; j++) shares[j] = 1 / (($T)taps * counts[j]);
                    known = taps;
                }"""


@dataclass(frozen=True)
class PlanePool(Kernel[PoolProblem]):
    """Base of pools of planes whose rows follow one another."""

    tile: Tile
    mode: Mode
    window: tuple[int, int]
    strides: tuple[int, int]
    dilations: tuple[int, int]
    counted: Counted

    problem = PoolProblem

    @classmethod
    def candidates(cls, problem: PoolProblem, isa: Isa) -> Iterator[Self]:
        """Yield the variant if nothing follows the pool and it fits the problem."""
        p = problem
        if p.layout == "nchw" and not p.epilogue.key():
            shape = (p.mode, p.window, p.strides, p.dilations, p.counted)
            found = cls(Tile(isa, p.dtype, 1, 1), *shape, **cls.variant(p))
            if found.fits(p):
                yield found

    @classmethod
    def variant(cls, problem: PoolProblem) -> dict[str, Any]:
        """Return what else the C knows of a problem."""
        return {}

    def fits(self, problem: PoolProblem) -> bool:
        """Tell whether the kernel can compute a pool of its window, strides and dilations."""
        raise NotImplementedError

    def arguments_for(self, problem: PoolProblem) -> dict[str, Dim]:
        return problem.arguments() | {"x_channel": problem.x[1], "y_channel": problem.y[1]}

    def compute(self, reads: Sequence[Array], writes: Sequence[Array], sizes: Mapping[str, int]) -> None:
        """Compute the largest element, or the mean of the positions that count, of every window."""
        planes, iw, ow = (sizes["batch"], sizes["channels"]), sizes["iw"], sizes["ow"]
        x = strided(reads[0], (*planes, sizes["ih"], iw), (sizes["x_batch"], sizes["x_channel"], iw, 1))
        y = strided(writes[0], (*planes, sizes["oh"], ow), (sizes["y_batch"], sizes["y_channel"], ow, 1))
        y[...] = pooled(self.mode, self.counted, self.window, self.strides, self.dilations, x, sizes)

    @cached_property
    def symbol(self) -> str:
        shape = f"{self.window[0]}x{self.window[1]}_s{self.strides[0]}x{self.strides[1]}"
        gaps = f"d{self.dilations[0]}x{self.dilations[1]}"
        words = self.tile.name.removeprefix("irc_tile_").rsplit("_", 1)[0]
        return symbol("pool", self.label, self.mode, shape, gaps, self.counted, *self.places, words, "")

    @property
    def places(self) -> tuple[str, ...]:
        """Name the planes that the C knows, if it is made for some."""
        return ()

    @property
    def pointers(self) -> tuple[tuple[str, str], ...]:
        t = str(names(self.tile)["T"])
        return (("x", f"const {t} *"), ("y", f"{t} *"))

    @property
    def sizes(self) -> tuple[str, ...]:
        extents = "batch channels ih iw oh ow pad_h pad_w end_h end_w x_batch x_channel y_batch y_channel"
        return tuple(extents.split())

    def flops(self, sizes: Sizes) -> Dim:
        extents = product(sizes[n] for n in ("batch", "channels", "oh", "ow"))
        return extents * (self.window[0] * self.window[1])

    @property
    def span(self) -> int:
        """Columns from the first to the last of a window."""
        return _span(self.window[1], self.dilations[1])

    @property
    def counts(self) -> bool:
        """Whether windows have different numbers of positions by which their sums are divided."""
        return self.mode == "average" and self.counted != "window"

    @property
    def bounds(self) -> dict[str, str]:
        """From where to where positions count, in templates."""
        padded = self.counted == "padded"
        low = {f"low_{a}": f"-g->pad_{a}" if padded else "0" for a in "hw"}
        return low | {f"high_{a}": f"g->i{a} + g->end_{a}" if padded else f"g->i{a}" for a in "hw"}

    @property
    def given(self) -> dict[str, object]:
        """Names in the templates of all."""
        found = names(self.tile)
        pairs = (("K", self.window), ("S", self.strides), ("D", self.dilations))
        return (
            found
            | {letter + axis: n for letter, pair in pairs for axis, n in zip("HW", pair, strict=True)}
            | {
                "S": self.symbol,
                "fold": self.folded("next"),
                "empty": "0" if self.mode == "average" else "-INFINITY",
                "worthwhile": WORTHWHILE,
            }
        )

    def division(self, first: str = "", passed: str = "", part: str = "") -> list[Part]:
        """Print the entry, which divides planes among threads.

        first: what a part begins with; passed: what it gives to each plane, a comma in front; part: all of it, where
        planes are not computed one after the other.
        """
        run = f"{self.symbol}_part"
        if self.has_workspaces:
            divided = f"irc_divide(pool, planes, {run}, (void *)g, g->own, g->own_bytes, g->owners)"
            own = {"own_parameter": ", char *own", "own_given": ", g->own"}
        else:
            divided = f"pool->parallel_for(pool->self, planes, {run}, (void *)g)"
            own = {"own_parameter": "", "own_given": ""}
        part = part or fill(_PART, **self.given, own_parameter=own["own_parameter"], fill=first, passed=passed)
        given = self.given | self.interface | {"own_given": own["own_given"]}
        text = part + fill(_SPLIT, **given, divided=divided)
        return [DIVIDE, text] if self.has_workspaces else [text]

    def folded(self, value: str) -> str:
        """Print the fold of `acc` and a value."""
        return f"acc + {value}" if self.mode == "average" else f"{names(self.tile)['V']}_max(acc, {value})"


@kernel
class NchwPoolKernel(PlanePool):
    """A generated pool of planes, by rows of folded rows in a buffer."""

    def fits(self, problem: PoolProblem) -> bool:
        return self.span + 16 * self.strides[1] <= ROW  # one vector of results, at least

    def cycles(self, problem: PoolProblem) -> float:
        (oh, ow), lanes = map(likely_extent, problem.result), self.tile.lanes
        width = (ow - 1) * self.strides[1] + self.span
        taken = self.strides[1] if self.strides[1] <= 2 else lanes  # loads of a vector of the row's elements
        vectors = -(-width // lanes), -(-ow // lanes)
        if self.mode == "max" and in_halves(self.tile.isa):
            row = KEPT_IN_HALVES * sum(v * (k - 1) for v, k in zip(vectors, self.window, strict=True))
            row += vectors[1] * self.window[1] * (taken - 1)
        else:
            row = (vectors[0] * self.window[0] + vectors[1] * self.window[1] * taken) / LOADS + STORED_ROW
        return likely(problem.batch) * likely(problem.channels) * oh * row

    @property
    def label(self) -> str:
        return "planes"

    def own_bytes(self, sizes: Mapping[str, int]) -> int:
        most = min(sizes["ow"], (ROW - self.span) // self.strides[1])
        width, slack = (most - 1) * self.strides[1] + self.span, self.tile.lanes * (self.strides[1] + 1)
        pitch = -(-(width + slack) // 16) * 16
        counts = 2 * (most + self.tile.lanes) if self.counts else 0
        return (min(4 * pitch, ROW + slack) + counts) * self.tile.dtype.itemsize

    def parts(self) -> list[Part]:
        t = self.tile
        given = self.given | {
            "span": self.span,
            "row": ROW,
            "slack": t.lanes * (self.strides[1] + 1),
            "unroll": "IRC_FULL_UNROLL" if self.window[1] <= 16 else "",
        }
        names_of_shares = ("counts", "divide", "count_room", "count_columns", "count_row", "counts_given")
        text = dict.fromkeys(names_of_shares, "")
        if self.counts:
            text = self._sharing(given)
        elif self.mode == "average":
            text["divide"] = f"\n        acc *= ({given['T']})1 / {self.window[0] * self.window[1]};"
        return [
            prelude(t, plain(t.dtype)),
            fill(CALL, **given),
            fill(_BODY, **given, **text, take=self._take()),
            *self.division(passed=f", ({given['T']} *)own"),
        ]

    @property
    def summary(self) -> str:
        (kh, kw), (sh, sw) = self.window, self.strides
        return f"Pool, NCHW, {self.tile.dtype}: {self.mode} of {kh} x {kw} windows, strides {sh} and {sw}."

    def _sharing(self, given: dict[str, object]) -> dict[str, str]:
        """Return what a mean of counted positions adds to the templates."""
        v, t = given["V"], given["T"]
        return {
            "counts": f", const {t} *shares",
            "divide": f"\n        acc *= {v}_load(shares + j);",
            "count_room": fill(_COUNT_ROOM, **given),
            "count_columns": fill(_COUNT_COLUMNS, **given, **self.bounds),
            "count_row": fill(_COUNT_ROW, **given, **self.bounds),
            "counts_given": ", shares",
        }

    def _take(self) -> str:
        v, lanes, stride = names(self.tile)["V"], self.tile.lanes, self.strides[1]
        if stride == 1:
            return f"    return {v}_load(from);\n"
        if stride == 2:
            picks = ", ".join(map(str, range(0, 2 * lanes, 2)))
            return f"    return __builtin_shufflevector({v}_load(from), {v}_load(from + {lanes}), {picks});\n"
        values = ", ".join(f"from[{i * stride}]" for i in range(lanes))
        return f"    return ({v}){{{values}}};\n"


def _span(taps: int, dilation: int) -> int:
    return (taps - 1) * dilation + 1
