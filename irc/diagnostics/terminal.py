"""Text for terminals and logs: `TerminalText`, in which nothing moves the cursor, changes colours or reorders letters.

`TerminalText(text)` is one line, whatever the text holds; what the command line prints goes through it.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Self

if TYPE_CHECKING:
    from rich.console import RenderableType

LONGEST = 10_000
"""Characters of a line; longer ones are cut."""


def visible(text: str) -> str:
    """The text with every character escaped that is none to read: control characters, line ends, marks of direction,
    unpaired surrogates."""
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else _escaped(c) for c in text)


def _escaped(character: str) -> str:
    return character.encode("unicode_escape", "surrogatepass").decode("ascii")


class TerminalText(str):
    """Lines of text that are harmless on a terminal; made of any other text, it is a single line."""

    __slots__ = ()

    def __new__(cls, text: str) -> Self:
        if isinstance(text, cls):
            return text
        more = len(text) - LONGEST
        return super().__new__(cls, visible(text) if more <= 0 else f"{visible(text[:LONGEST])} … ({more} more)")

    @classmethod
    def lines(cls, lines: Iterable[str]) -> Self:
        """Each text as a line."""
        return str.__new__(cls, "\n".join(map(cls, lines)))

    @classmethod
    def styled(cls, lines: Iterable[Sequence[tuple[str, str]]]) -> Self:
        """Lines of pieces, each with a rich style ("" for none), in colour."""
        from rich.text import Text

        made = [Text.assemble(*((str(cls(text)), style) for text, style in line)) for line in lines]
        return cls.drawn(made, colour=True, wrapped=False)

    @classmethod
    def drawn(
        cls, parts: Iterable[RenderableType], colour: bool, width: int | None = None, wrapped: bool = True
    ) -> Self:
        """What rich makes of tables and of texts without markup, whose texts are `TerminalText`s."""
        from io import StringIO

        from rich.console import Console

        out = StringIO()
        console = Console(
            file=out,
            force_terminal=colour,
            no_color=not colour,
            color_system="standard" if colour else None,
            width=width,
            highlight=False,
            markup=False,
            emoji=False,
        )
        for part in parts:
            console.print(part, soft_wrap=not wrapped or isinstance(part, str))
        return str.__new__(cls, "\n".join(line.rstrip() for line in out.getvalue().splitlines()))
