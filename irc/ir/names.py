"""Unique names."""

from __future__ import annotations

from collections.abc import Container


def unused(hint: str, taken: set[str], avoid: Container[str] = (), first: int = 2) -> str:
    """`hint` where that name is free, else `hint_2`, `hint_3` … (from `first` on); from then on it is taken.

    `avoid` are further names that must not be given.
    """
    name, n = hint, first
    while name in taken or name in avoid:
        name = f"{hint}_{n}"
        n += 1 if n < 1000 else len(taken)  # steps that grow: the next names of a hint are not all tried again
    taken.add(name)
    return name
