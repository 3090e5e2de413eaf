/* AMX and AVX512-BF16 in plain C, and what kernels with them need of AVX-512: found instead of the compiler's
 * <immintrin.h>, for tests on processors without it.
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
typedef uint16_t __m256bh __attribute__((vector_size(32)));
typedef uint32_t __m512i __attribute__((vector_size(64)));
typedef uint32_t __m256i __attribute__((vector_size(32)));
typedef uint32_t __m128i __attribute__((vector_size(16)));
typedef uint16_t __mmask16;
typedef uint64_t __mmask64;
typedef uint32_t irc_test_words __attribute__((vector_size(64)));

struct irc_test_tiles {
    int ready;
    int bytes[8], rows[8];
    uint8_t data[8][16][64];
};
static _Thread_local struct irc_test_tiles irc_test_tiles;

IRC_TEST void irc_test_demand(int fine) {
    if (!fine) abort();
}

/* 16 floats as bf16, nearest even; denormals become zero, a NaN stays one. */
IRC_TEST void irc_test_round(__m512 x, uint16_t *to) {
    const irc_test_words bits = (irc_test_words)x, magnitude = bits & 0x7fffffff;
    irc_test_words kept = (bits & (irc_test_words)(magnitude < 0x800000) & 0x80000000);
    kept |= bits & ~(irc_test_words)(magnitude < 0x800000);
    const irc_test_words nan = (irc_test_words)(magnitude > 0x7f800000);
    const irc_test_words nearest = (kept + 0x7fff + (kept >> 16 & 1)) >> 16;
    const irc_test_words found = (nan & (bits >> 16 | 0x40)) | (~nan & nearest);
    for (int i = 0; i < 16; i++) to[i] = (uint16_t)found[i];
}

IRC_TEST __m512bh _mm512_cvtne2ps_pbh(__m512 high, __m512 low) {
    uint16_t halves[32];
    __m512bh found;
    irc_test_round(low, halves);
    irc_test_round(high, halves + 16);
    memcpy(&found, halves, sizeof found);
    return found;
}

IRC_TEST __m256bh _mm512_cvtneps_pbh(__m512 x) {
    uint16_t halves[16];
    __m256bh found;
    irc_test_round(x, halves);
    memcpy(&found, halves, sizeof found);
    return found;
}

/* Lanes that are quiet (1) or signalling (0x80) NaN, +infinity (8) or -infinity (0x10): no other class is asked for. */
IRC_TEST __mmask16 _mm512_fpclass_ps_mask(__m512 x, int classes) {
    __mmask16 found = 0;
    irc_test_demand(classes == 0x99);
    for (int i = 0; i < 16; i++) found |= (__mmask16)(((((irc_test_words)x)[i] & 0x7f800000) == 0x7f800000) << i);
    return found;
}

/* Where masked the smaller magnitude of a and b with the sign of a (2: nothing else is asked for), else `from`. */
IRC_TEST __m512 _mm512_mask_range_ps(__m512 from, __mmask16 mask, __m512 a, __m512 b, int how) {
    irc_test_words x = (irc_test_words)a, y = (irc_test_words)b, z = (irc_test_words)from;
    irc_test_demand(how == 2);
    for (int i = 0; i < 16; i++) {
        const uint32_t p = x[i] & 0x7fffffff, q = y[i] & 0x7fffffff;
        if (mask >> i & 1) z[i] = (p < q ? p : q) | (x[i] & 0x80000000);
    }
    return (__m512)z;
}

IRC_TEST __m128i _mm_loadu_si128(const __m128i *p) {
    __m128i x;
    memcpy(&x, p, sizeof x);
    return x;
}
IRC_TEST __m512i _mm512_cvtepu8_epi32(__m128i x) {
    uint8_t bytes[16];
    __m512i found;
    memcpy(bytes, &x, sizeof x);
    for (int i = 0; i < 16; i++) found[i] = bytes[i];
    return found;
}
IRC_TEST __m512i _mm512_cvtepi8_epi32(__m128i x) {
    int8_t bytes[16];
    __m512i found;
    memcpy(bytes, &x, sizeof x);
    for (int i = 0; i < 16; i++) found[i] = (uint32_t)bytes[i];
    return found;
}
IRC_TEST __m512i _mm512_cvtepu16_epi32(__m256i x) {
    uint16_t given[16];
    uint32_t found[16];
    __m512i wide;
    memcpy(given, &x, sizeof given);
    for (int i = 0; i < 16; i++) found[i] = given[i];
    memcpy(&wide, found, sizeof wide);
    return wide;
}

/* Masked accesses: what is masked is neither read nor written. */
IRC_TEST __m128i _mm_maskz_loadu_epi8(uint16_t mask, const void *p) {
    uint8_t found[16] = {0};
    __m128i x;
    for (int i = 0; i < 16; i++)
        if (mask >> i & 1) found[i] = ((const uint8_t *)p)[i];
    memcpy(&x, found, sizeof x);
    return x;
}
IRC_TEST __m256i _mm256_maskz_loadu_epi16(uint16_t mask, const void *p) {
    uint16_t found[16] = {0};
    __m256i x;
    for (int i = 0; i < 16; i++)
        if (mask >> i & 1) memcpy(found + i, (const uint16_t *)p + i, 2);
    memcpy(&x, found, sizeof x);
    return x;
}

IRC_TEST __m512 _mm512_maskz_loadu_ps(uint16_t mask, const void *p) {
    float found[16] = {0};
    __m512 x;
    for (int i = 0; i < 16; i++)
        if (mask >> i & 1) memcpy(found + i, (const float *)p + i, 4);
    memcpy(&x, found, sizeof x);
    return x;
}

IRC_TEST __m512i _mm512_maskz_loadu_epi16(uint32_t mask, const void *p) {
    uint16_t found[32] = {0};
    __m512i x;
    for (int i = 0; i < 32; i++)
        if (mask >> i & 1) memcpy(found + i, (const uint16_t *)p + i, 2);
    memcpy(&x, found, sizeof x);
    return x;
}

IRC_TEST void _mm256_mask_storeu_epi16(void *p, uint16_t mask, __m256i x) {
    uint16_t given[16];
    memcpy(given, &x, sizeof given);
    for (int i = 0; i < 16; i++)
        if (mask >> i & 1) memcpy((uint16_t *)p + i, given + i, 2);
}

/* Vectors of whole numbers. */
IRC_TEST __m512i _mm512_loadu_si512(const void *p) {
    __m512i x;
    memcpy(&x, p, sizeof x);
    return x;
}
IRC_TEST void _mm512_storeu_si512(void *p, __m512i x) { memcpy(p, &x, sizeof x); }
IRC_TEST void _mm256_storeu_si256(__m256i *p, __m256i x) { memcpy(p, &x, sizeof x); }
IRC_TEST void _mm_storeu_si128(__m128i *p, __m128i x) { memcpy(p, &x, sizeof x); }
IRC_TEST void _mm512_mask_storeu_epi8(void *p, __mmask64 mask, __m512i x) {
    uint8_t given[64];
    memcpy(given, &x, sizeof given);
    for (int i = 0; i < 64; i++)
        if (mask >> i & 1) ((uint8_t *)p)[i] = given[i];
}
IRC_TEST __m256i _mm512_extracti64x4_epi64(__m512i x, int half) {
    __m256i found;
    memcpy(&found, (const uint8_t *)&x + 32 * half, sizeof found);
    return found;
}
IRC_TEST __m256i _mm512_castsi512_si256(__m512i x) { return _mm512_extracti64x4_epi64(x, 0); }
IRC_TEST __m128i _mm512_castsi512_si128(__m512i x) {
    __m128i found;
    memcpy(&found, &x, sizeof found);
    return found;
}
IRC_TEST __m128i _mm512_extracti32x4_epi32(__m512i x, int quarter) {
    __m128i found;
    memcpy(&found, (const uint8_t *)&x + 16 * quarter, sizeof found);
    return found;
}
IRC_TEST __m512i _mm512_set1_epi32(int a) { return (__m512i){0} + (uint32_t)a; }
IRC_TEST __m512i _mm512_set1_epi16(short a) {
    return _mm512_set1_epi32((int)((uint32_t)(uint16_t)a << 16 | (uint16_t)a));
}
IRC_TEST __m512i _mm512_set_epi32(int p, int o, int n, int m, int l, int k, int j, int i, int h, int g, int f, int e,
                                  int d, int c, int b, int a) {
    const int lanes[16] = {a, b, c, d, e, f, g, h, i, j, k, l, m, n, o, p};
    return _mm512_loadu_si512(lanes);
}
IRC_TEST __m512i _mm512_add_epi32(__m512i a, __m512i b) { return a + b; }
IRC_TEST __m512i _mm512_sub_epi32(__m512i a, __m512i b) { return a - b; }
IRC_TEST __m512i _mm512_mullo_epi32(__m512i a, __m512i b) { return a * b; }
IRC_TEST __m512i _mm512_permutexvar_epi32(__m512i from, __m512i x) {
    __m512i found;
    for (int i = 0; i < 16; i++) found[i] = x[from[i] & 15];
    return found;
}
IRC_TEST __m512i _mm512_permutexvar_epi16(__m512i from, __m512i x) {
    uint16_t places[32], given[32], found[32];
    memcpy(places, &from, sizeof from);
    memcpy(given, &x, sizeof x);
    for (int i = 0; i < 32; i++) found[i] = given[places[i] % 32];
    return _mm512_loadu_si512(found);
}
IRC_TEST __mmask16 _mm512_cmpge_epu32_mask(__m512i a, __m512i b) {
    unsigned found = 0;
    for (int i = 0; i < 16; i++) found |= (unsigned)(a[i] >= b[i]) << i;
    return (__mmask16)found;
}
IRC_TEST __m512 _mm512_set1_ps(float a) { return (__m512){0} + a; }
IRC_TEST __m512 _mm512_min_ps(__m512 a, __m512 b) {
    for (int i = 0; i < 16; i++) b[i] = a[i] < b[i] ? a[i] : b[i];
    return b;
}
IRC_TEST __m512 _mm512_cvtepi32_ps(__m512i x) {
    __m512 found;
    for (int i = 0; i < 16; i++) found[i] = (float)(int32_t)x[i];
    return found;
}
/* Nearest even; the least integer for what is beyond 32 bits. */
IRC_TEST __m512i _mm512_cvtps_epi32(__m512 x) {
    __m512i found;
    for (int i = 0; i < 16; i++)
        found[i] = x[i] >= -0x1p31f && x[i] < 0x1p31f ? (uint32_t)(int32_t)rintf(x[i]) : 0x80000000;
    return found;
}
IRC_TEST int irc_test_within(int x, int least, int largest) { return x < least ? least : x > largest ? largest : x; }
/* In each quarter what eight or four lanes of a have become, then those of b. */
IRC_TEST __m512i _mm512_packs_epi32(__m512i a, __m512i b) {
    int16_t found[32];
    for (int i = 0; i < 32; i++)
        found[i] = (int16_t)irc_test_within((int32_t)(i % 8 < 4 ? a : b)[i / 8 * 4 + i % 4], INT16_MIN, INT16_MAX);
    return _mm512_loadu_si512(found);
}
IRC_TEST __m512i _mm512_adds_epi16(__m512i a, __m512i b) {
    int16_t x[32], y[32];
    memcpy(x, &a, sizeof x);
    memcpy(y, &b, sizeof y);
    for (int i = 0; i < 32; i++) x[i] = (int16_t)irc_test_within(x[i] + y[i], INT16_MIN, INT16_MAX);
    return _mm512_loadu_si512(x);
}
IRC_TEST __m512i irc_test_pack(__m512i a, __m512i b, int least, int largest) {
    int16_t x[2][32];
    uint8_t found[64];
    memcpy(x[0], &a, sizeof x[0]);
    memcpy(x[1], &b, sizeof x[1]);
    for (int i = 0; i < 64; i++)
        found[i] = (uint8_t)irc_test_within(x[i % 16 / 8][i / 16 * 8 + i % 8], least, largest);
    return _mm512_loadu_si512(found);
}
IRC_TEST __m512i _mm512_packs_epi16(__m512i a, __m512i b) { return irc_test_pack(a, b, INT8_MIN, INT8_MAX); }
IRC_TEST __m512i _mm512_packus_epi16(__m512i a, __m512i b) { return irc_test_pack(a, b, 0, UINT8_MAX); }

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

/* All sums of a tile. A product of two bf16 is exact in f32, so that it matters little whether the compiler fuses. */
IRC_TEST void irc_test_sums(struct irc_test_tiles *t, int c, int a, int b) {
    __m512 even[16], odd[16];
    for (int k = 0; k < t->rows[b]; k++) {
        irc_test_words pair;
        memcpy(&pair, t->data[b][k], 64);
        even[k] = (__m512)(pair << 16);
        odd[k] = (__m512)(pair & 0xffff0000);
    }
    for (int m = 0; m < t->rows[c]; m++) {
        __m512 left = {0}, right = {0}, sum;
        irc_test_words pair;
        float x[16], y[16];
        memcpy(&pair, t->data[a][m], 64);
        irc_test_words low = pair << 16, high = pair & 0xffff0000;
        memcpy(x, &low, 64);
        memcpy(y, &high, 64);
        for (int k = 0; k < t->rows[b]; k++) {
            left += x[k] * even[k];
            right += y[k] * odd[k];
        }
        memcpy(&sum, t->data[c][m], 64);
        sum += left + right;
        memcpy(t->data[c][m], &sum, 64);
    }
}

IRC_TEST void _tile_dpbf16ps(int c, int a, int b) {
    struct irc_test_tiles *t = &irc_test_tiles;
    irc_test_demand(t->ready && c != a && c != b && a != b && t->rows[c] == t->rows[a]);
    irc_test_demand(t->bytes[c] == t->bytes[b] && t->bytes[a] == 4 * t->rows[b] && t->rows[c]);
    uint32_t before;
    __asm__ volatile("stmxcsr %0" : "=m"(before));
    const uint32_t nearest = (before & ~0x6000u) | 0x8040; /* denormals are zero, operands and results */
    __asm__ volatile("ldmxcsr %0" : : "m"(nearest) : "memory");
    irc_test_sums(t, c, a, b);
    __asm__ volatile("ldmxcsr %0" : : "m"(before) : "memory");
}

/* TDPBUSD and TDPBSSD: sums of products of fours of bytes in 32 bits, modulo 2^32; those of B are signed. */
IRC_TEST void irc_test_byte_sums(int c, int a, int b, int is_signed) {
    struct irc_test_tiles *t = &irc_test_tiles;
    irc_test_demand(t->ready && c != a && c != b && a != b && t->rows[c] == t->rows[a]);
    irc_test_demand(t->bytes[c] == t->bytes[b] && t->bytes[a] == 4 * t->rows[b] && t->rows[c]);
    for (int m = 0; m < t->rows[c]; m++) {
        uint32_t sums[16];
        memcpy(sums, t->data[c][m], 64);
        for (int k = 0; k < t->bytes[a]; k++) {
            const int x = is_signed ? (int8_t)t->data[a][m][k] : t->data[a][m][k];
            for (int n = 0; n < 16; n++) sums[n] += (uint32_t)(x * (int8_t)t->data[b][k / 4][4 * n + k % 4]);
        }
        memcpy(t->data[c][m], sums, 64);
    }
}
IRC_TEST void _tile_dpbusd(int c, int a, int b) { irc_test_byte_sums(c, a, b, 0); }
IRC_TEST void _tile_dpbssd(int c, int a, int b) { irc_test_byte_sums(c, a, b, 1); }

/* VDPBF16PS: sum += odd products, then even ones, with one rounding each. */
IRC_TEST __m512 _mm512_dpbf16_ps(__m512 sum, __m512bh a, __m512bh b) {
    const irc_test_words x = (irc_test_words)a, y = (irc_test_words)b;
    uint32_t before;
    __asm__ volatile("stmxcsr %0" : "=m"(before));
    const uint32_t nearest = (before & ~0x6000u) | 0x8040; /* denormals are zero, operands and results */
    __asm__ volatile("ldmxcsr %0" : : "m"(nearest) : "memory");
    sum += (__m512)(x & 0xffff0000) * (__m512)(y & 0xffff0000);
    sum += (__m512)(x << 16) * (__m512)(y << 16);
    __asm__ volatile("ldmxcsr %1" : "+m"(sum) : "m"(before) : "memory");
    return sum;
}
#endif
