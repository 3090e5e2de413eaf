"""What a text must be to stand in a generated Python module: an identifier (`PyName`), part of a comment or docstring
(`PyComment`, `PyDocstring`)."""

from __future__ import annotations

import builtins
import keyword
import re
from collections.abc import Container
from typing import Self

from irc.ir.names import unused

LONGEST = 60
"""Characters of a model's name that an identifier keeps."""
COMMENT_LENGTH = 160
_DOC_LENGTH = 106
_OPAQUE = re.compile(r"[^\x20-\x7e]")
_MEANT = frozenset(keyword.kwlist) | frozenset(keyword.softkwlist) | frozenset(vars(builtins))
"""Names that mean something in Python: keywords and built-ins."""


class PyName(str):
    """An identifier of a generated module: ASCII, so that Python's normalising changes nothing, and without a meaning
    of its own; ValueError for other text."""

    __slots__ = ()

    def __new__(cls, text: str) -> Self:
        if not (text.isascii() and text.isidentifier()) or text in _MEANT:
            raise ValueError(f"{text[:COMMENT_LENGTH]!r} is no name for a variable")
        return super().__new__(cls, text)

    @classmethod
    def of_model(cls, wanted: str, taken: set[str], avoid: Container[str] = ()) -> Self:
        """Reserve an unused name like one of the model: `batch`, `batch_2` …."""
        made = re.sub(r"[^A-Za-z0-9_]+", "_", wanted[: 16 * LONGEST]).strip("_")[:LONGEST].rstrip("_") or "v"
        made = f"v{made}" if made[0].isdigit() else made
        return cls(unused(f"{made}_" if made in _MEANT else made, taken, avoid))


class PyComment(str):
    """A comment of a generated module, with its `#`: one line of printable ASCII, cut to COMMENT_LENGTH."""

    __slots__ = ()

    def __new__(cls, text: str) -> Self:
        return super().__new__(cls, f"# {_printable(text)}".rstrip())


class PyDocstring(str):
    """A docstring of one line, with its quotes: printable ASCII."""

    __slots__ = ()

    def __new__(cls, before: str, text: str = "", after: str = "") -> Self:
        """Quote text: `before` and `after` are irc's own; `text` is cut to COMMENT_LENGTH."""
        made = f"{before}{_printable(text)}{after}".replace("\\", "\\\\").replace('"', '\\"')
        return super().__new__(cls, f'"""{made}"""')


def docstring(text: str) -> str:
    """Make a docstring of one line from the first sentence of irc's own documentation of a function."""
    line = " ".join(text.split("\n\n", maxsplit=1)[0].split())
    if len(line) > _DOC_LENGTH:
        line = re.split(r"(?<=[.;:])\s|(?<=\))\. ", line)[0].rstrip(";:")
    made = line[:_DOC_LENGTH].replace("\\", "\\\\").replace('"' * 3, "'")
    return f'"""{made}{" " * made.endswith(chr(34))}"""'


def _printable(text: str) -> str:
    line = " ".join(text[: 4 * COMMENT_LENGTH].split())[:COMMENT_LENGTH]
    return _OPAQUE.sub(lambda m: m[0].encode("unicode_escape", "surrogatepass").decode("ascii"), line)


def snake(name: str) -> str:
    """Convert to snake case: SoftmaxCrossEntropy → softmax_cross_entropy."""
    parted = re.sub(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])", "_", name)
    return re.sub(r"[^A-Za-z0-9_]+", "_", parted).lower().strip("_") or "f"
