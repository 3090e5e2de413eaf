"""Collecting circles of objects rarely, while very many are made that stay."""

from __future__ import annotations

import gc
from collections.abc import Generator
from contextlib import contextmanager
from threading import Lock

_RARELY = (500_000, 20, 20)
"""Objects that are made before the youngest are looked at, and how often that is done before older ones are, too."""


class _Blocks:
    """The blocks that are under way, in all threads, and what the collector is set to outside of them."""

    def __init__(self) -> None:
        self.lock = Lock()
        self.count = 0
        self.outside: tuple[int, int, int] = (0, 0, 0)


_blocks = _Blocks()


@contextmanager
def collecting_rarely() -> Generator[None]:
    """Look for garbage seldom inside the block: a tenth of the time that a model takes to compile would go into it."""
    with _blocks.lock:
        if _blocks.count == 0:
            _blocks.outside = gc.get_threshold()
            if _blocks.outside[0]:  # else it never does so by itself
                gc.set_threshold(*_RARELY)
        _blocks.count += 1
    try:
        yield
    finally:
        with _blocks.lock:
            _blocks.count -= 1
            if _blocks.count == 0:
                gc.set_threshold(*_blocks.outside)


def collect_youngest() -> None:
    """Look at what was made inside the block now, while a core has nothing to do, rather than at its end.

    Nothing is done where the collector is off, or does nothing by itself.
    """
    if gc.isenabled() and gc.get_threshold()[0]:
        gc.collect(0)
