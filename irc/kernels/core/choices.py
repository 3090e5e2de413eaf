"""The choice among kernels: the one of the fewest estimated cycles, or one that was measured.

`irc.kernels.core.registry.select` asks `current().pick`; within `using(…)` that is another object than the estimate's.
"""

from __future__ import annotations

from collections.abc import Generator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, TypeVar

from irc.kernels.core.base import Kernel
from irc.kernels.core.workspace import MOST

K = TypeVar("K", bound=Kernel[Any])
Candidates = Mapping[str, K]
"""Kernels for the same work by names that are the same in every run, the cheapest by estimate first."""


class Choices:
    """The estimate's choice: the first candidate."""

    parts = MOST
    """Parts of a call that may run at the same time."""
    share = True
    """Whether kernels that differ in little may become one, which is none of those that were picked."""
    bands = True
    """Whether kernels that read one another's results may be called together."""

    def pick(self, key: str | None, candidates: Candidates[K]) -> K | None:
        """Pick one of the candidates for the work that `key` describes (None: sizes are symbolic)."""
        return next(iter(candidates.values()), None)


class Measured(Choices):
    """The candidates of a table, by the names of work and candidate; the estimate's for other work."""

    def __init__(self, table: Mapping[str, str]) -> None:
        self.table = table

    def pick(self, key: str | None, candidates: Candidates[K]) -> K | None:
        kernel = None if key is None else candidates.get(self.table.get(key, ""))
        return kernel if kernel is not None else super().pick(key, candidates)


class LowMemory(Choices):
    """The estimate's choices with less memory: in one thread; of kernels without memory of their own; of none."""

    THREADS, COPIES, KERNELS = range(1, 4)
    parts = 1

    def __init__(self, step: int) -> None:
        self.step = step

    def pick(self, key: str | None, candidates: Candidates[K]) -> K | None:
        if self.step == self.KERNELS:
            return None
        in_place = {n: k for n, k in candidates.items() if not k.has_workspaces and "scratch" not in dict(k.pointers)}
        return super().pick(key, in_place if in_place and self.step == self.COPIES else candidates)


class Recorder(Choices):
    """Takes every candidate in turn, and notes which kernel was which.

    turn: the number of the candidate to take, the last of those there are.  most: how many there were at most.
    """

    share = bands = False

    def __init__(self, turn: int) -> None:
        self.turn, self.most = turn, 0
        self.taken: dict[int, tuple[Kernel[Any], str, str]] = {}

    def pick(self, key: str | None, candidates: Candidates[K]) -> K | None:
        if key is None:
            return super().pick(key, candidates)
        fitting: dict[str, K] = {}
        for name, kernel in candidates.items():
            if kernel not in fitting.values():
                fitting[name] = kernel
        if not fitting:
            return None
        self.most = max(self.most, len(fitting))
        name, kernel = list(fitting.items())[min(self.turn, len(fitting) - 1)]
        self.taken[id(kernel)] = kernel, key, name
        return kernel

    def of(self, kernel: object) -> tuple[str, str] | None:
        """Return the work and the name of a kernel that was picked; None for others."""
        found = self.taken.get(id(kernel))
        return None if found is None else found[1:]


_current: ContextVar[Choices] = ContextVar("choices", default=Choices())  # noqa: B039  it has no state


def current() -> Choices:
    """Return the choices in force."""
    return _current.get()


@contextmanager
def using(choices: Choices) -> Generator[None]:
    """Let `choices` decide within the block."""
    token = _current.set(choices)
    try:
        yield
    finally:
        _current.reset(token)
