"""The C text of `irc.kernels.conv.split_bf16`, in the order in which it stands in a file."""

CALL = """
typedef struct {$fields
    /* Chunks of 32 channels, and of the sum; columns of a plane, and its elements.  The strip: output rows y0 to y1, in
       `tiles` tiles of `height` pixels, `across` of them a row; into how many parts its tiles are divided. */
    int64_t channels, chunks, wide, plane, y0, y1, tiles, height, across, parts;
} ${S}_call;

/* Rows of a plane under n rows of the output. */
IRC_INLINE int64_t ${S}_tall(int64_t n) { return (n - 1) * $SH + $TALL; }

typedef struct {
    int64_t y, x; /* the first pixel of a tile, from the strip's first row on */
    const uint16_t *from;
} ${S}_spot;

IRC_INLINE ${S}_spot ${S}_find(const ${S}_call *g, int64_t tile) {
$find}
"""

FIND = """    const int64_t y = tile / g->across, x = tile % g->across * g->height;
    return (${S}_spot){y, x, g->scratch + (y * $SH * g->wide + x * $SW) * $PIXEL};
"""

FIND_FLAT = """    const int64_t at = tile * g->height;
    return (${S}_spot){at / g->wide, at % g->wide, g->scratch + at * $PIXEL};
"""

COPY = """
/* Rows begin to end of the planes. */
static void ${S}_copy_part(void *given, int64_t begin, int64_t end) {
    const ${S}_call *g = given;
    for (; begin < end; begin++) {
        const int64_t iy = (g->y0 * $SH + begin) * $ROW_STEP - g->pad_h;
        uint16_t *to = g->scratch + begin * g->wide * 32;
        for (int64_t at = 0; at < g->wide; at++, to += 32) {
            const int64_t ix = at * $COLUMN_STEP - g->pad_w;
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
/* Rows begin to end of the plane. */
static void ${S}_copy_part(void *given, int64_t begin, int64_t end) {
    const ${S}_call *g = given;
    const int64_t count = g->wide * $PIXEL, first = g->pad_w * $PIXEL, last = first + g->iw * $PIXEL;
    for (; begin < end; begin++) {
        const int64_t iy = (g->y0 * $SH + begin) * $ROW_STEP - g->pad_h;
        const int inside = iy >= 0 && iy < g->ih;
        const $X *const row = inside ? g->x + iy * g->x_row : g->x;
        uint16_t *const to = g->scratch + begin * count;
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
}
"""

EXACT = """
$load_b
/* What element k of chunk c is for a pixel. */
IRC_INLINE float ${S}_value(const ${S}_call *g, ${S}_spot s, int64_t c, int64_t k) {
    $element
    const int64_t iy = (g->y0 + s.y) * $STRIDE_H + tap_y * $DH - g->pad_h;
    const int64_t ix = s.x * $STRIDE_W + tap_x * $DW - g->pad_w;
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
        if (s.x >= g->ow) continue;
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
        const int64_t pixel = (g->y0 + s.y) * g->ow + s.x;
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
    const int64_t left = g->oc - col, ow = g->ow, height = g->height, rows = g->y1 - g->y0;
    const int64_t start = g->y0 * ow;
    irc_f32x16 poison = {0};
    for (int64_t i = 0; i < height; i++, s.x++) {
        if ($flat && s.x == g->wide) {
            s.x = 0;
            s.y++;
        }
        if (s.x >= ow) continue;
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

/* Tiles tile to end with chunks c0 to c1 of the panel at channel col; meanwhile `next` comes nearer. */
static void ${S}_blocks(const ${S}_call *g, const ${S}_out *o, const $B *stored, const uint16_t *b, int64_t c0,
                        int64_t c1, float *out, int64_t tile, int64_t end, int64_t col, const $B *next$meanwhile) {
    int64_t offsets[$most_chunks];
    for (int64_t c = c0; c < c1; c++)
        offsets[c - c0] = $offset;
    const int first = c0 == 0, last = c1 == g->chunks;
    const int64_t chunks = c1 - c0, total = chunks * $panel_lines;
    const int64_t lines = 2 * $panel_lines / ((end - tile + 1) * $points) + 1;$pairs
    for (int64_t done = 0; tile < end; tile += 2, done += chunks * lines * $points) {
        const int64_t two = tile + 1 < end;
        const ${S}_spot s0 = ${S}_find(g, tile), s1 = ${S}_find(g, tile + two);
        const char *const ahead = (const char *)next + (done < total ? done * 64 : 0);
        const int64_t fetched = done < total ? lines : 0;
$choose
        if (${S}_finish(g, o, out, s0, col, first, last)) ${S}_exact(g, o, stored, s0, col);
        if (two && ${S}_finish(g, o, out + g->height * 32, s1, col, first, last)) ${S}_exact(g, o, stored, s1, col);
    }
}

/* Parts of the tiles x panels of channels, begin to end, of the strip that is copied. */
static void ${S}_part(void *given, char *own, int64_t begin, int64_t end) {
    const ${S}_call *g = given;
    const int64_t panels = (g->oc + 31) / 32, cuts = (g->chunks + $most_chunks - 1) / $most_chunks;
    const int64_t blocks = (g->tiles + 1) / 2;
    ${S}_out o = {.c = g->y, .c_row = g->y_pixel, .n = g->oc};$slots_here
$begin$first    for (; begin < end; begin++) {
        const int64_t at = begin / panels, p = begin % panels, stop = blocks * (at + 1) / g->parts * 2;
        const $B *const stored = g->w + p * g->chunks * $chunk;
        for (int64_t cut = 0; cut < cuts; cut++) {
            const int64_t c0 = g->chunks * cut / cuts, c1 = g->chunks * (cut + 1) / cuts;
            const $B *const next = stored + ($next : c0) * $chunk;
$operand
            ${S}_blocks(g, &o, stored, b, c0, c1, (float *)own, blocks * at / g->parts * 2,
                        stop < g->tiles ? stop : g->tiles, p * 32, next$split);
        }
    }
$end}
"""

ENTRY = """
/* Output rows in strips of equal height whose planes fit. */
static void ${S}_image(${S}_call *g, const irc_pool *pool) {
    const int64_t panels = (g->oc + 31) / 32, fit = $room / (g->channels * $T * $PIXEL * g->wide);
    const int64_t most = fit < $TALL + $SH ? 1 : (fit - $TALL) / $SH + 1;
    const int64_t strips = (g->oh + most - 1) / most;
    const double work = (double)(g->oh * g->ow) * (double)g->oc * (double)g->chunks * (32 * $passes);
    const int alone = !pool || work < $worthwhile;
    for (int64_t strip = 0; strip < strips; strip++) {
        g->y0 = g->oh * strip / strips;
        g->y1 = g->oh * (strip + 1) / strips;
        const int64_t rows = g->y1 - g->y0, tall = ${S}_tall(rows);
        const int64_t length = $flat ? (rows - 1) * g->wide + g->ow : g->ow, count = (length + 15) / 16;
        g->plane = tall * g->wide * $PIXEL;
        for (int64_t i = 0; i < $beyond; i++) g->scratch[$T * g->plane + i] = 0; /* what the last pixels read */
        g->height = (length + count - 1) / count;
        g->across = (length + g->height - 1) / g->height;
        g->tiles = $flat ? g->across : g->across * rows;
        const int64_t blocks = (g->tiles + 1) / 2, wanted = ($tasks + panels - 1) / panels;
        g->parts = alone ? 1 : wanted < blocks ? wanted : blocks;
        if (alone) {
            ${S}_copy_part(g, 0, tall);
            ${S}_part(g, g->own, 0, g->parts * panels);
        } else {
            pool->parallel_for(pool->self, tall, ${S}_copy_part, g);
            irc_divide(pool, g->parts * panels, ${S}_part, g, g->own, g->own_bytes, g->owners);
        }
    }
}

void $S($parameters) {
    ${S}_call whole = {$assigned};
    if (g->oc <= 0 || g->oh <= 0 || g->ow <= 0) return;
    whole.channels = $channels;
    whole.chunks = $chunks;
    whole.wide = ((g->ow - 1) * $SW + $WIDE + $ROUND) / ($ROUND + 1) * ($ROUND + 1);
    for (int64_t i = 0; i < g->batch; i++) {
        for (int64_t j = 0; j < g->groups; j++) {
            ${S}_call call = whole;
            call.x += i * g->x_batch + j * g->ic;
            call.w += j * ((g->oc + 31) / 32) * whole.chunks * $chunk;
            call.y += i * g->y_batch + j * g->oc;$slot_moves
            ${S}_image(&call, pool);
        }
    }
}
"""

# Where chunk c begins in the planes, and which tap and channel its element k is: of rows of taps, and of single taps.
OFFSET_OF_ROW = "c / $across * $DH * g->wide * $few + c % $across * 32"
ELEMENT_OF_ROW = """const int64_t tap_y = c / $across, e = c % $across * 32 + k;
    const int64_t tap_x = e / $few, channel = e % $few;"""
OFFSET = "c / $taps * $T * g->plane + (c / $KW % $KH * $DH * g->wide + c % $KW * $DW) * 32"
ELEMENT = "const int64_t tap_y = c / $KW % $KH, tap_x = c % $KW, channel = c / $taps * 32 + k;"
