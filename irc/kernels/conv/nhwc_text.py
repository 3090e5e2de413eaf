"""The C text of `irc.kernels.conv.nhwc`, in the order in which it stands in a file."""

TILE = """typedef struct {
    int64_t n, dy;         /* rows of taps, and which row of the window the first one is */
    int64_t x_row, x_wrap; /* from a row of taps to the next, and what is added after $KH of them */
    int64_t c_row, hop;    /* elements of `ahead` from one fetch of two lines to the next */
    int64_t begin, end;    /* rows of the window that are not of padding alone */
} ${body}_shape;
/* acc[S segments of R pixels][W vectors] = sum over taps of X[pixel, tap] * weights[tap], + C where not `first`. */
IRC_INLINE void ${body}(const int S, const int R, const int W, const ${body}_shape *g, const $T *restrict x,
                        const $T *restrict w, const $T *ahead, const $T *c, int first, $V acc[$MR][$NV]) {
    const int64_t c_row = g->c_row, hop = g->hop;
    int64_t dy = g->dy;
    $V bv[$NV];
    IRC_FULL_UNROLL
    for (int i = 0; i < S * R; i++) {
        IRC_FULL_UNROLL
        for (int v = 0; v < W; v++) {
            acc[i][v] = ($V){0};
            if (v * $L * $size % 64 == 0) __builtin_prefetch(c + i * c_row + v * $L, 1);
        }
    }
    for (int64_t q = g->n; q > 0; q--) {
        const int seen = dy >= g->begin && dy < g->end;
        if (!seen) {
            w += $TAPS * $RUN * $NR;
            ahead += $TAPS * ($RUN / $U) * hop;
        }
        for (int64_t dx = 0; dx < $TAPS && seen; dx++) {
            const $T *at = x + dx * $DX;
            for (int j = 0; j < $RUN; j += $U, at += $U, w += $U * $NR, ahead += hop) {
                __builtin_prefetch(ahead, 0, 2);
                __builtin_prefetch(ahead + 64 / $size, 0, 2);
                IRC_FULL_UNROLL
                for (int u = 0; u < $U; u++) {
                    IRC_FULL_UNROLL
                    for (int v = 0; v < W; v++) {
                        bv[v] = ${V}_load(w + u * $NR + v * $L);
                        if (v * $L * $size % 64 == 0) __builtin_prefetch(w + $near + u * $NR + v * $L);
                    }
                    IRC_FULL_UNROLL
                    for (int s = 0; s < S; s++) {
                        IRC_FULL_UNROLL
                        for (int i = 0; i < R; i++) {
                            IRC_FULL_UNROLL
                            for (int v = 0; v < W; v++) acc[s * R + i][v] += at[s * $SEGMENT + i * $PIXEL + u] * bv[v];
                        }
                    }
                }
            }
        }
        x += g->x_row;
        if (++dy == $KH) {
            dy = 0;
            x += g->x_wrap;
        }
    }
    if (first) return;
    IRC_FULL_UNROLL
    for (int i = 0; i < S * R; i++) {
        IRC_FULL_UNROLL
        for (int v = 0; v < W; v++) acc[i][v] += ${V}_load(c + i * c_row + v * $L);
    }
}
"""

INSTANCE = """
/* C[S x R pixels][W vectors] (+)= the sums; the epilogue of pixel `row` and channel `col` on where `last`, when C is
   what is stored in the end, else sums. */
static void ${S}_$instance(const ${S}_out *o, int64_t row, int64_t col, const ${body}_shape *g, const $T *x,
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
                $SY(to + i * c_row + v * $L, ${S}_epilogue(o, acc[i][v], row + i, col + v * $L, $L));
        }
        return;
    }
    $T *const to = c;
    IRC_FULL_UNROLL
    for (int i = 0; i < $segments * $height; i++) {
        IRC_FULL_UNROLL
        for (int v = 0; v < $width; v++) ${V}_store(to + i * c_row + v * $L, acc[i][v]);
    }
}
"""

BLOCK = """
typedef void ${S}_run(const ${S}_out *o, int64_t row, int64_t col, const ${body}_shape *g, const $T *x, const $T *w,
                      const $T *ahead, void *c, int first, int last);

/* The tile of `pixels` pixels at (row, col), adds a part of its sums; the epilogue when that is the last one. */
static void ${S}_block(const ${S}_out *o, ${S}_run *const *bodies, int64_t row, int64_t col, int64_t pixels,
                       ${body}_shape *g, const $T *x, const $T *w, const $T *ahead, int first, int last) {
    const int64_t left = o->n - col;
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
            if (last) y = ${S}_epilogue(o, y, row + i, col + v * $L, left - v * $L);
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
                ${V}_store(at, ${S}_epilogue(o, ${V}_load(at), row + i, col + v * $L, $L));
            }
        }
"""

CALL = """
typedef struct {$fields
    /* The plan: blocks and panels of channels; strips of `rows` rows and `across` parts of the tiles of a row; `chunk`
       blocks of input channels are copied at a time; `parts` of the panels are tasks of their own. */
    int64_t blocks, panels, tiles, strips, across, chunk, parts;
} ${S}_call;

IRC_INLINE int64_t ${S}_least(int64_t a, int64_t b) { return a < b ? a : b; }

/* Rows and columns of the input under n outputs. */
IRC_INLINE int64_t ${S}_tall(int64_t n) { return $tall; }
IRC_INLINE int64_t ${S}_wide(int64_t n) { return $wide; }

/* The first of the taps of one axis that see the input at output `last` or before, and the end of those that see its
   `size` elements at output `at` or later. */
IRC_INLINE int64_t ${S}_begin(int64_t pad, int64_t last, int64_t stride, int64_t dilation) {
    const int64_t above = pad - last * stride;
    return above > 0 ? (above + dilation - 1) / dilation : 0;
}
IRC_INLINE int64_t ${S}_end(int64_t pad, int64_t at, int64_t stride, int64_t dilation, int64_t size) {
    const int64_t left = size + pad - at * stride;
    return left > 0 ? (left - 1) / dilation + 1 : 0;
}

$tiling
static void ${S}_plan(${S}_call *g) {
    g->blocks = (g->ic + $B - 1) / $B;
    g->panels = (g->oc + $NR - 1) / $NR;
    g->tiles = ${S}_count(g);
    const int64_t low = ${S}_least(g->blocks, $low), segments = ${S}_least(g->oh, $S_);
    const int64_t pixels = ${S}_widest(g);
    int64_t cols = g->tiles, rows = segments;
    while (cols > 1 && ${S}_tall(rows) * ${S}_wide(cols * pixels) * low > $room) cols = (cols + 1) / 2;
    if (g->oh <= segments) /* one row: as wide as there is room, because no more rows share what is copied */
        while (cols < g->tiles && ${S}_tall(rows) * ${S}_wide((cols + 1) * pixels) * low <= $room) cols++;
    const int64_t wide = ${S}_wide(cols * pixels);
    for (int64_t next; rows < g->oh; rows = next) {
        next = ${S}_least(rows + segments, g->oh);
        if (${S}_tall(next) * wide * (rows * cols < $strip * segments ? low : g->blocks) > $room) break;
    }
    const int64_t high = (rows + $S_ - 1) / $S_, groups = (g->oh + $S_ - 1) / $S_;
    g->strips = (groups + high - 1) / high;
    g->across = (g->tiles + cols - 1) / cols;
    const int64_t most = $room / (${S}_tall(rows) * wide), chunks = (g->blocks + most - 1) / most;
    g->chunk = (g->blocks + chunks - 1) / chunks;
    const int64_t tasks = g->batch * g->groups * g->strips * g->across;
    g->parts = tasks >= $few ? 1 : ${S}_least(g->panels, $most_parts);
}
"""

EVEN = """/* Tiles of a row, as equal as possible: how many, how wide at most, and where tile t begins. */
IRC_INLINE int64_t ${S}_count(const ${S}_call *g) { return (g->ow + $R - 1) / $R; }
IRC_INLINE int64_t ${S}_widest(const ${S}_call *g) { return (g->ow + g->tiles - 1) / g->tiles; }
IRC_INLINE int64_t ${S}_edge(const ${S}_call *g, int64_t t) {
    return g->ow / g->tiles * t + ${S}_least(t, g->ow % g->tiles);
}
"""

GREEDY = """/* Tiles of a row, the widest that fit: how many, how wide at most, and where tile t begins. */
IRC_INLINE int64_t ${S}_fit(int64_t left) { return $widths; }
IRC_INLINE int64_t ${S}_count(const ${S}_call *g) {
    int64_t tiles = g->ow / $R;
    for (int64_t at = tiles * $R; at < g->ow; at += ${S}_fit(g->ow - at)) tiles++;
    return tiles;
}
IRC_INLINE int64_t ${S}_widest(const ${S}_call *g) { return ${S}_least(g->ow, $R); }
static int64_t ${S}_edge(const ${S}_call *g, int64_t t) {
    const int64_t whole = ${S}_least(t, g->ow / $R);
    int64_t at = whole * $R;
    for (t -= whole; t > 0; t--) at += ${S}_fit(g->ow - at);
    return at;
}
"""

COPY = """
/* `blocks` blocks of channels from `block` on, of `tall` x `wide` pixels that begin at (y, x) of the padded input.  Of
   an image that leaves no room in the second cache, what the next call copies is fetched. */
static void ${S}_copy(const ${S}_call *g, const $T *image, int64_t block, int64_t blocks, int64_t y, int64_t x,
                      int64_t tall, int64_t wide, $T *to) {
    const int64_t pitch = tall * wide * $B, step = g->x_pixel * $SC;
    const int64_t whole = ${S}_least(blocks, g->ic / $B - block), rest = g->ic - (block + whole) * $B;
    const int large = g->ih * g->x_row * $size > $l2 / 2;
    const int64_t later = large ? ${S}_least(blocks, g->blocks - block - blocks) * $B : 0;
    for (int64_t r = 0; r < tall; r++, to += wide * $B) {
        const int64_t iy = y + $line - g->pad_h, ix = x + $shift - g->pad_w;
        const int64_t lo = ${S}_least(ix < 0 ? (-ix + $SC - 1) / $SC : 0, wide);
        const int64_t end = ${S}_least(g->iw > ix ? (g->iw - ix - 1) / $SC + 1 : 0, wide), hi = end < lo ? lo : end;
        const int inside = iy >= 0 && iy < g->ih;
        const int64_t begin = inside ? lo : wide, stop = inside ? hi : wide;
        for (int64_t b = 0; b < blocks; b++) {
            for (int64_t j = 0; j < begin * $B; j++) to[b * pitch + j] = 0;
            for (int64_t j = stop * $B; j < wide * $B; j++) to[b * pitch + j] = 0;
        }
        if (begin >= stop) continue;
        const $T *from = image + iy * g->x_row + (ix + begin * $SC) * g->x_pixel + block * $B;
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

COLUMNS = """\
                        shape.begin = ${S}_begin(g->pad_w, x + pixels - 1, $SW, $dilation_w);
                        shape.end = ${S}_end(g->pad_w, x, $SW, $dilation_w, g->iw);
"""

BODY = """
static ${S}_run *const ${S}_bodies[$S_][$R][$NV] = {$table};

typedef struct {
    int64_t image, group, y0, y1, t0, t1; /* rows y0 to y1 of the output, tiles t0 to t1 of each */
    const $T *from;                       /* the input that is under them: `rows` times `length` elements */
    int64_t rows, length;
} ${S}_strip;

/* Strip number `at`: images outermost, then groups, rows, and parts of the rows. */
static ${S}_strip ${S}_find(const ${S}_call *g, int64_t at) {
    const int64_t t = at % g->across, y = at / g->across % g->strips, matrix = at / g->across / g->strips;
    const int64_t rows = (g->oh + $S_ - 1) / $S_;
    ${S}_strip s = {.image = matrix / g->groups, .group = matrix % g->groups};
    s.y0 = rows * y / g->strips * $S_;
    s.y1 = ${S}_least(rows * (y + 1) / g->strips * $S_, g->oh);
    s.t0 = g->tiles * t / g->across;
    s.t1 = g->tiles * (t + 1) / g->across;
    const int64_t top = s.y0 * $SH - g->pad_h, left = ${S}_edge(g, s.t0) * $SW - g->pad_w;
    const int64_t y0 = top < 0 ? 0 : top, x0 = left < 0 ? 0 : left;
    s.rows = ${S}_least(top + (s.y1 - s.y0 - 1) * $SH + $reach, g->ih) - y0;
    s.length = (${S}_least(left + ${S}_wide(${S}_edge(g, s.t1) - ${S}_edge(g, s.t0)) * $SC, g->iw) - x0) * g->x_pixel;
    s.from = g->x + s.image * g->x_batch + s.group * g->ic + y0 * g->x_row + x0 * g->x_pixel;
    s.rows = $fetched;
    return s;
}

/* Panels p0 to p1 of the output channels of a strip.  Fetches what comes next: weights, or the input of strip `next`
   where there is one and the weights are in a cache already. */
static void ${S}_do(const ${S}_call *g, const ${S}_out *o, const ${S}_strip *s, const ${S}_strip *next, int64_t p0,
                    int64_t p1) {
    _Alignas(64) $T copy[$room * $B];
    const $T *image = g->x + s->image * g->x_batch + s->group * g->ic;
    const $T *w = g->w + s->group * g->panels * g->blocks * ($B * $KH * $KW * $NR);
    const int64_t y0 = s->y0, y1 = s->y1, t0 = s->t0, t1 = s->t1, x0 = ${S}_edge(g, t0);
    const int64_t tall = ${S}_tall(y1 - y0), wide = ${S}_wide(${S}_edge(g, t1) - x0);
    const int64_t depth = g->blocks * $KH, tiles = (y1 - y0 + $S_ - 1) / $S_ * (t1 - t0);
    const int stay = next && (p1 - p0) * depth * ($KW * $B * $NR * $size) <= $l2 / 8 * 5; /* in a cache */
    const int64_t todo = stay ? next->rows * next->length : 0, rounds = $KW * $B / $U; /* in a row of taps */
    const int64_t hop = ${S}_least(todo / (tiles * depth * (p1 - p0) * rounds) + 1, 128 / $size);
    int64_t fetched = 0;
    ${body}_shape shape = {.x_row = wide * $B * $DY};
    shape.x_wrap = tall * wide * $B - $KH * shape.x_row;
    for (int64_t b = 0; b < g->blocks; b += g->chunk) {
        const int64_t taps = ${S}_least(g->chunk, g->blocks - b) * $KH;
        const int64_t count = (taps * $KW * $B + $sum - 1) / $sum, step = (taps + count - 1) / count;
        ${S}_copy(g, image, b, taps / $KH, y0 * $SH, x0 * $SW, tall, wide, copy);
        for (int64_t p = p0; p < p1; p++) {
            for (int64_t q = 0; q < taps; q += step) {
                shape.n = ${S}_least(step, taps - q);
                shape.dy = q % $KH;
                shape.hop = stay ? hop : ${S}_least($U * $NR / tiles + 1, 128 / $size);
                const $T *from = copy + q / $KH * tall * wide * $B + shape.dy * shape.x_row;
                const $T *weights = w + (p * depth + b * $KH + q) * ($KW * $B * $NR);
                const $T *ahead = weights + (q + step < taps ? step : depth - q) * ($KW * $B * $NR);
                const int first = b == 0 && q == 0, last = b * $KH + q + shape.n == depth;
                for (int64_t y = y0; y < y1; y += $S_) {
                    const int64_t segments = ${S}_least(y1 - y, $S_);
                    shape.begin = ${S}_begin(g->pad_h, y + segments - 1, $SH, $dilation_h) * $row_taps;
                    shape.end = ${S}_end(g->pad_h, y, $SH, $dilation_h, g->ih) * $row_taps;
                    for (int64_t t = t0; t < t1; t++) {
                        const int64_t x = ${S}_edge(g, t), pixels = ${S}_edge(g, t + 1) - x;
$columns                        if (stay) {
                            ahead = weights;
                            shape.hop = fetched < todo ? hop : 0;
                            if (shape.hop)
                                ahead = next->from + fetched / next->length * g->x_row + fetched % next->length;
                            fetched += hop * shape.n * rounds;
                        }
                        ${S}_block(o, ${S}_bodies[segments - 1][pixels - 1], y * g->ow + x, p * $NR, segments * pixels,
                                   &shape, from + (y - y0) * $YS * wide * $B + (x - x0) * $PIXEL, weights, ahead, first,
                                   last);
                        if (!stay) ahead += shape.hop * shape.n * rounds;
                    }
                }
            }
        }
    }
}

/* Tasks begin to end: images, groups, strips, parts of the panels (innermost; neighbours are joined). */
static void ${S}_part(void *given, int64_t begin, int64_t end) {
    const ${S}_call *g = given;
    for (int first = 1; begin < end; first = 0) {
        const int64_t at = begin / g->parts, part = begin % g->parts, run = ${S}_least(g->parts - part, end - begin);
        const ${S}_strip strip = ${S}_find(g, at), next = ${S}_find(g, begin + run < end ? at + 1 : at);
        const int64_t image = strip.image, channel = strip.group * g->oc;
        ${S}_out o = {.c = g->y + image * g->y_batch + channel, .c_row = g->y_pixel, .n = g->oc};$slot_starts
        ${S}_do(g, &o, &strip, first ? 0 : &next, g->panels * part / g->parts, g->panels * (part + run) / g->parts);
        begin += run;
    }
}

void $S($parameters) {
    ${S}_call call = {$assigned};
    if (g->batch <= 0 || g->groups <= 0 || g->oc <= 0 || g->oh <= 0 || g->ow <= 0) return;
    ${S}_plan(&call);
    const int64_t tasks = g->batch * g->groups * call.strips * call.across * call.parts;
    const double pixels = (double)(g->batch * g->oh * g->ow), channels = (double)(g->oc * g->groups);
    const double work = pixels * channels * (double)(g->ic * $KH * $KW);
    if (!pool || tasks < 2 || work < $worthwhile) ${S}_part(&call, 0, tasks);
    else pool->parallel_for(pool->self, tasks, ${S}_part, &call);
}
"""
