"""Operands that decide an operation's structure, and that only a run knows, become arithmetic on sizes.

So `axes` of a Squeeze that the model computes become the shape operand of a Reshape: later passes see operations whose
structure is known, with sizes that are not (`irc.passes.define_sizes`).
"""

from __future__ import annotations

from irc.diagnostics import Sink
from irc.ir.graph import Graph, Node
from irc.opdef.builder import Builder
from irc.opdef.reference import as_list
from irc.passes.replace import put_in_place


def run(graph: Graph, sink: Sink) -> None:
    """Rewrite in place, and again what comes of it; Problems become findings."""
    waiting = [n for n in graph.nodes if n.op.resolve is not None]
    while waiting:
        node = waiting.pop()
        with sink.catching(node.loc):
            waiting += [n for n in _resolve(graph, node) if n.op.resolve is not None]


def _resolve(graph: Graph, node: Node) -> list[Node]:
    """Replace one node, if there is anything to do.  Returns the new nodes.  Raises Problem."""
    assert node.op.resolve is not None
    count = len(graph)
    found = node.op.resolve(Builder(graph, node.name or node.op.name, node.loc, layers=node.layers), *node.inputs)
    if found is None:
        return []
    added = list(graph.dag)[count:]
    for old, new in zip(node.outputs, as_list(found), strict=True):
        put_in_place(graph, old, new)
    graph.remove(node)
    return added
