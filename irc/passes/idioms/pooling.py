"""Pools over whole planes."""

from __future__ import annotations

from irc.ir.graph import Graph, Node, Value
from irc.opdef.builder import Builder
from irc.ops.reduce import ReduceMean


def global_mean(graph: Graph, node: Node) -> Value | None:
    """Recognise GlobalAveragePool as a mean over all axes behind the channels, which stay with size 1: of planes.

    Behind two axes alone, a mean may as well be one of rows, as in RMSNorm.
    """
    x, op = node.inputs[0], node.op
    axes = node.inputs[1].ints() if len(node.inputs) > 1 and node.inputs[1] is not None else None
    assert isinstance(op, ReduceMean)
    if x is None or x.rank is None or axes is None or x.rank < 4 or not op.keepdims or not x.dtype.is_float:
        return None
    if sorted(a % x.rank for a in axes) != list(range(2, x.rank)):
        return None
    return Builder(graph, node.name, node.loc).GlobalAveragePool(x)
