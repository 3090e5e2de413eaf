"""What operations demand of sizes that only the inputs of a run tell: recorded before passes change the graph."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from irc.diagnostics import Problem, Sink
from irc.ir.graph import Graph, Node, Value
from irc.ir.relation import Demand, recording
from irc.ir.types import TensorType
from irc.opdef.base import Op
from irc.opdef.builder import trace
from irc.passes.infer import infer_at

RECORDED = "demands"
"""Key in a graph's extras of what `record` found."""


def record(graph: Graph, sink: Sink) -> None:
    """Note what inference of the nodes that meet symbolic sizes could not decide, each demand once.

    Later an operation may be gone: rewritten, decomposed, or a part of a kernel that reads its operands' memory.
    What folding has computed since the last inference may say more of a type: then its users are inferred again too.
    """
    found: dict[object, Demand] = {}
    better: set[Value] = set()
    for node in graph.nodes:
        if better.intersection(node.operands) or any(_symbolic(v) for v in (*node.operands, *node.outputs)):
            before = [v.type for v in node.outputs]
            for demand in _demands(node, sink):
                found.setdefault((demand.relation, demand.code), demand)
            better.update(v for v, known in zip(node.outputs, before, strict=True) if v.type != known)
    graph.extras[RECORDED] = list(found.values())


def recorded(graph: Graph) -> list[Demand]:
    """What `record` found."""
    return graph.extras.get(RECORDED, [])


def _demands(node: Node, sink: Sink) -> list[Demand]:
    """What a node demands, with the node's place; its types are inferred again."""
    with recording() as found:
        infer_at(node, sink)
        if node.op.decompose is not None:
            _trace(node.op, node.inputs)
    where = node.loc.where or node.name or node.op.name
    return [replace(d, where=where) for d in found]


def _trace(op: Op, operands: Sequence[Value | None]) -> None:
    """Meet the demands of what an operation is decomposed into, down to what has loops.  Those that need more than is
    known are silent here: the pass that decomposes says so."""
    try:
        graph, _, _ = trace(op, operands)
    except Problem:
        return
    for node in graph.nodes:
        if node.op.decompose is not None and any(_symbolic(v) for v in (*node.operands, *node.outputs)):
            _trace(node.op, node.inputs)


def _symbolic(value: Value) -> bool:
    return isinstance(value.type, TensorType) and not value.type.is_static
