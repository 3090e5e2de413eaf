"""`Diagnostic`: a finding, its place in the user's file, and its lines for people."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol, runtime_checkable

from irc.diagnostics.code import Severity
from irc.diagnostics.terminal import TerminalText

COLOURS = {"error": "bold red", "warning": "bold yellow", "note": "bold cyan"}
EXCERPT_WIDTH = 70
"""Characters of a line of the file that are shown, so that a finding fits into 80 columns."""

Line = list[tuple[str, str]]
"""Pieces of a line, each with a rich style ("" for none)."""


class Spot(NamedTuple):
    """Where something stands: line and column (1-based; None in a file that has none), the text of that line, and
    which characters of it are meant."""

    line: int | None
    column: int | None
    text: str = ""
    start: int = 0
    width: int = 1


@runtime_checkable
class Shown(Protocol):
    """A position that can show its text."""

    def spot(self, part: str) -> Spot | None:
        """The place of a part (an attribute's name, `dim 2`, `input 0 dim 2`), or of the whole where there is none."""
        ...


@dataclass(frozen=True)
class Loc:
    """A place in the user's file.

    `where` names it in the file's own terms (`layer 57 "encoder/MatMul" (MatMul, opset1)`,
    `graph main, node 12 "conv1"`), `part` what of it is meant: an attribute, a `<dim>`.  `position` finds line and
    column (1-based) and runs only when somebody asks, because exact XML positions need a second pass over the file;
    one that is `Shown` also has the text.  `order` is where it stands in a file without lines.
    """

    file: str = ""
    where: str = ""
    position: Callable[[], tuple[int, int] | None] | None = field(default=None, compare=False, repr=False)
    part: str = field(default="", compare=False, repr=False)
    order: int = field(default=0, compare=False, repr=False)

    def spot(self) -> Spot | None:
        """The place with its text, as far as it is known."""
        if isinstance(self.position, Shown):
            return self.position.spot(self.part)
        found = self.position() if self.position else None
        return None if found is None else Spot(*found)

    def resolve(self) -> tuple[int | None, int | None]:
        found = self.spot()
        return (None, None) if found is None else (found.line, found.column)

    @property
    def line(self) -> int | None:
        return self.resolve()[0]

    @property
    def column(self) -> int | None:
        return self.resolve()[1]

    def __repr__(self) -> str:
        return f"<place {self.file}{': ' if self.file and self.where else ''}{self.where}>"


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

    def lines(self, more: tuple[str, ...] = ()) -> list[Line]:
        """The form for people: a headline, the place, the text there, the facts and `more` of them, a way out."""
        style = COLOURS[self.severity]
        lines: list[Line] = [[(f"{self.severity}[{self.code}]", style), (f": {self.message}", "bold")]]
        place = self.place()
        if place:
            lines.append([("  --> ", "blue"), (place, "")])
        lines += _excerpt(self.location.spot(), style)
        lines += [[("   = ", "blue"), (note, "")] for note in (*self.notes, *more)]
        explain = f"irc explain {self.code}"
        if self.help:
            lines.append([("   = ", "blue"), (f"help: {self.help}     ", ""), (f"({explain})", "dim")])
        else:
            lines.append([("   = ", "blue"), (f"help: {explain}", "")])
        return lines


def _excerpt(spot: Spot | None, style: str) -> list[Line]:
    """The line of the file, cut to the part that matters, and carets below what is meant."""
    if spot is None or not spot.text.strip():
        return []
    text, at = spot.text.replace("\t", " "), spot.start
    at -= len(text) - len(text.lstrip())
    text = text.strip()
    most = EXCERPT_WIDTH - len(str(spot.line or ""))
    width = max(1, min(spot.width, len(text) - at))
    room = max(0, most - width) // 2  # what is wider than the line is shown from its beginning
    begin = max(0, min(at - room, len(text) - most)) if len(text) > most else 0
    shown = text[begin : begin + most]
    if begin:
        shown = "…" + shown[1:]
    if begin + most < len(text):
        shown = shown[:-1] + "…"
    at -= begin
    number = f"{spot.line or '':>2}"
    gap = " " * len(number)
    carets = "^" * min(width, most - at)
    return [[(f"{number} | ", "blue"), (shown, "")], [(f"{gap} | ", "blue"), (" " * at, ""), (carets, style)]]


def in_order(found: Iterable[Diagnostic]) -> list[Diagnostic]:
    """Findings by their places: files as they come, in each of them from top to bottom; equal places as they come."""
    files: dict[str, int] = {}

    def key(d: Diagnostic) -> tuple[int, int, int]:
        file = files.setdefault(d.location.file, len(files))
        line, column = d.location.resolve()
        return file, line or d.location.order, column or 0

    return sorted(found, key=key)


def plain(lines: Iterable[Line]) -> TerminalText:
    """Lines without their styles."""
    return TerminalText.lines("".join(TerminalText(text) for text, _ in line) for line in lines)
