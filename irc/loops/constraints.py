"""The checks that a program makes on entry: of sizes that only the inputs of a run can confirm."""

from __future__ import annotations

from irc.ir.dim import Dim
from irc.ir.graph import Graph
from irc.loops.ir import Constraint
from irc.passes.claim import KernelOp
from irc.passes.demands import RECORDED, demands
from irc.passes.elements import Elements


def constraints(graph: Graph, elements: Elements) -> list[Constraint]:
    """What must hold, each once; `a` and `b` of a Constraint must be equal when the model runs."""
    found: dict[tuple[Dim, Dim], Constraint] = {}
    for node in graph.nodes:
        pairs = node.op.demands if isinstance(node.op, KernelOp) else demands(node, elements)
        for a, b in pairs:
            found.setdefault((a, b), Constraint(a, b, node.name or node.op.name))
    for a, b, name in graph.extras.get(RECORDED, ()):
        found.setdefault((a, b), Constraint(a, b, name))
    return list(found.values())
