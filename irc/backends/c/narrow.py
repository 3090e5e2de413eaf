"""C helpers of the narrow float types: bit pattern to float, and float to the nearest bit pattern.

Rounding is to nearest, ties to even, denormals included; overflow and NaN follow `ml_dtypes` and NumPy
(the tests compare every pattern of every type).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from string import Template
from typing import Any

_BITS = {
    "f32_bits": """static inline uint32_t irc_f32_bits(float x) {
    uint32_t b;
    memcpy(&b, &x, sizeof b);
    return b;
}
""",
    "bits_f32": """static inline float irc_bits_f32(uint32_t b) {
    float x;
    memcpy(&x, &b, sizeof x);
    return x;
}
""",
}


@dataclass(frozen=True)
class Layout:
    """A sign, `exponent` and `mantissa` bits; `top` is the largest finite pattern without its sign.

    `overflow` is the pattern of what is larger, `nan` that of NaN (both get the sign, unless `nan_exact`).
    """

    name: str
    exponent: int
    mantissa: int
    bias: int
    top: int
    overflow: int
    nan: int
    nan_exact: bool = False

    @property
    def width(self) -> int:
        return 1 + self.exponent + self.mantissa


_LAYOUTS = (
    Layout("f16", 5, 10, 15, 0x7BFF, 0x7C00, 0x7E00),
    Layout("f8e4m3fn", 4, 3, 7, 0x7E, 0x7F, 0x7F),
    Layout("f8e4m3fnuz", 4, 3, 8, 0x7F, 0x80, 0x80, nan_exact=True),
    Layout("f8e5m2", 5, 2, 15, 0x7B, 0x7C, 0x7E),
    Layout("f8e5m2fnuz", 5, 2, 16, 0x7F, 0x80, 0x80, nan_exact=True),
    Layout("f6e2m3", 2, 3, 1, 0x1F, 0x1F, 0),
    Layout("f6e3m2", 3, 2, 3, 0x1F, 0x1F, 0),
    Layout("f4e2m1", 2, 1, 1, 0x7, 0x7, 0),
)

_DECODE = Template("""static inline float irc_${n}_to_f32($c h) {
    const uint32_t m = h & ${mask}u;
    float x = m < ${normal}u ? (float)(int32_t)m * $step : irc_bits_f32((m << $shift) + ${rebias}u);
$special    return irc_bits_f32(irc_f32_bits(x) | (uint32_t)(h & ${sign}u) << $up);
}
""")
_ENCODE = Template("""/* Nearest, ties to even$note. */
static inline $c irc_${n}_from_f32(float x) {
    uint32_t b = irc_f32_bits(x);
    const uint32_t sign = b >> $up & ${sign}u;
    b &= 0x7fffffffu;
    const uint32_t small = irc_f32_bits(irc_bits_f32(b) + $magic) - ${magic_bits}u;
    const uint32_t large = (b + ${half}u + (b >> $shift & 1u) - ${rebias}u) >> $shift;
    uint32_t m = b < ${least}u ? small : large;
    if (m > ${top}u) m = ${overflow}u;
$finish}
""")


def _special(k: Layout) -> str:
    if k.nan_exact:
        return f"    if (h == {k.nan:#x}u) return NAN;\n"
    if k.name == "f8e4m3fn":
        return "    if (m == 0x7fu) x = NAN;\n"
    if k.overflow != k.top:  # infinities and NaNs sit in the last binade
        return f"    if (m > {k.top:#x}u) x = irc_bits_f32(0x7f800000u | (m << {23 - k.mantissa}));\n"
    return ""


def _finish(k: Layout, c: str) -> str:
    if k.nan_exact:
        return (
            f"    if (b > 0x7f800000u || m == {k.overflow:#x}u) return {k.nan:#x}u;\n"
            f"    return ({c})(m ? m | sign : 0u);\n"
        )
    if k.nan == 0:  # no NaN: zero of the other sign
        return f"    return ({c})(b > 0x7f800000u ? sign ^ {1 << (k.width - 1):#x}u : m | sign);\n"
    nan = f"{k.nan:#x}u"
    if k.name == "f16":
        nan = "0x7e00u | (b >> 13 & 0x3ffu)"
    return f"    if (b > 0x7f800000u) m = {nan};\n    return ({c})(m | sign);\n"


def _layout_helpers(k: Layout, make: Callable[..., Any]) -> dict[str, Any]:
    c = "uint16_t" if k.width > 8 else "uint8_t"
    sign, shift = 1 << (k.width - 1), 23 - k.mantissa
    least = (127 + 1 - k.bias) << 23  # bits of the smallest normal number
    magic = 1 - k.bias - k.mantissa + 23  # adding 2^magic leaves the denormal's count of steps in the low bits
    facts = {
        "n": k.name,
        "c": c,
        "sign": f"{sign:#x}",
        "mask": f"{sign - 1:#x}",
        "shift": shift,
        "normal": f"{1 << k.mantissa:#x}",
        "step": f"0x1p{1 - k.bias - k.mantissa}f",
        "up": 32 - k.width,
        "rebias": f"{(127 - k.bias) << 23:#x}",
        "least": f"{least:#x}",
        "half": f"{(1 << (shift - 1)) - 1:#x}",
        "magic": f"0x1p{magic}f",
        "magic_bits": f"{(127 + magic) << 23:#x}",
        "top": f"{k.top:#x}",
        "overflow": f"{k.overflow:#x}",
        "special": _special(k),
        "finish": _finish(k, c),
        "note": "; what is too large is the largest number" if k.nan == 0 else "",
    }
    both = ("f32_bits", "bits_f32")
    return {
        f"{k.name}_to_f32": make(_DECODE.substitute(facts), both),
        f"{k.name}_from_f32": make(_ENCODE.substitute(facts), both),
    }


_BF16_TO = """static inline float irc_bf16_to_f32(uint16_t h) {
    return irc_bits_f32((uint32_t)h << 16);
}
"""
_BF16_FROM = """/* Nearest, ties to even. */
static inline uint16_t irc_bf16_from_f32(float x) {
    const uint32_t b = irc_f32_bits(x);
    if ((b & 0x7fffffffu) > 0x7f800000u) return (uint16_t)((b >> 16 & 0x8000u) | 0x7fc0u);
    return (uint16_t)((b + 0x7fffu + (b >> 16 & 1u)) >> 16);
}
"""
# Adding 1.5 · 2^(e + 13) and subtracting it again leaves the bits that an f16 of exponent e has.
_F16_ROUND = """/* The f16 value nearest to x; of a NaN a NaN. */
static inline float irc_round_f16(float x) {
    const uint32_t b = irc_f32_bits(x), e = b & 0x7f800000u, least = e < 0x38800000u ? 0x38800000u : e;
    const float shift = irc_bits_f32((least > 0x47000000u ? 0x47000000u : least) + 0x06c00000u);
    const float y = fabsf(x + shift - shift), z = y > 65504.0f ? INFINITY : y;
    return irc_bits_f32(irc_f32_bits(z) | (b & 0x80000000u));
}
"""
_E8M0_TO = """static inline float irc_f8e8m0_to_f32(uint8_t h) {
    return h == 0xffu ? NAN : h ? irc_bits_f32((uint32_t)h << 23) : 0x1p-127f;
}
"""
_E8M0_FROM = """/* The nearest power of two, halves up (below 2^-126: up); NaN for what is not positive and finite. */
static inline uint8_t irc_f8e8m0_from_f32(float x) {
    const uint32_t b = irc_f32_bits(x);
    if (b == 0u || b >= 0x7f800000u) return 0xffu;
    if (b < 0x00800000u) return b > 0x00400000u;
    return (uint8_t)((b + 0x400000u) >> 23);
}
"""
_F16_FROM_F64 = """/* Rounds once: the float in between keeps a sticky last bit. */
static inline uint16_t irc_f16_from_f64(double x) {
    float y = (float)x;
    if (x == x && (double)y != x) {
        uint32_t b = irc_f32_bits(y);
        if (fabs((double)y) > fabs(x)) b -= 1u;
        y = irc_bits_f32(b | 1u);
    }
    return irc_f16_from_f32(y);
}
"""


def narrow_helpers(make: Callable[..., Any]) -> dict[str, Any]:
    """Build all helpers by name; `make(code, needs)` builds one."""
    found: dict[str, Any] = {name: make(code) for name, code in _BITS.items()}
    for layout in _LAYOUTS:
        found |= _layout_helpers(layout, make)
    read, write = ("bits_f32",), ("f32_bits",)
    found["f16_from_f64"] = make(_F16_FROM_F64, ("f16_from_f32", *read, *write))
    found["bf16_to_f32"] = make(_BF16_TO, read)
    found["bf16_from_f32"] = make(_BF16_FROM, write)
    found["f8e8m0_to_f32"] = make(_E8M0_TO, read)
    found["f8e8m0_from_f32"] = make(_E8M0_FROM, write)
    for name in [k.name for k in _LAYOUTS] + ["bf16", "f8e8m0"]:
        code = (
            f"/* The {name} value nearest to x. */\nstatic inline float irc_round_{name}(float x) {{\n"
            f"    return irc_{name}_to_f32(irc_{name}_from_f32(x));\n}}\n"
        )
        found[f"round_{name}"] = make(code, (f"{name}_to_f32", f"{name}_from_f32"))
    found["round_f16"] = make(_F16_ROUND, (*read, *write))
    return found
