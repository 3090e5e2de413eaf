"""What is known of a value when compiling: itself, or its element type, rank and number of elements."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass
from functools import reduce
from typing import Any

import numpy as np

from irc.backends.numpy.literals import literal


@dataclass(frozen=True, eq=False)
class Known:
    """The value itself."""

    value: Any


@dataclass(frozen=True)
class Array:
    """An array (of rank 0: or a NumPy scalar); None: any element type, any rank."""

    dtype: np.dtype[Any] | None = None
    rank: int | None = None


@dataclass(frozen=True)
class Scalar:
    """A number of Python's: int, float or bool."""

    kind: type


@dataclass(frozen=True)
class Items:
    """A tuple or list of so many values."""

    items: tuple[Fact, ...]
    kind: type = tuple


@dataclass(frozen=True)
class Other:
    """Anything."""


Fact = Known | Array | Scalar | Items | Other
OTHER = Other()
INT, FLOAT, BOOL = Scalar(int), Scalar(float), Scalar(bool)


def key(fact: Fact) -> Hashable:
    """Make a key that is equal for facts that say the same."""
    if isinstance(fact, Known):
        text = literal(fact.value)
        if text is not None:
            return "literal", text
        try:
            hash(fact.value)
        except TypeError:
            return "object", id(fact.value)
        return type(fact.value), fact.value  # pyright: ignore[reportUnknownVariableType]
    if isinstance(fact, Items):
        return "items", fact.kind, tuple(map(key, fact.items))
    return fact


def widened(fact: Fact) -> Fact:
    """Widen a known value to its type, rank or length; other facts stay."""
    if not isinstance(fact, Known):
        return fact
    value = fact.value
    for kind in (bool, int, float):
        if type(value) is kind:
            return Scalar(kind)
    if isinstance(value, np.ndarray | np.generic):
        return Array(value.dtype, value.ndim)  # pyright: ignore[reportUnknownMemberType, reportUnknownArgumentType]
    if type(value) in (tuple, list):
        return Items(tuple(Known(x) for x in value), type(value))  # pyright: ignore
    return OTHER


def joined(a: Fact, b: Fact) -> Fact:
    """Join two facts. Returns what holds of both."""
    if a is b or key(a) == key(b):
        return a
    a, b = widened(a), widened(b)
    if isinstance(a, Array) and isinstance(b, Array):
        return Array(a.dtype if a.dtype == b.dtype else None, a.rank if a.rank == b.rank else None)
    if isinstance(a, Items) and isinstance(b, Items) and a.kind is b.kind and len(a.items) == len(b.items):
        return Items(tuple(map(joined, a.items, b.items)), a.kind)
    return a if a == b else OTHER


def common(facts: Iterable[Fact]) -> Fact:
    """Join all the facts. Returns what holds of each."""
    found = list(facts)
    return reduce(joined, found) if found else OTHER


def sequence(items: Sequence[Fact], kind: type) -> Fact:
    """Make the fact of a tuple or list of these elements."""
    if all(isinstance(f, Known) for f in items):
        return Known(kind(f.value for f in items if isinstance(f, Known)))
    return Items(tuple(items), kind)


def parts(fact: Fact) -> list[Fact] | None:
    """List the facts of a sequence's elements. Returns None where their number is unknown."""
    if isinstance(fact, Items):
        return list(fact.items)
    if isinstance(fact, Known) and isinstance(fact.value, tuple | list | range | dict):
        return [Known(x) for x in fact.value]  # pyright: ignore
    return None


def element(fact: Fact) -> Fact:
    """Find what holds of every element that iteration yields."""
    found = parts(fact)
    if found is not None:
        return common(found)
    if isinstance(fact, Array):
        return Array(fact.dtype, None if fact.rank is None else fact.rank - 1)
    return OTHER
