"""The loops of TopK for elements of up to 32 bits.

A few best are kept side by side for many rows: the order of an element as an integer, and beside it its index.  Of rows
that are not long, first both as one such integer, the index in its last bits: where two of the best differ in these
only, what they are is found out as above.  Of a row alone, both are one number, so that the larger of two is the one to
take, and no two are equal: the element's bits in an order of integers above, the index below, the smaller the higher.
A long row is compared block by block with the worst of a few; many are a row in order, sorted by digits (a stable radix
sort), of which only what beats the worst so far is kept.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from irc.expr import Bin, Bits, Const, Expr, Reduce, Tensor, Un, index, select
from irc.ir.dim import Dim, product
from irc.ir.types import DType, f32, i32, i64, u32
from irc.loops.builder import LoopBuilder, Place, seen_as
from irc.ops.radix_sort import order_of_float

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
ROOM = 128
"""Elements beside twice the best that are collected, at least, before they are sorted: soon, for an early worst."""
LAST = (1 << 31) - 1
"""The largest key."""
PACKED = 256
"""Elements of rows whose indices stand in the last bits of their keys: more of these would often be missed."""
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

    def _put(self, o: Expr, t: Expr, c: Expr, place: Expr) -> None:
        """Store a result: the element at `place`."""
        j = self.b.let(place, "at")
        self.b.store(self.indices, (o, t, c), j.cast(self.indices.dtype))
        self.b.store(self.values, (o, t, c), self.x[o, j, c])

    # ------------------------------------------------------------------------- few
    def _side_by_side(self, k: int, columns: bool) -> None:
        """Keep the best of several rows side by side: of neighbours in the inner axis, or in the outer one."""
        b = self.b
        outer, n, inner = self.x.shape
        count, shares = (inner, outer) if columns else (outer, Dim.of(1))
        side = SIDE_BY_SIDE if count.const is None else _side(int(count))
        tiles = count.ceildiv(side)
        with b.for_(shares * tiles, "parallel", "p") as p:
            share, start = p // index(tiles), b.let(p % index(tiles) * side, "start")
            width = index(side) if count % side == 0 else b.let((index(count) - start).min(side), "width")
            best = Best(b, k, side)
            turned = best.keys if columns else b.alloc(self.x.dtype, [AT_ONCE * side], "turned")
            whole = width  # vectors of the rows, with nothing behind the last of them, which nobody looks at
            if not columns and count % LANES != 0:
                whole = b.let((width + (LANES - 1)) // index(LANES) * index(LANES), "whole")
                with b.for_(AT_ONCE * side, "simd", "c") as c:
                    b.store(turned, c, 0)

            def step(taker: Taker, j: Expr, times: int, first: int | None = None) -> None:
                if not columns:  # turned first: compilers make little of vectors of elements that stand apart
                    with b.for_(width, name="c") as c:
                        for r in range(times):
                            b.store(turned, c + r * side, self.x[start + c, j + r, 0])
                    taker.take(whole, j, times, lambda c, r: self._key(turned[c + r * side]), first)
                    return
                # whole vectors: behind the columns are those of the next row, and behind the last one is nothing
                at = b.let((share * index(n) + j) * index(inner) + start, "at")
                have = b.let((index(outer * n * inner - inner * (times - 1)) - at).min(side), "have")
                flat = seen_as(self.x, [outer * n * inner])
                taker.take(have, j, times, lambda c, r: self._key(flat[at + c + index(inner) * r]), first)

            if self.x.dtype.is_float and k < FEW and n.const is not None and 2 * k < int(n) <= PACKED:
                packed = PackedBest(b, k + 1, side, (1 << (int(n) - 1).bit_length()) - 1)
                self._take_all(packed, k + 1, step)
                with b.if_(packed.put(best, width).ne(0)):
                    self._take_all(best, k, step)
            else:
                self._take_all(best, k, step)
            if self.by_index:
                best.put_in_order_of_index()
            if columns:
                with b.for_(k, name="t") as t:
                    with b.for_(width, "simd", "c") as c:
                        place = best.places[c + t * side].cast(self.indices.dtype)
                        b.store(self.indices, (share, t, start + c), place)
                    with b.for_(width, "simd", "c") as c:
                        b.store(self.values, (share, t, start + c), self._from_column(share, start, c, best, t))
            else:
                with b.for_(width, name="c") as c, b.for_(k, name="t") as t:
                    self._put(start + c, t, Const(0, i64), best.places[c + t * side].cast(i64))

    def _take_all(self, taker: Taker, slots: int, step: Callable[..., None]) -> None:
        """Compare all elements of the rows with the best, of which there are so many."""
        b, n = self.b, self.x.shape[1]
        for j in range(0, slots, AT_ONCE):
            step(taker, index(j), min(AT_ONCE, slots - j), first=j)
        taker.put_in_order()
        if (n - slots) // AT_ONCE != 0:
            with b.for_((n - slots) // AT_ONCE, name="j") as j:
                step(taker, j * AT_ONCE + slots, AT_ONCE)
        if (n - slots) % AT_ONCE != 0:
            with b.for_((n - slots) % AT_ONCE, name="j") as j:
                step(taker, index((n - slots) // AT_ONCE) * AT_ONCE + slots + j, 1)

    def _from_column(self, o: Expr, start: Expr, c: Expr, best: Best, t: Expr) -> Expr:
        """Read an element of the best; vectors of elements from all over want places of 32 bits.

        Of few it is chosen: reading vectors of all takes less time than reading one's elements from all over.
        """
        _, n, inner = self.x.shape
        place = best.places[c + t * best.side]
        if n.const is not None and int(n) <= AT_ONCE:
            *others, value = (self.x[o, Const(j, i64), start + c] for j in range(int(n)))
            for j, other in reversed([*enumerate(others)]):
                value = select(place.eq(j), other, value)
            return value
        if not (n * inner).at_most(LAST):
            return self.x[o, place.cast(i64), start + c]
        flat = seen_as(self.x, [self.x.shape[0] * n * inner])
        return flat[o * index(n * inner) + start + (place * index(inner).cast(i32) + c.cast(i32)).cast(i64)]

    def _key(self, x: Expr) -> Expr:
        """Return an element's order among all, as a signed integer; NaN counts as the largest element."""
        if x.dtype.is_float:
            key = order_of_float(self.b, x.cast(f32))
        elif x.dtype == u32:
            key = Bin("bitxor", x, _u32(1 << 31)).cast(i32)
        else:
            key = x.cast(i32)
        return key if self.largest else Un("bitnot", key)

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
                self._in_order_of_index(best, k)
            with b.for_(k, name="t") as t:
                self._put(o, t, i, self._place(best[t]))

    def _in_order_of_index(self, best: Place, k: int) -> None:
        """Exchange neighbours until the indices ascend: until the lower parts of the numbers descend."""
        for last in range(k - 1, 0, -1):
            for t in range(last):
                here, there = (self.b.let(best[s], "held") for s in (t, t + 1))
                rising = self._place(here).gt(self._place(there))
                first = self.b.let(select(rising, there, here), "first")
                second = self.b.let(select(rising, here, there), "second")
                self.b.store(best, t, first)
                self.b.store(best, t + 1, second)

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
        if n.const is not None and k.const is not None:
            room = Dim.of(min(int(n), 2 * int(k) + max(ROOM, int(k))))
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
                    self._put(o, t, i, self._place(scratch[0][p, t]))

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


@dataclass
class Best:
    """The best `k` elements so far of `side` rows side by side: their keys, the larger the better, and their indices.

    Elements come in the order of their indices, so that only a larger key goes in front of what is there.
    """

    b: LoopBuilder
    k: int
    side: int

    def __post_init__(self) -> None:
        self.keys = self.b.alloc(i32, [self.k * self.side], "keys")
        self.places = self.b.alloc(i32, [self.k * self.side], "places")

    def take(
        self, width: Expr, j: Expr, times: int, key: Callable[[Expr, int], Expr], first: int | None = None
    ) -> None:
        """Compare the elements from `j` on, `times` of each row, with the best; the first ones fill slot after slot."""
        b = self.b
        with b.for_(width, "simd", "c") as c:
            new: list[Expr] = [b.let(key(c, r), "key") for r in range(times)]
            if first is not None:
                for r, v in enumerate(new):
                    self._store(c, first + r, v, _i32(first + r))
                return
            keys, places = self._held(c)
            for r, v in enumerate(new):
                place = (j + r).cast(i32)
                above = self._named(*(_mask(v.gt(held)) for held in keys))
                came = [_chosen(above[0], place, places[0])]
                rose = [keys[0].max(v)]
                for t in range(1, self.k):
                    here = b.let(_chosen(above[t], place, places[t]), "here")
                    came.append(_chosen(above[t - 1], places[t - 1], here))
                    rose.append(keys[t].max(keys[t - 1].min(v)))
                keys, places = ([b.let(e, "held") for e in some] for some in (rose, came))
            for t in range(self.k):
                self._store(c, t, keys[t], places[t])

    def put_in_order(self) -> None:
        """Exchange neighbours until the keys descend; equal ones stay as they are."""
        with self.b.for_(self.side, "simd", "c") as c:
            keys, places = self._held(c)
            for last in range(self.k - 1, 0, -1):
                for t in range(last):
                    rising = self.b.let(_mask(keys[t + 1].gt(keys[t])), "rising")
                    here, there = places[t : t + 2]
                    keys[t : t + 2] = self._named(keys[t].max(keys[t + 1]), keys[t].min(keys[t + 1]))
                    places[t : t + 2] = self._named(_chosen(rising, there, here), _chosen(rising, here, there))
            for t in range(self.k):
                self._store(c, t, keys[t], places[t])

    def put_in_order_of_index(self) -> None:
        """Exchange neighbours until the indices ascend.  The keys stay behind: nothing reads them any more."""
        with self.b.for_(self.side, "simd", "c") as c:
            _, places = self._held(c)
            for last in range(self.k - 1, 0, -1):
                for t in range(last):
                    here, there = places[t : t + 2]
                    places[t : t + 2] = self._named(here.min(there), here.max(there))
            for t in range(self.k):
                self.b.store(self.places, c + t * self.side, places[t])

    def _held(self, c: Expr) -> tuple[list[Expr], list[Expr]]:
        """Read the best of a row."""
        slots = range(self.k)
        keys: list[Expr] = [self.b.let(self.keys[c + t * self.side], "held") for t in slots]
        places: list[Expr] = [self.b.let(self.places[c + t * self.side], "held") for t in slots]
        return keys, places

    def _named(self, *found: Expr) -> list[Expr]:
        return [self.b.let(e, "held") for e in found]

    def _store(self, c: Expr, t: int, key: Expr, place: Expr) -> None:
        self.b.store(self.keys, c + t * self.side, key)
        self.b.store(self.places, c + t * self.side, place)


@dataclass
class PackedBest:
    """The best `k` keys so far of `side` rows side by side, in whose last bits, those of `mask`, their indices stand.

    The larger of two numbers is all that is to be computed.  Keys that differ in these bits only may be in the wrong
    order, or not among the best: there is one more than are wanted, which shows that.
    """

    b: LoopBuilder
    k: int
    side: int
    mask: int

    def __post_init__(self) -> None:
        self.keys = self.b.alloc(i32, [self.k * self.side], "packed")

    def take(
        self, width: Expr, j: Expr, times: int, key: Callable[[Expr, int], Expr], first: int | None = None
    ) -> None:
        """Compare the elements from `j` on, `times` of each row, with the best; the first ones fill slot after slot."""
        b = self.b
        with b.for_(width, "simd", "c") as c:
            new: list[Expr] = []
            for r in range(times):
                place = _i32(self.mask) - (j + r).cast(i32)
                new.append(b.let(Bin("bitor", Bin("bitand", key(c, r), _i32(~self.mask)), place), "key"))
            if first is not None:
                for r, v in enumerate(new):
                    b.store(self.keys, c + (first + r) * self.side, v)
                return
            keys = self._held(c)
            for v in new:
                rose = [keys[0].max(v)]
                rose += [keys[t].max(keys[t - 1].min(v)) for t in range(1, self.k)]
                keys: list[Expr] = [b.let(e, "held") for e in rose]
            self._store(c, keys)

    def put_in_order(self) -> None:
        """Exchange neighbours until the keys descend."""
        with self.b.for_(self.side, "simd", "c") as c:
            keys = self._held(c)
            for last in range(self.k - 1, 0, -1):
                for t in range(last):
                    a, b = keys[t : t + 2]
                    keys[t : t + 2] = [self.b.let(e, "held") for e in (a.max(b), a.min(b))]
            self._store(c, keys)

    def put(self, best: Best, width: Expr) -> Expr:
        """Store the indices of all keys but the last. Returns 0 unless some keys differ in their last bits only."""
        b = self.b
        alike = b.alloc(i32, [self.side], "alike")
        with b.for_(width, "simd", "c") as c:
            keys, found = self._held(c), _i32(0)
            for t in range(self.k - 1):
                same = Bin("bitand", Bin("bitxor", keys[t], keys[t + 1]), _i32(~self.mask)).eq(_i32(0))
                found = Bin("bitor", found, _mask(same))
                b.store(best.places, c + t * self.side, _i32(self.mask) - Bin("bitand", keys[t], _i32(self.mask)))
            b.store(alike, c, found)
        total = b.var(_i32(0), "any")
        with b.for_(width, name="c") as c:
            b.assign(total, Bin("bitor", total, alike[c]))
        return total

    def _held(self, c: Expr) -> list[Expr]:
        return [self.b.let(self.keys[c + t * self.side], "held") for t in range(self.k)]

    def _store(self, c: Expr, keys: list[Expr]) -> None:
        for t, key in enumerate(keys):
            self.b.store(self.keys, c + t * self.side, key)


Taker = Best | PackedBest


def _side(count: int) -> int:
    """Choose how many of this many rows stand side by side: such that the last ones leave few places empty."""
    if count <= 2 * SIDE_BY_SIDE:
        return -(-count // LANES) * LANES
    return min(range(SIDE_BY_SIDE, 2 * SIDE_BY_SIDE + 1, LANES), key=lambda side: -(-count // side) * side)


def _mask(condition: Expr) -> Expr:
    """Return -1 where a condition holds, else 0."""
    return select(condition, _i32(-1), _i32(0))


def _chosen(mask: Expr, a: Expr, b: Expr) -> Expr:
    """Return a where a mask is -1, else b.  Of choices that share conditions, compilers make a vector of each path."""
    return Bin("bitor", Bin("bitand", a, mask), Bin("bitand", b, Un("bitnot", mask)))


def _u32(value: int) -> Const:
    return Const(value, u32)


def _i32(value: int) -> Const:
    return Const(value, i32)


def has_numbers(dtype: DType) -> bool:
    """Tell whether elements and their indices are one number of 63 bits."""
    return dtype.itemsize <= 4
