"""Structure-aware mutations of OpenVINO IR: of any element and attribute, of what they mean, and of the weights."""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import cache
from pathlib import Path
from random import Random

from lxml import etree

from tests.fuzz import values

Element = etree._Element
Donor = Callable[[], bytes]
TYPES = (
    "f32",
    "f16",
    "bf16",
    "f64",
    "i8",
    "i16",
    "i32",
    "i64",
    "u1",
    "u4",
    "i4",
    "u8",
    "u32",
    "u64",
    "boolean",
    "string",
    "nf4",
    "f8e4m3",
    "undefined",
    "dynamic",
    "x",
)
PORT_TYPES = ("FP32", "FP16", "I64", "I32", "U8", "I8", "BOOL", "STRING", "BIN", "X")
WORDS = (
    "true",
    "false",
    "numpy",
    "none",
    "pdpd",
    "explicit",
    "same_upper",
    "valid",
    "constant",
    "reflect",
    "nearest",
    "floor",
    "ceil",
    "sum",
    "forward",
    "bidirectional",
)


def mutate_xml(data: bytes, rng: Random, donor: Donor) -> bytes:
    """The document with one to a few mutations; `donor` gives other documents whose parts may be taken over."""
    root = etree.fromstring(data, etree.XMLParser(resolve_entities=False, no_network=True))
    for _ in range(1 + min(int(rng.expovariate(0.9)), 5)):
        change = rng.choices([c for c, _ in CHANGES], [w for _, w in CHANGES])[0]
        try:
            change(root, rng, donor)
        except (ValueError, TypeError, IndexError):
            continue  # a text that XML cannot hold, nothing to choose from: not this one
    return mutate_text(etree.tostring(root), rng)


def mutate_text(data: bytes, rng: Random) -> bytes:
    """The serialised document; sometimes in another encoding, with a document type, or with broken bytes."""
    kind = rng.random()
    if kind < 0.03:
        return values.broken_bytes(rng, data)
    if kind < 0.05:
        name = rng.choice(("utf-16", "latin-1", "ucs-4", "shift_jis", "x-unknown", "utf-7", "ascii", "utf-8", ""))
        return f'<?xml version="1.0" encoding="{name}"?>'.encode() + data
    if kind < 0.06:
        return b'<!DOCTYPE net [<!ENTITY a "b">]>' + data
    return data


def mutate_weights(data: bytes, rng: Random) -> bytes:
    """The weights with one to a few mutations of bytes, words or length."""
    for _ in range(rng.randint(1, 3)):
        data = values.broken_bytes(rng, data)
    return data


# --------------------------------------------------------------------- any element, any attribute
def everything(root: Element) -> list[Element]:
    return [e for e in root.iter() if isinstance(e.tag, str)]


def change_attribute(root: Element, rng: Random, donor: Donor) -> None:
    """Another value of an attribute, one from elsewhere, none, or a new attribute."""
    owners = [e for e in everything(root) if e.attrib]
    element = rng.choice(owners)
    key = rng.choice(list(element.attrib))
    kind = rng.random()
    if kind < 0.15:
        del element.attrib[key]
    elif kind < 0.35:
        other = rng.choice(owners)
        element.set(
            key if rng.random() < 0.7 else rng.choice(list(other.attrib)), rng.choice(list(other.attrib.values()))
        )
    else:
        element.set(key, drawn_value(rng, str(element.get(key))))


def drawn_value(rng: Random, near: str) -> str:
    """A value that looks like the one given: numbers for numbers, a list for a list, a word for a word."""
    parts = near.split(",")
    kind = rng.random()
    if kind < 0.25:
        return values.text(rng, near)
    if all(is_number(p) for p in parts):
        numbers = [p.strip() for p in parts]
        at = rng.randrange(len(numbers))
        if rng.random() < 0.2:
            numbers.insert(at, numbers[at])
        elif rng.random() < 0.2:
            del numbers[at]
        elif rng.random() < 0.8:
            numbers[at] = str(values.integer(rng, int(float(numbers[at])) if numbers[at].lstrip("-").isdigit() else 1))
        else:
            numbers[at] = repr(values.real(rng))
        return ",".join(numbers)
    return rng.choice((*TYPES, *WORDS, str(values.integer(rng))))


def is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


def change_data(root: Element, rng: Random, donor: Donor) -> None:
    """Another attribute of an operation, which is what its meaning depends on."""
    owners = [e for e in root.iter("data") if e.attrib]
    element = rng.choice(owners)
    key = rng.choice(list(element.attrib))
    if rng.random() < 0.1:
        del element.attrib[key]
    else:
        element.set(key, drawn_value(rng, str(element.get(key))))


def change_tree(root: Element, rng: Random, donor: Donor) -> None:
    """Drop, double, move or empty an element."""
    element = rng.choice(everything(root)[1:])
    parent = element.getparent()
    if parent is None:
        return
    kind = rng.randrange(5)
    if kind == 0:
        parent.remove(element)
    elif kind == 1:
        parent.insert(parent.index(element), etree.fromstring(etree.tostring(element)))
    elif kind == 2:
        rng.choice([e for e in everything(root) if element not in list(e.iterancestors()) and e is not element]).append(
            element
        )
    elif kind == 3:
        element[:] = []
    else:
        element.text = values.text(rng, element.text or "")


def transplant(root: Element, rng: Random, donor: Donor) -> None:
    """Replace an element by one of its kind out of another document."""
    other = etree.fromstring(donor())
    element = rng.choice(everything(root)[1:])
    found = list(other.iter(str(element.tag)))
    parent = element.getparent()
    if found and parent is not None:
        parent.replace(element, rng.choice(found))


# -------------------------------------------------------------------------- what it means
@cache
def layer_types() -> tuple[tuple[str, int], ...]:
    """Types and versions of OpenVINO's operations, out of the schema of operations."""
    schema = json.loads((Path(__file__).resolve().parents[2] / "schemas/openvino_ops.json").read_text("utf-8"))
    return tuple((op["type"], op["opset"]) for op in schema["ops"])


def change_operation(root: Element, rng: Random, donor: Donor) -> None:
    """Another type, or another version, of a layer."""
    layer = rng.choice(list(root.iter("layer")))
    kind, opset = rng.choice(layer_types())
    if rng.random() < 0.6:
        layer.set("type", kind)
    layer.set("version", f"opset{opset}" if rng.random() < 0.7 else f"opset{rng.randrange(1, 18)}")


def change_port(root: Element, rng: Random, donor: Donor) -> None:
    """Other sizes, rank or type of a port."""
    port = rng.choice(list(root.iter("port")))
    dims = port.findall("dim")
    kind = rng.random()
    if kind < 0.2:
        port.set("precision", rng.choice(PORT_TYPES))
    elif kind < 0.4 or not dims:
        etree.SubElement(port, "dim").text = str(rng.choice((0, 1, 2, -1, values.integer(rng))))
    elif kind < 0.6:
        port.remove(rng.choice(dims))
    else:
        rng.choice(dims).text = rng.choice(("-1", "0", "1", str(values.integer(rng)), values.text(rng)))


def change_parameter(root: Element, rng: Random, donor: Donor) -> None:
    """Another shape of an input, in its attribute and its port, or only in one of them."""
    layer = rng.choice([e for e in root.iter("layer") if e.get("type") == "Parameter"])
    data, port = layer.find("data"), layer.find("output/port")
    if data is None or port is None:
        return
    sizes = [s for s in (data.get("shape") or "").split(",") if s]
    if sizes and rng.random() < 0.7:
        sizes[rng.randrange(len(sizes))] = rng.choice(
            ("?", "-1", "0", "1", "2", "2..8", "..5", str(values.integer(rng, 2)))
        )
    elif rng.random() < 0.5:
        sizes.append(rng.choice(("1", "3", "?")))
    else:
        sizes = sizes[1:]
    data.set("shape", "..." if rng.random() < 0.05 else ",".join(sizes))
    if rng.random() < 0.8:
        for dim in port.findall("dim"):
            port.remove(dim)
        for size in sizes:
            etree.SubElement(port, "dim").text = size if size.lstrip("-").isdigit() else "-1"


def change_constant(root: Element, rng: Random, donor: Donor) -> None:
    """Another type, shape or place of a constant: its size may fit or not."""
    layer = rng.choice([e for e in root.iter("layer") if e.get("type") == "Const"])
    data, port = layer.find("data"), layer.find("output/port")
    if data is None or port is None:
        return
    kind = rng.randrange(4)
    if kind == 0:
        data.set("element_type", rng.choice(TYPES))
    elif kind == 1:
        data.set(rng.choice(("offset", "size")), str(values.integer(rng, 8)))
    else:
        sizes = rng.choice(([], ["1"], ["0"], ["1", "1"], ["2"], ["2", "0"]))
        count = 1
        for size in sizes:
            count *= int(size)
        width = (
            4
            if (data.get("element_type") or "")[1:] == "32"
            else 8
            if (data.get("element_type") or "")[1:] == "64"
            else 1
        )
        data.set("shape", ",".join(sizes))
        data.set("size", str(count * width))
        for dim in port.findall("dim"):
            port.remove(dim)
        for size in sizes:
            etree.SubElement(port, "dim").text = size


def change_edge(root: Element, rng: Random, donor: Donor) -> None:
    """Another end of an edge, one edge less, or one more."""
    edges = list(root.iter("edge"))
    edge, other = rng.choice(edges), rng.choice(edges)
    parent = edge.getparent()
    kind = rng.randrange(4)
    if parent is None:
        return
    if kind == 0:
        parent.remove(edge)
    elif kind == 1:
        key = rng.choice(list(edge.attrib))
        edge.set(key, other.get(key) or values.text(rng))
    elif kind == 2:
        key = rng.choice(list(edge.attrib))
        edge.set(key, str(values.integer(rng)))
    else:
        made = etree.SubElement(parent, "edge", dict(edge.attrib))
        made.set("to-port", str(rng.randrange(6)))


def rename(root: Element, rng: Random, donor: Donor) -> None:
    """A hostile name of a layer or of a tensor."""
    element = rng.choice([e for e in everything(root) if e.get("name") is not None or e.tag == "port"])
    element.set("names" if element.tag == "port" else "name", values.text(rng, element.get("name") or ""))


CHANGES: tuple[tuple[Callable[[Element, Random, Donor], None], int], ...] = (
    (change_attribute, 3),
    (change_data, 6),
    (change_tree, 3),
    (transplant, 2),
    (change_operation, 3),
    (change_port, 3),
    (change_parameter, 5),
    (change_constant, 4),
    (change_edge, 3),
    (rename, 1),
)
"""What a mutation may be, and how often."""
