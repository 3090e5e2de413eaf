"""Names and order: single assignment, undefined names, topological order, recursion of functions."""

from __future__ import annotations

import heapq
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from typing import Any, cast

from irc.diagnostics import Loc, Sink
from irc.diagnostics.codes import container_onnx as codes
from irc.formats.document import Attr, RawFunction, RawGraph, RawNode


def items_of(value: Attr) -> list[Any]:
    """The items of a list attribute, or the one value."""
    return cast("list[Any]", value) if isinstance(value, list) else [value]


def subgraphs(node: RawNode) -> Iterator[RawGraph]:
    """The graphs in a node's attributes."""
    for value in node.attrs.values():
        for item in items_of(value):
            if isinstance(item, RawGraph):
                yield item


def check_graph(graph: RawGraph, sink: Sink, outer: tuple[set[str], ...] = ()) -> None:
    """Report faults of a graph and the graphs inside it, and sort its nodes where they are not sorted."""
    given = [(v.key, v.loc, "an input") for v in graph.inputs]
    given += [(name, t.loc, "an initializer") for name, t in graph.constants.items()]
    results = [(v.key, v.loc) for v in graph.outputs]
    graph.nodes = check_body(given, graph.nodes, results, sink, outer)


def check_function(function: RawFunction, sink: Sink, loc: Loc) -> None:
    given = [(name, loc, "an input") for name in function.inputs]
    function.nodes = check_body(given, function.nodes, [(name, loc) for name in function.outputs], sink, ())


def check_body(
    given: Sequence[tuple[str, Loc, str]],
    nodes: list[RawNode],
    results: Sequence[tuple[str, Loc]],
    sink: Sink,
    outer: tuple[set[str], ...],
) -> list[RawNode]:
    """Check nodes with the names they are given and the names that leave; returns the nodes, sorted."""
    defined: dict[str, str] = {}
    producer: dict[str, int] = {}
    for name, loc, what in given:
        _define(defined, name, what, loc, sink, outer)
    for position, node in enumerate(nodes):
        for value in node.outputs:
            if value.key:
                _define(defined, value.key, f"an output of {_title(node, position)}", node.loc, sink, outer)
                producer.setdefault(value.key, position)
    _report_names(nodes, sink)
    scopes = (*outer, set(defined))
    users = [_uses(node) for node in nodes]
    for node in nodes:
        for name in node.inputs:
            if name and not _visible(name, scopes):
                _undefined(name, "the node reads", node.loc, scopes, sink)
        for inner in subgraphs(node):
            check_graph(inner, sink, scopes)
    for name, loc in results:
        if not _visible(name, scopes):
            _undefined(name, "the graph returns", loc, scopes, sink)
    return _sorted(nodes, users, producer, sink)


def _define(defined: dict[str, str], name: str, what: str, loc: Loc, sink: Sink, outer: tuple[set[str], ...]) -> None:
    if name in defined:
        sink.report(codes.DUPLICATE_VALUE, loc, name=name, first=defined[name], second=what)
    elif any(name in scope for scope in outer):
        sink.report(codes.SHADOWED, loc, name=name)
    defined.setdefault(name, what)


def _visible(name: str, scopes: tuple[set[str], ...]) -> bool:
    return any(name in scope for scope in scopes)


def _undefined(name: str, user: str, loc: Loc, scopes: tuple[set[str], ...], sink: Sink) -> None:
    near = sink.nearest(name, (n for scope in scopes for n in scope))
    advice = f'did you mean "{near}"?' if near else "define it, or make it a graph input"
    sink.report(codes.UNDEFINED_VALUE, loc, user=user, name=name, advice=advice)


def _title(node: RawNode, position: int) -> str:
    return f'node {position} "{node.name}" ({node.type})' if node.name else f"node {position} ({node.type})"


def _uses(node: RawNode) -> set[str]:
    """The names a node depends on: its inputs, and what its subgraphs take from outside."""
    names = {name for name in node.inputs if name}
    for graph in subgraphs(node):
        names |= free_names(graph)
    return names


def free_names(graph: RawGraph) -> set[str]:
    """The names that a graph uses and does not define: its captures."""
    own = {v.key for v in graph.inputs} | set(graph.constants)
    own |= {v.key for node in graph.nodes for v in node.outputs}
    used = {v.key for v in graph.outputs}
    for node in graph.nodes:
        used |= _uses(node)
    return used - own


def _report_names(nodes: list[RawNode], sink: Sink) -> None:
    repeated = [name for name, n in Counter(node.name for node in nodes if node.name).items() if n > 1]
    if repeated:
        second = [node for node in nodes if node.name == repeated[0]][1]
        notes = (f"{len(repeated)} names do, this is the first",) if len(repeated) > 1 else ()
        sink.report(codes.DUPLICATE_NODE, second.loc, notes, name=repeated[0])


def _sorted(nodes: list[RawNode], users: list[set[str]], producer: dict[str, int], sink: Sink) -> list[RawNode]:
    """The nodes in topological order: as they stand where that is one, else the nearest stable one."""
    needs = [{producer[name] for name in names if name in producer} for names in users]
    early = next((i for i, need in enumerate(needs) if any(j >= i for j in need)), None)
    if early is None:
        return nodes
    waiting, followers = [len(need) for need in needs], [list[int]() for _ in nodes]
    for i, need in enumerate(needs):
        for j in need:
            followers[j].append(i)
    ready, order = [i for i, n in enumerate(waiting) if n == 0], list[int]()
    while ready:
        i = heapq.heappop(ready)
        order.append(i)
        for j in followers[i]:
            waiting[j] -= 1
            if waiting[j] == 0:
                heapq.heappush(ready, j)
    if len(order) < len(nodes):
        stuck = _cycle({i: need for i, need in enumerate(needs) if waiting[i]})
        shown = [_title(nodes[i], i) for i in stuck[:8]] + ["..."] * (len(stuck) > 8)
        names = " -> ".join([*shown, _title(nodes[stuck[0]], stuck[0])])
        sink.report(codes.CYCLE, nodes[stuck[0]].loc, nodes=names)
        return nodes
    late = min(n for n in users[early] if n in producer and producer[n] >= early)
    sink.report(codes.UNSORTED, nodes[early].loc, name=late)
    return [nodes[i] for i in order]


def _cycle(needs: dict[int, set[int]]) -> list[int]:
    """One cycle among nodes that all wait for each other, in the order of the data."""
    path: list[int] = []
    current = min(needs)
    while current not in path:
        path.append(current)
        current = min(j for j in needs[current] if j in needs)
    return path[path.index(current) :][::-1]


FunctionKey = tuple[str, str, str]


def check_recursion(functions: Sequence[RawFunction], where: Callable[[RawFunction], Loc], sink: Sink) -> None:
    """Report functions that call themselves, directly or through others."""
    by_key: dict[FunctionKey, RawFunction] = {}
    for function in functions:
        key = (function.domain, function.name, function.overload)
        if key in by_key:
            sink.report(codes.FUNCTION_DUPLICATE, where(function), name=_function_title(key))
        by_key.setdefault(key, function)
    calls = {key: _calls(f.nodes) & by_key.keys() for key, f in by_key.items()}
    done: set[FunctionKey] = set()
    for start in by_key:
        path: list[FunctionKey] = []
        stack: list[tuple[FunctionKey, Iterator[FunctionKey]]] = []
        if start not in done:
            stack.append((start, iter(sorted(calls[start]))))
            path.append(start)
        while stack:
            key, rest = stack[-1]
            following = next(rest, None)
            if following is None:
                stack.pop()
                done.add(path.pop())
            elif following in path:
                circle = [*path[path.index(following) :], following]
                sink.report(
                    codes.FUNCTION_RECURSION,
                    where(by_key[following]),
                    name=_function_title(following),
                    path=" -> ".join(map(_function_title, circle)),
                )
            elif following not in done:
                stack.append((following, iter(sorted(calls[following]))))
                path.append(following)


def _calls(nodes: Sequence[RawNode]) -> set[FunctionKey]:
    found: set[FunctionKey] = set()
    for node in nodes:
        found.add((node.domain, node.type, node.extras.get("overload", "")))
        for graph in subgraphs(node):
            found |= _calls(graph.nodes)
    return found


def _function_title(key: FunctionKey) -> str:
    domain, name, overload = key
    return f"{domain or 'ai.onnx'}::{name}" + (f":{overload}" if overload else "")
