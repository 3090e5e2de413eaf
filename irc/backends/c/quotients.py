"""C helpers for quotients and remainders that compilers make vectors of: no processor divides vectors of integers.

Numbers of 8 and 16 bits have exact quotients in f32, those of 32 bits in f64: a quotient of n-bit numbers that is not
whole is further from the next whole number than numbers of 2 n bits are rounded.  Numbers of 32 and 64 bits that are
`near` 0 take f32, too.  Remainders of floats are exact by one division and one fused step where the quotient has few
digits; loops ask for that first (`irc.backends.c.near_loops`), and call the C library for what is left.
"""

from __future__ import annotations

from collections.abc import Callable
from string import Template
from typing import Any

from irc.backends.c.types import storage
from irc.expr import Bin, Call, Const, Expr
from irc.ir.types import dtype

OPERATIONS = ("div", "floordiv", "mod", "rem")
LARGEST = 1 << 24
"""Up to where, on either side of 0, f32 has every whole number."""
_RESULTS = {"div": "q", "floordiv": "q + irc_other_sign(r, y)", "mod": "r + (y & irc_other_sign(r, y))", "rem": "r"}
_OTHER_SIGN = """/* -1 if r is not 0 and its sign is not that of y, else 0 */
static inline int32_t irc_other_sign(int32_t r, int32_t y) {
    const uint32_t a = (uint32_t)r;
    return (int32_t)((a ^ (uint32_t)y) & (a | (0u - a))) >> 31;
}
"""
_UNSIGNED = {"floordiv": "div", "mod": "rem"}
_VECTOR = """/* The same, for vectors. */
static inline $c irc_${op}_vector_$k($c a, $c b) {
#if defined(__AVX2__)
$quotient
    return b == 0 ? 0 : ($c)($result);
#else
    return irc_${op}_$k(a, b);
#endif
}
"""
_NEAR = """/* The same where irc_far_$k is 0. */
static inline $c irc_${op}_near_$k($c a, $c b) {
$quotient
    return ($c)($result);
}
"""
_BY_F32 = """    const int32_t x = (int32_t)a, y = (int32_t)b, q = (int32_t)((float)x / $divisor);"""
_REST = "\n    const int32_t r = x - q * y;"
_BY_F64 = """    const double exact = (double)a / (b == 0 ? 1.0 : (double)b);
    const int32_t q = (int32_t)(exact > 2147483647.0 ? -2147483648.0 : exact);"""
_BY_F64_UNSIGNED = """    const double exact = (double)a / (b == 0 ? 1.0 : (double)b);
    const uint32_t q = (uint32_t)irc_f64_bits(floor(exact) + 0x1p52);"""
_REST_OF_32 = "\n    const $whole y = b, r = ($whole)((uint32_t)a - (uint32_t)q * (uint32_t)y);"
_FAR = """/* Whether f32 does not have a and b, or b is 0. */
static inline int irc_far_$k($c a, $c b) {
    return (($u)a + $shift > $span) | (($u)b + $shift > $span) | (b == 0);
}
"""
# The quotient in f32 is the whole number below the exact one or, where that is close, the one above: never more than
# 2^22, so that the fused step is exact.  Without one, f64 has the product and the difference.
_FAR_FLOAT = """/* Whether a / b has more digits than the next function takes, or a or b is no number. */
static inline int irc_far_$k($c a, $c b) {
    return !((fabs$s(a) <= $most * fabs$s(b)) & (fabs$s(b) <= $limit) & (b != 0));
}
"""
_FMOD_NEAR = """/* fmod(a, b), exact where irc_far_$k is 0 */
IRC_MATH $c irc_fmod_near_$k($c a, $c b) {
$body
}
"""
_FMOD_STEPS = """    const $c x = fabs$s(a), y = fabs$s(b), q = trunc$s(x / y);
    const $c r = $step;
    return copysign$s(r < 0 ? r + y : r, a);"""
_MOD_NEAR = """/* Remainder with the sign of the divisor, exact where irc_far_$k is 0. */
IRC_MATH $c irc_mod_near_$k($c a, $c b) {
    const $c r = irc_fmod_near_$k(a, b), other = (b < 0) != (r < 0) ? r + b : r;
    return r == 0 ? copysign$s(0, b) : other;
}
"""


def asked(e: Expr) -> tuple[Expr, ...]:
    """Return dividend and divisor of what a shorter helper does where both are near; none of other expressions."""
    match e:
        case Bin(op="div" | "floordiv", a=a, b=b) if a.dtype.kind != "f":
            pass
        case Bin(op="mod", a=a, b=b) | Call(fn="fmod", args=(a, b)):
            pass
        case _:
            return ()
    if a.dtype.kind == "f":
        return a, b
    if isinstance(b, Const):
        return (a, b) if a.dtype.bits == 64 and 0 < abs(int(b.value)) <= LARGEST else ()
    return (a, b) if a.dtype.kind in "iu" and a.dtype.bits >= 32 else ()


def quotient_helpers(make: Callable[..., Any]) -> dict[str, Any]:
    """Build the helpers by name; `make(code, needs)` builds one."""
    found: dict[str, Any] = {"other_sign": make(_OTHER_SIGN)}
    for name in ("i8", "i16", "u8", "u16", "i32", "u32", "i64", "u64"):
        for op in OPERATIONS:
            found |= _integers(name, op, make)
    for name in ("f32", "f64"):
        found |= _remainders(name, make)
    return found


def _integers(name: str, op: str, make: Callable[..., Any]) -> dict[str, Any]:
    bits, signed = int(name[1:]), name[0] == "i"
    result = _RESULTS[op if signed else _UNSIGNED.get(op, op)]
    facts = {"c": storage(dtype(name)), "k": name, "op": op, "result": result, "u": f"uint{max(bits, 32)}_t"}
    by_f32 = _BY_F32 + ("" if result == "q" else _REST)
    needs = ("other_sign",) if "other_sign" in result else ()
    found: dict[str, Any] = {}
    if bits < 32:
        quotient = Template(by_f32).substitute(divisor="(y == 0 ? 1.0f : (float)y)")
        found[f"{op}_vector_{name}"] = make(
            Template(_VECTOR).substitute(facts, quotient=quotient), (f"{op}_{name}", *needs)
        )
        return found
    if bits == 32:
        rest = "" if result == "q" else Template(_REST_OF_32).substitute(whole=facts["c"])
        quotient = (_BY_F64 if signed else _BY_F64_UNSIGNED) + rest
        text = Template(_VECTOR).substitute(facts, quotient=quotient)
        found[f"{op}_vector_{name}"] = make(text, (f"{op}_{name}", "f64_bits", *needs))
    shift, span = (f"{LARGEST:#x}u", f"{2 * LARGEST:#x}u") if signed else ("0u", f"{LARGEST:#x}u")
    found[f"far_{name}"] = make(Template(_FAR).substitute(facts, shift=shift, span=span))
    quotient = Template(by_f32).substitute(divisor="(float)y")
    found[f"{op}_near_{name}"] = make(Template(_NEAR).substitute(facts, quotient=quotient), needs)
    return found


def _remainders(name: str, make: Callable[..., Any]) -> dict[str, Any]:
    c, s, most, limit = (
        ("float", "f", "0x1p+22f", "0x1p+100f") if name == "f32" else ("double", "", "0x1p+50", "0x1p+900")
    )
    facts = {"c": c, "s": s, "k": name, "most": most, "limit": limit}
    fused = f"IRC_FMA_{name.upper()}(-q, y, x)"
    if name == "f32":
        body = f"""#if defined(__FMA__) || defined(__aarch64__)
{_FMOD_STEPS.replace("$step", fused)}
#else
{_FMOD_STEPS.replace("$step", "(float)((double)x - (double)q * (double)y)")}
#endif"""
    else:
        body = f"""#if defined(__FMA__) || defined(__aarch64__)
{_FMOD_STEPS.replace("$step", fused)}
#else
    return fmod(a, b);
#endif"""
    return {
        f"far_{name}": make(Template(_FAR_FLOAT).substitute(facts)),
        f"fmod_near_{name}": make(
            Template(_FMOD_NEAR).substitute(facts, body=Template(body).substitute(facts)), ("math",)
        ),
        f"mod_near_{name}": make(Template(_MOD_NEAR).substitute(facts), (f"fmod_near_{name}",)),
    }
