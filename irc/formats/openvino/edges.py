"""`<edges>` and what can be said about a graph of layers without knowing any operation."""

from __future__ import annotations

from collections import deque

import networkx as nx

from irc.diagnostics import Facts
from irc.diagnostics.codes import container_openvino as codes
from irc.formats.openvino.fields import U64, unsigned
from irc.formats.openvino.layers import Layer, Port
from irc.formats.openvino.xmlfile import Element, XmlFile

_ENDS = ("from-layer", "from-port", "to-layer", "to-port")
_SHOWN = 8


def connect(xml: XmlFile, section: Element | None, layers: dict[int, Layer], prefix: str, complete: bool) -> None:
    """Fill in `Layer.sources`, and mark the layers that no Result or Assign needs.

    `complete` is False where some layer could not be read: then edges to unknown layers say nothing new.
    """
    edges = [] if section is None else [(e, _ends(xml, e, prefix)) for e in section if e.tag == "edge"]
    known = [(e, ends) for e, ends in edges if ends is not None]
    for element in (e for e, ends in edges if ends is None):
        _excuse(element, layers)
    mark_dead(layers, [ends for _, ends in known])
    for element, ends in known:
        _connect(xml, element, ends, layers, prefix, complete)


def _ends(xml: XmlFile, element: Element, prefix: str) -> tuple[int, int, int, int] | None:
    numbers: list[int] = []
    attributes = element.attrib
    where = f"{prefix}edge " + " ".join(f'{k}="{attributes[k][:40]}"' for k in _ENDS if k in attributes)
    for key in _ENDS:
        text = attributes.get(key)
        number = unsigned(text, U64)
        if number is None:
            problem = f"no {key}" if text is None else f'{key}="{text[:60]}", which is not a number'
            xml.report(codes.EDGE_ATTRIBUTE_INVALID, element, where, problem=problem)
        else:
            numbers.append(number)
    return (numbers[0], numbers[1], numbers[2], numbers[3]) if len(numbers) == 4 else None


def _excuse(element: Element, layers: dict[int, Layer]) -> None:
    """The input that an unusable edge means has an edge: that it has none is not to be reported too."""
    layer, port = unsigned(element.attrib.get("to-layer"), U64), unsigned(element.attrib.get("to-port"), U64)
    if layer in layers and port is not None:
        layers[layer].broken.add(port)


def _connect(
    xml: XmlFile,
    element: Element,
    ends: tuple[int, int, int, int],
    layers: dict[int, Layer],
    prefix: str,
    complete: bool,
) -> None:
    source, source_port, target, target_port = ends
    where = f"{prefix}edge from layer {source} port {source_port} to layer {target} port {target_port}"
    producer, consumer = layers.get(source), layers.get(target)
    if consumer is None:
        if complete:
            xml.report(codes.EDGE_TO_UNKNOWN_LAYER, element, where, id=target)
        return
    consumer.broken.add(target_port)
    if producer is None:
        if complete:
            xml.report(codes.EDGE_FROM_UNKNOWN_LAYER, element, where, consumer.dead, id=source)
        return
    if _is_reported(producer.outputs, source_port):
        return
    if producer.kind in ("Parameter", "Const") and not producer.outputs:  # is reported when they are read
        return
    if producer.kind == "Result" or source_port not in producer.output_ids:
        xml.report(
            codes.EDGE_FROM_UNKNOWN_PORT,
            element,
            where,
            consumer.dead,
            port=source_port,
            layer=_short(producer),
            known=_ports("output", [] if producer.kind == "Result" else producer.outputs),
        )
        return
    if _is_reported(consumer.inputs, target_port):
        return
    if target_port not in consumer.input_ids:
        xml.report(
            codes.EDGE_TO_UNKNOWN_PORT,
            element,
            where,
            consumer.dead,
            port=target_port,
            layer=_short(consumer),
            known=_ports("input", consumer.inputs),
        )
        return
    if target_port in consumer.sources:
        first = consumer.sources[target_port]
        facts: Facts = {"port": target_port, "layer": _short(consumer), "source": f"{first[0]} port {first[1]}"}
        xml.report(codes.EDGE_DUPLICATE, element, where, consumer.dead, **facts)
        return
    consumer.sources[target_port] = (source, source_port)


def _is_reported(ports: list[Port], number: int) -> bool:
    """Whether a port that is not there may be one whose own id could not be used."""
    return any(p.id < 0 for p in ports) and all(p.id != number for p in ports)


def _short(layer: Layer) -> str:
    return f'layer {layer.id} "{layer.name}" ({layer.type})'


def _ports(side: str, ports: list[Port]) -> str:
    if not ports:
        return f"no {side} ports"
    ids = ", ".join(str(p.id) for p in ports[:_SHOWN]) + (", ..." if len(ports) > _SHOWN else "")
    return f"{side} port{'s' if len(ports) > 1 else ''} {ids}"


def mark_dead(layers: dict[int, Layer], edges: list[tuple[int, int, int, int]]) -> None:
    """OpenVINO creates only what reaches a Result or an Assign, and every Parameter."""
    producers: dict[int, list[int]] = {}
    for source, _, target, _ in edges:
        producers.setdefault(target, []).append(source)
    todo = deque(i for i, layer in layers.items() if layer.is_root)
    live = set(todo)
    while todo:
        for source in producers.get(todo.popleft(), ()):
            if source in layers and source not in live:
                live.add(source)
                todo.append(source)
    for number, layer in layers.items():
        layer.dead = number not in live and layer.kind != "Parameter"


def check_inputs(xml: XmlFile, layers: dict[int, Layer]) -> None:
    """Every declared input has an edge; a Result has exactly one."""
    for layer in layers.values():
        if layer.kind == "Result":
            connected = [p for p in layer.inputs if p.id in layer.sources or p.id in layer.broken]
            if len(layer.inputs) != 1 or not connected:
                problem = (
                    "no edge goes to this one" if len(layer.inputs) == 1 else f"this one declares {len(layer.inputs)}"
                )
                xml.report(codes.RESULT_UNCONNECTED, layer.element, layer.where, problem=problem)
            continue
        for port in layer.inputs:
            if port.id not in layer.sources and port.id not in layer.broken and port.id >= 0:
                facts: Facts = {"port": port.id, "layer_id": layer.id}
                xml.report(codes.INPUT_UNCONNECTED, port.element, layer.where, layer.dead, **facts)


def in_order(xml: XmlFile, layers: dict[int, Layer]) -> list[Layer]:
    """The layers, producers first and otherwise as in the file; file order where there is a cycle."""
    listed = sorted(layers.values(), key=lambda layer: layer.order)
    place = {layer.id: layer.order for layer in listed}
    if all(place[s] < layer.order for layer in listed for s, _ in layer.sources.values()):
        return listed
    graph: nx.DiGraph[int] = nx.DiGraph()
    graph.add_nodes_from(layers)
    graph.add_edges_from((s, layer.id) for layer in listed for s, _ in layer.sources.values())
    if nx.is_directed_acyclic_graph(graph):
        return [layers[i] for i in nx.lexicographical_topological_sort(graph, key=place.__getitem__)]
    for component in nx.strongly_connected_components(graph):
        first = layers[min(component, key=lambda i: place[i])]
        if len(component) > 1 or graph.has_edge(first.id, first.id):
            _report_cycle(xml, layers, graph, component, first)
    return listed


def _report_cycle(
    xml: XmlFile, layers: dict[int, Layer], graph: nx.DiGraph[int], component: set[int], first: Layer
) -> None:
    """Names one shortest cycle through the component's first layer."""
    inside = graph.subgraph(component)
    back = nx.single_source_shortest_path(inside, first.id)
    closing = min((p for p in inside.predecessors(first.id)), key=lambda p: len(back[p]))
    path = [*back[closing], first.id]
    shown = path if len(path) <= _SHOWN else [*path[: _SHOWN - 2], None, *path[-1:]]
    text = " -> ".join("..." if i is None else f'{i} "{layers[i].name}"' for i in shown)
    dead = all(layers[i].dead for i in component)
    xml.report(codes.CYCLE, first.element, first.where, dead, path=text)


def check_names(xml: XmlFile, layers: dict[int, Layer]) -> None:
    """A tensor name finds one tensor."""
    owner: dict[str, tuple[Layer, Port]] = {}
    for layer in layers.values():
        for port in layer.outputs:
            for name in port.names:
                first = owner.setdefault(name, (layer, port))
                if first[1] is not port:
                    other = f"output port {first[1].id} of {_short(first[0])}"
                    xml.report(codes.TENSOR_NAME_DUPLICATE, port.element, layer.where, name=name, other=other)
