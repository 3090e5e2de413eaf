"""Coefficients of the f32 functions of generated C, highest power first, and the text that evaluates them.

Both forms of a function, over one element (`irc.backends.c.math`) and over vectors (`irc.kernels.vector.vecmath`), take
their coefficients from here, so that they agree to their last bits.  Each polynomial has the least largest error over
its range that its degree allows, weighted so that the error of the function's result is meant.
"""

from __future__ import annotations

# exp(r) = 1 + r + r² · p(r), |r| <= ln(2)/2
EXP = ("0x1.6a2998p-10", "0x1.123f3p-7", "0x1.5558fcp-5", "0x1.55548ap-3", "0x1.fffffcp-2")
# log(1 + f) = f - f²/2 + f³ · q(f), sqrt(1/2) - 1 <= f < sqrt(2) - 1
LOG = (
    "-0x1.422a76p-4",
    "0x1.07c3f6p-3",
    "-0x1.0cce6cp-3",
    "0x1.226f82p-3",
    "-0x1.547ab8p-3",
    "0x1.99a59p-3",
    "-0x1.000216p-2",
    "0x1.55554ap-2",
)
# erf(x) = 1 - exp(-(x + x · p(x))), 0 <= x <= 4; from 4 on it rounds to 1
ERF = (
    "-0x1.36964ap-17",
    "0x1.ed6bf2p-14",
    "-0x1.4bc9ap-11",
    "0x1.b5005p-10",
    "-0x1.505de6p-13",
    "-0x1.39cdcp-6",
    "0x1.a4fa4cp-4",
    "0x1.45f2fcp-1",
    "0x1.06eba8p-3",
)
# 2^r, |r| <= 1/2
EXP2 = ("0x1.5bf9eap-10", "0x1.3cee74p-7", "0x1.c6b62ep-5", "0x1.ebf9b2p-3", "0x1.62e42cp-1", "0x1p+0")
# erfc(a / sqrt(2)) = 2^(a · p(a)), a >= 0: the error is largest, 2.5e-8, up to 5.5, and the value nothing beyond
ERFC_LOG2 = (
    "-0x1.7ee1dp-20",
    "0x1.8c3b18p-16",
    "-0x1.f0c7e8p-14",
    "-0x1.264a08p-12",
    "0x1.d96584p-8",
    "-0x1.aecbeep-5",
    "-0x1.d6345ep-2",
    "-0x1.26aefap+0",
)
# sinh(x) = x + x³ · p(x²), |x| < 1
SINH = ("0x1.78a7c2p-19", "0x1.a008fcp-13", "0x1.11111ep-7", "0x1.555556p-3")
# sin(r) = r + r³ · p(r²), cos(r) = q(r²), |r| <= pi/4
SIN = ("0x1.7c2d52p-19", "-0x1.a05956p-13", "0x1.111174p-7", "-0x1.555556p-3")
COS = ("0x1.99e714p-16", "-0x1.6c0c26p-10", "0x1.55554ap-5", "-0x1p-1", "0x1p+0")

# In double precision:
# log2((1 + s) / (1 - s)) = s · q(s²), |s| <= 3 - 2 sqrt(2)
LOG2_WIDE = (
    "0x1.5ce85a622fc37p-2",
    "0x1.a58d888300de8p-2",
    "0x1.27777fe8f7afbp-1",
    "0x1.ec709d12cf29cp-1",
    "0x1.71547652bedf3p+1",
)
# 2^r, |r| <= 1/2
EXP2_WIDE = (
    "0x1.41d3314643e62p-13",
    "0x1.5f456aa3472d6p-10",
    "0x1.3b2dbbc6ec4b4p-7",
    "0x1.c6aed4b93b18ep-5",
    "0x1.ebfbdadca10abp-3",
    "0x1.62e430c7e8f33p-1",
    "0x1.0000000261596p+0",
)
# sin(r · pi/2) = r · p(r²) and cos(r · pi/2) = q(r²), |r| <= 1/2
SIN_QUARTER = (
    "0x1.4bc1da27242a2p-13",
    "-0x1.32ca839a10dcap-8",
    "0x1.466bba8850318p-4",
    "-0x1.4abbce5647e48p-1",
    "0x1.921fb5443af1fp+0",
)
COS_QUARTER = (
    "0x1.d99e76efadfc1p-11",
    "-0x1.55c4e6ab932ffp-6",
    "0x1.03c1daa62e22bp-2",
    "-0x1.3bd3cc6e69f06p+0",
    "0x1.ffffffff84767p-1",
)
# asin(x) = x + x³ · p(x²), |x| <= 1/2
ASIN = ("0x1.595c6p-5", "0x1.8c3e5p-6", "0x1.747bb8p-5", "0x1.330204p-4", "0x1.5555c8p-3")
# atan(x) = x + x³ · p(x²), |x| <= 1
ATAN = (
    "-0x1.d5581ap-10",
    "0x1.652948p-7",
    "-0x1.fe581cp-6",
    "0x1.da8a34p-5",
    "-0x1.5820f8p-4",
    "0x1.c092dep-4",
    "-0x1.2420fap-3",
    "0x1.9991eap-3",
    "-0x1.55553ep-2",
)


def horner(
    c_type: str, name: str, x: str, coefficients: tuple[str, ...], suffix: str = "f", fused: str | None = None
) -> str:
    """Print C statements that declare `name` as the polynomial's value at `x`.

    fused: the function of a product and a sum; without it they are written as such.
    """
    first, second, *rest = coefficients
    if fused is not None:
        lines = [f"    {c_type} {name} = {fused}({x}, {first}{suffix}, {second}{suffix});"]
        lines += [f"    {name} = {fused}({name}, {x}, {c}{suffix});" for c in rest]
        return "\n".join(lines)
    lines = [f"    {c_type} {name} = {x} * {first}{suffix}{_plus(second, suffix)};"]
    lines += [f"    {name} = {name} * {x}{_plus(c, suffix)};" for c in rest]
    return "\n".join(lines)


def _plus(c: str, suffix: str) -> str:
    return f" - {c[1:]}{suffix}" if c.startswith("-") else f" + {c}{suffix}"
