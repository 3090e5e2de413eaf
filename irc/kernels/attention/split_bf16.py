"""Attention on AMX: O = softmax(scale · Q Kᵀ + mask) V, both products from bf16 terms.

See `irc.kernels.split_bf16.bf16_terms`.

A task is a range of query rows of one key-value head.  It goes through the keys in blocks that stay in the second
cache: K and V of a block are packed as terms, on the stack; then 32 rows at a time get their scores, exponentials,
which are split into terms as they are made, and the products with V.  Sums stand in O from block to block.

Infinities and NaN come out as in f32: terms of an infinity cancel to NaN, in the sum of exponentials or in O, and rows
with one are computed again by the kernel in f32, which also does calls with few rows or keys.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from typing import Self

from irc.ir.dim import Dim
from irc.kernels.attention.problem import AttentionProblem
from irc.kernels.attention.vector import AttentionKernel
from irc.kernels.core.base import Array, Kernel, Sizes, call
from irc.kernels.core.costs import BLOCK, CONFIGURE, SPLIT_PRODUCTS, SPLITTING, unit_of
from irc.kernels.core.isa import HEAD, Isa, vector_type
from irc.kernels.core.problem import likely
from irc.kernels.core.registry import kernel
from irc.kernels.core.text import Part, Piece, fill, flat, symbol
from irc.kernels.core.workspace import DIVIDE, aligned
from irc.kernels.gemm.packed import WORTHWHILE
from irc.kernels.split_bf16 import bf16_terms
from irc.kernels.split_bf16.bf16_terms import CHUNK, TILE_ROWS
from irc.kernels.vector.lanes import exp_below, folds, square

KEYS = 256  # of a block, at most
ROOM = 64 << 10  # bytes of a packed block of K or V
WIDEST = 256  # elements of a row of Q or V, at most
BLOCKS = 32  # of 32 rows, of a task
TASKS = 12  # into which all rows are divided, if there are as many blocks
FEW_ROWS, FEW_KEYS = 16, 32  # fewer are computed in f32

_CALL = """
/* Of a query row: the largest score, the sum of exponentials, the factor of old sums. */
typedef struct {
    float largest, sum, factor;
} ${S}_row;

/* Rows begin to end of a key-value head; head: the first query head of the group. */
typedef struct {
    const float *k, *v;
    int64_t batch, head, begin, end;
} ${S}_task;

/* How many keys query i sees. */
IRC_INLINE int64_t ${S}_reach(const ${S}_args *g, int64_t i) {
    $reach
}

/* The most that rows r0 to r1 see. */
static int64_t ${S}_furthest(const ${S}_args *g, int64_t r0, int64_t r1) {
    int64_t furthest = 0;
    for (int64_t r = r0; r < r1; r++) {
        const int64_t one = ${S}_reach(g, r % g->m);
        furthest = one > furthest ? one : furthest;
    }
    return furthest;
}

IRC_INLINE float *${S}_output(const ${S}_args *g, const ${S}_task *at, int64_t r) {
    return g->o + at->batch * g->o_batch + (at->head + r / g->m) * g->o_head + r % g->m * g->o_row;
}

/* The first n of 16 floats, zeros behind them; none where n is not positive. */
IRC_INLINE irc_f32x16 ${S}_some(const float *p, int64_t n) {
    return n >= 16 ? irc_f32x16_load(p) : n > 0 ? irc_f32x16_load_part(p, n) : (irc_f32x16){0};
}
"""

_PACK = """
/* Keys as panels of 32 columns, zeros beyond the last key. */
static void ${S}_pack_k(const ${S}_args *g, const float *k, int64_t keys, uint16_t *to) {
    const int64_t chunks = (g->d + 31) / 32;
    for (int64_t first = 0; first < (keys + 31) / 32 * 32; first += 16) {
        const int64_t have = keys - first;
        for (int64_t c = 0; c < chunks; c++) {
            uint16_t *const out = to + (first / 32 * chunks + c) * $chunk + first % 32 * 32;
            const int64_t left = g->d - c * 32;
            if (g->k_col != 1) {
                const float *from = k + first + c * 32 * g->k_col;
                for (int64_t p = 0; p < 16; p++, from += 2 * g->k_col) {
                    const irc_f32x16 x = ${S}_some(from, 2 * p < left ? have : 0);
                    const irc_f32x16 y = ${S}_some(from + g->k_col, 2 * p + 1 < left ? have : 0);
                    irc_pair_$T(x, y, out + p * 32, 1024);
                }
                continue;
            }
            _Alignas(64) uint16_t rows[$T * 512];
            for (int64_t i = 0; i < 16; i++) {
                const float *from = k + (first + i) * g->k_row + c * 32;
                const irc_f32x16 x = ${S}_some(from, i < have ? left : 0);
                irc_split_$T(x, ${S}_some(from + 16, i < have ? left - 16 : 0), rows + i * 32, 512);
            }
            for (int t = 0; t < $T; t++) {
                irc_f32x16 x[16];
                IRC_FULL_UNROLL
                for (int i = 0; i < 16; i++) x[i] = irc_f32x16_load((const float *)(rows + t * 512 + i * 32));
                irc_f32x16_square(x);
                IRC_FULL_UNROLL
                for (int i = 0; i < 16; i++) irc_f32x16_store((float *)(out + t * 1024 + i * 32), x[i]);
            }
        }
    }
}

/* Values as panels of 32 columns, zeros beyond the last key. */
static void ${S}_pack_v(const ${S}_args *g, const float *v, int64_t keys, uint16_t *to) {
    const int64_t chunks = (keys + 31) / 32;
    for (int64_t col = 0; col < g->dv; col += 32) {
        for (int64_t i = 0; i < chunks * 32; i += 2) {
            uint16_t *const out = to + (col / 32 * chunks + i / 32) * $chunk + i % 32 * 16;
            const float *from = v + i * g->v_row + col;
            IRC_FULL_UNROLL
            for (int w = 0; w < 2; w++) {
                const int64_t left = g->dv - col - w * 16;
                const irc_f32x16 x = ${S}_some(from + w * 16, i < keys ? left : 0);
                irc_pair_$T(x, ${S}_some(from + w * 16 + g->v_row, i + 1 < keys ? left : 0), out + w * 512, 1024);
            }
        }
    }
}

/* Rows r0 to r1 of the queries times the scale, in `tiles` tiles, zeros beyond. */
static void ${S}_pack_q(const ${S}_args *g, const ${S}_task *at, int64_t r0, int64_t r1, int64_t tiles, uint16_t *to) {
    const int64_t chunks = (g->d + 31) / 32, term = tiles * 512;
    for (int64_t i = 0; i < tiles * 16; i++, to += 32) {
        const int64_t r = r0 + i < r1 ? r0 + i : r0;
        const float *q = g->q + at->batch * g->q_batch + (at->head + r / g->m) * g->q_head + r % g->m * g->q_row;
        for (int64_t c = 0; c < chunks; c++) {
            const int64_t left = r0 + i < r1 ? g->d - c * 32 : 0;
            const irc_f32x16 x = ${S}_some(q + c * 32, left) * $scale;
            irc_split_$T(x, ${S}_some(q + c * 32 + 16, left - 16) * $scale, to + c * $T * term, term);
        }
    }
}
"""

_SOFTMAX = """
/* Scores of query i against keys k0 to k0 + keys: exponentials of their distance to the largest so far, as terms. */
IRC_INLINE void ${S}_softmax(const ${S}_args *g, const ${S}_task *at, int64_t r, int64_t k0, int64_t keys,
                             float *scores, ${S}_row *row, uint16_t *to, int64_t term) {
    static const irc_f32x16_mask lane = {$iota};
    const int64_t i = r % g->m;
    $mask_at
    int64_t have = ${S}_reach(g, i) - k0;
    have = have < 0 ? 0 : have < keys ? have : keys;
    irc_f32x16 most[4], sum[2] = {{0}};
    IRC_FULL_UNROLL
    for (int u = 0; u < 4; u++) most[u] = irc_f32x16_all(row->largest);
    int64_t j = 0;
    for (; !$is_masked && j + 64 <= have; j += 64) {
        IRC_FULL_UNROLL
        for (int u = 0; u < 4; u++) most[u] = irc_f32x16_largest(irc_f32x16_load(scores + j + 16 * u), most[u]);
    }
    for (; j < have; j += 16) {
        const int64_t part = have - j;
        irc_f32x16 x = irc_f32x16_load(scores + j);
        $masked
        if (part < 16) x = irc_f32x16_select((irc_f32x16_mask)(lane < (int32_t)part), x, irc_f32x16_all(-INFINITY));
        irc_f32x16_store(scores + j, x);
        most[0] = irc_f32x16_largest(x, most[0]);
    }
    IRC_FULL_UNROLL
    for (int u = 1; u < 4; u++) most[0] = irc_f32x16_largest(most[0], most[u]);
    const float largest = irc_f32x16_max_all(most[0])[0];
    /* Nothing seen so far: all exponentials are 0. */
    const irc_f32x16 base = irc_f32x16_all(largest == -INFINITY ? 0.0f : largest);
    const irc_f32x16 unseen = irc_f32x16_all(-INFINITY);
    for (j = 0; j < keys; j += 32, to += $T * term) {
        const irc_f32x16 x = irc_f32x16_exp_below((j < have ? irc_f32x16_load(scores + j) : unseen) - base);
        const irc_f32x16 y = irc_f32x16_exp_below((j + 16 < have ? irc_f32x16_load(scores + j + 16) : unseen) - base);
        sum[0] += x;
        sum[1] += y;
        irc_split_$T(x, y, to, term);
    }
    row->factor = 1;
    if (row->largest != largest && k0 > 0) row->factor = irc_f32x16_exp_below(irc_f32x16_all(row->largest) - base)[0];
    row->largest = largest;
    row->sum = row->sum * row->factor + irc_f32x16_sum_all(sum[0] + sum[1])[0];
}
"""

_BLOCK = """
/* A chunk of O, `part` columns: what stands there times the factor, unless this is the first, and x. */
IRC_INLINE void ${S}_add(float *o, irc_f32x16 x, float factor, int first, int64_t part) {
    if (!first) x += ${S}_some(o, part) * factor;
    if (part < 16) irc_f32x16_store_part(o, x, part);
    else irc_f32x16_store(o, x);
}

/* Rows r0 to r1, at most 32, against the first `keys` of the `packed` ones from k0 on. */
static void ${S}_block(const ${S}_args *g, const ${S}_task *at, int64_t r0, int64_t r1, int64_t k0, int64_t keys,
                       int64_t packed, const uint16_t *kp, const uint16_t *vp, char *own, ${S}_row *row) {
    uint16_t *const q = (uint16_t *)own, *const p = q + $wide * 32 * $T;
    float *const scores = (float *)(p + $KB * 32 * $T), *const out = scores + 32 * $AS;
    const int64_t tiles = r1 - r0 > 16 ? 2 : 1, chunks = (g->d + 31) / 32, across = (keys + 31) / 32;
    ${S}_pack_q(g, at, r0, r1, tiles, q);
    for (int64_t panel = 0; panel < across; panel++) {
        const uint16_t *const b = kp + panel * chunks * $chunk;
        if (tiles == 2) irc_products_$two(chunks, q, 16, b, scores + panel * 32, $AS, 0, 0);
        else irc_products_$one(chunks, q, 16, b, scores + panel * 32, $AS, 0, 0);
    }
    for (int64_t i = 0; i < tiles * 16; i++) {
        uint16_t *const to = p + i * 32;
        if (r0 + i < r1) ${S}_softmax(g, at, r0 + i, k0, keys, scores + i * $AS, row + i, to, tiles * 512);
        else
            for (int64_t c = 0; c < across * $T; c++) irc_bf16_store(to + c * tiles * 512, (irc_u16x32){0});
    }
    for (int64_t col = 0; col < g->dv; col += 32) {
        const uint16_t *const b = vp + col / 32 * ((packed + 31) / 32) * $chunk;
        if (tiles == 2) irc_products_$two(across, p, 16, b, out, 32, 0, 0);
        else irc_products_$one(across, p, 16, b, out, 32, 0, 0);
        for (int64_t i = 0; i < r1 - r0; i++) {
            float *const o = ${S}_output(g, at, r0 + i) + col;
            ${S}_add(o, irc_f32x16_load(out + i * 32), row[i].factor, k0 == 0, g->dv - col);
            if (g->dv - col > 16)
                ${S}_add(o + 16, irc_f32x16_load(out + i * 32 + 16), row[i].factor, k0 == 0, g->dv - col - 16);
        }
    }
}

/* Sums of row r become results; whether one was not finite. */
static int ${S}_finish(const ${S}_args *g, const ${S}_task *at, int64_t r, float sum) {
    float *const o = ${S}_output(g, at, r);
    const float factor = $empty;
    irc_f32x16 poison = {0};
    for (int64_t j = 0; j < g->dv; j += 16) {
        const irc_f32x16 x = ${S}_some(o + j, g->dv - j);
        poison += x * 0.0f;
        if (g->dv - j < 16) irc_f32x16_store_part(o + j, x * factor, g->dv - j);
        else irc_f32x16_store(o + j, x * factor);
    }
    return sum != sum || irc_any_nan(poison);
}

/* Row r in f32 throughout. */
static void ${S}_exact(const ${S}_args *g, const ${S}_task *at, char *own, int64_t r) {
    const int64_t head = at->head + r / g->m, i = r % g->m;
    (void)head;
    $again;
}
"""

_ENTRY = """
/* All keys: sums in O. */
static void ${S}_sums(const ${S}_args *g, const ${S}_task *at, char *own, ${S}_row *rows) {
    const int64_t room = ((g->n < $KB ? g->n : $KB) + 31) / 32 * $wide * (32 * $T);
    uint16_t *const kp = (uint16_t *)(own + $block), *const vp = kp + room;
    const int64_t furthest = ${S}_furthest(g, at->begin, at->end);
    for (int64_t r = at->begin; r < at->end; r++) rows[r - at->begin] = (${S}_row){-INFINITY, 0, 1};
    int64_t k0 = 0;
    do {
        const int64_t packed = furthest - k0 < $KB ? furthest - k0 : $KB;
        ${S}_pack_k(g, at->k + k0 * g->k_row, packed, kp);
        ${S}_pack_v(g, at->v + k0 * g->v_row, packed, vp);
        for (int64_t r0 = at->begin; r0 < at->end; r0 += 32) {
            const int64_t r1 = at->end - r0 < 32 ? at->end : r0 + 32, seen = ${S}_furthest(g, r0, r1) - k0;
            if (seen <= 0 && k0 > 0) continue;
            ${S}_block(g, at, r0, r1, k0, seen < packed ? seen : packed, packed, kp, vp, own,
                       rows + (r0 - at->begin));
        }
        k0 += packed;
    } while (k0 < furthest);
}

static void ${S}_rows(const ${S}_args *g, const ${S}_task *at, char *own) {
    ${S}_row *const rows = (${S}_row *)own;
    own += $rows;
    ${S}_sums(g, at, own, rows);
    for (int64_t r = at->begin; r < at->end; r++)
        if (${S}_finish(g, at, r, rows[r - at->begin].sum)) ${S}_exact(g, at, own, r);
}

/* Blocks of 32 rows of a head of K and V, and the tasks that they are cut into. */
typedef struct {
    int64_t rows, blocks, parts;
} ${S}_plan;

IRC_INLINE ${S}_plan ${S}_split(const ${S}_args *g) {
    const int64_t heads = g->batch * (g->heads / g->group), rows = g->group * g->m, blocks = (rows + 31) / 32;
    const int64_t wanted = ($tasks + heads - 1) / heads, least = (blocks + $blocks - 1) / $blocks;
    const int64_t parts = wanted < blocks ? wanted : blocks;
    return (${S}_plan){rows, blocks, parts < least ? least : parts};
}

static void ${S}_part(void *given, char *own, int64_t begin, int64_t end) {
    const ${S}_args *g = given;
    const ${S}_plan plan = ${S}_split(g);
    const int64_t shared = g->heads / g->group;
$begin    for (; begin < end; begin++) {
        const int64_t part = begin % plan.parts, batch = begin / plan.parts / shared, one = begin / plan.parts % shared;
        const int64_t stop = plan.blocks * (part + 1) / plan.parts * 32;
        const ${S}_task at = {
            g->k + batch * g->k_batch + one * g->k_head, g->v + batch * g->v_batch + one * g->v_head, batch,
            one * g->group, plan.blocks * part / plan.parts * 32, stop < plan.rows ? stop : plan.rows};
        ${S}_rows(g, &at, own);
    }
$end}

void $S($parameters) {
    if (g->batch <= 0 || g->heads <= 0 || g->dv <= 0 || g->group * g->m < $few_rows || g->n < $few_keys) {
        ${S}_f32(pool, g);
        return;
    }
    const int64_t tasks = g->batch * (g->heads / g->group) * ${S}_split(g).parts;
    const double work = (double)(g->batch * g->heads) * (double)(g->m * g->n) * (double)(g->d + g->dv);
    if (!pool || tasks < 2 || work < $worthwhile) ${S}_part((void *)g, g->own, 0, tasks);
    else irc_divide(pool, tasks, ${S}_part, (void *)g, g->own, g->own_bytes, g->owners);
}
"""


@kernel
class SplitAttentionKernel(Kernel[AttentionProblem]):
    """An attention from bf16 terms, called like `plain`, the same in f32."""

    plain: AttentionKernel
    terms: int
    unit: bf16_terms.Unit = "amx"

    problem = AttentionProblem

    @classmethod
    def candidates(cls, problem: AttentionProblem, isa: Isa) -> Iterator[Self]:
        """Yield the variants unless too few rows or keys for tiles are known."""
        terms, rows = bf16_terms.TERMS[problem.precision], problem.rows
        unit = unit_of(isa, terms)
        if unit is None or likely(rows) < FEW_ROWS or likely(problem.n) < FEW_KEYS:
            return
        for plain in AttentionKernel.candidates(problem, isa):
            if TILE_ROWS <= plain.width <= WIDEST:
                yield cls(plain, terms, unit)

    def cycles(self, problem: AttentionProblem) -> float:
        m, n, wide, splitting = likely(problem.rows), likely(problem.n), self._wide, SPLITTING[self.terms]
        blocks = -(-m // (2 * TILE_ROWS))
        scores = blocks * 2 * TILE_ROWS * (-(-n // CHUNK) * CHUNK)
        products = 2 * scores * wide * self.executed / SPLIT_PRODUCTS[self.unit, self.terms]
        packing = (scores + 4 * n * wide) * splitting
        each = products + packing + CONFIGURE[self.unit] + BLOCK * (scores + blocks * 32 * wide) / 1024
        return problem.count * each

    @property
    def label(self) -> str:
        return "split bf16"

    def arguments_for(self, problem: AttentionProblem) -> dict[str, Dim]:
        return problem.arguments()

    def own_bytes(self, sizes: Mapping[str, int]) -> int:
        packed = -(-min(sizes["n"], self.keys) // CHUNK) * CHUNK * self._wide * self.terms * 2
        return self._rows_bytes + max(self._block_bytes + 2 * packed, self.plain.own_bytes(sizes))

    @property
    def _rows_bytes(self) -> int:
        """The bytes of what is known of the rows of a task."""
        return aligned(BLOCKS * 32 * 12)

    @property
    def _block_bytes(self) -> int:
        """The bytes of a block of rows: terms of its queries and exponentials, its scores, and a block of sums."""
        return (self._wide + self.keys) * 32 * self.terms * 2 + (32 * self._stride + 1024) * 4

    @property
    def _stride(self) -> int:
        return self.keys + 16

    def compute(self, reads: Sequence[Array], writes: Sequence[Array], sizes: Mapping[str, int]) -> None:
        """Compute the same in f32."""
        self.plain.compute(reads, writes, sizes)

    @cached_property
    def symbol(self) -> str:
        return symbol(f"attention_{self.unit}", self.terms, self.plain.symbol)

    @property
    def features(self) -> frozenset[str]:
        return bf16_terms.FEATURES[self.unit]

    @property
    def pointers(self) -> tuple[tuple[str, str], ...]:
        return self.plain.pointers

    @property
    def sizes(self) -> tuple[str, ...]:
        return self.plain.sizes

    @property
    def keys(self) -> int:
        """Keys of a block."""
        return max(CHUNK, min(KEYS, ROOM // (self._wide * self.terms * 2) // CHUNK * CHUNK))

    @property
    def executed(self) -> float:
        return float(len(bf16_terms.ORDER[self.terms]))

    def flops(self, sizes: Sizes) -> Dim:
        return self.plain.flops(sizes)

    def parts(self) -> list[Part]:
        t, plain = self.terms, self.plain
        inner = f"{self.symbol}_f32"
        begin, again, end = call(inner, "0", {n: self._again(n) for n, _ in self.arguments})
        given = self.interface | {
            "S": self.symbol,
            "T": t,
            "chunk": t * 1024,
            "KB": self.keys,
            "AS": self._stride,
            "wide": self._wide,
            "rows": self._rows_bytes,
            "block": self._block_bytes,
            "scale": f"{float(plain.scale).hex()}f",
            "iota": ", ".join(map(str, range(16))),
            "is_masked": int(plain.mask != "none"),
            "blocks": BLOCKS,
            "begin": bf16_terms.BEGIN[self.unit].format(rows="16"),
            "end": bf16_terms.END[self.unit],
            "one": bf16_terms.products_name(t, 1, 2, self.unit),
            "two": bf16_terms.products_name(t, 2, 2, self.unit),
            "tasks": TASKS,
            "few_rows": FEW_ROWS,
            "few_keys": FEW_KEYS,
            "worthwhile": WORTHWHILE,
            "reach": self._reach,
            "mask_at": self._mask_at,
            "masked": self._masked,
            "empty": "1.0f / sum" if plain.empty == "nan" else "sum > 0 || sum != sum ? 1.0f / sum : 0.0f",
            "again": f"{begin}{', '.join(again)}{end}",
        }
        shared = (
            HEAD,
            DIVIDE,
            vector_type(16, plain.tile.dtype),
            folds(16, plain.tile.dtype),
            square(16, plain.tile.dtype),
            exp_below(16, plain.tile.dtype),
            bf16_terms.TYPES,
            bf16_terms.head(self.unit),
            bf16_terms.split(t),
            bf16_terms.pair(t),
            bf16_terms.products(t, 2, 2, self.unit),
            bf16_terms.products(t, 1, 2, self.unit),
        )
        exact: list[Part] = [
            part if isinstance(part, Piece) else part.replace(plain.symbol, inner)
            for part in flat([f"typedef {self.symbol}_args {inner}_args;\n", plain.parts()])
        ]
        texts = (_CALL, _PACK, _SOFTMAX, _BLOCK, _ENTRY)
        return [*shared, exact, *(fill(x, **given) for x in texts)]

    @property
    def summary(self) -> str:
        return f"{self.plain.summary[:-1]}; on AMX, bf16 terms of a value: {self.terms}, blocks of {self.keys} keys."

    @property
    def _wide(self) -> int:
        return -(-self.plain.width // CHUNK) * CHUNK

    def _again(self, name: str) -> str:
        """Print the argument for row r alone."""
        one = {"batch": "1", "heads": "1", "group": "1", "m": "1", "k": "at->k", "v": "at->v", "own": "own"}
        if name in one:
            return one[name]
        if name == "o":
            return f"{self.symbol}_output(g, at, r)"
        if name in ("q", "mask"):
            return f"g->{name} + at->batch * g->{name}_batch + head * g->{name}_head + i * g->{name}_row"
        return "g->shift + i" if name == "shift" else f"g->{name}"

    @property
    def _reach(self) -> str:
        if not self.plain.causal:
            return "(void)i;\n    return g->n;"
        return "const int64_t end = i + g->shift + 1;\n    return end < 0 ? 0 : end < g->n ? end : g->n;"

    @property
    def _mask_at(self) -> str:
        if self.plain.mask == "none":
            return "(void)at;"
        kind = "float" if self.plain.mask == "add" else "uint8_t"
        place = "at->batch * g->mask_batch + (at->head + r / g->m) * g->mask_head + i * g->mask_row"
        return f"const {kind} *const mask = g->mask + {place} + k0 * g->mask_col;"

    @property
    def _masked(self) -> str:
        """C that adds the mask of up to `part` keys from j on to the scores x."""
        if self.plain.mask == "none":
            return ""
        seen = " ? 0.0f : -INFINITY" if self.plain.mask == "bool" else ""
        return f"""float lanes[16] = {{0}};
        if (g->mask_col == 1 && part >= 16)
            for (int l = 0; l < 16; l++) lanes[l] = mask[j + l]{seen};
        else
            for (int l = 0; l < 16 && l < part; l++) lanes[l] = mask[(j + l) * g->mask_col]{seen};
        x += irc_f32x16_load(lanes);"""
