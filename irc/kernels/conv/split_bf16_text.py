"""The C text of `irc.kernels.conv.split_bf16`, in the order in which it stands in a file."""

CALL = """
typedef struct {$fields
    /* Chunks of 32 channels, and of the sum; panels of 32 output channels.  Images are cut into `down` x `along`
       strips, panels into parts. */
    int64_t channels, chunks, panels, down, along, parts;
    /* The strip that is being computed: pixels x0 to x1 of the output rows y0 to y1, in `tiles` tiles of `height`
       pixels, `across` of them a row; the planes under it, their columns, and the elements of one. */
    int64_t y0, y1, x0, x1, tiles, height, across, wide, plane;
    uint16_t *planes;
} ${S}_call;

/* Rows and columns of a plane under n rows and columns of the output. */
IRC_INLINE int64_t ${S}_tall(int64_t n) { return (n - 1) * $SH + $TALL; }
IRC_INLINE int64_t ${S}_wide(int64_t n) { return ((n - 1) * $SW + $WIDE + $ROUND) / ($ROUND + 1) * ($ROUND + 1); }

typedef struct {
    int64_t y, x; /* the first pixel of a tile, from the strip's first row on */
    const uint16_t *from;
} ${S}_spot;

IRC_INLINE ${S}_spot ${S}_find(const ${S}_call *g, int64_t tile) {
$find}
"""

FIND = """    const int64_t y = tile / g->across, x = tile % g->across * g->height;
    return (${S}_spot){y, x, g->planes + (y * $SH * g->wide + x * $SW) * $PIXEL};
"""

FIND_FLAT = """    const int64_t at = tile * g->height;
    return (${S}_spot){at / g->wide, at % g->wide, g->planes + at * $PIXEL};
"""

COPY = """
/* The planes under a strip. */
static void ${S}_copy(const ${S}_call *g) {
    const int64_t tall = ${S}_tall(g->y1 - g->y0);
    for (int64_t y = 0; y < tall; y++) {
        const int64_t iy = (g->y0 * $SH + y) * $ROW_STEP - g->pad_h;
        uint16_t *to = g->planes + y * g->wide * 32;
        for (int64_t at = 0; at < g->wide; at++, to += 32) {
            const int64_t ix = (g->x0 * $SW + at) * $COLUMN_STEP - g->pad_w;
            const int inside = iy >= 0 && iy < g->ih && ix >= 0 && ix < g->iw;
            const $X *from = inside ? g->x + iy * g->x_row + ix * g->x_pixel : g->x;
            for (int64_t c = 0; c < g->channels; c++, from += 32) {
                const int64_t have = inside ? g->ic - c * 32 : 0;
$load
            }
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
/* The plane under a strip. */
static void ${S}_copy(const ${S}_call *g) {
    const int64_t tall = ${S}_tall(g->y1 - g->y0);
    const int64_t first = (g->pad_w - g->x0 * $SW) * $PIXEL, last = first + g->iw * $PIXEL, count = g->wide * $PIXEL;
    for (int64_t y = 0; y < tall; y++) {
        const int64_t iy = (g->y0 * $SH + y) * $ROW_STEP - g->pad_h;
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
IRC_INLINE float ${S}_value(const ${S}_call *g, ${S}_spot s, int64_t c, int64_t k) {
    $element
    const int64_t iy = (g->y0 + s.y) * $STRIDE_H + tap_y * $DH - g->pad_h;
    const int64_t ix = (g->x0 + s.x) * $STRIDE_W + tap_x * $DW - g->pad_w;
    const int inside = iy >= 0 && iy < g->ih && ix >= 0 && ix < g->iw && tap_x < $KW && channel < g->ic;
    return inside ? $VX(g->x[iy * g->x_row + ix * g->x_pixel + channel]) : 0;
}

/* The pixels of a tile and the panel at channel col in f32 throughout, from the input itself. */
static void ${S}_exact(const ${S}_call *g, const ${S}_out *o, const $B *b, ${S}_spot s, int64_t col) {
    for (int64_t i = 0; i < g->height && g->y0 + s.y < g->y1; i++, s.x++) {
        if ($flat && s.x == g->wide) {
            s.x = 0;
            if (g->y0 + ++s.y >= g->y1) return;
        }
        if (s.x >= g->x1 - g->x0) continue;
        irc_f32x16 sum[2] = {{0}};
        for (int64_t c = 0; c < g->chunks; c++) {
            irc_f32x16 part[2] = {{0}};
            for (int64_t k = 0; k < 32; k += 2) {
                irc_f32x16 even[2], odd[2];
                ${S}_load_b(b + c * $chunk + k / 2 * $pair, 1, even, odd);
                const float x0 = ${S}_value(g, s, c, k), x1 = ${S}_value(g, s, c, k + 1);
                for (int w = 0; w < 2; w++) part[w] += x0 * even[w] + x1 * odd[w];
            }
            for (int w = 0; w < 2; w++) sum[w] += part[w];
        }
        const int64_t pixel = (g->y0 + s.y) * g->ow + g->x0 + s.x;
        for (int w = 0; w < 2 && col + 16 * w < g->oc; w++) {
            const int64_t at = col + 16 * w;
            const irc_f32x16 y = ${S}_epilogue(o, sum[w], pixel, at, g->oc - at);
            ${SY}_part(o->c + pixel * o->c_row + at, y, g->oc - at);
        }
    }
}
"""

PRODUCTS = """
/* A pixel of a block of 32 channels to Y, as below. */
IRC_INLINE irc_f32x16 ${S}_whole(const ${S}_out *o, const float *block, int64_t pixel, int64_t col, const int first,
                                 const int last) {
    irc_f32x16 poison = {0};
    IRC_FULL_UNROLL
    for (int w = 0; w < 2; w++) {
        $Y *const to = o->c + pixel * o->c_row + col + 16 * w;
        irc_f32x16 x = irc_f32x16_load(block + 16 * w);
        if (!first) x += $LY(to);
        if (last) {
            poison = irc_note(poison, x * 0.0f);
            x = ${S}_epilogue(o, x, pixel, col + 16 * w, 16);
        }
        $SY(to, x);
    }
    return poison;
}

/* The pixels of a tile to Y: earlier sums added, the epilogue applied when these are the last ones.  Whether a sum was
 * not finite. */
static int ${S}_finish(const ${S}_call *g, const ${S}_out *given, const float *block, ${S}_spot s, int64_t col,
                       int first, int last) {
    const ${S}_out own = *given, *const o = &own; /* stores do not change it */
    const int64_t left = g->oc - col, ow = g->ow, height = g->height, rows = g->y1 - g->y0, columns = g->x1 - g->x0;
    const int64_t start = g->y0 * ow + g->x0;
    irc_f32x16 poison = {0};
    for (int64_t i = 0; i < height; i++, s.x++) {
        if ($flat && s.x == g->wide) {
            s.x = 0;
            s.y++;
        }
        if (s.x >= columns) continue;
        if (s.y >= rows) break;
        const int64_t pixel = start + s.y * ow + s.x;
        if (left >= 32) {
            if (first && last) poison = irc_note(poison, ${S}_whole(o, block + i * 32, pixel, col, 1, 1));
            else if (last) poison = irc_note(poison, ${S}_whole(o, block + i * 32, pixel, col, 0, 1));
            else if (first) ${S}_whole(o, block + i * 32, pixel, col, 1, 0);
            else ${S}_whole(o, block + i * 32, pixel, col, 0, 0);
            continue;
        }
        for (int w = 0; w < 2 && 16 * w < left; w++) {
            const int64_t part = left - 16 * w;
            $Y *const to = o->c + pixel * o->c_row + col + 16 * w;
            irc_f32x16 x = irc_f32x16_load(block + i * 32 + 16 * w);
            if (!first) x += part < 16 ? ${LY}_part(to, part) : $LY(to);
            if (last) {
                poison = irc_note(poison, x * 0.0f);
                x = ${S}_epilogue(o, x, pixel, col + 16 * w, part);
            }
            if (part < 16) ${SY}_part(to, x, part);
            else $SY(to, x);
        }
    }
    return irc_any_nan(poison);
}

/* A strip with chunks c0 to c1 of the panel at channel col; meanwhile `next` comes nearer. */
static void ${S}_blocks(const ${S}_call *g, const ${S}_out *o, const $B *stored, const uint16_t *b, int64_t c0,
                        int64_t c1, float *out, int64_t col, const $B *next$meanwhile) {
    int64_t offsets[$most_chunks];
    for (int64_t c = c0; c < c1; c++)
        offsets[c - c0] = $offset;
    const int first = c0 == 0, last = c1 == g->chunks;
    const int64_t chunks = c1 - c0, total = chunks * $panel_lines, end = g->tiles;
    const int64_t lines = 2 * $panel_lines / ((end + 1) * $points) + 1;$pairs
    for (int64_t tile = 0, done = 0; tile < end; tile += 2, done += chunks * lines * $points) {
        const int64_t two = tile + 1 < end;
        const ${S}_spot s0 = ${S}_find(g, tile), s1 = ${S}_find(g, tile + two);
        const char *const ahead = (const char *)next + (done < total ? done * 64 : 0);
        const int64_t fetched = done < total ? lines : 0;
$choose
        if (${S}_finish(g, o, out, s0, col, first, last)) ${S}_exact(g, o, stored, s0, col);
        if (two && ${S}_finish(g, o, out + g->height * 32, s1, col, first, last)) ${S}_exact(g, o, stored, s1, col);
    }
}

/* Strip number `strip` of an image and a group. */
static void ${S}_strip(${S}_call *g, ${S}_out *o, int64_t strip) {
    const int64_t j = strip / (g->down * g->along) % g->groups, i = strip / (g->down * g->along) / g->groups;
    const int64_t row = strip / g->along % g->down, column = strip % g->along;
    g->x += i * g->x_batch + j * g->ic;
    g->w += j * g->panels * g->chunks * $chunk;
    g->y0 = g->oh * row / g->down;
    g->y1 = g->oh * (row + 1) / g->down;
    g->x0 = g->ow * column / g->along;
    g->x1 = g->ow * (column + 1) / g->along;
    g->wide = ${S}_wide(g->x1 - g->x0);
    g->plane = ${S}_tall(g->y1 - g->y0) * g->wide * $PIXEL;
    const int64_t rows = g->y1 - g->y0, columns = g->x1 - g->x0;
    const int64_t length = $flat ? (rows - 1) * g->wide + columns : columns, count = (length + 15) / 16;
    const int64_t even = count + ($flat && count > 1 ? count % 2 : 0); /* two tiles are multiplied at a time */
    g->height = (length + even - 1) / even;
    g->across = (length + g->height - 1) / g->height;
    g->tiles = $flat ? g->across : g->across * rows;
    *o = (${S}_out){.c = g->y + i * g->y_batch + j * g->oc, .c_row = g->y_pixel, .n = g->oc};$slots_here
}

/* Tasks begin to end: strips, parts of the panels (innermost; neighbours share the planes). */
static void ${S}_part(void *given, char *own, int64_t begin, int64_t end) {
    const ${S}_call *const whole = given;
    const int64_t panels = whole->panels, parts = whole->parts, chunks = whole->chunks;
    const int64_t cuts = (chunks + $most_chunks - 1) / $most_chunks;
    int64_t *const copied = (int64_t *)(void *)own; /* which strip stands in the planes */
    float *const out = (float *)(void *)(own + 64);
$first    while (begin < end) {
        const int64_t part = begin % parts, left = end - begin, run = parts - part < left ? parts - part : left;
        const int64_t p1 = panels * (part + run) / parts;
        ${S}_call call = *whole, *const g = &call;
        ${S}_out o;
        ${S}_strip(g, &o, begin / parts);
        g->planes = (uint16_t *)(void *)(own + $planes);
        if (*copied != begin / parts) ${S}_copy(g);
        *copied = begin / parts;
$begin        for (int64_t p = panels * part / parts; p < p1; p++) {
            const $B *const stored = g->w + p * chunks * $chunk;
            for (int64_t cut = 0; cut < cuts; cut++) {
                const int64_t c0 = chunks * cut / cuts, c1 = chunks * (cut + 1) / cuts;
                const $B *const next = stored + ($next : c0) * $chunk;
$operand
                ${S}_blocks(g, &o, stored, b, c0, c1, out, p * 32, next$split);
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

ENTRY = """
/* Strips as large as fit; for threads more of them, of enough pixels each, or parts of the panels. */
static void ${S}_plan(${S}_call *g, int alone) {
    const int64_t images = g->batch * g->groups, pixel = g->channels * ($T * $PIXEL * 2);
    int64_t fit = $room / ($TALL * pixel) - $ROUND, most = fit < $WIDE + $SW ? 1 : (fit - $WIDE) / $SW + 1;
    const int64_t pieces = (g->ow + most - 1) / most, narrow = g->ow / $narrowest;
    g->along = pieces < narrow ? pieces : narrow > 1 ? narrow : 1;
    fit = $room / (${S}_wide((g->ow + g->along - 1) / g->along) * pixel);
    most = fit < $TALL + $SH ? 1 : (fit - $TALL) / $SH + 1;
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

void $S($parameters) {
    ${S}_call whole = {$assigned};
    if (g->batch <= 0 || g->oc <= 0 || g->oh <= 0 || g->ow <= 0) return;
    whole.channels = $channels;
    whole.chunks = $chunks;
    whole.panels = (g->oc + 31) / 32;
    const double work = (double)(g->batch * g->groups) * (double)(g->oh * g->ow) * (double)g->oc * (double)whole.chunks;
    const int alone = !pool || work * (32 * $passes) < $worthwhile;
    ${S}_plan(&whole, alone);
    const int64_t tasks = g->batch * g->groups * whole.down * whole.along * whole.parts;
    irc_divide(alone ? 0 : pool, tasks, ${S}_part, &whole, g->own, g->own_bytes, g->owners);
}
"""

# Where chunk c begins in the planes, and which tap and channel its element k is: of rows of taps, and of single taps.
OFFSET_OF_ROW = "c / $across * $DH * g->wide * $few + c % $across * 32"
ELEMENT_OF_ROW = """const int64_t tap_y = c / $across, e = c % $across * 32 + k;
    const int64_t tap_x = e / $few, channel = e % $few;"""
OFFSET = "c / $taps * $T * g->plane + (c / $KW % $KH * $DH * g->wide + c % $KW * $DW) * 32"
ELEMENT = "const int64_t tap_y = c / $KW % $KH, tap_x = c % $KW, channel = c / $taps * 32 + k;"
