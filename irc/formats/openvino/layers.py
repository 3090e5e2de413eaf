"""`<layer>` and `<port>`: what every layer has, whatever its type."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from irc.diagnostics import Loc
from irc.diagnostics.codes import container_openvino as codes
from irc.formats.openvino.fields import U64, fixed, leading_integer, split_names, unsigned
from irc.formats.openvino.xmlfile import Element, XmlFile, tree_of
from irc.ir.dim import Dim
from irc.ir.types import Extras, TensorType, dtype_from_ov, dynamic

CONTAINER_TYPES = {"parameter": "Parameter", "const": "Const", "constant": "Const", "result": "Result"}
BODIES = {"TensorIterator": ("body",), "Loop": ("body",), "If": ("then_body", "else_body")}
_BODY_TYPES = {name.lower(): name for name in BODIES}
_KNOWN_ATTRIBUTES = {"id", "name", "type", "version", "output_names"}


@dataclass
class Port:
    """A declared port.  `type` has shape None where there is no `<dim>`: a scalar and an unknown rank look the same.

    The id is negative where the file's cannot be used, which has been reported.
    """

    id: int
    type: TensorType
    names: tuple[str, ...]
    rt_info: list[dict[str, Any]]
    element: Element
    precision: str | None


@dataclass
class Layer:
    """A `<layer>` with its declared ports.  `kind` is the type, in OpenVINO's spelling if the container knows it."""

    id: int
    name: str
    type: str
    kind: str
    version: str
    element: Element
    where: str
    order: int
    inputs: list[Port] = field(default_factory=list[Port])
    outputs: list[Port] = field(default_factory=list[Port])
    sources: dict[int, tuple[int, int]] = field(default_factory=dict[int, "tuple[int, int]"])  # by input port id
    broken: set[int] = field(default_factory=set[int])  # input ports whose edge was refused
    dead: bool = False
    rt_info: list[dict[str, Any]] = field(default_factory=list[dict[str, Any]])

    @property
    def is_root(self) -> bool:
        return self.kind in ("Result", "Assign")

    @cached_property
    def input_ids(self) -> frozenset[int]:
        return frozenset(p.id for p in self.inputs)

    @cached_property
    def output_ids(self) -> frozenset[int]:
        return frozenset(p.id for p in self.outputs)


def title(element: Element) -> str:
    """How locations name a layer: `layer 57 "conv1" (Convolution, opset1)`."""
    text = element.attrib.get("id")
    shown = "without id" if text is None else text if unsigned(text, U64) is not None else f'"{text[:60]}"'
    kind = ", ".join(element.attrib[key] for key in ("type", "version") if key in element.attrib)
    return f'layer {shown} "{element.attrib.get("name", "")}"' + (f" ({kind})" if kind else "")


class LayerReader:
    """Reads layers of one file; `v10` files have no runtime attributes on layers and ports."""

    def __init__(self, xml: XmlFile, version: int) -> None:
        self.xml, self.v10 = xml, version == 10
        self.ignored_rt_info: list[tuple[Element, str, str]] = []  # element, where, name

    def loc(self, element: Element, where: str) -> Loc:
        return self.xml.loc(element, where)

    def layer(self, element: Element, order: int, prefix: str) -> Layer | None:
        """None where the layer cannot take part in the graph; the reason is reported."""
        attributes = element.attrib
        text, name = attributes.get("id"), attributes.get("name", "")
        kind = attributes.get("type", "")
        where = prefix + title(element)
        complete = True
        for key in ("id", "name", "type", "version"):
            if key not in attributes:
                self.xml.report(codes.LAYER_ATTRIBUTE_MISSING, element, where, attribute=key)
                complete = complete and key == "name"
        number = unsigned(text, U64)
        if text is not None and number is None:
            self.xml.report(codes.LAYER_ID_INVALID, element, where, text=text[:60])
        if number is None or not complete:
            return None
        known = CONTAINER_TYPES.get(kind.lower()) or _BODY_TYPES.get(kind.lower())
        if kind.lower() == "assign":
            known = "Assign"
        layer = Layer(number, name, kind, known or kind, attributes["version"], element, where, order)
        for child in element:
            if child.tag == "input":
                self._ports(layer, child, "input", layer.inputs)
            elif child.tag == "output":
                self._ports(layer, child, "output", layer.outputs)
            elif child.tag == "rt_info":
                layer.rt_info = self.rt_info(child, where)
        return layer

    def rt_info(self, element: Element, where: str) -> list[dict[str, Any]]:
        """The `<attribute>` entries as dicts of their attributes."""
        found: list[dict[str, Any]] = []
        seen: set[str] = set()
        for child in element:
            if child.tag != "attribute":
                continue
            name = child.attrib.get("name", "")
            if self.v10 and name == "fused_names":
                continue
            if self.v10:
                self.ignored_rt_info.append((child, where, name))
                continue
            if name and "version" in child.attrib and name in seen:
                self.xml.report(codes.RT_INFO_DUPLICATE, child, where, name=name)
            seen.add(name)
            plain = tree_of(child)
            plain.pop("#tag")
            found.append(plain)
        return found

    def _ports(self, layer: Layer, section: Element, side: str, ports: list[Port]) -> None:
        seen: set[int] = set()
        for element in section:
            if element.tag != "port":
                continue
            text = element.attrib.get("id")
            number = unsigned(text)
            if number is None:
                problem = "no id" if text is None else f'the id "{text[:60]}", which is not a number'
                self.xml.report(
                    codes.PORT_ID_INVALID, element, layer.where, side=side, position=len(ports), problem=problem
                )
            elif number in seen:
                self.xml.report(codes.PORT_ID_DUPLICATE, element, layer.where, side=side, id=number)
                number = None
            if number is None:
                number = -1 - len(ports)
            seen.add(number)
            ports.append(self._port(layer, element, number, side))

    def _port(self, layer: Layer, element: Element, number: int, side: str) -> Port:
        precision = element.attrib.get("precision")
        kind = dtype_from_ov(precision, port=True) if precision is not None else None
        if side == "output" and precision is None:
            self.xml.report(codes.PRECISION_MISSING, element, layer.where, id=number)
        elif kind is None and precision is not None:
            code = codes.PRECISION_UNKNOWN if side == "output" else codes.INPUT_PRECISION_UNKNOWN
            self.xml.report(code, element, layer.where, text=precision[:60], id=number)
        dims: list[Dim] = []
        info: list[dict[str, Any]] = []
        for child in element:
            if child.tag == "dim":
                dims.append(self._dim(layer, child, number, side))
            elif child.tag == "rt_info":
                info = self.rt_info(child, f"{layer.where}, {side} port {number}")
        names = split_names(element.attrib["names"]) if side == "output" and "names" in element.attrib else ()
        return Port(number, TensorType(kind or dynamic, tuple(dims) or None), names, info, element, precision)

    def _dim(self, layer: Layer, element: Element, port: int, side: str) -> Dim:
        text = (element.text or "").strip()
        value = leading_integer(text)
        if value is None or value < -1 or value >= 2**63:
            self.xml.report(codes.DIM_INVALID, element, layer.where, text=text[:60], side=side, id=port)
            return Dim.fresh()
        if not text.lstrip("+-").isdigit():
            self.xml.report(codes.DIM_FRACTION, element, layer.where, text=text[:60], side=side, id=port, value=value)
        return Dim.fresh() if value == -1 else fixed(value)


def layer_extras(layer: Layer) -> Extras:
    """What a writer needs to put a layer back where and as it was."""
    extras: Extras = {"id": str(layer.id), "order": layer.order}
    if layer.rt_info:
        extras["rt_info"] = layer.rt_info
    if layer.dead:
        extras["dead"] = True
    other = {k: v for k, v in layer.element.attrib.items() if k not in _KNOWN_ATTRIBUTES}
    if other:
        extras["layer_attrs"] = other
    return extras


def version_number(text: str) -> int:
    """N of `opsetN`; 0 for any other spelling (`experimental`, `extension`)."""
    number = unsigned(text[5:], 10**6) if text.startswith("opset") else None
    return number or 0
