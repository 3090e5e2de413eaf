"""Bytes of an .xml as they are parsed, and the exact line and column of its elements.

lxml's line numbers stop at 65,535 and it has no columns, so positions come from one expat pass
over the same bytes, run only when somebody asks for a position.
"""

from __future__ import annotations

import re
from array import array
from collections import OrderedDict
from contextlib import suppress
from pathlib import Path
from xml.parsers import expat

_PROLOG = re.compile(rb"(?:\s+|<\?.*?\?>|<!--.*?-->)*+", re.DOTALL)
_INTERNAL_SUBSET = re.compile(rb"(?:<!--.*?(?:-->|\Z)|<\?.*?(?:\?>|\Z)|\"[^\"]*\"|'[^']*'|[^\]\"'])*+\]\s*>", re.DOTALL)
_NOT_TEXT = rb"<!--.*?(?:-->|\Z)|<!\[CDATA\[.*?(?:\]\]>|\Z)|<\?.*?(?:\?>|\Z)"  # & may stand in these
_BARE_AMPERSAND = re.compile(_NOT_TEXT + rb"|&(?!(?:amp|lt|gt|quot|apos|#[0-9]+|#x[0-9a-fA-F]+);)", re.DOTALL)
_REMEMBERED = 4


def load_bytes(path: str) -> tuple[bytes, bool, int]:
    """(bytes to parse, whether a document type was blanked out, number of bare ampersands escaped).

    Line numbers are those of the file; UTF-16 becomes UTF-8.  Raises OSError.
    """
    data = Path(path).read_bytes()
    if data[:2] in (b"\xff\xfe", b"\xfe\xff"):
        text = data.decode("utf-16", "replace")
        data = re.sub(r"^\s*<\?xml.*?\?>", "", text, count=1).encode("utf-8", "replace")
    data, doctype = _without_doctype(data)
    bare = 0
    if b"&" in data:
        data, bare = _escape_ampersands(data)
    return data, doctype, bare


def _escape_ampersands(data: bytes) -> tuple[bytes, int]:
    """OpenVINO's parser keeps an & that begins no known entity as text; strict parsers refuse it."""
    count = 0

    def escape(found: re.Match[bytes]) -> bytes:
        nonlocal count
        if found[0] != b"&":
            return found[0]
        count += 1
        return b"&amp;"

    return _BARE_AMPERSAND.sub(escape, data), count


def _without_doctype(data: bytes) -> tuple[bytes, bool]:
    """Overwrite `<!DOCTYPE ...>` with spaces, line ends kept, so that no parser sees a declaration."""
    head = data[3:] if data.startswith(b"\xef\xbb\xbf") else data
    found = _PROLOG.match(head)
    start = len(data) - len(head) + (found.end() if found else 0)
    if data[start : start + 9].upper() != b"<!DOCTYPE":
        return data, False
    bracket, close = data.find(b"[", start), data.find(b">", start)
    end = close + 1
    if 0 <= bracket < close:
        subset = _INTERNAL_SUBSET.match(data, bracket + 1)
        end = subset.end() if subset else 0
    if end <= 0:
        return data, True
    blank = re.sub(rb"[^\r\n]", b" ", data[start:end])
    return data[:start] + blank + data[end:], True


class _Positions:
    """Line and column of every element of a file, by its number in document order."""

    def __init__(self, path: str) -> None:
        self.lines, self.columns = array("L"), array("L")
        parser = expat.ParserCreate()

        def start(_tag: str, _attributes: dict[str, str]) -> None:
            self.lines.append(parser.CurrentLineNumber)
            self.columns.append(parser.CurrentColumnNumber + 1)

        parser.StartElementHandler = start
        with suppress(expat.ExpatError):  # the elements before the damage keep their positions
            parser.Parse(load_bytes(path)[0], True)

    def at(self, ordinal: int) -> tuple[int, int] | None:
        return (self.lines[ordinal], self.columns[ordinal]) if 0 <= ordinal < len(self.lines) else None


_cache: OrderedDict[tuple[str, int, int], _Positions] = OrderedDict()


def _positions(path: str) -> _Positions:
    stat = Path(path).stat()
    key = (path, stat.st_mtime_ns, stat.st_size)
    if key not in _cache:
        _cache[key] = _Positions(path)
        while len(_cache) > _REMEMBERED:
            _cache.popitem(last=False)
    _cache.move_to_end(key)
    return _cache[key]


class Position:
    """What `Loc.position` calls: the place of element number `ordinal` (document order, from 0) of a file."""

    __slots__ = ("ordinal", "path")

    def __init__(self, path: str, ordinal: int) -> None:
        self.path, self.ordinal = path, ordinal

    def __call__(self) -> tuple[int, int] | None:
        try:
            return _positions(self.path).at(self.ordinal)
        except OSError:
            return None


class FixedPosition:
    """A line and column that are known already."""

    __slots__ = ("column", "line")

    def __init__(self, line: int, column: int) -> None:
        self.line, self.column = line, column

    def __call__(self) -> tuple[int, int] | None:
        return self.line, self.column


def syntax_error(data: bytes) -> tuple[str, int, int] | None:
    """(reason, line, column) of the first place where `data` is not well-formed, or None."""
    parser = expat.ParserCreate()
    try:
        parser.Parse(data, True)
    except expat.ExpatError as e:
        return expat.ErrorString(e.code) or "not well-formed", e.lineno, e.offset + 1
    return None
