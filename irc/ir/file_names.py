"""File names for names of a model."""

from __future__ import annotations

import hashlib
import re
import unicodedata
from collections.abc import Iterable
from typing import Self

LONGEST = 100
"""Characters of a file name, without its ending; all are ASCII."""
MEMBER_LONGEST = 1000
"""Characters of a name in an archive."""
_DEVICES = re.compile(r"(?:con|prn|aux|nul|com[0-9]|lpt[0-9]|clock\$)(?:\.|$)", re.ASCII | re.IGNORECASE)
"""What Windows opens in every folder."""


class FileName(str):
    """A name of a file in a folder, without ending: letters, digits, `-`, `_` and `.`; ValueError for other text.

    It leads to no other folder, is not hidden, is no option, no device, and short enough for every file system.
    """

    __slots__ = ()

    def __new__(cls, text: str) -> Self:
        if not re.fullmatch(rf"[A-Za-z0-9_][A-Za-z0-9_.-]{{0,{LONGEST - 1}}}", text, re.ASCII) or _DEVICES.match(text):
            raise ValueError(f"{text[:LONGEST]!r} is no file name")
        return super().__new__(cls, text)


def file_names(names: Iterable[str]) -> list[FileName]:
    """A file name for each name, like it, and different also where capitals and small letters are one."""
    found: list[FileName] = []
    taken: set[str] = set()
    for name in names:
        base = _like(name)
        made, count = base, 2
        while made.lower() in taken:
            made, count = f"{base[: LONGEST - 12]}_{count}", count + 1
        taken.add(made.lower())
        found.append(FileName(made))
    return found


def _like(name: str) -> str:
    """The name with `_` for what does not belong into a file name; a digest tells long ones apart."""
    plain = unicodedata.normalize("NFKD", name[: 4 * LONGEST])
    made = re.sub(r"[^A-Za-z0-9_.-]", "_", re.sub(r"[\u0300-\u036f]", "", plain)).rstrip(".")
    if made[:1] in (".", "-") or _DEVICES.match(made):
        made = f"_{made[1:]}" if made[:1] in (".", "-") else f"_{made}"
    if len(name) > LONGEST or len(made) > LONGEST:
        digest = hashlib.sha256(name.encode("utf-8", "surrogatepass")).hexdigest()[:12]
        made = f"{made[: LONGEST - 13]}_{digest}"
    return made if made.strip("_") else "output"


def member_names(names: Iterable[str]) -> list[str]:
    """Names of the members of an archive: the names themselves where who unpacks it stays in the folder.

    Otherwise, and for a name that occurs again, what `file_names` makes of it.
    """
    given = list(names)
    plain = [n if _stays(n) else _like(n) for n in given]
    found: list[str] = []
    for name in plain:
        made, count = name, 2
        while made in found:
            made, count = f"{name}_{count}", count + 1
        found.append(made)
    return found


def _stays(name: str) -> bool:
    """Whether a name is safe in an archive as it is; `/` parts folders there, and unpacking drops a leading one."""
    parts = name.removeprefix("/").split("/")
    clean = len(name) <= MEMBER_LONGEST and name.isprintable() and not re.search(r'[\\:*?"<>|]', name)
    return clean and all(p and p.strip(". ") == p for p in parts)
