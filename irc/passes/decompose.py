"""Replaces composite operations by the subgraphs that `decompose` describes, until only loops are left to write."""

from __future__ import annotations

from irc.diagnostics import Sink
from irc.diagnostics.codes import lowering as codes
from irc.ir.graph import Graph
from irc.opdef.opaque import Opaque
from irc.passes.inline import decompose_where


def run(graph: Graph, sink: Sink) -> None:
    """Decompose composite operations in place, and report every operation that has no lowering."""
    graph.prune()
    decompose_where(graph, lambda n: n.op.decompose is not None, sink)
    graph.prune()
    for node in graph.nodes:
        if node.op.compute is not None or node.op.loops is not None or node.op.regions:
            continue
        if isinstance(node.op, Opaque):
            sink.report(codes.OPAQUE, node.loc, op=node.op.type)
        elif node.op.decompose is None:
            sink.report(codes.NO_LOWERING, node.loc, op=node.op.name)
