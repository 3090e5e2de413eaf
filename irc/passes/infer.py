"""Types and symbolic contents of every value, from the inputs' types."""

from __future__ import annotations

from irc.diagnostics import Sink
from irc.ir.graph import Graph
from irc.ops.builder import infer_node


def run(graph: Graph, sink: Sink) -> None:
    """Infer every node again, in dependency order; what does not fit is reported at its node."""
    for node in graph.nodes:
        with sink.catching(node.loc):
            infer_node(node)
