# pyright: basic
"""The .xml as a tree whose elements know where they stand.  Everything lxml is in here and in `schema`."""

from __future__ import annotations

import os
from dataclasses import replace
from typing import Any

from lxml import etree  # pyright: ignore[reportAttributeAccessIssue]

from irc.diagnostics import Code, Facts, Loc, Sink
from irc.diagnostics.codes import container_openvino as codes
from irc.diagnostics.core import made
from irc.formats.openvino.location import FixedPosition, Position, load_bytes, syntax_error

Element = Any
"""An lxml element; comments and processing instructions are not in the tree."""

MAX_DEPTH = 255  # libxml2's own limit is 256


class XmlFile:
    """A parsed .xml and the sink its findings go to."""

    def __init__(self, path: str, root: Element, sink: Sink) -> None:
        self.path, self.root, self.sink = path, root, sink
        self._ordinals: dict[Element, int] = {e: i for i, e in enumerate(root.iter())}

    @property
    def size(self) -> int:
        """The number of elements."""
        return len(self._ordinals)

    def loc(self, element: Element, where: str) -> Loc:
        return Loc(self.path, where, Position(self.path, self._ordinals[element]))

    def report(
        self,
        code: Code,
        element: Element,
        where: str,
        dead: bool = False,
        notes: tuple[str, ...] = (),
        /,
        **facts: object,
    ) -> None:
        """Report at an element.  OpenVINO never looks at dead layers, so their errors are warnings."""
        found = made(code, self.loc(element, where), notes, facts)
        self.sink.add(replace(found, severity="warning") if dead and found.severity == "error" else found)


def parse(path: str, sink: Sink) -> XmlFile | None:
    """The tree of a file, or None with the reason in the sink.  Loads nothing else, expands no entities."""
    try:
        source = load_bytes(path)
    except OSError as e:
        sink.report(codes.FILE_UNREADABLE, Loc(path), file=path, reason=os.strerror(e.errno) if e.errno else str(e))
        return None
    except ValueError as e:  # a NUL in the path
        sink.report(codes.FILE_UNREADABLE, Loc(path), file=path, reason=str(e))
        return None
    if not source.data.strip():
        sink.report(codes.XML_EMPTY, Loc(path, "file", FixedPosition(1, 1, path)))
        return None
    if source.encoding is not None:
        facts: Facts = {"encoding": source.encoding[:60]}
        sink.report(codes.XML_ENCODING, Loc(path, "file", FixedPosition(1, 1, path)), **facts)
    if source.doctype:
        sink.report(codes.XML_DOCTYPE, Loc(path, "file", FixedPosition(*source.doctype, path)))
    if source.ampersand:
        notes = (f"{source.ampersands} in the file, this is the first",) if source.ampersands > 1 else ()
        sink.report(codes.XML_ENTITY, Loc(path, "file", FixedPosition(*source.ampersand, path)), notes)
    root = _tree(path, source.data, sink)
    return None if root is None else XmlFile(path, root, sink)


def _tree(path: str, data: bytes, sink: Sink) -> Element | None:
    parser = etree.XMLParser(
        resolve_entities=False, load_dtd=False, no_network=True, huge_tree=False, remove_comments=True, remove_pis=True
    )
    try:
        return etree.fromstring(data, parser)
    except (etree.XMLSyntaxError, ValueError) as e:
        text = str(e)
        if "xcessive depth" in text or "too deep" in text:
            line, column = getattr(e, "position", None) or (1, 1)
            sink.report(
                codes.XML_TOO_DEEP, Loc(path, "file", FixedPosition(line, max(column, 1), path)), limit=MAX_DEPTH
            )
            return None
        found = syntax_error(data)
        if found is None:
            line, column = getattr(e, "position", None) or (1, 1)
            found = (text, line, max(column, 1))
        reason, line, column = found
        sink.report(codes.XML_SYNTAX, Loc(path, "file", FixedPosition(line, column, path)), reason=reason)
        return None


def tree_of(element: Element) -> dict[str, Any]:
    """An element as plain data: its attributes, and under "#tag", "#text" and "#children" the rest."""
    plain: dict[str, Any] = {"#tag": str(element.tag), **dict(element.attrib)}
    if element.text and element.text.strip():
        plain["#text"] = element.text
    children = [tree_of(c) for c in element]
    if children:
        plain["#children"] = children
    return plain
