"""Operations of very many operands become several of few: in C an element is one expression of all of them."""

from __future__ import annotations

from collections.abc import Sequence

from irc.ir.graph import Graph, Node, Value
from irc.opdef.builder import Builder
from irc.opdef.precision import narrowed, widened
from irc.ops.concat import Concat
from irc.ops.variadic import Max, Mean, Min, Sum
from irc.passes.replace import put_in_place

MOST = 32


def run(graph: Graph) -> int:
    """Split operations with more than `MOST` operands in place.

    Returns how many. Results are the same to the bit: sums are taken from the left.
    """
    cut = 0
    for node in graph.nodes:
        if isinstance(node.op, Concat | Max | Min | Sum | Mean) and len(node.inputs) > MOST:
            b = Builder(graph, node.name or node.op.name, node.loc)
            new = _cut(b, node, list(node.operands))
            put_in_place(graph, node.outputs[0], new)
            graph.remove(node)
            cut += 1
    return cut


def _cut(b: Builder, node: Node, xs: list[Value]) -> Value:
    match node.op:
        case Concat():
            while len(xs) > MOST:
                xs = [b.add(node.op, *xs[k : k + MOST]) for k in range(0, len(xs), MOST)]
            return b.add(node.op, *xs)
        case Max() | Min():
            return _from_the_left(b, node.op.name, xs)
        case _:  # in the type that sums are computed in, rounded once
            total = _from_the_left(b, "Sum", [widened(b, x) for x in xs])
            if isinstance(node.op, Mean):
                total = b.Div(total, b.const(len(xs), total.dtype))
            return narrowed(b, total, xs[0])


def _from_the_left(b: Builder, name: str, xs: Sequence[Value]) -> Value:
    found = xs[0]
    for k in range(1, len(xs), MOST):
        found = b.operation(name)(found, *xs[k : k + MOST])
    return found
