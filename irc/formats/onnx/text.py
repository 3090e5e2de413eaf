"""Protobuf strings, which the parser gives as bytes where they are not UTF-8."""

from __future__ import annotations

from collections.abc import Iterable

import onnx

from irc.diagnostics import Loc, Sink
from irc.diagnostics.codes import container_onnx as codes


def text(value: str | bytes, what: str, loc: Loc, sink: Sink) -> str:
    """The string; one that is not UTF-8 is reported, and its odd bytes are replaced."""
    if isinstance(value, str):
        return value
    sink.report(codes.BAD_TEXT, loc, what=what, text=repr(value))
    return value.decode("utf-8", "replace")


def shown(value: str | bytes) -> str:
    """The string as locations show it."""
    return value if isinstance(value, str) else value.decode("utf-8", "replace")


def pairs(entries: Iterable[onnx.StringStringEntryProto], loc: Loc, sink: Sink) -> dict[str, str]:
    """metadata_props (or any list of key-value pairs) as a dict."""
    found: dict[str, str] = {}
    for entry in entries:
        key = text(entry.key, "a metadata key", loc, sink)
        if key in found:
            sink.report(codes.DUPLICATE_KEY, loc, key=key)
        found[key] = text(entry.value, f'the metadata "{key}"', loc, sink)
    return found
