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
    int64_t m, n, k, a_row, a_col, c_row;
    /* Rows come in `tiles` tiles of `height`, `blocks` of two, `groups` of blocks; k in `chunks` of 32, in `cuts`. */
    int64_t tiles, height, blocks, groups, chunks, cuts;
    int64_t parts, cut0, cut1; /* into which panels are divided; cuts that tasks multiply */
    char *own;
    int64_t own_bytes, owners;
    const void *out; /* of `finish`: rows of a block to C, through the epilogue; whether a sum was not finite */
    int (*finish)(const void *out, const float *block, int64_t rows, int64_t row, int64_t col, int first);$more
} ${C}_call;

/* Rows of A as terms: tiles tile0 to tile1, chunks chunk0 to chunk1. */
typedef struct {
    uint16_t *terms;
    int64_t tile0, tile1, chunk0, chunk1;
} ${C}_packed;
"""

# Four rows at a time; B as it is stored: f32, or terms whose sum is taken.  Sums of at most $sum products are added up.
ROWS = """
$load_b
/* R rows, the panel at column col: out[row][32], all of k in f32. */
IRC_INLINE void ${C}_rows(const int R, const ${C}_call *g, const $X *a, const $B *b, int64_t col, irc_f32x16 *out) {
    (void)col;
    irc_f32x16 sum[4][2];
    EACH(r < R) sum[r][0] = sum[r][1] = (irc_f32x16){0};
    int64_t k = 0;
    do {
        const int64_t end = g->k - k < $sum ? g->k : k + $sum;
        irc_f32x16 part[4][2], other[4][2], even[2], odd[2];
        EACH(r < R) part[r][0] = part[r][1] = other[r][0] = other[r][1] = (irc_f32x16){0};
        while (k < end) {
            const $B *at = b + k / 32 * $chunk;
            const int64_t stop = end - k < 32 ? end : k + 32;
            const $X *x = a + k * g->a_col;
            for (; k + 1 < stop; k += 2, at += $pair, x += 2 * g->a_col) {
                EACH(i < $lines) __builtin_prefetch(at + $far + i * $line);
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
"""

EXACT = """
/* Rows row to row1 of the panel at column col, in f32 throughout: few rows, or what f32 alone gets right (infinities,
 * NaN, sums near the largest float). */
static void ${C}_exact(const ${C}_call *g, const void *out, const $X *a, const $B *b, int64_t row, int64_t row1,
                       int64_t col) {
    irc_f32x16 block[8];
    for (int64_t rows = 4; row < row1; row += rows) {
        const $X *from = a + row * g->a_row;
        while (rows > row1 - row) rows /= 2;
        if (rows == 4) ${C}_rows(4, g, from, b, col, block);
        else if (rows == 2) ${C}_rows(2, g, from, b, col, block);
        else ${C}_rows(1, g, from, b, col, block);
        g->finish(out, (const float *)block, rows, row, col, 1);
    }
}

/* Panel p of a matrix B. */
IRC_INLINE const $B *${C}_panel(const ${C}_call *g, const $B *b, int64_t p) { return b + p * ($panel_elements); }
"""

# The same where B is as it came, its elements b_row and b_col apart.
ROWS_AS_GIVEN = """
/* 16 elements of a row of B, zeros beyond the first n. */
IRC_INLINE irc_f32x16 ${C}_load_b(const ${C}_call *g, const float *b, int64_t n) {
    if (n <= 0) return (irc_f32x16){0};
    if (g->b_col == 1) return irc_f32x16_load_part(b, n < 16 ? n : 16);
    float copy[16] = {0};
    for (int64_t i = 0; i < 16 && i < n; i++) copy[i] = b[i * g->b_col];
    return irc_f32x16_load(copy);
}

/* R rows, the panel at column col: out[row][32], all of k in f32. */
IRC_INLINE void ${C}_rows(const int R, const ${C}_call *g, const $X *a, const float *b, int64_t col, irc_f32x16 *out) {
    for (int i = 0; i < 2 * R; i++) out[i] = (irc_f32x16){0};
    for (int64_t k = 0; k < g->k;) {
        irc_f32x16 part[8];
        for (int i = 0; i < 2 * R; i++) part[i] = (irc_f32x16){0};
        for (const int64_t end = g->k - k < $sum ? g->k : k + $sum; k < end; k++)
            for (int w = 0; w < 2; w++) {
                const irc_f32x16 x = ${C}_load_b(g, b + k * g->b_row + 16 * w * g->b_col, g->n - col - 16 * w);
                for (int r = 0; r < R; r++) part[2 * r + w] += $VX(a[r * g->a_row + k * g->a_col]) * x;
            }
        for (int i = 0; i < 2 * R; i++) out[i] += part[i];
    }
}
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
/* At most 16 rows of a chunk of A, `have` columns of it, to rows of 32. */
IRC_APART void ${C}_turn_a(const float *a, int64_t row, int64_t col, int64_t rows, int64_t have, float *to) {
    if (row != 1) {
        for (int64_t j = 0; j < have; j++)
            for (int64_t i = 0; i < rows; i++) to[i * 32 + j] = a[i * row + j * col];
        return;
    }
    IRC_AS_LOOP
    for (int64_t j = 0; j < have; j += 16, to += 16) {
        irc_f32x16 x[16];
        IRC_FULL_UNROLL
        for (int i = 0; i < 16; i++) {
            const float *const from = a + (j + i < have ? j + i : have - 1) * col;
            x[i] = rows == 16 ? irc_f32x16_load(from) : irc_f32x16_load_part(from, rows);
        }
        irc_f32x16_square(x);
        EACH(i < 16) irc_f32x16_store(to + i * 32, x[i]);
    }
}

/* Rows of A become terms.  Two tiles stand beside each other, a last one alone. */
static void ${C}_pack(const ${C}_call *g, const ${C}_packed *at) {
    const int64_t chunks = at->chunk1 - at->chunk0, tile = g->height * 32;
    for (int64_t t = at->tile0; t < at->tile1; t++) {
        const int64_t row = t * g->height, left = g->m - row, number = t - at->tile0;
        const int64_t beside = (number | 1) < at->tile1 - at->tile0 ? 2 : 1, term = beside * tile;
        uint16_t *to = at->terms + number / 2 * (chunks * 2 * $T * tile) + number % 2 * tile;
        const float *a = g->a + row * g->a_row + at->chunk0 * 32 * g->a_col;
        for (int64_t c = at->chunk0; c < at->chunk1; c++, to += $T * term, a += 32 * g->a_col) {
            const int64_t have = g->k - c * 32 < 32 ? g->k - c * 32 : 32;
            float copy[512];
            const float *from = a;
            int64_t step = g->a_row;
            if (g->a_col != 1) {
                ${C}_turn_a(a, g->a_row, g->a_col, g->height < left ? g->height : left, have, copy);
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
/* Rows of A in chunks.  Two tiles stand beside each other, a last one alone. */
static void ${C}_pack(const ${C}_call *g, const ${C}_packed *at) {
    const int64_t chunks = at->chunk1 - at->chunk0, tile = g->height * 32;
    for (int64_t t = at->tile0; t < at->tile1; t++) {
        const int64_t row = t * g->height, left = g->m - row, number = t - at->tile0;
        const int64_t term = ((number | 1) < at->tile1 - at->tile0 ? 2 : 1) * tile;
        uint16_t *to = at->terms + number / 2 * (chunks * 2 * tile) + number % 2 * tile;
        const uint16_t *a = g->a + row * g->a_row + at->chunk0 * 32 * g->a_col;
        for (int64_t c = at->chunk0; c < at->chunk1; c++, to += term, a += 32 * g->a_col) {
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
static void ${C}_keep(const ${C}_call *g, const float *block, int64_t rows, int64_t row, int64_t col, int first) {
    const int64_t left = g->n - col;
    float *to = g->c + row * g->c_row + col;
    for (int64_t i = 0; i < rows; i++, block += 32, to += g->c_row) {
        for (int w = 0; w < 2 && 16 * w < left; w++) {
            const int64_t part = left - 16 * w;
            irc_f32x16 x = irc_f32x16_load(block + 16 * w);
            if (!first) x += irc_f32x16_load_part(to + 16 * w, part);
            if (part < 16) irc_f32x16_store_part(to + 16 * w, x, part);
            else irc_f32x16_store(to + 16 * w, x);
        }
    }
}

/* Blocks of two row tiles of what is packed with the panel at column col; meanwhile `next` comes nearer. */
static void ${C}_blocks(const ${C}_call *g, const ${C}_packed *at, const $B *stored, const uint16_t *b, float *out,
                        int64_t col, const $B *next$meanwhile) {
    const int64_t chunks = at->chunk1 - at->chunk0, count = at->tile1 - at->tile0, end = (count + 1) / 2;
    const int first = at->chunk0 == 0, last = at->chunk1 == g->chunks;
    const int64_t total = next ? chunks * $panel_lines : 0, places = end * $points;
    const int64_t lines = ($panel_lines + places - 1) / places;$pairs
    for (int64_t block = 0, done = 0; block < end; block++, done += chunks * lines * $points) {
        const int64_t row = (at->tile0 + 2 * block) * g->height, rows = g->m - row, two = 2 * block + 1 < count;
        const uint16_t *const packed = at->terms + block * chunks * (2 * $T * 32) * g->height;
        const char *const ahead = (const char *)next + (done < total ? done * 64 : 0);
        const int64_t fetched = done < total ? lines : 0;
        const int64_t high = two ? 2 * g->height : g->height, real = high < rows ? high : rows;
$choose
        if (!last) ${C}_keep(g, out, real, row, col, first);
        else if (g->finish(g->out, out, real, row, col, first))
            ${C}_exact(g, g->out, g->a, stored, row, row + real, col);
    }
}

/* Tasks begin to end: groups of rows x parts of the panels (innermost; neighbours share the rows).  Who multiplies rows
 * packs them, because tiles are slow to load from another core's cache. */
static void ${C}_part(void *given, char *own, int64_t begin, int64_t end) {
    const ${C}_call *const g = given;
    const int64_t panels = (g->n + 31) / 32, parts = g->parts, cuts = g->cuts;
    int64_t *const standing = (int64_t *)(void *)own; /* which rows and chunks are packed */
    float *const out = (float *)(void *)(own + 64);
    ${C}_packed at = {.terms = (uint16_t *)(void *)(own + $packed_at)};
    (void)cuts;
$begin$first    while (begin < end) {
        const int64_t group = begin / parts, part = begin % parts, left = end - begin;
        const int64_t run = parts - part < left ? parts - part : left, stop = g->blocks * (group + 1) / g->groups * 2;
        const int64_t p0 = panels * part / parts, p1 = panels * (part + run) / parts;
        begin += run;
        at.tile0 = g->blocks * group / g->groups * 2;
        at.tile1 = stop < g->tiles ? stop : g->tiles;
        for (int64_t cut = g->cut0; cut < g->cut1; cut++) {
            at.chunk0 = g->chunks * cut / cuts;
            at.chunk1 = g->chunks * (cut + 1) / cuts;
            ${packed}if (*standing != group * cuts + cut) ${C}_pack(g, &at);
            *standing = group * cuts + cut;
            for (int64_t p = p0; p < p1; p++) {
                const $B *const stored = ${C}_panel(g, g->b, p);
                const $B *const next = $next + $chunk_start : 0;
$operand
                ${C}_blocks(g, &at, stored, b, out, p * 32, next$split);
            }
        }
    }
$end}
"""

NEXT = "p + 1 < p1 ? ${C}_panel(g, g->b, p + 1)"

# Where B is split: while a panel is multiplied, the next one is split and the one after it fetched.
SPLIT_FIRST = """    uint16_t *const even = (uint16_t *)(void *)(own + 4160);
    uint16_t *const terms[2] = {even, even + (g->chunks + cuts - 1) / cuts * ($T * 1024)};
    int64_t ready = -1; /* of which panel and cut the terms stand in terms[turn], or are made there */
    int turn = 0;
    $splitting split = {0};
"""

SPLIT_OPERAND = """                const int64_t here = p * cuts + cut;
                if (ready != here) split = ${C}_split(g, p, cut, terms[turn], own);
                ${split_now}(&split, split.end); /* all of the first one; others are done */
                const uint16_t *const b = terms[turn];
                int64_t then = p + 1, after = cut, more = 1;
                if (then == p1) {
                    then = p0;
                    if (++after == g->cut1) { /* of the next group */
                        then = 0;
                        after = g->cut0;
                        more = begin < end;
                    }
                }
                ready = more ? then * cuts + after : here;
                if (ready != here) {
                    turn = !turn;
                    split = ${C}_split(g, then, after, terms[turn], own);
                }"""

SPLIT_NEXT = "p + 2 < p1 ? ${C}_panel(g, g->b, p + 2)"

SPLIT = """
/* The chunks of a cut of panel p are to be split. */
IRC_INLINE irc_splitting ${C}_split(const ${C}_call *g, int64_t p, int64_t cut, uint16_t *to, char *own) {
    const int64_t c0 = g->chunks * cut / g->cuts, c1 = g->chunks * (cut + 1) / g->cuts;
    (void)own;
    return irc_split_later(${C}_panel(g, g->b, p), c0, c1, to);
}
"""

# Where B is no constant: its rows are read where they are; what stands otherwise is first copied as rows.
SPLIT_AS_GIVEN = """
/* k rows of 32 columns, `have` of which there are, zeros in the others and up to row `all`. */
IRC_APART void ${C}_turn(const ${C}_call *g, const float *b, int64_t have, int64_t k, int64_t all, float *to) {
    int64_t done = 0;
    for (; g->b_row == 1 && done + 16 <= k; done += 16) {
        IRC_AS_LOOP
        for (int w = 0; w < 2; w++) {
            irc_f32x16 x[16];
            IRC_FULL_UNROLL
            for (int i = 0; i < 16; i++) {
                const int64_t column = 16 * w + i;
                x[i] = irc_f32x16_load(b + (column < have ? column : have - 1) * g->b_col + done);
            }
            irc_f32x16_square(x);
            EACH(i < 16) irc_f32x16_store(to + (done + i) * 32 + 16 * w, x[i]);
        }
    }
    for (int64_t i = done; i < all; i++)
        for (int64_t j = 0; j < 32; j++)
            to[i * 32 + j] = i < k && j < have ? b[i * g->b_row + j * g->b_col] : 0;
}

/* The chunks of a cut of panel p are to be split. */
IRC_INLINE irc_rows_splitting ${C}_split(const ${C}_call *g, int64_t p, int64_t cut, uint16_t *to, char *own) {
    const int64_t c0 = g->chunks * cut / g->cuts, c1 = g->chunks * (cut + 1) / g->cuts, all = 32 * (c1 - c0);
    const float *const b = ${C}_panel(g, g->b, p) + c0 * 32 * g->b_row;
    const int64_t columns = g->n - p * 32, have = columns < 32 ? columns : 32;
    const int64_t left = g->k - c0 * 32, k = left < all ? left : all;
    if (g->b_col == 1) return irc_split_rows_later(b, g->b_row, have, k, all, to);
    float *const rows = (float *)(void *)(own + $turned_at);
    ${C}_turn(g, b, have, k, all, rows);
    return irc_split_rows_later(rows, 32, 32, all, all, to);
}
"""

MATRIX = """
/* One matrix, divided among threads: large ones into groups of rows, of which each is split B for; others into two
 * groups of rows unless they are few, so that two threads read, split and multiply half of A each, which is where they
 * left it if they made it so; and into parts of the panels, innermost. */
static void ${C}_matrix(${C}_call *g, const irc_pool *pool) {
    const int64_t tiles = (g->m + 15) / 16, panels = (g->n + 31) / 32;
    g->height = (g->m + tiles - 1) / tiles;
    g->tiles = (g->m + g->height - 1) / g->height;
    g->blocks = (g->tiles + 1) / 2;
    g->chunks = (g->k + 31) / 32;
    g->cuts = g->chunks > 0 ? (g->chunks + $most_chunks - 1) / $most_chunks : 1;
    const int64_t step = (g->chunks + g->cuts - 1) / g->cuts, fit = step ? $stripe / (step * $T) / 2 : 0;
    const int64_t most = fit > $least_blocks ? fit : $least_blocks, stripes = (g->blocks + most - 1) / most;
    const int alone = !pool || (double)g->m * (double)g->n * (double)g->k * $passes < $worthwhile;
    int64_t groups = g->blocks / $group_blocks < $tasks ? g->blocks / $group_blocks : $tasks;
    if (groups * g->n * $split_b > g->m * $split_a) groups = g->m * $split_a / (g->n * $split_b);
    const int many = groups >= 4, halves = g->m * $halves > g->n;
    if (alone) groups = 1;
    else if (!many) groups = !halves ? 1 : panels < 3 ? 2 * ((2 + panels) / panels) : 2;
    if (groups > g->blocks) groups = g->blocks;
    g->groups = groups < stripes ? stripes : groups;
    const int64_t wanted = ($tasks + g->groups - 1) / g->groups;
    g->parts = alone || many ? 1 : wanted < panels ? wanted : panels;
    g->cut0 = 0;
    do {
        /* Who does all panels does all cuts, while sums are near. */
        g->cut1 = g->parts == 1 ? g->cuts : g->cut0 + 1;
        irc_divide(alone ? 0 : pool, g->groups * g->parts, ${C}_part, g, g->own, g->own_bytes, g->owners);
        g->cut0 = g->cut1;
    } while (g->cut0 < g->cuts);
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

ENTRY_MATRIX = """    const int64_t count = g->batch0 * g->batch1;
    if (pool && count >= $images && (double)count * (double)(g->m * g->n) * (double)g->k * $passes >= $worthwhile)
        irc_divide(pool, count, ${S}_images, (void *)g, g->own, g->own_bytes, g->owners);
    else
        for (int64_t i = 0; i < count; i++) ${S}_image(g, g->own, pool, i);
"""

IMAGES = """
/* Matrix `image` of the batch. */
static void ${S}_image(const ${S}_args *g, char *own, const irc_pool *pool, int64_t image) {
    const int64_t i = image / g->batch1, j = image % g->batch1;
    const ${S}_out o = ${S}_at(g, i, j);
$table    ${C}_call call = {.a = g->a + i * g->a_batch0 + j * g->a_batch1,
                      .b = g->b + i * g->b_batch0 + j * g->b_batch1, .m = g->m, .n = g->n, .k = g->k,
                      .a_row = g->a_row, .a_col = g->a_col, .own = own, .own_bytes = g->own_bytes,
                      .owners = g->owners, .out = &o, .finish = ${S}_finish$further};
    ${C}_matrix(&call, pool);
}

/* Matrices begin to end, each by itself. */
static void ${S}_images(void *given, char *own, int64_t begin, int64_t end) {
    for (; begin < end; begin++) ${S}_image(given, own, 0, begin);
}
"""
