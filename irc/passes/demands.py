"""Sizes that type inference took for equal and that only the inputs of a run can confirm."""

from __future__ import annotations

from irc.expr import Load, Var, walk
from irc.ir.dim import Dim
from irc.ir.graph import Graph, Node
from irc.passes.elements import Elements, Flat, value_of
from irc.passes.rows import reduces
from irc.passes.simplify import RESHAPES

RECORDED = "sizes that reshapes keep"
"""Key in a graph's extras of what `record` found."""


def record(graph: Graph) -> None:
    """Note, for every reshape of the model, that its result has as many elements as its operand.

    Later it may be gone: kernels and views read its operand's memory in its place.
    """
    found: list[tuple[Dim, Dim, str]] = []
    for node in graph.nodes:
        x, out = node.inputs[0] if node.inputs else None, node.outputs[0] if node.outputs else None
        if node.op.name not in RESHAPES or x is None or out is None or x.rank is None or out.rank is None:
            continue
        a, b = x.tensor.elements(), out.tensor.elements()
        if a.equals(b) is None:
            found.append((a, b, node.name or node.op.name))
    graph.extras[RECORDED] = found


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
