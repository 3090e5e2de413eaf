"""The loops of TopK for elements of up to 32 bits.

An element and its index are one number, so that the larger of two is the one to take, and no two are equal: the
element's bits in an order of integers above, the index below, the smaller the higher.  A few best are kept side by
side for many rows, or of a long row that is compared block by block with the worst of them; many are a row in order,
sorted by digits (a stable radix sort), of which only what beats the worst so far is kept.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from irc.expr import Bin, Bits, Const, Expr, Reduce, Tensor, Un, index, select
from irc.ir.dim import Dim, product
from irc.ir.types import DType, f32, i64, u32
from irc.loops.builder import LoopBuilder, Place, seen_as

FEW = 16
"""Best elements up to which each new one is compared with all."""
SIDE_BY_SIDE = 32
"""Rows of which the best are kept side by side."""
LONG = 1024
"""Elements from which a row is worth blocks."""
BLOCK = 64
SHARES = 8
"""Shares of the rows for threads, each with scratch to sort in."""
ROOM = 1024
"""Elements beside the best that are collected before they are sorted."""
INDEX = 1 << 31
"""One more than the largest index."""


@dataclass
class TopKLoops:
    """The loops of one TopK: of `x` seen as rows of `n` elements, the best `k` into `values` and `indices`.

    All are seen as (outer, axis, inner).
    """

    b: LoopBuilder
    x: Place
    values: Place
    indices: Place
    largest: bool
    by_index: bool

    @classmethod
    def of(
        cls, b: LoopBuilder, x: Tensor, values: Tensor, indices: Tensor, axis: int, largest: bool, by_index: bool
    ) -> TopKLoops:
        """See operand and results as (outer, axis, inner)."""

        def seen(t: Tensor) -> Place:
            return seen_as(t, [product(t.shape[:axis]), t.shape[axis], product(t.shape[axis + 1 :])])

        return cls(b, seen(x), seen(values), seen(indices), largest, by_index)

    def emit(self) -> None:
        """Emit the loops that suit the sizes."""
        outer, n, inner = self.x.shape
        k = self.values.shape[1]
        if k.const is None or int(k) > FEW:
            self._sorted_rows(k)
        elif inner.const is None or int(inner) >= FEW // 2:
            self._side_by_side(int(k), inner, outer, lambda place, share: (share, place))
        elif inner == 1 and n.at_most(LONG) and not outer.at_most(FEW // 2 - 1):
            self._side_by_side(int(k), outer, Dim.of(1), lambda place, share: (place, Const(0, i64)))
        else:
            self._long_rows(int(k))

    # ------------------------------------------------------------------------- numbers
    def _number(self, x: Expr, j: Expr) -> Expr:
        """Return the element and its index as a number from 0 on; NaN counts as the largest element."""
        if x.dtype.is_float:
            narrow = x.cast(f32)
            bits = select(narrow.eq(0.0), Const(0, u32), Bits(narrow, u32))  # zeros are equal
            # negative numbers are larger the smaller their bits are
            turned = Bin("bitxor", bits, select(Bin("lt", bits, _u32(1 << 31)), _u32(1 << 31), _u32((1 << 32) - 1)))
            high = select(narrow.ne(narrow), _u32((1 << 32) - 1), turned)
            high = (high if self.largest else Un("bitnot", high)).cast(i64)
        else:
            high = x.cast(i64) + (0 if x.dtype.kind == "u" else 1 << 31)
            high = high if self.largest else index((1 << 32) - 1) - high
        return high * INDEX + (index(INDEX - 1) - j)

    def _place(self, number: Expr) -> Expr:
        """Return the index in a number."""
        return index(INDEX - 1) - Bin("bitand", number, Const(INDEX - 1, i64))

    def _put(self, o: Expr, t: Expr, c: Expr, number: Expr) -> None:
        """Store a result."""
        j = self.b.let(self._place(number), "at")
        self.b.store(self.indices, (o, t, c), j.cast(self.indices.dtype))
        self.b.store(self.values, (o, t, c), self.x[o, j, c])

    # ------------------------------------------------------------------------- few
    def _side_by_side(self, k: int, count: Dim, shares: Dim, at: Callable[[Expr, Expr], tuple[Expr, Expr]]) -> None:
        """Keep the best of several rows side by side; `at` gives (outer, inner) of a row and a share of them."""
        b = self.b
        side = count.const if count.const is not None and int(count) <= 2 * SIDE_BY_SIDE else SIDE_BY_SIDE
        tiles = count.ceildiv(side)
        with b.for_(shares * tiles, "parallel", "p") as p:
            share, start = p // index(tiles), b.let(p % index(tiles) * side, "start")
            width = index(side) if count % side == 0 else b.let((index(count) - start).min(side), "width")
            best = b.alloc(i64, [k * side], "best")
            with b.for_(k * side, "simd", "t") as t:
                b.store(best, t, -1)
            with b.for_(self.x.shape[1], name="j") as j, b.for_(width, "simd", "c") as c:
                o, i = at(start + c, share)
                v: Expr = b.let(self._number(self.x[o, j, i], j), "v")
                for t in range(k):
                    held = b.let(best[c + t * side], "held")
                    b.store(best, c + t * side, held.max(v))
                    v = b.let(held.min(v), "v")
            if self.by_index:
                with b.for_(width, "simd", "c") as c:
                    self._in_order_of_index(best, c, k, side)
            with b.for_(width, name="c") as c, b.for_(k, name="t") as t:
                o, i = at(start + c, share)
                self._put(o, t, i, best[c + t * side])

    def _in_order_of_index(self, best: Place, c: Expr, k: int, side: int) -> None:
        """Exchange neighbours until the indices ascend: until the lower parts descend."""
        for last in range(k - 1, 0, -1):
            for t in range(last):
                here, there = (self.b.let(best[c + s * side], "held") for s in (t, t + 1))
                rising = self._place(here).gt(self._place(there))
                first = self.b.let(select(rising, there, here), "first")
                second = self.b.let(select(rising, here, there), "second")
                self.b.store(best, c + t * side, first)
                self.b.store(best, c + (t + 1) * side, second)

    def _long_rows(self, k: int) -> None:
        """Compare blocks of a row with the worst of the best so far."""
        b, n = self.b, self.x.shape[1]
        outer, _, inner = self.x.shape
        with b.for_(outer * inner, "parallel", "p") as p:
            o, i = (p, Const(0, i64)) if inner == 1 else (p // index(inner), p % index(inner))
            best = b.alloc(i64, [k], "best")
            with b.for_(k, name="t") as t:
                b.store(best, t, -1)

            def one(j: Expr) -> None:
                v: Expr = b.let(self._number(self.x[o, j, i], j), "v")
                with b.if_(v.gt(best[k - 1])):
                    for t in range(k):
                        held = b.let(best[t], "held")
                        b.store(best, t, held.max(v))
                        v = b.let(held.min(v), "v")

            with b.for_(n // BLOCK, name="s") as s:
                at = b.name("j")
                top = Reduce("max", (at,), (Dim.of(BLOCK),), self._number(self.x[o, s * BLOCK + at, i], s * BLOCK + at))
                with b.if_(b.let(top, "top").gt(best[k - 1])), b.for_(BLOCK, name="j") as j:
                    one(s * BLOCK + j)
            if n % BLOCK != 0:
                with b.for_(n % BLOCK, name="j") as j:
                    one(index(n // BLOCK) * BLOCK + j)
            if self.by_index:
                self._in_order_of_index(best, Const(0, i64), k, 1)
            with b.for_(k, name="t") as t:
                self._put(o, t, i, best[t])

    # ------------------------------------------------------------------------- many
    def _sorted_rows(self, k: Dim) -> None:
        """Sort what beats the worst of the best so far."""
        b = self.b
        outer, n, inner = self.x.shape
        rows = outer * inner
        room = n
        if n.const is not None and k.const is not None and int(n) > 2 * int(k) + ROOM:
            room = Dim.of(2 * int(k) + ROOM)
        shares = rows if rows.at_most(SHARES) else Dim.of(SHARES)
        scratch = b.alloc(i64, [shares, room], "kept"), b.alloc(i64, [shares, room], "moved")
        each = rows.ceildiv(shares) if rows != shares else Dim.of(1)
        with b.for_(shares, "parallel", "p") as p:
            first = b.let(p * index(each), "first")
            with b.for_((index(rows) - first).min(index(each)).max(0), name="r") as r:
                row = b.let(first + r, "row")
                o, i = (row, Const(0, i64)) if inner == 1 else (row // index(inner), row % index(inner))
                filled = self._collected(scratch, p, o, i, k, room)
                self._sort(scratch, p, filled, 31)
                if self.by_index:
                    self._sort(scratch, p, index(k), 0)
                with b.for_(k, name="t") as t:
                    self._put(o, t, i, scratch[0][p, t])

    def _collected(self, scratch: tuple[Place, Place], p: Expr, o: Expr, i: Expr, k: Dim, room: Dim) -> Expr:
        """Collect the numbers of a row that may be among the best k. Returns how many there are."""
        b, n, kept = self.b, self.x.shape[1], scratch[0]
        if room == n:
            with b.for_(n, name="j") as j:
                b.store(kept, (p, j), self._number(self.x[o, j, i], j))
            return index(n)
        filled = b.var(Const(0, i64), "filled")
        worst = b.var(Const(-1, i64), "worst")
        with b.for_(n, name="j") as j:
            v = b.let(self._number(self.x[o, j, i], j), "v")
            with b.if_(v.gt(worst)):
                b.store(kept, (p, filled), v)
                b.assign(filled, filled + 1)
                with b.if_(filled.eq(index(room))):
                    self._sort(scratch, p, filled, 31)
                    b.assign(filled, index(k))
                    b.assign(worst, kept[p, index(k) - 1])
        return filled

    def _sort(self, scratch: tuple[Place, Place], p: Expr, count: Expr, low: int) -> None:
        """Sort numbers by 32 of their bits, from `low` on, the largest first: four times by eight bits."""
        b = self.b
        places = b.alloc(i64, [256], "places")
        for turn in range(4):
            source, target = scratch if turn % 2 == 0 else scratch[::-1]

            def digit(v: Expr, shift: int = low + 8 * turn) -> Expr:
                return Const(255, i64) - Bin("bitand", Bin("shr", v, Const(shift, i64)), Const(255, i64))

            with b.for_(256, "simd", "d") as d:
                b.store(places, d, 0)
            with b.for_(count, name="j") as j:
                at = b.let(digit(source[p, j]), "digit")
                b.store(places, at, places[at] + 1)
            total = b.var(Const(0, i64), "total")
            with b.for_(256, name="d") as d:
                here = b.let(places[d], "here")
                b.store(places, d, total)
                b.assign(total, total + here)
            with b.for_(count, name="j") as j:
                v = b.let(source[p, j], "v")
                at = b.let(digit(v), "digit")
                b.store(target, (p, places[at]), v)
                b.store(places, at, places[at] + 1)


def _u32(value: int) -> Const:
    return Const(value, u32)


def has_numbers(dtype: DType) -> bool:
    """Tell whether elements and their indices are one number of 63 bits."""
    return dtype.itemsize <= 4
