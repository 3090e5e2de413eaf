"""Graphs for people, as lines of text."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from irc.ir.graph import Graph, Node, Value

FIRST, LAST = 60, 20
"""Nodes that are shown of more."""


def as_text(graph: Graph) -> str:
    """Write the inputs, a line for each node, the outputs."""
    nodes = graph.nodes
    lines = [f"graph {graph.name!r}: {len(nodes)} nodes"]
    lines += [f"  input  {value_text(v)}" for v in graph.inputs]
    cut = len(nodes) > FIRST + LAST
    lines += map(node_line, nodes[:FIRST] if cut else nodes)
    if cut:
        lines += [f"  … {len(nodes) - FIRST - LAST} more", *map(node_line, nodes[-LAST:])]
    lines += [f"  output {value_text(v)}" for v in graph.outputs]
    return _readable("\n".join(lines))


def _readable(text: str) -> str:
    return "".join(c if c.isprintable() or c == "\n" else "\ufffd" for c in text)


def node_line(node: Node) -> str:
    """Write a node: results, operation, operands."""
    operands = ", ".join("_" if v is None else f"%{v.name}" for v in node.inputs)
    return f"  {', '.join(map(value_text, node.outputs))} = {node.op}{' ' if operands else ''}{operands}"


def value_text(value: Value) -> str:
    """Write a value and its type."""
    return f"%{value.name}: {value.type}"
