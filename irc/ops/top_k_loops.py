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
SIDE_BY_SIDE = 64
"""Rows of which the best are kept side by side."""
LONG = 1024
"""Elements from which a row is worth blocks."""
BLOCK = 64
AT_ONCE = 4
"""Elements of each of these that are compared at a time."""
LANES = 16
"""Rows side by side are a multiple of this."""
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
            self._side_by_side(int(k), columns=True)
        elif inner == 1 and n.at_most(LONG) and not outer.at_most(FEW // 2 - 1):
            self._side_by_side(int(k), columns=False)
        else:
            self._long_rows(int(k))

    # ------------------------------------------------------------------------- numbers
    def _high(self, x: Expr) -> Expr:
        """Return an element's order among all, from 0 to 2^32 - 1; NaN counts as the largest element."""
        if x.dtype.is_float:
            narrow = x.cast(f32)
            bits = select(narrow.eq(0.0), _u32(0), Bits(narrow, u32))  # zeros are equal
            # negative numbers are larger the smaller their bits are
            turned = Bin("bitxor", bits, select(Bin("lt", bits, _u32(1 << 31)), _u32(1 << 31), _u32((1 << 32) - 1)))
            high = select(narrow.ne(narrow), _u32((1 << 32) - 1), turned)
            return high if self.largest else Un("bitnot", high)
        high = x.cast(i64) + (0 if x.dtype.kind == "u" else 1 << 31)
        return high if self.largest else index((1 << 32) - 1) - high

    def _number(self, x: Expr, j: Expr) -> Expr:
        """Return the element and its index as a number from 0 on."""
        return self._high(x).cast(i64) * INDEX + (index(INDEX - 1) - j)

    def _place(self, number: Expr) -> Expr:
        """Return the index in a number."""
        return index(INDEX - 1) - Bin("bitand", number, Const(INDEX - 1, i64))

    def _put(self, o: Expr, t: Expr, c: Expr, number: Expr) -> None:
        """Store a result."""
        j = self.b.let(self._place(number), "at")
        self.b.store(self.indices, (o, t, c), j.cast(self.indices.dtype))
        self.b.store(self.values, (o, t, c), self.x[o, j, c])

    # ------------------------------------------------------------------------- few
    def _side_by_side(self, k: int, columns: bool) -> None:
        """Keep the best of several rows side by side: of neighbours in the inner axis, or in the outer one."""
        b = self.b
        outer, n, inner = self.x.shape
        count, shares = (inner, outer) if columns else (outer, Dim.of(1))
        side = SIDE_BY_SIDE
        if count.const is not None and int(count) <= 2 * SIDE_BY_SIDE:
            side = -(-int(count) // LANES) * LANES
        tiles = count.ceildiv(side)
        with b.for_(shares * tiles, "parallel", "p") as p:
            share, start = p // index(tiles), b.let(p % index(tiles) * side, "start")
            width = index(side) if count % side == 0 else b.let((index(count) - start).min(side), "width")
            best = b.alloc(i64, [k * side], "best")
            turned = best if columns else b.alloc(self.x.dtype, [AT_ONCE * side], "turned")
            with b.for_(k * side, "simd", "t") as t:
                b.store(best, t, -1)

            def step(j: Expr, times: int) -> None:
                if not columns:  # turned first: compilers make little of vectors of elements that stand apart
                    with b.for_(width, name="c") as c:
                        for r in range(times):
                            b.store(turned, c + r * side, self.x[start + c, j + r, 0])
                    self._compare(best, k, side, width, lambda c, r: turned[c + r * side], j, times)
                    return
                # whole vectors: behind the columns are those of the next row, and behind the last one is nothing
                at = b.let((share * index(n) + j) * index(inner) + start, "at")
                have = b.let((index(outer * n * inner - inner * (times - 1)) - at).min(side), "have")
                flat = seen_as(self.x, [outer * n * inner])
                self._compare(best, k, side, have, lambda c, r: flat[at + c + index(inner) * r], j, times)

            with b.for_(n // AT_ONCE, name="j") as j:
                step(j * AT_ONCE, AT_ONCE)
            if n % AT_ONCE != 0:
                with b.for_(n % AT_ONCE, name="j") as j:
                    step(index(n // AT_ONCE) * AT_ONCE + j, 1)
            if self.by_index:
                with b.for_(width, "simd", "c") as c:
                    self._in_order_of_index(best, c, k, side)
            if columns:
                with b.for_(k, name="t") as t, b.for_(width, "simd", "c") as c:
                    self._put(share, t, start + c, best[c + t * side])
            else:
                with b.for_(width, name="c") as c, b.for_(k, name="t") as t:
                    self._put(start + c, t, Const(0, i64), best[c + t * side])

    def _compare(
        self, best: Place, k: int, side: int, width: Expr, x: Callable[[Expr, int], Expr], j: Expr, times: int
    ) -> None:
        """Compare the elements from `j` on, `times` of each row, with the best so far of that row."""
        b = self.b
        with b.for_(width, "simd", "c") as c:
            new: list[Expr] = [b.let(self._number(x(c, r), j + r), "v") for r in range(times)]
            for t in range(k):
                held: Expr = b.let(best[c + t * side], "held")
                for r, v in enumerate(new):
                    new[r] = b.let(held.min(v), "v")
                    held = b.let(held.max(v), "held")
                b.store(best, c + t * side, held)

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
        b = self.b
        outer, _, inner = self.x.shape
        with b.for_(outer * inner, "parallel", "p") as p:
            o, i = (p, Const(0, i64)) if inner == 1 else (p // index(inner), p % index(inner))
            best = b.alloc(i64, [k], "best")
            with b.for_(k, name="t") as t:
                b.store(best, t, -1)

            def look(start: Expr, length: int | Dim) -> None:
                with b.for_(length, name="j") as j:
                    v: Expr = b.let(self._number(self.x[o, start + j, i], start + j), "v")
                    with b.if_(v.gt(best[k - 1])):
                        for t in range(k):
                            held = b.let(best[t], "held")
                            b.store(best, t, held.max(v))
                            v = b.let(held.min(v), "v")

            self._scanned(o, i, lambda: best[k - 1], look)
            if self.by_index:
                self._in_order_of_index(best, Const(0, i64), k, 1)
            with b.for_(k, name="t") as t:
                self._put(o, t, i, best[t])

    def _scanned(self, o: Expr, i: Expr, worst: Callable[[], Expr], look: Callable[[Expr, int | Dim], None]) -> None:
        """Call `look` with the beginning and length of the parts of a row that have what is better than the worst."""
        b, n = self.b, self.x.shape[1]
        with b.for_(n // BLOCK, name="s") as s:
            at = b.name("j")
            top = Reduce("max", (at,), (Dim.of(BLOCK),), self._high(self.x[o, s * BLOCK + at, i]))
            with b.if_(b.let(top, "top").cast(i64).ge(Bin("shr", worst(), Const(31, i64)))):
                look(s * BLOCK, BLOCK)
        if n % BLOCK != 0:
            look(index(n // BLOCK) * BLOCK, n % BLOCK)

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

        new = b.alloc(i64, [BLOCK], "new")

        def look(start: Expr, length: int | Dim) -> None:
            with b.for_(length, "simd", "j") as j:
                b.store(new, j, self._number(self.x[o, start + j, i], start + j))
            with b.for_(length, name="j") as j:  # without a branch, which nobody can predict
                b.store(kept, (p, filled), new[j])
                b.assign(filled, filled + select(new[j].gt(worst), index(1), index(0)))
            with b.if_(filled.gt(index(room - BLOCK))):
                self._sort(scratch, p, filled, 31)
                b.assign(filled, index(k))
                b.assign(worst, kept[p, index(k) - 1])

        self._scanned(o, i, lambda: worst, look)
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
