"""The stack of a run: GCC's graphs of calls with the frames of functions, and what is called through pointers."""

from __future__ import annotations

import re
import tempfile
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from irc.toolchain.c_compiler import Compiler, Target
from irc.toolchain.libraries import NOT_OF_THE_LIBRARY, compile_units

FLAGS = ("-fcallgraph-info=su",)
"""What GCC, from 10 on, writes the graphs with: a file that ends in .ci beside each object."""
_NODE = re.compile(r'node: \{ title: "([^"]*)" label: "([^"]*)"')
_EDGE = re.compile(r'edge: \{ sourcename: "([^"]*)" targetname: "([^"]*)"')
_BYTES = re.compile(r"\\n([^\\]*):\d+:\d+\\n(\d+) bytes \((?:static|dynamic,bounded|dynamic)\)")
_DATA = re.compile(r"^_Alignas\(\d+\) static const (\w+ \w+_data\d+\[\d+\]) = \{\n[^}]*\n\};$", re.MULTILINE)
"""Weights within the code, as `irc.backends.c.data` prints them."""
_DEFINED = re.compile(r"(\w+)\s*(?:\(|(?:\[[^\]]*\]\s*)*=)")
_NAME = re.compile(r"\b([A-Za-z_]\w*)\b(\s*\()?")
_POINTER = "__indirect_call"


def writes_graphs(compiler: Compiler) -> bool:
    """Tell whether a compiler knows `FLAGS`: clang and zig do not."""
    return not compiler.is_clang


@dataclass(frozen=True)
class CallGraph:
    """Functions that were compiled: the bytes of their frames, what they call, whose addresses they hand on.

    Static functions have the name of their file before their own, as in GCC's graphs.  A function that is called
    through a pointer is one whose address was taken by a caller above it, as generated code only hands pointers down.
    """

    frames: dict[str, int]
    calls: dict[str, set[str]]
    taken: dict[str, set[str]]

    def deepest(self, entry: str) -> list[str]:
        """Find the calls from `entry` that need the most stack together, without what libraries need."""
        known: dict[tuple[str, frozenset[str], frozenset[str]], tuple[int, list[str]]] = {}

        def below(function: str, above: frozenset[str], given: frozenset[str]) -> tuple[int, list[str]]:
            given |= self.taken.get(function, set())
            key = (
                function,
                given,
                above & given,
            )  # nothing calls itself but, for all that is known here, through pointers
            if key in known:
                return known[key]
            inside = above | {function}
            called = self.calls.get(function, set())
            further = {*called, *(given if _POINTER in called else ())} - inside
            paths = [below(f, inside, given) for f in sorted(further) if f in self.frames]
            size, path = max(paths, key=lambda p: p[0], default=(0, list[str]()))
            known[key] = self.frames.get(function, 0) + size, [function, *path]
            return known[key]

        return below(entry, frozenset(), frozenset())[1]

    def stack(self, entry: str) -> int | None:
        """Add up the most stack that a call of `entry` takes, without what libraries take; None if it is not known."""
        return sum(self.frames[f] for f in self.deepest(entry)) if entry in self.frames else None


def call_graph(graphs: Iterable[str], texts: Mapping[str, Mentions]) -> CallGraph:
    """Join GCC's graphs with the addresses of functions that generated C takes; texts: by the file's name."""
    frames: dict[str, int] = {}
    files: dict[str, str] = {}
    calls: dict[str, set[str]] = {}
    for text in graphs:
        for title, label in _NODE.findall(text):
            found = _BYTES.search(label)
            if found:
                files[title], frames[title] = found[1], int(found[2])
        for source, target in _EDGE.findall(text):
            calls.setdefault(source, set()).add(target)
    nothing = Mentions("")
    taken: dict[str, set[str]] = {}
    for title, file in files.items():
        words = texts.get(file, nothing).addresses(own_name(title), {own_name(f) for f in calls.get(title, ())})
        taken[title] = {f"{file}:{w}" for w in words} & frames.keys()
    reached = set[str]().union(*taken.values(), *calls.values())
    hidden = {f for f in frames if ":" in f and f not in reached}  # no text says who calls it: anyone may
    return CallGraph(frames, calls, {title: found | hidden for title, found in taken.items()})


def own_name(title: str) -> str:
    """Strip the file that a static function is titled with."""
    return title.rpartition(":")[2]


class Mentions:
    """Names that each function and table of a C file mentions: those that it calls, and all others."""

    def __init__(self, source: str, header: Mentions | None = None) -> None:
        self.called: dict[str, set[str]] = {}
        self.others: dict[str, set[str]] = {}
        if header is not None:
            self.called |= {name: set(words) for name, words in header.called.items()}
            self.others |= {name: set(words) for name, words in header.others.items()}
        for name, text in _definitions(source):
            for word, call in _NAME.findall(text):
                (self.called if call else self.others).setdefault(name, set()).add(word)

    def addresses(self, function: str, calls: set[str]) -> set[str]:
        """Collect what a function mentions without a call, itself, in tables and in what was inlined into it.

        calls: those that are left in the compiled function.
        """
        found, seen, left = set[str](), set[str](), [function.partition(".")[0]]  # what follows is GCC's, of a copy
        while left:
            name = left.pop()
            if name not in seen:
                seen.add(name)
                words = self.others.get(name, set())
                found |= words
                left += [w for w in words if w in self.others and w not in self.called]
                left += [w for w in self.called.get(name, ()) if w not in calls]
        return found - {function}


def mentions_in(sources: Mapping[str, str]) -> dict[str, Mentions]:
    """Read what the functions of C files mention, by the file's name, each with the headers among the sources."""
    header = Mentions("\n".join(text for name, text in sources.items() if name.endswith(".h")))
    return {name: Mentions(text, header) for name, text in sources.items() if name.endswith(".c")}


def _definitions(source: str) -> Iterator[tuple[str, str]]:
    """Yield (name, text) of the functions and tables of a C file that irc wrote: each begins at the line's start."""
    lines: list[str] = []
    depth = 0
    for line in source.split("\n"):
        if line.startswith(("#", "/*", " *")) or not (line or lines):
            continue
        lines.append(line)
        depth += line.count("{") - line.count("}")
        if depth == 0 and line.endswith((";", "}")):
            text = "\n".join(lines)
            found = _DEFINED.search(text)
            if found and "{" in text:
                yield found[1], text[found.end(1) + 1 :]
            lines = []


def graphs_of_sources(folder: Path, files: Iterable[str], target: Target, compiler: Compiler) -> list[str]:
    """Compile the C files of `folder` outside of it, for what GCC writes of their calls and frames.

    Data within the code are left out: reading them takes the compiler longer than everything else.
    """
    with tempfile.TemporaryDirectory(prefix="irc-") as scratch:
        for name in (names := [f for f in files if f.endswith((".c", ".h"))]):
            text = (folder / name).read_text("utf-8")
            Path(scratch, name).write_text(_DATA.sub(r"extern const \1;", text), "utf-8")
        compile_units(Path(scratch), names, target, compiler, FLAGS)
        return [path.read_text("utf-8", "replace") for path in sorted(Path(scratch).glob("*.ci"))]


def note_stack(
    folder: Path, manifest: dict[str, Any], graphs: Iterable[str], texts: Mapping[str, Mentions], compiler: Compiler
) -> None:
    """State the stack of a run in a manifest and as a constant of the header in `folder`, if it is known."""
    stack = call_graph(graphs, texts).stack(f"{manifest['prefix']}_run")
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


def sources_in(folder: Path) -> dict[str, str]:
    """Read the C and the headers of a folder, by name, without data within the code."""
    files = [f for f in folder.iterdir() if f.suffix in (".c", ".h") and f.name not in NOT_OF_THE_LIBRARY]
    return {f.name: _DATA.sub("", f.read_text("utf-8")) for f in files}


def usage(text: str) -> dict[str, int]:
    """Read what -fstack-usage writes: the bytes of each function's frame."""
    rows = (line.split("\t") for line in text.splitlines())
    return {where.rpartition(":")[2]: int(size) for where, size, _ in rows}
