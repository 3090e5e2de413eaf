"""Loops around functions that are short near 0: whether an operand is far is asked first, of a stretch of the loop.

Reducing an angle of any size by whole turns takes three times as long as the rest of a sine, limiting an exponent and
splitting its power in two takes half as long as the rest of an exponential, and no vector instruction divides integers,
or reduces a float by many times another; vectors have no branches, but a stretch of which all operands are near needs
none of that.
"""

from __future__ import annotations

import math
import struct
from itertools import takewhile
from typing import TYPE_CHECKING

from irc.backends.c import quotients
from irc.backends.c.bounds import bounds
from irc.backends.c.math import NEAR, NEAR_EXPONENTS, OF_ANGLES
from irc.backends.c.types import arithmetic
from irc.expr import Call, Const, Expr, Load, Var
from irc.ir.types import f32
from irc.loops.ir import Assign, For, Let, Store, walk
from irc.loops.simplify import certain
from irc.traversal import replaced, walk as walk_expression

if TYPE_CHECKING:
    from irc.backends.c.function import Frame

Operands = tuple[Expr, ...]
MOST = 2
"""Different functions of a loop that are asked for."""
SHORT = 12
"""Parts of a function's operands at most, which are computed twice."""
FEWEST = 3
"""The same of an exponential, which gains less."""
STRETCH = 1024
"""Iterations that are asked for at a time."""


def is_near(angle: Expr) -> bool:
    """Tell whether an angle is known to be near."""
    return max(map(abs, bounds(angle))) <= NEAR


def is_near_exponent(x: Expr) -> bool:
    """Tell whether an exponent is known to be near."""
    return max(map(abs, bounds(x))) <= NEAR_EXPONENTS


def questions(loop: For) -> dict[Operands, float]:
    """Find the operands in a loop of vectors that may be near, and up to where; none if not all can be asked before it.

    For quotients that is 0: their helpers know it.
    """
    if loop.kind != "simd" or not all(isinstance(s, Let | Store) for s in loop.body):
        return {}
    defined = {s.var for s in walk(loop.body) if isinstance(s, Let | Assign)}
    values = [s.value for s in loop.body if isinstance(s, Let | Store)]
    found: dict[Operands, float] = {}
    for e in (e for value in values for e in walk_expression(value)):
        if operands := _asked(e):
            found[operands] = min(_limit(e), found.get(operands, math.inf))
    always = {x for value in values for e in certain(value) if (x := _asked(e))} if found else set[Operands]()
    for operands, limit in found.items():
        parts = [x for operand in operands for x in walk_expression(_with_loads(loop, operand))]
        short = len(parts) <= (FEWEST if limit == NEAR_EXPONENTS else SHORT)
        if not short or any(isinstance(x, Call) or (isinstance(x, Var) and x in defined) for x in parts):
            return {}
    return found if len(found) <= MOST and found.keys() <= always else {}


def _with_loads(loop: For, operand: Expr) -> Expr:
    """Replace the variables of a loop that stand for elements of tensors by these, so that others can ask.

    They are read before the loop stores anything, so that they are the same outside it.
    """
    lets = takewhile(lambda s: isinstance(s, Let), loop.body)
    loads = {s.var: s.value for s in lets if isinstance(s, Let) and isinstance(s.value, Load)}
    return replaced(operand, lambda x: loads.get(x) if isinstance(x, Var) else None)


def _asked(e: Expr) -> Operands:
    """Return the operands of a function that is short where they are near; none of other expressions."""
    if isinstance(e, Call) and e.fn in OF_ANGLES:
        return e.args if e.args[0].dtype == f32 and not is_near(e.args[0]) else ()
    if isinstance(e, Call) and e.fn == "exp":
        return e.args if e.args[0].dtype == f32 and not is_near_exponent(e.args[0]) else ()
    operands = quotients.asked(e)
    return operands if any(isinstance(x, Load) for operand in operands for x in walk_expression(operand)) else ()


def _limit(e: Expr) -> float:
    """Return up to where the operands of such a function are near; 0 for quotients."""
    return 0.0 if not isinstance(e, Call) else NEAR_EXPONENTS if e.fn == "exp" else NEAR if e.fn in OF_ANGLES else 0.0


def _far(frame: Frame, loop: For, operands: Operands, limit: float) -> str:
    """Print whether operands of a function are far."""
    texts = [frame.print.text(_with_loads(loop, x)) for x in operands]
    if len(texts) == 1:
        return f"fabsf({texts[0]}) > {limit!r}f"
    return f"{frame.helper(f'far_{arithmetic(operands[0].dtype)}')}({', '.join(texts)})"


def _again(frame: Frame, loop: For, found: dict[Operands, float]) -> bool:
    """Tell whether a loop may be run with near helpers in any case, and again where an operand was far.

    Only helpers of exponentials take any operand, and what the loop reads must still be there.
    """
    if set(found.values()) != {NEAR_EXPONENTS} or not frame.unit.vectors:
        return False
    stored = {s.buffer.root for s in loop.body if isinstance(s, Store)}
    values = [s.value for s in loop.body if isinstance(s, Let | Store)]
    read = {e.buffer.root for value in values for e in walk_expression(value) if isinstance(e, Load)}
    return stored.isdisjoint(read | frame.aliased)


def near_first(frame: Frame, loop: For, found: dict[Operands, float], begin: str, end: str) -> None:
    """Print a loop over stretches, of each a loop over near operands, one over others, and the choice between them."""
    whole = isinstance(loop.extent, Const) and int(loop.extent.value) <= STRETCH
    if not whole:
        first, last = (frame.names.own(x, numbered=True) for x in ("first", "last"))
        end = end or frame.print.text(loop.extent, 11)
        frame.line(f"for (int64_t {first} = {begin}; {first} < {end}; {first} += {STRETCH}) {{")
        frame.depth += 1
        frame.line(f"const int64_t {last} = {end} - {first} < {STRETCH} ? {end} : {first} + {STRETCH};")
        begin, end = str(first), str(last)
    if _again(frame, loop, found):
        _near_in_any_case(frame, loop, found, begin, end)
    else:
        _asked_first(frame, loop, found, begin, end)
    if not whole:
        frame.depth -= 1
        frame.line("}")


def _near_in_any_case(frame: Frame, loop: For, found: dict[Operands, float], begin: str, end: str) -> None:
    """Print a loop that finds the farthest exponent on the way, and one that runs if it was far."""
    farthest = frame.names.own("farthest", numbered=True)
    frame.line(f"int32_t {farthest} = 0;")
    frame.line("IRC_SIMD")
    scope = dict(frame.scope)
    frame.opened(loop, begin, end)
    frame.print.near = frozenset(found)
    frame.block(loop.body)
    frame.print.near = frozenset()
    for (exponent,) in found:
        helper = frame.helper("farther_f32")
        text = frame.print.text(_with_loads(loop, exponent))
        frame.long(f"    {farthest} = {helper}({farthest}, {text});")
    frame.line("}")
    frame.scope = scope
    bits = struct.unpack("<i", struct.pack("<f", NEAR_EXPONENTS))[0]
    frame.line(f"if ({farthest} > {bits:#x}) {{ /* {NEAR_EXPONENTS!r}f */")
    frame.depth += 1
    frame.simply(loop, begin, end)
    frame.depth -= 1
    frame.line("}")


def _asked_first(frame: Frame, loop: For, found: dict[Operands, float], begin: str, end: str) -> None:
    """Print a loop that asks, and one for each answer."""
    far = frame.names.own("far", numbered=True)
    frame.line(f"int {far} = 0;")
    scope = dict(frame.scope)
    frame.opened(loop, begin, end)
    for operands, limit in found.items():
        frame.long(f"    {far} |= {_far(frame, loop, operands, limit)};")
    frame.line("}")
    frame.scope = scope
    for near in (True, False):
        frame.line(f"if (!{far}) {{" if near else "} else {")
        frame.print.near, frame.depth = frozenset(found if near else ()), frame.depth + 1
        frame.simply(loop, begin, end)
        frame.print.near, frame.depth = frozenset(), frame.depth - 1
    frame.line("}")
