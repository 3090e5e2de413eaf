"""The loops of a stable radix sort: integers in the order of elements, sorted by digits, and where each was before.

Numbers count from the least of them.  Digits are of eleven bits, and those that are zero in all numbers are left out:
identifiers of a vocabulary take two rounds.
"""

from __future__ import annotations

from irc.expr import Bin, Bits, Const, Expr, Reduce, Tensor, select
from irc.ir.dim import Dim
from irc.ir.types import DType, f32, f64, i32, i64, u32, u64
from irc.loops.builder import LoopBuilder, Place

DIGIT = 11
"""Bits of a digit: so many that the counters stay in the first cache."""
WORTH = 256
"""Elements from which a sort by digits is worth its counters."""
LAST = (1 << 31) - 1
"""The largest place that 32 bits hold."""


def has_order(dtype: DType) -> bool:
    """Tell whether `ordered` knows the order of a type's elements."""
    return dtype in (f32, f64) or dtype.kind in "iub" or (dtype.is_float and dtype.itemsize == 2)


def ordered(b: LoopBuilder, x: Expr) -> Expr:
    """Return the i64 that is an element's place among all of its type: equal for zeros, and largest for each NaN."""
    if not x.dtype.is_float:
        wide = x.cast(i64)
        return Bin("bitxor", wide, Const(-(1 << 63), i64)) if x.dtype == u64 else wide
    return order_of_float(b, x if x.dtype == f64 else x.cast(f32)).cast(i64)


def order_of_float(b: LoopBuilder, x: Expr) -> Expr:
    """Return the integer of x's width, of f32 or f64, that is its place among all: equal for zeros, NaN the largest."""
    number = b.let(x, "x")
    whole, kind = (u64, i64) if number.dtype == f64 else (u32, i32)
    most = (1 << (8 * kind.itemsize - 1)) - 1
    bits = b.let(Bits(number, whole).cast(kind), "bits")
    # negative numbers are larger the smaller their bits are; both zeros become 0
    sign = b.let(select(bits.lt(0), Const(-1, kind), Const(0, kind)), "sign")
    turned = b.let(Bin("bitxor", Bin("bitand", bits, Const(most, kind)), sign) - sign, "turned")
    return select(number.ne(number), Const(most, kind), turned)


def sort(b: LoopBuilder, x: Tensor) -> tuple[Place, Place]:
    """Emit the sort of x[n, 1]. Returns the numbers in order, which count from the least, and the places they had."""
    n = x.shape[0]
    kind = i32 if n.at_most(LAST) else i64
    keys, moved = (b.alloc(i64, [n], name) for name in ("keys", "moved"))
    places, others = (b.alloc(kind, [n], name) for name in ("places", "others"))
    with b.for_(n) as k:
        b.store(keys, (k,), ordered(b, x[k, 0]))
        b.store(places, (k,), k.cast(kind))
    at = b.name("j")
    least, largest = (b.let(Reduce(op, (at,), (n,), keys[at]), op) for op in ("min", "max"))
    span = b.let(largest - least, "span")
    with b.for_(n, "simd") as k:
        b.store(keys, (k,), keys[k] - least)
    counter = b.alloc(kind, [1 << DIGIT], "counter")
    with b.for_(-(-64 // DIGIT), name="turn") as turn:
        low = b.let(turn * DIGIT, "low")
        with b.if_(Bin("shr", span, low).ne(0)):
            _count(b, keys, n, counter, low)
            with b.for_(n) as k:
                key, place = b.let(keys[k], "key"), b.let(places[k], "place")
                digit = b.let(_digit(key, low), "digit")
                to = b.let(counter[digit], "to")
                b.store(counter, (digit,), to + Const(1, kind))
                b.store(moved, (to.cast(i64),), key)
                b.store(others, (to.cast(i64),), place)
            for target, source in ((keys, moved), (places, others)):
                with b.for_(n, "simd") as k:
                    b.store(target, (k,), source[k])
    return keys, places


def _digit(key: Expr, low: Expr) -> Expr:
    """Return the digit of a number from bit `low` on; those of the last digit beyond 64 are its sign."""
    return Bin("bitand", Bin("shr", key, low), Const((1 << DIGIT) - 1, i64))


def _count(b: LoopBuilder, keys: Place, n: Dim, counter: Place, low: Expr) -> None:
    """Count how many numbers have a smaller digit, for each digit."""
    kind = counter.dtype
    with b.for_(1 << DIGIT, "simd") as d:
        b.store(counter, (d,), Const(0, kind))
    with b.for_(n) as k:
        digit = b.let(_digit(keys[k], low), "digit")
        b.store(counter, (digit,), counter[digit] + Const(1, kind))
    total = b.var(Const(0, kind), "total")
    with b.for_(1 << DIGIT) as d:
        here = b.let(counter[d], "here")
        b.store(counter, (d,), total)
        b.assign(total, total + here)
