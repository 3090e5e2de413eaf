"""Types of text that may stand in generated C: an identifier (`CName`) or part of a comment (`CComment`).

Each type makes itself from any text, or refuses it, so that a value of the type is always harmless; functions that
print C take these types where the model's names and sizes go.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Self

_KEYWORDS = """
_Alignas _Alignof _Atomic _Bool _Complex _Generic _Imaginary _Noreturn _Static_assert _Thread_local alignas alignof
asm auto bool break case char const constexpr continue default do double else enum extern false float for goto if
inline int long nullptr register restrict return short signed sizeof static static_assert struct switch thread_local
true typedef typeof typeof_unqual union unsigned void volatile while"""
KEYWORDS = frozenset(_KEYWORDS.split())
"""Keywords of C11, C23 and GNU C."""
COMMENT_LENGTH = 400
"""Characters of a line of a comment; longer ones are cut."""
_IDENTIFIER = re.compile(r"[A-Za-z_][A-Za-z0-9_]*", re.ASCII)
_OPAQUE = re.compile(r"[^\x20-\x7e]")
_SPACE = re.compile(r"[\t\n\v\f\r]+")
_PAIRS = re.compile(r"\*(?=/)|/(?=\*)|\?(?=\?)")


class CName(str):
    """An identifier of generated C; ValueError for other text."""

    __slots__ = ()

    def __new__(cls, text: str) -> Self:
        if not _IDENTIFIER.fullmatch(text) or text in KEYWORDS:
            raise ValueError(f"{text[:COMMENT_LENGTH]!r} is no C identifier")
        return super().__new__(cls, text)

    def then(self, more: str) -> CName:
        """Append to this identifier."""
        return CName(self + more)


class CComment(str):
    """A line of a comment in generated C.

    It is printable ASCII, has no end or beginning of a comment in it and none of the trigraphs, does not end with a
    backslash, and is at most COMMENT_LENGTH long, give or take the characters that keep pairs apart.
    """

    __slots__ = ()

    def __new__(cls, text: str) -> Self:
        made = _PAIRS.sub(lambda m: f"{m[0]} ", _OPAQUE.sub(_escaped, cut(_SPACE.sub(" ", text).rstrip())))
        return super().__new__(cls, f"{made} ." if made.endswith("\\") else made)


def cut(text: str, length: int = COMMENT_LENGTH) -> str:
    """Cut a long text to its beginning and end."""
    return text if len(text) <= length else f"{text[: length - 60]} ... {text[-50:]}"


def _escaped(found: re.Match[str]) -> str:
    return found[0].encode("unicode_escape", "surrogatepass").decode("ascii")


def block_comment(lines: Iterable[CComment], last: str = " */") -> str:
    """Print the lines as a comment of their own. `last`: how it ends."""
    return "/*" + "\n *".join(f" {line}" if line else "" for line in lines) + last


def remark(text: str) -> str:
    """Print a comment that follows code."""
    return f"/* {CComment(text)} */"
