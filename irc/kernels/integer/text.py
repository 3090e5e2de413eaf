"""C of products of bytes: the register tile, which all kernels of a file share, and the function around it."""

from __future__ import annotations

from irc.kernels.core.text import Piece

WALK = Piece(
    "IRC_BYTES_WALK",
    """\
/* The taps of a window: `rows` of them `row` apart, in each `columns` that are `column` apart, of `groups` each; the
   level of the largest byte that they meet, where the tile asks for it. */
typedef struct { int64_t rows, row, columns, column, groups, level; } irc_bytes_walk;
""",
)

TILE = """
/* sums[R][$NR] = the columns' own + A . panel - zero * (columns' sums); rows of A begin at a[at[i]].  A line of what is
   `ahead` of each group of the panel is fetched; 0: the first one again, as fetching what is being loaded costs. */
IRC_INLINE void ${tile}(const int R, const $E *a, const int64_t *at, const irc_bytes_walk *w,
                        const int8_t *restrict panel, int64_t ahead, int32_t zero, int32_t *restrict sums) {
    $V acc[$MR][$NV], b[$NV];
    IRC_FULL_UNROLL
    for (int v = 0; v < $NV; v++) {
        const $V own = $load(panel + (v + $NV) * $bytes);
        acc[0][v] = $minus(own, $times($load(panel + v * $bytes), $all(zero)));
    }
    IRC_FULL_UNROLL
    for (int i = 1; i < R; i++) {
        IRC_FULL_UNROLL
        for (int v = 0; v < $NV; v++) acc[i][v] = acc[0][v];
    }
    const int64_t hop = ahead ? 4 * $NR : 0;
    const int8_t *p = panel + 8 * $NR, *next = p + ahead;
    const $E *x[$MR];
    IRC_FULL_UNROLL
    for (int i = 0; i < R; i++) x[i] = a + at[i];
    const int64_t run = w->groups * $step;
    for (int64_t r = 0; r < w->rows; r++) {
        for (int64_t s = 0; s < w->columns; s++) {
            const int64_t tap = r * w->row + s * w->column, end = tap + run;
            for (int64_t k = tap; k < end; k += $step, p += 4 * $NR, next += hop) {
                IRC_FULL_UNROLL
                for (int v = 0; v < $NV; v++) b[v] = $load(p + v * $bytes);
                __builtin_prefetch(next, 0, 2);
                IRC_FULL_UNROLL
                for (int i = 0; i < R; i++) {
                    int32_t group;
                    __builtin_memcpy(&group, x[i] + k, 4);
                    const $V all = $all(group);
                    IRC_FULL_UNROLL
                    for (int v = 0; v < $NV; v++) $dot;
                }
            }
        }
    }
    IRC_FULL_UNROLL
    for (int i = 0; i < R; i++) {
        IRC_FULL_UNROLL
        for (int v = 0; v < $NV; v++) $store(sums + i * $NR + v * $lanes, acc[i][v]);
    }
}
"""

INSTANCE = """\
static void ${tile}_$R(const $E *a, const int64_t *at, const irc_bytes_walk *w, const int8_t *panel,
                       ${ahead_parameter}int32_t zero, int32_t *sums) {
    $tile($R, a, at, w, panel, ${ahead}zero, sums);
}
"""

COPY = """
/* Padded rows of the input, as `$step`s of a group of channels: zero points around it. */
static void ${S}_copy(void *given, int64_t begin, int64_t end) {
    const ${S}_work *w = given;
    const ${S}_args *g = w->g;
    const int64_t per = w->per, tall = w->tall, wide = w->wide, ic = g->ic, pixel = w->pixel;
    const int64_t left = g->pad_w < wide ? g->pad_w : wide;
    const int64_t width = g->iw < wide - left ? g->iw : wide - left;
    for (; begin < end; begin++) {
        const int64_t image = begin / tall, line = begin % tall - g->pad_h;
        const $B *from = g->x + image * g->x_batch + line * g->x_row;
        $E *restrict to = ($E *)g->scratch + begin * w->row;
        const int64_t inside = line >= 0 && line < g->ih ? width : 0;
        const int64_t first = inside ? left * pixel : 0, last = inside ? (left + width) * pixel : 0;
        for (int64_t j = 0; j < first; j++) to[j] = w->pad;
        if (pixel == g->x_pixel && pixel == g->groups * ic) {
            for (int64_t j = 0; j < inside * pixel; j++) to[first + j] = ($E)$joined;
        } else {
            for (int64_t j = 0; j < inside; j++) {
                for (int64_t q = 0; q < g->groups; q++) {
                    const $B *restrict source = from + j * g->x_pixel + q * ic;
                    $E *restrict target = to + first + j * pixel + q * per;
                    int64_t c = 0;$vectors
                    for (; c < ic; c++) target[c] = ($E)$widened;
                    for (; c < per; c++) target[c] = 0;
                }
            }
        }
        for (int64_t j = last; j < w->row; j++) to[j] = w->pad;
    }
}
"""

COPY_BYTES = """
                    for (; c + 16 <= ic; c += 16) { /* few channels: what GCC makes of the loop takes longer to begin */
                        const __m128i v = _mm_loadu_si128((const __m128i *)(source + c));
                        _mm_storeu_si128((__m128i *)(target + c), $several);
                    }"""

FINISH = """
/* Stores rows of sums, in front of each of which `left` columns are left. */
IRC_INLINE void ${S}_finish(const ${S}_work *w, const ${S}_out *o, const int32_t *sums, int64_t rows, int64_t row,
                            int64_t col, int64_t left) {
    $stored *c = o->c + row * o->c_row + col;
    if (left >= $NR) {
        for (int64_t i = 0; i < rows; i++, sums += $NR, c += o->c_row) ${S}_row(w, o, sums, c, row + i, col, $NR);
    } else {
        for (int64_t i = 0; i < rows; i++, sums += $NR, c += o->c_row) ${S}_row(w, o, sums, c, row + i, col, left);
    }
}
"""

SUMS_ROW = """
IRC_INLINE void ${S}_row(const ${S}_work *w, const ${S}_out *o, const int32_t *sums, $stored *c, int64_t row,
                         int64_t col, int64_t n) {
    (void)w, (void)o, (void)row, (void)col;
    if (n < $NR) {
        __builtin_memcpy(c, sums, (size_t)n * 4);
        return;
    }
    IRC_FULL_UNROLL
    for (int v = 0; v < $NR; v += $L) $store(c + v, $load(sums + v)); /* of a copy GCC keeps sums in memory all along */
}
"""

FLOATS_ROW = """
IRC_INLINE void ${S}_row(const ${S}_work *w, const ${S}_out *o, const int32_t *sums, $stored *c, int64_t row,
                         int64_t col, int64_t n) {
    (void)w;
    for (int64_t v = 0; v < n; v += $L) {
        const int64_t part = n - v < $L ? n - v : $L;
        const $V y = ${S}_epilogue(o, ($V)$to_f32($load(sums + v)), row, col + v, part);
        if (part == $L) ${V}_store(c + v, y);
        else ${V}_store_part(c + v, y, part);
    }
}
"""

BYTES_ROW = """
/* Bytes of `rows` rows of sums, at most four vectors, one row after the other. */
IRC_INLINE $M ${S}_near(const int rows, const ${S}_work *w, const ${S}_out *o, const int32_t *sums, int64_t row,
                         int64_t col, int64_t n) {
    $M y[4] = {{0}};
    IRC_FULL_UNROLL
    for (int v = 0; v < rows * $NV; v++) {
        const int64_t at = v % $NV * $L, part = n - at < $L ? n - at : $L;
        if (part > 0)
            y[v] = $round((__m$bits)${S}_epilogue(o, ($V)$to_f32($load(sums + v * $L)), row + v / $NV, col + at, part));
    }
    return irc_bytes_${kind}_$bits(w->y_zero, y[0], y[1], y[2], y[3]);
}

IRC_INLINE void ${S}_row(const ${S}_work *w, const ${S}_out *o, const int32_t *sums, $stored *c, int64_t row,
                         int64_t col, int64_t n) {
    irc_bytes_put_$bits(c, ${S}_near(1, w, o, sums, row, col, n), n);
}
"""

WHOLE = """
/* Computes a tile of all rows and columns, whose sums stay in registers. */
static void ${S}_whole(const ${S}_work *w, const irc_bytes_walk *walk, const ${S}_out *o, const $E *a,
                       const int64_t *at, const int8_t *panel, ${ahead_parameter}int64_t row, int64_t col) {
    int32_t sums[$MR * $NR];
    $stored *const c = o->c + row * o->c_row + col;
    $body($MR, a, at, walk, panel, ${ahead}w->zero, sums);
$rows}
"""

ROWS = """\
    IRC_FULL_UNROLL
    for (int i = 0; i < $MR; i++) ${S}_row(w, o, sums + i * $NR, c + i * o->c_row, row + i, col, $NR);
"""

TWO_ROWS = """\
    IRC_FULL_UNROLL
    for (int i = 0; i < $MR; i += 2) {
        const $M both = ${S}_near(2, w, o, sums + i * $NR, row + i, col, $NR);
        _mm_storeu_si128((__m128i *)(c + i * o->c_row), _mm256_castsi256_si128(both));
        _mm_storeu_si128((__m128i *)(c + (i + 1) * o->c_row), _mm256_extracti128_si256(both, 1));
    }
"""

BODY = """
/* Tasks: some panels of some tiles of an image's pixels, of one group; next to each other are those of the same weights
   if there are more bytes of them than of the input. */
static void ${S}_part(void *given, int64_t begin, int64_t end) {
    static void (*const tiles_of[])(const $E *a, const int64_t *at, const irc_bytes_walk *w, const int8_t *panel,
                                    ${ahead_parameter}int32_t zero, int32_t *sums) = {$table};
    const ${S}_work *w = given;
    const ${S}_args *g = w->g;
    const int64_t pixels = g->oh * g->ow, size = $size;
    const int64_t tiles = (pixels + $MR - 1) / $MR, panels = (g->oc + $NR - 1) / $NR;
    const int64_t across = w->tasks_across, down = w->tasks_down;
    const int64_t low = pixels / tiles, extra = pixels % tiles;
    int32_t sums[$MR * $NR];
    const int64_t chunks = g->batch * g->groups * down;
    for (; begin < end; begin++) {
        const int64_t chunk = w->heavy ? begin % chunks : begin / across;
        const int64_t across_at = w->heavy ? begin / chunks : begin % across;
        const int64_t group = chunk / down % g->groups, image = chunk / down / g->groups;
        const int64_t first = chunk % down * tiles / down, last = (chunk % down + 1) * tiles / down;
        const int64_t beyond = across_at * panels / across, end_of = (across_at + 1) * panels / across;
        const $E *a = w->a + image * w->image + group * w->per;
        ${S}_out o = {.c = g->y + image * g->y_batch, .c_row = g->y_pixel};
        (void)o.n;$slot_starts
        int64_t places[$Q][$MR]; /* of the tiles' rows, which all panels share */$levels
        const int64_t begun = first * low + (first < extra ? first : extra);
        int64_t line = begun / w->width, column = begun % w->width;
        for (int64_t t = first; t < last; t++) {
            for (int64_t i = 0; i < low + (t < extra); i++) {
                places[t - first][i] = line * w->down + column * w->across;
                if (++column == w->width) column = 0, line++;
            }$find_level
        }
        for (int64_t j = beyond; j < end_of; j++) {
            const int8_t *panel = g->w + (group * panels + j) * size;
            for (int64_t t = first; t < last; t++) {
                const int64_t row = t * low + (t < extra ? t : extra), rows = low + (t < extra);
                const int64_t *const at = places[t - first];
                const int64_t part = t - first;$at_level$fetch$whole
                tiles_of[rows - 1](a, at, $walk, panel, ${ahead}w->zero, sums);
                ${S}_finish(w, &o, sums, rows, row, group * g->oc + j * $NR, g->oc - j * $NR);
            }
        }
    }
}

void $S($parameters) {
    const int64_t pixels = g->oh * g->ow;
    if (g->batch <= 0 || pixels <= 0) return;
    const int joined = g->groups == 1 && g->dilation_w == 1;
    const int64_t tiles = (pixels + $MR - 1) / $MR, panels = (g->oc + $NR - 1) / $NR;
    const int64_t run = joined ? g->kw * g->ic : g->ic, groups = (run + $step - 1) / $step;
    ${S}_work w = {.g = g};
    w.zero = $zero;$rounding
$layout
    w.walk = (irc_bytes_walk){
        g->kh, g->dilation_h * w.row, joined ? 1 : g->kw, g->dilation_w * w.pixel, groups,
    };
    w.heavy = g->oc * run * g->kh > g->batch * g->ih * g->iw * g->ic;
    w.down = g->stride_h * w.row;
    w.across = g->stride_w * w.pixel;
    w.width = w.down == g->ow * w.across ? pixels : g->ow; /* lines side by side are one */
    w.tasks_across = (panels + $P - 1) / $P;
    w.tasks_down = (tiles + $Q - 1) / $Q;
    const int64_t apart = g->batch * g->groups;
    const double work = (double)apart * (double)pixels * (double)g->oc * (double)(run * g->kh);
    if (!pool || work < $worthwhile) {
$copy_all
        ${S}_part(&w, 0, apart * w.tasks_down * w.tasks_across);
    } else {
        int64_t *const more[] = {w.heavy ? &w.tasks_across : &w.tasks_down, w.heavy ? &w.tasks_down : &w.tasks_across};
        const int64_t most[] = {w.heavy ? panels : tiles, w.heavy ? tiles : panels};
        for (int i = 0; i < 2; i++) { /* few tasks leave threads without work at the end */
            const int64_t others = apart * *more[1 - i], wanted = ($least + others - 1) / others;
            if (*more[i] < wanted) *more[i] = wanted < most[i] ? wanted : most[i];
        }
$copy_parts
        pool->parallel_for(pool->self, apart * w.tasks_down * w.tasks_across, ${S}_part, &w);
    }
}
"""

LEVELS = """
        irc_bytes_walk walk = w->walk;
        int64_t levels[$Q];"""
FIND_LEVEL = """
            levels[t - first] = irc_bytes_level(a, places[t - first], low + (t < extra), &w->walk);"""
AT_LEVEL = """
                walk.level = levels[part];"""

FETCH_IN_TILE = """
                const int64_t ahead = part * 64 < 4 * $NR ? size + part * 64 : 0;"""
FETCH = """
                /* Each tile fetches its part of the next panel, if there is one. */
                const int64_t until = j + 1 < end_of ? size * (part + 1) / (last - first) : 0;
                for (int64_t line = size * part / (last - first) / 64 * 64; line < until; line += 64)
                    __builtin_prefetch(panel + size + line, 0, 2);"""

IF_WHOLE = """
                if (rows == $MR && g->oc - j * $NR >= $NR) {
                    ${S}_whole(w, $walk, &o, a, at, panel, ${ahead}row, group * g->oc + j * $NR);
                    continue;
                }"""

WORK = """
typedef struct {
    const ${S}_args *g;
    const $E *a;
    irc_bytes_walk walk;
    int64_t image, row, pixel, per, down, across, tall, wide, width, tasks_down, tasks_across;
    int32_t zero;
    int heavy;
    $E pad;$rounding_field
} ${S}_work;
"""

WHERE_IT_STANDS = """\
    w.a = g->x;
    w.image = g->x_batch;
    w.row = g->x_row;
    w.pixel = g->x_pixel;
    w.per = g->ic;"""

IN_A_COPY = """\
    w.per = joined ? g->ic : (g->ic + $step - 1) / $step * $step;
    w.pixel = g->groups * w.per;
    w.tall = (g->oh - 1) * g->stride_h + (g->kh - 1) * g->dilation_h + 1;
    w.wide = (g->ow - 1) * g->stride_w + (g->kw - 1) * g->dilation_w + 1;
    w.row = w.wide * w.pixel + $slack;
    w.image = w.tall * w.row;
    w.a = (const $E *)g->scratch;
    w.pad = ($E)w.zero;"""
