"""Reads a large ONNX file around its weights, which stay in the file until somebody needs them.

A message is its fields one after the other, so leaving one out takes nothing but other lengths in front of those that
hold it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import onnx

from irc.files import KEPT_WHOLE, DataFile

GRAPH = onnx.ModelProto.DESCRIPTOR.fields_by_name["graph"].number
INITIALIZER = onnx.GraphProto.DESCRIPTOR.fields_by_name["initializer"].number
RAW_DATA = onnx.TensorProto.DESCRIPTOR.fields_by_name["raw_data"].number

SMALLEST = 1 << 16
"""Bytes of a weight from which it stays in the file."""
BLOCK = 1 << 16
"""Bytes that are read at once."""
LENGTHS = 2
"""The wire type of what a length stands in front of: bytes, strings and messages."""
FIXED = {1: 8, 5: 4}
"""Bytes of the wire types that always have as many."""
LONGEST_VARINT = 10


@dataclass(frozen=True)
class Place:
    """Where the bytes of a weight stand."""

    file: DataFile
    offset: int
    length: int


Places = Mapping[int, Place]
"""The weights that are left out, by the positions of their initializers in the main graph."""


@dataclass(frozen=True)
class _Field:
    """A field of a message: from `start` to `end`, its content from `begin` on."""

    number: int
    wire: int
    start: int
    begin: int
    end: int


class _Damaged(Exception):
    """The bytes are no message; what is wrong is for protobuf to say."""


def read_around(file: DataFile) -> tuple[bytes, Places] | None:
    """The bytes of the model without its large weights, and where these stand.

    None for a file that is read as a whole: one that is not large, or no message.  Problem IRC1085.
    """
    if file.size <= KEPT_WHOLE:
        return None
    reader, model, places = _Reader(file), bytearray(), dict[int, Place]()
    count = 0
    try:
        for field in reader.fields(0, file.size):
            if field.number != GRAPH or field.wire != LENGTHS:
                model += reader.bytes(field.start, field.end)
                continue
            graph = bytearray()
            for part in reader.fields(field.begin, field.end):
                if part.number != INITIALIZER or part.wire != LENGTHS:
                    graph += reader.bytes(part.start, part.end)
                    continue
                tensor, place = reader.tensor(part)
                graph += head(INITIALIZER, len(tensor)) + tensor
                if place is not None:
                    places[count] = place
                count += 1
            model += head(GRAPH, len(graph)) + graph
    except _Damaged:
        return None
    return bytes(model), places


class _Reader:
    def __init__(self, file: DataFile) -> None:
        self.file = file
        self._at, self._block = 0, b""

    def bytes(self, begin: int, end: int) -> bytes:
        if begin < self._at or end > self._at + len(self._block):
            self._at = begin
            self._block = self.file.read(begin, min(max(end - begin, BLOCK), self.file.size - begin)).tobytes()
        return self._block[begin - self._at : end - self._at]

    def fields(self, begin: int, end: int) -> Iterator[_Field]:
        """The fields between two places, which a message fills.  Raises _Damaged where it does not."""
        while begin < end:
            tag, at = self._varint(begin, end)
            wire, content = tag & 7, at
            if wire == LENGTHS:
                length, content = self._varint(at, end)
                at = content + length
            elif wire == 0:
                _, at = self._varint(at, end)
            elif wire in FIXED:
                at += FIXED[wire]
            else:
                raise _Damaged
            if at > end:
                raise _Damaged
            yield _Field(tag >> 3, wire, begin, content, at)
            begin = at

    def _varint(self, begin: int, end: int) -> tuple[int, int]:
        """The number that begins there, and where it ends."""
        found = 0
        for i, byte in enumerate(self.bytes(begin, min(begin + LONGEST_VARINT, end))):
            found |= (byte & 0x7F) << 7 * i
            if byte < 0x80:
                return found, begin + i + 1
        raise _Damaged

    def tensor(self, field: _Field) -> tuple[bytes, Place | None]:
        """The bytes of a tensor, without its data if they are many; then these are in raw_data, once."""
        if field.end - field.begin < SMALLEST:
            return self.bytes(field.begin, field.end), None
        parts = list(self.fields(field.begin, field.end))
        raw = [p for p in parts if p.number == RAW_DATA and p.wire == LENGTHS]
        if len(raw) != 1 or raw[0].end - raw[0].begin < SMALLEST:
            return self.bytes(field.begin, field.end), None
        found = b"".join(self.bytes(p.start, p.end) for p in parts if p is not raw[0])
        return found, Place(self.file, raw[0].begin, raw[0].end - raw[0].begin)


def head(number: int, length: int) -> bytes:
    """What stands before bytes of that length in the field of that number."""
    return _varint(number << 3 | 2) + _varint(length)


def _varint(number: int) -> bytes:
    found = bytearray()
    while number > 0x7F:
        found.append(number & 0x7F | 0x80)
        number >>= 7
    found.append(number)
    return bytes(found)
