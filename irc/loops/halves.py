"""Elementwise loops over f16, tile by tile: halves become floats in loops of their own, and results halves.

Compilers make no vectors of the instructions that convert halves, of loops that only convert we do
(`irc.backends.c.conversions`).  In between, loops are over floats that stand in local memory: in registers where a tile
is as many floats as one or two of them hold, and all of it is computed, whatever part of it there is.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from typing import TYPE_CHECKING

from irc.expr import Bin, Bits, Call, Cast, Const, Expr, Load, Select, Un, Var, index, rebuilt
from irc.functions import function_of
from irc.ir.types import f16, f32, f64
from irc.loops.builder import COPIES, Kind, LoopBuilder
from irc.loops.ir import Buffer
from irc.loops.schedule import Axis, Tile, tile_of
from irc.loops.simplify import certain, share, side_by_side, substitute
from irc.traversal import fold, walk

if TYPE_CHECKING:
    from irc.loops.split import Element

SHORT = 32
"""Elements of an axis below which a loop of its own is too short."""
REGISTERS = 16
"""Elements of a tile that stands in registers."""
MOST = 6
"""Tiles of operands that stand in local memory."""
EXACT = {"neg", "abs", "floor", "ceil", "trunc", "round", "round_away", "copysign", "fmin", "fmax"}
"""Operations whose results are halves where their operands are."""


def computes_halves(b: LoopBuilder, axes: Sequence[Axis], target: Buffer, elements: Sequence[Element]) -> bool:
    """Tell whether a loop computes from halves or to halves that stand side by side, and does not only move them."""
    if not axes or b.copies < COPIES or (axes[-1].size or SHORT) < SHORT:
        return False
    values, var = [x.value for x in elements], axes[-1].var
    parts = list(dict.fromkeys(x for value in values for x in walk(value)))
    if any(isinstance(x, Bits) for x in parts) or all(map(_converts, values)):
        return False
    if not any(_of_halves(x) for x in parts):
        return False
    written = target.dtype == f16 and all(side_by_side(x.at, var) for x in elements)
    return (written or bool(_runs(values, var))) and len(_runs(values, var)) <= MOST


def emit_halves(b: LoopBuilder, axis: Axis, kind: Kind, target: Buffer, elements: Sequence[Element]) -> None:
    """Emit target[at] = value of each element along an axis, tile by tile."""
    values = [x.value for x in elements]
    loads = _runs(values, axis.var)
    short = target.dtype == f16 and all(side_by_side(x.at, axis.var) for x in elements)
    short = short and not any(_moves(value, axis.var, set(loads)) for value in values)
    with ExitStack() as stack:
        tile = _in_registers(b, stack, axis, kind) if short else tile_of(b, stack, axis, kind)
        computed = index(tile.most) if short else tile.length

        def moved(x: Expr, t: Expr) -> Expr:
            return substitute(x, {axis.var: tile.start + t})

        def tile_of_floats() -> Buffer:
            made = b.alloc(f32, [tile.most], "floats").buffer
            assert made is not None
            return made

        ready: dict[Expr, Buffer] = {}
        for load in loads:
            ready[load] = tile_of_floats()
            with b.for_(tile.length, "simd", "t") as t:
                b.store(ready[load], t, Cast(moved(load, t), f32))
        for x in elements:
            known = side_by_side(x.at, axis.var) and target.dtype == f16
            result = tile_of_floats() if known else target
            with b.for_(computed, "simd", "t") as t:
                floats = moved(_as_floats(x.value, {load: Load(made, (t,)) for load, made in ready.items()}), t)
                if known:
                    b.store(result, t, share(b, _unrounded(floats)))
                else:
                    value = floats if target.dtype != f16 else Cast(_unrounded(floats), f16)
                    b.store(target, tuple(moved(i, t) for i in x.at), share(b, value))
            if known:
                with b.for_(tile.length, "simd", "t") as t:
                    b.store(target, tuple(moved(i, t) for i in x.at), Cast(Load(result, (t,)), f16))


def stands_in_registers(buffer: Buffer) -> bool:
    """Tell whether a local tensor is a tile that stands in registers."""
    return buffer.where == "local" and buffer.dtype == f32 and buffer.elements == REGISTERS


def _in_registers(b: LoopBuilder, stack: ExitStack, axis: Axis, kind: Kind) -> Tile:
    """Open the loop over tiles that stand in registers."""
    n = stack.enter_context(b.for_(axis.extent.ceildiv(REGISTERS), kind, "n"))
    start = b.let(n * REGISTERS, "start")
    if axis.extent % REGISTERS == 0:
        return Tile(axis, start, index(REGISTERS), REGISTERS)
    return Tile(axis, start, b.let((index(axis.extent) - start).min(REGISTERS), "width"), REGISTERS)


def _moves(e: Expr, var: Var, known: set[Expr]) -> bool:
    """Tell whether an expression depends on a variable otherwise than by these elements."""
    return any(x == var for x in walk(e, into=lambda x: x not in known))


def _of_halves(x: Expr) -> bool:
    """Tell whether an operation takes or gives halves."""
    return isinstance(x, Bin | Un | Call | Cast) and any(y.dtype == f16 for y in (x, *x.parts))


def _converts(value: Expr) -> bool:
    """Tell whether a value is a conversion that has a loop without tiles."""
    return isinstance(value, Cast) and isinstance(value.a, Load) and {value.type, value.a.dtype} == {f16, f32}


def _runs(values: Sequence[Expr], var: Var) -> list[Expr]:
    """List the halves that stand side by side and may be read whatever the conditions are: others at the place are."""
    always = [x for value in values for x in certain(value) if isinstance(x, Load)]
    places = {(x.buffer.shape, x.index) for x in always}
    parts = dict.fromkeys(x for value in values for x in walk(value) if isinstance(x, Load) and x.dtype == f16)
    return [x for x in parts if (x.buffer.shape, x.index) in places and side_by_side(x.index, var)]


def _as_floats(e: Expr, loads: dict[Expr, Load]) -> Expr:
    """Rewrite an expression so that all halves in it are floats of the same values, rounded where halves are."""
    known: dict[Expr, Expr] = {}

    def combine(x: Expr, parts: tuple[Expr, ...]) -> Expr:
        known[x] = _combined(x, parts, loads, known)
        return known[x]

    return fold(e, combine)


def _combined(x: Expr, parts: tuple[Expr, ...], loads: dict[Expr, Load], known: dict[Expr, Expr]) -> Expr:
    match x:
        case Load() if x in loads:
            return loads[x]
        case Const(type=kind) if kind == f16:
            return Const(float(x.value), f32)
        case Cast(type=kind) if kind == f16:
            a = parts[0]
            return Cast(Cast(a if a.dtype in (f32, f64) else Cast(a, f32), f16), f32)
        case Cast() if parts[0].dtype == x.type:
            return parts[0]
        case Bin() | Un() | Call() | Select() if x.dtype == f16:
            return _operation(x, parts, known)
        case _:
            made = rebuilt(x, parts)
            return Cast(made, f32) if made.dtype == f16 else made


def _operation(x: Bin | Un | Call | Select, parts: tuple[Expr, ...], known: dict[Expr, Expr]) -> Expr:
    """Rewrite an operation whose result is a half."""
    found = function_of(x)
    if found is not None:
        return Cast(Cast(_function(x, found[1], known), f16), f32)
    if isinstance(x, Bin) and x.op in ("min", "max"):
        a, b = parts
        other = Select(Bin("lt", *((b, a) if x.op == "min" else (a, b))), b, a)  # of equal values the first
        return other if isinstance(b, Const) and b.value == b.value else Select(Bin("ne", b, b), b, other)
    made = rebuilt(x, parts)
    name = x.op if isinstance(x, Bin | Un) else x.fn if isinstance(x, Call) else ""
    return made if name in EXACT or isinstance(x, Select) else Cast(Cast(made, f16), f32)


def _function(x: Expr, operand: Expr, known: dict[Expr, Expr]) -> Expr:
    """Rewrite a function that has a helper of its own, which rounds once."""

    def combine(y: Expr, parts: tuple[Expr, ...]) -> Expr:
        if y == operand:
            return known[y]
        return Const(float(y.value), f32) if isinstance(y, Const) and y.dtype == f16 else rebuilt(y, parts)

    return fold(x, combine)


def _unrounded(e: Expr) -> Expr:
    """Return floats before their last rounding to halves, which a conversion does."""
    match e:
        case Cast(a=Cast(a=y, type=kind)) if kind == f16 and y.dtype == f32:
            return y
        case _:
            return e
