"""The C text of `irc.kernels.gemm.split_bf16`, and the like of `irc.kernels.conv.split_bf16`."""

# Of kernels that differ in their epilogues and results alone, which `out` and `finish` stand for: $C is all of theirs.
PRODUCTS_TYPE = """
typedef void ${C}_products(int64_t chunks, const uint16_t *a, int64_t height, const uint16_t *b, float *out,
                           int64_t out_row, const char *ahead, int64_t lines$meanwhile);
"""
PRODUCTS_FIELD = "\n    ${C}_products *const *products; /* by whether two row tiles, and whether two column tiles */"

DIRECT = "\n    int direct; /* A is read in place */"

CALL = """$types
typedef struct {
    const $X *a;
    const $B *b;
    float *c; /* sums over a part of k */
    uint16_t *scratch;
    int64_t m, n, k, a_row, a_col, c_row;
    /* Rows come in `tiles` tiles of `height`, k in chunks of 32.  Packed are tiles tile0 to tile1, chunk0 to chunk1. */
    int64_t tiles, height, tile0, tile1, chunk0, chunk1;
    int64_t groups; /* into which the packed rows are divided among threads */
    char *own;
    int64_t own_bytes, owners;
    const void *out; /* of `finish`: rows of a block to C, through the epilogue; whether a sum was not finite */
    int (*finish)(const void *out, const float *block, int64_t rows, int64_t row, int64_t col, int first);$more
} ${C}_call;
"""

# Four rows at a time; B as it is stored: f32, or terms whose sum is taken.  Sums of at most $sum products are added up.
ROWS = """
$load_b
/* R rows, one panel of 32 columns: out[row][32], all of k in f32. */
IRC_INLINE void ${C}_rows(const int R, const ${C}_call *g, const $X *a, const $B *b, irc_f32x16 *out) {
    irc_f32x16 sum[4][2];
    IRC_FULL_UNROLL
    for (int r = 0; r < R; r++) sum[r][0] = sum[r][1] = (irc_f32x16){0};
    int64_t k = 0;
    do {
        const int64_t end = g->k - k < $sum ? g->k : k + $sum;
        irc_f32x16 part[4][2], other[4][2], even[2], odd[2];
        IRC_FULL_UNROLL
        for (int r = 0; r < R; r++) part[r][0] = part[r][1] = other[r][0] = other[r][1] = (irc_f32x16){0};
        while (k < end) {
            const $B *at = b + k / 32 * $chunk;
            const int64_t stop = end - k < 32 ? end : k + 32;
            const $X *x = a + k * g->a_col;
            for (; k + 1 < stop; k += 2, at += $pair, x += 2 * g->a_col) {
                IRC_FULL_UNROLL
                for (int i = 0; i < $lines; i++) __builtin_prefetch(at + $far + i * $line);
                ${C}_load_b(at, 1, even, odd);
                IRC_FULL_UNROLL
                for (int r = 0; r < R; r++) {
                    const float x0 = $VX(x[r * g->a_row]), x1 = $VX(x[r * g->a_row + g->a_col]);
                    IRC_FULL_UNROLL
                    for (int w = 0; w < 2; w++) {
                        part[r][w] += x0 * even[w];
                        other[r][w] += x1 * odd[w];
                    }
                }
            }
            if (k == stop) continue;
            ${C}_load_b(at, 0, even, odd);
            IRC_FULL_UNROLL
            for (int r = 0; r < R; r++) {
                part[r][0] += $VX(x[r * g->a_row]) * even[0];
                part[r][1] += $VX(x[r * g->a_row]) * even[1];
            }
            k++;
        }
        IRC_FULL_UNROLL
        for (int r = 0; r < R; r++) {
            sum[r][0] += part[r][0] + other[r][0];
            sum[r][1] += part[r][1] + other[r][1];
        }
    } while (k < g->k);
    IRC_FULL_UNROLL
    for (int r = 0; r < R; r++) {
        out[2 * r] = sum[r][0];
        out[2 * r + 1] = sum[r][1];
    }
}

/* Rows row to row1 of the panel at column col, in f32 throughout: few rows, or what f32 alone gets right (infinities,
 * NaN, sums near the largest float). */
static void ${C}_exact(const ${C}_call *g, const void *out, const $X *a, const $B *b, int64_t row, int64_t row1,
                       int64_t col) {
    irc_f32x16 block[8];
    for (int64_t rows = 4; row < row1; row += rows) {
        const $X *from = a + row * g->a_row;
        while (rows > row1 - row) rows /= 2;
        if (rows == 4) ${C}_rows(4, g, from, b, block);
        else if (rows == 2) ${C}_rows(2, g, from, b, block);
        else ${C}_rows(1, g, from, b, block);
        g->finish(out, (const float *)block, rows, row, col, 1);
    }
}

/* Panel p of a matrix B; the panels stand one after the other. */
IRC_INLINE const $B *${C}_panel(const ${C}_call *g, const $B *b, int64_t p) { return b + p * ($panel_elements); }
"""

LOAD_F32 = """/* Two rows of a panel; where not `both`, the first one. */
IRC_INLINE void ${S}_load_b(const float *b, const int both, irc_f32x16 *even, irc_f32x16 *odd) {
    IRC_FULL_UNROLL
    for (int w = 0; w < 2; w++) {
        even[w] = irc_f32x16_load(b + w * 16);
        odd[w] = both ? irc_f32x16_load(b + 32 + w * 16) : even[w];
    }
}"""

LOAD_TERMS = """/* Two rows of a panel: sums of their terms, which f32 holds exactly. */
IRC_INLINE void ${S}_load_b(const uint16_t *b, const int both, irc_f32x16 *even, irc_f32x16 *odd) {
    (void)both;
    IRC_FULL_UNROLL
    for (int w = 0; w < 2; w++) {
        IRC_FULL_UNROLL
        for (int t = 0; t < $T; t++) {
            const irc_u32x16 words = *(const irc_u32x16_memory *)(b + t * 1024 + w * 512);
            const irc_f32x16 low = (irc_f32x16)(words << 16), high = (irc_f32x16)(words & 0xffff0000);
            even[w] = t ? even[w] + low : low;
            odd[w] = t ? odd[w] + high : high;
        }
    }
}"""

FINISH = """
/* Rows of a block of 32 columns to C, through the epilogue; sums of the chunks before are added, unless these are the
 * first ones.  Whether a sum was not finite: terms of an infinity cancel to NaN, so f32 must tell what it is. */
static int ${S}_finish(const void *given, const float *block, int64_t rows, int64_t row, int64_t col, int first) {
    const ${S}_out o = *(const ${S}_out *)given; /* stores do not change it */
    const int64_t left = o.n - col;
    $Y *to = o.c + row * o.c_row + col;
    irc_f32x16 poison = {0};
    if (left >= 32) {
        for (int64_t i = 0; i < rows; i++, block += 32, to += o.c_row) {
            IRC_FULL_UNROLL
            for (int w = 0; w < 2; w++) {
                irc_f32x16 x = irc_f32x16_load(block + 16 * w);
                if (!first) x += $LY(to + 16 * w);
                poison = irc_note(poison, x * 0.0f);
                $SY(to + 16 * w, ${S}_epilogue(&o, x, row + i, col + 16 * w, 16));
            }
        }
        return irc_any_nan(poison);
    }
    for (int64_t i = 0; i < rows; i++, block += 32, to += o.c_row) {
        for (int w = 0; w < 2 && 16 * w < left; w++) {
            const int64_t part = left - 16 * w;
            irc_f32x16 x = irc_f32x16_load(block + 16 * w);
            if (!first) x += ${LY}_part(to + 16 * w, part);
            const irc_f32x16 y = ${S}_epilogue(&o, x, row + i, col + 16 * w, part);
            poison = irc_note(poison, x * 0.0f);
            if (part < 16) ${SY}_part(to + 16 * w, y, part);
            else $SY(to + 16 * w, y);
        }
    }
    return irc_any_nan(poison);
}

/* What that takes, of matrix i, j. */
IRC_INLINE ${S}_out ${S}_at(const ${S}_args *g, int64_t i, int64_t j) {
    ${S}_out o = {.c = g->c + i * g->c_batch0 + j * g->c_batch1, .c_row = g->c_row, .n = g->n};$slot_starts
    return o;
}
"""

SKINNY = """
/* Few rows: panels begin to end of one matrix. */
static void ${S}_skinny_part(void *given, int64_t begin, int64_t end) {
    const ${S}_args *g = given;
    const ${C}_call call = {.n = g->n, .k = g->k, .a_row = g->a_row, .a_col = g->a_col, .finish = ${S}_finish};
    const int64_t panels = (g->n + 31) / 32;
    for (; begin < end; begin++) {
        const int64_t image = begin / panels, p = begin % panels, i = image / g->batch1, j = image % g->batch1;
        const ${S}_out o = ${S}_at(g, i, j);
        const $B *b = ${C}_panel(&call, g->b + i * g->b_batch0 + j * g->b_batch1, p);
        ${C}_exact(&call, &o, g->a + i * g->a_batch0 + j * g->a_batch1, b, 0, g->m, p * 32);
    }
}
"""

PACK = """
/* Row tiles begin to end of the stripe: their chunks as terms.  Two tiles stand beside each other, a last one alone. */
static void ${C}_pack_part(void *given, int64_t begin, int64_t end) {
    const ${C}_call *g = given;
    const int64_t chunks = g->chunk1 - g->chunk0, tile = g->height * 32;
    for (; begin < end; begin++) {
        const int64_t row = (g->tile0 + begin) * g->height, left = g->m - row;
        const int64_t beside = (begin | 1) < g->tile1 - g->tile0 ? 2 : 1, term = beside * tile;
        uint16_t *to = g->scratch + begin / 2 * (chunks * 2 * $T * tile) + begin % 2 * tile;
        const float *a = g->a + row * g->a_row + g->chunk0 * 32 * g->a_col;
        for (int64_t c = g->chunk0; c < g->chunk1; c++, to += $T * term, a += 32 * g->a_col) {
            const int64_t have = g->k - c * 32 < 32 ? g->k - c * 32 : 32;
            float copy[512];
            const float *from = a;
            int64_t step = g->a_row;
            if (g->a_col != 1) {
                for (int64_t j = 0; j < have; j++)
                    for (int64_t i = 0; i < g->height && i < left; i++)
                        copy[i * 32 + j] = a[i * g->a_row + j * g->a_col];
                from = copy;
                step = 32;
            }
            for (int64_t i = 0; i < g->height; i++, from += step) {
                irc_f32x16 x = {0}, y = {0};
                if (i < left && have == 32) {
                    x = irc_f32x16_load(from);
                    y = irc_f32x16_load(from + 16);
                } else if (i < left) {
                    x = irc_f32x16_load_part(from, have);
                    if (have > 16) y = irc_f32x16_load_part(from + 16, have - 16);
                }
                irc_split_$T(x, y, to + i * 32, term);
            }
        }
    }
}
"""

PACK_BF16 = """
/* Row tiles begin to end of the stripe: their chunks.  Two tiles stand beside each other, a last one alone. */
static void ${C}_pack_part(void *given, int64_t begin, int64_t end) {
    const ${C}_call *g = given;
    const int64_t chunks = g->chunk1 - g->chunk0, tile = g->height * 32;
    for (; begin < end; begin++) {
        const int64_t row = (g->tile0 + begin) * g->height, left = g->m - row;
        const int64_t term = ((begin | 1) < g->tile1 - g->tile0 ? 2 : 1) * tile;
        uint16_t *to = g->scratch + begin / 2 * (chunks * 2 * tile) + begin % 2 * tile;
        const uint16_t *a = g->a + row * g->a_row + g->chunk0 * 32 * g->a_col;
        for (int64_t c = g->chunk0; c < g->chunk1; c++, to += term, a += 32 * g->a_col) {
            const int64_t have = g->k - c * 32 < 32 ? g->k - c * 32 : 32;
            for (int64_t i = 0; i < g->height; i++) {
                const uint16_t *const from = a + i * g->a_row;
                irc_u16x32 x = {0};
                if (i < left && g->a_col == 1) x = irc_halves_part(from, have);
                else if (i < left)
                    for (int64_t j = 0; j < have; j++) ((uint16_t *)&x)[j] = from[j * g->a_col];
                irc_bf16_store(to + i * 32, x);
            }
        }
    }
}
"""

PRODUCTS = """
/* Rows of a block of 32 columns to C, where their sums stand until those of all chunks are there. */
static void ${C}_keep(const ${C}_call *g, const float *block, int64_t rows, int64_t row, int64_t col) {
    const int64_t left = g->n - col;
    float *to = g->c + row * g->c_row + col;
    for (int64_t i = 0; i < rows; i++, block += 32, to += g->c_row) {
        for (int w = 0; w < 2 && 16 * w < left; w++) {
            const int64_t part = left - 16 * w;
            irc_f32x16 x = irc_f32x16_load(block + 16 * w);
            if (g->chunk0 > 0) x += irc_f32x16_load_part(to + 16 * w, part);
            if (part < 16) irc_f32x16_store_part(to + 16 * w, x, part);
            else irc_f32x16_store(to + 16 * w, x);
        }
    }
}

/* Blocks of two row tiles of a group with one panel of B, all packed chunks; meanwhile `next` comes nearer. */
static void ${C}_blocks(const ${C}_call *g, const $B *stored, const uint16_t *b, float *out, int64_t block,
                        int64_t end, int64_t col, const $B *next$meanwhile) {
    const int64_t chunks = g->chunk1 - g->chunk0, count = g->tile1 - g->tile0;
    const int first = g->chunk0 == 0, last = g->chunk1 * 32 >= g->k;
    const int64_t total = next ? chunks * $panel_lines : 0, places = (end - block) * $points;
    const int64_t lines = ($panel_lines + places - 1) / places;$pairs
    for (int64_t done = 0; block < end; block++, done += chunks * lines * $points) {
        const int64_t row = (g->tile0 + 2 * block) * g->height, rows = g->m - row, two = 2 * block + 1 < count;
        const uint16_t *const packed = g->scratch + block * chunks * (2 * $T * 32) * g->height;
        const char *const ahead = (const char *)next + (done < total ? done * 64 : 0);
        const int64_t fetched = done < total ? lines : 0;
        const int64_t high = two ? 2 * g->height : g->height, real = high < rows ? high : rows;
$choose
        if (!last) ${C}_keep(g, out, real, row, col);
        else if (g->finish(g->out, out, real, row, col, first))
            ${C}_exact(g, g->out, g->a, stored, row, row + real, col);
    }
}

/* Groups of rows x panels of columns, begin to end, of the stripe that is packed. */
static void ${C}_part(void *given, char *own, int64_t begin, int64_t end) {
    const ${C}_call *g = given;
    const int64_t panels = (g->n + 31) / 32, blocks = (g->tile1 - g->tile0 + 1) / 2;
$begin$first    for (; begin < end; begin++) {
        const int64_t group = begin / panels, p = begin % panels;
        const $B *const stored = ${C}_panel(g, g->b, p);
        const $B *const next = $next + $chunk_start : 0;
$operand
        ${C}_blocks(g, stored, b, (float *)own, blocks * group / g->groups,
                    blocks * (group + 1) / g->groups, p * 32, next$split);
    }
$end}
"""

NEXT = "p + 1 < panels && begin + 1 < end ? ${C}_panel(g, g->b, p + 1)"

# Where B is split: while a panel is multiplied, the next one is split and the one after it fetched.
SPLIT_FIRST = """    uint16_t *const even = (uint16_t *)(own + 4096);
    uint16_t *const terms[2] = {even, even + (g->chunk1 - g->chunk0) * 3072};
    irc_splitting split = ${C}_split(g, begin % panels, terms[begin % 2]);
"""

SPLIT_OPERAND = """        const uint16_t *const b = terms[begin % 2];
        irc_split_pairs(&split, split.end); /* all of the first panel; others are done */
        if (begin + 1 < end) split = ${C}_split(g, (begin + 1) % panels, terms[(begin + 1) % 2]);"""

SPLIT_NEXT = "begin + 2 < end ? ${C}_panel(g, g->b, (begin + 2) % panels)"

SPLIT = """
/* The packed chunks of panel p are to be split. */
IRC_INLINE irc_splitting ${C}_split(const ${C}_call *g, int64_t p, uint16_t *to) {
    return irc_split_later(${C}_panel(g, g->b, p), g->chunk0, g->chunk1, to);
}
"""

MATRIX = """
/* Groups of rows begin to end: packed by who multiplies them, whose cache they are in. */
static void ${C}_groups(void *given, char *own, int64_t begin, int64_t end) {
    const ${C}_call *g = given;
    const int64_t panels = (g->n + 31) / 32, count = g->tile1 - g->tile0, blocks = (count + 1) / 2;
    for (; begin < end; begin++) {
        const int64_t stop = blocks * (begin + 1) / g->groups * 2;
        ${packed}${C}_pack_part(given, blocks * begin / g->groups * 2, stop < count ? stop : count);
        ${C}_part(given, own, begin * panels, (begin + 1) * panels);
    }
}

/* One matrix: stripes of rows x blocks of k are packed, then multiplied by all panels of B. */
static void ${C}_matrix(${C}_call *g, const irc_pool *pool) {
    const int64_t tiles = (g->m + 15) / 16, chunks = (g->k + 31) / 32, panels = (g->n + 31) / 32;
    g->height = (g->m + tiles - 1) / tiles;
    g->tiles = (g->m + g->height - 1) / g->height;
    const int64_t cuts = (chunks + $most_chunks - 1) / $most_chunks, step = cuts ? (chunks + cuts - 1) / cuts : 0;
    const int64_t fit = step ? $stripe / (step * $T) : 0, most = fit > $least_tiles ? fit / 2 * 2 : $least_tiles;
    const int64_t stripes = (g->tiles + most - 1) / most, share = (g->tiles + stripes - 1) / stripes;
    const int64_t per = (share + 1) / 2 * 2;
    const int alone = !pool || (double)g->m * (double)g->n * (double)g->k * $passes < $worthwhile;
    for (g->tile0 = 0; g->tile0 < g->tiles; g->tile0 = g->tile1) {
        g->tile1 = g->tiles - g->tile0 < per ? g->tiles : g->tile0 + per;
        const int64_t blocks = (g->tile1 - g->tile0 + 1) / 2, wanted = ($tasks + panels - 1) / panels;
        const int64_t high = blocks / $group_blocks < $tasks ? blocks / $group_blocks / 2 * 2 : $tasks;
        const int by_rows = !alone && high >= 4;
        g->groups = alone ? 1 : by_rows ? high : wanted < blocks ? wanted : blocks;
        g->chunk0 = 0;
        do {
            g->chunk1 = chunks - g->chunk0 < step ? chunks : g->chunk0 + step;
            if (alone) {
                ${packed}${C}_pack_part(g, 0, g->tile1 - g->tile0);
                ${C}_part(g, g->own, 0, g->groups * panels);
            } else if (by_rows) {
                irc_divide(pool, g->groups, ${C}_groups, g, g->own, g->own_bytes, g->owners);
            } else {
                ${packed}pool->parallel_for(pool->self, g->tile1 - g->tile0, ${C}_pack_part, g);
                irc_divide(pool, g->groups * panels, ${C}_part, g, g->own, g->own_bytes, g->owners);
            }
            g->chunk0 = g->chunk1;
        } while (g->chunk0 < chunks);
    }
}
"""

ENTRY = """
void $S($parameters) {
    if (g->m <= 0 || g->n <= 0) return;
$body}
"""

ENTRY_SKINNY = """    const int64_t panels = g->batch0 * g->batch1 * ((g->n + 31) / 32);
    const double work = (double)(g->batch0 * g->batch1) * (double)(g->m * g->n) * (double)g->k;
    const int alone = !pool || work < $skinny_worthwhile;
$only    if (alone || panels < 2) ${S}_skinny_part((void *)g, 0, panels);
    else pool->parallel_for(pool->self, panels, ${S}_skinny_part, (void *)g);
"""

ENTRY_MATRIX = """$table    for (int64_t i = 0; i < g->batch0; i++) {
        for (int64_t j = 0; j < g->batch1; j++) {
            const ${S}_out o = ${S}_at(g, i, j);
            ${C}_call call = {.a = g->a + i * g->a_batch0 + j * g->a_batch1,
                              .b = g->b + i * g->b_batch0 + j * g->b_batch1, .scratch = g->scratch, .m = g->m,
                              .n = g->n, .k = g->k, .a_row = g->a_row, .a_col = g->a_col, .own = g->own,
                              .own_bytes = g->own_bytes, .owners = g->owners, .out = &o,
                              .finish = ${S}_finish$further};
            ${C}_matrix(&call, pool);
        }
    }
"""
