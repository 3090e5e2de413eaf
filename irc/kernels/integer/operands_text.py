"""C of products of two operands of bytes: the register tile, what makes both ready for it, and the function around."""

from __future__ import annotations

TILE = """
/* sums[R][$NR] = the columns' own, and the rows' `starts` if there are any, + A . panel; rows of A `a_row` apart. */
IRC_INLINE void ${tile}(const int R, const $E *a, int64_t a_row, const int8_t *restrict panel, int64_t groups,
                        const int32_t *starts, int32_t *restrict sums) {
    $V acc[$MR][$NV], b[$NV];
    EACH(i < R, v < $NV) acc[i][v] = $load(panel + v * $bytes);
    if (starts) {
        EACH(i < R, v < $NV) acc[i][v] = $add(acc[i][v], $all(starts[i]));
    }
    const int8_t *p = panel + 4 * $NR;
    const $E *x[$MR];
    EACH(i < R) x[i] = a + i * a_row;
    for (int64_t k = 0; k < groups * $step; k += $step, p += 4 * $NR) {
        EACH(v < $NV) b[v] = $load(p + v * $bytes);
        IRC_FULL_UNROLL
        for (int i = 0; i < R; i++) {
            int32_t group;
            __builtin_memcpy(&group, x[i] + k, 4);
            const $V all = $all(group);
            EACH(v < $NV) $dot;
        }
    }
    EACH(i < R, v < $NV) $store(sums + i * $NR + v * $lanes, acc[i][v]);
}
"""

INSTANCE = """\
static void ${tile}_$R(const $E *a, int64_t a_row, const int8_t *panel, int64_t groups, const int32_t *starts,
                       int32_t *sums) {
    $tile($R, a, a_row, panel, groups, starts, sums);
}
"""

WORK = """
/* Where the rows of A are that tiles read, and the zero points of what is multiplied. */
typedef struct {
    const ${S}_args *g;
    const $E *a;
    int32_t *starts;
    int8_t *packed;
    int64_t a_batch0, a_batch1, a_row, groups, size, tiles, panels, tasks_across, tasks_down;
    int32_t a_zero, b_zero;$rounding_field
} ${S}_work;
"""

TURN_FOURS = """\
/* Four columns of sixteen neighbours in k each, fours beside those of the other columns, `step` bytes apart. */
IRC_INLINE void ${S}_turn(const $BB *b, int64_t column, int8_t *to, int64_t step, int32_t zero) {
    __m128i x[4];
    (void)zero;
    EACH(i < 4) x[i] = ${flip}_mm_loadu_si128((const __m128i *)(b + i * column))$flipped;
$fours}

/* Sixteen columns of four rows, those of a column side by side. */
IRC_INLINE void ${S}_join(const $BB *b, int64_t row, int8_t *to, int32_t zero) {
    __m128i x[4];
    (void)zero;
    EACH(i < 4) x[i] = ${flip}_mm_loadu_si128((const __m128i *)(b + i * row))$flipped;
    const __m128i low = _mm_unpacklo_epi8(x[0], x[1]), high = _mm_unpackhi_epi8(x[0], x[1]);
    const __m128i next = _mm_unpacklo_epi8(x[2], x[3]), last = _mm_unpackhi_epi8(x[2], x[3]);
    _mm_storeu_si128((__m128i *)to, _mm_unpacklo_epi16(low, next));
    _mm_storeu_si128((__m128i *)(to + 16), _mm_unpackhi_epi16(low, next));
    _mm_storeu_si128((__m128i *)(to + 32), _mm_unpacklo_epi16(high, last));
    _mm_storeu_si128((__m128i *)(to + 48), _mm_unpackhi_epi16(high, last));
}
"""

TURN_PAIRS = """\
/* Four columns of eight neighbours in k each as words, pairs beside those of the other columns, `step` bytes apart. */
IRC_INLINE void ${S}_turn(const $BB *b, int64_t column, int8_t *to, int64_t step, int32_t zero) {
    const __m128i none = _mm_set1_epi16((short)zero);
    __m128i x[4];
    EACH(i < 4) x[i] = _mm_sub_epi16($words(_mm_loadl_epi64((const __m128i *)(b + i * column))), none);
$fours}

/* Eight columns of two rows as words, those of a column side by side. */
IRC_INLINE void ${S}_join(const $BB *b, int64_t row, int8_t *to, int32_t zero) {
    const __m128i none = _mm_set1_epi16((short)zero);
    __m128i x[2];
    EACH(i < 2) x[i] = _mm_sub_epi16($words(_mm_loadl_epi64((const __m128i *)(b + i * row))), none);
    _mm_storeu_si128((__m128i *)to, _mm_unpacklo_epi16(x[0], x[1]));
    _mm_storeu_si128((__m128i *)(to + 16), _mm_unpackhi_epi16(x[0], x[1]));
}
"""

FOURS_OF_COLUMNS = """\
    const __m128i low = _mm_unpacklo_epi32(x[0], x[1]), high = _mm_unpackhi_epi32(x[0], x[1]);
    const __m128i next = _mm_unpacklo_epi32(x[2], x[3]), last = _mm_unpackhi_epi32(x[2], x[3]);
    _mm_storeu_si128((__m128i *)to, _mm_unpacklo_epi64(low, next));
    _mm_storeu_si128((__m128i *)(to + step), _mm_unpackhi_epi64(low, next));
    _mm_storeu_si128((__m128i *)(to + 2 * step), _mm_unpacklo_epi64(high, last));
    _mm_storeu_si128((__m128i *)(to + 3 * step), _mm_unpackhi_epi64(high, last));
"""

PACK = """
/* A panel of columns 0 to `have` of B: what their sums begin with, then groups of their neighbours in k. */
static void ${S}_pack(const ${S}_work *w, const $BB *b, int64_t have, int8_t *panel) {
    const ${S}_args *g = w->g;
    const int64_t k = g->k, row = g->b_row, col = g->b_col;
    $W *const to = ($W *)(panel + 4 * $NR);
    int64_t across = 0, down = 0; /* columns and rows that are done */
    if (have < $NR || k % $step) __builtin_memset(panel, 0, (size_t)w->size);
    if (col == 1 && have >= $many) {
        for (; across + $many <= have; across += $many)
            for (down = 0; down + $step <= k; down += $step)
                ${S}_join(b + down * row + across, row, (int8_t *)(to + down * $NR + across * $step), w->b_zero);
    } else if (row == 1 && k >= $long) {
        for (; across + 4 <= have; across += 4)
            for (down = 0; down + $long <= k; down += $long)
                ${S}_turn(b + down + across * col, col, (int8_t *)(to + down * $NR + across * $step), 4 * $NR,
                        w->b_zero);
    }
    for (int64_t j = 0; j < k; j++) {
        $W *const line = to + j / $step * $step * $NR + j % $step;
        for (int64_t i = j < down ? across : 0; i < have; i++) line[i * $step] = ($W)(b[j * row + i * col]$b_change);
    }
$head}
"""

HEAD_OF_FOURS = """\
    const $M ones = $all(0x01010101);
    $M sums[$NV];
    EACH(v < $NV) sums[v] = $all(0);
    for (int64_t i = 0; w->a_zero && i < w->groups; i++) {
        EACH(v < $NV) irc_fours_$bits(&sums[v], ones, $load((const int8_t *)to + (i * $NV + v) * $bytes));
    }
    const $M own = $all((int32_t)((uint32_t)k * (uint32_t)w->a_zero * (uint32_t)w->b_zero)), zero = $all(w->a_zero);
    EACH(v < $NV) $store(panel + v * $bytes, $minus(own, $times(zero, sums[v])));
"""

HEAD_OF_PAIRS = """\
    __builtin_memset(panel, 0, 4 * $NR);
"""

ROWS = """
/* Rows row0 to row1 of A of one matrix: their copies, if tiles read these, and what their sums begin with. */
static void ${S}_rows(const ${S}_work *w, int64_t i, int64_t j, int64_t row0, int64_t row1) {
    const ${S}_args *g = w->g;
    const int64_t k = g->k, col = g->a_col;
    for (int64_t row = row0; row < row1; row++) {
        const $AB *restrict from = g->a + i * g->a_batch0 + j * g->a_batch1 + row * g->a_row;
        (void)col, (void)from, (void)k;
$copy$sum    }
}
"""

COPY = """\
        $E *restrict to = ($E *)w->a + i * w->a_batch0 + j * w->a_batch1 + row * w->a_row;
        if (col == 1) {
            for (int64_t c = 0; c < k; c++) to[c] = ($E)(from[c]$a_change);
        } else {
            for (int64_t c = 0; c < k; c++) to[c] = ($E)(from[c * col]$a_change);
        }
        for (int64_t c = k; c < w->a_row; c++) to[c] = 0;
"""

SUM = """\
        if (!w->b_zero) continue;
        const uint8_t *x = $summed;
        __m128i both = _mm_setzero_si128();
        int64_t c = 0;
        for (; c + 16 <= k; c += 16)
            both = _mm_add_epi64(both, _mm_sad_epu8(_mm_loadu_si128((const __m128i *)(x + c)), _mm_setzero_si128()));
        int32_t sum = _mm_cvtsi128_si32(both) + _mm_extract_epi16(both, 4) + (_mm_extract_epi16(both, 5) << 16);
        for (; c < k; c++) sum += x[c];
        w->starts[(i * g->batch1 + j) * g->m + row] = (int32_t)(0u - (uint32_t)w->b_zero * (uint32_t)sum);
"""

BODY = """
/* Makes the operands ready: panels of B of every matrix, then rows of A, $MR at a time. */
static void ${S}_prepare(void *given, int64_t begin, int64_t end) {
    const ${S}_work *w = given;
    const ${S}_args *g = w->g;
    const int64_t all = g->batch0 * g->batch1 * w->panels;
    for (; begin < end; begin++) {
        const int packs = begin < all;
        const int64_t at = packs ? begin : begin - all, each = packs ? w->panels : w->tiles;
        const int64_t i = at / each / g->batch1, j = at / each % g->batch1, n = at % each;
        if (packs) {
            const $BB *b = g->b + i * g->b_batch0 + j * g->b_batch1 + n * $NR * g->b_col;
            const int64_t have = g->n - n * $NR < $NR ? g->n - n * $NR : $NR;
            ${S}_pack(w, b, have, w->packed + begin * w->size);
        } else {
            ${S}_rows(w, i, j, n * $MR, (n + 1) * $MR < g->m ? (n + 1) * $MR : g->m);
        }
    }
}
$whole
/* Tasks: of every matrix some tiles of rows by some panels. */
static void ${S}_part(void *given, int64_t begin, int64_t end) {
    static void (*const tiles_of[])(const $E *a, int64_t a_row, const int8_t *panel, int64_t groups,
                                    const int32_t *starts, int32_t *sums) = {$table};
    const ${S}_work *w = given;
    const ${S}_args *g = w->g;
    const int64_t across = w->tasks_across, down = w->tasks_down, low = g->m / w->tiles, extra = g->m % w->tiles;
    int32_t sums[$MR * $NR];
    for (; begin < end; begin++) {
        const int64_t image = begin / across / down, i = image / g->batch1, j = image % g->batch1;
        const int64_t first = begin / across % down * w->tiles / down, at = begin % across;
        const int64_t last = (begin / across % down + 1) * w->tiles / down;
        const $E *a = w->a + i * w->a_batch0 + j * w->a_batch1;
        ${S}_out o = {.c = g->c + i * g->c_batch0 + j * g->c_batch1, .c_row = g->c_row, .n = g->n};$slot_starts
        (void)o.n;
        for (int64_t p = at * w->panels / across; p < (at + 1) * w->panels / across; p++) {
            const int8_t *panel = w->packed + (image * w->panels + p) * w->size;
            for (int64_t t = first; t < last; t++) {
                const int64_t row = t * low + (t < extra ? t : extra), rows = low + (t < extra);
                const int32_t *starts = w->starts ? w->starts + image * g->m + row : 0;
                const $E *from = a + row * w->a_row;$if_whole
                tiles_of[rows - 1](from, w->a_row, panel, w->groups, starts, sums);
                ${S}_finish(w, &o, sums, rows, row, p * $NR, g->n - p * $NR);
            }
        }
    }
}

void $S($parameters) {
    const int64_t count = g->batch0 * g->batch1;
    if (g->m <= 0 || g->n <= 0 || count <= 0) return;
    ${S}_work w = {.g = g};
    w.groups = (g->k + $step - 1) / $step;
    w.size = 4 * $NR * (1 + w.groups);
    w.tiles = (g->m + $MR - 1) / $MR;
    w.panels = (g->n + $NR - 1) / $NR;
    w.a_zero = $a_zero;
    w.b_zero = $b_zero;$rounding
    w.packed = (int8_t *)g->scratch;
$layout
    w.tasks_across = (w.panels + $P - 1) / $P;
    w.tasks_down = (w.tiles + $Q - 1) / $Q;
    const int64_t prepared = count * w.panels + ($prepares ? count * w.tiles : 0);
    const double work = (double)count * (double)g->m * (double)g->n * (double)g->k;
    if (!pool || work < $worthwhile) {
        ${S}_prepare(&w, 0, prepared);
        ${S}_part(&w, 0, count * w.tasks_down * w.tasks_across);
    } else {
        const int64_t others = count * w.tasks_across, wanted = ($least + others - 1) / others;
        if (w.tasks_down < wanted) w.tasks_down = wanted < w.tiles ? wanted : w.tiles;
        pool->parallel_for(pool->self, prepared, ${S}_prepare, &w);
        pool->parallel_for(pool->self, count * w.tasks_down * w.tasks_across, ${S}_part, &w);
    }
}
"""

IN_PLACE = """\
    w.a = g->a;
    w.a_batch0 = g->a_batch0;
    w.a_batch1 = g->a_batch1;
    w.a_row = g->a_row;
    if (w.b_zero) w.starts = (int32_t *)(w.packed + count * w.panels * w.size);"""

COPIED = """\
    w.a = (const $E *)(w.packed + count * w.panels * w.size);
    w.a_row = w.groups * $step;
    w.a_batch1 = g->m * w.a_row;
    w.a_batch0 = g->batch1 * w.a_batch1;"""

STARTS = """
    if (w.b_zero) w.starts = (int32_t *)(w.a + g->batch0 * w.a_batch0);"""

WHOLE = """
/* Computes a tile of all rows and columns, whose sums stay in registers. */
static void ${S}_whole(const ${S}_work *w, const ${S}_out *o, const $E *a, const int8_t *panel, const int32_t *starts,
                       int64_t row, int64_t col) {
    int32_t sums[$MR * $NR];
    $stored *const c = o->c + row * o->c_row + col;
    $body($MR, a, w->a_row, panel, w->groups, starts, sums);
$rows}
"""

IF_WHOLE = """
                if (rows == $MR && g->n - p * $NR >= $NR) {
                    ${S}_whole(w, &o, from, panel, starts, row, p * $NR);
                    continue;
                }"""
