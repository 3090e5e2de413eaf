"""What is wrong with a graph that was built or changed by hand: said before anything is made of it."""

from __future__ import annotations

from typing import Any, cast

import networkx as nx

from irc.diagnostics import NOWHERE, Problem, Sink
from irc.diagnostics.codes import operation as codes, shape as shape_codes
from irc.ir.graph import Graph, Model, Node, Value
from irc.ir.types import TensorType, Type, dynamic
from irc.ir.verify import problems
from irc.opdef.builder import infer_node
from irc.opdef.opaque import Opaque


def check(model: Model, sink: Sink) -> None:
    """Report every place where the graph holds no model: a cycle, a broken edge, operands or types that do not fit."""
    before = len(sink.errors)
    for graph in _graphs(model.graph, sink):
        for what in problems(graph):
            sink.report(codes.BROKEN_GRAPH, NOWHERE, graph=graph.name, what=what)
    if len(sink.errors) == before:
        twin = model.graph.copy()
        for node in twin.nodes:
            _check_types(node, sink)


def _graphs(graph: Graph, sink: Sink) -> list[Graph]:
    """The graph and its regions, as far as they can be walked: not beyond a cycle, which is reported."""
    try:
        edges = cast("list[tuple[Node, Node]]", cast("Any", nx).find_cycle(graph.dag))
    except nx.NetworkXNoCycle:
        inner = [region for node in graph.nodes for region in node.op.regions]
        return [graph, *(found for region in inner for found in _graphs(region, sink))]
    cycle = [node for node, _ in edges]
    sink.report(codes.CYCLE, cycle[0].loc, nodes=", ".join(_title(n) for n in cycle))
    return []


def _title(node: Node) -> str:
    return f'{node.op.name} "{node.name}"' if node.name else node.op.name


def _check_types(node: Node, sink: Sink) -> None:
    """Infer the node again from the types of its operands, and compare."""
    if isinstance(node.op, Opaque):
        return
    declared = [v.type for v in node.outputs]
    before = len(sink.errors)
    with sink.catching(node.loc, _operand_notes(node)):
        try:
            infer_node(node)
        except Problem as p:
            raise Problem(p.code, p.notes, **{**p.facts, "op": _title(node)}) from p
    if len(sink.errors) > before:
        return
    for value, said in zip(node.outputs, declared, strict=True):
        if _contradict(said, value.type):
            facts = {"value": value.name, "op": _title(node), "declared": said, "inferred": value.type}
            sink.report(shape_codes.STALE_TYPE, node.loc, _operand_notes(node), **facts)
        value.type = said if said is not None else value.type


def _contradict(said: Type | None, known: Type | None) -> bool:
    """Whether no value can be of both types."""
    if not isinstance(said, TensorType) or not isinstance(known, TensorType):
        return False
    if dynamic not in (said.dtype, known.dtype) and said.dtype != known.dtype:
        return True
    if said.shape is None or known.shape is None:
        return False
    if len(said.shape) != len(known.shape):
        return True
    return any(a.equals(b) is False for a, b in zip(said.shape, known.shape, strict=True))


def _operand_notes(node: Node) -> tuple[str, ...]:
    return tuple(f"input {i}: {_described(v)}" for i, v in enumerate(node.inputs) if v is not None)


def _described(value: Value) -> str:
    maker = f"  from {_title(value.producer)}" if value.producer is not None else ""
    return f"%{value.name}: {value.type}{maker}"
