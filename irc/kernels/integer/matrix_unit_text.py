"""C of convolutions of bytes on AMX: the block of tiles, which kernels of a file share, and the function around it."""

from __future__ import annotations

from irc.kernels.core.text import Piece

BLOCK_TYPES = Piece(
    "IRC_BYTES_BLOCK",
    """\
/* Products of a block of tiles: of A, row tiles from a0 and a1 on, and a panel of B of 32 columns.  Chunk c of 64 bytes
   stands at a0 + offsets[c], rows `row` bytes apart; the last chunk at last[0], rows last_row[0] apart. */
typedef struct {
    int64_t chunks, height, row, last_row[2];
    const int64_t *offsets;
    const char *a0, *a1, *last[2];
    const char *b;        /* [chunk][16 columns, and 16 more][16 fours of k][16 columns][4] */
    const char *ahead;    /* with each chunk, `lines` of these come nearer */
    int64_t lines;
    void (*store)(void *given, int64_t pairs); /* with each chunk, `pairs` of rows of the block before are stored */
    void *given;
    int64_t pairs;
} irc_bytes_block;

/* Which of the positions of a row tile are pixels: the number in the block of each, behind n others. */
IRC_HELPER int64_t irc_bytes_pixels(int64_t tile, int64_t height, int64_t positions, int64_t wide, int64_t width,
                                    int64_t number, uint8_t *from, int64_t n) {
    const int64_t own = tile * height, first = own < positions - height ? own : positions - height;
    if (width == wide) { /* all of them: divisions would take as long as the products of a chunk */
        for (int64_t i = own - first; i < height; i++) from[n++] = (uint8_t)(number + i);
        return n;
    }
    int64_t x = own % wide;
    for (int64_t i = own - first; i < height; i++) { /* the last tile begins with rows of the one before */
        from[n] = (uint8_t)(number + i);
        n += x < width;
        if (++x == wide) x = 0;
    }
    return n;
}
""",
)

BLOCK = """\
/* A block of $R x $W tiles: sums[row][32]. */
static void irc_bytes_block_${sign}_${R}x$W(const irc_bytes_block *k, int32_t *sums) {
    const int64_t chunks = k->chunks, lines = k->lines, pairs = k->pairs, *const offsets = k->offsets;
    const char *b = k->b, *ahead = k->ahead;
    int64_t row0 = k->row, row1 = k->row;
    IRC_TILES_READ(k->a0);
    IRC_TILES_READ(b);
$zero    for (int64_t c = 0; c < chunks; c++, b += 2048) {
        const char *a0 = k->a0 + offsets[c], *a1 = k->a1 + offsets[c];
        if (c == chunks - 1) a0 = k->last[0], a1 = k->last[1], row0 = k->last_row[0], row1 = k->last_row[1];
        (void)a1, (void)row1;
        irc_stay_awake();
$body        for (int64_t i = 0; i < lines; i++, ahead += 64) __builtin_prefetch(ahead, 0, 2);
        k->store(k->given, pairs);
    }
    k->store(k->given, 16);
$store}
"""

STORING = """
/* The rows of a block that are still to be stored: `count` of pixels that follow one another. */
typedef struct {
    const ${S}_work *w;
    ${S}_out o;
    const int32_t *sums;
    const uint8_t *from;
    int64_t at, count, row, col, left;
    __m512i start[2]; /* what is added to the sums of columns */
} ${S}_rest;

static void ${S}_store(void *given, int64_t pairs) {
    ${S}_rest *const r = given;
    const ${S}_out o = r->o; /* stores do not change it */
    const $M start[2] = {r->start[0], r->start[1]};
    const int64_t left = r->left, col = r->col, end = r->count - r->at < 2 * pairs ? r->count : r->at + 2 * pairs;
    int64_t at = r->at, row = r->row + at;
    $stored *c = o.c + row * o.c_row + col;
    const uint8_t *const from = r->from;
    if (at >= end) return;
    r->at = end;
    if (left >= 32) {
        for (; at + 2 <= end; at += 2, row += 2, c += 2 * o.c_row)
            ${S}_pair(r->w, &o, start, r->sums + from[at] * 32, r->sums + from[at + 1] * 32, c, row, col);
        if (at < end) ${S}_row(r->w, &o, start, r->sums + from[at] * 32, c, row, col, 32);
    } else {
        for (; at < end; at++, row++, c += o.c_row)
            ${S}_row(r->w, &o, start, r->sums + from[at] * 32, c, row, col, left);
    }
}
"""

SUMS_ROW = """
IRC_INLINE void ${S}_row(const ${S}_work *w, const ${S}_out *o, const $M *start, const int32_t *sums, $stored *c,
                         int64_t row, int64_t col, int64_t n) {
    (void)w, (void)o, (void)row, (void)col;
    IRC_FULL_UNROLL
    for (int v = 0; v < 2; v++) {
        const $M y = _mm512_add_epi32($load(sums + v * 16), start[v]);
        if (n >= v * 16 + 16) $store(c + v * 16, y);
        else if (n > v * 16) __builtin_memcpy(c + v * 16, &y, (size_t)(n - v * 16) * 4);
    }
}
"""

FLOATS_ROW = """
IRC_INLINE void ${S}_row(const ${S}_work *w, const ${S}_out *o, const $M *start, const int32_t *sums, $stored *c,
                         int64_t row, int64_t col, int64_t n) {
    (void)w;
    IRC_FULL_UNROLL
    for (int v = 0; v < 2; v++) {
        const int64_t part = n - v * 16;
        if (part <= 0) continue;
        const $M x = _mm512_add_epi32($load(sums + v * 16), start[v]);
        const $V y = ${S}_epilogue(o, ($V)$to_f32(x), row, col + v * 16, part < 16 ? part : 16);
        if (part < 16) ${V}_store_part(c + v * 16, y, part);
        else ${V}_store(c + v * 16, y);
    }
}
"""

BYTES_ROW = """
IRC_INLINE $M ${S}_whole(const ${S}_out *o, $M start, const int32_t *sums, int64_t row, int64_t col, int64_t part) {
    return $round((__m$bits)${S}_epilogue(o, ($V)$to_f32(_mm512_add_epi32($load(sums), start)), row, col, part));
}

IRC_INLINE void ${S}_row(const ${S}_work *w, const ${S}_out *o, const $M *start, const int32_t *sums, $stored *c,
                         int64_t row, int64_t col, int64_t n) {
    $M y[2] = {{0}};
    y[0] = ${S}_whole(o, start[0], sums, row, col, n < 16 ? n : 16);
    if (n > 16) y[1] = ${S}_whole(o, start[1], sums + 16, row, col + 16, n < 32 ? n - 16 : 16);
    irc_bytes_put_$bits(c, irc_bytes_${kind}_$bits(w->y_zero, y[0], y[1], y[1], y[1]), n);
}
"""

PAIR = """
IRC_INLINE void ${S}_pair(const ${S}_work *w, const ${S}_out *o, const $M *start, const int32_t *first,
                          const int32_t *second, $stored *c, int64_t row, int64_t col) {
    ${S}_row(w, o, start, first, c, row, col, 32);
    ${S}_row(w, o, start, second, c + o->c_row, row + 1, col, 32);
}
"""

PAIR_OF_BYTES = """
/* Two rows of 32 bytes. */
IRC_INLINE void ${S}_pair(const ${S}_work *w, const ${S}_out *o, const $M *start, const int32_t *first,
                          const int32_t *second, $stored *c, int64_t row, int64_t col) {
    $M y[4];
    IRC_FULL_UNROLL
    for (int v = 0; v < 2; v++) {
        y[v] = ${S}_whole(o, start[v], first + v * 16, row, col + v * 16, 16);
        y[2 + v] = ${S}_whole(o, start[v], second + v * 16, row + 1, col + v * 16, 16);
    }
    const $M bytes = irc_bytes_${kind}_$bits(w->y_zero, y[0], y[1], y[2], y[3]);
    _mm256_storeu_si256((__m256i *)c, _mm512_castsi512_si256(bytes));
    _mm256_storeu_si256((__m256i *)(c + o->c_row), _mm512_extracti64x4_epi64(bytes, 1));
}
"""

WORK = """
/* Rows of A are `positions`, `across` bytes apart; of each `wide` of them `g->ow` are pixels. */
typedef struct {
    const ${S}_args *g;
    const char *a;
    const int64_t *offsets;
    int64_t image, across, row, wide, positions, chunks, spare, tall, phases, step, line_step;
    int64_t height, blocks, tasks_down, tasks_across;
    int32_t zero;
    int heavy;
    $B pad;$rounding_field
} ${S}_work;
"""

COPY = """
/* Lines of the input with zero points around them: of each phase of their stride, one after the other. */
static void ${S}_copy(void *given, int64_t begin, int64_t end) {
    const ${S}_work *w = given;
    const ${S}_args *g = w->g;
    const int64_t pixel = g->groups * g->ic, tall = w->tall, lines = w->phases * tall, step = w->step;
    const int64_t wide = w->row / pixel, left = g->pad_w;
    const int64_t first = left <= 0 ? 0 : (left + step - 1) / step < wide ? (left + step - 1) / step : wide;
    int64_t last = (left + g->iw + step - 1) / step;
    if (last > wide) last = wide;
    for (; begin < end; begin++) {
        const int64_t image = begin / lines, line = begin % lines;
        const int64_t padded = (line % tall * w->phases + line / tall) * w->line_step - g->pad_h;
        const $B *from = g->x + image * g->x_batch + padded * g->x_row + (first * step - left) * g->x_pixel;
        $B *to = ($B *)w->a + begin * w->row;
        const int inside = padded >= 0 && padded < g->ih && first < last;
        const int64_t before = (inside ? first : wide) * pixel;
        __builtin_memset(to, w->pad, (size_t)before);
        if (!inside) continue;
        to += before;
        if (step == 1 && g->x_pixel == pixel) {
            __builtin_memcpy(to, from, (size_t)((last - first) * pixel));
            to += (last - first) * pixel;
        } else {
            for (int64_t i = first; i < last; i++, to += pixel, from += step * g->x_pixel)
                __builtin_memcpy(to, from, (size_t)pixel);
        }
        __builtin_memset(to, w->pad, (size_t)((wide - last) * pixel));
    }
}
"""

PART = """
/* Where the last chunk of row tile r stands: a place of its own, if it would be read from beyond the input. */
IRC_INLINE void ${S}_last(const ${S}_work *w, const char *a, int64_t position, char *own, irc_bytes_block *k,
                          const int r) {
    const char *from = a + position * w->across + w->offsets[w->chunks - 1];
    k->last[r] = from;
    k->last_row[r] = w->across;
    if ((position + w->height - 1) * w->across + w->spare <= (w->positions - 1) * w->across) return;
    k->last[r] = own + r * 1024;
    k->last_row[r] = 64;
    for (int64_t i = 0; i < w->height; i++, from += w->across)
        __builtin_memcpy(own + r * 1024 + i * 64, from, (size_t)(64 - w->spare));
}

/* Tasks: some panels of some blocks of an image's pixels, of one group; next to each other are those of the same
   weights if there are more bytes of them than of the input. */
static void ${S}_part(void *given, char *own, int64_t begin, int64_t end) {
    const ${S}_work *w = given;
    const ${S}_args *g = w->g;
    const int64_t panels = (g->oc + 31) / 32, size = 256 + w->chunks * 2048, height = w->height;
    const int64_t across = w->tasks_across, down = w->tasks_down, apart = g->batch * g->groups * down;
    int32_t *const sums[2] = {(int32_t *)own, (int32_t *)(own + 4096)};
    uint8_t *const from[2] = {(uint8_t *)own + 10240, (uint8_t *)own + 10272};
    const $M zero = _mm512_set1_epi32(w->zero);
    irc_bytes_block k = {.chunks = w->chunks, .height = height, .row = w->across, .offsets = w->offsets};
    ${S}_rest rest = {.w = w};
    int turn = 0;
    k.store = ${S}_store;
    k.given = &rest;
    irc_tiles_begin(height);
    for (; begin < end; begin++) {
        const int64_t chunk = w->heavy ? begin % apart : begin / across;
        const int64_t across_at = w->heavy ? begin / apart : begin % across;
        const int64_t group = chunk / down % g->groups, image = chunk / down / g->groups;
        const int64_t first = chunk % down * w->blocks / down, last = (chunk % down + 1) * w->blocks / down;
        const int64_t beyond = across_at * panels / across, end_of = (across_at + 1) * panels / across;
        const char *const a = w->a + image * w->image + group * g->ic;
        ${S}_out o = {.c = g->y + image * g->y_batch, .c_row = g->y_pixel};
        (void)o.n;$slot_starts
        for (int64_t j = beyond; j < end_of; j++) {
            const char *const panel = (const char *)g->w + (group * panels + j) * size;
            const int64_t left = g->oc - j * 32, total = j + 1 < end_of && last - first > 1 ? size / 64 : 0;
            const int64_t lines = (total + (last - first) * w->chunks - 1) / ((last - first) * w->chunks);
            $M begin_with[2];
            IRC_FULL_UNROLL
            for (int v = 0; v < 2; v++) {
                const $M shift = _mm512_mullo_epi32($load(panel + v * 64), zero);
                begin_with[v] = _mm512_sub_epi32($load(panel + 128 + v * 64), shift);
            }
            k.b = panel + 256;
            k.ahead = panel + size;
            for (int64_t block = first; block < last; block++) {
                const int64_t tile = 2 * block, most = w->positions - height;
                const int64_t two = (tile + 1) * height < w->positions;
                const int64_t p0 = tile * height < most ? tile * height : most;
                const int64_t p1 = (tile + 1) * height < most ? (tile + 1) * height : most;
                int32_t *const to = sums[turn];
                uint8_t *const rows = from[turn];
                turn = !turn;
                k.a0 = a + p0 * w->across;
                k.a1 = a + p1 * w->across;
                ${S}_last(w, a, p0, own + 8192, &k, 0);
                ${S}_last(w, a, p1, own + 8192, &k, 1);
                k.lines = lines;
                k.pairs = (rest.count - rest.at + 2 * w->chunks - 1) / (2 * w->chunks);
$choose
                k.ahead += 64 * lines * w->chunks;
                int64_t count = irc_bytes_pixels(tile, height, w->positions, w->wide, g->ow, 0, rows, 0);
                if (two) count = irc_bytes_pixels(tile + 1, height, w->positions, w->wide, g->ow, height, rows, count);
                rest.row = tile * height;
                if (w->wide != g->ow) {
                    const int64_t x = rest.row % w->wide;
                    rest.row = rest.row / w->wide * g->ow + (x < g->ow ? x : g->ow);
                }
                rest.o = o;
                rest.sums = to;
                rest.from = rows;
                rest.at = 0;
                rest.count = count;
                rest.col = group * g->oc + j * 32;
                rest.left = left;
                rest.start[0] = begin_with[0];
                rest.start[1] = begin_with[1];
            }
        }
    }
    ${S}_store(&rest, 16);
    _tile_release();
}
"""

ENTRY = """
void $S($parameters) {
    const int64_t pixels = g->oh * g->ow, pixel = g->groups * g->ic;
    if (g->batch <= 0 || pixels <= 0) return;
    const int joined = g->groups == 1 && g->dilation_w == 1;
    const int64_t run = joined ? g->kw * g->ic : g->ic, each = (run + 63) / 64, columns = joined ? 1 : g->kw;
    int64_t *const offsets = (int64_t *)g->scratch;
    ${S}_work w = {.g = g, .offsets = offsets};
    (void)pixel;
    w.chunks = g->kh * columns * each;
    w.zero = $zero;$rounding
$layout
    for (int64_t c = 0; c < w.chunks; c++) {
        const int64_t line = c / each / columns * g->dilation_h, column = c / each % columns * g->dilation_w;
        offsets[c] = $line + column * pixel + c % each * 64;
    }
    w.positions = (g->oh - 1) * w.wide + g->ow;
    const int64_t tiles = (w.positions + 15) / 16, panels = (g->oc + 31) / 32, apart = g->batch * g->groups;
    w.height = (w.positions + tiles - 1) / tiles;
    w.blocks = ((w.positions + w.height - 1) / w.height + 1) / 2;
    const int64_t weights = panels * w.chunks * 2048, input = w.positions * w.across + pixels * g->oc * $itemsize;
    /* tiles of A are slow to load from another core's cache, so are weights that few rows meet */
    w.heavy = weights > $heavy * input && w.positions < $many;
    w.tasks_across = 1;
    w.tasks_down = (input + $strip - 1) / $strip;
    if (w.tasks_down > w.blocks) w.tasks_down = w.blocks;
    const int64_t cycles = apart * w.blocks * panels * ($chunk_cycles * w.chunks + $block_cycles);
    const int alone = !pool || cycles < $worthwhile;
    if (!alone) {
        int64_t *const more[] = {w.heavy ? &w.tasks_across : &w.tasks_down, w.heavy ? &w.tasks_down : &w.tasks_across};
        const int64_t most[] = {w.heavy ? panels : w.blocks, w.heavy ? w.blocks : panels};
        for (int i = 0; i < 2; i++) { /* few tasks leave threads without work at the end */
            const int64_t others = apart * *more[1 - i], wanted = ($least + others - 1) / others;
            if (*more[i] < wanted) *more[i] = wanted < most[i] ? wanted : most[i];
        }
    }$copy_all
    const int64_t tasks = apart * w.tasks_down * w.tasks_across;
    if (alone) ${S}_part(&w, g->own, 0, tasks);
    else irc_divide(pool, tasks, ${S}_part, &w, g->own, g->own_bytes, g->owners);
}
"""

COPY_ALL = """
    if (alone || g->batch * w.image < $copied_alone) ${S}_copy(&w, 0, g->batch * w.phases * w.tall);
    else pool->parallel_for(pool->self, g->batch * w.phases * w.tall, ${S}_copy, &w);"""

WHERE_IT_STANDS = """\
    w.a = (const char *)g->x;
    w.image = g->x_batch;
    w.across = g->stride_w * g->x_pixel;
    w.wide = g->ow;
    w.spare = each * 64 - run;"""

IN_A_COPY = """\
    w.line_step = g->kh == 1 ? g->stride_h : 1;
    w.step = g->kw == 1 ? g->stride_w : 1;
    w.phases = g->stride_h / w.line_step;
    const int64_t stride = g->stride_w / w.step;
    w.tall = ((g->oh - 1) * w.phases + (g->kh - 1) * g->dilation_h + w.phases) / w.phases;
    w.wide = ((g->ow - 1) * stride + (g->kw - 1) * g->dilation_w + stride) / stride;
    w.across = stride * pixel;
    w.row = w.wide * w.across;
    w.image = w.phases * w.tall * w.row;
    w.a = (const char *)(offsets + (w.chunks + 7) / 8 * 8);
    w.pad = ($B)w.zero;"""
