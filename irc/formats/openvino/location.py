"""Bytes of an .xml as they are parsed, and the exact line and column of its elements.

lxml's line numbers stop at 65,535 and it has no columns, so positions come from one expat pass
over the same bytes, run only when somebody asks for a position.
"""

from __future__ import annotations

import re
from array import array
from bisect import bisect_left
from collections import OrderedDict
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from xml.parsers import expat
from xml.parsers.expat import errors

from irc.diagnostics.finding import Spot
from irc.files import LARGEST_TEXT, read_regular

_PROLOG = re.compile(rb"(?:\s+|<\?.*?\?>|<!--.*?-->)*+", re.DOTALL)
_INTERNAL_SUBSET = re.compile(rb"(?:<!--.*?(?:-->|\Z)|<\?.*?(?:\?>|\Z)|\"[^\"]*\"|'[^']*'|[^\]\"'])*+\]\s*>", re.DOTALL)
_NOT_TEXT = rb"<!--.*?(?:-->|\Z)|<!\[CDATA\[.*?(?:\]\]>|\Z)|<\?.*?(?:\?>|\Z)"  # & may stand in these
_BARE_AMPERSAND = re.compile(_NOT_TEXT + rb"|&(?!(?:amp|lt|gt|quot|apos|#[0-9]+|#x[0-9a-fA-F]+);)", re.DOTALL)
_DECLARATION = re.compile(
    r"(?:\ufeff|\xef\xbb\xbf)?\s*<\?xml\b[^>]*?(?:\bencoding\s*=\s*[\"'](?P<encoding>[^\"']*)[\"'][^>]*?)?\?>"
)
_DECLARATION_BYTES = 1024
_FIRST_BYTES = (
    (b"\xff\xfe\0\0", "utf-32"),
    (b"\0\0\xfe\xff", "utf-32"),
    (b"<\0\0\0", "utf-32-le"),
    (b"\0\0\0<", "utf-32-be"),
    (b"\xff\xfe", "utf-16"),
    (b"\xfe\xff", "utf-16"),
    (b"<\0", "utf-16-le"),
    (b"\0<", "utf-16-be"),
)
"""How a file begins in other encodings than those that have ASCII in them."""
_REMEMBERED = 4
_UNCLOSED = {errors.codes[text] for text in (errors.XML_ERROR_TAG_MISMATCH, errors.XML_ERROR_NO_ELEMENTS)}


@dataclass(frozen=True)
class Source:
    """Bytes to parse, in UTF-8; where what was changed in them stood (line, column): a document type, bare
    ampersands; and the encoding that the file declares where that is none OpenVINO knows."""

    data: bytes
    doctype: tuple[int, int] | None
    ampersand: tuple[int, int] | None
    ampersands: int
    encoding: str | None = None


def load_bytes(path: str) -> Source:
    """The file as it is parsed.  Line numbers are those of the file; other encodings become UTF-8.  Raises OSError."""
    data, encoding = _as_utf8(read_regular(path, LARGEST_TEXT))
    data, doctype = _without_doctype(data)
    bare: list[int] = []
    clean = _escape_ampersands(data, bare) if b"&" in data else data
    return Source(clean, doctype, line_and_column(data, bare[0]) if bare else None, len(bare), encoding)


def _as_utf8(data: bytes) -> tuple[bytes, str | None]:
    """The file in UTF-8 by the rules of pugixml, OpenVINO's parser; the encoding it declares where they know none.

    What the first bytes show counts before what is declared; all but Latin-1 is then taken as UTF-8.
    """
    shown = next((name for start, name in _FIRST_BYTES if data.startswith(start)), "")
    head = data[:_DECLARATION_BYTES].decode(shown or "latin-1", "replace")
    found = _DECLARATION.match(head)
    declared = (found["encoding"] or "") if found else ""
    latin = declared.lower() in ("latin1", "latin-1", "iso-8859-1")
    if not shown and not latin and declared.lower() in ("", "utf-8", "utf8", "ascii", "us-ascii"):
        return data, None
    if shown or latin:
        data = data.decode(shown or "latin-1", "replace").encode("utf-8", "replace")
    declaration = _DECLARATION.match(data[:_DECLARATION_BYTES].decode("latin-1"))
    if declaration is not None:  # spaces, so that columns stay
        data = re.sub(rb"[^\r\n]", b" ", data[: declaration.end()]) + data[declaration.end() :]
    return data, None if shown or latin else declared


def line_and_column(data: bytes, offset: int) -> tuple[int, int]:
    """Line and column (characters, from 1) of a byte."""
    start = data.rfind(b"\n", 0, offset) + 1
    return data.count(b"\n", 0, offset) + 1, len(data[start:offset].decode("utf-8", "replace")) + 1


def _escape_ampersands(data: bytes, bare: list[int]) -> bytes:
    """OpenVINO's parser keeps an & that begins no known entity as text; strict parsers refuse it.

    Adds the offsets of those to `bare`.
    """

    def escape(found: re.Match[bytes]) -> bytes:
        if found[0] != b"&":
            return found[0]
        bare.append(found.start())
        return b"&amp;"

    return _BARE_AMPERSAND.sub(escape, data)


def _without_doctype(data: bytes) -> tuple[bytes, tuple[int, int] | None]:
    """Overwrite `<!DOCTYPE ...>` with spaces, line ends kept, so that no parser sees a declaration."""
    head = data[3:] if data.startswith(b"\xef\xbb\xbf") else data
    found = _PROLOG.match(head)
    start = len(data) - len(head) + (found.end() if found else 0)
    if data[start : start + 9].upper() != b"<!DOCTYPE":
        return data, None
    place = line_and_column(data, start)
    bracket, close = data.find(b"[", start), data.find(b">", start)
    end = close + 1
    if 0 <= bracket < close:
        subset = _INTERNAL_SUBSET.match(data, bracket + 1)
        end = subset.end() if subset else 0
    if end <= 0:
        return data, place
    blank = re.sub(rb"[^\r\n]", b" ", data[start:end])
    return data[:start] + blank + data[end:], place


class _Positions:
    """The text of a file, and where its elements begin in it, by their number in document order."""

    def __init__(self, path: str) -> None:
        self.starts, self.data = array("Q"), load_bytes(path).data
        parser = expat.ParserCreate()

        def start(_tag: str, _attributes: dict[str, str]) -> None:
            self.starts.append(parser.CurrentByteIndex)

        parser.StartElementHandler = start
        with suppress(expat.ExpatError):  # the elements before the damage keep their positions
            parser.Parse(self.data, True)
        self.lines = array("Q", (found.start() for found in re.finditer(b"\n", self.data)))

    def spot(self, ordinal: int, part: str) -> Spot | None:
        """The place of an element, or of a part of it."""
        if not 0 <= ordinal < len(self.starts):
            return None
        return self.at(*_part(self.data, self.starts[ordinal], part))

    def at(self, start: int, end: int) -> Spot:
        """The place of these bytes, with the line they begin in."""
        line = bisect_left(self.lines, start)
        begin = self.lines[line - 1] + 1 if line else 0
        stop = self.lines[line] if line < len(self.lines) else len(self.data)
        text = self.data[begin:stop].decode("utf-8", "replace").rstrip("\r")
        before = len(self.data[begin:start].decode("utf-8", "replace"))
        width = len(self.data[start : min(end, stop)].decode("utf-8", "replace"))
        return Spot(line + 1, before + 1, text, before, max(width, 1))

    def line(self, number: int, column: int) -> Spot:
        """The place of a character."""
        begin = self.lines[number - 2] + 1 if 1 < number <= len(self.lines) + 1 else 0
        stop = self.lines[number - 1] if number <= len(self.lines) else len(self.data)
        return Spot(number, column, self.data[begin:stop].decode("utf-8", "replace"), column - 1)


_OF_LAYERS = ("id", "name", "type", "version")
"""Attributes that no `<data>` lacks."""
_TAG = re.compile(
    rb"<!--.*?-->|<!\[CDATA\[.*?\]\]>|<\?.*?\?>"
    rb"|<(?P<close>/?)(?P<name>[^\s<>/]+)(?P<rest>(?:\"[^\"]*\"|'[^']*'|[^\"'<>])*?)(?P<empty>/?)>",
    re.DOTALL,
)


def _children(data: bytes, start: int) -> Iterator[tuple[re.Match[bytes], int]]:
    """The tags of the element that begins there and those in it, with their depth: its own is 0."""
    depth = 0
    for tag in _TAG.finditer(data, start):
        if not tag["name"]:
            continue
        if tag["close"]:
            depth -= 1
        else:
            yield tag, depth
            depth += not tag["empty"]
        if depth <= 0:
            return


def _part(data: bytes, start: int, part: str) -> tuple[int, int]:
    """Where a part of an element stands: an attribute of its own or of its `<data>`, or a `<dim>`.

    Of an attribute that is not there: where it would be.  Else the element's tag.
    """
    own = _TAG.match(data, start)
    whole = (start, own.end("name") if own else start + 1)
    if not part or own is None:
        return whole
    dim = re.fullmatch(r"(?:(input|output) (\d+) )?dim (\d+)", part)
    if dim is not None:
        return _dim(data, start, dim[1], int(dim[2] or 0), int(dim[3])) or whole
    for tag, depth in _children(data, start):
        if depth == 0 or (depth == 1 and tag["name"] == b"data"):
            found = _attribute(tag, part)
            if found is not None:
                return found
            if depth and part not in _OF_LAYERS:
                return tag.start(), tag.end("name")
        elif tag["name"] in (b"body", b"then_body", b"else_body"):
            break
    return whole


def _attribute(tag: re.Match[bytes], name: str) -> tuple[int, int] | None:
    """An attribute in a tag; `axis` also as `axes`."""
    plural = b"|axes" if name == "axis" else b""
    pattern = rb"(?<=\s)(?:" + re.escape(name.encode("utf-8", "replace")) + plural + rb")\s*=\s*(?:\"[^\"]*\"|'[^']*')"
    found = re.compile(pattern).search(tag.string, tag.start("rest"), tag.end("rest"))
    return found.span() if found else None


def _dim(data: bytes, start: int, side: str | None, port: int, axis: int) -> tuple[int, int] | None:
    """A `<dim>` of the port that begins there, or of a port of the layer that does."""
    inside, ports, dims, level = side is None, 0, -1, 1 if side is None else 3
    for tag, depth in _children(data, start):
        if side is not None and depth == 1:
            inside = tag["name"] == side.encode()
        elif side is not None and depth == 2 and inside:
            ports += 1
        elif depth == level and inside and tag["name"] == b"dim" and (side is None or ports == port + 1):
            dims += 1
            if dims == axis:
                end = data.find(b"</dim>", tag.end())
                return tag.start(), tag.end() if end < 0 else end + 6
    return None


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
        found = self.spot("")
        return None if found is None or found.line is None or found.column is None else (found.line, found.column)

    def spot(self, part: str) -> Spot | None:
        try:
            return _positions(self.path).spot(self.ordinal, part)
        except OSError:
            return None


class FixedPosition:
    """A line and column of a file that are known already."""

    __slots__ = ("column", "line", "path")

    def __init__(self, line: int, column: int, path: str) -> None:
        self.line, self.column, self.path = line, column, path

    def __call__(self) -> tuple[int, int] | None:
        return self.line, self.column

    def spot(self, part: str) -> Spot | None:
        try:
            return _positions(self.path).line(self.line, self.column)
        except (OSError, ValueError):
            return Spot(self.line, self.column)


def syntax_error(data: bytes) -> tuple[str, int, int] | None:
    """(reason, line, column) of the first place where `data` is not well-formed, or None."""
    parser = expat.ParserCreate()
    unclosed: list[tuple[str, int]] = []

    def start(tag: str, _attributes: dict[str, str]) -> None:
        unclosed.append((tag, parser.CurrentLineNumber))

    def end(_tag: str) -> None:
        unclosed.pop()

    parser.StartElementHandler, parser.EndElementHandler = start, end
    try:
        parser.Parse(data, True)
    except expat.ExpatError as e:
        reason, column = expat.ErrorString(e.code) or "not well-formed", e.offset + 1
        if reason == errors.XML_ERROR_TAG_MISMATCH:
            column -= 2  # expat points behind the "</"
        elif reason == errors.XML_ERROR_NO_ELEMENTS:
            reason = "the file ends too early"
        if unclosed and e.code in _UNCLOSED:
            reason += f", <{unclosed[-1][0]}> of line {unclosed[-1][1]} is not closed"
        return reason, e.lineno, column
    return None
