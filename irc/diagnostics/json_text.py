"""JSON for people and other programs: `JsonText`."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Self, cast

from irc.diagnostics.terminal import TerminalText


class JsonText(TerminalText):
    """A JSON document, of printable ASCII and line ends; unpaired surrogates become U+FFFD."""

    __slots__ = ()

    def __new__(cls, value: Any, indent: int | None = None) -> Self:
        return str.__new__(cls, json.dumps(_paired(value), indent=indent).replace("\x7f", "\\u007f"))


def _paired(value: Any) -> Any:
    """The value with texts that every reader of JSON can decode."""
    if isinstance(value, str):
        return value if value.isascii() else value.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    if isinstance(value, Mapping):
        return {_paired(k): _paired(v) for k, v in cast("Mapping[Any, Any]", value).items()}
    if isinstance(value, list | tuple):
        return [_paired(v) for v in cast("list[Any]", value)]
    return value
