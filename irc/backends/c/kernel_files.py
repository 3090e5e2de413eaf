"""Which kernels stand in which of the files that the compiler works on at the same time."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TypeVar

from irc.backends.c.function import Kernel, Signature
from irc.kernels.core.text import Part, needed, own

T = TypeVar("T")
Source = tuple[Kernel, Sequence[Part]]
LOOPS_PART = 100000
"""Characters of the functions of loops that are worth a file of their own: a compiler takes 0.04 s for an empty one."""
PART, KERNEL_PART = 40000, 150000
"""The same for kernels, several of which are compiled together: of little text, and of much."""
_CUT = 1.6
"""Shares of a file that kernels must fill, with what they share, to be divided."""


def effort_of(group: Signature) -> int:
    """Rank how long the compiler takes for a group, in characters of loops: calls are not optimised."""
    return len(group.text) if group.loops else len(group.text) * 2 // 5


def divide(sources: Sequence[Source]) -> list[list[Source]]:
    """Divide kernels among files of nearly equal length, so that two compilers are done at about one time.

    Those that share their longest piece stay together, because each file has it, and is compiled with it.
    """
    lengths = {k.symbol: (len(own(parts)), {p.name: len(p.code) for p in needed(parts)}) for k, parts in sources}
    places = {k.symbol: place for place, (k, _) in enumerate(sources)}

    def length(some: Iterable[Source]) -> int:
        found = [lengths[k.symbol] for k, _ in some]
        pieces = {name: n for _, pieces in found for name, n in pieces.items()}
        return sum(n for n, _ in found) + sum(pieces.values())

    total = length(sources)
    enough = min(KERNEL_PART, max(-(-total // 4), PART))
    files: list[list[Source]] = [[] for _ in range(max(1, -(-total // enough)))]
    share = total / len(files)
    units: list[list[Source]] = []
    for group in together(sources):
        whole = length(group)
        count = round(whole / share) if whole > _CUT * share else 1
        units += parts_of(group, lambda source: lengths[source[0].symbol][0], count)
    for unit in sorted(units, key=length, reverse=True):
        least = min(files, key=lambda file: length([*file, *unit]))
        least += unit
    return [sorted(file, key=lambda source: places[source[0].symbol]) for file in files if file]


def together(sources: Sequence[Source]) -> list[list[Source]]:
    """Group kernels by the longest piece with a stem among theirs."""
    found: dict[str, list[Source]] = {}
    for source in sources:
        longest = max((p for p in needed(source[1]) if p.stem), key=lambda p: len(p.code), default=None)
        found.setdefault(source[0].symbol if longest is None else longest.name, []).append(source)
    return list(found.values())


def parts_of(items: Iterable[T], length: Callable[[T], int], count: int) -> list[list[T]]:
    """Divide the items, in order, into at most this many parts of nearly equal length."""
    lengths = [(item, length(item)) for item in items]
    total = sum(n for _, n in lengths)
    parts: list[list[T]] = [[] for _ in range(count)]
    at = 0
    for item, n in lengths:
        parts[min((2 * at + n) * count // (2 * total or 1), count - 1)].append(item)
        at += n
    return [part for part in parts if part]
