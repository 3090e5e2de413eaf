"""Mathematical functions of f64 as C helpers, like those of f32 (`irc.backends.c.math`): no branches and no calls.

exp is its Taylor series around 0, whose 13 powers err by less than 2^-57 of the result; the logarithm is that of
FDLIBM (Sun Microsystems, e_log.c), and so is the natural logarithm of 2 in two pieces.  The others are made of these.
Functions not here call the C library.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from irc.kernels.vector.polynomials import horner

ULP_F64: dict[str, float] = {"exp": 1.05, "expm1": 2.1, "log": 1.0, "log1p": 1.6, "tanh": 2.7}
"""Function of f64 → largest error in units of the last place."""

# exp(r) = 1 + r + r² · p(r), |r| <= ln(2)/2; coefficients highest power first.
_TAYLOR = tuple((1 / math.factorial(k)).hex() for k in range(13, 1, -1))
# log(1 + f) = f - f²/2 + s · (f²/2 + z · q(z)), s = f / (2 + f), z = s²
_LOG_Z = (
    "0x1.2f112df3e5244p-3",
    "0x1.39a09d078c69fp-3",
    "0x1.7466496cb03dep-3",
    "0x1.c71c51d8e78afp-3",
    "0x1.2492494229359p-2",
    "0x1.999999997fa04p-2",
    "0x1.5555555555593p-1",
)


def _exp_less_one() -> str:
    """Print C statements that declare `p` as exp(r) - 1; even and odd powers are summed apart."""
    even, odd = _TAYLOR[1::2], _TAYLOR[0::2]
    return "\n".join(
        [
            "    const double rr = r * r;",
            horner("double", "p_odd", "rr", odd, "", "IRC_FMA_F64"),
            horner("double", "p_even", "rr", even, "", "IRC_FMA_F64"),
            "    const double p = IRC_FMA_F64(IRC_FMA_F64(p_odd, r, p_even), rr, r);",
        ]
    )


def _reduced(limited: str, shift: str) -> str:
    """Print C statements that declare `p` as exp(r) - 1 of what is left of a number by whole multiples of log(2).

    The multiple stands in the low bits of `shifted`, with what `shift` has there added.
    """
    return f"""
    const double shifted = IRC_FMA_F64({limited}, 0x1.71547652b82fep+0, {shift}), whole = shifted - {shift};
    const double r = IRC_FMA_F64(whole, -0x1.a39ef35793c76p-33, IRC_FMA_F64(whole, -0x1.62e42feep-1, {limited}));
{_exp_less_one()}
"""


_BOTH = "0x1.80000000007fep+52"  # exponents and twice their bias
_EXP = f"""    const double above = x < -1418.0 ? -1418.0 : x, t = above > 710.0 ? 710.0 : above;{_reduced("t", _BOTH)}\
    const uint64_t n = irc_f64_bits(shifted), half = n >> 1 << 52;
    const double scale = irc_bits_f64(half);
    return IRC_FMA_F64(p, scale, scale) * irc_bits_f64((n << 52) - half);"""
_EXPM1 = f"""    const double above = x < -40.0 ? -40.0 : x, t = above > 710.0 ? 710.0 : above;{_reduced("t", _BOTH)}\
    const double scale = irc_bits_f64((irc_f64_bits(shifted) - 1024u) << 52);
    const double y = 2.0 * IRC_FMA_F64(p, scale, scale - 0.5);
    return fabs(x) < 0x1p-54 ? x : y;"""
_LOG_SUM = f"""/* log(1 + f) + n · log(2) */
IRC_MATH double irc_log_sum_f64(double f, double n) {{
    const double s = f / (2.0 + f), z = s * s, half = 0.5 * f * f;
{horner("double", "q", "z", _LOG_Z, "", "IRC_FMA_F64")}
    const double low = IRC_FMA_F64(s, IRC_FMA_F64(z, q, half), n * 0x1.a39ef35793c76p-33);
    return IRC_FMA_F64(n, 0x1.62e42feep-1, f - (half - low));
}}
"""
_LOG = """    const int tiny = x < 0x1p-1022;
    const uint64_t b = irc_f64_bits(tiny ? x * 0x1p+54 : x) + 0x00095f619980c433u;
    const double f = irc_bits_f64((b & 0xfffffffffffffu) + 0x3fe6a09e667f3bcdu) - 1.0;
    const double e = irc_bits_f64(b >> 52 | 0x4330000000000000u) - (tiny ? 0x1p+52 + 1077.0 : 0x1p+52 + 1023.0);
    double y = irc_log_sum_f64(f, e);
    y = x == 0.0 ? -INFINITY : y;
    y = x < 0.0 ? NAN : y;
    return x < INFINITY ? y : x;"""
_LOG1P = """    const double u = 1.0 + x, lost = x > 1.0 ? 1.0 - (u - x) : x - (u - 1.0);
    const uint64_t b = irc_f64_bits(u) + 0x00095f619980c433u, k = b >> 52, far = k > 2046u ? 2046u : k;
    const double m = irc_bits_f64((b & 0xfffffffffffffu) + 0x3fe6a09e667f3bcdu);
    const double f = m - 1.0 + lost * irc_bits_f64((2046u - far) << 52);
    double y = irc_log_sum_f64(f, irc_bits_f64(k | 0x4330000000000000u) - (0x1p+52 + 1023.0));
    y = fabs(x) < 0x1p-54 ? x : y;
    y = x == -1.0 ? -INFINITY : y;
    y = x < -1.0 ? NAN : y;
    return x < INFINITY ? y : x;"""
# tanh(a) = e / (e + 2), e = exp(2 a) - 1: as exact for small a as for large ones; from 20 on it rounds to 1.
_TANH = f"""    const double a = fabs(x), half = a > 20.0 ? 20.0 : a;
    const double t = half + half;{_reduced("t", "0x1.80000000003ffp+52")}\
    const double scale = irc_bits_f64(irc_f64_bits(shifted) << 52);
    const double e = IRC_FMA_F64(p, scale, scale - 1.0);
    return copysign(e / (e + 2.0), x);"""
_BITS = ("f64_bits", "bits_f64")
_UNARY: dict[str, tuple[str, tuple[str, ...]]] = {
    "exp": (_EXP, _BITS),
    "expm1": (_EXPM1, _BITS),
    "log": (_LOG, ("log_sum_f64", *_BITS)),
    "log1p": (_LOG1P, ("log_sum_f64", *_BITS)),
    "tanh": (_TANH, _BITS),
}
FUNCTIONS_F64 = frozenset(_UNARY)
"""Functions of f64 that have a helper `<name>_f64`."""


def math_helpers_f64(make: Callable[..., Any]) -> dict[str, Any]:
    """Build the helpers by name, each after what it needs, like `irc.backends.c.math.math_helpers`."""
    found: dict[str, Any] = {"log_sum_f64": make(_LOG_SUM, ("math",))}
    for name, (body, needs) in _UNARY.items():
        head = (
            f"/* at most {ULP_F64[name]:g} ULP from the exact value */\nIRC_MATH double irc_{name}_f64(double x) {{\n"
        )
        found[f"{name}_f64"] = make(f"{head}{body}\n}}\n", ("math", *needs))
    return found
