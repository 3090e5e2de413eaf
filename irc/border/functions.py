"""ONNX model-local functions: found by (domain, name, overload), instantiated at each call."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any

import networkx as nx

from irc.border import support
from irc.diagnostics import Sink
from irc.diagnostics.codes import container_onnx as codes
from irc.formats.document import Attr, RawFunction, RawGraph, RawModel, RawNode, RawValue
from irc.ir.limits import CALLS, EXPANSION, EXPANSION_FACTOR

Key = tuple[str, str, str]
"""Domain, name, overload."""


@dataclass
class Body:
    """A function's nodes with this call's attributes and unique keys."""

    prefix: str
    nodes: list[RawNode]

    def key(self, name: str) -> str:
        return f"{self.prefix}{name}" if name else ""

    def keys(self, function: RawFunction) -> set[str]:
        """Every key that reading the body binds."""
        return {self.key(name) for name in function.inputs} | {v.key for n in self.nodes for v in n.outputs}


class Functions:
    """The functions of a model."""

    def __init__(self, raw: RawModel, sink: Sink) -> None:
        table = {(f.domain, f.name, f.overload): f for f in raw.functions}
        self.refused = _circular(table)  # the reader has reported these
        self.table = {key: f for key, f in table.items() if key not in self.refused}
        self.calls = 0
        given = sum(1 for nodes in (raw.graph.nodes, *(f.nodes for f in raw.functions)) for _ in _all_nodes(nodes))
        most = max(EXPANSION.most, EXPANSION_FACTOR * given)
        sizes = _sizes(self.table)
        depth = _depth(self.table)
        if _expanded(raw.graph.nodes, sizes) > most:
            sink.report(codes.FUNCTION_TOO_BIG, raw.graph.loc, what=EXPANSION.what, limit=most)
        elif depth > CALLS.most:
            sink.report(codes.FUNCTION_TOO_BIG, raw.graph.loc, what=CALLS.what, limit=CALLS.most)
        else:
            return
        self.refused, self.table = set(table), {}

    def find(self, node: RawNode) -> RawFunction | None:
        return self.table.get(_key(node))

    def is_refused(self, node: RawNode) -> bool:
        """Whether a node calls a function that cannot be expanded, which has been reported."""
        return _key(node) in self.refused

    def instantiate(self, call: RawNode, function: RawFunction) -> Body:
        """The body for one call: attribute references resolved, value keys made unique."""
        self.calls += 1
        body = Body(f"{call.name or call.type}#{self.calls}/", [])
        given = {**function.attribute_defaults, **call.attrs}
        body.nodes = [_rename(_resolve(n, given, function.opsets), body, call) for n in function.nodes]
        return body


def _key(node: RawNode) -> Key:
    return node.domain, node.type, str(node.extras.get("overload", ""))


def _circular(table: dict[Key, RawFunction]) -> set[Key]:
    """The functions that call themselves, directly or through others."""
    calls = _calls(table)
    return {
        k for part in nx.strongly_connected_components(calls) for k in part if len(part) > 1 or calls.has_edge(k, k)
    }


def _calls(table: dict[Key, RawFunction]) -> nx.DiGraph[Key]:
    """An edge from each function to what it calls."""
    calls: nx.DiGraph[Key] = nx.DiGraph()
    for key, function in table.items():
        calls.add_edges_from((key, _key(n)) for n in _all_nodes(function.nodes))
    return calls


def _sizes(table: dict[Key, RawFunction]) -> dict[Key, int]:
    """The number of nodes that a call of each function expands to; none calls itself."""
    sizes: dict[Key, int] = {}
    for key in reversed(list(nx.topological_sort(_calls(table)))):
        if key in table:
            sizes[key] = _expanded(table[key].nodes, sizes)
    return sizes


def _depth(table: dict[Key, RawFunction]) -> int:
    """How many functions call each other one inside the other; none calls itself."""
    calls = _calls(table)
    calls.remove_nodes_from([key for key in calls if key not in table])
    return len(nx.dag_longest_path(calls))


def _expanded(nodes: list[RawNode], sizes: dict[Key, int]) -> int:
    return sum(sizes.get(_key(node), 1) for node in _all_nodes(nodes))


def _all_nodes(nodes: list[RawNode]) -> Iterator[RawNode]:
    """The nodes, and those of their bodies."""
    for node in nodes:
        yield node
        for value in node.attrs.values():
            if isinstance(value, RawGraph):
                yield from _all_nodes(value.nodes)


def _resolve(node: RawNode, given: dict[str, Any], opsets: dict[str, int]) -> RawNode:
    """A copy whose attributes refer to the call's values (`ref_attr_name`), in the function's opset."""
    attrs = dict(node.attrs)
    for name, source in dict(node.extras.get("attr_refs", {})).items():
        attrs.pop(name, None)
        if source in given:
            attrs[name] = given[source]
    attrs = {k: _resolve_graph(v, given, opsets) if isinstance(v, RawGraph) else v for k, v in attrs.items()}
    return replace(node, attrs=attrs, version=opsets.get(node.domain, node.version))


def _resolve_graph(graph: RawGraph, given: dict[str, Any], opsets: dict[str, int]) -> RawGraph:
    return replace(graph, nodes=[_resolve(n, given, opsets) for n in graph.nodes])


def _rename(node: RawNode, body: Body, call: RawNode) -> RawNode:
    outputs = [replace(v, key=body.key(v.key), names=(body.key(v.key),) if v.key else ()) for v in node.outputs]
    attrs = renamed_attributes(node, body.key)
    name = f"{call.name or call.type}/{node.name or node.type}"
    inputs = [body.key(k) for k in node.inputs]
    return replace(node, inputs=inputs, outputs=outputs, attrs=attrs, name=name, loc=call.loc)


def renamed_attributes(node: RawNode, rename: Callable[[str], str]) -> dict[str, Attr]:
    """Make a node's attributes with other keys in its graphs, and where they name values."""
    attrs = {k: _rename_graph(v, rename) if isinstance(v, RawGraph) else v for k, v in node.attrs.items()}
    for name, keys in support.named_keys(node).items():
        renamed = [rename(key) for key in keys]
        attrs[name] = renamed if isinstance(attrs[name], list) else renamed[0]
    return attrs


def _rename_graph(graph: RawGraph, rename: Callable[[str], str]) -> RawGraph:
    def value(v: RawValue) -> RawValue:
        return replace(v, key=rename(v.key))

    twin = copy.copy(graph)
    twin.inputs, twin.outputs = [value(v) for v in graph.inputs], [value(v) for v in graph.outputs]
    twin.constants = {rename(k): t for k, t in graph.constants.items()}
    twin.nodes = [
        replace(
            n,
            inputs=[rename(k) for k in n.inputs],
            outputs=[value(v) for v in n.outputs],
            attrs=renamed_attributes(n, rename),
        )
        for n in graph.nodes
    ]
    return twin
