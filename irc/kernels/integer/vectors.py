"""Pieces of C for vectors of integers on x86."""

from __future__ import annotations

from irc.kernels.core.text import Piece


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
