"""C identifiers for names of the user's model: valid, unique, and the same from run to run."""

from __future__ import annotations

import re

from irc.backends.c_expr import MATH, PREDICATES

_KEYWORDS = """auto break case char const continue default do double else enum extern float for goto if inline int
long register restrict return short signed sizeof static struct switch typedef union unsigned void volatile while
asm typeof main NULL NAN INFINITY memcpy memset in out ctx arena pool dims out_dims arg begin end args linux unix
int8_t int16_t int32_t int64_t uint8_t uint16_t uint32_t uint64_t size_t uintptr_t base"""


def _reserved() -> frozenset[str]:
    functions = {v.replace("$", s) for v in MATH.values() for s in ("", "f")} | set(PREDICATES)
    return frozenset(_KEYWORDS.split()) | functions


RESERVED = _reserved()


def identifier(name: str) -> str:
    """The name with everything that C does not allow replaced by one underscore."""
    text = re.sub(r"_?[^A-Za-z0-9_]+", "_", name).strip("_") or "v"
    if text[0].isdigit() or text.startswith("irc_"):
        text = f"v{text}"
    return text[:60]


def stem(name: str) -> str:
    """The name without a number that counts up over a whole process (`r123`, `d?7`)."""
    return "r" if re.fullmatch(r"r\d+", name) else name.split("?", maxsplit=1)[0]


class Names:
    """Hands out identifiers, each once."""

    def __init__(self, taken: frozenset[str] = RESERVED) -> None:
        self.taken = set(taken)

    def unique(self, wanted: str, numbered: bool = False) -> str:
        """`wanted`, or `wanted_2`, `wanted_3` …; with `numbered` `wanted0`, `wanted1` …"""
        base = identifier(wanted)
        if not numbered and base not in self.taken:
            self.taken.add(base)
            return base
        count = 0 if numbered else 2
        pattern = "{}{}" if numbered else "{}_{}"
        while (found := pattern.format(base, count)) in self.taken:
            count += 1
        self.taken.add(found)
        return found
