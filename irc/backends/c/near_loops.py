"""Loops around functions that are short near 0: whether an operand is far is asked first, of a stretch of the loop.

Reducing an angle of any size by whole turns takes three times as long as the rest of a sine, and no vector instruction
divides integers, or reduces a float by many times another; vectors have no branches, but a stretch of which all
operands are near needs none of that.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from irc.backends.c import quotients
from irc.backends.c.bounds import bounds
from irc.backends.c.math import NEAR, OF_ANGLES
from irc.backends.c.types import arithmetic
from irc.expr import Call, Const, Expr, Load, Var
from irc.ir.types import f32
from irc.loops.ir import Assign, For, Let, Store, walk
from irc.loops.simplify import certain
from irc.traversal import walk as walk_expression

if TYPE_CHECKING:
    from irc.backends.c.function import Frame

Operands = tuple[Expr, ...]
MOST = 2
"""Different functions of a loop that are asked for."""
SHORT = 12
"""Parts of a function's operands at most, which are computed twice."""
STRETCH = 1024
"""Iterations that are asked for at a time."""


def is_near(angle: Expr) -> bool:
    """Tell whether an angle is known to be near."""
    return max(map(abs, bounds(angle))) <= NEAR


def questions(loop: For) -> list[Operands]:
    """List the operands in a loop of vectors that may be near; none if not all can be asked before it."""
    if loop.kind != "simd" or not all(isinstance(s, Let | Store) for s in loop.body):
        return []
    defined = {s.var for s in walk(loop.body) if isinstance(s, Let | Assign)}
    values = [s.value for s in loop.body if isinstance(s, Let | Store)]
    found = dict.fromkeys(x for value in values for e in walk_expression(value) if (x := _asked(e)))
    always = {x for value in values for e in certain(value) if (x := _asked(e))} if found else set[Operands]()
    for operands in found:
        parts = [x for operand in operands for x in walk_expression(operand)]
        if len(parts) > SHORT or any(isinstance(x, Call) or (isinstance(x, Var) and x in defined) for x in parts):
            return []
    return list(found) if len(found) <= MOST and found.keys() <= always else []


def _asked(e: Expr) -> Operands:
    """Return the operands of a function that is short where they are near; none of other expressions."""
    if isinstance(e, Call) and e.fn in OF_ANGLES:
        return e.args if e.args[0].dtype == f32 and not is_near(e.args[0]) else ()
    operands = quotients.asked(e)
    return operands if any(isinstance(x, Load) for operand in operands for x in walk_expression(operand)) else ()


def _far(frame: Frame, operands: Operands) -> str:
    """Print whether operands of a function are far."""
    texts = [frame.print.text(x) for x in operands]
    if len(texts) == 1:
        return f"fabsf({texts[0]}) > {NEAR!r}f"
    return f"{frame.helper(f'far_{arithmetic(operands[0].dtype)}')}({', '.join(texts)})"


def near_first(frame: Frame, loop: For, found: list[Operands], begin: str, end: str) -> None:
    """Print a loop over stretches, of each a loop over near operands, one over others, and the choice between them."""
    whole = isinstance(loop.extent, Const) and int(loop.extent.value) <= STRETCH
    if not whole:
        first, last = (frame.names.own(x, numbered=True) for x in ("first", "last"))
        end = end or frame.print.text(loop.extent, 11)
        frame.line(f"for (int64_t {first} = {begin}; {first} < {end}; {first} += {STRETCH}) {{")
        frame.depth += 1
        frame.line(f"const int64_t {last} = {end} - {first} < {STRETCH} ? {end} : {first} + {STRETCH};")
        begin, end = str(first), str(last)
    far = frame.names.own("far", numbered=True)
    frame.line(f"int {far} = 0;")
    scope = dict(frame.scope)
    frame.opened(loop, begin, end)
    for operands in found:
        frame.long(f"    {far} |= {_far(frame, operands)};")
    frame.line("}")
    frame.scope = scope
    for near in (True, False):
        frame.line(f"if (!{far}) {{" if near else "} else {")
        frame.print.near, frame.depth = frozenset(found if near else ()), frame.depth + 1
        frame.simply(loop, begin, end)
        frame.print.near, frame.depth = frozenset(), frame.depth - 1
    frame.line("}")
    if not whole:
        frame.depth -= 1
        frame.line("}")
