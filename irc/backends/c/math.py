"""Mathematical functions of f32 as C helpers: polynomials, without branches and without calls.

Compilers vectorise a loop around them; the results are the same whether they do or not, because products and sums are
not contracted: those that are one operation are written as one, `IRC_FMA`, which processors without it (before AVX2)
round twice.  Each states its largest error over all floats (result against the exact value;
infinities, NaN, denormals and signs of zero are exact), which the tests measure.  Conversions between bit patterns and
numbers need unsigned arithmetic modulo 2^32 only.  Functions not here call the C library; those of f64 are in
`irc.backends.c.math_f64`.
"""

from __future__ import annotations

from collections.abc import Callable
from string import Template
from typing import Any

from irc.kernels.vector import polynomials as poly
from irc.kernels.vector.polynomials import horner

ULP: dict[str, float] = {
    "exp": 1.05,
    "exp2": 1.05,
    "expm1": 1.6,
    "log": 0.9,
    "log1p": 1.5,
    "log2": 0.51,
    "log10": 0.51,
    "pow": 0.55,
    "tanh": 2.65,
    "erf": 1.83,
    "sin": 0.51,
    "cos": 0.51,
    "tan": 0.51,
    "sinh": 1.0,
    "cosh": 0.55,
    "asin": 2.1,
    "acos": 1.3,
    "atan": 2.3,
    "asinh": 2.0,
    "acosh": 1.6,
    "atanh": 2.0,
    "one_plus_exp": 1.2,
    "sigmoid": 2.5,
    "softplus": 1.7,
}
"""Function of f32 → largest error in units of the last place.

one_plus_exp: 1 + exp(x).  sigmoid: results below 2^-126 may be zero."""

_AT_MOST = """/* the lesser of x and the positive float of these bits; x may be NaN, what it gives then may be either */
IRC_MATH float irc_at_most_f32(float x, int32_t bits) {
    const int32_t b = (int32_t)irc_f32_bits(x);
    return irc_bits_f32((uint32_t)(b > bits ? bits : b));
}
"""
# exp(x) = 2^n · (1 + p): n by adding 1.5 · 2^23 + 254, which leaves n + 254 in the low bits; 2^n in two factors, half
# the bits each, so that results below the normal range are rounded once and those above it become infinite.  At
# n = -254 both factors are 0: a product that underflows takes a hundred cycles, and masks of attention make many.
# n is limited by the bits of t, as integers: that is one instruction, a comparison of floats and a choice are two.  It
# loses a NaN, and r, which is infinite or NaN where t is, brings it back.
_SCALE = """
    const uint32_t n = irc_f32_bits(shifted), half = n >> 1 << 23;
    const float scale = irc_bits_f32(half);
    return IRC_FMA_F32(p, scale, scale) * irc_bits_f32((n << 23) - half);"""
_REDUCE = """
    const float limited = irc_at_most_f32(t, 0x42b20000);
    const float shifted = IRC_FMA_F32(limited, 0x1.715476p+0f, 0x1.8001fcp+23f), whole = shifted - 0x1.8001fcp+23f;
    const float r = IRC_FMA_F32(whole, -0x1.7f7d1cp-20f, IRC_FMA_F32(whole, -0x1.62e4p-1f, t));
$exp_r"""
_EXP = f"""    const float t = x < -176.0f ? -176.0f : x;{_REDUCE}{_SCALE}"""
_EXP2 = f"""    const float t = x < -151.0f ? -151.0f : x, limited = irc_at_most_f32(t, 0x43010000);
    const float shifted = limited + 0x1.8001fcp+23f, r = (t - (shifted - 0x1.8001fcp+23f)) * 0x1.62e43p-1f;
$exp_r{_SCALE}"""
_FARTHER = """/* the larger of `most` and the bits of |x|, which are in the order of the numbers, NaN last */
IRC_MATH int32_t irc_farther_f32(int32_t most, float x) {
    const int32_t b = (int32_t)(irc_f32_bits(x) & 0x7fffffffu);
    return b > most ? b : most;
}
"""
# The same for -80 <= x <= 80.
_EXP_NEAR = """/* exp(x), -80 <= x <= 80 or NaN; any number of others */
IRC_MATH float irc_exp_near_f32(float x) {
    const float shifted = IRC_FMA_F32(x, 0x1.715476p+0f, 0x1.8000fep+23f), whole = shifted - 0x1.8000fep+23f;
    const float r = IRC_FMA_F32(whole, -0x1.7f7d1cp-20f, IRC_FMA_F32(whole, -0x1.62e4p-1f, x));
$exp_r
    const float scale = irc_bits_f32(irc_f32_bits(shifted) << 23);
    return IRC_FMA_F32(p, scale, scale);
}
"""
_EXPM1 = f"""    const float t = x < -18.0f ? -18.0f : x;{_REDUCE}
    const float scale = irc_bits_f32((irc_f32_bits(shifted) - 128u) << 23);
    const float y = 2.0f * (p * scale + (scale - 0.5f));
    return fabsf(x) < 0x1p-24f ? x : y;"""
# x = m · 2^n, sqrt(1/2) <= m < sqrt(2): adding to the bits moves the border between powers of two to sqrt(1/2).
_LOG_TAIL = """/* log(1 + f) + n · log(2) */
IRC_MATH float irc_log_sum_f32(float f, float n) {
$log_f
    const float square = f * f;
    const float y = IRC_FMA_F32(n, 0x1.7f7d1cp-20f, square * f * q);
    return IRC_FMA_F32(n, 0x1.62e4p-1f, IRC_FMA_F32(square, -0.5f, y) + f);
}
"""
_LOG = """    const float scaled = x < 0x1p-126f ? x * 0x1p+23f : x;
    const uint32_t b = irc_f32_bits(scaled) + 0x004afb0du;
    const float f = irc_bits_f32((b & 0x7fffffu) + 0x3f3504f3u) - 1.0f;
    float y = irc_log_sum_f32(f, (float)((int32_t)(b >> 23) - (x < 0x1p-126f ? 150 : 127)));
    y = x == 0.0f ? -INFINITY : y;
    y = x < 0.0f ? NAN : y;
    return x < INFINITY ? y : x;"""
_LOG1P = """    const float u = 1.0f + x, lost = x > 1.0f ? 1.0f - (u - x) : x - (u - 1.0f);
    const uint32_t b = irc_f32_bits(u) + 0x004afb0du, k = b >> 23 > 254u ? 254u : b >> 23;
    const float m = irc_bits_f32((b & 0x7fffffu) + 0x3f3504f3u);
    const float f = m - 1.0f + lost * irc_bits_f32((254u - k) << 23);
    float y = irc_log_sum_f32(f, (float)((int32_t)(b >> 23) - 127));
    y = fabsf(x) < 0x1p-24f ? x : y;
    y = x == -1.0f ? -INFINITY : y;
    y = x < -1.0f ? NAN : y;
    return x < INFINITY ? y : x;"""
# tanh(a) = e / (e + 2), e = exp(2 a) - 1 = 2^n · (exp(r) - 1) + 2^n - 1: as exact for small a as for large ones.  What
# n · ln(2) loses as one product is nothing beside what the quotient loses.
_TANH = """    const float a = fabsf(x), half = a > 10.0f ? 10.0f : a;
    const float shifted = IRC_FMA_F32(half, 0x1.715476p+1f, 0x1.8000fep+23f), whole = shifted - 0x1.8000fep+23f;
    const float r = IRC_FMA_F32(whole, -0x1.62e43p-1f, half + half);
$exp_r
    const float scale = irc_bits_f32(irc_f32_bits(shifted) << 23);
    const float e = IRC_FMA_F32(p, scale, scale - 1.0f);
    return copysignf(e / (e + 2.0f), x);"""
# 1 - exp(-e), e = a + a · q(a): as tanh, exact for small a since exp(r) - 1 is.
_ERF = """    const float a = fabsf(x), t = a > 4.0f ? 4.0f : a;
$erf_t
    const float e = IRC_FMA_F32(q, t, t);
    const float shifted = IRC_FMA_F32(e, -0x1.715476p+0f, 0x1.8000fep+23f), whole = shifted - 0x1.8000fep+23f;
    const float r = IRC_FMA_F32(whole, -0x1.62e43p-1f, -e);
$exp_r
    const float scale = irc_bits_f32(irc_f32_bits(shifted) << 23);
    return copysignf(IRC_FMA_F32(p, scale, scale - 1.0f), x);"""
# exp(x) only where adding it to 1 shows, or is infinite: 2^(n - 1) is a normal number, and twice it may be infinite.
_ONE_PLUS_EXP = """    const float t = x < -87.0f ? -87.0f : x, limited = irc_at_most_f32(t, 0x42b20000);
    const float shifted = IRC_FMA_F32(limited, 0x1.715476p+0f, 0x1.8000fcp+23f), whole = shifted - 0x1.8000fcp+23f;
    const float r = IRC_FMA_F32(whole, -0x1.7f7d1cp-20f, IRC_FMA_F32(whole, -0x1.62e4p-1f, t));
$exp_r
    const float scale = irc_bits_f32(irc_f32_bits(shifted) << 23);
    return 1.0f + IRC_FMA_F32(p, scale, scale) * 2.0f;"""
_SIGMOID = """    return 1.0f / irc_one_plus_exp_f32(-x);"""
# max(x, 0) + log(1 + e), e = exp(-|x|): 1 + e is halved where that leaves less to the logarithm.
_SOFTPLUS = """    const float e = irc_exp_f32(-fabsf(x));
    const int half = e > 0x1.a8279ap-2f;
    const float y = irc_log_sum_f32(half ? IRC_FMA_F32(e, 0.5f, -0.5f) : e, half ? 1.0f : 0.0f);
    const int32_t b = (int32_t)irc_f32_bits(x); /* a maximum of integers is one instruction, and NaN is in y */
    return irc_bits_f32((uint32_t)(b < 0 ? 0 : b)) + y;"""

# Φ(-|x|) is half of 2^(|x| · p(|x|)); the exponent stays in the low bits of `shifted`, one less and with the bias of
# exponents added: at -126 and below it is 0.  Powers are not summed apart, since of infinities that would be NaN.
_GELU = """/* x · Φ(x), at most 2.5 · 2^-24 · |x| from the exact value */
IRC_MATH float irc_gelu_f32(float x) {
    const float a = fabsf(x);
$gelu_a
    const float t = a * q < -126.0f ? -126.0f : a * q, shifted = t + 0x1.8000fcp+23f;
    const float r = t - (shifted - 0x1.8000fcp+23f);
$exp2_narrow
    const float tail = p * irc_bits_f32(irc_f32_bits(shifted) << 23);
    return x * (x < 0.0f ? tail : 1.0f - tail);
}
"""

_LOG2_WIDE = """/* log2(a), a >= 0, to 2^-37 */
IRC_MATH double irc_log2_wide(float a) {
    const float scaled = a < 0x1p-126f ? a * 0x1p+23f : a;
    const uint32_t b = irc_f32_bits(scaled) + 0x004afb0du;
    const double m = irc_bits_f32((b & 0x7fffffu) + 0x3f3504f3u);
    double n = (int32_t)(b >> 23) - (a < 0x1p-126f ? 150 : 127);
    n = a == 0.0f ? -INFINITY : n; /* here, not of the sum: compilers would make a branch around all that it needs */
    n = a < INFINITY ? n : (double)a;
    const double s = (m - 1.0) / (m + 1.0), z = s * s;
$log2_z
    return n + s * q;
}
"""
_EXP2_WIDE = """/* 2^x to 2^-29; beyond 2^1000 and 2^-1000 it stays there */
IRC_MATH double irc_exp2_wide(double x) {
    double t = x < -1000.0 ? -1000.0 : x;
    t = t > 1000.0 ? 1000.0 : t;
    const double shifted = t + 0x1.8p+52, r = t - (shifted - 0x1.8p+52);
$exp2_r
    return p * irc_bits_f64((irc_f64_bits(shifted) + 1023u) << 52);
}
"""
_LOG2 = """    const double y = irc_log2_wide(x);
    return x < 0.0f ? NAN : (float)y;"""
_LOG10 = """    const double y = irc_log2_wide(x) * 0x1.34413509f79ffp-2;
    return x < 0.0f ? NAN : (float)y;"""
_POW = """/* x^y; $bound */
IRC_MATH float irc_pow_f32(float x, float y) {
    const float a = fabsf(x), t = fabsf(y), shifted = t < 0x1p+23f ? t + 0x1p+23f : t; /* from 2^23 on y is whole */
    const int integer = (t >= 0x1p+23f) | (shifted - 0x1p+23f == t);
    const int odd = integer & (t < 0x1p+24f) & (int)(irc_f32_bits(shifted) & 1u);
    const float z = (float)irc_exp2_wide((double)y * irc_log2_wide(a));
    const int none = (x < 0.0f) & (a < INFINITY) & !integer;
    const int one = ((a == 1.0f) & (t == INFINITY)) | (x == 1.0f) | (y == 0.0f);
    /* by bits: of a choice, compilers would make a branch around all that z needs */
    const uint32_t sign = irc_f32_bits(x) & ((uint32_t)odd << 31), keep = (uint32_t)one - 1u;
    const uint32_t instead = ((uint32_t)one * 0x3f800000u) | ((uint32_t)none * 0x7fc00000u & keep);
    return irc_bits_f32(((irc_f32_bits(z) | sign) & keep) | instead);
}
"""
_POW_HALF = """/* x^0.5: minus infinity gives infinity, either zero 0 */
IRC_MATH float irc_pow_half_f32(float x) {
    const float y = sqrtf(x + 0.0f);
    return x == -INFINITY ? INFINITY : y;
}
"""

# 2/pi in pieces of 24 bits: the product of each with a float is exact in double.
_PIECES = (0xA2F983, 0x6E4E44, 0x1529FC, 0x2757D1, 0xF534DD, 0xC0DB62, 0x95993C, 0x439041, 0xFE5163)


def _piece(at: int) -> str:
    """Print the piece `at` places behind the first that is needed, times x.

    It is chosen by masks: few processors read a table well in a vectorised loop, and compilers leave such a loop to
    scalar code for the others.
    """
    words = _PIECES[at : at + 5]
    changes = "".join(f" ^ (m{k} & 0x{words[k - 1] ^ words[k]:06x})" for k in range(1, 5))
    return f"t * ((0x{words[0]:06x}{changes}) * 0x1p-{24 * at + 24})"


_QUARTERS = f"""/* x = whole + result quarter turns, |result| <= 1/2.  Pieces of 2/pi that give nothing but whole turns
 * are left out: the first where m1, the second where m2, and so on. */
IRC_MATH double irc_quarters_f32(float x, uint32_t *whole) {{
    const int32_t e = (int32_t)(irc_f32_bits(x) >> 23 & 255u);
    const int32_t m1 = -(e >= 176), m2 = -(e >= 200), m3 = -(e >= 224), m4 = -(e >= 248);
    const double t = x * irc_bits_f32((uint32_t)(127 + 24 * (m1 + m2 + m3 + m4)) << 23);
    const double a = {_piece(0)};
    const double b = {_piece(1)};
    const double c = {_piece(2)};
    const double rest = {_piece(3)}
                        + {_piece(4)};
    const double shift = 0x1.8p+52, p = a + shift, q = b + shift;
    const double near = (a - (p - shift)) + (b - (q - shift)), r = near + c + shift;
    *whole = (uint32_t)(irc_f64_bits(p) + irc_f64_bits(q) + irc_f64_bits(r));
    return near - (r - shift) + c + rest;
}}
"""
# The same of x up to `NEAR`, by pi/2 in two pieces: the product of the first, of 33 bits, with 20 bits is exact.
_NEAR_QUARTERS = """/* the same where |x| <= 2^20 or NaN */
IRC_MATH double irc_near_quarters_f32(float x, uint32_t *whole) {
    const double shifted = x * 0x1.45f306dc9c883p-1 + 0x1.8p+52, n = shifted - 0x1.8p+52;
    *whole = (uint32_t)irc_f64_bits(shifted);
    return ((x - n * 0x1.921fb544p+0) - n * 0x1.0b4611a626331p-34) * 0x1.45f306dc9c883p-1;
}
"""
_SINE = """/* sin((whole + r) · pi/2), |r| <= 1/2 */
IRC_MATH float irc_sine_f32(double r, uint32_t whole) {
    const double s = r * r;
$sin_s
$cos_s
    const float y = (float)(whole & 1u ? q : r * p);
    return whole & 2u ? -y : y;
}
"""
_TURNS = """    uint32_t whole;
    const double r = irc_quarters_f32(x, &whole)"""
_SIN = f"{_TURNS};\n    return irc_sine_f32(r, whole);"
_COS = f"{_TURNS};\n    return irc_sine_f32(r, whole + 1u);"
_TAN = f"""{_TURNS}, s = r * r;
$sin_s
$cos_s
    p *= r;
    return (float)(whole & 1u ? -q / p : p / q);"""
_SINH = """    const float s = x * x;
$sinh_s
    const double e = irc_exp2_wide(fabs((double)x) * 0x1.71547652b82fep+0);
    const float large = (float)(0.5 * e - 0.5 / e);
    return fabsf(x) < 1.0f ? x + x * (s * p) : copysignf(large, x);"""
_COSH = """    const double e = irc_exp2_wide((double)x * 0x1.71547652b82fep+0);
    return (float)(0.5 * e + 0.5 / e);"""
# Beyond 1/2 by asin(x) = pi/2 - 2 asin(sqrt((1 - x) / 2)), the square root s plus q; pi/2 and pi are two floats each.
_ARCS = """    const float a = fabsf(x);
    const int large = a > 0.5f;
    const float s = large ? 0.5f - 0.5f * a : x * x, r = large ? sqrtf(s) : a;
$asin_s
    const float q = r * (s * p);
"""
_ASIN = f"""{_ARCS}    const float y = (0x1.921fb6p+0f - 2.0f * r) - (2.0f * q + 0x1.777a5cp-25f);
    return copysignf(large ? y : r + q, x);"""
_ACOS = f"""{_ARCS}    const float y = (0x1.921fb6p+1f - 2.0f * r) - (2.0f * q + 0x1.777a5cp-24f);
    const float z = 0x1.921fb6p+0f - (x + (copysignf(q, x) + 0x1.777a5cp-25f)), w = x < 0.0f ? y : 2.0f * r + 2.0f * q;
    return large ? w : z;"""
_ATAN = """    const float a = fabsf(x), r = a > 1.0f ? 1.0f / a : a, s = r * r;
$atan_s
    const float q = r * (s * p), y = (0x1.921fb6p+0f - r) - (q + 0x1.777a5cp-25f);
    return copysignf(a > 1.0f ? y : r + q, x);"""
_ASINH = """    const float a = fabsf(x);
    const double d = a, s = d * d;
    const float y = irc_log1p_f32((float)(d + s / (1.0 + sqrt(1.0 + s))));
    return copysignf(a < 1e5f ? y : irc_log_f32(a) + 0x1.62e43p-1f, x);"""
_ACOSH = """    const double d = (double)x - 1.0;
    const float y = irc_log1p_f32((float)(d + sqrt(d * (d + 2.0))));
    return x < 1.0f ? NAN : x < 1e5f ? y : irc_log_f32(x) + 0x1.62e43p-1f;"""
_ATANH = """    const double a = fabs((double)x);
    return copysignf(0.5f * irc_log1p_f32((float)(2.0 * a / (1.0 - a))), x);"""
_BITS = {
    "math": """/* A call that is left in a loop keeps it from being vectorised. */
#if defined(__GNUC__)
#define IRC_MATH static inline __attribute__((always_inline))
#else
#define IRC_MATH static inline
#endif
/* a * b + c */
#if defined(__FMA__) || defined(__aarch64__)
#define IRC_FMA_F32(a, b, c) fmaf(a, b, c)
#define IRC_FMA_F64(a, b, c) fma(a, b, c)
#else
#define IRC_FMA_F32(a, b, c) ((a) * (b) + (c))
#define IRC_FMA_F64(a, b, c) ((a) * (b) + (c))
#endif
""",
    "f64_bits": """static inline uint64_t irc_f64_bits(double x) {
    uint64_t b;
    memcpy(&b, &x, sizeof b);
    return b;
}
""",
    "bits_f64": """static inline double irc_bits_f64(uint64_t b) {
    double x;
    memcpy(&x, &b, sizeof x);
    return x;
}
""",
}


def _fused(c_type: str, name: str, x: str, coefficients: tuple[str, ...]) -> str:
    """Print C statements that declare `name` as the polynomial's value at `x`.

    Even and odd powers are summed apart, so that the chain of operations that wait for each other is half as long:
    processors look ahead by less than two iterations of a loop around a few of these functions.
    """
    suffix, fused = ("f", "IRC_FMA_F32") if c_type == "float" else ("", "IRC_FMA_F64")
    if len(coefficients) < 6:
        return horner(c_type, name, x, coefficients, suffix, fused)
    square = f"{name}_{x}{x}"
    parts = {f"{name}_odd": coefficients[-2::-2][::-1], f"{name}_even": coefficients[-1::-2][::-1]}
    lines = [f"    const {c_type} {square} = {x} * {x};"]
    lines += [horner(c_type, part, square, found, suffix, fused) for part, found in parts.items()]
    return "\n".join([*lines, f"    {c_type} {name} = {fused}({name}_odd, {x}, {name}_even);"])


def _exp_less_one() -> str:
    """Print C statements that declare `p` as exp(r) - 1; upper powers of the polynomial and lower ones apart."""
    return "\n".join(
        [
            "    const float p_rr = r * r;",
            horner("const float", "p_low", "r", poly.EXP[-2:], fused="IRC_FMA_F32"),
            horner("float", "p_high", "r", poly.EXP[:-2], fused="IRC_FMA_F32"),
            "    const float p = IRC_FMA_F32(IRC_FMA_F32(p_high, p_rr, p_low), p_rr, r);",
        ]
    )


_PLACES = {
    "exp_r": _exp_less_one(),
    "log_f": _fused("float", "q", "f", poly.LOG),
    "erf_t": _fused("float", "q", "t", poly.ERF),
    "gelu_a": horner("float", "q", "a", poly.ERFC_LOG2, fused="IRC_FMA_F32"),
    "exp2_narrow": horner("float", "p", "r", poly.EXP2, fused="IRC_FMA_F32"),
    "sinh_s": _fused("float", "p", "s", poly.SINH),
    "log2_z": _fused("double", "q", "z", poly.LOG2_WIDE),
    "exp2_r": _fused("double", "p", "r", poly.EXP2_WIDE),
    "sin_s": _fused("double", "p", "s", poly.SIN_QUARTER),
    "cos_s": _fused("double", "q", "s", poly.COS_QUARTER),
    "asin_s": _fused("float", "p", "s", poly.ASIN),
    "atan_s": _fused("float", "p", "s", poly.ATAN),
}
_BITS_F32 = ("f32_bits", "bits_f32")
_BITS_F64 = ("f64_bits", "bits_f64")
# Definitions that functions share: (text, needs).
_SHARED: dict[str, tuple[str, tuple[str, ...]]] = {
    "at_most_f32": (_AT_MOST, _BITS_F32),
    "farther_f32": (_FARTHER, ("f32_bits",)),
    "exp_near_f32": (_EXP_NEAR, _BITS_F32),
    "log_sum_f32": (_LOG_TAIL, ()),
    "log2_wide": (_LOG2_WIDE, _BITS_F32),
    "exp2_wide": (_EXP2_WIDE, _BITS_F64),
    "quarters_f32": (_QUARTERS, ("f32_bits", "bits_f32", "f64_bits")),
    "near_quarters_f32": (_NEAR_QUARTERS, ("f64_bits",)),
    "sine_f32": (_SINE, ()),
    "gelu_f32": (_GELU, _BITS_F32),
}
# Functions of one argument: (body, needs), each after what it needs.
_UNARY: dict[str, tuple[str, tuple[str, ...]]] = {
    "exp": (_EXP, ("at_most_f32", *_BITS_F32)),
    "exp2": (_EXP2, ("at_most_f32", *_BITS_F32)),
    "expm1": (_EXPM1, ("at_most_f32", *_BITS_F32)),
    "log": (_LOG, ("log_sum_f32", *_BITS_F32)),
    "log1p": (_LOG1P, ("log_sum_f32", *_BITS_F32)),
    "log2": (_LOG2, ("log2_wide",)),
    "log10": (_LOG10, ("log2_wide",)),
    "tanh": (_TANH, _BITS_F32),
    "erf": (_ERF, _BITS_F32),
    "one_plus_exp": (_ONE_PLUS_EXP, ("at_most_f32", *_BITS_F32)),
    "sigmoid": (_SIGMOID, ("one_plus_exp_f32",)),
    "softplus": (_SOFTPLUS, ("exp_f32", "log_sum_f32", *_BITS_F32)),
    "sin": (_SIN, ("quarters_f32", "sine_f32")),
    "cos": (_COS, ("quarters_f32", "sine_f32")),
    "tan": (_TAN, ("quarters_f32",)),
    "sinh": (_SINH, ("exp2_wide",)),
    "cosh": (_COSH, ("exp2_wide",)),
    "atan": (_ATAN, ()),
    "asin": (_ASIN, ()),
    "acos": (_ACOS, ()),
    "asinh": (_ASINH, ("log_f32", "log1p_f32")),
    "acosh": (_ACOSH, ("log_f32", "log1p_f32")),
    "atanh": (_ATANH, ("log1p_f32",)),
}
NEAR = float(1 << 20)
"""Up to where, on either side of 0, functions of angles have a shorter helper, `<name>_near_f32`."""
NEAR_EXPONENTS = 80.0
"""Likewise for `exp_near_f32`."""
OF_ANGLES = ("sin", "cos", "tan")
FUNCTIONS = frozenset(_UNARY) | {"pow"}
"""Functions of f32 that have a helper `<name>_f32`."""
POWERS = {
    2.0: ("square_f32", "x * x", "1/2 ULP"),
    3.0: ("cube_f32", "x * x * x", "1 ULP"),
    -1.0: ("reciprocal_f32", "1.0f / x", "1/2 ULP"),
}
"""Exponent → helper, its expression and error; 0.5 has `pow_half_f32`."""


def math_helpers(make: Callable[..., Any]) -> dict[str, Any]:
    """Build all helpers by name, in an order in which each follows what it needs; `make(code, needs)` builds one."""
    found: dict[str, Any] = {name: make(code) for name, code in _BITS.items()}
    for name, (text, needs) in _SHARED.items():
        found[name] = make(Template(text).substitute(_PLACES), ("math", *needs))
    for name, (body, needs) in _UNARY.items():
        text = Template(body).substitute(_PLACES)
        head = f"/* {_bound(name)} */\nIRC_MATH float irc_{name}_f32(float x) {{\n"
        found[f"{name}_f32"] = make(f"{head}{text}\n}}\n", ("math", *needs))
    for name in OF_ANGLES:
        body = _UNARY[name][0].replace("irc_quarters_f32", "irc_near_quarters_f32")
        text = Template(body).substitute(_PLACES)
        head = f"/* the same where |x| <= 2^20 or NaN */\nIRC_MATH float irc_{name}_near_f32(float x) {{\n"
        found[f"{name}_near_f32"] = make(f"{head}{text}\n}}\n", ("math", "near_quarters_f32", "sine_f32"))
    power = Template(_POW).substitute(bound=_bound("pow"))
    found["pow_f32"] = make(power, ("math", "log2_wide", "exp2_wide", *_BITS_F32))
    found["pow_half_f32"] = make(_POW_HALF, ("math",))
    for name, text, bound in POWERS.values():
        found[name] = make(f"/* {bound} */\nIRC_MATH float irc_{name}(float x) {{\n    return {text};\n}}\n", ("math",))
    return found


def _bound(name: str) -> str:
    return f"at most {ULP[name]:g} ULP from the exact value"
