"""Kernels in the C of a program: their names, their descriptions, and lines of readable length.

A kernel calls itself by its symbol, which says all that it depends on.  In a program it has a short name: its function
begins with the program's prefix, what is local to its file with `irc_`; the symbol stands in the comment above.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field

from irc.backends.c.names import Names
from irc.backends.c.text import CComment, CName, block_comment
from irc.kernels.core.text import Piece

WIDTH = 120
"""Characters of a line of generated C, at most."""
SYMBOL = "@SYMBOL@"
"""Placeholder of a kernel's symbol where it must not be renamed."""
_SPECIFIC = re.compile(r"_(?:f32|f64|amx|dot|\d|s\d)(?=[_x\d]|$).*")
_OWN_NAME = re.compile(r"\birc_\w+")


@dataclass
class KernelNames:
    """The short names of a program's kernels and of what they share, in the order of their first use.

    public: of the kernels' functions.  local: what the names of a kernel's own definitions, or of a tile's, begin with.
    """

    prefix: CName
    names: Names
    public: dict[str, CName] = field(default_factory=dict[str, CName])
    local: dict[str, CName] = field(default_factory=dict[str, CName])

    def add(self, symbol: str) -> None:
        """Draw names for a kernel, unless it has some."""
        if symbol not in self.public:
            short = f"{_general(symbol)}_{len(self.public) + 1}"
            self.public[symbol] = self.names.own(f"{self.prefix}_{short}")
            self.local[symbol] = self.names.own(f"irc_{short}")

    def add_shared(self, pieces: Iterable[Piece]) -> None:
        """Draw names for the tiles among what kernels share, unless they have some."""
        for stem in (p.stem for p in pieces if p.stem and p.stem not in self.local):
            self.local[stem] = self.names.own(f"irc_{_general(stem)}_", numbered=True)

    def rename(self, code: str) -> str:
        """Put the short names into C of kernels."""
        return _OWN_NAME.sub(lambda found: self._short(found[0]), code)

    def _short(self, name: str) -> str:
        if (symbol := name.removesuffix("_args")) in self.public:
            return self.public[symbol] + name[len(symbol) :]
        stem = name
        while stem and stem not in self.local:
            stem = stem.rpartition("_")[0]
        return self.local[stem] + name[len(stem) :] if stem else name


def _general(name: str) -> str:
    """Cut a symbol down to the kind of a kernel or a tile, without what it is made for."""
    return _SPECIFIC.sub("", name.removeprefix("irc_"))


def described(lines: Sequence[str], code: str) -> str:
    """Put one comment above a kernel's own code: its symbol (`SYMBOL`), what it computes, the epilogue's formula."""
    comment = [part for line in [*lines, f"Kernel {SYMBOL}."] for part in _folded(line, WIDTH - 6)]
    return f"{block_comment(map(CComment, comment))}\n\n{code.lstrip()}"


def in_lines(code: str) -> str:
    """Break long lines of the code after commas and before operators, outermost first."""
    return "\n".join(part for line in code.split("\n") for part in _broken(line))


def _broken(line: str) -> Iterator[str]:
    if len(line) <= WIDTH or line.startswith("#"):
        yield line
        return
    code, remark = _split_comment(line)
    indent = len(code) - len(code.lstrip())
    if remark:
        yield from (" " * indent + part for part in _folded(remark, WIDTH - indent))
    rest, first = code, True
    while len(rest) > WIDTH:
        place = _place(rest, indent + (0 if first else 4))
        if place is None:
            break
        yield rest[:place].rstrip()
        rest, first = " " * (indent + 4) + rest[place:].lstrip(), False
    yield rest


def _split_comment(line: str) -> tuple[str, str]:
    """Split a line into code and the comment behind it, which is then printed above."""
    code, opened, comment = line.rpartition("/*")
    whole = opened and comment.endswith("*/") and code.strip()
    return (code.rstrip(), f"/*{comment}") if whole else (line, "")


def _place(line: str, indent: int) -> int | None:
    """Find the place to break a line: at the shallowest level, as far right as possible, not in texts."""
    depth, quoted = 0, False
    places: list[tuple[int, int]] = []
    for k, c in enumerate(line[:WIDTH]):
        quoted ^= c == '"' and line[k - 1] != "\\"
        if quoted:
            continue
        depth += (c in "([{") - (c in ")]}")
        behind = c == " " and (line[k - 1] in ",;{=" or re.match(r" (?:[-+?:] |\|\||&&|[*/] )", line[k : k + 4]))
        if behind and k > indent + 8:
            places.append((depth, k))
    if not places:
        return None
    shallow = min(d for d, _ in places)
    return max(k for d, k in places if d == shallow)


def _folded(text: str, width: int) -> list[str]:
    lines = [""]
    for word in text.split(" "):
        if lines[-1] and len(lines[-1]) + 1 + len(word) > width:
            lines.append("")
        lines[-1] += f" {word}" if lines[-1] else word
    return lines
