"""Matrix product with weights of f16 or bf16, which are widened in registers: C = epilogue(A · B).

A product of few rows waits for its weights, and these are half the bytes of f32.  Every number is exact in f32, so that
results are those of widened weights.

B is packed in panels, [n / panel][k][panel].  Threads split the panels, never k: results do not depend on them.
"""

from __future__ import annotations

from functools import cached_property

import numpy as np

from irc.ir.types import bf16, f16, u8
from irc.kernels.core.base import Array, Packed
from irc.kernels.core.costs import costs_of
from irc.kernels.core.registry import kernel
from irc.kernels.core.text import Part, fill, piece, symbol
from irc.kernels.core.tile import names, prelude
from irc.kernels.gemm.narrow import FAR, NEAR, NarrowGemmKernel
from irc.kernels.gemm.problem import GemmProblem
from irc.kernels.gemm.tiled import LONGEST_SUM

TYPES = {"f16": f16, "bf16": bf16}

_WIDEN = """\
/* $L numbers of $floats as f32. */
IRC_INLINE $V ${V}_of_$floats(const unsigned char *p) {
    typedef uint16_t halves __attribute__((vector_size($L * 2), aligned(1), may_alias));
$widen}
"""
_OF_F16 = """\
#if defined(__AVX512F__) || (defined(__F16C__) && $L <= 8)
    $V x;
    __asm__("vcvtph2ps %1, %0" : "=v"(x) : "m"(*(const halves *)p));
    return x;
#else /* small numbers are denormal until they are multiplied; infinities and NaN keep the largest exponent */
    const ${V}_bits h = __builtin_convertvector(*(const halves *)p, ${V}_bits);
    const $V x = ($V)((h & 0x7fff) << 13) * 0x1p112f;
    const ${V}_bits special = (${V}_bits)((h & 0x7c00) == 0x7c00) & 0x7f800000;
    return ($V)((${V}_bits)x | special | (h & 0x8000) << 16);
#endif
"""
_OF_BF16 = """\
    return ($V)(__builtin_convertvector(*(const halves *)p, ${V}_bits) << 16);
"""

_TILE = """\
/* $R rows: sums[R][$NR] = A · B, a panel of B from `b` on. */
static void ${body}_$R(int64_t k, const float *a, int64_t a_row, int64_t a_col, const unsigned char *b,
                       float *restrict sums) {
    EACH(r < $R * $NV) ${V}_store(sums + r * $L, ($V){0});
    for (; k > 0; k -= $longest) {
        const int64_t some = k < $longest ? k : $longest;
        $V acc[$R][$NV] = {{{0}}};
        for (int64_t i = 0; i < some; i++, a += a_col, b += $NR * 2) {
            IRC_FULL_UNROLL
            for (int line = 0; line < $NR * 2; line += 64) {
                __builtin_prefetch(b + $near + line);
                __builtin_prefetch(b + $far + line, 0, 2);
            }
            IRC_FULL_UNROLL
            for (int w = 0; w < $NV; w++) {
                const $V x = ${V}_of_$floats(b + w * $L * 2);
                EACH(r < $R) acc[r][w] += a[r * a_row] * x;
            }
        }
        IRC_FULL_UNROLL
        for (int r = 0; r < $R; r++) {
            IRC_FULL_UNROLL
            for (int w = 0; w < $NV; w++) { /* in memory, as the registers are full */
                float *const to = sums + r * $NR + w * $L;
                ${V}_store(to, ${V}_load(to) + acc[r][w]);
            }
        }
    }
}
"""

_BODY = """
/* Rows of a tile at `row`, a panel of columns at `col`. */
static void ${S}_tile(const ${S}_args *g, const ${S}_out *o, int64_t rows, int64_t row, int64_t col) {
    static void (*const bodies[])(int64_t, const float *, int64_t, int64_t, const unsigned char *, float *) = {$table};
    float sums[$MR * $NR] __attribute__((aligned(64)));
    bodies[rows - 1](g->k, g->a + row * g->a_row, g->a_row, g->a_col, g->b + col * g->k * 2, sums);
    ${S}_store(o, sums, rows, row, col);
}
"""

_ABREAST = """
/* One row, $abreast panels from column col on, added as tiles add: they are read at once, which memory gives faster,
 * and nothing is fetched ahead, which processors do by themselves for each (see abreast.py). */
static void ${S}_abreast(const ${S}_args *g, const ${S}_out *o, int64_t col) {
    const int64_t next = g->k * $NR * 2;
    const float *a = g->a;
    const unsigned char *b = g->b + col * g->k * 2;
    float sums[$abreast * $NR] __attribute__((aligned(64)));
    for (int i = 0; i < $abreast * $NV; i++) ${V}_store(sums + i * $L, ($V){0});
    for (int64_t k = g->k; k > 0; k -= $longest) {
        const int64_t some = k < $longest ? k : $longest;
        $V acc[$abreast][$NV] = {{{0}}};
        for (int64_t i = 0; i < some; i++, a += g->a_col, b += $NR * 2)
            EACH(p < $abreast, w < $NV) acc[p][w] += *a * ${V}_of_$floats(b + p * next + w * $L * 2);
        IRC_FULL_UNROLL
        for (int p = 0; p < $abreast; p++) {
            IRC_FULL_UNROLL
            for (int w = 0; w < $NV; w++) {
                float *const to = sums + p * $NR + w * $L;
                ${V}_store(to, ${V}_load(to) + acc[p][w]);
            }
        }
    }
    for (int p = 0; p < $abreast; p++) ${S}_store(o, sums + p * $NR, 1, 0, col + p * $NR);
}
"""
_SEVERAL = """\
        if (g->m == 1 && end - begin >= $abreast) {
            ${S}_abreast(g, &o, begin * $NR);
            begin += $abreast - 1;
            continue;
        }
"""

_ENTRY = """
void $S($parameters) {
    if (g->m > 0 && g->n > 0) ${S}_divide(pool, g);
}
"""


@kernel
class HalfWeightsGemmKernel(NarrowGemmKernel):
    """A matrix product with a constant B of floats of 16 bits."""

    floats = ("f16", "bf16")
    widened = 0.5

    @property
    def label(self) -> str:
        return f"weights of {self.narrow.floats} {self.tile.rows}x{self.tile.vectors}"

    def packed(self, problem: GemmProblem) -> Packed:
        size = self.packed_bytes(int(problem.n), int(problem.k))
        return Packed(("half", self.narrow.floats, self.tile.panel), u8, size, self.pack_b)

    def packed_bytes(self, n: int, k: int) -> int:
        return -(-n // self.tile.panel) * self.tile.panel * k * 2

    def pack_b(self, rows: Array) -> Array:
        """Pack B as rows [n, k] of f32 that the narrow type holds; flat bytes."""
        panel, (n, k) = self.tile.panel, rows.shape
        panels = -(-n // panel)
        full = np.zeros((panels * panel, k), TYPES[self.narrow.floats].numpy)
        with np.errstate(invalid="ignore"):  # NaN is one
            full[:n] = rows
        # [panel · column, k] → [panel, k, column]
        return np.ascontiguousarray(full.reshape(panels, panel, k).transpose(0, 2, 1)).reshape(-1).view(np.uint8)

    def unpack_b(self, packed: Array, n: int, k: int) -> Array:
        flat = np.ascontiguousarray(packed[: self.packed_bytes(n, k)]).view(TYPES[self.narrow.floats].numpy)
        whole = flat.astype(np.float32).reshape(-1, k, self.tile.panel).transpose(1, 0, 2)
        return whole.reshape(k, -1)[:, :n]

    @cached_property
    def symbol(self) -> str:
        tile = self.tile.name.removeprefix("irc_tile_")
        return symbol(f"weights_{self.narrow.floats}", tile, f"{self.epilogue.key()}{self.heights}")

    @property
    def pointers(self) -> tuple[tuple[str, str], ...]:
        read = ("a", "const float *"), ("b", "const unsigned char *"), *self.epilogue.pointers("float")
        return (*read, ("c", "float *"))

    def parts(self) -> list[Part]:
        t = self.tile
        body = t.name.replace("tile", f"weights_{self.narrow.floats}", 1)
        given = names(t) | {
            "S": self.symbol,
            "body": body,
            "floats": self.narrow.floats,
            "longest": LONGEST_SUM,
            "near": NEAR,
            "far": FAR,
            "table": self.table(body),
            "abreast": self.abreast,
        }
        several = self.abreast > 1
        widen = fill(_OF_F16 if self.narrow.floats == "f16" else _OF_BF16, **given)
        return [
            prelude(t, self.epilogue),
            piece("IRC_VECTOR_${V}_of_$floats", _WIDEN, "${V}_of_$floats", **given, widen=widen),
            *(piece("IRC_TILE_${body}_$R", _TILE, **given, R=r) for r in self.heights),
            self.stored_and_divided(
                given, _BODY + _ABREAST * several, _ENTRY, fill(_SEVERAL, **given) if several else ""
            ),
        ]

    @property
    def abreast(self) -> int:
        """The panels of B that one row meets at once; 1: there is no path of its own."""
        return costs_of(self.tile.isa).abreast.get(self.tile.vectors, 1) if 1 in self.heights else 1

    @property
    def summary(self) -> str:
        return f"C = epilogue(A B), weights of {self.narrow.floats}, tiles of {self.tile.rows} x {self.tile.panel}."
