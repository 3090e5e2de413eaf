"""C of `irc.kernels.conv.volume`."""

CALL = """
typedef struct {$fields
    /* The plan: panels of output channels; `blocks` blocks of `rows` rows of a plane's or a volume's, of which there is
       room for the sums of `fit`, or, of an only row, of its tiles, if `pieces`; channels added up at a time. */
    int64_t panels, rows, blocks, fit, chunk, pieces;
} ${S}_call;

IRC_INLINE int64_t ${S}_least(int64_t a, int64_t b) { return a < b ? a : b; }

/* The taps t < *end, t >= *begin, with low + t * step in [0, size). */
IRC_INLINE void ${S}_inside(int64_t low, int64_t step, int64_t size, int64_t count, int64_t *begin, int64_t *end) {
    *begin = low < 0 ? (step - 1 - low) / step : 0;
    *end = size > low ? ${S}_least((size - low - 1) / step + 1, count) : 0;
    if (*begin > *end) *begin = *end;
}

/* What a tile reads: planes and rows of taps that are inside the input; how far apart channels, planes and rows of taps
   are in x and w. */
typedef struct {
    int64_t channels, planes, rows, x_channel, x_plane, x_row, w_channel, w_plane;
    int64_t where, plane, ring; /* of the first plane; elements of a plane, and of a ring of planes */
} ${S}_window;

typedef void ${S}_run(const ${S}_window *o, const $T *x, const $T *w, $T *sums, int more);
"""

TAP = """
/* Adds one tap to the sums of pixels lo to hi of a tile. */
IRC_INLINE void ${P}_tap($V acc[$R][$NV], const int lo, const int hi, const $T *x, const $T *w) {
    $V b[$NV];
    __asm__ volatile("" ::: "memory"); /* weights of the next tap, loaded early, would displace sums */
    EACH(v < $NV) b[v] = ${V}_load_kept(w + v * $L);
    IRC_FULL_UNROLL
    for (int r = lo; r < hi; r++) {
$add    }
}
"""

ADD = "        EACH(v < $NV) ${V}_add_product(&acc[r][v], *($at), b[v]);\n"
ADD_THREE = "        ${V}_add_three_products(acc[r], $at, b);\n"
ADD_PLANES = "        EACH(v < $NV) acc[r][v] += ${V}_load($at) * b[v];\n"

WINDOW = """
/* The planes and rows of taps of U channels, of tiles of kind $kind; alone: there is one row. */
IRC_INLINE void ${P}_taps_$kind($V acc[$U][$R][$NV], const int U, const int alone, const ${S}_window *o, const $T *x,
                                const $T *w) {
    int64_t where = o->where;
    const int64_t planes = alone ? 1 : o->planes, rows = alone ? 1 : o->rows;
    for (int64_t d = 0; d < planes; d++, w += o->w_plane) {
        const $T *at = x + where, *of = w;
        for (int64_t h = 0; h < rows; h++, at += o->x_row, of += $KW * $NR) {
            IRC_FULL_UNROLL
            for (int u = 0; u < U; u++) {
                const $T *const xu = at + u * o->x_channel, *const wu = of + u * o->w_channel;
$fetch$taps            }
        }
        where += o->x_plane;$wrap
    }
}

/* sums[R - $begin][$NR] = (more: the same +) products of a tile of kind $kind, without its first
   $begin pixels, which are of another tile. */
static void ${P}_tile_$kind(const ${S}_window *given, const $T *x, const $T *w, $T *sums, int more) {
    const ${S}_window *const o = given;
    $V acc[$U][$R][$NV];
    EACH(u < $U, r < $R, v < $NV) acc[u][r][v] = ${V}_zeros();
    int64_t c = 0;
$channels    IRC_FULL_UNROLL
    for (int r = $begin; r < $R; r++) {
        IRC_FULL_UNROLL
        for (int v = 0; v < $NV; v++) {
            $T *const to = sums + (r - $begin) * $NR + v * $L;
            $V sum = acc[0][r][v];
            IRC_FULL_UNROLL
            for (int u = 1; u < $U; u++) sum += acc[u][r][v];
            if (more) sum += ${V}_load(to);
            ${V}_store(to, sum);
        }
    }
}
"""

ONE_ROW = """\
    const int64_t channels = o->planes && o->rows ? o->channels : 0;
    for (; c + $U <= channels; c += $U, x += $U * o->x_channel, w += $U * o->w_channel)
        ${P}_taps_$kind(acc, $U, 1, o, x, w);
    if ($U > 1 && c < channels) ${P}_taps_$kind(acc, 1, 1, o, x, w);
"""

ROWS = """\
    if ($KW == 1 && o->planes == 1 && o->rows == 1) /* loops of one round would cost as much as the products */
        for (; c + $U <= o->channels; c += $U, x += $U * o->x_channel, w += $U * o->w_channel)
            ${P}_taps_$kind(acc, $U, 1, o, x, w);
    for (; c + $U <= o->channels; c += $U, x += $U * o->x_channel, w += $U * o->w_channel)
        ${P}_taps_$kind(acc, $U, 0, o, x, w);
    if ($U > 1 && c < o->channels) ${P}_taps_$kind(acc, 1, 0, o, x, w);
"""

FINISH = """
/* Applies the epilogue to the sums [n pixels][$NR] of `channels` channels, and stores them, pixels side by side. */
static void ${P}_finish(const ${S}_out *o, int64_t row, int64_t channels, int64_t col, int64_t n, const $T *sums) {
    for (int64_t first = 0; first < channels; first += $L) {
        const int64_t high = ${S}_least(channels - first, $L);
        for (int64_t p = 0; p < n; p += $L) {
            const int64_t part = ${S}_least(n - p, $L);
            const $T *from = sums + p * $NR + first; /* behind the last sums there is room for a square */
            $V x[$L];
            EACH(i < $L) x[i] = ${V}_load(from + i * $NR);
            ${V}_square(x);
            for (int64_t j = 0; j < high; j++) {
                $T *to = o->c + (row + first + j) * o->c_row + col + p;
                if (part == $L) ${V}_store(to, ${S}_epilogue(o, x[j], row + first + j, col + p, $L));
                else ${V}_store_part(to, ${S}_epilogue(o, x[j], row + first + j, col + p, part), part);
            }
        }
    }
}

/* The tiles of a row in runs of one kind, each up to tile `end`. */
static const struct {
    ${S}_run *tile;
    int64_t end;
} ${P}_runs[] = {$runs};

/* Tiles t0 to t1 of row `oy` of plane `oz` of the result, whose sums begin with those of t0.  x: row `row_0` of the
   input's planes. */
IRC_INLINE void ${P}_row(const ${S}_call *g, ${S}_window *o, int64_t oz, int64_t oy, int64_t t0, int64_t t1,
                         const $T *x, int64_t row_0, const $T *w, $T *sums, int more) {
    int64_t d0, d1, h0, h1;
    const int64_t front = oz * g->stride_d - g->pad_d, top = oy * g->stride_h - g->pad_h;
    ${S}_inside(front, g->dilation_d, g->id, g->kd, &d0, &d1);
    ${S}_inside(top, g->dilation_h, g->ih, g->kh, &h0, &h1);
    o->planes = d1 - d0;
    o->rows = h1 - h0;
    o->where = $where;
    const $T *const from = x + (top + h0 * g->dilation_h - row_0) * ($IW * $XS) - $PW * $XS;
    w += (d0 * g->kh + h0) * ($KW * $NR);
    int64_t t = t0;
    for (int i = 0; t < t1; i++)
        for (const int64_t end = ${S}_least(${P}_runs[i].end, t1); t < end; t++) {
            const int64_t at = ${S}_least(t * $R, $OW - $R); /* the last tile overlaps the one before */
            ${P}_runs[i].tile(o, from + at * ($SW * $XS), w, sums + (t - t0) * ($R * $NR), more);
        }
}
"""

DENSE = """
/* Output rows r0 to r1, counted through all planes, of the panel that begins with channel `first`; of an only row, a
   piece.  With each row a share of the weights is fetched that the next channels meet: processors do not guess it,
   since rows read what there is of them again and again. */
static void ${P}_block(const ${S}_call *g, const ${S}_out *o, const $T *x, const $T *w, int64_t first, int64_t r0,
                       int64_t r1, int64_t piece, $T *sums) {
    const int64_t t0 = $tiles * piece / g->pieces, t1 = $tiles * (piece + 1) / g->pieces;
    const int64_t c0 = t0 * $R, c1 = ${S}_least(t1 * $R, $OW);
    const int64_t taps = g->kd * g->kh * $KW * $NR, plane = g->ih * $IW, share = g->chunk * taps / (r1 - r0) + 1;
    ${S}_window window = {0, 0, 0, g->x_channel, g->dilation_d * plane, g->dilation_h * $IW, taps, g->kh * $KW * $NR,
                          0, plane, 0};
    for (int64_t c = 0; c < g->ic; c += g->chunk) {
        window.channels = ${S}_least(g->chunk, g->ic - c);
        const $T *ahead = w + (c + window.channels) * taps;
        int64_t oz = r0 / g->oh, oy = r0 % g->oh;
        for (int64_t r = r0; r < r1; r++, ahead += share) {
            for (int64_t i = 0; i < share; i += 64 / $size) __builtin_prefetch(ahead + i, 0, 2);
            ${P}_row(g, &window, oz, oy, t0, t1, x + c * g->x_channel, 0, w + c * taps, sums + (r - r0) * ($OW * $NR),
                     c > 0);
            if (++oy == g->oh) oy = 0, oz++;
        }
    }
    ${P}_finish(o, first, ${S}_least(g->oc - first, $NR), r0 * $OW + c0, (r1 - 1 - r0) * $OW + c1 - c0, sums);
}
"""

DENSE_PART = """
/* Tasks begin to end: blocks of rows innermost, of images within a panel of channels, or of panels within an image:
 * what has more elements, weights or an image, comes from far, and is read once, by as many blocks at a time as fit.
 * Of an image that no cache holds, though, all panels meet a block at once, unless a panel's weights would be read
 * again for too many. */
static void ${S}_part(void *given, char *own, int64_t begin, int64_t end) {
    const ${S}_call *g = given;
    const int64_t depth = g->ic * g->kd * g->kh * $KW, weights = depth * $NR;
    const int64_t of_group = depth * (g->panels * $NR - $spared), of_image = g->blocks * g->panels;
    const int64_t rows = g->od * g->oh, plane = g->ic * g->id * g->ih * $IW;
    const int heavy = weights * g->panels > plane;
    const int large = plane > $l2 && g->blocks * weights < plane;
    for (int64_t count; begin < end; begin += count) {
        const int64_t at = begin / g->blocks, line = g->panels * g->groups;
        const int64_t image = large ? begin / of_image / g->groups : heavy ? at % g->batch : at / line;
        const int64_t index = heavy ? at / g->batch : at % line;
        const int64_t panel = large ? begin % g->panels : index % g->panels;
        const int64_t group = large ? begin / of_image % g->groups : index / g->panels, channel = group * g->oc;
        const int64_t block = large ? begin / g->panels % g->blocks : begin % g->blocks;
        const int64_t only = g->pieces > 1;
        count = large || only ? 1 : ${S}_least(${S}_least(g->fit, g->blocks - block), end - begin);
        $T *c = g->y + image * g->y_batch + channel * g->y_channel;
        ${S}_out o = {.c = c, .c_row = g->y_channel, .n = rows * $OW};$slot_starts
        $block(g, &o, g->x + image * g->x_batch + group * g->ic * g->x_channel,
               g->w + group * of_group + panel * weights, panel * $NR, only ? 0 : rows * block / g->blocks,
               only ? 1 : rows * (block + count) / g->blocks, only ? block : 0, ($T *)own);
    }
}

static void ${S}_plan(${S}_call *g) {
    g->panels = (g->oc + $NR - 1) / $NR;
    g->chunk = $weights / (g->kd * g->kh * $KW * $NR);
    if (g->chunk < $U) g->chunk = $U;
    const int64_t rows = g->od * g->oh, tasks = g->batch * g->groups * g->panels, least = $few / tasks + 1;
    const int64_t fit = $room / ($OW * $NR), room = fit > 1 ? fit : 1;
    const int64_t most = ${S}_least(room, (rows + least - 1) / least);
    g->blocks = (rows + most - 1) / most;
    /* Threads have equal shares of an even number of tasks, and nearly equal ones of many. */
    if (tasks * g->blocks % 2 && tasks * g->blocks < $even && g->blocks < rows) g->blocks++;
    g->rows = (rows + g->blocks - 1) / g->blocks;
    g->fit = room / g->rows;
    g->pieces = 1;
    if (rows == 1) {
        int64_t pieces = ($tiles + $fitting - 1) / $fitting;
        if (pieces < least) pieces = least;
        if (tasks * pieces % 2 && tasks * pieces < $even) pieces++;
        g->blocks = g->pieces = ${S}_least(pieces, $tiles);
    }
}
"""

DEPTHWISE = """
/* Pixels of $L channels, from `channel` of the result on, side by side: to[i][$L] = x[...][i], i < n. */
static void ${S}_gather(const ${S}_call *g, const $T *x, int64_t channel, int64_t n, $T *to) {
    const $T *of[$L];
    for (int i = 0; i < $L; i++)
        of[i] = x + ${S}_least(channel + i, g->oc - 1) / g->multiplier * g->x_channel;
    $V v[$L];
    for (int64_t p = 0; p < n; p += $L, to += $L * $L) {
        if (p + $L <= n) {
            EACH(i < $L) v[i] = ${V}_load(of[i] + p);
            ${V}_square(v);
            EACH(i < $L) ${V}_store(to + i * $L, v[i]);
        } else {
            for (int i = 0; i < $L; i++) v[i] = ${V}_load_part(of[i] + p, n - p);
            ${V}_square(v);
            for (int i = 0; i < n - p; i++) ${V}_store(to + i * $L, v[i]);
        }
    }
}

/* Rows y0 to y1 of all planes of one panel.  The planes of the input that windows hold stand in a ring. */
static void ${P}_block(const ${S}_call *g, const ${S}_out *o, const $T *x, const $T *w, int64_t panel, int64_t y0,
                       int64_t y1, $T *ring) {
    const int64_t slots = (g->kd - 1) * g->dilation_d + 1, first = panel * $L, top = y0 * g->stride_h - g->pad_h;
    const int64_t bottom = (y1 - 1) * g->stride_h - g->pad_h + (g->kh - 1) * g->dilation_h + 1;
    const int64_t row = top > 0 ? top : 0, rows = ${S}_least(bottom, g->ih) - row;
    const int64_t plane = rows > 0 ? rows * ($IW * $L) : 0;
    $T *const sums = ring + slots * plane + $L * $L;
    ${S}_window window = {1, 0, 0, 0, g->dilation_d * plane, g->dilation_h * ($IW * $L), 0, g->kh * ($KW * $NR), 0,
                          plane, slots * plane};
    int64_t have = 0;
    for (int64_t oz = 0; oz < g->od; oz++) {
        const int64_t front = oz * g->stride_d - g->pad_d, stop = ${S}_least(front + slots, g->id);
        if (have < front) have = front;
        for (; have < stop && plane; have++)
            ${S}_gather(g, x + (have * g->ih + row) * $IW, first, rows * $IW, ring + have % slots * plane);
        for (int64_t y = y0; y < y1; y += $most) {
            const int64_t end = ${S}_least(y + $most, y1);
            for (int64_t oy = y; oy < end; oy++)
                ${P}_row(g, &window, oz, oy, 0, $tiles, ring, row, w, sums + (oy - y) * ($OW * $NR), 0);
            ${P}_finish(o, first, ${S}_least(g->oc - first, $L), (oz * g->oh + y) * $OW, (end - y) * $OW, sums);
        }
    }
}

/* Tasks begin to end: images, panels of channels, blocks of rows of a plane. */
static void ${S}_part(void *given, char *own, int64_t begin, int64_t end) {
    const ${S}_call *g = given;
    const int64_t weights = g->kd * g->kh * $KW * $NR;
    for (; begin < end; begin++) {
        const int64_t block = begin % g->blocks, panel = begin / g->blocks % g->panels;
        const int64_t image = begin / g->blocks / g->panels, channel = 0;
        (void)channel;
        ${S}_out o = {.c = g->y + image * g->y_batch, .c_row = g->y_channel, .n = g->od * g->oh * $OW};$slot_starts
        ${P}_block(g, &o, g->x + image * g->x_batch, g->w + panel * weights, panel, block * g->rows,
                   ${S}_least((block + 1) * g->rows, g->oh), ($T *)own);
    }
}

static void ${S}_plan(${S}_call *g) {
    g->panels = (g->oc + $L - 1) / $L;
    const int64_t slots = (g->kd - 1) * g->dilation_d + 1, tasks = g->batch * g->panels;
    int64_t rows = ($ring / ($IW * $L) / slots - (g->kh - 1) * g->dilation_h - 1) / g->stride_h + 1;
    rows = ${S}_least(rows > 1 ? rows : 1, g->oh);
    g->blocks = (g->oh + rows - 1) / rows;
    if (tasks < $few && g->blocks * tasks < $few) g->blocks = ${S}_least(($few + tasks - 1) / tasks, g->oh);
    g->rows = (g->oh + g->blocks - 1) / g->blocks;
    g->blocks = (g->oh + g->rows - 1) / g->rows;
}
"""

ENTRY = """
void $S($parameters) {
    ${S}_call call = {$assigned};
    if (g->batch <= 0 || g->od <= 0 || g->oh <= 0 || g->oc <= 0) return;
    ${S}_plan(&call);
    const int64_t tasks = g->batch * g->groups * call.panels * call.blocks;
    const double pixels = (double)(g->batch * g->od * g->oh * $OW), channels = (double)(g->oc * g->groups);
    const double work = pixels * channels * (double)(g->ic * g->kd * g->kh * $KW);
    if (!pool || tasks < 2 || work < $worthwhile) ${S}_part(&call, g->own, 0, tasks);
    else irc_divide(pool, tasks, ${S}_part, &call, g->own, g->own_bytes, g->owners);
}
"""
