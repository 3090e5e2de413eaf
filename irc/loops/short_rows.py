"""Short rows: several of them are one loop, so that vectors are full where the last axis is of 5 or 33 elements.

`y[i, j] = f(x[i, j], a[i], b[j])` with j < 7 is one short vector and a rest of single elements.  With a and b spread
first over a chunk of rows, in local memory, it is one loop over all elements of the chunk.  What depends on some of
the chunk's axes only is computed once for those, and spread.  A row is spread by whole vectors: what these write too
much, the next row overwrites, or nobody reads.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from math import prod

from irc.expr import Call, Const, Expr, Load, Select, Var, index, rebuilt
from irc.fusion.elements import is_index
from irc.fusion.indexing import Ranges, coefficient, local_name
from irc.ir.dim import Dim
from irc.ir.types import i64
from irc.loops.builder import Kind, LoopBuilder, Place
from irc.loops.ir import Buffer
from irc.loops.pieces import pieces_in
from irc.loops.schedule import Axis, loop
from irc.loops.simplify import depends, share, substitute
from irc.loops.split import Element
from irc.traversal import replaced, rewrite, walk

LONG = 64
"""Rows of so many elements are loops of their own."""
CHUNK = 512
"""Elements that are computed together, about: what is spread for them stays in the first cache."""
FEW = 192
"""Elements that a chunk should have at least, so that its own rest counts little."""
PAD = 16
"""Elements that spreading may write behind a chunk, or read behind a row."""
LANES = (8, 16)
"""Elements of a vector, on the processors that the choice is made for."""
CALL = 20
"""Operations of a mathematical function."""


@dataclass
class Chunk:
    """The inner axes of a nest that become one loop, `rows` of the first of them at a time."""

    outer: list[Axis]
    axes: list[Axis]
    rows: int

    @property
    def row(self) -> int:
        """The elements of an iteration of the first axis."""
        return prod(a.size or 1 for a in self.axes[1:])

    @property
    def vars(self) -> set[Expr]:
        return {a.var for a in self.axes}

    @property
    def whole(self) -> bool:
        """Whether the chunk is all of its axes."""
        return self.axes[0].size == self.rows


@dataclass
class _Spread:
    """A part of an expression that is spread over the chunk before it is used, and the axes that it depends on."""

    value: Expr
    over: list[Axis]


def emit_short_rows(
    flat: Callable[[Buffer], Buffer],
    b: LoopBuilder,
    ranges: Ranges,
    axes: list[Axis],
    target: Buffer,
    elements: Sequence[Element],
    outermost: bool,
    independent: bool,
) -> bool:
    """Emit a nest of short rows as loops over several of them. Returns whether it did: whether that is worth it.

    outermost, independent: as of `irc.loops.stages.emit_nest`.
    """
    chunk = _chunk_of(axes)
    if chunk is None or not _regular(ranges, chunk, target, elements):
        return False
    emission = _Emission(flat, b, ranges, chunk)
    found = [emission.take_out(x.value) for x in elements]
    if not _is_worth(chunk, found, len(emission.spread), _narrowest(target, found)):
        return False
    emission.emit(target, elements, found, outermost, "parallel" if independent else "serial")
    return True


def _chunk_of(axes: list[Axis]) -> Chunk | None:
    """Choose the axes that are joined: few enough elements for the first cache, enough for full vectors."""
    if len(axes) < 2 or axes[-1].size is None or not 1 < axes[-1].size < LONG or axes[-1].size % PAD == 0:
        return None
    first, total = len(axes) - 1, axes[-1].size
    while first > 0 and total < FEW:
        first -= 1
        size = axes[first].size
        if size is None or total * size > CHUNK + CHUNK // 2:
            return Chunk(axes[:first], axes[first:], _rows(size, total))
        total *= size
    return Chunk(axes[:first], axes[first:], axes[first].size or 1)


def _rows(size: int | None, row: int) -> int:
    """Choose how many rows are a chunk: a divisor of all, if one is about right."""
    most = max(CHUNK // row, 1)
    if size is None:
        return most
    exact = [r for r in range(1, most + most // 2 + 1) if size % r == 0 and r * row >= FEW]
    return max(exact, default=most)


def _regular(ranges: Ranges, chunk: Chunk, target: Buffer, elements: Sequence[Element]) -> bool:
    """Tell whether all stores follow the joined loop, and nothing but positions depends on its variables."""
    for x in elements:
        if _slope(ranges, chunk, ranges.flat(x.at, target.shape)) in (None, 0):
            return False
        chosen = any(isinstance(y, Select) for y in walk(x.value))
        for y in walk(x.value, into=lambda y: not (isinstance(y, Load) and all(map(is_index, y.index)))):
            if y in chunk.vars:
                return False
            if isinstance(y, Load) and (y.buffer.root.where == "local" or (chosen and not _inside(ranges, y))):
                return False
    return True


def _inside(ranges: Ranges, x: Load) -> bool:
    """Tell whether a place is within the tensor, whatever guards it."""
    if not all(map(is_index, x.index)):
        return False
    return all(ranges.within(ranges.dim(i), n) for i, n in zip(x.index, x.buffer.shape, strict=True))


def _slope(ranges: Ranges, chunk: Chunk, position: Dim) -> Dim | None:
    """Return the step of a position from one element of the chunk to the next; None if steps differ."""
    step = coefficient(position, local_name(chunk.axes[-1].var))
    if step is None:
        return None
    size = 1
    for inner, axis in zip(reversed(chunk.axes), reversed(chunk.axes[:-1]), strict=False):
        size *= inner.size or 1
        if coefficient(position, local_name(axis.var)) != step * size:
            return None
    return step


def _narrowest(target: Buffer, values: Sequence[Expr]) -> int:
    """Return the bytes of the smallest elements that a loop reads or writes: its vectors are full of those."""
    read = [x.dtype for e in values for x in walk(e) if isinstance(x, Load)]
    return max(min(kind.itemsize for kind in (target.dtype, *read)), 1)


def _is_worth(chunk: Chunk, values: Sequence[Expr], spread: int, narrowest: int) -> bool:
    """Tell whether the steps saved of short vectors and single elements are more than those of spreading."""
    operations = 2.0
    seen = {x for e in values for x in walk(e, into=lambda x: not isinstance(x, Load))}
    for x in seen:
        operations += CALL if isinstance(x, Call) else 1 if x.parts else 0
    size = chunk.axes[-1].size or 1
    total = chunk.rows * chunk.row
    saved = 0.0
    for words in LANES:
        lanes = words * max(4 // narrowest, 1)
        steps = _steps(size, lanes) - _steps(total, lanes) * size / total
        saved += operations * steps + 2 - spread * (1 + -(-size // words) + 2 * size / words)
    return saved > 0


def _steps(size: int, lanes: int) -> int:
    """Count the vectors of a loop, shorter ones for its rest, and single elements at the end."""
    steps = size // lanes
    size %= lanes
    while lanes > 4:
        lanes //= 2
        steps += size // lanes
        size %= lanes
    return steps + size


@dataclass
class _Emission:
    """The loops of one nest.  `flat` gives the one-dimensional view of a buffer."""

    flat: Callable[[Buffer], Buffer]
    b: LoopBuilder
    ranges: Ranges
    chunk: Chunk
    spread: dict[Expr, _Spread] = field(default_factory=dict[Expr, _Spread])
    ready: dict[Expr, Buffer] = field(default_factory=dict[Expr, Buffer])
    """Where what was spread stands."""

    def take_out(self, e: Expr) -> Expr:
        """Find what is to be spread in an expression. Returns the expression."""
        chunk = self.chunk

        def step(x: Expr, state: None, go: Callable[[Expr, None], Expr]) -> Expr:
            over = [a for a in chunk.axes if depends(x, {a.var})]
            if not over or (isinstance(x, Load) and self._follows(x)):
                return x
            if isinstance(x, Load) or len(over) < len(chunk.axes):
                self.spread.setdefault(x, _Spread(x, over))
                return x
            return rebuilt(x, tuple(go(c, state) for c in x.parts))

        return rewrite(e, step, None)

    def _follows(self, x: Load) -> bool:
        """Tell whether a read takes a step with every element of the chunk."""
        if not all(map(is_index, x.index)):
            return False
        return _slope(self.ranges, self.chunk, self.ranges.flat(x.index, x.buffer.shape)) is not None

    def emit(
        self, target: Buffer, elements: Sequence[Element], values: Sequence[Expr], outermost: bool, kind: Kind
    ) -> None:
        """Emit all loops, those over rows of this kind."""
        b, chunk, first = self.b, self.chunk, self.chunk.axes[0]
        waiting = list(self.spread.values())
        with ExitStack() as stack:
            for axis in chunk.outer:
                stack.enter_context(loop(b, axis.var, axis.extent, kind))
            start, rows = Dim.of(0), index(chunk.rows)
            if not chunk.whole:
                alone = outermost and not chunk.outer
                if not alone:  # what every chunk of rows needs alike
                    self._prepare([s for s in waiting if first not in s.over], start, rows)
                    waiting = [s for s in waiting if first in s.over]
                count = first.extent.ceildiv(chunk.rows)
                n = stack.enter_context(b.for_(count, kind, "n"))
                self.ranges.declare(n, count)
                start = self.ranges.symbol(n) * chunk.rows
                if first.extent % chunk.rows != 0:
                    rows = b.let((index(first.extent) - self.ranges.expr(start)).min(chunk.rows), "rows")
            self._prepare(waiting, start, rows)
            for x in pieces_in(b, values, chunk.vars):
                made = _buffer(b.alloc(x.dtype, [chunk.rows * chunk.row], "piece"))
                with b.for_(rows * chunk.row, "simd", "t") as t:
                    self.ranges.declare(t, Dim.of(chunk.rows * chunk.row))
                    b.store(made, t, share(b, self._joined(x, start, t)))
                self.ready[x] = made
            with b.for_(rows * chunk.row, "simd", "t") as t:
                self.ranges.declare(t, Dim.of(chunk.rows * chunk.row))
                known: dict[Expr, Expr] = {}
                for x, e in zip(elements, values, strict=True):
                    if e not in known:
                        known[e] = share(b, self._joined(e, start, t))
                    b.store(self.flat(target), self._moved(x.at, target, start, t), known[e])

    # ------------------------------------------------------------------ the joined loop
    def _joined(self, e: Expr, start: Dim, t: Var) -> Expr:
        """Put the joined loop's variable in the place of the chunk's, and what was spread in that of its value."""

        def instead(x: Expr) -> Expr | None:
            if x in self.ready:
                return Load(self.ready[x], (t,))
            if isinstance(x, Load) and depends(x, self.chunk.vars):
                return Load(self.flat(x.buffer), self._moved(x.index, x.buffer, start, t))
            return None

        return replaced(e, instead)

    def _moved(self, at: tuple[Expr, ...], buffer: Buffer, start: Dim, t: Var) -> tuple[Expr, ...]:
        """Return the index in a buffer, seen flat, of element t of the chunk."""
        position = self.ranges.flat(at, buffer.shape)
        step = _slope(self.ranges, self.chunk, position)
        assert step is not None
        names = [local_name(a.var) for a in self.chunk.axes]
        position = position.subs({names[0]: start, **dict.fromkeys(names[1:], Dim.of(0))})
        return (self.ranges.expr(position + self.ranges.symbol(t) * step),)

    # ------------------------------------------------------------------------- spreading
    def _prepare(self, spreads: Sequence[_Spread], start: Dim, rows: Expr) -> None:
        """Spread values over the chunk that begins at `start`, `rows` of its first axis."""
        b, chunk = self.b, self.chunk
        last = chunk.axes[-1]
        for s in spreads:
            whole = len(s.over) == len(chunk.axes)
            value, padded = self._compact(s, start, rows) if not whole else (self._started(s.value, start), False)
            made = _buffer(b.alloc(s.value.dtype, [chunk.rows * chunk.row + PAD], "spread"))
            with self._loops(chunk.axes[:-1], rows) as at:
                value = substitute(value, at)
                if last not in s.over:
                    value, padded = b.let(value, "v"), True
                width = last.size or 1
                base = _flat(chunk.axes, {**at, last.var: Const(0, i64)})
                with b.for_(-(-width // 8) * 8 if padded else width, "simd", "j") as j:
                    b.store(made, base + j, substitute(value, {last.var: j}))
            self.ready[s.value] = made

    def _compact(self, s: _Spread, start: Dim, rows: Expr) -> tuple[Expr, bool]:
        """Compute a value for the axes that it depends on.

        Returns it by the chunk's variables, and whether what follows a row may be read.
        """
        b, chunk = self.b, self.chunk
        value, last = self._started(s.value, start), chunk.axes[-1]
        if isinstance(s.value, Load) and last not in s.over:
            return value, False
        size = prod(chunk.rows if a is chunk.axes[0] else a.size or 1 for a in s.over)
        made = _buffer(b.alloc(s.value.dtype, [size + PAD], "each"))
        with b.for_(PAD, "simd", "j") as j:
            b.store(made, j + size, Const(False if made.dtype.kind == "b" else 0, i64).cast(made.dtype))
        with self._loops(s.over, rows, "simd") as at:
            b.store(made, _flat(s.over, at), share(b, substitute(value, at)))
        return Load(made, (_flat(s.over, {a.var: a.var for a in s.over}),)), True

    def _started(self, e: Expr, start: Dim) -> Expr:
        """Count the first axis from the beginning of the chunk."""
        var = self.chunk.axes[0].var
        return substitute(e, {var: self.ranges.expr(start) + var}) if start != 0 else e

    @contextmanager
    def _loops(self, axes: Sequence[Axis], rows: Expr, kind: Kind = "serial") -> Iterator[dict[Expr, Expr]]:
        """Open loops over axes, the innermost of this kind. Yields their variables by those of the axes."""
        at: dict[Expr, Expr] = {}
        with ExitStack() as stack:
            for k, axis in enumerate(axes):
                extent = rows if axis is self.chunk.axes[0] else index(axis.extent)
                at[axis.var] = stack.enter_context(self.b.for_(extent, kind if k == len(axes) - 1 else "serial", "r"))
            yield at


def _flat(axes: Sequence[Axis], at: Mapping[Expr, Expr]) -> Expr:
    """Return the row-major position within a chunk, whose first axis has rows that nothing counts."""
    total: Expr = Const(0, i64)
    size = 1
    for axis in reversed(axes):
        total = total + at[axis.var] * size
        size *= axis.size or 1
    return total


def _buffer(place: Place) -> Buffer:
    assert place.buffer is not None
    return place.buffer
