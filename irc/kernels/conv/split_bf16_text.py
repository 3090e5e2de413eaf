"""The C text of `irc.kernels.conv.split_bf16`, in the order in which it stands in a file.

$C is what all kernels share that differ in their windows, epilogues and results alone; $S is the kernel's own.
"""

CALL = """
typedef struct ${C}_call ${C}_call;

typedef struct {
    int64_t y, x; /* the first pixel of a tile, from the strip's first row on */
    const uint16_t *from;
} ${C}_spot;
$types
struct ${C}_call {
    const $X *x;
    const $B *w;
    float *y; /* sums over a part of the chunks */
    int64_t batch, groups, ic, oc, ih, iw, oh, ow, pad_h, pad_w, x_batch, x_row, x_pixel, y_batch, y_pixel;
    int64_t kh, kw, stride_h, stride_w, dilation_h, dilation_w;
    char *own;
    int64_t own_bytes, owners;
    const void *given; /* of `finish`: a tile to Y, through the epilogue; whether a sum was not finite */
    int (*finish)(const ${C}_call *g, const float *block, ${C}_spot s, int64_t col, int first);$products
    /* Rows and columns of the input from one to the next of the planes, and of these from output to output; what a
       window meets of them; chunks of a row of the window. */
    int64_t row_step, column_step, down_step, right_step, tall, broad, chunks_across;
    /* Rows and columns of the planes stand apart by their remainders by these; from output to output there are then so
       many. */
    int64_t down_apart, right_apart, down_hop, right_hop;
    /* Chunks of 32 channels, and of the sum; panels of 32 output channels.  Images are cut into `down` x `along`
       strips, panels into parts. */
    int64_t channels, chunks, panels, down, along, parts;
    /* The strip that is being computed, of which image and group: pixels x0 to x1 of the output rows y0 to y1, in
       `tiles` tiles of `height` pixels, `across` of them a row, or `flat`, from row to row; the planes under it, their
       rows and columns, outputs from row to row of them, and the elements of one. */
    int64_t image, group, y0, y1, x0, x1, tiles, height, across, flat, high, wide, line, plane;
    uint16_t *planes;
};

/* Rows and columns of a plane under n rows and columns of the output. */
IRC_INLINE int64_t ${C}_tall(const ${C}_call *g, int64_t n) {
    return ((n - 1) * g->down_step + g->tall + g->down_apart - 1) / g->down_apart * g->down_apart;
}
IRC_INLINE int64_t ${C}_wide(const ${C}_call *g, int64_t n) {
    const int64_t whole = $ROUND ? 2 : g->right_apart;
    return ((n - 1) * g->right_step + g->broad + whole - 1) / whole * whole;
}

IRC_INLINE ${C}_spot ${C}_find(const ${C}_call *g, int64_t tile) {
$find}
"""

TYPES = """
typedef void ${C}_taps(int64_t chunks, const uint16_t *a0, const uint16_t *a1, const int64_t *offsets, int64_t term,
                       int64_t row, int64_t height, const uint16_t *b, float *out, int64_t out_row, const char *ahead,
                       int64_t lines$meanwhile);
"""
TAPS_FIELD = "\n    ${C}_taps *const *taps; /* by whether two row tiles, and whether two column tiles */"

FIND = """    const int64_t at = tile * g->height;
    const int64_t y = g->flat ? at / g->line : tile / g->across;
    const int64_t x = g->flat ? at % g->line : tile % g->across * g->height;
    return (${C}_spot){y, x, g->planes + (y * g->down_hop * g->line + x * g->right_hop) * $PIXEL};
"""

COPY = """
/* The planes under a strip: [channels][term][row % down][column % right][row / down][column / right][channel]. */
static void ${C}_copy(const ${C}_call *g) {
    const int64_t down = g->down_apart, right = g->right_apart, high = g->high / down, wide = g->wide / right;
    for (int64_t y = 0; y < g->high; y++) {
        const int64_t iy = (g->y0 * g->down_step + y) * g->row_step - g->pad_h;
        uint16_t *const row = g->planes + (y % down * right * high + y / down) * wide * 32;
        for (int64_t at = 0, apart = 0, column = 0; at < g->wide; at++) {
            const int64_t ix = (g->x0 * g->right_step + at) * g->column_step - g->pad_w;
            uint16_t *const to = row + (apart * high * wide + column) * 32;
            const int inside = iy >= 0 && iy < g->ih && ix >= 0 && ix < g->iw;
            const $X *from = inside ? g->x + iy * g->x_row + ix * g->x_pixel : g->x;
            for (int64_t c = 0; c < g->channels; c++, from += 32) {
                const int64_t have = inside ? g->ic - c * 32 : 0;
$load
            }
            if (++apart < right) continue;
            apart = 0;
            column++;
        }
    }
}
"""

LOAD_F32 = """                irc_f32x16 x = {0}, y = {0};
                if (have >= 32) {
                    x = irc_f32x16_load(from);
                    y = irc_f32x16_load(from + 16);
                } else if (have > 0) {
                    x = irc_f32x16_load_part(from, have);
                    if (have > 16) y = irc_f32x16_load_part(from + 16, have - 16);
                }
                irc_split_$T(x, y, to + c * $T * g->plane, g->plane);"""

LOAD_BF16 = """                irc_u16x32 x = {0};
                if (have >= 32) __builtin_memcpy(&x, from, 64);
                else if (have > 0) x = irc_halves_part(from, have);
                irc_bf16_store(to + c * g->plane, x);"""

COPY_ROWS = """
/* The plane under a strip: [term][row][column][channel]. */
static void ${C}_copy(const ${C}_call *g) {
    const int64_t first = (g->pad_w - g->x0 * g->right_step) * $PIXEL, last = first + g->iw * $PIXEL;
    const int64_t count = g->wide * $PIXEL;
    for (int64_t y = 0; y < g->high; y++) {
        const int64_t iy = (g->y0 * g->down_step + y) * g->row_step - g->pad_h;
        const int inside = iy >= 0 && iy < g->ih;
        const $X *const row = inside ? g->x + iy * g->x_row : g->x;
        uint16_t *const to = g->planes + y * count;
        for (int64_t at = 0; at < count; at += 32) {
            float copy[32] = {0};
            uint16_t terms[$T * 32];
            const int whole = inside && at >= first && at + 32 <= last && g->x_pixel == $PIXEL;
            if (inside && !whole && $PIXEL % 16 == 0) {
                for (int64_t i = 0; i < 32; i += 16) {
                    const int64_t k = at + i - first;
                    if (k < 0 || at + i >= last) continue;
                    irc_f32x16_store(copy + i, $LX(row + k / $PIXEL * g->x_pixel + k % $PIXEL));
                }
            } else if (inside && !whole)
                for (int64_t i = 0; i < 32; i++) {
                    const int64_t k = at + i - first;
                    if (k >= 0 && at + i < last) copy[i] = $VX(row[k / $PIXEL * g->x_pixel + k % $PIXEL]);
                }
            const int64_t left = count - at;
            const irc_f32x16 x = whole ? $LX(row + at - first) : irc_f32x16_load(copy);
            const irc_f32x16 y = whole ? $LX(row + at - first + 16) : irc_f32x16_load(copy + 16);
            if (left >= 32) {
                irc_split_$T(x, y, to + at, g->plane);
                continue;
            }
            irc_split_$T(x, y, terms, 32);
            for (int64_t t = 0; t < $T; t++)
                for (int64_t i = 0; i < left; i++) to[t * g->plane + at + i] = terms[t * 32 + i];
        }
    }
    for (int64_t i = 0; i < $beyond; i++) g->planes[$T * g->plane + i] = 0; /* what the last pixels read */
}
"""

EXACT = """
$load_b
/* What element k of chunk c is for a pixel. */
IRC_INLINE float ${C}_value(const ${C}_call *g, ${C}_spot s, int64_t c, int64_t k) {
    $element
    const int64_t iy = (g->y0 + s.y) * g->stride_h + tap_y * g->dilation_h - g->pad_h;
    const int64_t ix = (g->x0 + s.x) * g->stride_w + tap_x * g->dilation_w - g->pad_w;
    const int inside = iy >= 0 && iy < g->ih && ix >= 0 && ix < g->iw && tap_x < g->kw && channel < g->ic;
    return inside ? $VX(g->x[iy * g->x_row + ix * g->x_pixel + channel]) : 0;
}

/* The pixels of a tile and the panel at channel col in f32 throughout, from the input itself. */
static void ${C}_exact(const ${C}_call *g, const $B *b, const ${C}_spot from, int64_t col) {
    irc_f32x16 block[32];
    ${C}_spot s = from;
    for (int64_t i = 0; i < g->height && g->y0 + s.y < g->y1; i++, s.x++) {
        if ($flat s.x == g->line) {
            s.x = 0;
            if (g->y0 + ++s.y >= g->y1) break;
        }
        if (s.x >= g->x1 - g->x0) continue;
        irc_f32x16 sum[2] = {{0}};
        for (int64_t c = 0; c < g->chunks; c++) {
            irc_f32x16 part[2] = {{0}};
            for (int64_t k = 0; k < 32; k += 2) {
                irc_f32x16 even[2], odd[2];
                ${C}_load_b(b + c * $chunk + k / 2 * $pair, 1, even, odd);
                const float x0 = ${C}_value(g, s, c, k), x1 = ${C}_value(g, s, c, k + 1);
                for (int w = 0; w < 2; w++) part[w] += x0 * even[w] + x1 * odd[w];
            }
            for (int w = 0; w < 2; w++) sum[w] += part[w];
        }
        for (int w = 0; w < 2; w++) block[2 * i + w] = sum[w];
    }
    g->finish(g, (const float *)block, from, col, 1);
}
"""

FINISH = """
/* The pixels of a tile to Y, through the epilogue; sums of the chunks before are added, unless these are the first
 * ones.  Whether a sum was not finite. */
static int ${S}_finish(const ${C}_call *g, const float *block, ${C}_spot s, int64_t col, int first) {
    const ${S}_args *const a = g->given;
    ${S}_out o = {.c = a->y + g->image * a->y_batch + g->group * a->oc, .c_row = a->y_pixel, .n = a->oc};$slot_starts
    const int64_t left = g->oc - col, ow = g->ow, height = g->height, rows = g->y1 - g->y0, columns = g->x1 - g->x0;
    const int64_t start = g->y0 * ow + g->x0;
    irc_f32x16 poison = {0};
    for (int64_t i = 0; i < height; i++, s.x++, block += 32) {
        if ($flat s.x == g->line) {
            s.x = 0;
            s.y++;
        }
        if (s.x >= columns) continue;
        if (s.y >= rows) break;
        const int64_t pixel = start + s.y * ow + s.x;
        $Y *const to = o.c + pixel * o.c_row + col;
        if (left >= 32) {
            IRC_FULL_UNROLL
            for (int w = 0; w < 2; w++) {
                irc_f32x16 x = irc_f32x16_load(block + 16 * w);
                if (!first) x += $LY(to + 16 * w);
                poison = irc_note(poison, x * 0.0f);
                $SY(to + 16 * w, ${S}_epilogue(&o, x, pixel, col + 16 * w, 16));
            }
            continue;
        }
        for (int w = 0; w < 2 && 16 * w < left; w++) {
            const int64_t part = left - 16 * w;
            irc_f32x16 x = irc_f32x16_load(block + 16 * w);
            if (!first) x += ${LY}_part(to + 16 * w, part);
            const irc_f32x16 y = ${S}_epilogue(&o, x, pixel, col + 16 * w, part);
            poison = irc_note(poison, x * 0.0f);
            if (part < 16) ${SY}_part(to + 16 * w, y, part);
            else $SY(to + 16 * w, y);
        }
    }
    return irc_any_nan(poison);
}
"""

PRODUCTS = """
/* The pixels of a tile to Y, where their sums stand until those of all chunks are there. */
static void ${C}_keep(const ${C}_call *g, const float *block, ${C}_spot s, int64_t col, int first) {
    const int64_t left = g->oc - col, rows = g->y1 - g->y0, columns = g->x1 - g->x0;
    for (int64_t i = 0; i < g->height; i++, s.x++, block += 32) {
        if ($flat s.x == g->line) {
            s.x = 0;
            s.y++;
        }
        if (s.x >= columns) continue;
        if (s.y >= rows) break;
        float *const to = g->y + ((g->y0 + s.y) * g->ow + g->x0 + s.x) * g->y_pixel + col;
        for (int w = 0; w < 2 && 16 * w < left; w++) {
            const int64_t part = left - 16 * w;
            irc_f32x16 x = irc_f32x16_load(block + 16 * w);
            if (!first) x += irc_f32x16_load_part(to + 16 * w, part);
            if (part < 16) irc_f32x16_store_part(to + 16 * w, x, part);
            else irc_f32x16_store(to + 16 * w, x);
        }
    }
}

/* Chunks of a tile to Y. */
static void ${C}_leave(const ${C}_call *g, const $B *stored, const float *block, ${C}_spot s, int64_t col, int first,
                       int last) {
    if (!last) ${C}_keep(g, block, s, col, first);
    else if (g->finish(g, block, s, col, first)) ${C}_exact(g, stored, s, col);
}

/* A strip with chunks c0 to c1 of the panel at channel col; meanwhile `next` comes nearer. */
static void ${C}_blocks(const ${C}_call *g, const $B *stored, const uint16_t *b, int64_t c0, int64_t c1, float *out,
                        int64_t col, const $B *next$meanwhile) {
    int64_t offsets[$most_chunks];
    const int64_t across = g->chunks_across, down = g->down_apart, right = g->right_apart, wide = g->wide / right;
    const int64_t high = g->high / down, channels = across * g->kh;
    for (int64_t c = c0, x = c0 % across; c < c1; x = 0) {
        const int64_t tap = c / across % g->kh * g->dilation_h; /* its first row, and that in the planes */
        const int64_t row = (tap % down * right * high + tap / down) * wide;
        const int64_t from = c / channels * ($T * g->plane) + row * $PIXEL;
        for (; x < across && c < c1; x++, c++) offsets[c - c0] = from + $step;
    }
    const int first = c0 == 0, last = c1 == g->chunks;
    const int64_t chunks = c1 - c0, total = chunks * $panel_lines, end = g->tiles;
    const int64_t lines = 2 * $panel_lines / ((end + 1) * $points) + 1;$pairs
    for (int64_t tile = 0, done = 0; tile < end; tile += 2, done += chunks * lines * $points) {
        const int64_t two = tile + 1 < end;
        const ${C}_spot s0 = ${C}_find(g, tile), s1 = ${C}_find(g, tile + two);
        const char *const ahead = (const char *)next + (done < total ? done * 64 : 0);
        const int64_t fetched = done < total ? lines : 0;
$choose
        ${C}_leave(g, stored, out, s0, col, first, last);
        if (two) ${C}_leave(g, stored, out + g->height * 32, s1, col, first, last);
    }
}

/* Strip number `strip` of an image and a group. */
static void ${C}_strip(${C}_call *g, int64_t strip) {
    const int64_t j = strip / (g->down * g->along) % g->groups, i = strip / (g->down * g->along) / g->groups;
    const int64_t row = strip / g->along % g->down, column = strip % g->along;
    g->image = i;
    g->group = j;
    g->x += i * g->x_batch + j * g->ic;
    if (g->y) g->y += i * g->y_batch + j * g->oc;
    g->w += j * g->panels * g->chunks * $chunk;
    g->y0 = g->oh * row / g->down;
    g->y1 = g->oh * (row + 1) / g->down;
    g->x0 = g->ow * column / g->along;
    g->x1 = g->ow * (column + 1) / g->along;
    g->wide = ${C}_wide(g, g->x1 - g->x0);
    g->line = g->wide / g->right_apart;
    g->high = ${C}_tall(g, g->y1 - g->y0);
    g->plane = g->high * g->wide * $PIXEL;
    const int64_t rows = g->y1 - g->y0, columns = g->x1 - g->x0;
    const int64_t count = (columns + 15) / 16;
    g->height = (columns + count - 1) / count;
    g->across = (columns + g->height - 1) / g->height;
    g->tiles = g->across * rows;
$choose_flat}

/* Tasks begin to end: strips, parts of the panels (innermost; neighbours share the planes). */
static void ${C}_part(void *given, char *own, int64_t begin, int64_t end) {
    const ${C}_call *const whole = given;
    const int64_t panels = whole->panels, parts = whole->parts, chunks = whole->chunks;
    const int64_t cuts = (chunks + $most_chunks - 1) / $most_chunks;
    int64_t *const copied = (int64_t *)(void *)own; /* which strip stands in the planes */
    float *const out = (float *)(void *)(own + 64);
$first    while (begin < end) {
        const int64_t part = begin % parts, left = end - begin, run = parts - part < left ? parts - part : left;
        const int64_t p1 = panels * (part + run) / parts;
        ${C}_call call = *whole, *const g = &call;
        ${C}_strip(g, begin / parts);
        g->planes = (uint16_t *)(void *)(own + $planes);
        if (*copied != begin / parts) ${C}_copy(g);
        *copied = begin / parts;
$begin        for (int64_t p = panels * part / parts; p < p1; p++) {
            const $B *const stored = g->w + p * chunks * $chunk;
            for (int64_t cut = 0; cut < cuts; cut++) {
                const int64_t c0 = chunks * cut / cuts, c1 = chunks * (cut + 1) / cuts;
                const $B *const next = stored + ($next : c0) * $chunk;
$operand
                ${C}_blocks(g, stored, b, c0, c1, out, p * 32, next$split);
            }
        }
        begin += run;
    }
$end}
"""

# Where B is split: while a part of a panel is multiplied, the next one is split and the one after it fetched.
SPLIT_FIRST = """    uint16_t *const even = (uint16_t *)(void *)(own + 4160);
    uint16_t *const terms[2] = {even, even + (chunks + cuts - 1) / cuts * 3072};
    const float *ready = 0; /* of which weights the terms stand in terms[turn], or are made there */
    int turn = 0;
    irc_splitting split = {0};
"""

SPLIT_OPERAND = """                const float *const here = stored + c0 * $chunk;
                if (ready != here) split = irc_split_later(here, 0, c1 - c0, terms[turn]);
                irc_split_pairs(&split, split.end); /* all of the first ones; others are done */
                const uint16_t *const b = terms[turn];
                ready = here;
                if (cut + 1 < cuts || p + 1 < p1) {
                    const int64_t c2 = cut + 1 < cuts ? chunks * (cut + 2) / cuts : chunks + chunks / cuts;
                    ready = stored + c1 * $chunk;
                    turn = !turn;
                    split = irc_split_later(ready, 0, c2 - c1, terms[turn]);
                }"""

SPLIT_NEXT = "(p1 - p) * cuts - cut > 2 ? 2 * c1 - c0"
NEXT = "p + 1 < p1 || cut + 1 < cuts ? c1"

PLAN = """
/* Strips as large as fit; for threads more of them, of enough pixels each, or parts of the panels. */
static void ${C}_plan(${C}_call *g, int alone) {
    const int64_t images = g->batch * g->groups, pixel = g->channels * ($T * $PIXEL * 2);
    int64_t fit = $room / (g->tall * pixel) - $ROUND;
    int64_t most = fit < g->broad + g->right_step ? 1 : (fit - g->broad) / g->right_step + 1;
    const int64_t pieces = (g->ow + most - 1) / most, narrow = g->ow / $narrowest;
    g->along = pieces < narrow ? pieces : narrow > 1 ? narrow : 1;
    fit = $room / (${C}_wide(g, (g->ow + g->along - 1) / g->along) * pixel);
    most = fit < g->tall + g->down_step ? 1 : (fit - g->tall) / g->down_step + 1;
    g->down = (g->oh + most - 1) / most;
    g->parts = 1;
    if (alone) return;
    const int64_t enough = g->oh * g->ow / $least, wanted = ($tasks + images - 1) / images;
    const int64_t strips = wanted < enough ? wanted : enough;
    if (g->down * g->along < strips) {
        const int64_t down = (strips + g->along - 1) / g->along;
        g->down = down < g->oh ? down : g->oh;
        if (g->oh < down) g->along = (strips + g->down - 1) / g->down;
    }
    const int64_t tasks = images * g->down * g->along, parts = ($tasks + tasks - 1) / tasks;
    g->parts = parts < g->panels ? parts : g->panels;
}

/* All of it. */
static void ${C}_begin(${C}_call *g, const irc_pool *pool) {
    if (g->batch <= 0 || g->oc <= 0 || g->oh <= 0 || g->ow <= 0) return;
    g->row_step = g->kh == 1 ? g->stride_h : 1; /* of a window of one row, only the rows that it meets */
    g->column_step = g->kw == 1 ? g->stride_w : 1;
    g->down_step = g->kh == 1 ? 1 : g->stride_h;
    g->right_step = g->kw == 1 ? 1 : g->stride_w;
    g->tall = (g->kh - 1) * g->dilation_h + 1;
    g->broad = (g->kw - 1) * g->dilation_w + 1;
    g->down_apart = $apart ? g->down_step : 1;
    g->right_apart = $apart ? g->right_step : 1;
    g->down_hop = g->down_step / g->down_apart;
    g->right_hop = g->right_step / g->right_apart;
    g->chunks_across = $chunks_across;
    g->channels = $channels;
    g->chunks = g->channels * g->kh * g->chunks_across;
    g->panels = (g->oc + 31) / 32;
    const double work = (double)(g->batch * g->groups) * (double)(g->oh * g->ow) * (double)g->oc * (double)g->chunks;
    const int alone = !pool || work * (32 * $passes) < $worthwhile;
    ${C}_plan(g, alone);
    const int64_t tasks = g->batch * g->groups * g->down * g->along * g->parts;
    irc_divide(alone ? 0 : pool, tasks, ${C}_part, g, g->own, g->own_bytes, g->owners);
}
"""

ENTRY = """
void $S($parameters) {
$table    ${C}_call call = {.x = g->x, .w = g->w, .batch = g->batch, .groups = g->groups, .ic = g->ic, .oc = g->oc,
                     .ih = g->ih, .iw = g->iw, .oh = g->oh, .ow = g->ow, .pad_h = g->pad_h, .pad_w = g->pad_w,
                     .x_batch = g->x_batch, .x_row = g->x_row, .x_pixel = g->x_pixel, .y_batch = g->y_batch,
                     .y_pixel = g->y_pixel, .kh = g->kh, .kw = g->kw, .stride_h = g->stride_h,
                     .stride_w = g->stride_w, .dilation_h = g->dilation_h, .dilation_w = g->dilation_w,
                     .own = g->own, .own_bytes = g->own_bytes, .owners = g->owners, .given = g,
                     .finish = ${S}_finish$further};
    ${C}_begin(&call, pool);
}
"""

# Of rows of taps, and of single taps: the tap and channel of element k of chunk c.
ELEMENT_OF_ROW = """const int64_t tap_y = c / g->chunks_across, e = c % g->chunks_across * 32 + k;
    const int64_t tap_x = e / $few, channel = e % $few;"""
ELEMENT = """const int64_t tap_y = c / g->kw % g->kh, tap_x = c % g->kw;
    const int64_t channel = c / (g->kh * g->kw) * 32 + k;"""

# Where column x of a window begins in a row of the planes.
COLUMN = (
    """32 * (right > 1 ? x * g->dilation_w % right * high * wide + x * g->dilation_w / right : x * g->dilation_w)"""
)

# Tiles that run on from row to row, where these are fewer or lower: two are multiplied at a time.
CHOOSE_FLAT = """    const int64_t length = (rows - 1) * g->line + columns, least = (length + 15) / 16;
    const int64_t even = least + (least > 1 ? least % 2 : 0), height = (length + even - 1) / even;
    g->flat = g->down_hop == 1 && g->right_hop == 1 && even * 16 + height < g->tiles * 16 + g->height;
    if (g->flat) {
        g->height = height;
        g->tiles = g->across = (length + height - 1) / height;
    }
"""
