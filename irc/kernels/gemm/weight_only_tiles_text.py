"""C of products with weights of few bits on AMX."""

from __future__ import annotations

from irc.kernels.core.text import Piece

NUMBERS = """\
/* Numbers of a piece of B, less their zero points, that become tiles of bf16 in `to`. */
typedef struct {
    const unsigned char *zeros, *from;
    uint16_t *to;
    int64_t at, end; /* vectors of words */
} ${N};

/* The next vectors of words, at most so many. */
IRC_INLINE void ${N}_some(${N} *s, int64_t count) {
    static const uint16_t numbers[32] __attribute__((aligned(64))) = {$table};
    const __m512i table = _mm512_loadu_si512(numbers);
    const int64_t end = s->end - s->at < count ? s->end : s->at + count;
    const unsigned char *from = s->from + s->at * 64;
    uint16_t *to = s->to + s->at * (32 * $per);
    (void)table;
    for (int64_t at = s->at; at < end; at++, from += 64, to += 32 * $per) {
        const irc_u16x32 x = (irc_u16x32) * (const irc_u32x16_memory *)(const void *)from;
$zero        __builtin_prefetch(from + $far, 0, 2);
        IRC_FULL_UNROLL
        for (int j = 0; j < $per; j++) {
$widened        }
    }
    s->at = end;
}
"""
LESS_OWN = """\
        const __m128i *const zeros = (const __m128i *)(const void *)(s->zeros + at * $per / 16 % 4 * 16);
        const irc_u32x16 of = (irc_u32x16)_mm512_cvtepu8_epi32(_mm_loadu_si128(zeros));
        const irc_u16x32 less = (irc_u16x32)(of | of << 16);
"""
LESS_MIDDLE = """\
        const irc_u16x32 less = (irc_u16x32){0} + $middle;
"""
WIDEN_FEW = """\
            const __m512i y = _mm512_permutexvar_epi16((__m512i)(x >> $bits * j), table);
            irc_bf16_store(to + 32 * j, (irc_u16x32)y);
"""
WIDEN_DIFFERENCE = """\
            const __m512i y = _mm512_permutexvar_epi16((__m512i)((x >> $bits * j & $most) - less), table);
            irc_bf16_store(to + 32 * j, (irc_u16x32)y);
"""
WIDEN_BYTES = """\
            const irc_u32x16 y = (irc_u32x16)((x >> $bits * j & $most) - less);
            const irc_f32x16 odd = __builtin_convertvector((irc_f32x16_mask)y >> 16, irc_f32x16);
            const irc_f32x16 even = __builtin_convertvector((irc_f32x16_mask)(y << 16) >> 16, irc_f32x16);
            irc_bf16_store(to + 32 * j, (irc_u16x32)((irc_u32x16)odd | (irc_u32x16)even >> 16));
"""

SCALING = Piece(
    "IRC_SCALING",
    """\
/* Sums [rows][64] of a piece that are to be multiplied by the scales of their columns and added to the total. */
typedef struct {
    const float *sums, *scales;
    float *total;
    int64_t at, rows;
} irc_scaling;

/* The next rows, at most so many. */
IRC_INLINE void irc_scaling_some(irc_scaling *s, int64_t count) {
    const int64_t end = s->rows - s->at < count ? s->rows : s->at + count;
    const float *const scales = s->scales;
    for (int64_t at = s->at * 64; at < end * 64; at += 64) {
        IRC_FULL_UNROLL
        for (int w = 0; w < 64; w += 16) {
            irc_f32x16 total = irc_f32x16_load(s->total + at + w);
            total += irc_f32x16_load(scales + w) * irc_f32x16_load(s->sums + at + w);
            irc_f32x16_store(s->total + at + w, total);
        }
    }
    s->at = end;
}
""",
)

PRODUCTS = """\
/* Sums [height][64] of a row tile of A, terms of chunks `step` elements apart, and a piece of B. With each chunk twice
 * `widened` vectors of numbers become bf16, and `scaled` rows of other sums are added up. */
static void irc_products_${N}_$T(int64_t chunks, const uint16_t *a, int64_t step, int64_t height, const uint16_t *b,
                                 float *sums, $N *numbers, int64_t widened, irc_scaling *scaling, int64_t scaled) {
    IRC_TILES_READ(a);
    IRC_TILES_READ(b);
    _tile_zero(0);
    _tile_zero(1);
    _tile_zero(2);
    _tile_zero(3);
    for (; chunks > 0; chunks--, a += step, b += 2048) {
        irc_stay_awake();
$body
    }
    _tile_stored(0, sums, 256);
    _tile_stored(1, sums + 16, 256);
    _tile_stored(2, sums + 32, 256);
    _tile_stored(3, sums + 48, 256);
}
"""

SPLIT = """
/* A stripe of rows in tiles of `height`: terms [chunk][tile][term][row][32]; marks of rows that are not to be split. */
typedef struct {
    const ${S}_args *g;
    uint16_t *terms;
    uint32_t *odd;
    int64_t row, rows, tiles, height, chunks;
} ${S}_work;

static void ${S}_split(void *given, int64_t begin, int64_t end) {
    const ${S}_work *w = given;
    const ${S}_args *g = w->g;
    const irc_u32x16 most = (irc_u32x16){0} + 0x6f800000; /* 2^96 */
    const int64_t height = w->height;
    for (int64_t c = begin; c < end; c++) {
        uint16_t *to = w->terms + c * w->tiles * height * ($T * 32);
        for (int64_t r = 0; r < w->tiles * height; r++, to += 32) {
            const float *const a = g->a + (w->row + r) * g->a_row + c * 32 * g->a_col;
            irc_f32x16 x, y;
            if (r && r % height == 0) to += ($T - 1) * height * 32;
            if (r < w->rows && g->a_col == 1 && c * 32 + 32 <= g->k) {
                x = irc_f32x16_load(a);
                y = irc_f32x16_load(a + 16);
            } else {
                float some[32] = {0};
                for (int64_t i = 0; i < 32 && r < w->rows && c * 32 + i < g->k; i++) some[i] = a[i * g->a_col];
                x = irc_f32x16_load(some);
                y = irc_f32x16_load(some + 16);
            }
            irc_split_$T(x, y, to, height * 32);
            if (_mm512_cmpge_epu32_mask((__m512i)((irc_u32x16)x & 0x7fffffff), (__m512i)most) |
                _mm512_cmpge_epu32_mask((__m512i)((irc_u32x16)y & 0x7fffffff), (__m512i)most))
                __atomic_store_n(&w->odd[r], 1, __ATOMIC_RELAXED);
        }
    }
}
"""

PART = """
/* One element as it is defined, of a row that is not split. */
static float ${S}_element(const ${S}_args *g, const float *a, const unsigned char *panel, int64_t col) {
    float sum = 0;
    for (int64_t k = 0; k < g->k; k++) {
        const int64_t i = k % ($chunks * 32), pair = i % 32 / 2;
        const unsigned char *const b = panel + k / ($chunks * 32) * ($head + $chunks * $chunk_bytes);
        const int64_t vector = (i / 32 * 4 + col / 16) * (16 / $per) + pair / $per;
        uint16_t word;
        float scale;
        __builtin_memcpy(&word, b + $head + vector * 64 + col % 16 * 4 + i % 2 * 2, 2);
        __builtin_memcpy(&scale, b + col * 4, 4);
        sum += a[k * g->a_col] * (((float)(word >> pair % $per * $bits & $most) - $zero_at) * scale);
    }
    return sum;
}

/* Panels begin to end, for the rows of a stripe. */
static void ${S}_part(void *given, char *own, int64_t begin, int64_t end) {
    const ${S}_work *w = given;
    const ${S}_args *g = w->g;
    const int64_t chunks = w->chunks, pieces = (chunks + $chunks - 1) / $chunks, height = w->height;
    const int64_t panel_bytes = pieces * $head + chunks * $chunk_bytes, step = w->tiles * height * ($T * 32);
    const int64_t last = chunks - (pieces - 1) * $chunks, slots = 2 * w->tiles;
    uint16_t *const wide[2] = {(uint16_t *)own, (uint16_t *)(own + $chunks * 4096)};
    float *const sums[2] = {(float *)(own + $chunks * 8192), (float *)(own + $chunks * 8192 + 4096)};
    float *const total = (float *)(own + $chunks * 8192 + 8192);
    const unsigned char *b = g->b + begin * panel_bytes;
    const int64_t all = (end - begin) * pieces;
    $N numbers = {.zeros = b + 256, .from = b + $head, .to = wide[0]};
    irc_scaling scaling = {.sums = 0};
    ${S}_out o = {.c = g->c, .c_row = g->c_row, .n = g->n};$slot_starts
    numbers.end = (pieces > 1 ? $chunks : last) * (64 / $per);
    ${N}_some(&numbers, numbers.end);
    irc_tiles_begin(height);
    for (int64_t i = 0; i < all; i++) {
        const int64_t piece = i % pieces, some = piece + 1 < pieces ? $chunks : last;
        const unsigned char *const next = b + $head + some * $chunk_bytes;
        const uint16_t *a = w->terms + piece * $chunks * step;
        int64_t left = 0; /* chunks of the next piece */
        if (i + 1 < all) left = piece + 2 == pieces || pieces == 1 ? last : $chunks;
        if (piece == 0) __builtin_memset(total, 0, (size_t)(w->rows * 256));
        numbers = ($N){.zeros = next + 256, .from = next + $head, .to = wide[(i + 1) % 2], .end = left * (64 / $per)};
        const int64_t widened = (numbers.end + some * slots - 1) / (some * slots);
        for (int64_t t = 0; t < w->tiles; t++, a += height * ($T * 32)) {
            float *const to = sums[(i * w->tiles + t) % 2];
            const int64_t scaled = (scaling.rows + 2 * some - 1) / (2 * some);
            irc_products_${N}_$T(some, a, step, height, wide[i % 2], to, &numbers, widened, &scaling, scaled);
            const int64_t rows = w->rows - t * height < height ? w->rows - t * height : height;
            scaling = (irc_scaling){to, (const float *)(const void *)b, total + t * height * 64, 0, rows};
        }
        b = next;
        if (piece + 1 < pieces) continue;
        irc_scaling_some(&scaling, scaling.rows);
        scaling.rows = scaling.at = 0;
        const int64_t panel = begin + i / pieces;
        for (int64_t r = 0; r < w->rows; r++)
            if (w->odd[r])
                for (int64_t j = 0; j < 64 && panel * 64 + j < g->n; j++)
                    total[r * 64 + j] = ${S}_element(g, g->a + (w->row + r) * g->a_row, b - panel_bytes, j);
        ${S}_store(&o, total, w->rows, w->row, panel * 64);
    }
    _tile_release();
}
"""

ENTRY = """
void $S($parameters) {
    if (g->m <= 0 || g->n <= 0) return;
    const int64_t chunks = (g->k + 31) / 32, panels = (g->n + 63) / 64;
    const int64_t held = $stripe / ((chunks > 0 ? chunks : 1) * ($T * 64)) / 16 * 16;
    const int64_t most = held < 16 ? 16 : held < 64 ? held : 64;
    const int64_t stripes = (g->m + most - 1) / most, each = (g->m + stripes - 1) / stripes;
    ${S}_work w = {.g = g, .odd = (uint32_t *)g->scratch, .terms = g->scratch + 128, .chunks = chunks};
    for (; w.row < g->m; w.row += w.rows) {
        w.rows = g->m - w.row < each ? g->m - w.row : each;
        w.tiles = (w.rows + 15) / 16;
        w.height = (w.rows + w.tiles - 1) / w.tiles;
        for (int64_t r = 0; r < 64; r++) w.odd[r] = 0;
        if (!pool || w.rows * g->k < $split_alone) ${S}_split(&w, 0, w.chunks);
        else pool->parallel_for(pool->self, w.chunks, ${S}_split, &w);
        const int64_t cycles = panels * chunks * (w.tiles * $tile_cycles + $widened_cycles);
        const int64_t pairs = (panels + 1) / 2, owners = g->owners < pairs ? g->owners : pairs;
        irc_divide(cycles < $worthwhile ? 0 : pool, panels, ${S}_part, &w, g->own, g->own_bytes, owners);
    }
}
"""
