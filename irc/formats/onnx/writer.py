"""Writes a RawModel as ONNX: deterministic, whole or not at all.

Where a model was read from ONNX and not changed, the message is the one that was read.  Weights go
to `<stem>.onnx.data` beside the model when the protobuf would come near its limit of 2 GB.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import onnx

from irc.files import replacing_all
from irc.formats.document import Attr, RawFunction, RawGraph, RawModel, RawNode, RawTensor, RawValue
from irc.formats.onnx.external import Store
from irc.formats.onnx.graphs import FIELD_OF
from irc.formats.onnx.packing import packed_size
from irc.formats.onnx.reader import MODEL_SCALARS
from irc.formats.onnx.residue import restore
from irc.formats.onnx.size_names import with_plain_sizes
from irc.formats.onnx.streaming import write_message
from irc.formats.onnx.structure import items_of, subgraphs
from irc.formats.onnx.tensors import Sparse, describe_tensor, is_large, write_sparse, write_tensor
from irc.formats.onnx.type_protos import write_type
from irc.ir.types import Extras, MapType, OptionalType, SequenceType, TensorType

A = onnx.AttributeProto
INLINE_LIMIT = 1_500_000_000  # bytes of weights; protobuf's own limit is 2**31 - 1 for everything


def to_proto(model: RawModel) -> onnx.ModelProto:
    """The model as one message, every tensor inside it."""
    return _model(model, None)


def write(model: RawModel, path: str | Path, inline_limit: int = INLINE_LIMIT) -> None:
    """Write the model to `path`, through temporary files that replace the old ones at the end.

    inline_limit: bytes of weights beyond which they get a file of their own, which readers can map.
    Raises Problem (IRC4007) for an element type that ONNX cannot name, and OSError.
    """
    target = Path(path)
    if _weight_bytes(model) <= inline_limit:
        later: dict[int, RawTensor] = {}
        proto = _model(model, None, later)
        with replacing_all([target]) as (file,):
            write_message(proto, later, file)
        return
    beside = target.with_name(f"{target.stem}.onnx.data")
    with replacing_all([beside, target]) as (weights, file):
        proto = _model(model, Store(weights, beside.name))
        file.write(proto.SerializeToString(deterministic=True))


def _weight_bytes(model: RawModel) -> int:
    """Bytes of all tensors in raw form."""
    return sum(packed_size(t.dtype, math.prod(t.shape)) for t in _tensors(model))


def _tensors(model: RawModel) -> Iterator[RawTensor]:
    waiting: list[tuple[dict[str, RawTensor], list[RawNode]]] = [(model.graph.constants, model.graph.nodes)]
    waiting += [({}, f.nodes) for f in model.functions]
    while waiting:
        constants, nodes = waiting.pop()
        yield from constants.values()
        for node in nodes:
            for value in node.attrs.values():
                yield from (v for v in items_of(value) if isinstance(v, RawTensor))
            waiting += [(g.constants, g.nodes) for g in subgraphs(node)]


# ------------------------------------------------------------------------------- messages
def _model(model: RawModel, store: Store | None, later: dict[int, RawTensor] | None = None) -> onnx.ModelProto:
    """The message.  `later`, where it is given, takes the large initializers by position, which get no data here."""
    model = with_plain_sizes(model)
    proto = restore(onnx.ModelProto, model.extras.get("rest"))
    proto.ir_version = model.version
    for name in MODEL_SCALARS:
        if model.extras.get(name):
            setattr(proto, name, model.extras[name])
    if not (model.extras.get("opset_assumed") and model.opsets == {"": 1}):
        _opsets(model.opsets, model.extras, proto)
    proto.graph.SetInParent()
    _graph(model.graph, proto.graph, store, later)
    for function in model.functions:
        _function(function, proto.functions.add(), store)
    for key, value in model.metadata.items():
        proto.metadata_props.add(key=key, value=value)
    return proto


def _opsets(opsets: dict[str, int], extras: Extras, proto: onnx.ModelProto | onnx.FunctionProto) -> None:
    for domain, version in opsets.items():
        proto.opset_import.add(domain=domain or extras.get("opset_spelling", ""), version=version)


def _common(extras: Extras, proto: Any) -> None:
    """Start from the residue, then the extras that graphs, nodes, values and functions share."""
    if "rest" in extras:
        proto.CopyFrom(extras["rest"])
    if extras.get("doc_string"):
        proto.doc_string = extras["doc_string"]
    for key, value in extras.get("metadata", {}).items():
        proto.metadata_props.add(key=key, value=value)


def _graph(
    graph: RawGraph, proto: onnx.GraphProto, store: Store | None, later: dict[int, RawTensor] | None = None
) -> None:
    _common(graph.extras, proto)
    if graph.name:
        proto.name = graph.name
    inputs = list(graph.inputs)
    for position, value in graph.extras.get("given_constants", ()):
        if value.key in graph.constants:
            inputs.insert(position, value)
    for value in inputs:
        _value(value, proto.input.add())
    for value in graph.outputs:
        _value(value, proto.output.add())
    for value in graph.values.values():
        _value(value, proto.value_info.add())
    for name, tensor in graph.constants.items():
        if isinstance(tensor.load, Sparse):
            write_sparse(tensor, proto.sparse_initializer.add(), name)
        elif later is not None and is_large(tensor):
            later[len(proto.initializer)] = tensor
            describe_tensor(tensor, proto.initializer.add(), name)
        else:
            write_tensor(tensor, proto.initializer.add(), name, store)
    for node in graph.nodes:
        _node(node, proto.node.add(), store)


def _value(value: RawValue, proto: onnx.ValueInfoProto) -> None:
    _common(value.extras, proto)
    if value.key:
        proto.name = value.key
    if value.type is not None or "type_source" in value.extras:
        write_type(value.type, proto.type, value.extras, value.key)


def _node(node: RawNode, proto: onnx.NodeProto, store: Store | None) -> None:
    _common(node.extras, proto)
    proto.input.extend(node.inputs)
    proto.output.extend(value.key for value in node.outputs)
    for field, text in (
        ("name", node.name),
        ("op_type", node.type),
        ("domain", node.domain),
        ("overload", node.extras.get("overload")),
    ):
        if text:
            setattr(proto, field, text)
    _attributes(node.attrs, node.extras, proto.attribute, store)


def _function(function: RawFunction, proto: onnx.FunctionProto, store: Store | None) -> None:
    _common(function.extras, proto)
    for field in ("name", "domain", "overload"):
        if getattr(function, field):
            setattr(proto, field, getattr(function, field))
    proto.input.extend(function.inputs)
    proto.output.extend(function.outputs)
    proto.attribute.extend(function.attributes)
    _attributes(function.attribute_defaults, function.extras, proto.attribute_proto, store)
    _opsets(function.opsets, function.extras, proto)
    for value in function.values.values():
        _value(value, proto.value_info.add())
    for node in function.nodes:
        _node(node, proto.node.add(), store)


# ----------------------------------------------------------------------------- attributes
def _attributes(attrs: dict[str, Attr], extras: Extras, protos: Any, store: Store | None) -> None:
    """In the file's order where there is one, then the new ones."""
    types: dict[str, int] = extras.get("attr_types", {})
    refs: dict[str, str] = extras.get("attr_refs", {})
    for name in (*types, *(n for n in attrs if n not in types)):
        if name not in attrs and name not in refs:
            continue
        proto = protos.add(name=name)
        if name in extras.get("attr_docs", {}):
            proto.doc_string = extras["attr_docs"][name]
        if name not in attrs:
            proto.ref_attr_name = refs[name]
            proto.type = types[name]
            continue
        kind = attribute_type(attrs[name], types.get(name, A.UNDEFINED), name)
        if types.get(name) != A.UNDEFINED:
            proto.type = kind
        _attribute(attrs[name], kind, proto, extras.get("attr_sources", {}).get(name, ()), store)


def attribute_type(value: Attr, declared: int, name: str) -> int:
    """The AttributeProto type of a value: the declared one where the value fits it, else the value's own."""
    items = items_of(value)
    natural: int = A.UNDEFINED
    if items:
        natural = max((_scalar_type(item, name) for item in items), key=_SCALARS.index)
    if isinstance(value, list):
        natural = _LIST_OF.get(natural, A.UNDEFINED)
    fits = {natural, _WIDER.get(natural, natural)}
    if not items:
        fits = set(_LIST_OF.values())
    if declared and (declared in fits or any(item is None for item in items)):
        return declared
    if natural == A.UNDEFINED:
        raise ValueError(f"attribute {name!r} is an empty list, and its type is not in extras['attr_types']")
    return natural


_SCALARS: tuple[int, ...] = (A.UNDEFINED, A.INT, A.FLOAT, A.STRING, A.TENSOR, A.SPARSE_TENSOR, A.GRAPH, A.TYPE_PROTO)
_WIDER: dict[int, int] = {A.INT: A.FLOAT, A.INTS: A.FLOATS}  # a float attribute may be given as integers
_LIST_OF: dict[int, int] = {
    A.INT: A.INTS,
    A.FLOAT: A.FLOATS,
    A.STRING: A.STRINGS,
    A.TENSOR: A.TENSORS,
    A.GRAPH: A.GRAPHS,
    A.SPARSE_TENSOR: A.SPARSE_TENSORS,
    A.TYPE_PROTO: A.TYPE_PROTOS,
}


def _scalar_type(value: Any, name: str) -> int:
    match value:
        case bool() | int():
            return A.INT
        case float():
            return A.FLOAT
        case str() | bytes():
            return A.STRING
        case RawTensor():
            return A.SPARSE_TENSOR if isinstance(value.load, Sparse) else A.TENSOR
        case RawGraph():
            return A.GRAPH
        case TensorType() | SequenceType() | OptionalType() | MapType():
            return A.TYPE_PROTO
        case None:
            return A.UNDEFINED
        case _:
            raise TypeError(f"attribute {name!r} holds a {type(value).__name__}, which ONNX cannot store")


def _attribute(
    value: Attr, kind: int, proto: onnx.AttributeProto, sources: Iterable[dict[str, Any]], store: Store | None
) -> None:
    field = FIELD_OF[kind]
    items = items_of(value)
    match kind:
        case A.INT | A.FLOAT:
            setattr(proto, field, value)
        case A.STRING:
            proto.s = _encoded(items[0])
        case A.STRINGS:
            proto.strings.extend(map(_encoded, items))
        case A.INTS | A.FLOATS:
            getattr(proto, field).extend(items)
        case _:
            known = [*sources, *({} for _ in items)]
            for item, source in zip(items, known, strict=False):
                target = getattr(proto, field)
                target = target.add() if isinstance(value, list) else target
                if isinstance(item, RawGraph):
                    _graph(item, target, store)
                elif kind in (A.SPARSE_TENSOR, A.SPARSE_TENSORS):
                    write_sparse(item, target, item.name)
                elif isinstance(item, RawTensor):
                    write_tensor(item, target, item.name, store)
                else:
                    write_type(item, target, source, proto.name)


def _encoded(text: str | bytes) -> bytes:
    return text if isinstance(text, bytes) else text.encode("utf-8", "surrogateescape")
