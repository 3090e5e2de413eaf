"""The path of a matrix product with few rows and a B that is not constant: packing B would cost more than it saves.

B is read in place, its rows contiguous (sums over many columns at once) or its columns (dot products).
"""

SKINNY_ROWS = 2  # up to as many rows
SKINNY_COLUMNS = 128  # of a task

SKINNY = """
/* Whether the product is better done without packing B. */
IRC_INLINE int ${S}_is_skinny(const ${S}_args *g) {
    return g->m <= $skinny && (g->b_col == 1 || (g->b_row == 1 && g->a_col == 1));
}

/* One row: columns col to col1 of a * B, B's rows contiguous. */
static void ${S}_skinny_rows(const ${S}_args *g, const ${S}_out *o, const $T *a, const $T *b, int64_t row, int64_t col,
                           int64_t col1) {
    $T *c = o->c + row * o->c_row;
    for (; col + 4 * $L <= col1; col += 4 * $L) {
        $V acc[4] = {{0}};
        for (int64_t k = 0; k < g->k; k++) {
            const $T *from = b + k * g->b_row + col;
            EACH(u < 4) acc[u] += a[k * g->a_col] * ${V}_load(from + u * $L);
        }
        EACH(u < 4) ${V}_store(c + col + u * $L, ${S}_epilogue(o, acc[u], row, col + u * $L, $L));
    }
    for (; col < col1; col += $L) {
        const int64_t part = col1 - col < $L ? col1 - col : $L;
        $V acc = {0};
        for (int64_t k = 0; k < g->k; k++) acc += a[k * g->a_col] * ${V}_load_part(b + k * g->b_row + col, part);
        ${V}_store_part(c + col, ${S}_epilogue(o, acc, row, col, part), part);
    }
}

/* One row: columns col to col1 of a * B, B's columns contiguous. */
static void ${S}_skinny_dots(const ${S}_args *g, const ${S}_out *o, const $T *a, const $T *b, int64_t row, int64_t col,
                           int64_t col1) {
    const int64_t whole = g->k / $L * $L;
    for (; col < col1; col += $L) {
        const int64_t part = col1 - col < $L ? col1 - col : $L;
        $T lanes[$L] = {0};
        for (int64_t j = 0; j < part; j += 4) {
            const int64_t last = part - 1 - j, step = g->b_col;
            const $T *b0 = b + (col + j) * step;
            const $T *from[4] = {b0, b0, b0, b0}; /* beyond the last column: the first one again, not used */
            for (int u = 1; u < 4 && u <= last; u++) from[u] = b0 + u * step;
            $V acc[4] = {{0}};
            for (int64_t k = 0; k < whole; k += $L) {
                const $V x = ${V}_load(a + k);
                EACH(u < 4) acc[u] += x * ${V}_load(from[u] + k);
            }
            if (whole < g->k) {
                const $V x = ${V}_load_part(a + whole, g->k - whole);
                EACH(u < 4) acc[u] += x * ${V}_load_part(from[u] + whole, g->k - whole);
            }
            for (int u = 0; u < 4 && u <= last; u++) {
                $T sum = 0;
                for (int i = 0; i < $L; i++) sum += acc[u][i];
                lanes[j + u] = sum;
            }
        }
        const $V x = ${S}_epilogue(o, ${V}_load(lanes), row, col, part);
        ${V}_store_part(o->c + row * o->c_row + col, x, part);
    }
}

/* Tasks begin to end: matrices outermost, then ranges of $TN columns. */
static void ${S}_skinny_part(void *given, int64_t begin, int64_t end) {
    const ${S}_args *g = given;
    const int64_t across = (g->n + $TN - 1) / $TN;
    for (; begin < end; begin++) {
        const int64_t image = begin / across, i = image / g->batch1, j = image % g->batch1, col = begin % across * $TN;
        const int64_t col1 = col + $TN < g->n ? col + $TN : g->n;
        ${S}_out o = {.c = g->c + i * g->c_batch0 + j * g->c_batch1, .c_row = g->c_row, .n = g->n};$slot_starts
        const $T *a = g->a + i * g->a_batch0 + j * g->a_batch1, *b = g->b + i * g->b_batch0 + j * g->b_batch1;
        for (int64_t row = 0; row < g->m; row++) {
            if (g->b_col == 1) ${S}_skinny_rows(g, &o, a + row * g->a_row, b, row, col, col1);
            else ${S}_skinny_dots(g, &o, a + row * g->a_row, b, row, col, col1);
        }
    }
}
"""
