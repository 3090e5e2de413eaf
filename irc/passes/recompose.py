"""Operations that exporters spell out in simpler ones, recognised: fewer roundings, and one operation to compute.

One function per rule, listed in `RULES` by the operation that a pattern ends in, as in `irc.passes.simplify`; results
differ from the pattern's by roundings that are left out.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from irc.ir.graph import Graph, Node, Value
from irc.ir.types import TensorType
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


def group_norm(graph: Graph, node: Node) -> Value | None:
    """InstanceNormalization of groups of channels, reshaped to [n, groups, …] and back: as GroupNormalization."""
    norm = node.inputs[0].producer if node.inputs[0] is not None else None
    if norm is None or norm.op.name != "InstanceNormalization" or not _alone(graph, norm):
        return None
    flat, scale, bias = norm.operands
    entry, y = flat.producer, node.outputs[0]
    x = entry.inputs[0] if entry is not None and entry.op.name == "Reshape" else None
    if x is None or not _alone(graph, entry) or x.type != y.type or not isinstance(y.type, TensorType):
        return None
    channels, groups = (v.shape[1].const if v.rank and v.rank > 2 else None for v in (y, flat))
    whole = groups and channels and channels % groups == 0 and flat.shape[0].equals(y.shape[0]) is True
    if not whole or scale.array is None or bias.array is None:
        return None
    b, per = Builder(graph, node.name, node.loc), channels // groups
    parameters = (b.const(np.repeat(v.array, per), v.dtype) for v in (scale, bias))
    op: Any = norm.op
    return b.GroupNormalization(x, *parameters, num_groups=groups, epsilon=op.epsilon)


def _alone(graph: Graph, node: Node) -> bool:
    """Whether a node's only result has one use."""
    (value,) = node.outputs
    return len(value.uses) == 1 and value not in graph.outputs


RULES: dict[str, tuple[Rule, ...]] = {"Mul": (swish,), "Reshape": (group_norm,)}
