"""Transposing copies of bytes and words: rows and columns of a matrix change places through blocks of registers.

Where a side is no multiple of a block's, the last block ends with it: what it shares with the one before is written
twice.  Threads split outer iterations, blocks of rows and stripes of columns.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property
from typing import Self

from irc.ir.types import bf16, f16, i8, i16, u8, u16
from irc.kernels.core.isa import C_NAMES, HEAD, Isa
from irc.kernels.core.registry import kernel
from irc.kernels.core.text import Part, fill, symbol
from irc.kernels.core.tile import Tile
from irc.kernels.integer.problem import SETS
from irc.kernels.movement.problem import TransposeProblem
from irc.kernels.movement.transpose import LINE, TransposeKernel

ELEMENTS = (i8, u8, i16, u16, f16, bf16)
ROWS = 16
"""Rows of a block; a matrix has at least as many."""
COLUMNS = {1: 16, 2: 8}
"""Columns of a block, by the bytes of an element: a register of 128 bits."""
STRIPE, BLOCK = 64, 512
"""Columns and rows of x in a task: whole lines of the cache are read and written."""
WORTHWHILE = 100_000
"""Bytes below which one thread does all."""

_SQUARE_OF_BYTES = """
IRC_INLINE void ${S}_block(const $U *x, int64_t x_row, $U *y, int64_t y_col) {
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
"""
_BLOCK_OF_WORDS = """
/* Rows 8 to 15 are beside rows 0 to 7. */
IRC_INLINE void ${S}_block(const $U *x, int64_t x_row, $U *y, int64_t y_col) {
    __m256i v[8], w[8];
    IRC_FULL_UNROLL
    for (int i = 0; i < 8; i++) {
        const __m128i high = _mm_loadu_si128((const __m128i *)(x + (i + 8) * x_row));
        v[i] = _mm256_castsi128_si256(_mm_loadu_si128((const __m128i *)(x + i * x_row)));
        v[i] = _mm256_inserti128_si256(v[i], high, 1);
    }
    IRC_FULL_UNROLL
    for (int round = 0; round < 3; round++) { /* each deals the rows out to twice as many columns */
        IRC_FULL_UNROLL
        for (int i = 0; i < 4; i++) {
            w[2 * i] = _mm256_unpacklo_epi16(v[i], v[i + 4]);
            w[2 * i + 1] = _mm256_unpackhi_epi16(v[i], v[i + 4]);
        }
        EACH(i < 8) v[i] = w[i];
    }
    IRC_FULL_UNROLL
    for (int j = 0; j < 8; j++) {
        _mm256_storeu_si256((__m256i *)(y + j * y_col), v[j]);
        __builtin_prefetch(y + j * y_col + $line, 1); /* next to be written */
    }
}
"""
_BODY = """
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
        const $U *x = (const $U *)g->x + i0 * g->x0 + i1 * g->x1 + i2 * g->x2;
        $U *y = ($U *)g->y + i0 * g->y0 + i1 * g->y1 + i2 * g->y2;
        for (int64_t i = top; i < bottom; i += $rows) {
            const int64_t row = i + $rows <= g->rows ? i : g->rows - $rows;
            for (int64_t j = left; j < right; j += $columns) {
                const int64_t col = j + $columns <= g->cols ? j : g->cols - $columns;
                ${S}_block(x + row * g->x_row + col, g->x_row, y + col * g->y_col + row, g->y_col);
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
    """A generated copy of bytes or words whose rows and columns change places."""

    @classmethod
    def candidates(cls, problem: TransposeProblem, isa: Isa) -> Iterator[Self]:
        if isa.name not in SETS or problem.dtype not in ELEMENTS or problem.rows[2] != 1:
            return
        sides = (problem.rows[0], ROWS), (problem.cols[0], COLUMNS[problem.dtype.itemsize])
        if all(n.is_const and int(n) >= least for n, least in sides):
            yield cls(Tile(isa, problem.dtype, 1, 1))

    @property
    def label(self) -> str:
        return "squares of bytes" if self.tile.dtype.itemsize == 1 else "blocks of words"

    @cached_property
    def symbol(self) -> str:
        return symbol("transpose_bytes", self.tile.isa.name, self.tile.dtype.name, "")

    @property
    def pointers(self) -> tuple[tuple[str, str], ...]:
        name = C_NAMES[self.tile.dtype]
        return (("x", f"const {name} *"), ("y", f"{name} *"))

    def parts(self) -> list[Part]:
        size = self.tile.dtype.itemsize
        given: dict[str, object] = {"S": self.symbol, "U": f"uint{8 * size}_t", "line": LINE // size}
        given |= {"rows": ROWS, "columns": COLUMNS[size], "stripe": STRIPE, "block": BLOCK}
        given["worthwhile"] = f"{WORTHWHILE // size}.0"
        block = fill(_SQUARE_OF_BYTES if size == 1 else _BLOCK_OF_WORDS, **given)
        return [HEAD, "\n#include <immintrin.h>\n", block, fill(_BODY, **given, **self.interface)]
