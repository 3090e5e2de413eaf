"""The C text of `irc.kernels.attention.split_bf16`."""

CALL = """
/* Of a query row: the largest score and the sum of exponentials. */
typedef struct {
    float largest, sum;
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

# In all operands element i of a chunk and element i + 16 are the pair i: words of two vectors, without shuffles.
PACK = """
/* Up to 32 keys as a panel of so many columns, zeros beyond the last key. */
IRC_APART void ${S}_pack_k(const ${S}_args *g, const float *k, int64_t keys, uint16_t *to) {
    const int64_t chunks = (g->d + 31) / 32;
    for (int64_t first = 0; first < 32; first += 16) {
        const int64_t have = keys - first;
        for (int64_t c = 0; c < chunks; c++) {
            uint16_t *const out = to + c * $chunk + first * 32;
            const int64_t left = g->d - c * 32;
            if (g->k_col != 1) {
                const float *from = k + first + c * 32 * g->k_col;
                for (int64_t p = 0; p < 16; p++, from += g->k_col) {
                    const irc_f32x16 x = ${S}_some(from, p < left ? have : 0);
                    const irc_f32x16 y = ${S}_some(from + 16 * g->k_col, p + 16 < left ? have : 0);
                    irc_pair_$T(x, y, out + p * 32, 1024);
                }
                continue;
            }
            _Alignas(64) float columns[2][256];
            const float *from = k + first * g->k_row + c * 32;
            for (int64_t i = 16; i < 32; i++) {
                __builtin_prefetch(from + i * g->k_row);
                __builtin_prefetch(from + i * g->k_row + 16);
            }
            IRC_AS_LOOP
            for (int64_t half = 0; half < 2; half++) {
                const int64_t part = left - 16 * half;
                irc_f32x16 x[16];
                if (have >= 16 && part >= 16) {
                    EACH(i < 16) x[i] = irc_f32x16_load(from + half * 16 + i * g->k_row);
                } else {
                    IRC_FULL_UNROLL
                    for (int i = 0; i < 16; i++)
                        x[i] = ${S}_some(from + half * 16 + i * g->k_row, i < have ? part : 0);
                }
                irc_f32x16_square(x);
                EACH(i < 16) irc_f32x16_store(columns[half] + i * 16, x[i]);
            }
            for (int64_t p = 0; p < 16; p++) {
                const irc_f32x16 x = irc_f32x16_load(columns[0] + p * 16), y = irc_f32x16_load(columns[1] + p * 16);
                irc_pair_$T(x, y, out + p * 32, 1024);
            }
        }
    }
}
"""

WORK = """
/* What the vectors do between products: values become terms, so do queries of a later block, and scores of a block
 * become terms of exponentials. */
typedef struct {
    const ${S}_args *g;
    const ${S}_task *at;
    const float *v; /* rows v_at to v_end of all `keys` values */
    int64_t v_at, v_end, v_keys;
    uint16_t *v_to, *q_to;
    int64_t q_at, q_end, q_tiles, q_r0, q_r1; /* rows of the block of queries r0 to r1 */
    ${S}_row *row; /* of rows r0 to r0 + rows; of which `top` know their largest score, and `i` are done, up to key j */
    int64_t r0, rows, top, i, j, k0, keys, wide;
    int64_t due; /* 256 for each step that is to be done */
    float *scores;
    uint16_t *p;
    irc_f32x16 sum;
    float factor[32], base[32];
} ${S}_work;

IRC_INLINE void ${S}_fetch(const float *row, int64_t n) {
    for (int64_t i = 0; i < n; i += 16) __builtin_prefetch(row + i);
}

/* Pair `at` of all values as panels of 32 columns, zeros beyond the last key. */
IRC_INLINE void ${S}_pack_v(const ${S}_work *w, int64_t at) {
    const ${S}_args *g = w->g;
    const int64_t chunks = (w->v_keys + 31) / 32, i = at / 16 * 32 + at % 16;
    const float *from = w->v + i * g->v_row;
    ${S}_fetch(from + 8 * g->v_row, g->dv);
    ${S}_fetch(from + 24 * g->v_row, g->dv);
    uint16_t *out = w->v_to + at / 16 * $chunk + at % 16 * 32;
    for (int64_t left = g->dv; left > 0; left -= 32, from += 32, out += chunks * $chunk) {
        IRC_FULL_UNROLL
        for (int h = 0; h < 2; h++) {
            const irc_f32x16 x = ${S}_some(from + h * 16, i < w->v_keys ? left - h * 16 : 0);
            const irc_f32x16 y = ${S}_some(from + h * 16 + 16 * g->v_row, i + 16 < w->v_keys ? left - h * 16 : 0);
            irc_pair_$T(x, y, out + h * 512, 1024);
        }
    }
}

/* Row i of a block of queries times the scale, in tiles, zeros beyond. */
IRC_INLINE void ${S}_pack_q(const ${S}_work *w, int64_t i) {
    const ${S}_args *g = w->g;
    const int64_t chunks = (g->d + 31) / 32, term = w->q_tiles * 512, r = w->q_r0 + i < w->q_r1 ? w->q_r0 + i : w->q_r0;
    const float *q = g->q + w->at->batch * g->q_batch + (w->at->head + r / g->m) * g->q_head + r % g->m * g->q_row;
    uint16_t *const to = w->q_to + i * 32;
    for (int64_t c = 0; c < chunks; c++) {
        const int64_t left = g->d - c * 32;
        const irc_f32x16 x = ${S}_some(q + c * 32, left) * $scale;
        irc_pair_$T(x, ${S}_some(q + c * 32 + 16, left - 16) * $scale, to + c * $T * term, term);
    }
}

/* The largest score of row i and of what it has seen before; its mask is added, keys that it does not see are -inf. */
IRC_INLINE void ${S}_largest(${S}_work *w, int64_t row_i) {
    static const irc_f32x16_mask lane = {$iota};
    const ${S}_args *g = w->g;
    const ${S}_task *at = w->at;
    const int64_t r = w->r0 + row_i, i = r % g->m, k0 = w->k0;
    float *const scores = w->scores + row_i * $AS;
    ${S}_row *const row = w->row + row_i;
    $mask_at
    int64_t have = ${S}_reach(g, i) - k0, j = 0;
    have = have < 0 ? 0 : have < w->keys ? have : w->keys;
    irc_f32x16 most[4];
    EACH(u < 4) most[u] = irc_f32x16_all(row->largest);
    for (; $whole && j + 64 <= have; j += 64) {
        IRC_FULL_UNROLL
        for (int u = 0; u < 4; u++) {
            irc_f32x16 x = irc_f32x16_load(scores + j + 16 * u);$added
            most[u] = irc_f32x16_largest(x, most[u]);
        }
    }
    for (; j < have; j += 16) {
        const int64_t part = have - j;
        irc_f32x16 x = irc_f32x16_load(scores + j);
        $masked
        if (part < 16) x = irc_f32x16_select((irc_f32x16_mask)(lane < (int32_t)part), x, irc_f32x16_all(-INFINITY));
        irc_f32x16_store(scores + j, x);
        most[0] = irc_f32x16_largest(x, most[0]);
    }
    for (; j < w->wide; j += 16) irc_f32x16_store(scores + j, irc_f32x16_all(-INFINITY));
    IRC_FULL_UNROLL
    for (int u = 1; u < 4; u++) most[0] = irc_f32x16_largest(most[0], most[u]);
    const float largest = irc_f32x16_max_all(most[0])[0];
    /* Nothing seen so far: all exponentials are 0. */
    const float base = largest == -INFINITY ? 0.0f : largest;
    w->base[row_i] = base;
    w->factor[row_i] = 1;
    if (k0 > 0 && row->largest != largest)
        w->factor[row_i] = irc_f32x16_exp_below(irc_f32x16_all(row->largest - base))[0];
    row->largest = largest;
}

/* Scores of 32 keys become terms. */
IRC_INLINE void ${S}_exponentials(${S}_work *w, const float *scores, irc_f32x16 base, uint16_t *to) {
    const irc_f32x16 x = irc_f32x16_exp_below(irc_f32x16_load(scores) - base);
    const irc_f32x16 y = irc_f32x16_exp_below(irc_f32x16_load(scores + 16) - base);
    w->sum += x + y;
    irc_pair_$T(x, y, to, (w->rows > 16 ? 2 : 1) * 512);
}

/* The steps of the work that are due. */
IRC_APART void ${S}_steps(${S}_work *w) {
    for (; w->due >= 256; w->due -= 256) {
        if (w->i < w->rows && w->top > w->i) {
            const float *const scores = w->scores + w->i * $AS + w->j;
            const irc_f32x16 base = irc_f32x16_all(w->base[w->i]);
            const int64_t term = (w->rows > 16 ? 2 : 1) * 512;
            uint16_t *const to = w->p + w->i * 32 + w->j / 32 * $T * term;
            ${S}_exponentials(w, scores, base, to);
            if (w->j + 32 < w->wide) ${S}_exponentials(w, scores + 32, base, to + $T * term);
            w->j += 64;
            if (w->j < w->wide) continue;
            ${S}_row *const row = w->row + w->i;
            row->sum = row->sum * w->factor[w->i] + irc_f32x16_sum_all(w->sum)[0];
            w->sum = (irc_f32x16){0};
            w->i++;
            w->j = 0;
        }
        if (w->top < w->rows && w->top < w->i + 2)
            do ${S}_largest(w, w->top++);
            while (w->top < w->rows && w->top < w->i + 2);
        else if (w->i < w->rows) continue;
        else if (w->v_at < w->v_end) ${S}_pack_v(w, w->v_at++);
        else if (w->q_at < w->q_end) ${S}_pack_q(w, w->q_at++);
        else return;
    }
}

/* How many steps there are. */
IRC_INLINE int64_t ${S}_count(const ${S}_work *w) {
    return w->rows * ((w->wide + 63) / 64) + (w->rows > 0) + w->v_end - w->v_at + w->q_end - w->q_at;
}
"""

BLOCK = """
/* A chunk of O, `part` columns: what stands there times the factor, unless this is the first, and x; all times the
 * `inverse`.  `poison`, not a number where a sum is not finite. */
IRC_INLINE irc_f32x16 ${S}_add(float *o, irc_f32x16 x, float factor, int first, float inverse, int64_t part,
                               irc_f32x16 poison) {
    if (!first) x += ${S}_some(o, part) * factor;
    if (part < 16) irc_f32x16_store_part(o, x * inverse, part);
    else irc_f32x16_store(o, x * inverse);
    return irc_note(poison, x * 0.0f);
}

/* Rows r0 to r1, at most 32, against keys k0 to k0 + keys, packed in panels from `panel` on; `last`: no row of them
 * sees later ones. */
typedef struct {
    int64_t r0, r1, k0, keys, panel, last;
    uint16_t *q, *p;
    float *scores;
} ${S}_item;

/* Keys that are packed panel by panel, when they are needed first. */
typedef struct {
    const float *k;
    int64_t keys, panels; /* that there are; that are packed */
    uint16_t *to;
} ${S}_packing;

/* Scores of an item; at each place of the work, `more` of it becomes due. */
static void ${S}_scores(const ${S}_args *g, const ${S}_item *at, ${S}_packing *packing, ${S}_work *work,
                        int64_t more) {
    const int64_t chunks = (g->d + 31) / 32;
    (void)work, (void)more;
    for (int64_t p = 0; p < (at->keys + 31) / 32; p++) {
        uint16_t *const b = packing->to + (at->panel + p) * chunks * $chunk;
        if (packing->panels == at->panel + p) {
            const int64_t first = 32 * packing->panels++;
            ${S}_pack_k(g, packing->k + first * g->k_row, packing->keys - first, b);
        }
        if (at->r1 - at->r0 > 16) $two(chunks, at->q, 16, b, at->scores + p * 32, $AS, 0, 0$work);
        else $one(chunks, at->q, 16, b, at->scores + p * 32, $AS, 0, 0$work);
    }
}

/* Products of an item's exponentials with the values, to O. */
static void ${S}_mixed(const ${S}_args *g, const ${S}_task *task, const ${S}_item *at, const uint16_t *vp,
                       int64_t packed, float *out, ${S}_row *row, const float *factor, ${S}_work *work,
                       int64_t more) {
    const int64_t across = (at->keys + 31) / 32, rows = at->r1 - at->r0;
    (void)work, (void)more;
    irc_f32x16 poison[32];
    float inverse[32], *to[32];
    for (int64_t i = 0; i < rows; i++) {
        const float sum = row[i].sum;
        to[i] = ${S}_output(g, task, at->r0 + i);
        inverse[i] = at->last ? $empty : 1.0f;
        poison[i] = irc_f32x16_all(sum == sum ? 0.0f : NAN);
    }
    for (int64_t col = 0; col < g->dv; col += 32) {
        const uint16_t *const b = vp + (col / 32 * packed + at->panel) * $chunk;
        if (rows > 16) $two(across, at->p, 16, b, out, 32, 0, 0$work);
        else $one(across, at->p, 16, b, out, 32, 0, 0$work);
        for (int64_t i = 0; i < rows; i++) {
            float *const o = to[i] + col;
            poison[i] = ${S}_add(o, irc_f32x16_load(out + i * 32), factor[i], at->k0 == 0, inverse[i], g->dv - col,
                                 poison[i]);
            if (g->dv - col > 16)
                poison[i] = ${S}_add(o + 16, irc_f32x16_load(out + i * 32 + 16), factor[i], at->k0 == 0, inverse[i],
                                     g->dv - col - 16, poison[i]);
        }
    }
    if (at->last)
        for (int64_t i = 0; i < rows; i++)
            if (irc_any_nan(poison[i])) row[i].sum = NAN;
}

/* Row r in f32 throughout. */
static void ${S}_exact(const ${S}_args *g, const ${S}_task *at, char *own, int64_t r) {
    const int64_t head = at->head + r / g->m, i = r % g->m;
    (void)head;
    $again;
}
"""

ENTRY = """
/* The item behind `at`, or the first if that has -1 keys, of keys k0 to k0 + packed; whether there is one. */
static int ${S}_next(const ${S}_args *g, const ${S}_task *task, int64_t k0, int64_t packed, ${S}_item *at) {
    const int64_t all = g->n - k0 < $KB ? g->n - k0 : $KB, panels = (all + 31) / 32, cuts = (panels + $KP - 1) / $KP;
    const int64_t share = cuts ? (panels + cuts - 1) / cuts * 32 : 0;
    int64_t k1 = at->keys < 0 ? k0 : at->k0 + at->keys;
    int fresh = at->keys < 0;
    for (int64_t r0 = at->r0; r0 < task->end; r0 += 32, k1 = k0, fresh = 1) {
        const int64_t r1 = task->end - r0 < 32 ? task->end : r0 + 32, seen = ${S}_furthest(g, r0, r1);
        const int64_t left = (seen < k0 + packed ? seen : k0 + packed) - k1, keys = left < share ? left : share;
        if (left <= 0 && !(fresh && k1 == 0)) continue; /* rows that see nothing become what they are then once */
        *at = (${S}_item){.r0 = r0, .r1 = r1, .k0 = k1, .keys = keys, .panel = (k1 - k0) / 32};
        at->last = k1 + keys >= seen;
        return 1;
    }
    return 0;
}

/* The work on the scores of `now`, and on the queries of `later` if `next` has others. */
static void ${S}_begin(${S}_work *w, const ${S}_item *now, const ${S}_item *next, const ${S}_item *later,
                       ${S}_row *rows) {
    w->row = rows + (now->r0 - w->at->begin);
    w->r0 = now->r0;
    w->rows = now->keys > 0 ? now->r1 - now->r0 : 0;
    w->i = w->j = w->top = 0;
    w->k0 = now->k0;
    w->keys = now->keys;
    w->wide = (now->keys + 31) / 32 * 32;
    w->scores = now->scores;
    w->p = now->p;
    w->q_tiles = later->r1 - later->r0 > 16 ? 2 : 1;
    w->q_at = 0;
    w->q_end = later->r1 && later->r0 != next->r0 ? 16 * w->q_tiles : 0;
    w->q_r0 = later->r0;
    w->q_r1 = later->r1;
    w->q_to = later->q;
}

/* Keys k0 to k0 + packed, to O.  While the scores of an item become exponentials, the products of the item before with
 * the values are computed, then the scores of the next. */
static void ${S}_keys(const ${S}_args *g, const ${S}_task *task, int64_t k0, int64_t packed, char *own,
                      ${S}_row *rows) {
    const int64_t room = ((g->n < $KB ? g->n : $KB) + 31) / 32 * $wide * (32 * $T), panels = (packed + 31) / 32;
    float *const out = (float *)own, *const scores = out + 1024;
    uint16_t *const p = (uint16_t *)(scores + 2 * 32 * $AS), *const q = p + 2 * $KP * 1024 * $T;
    uint16_t *const kp = q + 2 * $wide * 32 * $T, *const vp = kp + room;
    const ${S}_work none = {
        .g = g, .at = task, .v = task->v + k0 * g->v_row, .v_keys = packed, .v_to = vp, .v_at = panels * 16,
        .v_end = panels * 16};
    const ${S}_item nothing = {0};
    ${S}_work works[2] = {none, none};
    ${S}_item before = nothing, now = nothing, next = nothing, later = {.r0 = task->begin, .k0 = k0, .keys = -1};
    if (!${S}_next(g, task, k0, packed, &later)) return;
    ${S}_packing packing = {task->k + k0 * g->k_row, packed, 0, kp};
    later.q = q;
    ${S}_begin(works, &now, &before, &later, rows);
    works[0].q_end = 16 * works[0].q_tiles;
    works[0].due = INT64_MAX;
    ${S}_steps(works);
    works[0].v_at = 0;
    next = later;
    for (int turn = 0; before.r1 || now.r1 || next.r1; turn = !turn) {
        ${S}_work *const work = works + turn;
        next.scores = scores + !turn * 32 * $AS;
        next.p = p + !turn * $KP * 1024 * $T;
        later = next;
        if (!next.r1 || !${S}_next(g, task, k0, packed, &later)) later = nothing;
        later.q = (later.r0 == next.r0) == (next.q == q) ? q : q + $wide * 32 * $T;
        ${S}_begin(work, &now, &next, &later, rows);
        const int64_t mixed = (before.keys + 31) / 32 * ((g->dv + 31) / 32);
        const int64_t places = $places * (mixed + (next.keys + 31) / 32 * ((g->d + 31) / 32));
        const int64_t steps = places ? 256 * ${S}_count(work) / places + 1 : 0;
        work->due = 0;
        if (before.r1)
            ${S}_mixed(g, task, &before, vp, panels, out, rows + (before.r0 - task->begin), works[!turn].factor, work,
                       steps);
        if (next.r1) ${S}_scores(g, &next, &packing, work, steps);
        work->due = INT64_MAX;
        ${S}_steps(work);
        before = now;
        now = next;
        next = later;
    }
}

static void ${S}_rows(const ${S}_args *g, const ${S}_task *at, char *own) {
    ${S}_row *const rows = (${S}_row *)own;
    own += $rows;
    const int64_t furthest = ${S}_furthest(g, at->begin, at->end);
    for (int64_t r = at->begin; r < at->end; r++) rows[r - at->begin] = (${S}_row){-INFINITY, 0};
    int64_t k0 = 0;
    do {
        const int64_t packed = furthest - k0 < $KB ? furthest - k0 : $KB;
        ${S}_keys(g, at, k0, packed, own, rows);
        k0 += packed;
    } while (k0 < furthest);
    for (int64_t r = at->begin; r < at->end; r++)
        if (rows[r - at->begin].sum != rows[r - at->begin].sum) ${S}_exact(g, at, own, r);
}

/* Blocks of 32 rows of a head of K and V, and the tasks that they are cut into, each of which packs K and V. */
typedef struct {
    const ${S}_args *g;
    int64_t rows, blocks, parts;
} ${S}_plan;

IRC_INLINE ${S}_plan ${S}_split(const ${S}_args *g, int alone) {
    const int64_t heads = g->batch * (g->heads / g->group), rows = g->group * g->m, blocks = (rows + 31) / 32;
    const int64_t wanted = alone ? 1 : ($tasks + heads - 1) / heads, least = (blocks + $blocks - 1) / $blocks;
    const int64_t parts = wanted < blocks ? wanted : blocks;
    return (${S}_plan){g, rows, blocks, parts < least ? least : parts};
}

static void ${S}_part(void *given, char *own, int64_t begin, int64_t end) {
    const ${S}_plan plan = *(const ${S}_plan *)given;
    const ${S}_args *g = plan.g;
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
    const double work = (double)(g->batch * g->heads) * (double)(g->m * g->n) * (double)(g->d + g->dv);
    const int alone = !pool || work < $worthwhile;
    ${S}_plan plan = ${S}_split(g, alone);
    const int64_t tasks = g->batch * (g->heads / g->group) * plan.parts;
    if (alone || tasks < 2) ${S}_part(&plan, g->own, 0, tasks);
    else irc_divide(pool, tasks, ${S}_part, &plan, g->own, g->own_bytes, g->owners);
}
"""
