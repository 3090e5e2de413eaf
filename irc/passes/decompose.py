"""Replaces composite operations by the subgraphs that `decompose` describes, until only loops are left to write."""

from __future__ import annotations

from irc.diagnostics import Problem, Sink
from irc.diagnostics.codes import lowering as codes
from irc.ir.graph import Graph, Node, Value
from irc.ops.builder import Builder
from irc.ops.opaque import Opaque


def run(graph: Graph, sink: Sink) -> None:
    """Decompose in place; every operation that has no lowering is reported."""
    pending = graph.nodes
    while pending:
        node = pending.pop(0)
        if node.op.compute is not None or node.op.loops is not None:
            continue
        if node.op.decompose is not None:
            with sink.catching(node.loc):
                pending = expand(graph, node) + pending
        elif isinstance(node.op, Opaque):
            sink.report(codes.OPAQUE, node.loc, op=node.op.name)
        elif node.op.effect:
            sink.report(codes.STATE, node.loc, op=node.op.name)
        else:
            sink.report(codes.NO_LOWERING, node.loc, op=node.op.name)
    graph.prune()


def expand(graph: Graph, node: Node) -> list[Node]:
    """Put the decomposition in a node's place; the new nodes.

    They carry the node's name, so that comments and profiles of the generated code name the source layer.
    """
    before = set(graph.dag)
    b = Builder(graph, node.name or node.op.name, node.loc)
    assert node.op.decompose is not None
    found = node.op.decompose(b, *node.inputs)
    results: tuple[Value | None, ...] = tuple(found) if isinstance(found, tuple | list) else (found,)
    for old, new in zip(node.outputs, results, strict=False):
        if new is not None:
            take_place(graph, old, new)
    made = [n for n in graph.nodes if n not in before]
    for n in made:
        n.name = node.name or node.op.name
    if not any(v.uses or v in graph.outputs for v in node.outputs):
        graph.remove(node)
    return made


def take_place(graph: Graph, old: Value, new: Value) -> None:
    """`new` for `old` everywhere; an output keeps the name users know."""
    if new.type is None:
        new.type = old.type
    elif new.type != old.type and old.type is not None:
        raise Problem(codes.WRONG_ELEMENT_TYPE, op=old.producer.op.name if old.producer else old.name, found=new.type, declared=old.type)
    if old in graph.outputs:
        new.names = (*new.names, old.name, *old.names)
    graph.replace_uses(old, new)
