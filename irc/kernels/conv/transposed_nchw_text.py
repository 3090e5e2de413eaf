"""The C text of `irc.kernels.conv.transposed_nchw`."""

PACK = """
/* Channels c0 to c1 of panels first to last of a group's X: to[panel][channel][$NR], zeros behind the last pixel. */
static void ${S}_panels(const ${S}_args *g, int64_t matrix, int64_t first, int64_t last, int64_t c0, int64_t c1,
                        $T *to) {
    const int64_t image = matrix / g->groups, group = matrix % g->groups, n = g->ih * g->iw;
    for (int64_t p = first, end; p < last; p = end, to += $TOGETHER * g->ic * $NR) {
        const $T *x = g->x + image * g->x_batch + (group * g->ic + c0) * g->x_channel;
        end = p + $TOGETHER < last ? p + $TOGETHER : last;
        for (int64_t c = c0; c < c1; c++, x += g->x_channel) {
            $T *panel = to + c * $NR;
            for (int64_t i = p; i < end; i++, panel += g->ic * $NR) {
                const $T *from = x + i * $NR;
                const int64_t left = n - i * $NR;
                if (left >= $NR) {
                    EACH(w < $NV) ${V}_store(panel + w * $L, ${V}_load(from + w * $L));
                    continue;
                }
                for (int w = 0; w < $NV; w++) {
                    const int64_t part = left - w * $L;
                    ${V}_store(panel + w * $L, part > 0 ? ${V}_load_part(from + w * $L, part) : ($V){0});
                }
            }
        }
    }
}
"""

PACK_ALL = """
/* Units begin to end of all images and groups: $TOGETHER panels of $CHANNELS channels (innermost) each. */
static void ${S}_pack(void *given, int64_t begin, int64_t end) {
    const ${S}_args *g = given;
    const int64_t panels = (g->ih * g->iw + $NR - 1) / $NR, units = (panels + $TOGETHER - 1) / $TOGETHER;
    const int64_t parts = (g->ic + $CHANNELS - 1) / $CHANNELS;
    for (; begin < end; begin++) {
        const int64_t c0 = begin % parts * $CHANNELS, c1 = c0 + $CHANNELS < g->ic ? c0 + $CHANNELS : g->ic;
        const int64_t first = begin / parts % units * $TOGETHER, matrix = begin / parts / units;
        const int64_t last = first + $TOGETHER < panels ? first + $TOGETHER : panels;
        ${S}_panels(g, matrix, first, last, c0, c1, g->scratch + (matrix * panels + first) * g->ic * $NR);
    }
}
"""

PRODUCTS = """
/* Products of `rows` rows of weights, w, with panels first to last: to[row][pixel], rows `pitch` apart. */
static void ${S}_products(const ${S}_args *g, const $T *w, int64_t rows, const $T *x, int64_t first, int64_t last,
                          int64_t pixels, $T *to, int64_t pitch) {
    _Alignas(64) $T sums[$MR * $NR];
    const int64_t tiles = (rows + $MR - 1) / $MR, low = rows / tiles, extra = rows % tiles;
    const int64_t n = pixels - (last - 1) * $NR <= $L ? (last - first - 1) * $NR + $L : (last - first) * $NR;
    const ${S}_sums_out o = {.c = to, .c_row = pitch, .n = n};
    for (int64_t p = first; p < last; p++, x += g->ic * $NR) {
        for (int64_t t = 0, row = 0, height; t < tiles; t++, row += height) {
            height = low + (t < extra);
            const $T *a = w + row * g->ic;
            ${S}_sums_block(&o, (int)height, row, (p - first) * $NR, g->ic, a, x, sums, 1, 1, 0, 1, a + $far,
                            height);
        }
    }
}
"""

ROW = """
/* The lanes of from[at + i] with 0 <= at + i < n, zeros for the others. */
IRC_INLINE $V ${S}_inside(const $T *from, int64_t at, int64_t n) {
    const ${V}_mask lane = {$iota};
    const ${V}_mask i = lane + ($I)at;
    return ($V)((${V}_mask)${V}_load(from + at) & (${V}_mask)(i >= 0) & (${V}_mask)(i < ($I)n));
}

/* Columns [x0, x1) of a row of outputs, with the padding counted; `from`: the rows of n taps' products. */
static void ${S}_row(const ${S}_out *o, const $T *const *from, int64_t n, int64_t pitch, int64_t iw, int64_t x0,
                     int64_t x1, int64_t pad, int64_t channel, int64_t pixel, $T *line) {
    for (int64_t next; x0 < x1; x0 = next) {
        const int64_t begin = x0 / $SW;
        next = (begin + $LINE / $SW) * $SW < x1 ? (begin + $LINE / $SW) * $SW : x1;
        for (int64_t q = begin; q * $SW < next; q += $L) {
            $V acc[$SW];
            EACH(r < $SW) acc[r] = ${V}_zeros();
            if (q >= $reach && q + $L <= iw) {
                for (int64_t i = 0; i < n; i++) {
                    const $T *at = from[i] + q;
$interior                }
            } else {
                for (int64_t i = 0; i < n; i++) {
                    const $T *at = from[i];
$border                }
            }
            $T *to = line + (q - begin) * $SW;
$interleave        }
        const $T *sums = line + (x0 - begin * $SW);
        $T *to = o->c + channel * o->c_row + pixel - pad;
        for (int64_t x = x0; x < next; x += $L, sums += $L) {
            const int64_t part = next - x < $L ? next - x : $L;
            const $V y = ${S}_epilogue(o, ${V}_load(sums), channel, pixel + x - pad, part);
            if (part == $L) ${V}_store(to + x, y);
            else ${V}_store_part(to + x, y, part);
        }
    }
}
"""

BODY = """
typedef struct {
    int64_t o0, o1, first, last, pitch; /* rows of outputs; panels of products; an odd number of vectors, so that rows
                                           of products fall into different sets of the caches */
} ${S}_area;

IRC_INLINE ${S}_area ${S}_strip(const ${S}_args *g, int64_t strip) {
    const int64_t o0 = g->oh * strip / $strips, o1 = g->oh * (strip + 1) / $strips;
    const int64_t low = o0 + g->pad_h - ($KH - 1) * $DH, high = (o1 - 1 + g->pad_h) / $SH + 1;
    const int64_t q1 = high < g->ih ? high : g->ih, q0 = low <= 0 ? 0 : (low + $SH - 1) / $SH;
    if (q0 >= q1) return (${S}_area){o0, o1, 0, 0, 0};
    const int64_t first = q0 * g->iw / $NR, last = (q1 * g->iw + $NR - 1) / $NR;
    return (${S}_area){o0, o1, first, last, ((last - first) * $NV | 1) * $L};
}

/* Output channels c0 to c1 of a group in a strip; x: its panels. */
static void ${S}_channels(const ${S}_args *g, const ${S}_out *o, const ${S}_area *area, const $T *w, const $T *x,
                          int64_t c0, int64_t c1, $T *line) {
    $T *const room = line + $LINE + 2 * $SW * $L;
    const int64_t pitch = area->pitch;
    if (area->first < area->last)
        ${S}_products(g, w, (c1 - c0) * $TAPS, x, area->first, area->last, g->ih * g->iw, room + $slack, pitch);
    for (int64_t c = c0; c < c1; c++) {
        const $T *products = room + $slack + (c - c0) * $TAPS * pitch;
        for (int64_t y = area->o0; y < area->o1; y++) {
            const $T *from[$KH] = {0};
            int64_t n = 0;
            for (int64_t k = 0; k < $KH; k++) {
                const int64_t at = y + g->pad_h - k * $DH;
                if (at >= 0 && at % $SH == 0 && at / $SH < g->ih)
                    from[n++] = products + k * $KW * pitch + (at / $SH * g->iw - area->first * $NR);
            }
            ${S}_row(o, from, n, pitch, g->iw, g->pad_w, g->pad_w + g->ow, g->pad_w, c, y * g->ow,
                     line);
        }
    }
}

/* Tasks begin to end: images, groups, strips, blocks of channels (innermost). */
static void ${S}_part(void *given, char *own, int64_t begin, int64_t end) {
    const ${S}_args *g = given;
    for (; begin < end; begin++) {
        const int64_t b = begin % $blocks, strip = begin / $blocks % $strips, matrix = begin / $blocks / $strips;
        const int64_t image = matrix / g->groups, group = matrix % g->groups, channel = group * g->oc;
        const ${S}_area area = ${S}_strip(g, strip);
        ${S}_out o = {.c = g->y + image * g->y_batch + channel * g->y_channel, .c_row = g->y_channel};$slot_starts
$panels        const int64_t c0 = g->oc * b / $blocks, c1 = g->oc * (b + 1) / $blocks;
        ${S}_channels(g, &o, &area, g->w + (channel + c0) * $TAPS * g->ic, x, c0, c1, line);
    }
}

void $S($parameters) {
    if (g->batch <= 0 || g->oh <= 0 || g->ow <= 0) return;
    const int64_t matrices = g->batch * g->groups, tasks = matrices * $strips * $blocks;
    const double elements = (double)(g->ih * g->iw) * (double)(matrices * g->ic);
    const int alone = !pool || tasks < 2 || elements * (double)(g->oc * $TAPS) < $worthwhile;
$pack    irc_divide(alone ? 0 : pool, tasks, ${S}_part, (void *)g, g->own, g->own_bytes, g->owners);
}
"""

SHARED = """\
        const int64_t panels = (g->ih * g->iw + $NR - 1) / $NR;
        const $T *x = g->scratch + (matrix * panels + area.first) * g->ic * $NR;
        $T *const line = ($T *)own;
"""
OWN = """\
        int64_t *const have = (int64_t *)own; /* the strip whose panels are there */
        $T *const x = ($T *)(own + $line), *const line = x + $columns * g->ic;
        if (*have != begin / $blocks) ${S}_panels(g, matrix, area.first, area.last, 0, g->ic, x);
        *have = begin / $blocks;
"""
PACK_FIRST = """\
    const int64_t together = $NR * $TOGETHER, parts = (g->ic + $CHANNELS - 1) / $CHANNELS;
    const int64_t units = matrices * ((g->ih * g->iw + together - 1) / together) * parts;
    if (alone || elements < $few) ${S}_pack((void *)g, 0, units); /* threads would sleep during a long one */
    else pool->parallel_for(pool->self, units, ${S}_pack, (void *)g);
"""
