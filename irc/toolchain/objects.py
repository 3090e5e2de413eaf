"""What object files hold: code, data and each function of them, as linkers see it; ELF only."""

from __future__ import annotations

import struct
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

_ALLOCATED, _NO_BITS, _WRITE = 2, 8, 1
_SYMBOLS, _OBJECT, _FUNCTION = 2, 1, 2


def sections(objects: Iterable[Path]) -> dict[str, int]:
    """Add up what objects take: `code` (with constants) in flash, `data` in both memories, `bss` in RAM; ELF only."""
    total = {"code": 0, "data": 0, "bss": 0}
    for path in objects:
        headers = _headers(path.read_bytes())
        if not headers:
            return {}
        for header in headers:
            if header.flags & _ALLOCATED:
                total[header.memory] += header.size
    return total


def functions(objects: Iterable[Path]) -> dict[str, int]:
    """Read the bytes of flash that each function and each table of constants of objects takes, the largest first."""
    found: dict[str, int] = {}
    for path in objects:
        data = path.read_bytes()
        headers = _headers(data)
        for table in (h for h in headers if h.kind == _SYMBOLS):
            names = headers[table.link]
            for at in range(table.offset, table.offset + table.size, table.each):
                name: int
                section: int
                if table.wide:
                    name, kind, _, section, _, size = struct.unpack_from(table.order + "IBBHQQ", data, at)
                else:
                    name, _, size, kind, _, section = struct.unpack_from(table.order + "IIIBBH", data, at)
                held = headers[section] if section < len(headers) else None
                if size and kind & 15 in (_OBJECT, _FUNCTION) and held and held.flags & _ALLOCATED and held.in_flash:
                    begin = names.offset + name
                    own = data[begin : data.index(0, begin)].decode().partition(".")[0]  # .constprop.0 and the like
                    found[own] = found.get(own, 0) + size
    return dict(sorted(found.items(), key=lambda item: (-item[1], item[0])))


@dataclass(frozen=True)
class _Header:
    """A section of an object."""

    wide: bool
    order: str
    kind: int
    flags: int
    offset: int
    size: int
    link: int
    each: int

    @property
    def memory(self) -> str:
        return "bss" if self.kind == _NO_BITS else "data" if self.flags & _WRITE else "code"

    @property
    def in_flash(self) -> bool:
        return self.memory != "bss"


def _headers(data: bytes) -> list[_Header]:
    """Read the headers of an ELF object's sections; none of any other file."""
    if data[:4] != b"\x7fELF":
        return []
    wide, order = data[4] == 2, "<" if data[5] == 1 else ">"
    at, (each, count) = (
        struct.unpack_from(order + ("Q" if wide else "I"), data, 40 if wide else 32)[0],
        struct.unpack_from(order + "HH", data, 58 if wide else 46),
    )
    headers: list[_Header] = []
    for k in range(count):
        fields = struct.unpack_from(order + ("IIQQQQIIQQ" if wide else "IIIIIIIIII"), data, at + k * each)
        headers.append(_Header(wide, order, fields[1], fields[2], fields[4], fields[5], fields[6], fields[9]))
    return headers
