/* What a core of this machine can do at most; irc measures it once, for `irc profile`. */
#include <stdint.h>

#if defined(__AVX512F__)
#define BYTES 64
#define SUMS 24
#elif defined(__AVX__)
#define BYTES 32
#define SUMS 12
#else
#define BYTES 16
#define SUMS 12
#endif

#define AHEAD 1024

#if defined(__GNUC__)
#define PUBLIC __attribute__((visibility("default")))
#else
#define PUBLIC
#endif

typedef float vector __attribute__((vector_size(BYTES)));
typedef float unaligned __attribute__((vector_size(BYTES), aligned(4)));

/* Floating-point operations of a round of irc_multiply_add. */
PUBLIC int64_t irc_round(void) {
    return 2 * SUMS * (BYTES / 4);
}

/* Independent multiply-adds in registers. */
PUBLIC float irc_multiply_add(int64_t rounds, float x) {
    vector sums[SUMS], factor = x - (vector){0};
    _Pragma("GCC unroll 24") for (int i = 0; i < SUMS; i++) sums[i] = factor * (float)i;
    for (int64_t k = 0; k < rounds; k++) {
        _Pragma("GCC unroll 24") for (int i = 0; i < SUMS; i++) sums[i] = sums[i] * factor + factor;
    }
    _Pragma("GCC unroll 24") for (int i = 1; i < SUMS; i++) sums[0] += sums[i];
    return sums[0][0];
}

/* Reads `count` floats, a multiple of 1024, once: four streams, each fetched ahead, because one alone hides the latency
   of memory less well.  What is fetched behind the end is not read. */
PUBLIC float irc_read(const float *from, int64_t count) {
    const int64_t quarter = count / 4, lanes = BYTES / 4;
    vector sums[8];
    for (int i = 0; i < 8; i++) sums[i] = (vector){0};
    for (int64_t k = 0; k < quarter; k += 2 * lanes) {
        for (int i = 0; i < 4; i++) {
            const float *at = from + i * quarter + k;
#if defined(__GNUC__)
            for (int64_t b = 0; b < 2 * BYTES; b += 64) __builtin_prefetch((const void *)((uintptr_t)at + AHEAD + b));
#endif
            sums[2 * i] += *(const unaligned *)at;
            sums[2 * i + 1] += *(const unaligned *)(at + lanes);
        }
    }
    for (int i = 1; i < 8; i++) sums[0] += sums[i];
    return sums[0][0];
}
