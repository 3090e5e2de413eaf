"""Inference of the types and symbolic contents of every value, from the types of the inputs."""

from __future__ import annotations

from collections.abc import Mapping

from irc.diagnostics import Sink
from irc.ir.dim import Dim, DimLike
from irc.ir.graph import Graph, Node
from irc.ir.types import TensorType, Type
from irc.opdef.builder import infer_node, keep


def run(graph: Graph, sink: Sink) -> None:
    """Infer every node again, in dependency order, and report what does not fit at its node.

    Where inference knows nothing (a variable without a declared shape), what the file says stays.
    """
    for node in graph.nodes:
        infer_at(node, sink)


def infer_at(node: Node, sink: Sink) -> dict[str, Dim]:
    """Infer one node again.  Returns what stands for the sizes that inference made up (`infer_node`)."""
    before = [(v, v.type) for v in node.outputs]
    renamed: dict[str, Dim] = {}
    with sink.catching(node.loc):
        renamed = infer_node(node)
    for value, type in before:
        keep(value, type)
    return renamed


def told(before: Type | None, after: Type | None) -> dict[str, DimLike]:
    """Find the symbols in a type that are numbers in the type that came in its place."""
    if not isinstance(before, TensorType) or not isinstance(after, TensorType) or before.rank != after.rank:
        return {}
    pairs = zip(before.shape or (), after.shape or (), strict=True)
    return {s.name: y for x, y in pairs if y.is_const and (s := x.symbol_alone()) is not None}


def rename(graph: Graph, sizes: Mapping[str, DimLike]) -> None:
    """Put other sizes in the place of symbols, in regions too."""
    for each in graph.nested():
        for value in each.values():
            if isinstance(value.type, TensorType) and value.type.shape is not None:
                value.type = value.type.with_shape([d.subs(sizes) for d in value.type.shape])
        for node in each.nodes:
            op = node.op.with_sizes(sizes)
            if op is not node.op:
                each.set_op(node, op)


def substitute(graph: Graph, sizes: Mapping[str, DimLike]) -> None:
    """Put numbers in the place of symbols, and infer the types that depend on them again."""
    rename(graph, sizes)
    for each in graph.nested():
        for node in each.nodes:
            before = [v.type for v in node.outputs]
            infer_node(node)
            for value, known in zip(node.outputs, before, strict=True):
                keep(value, known)
