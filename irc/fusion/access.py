"""Positions of a value's elements in memory, as kernels need them: an offset, and a stride per axis.

Rearrangements (Transpose, Reshape, Slice, Expand …) between a stored value and who reads it are folded into the
strides as long as the position stays linear in the loop variables.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from irc.expr import Const, Expr, Load, Var
from irc.fusion.elements import Elements, Flat, Inliner, is_index, known_element, value_of
from irc.fusion.indexing import Ranges, coefficient, local_name
from irc.ir.dim import LOCAL, Dim
from irc.ir.graph import Value
from irc.ir.types import i64

ZERO = Dim.of(0)


@dataclass(frozen=True)
class Access:
    """Element i of the space stands at `offset` + Σ i · stride of `value`, in elements."""

    value: Value
    offset: Dim
    strides: tuple[Dim, ...]


class Space:
    """A box of loop variables; an axis of size 1 has none."""

    def __init__(self, shape: Sequence[Dim], name: str = "t") -> None:
        self.shape = tuple(shape)
        self.ranges = Ranges()
        self.at: tuple[Expr, ...] = tuple(
            Const(0, i64) if size == 1 else Var(f"{name}{k}") for k, size in enumerate(self.shape)
        )
        for var, size in zip(self.at, self.shape, strict=True):
            if isinstance(var, Var):
                self.ranges.declare(var, size)

    def linear(self, position: Dim) -> tuple[Dim, tuple[Dim, ...]] | None:
        """Split a position that is linear in the axes into an offset and strides; None if it is not linear."""
        strides: list[Dim] = []
        rest = position
        for var in self.at:
            stride = coefficient(position, local_name(var)) if isinstance(var, Var) else ZERO
            if stride is None:
                return None
            strides.append(stride)
            if isinstance(var, Var):
                rest = rest.subs({local_name(var): 0})
        if any(s.name.startswith(LOCAL) for d in (rest, *strides) for s in d.symbols()):
            return None
        return rest, tuple(strides)


def find(elements: Elements, space: Space, value: Value, index: tuple[Expr, ...]) -> list[Access]:
    """List the ways to read element `index` (of the space's variables) of a value, the most direct one first.

    The first goes back through as many rearrangements as possible; the last reads the value itself.
    """
    found: list[Access] = []
    while True:
        line = space.linear(space.ranges.flat(index, value.shape))
        if line is not None:
            found.insert(0, Access(value, *line))
        node = value.producer
        if node is None or node.op.compute is None:
            return found
        element = elements.of(value).expr
        if not isinstance(element, Load) or known_element(value_of(element), element.index) is not None:
            return found
        operand = value_of(element)
        moved = Inliner(elements, lambda v, here=value: v is not here, space.ranges).at(value, index)
        if not isinstance(moved, Load) or value_of(moved) is not operand or not all(map(is_index, moved.index)):
            return found  # an index that is computed, such as one looked up in a table
        if isinstance(moved.buffer, Flat):
            line = space.linear(space.ranges.dim(moved.index[0]))
            return [Access(operand, *line), *found] if line is not None else found
        value, index = operand, moved.index


def row_major(shape: Sequence[Dim]) -> tuple[Dim, ...]:
    """Compute the strides of a tensor without gaps; 0 for an axis of size 1."""
    strides: list[Dim] = []
    step = Dim.of(1)
    for size in reversed(tuple(shape)):
        strides.append(ZERO if size == 1 else step)
        step = step * size
    return tuple(reversed(strides))
