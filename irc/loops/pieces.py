"""Long elementwise expressions in pieces: each is a loop of its own over a tile, whose results stand in local memory.

An iteration of several functions is longer than what a processor looks ahead at, and each waits for what came just
before: iterations do not overlap, and units idle.  Short loops overlap, and the tile stays in the first cache.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack

from irc.expr import Bin, Call, Expr, Load
from irc.fusion.elements import is_index
from irc.ir.types import f32, f64
from irc.loops.builder import COPIES, Kind, LoopBuilder
from irc.loops.ir import Buffer
from irc.loops.schedule import Axis, tile_of
from irc.loops.simplify import certain, depends, share, substitute
from irc.traversal import replaced

PIECE = 50.0
"""Operations that are worth a loop of their own."""
WHOLE = 150.0
"""Operations up to which iterations overlap well enough."""
LARGEST = 400
"""Parts of an expression beyond which nobody looks for pieces."""
FUNCTION = 40.0
OPERATIONS = {
    **dict.fromkeys(("floor", "ceil", "round", "trunc", "copysign", "fmin", "fmax", "isnan", "isinf", "isfinite"), 2.0),
    "sqrt": 8.0,
    "exp": 22.0,
    "div": 5.0,
    "pow": 200.0,
    "sin": 100.0,
    "cos": 100.0,
}
"""Operations of a vector, about, where they are not one, or `FUNCTION` of a function."""
SHARED = 4.0
"""Operations that may be done again in another piece."""


def pieces_in(b: LoopBuilder, values: Sequence[Expr], variables: set[Expr]) -> list[Expr]:
    """List the pieces of what an iteration stores: of one value, where code need not be short (memory is scarce)."""
    return pieces_of(values[0], variables) if len(values) == 1 and b.copies >= COPIES else []


def pieces_of(e: Expr, variables: set[Expr]) -> list[Expr]:
    """List the parts of an expression over these variables that are worth loops of their own, the first one first."""
    order, parents = _ordered(e)
    cost = {x: _operations(x) for x in order}
    waiting = sum(cost.values())
    if waiting < WHOLE or len(order) > LARGEST:
        return []
    found: list[Expr] = []
    done: set[Expr] = set()
    always = certain(e)

    def new(x: Expr) -> float:
        return sum(cost[y] for y in _below(x) - done)

    def may_stand(x: Expr) -> bool:
        return x is not e and not isinstance(x, Load) and x in always and x.dtype in (f32, f64)

    for x in order:
        mine = new(x) if may_stand(x) else 0.0
        if mine < PIECE or waiting - mine < PIECE / 2 or not depends(x, variables):
            continue
        above = next(iter(parents[x])) if len(parents[x]) == 1 else e
        if may_stand(above) and new(above) - mine <= SHARED:
            continue  # with what little follows: it may be a function of its own with it
        below = _below(x)
        if all(parents[y] <= below or new(y) <= SHARED for y in below - done if y != x):
            found.append(x)
            done |= below
            waiting -= mine
    return found


def emit_pieces(
    b: LoopBuilder, axis: Axis, kind: Kind, target: Buffer, at: tuple[Expr, ...], e: Expr, pieces: list[Expr]
) -> None:
    """Emit target[at] = e along an axis, tile by tile: loops over its pieces, then one over what is left."""
    with ExitStack() as stack:
        tile = tile_of(b, stack, axis, kind)
        ready: dict[Expr, Buffer] = {}

        def element(x: Expr, t: Expr) -> Expr:
            left = replaced(x, lambda y: Load(ready[y], (t,)) if y in ready else None)
            return share(b, substitute(left, {axis.var: tile.start + t}))

        for x in pieces:
            made = b.alloc(x.dtype, [tile.most], "piece").buffer
            assert made is not None
            with b.for_(tile.length, "simd", "t") as t:
                b.store(made, t, element(x, t))
            ready[x] = made
        with b.for_(tile.length, "simd", "t") as t:
            b.store(target, tuple(substitute(i, {axis.var: tile.start + t}) for i in at), element(e, t))


def _ordered(e: Expr) -> tuple[list[Expr], dict[Expr, set[Expr]]]:
    """List the different parts of an expression, what they are made of first, and what each is a part of."""
    order: dict[Expr, None] = {}
    parents: dict[Expr, set[Expr]] = {}
    stack = [(e, False)]
    while stack:
        x, ready = stack.pop()
        if ready:
            order.setdefault(x)
        elif x not in order:
            stack.append((x, True))
            for y in _parts(x):
                parents.setdefault(y, set()).add(x)
                stack.append((y, False))
    return list(order), parents


def _parts(x: Expr) -> list[Expr]:
    """List what is computed for an expression, without indices and what needs no computing."""
    return [] if isinstance(x, Load) else [y for y in x.parts if y.parts and not is_index(y)]


def _below(x: Expr) -> set[Expr]:
    found, stack = {x}, [x]
    while stack:
        for y in _parts(stack.pop()):
            if y not in found:
                found.add(y)
                stack.append(y)
    return found


def _operations(x: Expr) -> float:
    name = x.fn if isinstance(x, Call) else x.op if isinstance(x, Bin) else ""
    return OPERATIONS.get(name, FUNCTION if isinstance(x, Call) else 1.0)
