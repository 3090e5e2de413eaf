"""HTML of reports: `HtmlText`."""

from __future__ import annotations

from collections.abc import Mapping
from html import escape
from typing import LiteralString, Self

from irc.diagnostics.terminal import visible


class HtmlText(str):
    """Text or elements of an HTML page.  Made of any other text it shows that text, also within an attribute's quotes.

    Line ends stay, for titles; what is not to be read is escaped as on a terminal.
    """

    __slots__ = ()

    def __new__(cls, text: str) -> Self:
        if isinstance(text, cls):
            return text
        return super().__new__(cls, escape("\n".join(map(visible, text.split("\n"))), quote=True))

    @classmethod
    def element(cls, tag: LiteralString, *inside: str, **attributes: str) -> Self:
        """An element around texts and elements."""
        given = "".join(f' {name}="{cls(value)}"' for name, value in attributes.items())
        return str.__new__(cls, f"<{tag}{given}>{''.join(map(cls, inside))}</{tag}>")

    @classmethod
    def page(cls, template: LiteralString, parts: Mapping[str, HtmlText]) -> Self:
        """A page with its parts in the places that the template names, as `str.format` does."""
        return str.__new__(cls, template.format(**{name: cls(part) for name, part in parts.items()}))
