"""C text of Strassen's products: packing of A, the sums of a pair of panels, and the path of one row."""

from irc.kernels.core.tile import LAST_COLUMNS, WHOLE_COLUMNS

PACK = """
/* squares[lane] += those of x[k][rows], n elements: row i is in the lanes i, rows + i, 2 * rows + i … */
static void ${S}_squares(const $T *x, int rows, int64_t n, $V *squares) {
    for (; n >= rows * $L; n -= rows * $L)
        for (int w = 0; w < rows; w++, x += $L) {
            const $V v = ${V}_load(x);
            squares[w] += v * v;
        }
    $T *const lanes = ($T *)squares;
    for (int64_t i = 0; i < n; i++) lanes[i] += x[i] * x[i];
}

/* Columns k0 to k1 of a quarter of A, from `a` on, `have` of its rows and `k` of its columns are there: to[k][rows]. */
static void ${S}_pack_quarter(const ${S}_args *g, const $T *a, int rows, int have, int64_t k, int64_t k0, int64_t k1,
                              $T *to) {
    const int64_t last = k1 < k ? k1 : k;
    a += k0 * g->a_col;
    to += k0 * rows;
    if (have == rows) {
        ${V}_pack_rows(a, g->a_row, g->a_col, rows, last - k0, to);
    } else {
        for (int64_t j = 0; j < last - k0; j++)
            for (int i = 0; i < rows; i++) to[j * rows + i] = i < have ? a[i * g->a_row + j * g->a_col] : 0;
    }
    for (int64_t j = (last - k0) * rows; j < (k1 - k0) * rows; j++) to[j] = 0;
}

/* The other operands of A of n elements of each of its quarters, `slot` apart: their sums. */
static void ${S}_add_quarters($T *to, int64_t slot, int64_t n) {
    for (int64_t i = 0; i < n; i += $L) {
        const $V a11 = ${V}_load(to + i), a12 = ${V}_load(to + slot + i);
        const $V a21 = ${V}_load(to + 2 * slot + i), a22 = ${V}_load(to + 3 * slot + i);
        ${V}_store(to + 4 * slot + i, a11 + a12);
        ${V}_store(to + 5 * slot + i, a21 + a22);
        ${V}_store(to + 6 * slot + i, a11 + a22);
        ${V}_store(to + 7 * slot + i, a21 - a11);
        ${V}_store(to + 8 * slot + i, a12 - a22);
    }
}

/* What goes together: rows that share products as they are, or none, or rows times powers of two. */
enum { ${S}_alike, ${S}_apart, ${S}_scaled };

/* x[n] *= by[i] in the lane i of each vector of the tile's rows. */
static void ${S}_scale_rows($T *x, int rows, int64_t n, const $T *by) {
    $T all[$MR * $L];
    for (int i = 0; i < rows * $L; i++) all[i] = by[i % rows];
    for (; n >= rows * $L; n -= rows * $L)
        for (int w = 0; w < rows; w++, x += $L) ${V}_store(x, ${V}_load(x) * ${V}_load(all + w * $L));
    for (int64_t i = 0; i < n; i++) x[i] *= all[i];
}

/* Chooses powers of two by which to multiply `have` rows of two quarters, x and what is a slot further on, such that
 * their squares, which are finite, are about 1, and says by what to multiply their results: by 0, if they are zeros.
 * Returns whether the squares say enough of them. */
static int ${S}_choose(int rows, int have, int64_t k, int64_t slot, const $T *squares, const $T *x, $T *by,
                       $T *factors) {
    for (int i = 0; i < rows; i++) {
        by[i] = factors[i] = 1;
        if (i < have && squares[i] > 0) {
            int exponent;
            (void)frexpf(squares[i], &exponent);
            factors[i] = ldexpf(1, exponent / 2);
            by[i] = ldexpf(1, -(exponent / 2));
            if (squares[i] < $least) return 0;
        } else if (i < have) {
            factors[i] = 0;
            for (int64_t j = 0; j < k; j++)
                if (x[j * rows + i] != 0 || x[slot + j * rows + i] != 0) return 0;
        }
    }
    return 1;
}

/* The operands of A of a tile of rows from `a` on, and of `have` rows `half` further down, `slot` elements apart: its
 * quarters, and sums of them.  Rows that are not alike are multiplied by powers of two, their results by `factors`.
 * Returns what goes together. */
static int ${S}_pack(const ${S}_args *g, const $T *a, int rows, int have, int64_t half, $T *to, int64_t slot,
                     $T (*factors)[$MR]) {
    const int64_t k = (g->k + 1) / 2, right = g->k - k;
    const $T *const below = a + half * g->a_row;
    $V squares[2][$MR + 1] = {{{0}}}; /* of the rows of both halves */
    for (int64_t k0 = 0; k0 < k; k0 += $chunk) {
        const int64_t k1 = k0 + $chunk < k ? k0 + $chunk : k, i0 = k0 * rows, n = (k1 - k0) * rows;
        ${S}_pack_quarter(g, a, rows, rows, k, k0, k1, to);
        ${S}_pack_quarter(g, a + k * g->a_col, rows, rows, right, k0, k1, to + slot);
        if (half == g->m) { /* nothing is below */
            for (int64_t i = i0; i < i0 + n; i += $L)
                ${V}_store(to + 4 * slot + i, ${V}_load(to + i) + ${V}_load(to + slot + i));
            continue;
        }
        ${S}_pack_quarter(g, below, rows, have, k, k0, k1, to + 2 * slot);
        ${S}_pack_quarter(g, below + k * g->a_col, rows, have, right, k0, k1, to + 3 * slot);
        ${S}_add_quarters(to + i0, slot, n);
        for (int quarter = 0; quarter < 4; quarter++)
            ${S}_squares(to + quarter * slot + i0, rows, n, squares[quarter / 2]);
    }
    if (half == g->m) return ${S}_apart;
    $T upper[$rows_lanes] = {0}, lower[$rows_lanes] = {0};
    for (int i = 0; i < $L; i++)
        for (int r = 0; r < $rows_lanes; r += $L) {
            ${V}_store(upper + r, ${V}_load(upper + r) + ${V}_load(($T *)squares[0] + i * rows + r));
            ${V}_store(lower + r, ${V}_load(lower + r) + ${V}_load(($T *)squares[1] + i * rows + r));
        }
    int alike = 1, finite = 1;
    for (int i = 0; i < have; i++) {
        alike &= upper[i] <= $alike * lower[i] && lower[i] <= $alike * upper[i];
        finite &= upper[i] < INFINITY && lower[i] < INFINITY;
    }
    if (alike && finite) return ${S}_alike;
    $T by[2][$MR];
    if (!finite || !${S}_choose(rows, rows, k, slot, upper, to, by[0], factors[0]) ||
        !${S}_choose(rows, have, k, slot, lower, to + 2 * slot, by[1], factors[1]))
        return ${S}_apart;
    for (int quarter = 0; quarter < 4; quarter++) ${S}_scale_rows(to + quarter * slot, rows, k * rows, by[quarter / 2]);
    ${S}_add_quarters(to, slot, k * rows);
    return ${S}_scaled;
}
"""

HALVES = """
/* The columns of the left half: whole panels. */
IRC_INLINE int64_t ${S}_half(const ${S}_args *g) {
    return (g->n + 2 * $NR - 1) / (2 * $NR) * $NR;
}

/* The elements of flags. */
IRC_INLINE int64_t ${S}_flags(const ${S}_args *g) {
    return (${S}_half(g) / $NR + $flags - 1) / $flags * $flags;
}

/* The rows of the upper half$all. */
IRC_INLINE int64_t ${S}_upper(const ${S}_args *g) {
    return $few_rows(g->m + 1) / 2;
}
"""

ROW = """
/* One row: columns col and on of the left half, of a pair of panels.  Of its operands, the four in the middle are read
 * abreast; B12 is left with B22, and B21 with B11. */
static void ${S}_row_pair(const ${S}_args *g, const ${S}_out *o, const $T *a, const $T *panel, const $T *factors,
                          int64_t col) {
    const int64_t k = (g->k + 1) / 2, right = g->k - k, a_col = g->a_col, next = k * $NR;
    const int64_t blocks = (k + $sum - 1) / $sum, step = blocks > 0 ? (k + blocks - 1) / blocks : 1;
    const $T *b = panel + next;
    _Alignas(64) $T sums[2 * $NR];
    EACH(i < 2 * $NV) ${V}_store(sums + i * $L, ($V){0});
    for (int p = 0; p < 4; p++) /* where the operands of the next pair begin */
        for (int i = 0; i < $begin; i += $line) __builtin_prefetch(b + ($products + p) * next + i);
    for (int64_t k0 = 0; k0 < k; k0 += step) {
        const int64_t k1 = k0 + step < k ? k0 + step : k;
        $V acc[4][$NV];
        EACH(p < 4, w < $NV) acc[p][w] = ${V}_zeros();
        for (int64_t j = k0; j < k1; j++, b += $NR) {
            const $V x = ${V}_all(a[j * a_col]), y = ${V}_all(j < right ? a[(k + j) * a_col] : 0), both = x + y;
            EACH(w < $NV) acc[0][w] += both * ${V}_load(b + w * $L);
            EACH(w < $NV) acc[1][w] += x * ${V}_load(b + next + w * $L);
            EACH(w < $NV) acc[2][w] += y * ${V}_load(b + 2 * next + w * $L);
            EACH(w < $NV) acc[3][w] += both * ${V}_load(b + 3 * next + w * $L);
        }
        IRC_FULL_UNROLL
        for (int w = 0; w < $NV; w++) {
            $T *const to = sums + w * $L;
            ${V}_store(to, ${V}_load(to) + (acc[0][w] + acc[2][w]));
            ${V}_store(to + $NR, ${V}_load(to + $NR) + (acc[1][w] + acc[3][w]));
        }
    }
    for (int half = 0; half < 2; half++, col += ${S}_half(g)) {
        for (int64_t i = 0; i < $NR && col + i < o->n; i += $L) {
            const int64_t part = o->n - col - i;
            const $V x = ${V}_load(sums + half * $NR + i) * ${V}_load(factors + col + i);
            if (part < $L) ${V}_store_part(o->c + col + i, ${S}_epilogue(o, x, 0, col + i, part), part);
            else ${V}_store(o->c + col + i, ${S}_epilogue(o, x, 0, col + i, $L));
        }
    }
}
"""

ONE_ROW = """\
    if (g->m == 1) {
        const $T *const factors = b + ${S}_flags(g), *const panels = factors + 2 * ${S}_half(g);
        for (; col0 < col1; col0 += $NR)
            ${S}_row_pair(g, o, a, panels + col0 * $products * ((g->k + 1) / 2), factors, col0);
        return;
    }
"""

RANGE = (
    """
/* Tiles of rows whose operands are packed.  Areas of sums: quarters of C, 11, 12, 21, 22, and a product. */
typedef struct {
    const $T *packed;
    $T *sums;
    const char *rows; /* of each tile, what goes together */
    int64_t slot, area, k, step, tiles, low, extra;
    int lower; /* whether there are rows of the lower half */
} ${S}_group;

/* What a workspace begins with: the rows that are packed there, which the next part finds if it has the same. */
typedef struct {
    int64_t from, tiles;
    char rows[$most];
    $T factors[$most][2][$MR];
} ${S}_held;

/* What to do with a product: operands of A and B, the area that it goes to, or is added to if `begun`; and other areas
 * that it is then added to, or subtracted from, or copied to if they are empty. */
typedef struct {
    signed char a, b, area, begun, others, other[2];
    char how[2];
} ${S}_step;

static void ${S}_product(const ${S}_group *x, int apart, const ${S}_step *s, const $T *panel) {
    static ${tile}_run *const whole[] = {$whole};
    panel += s->b * x->k * $NR;
    int64_t k1 = 0;
    do {
        const int64_t k = x->k - k1 < x->step ? x->k - k1 : x->step, hop = ($NR + x->tiles - 1) / x->tiles;
        const $T *ahead = panel + (k1 + k) * $NR, *from = x->packed + s->a * x->slot;
        /* A single tile fetches what it needs soon; without a lower half, the next pair follows the fourth operand. */
        if (!x->lower && s->b == 4 && k1 + k >= x->k) ahead += ($products - 4) * x->k * $NR;
        else if (x->tiles == 1) ahead = panel + (k1 + $far) * $NR;
        $T *to = x->sums + s->area * x->area;
        for (int64_t t = 0; t < x->tiles; t++) {
            const int64_t rows = x->low + (t < x->extra);
            if ((x->rows[t] == ${S}_apart) == apart) {
                whole[rows - 1](k, from + k1 * rows, panel + k1 * $NR, k1 > 0 || s->begun ? to : 0, $NR, to, $NR,
                                ahead, hop);
                for (int i = 0; k1 + k >= x->k && i < s->others; i++) {
                    $T *const other = to + (s->other[i] - s->area) * x->area;
                    if (s->how[i] == '=')
                        for (int64_t j = 0; j < rows * $NR; j += $L) ${V}_store(other + j, ${V}_load(to + j));
                    else if (s->how[i] == '+')
                        for (int64_t j = 0; j < rows * $NR; j += $L)
                            ${V}_store(other + j, ${V}_load(other + j) + ${V}_load(to + j));
                    else
                        for (int64_t j = 0; j < rows * $NR; j += $L)
                            ${V}_store(other + j, ${V}_load(other + j) - ${V}_load(to + j));
                }
            }
            ahead += hop * k;
            from += rows * x->k;
            to += rows * $NR;
        }
        k1 += k;
    } while (k1 < x->k);
}

/* The sums of all tiles for a pair of panels of B; even: whether columns may share products. */
static void ${S}_pair(const ${S}_group *x, const $T *panel, int even) {
    static const ${S}_step shared[] = {
        {6, 0, 0, 0, 1, {3}, {'='}},         {5, 1, 2, 0, 1, {3}, {'-'}},         {0, 2, 1, 0, 1, {3}, {'+'}},
        {3, 3, 4, 0, 2, {0, 2}, {'+', '+'}}, {4, 4, 4, 0, 2, {0, 1}, {'-', '+'}}, {7, 5, 3, 1, 0, {0}, {0}},
        {8, 6, 0, 1, 0, {0}, {0}},
    };
    static const ${S}_step alone[] = { /* every other one is for the lower half */
        {4, 1, 0, 0, 0, {0}, {0}}, {5, 1, 2, 0, 0, {0}, {0}}, {0, 2, 1, 0, 0, {0}, {0}}, {2, 2, 3, 0, 0, {0}, {0}},
        {1, 3, 0, 1, 0, {0}, {0}}, {3, 3, 2, 1, 0, {0}, {0}}, {4, 4, 1, 1, 0, {0}, {0}}, {5, 4, 3, 1, 0, {0}, {0}},
    };
    int together = 0;
    for (int64_t t = 0; t < x->tiles; t++) together += x->rows[t] != ${S}_apart;
    if (even && together)
        for (int i = 0; i < 7; i++) ${S}_product(x, 0, &shared[i], panel);
    if (!even && together)
        for (int i = 0; i < 8; i++) ${S}_product(x, 0, &alone[i], panel);
    if (together < x->tiles)
        for (int i = 0; i < 8; i += x->lower ? 1 : 2) ${S}_product(x, 1, &alone[i], panel);
}

/* Multiplies a tile of sums by factors of its rows and of its columns, either of them NULL. */
static void ${S}_scale_sums($T *sums, int64_t rows, const $T *of_rows, const $T *of_columns) {
    for (int64_t i = 0; i < rows; i++, sums += $NR) {
        const $V row = ${V}_all(of_rows ? of_rows[i] : 1);
        for (int w = 0; w < $NR; w += $L)
            ${V}_store(sums + w, ${V}_load(sums + w) * (of_columns ? row * ${V}_load(of_columns + w) : row));
    }
}

/* The sums of a tile, complete, to its place in C, through the epilogue. */
static void ${S}_finish(const ${S}_out *o, int64_t rows, int64_t row, int64_t col, const $T *sums) {
    $T *c = o->c + row * o->c_row + col;
    const int64_t left = o->n - col;
    const int done = 1;
    if (left >= $NR) {
"""
    + WHOLE_COLUMNS
    + """\
    }
"""
    + LAST_COLUMNS
    + """
/* Tiles of rows in a task: as many as are packed at once, or half of all, where threads could not share few panels. */
IRC_INLINE int64_t ${S}_high(int64_t tiles, int64_t columns) {
    const int64_t panels = columns / $NR;
    return tiles <= $most && panels < $few && panels % 2 ? (tiles + 1) / 2 : $most;
}

/* Tiles t0 to t1 of the upper half, columns col0 to col1 of the left half, and what lies below and right of them.
 * Where all rows fit, all are packed, which are there for the next part too, whatever tiles it has. */
static void ${S}_range(const ${S}_args *g, const ${S}_out *o, const $T *a, const $T *b,
                       char *own, int64_t t0, int64_t t1, int64_t col0, int64_t col1) {
$one_row    const int64_t half = ${S}_upper(g), k = (g->k + 1) / 2, right = ${S}_half(g);
    const ${S}_rows m = ${S}_split(half);
    const int64_t high = m.low + (m.extra > 0), fit = k > 0 ? $room / ($operands * high * k) : $most;
    const int64_t most = fit > $most ? $most : fit > 1 ? fit : 1;
    const int64_t top0 = m.tiles > most ? t0 : 0, top1 = m.tiles > most ? t1 : m.tiles;
    const int64_t groups = (top1 - top0 + most - 1) / most, per = (top1 - top0 + groups - 1) / groups;
    const int64_t blocks = k > 0 ? (k + $sum - 1) / $sum : 1;
    const $T *const even = b, *const factors = b + ${S}_flags(g), *const panels = factors + 2 * right;
    ${S}_held *const held = (${S}_held *)own;
    ${S}_group x = {.k = k, .step = (k + blocks - 1) / blocks, .low = m.low, .lower = half < g->m};
    x.sums = ($T *)(own + $held);
    for (int64_t top = top0; top < top1; top += per) {
        const int64_t end = top + per < top1 ? top + per : top1, tiles = end - top;
        const int64_t first = top < t0 ? t0 : top, last = end < t1 ? end : t1;
        int64_t start = top * m.low + (top < m.extra ? top : m.extra);
        const int64_t from = (int64_t)(intptr_t)(a + start * g->a_row);
        x.area = tiles * high * $NR, x.slot = tiles * high * k + $L;
        $T *to = x.sums + $areas * x.area;
        const int there = held->from == from && held->tiles == tiles;
        held->from = from, held->tiles = tiles;
        for (int64_t t = top, r = start; t < end; t++) {
            const int64_t rows = m.low + (t < m.extra), below = g->m - half - r, have = below < rows ? below : rows;
            if (t == first) start = r, x.packed = to;
            if (!there)
                held->rows[t - top] = (char)${S}_pack(g, a + r * g->a_row, (int)rows, (int)(have > 0 ? have : 0), half,
                                                      to, x.slot, held->factors[t - top]);
            to += rows * k;
            r += rows;
        }
        x.tiles = last - first, x.extra = m.extra > first ? m.extra - first : 0, x.rows = held->rows + first - top;
        for (int64_t col = col0; col < col1; col += $NR) {
            ${S}_pair(&x, panels + col * $products * k, even[col / $NR] != 0);
            $T *sums = x.sums;
            for (int64_t t = 0, r = start; t < x.tiles; t++) {
                const int64_t rows = m.low + (t < x.extra), below = g->m - half - r, have = below < rows ? below : rows;
                for (int quarter = 0; quarter < 4; quarter++) {
                    const int64_t row = quarter < 2 ? r : half + r, at = quarter % 2 ? right + col : col;
                    const int64_t height = quarter < 2 ? rows : have;
                    $T *const tile = sums + quarter * x.area;
                    if (height <= 0 || at >= g->n) continue;
                    if (x.rows[t] == ${S}_scaled || even[col / $NR] > 1)
                        ${S}_scale_sums(tile, height,
                                        x.rows[t] == ${S}_scaled ? held->factors[first - top + t][quarter / 2] : 0,
                                        even[col / $NR] > 1 ? factors + at : 0);
                    ${S}_finish(o, height, row, at, tile);
                }
                sums += rows * $NR;
                r += rows;
            }
        }
    }
}
"""
)
