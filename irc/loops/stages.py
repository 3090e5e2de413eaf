"""Emission of one stage: all elements of one value, as a loop nest over its axes."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from typing import TYPE_CHECKING

from irc.expr import Const, Expr, Load, Reduce, Var, index
from irc.fusion.elements import is_index
from irc.fusion.indexing import Ranges, coefficient, irregular, local_name
from irc.ir.dim import Dim, product
from irc.ir.graph import Value
from irc.ir.types import i64
from irc.layout.destination import DestinationPart
from irc.loops.builder import Kind, LoopBuilder
from irc.loops.halves import computes_halves, emit_halves
from irc.loops.ir import Buffer
from irc.loops.nearest_quotients import with_nearest_quotients
from irc.loops.pieces import emit_pieces, pieces_in
from irc.loops.schedule import (
    SHORT_ROW,
    Axis,
    Scalars,
    TileReducer,
    columns_worthy,
    lane_worthy,
    loop,
    stride_score,
    tile_of,
    tileable,
)
from irc.loops.short_rows import emit_short_rows
from irc.loops.simplify import depends, has_reduce, share, split_guards, substitute
from irc.loops.split import Element, Nest, Splitter
from irc.traversal import replaced, variables, walk

if TYPE_CHECKING:
    from irc.loops.lower import Lowering, Scope


def emit_element(scope: Scope, value: Value) -> None:
    """Emit loops that store every element of `value`, or those that a `DestinationPart` writes, in its buffer."""
    buffer, node = scope.lowering.buffer(value), value.producer
    if node is not None and isinstance(node.op, DestinationPart) and (x := node.inputs[1]) is not None:
        axes, at = axes_of(scope.b, scope.inliner.ranges, x.shape)
        e = scope.resolve(scope.inliner.read(x, at))
        there = (*at[:-1], scope.inliner.ranges.simplify(at[-1] + node.op.start))
        emit_store(scope.lowering, scope.b, scope.inliner.ranges, axes, buffer, there, e)
        return
    axes, at = axes_of(scope.b, scope.inliner.ranges, value.shape)
    e = scope.element(value, at)
    emit_store(scope.lowering, scope.b, scope.inliner.ranges, axes, buffer, at, e)


def emit_copy(lowering: Lowering, b: LoopBuilder, source: Buffer, target: Buffer) -> None:
    """Emit loops that copy one buffer to another of the same shape."""
    ranges = Ranges()
    axes, at = axes_of(b, ranges, target.shape)
    emit_store(lowering, b, ranges, axes, target, at, Load(source, at))


def axes_of(b: LoopBuilder, ranges: Ranges, shape: tuple[Dim, ...]) -> tuple[list[Axis], tuple[Expr, ...]]:
    """Make axes with loop variables, and the index they form; an axis of size 1 has index 0 and no loop."""
    axes: list[Axis] = []
    at: list[Expr] = []
    for size in shape:
        if size == 1:
            at.append(Const(0, i64))
            continue
        var = b.name("i")
        ranges.declare(var, size)
        axes.append(Axis(var, size))
        at.append(var)
    return axes, tuple(at)


def emit_store(
    lowering: Lowering, b: LoopBuilder, ranges: Ranges, axes: list[Axis], buffer: Buffer, at: tuple[Expr, ...], e: Expr
) -> None:
    """Emit buffer[at] = e for all of `axes`."""
    if not has_reduce(e):
        emit_nest(lowering, b, ranges, Splitter(b, ranges).split(axes, [Element(at, e)]), buffer)
        return
    e = merged_reductions(lowering, ranges, e)
    plan, stores, (merged,) = _merged_axes(lowering, ranges, axes, [ranges.flat(at, buffer.shape)], [e])
    if len(plan) < len(axes):  # vectors are full where the axes behind the reduced ones are short
        axes, buffer, at, e = plan, lowering.flat(buffer), (ranges.expr(stores[0]),), merged
    if axes and tileable(e) and _prefers_tile(e, axes, ranges):
        emit_tiles(lowering.flat, b, ranges, axes, buffer, at, e)
    else:
        with ExitStack() as stack:
            for axis in axes:
                stack.enter_context(loop(b, axis.var, axis.extent, "parallel"))
            found = Scalars(b, ranges).value(e)
            b.store(buffer, at, share(b, found))


# ---------------------------------------------------------------------------- maps
def emit_nest(
    lowering: Lowering,
    b: LoopBuilder,
    ranges: Ranges,
    nest: Nest,
    buffer: Buffer,
    outermost: bool = True,
    independent: bool = True,
) -> None:
    """Emit a loop nest without reductions, and those inside of it.

    outermost: there is no loop around it.  independent: iterations of the loops around it, if any, are independent.
    """
    if nest.elements:
        axes, target, elements = _merged(lowering, ranges, nest, buffer)
    else:
        axes, target, elements = nest.axes, buffer, []
    if axes:
        elements = [Element(x.at, with_nearest_quotients(x.value, axes[-1].var)) for x in elements]
    if elements and emit_short_rows(lowering.flat, b, ranges, axes, target, elements, outermost, independent):
        return
    pieces = pieces_in(b, [x.value for x in elements], {axes[-1].var}) if axes else []
    halves = not pieces and computes_halves(b, axes, target, elements)
    with ExitStack() as stack:
        kind: Kind = "parallel" if independent else "serial"
        for k, axis in enumerate(axes[:-1] if pieces or halves else axes):
            simd = k == len(axes) - 1 and bool(elements)
            stack.enter_context(loop(b, axis.var, axis.extent, "simd" if simd else kind))
        for part in nest.parts:
            emit_nest(lowering, b, ranges, part, buffer, outermost and not axes, independent)
        if pieces:
            emit_pieces(b, axes[-1], kind, target, elements[0].at, elements[0].value, pieces)
            return
        if halves:
            emit_halves(b, axes[-1], kind, target, elements)
            return
        known: dict[Expr, Expr] = {}
        for x in elements:
            if x.value not in known:
                known[x.value] = share(b, x.value)
            b.store(target, x.at, known[x.value])


def _merged(lowering: Lowering, ranges: Ranges, nest: Nest, buffer: Buffer) -> tuple[list[Axis], Buffer, list[Element]]:
    """Merge adjacent axes of a nest where all positions allow it; positions with divisions become plain ones."""
    stores = [ranges.flat(x.at, buffer.shape) for x in nest.elements]
    plan, stores, values = _merged_axes(lowering, ranges, nest.axes, stores, [x.value for x in nest.elements])
    if len(plan) == len(nest.axes):
        return plan, buffer, [Element(x.at, e) for x, e in zip(nest.elements, values, strict=True)]
    return plan, lowering.flat(buffer), [Element((ranges.expr(p),), e) for p, e in zip(stores, values, strict=True)]


def merged_reductions(lowering: Lowering, ranges: Ranges, e: Expr) -> Expr:
    """Merge adjacent axes of each innermost reduction where all its loads allow it, so that lanes have long rows."""
    new: dict[Expr, Expr] = {}
    for r in walk(e):
        if isinstance(r, Reduce) and not has_reduce(r.body):
            axes = [Axis(v, extent) for v, extent in zip(r.vars, r.extents, strict=True)]
            plan, _, (body,) = _merged_axes(lowering, ranges, axes, [], [r.body])
            if len(plan) < len(axes):
                new[r] = Reduce(r.op, tuple(a.var for a in plan), tuple(a.extent for a in plan), body)
    return substitute(e, new)


def _merged_axes(
    lowering: Lowering, ranges: Ranges, axes: list[Axis], stores: list[Dim], values: list[Expr]
) -> tuple[list[Axis], list[Dim], list[Expr]]:
    """Merge axes.

    Returns them with the positions of the stores and the expressions, whose loads are then by position.
    """
    loads = list(dict.fromkeys(x for e in values for x in walk(e) if isinstance(x, Load)))
    if any(x.buffer.root.where == "local" for x in loads):
        return axes, stores, values
    positions = [*stores, *(ranges.flat(x.index, x.buffer.shape) for x in loads)]
    pinned: set[Expr] = set[Expr]().union(*(pinned_in(e) for e in values))
    plan = list(axes)
    k = len(plan) - 1
    while k > 0:
        outer, inner = plan[k - 1], plan[k]
        if outer.var not in pinned and inner.var not in pinned and all(mergeable(p, outer, inner) for p in positions):
            whole = Axis(inner.var, outer.extent * inner.extent)
            gone = {local_name(outer.var): 0}
            positions = [p.subs(gone) for p in positions]
            ranges.declare(inner.var, whole.extent)
            plan[k - 1 : k + 1] = [whole]
            positions = [_rescoped(p, inner.var, ranges) for p in positions]
        k -= 1
    read = dict(zip(loads, positions[len(stores) :], strict=True))
    if len(plan) == len(axes):  # still, a position may be plain where an index is not
        read = {x: p for x, p in read.items() if any(irregular(ranges.dim(i)) for i in x.index) and not irregular(p)}
    flat = {x: Load(lowering.flat(x.buffer), (ranges.expr(p),)) for x, p in read.items()}
    return (
        plan,
        positions[: len(stores)],
        [replaced(e, lambda x: flat.get(x) if isinstance(x, Load) else None) for e in values],
    )


def _rescoped(p: Dim, var: Var, ranges: Ranges) -> Dim:
    """Give the variable in a position its new range (a symbol carries its bounds)."""
    return p.subs({local_name(var): ranges.symbol(var)})


def pinned_in(e: Expr) -> set[Expr]:
    """Collect the variables used otherwise than linearly in a load's index."""
    loads = [x for x in walk(e) if isinstance(x, Load)]
    found: set[Expr] = set()
    inside: set[int] = set()
    for x in loads:
        for i in x.index:
            if is_index(i):
                inside.update(id(y) for y in walk(i))
            else:
                found |= variables(i)
    found.update(x for x in walk(e, into=lambda x: not isinstance(x, Load)) if isinstance(x, Var))
    return found


def mergeable(p: Dim, outer: Axis, inner: Axis) -> bool:
    a, c = coefficient(p, local_name(outer.var)), coefficient(p, local_name(inner.var))
    return a is not None and c is not None and a == c * inner.extent


# --------------------------------------------------------------------------- tiles
MANY_ROWS = 16
"""Rows for which half vectors are enough columns."""
SIDE_BY_SIDE = 16
"""Rows side by side, at least, that are vectors of their own."""


def _prefers_tile(e: Expr, axes: list[Axis], ranges: Ranges) -> bool:
    """Tell whether to vectorise along the last result axis rather than along the reduction."""
    last = axes[-1]
    main = max(
        (r for r in walk(e) if isinstance(r, Reduce)), key=lambda r: sum(isinstance(x, Load) for x in walk(r.body))
    )
    _, body = split_guards(main.op, main.body)
    along = sum(stride_score(x, last.var, ranges) for x in walk(body) if isinstance(x, Load))
    if along > 0 and columns_worthy(main, ranges) and _has_full_columns(main):
        return False
    if along > 0 and lane_worthy(main, ranges) and not _folds_slowly(main, last):
        return False
    return not (last.size is not None and last.size < 4 and along > 0)


def _has_full_columns(r: Reduce) -> bool:
    """Tell whether accumulators of columns, which are folded at the end, are whole vectors that meet many rows."""
    size, rows = r.extents[-1].const or 1, product(r.extents[:-1]).const
    return len(r.vars) > 1 and (size % 8 == 0 or (size % 4 == 0 and (rows is None or rows >= MANY_ROWS)))


def _folds_slowly(r: Reduce, last: Axis) -> bool:
    """Tell whether lanes along a row, whose last vector is not full, take longer than many rows side by side.

    Each step of their fold waits for the one before: that is long for the largest, which is NaN where any is.
    """
    size = r.extents[-1].const
    if r.op not in ("max", "min") or len(r.vars) > 1 or size is None or size >= SHORT_ROW or size % 8 == 0:
        return False
    return last.size is None or last.size >= SIDE_BY_SIDE


def emit_tiles(
    flat: Callable[[Buffer], Buffer],
    b: LoopBuilder,
    ranges: Ranges,
    axes: list[Axis],
    buffer: Buffer,
    at: tuple[Expr, ...],
    e: Expr,
) -> None:
    """Emit row tiles of the last axis in local accumulators, a second axis blocked where that shares loads."""
    vector = axes[-1]
    blocked = _blocked_axis(e, axes, ranges)
    before = axes[: axes.index(blocked)] if blocked else axes[:-1]
    after = [a for a in axes[len(before) :] if a is not blocked and a is not vector]
    with ExitStack() as stack:
        for axis in before:
            stack.enter_context(loop(b, axis.var, axis.extent, "parallel"))
        tile = tile_of(b, stack, vector, "parallel")

        def inner(blocks: list[dict[Expr, Expr]]) -> None:
            with ExitStack() as more:
                for axis in after:
                    more.enter_context(loop(b, axis.var, axis.extent))
                rows = TileReducer(b, ranges, tile, blocks, flat).values(e)
                with b.for_(tile.length, "simd", "t") as t:
                    for row, block in zip(rows, blocks, strict=True):
                        place = {**block, vector.var: tile.start + t}
                        b.store(buffer, tuple(substitute(i, place) for i in at), share(b, row(t)))

        if blocked is None:
            inner([{}])
            return
        size = b.copies if blocked.size is None or blocked.size >= b.copies else blocked.size
        if blocked.extent // size != 0:
            with b.for_(blocked.extent // size, "parallel", "u") as u:
                inner([{blocked.var: u * size + j} for j in range(size)])
        if blocked.extent % size != 0:
            with b.for_(blocked.extent % size, "parallel", "u") as u:
                inner([{blocked.var: index(blocked.extent // size) * size + u}])


def _blocked_axis(e: Expr, axes: list[Axis], ranges: Ranges) -> Axis | None:
    """Find the innermost other axis along which a vector load stays the same and no guard changes, if any."""
    reduces = [r for r in walk(e) if isinstance(r, Reduce)]
    guards = [g for r in reduces for g in split_guards(r.op, r.body)[0]]
    vector: set[Expr] = {axes[-1].var}
    for axis in reversed(axes[:-1]):
        if any(depends(g, {axis.var}) for g in guards):
            continue
        for r in reduces:
            loads = [x for x in walk(r.body) if isinstance(x, Load)]
            shared = [
                x
                for x in loads
                if any(depends(i, vector) for i in x.index) and not any(depends(i, {axis.var}) for i in x.index)
            ]
            if shared and len(reduces) == 1:
                return axis
    return None
