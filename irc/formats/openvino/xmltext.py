"""XML text laid out as OpenVINO's serializer (pugixml) does: tabs, ` />` for empty elements."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any, Self

_ESCAPES = {"&": "&amp;", "<": "&lt;", '"': "&quot;", "\t": "&#9;", "\n": "&#10;", "\r": "&#13;"}
_SPECIAL = re.compile('[&<"\t\n\r]')
_TEXT = {"&": "&amp;", "<": "&lt;", ">": "&gt;", "\r": "&#13;"}
_FORBIDDEN = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\ud800-\udfff\ufffe\uffff]")  # no XML 1.0 document can hold these

_FIRST = (
    r"A-Z_a-z\u00c0-\u00d6\u00d8-\u00f6\u00f8-\u02ff\u0370-\u037d\u037f-\u1fff\u200c\u200d\u2070-\u218f"
    r"\u2c00-\u2fef\u3001-\ud7ff\uf900-\ufdcf\ufdf0-\ufffd\U00010000-\U000effff"
)
_PART = rf"[{_FIRST}][{_FIRST}\-.0-9\u00b7\u0300-\u036f\u203f\u2040]*"
_NAME = re.compile(rf"{_PART}(?::{_PART})?")
_XML = "http://www.w3.org/XML/1998/namespace"


def quoted(text: str) -> str:
    """An attribute value.  Characters that XML cannot hold become U+FFFD."""
    if _FORBIDDEN.search(text):
        text = _FORBIDDEN.sub("\ufffd", text)
    return _SPECIAL.sub(lambda m: _ESCAPES[m[0]], text) if _SPECIAL.search(text) else text


def content(text: str) -> str:
    """Text between tags."""
    return re.sub("[&<>\r]", lambda m: _TEXT[m[0]], _FORBIDDEN.sub("\ufffd", text))


class XmlName(str):
    """The name of an element or attribute, in which a prefix may stand for a namespace; ValueError for other text."""

    __slots__ = ()

    def __new__(cls, text: str) -> Self:
        if not _NAME.fullmatch(text):
            raise ValueError(f"{text[:80]!r} is no name of XML")
        return super().__new__(cls, text)


class _Names:
    """The names of an element and its attributes, `{namespace}name` among them, as lxml gives those."""

    def __init__(self) -> None:
        self.prefixes: dict[str, str] = {}

    def name(self, text: str) -> XmlName:
        if not text.startswith("{"):
            return XmlName(text)
        space, _, local = text[1:].rpartition("}")
        if not space:
            raise ValueError(f"{text[:80]!r} names no namespace")
        known = "xml" if space == _XML else self.prefixes.setdefault(space, f"ns{len(self.prefixes)}")
        return XmlName(f"{known}:{local}")

    def attributes(self, pairs: Iterable[tuple[str, Any]]) -> str:
        given = "".join(f' {self.name(k)}="{quoted(str(v))}"' for k, v in pairs)
        return given + "".join(f' xmlns:{prefix}="{quoted(space)}"' for space, prefix in self.prefixes.items())


def _tag(tag: str, pairs: Iterable[tuple[str, Any]]) -> tuple[XmlName, str]:
    """A tag's name, and its attributes."""
    names = _Names()
    name = names.name(tag)
    return name, names.attributes(pairs)


class XmlText:
    """Collects lines.  `open` and `close` nest; `empty` and `leaf` are whole elements."""

    def __init__(self) -> None:
        self.lines = ['<?xml version="1.0"?>']
        self._open: list[XmlName] = []

    def open(self, tag: str, *pairs: tuple[str, Any]) -> None:
        name, attributes = _tag(tag, pairs)
        self.lines.append("\t" * len(self._open) + f"<{name}{attributes}>")
        self._open.append(name)

    def close(self) -> None:
        tag = self._open.pop()
        self.lines.append("\t" * len(self._open) + f"</{tag}>")

    def empty(self, tag: str, *pairs: tuple[str, Any]) -> None:
        name, attributes = _tag(tag, pairs)
        self.lines.append("\t" * len(self._open) + f"<{name}{attributes} />")

    def leaf(self, tag: str, text: str, *pairs: tuple[str, Any]) -> None:
        name, attributes = _tag(tag, pairs)
        self.lines.append("\t" * len(self._open) + f"<{name}{attributes}>{content(text)}</{name}>")

    def tree(self, plain: dict[str, Any], tag: str | None = None) -> None:
        """Plain data as `xmlfile.tree_of` makes it; `tag` where it has no "#tag"."""
        name = plain.get("#tag") or tag or "attribute"
        pairs = [(k, v) for k, v in plain.items() if not k.startswith("#")]
        children, text = plain.get("#children", []), plain.get("#text")
        if children:
            self.open(name, *pairs)
            for child in children:
                self.tree(child)
            self.close()
        elif text is not None:
            self.leaf(name, text, *pairs)
        else:
            self.empty(name, *pairs)

    def section(self, tag: str, trees: list[dict[str, Any]]) -> None:
        """`<tag>` around trees, or `<tag />`."""
        if not trees:
            self.empty(tag)
            return
        self.open(tag)
        for plain in trees:
            self.tree(plain)
        self.close()

    def encode(self) -> bytes:
        return ("\n".join(self.lines) + "\n").encode("utf-8")
