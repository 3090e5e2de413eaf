"""The C text of `irc.kernels.attention.vector`, in the order in which it stands in a file."""

TILE = """typedef void ${body}_run(int64_t k, const float *a, const float *b, float *c, int first);
/* C[R][W vectors] (+)= A[R][k] * B[k][$NR]; rows of A and C stand $AS apart. */
IRC_INLINE void ${body}(const int R, const int W, int64_t k, const float *restrict a, const float *restrict b,
                        float *restrict c, int first) {
    $V acc[$MR][$NV], bv[$NV];
    IRC_FULL_UNROLL
    for (int i = 0; i < R; i++) {
        IRC_FULL_UNROLL
        for (int w = 0; w < W; w++) {
            acc[i][w] = ${V}_zeros();
            if (!first) acc[i][w] = ${V}_load(c + i * $AS + w * $L);
        }
    }
    IRC_UNROLL
    for (; k > 0; k--, a++, b += $NR) {
        EACH(w < W) bv[w] = ${V}_load_kept(b + w * $L);
        EACH(i < R, w < W) ${V}_add_product(&acc[i][w], a[i * $AS], bv[w]);
    }
    EACH(i < R, w < W) ${V}_store(c + i * $AS + w * $L, acc[i][w]);
}
"""

INSTANCE = """static void ${body}_${R}x$W(int64_t k, const float *a, const float *b, float *c, int first) {
    $body($R, $W, k, a, b, c, first);
}
"""

CALL = """
typedef struct {
    const float *k, *v; /* of the head */
    int64_t batch, head; /* head: the first query head of the group */
} ${S}_place;

/* What a query row carries from block to block: the largest score, the sum of exponentials, the factor of old sums. */
typedef struct {
    float largest, sum, factor;
} ${S}_row;

/* How many keys query i sees. */
IRC_INLINE int64_t ${S}_reach(const ${S}_args *g, int64_t i) {
    $reach
}

/* Which query, of which query head of the group, row r of the task's head is. */
IRC_INLINE int64_t ${S}_head(const ${S}_args *g, int64_t r) { return r < g->m ? 0 : r / g->m; }
IRC_INLINE int64_t ${S}_index(const ${S}_args *g, int64_t r) { return r < g->m ? r : r % g->m; }

/* Row r, times the scale, zeros up to a vector. */
static void ${S}_query(const ${S}_args *g, const ${S}_place *at, int64_t r, float *to) {
    const float *q = g->q + at->batch * g->q_batch + (at->head + ${S}_head(g, r)) * g->q_head
                     + ${S}_index(g, r) * g->q_row;
    int64_t j = 0;
    for (; j + $L <= g->d; j += $L) {
        __builtin_prefetch(q + $H0 * g->q_row + j); /* of the next tile */
        ${V}_store(to + j, ${V}_load(q + j) * $scale);
    }
    if (j < g->d) ${V}_store(to + j, ${V}_load_part(q + j, g->d - j) * $scale);
}

IRC_INLINE float *${S}_output(const ${S}_args *g, const ${S}_place *at, int64_t r) {
    return g->o + at->batch * g->o_batch + (at->head + ${S}_head(g, r)) * g->o_head + ${S}_index(g, r) * g->o_row;
}
"""

PACK = """
/* Keys of a block as [panel][d][$NR]; columns beyond the last key are not used, but must not be NaN. */
static void ${S}_pack_k(const ${S}_args *g, const float *from, int64_t keys, float *to) {
    for (int64_t first = 0; first < keys; first += $L) {
        const int64_t have = keys - first < $L ? keys - first : $L;
        const float *k = from + first * g->k_row;
        float *out = to + first / $NR * $NR * g->d + first % $NR;
        if (g->k_row == 1) {
            for (int64_t j = 0; j < g->d; j++, k += g->k_col)
                ${V}_store(out + j * $NR, have == $L ? ${V}_load(k) : ${V}_load_part(k, have));
            continue;
        }
        int64_t j = 0;
        for (; g->k_col == 1 && j + $L <= g->d; j += $L) {
            $V x[$L];
            IRC_FULL_UNROLL
            for (int i = 0; i < $L; i++) {
                x[i] = ${V}_load(k + (i < have ? i : 0) * g->k_row + j);
                __builtin_prefetch(k + (i + $L) * g->k_row + j);
            }
            ${V}_square(x);
            EACH(i < $L) ${V}_store(out + (j + i) * $NR, x[i]);
        }
        for (; j < g->d; j++)
            for (int i = 0; i < $L; i++) out[j * $NR + i] = k[(i < have ? i : 0) * g->k_row + j * g->k_col];
    }
}

/* Values of a block as [panel][keys][$NR]. */
static void ${S}_pack_v(const ${S}_args *g, const float *from, int64_t keys, float *to) {
    for (int64_t col = 0; col < g->dv; col += $NR) {
        for (int64_t i = 0; i < keys; i++, to += $NR) {
            const float *v = from + i * g->v_row + col;
            IRC_FULL_UNROLL
            for (int w = 0; w < $NV; w++) {
                __builtin_prefetch(v + 12 * g->v_row + w * $L);
                const int64_t left = g->dv - col - w * $L;
                ${V}_store(to + w * $L, left >= $L ? ${V}_load(v + w * $L) : ${V}_load_part(v + w * $L, left));
            }
        }
    }
}
"""

SOFTMAX = """
/* The largest score that row `r` has seen, and how many of the keys k0 to k0 + keys it sees; its mask is added. */
IRC_INLINE float ${S}_largest(const ${S}_args *g, const ${S}_place *at, int64_t r, int64_t k0, int64_t keys,
                              float *scores, float before, int64_t *seen) {
    static const ${V}_mask lane = {$iota};
    const int64_t i = ${S}_index(g, r);
    $mask_at
    int64_t have = ${S}_reach(g, i) - k0;
    have = have < 0 ? 0 : have < keys ? have : keys;
    $V most[4];
    EACH(u < 4) most[u] = ${V}_all(before);
    int64_t j = 0;
    for (; $whole && j + 4 * $L <= have; j += 4 * $L) {
        IRC_FULL_UNROLL
        for (int u = 0; u < 4; u++) {
            $V x = ${V}_load(scores + j + u * $L);$added
            most[u] = ${V}_largest(x, most[u]);
        }
    }
    for (; j < have; j += $L) {
        const int64_t part = have - j;
        $V x = ${V}_load(scores + j);
        $masked
        if (part < $L) x = ${V}_select((${V}_mask)(lane < (int32_t)part), x, ${V}_all(-INFINITY));
        ${V}_store(scores + j, x);
        most[0] = ${V}_largest(x, most[0]);
    }
    *seen = have;
    IRC_FULL_UNROLL
    for (int u = 1; u < 4; u++) most[0] = ${V}_largest(most[0], most[u]);
    return ${V}_max_all(most[0])[0];
}

/* The first `have` of a row's scores become exponentials of their distance to `largest`, the rest 0.  Their sum. */
IRC_INLINE float ${S}_exponentials(float *scores, float largest, int64_t have, int64_t keys) {
    const $V base = ${V}_all(largest);
    $V sum[4];
    EACH(u < 4) sum[u] = ${V}_zeros();
    int64_t j = 0;
    for (; j + 4 * $L <= have; j += 4 * $L) {
        IRC_FULL_UNROLL
        for (int u = 0; u < 4; u++) {
            const $V x = ${V}_exp_below(${V}_load(scores + j + u * $L) - base);
            ${V}_store(scores + j + u * $L, x);
            sum[u] += x;
        }
    }
    for (; j < have; j += $L) {
        const $V x = ${V}_exp_below(${V}_load(scores + j) - base);
        ${V}_store(scores + j, x);
        sum[0] += x;
    }
    for (; j < keys; j += $L) ${V}_store(scores + j, ($V){0});
    return ${V}_sum_all(sum[0] + sum[1] + (sum[2] + sum[3]))[0];
}

/* Scores of `rows` rows from r0 on against keys k0 to k0 + keys become exponentials of their distances to the largest
 * that the row has seen.  One step after the other for all rows: their latencies overlap. */
static void ${S}_softmax(const ${S}_args *g, const ${S}_place *at, int64_t r0, int rows, int64_t k0, int64_t keys,
                         float *scores, ${S}_row *row) {
    _Alignas(64) float before[$some], after[$some], factor[$some];
    int64_t seen[$some];
    for (int r = 0; r < rows; r++) {
        before[r] = row[r].largest;
        after[r] = ${S}_largest(g, at, r0 + r, k0, keys, scores + r * $AS, before[r], seen + r);
    }
    for (int r = rows; r < $some; r++) before[r] = after[r] = 0;
    for (int r = 0; r < $some; r += $L) { /* nothing seen so far: all exponentials are 0 */
        const $V old = ${V}_load(before + r), most = ${V}_load(after + r);
        const $V base = ${V}_select((${V}_mask)(most == -INFINITY), ($V){0}, most);
        ${V}_store(after + r, base);
        ${V}_store(factor + r, ${V}_select((${V}_mask)(old == most), ${V}_all(1.0f), ${V}_exp_below(old - base)));
        ${V}_store(before + r, most);
    }
    for (int r = 0; r < rows; r++) {
        const float sum = ${S}_exponentials(scores + r * $AS, after[r], seen[r], keys);
        row[r] = (${S}_row){before[r], row[r].sum * factor[r] + sum, factor[r]};
    }
}

/* to = from * factor, n values. */
IRC_INLINE void ${S}_scaled(const float *from, float factor, int64_t n, float *to) {
    int64_t j = 0;
    for (; j + $L <= n; j += $L) ${V}_store(to + j, ${V}_load(from + j) * factor);
    if (j < n) ${V}_store_part(to + j, ${V}_load_part(from + j, n - j) * factor, n - j);
}

IRC_INLINE float ${S}_inverse(float sum) { return $empty; }
"""

TILES = """
/* One tile of rows against `keys` of the `packed` ones from k0 on; `last`: no row of it sees later ones. */
static void ${S}_tile(const ${S}_args *g, const ${S}_place *at, int64_t r0, int rows, int64_t k0, int64_t keys,
                      int64_t packed, const float *kp, const float *vp, float *queries, ${S}_row *row,
                      int last) {$tables
    float *const scores = queries + $H0 * $AS, *const sums = scores + $H0 * $AS;
    for (int r = 0; r < rows; r++) ${S}_query(g, at, r0 + r, queries + r * $AS);
    for (int64_t col = 0; col < keys; col += $NR) {
        const int64_t left = keys - col;
        (void)left;
        $pick(g->d, queries, kp + col * g->d, scores + col, 1);
    }
    ${S}_softmax(g, at, r0, rows, k0, keys, scores, row);
    for (int r = 0; k0 > 0 && r < rows; r++)
        ${S}_scaled(${S}_output(g, at, r0 + r), row[r].factor, g->dv, sums + r * $AS);
    for (int64_t col = 0; col < g->dv; col += $NR) {
        const int64_t left = g->dv - col;
        (void)left;
        $pick(keys, scores, vp + col / $NR * $NR * packed, sums + col, k0 == 0);
    }
    for (int r = 0; r < rows; r++)
        ${S}_scaled(sums + r * $AS, last ? ${S}_inverse(row[r].sum) : 1.0f, g->dv, ${S}_output(g, at, r0 + r));
}

/* Rows begin to end of a head, all keys. */
static void ${S}_rows(const ${S}_args *g, const ${S}_place *at, char *own, int64_t begin, int64_t end) {
    const int64_t room = ((g->n < $KB ? g->n : $KB) + $NR - 1) / $NR * $NR * $wide;
    float *const tile = (float *)own, *const kp = tile + 3 * $H0 * $AS, *const vp = kp + room;
    ${S}_row *const rows = (${S}_row *)(vp + room);
    const int64_t tiles = (end - begin + $H0 - 1) / $H0;
    int64_t furthest = 0;
    for (int64_t r = begin; r < end; r++) {
        const int64_t reach = ${S}_reach(g, ${S}_index(g, r));
        furthest = reach > furthest ? reach : furthest;
        rows[r - begin] = (${S}_row){-INFINITY, 0, 1};
    }
    int64_t k0 = 0;
    do {
        const int64_t keys = furthest - k0 < $KB ? furthest - k0 : $KB;
        ${S}_pack_k(g, at->k + k0 * g->k_row, keys, kp);
        ${S}_pack_v(g, at->v + k0 * g->v_row, keys, vp);
        for (int64_t t = 0; t < tiles; t++) {
            const int64_t r0 = begin + (end - begin) * t / tiles, r1 = begin + (end - begin) * (t + 1) / tiles;
            int64_t reach = 0;
            for (int64_t r = r0; r < r1; r++) {
                const int64_t one = ${S}_reach(g, ${S}_index(g, r));
                reach = one > reach ? one : reach;
            }
            if (reach <= k0 && k0 > 0) continue;
            const int64_t some = reach - k0 < keys ? reach - k0 : keys;
            ${S}_tile(g, at, r0, (int)(r1 - r0), k0, some, keys, kp, vp, tile, rows + (r0 - begin),
                      reach <= k0 + keys);
        }
        k0 += keys;
    } while (k0 < furthest);
}
"""

DECODE = """
/* scores[j] = q . key j, keys contiguous. */
static void ${S}_dots(const ${S}_args *g, const float *q, const float *k, int64_t keys, float *scores) {
    const int64_t whole = g->d / $L * $L;
    for (int64_t j = 0; j < keys; j += $G) {
        const float *from[$G];
        $V acc[$G];
        IRC_FULL_UNROLL
        for (int u = 0; u < $G; u++) {
            from[u] = k + (j + u < keys ? j + u : j) * g->k_row;
            acc[u] = ${V}_zeros();
        }
        for (int64_t i = 0; i < whole; i += $L) {
            const $V x = ${V}_load(q + i);
            EACH(u < $G) acc[u] += x * ${V}_load(from[u] + i);
        }
        if (whole < g->d) {
            const $V x = ${V}_load(q + whole);
            EACH(u < $G) acc[u] += x * ${V}_load_part(from[u] + whole, g->d - whole);
        }
$dots        ${V}_store(scores + j, acc[0]); /* what is beyond $G lanes is overwritten, or not used */
    }
}

/* out (+)= sum over keys of weights[j] * row j of V. */
static void ${S}_mix(const ${S}_args *g, const float *weights, const float *v, int64_t keys, float *out) {
    int64_t col = 0;
    for (; col + 4 * $L <= g->dv; col += 4 * $L) {
        $V acc[4], odd[4];
        EACH(u < 4) acc[u] = ${V}_load(out + col + u * $L), odd[u] = ${V}_zeros();
        const float *from = v + col;
        int64_t j = 0;
        for (; j + 2 <= keys; j += 2, from += 2 * g->v_row) {
            IRC_FULL_UNROLL
            for (int u = 0; u < 4; u++) {
                acc[u] += weights[j] * ${V}_load(from + u * $L);
                odd[u] += weights[j + 1] * ${V}_load(from + g->v_row + u * $L);
            }
        }
        IRC_FULL_UNROLL
        for (int u = 0; u < 4; u++) {
            if (j < keys) acc[u] += weights[j] * ${V}_load(from + u * $L);
            ${V}_store(out + col + u * $L, acc[u] + odd[u]);
        }
    }
    for (; col < g->dv; col += $L) {
        const int64_t part = g->dv - col;
        $V acc = ${V}_load(out + col);
        if (part >= $L)
            for (int64_t j = 0; j < keys; j++) acc += weights[j] * ${V}_load(v + j * g->v_row + col);
        else
            for (int64_t j = 0; j < keys; j++) acc += weights[j] * ${V}_load_part(v + j * g->v_row + col, part);
        ${V}_store(out + col, acc);
    }
}

/* Rows begin to end of a head, at most $decode, K and V in place. */
static void ${S}_decode(const ${S}_args *g, const ${S}_place *at, char *own, int64_t begin, int64_t end) {
    float(*const queries)[$wide] = (void *)own, (*const sums)[$wide] = queries + $decode, *const scores = sums[$decode];
    ${S}_row rows[$decode];
    int64_t furthest = 0;
    for (int64_t r = 0; r < end - begin; r++) {
        ${S}_query(g, at, begin + r, queries[r]);
        rows[r] = (${S}_row){-INFINITY, 0, 1};
        for (int64_t j = 0; j < g->dv; j += $L) ${V}_store(sums[r] + j, ($V){0});
        const int64_t reach = ${S}_reach(g, ${S}_index(g, begin + r));
        furthest = reach > furthest ? reach : furthest;
    }
    for (int64_t k0 = 0; k0 < furthest; k0 += $KB) {
        const int64_t keys = furthest - k0 < $KB ? furthest - k0 : $KB;
        for (int64_t r = 0; r < end - begin; r++) {
            ${S}_dots(g, queries[r], at->k + k0 * g->k_row, keys, scores);
            ${S}_softmax(g, at, begin + r, 1, k0, keys, scores, rows + r);
            if (k0 > 0) ${S}_scaled(sums[r], rows[r].factor, g->dv, sums[r]);
            ${S}_mix(g, scores, at->v + k0 * g->v_row, keys, sums[r]);
        }
    }
    for (int64_t r = 0; r < end - begin; r++)
        ${S}_scaled(sums[r], ${S}_inverse(rows[r].sum), g->dv, ${S}_output(g, at, begin + r));
}
"""

ENTRY = """
typedef struct {
    const ${S}_args *g;
    int64_t heads, rows, tiles, parts; /* heads of K and V in the batch, query rows of one, their tiles and tasks */
} ${S}_plan;

IRC_INLINE ${S}_plan ${S}_split(const ${S}_args *g, int alone) {
    const int64_t heads = g->batch * (g->heads / g->group), rows = g->group * g->m;
    const int64_t tiles = (rows + $H0 - 1) / $H0, most = (tiles + $few_tiles - 1) / $few_tiles;
    int64_t parts = (tiles + $tiles - 1) / $tiles; /* each packs K and V: only several threads need some more */
    if (!alone && heads * parts < $few) parts = ($few + heads - 1) / heads < most ? ($few + heads - 1) / heads : most;
    return (${S}_plan){g, heads, rows, tiles, parts};
}

static void ${S}_part(void *given, char *own, int64_t begin, int64_t end) {
    const ${S}_plan plan = *(const ${S}_plan *)given;
    const ${S}_args *g = plan.g;
    const int64_t shared = g->heads / g->group;
    for (; begin < end; begin++) {
        const int64_t part = begin % plan.parts, batch = begin / plan.parts / shared, one = begin / plan.parts % shared;
        const ${S}_place at = {g->k + batch * g->k_batch + one * g->k_head, g->v + batch * g->v_batch + one * g->v_head,
                               batch, one * g->group};
        const int64_t t0 = plan.tiles * part / plan.parts, t1 = plan.tiles * (part + 1) / plan.parts;
        const int64_t r0 = plan.rows * t0 / plan.tiles, r1 = plan.rows * t1 / plan.tiles;
        if (plan.rows <= $decode && g->k_col == 1) ${S}_decode(g, &at, own, r0, r1);
        else ${S}_rows(g, &at, own, r0, r1);
    }
}

void $S($parameters) {
    if (g->batch <= 0 || g->heads <= 0 || g->m <= 0 || g->dv <= 0) return;
    if (g->n <= 0) { /* a sum over nothing */
        for (int64_t b = 0; b < g->batch; b++)
            for (int64_t h = 0; h < g->heads; h++)
                for (int64_t i = 0; i < g->m; i++)
                    for (int64_t j = 0; j < g->dv; j++) g->o[b * g->o_batch + h * g->o_head + i * g->o_row + j] = 0;
        return;
    }
    const double work = (double)(g->batch * g->heads) * (double)(g->m * g->n) * (double)(g->d + g->dv);
    const int alone = !pool || work < $worthwhile;
    ${S}_plan plan = ${S}_split(g, alone);
    const int64_t tasks = plan.heads * plan.parts;
    if (alone || tasks < 2) ${S}_part(&plan, g->own, 0, tasks);
    else irc_divide(pool, tasks, ${S}_part, &plan, g->own, g->own_bytes, g->owners);
}
"""
