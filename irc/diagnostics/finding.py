"""`Diagnostic`: a finding, its place in the user's file, and its lines for people."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from irc.diagnostics.code import Severity
from irc.diagnostics.terminal import TerminalText

COLOURS = {"error": "bold red", "warning": "bold yellow", "note": "bold cyan"}

Line = list[tuple[str, str]]
"""Pieces of a line, each with a rich style ("" for none)."""


@dataclass(frozen=True)
class Loc:
    """A place in the user's file.

    `where` names it in the file's own terms (`layer 57 "encoder/MatMul" (MatMul, opset1)`,
    `graph main, node 12 "conv1"`).  `position` finds line and column (1-based) and runs only
    when somebody asks, because exact XML positions need a second pass over the file.
    """

    file: str = ""
    where: str = ""
    position: Callable[[], tuple[int, int] | None] | None = field(default=None, compare=False, repr=False)

    def resolve(self) -> tuple[int | None, int | None]:
        found = self.position() if self.position else None
        return found or (None, None)

    @property
    def line(self) -> int | None:
        return self.resolve()[0]

    @property
    def column(self) -> int | None:
        return self.resolve()[1]


NOWHERE = Loc()


@dataclass(frozen=True)
class Diagnostic:
    """A finding: what is wrong, where, the facts, and a way out."""

    code: str
    severity: Severity
    message: str
    location: Loc = NOWHERE
    notes: tuple[str, ...] = ()
    help: str = ""

    def __str__(self) -> str:
        return plain(self.lines())

    def place(self) -> str:
        """`model.xml:1834:5  layer 57 …`, as much of it as is known."""
        line, column = self.location.resolve()
        place = self.location.file
        if place and line:
            place += f":{line}" + (f":{column}" if column else "")
        return "  ".join(part for part in (place, self.location.where) if part)

    def lines(self) -> list[Line]:
        """The form for people: a headline, the place, the facts, a way out."""
        style = COLOURS[self.severity]
        lines: list[Line] = [[(f"{self.severity}[{self.code}]", style), (f": {self.message}", "bold")]]
        place = self.place()
        if place:
            lines.append([("  --> ", "blue"), (place, "")])
        lines += [[("   = ", "blue"), (note, "")] for note in self.notes]
        explain = f"irc explain {self.code}"
        if self.help:
            lines.append([("   = ", "blue"), (f"help: {self.help}     ", ""), (f"({explain})", "dim")])
        else:
            lines.append([("   = ", "blue"), (f"help: {explain}", "")])
        return lines


def plain(lines: Iterable[Line]) -> TerminalText:
    """Lines without their styles."""
    return TerminalText.lines("".join(TerminalText(text) for text, _ in line) for line in lines)
