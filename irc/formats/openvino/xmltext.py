"""XML text laid out as OpenVINO's serializer (pugixml) does: tabs, ` />` for empty elements."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any

_ESCAPES = {"&": "&amp;", "<": "&lt;", '"': "&quot;", "\t": "&#9;", "\n": "&#10;", "\r": "&#13;"}
_SPECIAL = re.compile('[&<"\t\n\r]')
_TEXT = {"&": "&amp;", "<": "&lt;", ">": "&gt;", "\r": "&#13;"}
_FORBIDDEN = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\ud800-\udfff\ufffe\uffff]")  # no XML 1.0 document can hold these


def quoted(text: str) -> str:
    """An attribute value.  Characters that XML cannot hold become U+FFFD."""
    if _FORBIDDEN.search(text):
        text = _FORBIDDEN.sub("\ufffd", text)
    return _SPECIAL.sub(lambda m: _ESCAPES[m[0]], text) if _SPECIAL.search(text) else text


def _attributes(pairs: Iterable[tuple[str, Any]]) -> str:
    return "".join(f' {k}="{quoted(str(v))}"' for k, v in pairs)


class XmlText:
    """Collects lines.  `open` and `close` nest; `empty` and `leaf` are whole elements."""

    def __init__(self) -> None:
        self.lines = ['<?xml version="1.0"?>']
        self._open: list[str] = []

    def open(self, tag: str, *pairs: tuple[str, Any]) -> None:
        self.lines.append("\t" * len(self._open) + f"<{tag}{_attributes(pairs)}>")
        self._open.append(tag)

    def close(self) -> None:
        tag = self._open.pop()
        self.lines.append("\t" * len(self._open) + f"</{tag}>")

    def empty(self, tag: str, *pairs: tuple[str, Any]) -> None:
        self.lines.append("\t" * len(self._open) + f"<{tag}{_attributes(pairs)} />")

    def leaf(self, tag: str, text: str) -> None:
        self.lines.append("\t" * len(self._open) + f"<{tag}>{text}</{tag}>")

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
            escaped = re.sub("[&<>\r]", lambda m: _TEXT[m[0]], _FORBIDDEN.sub("\ufffd", text))
            self.lines.append("\t" * len(self._open) + f"<{name}{_attributes(pairs)}>{escaped}</{name}>")
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
