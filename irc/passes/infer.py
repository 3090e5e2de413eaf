"""Inference of the types and symbolic contents of every value, from the types of the inputs."""

from __future__ import annotations

from irc.diagnostics import Sink
from irc.ir.dim import Dim
from irc.ir.graph import Graph, Node
from irc.opdef.builder import infer_node, keep


def run(graph: Graph, sink: Sink) -> None:
    """Infer every node again, in dependency order, and report what does not fit at its node.

    Where inference knows nothing (a variable without a declared shape), what the file says stays.
    """
    for node in graph.nodes:
        infer_at(node, sink)


def infer_at(node: Node, sink: Sink) -> dict[str, Dim]:
    """Infer one node again.  Returns what stands for the sizes that inference made up (`infer_node`)."""
    before = [(v, v.type) for v in node.outputs]
    renamed: dict[str, Dim] = {}
    with sink.catching(node.loc):
        renamed = infer_node(node)
    for value, type in before:
        keep(value, type)
    return renamed
