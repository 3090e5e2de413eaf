"""Size constraints of operations that only the inputs of a run decide, recorded before passes change the graph."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from irc.diagnostics import Problem, Sink
from irc.ir.dim import DimLike
from irc.ir.graph import Graph, Node, Value
from irc.ir.relation import SizeConstraint, recording
from irc.ir.types import TensorType
from irc.opdef.base import Op
from irc.opdef.builder import trace
from irc.passes.infer import infer_at, substitute, told

RECORDED = "size_constraints"
"""Key in a graph's extras of what `record` found."""
IMPOSSIBLE = "impossible"
"""Key in the extras of a region that cannot run with the sizes that were bound: the constraint, which never holds."""


def record(graph: Graph, sink: Sink) -> None:
    """Record the size constraints that inference of nodes with symbolic sizes left undecided, each once.

    Later an operation may be gone: rewritten, decomposed, or a part of a kernel that reads its operands' memory.
    What folding has computed since the last inference may say more of a type: then its users are inferred again too.
    """
    found: dict[object, SizeConstraint] = {}
    better: set[Value] = set()
    sizes: dict[str, DimLike] = {}  # symbols of which the run was to tell what they are, and which are known now
    for node in graph.nodes:
        if better.intersection(node.operands) or any(_symbolic(v) for v in (*node.operands, *node.outputs)):
            before = [v.type for v in node.outputs]
            for constraint in _constraints(node, sink):
                found.setdefault((constraint.relation, constraint.code), constraint)
            better.update(v for v, known in zip(node.outputs, before, strict=True) if v.type != known)
            for value, known in zip(node.outputs, before, strict=True):
                sizes |= told(known, value.type)
    if sizes:
        substitute(graph, sizes)
    graph.extras[RECORDED] = [*graph.extras.get(IMPOSSIBLE, []), *found.values()]


def recorded(graph: Graph) -> list[SizeConstraint]:
    """Return what `record` found."""
    return graph.extras.get(RECORDED, [])


def _constraints(node: Node, sink: Sink) -> list[SizeConstraint]:
    """Infer a node's types again. Returns what it demands, with the node's place."""
    with recording() as found:
        renamed = infer_at(node, sink)
        if node.op.decompose is not None:
            _trace(node.op, node.inputs)
    if node.op.regions:
        return []  # those of its regions hold when these run
    where = node.loc.where or node.name or node.op.name
    return [replace(d, relation=d.relation.subs(renamed), where=where) for d in found]


def _trace(op: Op, operands: Sequence[Value | None]) -> None:
    """Record the size constraints of an operation's decomposition, down to operations with loops.

    A decomposition that fails is ignored: the pass that decomposes reports it.
    """
    try:
        graph, _, _ = trace(op, operands)
    except Problem:
        return
    for node in graph.nodes:
        if node.op.decompose is not None and any(_symbolic(v) for v in (*node.operands, *node.outputs)):
            _trace(node.op, node.inputs)


def _symbolic(value: Value) -> bool:
    return isinstance(value.type, TensorType) and not value.type.is_static
