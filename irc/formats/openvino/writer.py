"""`RawModel` to OpenVINO IR (.xml and .bin), laid out as OpenVINO's serializer lays it out.

What comes from a file keeps its order (`extras["order"]`); what does not is written Parameters first,
each constant before its first user, Results last.  Ids are numbered anew from 0 in that order.

`extras` that are written where present: "layer_name" (inputs, outputs), "names" (constants), "version",
"rt_info", "port_rt_info", "input_rt_info", "layout", "layer_attrs", "data_attrs", "data_children", port maps
and back edges (see `reader`; they refer to `extras["id"]` of the body's inputs and outputs).
"""

from __future__ import annotations

import os
from itertools import pairwise
from pathlib import Path
from typing import Any

from irc.diagnostics import Problem
from irc.diagnostics.codes.conversion import NO_ELEMENT_TYPE
from irc.files import replacing_all
from irc.formats.document import RawGraph, RawModel, RawNode, RawTensor, RawValue
from irc.formats.openvino.blobs import BlobWriter
from irc.formats.openvino.fields import format_shape, join_names, port_dim
from irc.formats.openvino.portmap import MAPS
from irc.formats.openvino.xmltext import XmlText
from irc.ir.types import Extras, TensorType, Type, dynamic

LATER_TYPES = frozenset(("string", "nf4", "u2", "u3", "u6", "f8e4m3", "f8e5m2", "f8e8m0", "f4e2m1"))
"""Element types that OpenVINO has had only since 2022.1 or later."""

Item = tuple[str, str, RawTensor] | tuple[str, str, RawValue] | tuple[str, str, RawNode]
"""(kind, key, content) of a layer: "Parameter", "Const", "Result" or "node"."""


def write(model: RawModel, path: str | Path, old: bool = False) -> None:
    """Write `path` (.xml) and the .bin beside it.  Both appear under their names only when complete.

    old: spell sizes and element types as releases before 2022.1 read them.  Raises OSError where the files cannot be
    written, Problem (IRC4007) for an element type that OpenVINO cannot name.
    """
    xml = Path(os.fspath(path))
    with replacing_all([xml.with_suffix(".bin"), xml]) as (weights, text):
        text.write(_Writer(model, BlobWriter(weights), old).text())


class _Writer:
    def __init__(self, model: RawModel, blobs: BlobWriter, old: bool) -> None:
        self.model, self.blobs, self.out, self.old = model, blobs, XmlText(), old
        self.runtime_info = model.version >= 11

    def text(self) -> bytes:
        model, out = self.model, self.out
        extras = model.extras
        attributes = extras.get("net_attrs", {}).items()
        out.open("net", ("name", model.graph.name), ("version", model.version), *attributes)
        _GraphWriter(self, model.graph).write()
        if extras.get("rt_info") or not extras.get("no_rt_info"):
            out.section("rt_info", extras.get("rt_info", []))
        for plain in extras.get("sections", []):
            out.tree(plain)
        out.close()
        return out.encode()


class _GraphWriter:
    """Layers and edges of a `<net>` or a body."""

    def __init__(self, writer: _Writer, graph: RawGraph) -> None:
        self.writer, self.out, self.graph = writer, writer.out, graph
        self.items = _in_order(graph)
        self.ids: dict[int, int] = {id(content): i for i, (_, _, content) in enumerate(self.items)}
        self.names = _unique_names(self.items)
        self.places: dict[str, tuple[int, int]] = {}
        self.types: dict[str, Type | None] = {}
        for number, (kind, key, content) in enumerate(self.items):
            if isinstance(content, RawNode):
                for port, value in zip(_output_ids(content), content.outputs, strict=True):
                    self.places[value.key] = number, port
                    self.types[value.key] = value.type
            elif kind != "Result":
                self.places[key] = number, 0
                constant = isinstance(content, RawTensor)
                self.types[key] = TensorType.of(content.dtype, content.shape) if constant else content.type
        self.edges: list[tuple[int, int, int, int]] = []

    def write(self) -> None:
        self.out.open("layers")
        for number, (kind, key, content) in enumerate(self.items):
            if isinstance(content, RawNode):
                self._node(number, content)
            elif isinstance(content, RawTensor):
                self._constant(number, content)
            elif kind == "Parameter":
                self._parameter(number, content)
            else:
                self._result(number, key, content)
        self.out.close()
        if not self.edges:
            self.out.empty("edges")
            return
        self.out.open("edges")
        for a, b, c, d in sorted(self.edges):
            self.out.empty("edge", ("from-layer", a), ("from-port", b), ("to-layer", c), ("to-port", d))
        self.out.close()

    # ---------------------------------------------------------------- layers
    def _open(self, number: int, type: str, extras: Extras, version: str, *more: tuple[str, Any]) -> None:
        pairs = [
            ("id", number),
            ("name", self.names[number]),
            ("type", type),
            ("version", extras.get("version", version)),
        ]
        self.out.open("layer", *pairs, *more, *extras.get("layer_attrs", {}).items())

    def _element_type(self, name: str, type: TensorType) -> str:
        """OpenVINO's name of the element type.  Problem IRC4007 where it has none."""
        text = type.dtype.ov
        if text is None or (self.writer.old and text in LATER_TYPES):
            release = "OpenVINO" if text is None else "OpenVINO before 2022.1"
            raise Problem(NO_ELEMENT_TYPE, name=name, type=type.dtype, target=release)
        return text

    def _parameter(self, number: int, value: RawValue) -> None:
        type = value.type if isinstance(value.type, TensorType) else TensorType(dynamic, None)
        self._open(number, "Parameter", value.extras, "opset1")
        data = [
            ("shape", format_shape(type.shape, self.writer.old)),
            ("element_type", self._element_type(value.key, type)),
        ]
        self.out.empty("data", *data, *value.extras.get("data_attrs", {}).items())
        self._rt_info(value.extras.get("rt_info", []))
        self._output([(0, type, value.names, _port_info(value.extras))])
        self.out.close()

    def _constant(self, number: int, tensor: RawTensor) -> None:
        offset, size = self.writer.blobs.add(tensor)
        self._open(number, "Const", tensor.extras, "opset1")
        shape = ", ".join(map(str, tensor.shape))
        data = [
            ("element_type", self._element_type(tensor.name, TensorType.of(tensor.dtype, tensor.shape))),
            ("shape", shape),
            ("offset", offset),
            ("size", size),
        ]
        self.out.empty("data", *data, *tensor.extras.get("data_attrs", {}).items())
        self._rt_info(tensor.extras.get("rt_info", []))
        type = TensorType.of(tensor.dtype, tensor.shape)
        self._output([(0, type, tensor.extras.get("names", ()), tensor.extras.get("port_rt_info", []))])
        self.out.close()

    def _result(self, number: int, key: str, value: RawValue) -> None:
        names = value.names or value.extras.get("output_names", ())
        known = self.writer.model.version >= 11 and (names or "output_names" in value.extras)
        more = [("output_names", join_names(names))] if known else []
        self._open(number, "Result", value.extras, "opset1", *more)
        self._rt_info(value.extras.get("rt_info", []))
        self._input(number, [key], [value.type], {0: _port_info(value.extras)})
        self.out.close()

    def _node(self, number: int, node: RawNode) -> None:
        extras = node.extras
        self._open(number, node.type, extras, f"opset{node.version}")
        if "data_children" in extras:
            self.out.tree({"#tag": "data", **node.attrs, "#children": extras["data_children"]})
        elif node.attrs:
            self.out.empty("data", *node.attrs.items())
        bodies = {name: _GraphWriter(self.writer, body) for name, body in node.bodies.items()}
        self._port_maps(node, bodies)
        self._rt_info(extras.get("rt_info", []))
        if node.inputs:
            self._input(number, node.inputs, node.input_types, extras.get("input_rt_info", {}))
        ports = zip(_output_ids(node), node.outputs, strict=True)
        self._output([(port, v.type, v.names, _port_info(v.extras)) for port, v in ports])
        for name, body in bodies.items():
            self.out.open(name)
            body.write()
            self.out.section("rt_info", body.graph.extras.get("rt_info", []))
            self.out.close()
        self.out.close()

    # ----------------------------------------------------------------- ports
    def _input(self, number: int, keys: list[str], types: list[Type | None], infos: dict[int, Any]) -> None:
        self.out.open("input")
        for i, key in enumerate(keys):
            declared = types[i] if i < len(types) else None
            self._port(i, declared if declared is not None else self.types.get(key), (), infos.get(i, []))
            place = self.places.get(key)
            if place:
                self.edges.append((*place, number, i))
        self.out.close()

    def _output(self, ports: list[tuple[int, Type | None, tuple[str, ...], list[dict[str, Any]]]]) -> None:
        if not ports:
            return
        self.out.open("output")
        for port in ports:
            self._port(*port)
        self.out.close()

    def _port(self, number: int, type: Type | None, names: tuple[str, ...], info: list[dict[str, Any]]) -> None:
        tensor = type if isinstance(type, TensorType) else TensorType(dynamic, None)
        self._element_type(names[0] if names else self.graph.name, tensor)
        pairs: list[tuple[str, Any]] = [("id", number), ("precision", tensor.dtype.ov_port or "UNSPECIFIED")]
        if names:
            pairs.append(("names", join_names(names)))
        info = info if self.writer.runtime_info else []
        if not tensor.shape and not info:
            self.out.empty("port", *pairs)
            return
        self.out.open("port", *pairs)
        for dim in tensor.shape or ():
            self.out.leaf("dim", port_dim(dim, self.writer.old))
        self._rt_info(info)
        self.out.close()

    def _rt_info(self, info: list[dict[str, Any]]) -> None:
        if info and self.writer.runtime_info:
            self.out.section("rt_info", info)

    # ---------------------------------------------------------------- bodies
    def _port_maps(self, node: RawNode, bodies: dict[str, _GraphWriter]) -> None:
        numbers = _output_ids(node)
        ports = {str(v.extras.get("port", n)): n for n, v in zip(numbers, node.outputs, strict=True)}
        for section in sorted(MAPS):
            body = bodies.get(MAPS[section])
            if body is None or section not in node.extras:
                continue
            self.out.open(section)
            for entry in node.extras[section]:
                pairs = dict(entry)
                kind = pairs.pop("kind")
                ids = body.body_ids("Parameter" if kind == "input" else "Result")
                pairs["internal_layer_id"] = ids.get(str(entry["internal_layer_id"]), entry["internal_layer_id"])
                if kind == "output":
                    pairs["external_port_id"] = ports.get(str(entry["external_port_id"]), entry["external_port_id"])
                self.out.empty(kind, *pairs.items())
            self.out.close()
        if "back_edges" in node.extras and "body" in bodies:
            self._back_edges(node.extras["back_edges"], bodies["body"])

    def _back_edges(self, entries: list[dict[str, str]], body: _GraphWriter) -> None:
        sources, targets = body.body_ids("Result"), body.body_ids("Parameter")
        if not entries:
            return
        self.out.open("back_edges")
        for entry in entries:
            source, target = str(entry["from-layer"]), str(entry["to-layer"])
            self.out.empty(
                "edge", ("from-layer", sources.get(source, source)), ("to-layer", targets.get(target, target))
            )
        self.out.close()

    def body_ids(self, kind: str) -> dict[str, int]:
        """The new ids of the body's Parameters or Results, by the ids that port maps use."""
        values = self.graph.inputs if kind == "Parameter" else self.graph.outputs
        return {str(v.extras["id"]): self.ids[id(v)] for v in values if "id" in v.extras}


def _output_ids(node: RawNode) -> list[int]:
    """Port ids of the outputs: they go on after the inputs, except where a file had a rising gap (optional inputs)."""
    first = len(node.inputs)
    given = [v.extras.get("port", -1) for v in node.outputs]
    if given and given[0] >= first and all(a < b for a, b in pairwise(given)):
        return given
    return list(range(first, first + len(node.outputs)))


def _port_info(extras: Extras) -> list[dict[str, Any]]:
    """Runtime attributes of a port, among them the layout where only `extras["layout"]` says it."""
    info: list[dict[str, Any]] = list(extras.get("port_rt_info", []))
    if "layout" in extras and all(a.get("name") != "layout" for a in info):
        info.append({"name": "layout", "version": "0", "layout": str(extras["layout"])})
    return info


def _in_order(graph: RawGraph) -> list[Item]:
    """The layers in the order they are written: the file's, where all of them come from one."""
    items: list[Item] = [("Parameter", v.key, v) for v in graph.inputs]
    items += [("Const", k, t) for k, t in graph.constants.items()]
    items += [("node", "", n) for n in graph.nodes]
    items += [("Result", v.key, v) for v in graph.outputs]
    orders = [content.extras.get("order") for _, _, content in items]
    ranks = [o for o in orders if isinstance(o, int)]
    given = [[v.extras.get("order", -1) for v in values] for values in (graph.inputs, graph.outputs)]
    if len(set(ranks)) == len(items) and all(g == sorted(g) for g in given):
        return [item for _, item in sorted(zip(ranks, items, strict=True), key=lambda pair: pair[0])]
    return _fresh_order(graph)


def _fresh_order(graph: RawGraph) -> list[Item]:
    items: list[Item] = [("Parameter", v.key, v) for v in graph.inputs]
    left = dict(graph.constants)
    for node in graph.nodes:
        items += [("Const", k, left.pop(k)) for k in dict.fromkeys(node.inputs) if k in left]
        items.append(("node", "", node))
    items += [("Const", k, t) for k, t in left.items()]
    return items + [("Result", v.key, v) for v in graph.outputs]


def _unique_names(items: list[Item]) -> list[str]:
    """Layer names; a repeated one gets a number appended."""
    wanted: list[str] = []
    for number, (kind, _, content) in enumerate(items):
        if isinstance(content, RawValue):
            default = content.names[0] if content.names and kind == "Parameter" else ""
            name = content.extras.get("layer_name", default)
        else:
            name = content.name
        wanted.append(name or f"{content.type if isinstance(content, RawNode) else kind}_{number}")
    taken, used = set(wanted), dict[str, int]()
    unique: list[str] = []
    for name in wanted:
        chosen = name
        while chosen in used or (chosen != name and chosen in taken):
            chosen = f"{name}{used[name]}"
            used[name] += 1
        used[chosen] = 0
        unique.append(chosen)
    return unique
