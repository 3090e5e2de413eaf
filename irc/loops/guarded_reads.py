"""Reads that a choice guards without need: done in any case, so that a loop around them can be vectorised.

`c ? x[i] : y[j]` reads one of two places.  Compilers make no vectors of a loop with such a read unless they know that
both may be read; where both indices are within their tensors, both are read in front of the choice.
"""

from __future__ import annotations

from collections.abc import Callable

from irc.expr import Bin, Bits, Expr, Load, Select, rebuilt
from irc.fusion.indexing import Ranges
from irc.ir.types import f16, u16
from irc.loops.builder import LoopBuilder
from irc.loops.ir import Alloc, Assign, For, If, KernelCall, Let, Stmt, Store
from irc.traversal import rewrite, walk


def read_in_any_case(b: LoopBuilder) -> None:
    """Move guarded reads in the builder's vectorised loops in front of their statements, where that is safe."""
    _walk(b, b.body, Ranges(), False)


def _walk(b: LoopBuilder, body: list[Stmt], ranges: Ranges, vectorised: bool) -> None:
    found: list[Stmt] = []
    for s in body:
        match s:
            case For():
                ranges.declare(s.var, ranges.dim(s.extent))
                _walk(b, s.body, ranges, s.kind in ("simd", "lanes"))
            case If():
                _walk(b, s.then, ranges, False)
                _walk(b, s.orelse, ranges, False)
            case Store() | Let() | Assign() if vectorised:
                s.value = _without(b, s.value, ranges, found)
            case Alloc() | KernelCall() | _:
                pass
        found.append(s)
    body[:] = found


def _without(b: LoopBuilder, e: Expr, ranges: Ranges, front: list[Stmt]) -> Expr:
    """Replace the reads of an expression that are safe but not certain by variables, which `front` defines."""
    if not any(isinstance(x, Select) or _is_lazy(x) for x in walk(e)):
        return e
    named: dict[Expr, Expr] = {}

    def step(x: Expr, sure: bool, go: Callable[[Expr, bool], Expr]) -> Expr:
        if isinstance(x, Load) and not sure and _is_safe(x, ranges):
            if x not in named:
                named[x] = _named(b, x, front)
            return named[x]
        if isinstance(x, Select):
            return rebuilt(x, (go(x.cond, sure), go(x.a, False), go(x.b, False)))
        if isinstance(x, Bin) and _is_lazy(x):
            return rebuilt(x, (go(x.a, sure), go(x.b, False)))
        return rebuilt(x, tuple(go(c, sure) for c in x.parts))

    return rewrite(e, step, True)


def _named(b: LoopBuilder, x: Load, front: list[Stmt]) -> Expr:
    """Read an element into a variable, of a half its bits: where halves only move, nothing is converted."""
    bits = x.dtype == f16
    var = b.name("g", u16 if bits else x.dtype)
    front.append(Let(var, Bits(x, u16) if bits else x))
    return Bits(var, f16) if bits else var


def _is_lazy(x: Expr) -> bool:
    """Tell whether C skips the second operand where the first decides."""
    return isinstance(x, Bin) and x.op in ("and", "or")


def _is_safe(x: Load, ranges: Ranges) -> bool:
    """Tell whether a place is within the tensor for every iteration of the loops around it."""
    if x.buffer.where == "local" or any(isinstance(y, Load | Select) for i in x.index for y in walk(i)):
        return False
    return all(ranges.within(ranges.dim(i), n) for i, n in zip(x.index, x.buffer.shape, strict=True))
