"""Interpolation along rows: neighbours are picked out of two vectors that were loaded side by side.

What a vector of results needs of a row of the input stands close together, in a window of two vectors, if the row does
not shrink much.  Lanes are picked from there by constant tables, once for each term of the sums; to gather them one by
one from memory takes several times as long.  Sums of rows are made before, of as many rows as are interpolated
together, in memory of the part of the call.

Threads split the rows of all planes.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from typing import Self

import numpy as np

from irc.arrays import Array
from irc.ir.dim import Dim
from irc.ir.types import f32, i32
from irc.kernels.core.base import Kernel, Packed, Sizes
from irc.kernels.core.costs import in_halves
from irc.kernels.core.epilogue import plain
from irc.kernels.core.isa import Isa
from irc.kernels.core.problem import likely
from irc.kernels.core.registry import kernel
from irc.kernels.core.text import Part, fill, symbol
from irc.kernels.core.tile import Tile, names, prelude
from irc.kernels.core.workspace import DIVIDE
from irc.kernels.resize.problem import InterpolationProblem, Taps, apply_taps

ROWS = 4
"""Rows of the result that share what is loaded of the tables."""
BLOCK = 16
"""Rows of the result in a task."""
WORTHWHILE = 16_000
"""Elements of a result below which one thread does all."""
WIDEST = 1 << 13
"""Elements of a row, at most: some rows stay in the second cache, and each of the parts has memory for them."""
PICKED = 3.0
"""Cycles to pick the lanes of a vector, multiply and add them."""

_PICKS = {
    "avx512": "($V)_mm512_permutex2var_ps((__m512)low, _mm512_loadu_si512(at), (__m512)high)",
    "avx2": "($V)_mm256_blendv_ps(_mm256_permutevar8x32_ps((__m256)low, *(const __m256i_u *)at), "
    "_mm256_permutevar8x32_ps((__m256)high, *(const __m256i_u *)at), (__m256)*(const __m256i_u *)at)",
}

_BODY = """
#include <immintrin.h>
/* Lanes of two vectors side by side; those of the second have the sign bit in a table. */
IRC_INLINE $V ${S}_pick($V low, $V high, const int32_t *at) {
    return $pick;
}

/* R rows of results from as many rows `row` elements apart, behind each of which two vectors may be read. */
IRC_INLINE void ${S}_columns(const int R, const ${S}_args *g, const $T *x, int64_t row, $T *y) {
    const $T *weights = g->weights;
    const int32_t *picks = g->picks;
    for (int64_t col = 0; col < g->ow; col += $L, weights += $columns * $L, picks += $columns * $L) {
        const $T *const from = x + g->starts[col / $L];
        const int64_t part = g->ow - col;
        $V low[$rows], high[$rows], sums[$rows];
        EACH(i < R) low[i] = ${V}_load(from + i * row), high[i] = ${V}_load(from + i * row + $L);
        IRC_FULL_UNROLL
        for (int t = 0; t < $columns; t++) {
            const $V w = ${V}_load(weights + t * $L);
            IRC_FULL_UNROLL
            for (int i = 0; i < R; i++) {
                const $V picked = ${S}_pick(low[i], high[i], picks + t * $L);
                sums[i] = t ? sums[i] + picked * w : picked * w;
            }
        }
        if (part < $L) {
            EACH(i < R) ${V}_store_part(y + i * g->ow + col, sums[i], part);
        } else {
            EACH(i < R) ${V}_store(y + i * g->ow + col, sums[i]);
        }
    }
}

/* The row of the input, or the sum of rows, from which row `at` of a plane's result is made. */
static void ${S}_row(const ${S}_args *g, const $T *x, int64_t at, $T *to) {
$sources    int64_t col = 0;
    for (; col + $L <= g->iw; col += $L) ${V}_store(to + col, $sum);
    const int64_t part = g->iw - col;
    if (part) ${V}_store(to + col, $sum_of_part);
}

/* Tasks begin to end: blocks of rows of planes. */
static void ${S}_part(void *given, char *own, int64_t begin, int64_t end) {
    const ${S}_args *g = given;
    const int64_t blocks = (g->oh + $block - 1) / $block, row = (g->iw + 3 * $L - 1) / $L * $L;
    $T *const rows = ($T *)own;
    for (; begin < end; begin++) {
        const int64_t plane = begin / blocks, top = begin % blocks * $block;
        const int64_t stop = top + $block < g->oh ? top + $block : g->oh;
        const $T *const x = g->x + plane * g->ih * g->iw;
        int64_t at = top;
        for ($T *y = g->y + (plane * g->oh + top) * g->ow; at < stop;) {
            const int64_t some = stop - at < $rows ? 1 : $rows;
            for (int64_t i = 0; i < some; i++) ${S}_row(g, x, at + i, rows + i * row);
            if (some == $rows) ${S}_columns($rows, g, rows, row, y);
            else ${S}_columns(1, g, rows, row, y);
            at += some, y += some * g->ow;
        }
    }
}

void $S($parameters) {
    const int64_t tasks = g->planes * ((g->oh + $block - 1) / $block);
    if (tasks <= 0) return;
    const int alone = (double)g->planes * (double)(g->oh * g->ow) < $worthwhile;
    irc_divide(alone ? 0 : pool, tasks, ${S}_part, (void *)g, g->own, g->own_bytes, g->owners);
}
"""


@kernel
class InterpolationKernel(Kernel[InterpolationProblem]):
    """Sums of neighbours along rows, whose lanes are picked out of two vectors."""

    tile: Tile
    columns: int
    rows: int

    problem = InterpolationProblem

    @classmethod
    def candidates(cls, problem: InterpolationProblem, isa: Isa) -> Iterator[Self]:
        if problem.dtype == f32 and isa.name in _PICKS and problem.x[1] <= WIDEST:
            yield cls(Tile(isa, f32, 1, 1), problem.columns, problem.rows)

    def cycles(self, problem: InterpolationProblem) -> float:
        lanes, iw, (oh, ow) = self.tile.lanes, problem.x[1], problem.y
        vectors = oh * (-(-ow // lanes) * self.columns + -(-iw // lanes) * max(self.rows, 1))
        return likely(problem.planes) * vectors * PICKED * (2 if in_halves(self.tile.isa) else 1)

    @property
    def label(self) -> str:
        return "lanes of two vectors"

    # ------------------------------------------------------------------------------ tables
    def columns_of(self, taps: Taps, width: int) -> tuple[Array, Array, Array] | None:
        """Make the tables for sums along rows of so many elements: of each vector of results, padded at the end.

        Returns where its window begins, int32[vectors]; the lanes that are picked there, int32[vectors, terms, lanes];
        and the weights, f32 of the same shape.  None if what a vector needs is not in a window of two.
        """
        lanes = self.tile.lanes
        vectors = -(-len(taps.places) // lanes)
        pad = ((0, vectors * lanes - len(taps.places)), (0, 0))
        places = np.pad(taps.places, pad, "edge").reshape(vectors, lanes, -1)
        weights = np.pad(taps.weights.astype(np.float32), pad).reshape(vectors, lanes, -1)
        starts = places.min(axis=(1, 2))
        lane = places - starts[:, None, None]
        if lane.max() >= 2 * lanes or starts.min() < 0 or places.max() >= width:
            return None
        picks = lane.astype(np.int32) | np.where(lane >= lanes, np.int32(-(1 << 31)), np.int32(0))
        picks, weights = (np.ascontiguousarray(np.moveaxis(a, 1, 2)) for a in (picks, weights))
        return starts.astype(np.int32), picks, weights

    def columns_from(self, starts: Array, picks: Array, weights: Array, width: int) -> Taps:
        """Read the tables of `columns_of` back, for so many results."""
        lanes = self.tile.lanes
        lane = (picks.astype(np.int64) & (lanes - 1)) + np.where(picks < 0, lanes, 0)
        places = lane.reshape(-1, self.columns, lanes) + starts.astype(np.int64)[:, None, None]
        by_result = (np.moveaxis(a.reshape(places.shape), 2, 1).reshape(-1, self.columns) for a in (places, weights))
        return Taps(*(a[:width] for a in by_result))

    def compute(self, reads: Sequence[Array], writes: Sequence[Array], sizes: Mapping[str, int]) -> None:
        planes, oh, ow, ih, iw = (sizes[n] for n in self.sizes)
        vectors = -(-ow // self.tile.lanes)
        x, *of_rows, starts, picks, weights = reads
        y = x[: planes * ih * iw].reshape(planes, ih, iw)
        if of_rows:
            places, scales = (a[: oh * self.rows].reshape(oh, self.rows) for a in of_rows)
            y = apply_taps(y, Taps(places.astype(np.int64), scales), 1)
        terms = vectors * self.columns * self.tile.lanes
        taps = self.columns_from(starts[:vectors], picks[:terms], weights[:terms], ow)
        writes[0][: planes * oh * ow] = apply_taps(y, taps, 2).reshape(-1)

    # -------------------------------------------------------------------------------- call
    def arguments_for(self, problem: InterpolationProblem) -> dict[str, Dim]:
        values = (problem.planes, *map(Dim.of, (*problem.y, *problem.x)))
        return dict(zip(self.sizes, values, strict=True))

    def own_bytes(self, sizes: Mapping[str, int]) -> int:
        lanes = self.tile.lanes
        return ROWS * ((sizes["iw"] + 3 * lanes - 1) // lanes * lanes) * self.tile.dtype.itemsize

    @cached_property
    def symbol(self) -> str:
        name = self.tile.registers
        return symbol("interpolation", f"{name}_{self.rows}x{self.columns}", "")

    @property
    def pointers(self) -> tuple[tuple[str, str], ...]:
        numbers, floats = "const int32_t *", "const float *"
        rows = (("row_places", numbers), ("row_weights", floats)) if self.rows else ()
        return (("x", floats), *rows, ("starts", numbers), ("picks", numbers), ("weights", floats), ("y", "float *"))

    @property
    def sizes(self) -> tuple[str, ...]:
        """Names of the int64_t arguments, in order: planes; rows and columns of y and of x."""
        return ("planes", "oh", "ow", "ih", "iw")

    def flops(self, sizes: Sizes) -> Dim:
        return 2 * sizes["planes"] * sizes["oh"] * (sizes["ow"] * self.columns + sizes["iw"] * self.rows)

    def parts(self) -> list[Part]:
        t = self.tile
        given = names(t) | {"S": self.symbol, "columns": self.columns, "rows": ROWS, "block": BLOCK}
        given |= {"worthwhile": WORTHWHILE, **self._sums(str(given["V"]))}
        given["pick"] = fill(_PICKS[t.isa.name], **given)
        return [prelude(t, plain(f32)), DIVIDE, fill(_BODY, **given, **self.interface)]

    def _sums(self, v: str) -> dict[str, str]:
        """Print where rows stand that are summed up, and the sums of vectors of them."""
        if not self.rows:
            given = {"sources": "    const float *const x0 = x + at * g->iw;\n"}
            return given | {"sum": f"{v}_load(x0 + col)", "sum_of_part": f"{v}_load_part(x0 + col, part)"}
        sources = [f"    const int32_t *const places = g->row_places + at * {self.rows};\n"]
        for t in range(self.rows):
            sources.append(f"    const float *const x{t} = x + places[{t}] * g->iw;\n")
            sources.append(f"    const {v} w{t} = {v}_all(g->row_weights[at * {self.rows} + {t}]);\n")
        whole = " + ".join(f"{v}_load(x{t} + col) * w{t}" for t in range(self.rows))
        part = " + ".join(f"{v}_load_part(x{t} + col, part) * w{t}" for t in range(self.rows))
        return {"sources": "".join(sources), "sum": whole, "sum_of_part": part}

    @property
    def summary(self) -> str:
        rows = f"{self.rows} rows, then of " if self.rows else ""
        return f"Sums of {rows}{self.columns} neighbours along rows by constant weights, {self.tile.dtype}."


def table(array: Array, key: str) -> Packed:
    """State a table as a constant operand that is stored as it is."""
    dtype = i32 if array.dtype == np.int32 else f32
    return Packed(("interpolation", key), dtype, array.size, lambda a: a.reshape(-1))
