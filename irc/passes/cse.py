"""Common subexpression elimination: equal nodes are computed once."""

from __future__ import annotations

from collections.abc import Hashable

from irc.ir.graph import Graph, Node, Value, layers_of
from irc.passes.replace import replace_value

SMALL = 64
"""Constants of up to this many elements are compared by content."""


def run(graph: Graph) -> int:
    """Merge equal nodes in place. Returns how many were removed."""
    merged = 0
    seen: dict[Hashable, Node] = {}
    for node in graph.nodes:
        key = None if node.op.effect else _key(node)
        if key is None:
            continue
        first = seen.setdefault(key, node)
        if first is node or any(graph.keeps(v) for v in node.outputs):
            continue
        for old, new in zip(node.outputs, first.outputs, strict=True):
            replace_value(graph, old, new)
        first.layers = layers_of((first, node))
        graph.remove(node)
        merged += 1
    return merged


def share_constants(graph: Graph) -> None:
    """Make equal small constants of a graph one, in place."""
    seen: dict[Hashable, Value] = {}
    for node in graph.nodes:
        for value in node.inputs:
            if value is not None and value.const is not None and not graph.keeps(value):
                first = seen.setdefault(_operand(value), value)
                if first is not value:
                    graph.replace_uses(value, first)


def _key(node: Node) -> Hashable | None:
    operands = tuple(None if v is None else _operand(v) for v in node.inputs)
    found = (node.op, str(node.op.attributes()), operands, len(node.outputs))
    try:
        hash(found)
    except TypeError:  # an attribute cannot be compared
        return None
    return found


def _operand(value: Value) -> Hashable:
    if value.const is not None:
        array = value.const.array if int(value.tensor.elements()) <= SMALL else None
        if array is not None and array.dtype != object:
            return value.dtype, array.shape, array.tobytes()
    return id(value)
