"""Replaces operations by what they are made of (`Op.decompose`), keeping names and places of the source."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np

from irc.diagnostics import Sink
from irc.ir.dim import Dim
from irc.ir.graph import Graph, Node, Value, symbols_of
from irc.opdef.builder import Builder, Rewrite, known_by, trace
from irc.passes.infer import rename


def decompose_where(graph: Graph, wanted: Callable[[Node], bool], sink: Sink) -> None:
    """Decompose every wanted node, and again what results from it; Problems become findings."""
    waiting = [n for n in graph.nodes if wanted(n)]
    while waiting:
        node = waiting.pop()
        with sink.catching(node.loc):
            waiting += [n for n in inline(graph, node) if wanted(n)]


def inline(graph: Graph, node: Node, rewrite: Rewrite | None = None, builder: type[Builder] = Builder) -> list[Node]:
    """Put a node's decomposition (or `rewrite`) in its place. Returns the new nodes; raises Problem."""
    traced, results, formals = trace(node.op, node.inputs, rewrite, builder)
    given = [v for v in node.inputs if v is not None and v.const is None]
    _keep_names(traced, node, results, given)
    twins: dict[Value, Value] = dict(zip(formals, given, strict=True))

    def of(value: Value) -> Value:
        if value not in twins:
            hint = f"{node.name or node.op.name}/{value.name}"
            made = graph.add_constant(value.const, hint) if value.const else graph.new_value(hint, value.type)
            made.contents, made.assumed = value.contents, value.assumed
            twins[value] = made
        return twins[value]

    added: list[Node] = []
    for inner in traced.nodes:
        inputs = [None if v is None else of(v) for v in inner.inputs]
        outputs = [of(v) for v in inner.outputs]
        added.append(graph.add_node(inner.op, inputs, outputs, node.name, node.loc, node.layers))
    for old, result in zip(node.outputs, results, strict=False):
        new = of(result)
        if new.producer in added and (old in graph.outputs or rewrite is not None):  # as a file's tensors are called
            new.name, new.names, new.extras = old.name, old.names, old.extras
        graph.replace_uses(old, new)
    graph.remove(node)
    return added


def _keep_names(traced: Graph, node: Node, results: Sequence[Value], given: Sequence[Value]) -> None:
    """Give sizes that only a run tells the names that they have in the types of a node's results."""
    known = known_by([v.type for v in node.outputs], [v.type for v in results])
    known = {name: size for name, size in known.items() if name not in symbols_of(given)}
    if not known:
        return
    for symbol in symbols_of(traced.values()).values():  # bounds that are said in terms of these
        (own,) = symbol.symbols()
        if own.name not in known and own.most is not None and any(s.name in known for s in own.most.symbols()):
            known[own.name] = Dim({(replace(own, most=own.most.subs(known)),): 1})
    rename(traced, known)
    for value in traced.values():
        if value.contents is not None:
            changed = np.empty(value.contents.shape, object)
            changed.reshape(-1)[:] = [size.subs(known) for size in value.contents.reshape(-1)]
            value.contents = changed
