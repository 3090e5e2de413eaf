"""Parameter and Const: the two layers whose `<data>` the container itself reads."""

from __future__ import annotations

from typing import Any

from irc.diagnostics import Facts
from irc.diagnostics.codes import container_openvino as codes, container_weights, operation
from irc.files import DataFile
from irc.formats.document import RawTensor, RawValue
from irc.formats.openvino.fields import I64, fixed, integer, parse_shape, unsigned
from irc.formats.openvino.layers import Layer, Port, layer_extras
from irc.formats.openvino.packing import packed_size, stored_size, string_problem
from irc.formats.openvino.weights import Blob, Weights
from irc.formats.openvino.xmlfile import Element, XmlFile
from irc.ir.dim import Dim
from irc.ir.types import DType, TensorType, dtype_from_ov, dynamic, string

MAX_RANK = 64  # of a NumPy array
MAX_BYTES = 2**62


class DataReader:
    """Reads Parameters and Consts of one file.  Symbol names are unique in the file."""

    def __init__(self, xml: XmlFile, weights: Weights, v10: bool) -> None:
        self.xml, self.weights, self.v10 = xml, weights, v10
        self._symbols: dict[str, int] = {}  # name to how often it was asked for
        self._outside: list[tuple[Layer, Element, int, int, int]] = []

    # ---------------------------------------------------------------- shared
    def finish(self) -> None:
        """Report the constants beyond the end of the .bin, together: a file that is cut off hits many."""
        for dead in (False, True):
            found = [entry for entry in self._outside if entry[0].dead == dead]
            if not found:
                continue
            layer, data, offset, size, available = found[0]
            needed = max(entry[2] + entry[3] for entry in found)
            notes = (
                (f"{len(found) - 1} more constants end beyond it, the last at byte {needed}",) if len(found) > 1 else ()
            )
            facts: Facts = {"offset": offset, "size": size, "available": available, "bin": self.weights.name}
            self.xml.report(container_weights.CONST_OUTSIDE, data, layer.where, dead, notes, **facts)

    def _data(self, layer: Layer) -> Element | None:
        data = layer.element.find("data")
        if data is None:
            more = ' offset="..." size="..."' if layer.kind == "Const" else ""
            wanted = f'<data element_type="..." shape="..."{more} />'
            self.xml.report(codes.DATA_MISSING, layer.element, layer.where, layer.dead, type=layer.kind, wanted=wanted)
        return data

    def _output(self, layer: Layer) -> Port | None:
        if len(layer.outputs) != 1:
            self.xml.report(
                codes.OUTPUT_PORT_COUNT,
                layer.element,
                layer.where,
                layer.dead,
                type=layer.kind,
                count=len(layer.outputs),
            )
        return layer.outputs[0] if layer.outputs else None

    def _dtype(self, layer: Layer, data: Element, text: str) -> DType | None:
        found = dtype_from_ov(text)
        exact = found is None or text in (found.ov, "undefined")
        if found is None or (layer.kind == "Const" and not exact):
            self.xml.report(codes.ELEMENT_TYPE_UNKNOWN, data, layer.where, layer.dead, text=text[:60])
            return None
        if not exact:
            facts: Facts = {"op": layer.kind, "attribute": "element_type", "text": text, "value": found.ov}
            self.xml.report(operation.ODD_CASE, data, layer.where, layer.dead, **facts)
        return found

    def _compare(self, layer: Layer, port: Port, type: TensorType) -> None:
        """The port repeats `<data>`; OpenVINO ignores it, so a disagreement is a warning."""
        declared, shape = port.type, type.shape
        same = declared.dtype == type.dtype or port.precision is None or dynamic in (declared.dtype, type.dtype)
        if same and declared.shape is not None and shape is not None:
            same = len(shape) == len(declared.shape) and all(
                a == b for a, b in zip(shape, declared.shape, strict=True) if a.is_const and b.is_const
            )
        if not same:
            facts: Facts = {"port": _plain(declared), "data": _plain(type)}
            self.xml.report(codes.PORT_DISAGREES, port.element, layer.where, **facts)

    # ------------------------------------------------------------- Parameter
    def parameter(self, layer: Layer, key: str) -> RawValue | None:
        data, port = self._data(layer), self._output(layer)
        if data is None or port is None:
            return None
        text = data.attrib.get("element_type")
        if text is None:
            suggested = "..." if port.type.dtype == dynamic else port.type.dtype.ov
            self.xml.report(codes.PARAMETER_TYPE_MISSING, data, layer.where, suggested=suggested)
        kind = dynamic if text is None else self._dtype(layer, data, text) or dynamic
        type = TensorType(kind, self._parameter_shape(layer, data, port))
        if "shape" in data.attrib:
            self._compare(layer, port, type)
        extras = layer_extras(layer) | {"layer_name": layer.name, "version": layer.version}
        extras |= _others(data, {"shape", "element_type"})
        if port.rt_info:
            extras["port_rt_info"] = port.rt_info
        layout = next((a.get("layout") for a in port.rt_info if a.get("name") == "layout"), None)
        if layout is not None:
            extras["layout"] = layout
        names = port.names or ((layer.name,) if self.v10 and layer.name else ())
        return RawValue(key, names, type, self.xml.loc(layer.element, layer.where), extras)

    def _parameter_shape(self, layer: Layer, data: Element, port: Port) -> tuple[Dim, ...] | None:
        text = data.attrib.get("shape")
        if text is None:
            suggested = 'shape="..." with the sizes, or shape="" for a scalar'
            if port.type.shape:
                sizes = ",".join(str(d) if d.is_const else "?" for d in port.type.shape)
                suggested = f'shape="{sizes}", as the output port says, or shape="" for a scalar'
            self.xml.report(codes.PARAMETER_SHAPE_MISSING, data, layer.where, suggested=suggested)
            return ()
        parsed = parse_shape(text)
        if parsed.problem:
            self.xml.report(codes.SHAPE_INVALID, data, layer.where, shape=text[:80], problem=parsed.problem[:80])
            return None
        for item in parsed.reversed:
            self.xml.report(codes.RANGE_REVERSED, data, layer.where, shape=text[:80], text=item[:40])
        if parsed.bounds is None:
            return None
        return tuple(
            fixed(lo) if lo == hi else self._symbol(f"{layer.name}_d{axis}", lo, hi)
            for axis, (lo, hi) in enumerate(parsed.bounds)
        )

    def _symbol(self, name: str, lo: int, hi: int | None) -> Dim:
        """Two layers may share a name, but their sizes are not the same."""
        unique = name
        while unique in self._symbols:
            self._symbols[name] += 1
            unique = f"{name}_{self._symbols[name]}"
        self._symbols[unique] = 1
        return Dim.symbol(unique, lo, hi)

    # ----------------------------------------------------------------- Const
    def constant(self, layer: Layer) -> RawTensor | None:
        data, port = self._data(layer), self._output(layer)
        if data is None or port is None:
            return None
        missing = [a for a in ("element_type", "shape", "offset", "size") if a not in data.attrib]
        for attribute in missing:
            self.xml.report(
                container_weights.CONST_ATTRIBUTE_MISSING, data, layer.where, layer.dead, attribute=attribute
            )
        if missing:
            return None
        kind, shape = self._dtype(layer, data, data.attrib["element_type"]), self._constant_shape(layer, data)
        place = self._place(layer, data)
        if kind is None or shape is None or place is None:
            return None
        if kind == dynamic:
            text = data.attrib["element_type"]
            self.xml.report(container_weights.CONST_TYPE_DYNAMIC, data, layer.where, layer.dead, text=text)
            return None
        blob = self._blob(layer, data, kind, shape, *place)
        if blob is None:
            return None
        self._compare(layer, port, TensorType(kind, tuple(map(fixed, shape))))
        extras = layer_extras(layer) | {"names": port.names, "offset": place[0], "version": layer.version}
        extras |= _others(data, {"shape", "element_type", "offset", "size"})
        if port.rt_info:
            extras["port_rt_info"] = port.rt_info
        return RawTensor(layer.name, kind, shape, blob, self.xml.loc(layer.element, layer.where), extras)

    def _place(self, layer: Layer, data: Element) -> tuple[int, int] | None:
        found: list[int] = []
        for attribute in ("offset", "size"):
            text = data.attrib[attribute]
            value = unsigned(text, I64)
            if value is None:
                self.xml.report(
                    container_weights.CONST_NUMBER_INVALID,
                    data,
                    layer.where,
                    layer.dead,
                    attribute=attribute,
                    text=text[:60],
                )
            else:
                found.append(value)
        return (found[0], found[1]) if len(found) == 2 else None

    def _constant_shape(self, layer: Layer, data: Element) -> tuple[int, ...] | None:
        text = data.attrib["shape"]
        items = [i.strip() for i in text.split(",")] if text.strip() else []
        if items and not items[-1]:
            items.pop()  # OpenVINO tolerates one trailing comma in lists
        shape: list[int] = []
        for item in items:
            value = integer(item)
            if value is None or value > I64:
                problem = f'"{item[:40]}" is not a size'
                self.xml.report(codes.SHAPE_INVALID, data, layer.where, layer.dead, shape=text[:80], problem=problem)
                return None
            if value < 0:
                self.xml.report(
                    container_weights.CONST_SHAPE_NEGATIVE, data, layer.where, layer.dead, shape=text[:80], value=value
                )
                return None
            shape.append(value)
        return tuple(shape)

    def _blob(
        self, layer: Layer, data: Element, kind: DType, shape: tuple[int, ...], offset: int, size: int
    ) -> Blob | None:
        elements, nonzero = 1, 1
        for d in shape:
            elements, nonzero = elements * d, nonzero * (d or 1)
        facts: Facts = {"shape": data.attrib["shape"][:80], "type": kind.ov, "size": size}
        if len(shape) > MAX_RANK or nonzero * max(kind.itemsize, 1) > MAX_BYTES:
            self.xml.report(
                container_weights.CONST_TOO_LARGE, data, layer.where, layer.dead, elements=elements, **facts
            )
            return None
        needed = packed_size(kind, elements)
        if kind != string and size < needed:
            self.xml.report(container_weights.CONST_SIZE_SMALL, data, layer.where, layer.dead, needed=needed, **facts)
            return None
        if kind != string and elements and size > stored_size(kind, elements):
            self.xml.report(container_weights.CONST_SIZE_LARGE, data, layer.where, needed=needed, **facts)
        content = self._content(layer, data, offset, size)
        if content is None:
            return None
        blob = Blob(content, offset, size, kind, shape)
        problem = string_problem(blob.raw().tobytes(), elements) if kind == string and elements else None
        if problem:
            self.xml.report(
                container_weights.CONST_STRING_DAMAGED,
                data,
                layer.where,
                layer.dead,
                offset=offset,
                size=size,
                problem=problem,
            )
            return None
        return blob

    def _content(self, layer: Layer, data: Element, offset: int, size: int) -> DataFile | None:
        """The file, if the blob lies in it.  A useless file is reported once, not at every Const."""
        content, problem = self.weights.open()
        if problem:
            if not self.weights.reported:
                self.weights.reported = not layer.dead
                code, facts = problem
                self.xml.report(
                    code, data, layer.where, layer.dead, bin=self.weights.name, offset=offset, size=size, **facts
                )
            return None
        assert content is not None
        if offset + size > content.size:
            self._outside.append((layer, data, offset, size, content.size))
            return None
        return content


def _others(data: Element, known: set[str]) -> dict[str, Any]:
    other = {k: v for k, v in data.attrib.items() if k not in known}
    return {"data_attrs": other} if other else {}


def _plain(type: TensorType) -> str:
    """A type with `?` for every unknown size."""
    if type.shape is None:
        return f"{type.dtype}[...]"
    return f"{type.dtype}[{','.join(str(d) if d.is_const else '?' for d in type.shape)}]"
