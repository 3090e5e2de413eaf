"""Assembly of kernel text: templates with $names, pieces that kernels share, symbols made from signatures.

What a kernel is made of is a sequence of parts: strings, its own definitions; and `Piece`s, which a file has once
however many of its kernels need them.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from string import Template

from irc.kernels.core.folding import folded, marked

_IDENTIFIER = re.compile(r"[A-Za-z_]\w*", re.ASCII)
_EACH = re.compile(r"^((?:\$\w+)*)( *)EACH\(([^()]*)\) (.*)$", re.MULTILINE)
_STAND_IN = re.compile(r"irc0(\w+?)0irc")


def fill(text: str, **names: object) -> str:
    """Replace every $name in a template; a name without a value is an error.

    A line `EACH(i < $R, w < W) statement;` stands for unrolled loops from 0, one in the other; pieces may precede it.
    What a number would count or decide nothing in is written without it.
    """
    identifiers = {k: v for k, v in names.items() if isinstance(v, str) and _IDENTIFIER.fullmatch(v)}
    others = {k: _stand_in(k) if k in identifiers else marked(v) for k, v in names.items()}
    made = folded(
        Template(_with_loops(text)).substitute(others)
    )  # once for all kernels that differ in nothing but identifiers
    return _STAND_IN.sub(lambda found: identifiers[found[1]], made)


@cache
def _with_loops(text: str) -> str:
    """Write out the loops of a template."""
    return _EACH.sub(_loops, text)


def _loops(found: re.Match[str]) -> str:
    """Write out the loops of one line, the innermost without braces."""
    pieces, indent, limits, statement = found.groups()
    *outer, innermost = ((limit.split()[0], limit) for limit in limits.split(", "))
    before = after = ""
    for i, limit in outer:
        before += f"{indent}IRC_FULL_UNROLL\n{indent}for (int {i} = 0; {limit}; {i}++) {{\n"
        after = f"\n{indent}}}{after}"
        indent += "    "
    i, limit = innermost
    return f"{pieces}{before}{indent}IRC_FULL_UNROLL\n{indent}for (int {i} = 0; {limit}; {i}++) {statement}{after}"


def _stand_in(name: str) -> str:
    """Spell an identifier that stands for the one that a template is filled with for this name."""
    return f"irc0{name}0irc"


@dataclass(frozen=True)
class Piece:
    """C that kernels share, as static functions, types and macros.

    name: its identity; equal names mean equal code.  defines: the C names for whose sake it is there: a file in which
    nothing mentions one of them goes without it; of a piece that names none, every file has it that lists it.
    stem: what the names of its definitions begin with, if that says all that it depends on.
    """

    name: str
    code: str
    defines: tuple[str, ...] = ()
    stem: str = ""


Part = Piece | str | Sequence["Part"]
"""Parts stand behind those whose definitions they use."""


def piece(name: str, code: str, /, *defines: str, **names: object) -> Piece:
    """Make the piece whose name, code and definitions are these templates, filled."""
    return Piece(fill(name, **names), fill(code, **names), tuple(fill(d, **names) for d in defines))


def tile_body(stem: str, code: str, /, **names: object) -> Piece:
    """Make the body of a register tile, whose name says all that it depends on."""
    return Piece(f"IRC_TILE_{stem}", fill(code, **names), stem=stem)


def shared(stem: str, what: str, code: str) -> Piece:
    """Make a part, called `what`, of the functions that kernels share whose names begin with `stem`."""
    return Piece(f"IRC_SHARED_{stem}{what}", code, stem=stem)


def flat(parts: Iterable[Part]) -> Iterator[Piece | str]:
    """Yield the parts of nested sequences, in order."""
    for part in parts:
        if isinstance(part, Piece | str):
            yield part
        else:
            yield from flat(part)


def needed(parts: Iterable[Part]) -> list[Piece]:
    """Collect the pieces among the parts, each once, without those that nothing mentions."""
    pieces: dict[str, Piece] = {}
    mentioned: set[str] = set()
    for part in flat(parts):
        if isinstance(part, str):
            mentioned |= _words(part)
        elif pieces.setdefault(part.name, part).code != part.code:
            raise ValueError(f"two pieces are called {part.name}")
    kept: set[str] = set()
    while True:
        more = [p for p in pieces.values() if p.name not in kept and (not p.defines or mentioned & {*p.defines})]
        if not more:
            return [p for p in pieces.values() if p.name in kept]
        kept |= {p.name for p in more}
        mentioned |= {word for p in more for word in _words(p.code)}


@cache
def _words(code: str) -> frozenset[str]:
    return frozenset(re.findall(r"\w+", code))


def own(parts: Iterable[Part]) -> str:
    """Join the definitions that no other kernel has."""
    return "".join(part for part in flat(parts) if isinstance(part, str))


def standalone(parts: Sequence[Part]) -> str:
    """Print one kernel, which may stand in a file with other such texts: its pieces are guarded."""
    guarded = (f"#ifndef {p.name}_DEFINED\n#define {p.name}_DEFINED\n{p.code}#endif\n" for p in needed(parts))
    return "".join(guarded) + own(parts)


def symbol(*signature: object) -> str:
    """Make a C name for a signature: its words, and a hash of the last."""
    words = "_".join(str(s) for s in signature[:-1])
    last = str(signature[-1])
    return f"irc_{words}_{hashlib.sha256(last.encode()).hexdigest()[:10]}" if last else f"irc_{words}"


PROTOTYPES = """#include <stdint.h>
typedef struct irc_pool {
    void *self;
    void (*parallel_for)(void *self, int64_t n, void (*fn)(void *arg, int64_t begin, int64_t end), void *arg);
} irc_pool;
"""
