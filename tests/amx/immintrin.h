/* AMX in plain C: found instead of the compiler's <immintrin.h>, for tests on processors without it.
 *
 * As Intel's manual has it: TDPBF16PS sums even and odd products of a row apart, from zero, in f32 with one rounding
 * each, adds the two, then the accumulator; denormal operands and results are zero.  What the processor refuses
 * (no configuration, shapes that do not match) ends the program. */
#ifndef IRC_TEST_IMMINTRIN_H
#define IRC_TEST_IMMINTRIN_H
#include <math.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#define IRC_TEST static __attribute__((noinline, unused))

typedef float __m512 __attribute__((vector_size(64)));
typedef uint16_t __m512bh __attribute__((vector_size(64)));

struct irc_test_tiles {
    int ready;
    int bytes[8], rows[8];
    uint8_t data[8][16][64];
};
static _Thread_local struct irc_test_tiles irc_test_tiles;

IRC_TEST void irc_test_demand(int fine) {
    if (!fine) abort();
}

IRC_TEST float irc_test_flush(float x) { return fabsf(x) < 0x1p-126f ? copysignf(0.0f, x) : x; }

IRC_TEST float irc_test_float(uint16_t half) {
    const uint32_t bits = (uint32_t)half << 16;
    float x;
    memcpy(&x, &bits, 4);
    return irc_test_flush(x);
}

IRC_TEST uint16_t irc_test_bf16(float x) {
    uint32_t bits;
    x = irc_test_flush(x);
    memcpy(&bits, &x, 4);
    if (x != x) return (uint16_t)(bits >> 16 | 0x40);
    return (uint16_t)((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

IRC_TEST __m512bh _mm512_cvtne2ps_pbh(__m512 high, __m512 low) {
    __m512bh found = {0};
    for (int i = 0; i < 16; i++) {
        found[i] = irc_test_bf16(low[i]);
        found[16 + i] = irc_test_bf16(high[i]);
    }
    return found;
}

IRC_TEST void _tile_loadconfig(const void *config) {
    const uint8_t *c = config;
    irc_test_demand(c[0] == 1 && c[1] == 0);
    for (int i = 2; i < 16; i++) irc_test_demand(c[i] == 0);
    for (int i = 0; i < 16; i++) {
        uint16_t bytes;
        memcpy(&bytes, c + 16 + 2 * i, 2);
        irc_test_demand(bytes <= 64 && c[48 + i] <= 16 && (bytes == 0) == (c[48 + i] == 0) && (i < 8 || !bytes));
        if (i < 8) irc_test_tiles.bytes[i] = bytes, irc_test_tiles.rows[i] = c[48 + i];
    }
    memset(irc_test_tiles.data, 0, sizeof irc_test_tiles.data);
    irc_test_tiles.ready = 1;
}

IRC_TEST void _tile_release(void) { memset(&irc_test_tiles, 0, sizeof irc_test_tiles); }

IRC_TEST void _tile_zero(int t) {
    irc_test_demand(irc_test_tiles.ready && irc_test_tiles.rows[t]);
    memset(irc_test_tiles.data[t], 0, sizeof irc_test_tiles.data[t]);
}

IRC_TEST void _tile_loadd(int t, const void *base, int64_t stride) {
    _tile_zero(t);
    for (int r = 0; r < irc_test_tiles.rows[t]; r++)
        memcpy(irc_test_tiles.data[t][r], (const uint8_t *)base + r * stride, (size_t)irc_test_tiles.bytes[t]);
}

IRC_TEST void _tile_stored(int t, void *base, int64_t stride) {
    irc_test_demand(irc_test_tiles.ready && irc_test_tiles.rows[t]);
    for (int r = 0; r < irc_test_tiles.rows[t]; r++)
        memcpy((uint8_t *)base + r * stride, irc_test_tiles.data[t][r], (size_t)irc_test_tiles.bytes[t]);
}

IRC_TEST float irc_test_fma(uint16_t a, uint16_t b, float c) {
    return irc_test_flush(fmaf(irc_test_float(a), irc_test_float(b), c));
}

IRC_TEST void _tile_dpbf16ps(int c, int a, int b) {
    struct irc_test_tiles *t = &irc_test_tiles;
    irc_test_demand(t->ready && c != a && c != b && a != b && t->rows[c] == t->rows[a]);
    irc_test_demand(t->bytes[c] == t->bytes[b] && t->bytes[a] == 4 * t->rows[b] && t->rows[c]);
    for (int m = 0; m < t->rows[c]; m++) {
        uint16_t x[32], y[32];
        float sum[16];
        memcpy(x, t->data[a][m], 64);
        memcpy(sum, t->data[c][m], 64);
        for (int n = 0; n < t->bytes[c] / 4; n++) {
            float even = 0, odd = 0;
            for (int k = 0; k < t->rows[b]; k++) {
                memcpy(y, t->data[b][k], 64);
                even = irc_test_fma(x[2 * k], y[2 * n], even);
                odd = irc_test_fma(x[2 * k + 1], y[2 * n + 1], odd);
            }
            sum[n] = irc_test_flush(irc_test_flush(sum[n]) + irc_test_flush(even + odd));
        }
        memcpy(t->data[c][m], sum, 64);
    }
}
#endif
