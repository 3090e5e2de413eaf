# pyright: basic
"""The RELAX NG schemas, and messages of ours for what does not match them.

libxml2 decides whether a file is valid.  Its own messages name an ancestor at best, so where it says no,
the same .rng is walked along the document to say which element, attribute or value is meant.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from functools import lru_cache
from importlib import resources

from lxml import etree  # pyright: ignore[reportAttributeAccessIssue]

from irc.diagnostics import Facts, Sink
from irc.diagnostics.codes import container_openvino as codes
from irc.formats.openvino.fields import integer
from irc.formats.openvino.layers import title
from irc.formats.openvino.location import Position
from irc.formats.openvino.xmlfile import Element, XmlFile, parse

_RNG = "{http://relaxng.org/ns/structure/1.0}"
_SAYS = "{https://irc-compiler.dev/schema}says"
_MOST = 100
_LARGE = 100_000  # elements; libxml2 needs quadratic time in the number of siblings, the walk does not


def validate_schema(path: str, sink: Sink) -> None:
    """Compare a file with the schema of its version; every finding is a warning.

    Run it after `reader.read` with the same sink: what the reader has reported at an element is not said
    twice.  Files that are not well-formed, not `<net>` or of another version are left to the reader.
    """
    xml = parse(path, sink)
    version = integer(xml.root.attrib.get("version")) if xml is not None and xml.root.tag == "net" else None
    if xml is not None and version in (10, 11):
        check(xml, version)


def check(xml: XmlFile, version: int) -> None:
    """As `validate_schema`, for a parsed file."""
    large = xml.size > _LARGE
    if not large and _schema(version).validate(xml.root):
        return
    known = {d.location.position.ordinal for d in xml.sink if isinstance(d.location.position, Position)}
    walk = _Walk(xml, version, known)
    walk.element(xml.root, "net", "net")
    if not walk.found and not large:
        reason = str(_schema(version).error_log.last_error.message)
        advice = f"compare with schemas/ir-v{version}.rng"
        xml.report(codes.SCHEMA_OTHER, xml.root, "net", tag="net", version=version, reason=reason, advice=advice)


def schema_text(version: int) -> bytes:
    """The RELAX NG schema of an IR version (10 or 11)."""
    return resources.files("irc.formats.openvino").joinpath(f"ir-v{version}.rng").read_bytes()


@lru_cache(maxsize=2)
def _schema(version: int) -> etree.RelaxNG:
    return etree.RelaxNG(etree.fromstring(schema_text(version)))


@dataclass
class _Pattern:
    """An element of the schema: what it may hold.  `attributes` map to (value's name, whether required)."""

    attributes: dict[str, tuple[str, bool]] = field(default_factory=dict)
    children: dict[str, str] = field(default_factory=dict)  # tag to name of its pattern
    once: set[str] = field(default_factory=set)  # tags that may occur only once
    text: str | None = None
    free: bool = False
    unknown_children: bool = False


@dataclass
class _Value:
    pattern: re.Pattern[str] | None
    says: str


@lru_cache(maxsize=2)
def _patterns(version: int) -> tuple[dict[str, _Pattern], dict[str, _Value]]:
    defines = {d.attrib["name"]: d for d in etree.fromstring(schema_text(version)) if d.tag == f"{_RNG}define"}
    elements, values = {}, {}
    for name, define in defines.items():
        head = define[0]
        if head.tag == f"{_RNG}element" and "name" in head.attrib:
            elements[name] = _pattern(head, defines)
        elif head.tag in (f"{_RNG}data", f"{_RNG}text"):
            param = head.find(f"{_RNG}param")
            values[name] = _Value(re.compile(param.text) if param is not None else None, define.attrib[_SAYS])
    return elements, values


def _pattern(head: Element, defines: dict[str, Element]) -> _Pattern:
    pattern = _Pattern()
    for item in head.iter(f"{_RNG}attribute"):
        required = item.getparent() is head
        pattern.attributes[item.attrib["name"]] = item.find(f"{_RNG}ref").attrib["name"], required
    for ref in head.iter(f"{_RNG}ref"):
        name = ref.attrib["name"]
        if ref.getparent().tag == f"{_RNG}attribute":
            continue
        target = defines[name][0]
        if name == "free":
            pattern.free = True
        elif name == "unknown_section":
            pattern.unknown_children = True
        elif target.tag == f"{_RNG}data":
            pattern.text = name
        else:
            pattern.children[target.attrib["name"]] = name
            if ref.getparent().tag == f"{_RNG}optional":
                pattern.once.add(target.attrib["name"])
    return pattern


class _Walk:
    """Reports each place where the document leaves the schema."""

    def __init__(self, xml: XmlFile, version: int, known: set[int]) -> None:
        self.xml, self.version, self.known = xml, version, known
        self.elements, self.values = _patterns(version)
        self.found = 0

    def report(self, code: codes.Code, element: Element, where: str, **facts: object) -> None:
        self.found += 1
        position = self.xml.loc(element, where).position
        if self.found <= _MOST and not (isinstance(position, Position) and position.ordinal in self.known):
            self.xml.report(code, element, where, **facts)

    def element(self, element: Element, name: str, where: str) -> None:
        pattern = self.elements[name]
        if pattern.free:
            return
        if element.tag == "layer":
            where = title(element)
        self.attributes(element, pattern, where)
        seen: set[str] = set()
        for child in element:
            if child.tag not in pattern.children:
                if not pattern.unknown_children:
                    self.report(codes.SCHEMA_ELEMENT, child, where, tag=child.tag, parent=element.tag)
                continue
            if child.tag in seen and child.tag in pattern.once:
                reason = f"it may stand inside <{element.tag}> only once"
                facts = {"tag": child.tag, "version": self.version, "reason": reason, "advice": "keep one of them"}
                self.report(codes.SCHEMA_OTHER, child, where, **facts)
            seen.add(child.tag)
            self.element(child, pattern.children[child.tag], where)

    def attributes(self, element: Element, pattern: _Pattern, where: str) -> None:
        for key, text in element.attrib.items():
            if key not in pattern.attributes:
                facts: Facts = {"tag": element.tag, "attribute": key, "value": text[:60]}
                self.report(codes.SCHEMA_ATTRIBUTE, element, where, **facts)
            elif (element.tag, key) == ("layer", "version"):
                self.found += 1  # whether that opset exists is said where the operation is read
            else:
                self.value(element, where, key, pattern.attributes[key][0], text)
        for key, (_, required) in pattern.attributes.items():
            if required and key not in element.attrib:
                self.report(codes.SCHEMA_ATTRIBUTE_MISSING, element, where, tag=element.tag, attribute=key)
        if pattern.text is not None:
            self.value(element, where, "text", pattern.text, element.text or "")

    def value(self, element: Element, where: str, what: str, name: str, text: str) -> None:
        value = self.values[name]
        if value.pattern is not None and not value.pattern.fullmatch(text):
            facts: Facts = {"tag": element.tag, "what": what, "value": text[:60], "expected": value.says}
            self.report(codes.SCHEMA_VALUE, element, where, **facts)
