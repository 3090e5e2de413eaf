"""Pieces of C for vectors of integers on x86."""

from __future__ import annotations

from irc.ir.types import DType, u8
from irc.kernels.core.text import Piece, piece


def _memory(bits: int) -> Piece:
    code = f"""#include <immintrin.h>
IRC_HELPER __m{bits}i irc_bytes_load_{bits}(const void *p) {{ return _mm{bits}_loadu_si{bits}((const __m{bits}i *)p); }}
IRC_HELPER void irc_bytes_store_{bits}(void *p, __m{bits}i x) {{ _mm{bits}_storeu_si{bits}((__m{bits}i *)p, x); }}
"""
    return Piece(f"IRC_BYTES_{bits}", code)


def _fours(bits: int) -> Piece:
    prefix = "" if bits == 512 else "%{vex%} "
    code = f"""/* Adds products of unsigned bytes of x and signed ones of y, in fours; the intrinsic copies sums. */
IRC_INLINE void irc_fours_{bits}(__m{bits}i *sums, __m{bits}i x, __m{bits}i y) {{
    __asm__("{prefix}vpdpbusd %2, %1, %0" : "+v"(*sums) : "v"(x), "v"(y));
}}
"""
    return Piece(f"IRC_FOURS_{bits}", code)


_NARROW_512 = """\
/* Whole numbers within the range of a byte, as bytes. */
IRC_HELPER void irc_bytes_narrow_512(void *to, __m512 x, int64_t n) {
    const __m128i bytes = _mm512_cvtepi32_epi8(_mm512_cvttps_epi32(x));
    if (n == 16) _mm_storeu_si128((__m128i *)to, bytes);
    else _mm_mask_storeu_epi8(to, (__mmask16)((1u << n) - 1), bytes);
}
/* Whole numbers as words. */
IRC_HELPER void irc_words_narrow_512(void *to, __m512 x) {
    _mm256_storeu_si256((__m256i *)to, _mm512_cvtepi32_epi16(_mm512_cvttps_epi32(x)));
}
"""
_NARROW_256 = """\
/* Whole numbers within the range of a byte, as bytes. */
IRC_HELPER void irc_bytes_narrow_256(void *to, __m256 x, int64_t n) {
    const __m256i low = _mm256_set1_epi32(0x0c080400), words = _mm256_cvttps_epi32(x);
    const __m256i fours = _mm256_shuffle_epi8(words, low);
    const __m128i both = _mm_unpacklo_epi32(_mm256_castsi256_si128(fours), _mm256_extracti128_si256(fours, 1));
    const int64_t bytes = _mm_cvtsi128_si64(both);
    __builtin_memcpy(to, &bytes, (size_t)n);
}
/* Whole numbers as words. */
IRC_HELPER void irc_words_narrow_256(void *to, __m256 x) {
    const __m256i whole = _mm256_cvttps_epi32(x);
    const __m128i words = _mm_packs_epi32(_mm256_castsi256_si128(whole), _mm256_extracti128_si256(whole, 1));
    _mm_storeu_si128((__m128i *)to, words);
}
"""
MEMORY = {bits: _memory(bits) for bits in (256, 512)}
FOURS = {bits: _fours(bits) for bits in (256, 512)}
NARROW = {256: Piece("IRC_BYTES_NARROW_256", _NARROW_256), 512: Piece("IRC_BYTES_NARROW_512", _NARROW_512)}

_PUT_512 = """\
/* The first n of some bytes. */
IRC_HELPER void irc_bytes_put_512(void *to, __m512i x, int64_t n) {
    if (n == 64) _mm512_storeu_si512(to, x);
    else if (n == 32) _mm256_storeu_si256((__m256i *)to, _mm512_castsi512_si256(x));
    else if (n == 16) _mm_storeu_si128((__m128i *)to, _mm512_castsi512_si128(x));
    else _mm512_mask_storeu_epi8(to, ((__mmask64)1 << n) - 1, x);
}
"""
_PUT_256 = """\
/* The first n of some bytes. */
IRC_HELPER void irc_bytes_put_256(void *to, __m256i x, int64_t n) {
    if (n == 32) {
        _mm256_storeu_si256((__m256i *)to, x);
    } else if (n == 16) {
        _mm_storeu_si128((__m128i *)to, _mm256_castsi256_si128(x));
    } else if (n == 8) {
        _mm_storel_epi64((__m128i *)to, _mm256_castsi256_si128(x));
    } else {
        uint8_t bytes[32];
        _mm256_storeu_si256((__m256i *)bytes, x);
        __builtin_memcpy(to, bytes, (size_t)n);
    }
}
"""
_QUARTERS_512 = """\
/* The first n of the four quarters of some bytes, `apart` bytes from each other. */
IRC_INLINE void irc_bytes_quarters_512(void *to, int64_t apart, __m512i x, int64_t n) {
    char *p = to;
    if (n > 0) _mm_storeu_si128((__m128i *)p, _mm512_castsi512_si128(x));
    if (n > 1) _mm_storeu_si128((__m128i *)(p + apart), _mm512_extracti32x4_epi32(x, 1));
    if (n > 2) _mm_storeu_si128((__m128i *)(p + 2 * apart), _mm512_extracti32x4_epi32(x, 2));
    if (n > 3) _mm_storeu_si128((__m128i *)(p + 3 * apart), _mm512_extracti32x4_epi32(x, 3));
}
"""
_QUARTERS_256 = """\
/* The first n of the four quarters of some bytes, `apart` bytes from each other. */
IRC_INLINE void irc_bytes_quarters_256(void *to, int64_t apart, __m256i x, int64_t n) {
    char *p = to;
    const __m128i low = _mm256_castsi256_si128(x), high = _mm256_extracti128_si256(x, 1);
    if (n > 0) _mm_storel_epi64((__m128i *)p, low);
    if (n > 1) _mm_storel_epi64((__m128i *)(p + apart), _mm_unpackhi_epi64(low, low));
    if (n > 2) _mm_storel_epi64((__m128i *)(p + 2 * apart), high);
    if (n > 3) _mm_storel_epi64((__m128i *)(p + 3 * apart), _mm_unpackhi_epi64(high, high));
}
"""
_ROUNDED = """\
IRC_HELPER __m${bits}i irc_bytes_near_$bits(__m$bits x) { return ${mm}_cvtps_epi32(x); }
IRC_HELPER __m${bits}i irc_bytes_rounded_$bits(__m$bits x) { /* beyond 32 bits and NaN are the least integer */
    return irc_bytes_near_$bits(${mm}_min_ps(${mm}_set1_ps(0x1.fffffep30f), x));
}
"""
_SATURATE = """\
/* The bytes nearest to the numbers of four vectors and `zero`, one vector after the other. */
IRC_HELPER __m${bits}i irc_bytes_${kind}_$bits(__m${bits}i zero, __m${bits}i a, __m${bits}i b, __m${bits}i c,
                                           __m${bits}i d) {
    const __m${bits}i first = ${mm}_adds_epi16(${mm}_packs_epi32(a, b), zero);
    const __m${bits}i last = ${mm}_adds_epi16(${mm}_packs_epi32(c, d), zero);
    const __m${bits}i x = ${mm}_pack${u}s_epi16(first, last);
    return $order;
}
"""
_ORDER = {
    512: "_mm512_permutexvar_epi32(_mm512_set_epi32(15, 11, 7, 3, 14, 10, 6, 2, 13, 9, 5, 1, 12, 8, 4, 0), x)",
    256: "_mm256_permutevar8x32_epi32(x, _mm256_set_epi32(7, 3, 6, 2, 5, 1, 4, 0))",
}
"""Packing leaves the bytes of four vectors interleaved, in groups of four."""
QUARTERS = {256: Piece("IRC_BYTES_QUARTERS_256", _QUARTERS_256), 512: Piece("IRC_BYTES_QUARTERS_512", _QUARTERS_512)}
PUT = {256: Piece("IRC_BYTES_PUT_256", _PUT_256), 512: Piece("IRC_BYTES_PUT_512", _PUT_512)}


def rounding(bits: int) -> Piece:
    """Print what rounds what `saturate` of both types takes: numbers that fit into 32 bits, and any."""
    return piece("IRC_BYTES_ROUNDED_$bits", _ROUNDED, bits=bits, mm=f"_mm{bits}")


def saturate(kind: DType, bits: int) -> Piece:
    """Print `irc_bytes_KIND_BITS`, which makes bytes of four vectors of integers, u8 or i8."""
    u = "u" if kind == u8 else ""
    given = {"bits": bits, "mm": f"_mm{bits}", "kind": kind.name, "u": u, "order": _ORDER[bits]}
    return piece("IRC_BYTES_SATURATE_${kind}_$bits", _SATURATE, **given)
