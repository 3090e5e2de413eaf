"""The inline helpers of generated C: portable, without undefined behaviour, emitted only where used.

Every helper is a `static inline` function named `irc_<what>_<type>`.  `text(names)` gives the definitions
that a set of names needs, in a fixed order.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from string import Template

from irc.backends.c.conversions import conversion_helpers
from irc.backends.c.math import math_helpers
from irc.backends.c.math_f64 import math_helpers_f64
from irc.backends.c.narrow import narrow_helpers
from irc.backends.c.quotients import quotient_helpers
from irc.backends.c.types import storage
from irc.ir.types import dtype
from irc.kernels.core.workspace import CODE


@dataclass(frozen=True)
class Helper:
    """A definition, and the helpers it calls."""

    code: str
    needs: tuple[str, ...] = ()


_INTEGER = {
    "add": "return ($c)(($p)a + ($p)b);",
    "sub": "return ($c)(($p)a - ($p)b);",
    "mul": "return ($c)(($p)a * ($p)b);",
    "min": "return a < b ? a : b;",
    "max": "return a > b ? a : b;",
    "shl": "return ($p)b < $bits ? ($c)(($p)a << b) : 0;",
}
_SIGNED = _INTEGER | {
    "div": "return b == 0 ? 0 : b == -1 ? ($c)(0u - ($p)a) : ($c)(a / b);",
    "floordiv": """if (b == 0) return 0;
    if (b == -1) return ($c)(0u - ($p)a);
    return ($c)(a / b - (a % b != 0 && (a < 0) != (b < 0)));""",
    "mod": """if (b == 0 || b == -1) return 0;
    const $c r = ($c)(a % b);
    return r != 0 && (r < 0) != (b < 0) ? ($c)(r + b) : r;""",
    "rem": "return b == 0 || b == -1 ? 0 : ($c)(a % b);",
    "shr": "return ($p)b < $bits ? ($c)(a >> b) : ($c)(a < 0 ? -1 : 0);",
    "pow": """if (b < 0) return a == 1 ? 1 : a == -1 ? (b & 1 ? -1 : 1) : 0;
    $p r = 1, x = ($p)a;
    for (; b; b = ($c)(b >> 1), x *= x) if (b & 1) r *= x;
    return ($c)r;""",
}
_UNSIGNED = _INTEGER | {
    "div": "return b ? ($c)(a / b) : 0;",
    "floordiv": "return b ? ($c)(a / b) : 0;",
    "mod": "return b ? ($c)(a % b) : 0;",
    "rem": "return b ? ($c)(a % b) : 0;",
    "shr": "return b < $bits ? ($c)(a >> b) : 0;",
    "pow": """$p r = 1, x = ($p)a;
    for (; b; b = ($c)(b >> 1), x *= x) if (b & 1) r *= x;
    return ($c)r;""",
}
_COMMENTS = {
    "add": "/* Wraps modulo 2^n. */\n",
    "div": "/* Truncates; a / 0 is 0, and the quotient wraps. */\n",
    "floordiv": "/* Rounds down; a / 0 is 0. */\n",
    "mod": "/* Has the sign of the divisor; modulo 0 is 0. */\n",
    "rem": "/* Has the sign of the dividend; modulo 0 is 0. */\n",
    "shl": "/* Shifting by the width or more, or by a negative number, gives 0. */\n",
    "shr": "/* Shifting by the width or more gives the sign. */\n",
    "pow": "/* Wraps; negative powers of anything but 1 and -1 are 0. */\n",
}
_REAL = {  # a + a: GCC takes seconds for chains of maxima with a in its place
    "min": "const $c m = a < b ? a : b; /* one instruction */\n    return a != a ? a + a : m;",
    "max": "const $c m = a > b ? a : b; /* one instruction */\n    return a != a ? a + a : m;",
    "mod": """$c r = fmod$s(a, b);
    if (b != 0) r = r == 0 ? copysign$s(0, b) : (b < 0) != (r < 0) ? r + b : r;
    return r;""",
    "floordiv": """if (b == 0) return a / b;
    const $c r = fmod$s(a, b);
    $c q = (a - r) / b;
    if (r != 0 && (b < 0) != (r < 0)) q -= 1;
    if (q == 0) return copysign$s(0, a / b);
    const $c f = floor$s(q);
    return q - f > $half ? f + 1 : f;""",
}
_REAL_COMMENTS = {
    "min": "/* NaN if either is. */\n",
    "max": "/* NaN if either is. */\n",
    "mod": "/* Remainder with the sign of the divisor. */\n",
    "floordiv": "/* The largest whole number not above a / b. */\n",
}


def _integer_helpers(name: str) -> dict[str, Helper]:
    c, bits, signed = storage(dtype(name)), int(name[1:]), name[0] == "i"
    facts = {"c": c, "bits": bits, "p": "uint64_t" if bits == 64 else "uint32_t"}
    found: dict[str, Helper] = {}
    for op, body in (_SIGNED if signed else _UNSIGNED).items():
        note = _COMMENTS.get(op, "")
        text = f"{note}static inline {c} irc_{op}_{name}({c} a, {c} b) {{\n    {Template(body).substitute(facts)}\n}}\n"
        found[f"{op}_{name}"] = Helper(text)
    p = facts["p"]
    found[f"neg_{name}"] = Helper(f"static inline {c} irc_neg_{name}({c} a) {{\n    return ({c})(0u - ({p})a);\n}}\n")
    if signed:
        found[f"abs_{name}"] = Helper(
            f"static inline {c} irc_abs_{name}({c} a) {{\n    return a < 0 ? ({c})(0u - ({p})a) : a;\n}}\n"
        )
        found[f"sign_{name}"] = Helper(
            f"static inline {c} irc_sign_{name}({c} a) {{\n    return ({c})((a > 0) - (a < 0));\n}}\n"
        )
    return found


def _real_helpers(name: str) -> dict[str, Helper]:
    c, s = ("double", "") if name == "f64" else ("float", "f")
    found: dict[str, Helper] = {}
    for op, body in _REAL.items():
        text = Template(body).substitute(c=c, s=s, half=f"0.5{s}")
        note = _REAL_COMMENTS[op]
        found[f"{op}_{name}"] = Helper(f"{note}static inline {c} irc_{op}_{name}({c} a, {c} b) {{\n    {text}\n}}\n")
    for op, order in (("min", "<"), ("max", ">")):
        found[f"{op}_known_{name}"] = Helper(
            f"/* NaN if a is; b is not. */\nstatic inline {c} irc_{op}_known_{name}({c} a, {c} b) {{\n"
            f"    return b {order} a ? b : a; /* one instruction */\n}}\n"
        )
    found[f"hidden_{name}"] = Helper(Template(_HIDDEN).substitute(c=c, name=name))
    for op, order in (("minz", "<"), ("maxz", ">")):
        found[f"{op}_{name}"] = Helper(
            "/* Of equal values (zeros of either sign) the first; NaN if either is. */\n"
            f"static inline {c} irc_{op}_{name}({c} a, {c} b) {{\n"
            f"    const {c} m = b {order} a ? b : a;\n    return b != b ? b + b : m;\n}}\n"
        )
    found[f"sign_{name}"] = Helper(
        f"static inline {c} irc_sign_{name}({c} a) {{\n"
        f"    return a > 0 ? ({c})1 : a < 0 ? ({c})-1 : a == 0 ? ({c})0 : a;\n}}\n"
    )
    return found


_HIDDEN = """/* A constant that GCC cannot see: it makes several instructions of a limit that it can. */
static inline $c irc_hidden_$name($c a) {
#if defined(__GNUC__) && !defined(__clang__) && defined(__x86_64__)
    __asm__("" : "+x"(a));
#endif
    return a;
}
"""
_TO_INT = """/* Truncates; NaN and what does not fit give the most negative number, as x86-64 converts. */
static inline $i irc_${f}_to_${n}($c a) {
    return $fits ? ($i)a : $min;
}
"""
_TO_LOW = """/* The low bits of irc_${f}_to_i32, at most 16: of what does not fit they are 0. */
static inline int32_t irc_${f}_to_low($c a) {
#if defined(__GNUC__) && !defined(__clang__) && defined(__SSE2__) && defined(__STDC_IEC_559__)
    return (int32_t)a; /* unspecified where it does not fit (C11, F.4), and 0x80000000 by its instructions */
#else
    return (int32_t)(fabs$s(a) < 0x1p31$s ? a : 0);
#endif
}
"""
_NEAREST = """/* The whole number nearest to a that is within two others, halves to the even one; low of NaN. */
static inline int32_t irc_nearest_whole_f32(float a, float low, float high) {
    float t = low < a ? a : low;
    t = t < high ? t : high;
    return (int32_t)(irc_f32_bits(t + 0x1.8p+23f) - 0x4b400000u);
}
"""
_NEAREST_QUOTIENT = """/* The same of a / b as rounded, by a product with 1 / b and an exact remainder (Markstein). */
static inline int32_t irc_nearest_quotient_f32(float a, float b, float low, float high) {
    const float least = low * b, most = high * b;
    float t = least < a ? a : least;
    t = t < most ? t : most;
#if defined(__FMA__) || defined(__aarch64__)
    const float r = 1.0f / b, rest = fmaf(-r, b, 1.0f) * r, p = fmaf(t, r, t * rest);
    const float q = fmaf(fmaf(-p, b, t), r, p);
#else
    const float q = t / b;
#endif
    return (int32_t)(irc_f32_bits(q + 0x1.8p+23f) - 0x4b400000u);
}
"""
_TO_UINT = """/* Truncates; negative numbers wrap where i$bits holds them, as NumPy converts on x86-64. */
static inline $u irc_${f}_to_u$bits($c a) {
    return a >= $half ? ($u)irc_${f}_to_i$bits(a - $half) ^ ($u)1 << $top : ($u)irc_${f}_to_i$bits(a);
}
"""


def _conversion_helpers() -> dict[str, Helper]:
    found: dict[str, Helper] = {}
    found["nearest_whole_f32"] = Helper(_NEAREST, ("f32_bits",))
    found["nearest_quotient_f32"] = Helper(_NEAREST_QUOTIENT, ("f32_bits",))
    for f, c, s in (("f32", "float", "f"), ("f64", "double", "")):
        found[f"{f}_to_low"] = Helper(Template(_TO_LOW).substitute(f=f, c=c, s=s))
        for bits in (32, 64):
            low, high = f"-0x1p{bits - 1}", f"0x1p{bits - 1}{s}"
            fits = f"fabs{s}(a) < {high}"  # the most negative number converts to itself either way
            if (f, bits) == ("f64", 32):  # -2147483648.5 truncates to a number that fits
                fits = f"a > {low} - 1 && a < {high}"
            text = Template(_TO_INT).substitute(
                i=f"int{bits}_t", f=f, n=f"i{bits}", c=c, fits=fits, min=f"INT{bits}_MIN"
            )
            found[f"{f}_to_i{bits}"] = Helper(text)
            unsigned = Template(_TO_UINT).substitute(
                u=f"uint{bits}_t", f=f, bits=bits, c=c, half=f"0x1p{bits - 1}{s}", top=bits - 1
            )
            found[f"{f}_to_u{bits}"] = Helper(unsigned, (f"{f}_to_i{bits}",))
    return found


def _wrap_helpers() -> dict[str, Helper]:
    found: dict[str, Helper] = {}
    for bits in (2, 4):
        top = 1 << (bits - 1)
        found[f"wrap_i{bits}"] = Helper(
            f"/* The low {bits} bits as a signed number. */\n"
            f"static inline int8_t irc_wrap_i{bits}(int32_t a) {{\n"
            f"    return (int8_t)((int32_t)(((uint32_t)a & {2 * top - 1}u) ^ {top}u) - {top});\n}}\n"
        )
    return found


_INDEX = """/* Sizes: rounds up; 0 where the divisor is 0. */
static inline int64_t irc_ceildiv(int64_t a, int64_t b) {
    return b == 0 ? 0 : a / b + (a % b != 0 && (a < 0) == (b < 0));
}
"""
_FACTOR = """/* The absolute value, for a product that is compared with a limit; 0 counts as 1, to hide no other. */
static inline double irc_factor(int64_t size) {
    return size == 0 ? 1 : size < 0 ? -(double)size : (double)size;
}
"""
_IDLE = """/* Whether a tensor of these sizes has no elements and would still take long to go through. */
static inline int irc_idle(int rank, const int64_t *sizes) {
    int empty = 0;
    double rounds = 1;
    for (int k = 0; k < rank; ++k) {
        empty |= sizes[k] == 0;
        rounds *= irc_factor(sizes[k]);
    }
    return empty && rounds > 0x1p32;
}
"""
_PARALLEL = """/* Runs body over [0, n): on the pool where there is one and the work is worth it. */
static inline void irc_parallel(const irc_pool *pool, int64_t n, int worthwhile,
                                void (*body)(void *arg, int64_t begin, int64_t end), void *arg) {
    if (pool && worthwhile) pool->parallel_for(pool->self, n, body, arg);
    else body(arg, 0, n);
}
"""
_SHARE = re.sub(r"\birc_(divi|empty|run|last)", r"irc_loop_\1", CODE)
_PARALLEL_OWN = f"""#ifdef __GNUC__
{_SHARE}\
#endif
/* The same, with memory of its own for each piece that runs at the same time as others; alone where there are no
   atomic operations. */
static inline void irc_parallel_own(const irc_pool *pool, int64_t n, int worthwhile,
                                    void (*body)(void *arg, char *own, int64_t begin, int64_t end), void *arg,
                                    char *own, int64_t own_bytes, int64_t owners) {{
#ifdef __GNUC__
    if (pool && worthwhile) {{
        irc_loop_divide(pool, n, body, arg, own, own_bytes, owners);
        return;
    }}
#endif
    (void)pool, (void)worthwhile, (void)own_bytes, (void)owners;
    body(arg, own, 0, n);
}}
"""


def _all() -> dict[str, Helper]:
    found = narrow_helpers(Helper) | conversion_helpers(Helper) | math_helpers(Helper) | math_helpers_f64(Helper)
    found |= _conversion_helpers() | _wrap_helpers()
    for name in ("i8", "i16", "i32", "i64", "u8", "u16", "u32", "u64"):
        found |= _integer_helpers(name)
    for name in ("f32", "f64"):
        found |= _real_helpers(name)
    found |= quotient_helpers(Helper)
    found["ceildiv"] = Helper(_INDEX)
    found["factor"] = Helper(_FACTOR)
    found["idle"] = Helper(_IDLE, ("factor",))
    found["parallel"] = Helper(_PARALLEL)
    found["parallel_own"] = Helper(_PARALLEL_OWN)
    return found


HELPERS = _all()


def text(names: Iterable[str]) -> str:
    """Print the definitions of these helpers and of what they call."""
    wanted: set[str] = set()
    todo = list(names)
    while todo:
        name = todo.pop()
        if name not in wanted:
            wanted.add(name)
            todo += HELPERS[name].needs
    return "\n".join(h.code for name, h in HELPERS.items() if name in wanted)
