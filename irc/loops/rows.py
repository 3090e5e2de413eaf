"""Emission of row groups: stages share the loops over the axes that are not reduced."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import ExitStack
from typing import TYPE_CHECKING

from irc.expr import Cast, Const, Expr, Load, Reduce, Var, index
from irc.fusion.group import Group
from irc.ir.dim import Dim, product
from irc.ir.graph import Value
from irc.ir.types import f16, f32, i64
from irc.loops.builder import LOCAL_BYTES
from irc.loops.halves import SHORT
from irc.loops.ir import Alloc, Buffer
from irc.loops.joined_axes import JoinedAxes
from irc.loops.schedule import TILE_VAR, Axis, Scalars, Tile, TileReducer, loop, tile_of
from irc.loops.simplify import depends, share, substitute
from irc.loops.split import Element, Splitter
from irc.loops.stages import emit_nest, merged_reductions
from irc.traversal import replaced, walk

if TYPE_CHECKING:
    from irc.loops.lower import Scope


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
        self.floats: dict[Buffer, Buffer] = {}
        self.joined = self._joined()

    def _joined(self) -> JoinedAxes | None:
        """Join the axis of the vectors and the one before it, where neither is reduced and all loads allow it."""
        shape = self.frame.shape
        before = [k for k in range(self.vector or 0) if shape[k] != 1]
        if self.vector is None or not before or before[-1] in self.frame.reduced:
            return None
        outer, inner = (Axis(self.outer[k], shape[k]) for k in (before[-1], self.vector))
        at = [self.outer.get(k) or self._variable(size) for k, size in enumerate(shape)]
        elements: list[Expr] = []
        for value in self.group.stages:
            places = self.frame.places(value.shape)
            assert places is not None
            elements.append(self.scope.inliner.at(value, tuple(at[k] for k in places)))
        return JoinedAxes.of(self.ranges, outer, inner, self.b.name("i"), elements)

    def _variable(self, size: Dim) -> Var:
        var = self.b.name("i")
        self.ranges.declare(var, size)
        return var

    def run(self) -> None:
        self._place_stages()
        with ExitStack() as stack:
            outer = [Axis(var, self.frame.shape[k]) for k, var in self.outer.items() if k != self.vector]
            self.tile = None
            if self.joined is not None:
                self.tile = self._joined_tile(stack, [x for x in outer if x != self.joined.outer], self.joined)
            else:
                self._outer_loops(stack, outer)
            if self.vector is not None and self.tile is None:
                axis = Axis(self.outer[self.vector], self.frame.shape[self.vector])
                self.tile = tile_of(self.b, stack, axis, "parallel")
            for value in self.group.stages:
                if self.frame.is_full(value.shape):
                    self._full(value)
                else:
                    self._reduced(value)

    def _outer_loops(self, stack: ExitStack, outer: list[Axis]) -> None:
        """Open loops over these axes, of which threads divide as many as have enough iterations for all."""
        for axis in outer:
            stack.enter_context(loop(self.b, axis.var, axis.extent, "parallel"))

    def _joined_tile(self, stack: ExitStack, outer: list[Axis], joined: JoinedAxes) -> Tile:
        """Open the loops over the other axes and the tiles of the joined one."""
        whole, width = joined.whole, joined.width(product(axis.extent for axis in outer))
        count = whole.extent.ceildiv(width)
        n = self._variable(count)
        self._outer_loops(stack, [*outer, Axis(n, count)])
        start = self.b.let(n * width, "start")
        if whole.extent % width == 0:
            return Tile(whole, start, index(width), width)
        return Tile(whole, start, self.b.let((index(whole.extent) - start).min(width), "width"), width)

    def _halves(self, e: Expr) -> Load | None:
        """Return the load of the half that an expression makes a float of, if it is of this row in memory."""
        load = e.a if isinstance(e, Cast) and e.type == f32 else None
        if not isinstance(load, Load) or load.dtype != f16 or load.buffer.shape != self.frame.shape:
            return None
        outer = (k for k in range(len(self.frame.shape)) if k not in self.frame.reduced)
        return load if all(load.index[k] == self.outer.get(k, Const(0, i64)) for k in outer) else None

    def _of_floats(self, e: Expr) -> Expr:
        """Read floats that stand in place of halves."""

        def read(x: Expr) -> Expr | None:
            load = self._halves(x)
            row = self.floats.get(load.buffer) if load else None
            return Load(row, tuple(load.index[k] for k in sorted(self.frame.reduced))) if load and row else None

        return replaced(e, read) if self.floats else e

    def _convert_halves(self, e: Expr) -> None:
        """Make floats of the row of halves that a reduction reads, in a loop of its own.

        An instruction converts eight or sixteen that stand side by side; in loops that compute with them, compilers
        convert each by itself.
        """
        size = product(self.frame.shape[k] for k in self.frame.reduced)
        if not size.is_const or not SHORT <= int(size) <= LOCAL_BYTES // f32.itemsize:
            return
        inside = (x for r in walk(e) if isinstance(r, Reduce) for x in walk(r.body))
        for halves in dict.fromkeys(load.buffer for x in inside if (load := self._halves(x))):
            if halves in self.floats:
                continue
            inner = {k: self._variable(self.frame.shape[k]) for k in sorted(self.frame.reduced)}
            row = self.b.alloc(f32, [self.frame.shape[k] for k in inner], "floats").buffer
            assert row is not None
            at = tuple(inner.get(k) or self.outer.get(k) or Const(0, i64) for k in range(len(self.frame.shape)))
            axes = [Axis(var, self.frame.shape[k]) for k, var in inner.items()]
            nest = Splitter(self.b, self.ranges).split(
                axes, [Element(tuple(inner.values()), Cast(Load(halves, at), f32))]
            )
            emit_nest(self.scope.lowering, self.b, self.ranges, nest, row, outermost=False, independent=False)
            self.floats[halves] = row

    def _by_position(self, e: Expr) -> Expr:
        """Write loads that move along joined axes by their position."""
        joined = self.joined
        if joined is None:
            return e
        moving: set[Expr] = {joined.outer.var, joined.inner.var}

        def moved(x: Expr) -> Expr | None:
            if not isinstance(x, Load) or not any(depends(i, moving) for i in x.index):
                return None
            position = joined.position(self.ranges, x.index, x.buffer.shape)
            return Load(self.scope.lowering.flat(x.buffer), (position,))

        return replaced(e, moved)

    def _store(self, buffer: Buffer, at: tuple[Expr, ...], place: dict[Expr, Expr], value: Expr) -> None:
        """Store an element of the tile."""
        if self.joined is not None:
            at, buffer = (self.joined.position(self.ranges, at, buffer.shape),), self.scope.lowering.flat(buffer)
        self.b.store(buffer, tuple(substitute(i, place) for i in at), value)

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
        e = self._of_floats(self._by_position(self.scope.element(value, at)))
        target = tuple(at[k] for k in sorted(frame.reduced)) if local else at
        axes = [Axis(var, frame.shape[k]) for k, var in inner.items()]
        if local:
            b.add(Alloc(home))
        elif self.tile is None:
            nest = Splitter(b, self.ranges).split(axes, [Element(target, e)])
            emit_nest(self.scope.lowering, b, self.ranges, nest, home, outermost=False, independent=False)
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
                self._store(home, target, place, share(b, substitute(e, place)))

    def _tile_place(self, t: Expr) -> dict[Expr, Expr]:
        assert self.tile is not None
        return {self.tile.axis.var: self.tile.start + t, TILE_VAR: t}

    def _reduced(self, value: Value) -> None:
        places = self.frame.places(value.shape)
        assert places is not None
        at = tuple(Const(0, i64) if k in self.frame.reduced else self.outer.get(k) or Const(0, i64) for k in places)
        e = self._by_position(self.scope.element(value, at))
        if self.tile is None:
            self._convert_halves(e)
            self._scalar(value, at, self._of_floats(e))
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
                self._store(self.scope.lowering.buffer(value), at, self._tile_place(t), Load(held, (t,)))
        self.scope.local[value] = lambda _at: Load(held, (TILE_VAR,))  # pyright: ignore[reportUnknownLambdaType]
