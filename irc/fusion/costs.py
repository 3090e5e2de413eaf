"""What elements cost to compute: the numbers by which fusion decides whether a value is stored."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from irc.expr import Bin, Bits, Call, Cast, Expr, Load, Reduce, Select
from irc.traversal import fold, walk

SCATTERED = 6
"""Cost of reading an element whose place along a row other elements say, which are not side by side."""
HEAVY = 12
"""Cost of a call of a mathematical function; arithmetic costs 1, a division 3."""


def cost(parts: Iterable[Expr], along: Sequence[Expr]) -> int:
    """Estimate the cost of one element of these expressions; along: the variable of the axis that vectors are of."""
    return sum(_weight(x) + SCATTERED * _is_scattered(x, along) for x in parts)


def written(e: Expr) -> int:
    """Count the expressions that C has of one.

    The sides of a Select share no parts, because only one side is computed.
    """

    def size(x: Expr, parts: tuple[int, ...]) -> int:
        return 1 + sum(parts)

    known: dict[int, int] = {}
    outermost = walk(e, into=lambda x: not isinstance(x, Select))
    sides = [c for x in outermost if isinstance(x, Select) for c in (x.a, x.b)]
    return sum(fold(c, size, known) for c in sides)


def _weight(e: Expr) -> int:
    match e:
        case Bin(op="div" | "pow"):
            return 3
        case Call():
            return HEAVY
        case Bin() | Select() | Cast() | Bits():
            return 0 if e.dtype.name in ("i64", "bool") else 1
        case Reduce():
            return HEAVY
        case _:
            return 0


def _is_scattered(e: Expr, along: Sequence[Expr]) -> bool:
    """Tell whether an element is read whose place depends on others that move along an axis."""
    if not isinstance(e, Load):
        return False
    inner = [x for i in e.index for x in walk(i) if isinstance(x, Load)]
    return any(y in along for x in inner for i in x.index for y in walk(i))
