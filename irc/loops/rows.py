"""Emission of row groups: stages share the loops over the axes that are not reduced."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import ExitStack
from typing import TYPE_CHECKING

from irc.expr import Const, Expr, Load, Var
from irc.fusion.group import Group
from irc.ir.dim import Dim, product
from irc.ir.graph import Value
from irc.ir.types import i64
from irc.loops.builder import LOCAL_BYTES
from irc.loops.ir import Alloc, Buffer, Let
from irc.loops.schedule import TILE_VAR, Axis, Scalars, TileReducer, loop, tile_of
from irc.loops.simplify import share, substitute
from irc.loops.split import Element, Splitter
from irc.loops.stages import emit_nest, merged_reductions

if TYPE_CHECKING:
    from irc.loops.lower import Scope

MANY = 64
"""Iterations of a parallel loop that are enough for any number of threads."""


def emit_rows(scope: Scope, group: Group) -> None:
    """Emit all stages of a row group."""
    RowEmitter(scope, group).run()


class RowEmitter:
    """Loops over the outer axes; inside, stage after stage over the reduced axes.

    Where the last axis is reduced, one row is done at a time and its reduced values are scalars; otherwise a
    tile of the last axis, and they are tile-sized local arrays.
    """

    def __init__(self, scope: Scope, group: Group) -> None:
        assert group.frame is not None
        self.scope, self.group, self.frame = scope, group, group.frame
        self.b, self.ranges = scope.b, scope.inliner.ranges
        self.outer: dict[int, Var] = {}
        for k, size in enumerate(self.frame.shape):
            if k not in self.frame.reduced and size != 1:
                self.outer[k] = self._variable(size)
        moving = [k for k, size in enumerate(self.frame.shape) if size != 1]
        self.vector = moving[-1] if moving and moving[-1] not in self.frame.reduced else None
        self.home: dict[Value, Buffer] = {}

    def _variable(self, size: Dim) -> Var:
        var = self.b.name("i")
        self.ranges.declare(var, size)
        return var

    def run(self) -> None:
        self._place_stages()
        with ExitStack() as stack:
            outer = [k for k in self.outer if k != self.vector]
            self._outer_loops(stack, outer)
            self.tile = None
            if self.vector is not None:
                axis = Axis(self.outer[self.vector], self.frame.shape[self.vector])
                self.tile = tile_of(self.b, stack, axis, "serial" if outer else "parallel")
            for value in self.group.stages:
                if self.frame.is_full(value.shape):
                    self._full(value)
                else:
                    self._reduced(value)

    def _outer_loops(self, stack: ExitStack, outer: list[int]) -> None:
        """Open loops over these axes; one loop over all if the first may have too few iterations for all threads."""
        b, extents = self.b, [self.frame.shape[k] for k in outer]
        if len(outer) < 2 or (extents[0].const or 0) >= MANY:
            for n, k in enumerate(outer):
                stack.enter_context(loop(b, self.outer[k], extents[n], "parallel" if n == 0 else "serial"))
            return
        rest: Expr = stack.enter_context(b.for_(product(extents), "parallel", "n"))
        for n in reversed(range(1, len(outer))):
            b.add(Let(self.outer[outer[n]], rest % extents[n]))
            rest = rest // extents[n]
        b.add(Let(self.outer[outer[0]], rest))

    # ------------------------------------------------------------------ placement
    def _place_stages(self) -> None:
        """Place the full stages: in their own buffer, a later result's, or scratch."""
        lowering = self.scope.lowering
        for value in self.group.stages:
            if not self.frame.is_full(value.shape):
                continue
            if value in self.group.results:
                self.home[value] = lowering.buffer(value)
                continue
            later = self._in_place(value)
            if later is not None:
                self.home[value] = lowering.buffer(later)
            else:
                made = lowering.scratch(value.dtype, self.frame.shape, value.name)
                self.home[value] = made
                if not self._row_local(value):
                    self.b.scratch.append(made)
            self.scope.local[value] = self._full_reader(value)

    def _in_place(self, value: Value) -> Value | None:
        """Find a result of the same type that reads `value` element by element and after which nothing reads it."""
        stages = self.group.stages
        readers = [k for k, v in enumerate(stages) if value in self._direct_reads(v)]
        last = stages[readers[-1]] if readers else None
        if last is None or last not in self.group.results or last.dtype != value.dtype or last.shape != value.shape:
            return None
        if self._row_local(value) or last in self.home.values():
            return None
        element = self.scope.inliner.elements.of(last)
        exact = all(x.index == element.vars for x in self.scope.inliner.elements.loads(last) if x.buffer is value)
        direct = any(x.buffer is value for x in self.scope.inliner.elements.loads(last))
        between = stages[stages.index(value) + 1 : stages.index(last)]
        return last if exact and direct and not any(self._writes(v, last) for v in between) else None

    def _writes(self, value: Value, target: Value) -> bool:
        return self.home.get(value) is self.scope.lowering.buffer(target)

    def _direct_reads(self, value: Value) -> set[Value]:
        """Collect the stages that a stage reads, also through substituted members."""
        found: set[Value] = set()
        stack, seen = [value], set[Value]()
        while stack:
            v = stack.pop()
            for load in self.scope.inliner.elements.loads(v):
                w = load.buffer
                if w in self.group.stages:
                    found.add(w)
                elif w not in seen and not self.scope.inliner.is_leaf(w):
                    seen.add(w)
                    stack.append(w)
        return found

    def _row_local(self, value: Value) -> bool:
        size = product(self.frame.shape[k] for k in self.frame.reduced) * value.dtype.itemsize
        return self.vector is None and size.is_const and int(size) <= LOCAL_BYTES

    def _full_reader(self, value: Value) -> Callable[[Sequence[Expr]], Load]:
        if value in self.group.results or not self._row_local(value) or self.home[value].where == "output":
            return lambda at: Load(self.home[value], tuple(at))
        row = self._row_buffer(value)
        return lambda at: Load(row, tuple(at[k] for k in sorted(self.frame.reduced)))

    def _row_buffer(self, value: Value) -> Buffer:
        found = self.home[value]
        shape = tuple(self.frame.shape[k] for k in sorted(self.frame.reduced))
        made = Buffer(found.name, value.dtype, shape, "local", origin=found.origin)
        self.home[value] = made
        return made

    # --------------------------------------------------------------------- stages
    def _full(self, value: Value) -> None:
        b, frame = self.b, self.frame
        home = self.home[value]
        local = home.where == "local"
        inner = {k: self._variable(frame.shape[k]) for k in sorted(frame.reduced) if frame.shape[k] != 1}
        at = tuple(inner.get(k) or self.outer.get(k) or Const(0, i64) for k in range(len(frame.shape)))
        e = self.scope.element(value, at)
        target = tuple(at[k] for k in sorted(frame.reduced)) if local else at
        axes = [Axis(var, frame.shape[k]) for k, var in inner.items()]
        if local:
            b.add(Alloc(home))
        elif self.tile is None:
            nest = Splitter(b, self.ranges).split(axes, [Element(target, e)])
            emit_nest(self.scope.lowering, b, self.ranges, nest, home, outermost=False)
            return
        with ExitStack() as stack:
            for axis in axes:
                kind = "simd" if axis is axes[-1] and self.tile is None else "serial"
                stack.enter_context(loop(b, axis.var, axis.extent, kind))
            if self.tile is None:
                b.store(home, target, share(b, e))
                return
            with b.for_(self.tile.length, "simd", "t") as t:
                place = self._tile_place(t)
                b.store(home, tuple(substitute(i, place) for i in target), share(b, substitute(e, place)))

    def _tile_place(self, t: Expr) -> dict[Expr, Expr]:
        assert self.tile is not None
        return {self.tile.axis.var: self.tile.start + t, TILE_VAR: t}

    def _reduced(self, value: Value) -> None:
        places = self.frame.places(value.shape)
        assert places is not None
        at = tuple(Const(0, i64) if k in self.frame.reduced else self.outer.get(k) or Const(0, i64) for k in places)
        e = self.scope.element(value, at)
        if self.tile is None:
            self._scalar(value, at, e)
        else:
            self._tile_values(value, at, e)

    def _scalar(self, value: Value, at: tuple[Expr, ...], e: Expr) -> None:
        b = self.b
        e = merged_reductions(self.scope.lowering, self.ranges, e)
        held = b.let(share(b, Scalars(b, self.ranges).value(e)), "row")
        self.scope.local[value] = lambda _at: held  # pyright: ignore[reportUnknownLambdaType]
        if value in self.group.results:
            b.store(self.scope.lowering.buffer(value), at, held)

    def _tile_values(self, value: Value, at: tuple[Expr, ...], e: Expr) -> None:
        b, tile = self.b, self.tile
        assert tile is not None
        row = TileReducer(b, self.ranges, tile, [{}], self.scope.lowering.flat).values(e)[0]
        held = b.alloc(value.dtype, [tile.most], "row").buffer
        assert held is not None
        with b.for_(tile.length, "simd", "t") as t:
            b.store(held, t, share(b, row(t)))
            if value in self.group.results:
                place = self._tile_place(t)
                b.store(self.scope.lowering.buffer(value), tuple(substitute(i, place) for i in at), Load(held, (t,)))
        self.scope.local[value] = lambda _at: Load(held, (TILE_VAR,))  # pyright: ignore[reportUnknownLambdaType]
