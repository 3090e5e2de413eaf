# pyright: reportUnknownArgumentType=false, reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportAttributeAccessIssue=false
"""Regular expressions as deterministic automata over classes of Unicode characters.

The syntax is what RE2 and Python's `re` share; `$` and `\\z` are the end of the text, and classes such as \\d are
ASCII's, as in RE2.  What only one of the two has is refused.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from re import _constants as kinds, _parser as syntax  # type: ignore[attr-defined]
from typing import Any

import numpy as np

from irc.arrays import Array

LAST = 0x10FFFF
MOST_NODES, MOST_STATES = 20000, 2000
"""Sizes of automata beyond which a pattern is refused."""
Ranges = tuple[tuple[int, int], ...]
"""Characters, by the first and the last of each run."""
CATEGORIES: dict[Any, Ranges] = {
    kinds.CATEGORY_DIGIT: ((48, 57),),
    kinds.CATEGORY_SPACE: ((9, 10), (12, 13), (32, 32)),
    kinds.CATEGORY_WORD: ((48, 57), (65, 90), (95, 95), (97, 122)),
}
NEGATED: dict[Any, Any] = {
    kinds.CATEGORY_NOT_DIGIT: kinds.CATEGORY_DIGIT,
    kinds.CATEGORY_NOT_SPACE: kinds.CATEGORY_SPACE,
    kinds.CATEGORY_NOT_WORD: kinds.CATEGORY_WORD,
}
ASSERTIONS: dict[Any, str] = {
    kinds.AT_BEGINNING: "beginning",
    kinds.AT_BEGINNING_STRING: "beginning",
    kinds.AT_END: "end",
    kinds.AT_END_STRING: "end",
    kinds.AT_BOUNDARY: "boundary",
    kinds.AT_NON_BOUNDARY: "inside",
}
State = tuple[frozenset[int], bool, bool]
"""Nodes of a nondeterministic automaton, whether a character of a word came last, whether none has come."""


@dataclass(frozen=True)
class Automaton:
    """bounds: the first character of each class.  steps: [states, classes], the next state.  accepts: [states].

    It starts in state 0.
    """

    bounds: Array
    steps: Array
    accepts: Array


@dataclass
class Nodes:
    """A nondeterministic automaton: for each node its edges, to nodes by characters, by an assertion, or freely."""

    edges: list[list[tuple[Ranges | str | None, int]]] = field(default_factory=list[Any])

    def new(self) -> int:
        if len(self.edges) >= MOST_NODES:
            raise ValueError("it is too large")
        self.edges.append([])
        return len(self.edges) - 1

    def sequence(self, items: Iterable[Any], flags: int, start: int) -> int:
        """Append what matches one item after the other, from a node on.  Returns the node where it ends."""
        for kind, value in items:
            start = self.item(kind, value, flags, start)
        return start

    def item(self, kind: Any, value: Any, flags: int, start: int) -> int:
        """Append what matches one item of the syntax tree."""
        if kind == kinds.SUBPATTERN:
            _, added, removed, inner = value
            return self.sequence(inner, (flags | added) & ~removed, start)
        if kind == kinds.BRANCH:
            end = self.new()
            for branch in value[1]:
                self.edges[self.sequence(branch, flags, start)].append((None, end))
            return end
        if kind in (kinds.MAX_REPEAT, kinds.MIN_REPEAT):
            least, most, inner = value
            return self.repeat(least, most, inner, flags, start)
        end = self.new()
        if kind == kinds.AT:
            if flags & re.MULTILINE:
                raise ValueError("lines are not matched")
            self.edges[start].append((ASSERTIONS[value], end))
        else:
            self.edges[start].append((characters(kind, value, flags), end))
        return end

    def repeat(self, least: int, most: Any, inner: Any, flags: int, start: int) -> int:
        """Append `least` to `most` matches of the inner pattern."""
        for _ in range(least):
            start = self.sequence(inner, flags, start)
        if most == kinds.MAXREPEAT:
            again = self.new()
            self.edges[start].append((None, again))
            self.edges[self.sequence(inner, flags, again)].append((None, again))
            return again
        end = self.new()
        self.edges[start].append((None, end))
        for _ in range(least, most):
            start = self.sequence(inner, flags, start)
            self.edges[start].append((None, end))
        return end

    def here(self, state: State, word: bool, *holding: str) -> set[int]:
        """The nodes that a state leads to in front of a character, which is one of a word or is not."""
        nodes, after_word, nothing_yet = state
        holding += ("boundary" if after_word != word else "inside", *(["beginning"] if nothing_yet else []))
        found, waiting = set[int](), list(nodes)
        while waiting:
            node = waiting.pop()
            if node not in found:
                found.add(node)
                waiting += [to for on, to in self.edges[node] if on is None or on in holding]
        return found


def characters(kind: Any, value: Any, flags: int) -> Ranges:
    """The characters that an item matches."""
    if kind == kinds.LITERAL:
        found: Ranges = ((value, value),)
    elif kind == kinds.NOT_LITERAL:
        return complement(cased(((value, value),), flags))
    elif kind == kinds.ANY:
        return ((0, LAST),) if flags & re.DOTALL else complement(((10, 10),))
    elif kind == kinds.RANGE:
        found = (tuple(value),)
    elif kind == kinds.CATEGORY and value in CATEGORIES:
        return CATEGORIES[value]
    elif kind == kinds.CATEGORY and value in NEGATED:
        return complement(CATEGORIES[NEGATED[value]])
    elif kind == kinds.IN:
        items = [item for item in value if item[0] != kinds.NEGATE]
        union = tuple(run for k, v in items for run in characters(k, v, flags))
        return complement(union) if len(items) < len(value) else union
    else:
        raise ValueError(f"{str(kind).lower()} is not regular")
    return cased(found, flags)


def cased(runs: Ranges, flags: int) -> Ranges:
    """Add the other case of each letter where case does not matter."""
    if not flags & re.IGNORECASE:
        return runs
    letters = [chr(c) for first, last in runs for c in range(first, min(last, 0x24FF) + 1)]
    others = {o for letter in letters for o in (letter.lower(), letter.upper()) if len(o) == 1}
    return (*runs, *((ord(o), ord(o)) for o in others))


def complement(runs: Ranges) -> Ranges:
    """All other characters."""
    found, start = list[tuple[int, int]](), 0
    for first, last in sorted(runs):
        if first > start:
            found.append((start, first - 1))
        start = max(start, last + 1)
    return (*found, (start, LAST)) if start <= LAST else tuple(found)


def automaton(pattern: str, assertions: bool = True) -> Automaton:
    """Compile a pattern that must match all of a text, or, without assertions, any part of one.

    Raises ValueError, re.error or RecursionError.
    """
    spelled = re.sub(r"(?<!\\)((?:\\\\)*)\\z", r"\1\\Z", pattern)
    tree = syntax.parse(spelled, re.ASCII)
    nodes = Nodes()
    start = nodes.new()
    final = nodes.sequence(tree, tree.state.flags, start)
    if not assertions and any(isinstance(on, str) for edges in nodes.edges for on, _ in edges):
        raise ValueError("it asks what stands around a match")
    runs = {run for edges in nodes.edges for on, _ in edges if isinstance(on, tuple) for run in on}
    words = any(on in ("boundary", "inside") for edges in nodes.edges for on, _ in edges if isinstance(on, str))
    runs |= {*CATEGORIES[kinds.CATEGORY_WORD]} if words else set()
    bounds = sorted({0, *(first for first, _ in runs), *(last + 1 for _, last in runs if last < LAST)})
    in_word = [words and any(a <= c <= b for a, b in CATEGORIES[kinds.CATEGORY_WORD]) for c in bounds]
    order: list[State] = [(frozenset([start]), False, True)]
    numbers, steps = {order[0]: 0}, list[list[int]]()
    for state in order:  # which grows
        row: list[int] = []
        moves = {word: targets(nodes, nodes.here(state, word), bounds) for word in {*in_word}}
        for k, word in enumerate(in_word):
            following = (frozenset(moves[word][k]), word, False)
            if following not in numbers:
                numbers[following] = len(order)
                order.append(following)
                if len(order) > MOST_STATES:
                    raise ValueError("it is too large")
            row.append(numbers[following])
        steps.append(row)
    accepts = [final in nodes.here(state, False, "end") for state in order]
    return Automaton(np.array(bounds, np.int32), np.array(steps, np.int32), np.array(accepts, bool))


def targets(nodes: Nodes, state: Iterable[int], bounds: Sequence[int]) -> list[set[int]]:
    """The nodes that a state leads to by a character of each class."""
    found: list[set[int]] = [set() for _ in bounds]
    for node in state:
        for on, to in nodes.edges[node]:
            if isinstance(on, tuple):
                for first, last in on:
                    for k in range(bisect_right(bounds, first) - 1, bisect_right(bounds, last)):
                        found[k].add(to)
    return found
