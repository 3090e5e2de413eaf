"""Quotients that become whole numbers within bounds, as QuantizeLinear's: without a division for each element.

What is quantized is clamped before it is divided, so that nothing on the way to a correctly rounded quotient overflows,
by a product with the reciprocal and its correction.
"""

from __future__ import annotations

import numpy as np

from irc.expr import Bin, Call, Cast, Const, Expr, Load, Select, Var
from irc.ir.types import f32, i32
from irc.loops.simplify import depends
from irc.traversal import replaced, walk

SMALLEST, LARGEST = 2.0**-100, 2.0**100
"""Divisors between which nothing on the way is denormal or infinite."""
BOUND = 2.0**17
"""Whole numbers up to which a sum with 1.5 · 2^23 holds them in its last bits."""


def with_nearest_quotients(e: Expr, varying: Var) -> Expr:
    """Write such quotients by numbers that stay the same in a loop over `varying` as calls of "nearest_quotient"."""
    if not any(isinstance(x, Cast) and isinstance(x.a, Select) for x in walk(e)):
        return e
    return replaced(e, lambda x: _rewritten(x, varying))


def _rewritten(e: Expr, varying: Var) -> Expr | None:
    match e:
        case Cast(Select(Bin("lt", Const(least), t), Bin("min", other, Const(largest)), Const(instead)), kind):
            pass
        case _:
            return None
    if t != other or least != instead or t.dtype != f32 or not kind.is_integer or kind.bits > 16:
        return None
    zero: Expr = Const(0.0, f32)
    if isinstance(t, Bin) and t.op == "add" and not depends(t.b, {varying}):
        t, zero = t.a, t.b
    if not (isinstance(t, Call) and t.fn == "round" and _is_small(zero)):
        return None
    x, scale = t.args[0], Const(1.0, f32)
    if isinstance(x, Bin) and x.op == "div" and not depends(x.b, {varying}) and _is_moderate(x.b):
        x, scale = x.a, x.b
    low, high = (_less(Const(float(limit), f32), zero) for limit in (least, largest))
    whole = Cast(Call("nearest_quotient", (with_nearest_quotients(x, varying), scale, low, high)), i32)
    return Cast(whole if zero == Const(0.0, f32) else Bin("add", whole, _whole(zero)), kind)


def _less(limit: Const, zero: Expr) -> Expr:
    return Const(limit.value - zero.value, f32) if isinstance(zero, Const) else Bin("sub", limit, zero)


def _whole(zero: Expr) -> Expr:
    return Const(int(zero.value), i32) if isinstance(zero, Const) else Cast(zero, i32)


def _is_small(zero: Expr) -> bool:
    """Tell whether a zero point is known to be a whole number that is not too large."""
    found = _numbers(zero)
    return found is not None and bool(np.all((np.abs(found) < BOUND / 2) & (found == np.rint(found))))


def _is_moderate(scale: Expr) -> bool:
    found = _numbers(scale)
    return found is not None and bool(np.all((found >= SMALLEST) & (found <= LARGEST)))


def _numbers(e: Expr) -> np.ndarray | None:
    """Return all that an operand may be, if it is a constant or read from one."""
    match e:
        case Const():
            return np.asarray(e.value)
        case Load() if e.dtype == f32:
            return e.buffer.root.data
        case _:
            return None
