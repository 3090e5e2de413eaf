"""Splitting of loops at choices that hold for whole ranges of a loop variable, as Concat and Pad make them.

`i < c ? a[i] : b[i - c]` for i < n becomes two loops, over [0, c) and [c, n), and neither of them chooses.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import pairwise

from irc.expr import Bin, Const, Expr, Select, children, index, rebuilt
from irc.fusion.indexing import Ranges, coefficient, local_name
from irc.ir.dim import Dim
from irc.ir.types import boolean
from irc.loops.builder import LoopBuilder
from irc.loops.schedule import Axis
from irc.loops.simplify import conjuncts, depends, substitute
from irc.traversal import rewrite, walk

MOST_PIECES = 32


def pieces(
    b: LoopBuilder, ranges: Ranges, axes: list[Axis], at: tuple[Expr, ...], e: Expr
) -> Iterator[tuple[list[Axis], tuple[Expr, ...], Expr]]:
    """Yield the pieces of a nest in order: axes, the index stored and the element of each."""
    for k in reversed(range(len(axes))):
        guards = _guards(e, axes[k], ranges)
        bounds = _bounds(guards, axes[k])
        if bounds is None or len(bounds) - 2 not in range(1, MOST_PIECES):
            continue
        for low, high in pairwise(bounds):
            known: dict[Expr, Expr] = {
                g: Const(bool(cut >= high) is below, boolean) for g, (cut, below) in guards.items()
            }
            yield from _piece(b, ranges, axes, k, low, high, at, _chosen(e, known))
        return
    yield axes, at, e


def _piece(
    b: LoopBuilder, ranges: Ranges, axes: list[Axis], k: int, low: int, high: int, at: tuple[Expr, ...], e: Expr
) -> Iterator[tuple[list[Axis], tuple[Expr, ...], Expr]]:
    """Yield the pieces of the nest over low <= axis k < high."""
    var = b.name("i")
    ranges.declare(var, Dim.of(high - low))
    moved: dict[Expr, Expr] = {axes[k].var: var + low}
    inner = [*axes[:k], Axis(var, Dim.of(high - low)), *axes[k + 1 :]]
    yield from pieces(b, ranges, inner, tuple(substitute(i, moved) for i in at), substitute(e, moved))


def _guards(e: Expr, axis: Axis, ranges: Ranges) -> dict[Expr, tuple[int, bool]]:
    """Find conditions that hold exactly below (True), or from (False), a number: condition → (number, which)."""
    found: dict[Expr, tuple[int, bool]] = {}
    if axis.size is None:
        return found
    for x in walk(e):
        if not isinstance(x, Select):
            continue
        for cond in conjuncts(x.cond):
            if isinstance(cond, Bin) and cond.op in ("lt", "le") and depends(cond, {axis.var}):
                gap = ranges.dim(index(cond.b)) - ranges.dim(index(cond.a)) - (1 if cond.op == "lt" else 0)
                slope = coefficient(gap, local_name(axis.var))
                rest = None if slope is None else gap - ranges.symbol(axis.var) * slope
                if slope is None or rest is None or not (slope.is_const and rest.is_const) or abs(int(slope)) != 1:
                    continue
                # slope · i + rest >= 0
                found[cond] = (int(rest) + 1, True) if int(slope) < 0 else (-int(rest), False)
    return found


def _bounds(guards: dict[Expr, tuple[int, bool]], axis: Axis) -> list[int] | None:
    """List the ends of the ranges in which no condition changes; None if there are none."""
    if not guards or axis.size is None:
        return None
    cuts = {cut for cut, _ in guards.values() if 0 < cut < axis.size}
    return sorted({0, axis.size, *cuts})


def _chosen(e: Expr, known: dict[Expr, Expr]) -> Expr:
    """Decide known conditions in `e`, dropping branches that are not taken."""

    def step(x: Expr, state: None, go: Callable[[Expr, None], Expr]) -> Expr:
        if x in known:
            return known[x]
        if isinstance(x, Select):
            cond = _decided(go(x.cond, state))
            if isinstance(cond, Const):
                return go(x.a if cond.value else x.b, state)
            return rebuilt(x, (cond, go(x.a, state), go(x.b, state)))
        return rebuilt(x, tuple(go(c, state) for c in children(x)))

    return rewrite(e, step, None)


def _decided(cond: Expr) -> Expr:
    """Drop what is known to hold from a conjunction."""
    if not isinstance(cond, Bin) or cond.op != "and":
        return cond
    a, b = _decided(cond.a), _decided(cond.b)
    for one, other in ((a, b), (b, a)):
        if isinstance(one, Const):
            return other if one.value else one
    return rebuilt(cond, (a, b))
