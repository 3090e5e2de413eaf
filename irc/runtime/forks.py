"""Renewal of locks and threads in a forked child.

A fork copies locks as they are, and threads not at all: a lock that another thread held stays taken in the child for
ever, and what that thread was writing stays half written.
"""

from __future__ import annotations

import os
import threading
import weakref
from typing import Protocol

from irc.diagnostics.codes import runtime_io as codes
from irc.runtime.errors import failure

WAIT = 10.0
"""Seconds that a fork waits at most for a call to end."""


class Forked(Protocol):
    """An object with locks or threads."""

    def before_fork(self) -> None:
        """Wait for what a fork would break; called in the thread that forks."""
        ...

    def after_fork_in_parent(self) -> None:
        """Release what `before_fork` took."""
        ...

    def after_fork(self) -> None:
        """Make locks and threads anew; called in the child, before anything else runs there."""
        ...


class _Forks:
    """All objects that must know of a fork; one fork at a time."""

    def __init__(self) -> None:
        self.known: weakref.WeakSet[Forked] = weakref.WeakSet()
        self.lock = threading.Lock()
        self.told: list[Forked] = []

    def before(self) -> None:
        self.lock.acquire()
        self.told = list(self.known)
        for holder in self.told:
            holder.before_fork()

    def in_parent(self) -> None:
        told, self.told = self.told, []
        for holder in told:
            holder.after_fork_in_parent()
        self.lock.release()

    def in_child(self) -> None:
        told, self.told, self.lock = self.told, [], threading.Lock()
        for holder in told:
            holder.after_fork()


_forks = _Forks()
if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=_forks.before, after_in_parent=_forks.in_parent, after_in_child=_forks.in_child)


def renew_after_fork(holder: Forked) -> None:
    """Notify `holder` of every fork, as long as it lives."""
    _forks.known.add(holder)


class Turns:
    """Turns of the calls of one compiled model, and what becomes of its variables in a fork.

    Where no call was running, the child goes on with the values that the parent had.  Where one was, they were about
    to change: the child refuses to run until they are reset, rather than go on with either.

    waits: whether a fork waits for the call (`WAIT` seconds at most), because it computes with libraries that do not
    survive one: OpenBLAS, which NumPy brings, ends its threads in a fork, and the call then waits for them for ever.
    """

    def __init__(self, model: str, has_state: bool, waits: bool) -> None:
        self.lock = threading.Lock()
        self.model, self.has_state, self.waits, self.lost = model, has_state, waits, False
        self._held = False  # by the thread that forks

    def before_fork(self) -> None:
        self._held = self.waits and self.lock.acquire(timeout=WAIT)

    def after_fork_in_parent(self) -> None:
        if self._held:
            self.lock.release()
        self._held = False

    def after_fork(self) -> bool:
        """Make the lock anew. Returns whether a call was running."""
        interrupted = self.lock.locked() and not self._held
        self.lock, self._held = threading.Lock(), False
        self.lost |= interrupted and self.has_state
        return interrupted

    def require_state(self) -> None:
        """Check that the variables have definite values. Raises RunError IRC6326."""
        if self.lost:
            raise failure(codes.STATE_LOST, model=self.model)
