"""Takes the branch that the rest of a graph demands, where the two branches of an If give tensors of different rank.

`If(Shape(x)[2] == 1, Squeeze(x, 2), x)` gives two or three axes, and what follows may be defined for only one of them:
the other branch ends every run that takes it.  A format or an engine that needs ranks gets the branch that can be run.
"""

from __future__ import annotations

from irc.diagnostics import Sink
from irc.diagnostics.codes import conversion as codes
from irc.ir.graph import Graph, Node, Value
from irc.ir.types import TensorType
from irc.ops.control import If
from irc.passes import take_branches

REASON = "what follows accepts no result of its rank"


def run(graph: Graph, sink: Sink) -> Graph:
    """Make a graph with the branches that can be run in the place of such Ifs, regions first; the given one stays.

    Each is a note.  An If both of whose branches, or neither, what follows accepts stays as it is.
    """
    if not any(_differs_in_rank(n) for each in graph.nested() for n in each.nodes):
        return graph
    found = graph.copy()
    for node in found.nodes:
        if node.op.regions:
            found.set_op(node, node.op.with_regions([run(region, sink) for region in node.op.regions]))
    take_branches.run(found, Sink())
    undecided: set[str] = set()
    while (node := _first(found, undecided)) is not None:
        taken = _only_possible(found, node)
        if taken is None:
            undecided.add(node.outputs[0].name)
            continue
        found, branch = taken
        sink.report(codes.BRANCH_LEFT_OUT, node.loc, branch=branch, reason=REASON)
    return found


def _first(graph: Graph, undecided: set[str]) -> Node | None:
    nodes = (n for n in graph.nodes if _differs_in_rank(n) and n.outputs[0].name not in undecided)
    return next(nodes, None)


def _differs_in_rank(node: Node) -> bool:
    """Tell whether a node is an If of two known ranks for one of its results."""
    if not isinstance(node.op, If):
        return False
    pairs = zip(node.op.then.outputs, node.op.otherwise.outputs, strict=True)
    return any(None not in (ranks := {_rank(a), _rank(b)}) and len(ranks) == 2 for a, b in pairs)


def _rank(value: Value) -> int | None:
    return value.type.rank if isinstance(value.type, TensorType) else None


def _only_possible(graph: Graph, node: Node) -> tuple[Graph, str] | None:
    """Find the graph with one of the branches in place, and the name of the other, where one alone is possible."""
    place = graph.nodes.index(node)
    possible: list[tuple[Graph, str]] = []
    for index, other in enumerate(("else_branch", "then_branch")):
        twin, findings = graph.copy(), Sink()
        take_branches.take(twin, twin.nodes[place], index)
        take_branches.run(twin, findings)
        if not findings.errors:
            possible.append((twin, other))
    return possible[0] if len(possible) == 1 else None
