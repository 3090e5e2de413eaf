"""Operations that exporters spell out in simpler ones, recognised: fewer roundings, and one operation to compute.

One function per rule, listed in `RULES` by the operation that a pattern ends in, as in `irc.passes.simplify`; results
differ from the pattern's by roundings that are left out.
"""

from __future__ import annotations

from irc.ir.graph import Graph, Node, Value
from irc.ops.builder import Builder
from irc.passes.replace import put_in_place
from irc.passes.simplify import Rule


def run(graph: Graph) -> int:
    """Apply every rule once; how many patterns were found."""
    total = 0
    for node in graph.nodes:
        for rule in RULES.get(node.op.name, ()):
            found = rule(graph, node)
            if found is not None and found.type == node.outputs[0].type:
                put_in_place(graph, node.outputs[0], found)
                total += 1
                break
    graph.prune()
    return total


def swish(graph: Graph, node: Node) -> Value | None:
    """x · sigmoid(x)."""
    a, b = node.inputs
    for x, gate in ((a, b), (b, a)):
        of = gate.producer if gate is not None else None
        if x is not None and of is not None and of.op.name == "Sigmoid" and of.inputs[0] is x and _alone(graph, of):
            return Builder(graph, node.name, node.loc).Swish(x)
    return None


def _alone(graph: Graph, node: Node) -> bool:
    """Whether a node's only result has one use."""
    (value,) = node.outputs
    return len(value.uses) == 1 and value not in graph.outputs


RULES: dict[str, tuple[Rule, ...]] = {"Mul": (swish,)}
