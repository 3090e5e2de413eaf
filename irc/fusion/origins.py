"""The layers of the model that a part of the graph computes."""

from __future__ import annotations

from collections.abc import Collection

from irc.fusion.elements import Elements
from irc.ir.graph import Node, Value, layers_of


def layers_between(elements: Elements, operands: Collection[Value], *results: Value) -> tuple[str, ...]:
    """Find the layers of all nodes through which the results are computed from the operands, in their order.

    What is read through, a Transpose say, counts; what only gives sizes does not.
    """
    leaves = set(operands)
    seen: set[Node] = set()
    order: list[Node] = []
    waiting = [(v.producer, False) for v in reversed(results)]
    while waiting:  # depth first, so that a node comes after what it reads
        node, ready = waiting.pop()
        if node is None:
            continue
        if ready:
            order.append(node)
        elif node not in seen:
            seen.add(node)
            waiting.append((node, True))
            waiting += [(v.producer, False) for v in reversed(elements.operands(node)) if v not in leaves]
    return layers_of(order)
