"""Comments above generated functions: what they compute, read and write."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from irc.backends.c.text import CComment, block_comment, cut
from irc.loops.ir import Buffer, Function


def describe(function: Function, titles: Mapping[Buffer, str], groups: Sequence[Function] = ()) -> str:
    """Print the comment above a function: its layers (of each equal group), and what it reads and writes."""
    layers = "\n".join(", ".join(map(_called, f.origin)) or f.comment or _called(f.name) for f in groups or [function])
    if groups:
        layers = f"{len(groups)} groups of layers:\n{layers}"
    shapes = [
        " and ".join(f"{_called(titles.get(b.root, b.name))} {b.dtype}[{_sizes(b)}]" for b in group)
        for group in (function.reads, function.writes)
    ]
    note = f"{function.comment}\n" if function.comment and function.origin else ""
    text = f"{layers}\n{note}{' -> '.join(shapes)}"
    return block_comment([CComment(part) for line in text.split("\n") for part in _folded(line)])


def _sizes(buffer: Buffer) -> str:
    return cut(", ".join(map(str, buffer.shape)), 200)


def _called(name: str) -> str:
    """Return a name of the model as one word of a line."""
    return cut(" ".join(name.split()), 120)


def _folded(line: str, width: int = 112) -> list[str]:
    """Break a line into lines of at most this width where spaces allow."""
    found = [""]
    for word in line.split(" "):
        if found[-1] and len(found[-1]) + len(word) >= width:
            found.append("")
        found[-1] += f" {word}" if found[-1] else word
    return found
