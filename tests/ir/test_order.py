"""The order of a graph's nodes, which is remembered until they change."""

from __future__ import annotations

from irc.ir.graph import Graph
from irc.ir.types import TensorType, f32
from irc.opdef.builder import Builder


def test_order_of_nodes_that_change() -> None:
    graph = Graph("g")
    x = graph.add_input("x", TensorType.of(f32, (2,)))
    b = Builder(graph)
    first, second = b.Exp(x), b.Neg(x)
    graph.outputs = [b.Add(first, second)]

    def names() -> list[str]:
        return [node.op.name for node in graph.nodes]

    graph.nodes.clear()  # the caller's own list
    assert names() == ["Exp", "Neg", "Add"]
    assert first.producer is not None and second.producer is not None
    graph.set_op(first.producer, first.producer.op, [second])
    assert names() == ["Neg", "Exp", "Add"]
    graph.replace_uses(first, second)
    graph.prune()
    assert names() == ["Neg", "Add"]
    graph.outputs = [b.Sin(graph.outputs[0])]
    assert names() == ["Neg", "Add", "Sin"]


def test_pruning_back_from_a_node() -> None:
    graph = Graph("g")
    x = graph.add_input("x", TensorType.of(f32, (2,)))
    b = Builder(graph)
    shared, alone = b.Exp(x), b.Neg(x)
    both = b.Add(shared, alone)
    unread = b.Sin(x)
    old = b.Mul(both, both)
    graph.outputs = [b.Cos(shared), old]
    assert old.producer is not None and unread.producer is not None
    assert graph.prune_back(old.producer) == 0  # an output
    graph.outputs = graph.outputs[:1]
    assert graph.prune_back(old.producer) == 3
    assert [node.op.name for node in graph.nodes] == ["Exp", "Sin", "Cos"]  # not what is not before it
    graph.sinks = [unread.producer]
    assert graph.prune_back(unread.producer) == 0
