"""The order of scores, the highest first and of equal ones the first: what selects boxes begins with it.

Floats are sorted as integers, which have their order: few by counting for each how many come before it, many by
their bytes, the last one first (radix sort).
"""

from __future__ import annotations

from irc.expr import Bin, Bits, Const, Expr, Var, select
from irc.ir.dim import Dim
from irc.ir.types import f32, i32, i64, u32
from irc.loops.builder import LoopBuilder, Place

FEW = 128
"""Scores up to which each is compared with all others."""
BYTES = 4


class ScoreOrder:
    """Loops that sort up to `most` scores of f32, none of them NaN; `order[k]` is the number of the k-th then."""

    def __init__(self, b: LoopBuilder, most: Dim) -> None:
        self.b = b
        self.keys = [b.alloc(u32, [most], "keys") for _ in range(2)]
        self.numbers = [b.alloc(i64, [most], "numbers") for _ in range(2)]
        self.starts = b.alloc(i64, [256], "starts")
        self.count = b.var(Const(0, i64), "count")

    @property
    def order(self) -> Place:
        return self.numbers[0]

    def clear(self) -> None:
        """Forget all scores."""
        self.b.assign(self.count, Const(0, i64))

    def add(self, number: Expr, score: Expr, condition: Expr) -> None:
        """Add the score of a number where a condition holds; numbers that are added ascend."""
        b = self.b
        whole = b.let(Bits(select(score.eq(0.0), Const(0.0, f32), score), u32), "bits")  # no negative 0
        flip = select(score.lt(0.0), Const(0, u32), Const(0x7FFFFFFF, u32))
        b.store(self.keys[0], self.count, Bin("bitxor", whole, flip))
        b.store(self.numbers[0], self.count, number)
        b.assign(self.count, self.count + select(condition, Const(1, i64), Const(0, i64)))

    def sort(self) -> None:
        """Sort the numbers that were added."""
        with self.b.if_(self.count.le(FEW)):
            self._by_counting()
        with self.b.else_():
            self._by_bytes()

    def _by_counting(self) -> None:
        b, keys = self.b, self.keys[0]
        with b.for_(self.count, name="j") as j:
            b.store(self.numbers[1], (j,), self.numbers[0][j])
        with b.for_(self.count, name="j") as j:
            own, place = b.let(keys[j], "own"), b.var(Const(0, i32), "place")
            with b.for_(j, name="k") as k:
                b.assign(place, place + _one(keys[k].le(own)))
            with b.for_(self.count - j, name="k") as k:
                b.assign(place, place + _one(keys[j + k].lt(own)))
            b.store(self.numbers[0], (place.cast(i64),), self.numbers[1][j])

    def _by_bytes(self) -> None:
        b = self.b
        for byte in range(BYTES):
            (keys, others), (numbers, moved) = (pair[:: -1 if byte % 2 else 1] for pair in (self.keys, self.numbers))

            def digit(key: Expr, shift: int = 8 * byte) -> Var:
                part = Bin("bitand", Bin("shr", key, Const(shift, u32)), Const(255, u32))
                return b.let(part.cast(i64), "digit")

            with b.for_(256, "simd", "d") as d:
                b.store(self.starts, (d,), Const(0, i64))
            with b.for_(self.count, name="j") as j:
                d = digit(keys[j])
                b.store(self.starts, (d,), self.starts[d] + 1)
            total = b.var(Const(0, i64), "total")
            with b.for_(256, name="d") as d:
                here = b.let(self.starts[d], "here")
                b.store(self.starts, (d,), total)
                b.assign(total, total + here)
            with b.for_(self.count, name="j") as j:
                key = b.let(keys[j], "key")
                d = digit(key)
                place = b.let(self.starts[d], "place")
                b.store(self.starts, (d,), place + 1)
                b.store(others, (place,), key)
                b.store(moved, (place,), numbers[j])


def _one(condition: Expr) -> Expr:
    return select(condition, Const(1, i32), Const(0, i32))
