"""The C text of `irc.kernels.conv.nhwc`: what kernels share, then what each has of its own.

All kernels of one block of channels share what plans, copies and goes through tiles (`D`); those of a tile, its sums
(`body`); and those that moreover have one epilogue, their tiles (`O`).  The window is an argument of all three.
"""

ROWS = """
typedef struct {
    int64_t n, dy;         /* rows of taps, and which row of the window the first one is */
    int64_t x_row, x_wrap; /* from a row of taps to the next, and what is added after all rows of the window */
    int64_t c_row, hop;    /* elements of `ahead` from one fetch of two lines to the next */
    int64_t begin, end;    /* rows of the window that are not of padding alone */
    int64_t kh;            /* rows of taps of the window */
    int64_t runs, run, dx; /* of a row of taps: contiguous pieces, their elements, and the distance between them */
    int64_t pixel;         /* elements of the copy from one pixel of outputs to the next */
} irc_direct_rows;
"""

WINDOW = """
/* A window as it stands in what is copied: its rows and columns, the steps of outputs in rows and columns of the input;
   elements of the copy from one row of taps, and from one row and column of outputs, to the next; what an output takes
   of the copy along each axis.  And the tile that goes over it: its segments, their pixels, and its channels. */
typedef struct {
    int64_t kh, kw, sh, sw, dh, dw, taps_step, down, right, tall, wide;
    int64_t every, jump, across; /* row r is of line r / every * jump + ..., of tap r % across of a row of taps */
    int64_t column;              /* one of so many columns of the input is copied */
    int64_t row_taps, reach, round, low, runs, run, dx;
    int64_t segments, pixels, panel;
    int apart, columns;
} irc_direct_window;
"""

TILE = """
/* acc[S segments of R pixels][W vectors] = sum over taps of X[pixel, tap] * weights[tap], + C where not `first`. */
IRC_INLINE void ${body}(const int S, const int R, const int W, const irc_direct_rows *g, const $T *restrict x,
                        const $T *restrict w, const $T *ahead, const $T *c, int first, $V acc[$MR][$NV]) {
    const int64_t c_row = g->c_row, hop = g->hop, runs = g->runs, run = g->run$given;
    int64_t dy = g->dy;
    $V bv[$NV];
    const $T *to = c;
    IRC_FULL_UNROLL
    for (int i = 0; i < S * R; i++, to += c_row) {
        IRC_STEP(to);
        IRC_FULL_UNROLL
        for (int v = 0; v < W; v++) {
            acc[i][v] = ${V}_zeros();
            if (v * $L * $size % 64 == 0) __builtin_prefetch(to + v * $L, 1);
        }
    }
    for (int64_t q = g->n; q > 0; q--) {
        const int seen = dy >= g->begin && dy < g->end;
        if (!seen) {
            w += runs * run * $NR;
            ahead += runs * (run / $U) * hop;
        }
        for (int64_t r = 0; r < runs && seen; r++) {
            const $T *at = x + r * g->dx;
            for (int64_t j = 0; j < run; j += $U, at += $U, w += $U * $NR, ahead += hop) {
                __builtin_prefetch(ahead, 0, 2);
                __builtin_prefetch(ahead + 64 / $size, 0, 2);
                IRC_FULL_UNROLL
                for (int u = 0; u < $U; u++) {
                    IRC_FULL_UNROLL
                    for (int v = 0; v < W; v++) {
                        bv[v] = ${V}_load_kept(w + u * $NR + v * $L);
                        if ((u * $NR + v * $L) * $size % 64 == 0) __builtin_prefetch(w + $near + u * $NR + v * $L);
                    }
                    const $T *a = at + u;
                    EACH(s < S, i < R, v < W) ${V}_add_product(&acc[s * R + i][v], a[s * $SEGMENT + i * $PIXEL], bv[v]);
                }
            }
        }
        x += g->x_row;
        if (++dy == g->kh) {
            dy = 0;
            x += g->x_wrap;
        }
    }
    if (first) return;
    IRC_FULL_UNROLL
    for (int i = 0; i < S * R; i++, c += c_row) {
        IRC_STEP(c);
        EACH(v < W) acc[i][v] += ${V}_load(c + v * $L);
    }
}
"""

CALL = """
typedef struct ${D}_strip ${D}_strip;
typedef struct ${D}_call {
    const $T *x, *w;
    int64_t batch, groups, ic, oc, ih, iw, oh, ow, pad_h, pad_w, x_batch, x_row, x_pixel;
    const irc_direct_window *k;
    const void *args; /* of the kernel, which computes panels p0 to p1 of a strip by `each` */
    void (*each)(const struct ${D}_call *g, const ${D}_strip *strip, const ${D}_strip *next, int64_t p0, int64_t p1,
                 $T *copy);
    /* The plan: blocks and panels of channels; strips of `rows` rows and `across` parts of the tiles of a row; `chunk`
       blocks of input channels are copied at a time; `parts` of the panels are tasks of their own. */
    int64_t blocks, panels, tiles, strips, across, chunk, parts;
} ${D}_call;

/* Computes a tile of `segments` rows of `pixels` pixels at (row, col) of the output that `given` describes. */
typedef void ${D}_tile(const void *given, int64_t segments, int64_t pixels, int64_t row, int64_t col,
                       irc_direct_rows *g, const $T *x, const $T *w, const $T *ahead, int first, int last);

IRC_INLINE int64_t ${D}_least(int64_t a, int64_t b) { return a < b ? a : b; }

/* Rows and columns of the input under n outputs. */
IRC_INLINE int64_t ${D}_tall(const ${D}_call *g, int64_t n) { return (n - 1) * g->k->down + g->k->tall; }
IRC_INLINE int64_t ${D}_wide(const ${D}_call *g, int64_t n) { return (n - 1) * g->k->right + g->k->wide; }

/* The first of the taps of one axis that see the input at output `last` or before, and the end of those that see its
   `size` elements at output `at` or later. */
IRC_INLINE int64_t ${D}_begin(int64_t pad, int64_t last, int64_t stride, int64_t dilation) {
    const int64_t above = pad - last * stride;
    return above > 0 ? (above + dilation - 1) / dilation : 0;
}
IRC_INLINE int64_t ${D}_end(int64_t pad, int64_t at, int64_t stride, int64_t dilation, int64_t size) {
    const int64_t left = size + pad - at * stride;
    return left > 0 ? (left - 1) / dilation + 1 : 0;
}

$tiling
/* divided: among threads. */
static void ${D}_plan(${D}_call *g, int divided) {
    g->blocks = (g->ic + $B - 1) / $B;
    g->panels = (g->oc + g->k->panel - 1) / g->k->panel;
    g->tiles = ${D}_count(g);
    const int64_t most_rows = g->k->segments, segments = ${D}_least(g->oh, most_rows);
    const int64_t low = ${D}_least(g->blocks, g->k->low);
    const int64_t pixels = ${D}_widest(g);
    int64_t cols = g->tiles, rows = segments;
    while (cols > 1 && ${D}_tall(g, rows) * ${D}_wide(g, cols * pixels) * low > $room) cols = (cols + 1) / 2;
    if (g->oh <= segments) /* one row: as wide as there is room, because no more rows share what is copied */
        while (cols < g->tiles && ${D}_tall(g, rows) * ${D}_wide(g, (cols + 1) * pixels) * low <= $room) cols++;
    const int64_t wide = ${D}_wide(g, cols * pixels);
    for (int64_t next; rows < g->oh; rows = next) {
        next = ${D}_least(rows + segments, g->oh);
        if (${D}_tall(g, next) * wide * (rows * cols < $strip * segments ? low : g->blocks) > $room) break;
    }
    const int64_t high = (rows + most_rows - 1) / most_rows, groups = (g->oh + most_rows - 1) / most_rows;
    g->strips = (groups + high - 1) / high;
    g->across = (g->tiles + cols - 1) / cols;
    const int64_t most = $room / (${D}_tall(g, rows) * wide), chunks = (g->blocks + most - 1) / most;
    g->chunk = (g->blocks + chunks - 1) / chunks;
    const int64_t tasks = g->batch * g->groups * g->strips * g->across;
    g->parts = tasks >= $few ? 1 : ${D}_least(g->panels, $most_parts);
    if (!divided || tasks * g->parts >= $few) return;
    /* Lower strips, so that threads have equal shares, unless what two of them copy would be much of each. */
    const int64_t wanted = ($few * g->strips + tasks * g->parts - 1) / (tasks * g->parts);
    const int64_t shared = ${D}_tall(g, 1) - g->k->down, least = $overlap * shared / g->k->down / most_rows + 1;
    const int64_t strips = ${D}_least(wanted, groups / least);
    if (strips > g->strips) g->strips = strips;
}
"""

EVEN = """/* Tiles of a row, as equal as possible: how many, how wide at most, and where tile t begins. */
IRC_INLINE int64_t ${D}_count(const ${D}_call *g) { return (g->ow + g->k->pixels - 1) / g->k->pixels; }
IRC_INLINE int64_t ${D}_widest(const ${D}_call *g) { return (g->ow + g->tiles - 1) / g->tiles; }
IRC_INLINE int64_t ${D}_edge(const ${D}_call *g, int64_t t) {
    return g->ow / g->tiles * t + ${D}_least(t, g->ow % g->tiles);
}
"""

GREEDY = """/* Tiles of a row, the widest that fit: how many, how wide at most, and where tile t begins. */
IRC_INLINE int64_t ${D}_fit(int64_t left) { return $widths; }
IRC_INLINE int64_t ${D}_count(const ${D}_call *g) {
    const int64_t widest = g->k->pixels;
    int64_t tiles = g->ow / widest;
    for (int64_t at = tiles * widest; at < g->ow; at += ${D}_fit(g->ow - at)) tiles++;
    return tiles;
}
IRC_INLINE int64_t ${D}_widest(const ${D}_call *g) { return ${D}_least(g->ow, g->k->pixels); }
static int64_t ${D}_edge(const ${D}_call *g, int64_t t) {
    const int64_t whole = ${D}_least(t, g->ow / g->k->pixels);
    int64_t at = whole * g->k->pixels;
    for (t -= whole; t > 0; t--) at += ${D}_fit(g->ow - at);
    return at;
}
"""

COPY = """
/* `blocks` blocks of channels from `block` on, of `tall` x `wide` pixels that begin at (y, x) of the padded input.  Of
   an image that leaves no room in the second cache, what the next call copies is fetched. */
static void ${D}_copy(const ${D}_call *g, const $T *image, int64_t block, int64_t blocks, int64_t y, int64_t x,
                      int64_t tall, int64_t wide, $T *to) {
    const int64_t pitch = tall * wide * $B, sc = g->k->column, step = g->x_pixel * sc;
    const int64_t whole = ${D}_least(blocks, g->ic / $B - block), rest = g->ic - (block + whole) * $B;
    const int large = g->ih * g->x_row * $size > $l2 / 2;
    const int64_t later = large ? ${D}_least(blocks, g->blocks - block - blocks) * $B : 0;
    for (int64_t r = 0; r < tall; r++, to += wide * $B) {
        const int64_t line = r / g->k->every * g->k->jump + r % g->k->every / g->k->across * g->k->dh;
        const int64_t iy = y + line - g->pad_h, ix = x + r % g->k->across * g->k->dw - g->pad_w;
        const int64_t lo = ${D}_least(ix < 0 ? (-ix + sc - 1) / sc : 0, wide);
        const int64_t end = ${D}_least(g->iw > ix ? (g->iw - ix - 1) / sc + 1 : 0, wide), hi = end < lo ? lo : end;
        const int inside = iy >= 0 && iy < g->ih;
        const int64_t begin = inside ? lo : wide, stop = inside ? hi : wide;
        for (int64_t b = 0; b < blocks; b++) {
            for (int64_t j = 0; j < begin * $B; j++) to[b * pitch + j] = 0;
            for (int64_t j = stop * $B; j < wide * $B; j++) to[b * pitch + j] = 0;
        }
        if (begin >= stop) continue;
        const $T *from = image + iy * g->x_row + (ix + begin * sc) * g->x_pixel + block * $B;
        $T *at = to + begin * $B, *const last = to + stop * $B;
        if (step == $B && whole == 1) {
            for (; at + $L <= last; at += $L, from += $L) ${V}_store(at, ${V}_load(from));
            for (; at < last; at++, from++) *at = *from;
        }
        for (; at < last; at += $B, from += step) {
            const $T *in = from;
            $T *out = at;
            for (int64_t b = 0; b < whole; b++, in += $B, out += pitch) {
$pieces            }
            for (int64_t c = 0; c < later; c += 64 / $size) __builtin_prefetch(from + blocks * $B + c, 0, 2);
            for (int64_t c = 0; c < $B && whole < blocks; c++) out[c] = c < rest ? in[c] : 0;
        }
    }
}
"""

STRIPS = """
struct ${D}_strip {
    int64_t image, group, y0, y1, t0, t1; /* rows y0 to y1 of the output, tiles t0 to t1 of each */
    const $T *from;                       /* the input that is under them: `rows` times `length` elements */
    int64_t rows, length;
};

/* Strip number `at`: images outermost, then groups, rows, and parts of the rows. */
static ${D}_strip ${D}_find(const ${D}_call *g, int64_t at) {
    const int64_t t = at % g->across, y = at / g->across % g->strips, matrix = at / g->across / g->strips;
    const int64_t segments = g->k->segments, rows = (g->oh + segments - 1) / segments;
    ${D}_strip s = {.image = matrix / g->groups, .group = matrix % g->groups};
    s.y0 = rows * y / g->strips * segments;
    s.y1 = ${D}_least(rows * (y + 1) / g->strips * segments, g->oh);
    s.t0 = g->tiles * t / g->across;
    s.t1 = g->tiles * (t + 1) / g->across;
    const int64_t top = s.y0 * g->k->sh - g->pad_h, left = ${D}_edge(g, s.t0) * g->k->sw - g->pad_w;
    const int64_t y0 = top < 0 ? 0 : top, x0 = left < 0 ? 0 : left;
    s.rows = ${D}_least(top + (s.y1 - s.y0 - 1) * g->k->sh + g->k->reach, g->ih) - y0;
    const int64_t wide = ${D}_wide(g, ${D}_edge(g, s.t1) - ${D}_edge(g, s.t0)) * g->k->column;
    s.length = (${D}_least(left + wide, g->iw) - x0) * g->x_pixel;
    s.from = g->x + s.image * g->x_batch + s.group * g->ic + y0 * g->x_row + x0 * g->x_pixel;
    if (g->k->apart || s.length <= 0 || s.rows <= 0 || g->x_pixel > 2 * g->ic) s.rows = 0;
    return s;
}

/* Panels p0 to p1 of the output channels of a strip.  Fetches what comes next: weights, or the input of strip `next`
   where there is one and the weights are in a cache already. */
static void ${D}_do(const ${D}_call *g, ${D}_tile *tile, const void *o, const ${D}_strip *s, const ${D}_strip *next,
                    int64_t p0, int64_t p1, $T *copy) {
    const irc_direct_window *const k = g->k;
    const int64_t kh = k->kh, row = k->kw * $B * k->panel; /* weights of a row of taps */
    const $T *image = g->x + s->image * g->x_batch + s->group * g->ic;
    const $T *w = g->w + s->group * g->panels * g->blocks * kh * row;
    const int64_t y0 = s->y0, y1 = s->y1, t0 = s->t0, t1 = s->t1, x0 = ${D}_edge(g, t0);
    const int64_t tall = ${D}_tall(g, y1 - y0), wide = ${D}_wide(g, ${D}_edge(g, t1) - x0);
    const int64_t depth = g->blocks * kh, tiles = (y1 - y0 + k->segments - 1) / k->segments * (t1 - t0);
    const int stay = next && (p1 - p0) * depth * row * $size <= $l2 / 8 * 5; /* in a cache */
    const int64_t todo = stay ? next->rows * next->length : 0, rounds = k->kw * $B / k->round; /* in a row of taps */
    const int64_t hop = ${D}_least(todo / (tiles * depth * (p1 - p0) * rounds) + 1, 128 / $size);
    int64_t fetched = 0;
    irc_direct_rows shape = {.x_row = wide * $B * k->taps_step, .kh = kh, .runs = k->runs, .run = k->run, .dx = k->dx,
                             .pixel = k->right * $B};
    shape.x_wrap = tall * wide * $B - kh * shape.x_row;
    for (int64_t b = 0; b < g->blocks; b += g->chunk) {
        const int64_t taps = ${D}_least(g->chunk, g->blocks - b) * kh;
        const int64_t count = (taps * k->kw * $B + $sum - 1) / $sum, step = (taps + count - 1) / count;
        ${D}_copy(g, image, b, taps / kh, y0 * k->sh, x0 * k->sw, tall, wide, copy);
        for (int64_t p = p0; p < p1; p++) {
            for (int64_t q = 0; q < taps; q += step) {
                shape.n = ${D}_least(step, taps - q);
                shape.dy = q % kh;
                shape.hop = stay ? hop : ${D}_least(k->round * k->panel / tiles + 1, 128 / $size);
                const $T *from = copy + q / kh * tall * wide * $B + shape.dy * shape.x_row;
                const $T *weights = w + (p * depth + b * kh + q) * row;
                const $T *ahead = weights + (q + step < taps ? step : depth - q) * row;
                const int first = b == 0 && q == 0, last = b * kh + q + shape.n == depth;
                for (int64_t y = y0; y < y1; y += k->segments) {
                    const int64_t segments = ${D}_least(y1 - y, k->segments);
                    shape.begin = ${D}_begin(g->pad_h, y + segments - 1, k->sh, k->dh) * k->row_taps;
                    shape.end = ${D}_end(g->pad_h, y, k->sh, k->dh, g->ih) * k->row_taps;
                    for (int64_t t = t0; t < t1; t++) {
                        const int64_t x = ${D}_edge(g, t), pixels = ${D}_edge(g, t + 1) - x;
                        if (k->columns) {
                            shape.begin = ${D}_begin(g->pad_w, x + pixels - 1, k->sw, k->dw);
                            shape.end = ${D}_end(g->pad_w, x, k->sw, k->dw, g->iw);
                        }
                        if (stay) {
                            ahead = weights;
                            shape.hop = fetched < todo ? hop : 0;
                            if (shape.hop)
                                ahead = next->from + fetched / next->length * g->x_row + fetched % next->length;
                            fetched += hop * shape.n * rounds;
                        }
                        tile(o, segments, pixels, y * g->ow + x, p * k->panel, &shape,
                             from + ((y - y0) * k->down * wide + (x - x0) * k->right) * $B, weights, ahead, first,
                             last);
                        if (!stay) ahead += shape.hop * shape.n * rounds;
                    }
                }
            }
        }
    }
}

/* Tasks begin to end: images, groups, strips, parts of the panels (innermost; neighbours are joined). */
static void ${D}_part(void *given, char *own, int64_t begin, int64_t end) {
    const ${D}_call *const g = given;
    for (int first = 1; begin < end; first = 0) {
        const int64_t at = begin / g->parts, part = begin % g->parts, run = ${D}_least(g->parts - part, end - begin);
        const ${D}_strip strip = ${D}_find(g, at), next = ${D}_find(g, begin + run < end ? at + 1 : at);
        g->each(g, &strip, first ? 0 : &next, g->panels * part / g->parts, g->panels * (part + run) / g->parts,
                ($T *)own);
        begin += run;
    }
}

static void ${D}_run(const irc_pool *pool, ${D}_call *g, char *own, int64_t own_bytes, int64_t owners) {
    if (g->batch <= 0 || g->groups <= 0 || g->oc <= 0 || g->oh <= 0 || g->ow <= 0) return;
    ${D}_plan(g, pool != 0);
    const int64_t tasks = g->batch * g->groups * g->strips * g->across * g->parts;
    const double pixels = (double)(g->batch * g->oh * g->ow), channels = (double)(g->oc * g->groups);
    const double work = pixels * channels * (double)(g->ic * g->k->kh * g->k->kw);
    if (!pool || tasks < 2 || work < $worthwhile) ${D}_part(g, own, 0, tasks);
    else irc_divide(pool, tasks, ${D}_part, g, own, own_bytes, owners);
}
"""

INSTANCE = """
/* C[S x R pixels][W vectors] (+)= the sums; the epilogue of pixel `row` and channel `col` on where `last`, when C is
   what is stored in the end, else sums. */
static void ${O}_$instance(const ${O}_out *o, int64_t row, int64_t col, const irc_direct_rows *g, const $T *x,
                           const $T *w, const $T *ahead, void *c, int first, int last) {
    (void)o, (void)row, (void)col, (void)last;
    $V acc[$MR][$NV];
    $body($segments, $height, $width, g, x, w, ahead, c, first, acc);
    const int64_t c_row = g->c_row;
    if ($light && last) {
        $Y *const to = c;
        IRC_FULL_UNROLL
        for (int i = 0; i < $segments * $height; i++) {
            IRC_FULL_UNROLL
            for (int v = 0; v < $width; v++)
                $SY(to + i * c_row + v * $L, ${O}_epilogue(o, acc[i][v], row + i, col + v * $L, $L));
        }
        return;
    }
    $T *const to = c;
    EACH(i < $segments * $height, v < $width) ${V}_store(to + i * c_row + v * $L, acc[i][v]);
}
"""

BLOCK = """
typedef void ${O}_run(const ${O}_out *o, int64_t row, int64_t col, const irc_direct_rows *g, const $T *x, const $T *w,
                      const $T *ahead, void *c, int first, int last);

static ${O}_run *const ${O}_bodies[$S_][$R][$NV] = {$table};

/* The tile of segments of `width` pixels at (row, col), adds a part of its sums; the epilogue when that is the last
   one. */
static void ${O}_block(const void *given, int64_t segments, int64_t width, int64_t row, int64_t col, irc_direct_rows *g,
                       const $T *x, const $T *w, const $T *ahead, int first, int last) {
    const ${O}_out *const o = given;
    ${O}_run *const *const bodies = ${O}_bodies[segments - 1][width - 1];
    const int64_t pixels = segments * width, left = o->n - col;
    $Y *c = o->c + row * o->c_row + col;
$whole    $T part[$MR * $NR];
    for (int64_t i = 0; i < pixels && !first; i++)
        for (int64_t v = 0; v * $L < left; v++)
            ${V}_store(part + i * $NR + v * $L, ${LY}_part(c + i * o->c_row + v * $L, left - v * $L));
    g->c_row = $NR;
    bodies[left < $NR ? (left - 1) / $L : $NV - 1](o, row, col, g, x, w, ahead, part, first, 0);
    for (int64_t i = 0; i < pixels; i++) {
        for (int64_t v = 0; v < $NV && v * $L < left; v++) {
            $V y = ${V}_load(part + i * $NR + v * $L);
            if (last) y = ${O}_epilogue(o, y, row + i, col + v * $L, left - v * $L);
            ${SY}_part(c + i * o->c_row + v * $L, y, left - v * $L);
        }
    }
}
"""

WHOLE = """    if (left >= $NR) {
        g->c_row = o->c_row;
        bodies[$NV - 1](o, row, col, g, x, w, ahead, c, first, last);
$epilogue        return;
    }
"""

LATER = """        for (int64_t i = 0; i < pixels && last; i++) {
            IRC_FULL_UNROLL
            for (int v = 0; v < $NV; v++) {
                $T *at = c + i * o->c_row + v * $L;
                ${V}_store(at, ${O}_epilogue(o, ${V}_load(at), row + i, col + v * $L, $L));
            }
        }
"""

TASKS = """
/* Panels p0 to p1 of the output channels of a strip; `next` as in ${D}_do. */
static void ${S}_each(const ${D}_call *g, const ${D}_strip *strip, const ${D}_strip *next, int64_t p0, int64_t p1,
                      $T *copy) {
    const ${S}_args *const a = g->args;
    const int64_t image = strip->image, channel = strip->group * g->oc;
    ${O}_out o = {.c = a->y + image * a->y_batch + channel, .c_row = a->y_pixel, .n = a->oc};$slot_starts
    ${D}_do(g, ${O}_block, &o, strip, next, p0, p1, copy);
}

void $S($parameters) {
    static const irc_direct_window window = {$window};
    ${D}_call call = {$planned, .k = &window, .args = g, .each = ${S}_each};
    ${D}_run(pool, &call, g->own, g->own_bytes, g->owners);
}
"""
