"""`<port_map>`, `<then_port_map>`, `<else_port_map>` and `<back_edges>`: how a layer and its bodies are joined."""

from __future__ import annotations

from irc.diagnostics.codes import container_openvino as codes
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
        given = [e for e in element if e.tag in ("input", "output")] if element is not None else []
        good = [e for e in given if _check_entry(xml, layer, section, e, ids)]
        entries = [{"kind": str(e.tag), **dict(e.attrib)} for e in good]
        node.extras[section] = entries
        if len(good) == len(given):  # else an entry that seems to be missing may be one that was refused
            _check_complete(xml, layer, element, entries, graph, body)
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
        problems.append(f'internal_layer_id="{internal}" is no {what} of the body{_known(what, inside)}')
    if external is not None and external != -1:
        if kind == "input" and not 0 <= external < len(layer.inputs):
            problems.append(f'external_port_id="{external}", but the layer has {len(layer.inputs)} inputs')
        if kind == "output" and external not in layer.output_ids:
            problems.append(f'external_port_id="{external}" is no output port of the layer')
    for problem in problems:
        xml.report(codes.PORT_MAP_INVALID, entry, layer.where, layer.dead, section=section, kind=kind, problem=problem)
    return not problems


def _known(what: str, ids: set[int]) -> str:
    """` (its Parameters: 0, 3)`."""
    shown = [str(i) for i in sorted(ids)[:8]] + ["..."] * (len(ids) > 8)
    return f" (its {what}s: {', '.join(shown)})" if ids else " (it has none)"


def _check_complete(
    xml: XmlFile, layer: Layer, section: Element | None, entries: list[dict[str, str]], graph: RawGraph, body: str
) -> None:
    place = layer.element if section is None else section
    joined = {integer(e.get("internal_layer_id")) for e in entries if e["kind"] == "input"}
    for value in graph.inputs:
        if int(value.extras["id"]) not in joined:
            what = f'Parameter {value.extras["id"]} "{value.extras["layer_name"]}" of <{body}>'
            xml.report(codes.PORT_MAP_MISSING, place, layer.where, layer.dead, what=what)
    given = {integer(e.get("external_port_id")) for e in entries if e["kind"] == "output"}
    for port in layer.outputs:
        if port.id not in given:
            what = f"output port {port.id}" + ("" if body == "body" else f" for <{body}>")
            xml.report(codes.PORT_MAP_MISSING, place, layer.where, layer.dead, what=what)


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
            given = entry.attrib.get("from-layer", "")
            problem = f'from-layer="{given}" is no Result of the body' + _known("Result", results)
        elif target not in parameters:
            given = entry.attrib.get("to-layer", "")
            problem = f'to-layer="{given}" is no Parameter of the body' + _known("Parameter", parameters)
        if problem:
            xml.report(codes.BACK_EDGE_INVALID, entry, layer.where, layer.dead, problem=problem)
        else:
            entries.append(dict(entry.attrib))
