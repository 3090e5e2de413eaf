"""The C of convolutions of groups with few channels, NCHW."""

from __future__ import annotations

from irc.kernels.core.isa import vector_name
from irc.kernels.core.tile import Tile

CALL = """
typedef struct {$fields
    /* The plan: columns of a strip, and output rows; strips of a plane, parts of its rows, and shares of the
       outputs.  Elements of a row, of a phase, and of all phases of a channel. */
    int64_t cols, high, strips, across, shares, pitch, phase, plane;
} ${S}_call;

/* to[j] = from[j * $SW] for j < n; the last vector overlaps the one before. */
IRC_INLINE void ${S}_row(const $T *from, int64_t n, $T *to) {
    int64_t j = 0;$wide$quad
    for (; j < n; j++) to[j] = from[j * $SW];
}

/* Rows y0 + i * $SH and columns x0 + j * $SW of the padded plane, i < tall, j < pitch.  `clean`: zeros are there. */
static void ${S}_pad(const ${S}_call *g, const $T *x, int64_t y0, int64_t x0, int64_t tall, int clean, $T *to) {
    int64_t lo = x0 < 0 ? (-x0 + $SW - 1) / $SW : 0;
    int64_t hi = g->iw > x0 ? (g->iw - x0 - 1) / $SW + 1 : 0;
    if (hi > g->pitch) hi = g->pitch;
    if (lo > hi) lo = hi;
    for (int64_t i = 0; i < tall; i++) {
        $T *const row = to + i * g->pitch;
        const int64_t iy = y0 + i * $SH;
        const int inside = iy >= 0 && iy < g->ih;
        const int64_t begin = inside ? lo : 0, end = inside ? hi : 0;
        if (!clean) /* what is stored too far is overwritten by what follows */
            for (int64_t j = 0; j < begin; j += $L) ${V}_store(row + j, ($V){0});
        if (begin < end) ${S}_row(x + iy * g->iw + x0 + begin * $SW, end - begin, row + begin);
        if (!clean)
            for (int64_t j = end; j < g->pitch; j += $L) ${V}_store(row + j, ($V){0});
    }
}
"""

TILE = """
IRC_INLINE void ${S}_load($V *x, const $T *from) {
    EACH(u < $U) x[u] = ${V}_load(from + u * $L), ${V}_keep(&x[u]);
}

/* Adds the products of a tap to row r of every channel of a tile. */
IRC_INLINE void ${S}_add($V *acc, const int r, const $V *x, const $T *w) {
    EACH(o < $OB, u < $U) acc[(o * $R + r) * $U + u] += w[o] * x[u];
}

/* The sums of the tile whose first row begins at `at`. */
IRC_INLINE void ${S}_tile($V *acc, const ${S}_call *g, const $T *at, const $T *w) {
    EACH(i < $OB * $R * $U) acc[i] = ${V}_zeros();
    for (int64_t c = 0; c < $IC; c++, at += g->plane) {$unroll
        for (int kx = 0; kx < $KW; kx++, w += $KH * $OB) {
            const $T *const col = at + kx % $PX * g->phase + kx * $DW / $SW;
            $V x[$U];
$rows        }
    }
}
"""

ROWS = """
/* Output rows y0 to y0 + high, columns x0 to x0 + wide of $OB channels. */
static void ${S}_strip(const ${S}_call *g, const ${S}_out *given, const $T *padded, const $T *w, int64_t channel,
                       int64_t y0, int64_t x0, int64_t high, int64_t wide) {
    const ${S}_out local = *given, *const o = &local; /* so that no store may change it */
    const int64_t last = wide > $U * $L ? wide - $U * $L : 0, ow = g->ow;
    for (int64_t line = 0;; line++) {
        const int64_t y = line / $D * $group + line % $D;
        if (y >= high) break;
        for (int64_t x = 0;; x += $U * $L) {
            if (x > last) x = last;
            _Alignas(64) $T sums[$OB * $R * $U * $L];
            $V acc[$OB * $R * $U];
            ${S}_tile(acc, g, padded + y * g->pitch + x, w);
            if ($light && wide >= $U * $L && y + ($R - 1) * $D < high) {
                $T *const to = o->c + channel * o->c_row + (y0 + y) * ow + x0 + x;
                IRC_FULL_UNROLL
                for (int i = 0; i < $OB * $R * $U; i++) {
                    const int64_t k = i / ($R * $U), at = i / $U % $R * $D * ow + i % $U * $L;
                    const int64_t pixel = (y0 + y) * ow + x0 + x + at;
                    if ($D > 1) __builtin_prefetch(to + k * o->c_row + at + $group * ow, 1, 2); /* no row follows */
                    ${V}_store(to + k * o->c_row + at, ${S}_epilogue(o, acc[i], channel + k, pixel, $L));
                }
                if (x == last) break;
                continue;
            }
            if ($light) { /* a part of the tile */
                $T *const to = o->c + channel * o->c_row + (y0 + y) * ow + x0 + x;
                IRC_FULL_UNROLL
                for (int i = 0; i < $OB * $R * $U; i++) {
                    const int64_t k = i / ($R * $U), r = i / $U % $R * $D, left = wide - x - i % $U * $L;
                    const int64_t n = left < $L ? left : $L, at = r * ow + i % $U * $L;
                    if (n <= 0 || y + r >= high) continue;
                    const int64_t pixel = (y0 + y) * ow + x0 + x + at;
                    ${V}_store_part(to + k * o->c_row + at, ${S}_epilogue(o, acc[i], channel + k, pixel, n), n);
                }
                if (x == last) break;
                continue;
            }
            EACH(i < $OB * $R * $U) ${V}_store(sums + i * $L, acc[i]);
            for (int k = 0; k < $OB; k++) {
                for (int r = 0; r < $R && y + r * $D < high; r++) {
                    const $T *from = sums + (k * $R + r) * ($U * $L);
                    const int64_t pixel = (y0 + y + r * $D) * ow + x0 + x;
                    $T *to = o->c + (channel + k) * o->c_row + pixel;
                    if (wide >= $U * $L) {
                        for (int u = 0; u < $U * $L; u += $L)
                            ${V}_store(to + u, ${S}_epilogue(o, ${V}_load(from + u), channel + k, pixel + u, $L));
                        continue;
                    }
                    for (int64_t u = 0; u < wide; u += $L) {
                        const int64_t n = wide - u < $L ? wide - u : $L;
                        ${V}_store_part(to + u, ${S}_epilogue(o, ${V}_load(from + u), channel + k, pixel + u, n), n);
                    }
                }
            }
            if (x == last) break;
        }
    }
}
"""

PART = """
/* Pieces begin to end: images, then groups, then strips, then parts of rows, then shares of outputs. */
static void ${S}_part(void *given, char *own, int64_t begin, int64_t end) {
    const ${S}_call *g = given;
    $T *const padded = ($T *)own;
    const int64_t used = $IC * g->plane + $wider + 2 * $U * $L;
    for (int64_t j = 0; j < used; j++) padded[j] = 0; /* also what no row is copied to: tiles read beyond */
    const int clean = g->high >= g->oh && g->cols >= g->ow;
    const int64_t tiles = (g->oc + $OB - 1) / $OB;
    for (int64_t here = -1; begin < end; begin++) {
        const int64_t place = begin / g->shares, share = begin % g->shares;
        const int64_t low = tiles * share / g->shares * $OB, all = tiles * (share + 1) / g->shares * $OB;
        const int64_t x0 = place % g->across * g->cols, strip = place / g->across, y0 = strip % g->strips * g->high;
        const int64_t group = strip / g->strips % g->groups, image = strip / g->strips / g->groups;
        const int64_t high = g->oh - y0 < g->high ? g->oh - y0 : g->high;
        const int64_t wide = g->ow - x0 < g->cols ? g->ow - x0 : g->cols;
        const $T *const x = g->x + image * g->x_batch + group * $IC * g->x_channel;
        ${S}_out o = {.c = g->y + image * g->y_batch, .c_row = g->y_channel, .n = g->oh * g->ow};$slot_starts
        for (int64_t c = 0; c < $IC && here != place; c++)
            for (int64_t py = 0; py < $PY; py++)
                for (int64_t px = 0; px < $PX; px++)
                    ${S}_pad(g, x + c * g->x_channel, y0 * $SH + py * $DH % $SH - g->pad_h,
                             x0 * $SW + px * $DW % $SW - g->pad_w, high + $taller, clean,
                             padded + c * g->plane + (py * $PX + px) * g->phase);
        here = place;
        for (int64_t k = low; k < all && k < g->oc; k += $OB)
            ${S}_strip(g, &o, padded, g->w + (group * g->oc + k) * ($IC * $KH * $KW), group * g->oc + k, y0, x0, high,
                       wide);
    }
}

void $S($parameters) {
    ${S}_call call = {$assigned};
    const int64_t planes = g->batch * g->groups;
    if (planes <= 0 || g->oh <= 0 || g->ow <= 0 || g->oc <= 0) return;
    const int64_t wanted = pool && planes < $pieces ? $pieces / planes : 1, line = 64 / $size * $U;
    const int64_t parts = wanted > 1 && g->oh < $group * wanted ? $group * wanted / g->oh : 1; /* of rows: too few */
    int64_t rows = 0; /* of tiles in a strip */
    call.cols = ((g->ow + parts - 1) / parts + line - 1) / line * line;
    if (call.cols > g->ow) call.cols = g->ow;
    for (;; call.cols = (call.cols + 1) / 2) {
        call.pitch = (call.cols + $wider + $L - 1) / $L * $L; /* so that some loads are aligned */
        rows = (($room / ($IC * $PY * $PX) - $U * $L) / call.pitch - $taller) / $group;
        if (rows > 0 || call.cols == 1) break;
    }
    const int64_t most = g->oh / ($group * wanted);
    if (rows > most) rows = most > 0 ? most : 1;
    const int64_t all = (g->oh + $group - 1) / $group, count = (all + rows - 1) / rows;
    rows = (all + count - 1) / count;
    call.high = rows * $group;
    call.strips = (g->oh + call.high - 1) / call.high;
    call.phase = (call.high + $taller) * call.pitch + $U * $L;
    call.plane = $PY * $PX * call.phase;
    call.across = (g->ow + call.cols - 1) / call.cols;
    /* Of few places outputs are shared, several tiles of them, for which the input is padded anew. */
    const int64_t places = planes * call.strips * call.across, tiles = (g->oc + $OB - 1) / $OB;
    call.shares = pool && places < $few ? $few / places : 1;
    if (call.shares > tiles / $several) call.shares = tiles < $several ? 1 : tiles / $several;
    const int64_t pieces = places * call.shares;
    const double work = (double)planes * (double)(g->oc * g->oh * g->ow) * $IC * $KH * $KW;
    if (!pool || pieces < 2 || work < $worthwhile) ${S}_part(&call, g->own, 0, pieces);
    else irc_divide(pool, pieces, ${S}_part, &call, g->own, g->own_bytes, g->owners);
}
"""


def copies(tile: Tile, lanes: int, stride: int) -> str:
    """Print the part of `NAME_row` that copies by vectors of `lanes`; none unless the stride is 1 or 2."""
    v = vector_name(lanes, tile.dtype)
    if stride not in (1, 2):
        return ""
    picks = ", ".join(str(i) for i in (*range(0, lanes, 2), *range(lanes + 1, 2 * lanes, 2)))
    one = f"{v}_store(to + j, {v}_load(from + j));"
    if stride == 2:
        both = f"{v}_load(from + 2 * j), {v}_load(from + 2 * j + {lanes - 1})"
        one = f"{v}_store(to + j, __builtin_shufflevector({both}, {picks}));"
    return f"""
    if (n >= {lanes}) {{
        for (; j + {lanes} <= n; j += {lanes}) {one}
        if (j == n) return;
        j = n - {lanes};
        {one}
        return;
    }}"""
