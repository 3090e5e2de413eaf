"""Names the layer of the model that each node was read from.

Passes keep the names while they replace nodes, so that functions of the generated code, and what is measured of them,
can be traced back to the model.
"""

from __future__ import annotations

from irc.ir.graph import Graph, Node, Value


def run(graph: Graph) -> None:
    """Set `Node.layers` for the nodes of a graph that was just read."""
    for node in graph.nodes:
        name = layer_name(node)
        node.layers = (name,) if name else ()


def layer_name(node: Node) -> str:
    """Name the layer of a node as its file does, a layer without a name by its first result."""
    origin = node.origin
    if origin is None or origin.form is None:  # of no file, or of a function body with names of its own
        return node.name or _result_name(node.outputs)
    return str(origin.raw.name) or _result_name(origin.outputs)


def _result_name(outputs: tuple[Value, ...]) -> str:
    return next((name for value in outputs for name in (*value.names, value.name)), "")
