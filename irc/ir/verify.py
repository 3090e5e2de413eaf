"""Structural checks of a graph, run between passes: what every pass may rely on."""

from __future__ import annotations

from irc.diagnostics import Problem
from irc.diagnostics.codes import internal
from irc.ir.graph import Graph, Node, Value
from irc.ir.types import TensorType


def verify(graph: Graph, stage: str) -> None:
    """Raise Problem IRC9003 naming the stage and the first inconsistency."""
    for what in problems(graph):
        raise Problem(internal.NOT_VERIFIED, stage=stage, what=what)


def problems(graph: Graph) -> list[str]:
    """Every inconsistency, as a sentence."""
    found: list[str] = []
    inside = set(graph.dag)
    known: set[Value] = set(graph.inputs)
    names: dict[str, Value] = {}
    for node in graph.nodes:
        found += _node(graph, node, known)
        known.update(node.outputs)
    for value in graph.outputs:
        if value.producer is not None and value.producer not in inside:
            found.append(f"output %{value.name} is produced by a removed node")
        elif value.producer is None and value.const is None and value not in graph.inputs:
            found.append(f"output %{value.name} comes from nowhere")
    found += [f"kept node {n} is not in the graph" for n in graph.sinks if n not in inside]
    for value in graph.values():
        if names.setdefault(value.name, value) is not value:
            found.append(f"two values are called %{value.name}")
        found += _value(value, inside)
    return found


def _node(graph: Graph, node: Node, known: set[Value]) -> list[str]:
    found: list[str] = []
    for value in node.operands:
        if value not in known and value.const is None:
            found.append(f"operand %{value.name} of {node} is not defined before it")
        if value.producer is not None and not graph.dag.has_edge(value.producer, node):
            found.append(f"the edge from {value.producer} to {node} is missing")
        if value.uses.get(node) != sum(v is value for v in node.inputs):
            found.append(f"the uses of %{value.name} by {node} are counted wrong")
    for k, value in enumerate(node.outputs):
        if value.producer is not node or value.index != k:
            found.append(f"result %{value.name} of {node} does not know its producer")
        if value.const is not None:
            found.append(f"result %{value.name} of {node} is a constant as well")
    return found


def _value(value: Value, inside: set[Node]) -> list[str]:
    found = [f"%{value.name} is used by a removed node" for n in value.uses if n not in inside]
    if value.const is not None and isinstance(value.type, TensorType) and value.const.type != value.type:
        found.append(f"constant %{value.name} of {value.const.type} is declared {value.type}")
    kind = value.type if isinstance(value.type, TensorType) and value.type.is_static else None
    if value.contents is not None and kind is not None and value.contents.shape != kind.static_shape():
        found.append(f"the contents of %{value.name} do not have its shape")
    return found
