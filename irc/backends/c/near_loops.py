"""Loops around sines, cosines and tangents: whether an angle is far from 0 is asked first, of all that the loop reads.

Reducing an angle of any size by whole turns takes three times as long as the rest of the function, and vectors have no
branches; a loop of angles that are all near needs none of it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from irc.backends.c.bounds import bounds
from irc.backends.c.math import NEAR, OF_ANGLES
from irc.expr import Call, Expr, Var
from irc.ir.types import f32
from irc.loops.ir import Assign, For, Let, Store, walk
from irc.traversal import walk as walk_expression

if TYPE_CHECKING:
    from irc.backends.c.function import Frame

MOST = 2
"""Different angles of a loop that are asked for."""
SHORT = 12
"""Parts of an angle's expression at most, which is computed twice."""


def is_near(angle: Expr) -> bool:
    """Tell whether an angle is known to be near."""
    return max(map(abs, bounds(angle))) <= NEAR


def angles(loop: For) -> list[Expr]:
    """List the angles in a loop of vectors of which nothing is known; none if they cannot all be computed before it."""
    if loop.kind != "simd" or not all(isinstance(s, Let | Store) for s in loop.body):
        return []
    defined = {s.var for s in walk(loop.body) if isinstance(s, Let | Assign)}
    values = [s.value for s in loop.body if isinstance(s, Let | Store)]
    calls = {x: None for e in values for x in walk_expression(e) if isinstance(x, Call) and x.fn in OF_ANGLES}
    found = list(dict.fromkeys(x.args[0] for x in calls if x.args[0].dtype == f32 and not is_near(x.args[0])))
    for angle in found:
        parts = list(walk_expression(angle))
        if len(parts) > SHORT or any(isinstance(x, Call) or (isinstance(x, Var) and x in defined) for x in parts):
            return []
    return found if len(found) <= MOST else []


def near_first(frame: Frame, loop: For, found: list[Expr], begin: str, end: str) -> None:
    """Print a loop over angles, one over those that are all near, and the choice between them."""
    far = frame.names.own("far", numbered=True)
    frame.line(f"int {far} = 0;")
    scope = dict(frame.scope)
    frame.opened(loop, begin, end)
    for angle in found:
        frame.long(f"    {far} |= fabsf({frame.print.text(angle)}) > {NEAR!r}f;")
    frame.line("}")
    frame.scope = scope
    for near in (True, False):
        frame.line(f"if (!{far}) {{" if near else "} else {")
        frame.print.near, frame.depth = near, frame.depth + 1
        frame.simply(loop, begin, end)
        frame.print.near, frame.depth = False, frame.depth - 1
    frame.line("}")
