"""Matrix product with weights of 8 bits or fewer, which are widened in registers: C = epilogue(A · ((Q - Z) · S)).

A product of few rows waits for its weights, and whole numbers of 4 bits are an eighth of the bytes of floats.  A word
of 32 bits holds those of neighbouring k of one column.  Masked, each is its number times a power of two, which a
conversion to float keeps exactly; A is divided by the same power, which is exact too, so that nothing is shifted.  Zero
points are taken from the sum of a block at once: Σ a (q - z) s = s (Σ a q - z Σ a).

Where a row has an infinity or NaN this difference would not be what the definition says: it is computed as defined.

B is packed in panels, [n / panel][block]: scales, zero points if each block has its own, then words [k / per][panel].
Threads split the panels, never k: results do not depend on them.
"""

from __future__ import annotations

from functools import cached_property
from typing import Any

import numpy as np

from irc.ir.dim import Dim
from irc.ir.types import f32, u8
from irc.kernels.core.base import Array, Packed
from irc.kernels.core.registry import kernel
from irc.kernels.core.text import Part, fill, piece, symbol, tile_body
from irc.kernels.core.tile import names, prelude
from irc.kernels.gemm.narrow import FAR, NEAR, NarrowGemmKernel
from irc.kernels.gemm.problem import GemmProblem
from irc.kernels.vector.lanes import folds

WORD = 32
"""Bits of a word."""
FEW = 8000
"""Elements of A below which one thread prepares them."""
_BYTES = """\
typedef unsigned char ${body}_bytes __attribute__((vector_size($L), aligned(1), may_alias));
"""

_TILE = """\
/* $R rows: sums[R][$NR] = Σ over the blocks of s (Σ a q - z Σ a), a panel of B from `b` on. */
static void ${body}_$R(int64_t blocks, int64_t words, const float *a, int64_t a_row, const float *of_blocks,
                       int64_t blocks_row, const unsigned char *b, float *restrict sums) {
    $V total[$R][$NV] = {{{0}}};
    for (int64_t i = 0; i < blocks; i++) {
        const float *const scales = (const float *)(const void *)b;$zeros
        const int64_t some = words < $words ? words : $words;
        $V acc[$R][$NV] = {{{0}}};
        b += $head;
        for (int64_t k = 0; k < some; k++) {
            ${V}_bits q[$NV];
            IRC_FULL_UNROLL
            for (int w = 0; w < $NV; w++) {
                __builtin_prefetch(b + $near + w * $bytes);
                __builtin_prefetch(b + $far + w * $bytes, 0, 2);
                q[w] = (${V}_bits)${V}_load((const float *)(const void *)(b + w * $bytes));
            }
            IRC_FULL_UNROLL
            for (int j = 0; j < $per; j++) {
                IRC_FULL_UNROLL
                for (int w = 0; w < $NV; w++) {
                    const ${V}_bits one = j + 1 < $per ? q[w] & ($most << j * $each) : q[w] >> ($word - $each);
                    const $V x = __builtin_convertvector((${V}_mask)one, $V);
                    EACH(r < $R) acc[r][w] += a[r * a_row + j] * x;
                }
            }
            a += $per;
            b += $NV * $bytes;
        }
        words -= some;
        IRC_FULL_UNROLL
        for (int w = 0; w < $NV; w++) {
            const $V s = ${V}_load(scales + w * $L)$zero;
            EACH(r < $R) total[r][w] += s * (acc[r][w] - of_blocks[r * blocks_row + i] * $middle);
        }
    }
    IRC_FULL_UNROLL
    for (int r = 0; r < $R; r++)
        for (int w = 0; w < $NV; w++) ${V}_store(sums + r * $NR + w * $L, total[r][w]);
}
"""

SIZES = """
IRC_INLINE int64_t ${S}_words(int64_t k) { return (k + $per - 1) / $per; }
IRC_INLINE int64_t ${S}_blocks(int64_t k) { return (k + $block - 1) / $block; }
/* Floats of a row of A that meet words, and of the whole row. */
IRC_INLINE int64_t ${S}_meeting(int64_t k) { return ${S}_words(k) * $meeting; }
IRC_INLINE int64_t ${S}_pitch(int64_t k) { return ${S}_meeting(k) + ${S}_blocks(k) * $of_block; }
"""

_ROW = """
/* A row of A as it meets words of B, then the sums of its blocks. Whether all are finite. */
static int ${S}_row(const ${S}_args *g, const float *a, float *to) {
    static const float power[$pattern] = {$powers};
    const int64_t whole = ${S}_words(g->k) * $per;
    float check = 0;
    for (int64_t k = 0; k < whole; k += $block) {
        const int64_t end = k + $block < whole ? k + $block : whole;
        float sums[$per] = {0};$in_vectors
        for (int64_t i = k; i < end; i += $per)
            for (int j = 0; j < $per; j++) {
                const float x = i + j < g->k ? a[(i + j) * g->a_col] : 0;
                to[i + j] = x * power[j];
                sums[j] += x;
            }
        for (int j = 1; j < $per; j++) sums[0] += sums[j];
        to[whole + k / $block] = sums[0];
        check += sums[0] * 0;
    }
    return check == 0;
}
"""

BODY = """
/* One element as it is defined, of a row with an infinity or NaN. */
static float ${S}_element(const ${S}_args *g, const float *a, const unsigned char *panel, int64_t col) {
    float sum = 0;
    for (int64_t k = 0; k < g->k; k++) {
        const int64_t i = k % $block;
        const unsigned char *const b = panel + k / $block * $stride;
        uint32_t word;
        float scale;
        __builtin_memcpy(&word, b + $head + (i / $per * $NR + col) * 4, 4);
        __builtin_memcpy(&scale, b + col * 4, 4);
        sum += a[k * g->a_col] * (((float)(word >> $shift & $most) - $zero_at) * scale);
    }
    return sum;
}

/* Rows of a tile at `row`, a panel of columns at `col`. */
static void ${S}_tile(const ${S}_args *g, const ${S}_out *o, int64_t rows, int64_t row, int64_t col) {
    static void (*const bodies[])(int64_t, int64_t, const float *, int64_t, const float *, int64_t,
                                  const unsigned char *, float *) = {$table};
    const int64_t words = ${S}_words(g->k), blocks = ${S}_blocks(g->k), pitch = ${S}_pitch(g->k);
    const unsigned char *const panel = g->b + col / $NR * (blocks * $head + words * $NR * 4);
    const float *const a = g->scratch + row * pitch;
    float sums[$MR * $NR] __attribute__((aligned(64)));
    bodies[rows - 1](blocks, words, a, pitch, a + ${S}_meeting(g->k), pitch, panel, sums);
    for (int64_t i = 0; i < rows; i++)
        if (g->scratch[g->m * pitch + row + i] != 0)
            for (int64_t j = 0; j < $NR && col + j < g->n; j++)
                sums[i * $NR + j] = ${S}_element(g, g->a + (row + i) * g->a_row, panel, j);
    ${S}_store(o, sums, rows, row, col);
}
"""

ENTRY = """
static void ${S}_rows(void *given, int64_t begin, int64_t end) {
    const ${S}_args *g = given;
    const int64_t pitch = ${S}_pitch(g->k);
    for (int64_t r = begin; r < end; r++) {
        const int finite = ${S}_row(g, g->a + r * g->a_row, g->scratch + r * pitch);
        g->scratch[g->m * pitch + r] = finite ? 0 : 1;
    }
}

void $S($parameters) {
    if (g->m <= 0 || g->n <= 0) return;
    if (!pool || g->m * g->k < $few) ${S}_rows((void *)g, 0, g->m);
    else pool->parallel_for(pool->self, g->m, ${S}_rows, (void *)g);
    ${S}_divide(pool, g);
}
"""

_IN_VECTORS = """
        if (g->a_col == 1 && k + $block <= g->k) {
            $V acc[$across] = {{0}};
            for (int64_t i = k; i < end; i += $across * $L) {
                IRC_FULL_UNROLL
                for (int w = 0; w < $across; w++) {
                    const $V x = ${V}_load(a + i + w * $L);
                    ${V}_store(to + i + w * $L, x * ${V}_load(power + w * $L % $pattern));
                    acc[w] += x;
                }
            }
            IRC_FULL_UNROLL
            for (int w = 1; w < $across; w++) acc[0] += acc[w];
            to[whole + k / $block] = ${V}_sum_all(acc[0])[0];
            check += to[whole + k / $block] * 0;
            continue;
        }"""


@kernel
class WeightOnlyGemmKernel(NarrowGemmKernel):
    """A matrix product with a constant B of few bits, one scale for each column of a block of k."""

    floats = ("",)
    widened = 0.9
    form = ""
    """What the symbol says of how numbers are multiplied."""

    @property
    def label(self) -> str:
        return f"weights of {self.narrow.bits} bits {self.tile.rows}x{self.tile.vectors}"

    def scratch(self, problem: GemmProblem) -> Dim:
        k, (meeting, of_block) = problem.k, self._row_floats
        row = k.ceildiv(self._per) * meeting + k.ceildiv(self.narrow.block) * of_block
        return problem.m * (row + 1) * f32.itemsize

    def packed(self, problem: GemmProblem) -> Packed:
        t, n, k = self.tile, int(problem.n), int(problem.k)
        return Packed(("narrow", t.panel, self.narrow), u8, self.packed_bytes(n, k), lambda b: self.pack_b(b, k))

    def packed_bytes(self, n: int, k: int) -> int:
        """Count the bytes of a packed B[k, n]."""
        blocks, words = -(-k // self.narrow.block), -(-k // self._per)
        return -(-n // self.tile.panel) * (blocks * self._head + words * self.tile.panel * 4)

    def pack_b(self, rows: Array, k: int) -> Array:
        """Pack B as `Narrow` rows state it, [n, k + blocks (+ blocks)]: numbers, scales, zero points; flat bytes."""
        narrow, panel, per, n = self.narrow, self.tile.panel, self._per, len(rows)
        blocks, words, panels = -(-k // narrow.block), -(-k // per), -(-n // panel)
        full = np.zeros((panels * panel, rows.shape[1]), np.float32)
        full[:n] = rows
        numbers = np.zeros((panels * panel, words * per), np.uint32)
        numbers[:, :k] = full[:, :k]
        joined = np.bitwise_or.reduce(numbers.reshape(-1, words, per) << self._shifts, axis=2).astype("<u4")
        # [panel · column, word] → [panel, word, column]
        joined = np.ascontiguousarray(joined.reshape(panels, panel, words).transpose(0, 2, 1))
        heads = [full[:, k : k + blocks].astype("<f4")]
        if narrow.zeros:
            heads.append(full[:, k + blocks :].astype(np.uint8))
        packed = bytearray()
        for p in range(panels):
            for b in range(blocks):
                packed += b"".join(part[p * panel : (p + 1) * panel, b].tobytes() for part in heads)
                packed += joined[p, b * narrow.block // per : (b + 1) * narrow.block // per].tobytes()
        return np.frombuffer(bytes(packed), np.uint8)

    def unpack_b(self, packed: Array, n: int, k: int) -> Array:
        """Unpack B[k, n] as floats."""
        narrow, panel, per, head = self.narrow, self.tile.panel, self._per, self._head
        blocks, words, panels = -(-k // narrow.block), -(-k // per), -(-n // panel)
        whole = np.ascontiguousarray(packed[: self.packed_bytes(n, k)]).reshape(panels, -1)
        made = np.zeros((words * per, panels * panel), np.float32)
        at = 0
        for b in range(blocks):
            some = min(narrow.block // per, words - b * narrow.block // per)
            scales = np.ascontiguousarray(whole[:, at : at + panel * 4]).view("<f4").reshape(-1)
            own = whole[:, at + panel * 4 : at + head].astype(np.float32).reshape(-1)
            zeros = own if narrow.zeros else narrow.middle
            bits = np.ascontiguousarray(whole[:, at + head : at + head + some * panel * 4]).view("<u4")
            each = bits.reshape(panels, some, 1, panel) >> self._shifts[:, None] & np.uint32(narrow.most)
            flat = each.transpose(1, 2, 0, 3).reshape(some * per, panels * panel).astype(np.float32)
            made[b * narrow.block : b * narrow.block + some * per] = (flat - zeros) * scales
            at += head + some * panel * 4
        return made[:k, :n]

    @cached_property
    def symbol(self) -> str:
        n = self.narrow
        kind = f"weights{n.bits}{self.form}_{n.block}{'z' if n.zeros else ''}"
        return symbol(kind, self.tile.name.removeprefix("irc_tile_"), f"{self.epilogue.key()}{self.heights}")

    @property
    def pointers(self) -> tuple[tuple[str, str], ...]:
        read = ("a", "const float *"), ("b", "const unsigned char *"), *self.epilogue.pointers("float")
        return (*read, ("c", "float *"), ("scratch", "float *"))

    def parts(self) -> list[Part]:
        given = self._names()
        body, lanes = given["body"], self.tile.lanes
        return [
            prelude(self.tile, self.epilogue),
            folds(lanes, f32),
            tile_body(f"{body}_bytes", _BYTES, **given) if self.narrow.zeros else "",
            *(piece("IRC_TILE_${body}_$R", _TILE, **given, R=r) for r in self.heights),
            self.stored_and_divided(given, SIZES + _ROW + BODY, ENTRY),
        ]

    def _names(self) -> dict[str, Any]:
        """Return the names in the templates."""
        t, s, narrow = self.tile, self.symbol, self.narrow
        body = f"{t.name.replace('tile', 'weights', 1)}_{narrow.bits}x{narrow.block}{'z' if narrow.zeros else ''}"
        zeros = f"\n        const unsigned char *const zeros = b + {t.panel * 4};"
        load = f"*(const {body}_bytes *)(zeros + w * {t.lanes})"
        zero = f",\n                     z = __builtin_convertvector({load}, {names(t)['V']})"
        powers = [*(f"{2.0 ** -(narrow.bits * j)!r}f" for j in range(self._per - 1)), "1.0f"]
        across = next((v for v in (4, 2, 1) if narrow.block % (v * t.lanes) == 0), 0)
        given = names(t) | {
            "S": s,
            "body": body,
            "bits": narrow.bits,
            "each": narrow.bits,
            "word": WORD,
            "per": self._per,
            "block": narrow.block,
            "words": narrow.block // self._per,
            "head": self._head,
            "stride": self._head + narrow.block // self._per * t.panel * 4,
            "bytes": t.lanes * 4,
            "most": f"{narrow.most}u",
            "near": NEAR,
            "far": FAR,
            "middle": "z" if narrow.zeros else f"{narrow.middle}.0f",
            "zero_at": f"b[{t.panel * 4} + col]" if narrow.zeros else f"{narrow.middle}.0f",
            "zeros": zeros if narrow.zeros else "",
            "zero": zero if narrow.zeros else "",
            "pattern": max(self._per, t.lanes),
            "powers": ", ".join((powers * t.lanes)[: max(self._per, t.lanes)]),
            "across": across,
            "few": FEW,
            "table": self.table(body),
            "meeting": self._row_floats[0],
            "of_block": self._row_floats[1],
            "shift": f"i % {self._per} * {narrow.bits}",
        }
        given["in_vectors"] = fill(_IN_VECTORS, **given) if across else ""
        return given

    @property
    def summary(self) -> str:
        n = self.narrow
        each = "a scale and a zero point" if n.zeros else "a scale"
        return f"C = epilogue(A B), weights of {n.bits} bits, {each} for each {n.block} of a column."

    @property
    def _shifts(self) -> Array:
        """By how many bits the numbers of a word are shifted, in the order of k."""
        return np.arange(self._per, dtype=np.uint32) * np.uint32(self.narrow.bits)

    @property
    def _row_floats(self) -> tuple[int, int]:
        """How many floats of a row of A as it is prepared meet a word, and how many are of a block."""
        return self._per, 1

    @property
    def _per(self) -> int:
        """The numbers of a word."""
        return WORD // self.narrow.bits

    @property
    def _head(self) -> int:
        """The bytes of a block of a panel in front of its words."""
        return self.tile.panel * (5 if self.narrow.zeros else 4)
