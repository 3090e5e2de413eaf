"""Kernels in the C of a program: their names, their descriptions, and lines of a length that people read.

A kernel calls itself by its symbol, which says all that it depends on.  In a program it has a short name: its function
begins with the program's prefix, what is local to its file with `irc_`; the symbol stands in the comment above.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from irc.backends.c.names import Names
from irc.backends.c.text import CComment, CName, block_comment

WIDTH = 120
"""Characters of a line of generated C, at most."""
SYMBOL = "@SYMBOL@"
"""Stands for a kernel's symbol where it is not to be renamed."""
_SPECIFIC = re.compile(r"_(?:f32|f64|amx|dot|\d|s\d)(?=[_x\d]|$).*")


@dataclass
class KernelNames:
    """The short names of a program's kernels, by symbol, in the order of their first call."""

    prefix: CName
    names: Names
    public: dict[str, CName] = field(default_factory=dict[str, CName])
    local: dict[str, CName] = field(default_factory=dict[str, CName])

    def add(self, symbol: str) -> None:
        """Draw names for a kernel, unless it has some."""
        if symbol not in self.public:
            short = f"{_SPECIFIC.sub('', symbol.removeprefix('irc_'))}{len(self.public) + 1}"
            self.local[symbol] = CName(f"irc_{short}")
            self.public[symbol] = self.names.within(self.prefix, short)

    def rename(self, symbol: str, code: str) -> str:
        """C of the kernel with this symbol, under its short names."""
        code = re.sub(rf"\b{symbol}(?=_)", self.local[symbol], code)
        return re.sub(rf"\b{symbol}\b", self.public[symbol], code)


def described(lines: Sequence[str], code: str) -> str:
    """A kernel's own code below one comment: its symbol (`SYMBOL`), what it computes, and the epilogue's formula."""
    comment = [part for line in [*lines, f"Kernel {SYMBOL}."] for part in _folded(line, WIDTH - 6)]
    return f"{block_comment(map(CComment, comment))}\n\n{code.lstrip()}"


_RESIDUES = (
    (re.compile(r"(?<=[\w)\]]) \* 1(?![\w.])"), ""),
    (re.compile(r"(?<=[(\[{])1 \* "), ""),
    (re.compile(r"(?<=[=,+?:<>-] )1 \* "), ""),
    (re.compile(r"(?<=return )1 \* "), ""),
    (re.compile(r"(?:(?<=[=,+] )|(?<=[(\[]))0(?: \* \w+)+ \+ "), ""),
    (re.compile(r"(?<=[\w)\]]) \+ 0(?: \* \w+)?(?=[,;)\]])"), ""),
    (re.compile(r"(?<=[\w)\]]) \+ 0(?: \* \w+)? (?=[+-] )"), " "),
    (re.compile(r"(?<=[(\[])0 \+ "), ""),
    (re.compile(r"(?<=\()1 && "), ""),
    (re.compile(r"(?<=[\w)\]]) && (?:1|\(!?\w+ \|\| 1\))(?=\))"), ""),
    (re.compile(r"\((!?\w+) \|\| 0\)"), r"\1"),
)
"""What templates leave of constants that count, or decide, nothing; of integers alone, which such constants are."""


def without_residues(code: str) -> str:
    """The code without factors 1, summands 0 and conditions that always hold."""
    for pattern, instead in _RESIDUES:
        code = pattern.sub(instead, code)
    return code


def in_lines(code: str) -> str:
    """The code with its long lines broken after commas and before operators, outermost first."""
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
    """A line of code and the comment behind it, which then stands above."""
    code, opened, comment = line.rpartition("/*")
    whole = opened and comment.endswith("*/") and code.strip()
    return (code.rstrip(), f"/*{comment}") if whole else (line, "")


def _place(line: str, indent: int) -> int | None:
    """Where a line is broken: at the shallowest level, as far right as it may be; not in texts."""
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
