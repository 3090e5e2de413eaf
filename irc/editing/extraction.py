"""Parts of a model: what computes some of its values from others, as a model of its own."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace

from irc.border.again import document_of, model_of
from irc.border.support import captured_keys, title
from irc.diagnostics import ConversionError, Sink
from irc.diagnostics.codes import runtime_io as codes
from irc.formats.document import RawGraph, RawNode, RawValue
from irc.ir.dim import Dim
from irc.ir.graph import Model
from irc.ir.types import TensorType
from irc.passes.state import METADATA

CLOSE = 3
"""So many names are proposed for one that there is not."""


def extract(model: Model, inputs: Sequence[str] | None, outputs: Sequence[str] | None) -> Model:
    """Make the model that computes these outputs from these inputs; the given one stays.

    A name is that of a value or of a layer, which stands for its results.  None: the model's own (inputs: those that
    the outputs need).  A value inside of the model becomes an input of the type that was inferred for it.  An unknown
    name, and an output that needs something else, are findings.  Raises ConversionError.
    """
    if inputs is None and outputs is None:
        return model
    raw, sink = document_of(model), Sink()
    part = _Part(raw.graph, sink)
    cut = None if inputs is None else part.keys_of(inputs)
    wanted = [v.key for v in raw.graph.outputs] if outputs is None else part.keys_of(outputs)
    sink.stop_on_errors(ConversionError)
    raw.graph = part.between(cut, wanted)
    sink.stop_on_errors(ConversionError)
    raw.metadata = {k: v for k, v in raw.metadata.items() if k != METADATA}
    return model_of(raw)


def needed_part(graph: RawGraph, outputs: Sequence[str] | None = None) -> RawGraph:
    """The graph without the nodes and constants that no output and no variable that is read needs; all inputs stay.

    outputs: keys of values that are the outputs instead of the graph's own.
    """
    wanted = [v.key for v in graph.outputs] if outputs is None else list(outputs)
    return part_between(graph, [v.key for v in graph.inputs], wanted)


def part_between(
    graph: RawGraph,
    inputs: Sequence[str],
    outputs: Sequence[str],
    shapes: Mapping[str, Sequence[int] | None] | None = None,
) -> RawGraph:
    """The graph that computes the outputs from the inputs, both keys of values.

    shapes: sizes that inputs are known to have.
    """
    part = _Part(graph, Sink()).between(list(inputs), list(outputs))
    known = shapes or {}
    return replace(part, inputs=[_of_shape(v, known.get(v.key)) for v in part.inputs])


class _Part:
    """The values of a graph by key, and what a part of it consists of."""

    def __init__(self, graph: RawGraph, sink: Sink) -> None:
        self.graph, self.sink = graph, sink
        self.values = {v.key: v for v in graph.inputs}
        self.maker: dict[str, RawNode] = {}
        for node in graph.nodes:
            for value in node.outputs:
                if value.key:
                    self.values[value.key], self.maker[value.key] = value, node
        for key, tensor in graph.constants.items():
            names = tuple(tensor.extras.get("names", ()))
            self.values[key] = RawValue(key, names, TensorType.of(tensor.dtype, tensor.shape), tensor.loc)

    # ------------------------------------------------------------------ names
    def keys_of(self, names: Iterable[str]) -> list[str]:
        """The keys that the names stand for, each once; an unknown name is a finding."""
        known = self._names()
        found: dict[str, None] = {}
        for name in names:
            if name in known:
                found.update(dict.fromkeys(known[name]))
            else:
                close = difflib.get_close_matches(name, known, CLOSE) or list(known)[:CLOSE]
                self.sink.report(codes.UNKNOWN_VALUE, name=name, names=", ".join(close))
        return list(found)

    def _names(self) -> dict[str, list[str]]:
        """The keys by name: of values before those of layers, of layers before keys that only irc knows."""
        found: dict[str, list[str]] = {}
        for key, value in self.values.items():
            for name in value.names:
                found.setdefault(name, [key])
        for value in self.graph.outputs:
            for name in (*value.names, value.extras.get("layer_name")):
                if name:
                    found.setdefault(str(name), [value.key])
        for value in self.graph.inputs:
            if value.extras.get("layer_name"):
                found.setdefault(str(value.extras["layer_name"]), [value.key])
        for node in self.graph.nodes:
            keys = [v.key for v in node.outputs if v.key]
            if node.name and keys:
                found.setdefault(node.name, keys)
        for key in self.values:
            found.setdefault(key, [key])
        return found

    # ------------------------------------------------------------------- graph
    def between(self, cut: list[str] | None, wanted: list[str]) -> RawGraph:
        """The graph from the keys `cut` (None: the graph's inputs) to the keys `wanted`."""
        graph = self.graph
        own = {v.key for v in graph.inputs}
        border = own if cut is None else set(cut)
        needed, nodes = self._needed(wanted, border)
        for key in sorted(needed & own - border):
            self.sink.report(codes.NEEDS_INPUT, self.values[key].loc, name=self._called(key))
        keys = [v.key for v in graph.inputs if v.key in needed] if cut is None else cut
        made = [self._without(n, border) for n in graph.nodes if id(n) in nodes]
        return replace(
            graph,
            inputs=[self._as_input(key) for key in keys],
            outputs=[self._as_output(key) for key in wanted],
            nodes=made,
            constants={k: t for k, t in graph.constants.items() if k in needed and k not in border},
            values={},
            extras={k: v for k, v in graph.extras.items() if k != "given_constants"},
        )

    def _needed(self, wanted: Sequence[str], border: set[str]) -> tuple[set[str], set[int]]:
        """The keys that are needed, and the ids of the nodes, with what assigns the variables that are read."""
        needed: set[str] = set()
        nodes: dict[int, RawNode] = {}
        waiting = list(wanted)
        while waiting:
            key = waiting.pop()
            if not key or key in needed:
                continue
            needed.add(key)
            node = self.maker.get(key)
            if key in border or node is None or id(node) in nodes:
                continue
            nodes[id(node)] = node
            waiting += _used(node)
            for other in self._assigning(node):
                if id(other) not in nodes:
                    nodes[id(other)] = other
                    waiting += _used(other)
        return needed, set(nodes)

    def _assigning(self, node: RawNode) -> Iterator[RawNode]:
        """The nodes that give the variable its next value which this node reads."""
        if node.type == "ReadValue":
            variable = node.attrs.get("variable_id")
            yield from (n for n in self.graph.nodes if n.type == "Assign" and n.attrs.get("variable_id") == variable)

    def _called(self, key: str) -> str:
        names = self.values[key].names
        return names[0] if names else str(self.values[key].extras.get("layer_name", key))

    def _as_input(self, key: str) -> RawValue:
        value = self.values[key]
        if key not in self.maker and key not in self.graph.constants:
            return value
        type = value.type
        if isinstance(type, TensorType) and type.shape is not None:
            # What is computed from other sizes is a size of its own now.
            type = type.with_shape(_free(d, f"{key}_{i}") for i, d in enumerate(type.shape))
        return RawValue(key, value.names, type, value.loc)

    def _as_output(self, key: str) -> RawValue:
        own = next((v for v in self.graph.outputs if v.key == key), None)
        value = self.values[key]
        return own or RawValue(key, value.names, value.type, value.loc)

    def _without(self, node: RawNode, border: set[str]) -> RawNode:
        """The node, whose results that are inputs now have other keys."""
        return replace(node, outputs=[self._set_aside(v, node) if v.key in border else v for v in node.outputs])

    def _set_aside(self, value: RawValue, node: RawNode) -> RawValue:
        key = f"{value.key}_of_{title(node)}"
        while key in self.values:
            key += "_"
        return replace(value, key=key, names=())


def _of_shape(value: RawValue, shape: Sequence[int] | None) -> RawValue:
    if shape is None or not isinstance(value.type, TensorType):
        return value
    return replace(value, type=value.type.with_shape(shape))


def _free(size: Dim, name: str) -> Dim:
    return size if size.is_const or size.symbol_alone() is not None else Dim.symbol(name)


def _used(node: RawNode) -> list[str]:
    return [*node.inputs, *captured_keys(node)]
