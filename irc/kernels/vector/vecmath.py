"""Mathematical functions over vectors, as C text.

f32 functions are polynomials of our own, fitted so that the largest weighted error over the stated range is least;
their errors against the exact value, over every range that the tests cover (infinities, NaN, denormals included):

    exp 1.5 ULP · log 1.5 ULP · tanh 2.7 ULP · erf 2 ULP · sigmoid 3 ULP above -87, 1.2e-38 below · sqrt exact
    exp_added 1.5 ULP above -86, 2.4e-38 below: exp where it is added to 1
    expm1 2 ULP · log1p 2 ULP · sin 2 ULP · cos 2 ULP · atan 2.5 ULP
    round exact, halves to even
    gelu 2.5 · 2^-24 · |x|: what x/2 · (1 + erf(x/√2)) loses in its roundings

f64 functions, and the f32 functions in `LIBRARY`, call the C library lane by lane.  All are compiled with products
and sums contracted.
"""

from __future__ import annotations

from collections.abc import Iterable

from irc.ir.types import DType
from irc.kernels.core.isa import C_TYPES, vector_name
from irc.kernels.core.text import Piece, fill
from irc.kernels.vector import polynomials as poly
from irc.kernels.vector.polynomials import horner

LIBRARY = ("sqrt", "floor", "ceil", "trunc", "exp2")  # lane by lane
FUNCTIONS = frozenset(
    {
        "exp",
        "exp_added",
        "expm1",
        "log",
        "log1p",
        "tanh",
        "erf",
        "sigmoid",
        "gelu",
        "sin",
        "cos",
        "atan",
        "round",
        *LIBRARY,
    }
)

# exp(x) = 2^n · exp(r), |r| <= ln(2)/2: n by adding 1.5 · 2^23, which leaves it in the low bits; 2^n in two factors,
# so that results below the normal range are rounded once and those above it become infinite; or by the instruction that
# multiplies by powers of two, which does the same.  Where the result is 0, no product underflows, which would take a
# hundred cycles.
_EXP = """
    const $V t = ${V}_at_least(${V}_all(-176.0f), ${V}_at_most(${V}_all(89.0f), x));
    const $V shifted = t * 0x1.715476p+0f + 0x1.8p+23f;
    const $V whole = shifted - 0x1.8p+23f;
    const $V r = (t - whole * 0x1.62e4p-1f) - whole * 0x1.7f7d1cp-20f;
$exp_r
    p = p * (r * r) + r + 1.0f;
#if defined(__AVX512F__) && $bytes == 64
    $V y;
    uint16_t above;
    __asm__("vcmpnltps %2, %1, %0" : "=Yk"(above) : "v"(x), "v"(${V}_all(-104.0f)));
    __asm__("vscalefps %2, %1, %0 %{%3%}%{z%}" : "=v"(y) : "v"(p), "v"(whole), "Yk"(above));
    return y;
#else
    const ${V}_mask n = (${V}_mask)shifted - 0x4b400000, half = n >> 1;
    return p * ($V)((half + 127) << 23) * ($V)((n - half + 127) << 23);
#endif"""

# x = m · 2^n, sqrt(1/2) <= m < sqrt(2): log(x) = n · ln(2) + f - f²/2 + f³ · q(f), f = m - 1.
_LOG = """
    const ${V}_mask tiny = (${V}_mask)(x < 0x1p-126f);
    const $V scaled = ${V}_select(tiny, x * 0x1p+23f, x);
    const ${V}_mask bits = (${V}_mask)((${V}_bits)scaled - 0x3f3504f3u);
    const ${V}_mask n = (bits >> 23) - (tiny & 23);
    const $V f = ($V)((bits & 0x7fffff) + 0x3f3504f3) - 1.0f;
    const $V e = __builtin_convertvector(n, $V);
$log_f
    const $V square = f * f;
    $V y = e * 0x1.7f7d1cp-20f + square * f * q;
    y = y - 0.5f * square + f;
    y = y + e * 0x1.62e4p-1f;
    y = ${V}_select((${V}_mask)(x == 0.0f), ${V}_all(-INFINITY), y);
    y = ${V}_select((${V}_mask)(x < 0.0f), ${V}_all(NAN), y);
    return ${V}_select((${V}_mask)(x < INFINITY), y, x);"""

# 2 · (2^(n - 1) · (exp(r) - 1) + 2^(n - 1) - 1/2), as exact for small |x| as for large ones.  The exponent stays in the
# low bits of `shifted`, one less and with the bias of exponents added; from -18 down the result rounds to -1.
_EXPM1 = """
    const $V t = ${V}_at_least(${V}_all(-18.0f), ${V}_at_most(${V}_all(89.0f), x));
    const $V shifted = t * 0x1.715476p+0f + 0x1.8000fcp+23f, n = shifted - 0x1.8000fcp+23f;
    const $V r = (t - n * 0x1.62e4p-1f) - n * 0x1.7f7d1cp-20f;
$exp_r
    const $V scale = ($V)((${V}_bits)shifted << 23), y = 2.0f * ((p * (r * r) + r) * scale + (scale - 0.5f));
    return ${V}_select((${V}_mask)(${V}_abs(x) < 0x1p-24f), x, y);"""

# log(u), u = 1 + x as above, but f takes what u lost in its rounding.
_LOG1P = """
    const $V u = 1.0f + x, lost = ${V}_select((${V}_mask)(x > 1.0f), 1.0f - (u - x), x - (u - 1.0f));
    const ${V}_bits bits = (${V}_bits)u + 0x004afb0du, k = bits >> 23;
    const $V m = ($V)((bits & 0x7fffffu) + 0x3f3504f3u);
    const $V f = m - 1.0f + lost * ($V)((254u - k) << 23 & (${V}_bits)(k <= 254u));
    const $V e = __builtin_convertvector((${V}_mask)k - 127, $V);
$log_f
    const $V square = f * f;
    $V y = e * 0x1.7f7d1cp-20f + square * f * q;
    y = y - 0.5f * square + f;
    y = y + e * 0x1.62e4p-1f;
    y = ${V}_select((${V}_mask)(${V}_abs(x) < 0x1p-24f), x, y);
    y = ${V}_select((${V}_mask)(x == -1.0f), ${V}_all(-INFINITY), y);
    y = ${V}_select((${V}_mask)(x < -1.0f), ${V}_all(NAN), y);
    return ${V}_select((${V}_mask)(x < INFINITY), y, x);"""

# x = (n + quarter) · pi/2: n by adding 1.5 · 2^23, which leaves it in the low bits; the rest by pi/2 in three pieces,
# which products that are not rounded take off almost without a loss up to 2^13.  Farther off, and without such
# products, by the library.  Odd n take the other function, and every second pair of them the other sign.
_ANGLE = """
#if defined(__FMA__) || defined(__aarch64__)
    float lanes[$L];
    int far = 0;
    ${V}_store(lanes, x);
    for (int i = 0; i < $L; i++) far |= !(fabsf(lanes[i]) <= 0x1p+13f);
    if (!far) {
        const $V shifted = x * 0x1.45f306p-1f + 0x1.8p+23f, n = shifted - 0x1.8p+23f;
        const $V r = ((x - n * 0x1.921fb6p+0f) - n * -0x1.777a5cp-25f) - n * -0x1.ee59dap-50f, s = r * r;
$sin_s
$cos_s
        const ${V}_mask turn = (${V}_mask)shifted + $turned, odd = (turn & 1) != 0;
        const $V y = ${V}_select(odd, q, p * (s * r) + r);
        return ($V)((${V}_mask)y ^ ((turn & 2) << 30));
    }
    for (int i = 0; i < $L; i++) lanes[i] = $call;
    return ${V}_load(lanes);
#else
    float lanes[$L];
    ${V}_store(lanes, x);
    for (int i = 0; i < $L; i++) lanes[i] = $call;
    return ${V}_load(lanes);
#endif"""

# Beyond 1 by atan(x) = pi/2 - atan(1/x); pi/2 is two floats.
_ATAN = """
    const $V a = ${V}_abs(x), r = ${V}_select((${V}_mask)(a > 1.0f), 1.0f / a, a), s = r * r;
$atan_s
    const $V q = r * (s * p), far = (0x1.921fb6p+0f - r) - (q + 0x1.777a5cp-25f);
    const $V y = ${V}_select((${V}_mask)(a > 1.0f), far, r + q);
    return ($V)((${V}_mask)y | ((${V}_mask)x & (int32_t)0x80000000));"""

# e / (e + 2), e = exp(2|x|) - 1 = 2^n · (exp(r) - 1) + 2^n - 1: as exact for small |x| as for large ones; from 10 on it
# rounds to 1.  What n · ln(2) loses as one product is nothing beside what the quotient loses.  The exponent stays in
# the low bits of `shifted`, with the bias of exponents added.
_TANH = """
    const $V a = ${V}_at_most(${V}_all(10.0f), ${V}_abs(x));
    const $V shifted = a * 0x1.715476p+1f + 0x1.8000fep+23f, n = shifted - 0x1.8000fep+23f;
    const $V r = (a + a) - n * 0x1.62e43p-1f;
$exp_r
    const $V scale = ($V)((${V}_bits)shifted << 23), e = (p * (r * r) + r) * scale + (scale - 1.0f);
    const $V y = e / (e + 2.0f);
    return ($V)((${V}_mask)y | ((${V}_mask)x & (int32_t)0x80000000));"""

# 1 - exp(-e), e = |x| + |x| · q(|x|), with exp(r) - 1 as for tanh; from 4 on it rounds to 1.
_ERF = """
    const $V t = ${V}_at_most(${V}_all(4.0f), ${V}_abs(x));
$erf_t
    const $V e = t * q + t;
    const $V shifted = e * -0x1.715476p+0f + 0x1.8000fep+23f, n = shifted - 0x1.8000fep+23f;
    const $V r = n * -0x1.62e43p-1f - e;
$exp_r
    const $V scale = ($V)((${V}_bits)shifted << 23), y = (p * (r * r) + r) * scale + (scale - 1.0f);
    return ($V)(((${V}_mask)y & 0x7fffffff) | ((${V}_mask)x & (int32_t)0x80000000));"""

# exp(x) where it is added to 1: as above, but 2^(n - 1) is one factor, a normal number, and twice it may be infinite;
# below 2^-125 nothing would show.  The exponent stays in the low bits of `shifted`, one less and with the bias of
# exponents added.
_EXP_ADDED = """
    const $V t = ${V}_at_least(${V}_all(-87.0f), ${V}_at_most(${V}_all(89.0f), x));
    const $V shifted = t * 0x1.715476p+0f + 0x1.8000fcp+23f, n = shifted - 0x1.8000fcp+23f;
    const $V r = (t - n * 0x1.62e4p-1f) - n * 0x1.7f7d1cp-20f;
$exp_r
    p = p * (r * r) + r + 1.0f;
    return 2.0f * (p * ($V)((${V}_bits)shifted << 23));"""

_SIGMOID = """
    return 1.0f / (1.0f + ${V}_exp_added(-x));"""

# x · Φ(x): Φ(-|x|) is half of 2^(|x| · p(|x|)).  The exponent stays in the low bits of `shifted`, one less and with the
# bias of exponents added; at -126 and below it is 0.
_GELU = """
    const $V a = ${V}_abs(x);
$gelu_a
    const $V t = ${V}_at_least(${V}_all(-126.0f), a * q), shifted = t + 0x1.8000fcp+23f;
    const $V r = t - (shifted - 0x1.8000fcp+23f);
$exp2_r
    const $V tail = p * ($V)((${V}_bits)shifted << 23);
    return x * ${V}_select((${V}_mask)(x < 0.0f), tail, 1.0f - tail);"""

# To whole numbers, halves to even ones: an instruction, which compilers do not find in the loop.
_ROUND = """
#if defined(__AVX512F__) && $bytes == 64
    __asm__("vrndscaleps $$8, %1, %0" : "=v"(x) : "v"(x));
    return x;
#elif defined(__AVX__) && $bytes <= 32
    __asm__("vroundps $$8, %1, %0" : "=x"(x) : "x"(x));
    return x;
#else
    float lanes[$L];
    ${V}_store(lanes, x);
    for (int i = 0; i < $L; i++) lanes[i] = rintf(lanes[i]);
    return ${V}_load(lanes);
#endif"""

_LANES = """
    $T lanes[$L];
    ${V}_store(lanes, x);
    for (int i = 0; i < $L; i++) lanes[i] = $call;
    return ${V}_load(lanes);"""

_BODIES = {
    "exp": _EXP,
    "exp_added": _EXP_ADDED,
    "expm1": _EXPM1,
    "log": _LOG,
    "log1p": _LOG1P,
    "tanh": _TANH,
    "erf": _ERF,
    "sigmoid": _SIGMOID,
    "gelu": _GELU,
    "sin": _ANGLE,
    "cos": _ANGLE,
    "atan": _ATAN,
    "round": _ROUND,
}
_TURNED = {"cos": 1}
"""Quarter turns by which a function of angles is ahead of the sine."""
_CALLS = {
    "exp_added": "exp(lanes[i])",
    "sigmoid": "1 / (1 + exp(-lanes[i]))",
    "gelu": "lanes[i] * 0.5 * erfc(lanes[i] * -0.70710678118654752440)",
}
_NEEDS = {"sigmoid": ("exp_added",)}


def definitions(functions: Iterable[str], lanes: int, dtype: DType) -> list[Piece]:
    """Print the functions (and those they call) for vectors of `lanes` elements."""
    wanted = dict.fromkeys(n for f in functions for n in (*_NEEDS.get(f, ()), f))
    return [_definition(f, lanes, dtype) for f in wanted]


def _definition(function: str, lanes: int, dtype: DType) -> Piece:
    v, scalar = vector_name(lanes, dtype), C_TYPES[dtype.name][0]
    body = _BODIES.get(function, _LANES) if dtype.name == "f32" else _LANES
    suffix = "f" if dtype.name == "f32" else ""
    given = "rint" if function == "round" else function
    call = _CALLS.get(function, f"{given}{suffix}(lanes[i])")
    places = {
        "exp_r": horner(v, "p", "r", poly.EXP),
        "log_f": horner(v, "q", "f", poly.LOG),
        "erf_t": horner(v, "q", "t", poly.ERF),
        "gelu_a": horner(v, "q", "a", poly.ERFC_LOG2),
        "exp2_r": horner(v, "p", "r", poly.EXP2),
        "sin_s": horner(v, "p", "s", poly.SIN),
        "cos_s": horner(v, "q", "s", poly.COS),
        "atan_s": horner(v, "p", "s", poly.ATAN),
        "turned": str(_TURNED.get(function, 0)),
    }
    text = fill(body, V=v, T=scalar, L=lanes, call=call, bytes=lanes * dtype.itemsize, **places)
    code = f"IRC_HELPER {v} {v}_{function}({v} x) {{{text}\n}}\n"
    return Piece(f"IRC_VECTOR_{v}_{function}", code, (f"{v}_{function}",))
