"""OpenVINO IR v10 and v11 (.xml and .bin) to `RawModel`.

Source: the OpenVINO IR specification and the behaviour of OpenVINO's reader.  Container only:
Parameter, Const, Result and the bodies of TensorIterator, Loop and If; every other layer is a
`RawNode` whose attributes are the strings of the file.

Conventions a consumer needs:

- keys are "layer:port" with the file's own ids; those of a body begin with "LAYER/BODY/";
- inputs and outputs have `extras["layer_name"]`, and where given "layout", "rt_info" (of the layer) and
  "port_rt_info": lists of dicts of the attributes of `<attribute>`; constants have "names" (tensor names);
- an output type without `<dim>` has shape None: a scalar and an unknown rank look the same in a port;
- an input without an edge, which has been reported, has a key in `RawNode.inputs` that nothing defines ("" in a
  dead layer);
- nodes are listed producers first; `extras["order"]` is the place in the file, `extras["id"]` the id;
- `extras["broken"]` marks a layer whose bodies are not joined to it as they should be, which has been reported;
- `extras["dead"]` marks layers that reach no Result and no Assign: OpenVINO never looks at them;
- port maps: `extras["port_map"]` (TensorIterator, Loop), `extras["then_port_map"]`, `extras["else_port_map"]`
  (If): dicts of the entry's attributes plus "kind", "input" or "output"; `extras["back_edges"]` likewise.
  `internal_layer_id`, `from-layer` and `to-layer` are `extras["id"]` of the body's inputs and outputs.
"""

from __future__ import annotations

import os
from pathlib import Path

from irc.diagnostics import Facts, Sink
from irc.diagnostics.codes import container_openvino as codes
from irc.formats.document import RawGraph, RawModel, RawNode, RawValue
from irc.formats.openvino.constants import DataReader
from irc.formats.openvino.edges import check_inputs, check_names, connect, in_order
from irc.formats.openvino.fields import integer, split_names
from irc.formats.openvino.layers import BODIES, Layer, LayerReader, layer_extras, version_number
from irc.formats.openvino.portmap import read_port_maps
from irc.formats.openvino.weights import Weights
from irc.formats.openvino.xmlfile import Element, XmlFile, parse, tree_of
from irc.garbage_collection import collecting_rarely
from irc.ir.types import Extras

NEWEST_OPSET = 16
VERSIONS = (10, 11)
_SECTIONS = {"layers", "edges", "rt_info"}


def read(path: str | Path, sink: Sink) -> RawModel | None:
    """The model in an .xml and the .bin beside it.  Never raises on a bad file: findings go to the sink.

    Returns what could be built, so that later stages can report more; None if nothing could.
    """
    with collecting_rarely():
        xml = parse(os.fspath(path), sink)
        return None if xml is None else read_parsed(xml)


def read_parsed(xml: XmlFile) -> RawModel | None:
    root = xml.root
    if root.tag != "net":
        xml.report(codes.XML_NOT_NET, root, "root element", tag=root.tag)
        return None
    version = _version(xml)
    if version is None:
        return None
    reader = _Reader(xml, version)
    model = RawModel("openvino", version, reader.graph(root, "", ""), file=xml.path)
    model.graph.name = root.attrib.get("name", "")
    model.extras = reader.model_extras(root)
    reader.finish()
    return model


def _version(xml: XmlFile) -> int | None:
    text = xml.root.attrib.get("version")
    version = integer(text)
    if text is None:
        xml.report(codes.VERSION_MISSING, xml.root, "net")
    elif version is None:
        xml.report(codes.VERSION_INVALID, xml.root, "net", text=text[:60])
    elif version < VERSIONS[0]:
        xml.report(codes.VERSION_OLD, xml.root, "net", version=version)
    elif version > VERSIONS[-1]:
        xml.report(codes.VERSION_NEW, xml.root, "net", version=version)
    else:
        return version
    return None


class _Reader:
    def __init__(self, xml: XmlFile, version: int) -> None:
        self.xml, self.version = xml, version
        self.weights = Weights(xml.path)
        self.layer_reader = LayerReader(xml, version)
        self.data = DataReader(xml, self.weights, version == 10)

    def model_extras(self, root: Element) -> Extras:
        """`rt_info`, `meta_data`, `quantization_parameters` and unknown sections, as trees."""
        extras: Extras = {}
        attributes = {k: v for k, v in root.attrib.items() if k not in ("name", "version")}
        if attributes:
            extras["net_attrs"] = attributes
        others = [tree_of(c) for c in root if c.tag not in _SECTIONS]
        if others:
            extras["sections"] = others
        info = root.find("rt_info")
        if info is not None:
            extras["rt_info"] = [tree_of(c) for c in info]
        else:
            extras["no_rt_info"] = True  # OpenVINO then looks at the legacy sections
        return extras

    def finish(self) -> None:
        """Report what is said once for the whole file."""
        self.data.finish()
        ignored = self.layer_reader.ignored_rt_info
        if ignored:
            element, where, name = ignored[0]
            notes = (f"{len(ignored)} in the file, this is the first",) if len(ignored) > 1 else ()
            self.xml.report(codes.V10_RT_INFO, element, where, False, notes, name=name)

    # ----------------------------------------------------------------- graph
    def graph(self, holder: Element, prefix: str, where: str) -> RawGraph:
        """The layers of a `<net>` or a body; keys begin with `prefix`, locations with `where`."""
        graph = RawGraph(loc=self.xml.loc(holder, where.rstrip(", ") or "net"))
        section = holder.find("layers")
        if section is None:
            self.xml.report(codes.LAYERS_MISSING, holder, graph.loc.where, holder=holder.tag)
            return graph
        layers, complete = self._layers(section, where)
        connect(self.xml, holder.find("edges"), layers, where, complete)
        check_inputs(self.xml, layers)
        check_names(self.xml, layers)
        listed = in_order(self.xml, layers)
        if complete and layers and not any(layer.is_root for layer in listed):
            self.xml.report(codes.NO_RESULT, holder, graph.loc.where, holder=holder.tag)
        for layer in listed:
            self._add(graph, layer, prefix)
        graph.inputs.sort(key=lambda v: v.extras["order"])
        graph.outputs.sort(key=lambda v: v.extras["order"])
        if self.version == 10:
            _name_outputs(graph)
        if prefix and holder.find("rt_info") is not None:
            graph.extras["rt_info"] = [tree_of(c) for c in holder.find("rt_info")]
        return graph

    def _layers(self, section: Element, where: str) -> tuple[dict[int, Layer], bool]:
        layers: dict[int, Layer] = {}
        complete = True
        for order, element in enumerate(e for e in section if e.tag == "layer"):
            layer = self.layer_reader.layer(element, order, where)
            if layer is None:
                complete = False
            elif layer.id in layers:
                complete = False
                other = layers[layer.id].where
                self.xml.report(codes.LAYER_ID_DUPLICATE, element, layer.where, id=layer.id, other=other)
            else:
                layers[layer.id] = layer
        return layers, complete

    def _add(self, graph: RawGraph, layer: Layer, prefix: str) -> None:
        if layer.kind in ("Parameter", "Const", "Result"):
            self._check_spelling(layer)
        if layer.kind == "Parameter":
            value = self.data.parameter(layer, _key(layer, prefix))
            graph.inputs += [value] if value else []
        elif layer.kind == "Const":
            constant = self.data.constant(layer)
            if constant is not None:
                graph.constants[_key(layer, prefix)] = constant
        elif layer.kind == "Result":
            graph.outputs += [self._result(layer, prefix)]
        else:
            graph.nodes.append(self._node(layer, prefix))

    def _check_spelling(self, layer: Layer) -> None:
        if layer.type != layer.kind:
            self.xml.report(codes.LAYER_TYPE_SPELLING, layer.element, layer.where, text=layer.type, type=layer.kind)
        if not 1 <= version_number(layer.version) <= NEWEST_OPSET:
            facts: Facts = {"text": layer.version[:40], "type": layer.kind, "newest": NEWEST_OPSET}
            self.xml.report(codes.LAYER_VERSION_INVALID, layer.element, layer.where, layer.dead, **facts)

    def _result(self, layer: Layer, prefix: str) -> RawValue:
        """`names` are those of `output_names`; `type` is what the Result's input port declares."""
        source = next(iter(layer.sources.values()), None)
        extras = layer_extras(layer) | {"layer_name": layer.name, "version": layer.version}
        names = split_names(layer.element.attrib.get("output_names", ""))
        if "output_names" in layer.element.attrib:
            extras["output_names"] = names
        port = layer.inputs[0] if layer.inputs else None
        if port and port.rt_info:
            extras["port_rt_info"] = port.rt_info
            layout = next((a.get("layout") for a in port.rt_info if a.get("name") == "layout"), None)
            extras |= {"layout": layout} if layout is not None else {}
        key = f"{prefix}{source[0]}:{source[1]}" if source else ""
        return RawValue(key, names, port.type if port else None, self.xml.loc(layer.element, layer.where), extras)

    def _node(self, layer: Layer, prefix: str) -> RawNode:
        loc = self.xml.loc(layer.element, layer.where)
        node = RawNode(layer.type, version_number(layer.version), name=layer.name, loc=loc)
        node.extras = layer_extras(layer)
        if f"opset{node.version}" != layer.version:
            node.extras["version"] = layer.version
        data = layer.element.find("data")
        if data is not None:
            node.attrs = dict(data.attrib)
            if len(data):
                node.extras["data_children"] = [tree_of(c) for c in data]
        for port in layer.inputs:
            source = layer.sources.get(port.id)
            missing = "" if layer.dead else f"{prefix}{layer.id}:input {port.id}"
            node.inputs.append(f"{prefix}{source[0]}:{source[1]}" if source else missing)
            node.input_types.append(port.type if port.precision is not None else None)
        infos = {i: p.rt_info for i, p in enumerate(layer.inputs) if p.rt_info}
        if infos:
            node.extras["input_rt_info"] = infos
        for port in layer.outputs:
            extras: Extras = {"port": port.id}
            if port.rt_info:
                extras["port_rt_info"] = port.rt_info
            place = self.xml.loc(port.element, layer.where)
            node.outputs.append(RawValue(f"{prefix}{layer.id}:{port.id}", port.names, port.type, place, extras))
        if layer.kind in BODIES:
            self._bodies(layer, node, prefix)
        return node

    def _bodies(self, layer: Layer, node: RawNode, prefix: str) -> None:
        for name in BODIES[layer.kind]:
            element = layer.element.find(name)
            if element is None:
                facts: Facts = {"type": layer.kind, "body": name}
                self.xml.report(codes.BODY_MISSING, layer.element, layer.where, layer.dead, **facts)
                node.extras["broken"] = True
                continue
            node.bodies[name] = self.graph(element, f"{prefix}{layer.id}/{name}/", f"{layer.where}, {name}, ")
        before = len(self.xml.sink.diagnostics)
        read_port_maps(self.xml, layer, node)
        if len(self.xml.sink.diagnostics) > before:
            node.extras["broken"] = True


def _key(layer: Layer, prefix: str) -> str:
    return f"{prefix}{layer.id}:{layer.outputs[0].id if layer.outputs else 0}"


def _name_outputs(graph: RawGraph) -> None:
    """IR v10: a Result's producer without tensor names is called like its layer, `name.1` if it has several outputs."""
    results = {v.key for v in graph.outputs}
    for node in graph.nodes:
        for i, value in enumerate(node.outputs):
            if value.key in results and not value.names and node.name:
                value.names = (f"{node.name}.{i}" if len(node.outputs) > 1 else node.name,)
    for key, constant in graph.constants.items():
        if key in results and not constant.extras["names"] and constant.name:
            constant.extras["names"] = (constant.name,)
