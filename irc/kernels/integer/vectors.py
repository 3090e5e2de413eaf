"""Pieces of C for vectors of integers on x86."""

from __future__ import annotations

from irc.ir.types import DType, u8
from irc.kernels.core.isa import C_NAMES
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

_PUT_SOME = """\
/* The first n < 16 of some bytes.  A masked store would do, but loads of what is near it wait for it, as those of the
   next row's residual in whose place this one stands. */
IRC_HELPER void irc_bytes_put_some(char *to, __m128i x, int64_t n) {
    uint64_t halves[2], rest;
    __builtin_memcpy(halves, &x, 16);
    rest = halves[0];
    if (n & 8) {
        __builtin_memcpy(to, halves, 8);
        rest = halves[1];
        to += 8;
    }
    if (n & 4) {
        __builtin_memcpy(to, &rest, 4);
        rest >>= 32;
        to += 4;
    }
    if (n & 2) {
        __builtin_memcpy(to, &rest, 2);
        rest >>= 16;
        to += 2;
    }
    if (n & 1) *to = (char)rest;
}
"""
_PUT_512 = """\
/* The first n of some bytes. */
IRC_HELPER void irc_bytes_put_512(void *given, __m512i x, int64_t n) {
    char *to = given;
    if (n == 64) {
        _mm512_storeu_si512(to, x);
        return;
    }
    const int beyond = (n & 32) != 0;
    if (beyond) {
        _mm256_storeu_si256((__m256i *)to, _mm512_castsi512_si256(x));
        to += 32;
    }
    __m128i next = beyond ? _mm512_extracti32x4_epi32(x, 2) : _mm512_castsi512_si128(x);
    if (n & 16) {
        _mm_storeu_si128((__m128i *)to, next);
        next = beyond ? _mm512_extracti32x4_epi32(x, 3) : _mm512_extracti32x4_epi32(x, 1);
        to += 16;
    }
    if (n & 15) irc_bytes_put_some(to, next, n);
}
"""
_PUT_256 = """\
/* The first n of some bytes. */
IRC_HELPER void irc_bytes_put_256(void *given, __m256i x, int64_t n) {
    char *to = given;
    if (n == 32) {
        _mm256_storeu_si256((__m256i *)to, x);
        return;
    }
    __m128i half = _mm256_castsi256_si128(x);
    if (n & 16) {
        _mm_storeu_si128((__m128i *)to, half);
        half = _mm256_extracti128_si256(x, 1);
        to += 16;
    }
    if (n & 15) irc_bytes_put_some(to, half, n);
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
_WIDEN = """\
/* Bytes as floats. */
IRC_HELPER irc_f32x$L irc_f32x${L}_of_$kind(const $byte *p) {
    return (irc_f32x$L)${mm}_cvtepi32_ps(${mm}_cvtep${sign}8_epi32($load));
}
/* The first n, zeros behind them; nothing else is read. */
IRC_HELPER irc_f32x$L irc_f32x${L}_of_${kind}_part(const $byte *p, int64_t n) {
$part
    return (irc_f32x$L)${mm}_cvtepi32_ps(${mm}_cvtep${sign}8_epi32(x));
}
"""
_PART = {
    512: "    const __m128i x = _mm_maskz_loadu_epi8((__mmask16)((1u << n) - 1), p);",
    256: """\
    uint32_t ends[2] = {0};
    uint64_t bytes = *(const uint8_t *)p;
    if (n >= 4) {
        __builtin_memcpy(ends, p, 4);
        __builtin_memcpy(ends + 1, p + n - 4, 4);
        bytes = ends[0] | (uint64_t)ends[1] << 8 * (n - 4);
    } else if (n >= 2) {
        __builtin_memcpy(ends, p, 2);
        __builtin_memcpy(ends + 1, p + n - 2, 2);
        bytes = ends[0] | ends[1] << 8 * (n - 2);
    }
    const __m128i x = _mm_cvtsi64_si128((int64_t)bytes);""",
}
_LOAD = {256: "_mm_loadl_epi64((const __m128i *)p)", 512: "_mm_loadu_si128((const __m128i *)p)"}
QUARTERS = {256: Piece("IRC_BYTES_QUARTERS_256", _QUARTERS_256), 512: Piece("IRC_BYTES_QUARTERS_512", _QUARTERS_512)}
PUT_SOME = Piece("IRC_BYTES_PUT_SOME", _PUT_SOME)
PUT = {256: (PUT_SOME, Piece("IRC_BYTES_PUT_256", _PUT_256)), 512: (PUT_SOME, Piece("IRC_BYTES_PUT_512", _PUT_512))}


def rounding(bits: int) -> Piece:
    """Print what rounds what `saturate` of both types takes: numbers that fit into 32 bits, and any."""
    return piece("IRC_BYTES_ROUNDED_$bits", _ROUNDED, bits=bits, mm=f"_mm{bits}")


def widen(kind: DType, bits: int) -> Piece:
    """Print `irc_f32xLANES_of_KIND`, which makes floats of bytes, u8 or i8; needs the type of these floats."""
    given = {"L": bits // 32, "kind": kind.name, "byte": C_NAMES[kind], "sign": "u" if kind == u8 else "i"}
    more = {"mm": f"_mm{bits}", "load": _LOAD[bits], "part": _PART[bits]}
    return piece("IRC_BYTES_WIDEN_${kind}_$L", _WIDEN, "irc_f32x${L}_of_$kind", **given, **more)


def saturate(kind: DType, bits: int) -> Piece:
    """Print `irc_bytes_KIND_BITS`, which makes bytes of four vectors of integers, u8 or i8."""
    u = "u" if kind == u8 else ""
    given = {"bits": bits, "mm": f"_mm{bits}", "kind": kind.name, "u": u, "order": _ORDER[bits]}
    return piece("IRC_BYTES_SATURATE_${kind}_$bits", _SATURATE, **given)
