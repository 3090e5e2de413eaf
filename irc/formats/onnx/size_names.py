"""Names in a file of the sizes that only a run tells: the same whenever a model is written.

While a model is in memory their names count what was made up in the process ("nonzero?2"); a file has "nonzero", and
"nonzero_2" where that is another size's name.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import replace

from irc.formats.document import Attr, RawGraph, RawModel, RawNode, RawValue
from irc.formats.onnx.structure import subgraphs
from irc.ir.dim import NUMBERED, Dim
from irc.ir.names import unused
from irc.ir.types import OptionalType, SequenceType, TensorType, Type


def with_plain_sizes(model: RawModel) -> RawModel:
    """Make a model whose types have names for sizes that no process has made up."""
    made: dict[str, str] = {}
    taken: set[str] = set()
    for type, as_read in _types(model.graph):
        symbols = [s for d in type.dims() for s in d.symbols()]
        numbered = {s.name: NUMBERED.search(s.name) for s in symbols}
        taken.update(name for name, found in numbered.items() if found is None)
        invented = {} if as_read else {name: int(found[1]) for name, found in numbered.items() if found}
        for name in sorted(invented, key=invented.__getitem__):
            made.setdefault(name, re.sub(r"\W", "_", NUMBERED.sub("", name)))
    names = {name: Dim.symbol(unused(hint or "size", taken, first=2)) for name, hint in made.items()}
    return replace(model, graph=_named(model.graph, names)) if names else model


def _types(graph: RawGraph) -> Iterator[tuple[TensorType, bool]]:
    """Find the tensor types of a graph and of those in it, and whether each is written as it stood in the file."""
    for value in (*graph.inputs, *graph.outputs, *graph.values.values()):
        found = value.type
        while isinstance(found, SequenceType | OptionalType):
            found = found.element
        if isinstance(found, TensorType) and found.shape is not None:
            yield found, _as_read(value)
    for node in graph.nodes:
        for inner in subgraphs(node):
            yield from _types(inner)


def _as_read(value: RawValue) -> bool:
    known, source = value.extras.get("type_source", (None, None))
    return source is not None and known == value.type


def _named(graph: RawGraph, names: Mapping[str, Dim]) -> RawGraph:
    return replace(
        graph,
        inputs=[_value(v, names) for v in graph.inputs],
        outputs=[_value(v, names) for v in graph.outputs],
        values={key: _value(v, names) for key, v in graph.values.items()},
        nodes=[_node(n, names) for n in graph.nodes],
    )


def _node(node: RawNode, names: Mapping[str, Dim]) -> RawNode:
    if not any(True for _ in subgraphs(node)):
        return node
    return replace(node, attrs={key: _attribute(value, names) for key, value in node.attrs.items()})


def _attribute(value: Attr, names: Mapping[str, Dim]) -> Attr:
    if isinstance(value, list):
        return [_named(v, names) if isinstance(v, RawGraph) else v for v in value]
    return _named(value, names) if isinstance(value, RawGraph) else value


def _value(value: RawValue, names: Mapping[str, Dim]) -> RawValue:
    return value if _as_read(value) else replace(value, type=_type(value.type, names))


def _type(type: Type | None, names: Mapping[str, Dim]) -> Type | None:
    match type:
        case TensorType(dtype, tuple(shape)):
            return TensorType(dtype, tuple(d.subs(names) for d in shape))
        case SequenceType(element) | OptionalType(element):
            return replace(type, element=_type(element, names) or element)
        case _:
            return type
