"""What a forked child makes anew.

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


class Forked(Protocol):
    """Something with locks or threads."""

    def after_fork(self) -> None:
        """Make them anew; called in the child, before anything else runs there."""
        ...


_known: weakref.WeakSet[Forked] = weakref.WeakSet()


def renew_after_fork(holder: Forked) -> None:
    """Have `holder.after_fork()` called in every forked child, as long as it lives."""
    _known.add(holder)


def _in_child() -> None:
    for holder in list(_known):
        holder.after_fork()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_in_child)


class Turns:
    """The turns that calls of one compiled model take, and what becomes of its variables in a fork.

    Where no call was running, the child goes on with the values that the parent had.  Where one was, they were about
    to change: the child refuses to run until they are reset, rather than go on with either.
    """

    def __init__(self, model: str, has_state: bool) -> None:
        self.lock = threading.Lock()
        self.model, self.has_state, self.lost = model, has_state, False

    def after_fork(self) -> bool:
        """Make the lock anew; whether a call was running."""
        interrupted = self.lock.locked()
        self.lock = threading.Lock()
        self.lost |= interrupted and self.has_state
        return interrupted

    def require_state(self) -> None:
        """RunError IRC6326 where the variables have no definite values."""
        if self.lost:
            raise failure(codes.STATE_LOST, model=self.model)
