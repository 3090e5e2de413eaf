"""GraphProto, NodeProto, AttributeProto and FunctionProto to RawGraph, RawNode and RawFunction.

What the extras hold (all keys are absent where the file says nothing):
graph: doc_string, metadata, given_constants ([(position, RawValue)]: initializers that are inputs
too), rest · node: doc_string, metadata, overload, attr_types ({name: AttributeProto.AttributeType}
in the file's order), attr_refs ({name: attribute of the enclosing function}), attr_docs,
attr_sources (types as they stood), rest · value: see `type_protos`, plus doc_string, metadata, rest.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any

import onnx

from irc.diagnostics import Loc, Sink
from irc.diagnostics.codes import container_onnx as codes
from irc.formats.document import Attr, RawFunction, RawGraph, RawNode, RawTensor, RawValue
from irc.formats.onnx.apart import Places
from irc.formats.onnx.printing import Printed
from irc.formats.onnx.residue import residue
from irc.formats.onnx.tensors import TensorReader
from irc.formats.onnx.text import pairs, shown, text
from irc.formats.onnx.type_protos import TypeReader
from irc.ir.types import Extras, TensorType, dtype_from_onnx, dynamic

A = onnx.AttributeProto
MAX_DEPTH = 64
_GRAPH = frozenset(
    (
        "node",
        "name",
        "initializer",
        "sparse_initializer",
        "doc_string",
        "input",
        "output",
        "value_info",
        "metadata_props",
    )
)
_NODE = frozenset(
    ("input", "output", "name", "op_type", "domain", "overload", "attribute", "doc_string", "metadata_props")
)
_VALUE = frozenset(("name", "type", "doc_string", "metadata_props"))
_FUNCTION = frozenset(
    (
        "name",
        "domain",
        "overload",
        "input",
        "output",
        "attribute",
        "attribute_proto",
        "node",
        "opset_import",
        "doc_string",
        "value_info",
        "metadata_props",
    )
)
FIELD_OF: dict[int, str] = {
    A.FLOAT: "f",
    A.INT: "i",
    A.STRING: "s",
    A.TENSOR: "t",
    A.GRAPH: "g",
    A.SPARSE_TENSOR: "sparse_tensor",
    A.TYPE_PROTO: "tp",
    A.FLOATS: "floats",
    A.INTS: "ints",
    A.STRINGS: "strings",
    A.TENSORS: "tensors",
    A.GRAPHS: "graphs",
    A.SPARSE_TENSORS: "sparse_tensors",
    A.TYPE_PROTOS: "type_protos",
}
_VALUE_FIELDS = frozenset(FIELD_OF.values())


def canonical_domain(domain: str) -> str:
    """ "ai.onnx" is a spelling of ""."""
    return "" if domain == "ai.onnx" else domain


class GraphReader:
    """Decodes one scope of opset imports: the main graph, or one function."""

    def __init__(self, file: str, opsets: dict[str, int], sink: Sink, tensors: TensorReader, types: TypeReader) -> None:
        self.file, self.opsets, self.sink, self.tensors, self.types = file, opsets, sink, tensors, types
        self.in_function = False
        self.order = 0  # of nodes in the file, those of bodies behind their node

    def text(self, value: str | bytes, what: str, loc: Loc) -> str:
        return text(value, what, loc, self.sink)

    def common(self, proto: Any, mapped: frozenset[str], loc: Loc) -> dict[str, Any]:
        """The extras that graphs, nodes, values and functions share."""
        extras: Extras = {}
        if proto.doc_string:
            extras["doc_string"] = self.text(proto.doc_string, "a doc_string", loc)
        if proto.metadata_props:
            extras["metadata"] = pairs(proto.metadata_props, loc, self.sink)
        rest = residue(proto, mapped)
        if rest is not None:
            extras["rest"] = rest
        return extras

    # ------------------------------------------------------------------------- graphs
    def graph(self, proto: onnx.GraphProto, path: str, depth: int = 0, places: Places | None = None) -> RawGraph:
        """`path` is how locations name the graph: `graph main`, `graph main / node 3 "if" / then_branch`."""
        loc = Loc(self.file, path)
        graph = RawGraph(self.text(proto.name, "the graph's name", loc), loc=loc)
        if depth > MAX_DEPTH:
            self.sink.report(codes.TOO_DEEP, loc, what="the graph", limit=MAX_DEPTH)
            return graph
        graph.extras = self.common(proto, _GRAPH, loc)
        self._constants(proto, graph, path, places or {})
        given: list[tuple[int, RawValue]] = []
        for position, info in enumerate(proto.input):
            value = self.value(info, f"{path}, input", path)
            if value.key in graph.constants:
                given.append((position, value))
            else:
                graph.inputs.append(value)
        if given:
            graph.extras["given_constants"] = given
        graph.outputs = [self.value(info, f"{path}, output", path) for info in proto.output]
        graph.values = self.values(proto.value_info, path)
        declared = {v.key: v for v in (*graph.outputs, *graph.values.values())}
        graph.nodes = self.nodes(proto.node, path, declared, depth)
        return graph

    def _constants(self, proto: onnx.GraphProto, graph: RawGraph, path: str, places: Places) -> None:
        found: list[tuple[str, RawTensor, Loc]] = []
        for i, tensor in enumerate(proto.initializer):
            loc = Loc(self.file, f'{path}, initializer "{shown(tensor.name)}"')
            name = self.text(tensor.name, "an initializer's name", loc)
            found.append(
                (name, self.tensors.tensor(tensor, loc, name, places.get(i)) or _unread(tensor, name, loc), loc)
            )
        for sparse in proto.sparse_initializer:
            loc = Loc(self.file, f'{path}, sparse initializer "{shown(sparse.values.name)}"')
            name = self.text(sparse.values.name, "an initializer's name", loc)
            found.append((name, self.tensors.sparse(sparse, loc) or _unread(sparse.values, name, loc), loc))
        for name, tensor, loc in found:
            if not name:
                self.sink.report(codes.UNNAMED, loc, what="an initializer")
            elif name in graph.constants:
                self.sink.report(codes.DUPLICATE_VALUE, loc, name=name, first="an initializer", second="an initializer")
            else:
                graph.constants[name] = tensor

    def value(self, proto: onnx.ValueInfoProto, title: str, scope: str) -> RawValue:
        loc = Loc(self.file, f'{title} "{shown(proto.name)}"')
        key = self.text(proto.name, "a value's name", loc)
        if not key:
            self.sink.report(codes.UNNAMED, loc, what="a value")
        extras = self.common(proto, _VALUE, loc)
        found = None
        if proto.HasField("type"):
            found, more = self.types.value_type(proto.type, key, loc, scope)
            extras |= more
        return RawValue(key, (key,), found, loc, extras)

    def values(self, infos: Iterable[onnx.ValueInfoProto], path: str) -> dict[str, RawValue]:
        found: dict[str, RawValue] = {}
        for info in infos:
            value = self.value(info, f"{path}, value_info", path)
            if value.key in found:
                self.sink.report(codes.DUPLICATE_VALUE_INFO, value.loc, name=value.key)
            found.setdefault(value.key, value)
        return found

    # -------------------------------------------------------------------------- nodes
    def nodes(
        self, protos: Iterable[onnx.NodeProto], path: str, declared: dict[str, RawValue], depth: int
    ) -> list[RawNode]:
        return [self.node(proto, i, path, declared, depth) for i, proto in enumerate(protos)]

    def node(
        self, proto: onnx.NodeProto, position: int, path: str, declared: dict[str, RawValue], depth: int
    ) -> RawNode:
        title = f'node {position} "{shown(proto.name)}"' if proto.name else f"node {position}"
        node = RawNode("", 0)
        where = f"{path}, {title}" + (f" ({shown(proto.op_type)})" if proto.op_type else "")
        self.order += 1
        loc = node.loc = Loc(self.file, where, Printed(node), order=self.order)
        if not proto.op_type:
            self.sink.report(codes.OP_TYPE_MISSING, loc)
        node.type = self.text(proto.op_type, "an op_type", loc)
        node.domain = canonical_domain(self.text(proto.domain, "a node's domain", loc))
        node.version = self.version(node.domain, loc)
        node.name = self.text(proto.name, "a node's name", loc)
        node.inputs = [self.text(name, "an input's name", loc) for name in proto.input]
        for name in proto.output:
            key = self.text(name, "an output's name", loc)
            known = declared.get(key)
            node.outputs.append(RawValue(key, (key,) if key else (), known.type if known else None, loc))
        node.extras = self.common(proto, _NODE, loc)
        if proto.domain == "ai.onnx":
            node.extras.setdefault("rest", onnx.NodeProto()).domain = "ai.onnx"
        if proto.overload:
            node.extras["overload"] = self.text(proto.overload, "an overload", loc)
        node.attrs = self.attributes(proto.attribute, node.extras, loc, f"{path} / {title}", depth)
        return node

    def version(self, domain: str, loc: Loc) -> int:
        if domain not in self.opsets:
            scope = Loc(self.file, loc.where.split(",")[0])
            self.sink.report(codes.OPSET_MISSING, scope, domain=domain or "ai.onnx")
            self.opsets = self.opsets | {domain: 1}
        return self.opsets[domain]

    # --------------------------------------------------------------------- attributes
    def attributes(
        self, protos: Iterable[onnx.AttributeProto], extras: Extras, loc: Loc, inner: str, depth: int
    ) -> dict[str, Attr]:
        """Values by name; references to a function's attributes go to `extras` only."""
        attrs: dict[str, Attr] = {}
        for proto in protos:
            name = self.text(proto.name, "an attribute's name", loc)
            types: dict[str, int] = extras.setdefault("attr_types", {})
            if name in types:
                self.sink.report(codes.ATTRIBUTE_DUPLICATE, loc, name=name)
                continue
            types[name] = proto.type
            if proto.doc_string:
                extras.setdefault("attr_docs", {})[name] = self.text(proto.doc_string, "a doc_string", loc)
            if proto.ref_attr_name:
                extras.setdefault("attr_refs", {})[name] = self.text(proto.ref_attr_name, "ref_attr_name", loc)
                self._check_reference(proto, name, loc)
                continue
            kind = self._kind(proto, name, loc)
            if kind is None:
                continue
            if kind in (A.TYPE_PROTO, A.TYPE_PROTOS):
                attrs[name] = self._types(proto, kind, name, extras, loc)
            else:
                attrs[name] = self._value(proto, kind, name, loc, inner, depth)
        return attrs

    def _check_reference(self, proto: onnx.AttributeProto, name: str, loc: Loc) -> None:
        reason = "" if self.in_function else "it refers to an attribute of a function, outside of functions"
        if any(field.name in _VALUE_FIELDS for field, _ in proto.ListFields()):
            reason = "it has a value and refers to an attribute of the function"
        if reason:
            title = A.AttributeType.Name(proto.type)
            self.sink.report(codes.ATTRIBUTE_VALUE, loc, name=name, type=title, reason=reason)

    def _kind(self, proto: onnx.AttributeProto, name: str, loc: Loc) -> int | None:
        """The AttributeProto type: as declared, or (ir_version 1) that of the field that is set."""
        present = [f.name for f, _ in proto.ListFields() if f.name in _VALUE_FIELDS]
        kind: int = proto.type
        reason = ""
        if kind == A.UNDEFINED and len(present) == 1:
            return next(k for k, field in FIELD_OF.items() if field == present[0])
        if kind not in FIELD_OF:
            reason = f"type {kind} is not one that irc knows" if kind else "it has no type and no single value"
        elif any(field != FIELD_OF[kind] for field in present):
            only = "only " if FIELD_OF[kind] in present else ""
            reason = f"its value is in {' and '.join(present)}, not {only}in {FIELD_OF[kind]}"
        elif not present and kind in (A.TENSOR, A.GRAPH, A.SPARSE_TENSOR, A.TYPE_PROTO):
            reason = f"{FIELD_OF[kind]} is not set"
        if reason:
            title = A.AttributeType.Name(kind) if kind in FIELD_OF else str(kind)
            return self.sink.report(codes.ATTRIBUTE_VALUE, loc, name=name, type=title, reason=reason)
        return kind

    def _value(self, proto: onnx.AttributeProto, kind: int, name: str, loc: Loc, inner: str, depth: int) -> Attr:
        value: Any = getattr(proto, FIELD_OF[kind])
        place = replace(loc, where=f'{loc.where}, attribute "{name}"', part=name)
        match kind:
            case A.FLOAT | A.INT:
                return value
            case A.STRING:
                return value.decode("utf-8", "surrogateescape")
            case A.STRINGS:
                return [s.decode("utf-8", "surrogateescape") for s in value]
            case A.FLOATS | A.INTS:
                return list(value)
            case A.TENSOR:
                return self.tensors.tensor(value, place)
            case A.TENSORS:
                return [self.tensors.tensor(t, place) for t in value]
            case A.SPARSE_TENSOR:
                return self.tensors.sparse(value, place)
            case A.SPARSE_TENSORS:
                return [self.tensors.sparse(t, place) for t in value]
            case A.GRAPH:
                return self.graph(value, f"{inner} / {name}", depth + 1)
            case _:
                return [self.graph(g, f"{inner} / {name}[{i}]", depth + 1) for i, g in enumerate(value)]

    def _types(self, proto: onnx.AttributeProto, kind: int, name: str, extras: Extras, loc: Loc) -> Attr:
        """Types, and beside them (`attr_sources`) how they stood."""
        sources: Sequence[onnx.TypeProto] = [proto.tp] if kind == A.TYPE_PROTO else list(proto.type_protos)
        decoded = [self.types.value_type(t, f"{name}_{i}", loc, loc.where) for i, t in enumerate(sources)]
        extras.setdefault("attr_sources", {})[name] = [more for _, more in decoded]
        found = [value for value, _ in decoded]
        return found[0] if kind == A.TYPE_PROTO else found

    # ---------------------------------------------------------------------- functions
    def function(self, proto: onnx.FunctionProto, path: str) -> RawFunction:
        loc, self.in_function = Loc(self.file, path), True
        extras = self.common(proto, _FUNCTION, loc)
        defaults = self.attributes(proto.attribute_proto, extras, loc, path, 0)
        values = self.values(proto.value_info, path)
        domain = canonical_domain(self.text(proto.domain, "a function's domain", loc))
        if proto.domain == "ai.onnx":
            extras.setdefault("rest", onnx.FunctionProto()).domain = "ai.onnx"
        name, overload = self.text(proto.name, "a name", loc), self.text(proto.overload, "an overload", loc)
        operands, results, attributes = (
            [self.text(item, "a function's signature", loc) for item in names]
            for names in (proto.input, proto.output, proto.attribute)
        )
        function = RawFunction(
            name, domain, overload, operands, results, attributes, defaults, [], self.opsets, values, extras
        )
        function.nodes = self.nodes(proto.node, path, values, 0)
        return function


def _unread(proto: onnx.TensorProto, name: str, loc: Loc) -> RawTensor:
    """An initializer whose data could not be read.

    Where a file is missing or short, the declared shape holds and the check of its users goes on; data in the
    model that do not fit the shape leave open which of both is wrong.
    """
    external = proto.data_location == onnx.TensorProto.EXTERNAL and min(proto.dims, default=0) >= 0
    dtype = dtype_from_onnx(proto.data_type) or dynamic
    shape = tuple(proto.dims) if external else None
    return RawTensor(name, dtype, shape or (), _no_data, loc, {"unread": TensorType.of(dtype, shape)})


def _no_data() -> Any:
    raise ValueError("this tensor could not be read; the error was reported when the model was")
