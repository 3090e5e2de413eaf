"""Vector building blocks as C text: folding a vector, transposing squares of vectors."""

from __future__ import annotations

from irc.ir.types import DType
from irc.kernels.core.isa import vector_name
from irc.kernels.core.text import Piece, piece
from irc.kernels.vector import polynomials as poly
from irc.kernels.vector.polynomials import horner

_FOLD = """/* The sum of all lanes, and the largest (lanes that are NaN do not count), in every lane. */
IRC_HELPER $V ${V}_sum_all($V x) {
$sums    return x;
}
IRC_HELPER $V ${V}_largest($V a, $V b) { return ${V}_at_least(a, b); }
IRC_HELPER $V ${V}_max_all($V x) {
$maxima    return x;
}
"""

_SQUARE = """/* Transposes $L vectors in place: lane j of vector i becomes lane i of vector j. */
IRC_INLINE void ${V}_square($V x[$L]) {
    $V t;
$steps}
"""


def _order(lanes: list[int]) -> str:
    return ", ".join(map(str, lanes))


def folds(lanes: int, dtype: DType) -> Piece:
    """Print `V_sum_all`, `V_largest` and `V_max_all`."""
    v = vector_name(lanes, dtype)
    turned = _turned(lanes)
    return piece(
        "IRC_VECTOR_${V}_folds",
        _FOLD,
        "${V}_sum_all",
        "${V}_largest",
        "${V}_max_all",
        V=v,
        sums="".join(f"    x = x + {t};\n" for t in turned),
        maxima="".join(f"    x = {v}_largest(x, {t});\n" for t in turned),
    )


def _turned(lanes: int) -> list[str]:
    """Print the vector x with its halves exchanged, then with the halves of these, and so on."""
    steps = [lanes >> i for i in range(1, lanes.bit_length()) if lanes >> i]
    return [f"__builtin_shufflevector(x, x, {_order([i ^ s for i in range(lanes)])})" for s in steps]


def square(lanes: int, dtype: DType) -> Piece:
    """Print `V_square`: exchanges of ever larger blocks."""
    lines: list[str] = []
    step = 1
    while step < lanes:
        low = _order([i if not i & step else lanes + i - step for i in range(lanes)])
        high = _order([i + step if not i & step else lanes + i for i in range(lanes)])
        for i in range(lanes):
            if i & step:
                continue
            a, b = f"x[{i}]", f"x[{i + step}]"
            lines.append(f"    t = __builtin_shufflevector({a}, {b}, {low});\n")
            lines.append(f"    {b} = __builtin_shufflevector({a}, {b}, {high});\n    {a} = t;\n")
        step *= 2
    return piece(
        "IRC_VECTOR_${V}_square", _SQUARE, "${V}_square", V=vector_name(lanes, dtype), L=lanes, steps="".join(lines)
    )


def dots(count: int, lanes: int, dtype: DType) -> str:
    """Print statements that leave in the first `count` lanes of acc[0] the sums of acc[0], …, acc[count - 1]."""
    lines: list[str] = []
    step = 1
    while step < count:
        for i in range(0, count, 2 * step):
            a, b = f"acc[{i}]", f"acc[{i + step}]"
            low = _order([i if not i & step else lanes + i - step for i in range(lanes)])
            high = _order([i + step if not i & step else lanes + i for i in range(lanes)])
            lines.append(
                f"    {a} = __builtin_shufflevector({a}, {b}, {low})\n"
                f"           + __builtin_shufflevector({a}, {b}, {high});\n"
            )
        step *= 2
    while step < lanes:
        turned = _order([i ^ step for i in range(lanes)])
        lines.append(f"    acc[0] += __builtin_shufflevector(acc[0], acc[0], {turned});\n")
        step *= 2
    return "".join(lines)


def segment_sums(name: str, count: int, segment: int, lanes: int) -> str:
    """Print statements that add up the segments of vectors `name`[0], …, [count - 1], each of so many lanes.

    The sums stand in the first count / segment vectors, those of a vector behind those of the one before.
    """
    lines: list[str] = []
    even, odd = (_order(list(range(first, 2 * lanes, 2))) for first in (0, 1))
    while segment > 1:
        count //= 2
        for i in range(count):
            a, b = f"{name}[{2 * i}]", f"{name}[{2 * i + 1}]"
            lines.append(
                f"    {name}[{i}] = __builtin_shufflevector({a}, {b}, {even})\n"
                f"           + __builtin_shufflevector({a}, {b}, {odd});\n"
            )
        segment //= 2
    return "".join(lines)


def folded_together(lanes: int, fold: str) -> str:
    """Print statements that leave in lane i of acc[0] the fold of all lanes of acc[i].

    fold: an expression of {a} and {b}.  They are folded in the order of `V_sum_all`, to the same results.
    """
    lines: list[str] = []
    step = lanes // 2
    while step:
        low = _order([i if not i & step else lanes + i - step for i in range(lanes)])
        high = _order([i + step if not i & step else lanes + i for i in range(lanes)])
        for i in range(step):
            pair = f"acc[{i}], acc[{i + step}]"
            a, b = (f"__builtin_shufflevector({pair}, {picks})" for picks in (low, high))
            lines.append(f"    acc[{i}] = {fold.format(a=a, b=b)};\n")
        step //= 2
    return "".join(lines)


def exp_below(lanes: int, dtype: DType) -> Piece:
    """Print `V_exp_below`: exp(x) for x <= 0, 0 from -88 on.

    The relative error is at most (3 + 0.25 |x|) · 2^-24, without fused products 3.25 · 2^-24: for the weights of a
    softmax, which the larger ones decide.
    """
    v = vector_name(lanes, dtype)
    return piece("IRC_VECTOR_${V}_exp_below", _EXP_BELOW, "${V}_exp_below", V=v, exp2_r=horner(v, "p", "r", poly.EXP2))


# exp(x) = 2^n · 2^r; n stays in the low bits of `shifted`, with the bias of exponents added.
_EXP_BELOW = """IRC_HELPER $V ${V}_exp_below($V x) {
    const $V t = ${V}_at_least(${V}_all(-88.03f), x), shifted = t * 0x1.715476p+0f + 0x1.8000fep+23f;
#if defined(__FMA__) || defined(__aarch64__)
    const $V r = t * 0x1.715476p+0f - (shifted - 0x1.8000fep+23f);
#else /* what rounding of the product would cost is as much as x is large */
    const $V n = shifted - 0x1.8000fep+23f, r = ((t - n * 0x1.62e4p-1f) - n * 0x1.7f7d1cp-20f) * 0x1.715476p+0f;
#endif
$exp2_r
    return p * ($V)((${V}_bits)shifted << 23);
}
"""


def exp_up_to_0(lanes: int, dtype: DType) -> Piece:
    """Print `V_exp_up_to_0`: exp(x) for x <= 0 or NaN, to 1 ULP, without fused products 1.5 ULP.

    With it `V_exp_scaled`, which is exp(x) · 2^24: a normal number, or 0 where exp(x) is.
    """
    v = vector_name(lanes, dtype)
    return piece(
        "IRC_VECTOR_${V}_exp_up_to_0",
        _EXP_UP_TO_0,
        "${V}_exp_up_to_0",
        "${V}_exp_scaled",
        V=v,
        exp_r=horner(v, "p", "r", poly.EXP),
    )


# exp(x) = 2^n · exp(r).  Results below the normal range are rounded once, by the product with 2^-24, 2^(n + 24) being a
# normal number, or 0 where the result is: a product that underflows takes a hundred cycles.  A softmax leaves the
# product out, since its sum has the same factor.
_EXP_UP_TO_0 = """IRC_HELPER $V ${V}_exp_scaled($V x) {
    const $V t = ${V}_at_least(${V}_all(-104.7f), x), shifted = t * 0x1.715476p+0f + 0x1.80012ep+23f;
    const $V n = shifted - 0x1.80012ep+23f, r = (t - n * 0x1.62e4p-1f) - n * 0x1.7f7d1cp-20f;
$exp_r
    p = (p * r + 1.0f) * r + 1.0f;
    return p * ($V)((${V}_bits)shifted << 23);
}

IRC_HELPER $V ${V}_exp_up_to_0($V x) { return ${V}_exp_scaled(x) * 0x1p-24f; }
"""
