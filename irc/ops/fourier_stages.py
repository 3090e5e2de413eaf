"""Stages of a fast Fourier transform of one line, one for each factor of its length.

Decimation in frequency: a stage transforms elements that stand apart, and turns the results by roots of 1. It reads
one line and writes another, so that nothing has to be put in order afterwards. Lines are [2, n], real parts first:
side by side with the others GCC 12 fuses the products and sums of pairs, whatever -ffp-contract says. The sums of the
factors 2 to 5 are in the order of pocketfft, the library behind NumPy's transforms, which decides the last bits.
Sources: Stockham's autosort transform (Cochran et al., "What is the fast Fourier transform?", 1967); pocketfft.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from functools import reduce

from irc.expr import Const, Expr, Tensor, index
from irc.ir.types import DType, f64
from irc.loops.builder import LoopBuilder, Place

Pair = tuple[Expr, Expr]
"""Real and imaginary part."""
SHORT = 4
"""Elements side by side below which vectors go across the groups of a stage."""


def radices(n: int) -> list[int]:
    """Factors of n: 4 as often as possible, then primes."""
    found: list[int] = []
    while n > 1:
        p = next((p for p in (4, *range(2, math.isqrt(n) + 1)) if n % p == 0), n)
        found.append(p)
        n //= p
    return found


def stage(
    b: LoopBuilder, table: Tensor, source: Place, target: Place, done: Expr, radix: Expr, inverse: bool, work: DType
) -> None:
    """Transform by one factor of the length; `done` is the product of those before.

    table: the roots of 1, in the direction of the transform. work: the type of the lines.
    """
    if isinstance(radix, Const) and radix.value in BUTTERFLIES:
        _few(b, table, source, target, done, int(radix.value), inverse, work)
        return
    primes = [] if isinstance(radix, Const) else [r for r in BUTTERFLIES if r != 4]  # only the run knows the factor
    for r in primes:
        with b.if_(radix.eq(r)):
            _few(b, table, source, target, done, r, inverse, work)
    with b.if_(reduce(Expr.logical_and, [radix.ne(r) for r in primes])) if primes else nullcontext():
        length = b.let(index(table.shape[0]) // (done * radix), "length")
        with b.for_(done, name="k") as k, b.for_(length, name="i") as i, b.for_(radix, name="q") as q:
            value = _sum(b, table, source, (k * radix) * length + i, length, radix, q, done * i, work)
            _store(b, target, (k + done * q) * length + i, value)


def _few(
    b: LoopBuilder, table: Tensor, source: Place, target: Place, done: Expr, r: int, inverse: bool, work: DType
) -> None:
    """Transform by a factor whose sums are written out."""
    length = b.let(index(table.shape[0]) // (done * r), "length")
    known = isinstance(done, Const) and table.shape[0].is_const
    across = known and int(table.shape[0]) // (int(done.value) * r) < SHORT  # type: ignore[union-attr]
    with b.for_(length if across else done, name="o") as outer, b.for_(done if across else length, "simd") as inner:
        k, i = (inner, outer) if across else (outer, inner)
        start = b.let(k * length * r + i, "start")
        given = [_pair(b, source, start + length * m) for m in range(r)]
        for q, value in enumerate(BUTTERFLIES[r](b, given, 1.0 if inverse else -1.0)):
            turned = value if q == 0 else _turned(value, _root(b, table, done * i * q, work))
            _store(b, target, (k + done * q) * length + i, turned)


def _store(b: LoopBuilder, line: Place, at: Expr, value: Pair) -> None:
    place = b.let(at, "place")
    for part in range(2):
        b.store(line, (part, place), value[part])


def _sum(
    b: LoopBuilder, table: Tensor, source: Place, start: Expr, step: Expr, radix: Expr, q: Expr, turn: Expr, work: DType
) -> Pair:
    """Sum the elements of any factor as element q of their transform, in f64."""
    part = b.let(index(table.shape[0]) // radix, "part")
    total = [b.var(Const(0.0, f64), name) for name in ("re", "im")]
    with b.for_(radix, name="m") as m:
        root = _root(b, table, ((m * q) % radix) * part, f64)
        re, im = _turned(_pair(b, source, start + step * m, f64), root)
        b.assign(total[0], total[0] + re)
        b.assign(total[1], total[1] + im)
    re, im = _turned((total[0], total[1]), _root(b, table, turn * q, f64))
    return re.cast(work), im.cast(work)


def _pair(b: LoopBuilder, line: Place, at: Expr, work: DType | None = None) -> Pair:
    """Load an element of a line."""
    place = b.let(at, "at")
    re, im = line[0, place], line[1, place]
    return (b.let(re, "p"), b.let(im, "r")) if work is None else (b.let(re.cast(work), "p"), b.let(im.cast(work), "r"))


def _root(b: LoopBuilder, table: Tensor, power: Expr, work: DType) -> Pair:
    """Load a root of 1 by the power of the first one, which is less than their number."""
    place = b.let(power, "power")
    return b.let(table[place, 0].cast(work), "c"), b.let(table[place, 1].cast(work), "s")


def _turned(x: Pair, root: Pair) -> Pair:
    return x[0] * root[0] - x[1] * root[1], x[0] * root[1] + x[1] * root[0]


def _both(b: LoopBuilder, x: Pair, y: Pair) -> tuple[Pair, Pair]:
    """Return the sum and the difference."""
    total = b.let(x[0] + y[0], "p"), b.let(x[1] + y[1], "r")
    return total, (b.let(x[0] - y[0], "p"), b.let(x[1] - y[1], "r"))


def _quarter(x: Pair, sign: float) -> Pair:
    """Turn by a quarter, in the direction of the transform."""
    return (-x[1], x[0]) if sign > 0 else (x[1], -x[0])


# -------------------------------------------------------------------- transforms of few elements
def _two(b: LoopBuilder, x: Sequence[Pair], sign: float) -> list[Pair]:
    return list(_both(b, x[0], x[1]))


def _three(b: LoopBuilder, x: Sequence[Pair], sign: float) -> list[Pair]:
    sine = sign * math.sin(2 * math.pi / 3)
    together, apart = _both(b, x[1], x[2])
    middle = x[0][0] + together[0] * -0.5, x[0][1] + together[1] * -0.5
    first, second = _both(b, middle, (-(apart[1] * sine), apart[0] * sine))
    return [(x[0][0] + together[0], x[0][1] + together[1]), first, second]


def _four(b: LoopBuilder, x: Sequence[Pair], sign: float) -> list[Pair]:
    even, odd = _both(b, x[0], x[2])
    more, less = _both(b, x[1], x[3])
    first, third = _both(b, even, more)
    second, fourth = _both(b, odd, _quarter(less, sign))
    return [first, second, third, fourth]


def _five(b: LoopBuilder, x: Sequence[Pair], sign: float) -> list[Pair]:
    c1, c2 = math.cos(2 * math.pi / 5), math.cos(4 * math.pi / 5)
    s1, s2 = sign * math.sin(2 * math.pi / 5), sign * math.sin(4 * math.pi / 5)
    (near, fore), (far, aft) = _both(b, x[1], x[4]), _both(b, x[2], x[3])

    def rotated(a: float, z: float, s: float, t: float) -> tuple[Pair, Pair]:
        middle = x[0][0] + near[0] * a + far[0] * z, x[0][1] + near[1] * a + far[1] * z
        return _both(b, middle, (-(fore[1] * s + aft[1] * t), fore[0] * s + aft[0] * t))

    first, fourth = rotated(c1, c2, s1, s2)
    second, third = rotated(c2, c1, s2, -s1)
    total = x[0][0] + near[0] + far[0], x[0][1] + near[1] + far[1]
    return [total, first, second, third, fourth]


Butterfly = Callable[[LoopBuilder, Sequence[Pair], float], list[Pair]]
BUTTERFLIES: dict[int, Butterfly] = {2: _two, 3: _three, 4: _four, 5: _five}
"""Transforms of that many elements: their sums, written out. The sign is that of the exponent."""
