"""`<port_map>`, `<then_port_map>`, `<else_port_map>` and `<back_edges>`: how a layer and its bodies are joined."""

from __future__ import annotations

from irc.diagnostics.codes import container as codes
from irc.formats.document import RawGraph, RawNode
from irc.formats.openvino.fields import integer
from irc.formats.openvino.layers import Layer
from irc.formats.openvino.xmlfile import Element, XmlFile

MAPS = {"port_map": "body", "then_port_map": "then_body", "else_port_map": "else_body"}


def read_port_maps(xml: XmlFile, layer: Layer, node: RawNode) -> None:
    """Fill in `extras` of a node whose bodies are read, and check that every entry points at something."""
    for section, body in MAPS.items():
        graph = node.bodies.get(body)
        if graph is None:
            continue
        element, ids = layer.element.find(section), _ids(graph)
        entries: list[dict[str, str]] = []
        for entry in element if element is not None else ():
            if entry.tag in ("input", "output") and _check_entry(xml, layer, section, entry, ids):
                entries.append({"kind": str(entry.tag), **dict(entry.attrib)})
        node.extras[section] = entries
        _check_complete(xml, layer, entries, graph, body)
    if "body" in node.bodies:
        _back_edges(xml, layer, node)


def _ids(graph: RawGraph) -> tuple[set[int], set[int]]:
    """Ids of the body's Parameters and of its Results."""
    return {int(v.extras["id"]) for v in graph.inputs}, {int(v.extras["id"]) for v in graph.outputs}


def _check_entry(xml: XmlFile, layer: Layer, section: str, entry: Element, ids: tuple[set[int], set[int]]) -> bool:
    """Whether the entry can be used at all."""
    kind = str(entry.tag)
    external, internal = integer(entry.attrib.get("external_port_id")), integer(entry.attrib.get("internal_layer_id"))
    problems: list[str] = []
    for key, number in (("external_port_id", external), ("internal_layer_id", internal)):
        if number is None:
            problems.append(f"{key} is missing or not a number")
    inside, what = (ids[0], "Parameter") if kind == "input" else (ids[1], "Result")
    if internal is not None and internal not in inside:
        problems.append(f'internal_layer_id="{internal}" is no {what} of the body')
    if external is not None and external != -1:
        if kind == "input" and not 0 <= external < len(layer.inputs):
            problems.append(f'external_port_id="{external}", but the layer has {len(layer.inputs)} inputs')
        if kind == "output" and external not in layer.output_ids:
            problems.append(f'external_port_id="{external}" is no output port of the layer')
    for problem in problems:
        xml.report(codes.PORT_MAP_INVALID, entry, layer.where, layer.dead, section=section, kind=kind, problem=problem)
    return not problems


def _check_complete(xml: XmlFile, layer: Layer, entries: list[dict[str, str]], graph: RawGraph, body: str) -> None:
    joined = {integer(e.get("internal_layer_id")) for e in entries if e["kind"] == "input"}
    for value in graph.inputs:
        if int(value.extras["id"]) not in joined:
            what = f'Parameter {value.extras["id"]} "{value.extras["layer_name"]}" of <{body}>'
            xml.report(codes.PORT_MAP_MISSING, layer.element, layer.where, layer.dead, what=what)
    given = {integer(e.get("external_port_id")) for e in entries if e["kind"] == "output"}
    for port in layer.outputs:
        if port.id not in given:
            what = f"output port {port.id} of the layer (<{body}>)"
            xml.report(codes.PORT_MAP_MISSING, layer.element, layer.where, layer.dead, what=what)


def _back_edges(xml: XmlFile, layer: Layer, node: RawNode) -> None:
    parameters, results = _ids(node.bodies["body"])
    section = layer.element.find("back_edges")
    entries: list[dict[str, str]] = []
    node.extras["back_edges"] = entries
    for entry in section if section is not None else ():
        if entry.tag != "edge":
            continue
        source, target = integer(entry.attrib.get("from-layer")), integer(entry.attrib.get("to-layer"))
        problem = None
        if source not in results:
            problem = f'from-layer="{entry.attrib.get("from-layer", "")}" is no Result of the body'
        elif target not in parameters:
            problem = f'to-layer="{entry.attrib.get("to-layer", "")}" is no Parameter of the body'
        if problem:
            xml.report(codes.BACK_EDGE_INVALID, entry, layer.where, layer.dead, problem=problem)
        else:
            entries.append(dict(entry.attrib))
