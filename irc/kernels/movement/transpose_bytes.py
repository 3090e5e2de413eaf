"""Transposing copies of bytes: rows and columns of a matrix change places through squares of 16 × 16.

Where a side is no multiple of 16, the last square ends with it: what it shares with the one before is written twice.
Threads split outer iterations, blocks of rows and stripes of columns.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property
from typing import Self

from irc.kernels.core.isa import HEAD, Isa
from irc.kernels.core.registry import kernel
from irc.kernels.core.text import Part, fill, symbol
from irc.kernels.core.tile import Tile
from irc.kernels.integer.problem import BYTES, SETS
from irc.kernels.integer.windows import C_NAMES
from irc.kernels.movement.problem import TransposeProblem
from irc.kernels.movement.transpose import TransposeKernel

SIDE = 16
"""Rows and columns of a square; a matrix has at least as many."""
STRIPE, BLOCK = 64, 512
"""Columns and rows of x in a task: whole lines of the cache are read and written."""
WORTHWHILE = 100_000
"""Bytes below which one thread does all."""

_BODY = """
#include <immintrin.h>

IRC_INLINE void ${S}_square(const uint8_t *x, int64_t x_row, uint8_t *y, int64_t y_col) {
    __m128i v[16], w[16];
    EACH(i < 16) v[i] = _mm_loadu_si128((const __m128i *)(x + i * x_row));
    IRC_FULL_UNROLL
    for (int round = 0; round < 4; round++) { /* each deals the rows out to twice as many columns */
        IRC_FULL_UNROLL
        for (int i = 0; i < 8; i++) {
            w[2 * i] = _mm_unpacklo_epi8(v[i], v[i + 8]);
            w[2 * i + 1] = _mm_unpackhi_epi8(v[i], v[i + 8]);
        }
        EACH(i < 16) v[i] = w[i];
    }
    EACH(j < 16) _mm_storeu_si128((__m128i *)(y + j * y_col), v[j]);
}

/* Tasks: outer iterations, then blocks of rows, then stripes of columns. */
static void ${S}_part(void *given, int64_t begin, int64_t end) {
    const ${S}_args *g = given;
    const int64_t stripes = (g->cols + $stripe - 1) / $stripe, blocks = (g->rows + $block - 1) / $block;
    for (; begin < end; begin++) {
        const int64_t outer = begin / stripes / blocks, left = begin % stripes * $stripe;
        const int64_t top = begin / stripes % blocks * $block;
        const int64_t right = left + $stripe < g->cols ? left + $stripe : g->cols;
        const int64_t bottom = top + $block < g->rows ? top + $block : g->rows;
        const int64_t i2 = outer % g->n2, i1 = outer / g->n2 % g->n1, i0 = outer / g->n2 / g->n1;
        const uint8_t *x = (const uint8_t *)g->x + i0 * g->x0 + i1 * g->x1 + i2 * g->x2;
        uint8_t *y = (uint8_t *)g->y + i0 * g->y0 + i1 * g->y1 + i2 * g->y2;
        for (int64_t i = top; i < bottom; i += 16) {
            const int64_t row = i + 16 <= g->rows ? i : g->rows - 16;
            for (int64_t j = left; j < right; j += 16) {
                const int64_t col = j + 16 <= g->cols ? j : g->cols - 16;
                ${S}_square(x + row * g->x_row + col, g->x_row, y + col * g->y_col + row, g->y_col);
            }
        }
    }
}

void $S($parameters) {
    const int64_t outer = g->n0 * g->n1 * g->n2;
    const int64_t tasks = outer * ((g->cols + $stripe - 1) / $stripe) * ((g->rows + $block - 1) / $block);
    if (!pool || (double)outer * (double)g->rows * (double)g->cols < $worthwhile) ${S}_part((void *)g, 0, tasks);
    else pool->parallel_for(pool->self, tasks, ${S}_part, (void *)g);
}
"""


@kernel
class TransposeBytesKernel(TransposeKernel):
    """A generated copy of bytes whose rows and columns change places."""

    @classmethod
    def candidates(cls, problem: TransposeProblem, isa: Isa) -> Iterator[Self]:
        turned = problem.dtype in BYTES and problem.rows[2] == 1
        if (
            isa.name in SETS
            and turned
            and all(n.is_const and int(n) >= SIDE for n in (problem.rows[0], problem.cols[0]))
        ):
            yield cls(Tile(isa, problem.dtype, 1, 1))

    @property
    def label(self) -> str:
        return "squares of bytes"

    @cached_property
    def symbol(self) -> str:
        return symbol("transpose_bytes", self.tile.isa.name, self.tile.dtype.name, "")

    @property
    def pointers(self) -> tuple[tuple[str, str], ...]:
        name = C_NAMES[self.tile.dtype]
        return (("x", f"const {name} *"), ("y", f"{name} *"))

    def parts(self) -> list[Part]:
        given = {"S": self.symbol, "stripe": STRIPE, "block": BLOCK, "worthwhile": f"{WORTHWHILE}.0"}
        return [HEAD, fill(_BODY, **given, **self.interface)]
