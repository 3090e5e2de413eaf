"""Decomposes attention in front of kernel selection, which finds it around its Softmax."""

from __future__ import annotations

from irc.diagnostics import Sink
from irc.ir.graph import Graph
from irc.ops.attention import Attention, ScaledDotProductAttention
from irc.ops.microsoft_attention import GroupQueryAttention, MultiHeadAttention, ProjectedAttention
from irc.passes import fold, materialize
from irc.passes.inline import decompose_where

KINDS = Attention | ScaledDotProductAttention | MultiHeadAttention | GroupQueryAttention | ProjectedAttention


def run(graph: Graph, sink: Sink) -> None:
    """Decompose attention in place, and compute what is constant of it: scales, and masks that are none."""
    if any(isinstance(node.op, KINDS) for node in graph.nodes):
        decompose_where(graph, lambda node: isinstance(node.op, KINDS), sink)
        materialize.run(graph)
        fold.run(graph)
