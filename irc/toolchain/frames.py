"""The stack and the code of what was compiled: GCC's graphs of calls with the frames of functions, and object files."""

from __future__ import annotations

import re
import struct
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from irc.toolchain.c_compiler import Compiler

FLAGS = ("-fcallgraph-info=su",)
"""What GCC, from 10 on, writes the graphs with: a file that ends in .ci beside each object."""
_NODE = re.compile(r'node: \{ title: "([^"]*)" label: "([^"]*)"')
_EDGE = re.compile(r'edge: \{ sourcename: "([^"]*)" targetname: "([^"]*)"')
_BYTES = re.compile(r"(\d+) bytes \((?:static|dynamic,bounded|dynamic)\)")
_ALLOCATED, _NO_BITS, _WRITE = 2, 8, 1
_SYMBOLS, _OBJECT, _FUNCTION = 2, 1, 2


def writes_graphs(compiler: Compiler) -> bool:
    """Tell whether a compiler knows `FLAGS`: clang and zig do not."""
    return "clang" not in compiler.version and "ziglang" not in compiler.command


def frames_of(graphs: Iterable[str]) -> tuple[dict[str, int], dict[str, set[str]]]:
    """Read the bytes of each function's frame, and which functions it calls."""
    frames: dict[str, int] = {}
    calls: dict[str, set[str]] = {}
    for text in graphs:
        for name, label in _NODE.findall(text):
            found = _BYTES.search(label)
            if found:
                frames[_own(name)] = int(found[1])
        for source, target in _EDGE.findall(text):
            calls.setdefault(_own(source), set()).add(_own(target))
    return frames, calls


def usage(text: str) -> dict[str, int]:
    """Read what -fstack-usage writes: the bytes of each function's frame."""
    rows = (line.split("\t") for line in text.splitlines())
    return {where.rpartition(":")[2]: int(size) for where, size, _ in rows}


def _own(title: str) -> str:
    """Strip the file that a static function is titled with."""
    return title.rpartition(":")[2]


def deepest(frames: dict[str, int], calls: dict[str, set[str]], entry: str) -> list[str]:
    """Find the calls from `entry` that need the most stack together, without what libraries need.

    What is called through a pointer is a part of a loop that a pool runs: the largest of them stands for all.
    """
    parts = [f for f in frames if not any(f in called for called in calls.values())]
    known: dict[str, tuple[int, list[str]]] = {}

    def below(function: str, above: frozenset[str]) -> tuple[int, list[str]]:
        if function in known:
            return known[function]
        inside = above | {function}
        called = calls.get(function, set())
        further = {*called, *(parts if "__indirect_call" in called else ())} - inside
        paths = [below(f, inside) for f in sorted(further) if f in frames]
        size, path = max(paths, key=lambda p: p[0], default=(0, list[str]()))
        known[function] = frames.get(function, 0) + size, [function, *path]
        return known[function]

    return below(entry, frozenset())[1]


def stack_of(graphs: Iterable[str], prefix: str) -> int | None:
    """Compute the most stack that a call of P_run takes, without what libraries take; None if that is not known."""
    sizes, calls = frames_of(graphs)
    entry = f"{prefix}_run"
    return sum(sizes[f] for f in deepest(sizes, calls, entry)) if entry in sizes else None


def note_stack(folder: Path, manifest: dict[str, Any], graphs: Iterable[str], compiler: Compiler) -> None:
    """State the stack of a run in a manifest and as a constant of the header in `folder`, if it is known."""
    stack = stack_of(graphs, manifest["prefix"])
    if stack is None:
        return
    manifest["stack_bytes"] = stack
    header = folder / f"{manifest['weights'].removesuffix('weights.bin').rstrip('_') or 'model'}.h"
    text = header.read_text("utf-8")
    found = re.search(r"^#define (\w+)_WEIGHTS_BYTES .*\n", text, re.MULTILINE)
    if found is not None:
        with_flags = f"as {Path(compiler.command[0]).name} compiled it here"
        note = f"#define {found[1]}_STACK_BYTES {stack} /* of {manifest['prefix']}_run, {with_flags} */\n"
        header.write_text(text[: found.end()] + note + text[found.end() :], "utf-8")


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
                if table.wide:
                    name, kind, _, section, _, size = struct.unpack_from(table.order + "IBBHQQ", data, at)
                else:
                    name, _, size, kind, _, section = struct.unpack_from(table.order + "IIIBBH", data, at)
                held = section < len(headers) and headers[section]
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
