"""Scheduling of one stage: which axis is vectorised, what is blocked, where accumulators stand.

Three ways.  `nest`: no reduction; the innermost loop is simd.  `lanes`: the reduction's last axis is contiguous;
several accumulators side by side, added up in a fixed order.  `tile`: a row tile of the last result axis is
accumulated in local memory, the reduction outside it; a second axis is blocked where operands are shared.
None of them splits a reduction over threads, so results do not depend on how many there are.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field

from irc.expr import Const, Expr, Load, Operand, Reduce, Select, Var, index
from irc.fusion.elements import is_index
from irc.fusion.indexing import Ranges, coefficient, local_name
from irc.ir.dim import Dim, product
from irc.ir.types import boolean, i64
from irc.loops.builder import Kind, LoopBuilder
from irc.loops.ir import Buffer, For, If
from irc.loops.simplify import Span, bound, combine, depends, has_reduce, identity, share, split_guards, substitute
from irc.traversal import fold, replaced, walk

TILE = 256
WHOLE_TILE = 512
"""A last axis of up to this many elements is one tile."""
AT_ONCE = 16
"""Accumulators whose loop GCC unrolls before it vectorises, as `lanes` asks for: of one register of f32 or less."""


SHORT_ROW = 64
"""Rows below so many elements have an accumulator for each, several rows at once where they follow each other."""
FEW_ROWS = 4
"""Rows below which these are not worth adding them up at the end."""
LINE = 64
"""Bytes of a line of the cache."""
ROWS_TOGETHER = 256
"""Elements of rows that are accumulated together, at most."""


@dataclass
class Axis:
    """A loop over one axis of the result."""

    var: Var
    extent: Dim

    @property
    def size(self) -> int | None:
        return self.extent.const


# ------------------------------------------------------------------------- scalars
class Scalars:
    """Evaluates expressions with reductions at one place: statements first, then a plain expression."""

    def __init__(self, b: LoopBuilder, ranges: Ranges) -> None:
        self.b, self.ranges = b, ranges

    def value(self, e: Expr) -> Expr:
        """Evaluate the reductions in `e` by statements. Returns `e` without `Reduce`."""
        if not has_reduce(e):
            return e
        parts = walk(e, into=lambda x: not isinstance(x, Reduce))
        guarded = [x for x in parts if isinstance(x, Select) and (has_reduce(x.a) or has_reduce(x.b))]
        if guarded:
            certain = _certain(e)
            once: dict[Expr, Expr] = {r: self.reduce(r) for r in _outermost(e) if r in certain}
            return self.value(replaced(e, once.get)) if once else self._branches(e, guarded[-1])
        found: dict[Expr, Expr] = {r: self.reduce(r) for r in _outermost(e)}
        return replaced(e, found.get)

    def _branches(self, e: Expr, choice: Select) -> Expr:
        """Evaluate a reduction under a condition only where the condition holds."""
        b = self.b
        cond = self.value(choice.cond)
        result = b.var(identity("sum", choice.dtype) if choice.dtype != boolean else Const(False, boolean), "chosen")
        with b.if_(cond):
            b.assign(result, self.value(choice.a))
        with b.else_():
            b.assign(result, self.value(choice.b))
        found: dict[Expr, Expr] = {choice: result}
        return self.value(replaced(e, found.get))

    def reduce(self, r: Reduce) -> Expr:
        """Evaluate a reduction into a scalar."""
        mine: set[Expr] = set(r.vars)
        inner = [x for x in _outermost(r.body) if not depends(x, mine)]
        if inner:
            found: dict[Expr, Expr] = {x: self.reduce(x) for x in inner}
            r = Reduce(r.op, r.vars, r.extents, replaced(r.body, found.get))
        if not has_reduce(r.body) and columns_worthy(r, self.ranges):
            return self._columns(r)
        if not has_reduce(r.body) and lane_worthy(r, self.ranges):
            return self._lanes(r)
        b = self.b
        total = b.var(identity(r.op, r.dtype), "acc")
        with loops(b, r.vars, r.extents):
            body = self.value(r.body)
            b.assign(total, combine(r.op, total, share(b, body)))
        return total

    def _lanes(self, r: Reduce) -> Expr:
        """Sum up the last axis in accumulators side by side, then fold these in halves.

        The order is the same on every machine.
        """
        b, last, extent = self.b, r.vars[-1], r.extents[-1]
        lanes = lane_count(r)
        acc = b.alloc(r.dtype, [lanes], "lanes")
        buffer = _buffer(acc)
        # To GCC, a maximum that keeps NaNs is no reduction: of lanes that it unrolls at once, it makes scalars.
        kind: Kind = "simd" if r.op in ("max", "min") and lanes <= AT_ONCE else "lanes"
        with b.for_(lanes, kind, "j") as j:
            b.store(buffer, j, identity(r.op, r.dtype))
        with loops(b, r.vars[:-1], r.extents[:-1]):

            def step(base: Expr, j: Var) -> None:
                body = share(b, substitute(r.body, {last: base + j}))
                b.store(buffer, j, combine(r.op, acc[j], body))

            with b.for_(extent // lanes, name="s") as s, b.for_(lanes, kind, "j") as j:
                step(s * lanes, j)
            if extent % lanes != 0:
                with b.for_(extent % lanes, "simd", "j") as j:
                    step(index(extent // lanes) * lanes, j)
        return self._folded(r, buffer, lanes)

    def _columns(self, r: Reduce) -> Expr:
        """Sum up short rows, one accumulator for each column, then fold these in halves."""
        b, last, columns = self.b, r.vars[-1], r.extents[-1].const or 1
        buffer = _buffer(b.alloc(r.dtype, [columns], "columns"))
        with b.for_(columns, "simd", "j") as j:
            b.store(buffer, j, identity(r.op, r.dtype))
        with loops(b, r.vars[:-1], r.extents[:-1]), b.for_(columns, "simd", "j") as j:
            body = share(b, substitute(r.body, {last: j}))
            b.store(buffer, j, combine(r.op, Load(buffer, (j,)), body))
        return self._folded(r, buffer, columns)

    def _folded(self, r: Reduce, buffer: Buffer, count: int) -> Expr:
        """Fold accumulators in halves, the middle one of an odd number later."""
        b = self.b
        while count > 2:
            half = (count + 1) // 2
            with b.for_(count - half, "simd", "j") as j:
                b.store(buffer, j, combine(r.op, Load(buffer, (j,)), Load(buffer, (j + half,))))
            count = half
        first, second = (Load(buffer, (index(k),)) for k in (0, 1))
        return b.let(combine(r.op, first, second), "acc")


def lane_count(r: Reduce) -> int:
    """Count the accumulators of a row.

    One register of 64 bytes; several if the row is long, as each waits for its last sum.
    """
    lanes, size = 64 // max(r.dtype.itemsize, 2), r.extents[-1].const
    return 4 * lanes if size is None or size >= 8 * lanes else lanes


def _outermost(e: Expr) -> list[Reduce]:
    """List the reductions in `e` that are in no other."""
    parts = walk(e, into=lambda x: not isinstance(x, Reduce))
    return list(dict.fromkeys(x for x in parts if isinstance(x, Reduce)))


def _certain(e: Expr) -> frozenset[Expr]:
    """List the reductions in `e` that are evaluated whichever conditions hold."""

    def combine(x: Expr, parts: tuple[frozenset[Expr], ...]) -> frozenset[Expr]:
        if isinstance(x, Reduce):
            return frozenset({x})
        if isinstance(x, Select):
            cond, a, b = parts
            return cond | (a & b)
        return frozenset[Expr]().union(*parts)

    return fold(e, combine)


def lane_worthy(r: Reduce, ranges: Ranges) -> bool:
    """Tell whether the reduction's last axis is long and every load is contiguous or constant along it."""
    size = r.extents[-1].const
    if r.op in ("any", "all") or (size is not None and size < 32) or r.dtype.kind not in "fiu":
        return False
    return all(stride_score(x, r.vars[-1], ranges) == 0 for x in walk(r.body) if isinstance(x, Load))


def columns_worthy(r: Reduce, ranges: Ranges) -> bool:
    """Tell whether a reduction is one of many short rows, along which every load is contiguous or constant."""
    size, rows = r.extents[-1].const, product(r.extents[:-1]).const
    if r.op in ("any", "all") or r.dtype.kind not in "fiu" or size is None or not 4 <= size < SHORT_ROW:
        return False
    if rows is not None and rows < FEW_ROWS:
        return False
    return all(stride_score(x, r.vars[-1], ranges) == 0 for x in walk(r.body) if isinstance(x, Load))


def stride_score(load: Load, var: Var, ranges: Ranges) -> int:
    """Rate a load along a loop: 0 if it is constant or contiguous, 1 if it strides, 2 if it is irregular."""
    slope = coefficient(ranges.flat(load.index, load.buffer.shape), local_name(var))
    if slope is None or any(depends(i, {var}) and not is_index(i) for i in load.index):
        return 2
    return 0 if slope == 0 or slope == 1 else 1


@contextmanager
def loops(b: LoopBuilder, vars: tuple[Var, ...], extents: tuple[Dim, ...]) -> Iterator[None]:
    """Open loops over variables that exist already."""
    with ExitStack() as stack:
        for var, extent in zip(vars, extents, strict=True):
            stack.enter_context(loop(b, var, extent))
        yield


@contextmanager
def loop(b: LoopBuilder, var: Var, extent: Operand, kind: str = "serial") -> Iterator[None]:
    """Open one loop over a variable that exists already."""
    made = For(var, index(extent), [], kind, b.origin)  # pyright: ignore[reportArgumentType]
    b.add(made)
    with b.inside(made.body):
        yield


def _buffer(place: object) -> Buffer:
    found = getattr(place, "buffer", None)
    assert isinstance(found, Buffer)
    return found


# --------------------------------------------------------------------------- tiles
@dataclass
class Tile:
    """A piece of the vectorised axis: `axis.var` runs from `start` for `length` iterations, at most `most`."""

    axis: Axis
    start: Expr
    length: Expr
    most: int


def tile_of(b: LoopBuilder, stack: ExitStack, axis: Axis, kind: Kind) -> Tile:
    """Open the loop of this kind over the tiles of an axis, unless the whole axis is one."""
    if axis.size is not None and axis.size <= WHOLE_TILE:
        return Tile(axis, Const(0, i64), index(axis.extent), axis.size)
    n = stack.enter_context(b.for_(axis.extent.ceildiv(TILE), kind, "n"))
    start = b.let(n * TILE, "start")
    return Tile(axis, start, b.let((index(axis.extent) - start).min(TILE), "width"), TILE)


@dataclass
class TileReducer:
    """Emits reductions for all of a tile, and for several values of a blocked variable at once.

    `blocks` are substitutions, one per copy of the accumulators.
    """

    b: LoopBuilder
    ranges: Ranges
    tile: Tile
    blocks: list[dict[Expr, Expr]]
    flat: Callable[[Buffer], Buffer]
    fixed: set[Expr] = field(default_factory=set[Expr])  # variables of a guard from outside the reduction

    def values(self, e: Expr) -> list[Callable[[Var], Expr]]:
        """Run the reductions in `e`. Returns for each block a function from a tile position `t` to the element."""
        accs: dict[Expr, list[Buffer]] = {}
        for r in _postorder(e):
            accs[r] = self._reduce(r, accs)

        def at(k: int) -> Callable[[Var], Expr]:
            return lambda t: self._resolved(e, k, t, accs)

        return [at(k) for k in range(len(self.blocks))]

    def _resolved(self, e: Expr, k: int, t: Expr, accs: dict[Expr, list[Buffer]]) -> Expr:
        known: dict[Expr, Expr] = {r: Load(found[k], (t,)) for r, found in accs.items()}
        reduced = replaced(e, known.get)
        return substitute(reduced, {**self.blocks[k], self.tile.axis.var: self.tile.start + t, TILE_VAR: t})

    def _reduce(self, r: Reduce, accs: dict[Expr, list[Buffer]]) -> list[Buffer]:
        b, tile = self.b, self.tile
        together = self._rows_together(r)
        if together > 1:
            return [self._short_rows(r, together)]
        made = [_buffer(b.alloc(r.dtype, [tile.most], "acc")) for _ in self.blocks]
        with b.for_(tile.length, "simd", "t") as t:
            for acc in made:
                b.store(acc, t, identity(r.op, r.dtype))
        guards, body = split_guards(r.op, r.body)
        order, unrolled = self._order(r, guards)
        with ExitStack() as stack:
            opened: set[Expr] = set()
            pending, spans = list(guards), Span()
            pending = self._close(stack, pending, opened, r, spans)
            for var, extent in order:
                stack.enter_context(loop(b, var, extent))
                opened.add(var)
                pending = self._close(stack, pending, opened, r, spans)
            if unrolled is None:
                self._steps(r, body, pending, spans, accs, made, [{}])
            else:
                self._unrolled(r, body, pending, spans, accs, made, *unrolled)
        return made

    # ------------------------------------------------------------------ short rows
    def _rows_together(self, r: Reduce) -> int:
        """Count the rows to accumulate side by side: rows that are the whole tile, and follow each other in memory.

        Of few rows as many follow one another as an iteration takes: folding costs more than that.
        """
        width, rows = self.tile.axis.size, r.extents[-1].const
        if self.blocks != [{}] or width is None or not 1 < width < SHORT_ROW or rows is None or rows < FEW_ROWS:
            return 1
        vars: set[Expr] = {self.tile.axis.var, TILE_VAR, *r.vars}
        outside = walk(r.body, into=lambda x: not (isinstance(x, Load) and all(map(is_index, x.index))))
        if has_reduce(r.body) or any(x in vars for x in outside):
            return 1
        loads = [x for x in walk(r.body) if isinstance(x, Load)]
        if any(x.buffer.root.where == "local" or self._row_step(x, r) is None for x in loads):
            return 1
        count = 2
        while 2 * count * width <= ROWS_TOGETHER and 2 * count * self.b.copies <= rows:
            count *= 2
        return count

    def _row_step(self, x: Load, r: Reduce) -> Dim | None:
        """Return the step of a load along rows that follow each other; None if they do not."""
        position = self.ranges.flat(x.index, x.buffer.shape)
        along, down = (coefficient(position, local_name(v)) for v in (self.tile.axis.var, r.vars[-1]))
        if along not in (0, 1) or down is None or down != along * self.tile.axis.extent:
            return None
        return along

    def _short_rows(self, r: Reduce, together: int) -> Buffer:
        """Reduce several rows of the tile at once. Returns the accumulators, whose first row is the result."""
        b, width, rows = self.b, self.tile.axis.size or 1, r.extents[-1].const or 1
        acc = _buffer(b.alloc(r.dtype, [together * width], "acc"))
        with b.for_(together * width, "simd", "t") as t:
            b.store(acc, t, identity(r.op, r.dtype))

        def step(starts: list[Expr], count: int) -> None:
            with b.for_(count * width, "simd", "t") as t:
                total: Expr = Load(acc, (t,))
                for first in starts:
                    total = combine(r.op, total, share(b, self._at_row(r, first, t)))
                b.store(acc, t, total)

        groups = rows // together
        at_once = min(b.copies, groups)
        with loops(b, r.vars[:-1], r.extents[:-1]):
            with b.for_(groups // at_once, name="k") as k:
                step([(k * at_once + j) * together for j in range(at_once)], together)
            if groups % at_once:
                with b.for_(groups % at_once, name="k") as k:
                    step([(k + groups // at_once * at_once) * together], together)
            if rows % together:
                step([index(rows // together * together)], rows % together)
        while together > 1:
            together //= 2
            with b.for_(together * width, "simd", "t") as t:
                b.store(acc, t, combine(r.op, Load(acc, (t,)), Load(acc, (t + together * width,))))
        return acc

    def _at_row(self, r: Reduce, first: Expr, t: Var) -> Expr:
        """Take the t-th element from the beginning of a row on, in all loads of the reduction's body."""

        def moved(x: Expr) -> Expr | None:
            if not isinstance(x, Load) or not (step := self._row_step(x, r)):
                return None
            position = self.ranges.flat(x.index, x.buffer.shape).subs({local_name(self.tile.axis.var): Dim.of(0)})
            start = substitute(self.ranges.expr(position), {r.vars[-1]: first})
            assert step == 1
            return Load(self.flat(x.buffer), (start + t,))

        return replaced(r.body, moved)

    def _order(self, r: Reduce, guards: list[Expr]) -> tuple[list[tuple[Var, Dim]], tuple[Var, Dim] | None]:
        """Order the reduction's loops: those that guards need outside, one that none needs unrolled inside."""
        pairs = list(zip(r.vars, r.extents, strict=True))
        free = [p for p in pairs if not any(depends(g, {p[0]}) for g in guards)]
        chosen = max(free, key=lambda p: p[1].const if p[1].const is not None else 1 << 30, default=None)
        if chosen is None or not self._gains_by_copies(r):
            return pairs, None
        return [p for p in pairs if p is not chosen], chosen

    def _gains_by_copies(self, r: Reduce) -> bool:
        """Tell whether several steps at once are faster than one after the other.

        Of the larger of two floats, which is NaN where either is, each waits long for the one before.  But elements
        that are whole lines of the cache apart are in few of its sets: what stands behind them is gone later.
        """
        if r.op == "sum":
            return True
        loads = [x for x in walk(r.body) if isinstance(x, Load) and all(map(is_index, x.index))]
        along = local_name(self.tile.axis.var)
        steps = [coefficient(self.ranges.flat(x.index, x.buffer.shape), along) for x in loads]
        if any(s is not None and s.const and s.const * r.dtype.itemsize % LINE == 0 for s in steps):
            return True
        return r.dtype.kind in "iu" and all(s is not None and s.const in (0, 1) for s in steps)

    def _close(self, stack: ExitStack, guards: list[Expr], opened: set[Expr], r: Reduce, span: Span) -> list[Expr]:
        """Turn guards whose variables are known by now into `If`s, or into bounds of the tile."""
        blocked: set[Expr] = set[Expr]().union(*(set(x) for x in self.blocks))
        later: list[Expr] = []
        for guard in guards:
            waiting: set[Expr] = (set(r.vars) - opened) | blocked
            if depends(guard, waiting):
                later.append(guard)
            elif not depends(guard, {self.tile.axis.var}):
                choice = If(guard, [])
                self.b.add(choice)
                stack.enter_context(self.b.inside(choice.then))
            elif not bound(guard, self.tile.axis.var, self.ranges, span):
                later.append(guard)
        return later

    def _unrolled(
        self,
        r: Reduce,
        body: Expr,
        pending: list[Expr],
        span: Span,
        accs: dict[Expr, list[Buffer]],
        made: list[Buffer],
        var: Var,
        extent: Dim,
    ) -> None:
        b, size = self.b, extent.const
        factor = b.copies if size is None or size >= b.copies else size
        if factor <= 1:
            with loop(b, var, extent):
                self._steps(r, body, pending, span, accs, made, [{}])
            return
        start, length = self._bounds(span)
        if size != factor:
            with b.for_(extent // factor, name="k") as k:
                self._simd(r, body, pending, start, length, accs, made, [{var: k * factor + j} for j in range(factor)])
        else:
            self._simd(r, body, pending, start, length, accs, made, [{var: index(j)} for j in range(factor)])
        if extent % factor != 0:
            with b.for_(extent % factor, name="k") as k:
                rest = index(extent // factor) * factor + k
                self._simd(r, body, pending, start, length, accs, made, [{var: rest}])

    def _bounds(self, span: Span) -> tuple[Expr, Expr]:
        """Return the first tile position and the number of positions inside the span."""
        b, tile = self.b, self.tile
        if not span.low and not span.high:
            return Const(0, i64), tile.length
        first: Expr = Const(0, i64)
        for low in span.low:
            first = first.max(low - tile.start)
        last = tile.length
        for high in span.high:
            last = last.min(high - tile.start)
        start = b.let(first, "first")
        return start, b.let(last - start, "length")

    def _steps(
        self,
        r: Reduce,
        body: Expr,
        pending: list[Expr],
        span: Span,
        accs: dict[Expr, list[Buffer]],
        made: list[Buffer],
        steps: list[dict[Expr, Expr]],
    ) -> None:
        start, length = self._bounds(span)
        self._simd(r, body, pending, start, length, accs, made, steps)

    def _simd(
        self,
        r: Reduce,
        body: Expr,
        pending: list[Expr],
        start: Expr,
        length: Expr,
        accs: dict[Expr, list[Buffer]],
        made: list[Buffer],
        steps: list[dict[Expr, Expr]],
    ) -> None:
        """Emit the innermost loop: every block takes the same steps of the reduction."""
        b = self.b
        for guard in reversed(pending):
            body = Select(guard, body, identity(r.op, r.dtype))
        with b.for_(length, "simd", "t") as t:
            at = t if start == Const(0, i64) else start + t
            for k, acc in enumerate(made):
                total: Expr = Load(acc, (at,))
                for step in steps:
                    term = substitute(self._resolved(body, k, at, accs), step)
                    total = combine(r.op, total, share(b, term))
                b.store(acc, at, total)


TILE_VAR = Var("tile")
"""Stands for the position in the tile in loads of tile-sized scratch."""


def _postorder(e: Expr) -> list[Reduce]:
    """List every reduction, inner ones first."""
    found: dict[Reduce, None] = {}

    def go(x: Expr) -> None:
        for r in _outermost(x):
            if r not in found:
                go(r.body)
                found[r] = None

    go(e)
    return list(found)


def tileable(e: Expr) -> bool:
    """Tell whether all reductions in `e` are evaluated in any case, and none depends on the variables of another."""
    for x in walk(e):
        if isinstance(x, Select) and not _certain(x).issuperset((*_outermost(x.a), *_outermost(x.b))):
            return False
        if isinstance(x, Reduce) and any(depends(r, set(x.vars)) for r in _outermost(x.body)):
            return False
    return True
