"""Sizes that type inference took for equal and that only the inputs of a run can confirm."""

from __future__ import annotations

from irc.expr import Load, Var, walk
from irc.ir.dim import Dim
from irc.ir.graph import Node
from irc.passes.elements import Elements, Flat, value_of
from irc.passes.rows import reduces


def demands(node: Node, elements: Elements) -> list[tuple[Dim, Dim]]:
    """Pairs of sizes that must be equal when the model runs, as far as that is not certain."""
    pairs = _broadcast(node) if node.op.elementwise else _contracted(node, elements)
    return [(a, b) for a, b in pairs if a.equals(b) is None]


def _broadcast(node: Node) -> list[tuple[Dim, Dim]]:
    """Every operand size is 1 or the result's.  Where 1 is possible: (size - 1) · (size - full) = 0."""
    pairs: list[tuple[Dim, Dim]] = []
    shape = node.outputs[0].shape
    for value in node.operands:
        skip = len(shape) - len(value.shape)
        for size, full in zip(value.shape, shape[skip:], strict=True):
            if size == full or size == 1:
                continue
            if size.bounds()[0] > 1:
                pairs.append((size, full))
            else:
                pairs.append(((size - 1) * (size - full), Dim.of(0)))
    return pairs


def _contracted(node: Node, elements: Elements) -> list[tuple[Dim, Dim]]:
    """A reduction that runs over an operand's axis must have its size."""
    pairs: list[tuple[Dim, Dim]] = []
    if node.op.compute is None:
        return pairs
    for out in node.outputs:
        for r in reduces(elements.of(out)):
            extents = dict(zip(r.vars, r.extents, strict=True))
            for load in walk(r.body):
                if isinstance(load, Load) and not isinstance(load.buffer, Flat):
                    shape = value_of(load).shape
                    for i, size in zip(load.index, shape, strict=True):
                        if isinstance(i, Var) and i in extents and extents[i] != size:
                            pairs.append((extents[i], size))
    return pairs
