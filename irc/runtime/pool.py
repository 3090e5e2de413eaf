"""The thread pools that compiled models of this process share, one for each number of threads."""

from __future__ import annotations

import ctypes
import os
import threading
from pathlib import Path

from irc.diagnostics.codes import runtime_io as codes
from irc.runtime.errors import failure
from irc.runtime.forks import renew_after_fork


class _Face(ctypes.Structure):
    """An irc_pool (irc_rt.h) of ours, filled with what irc_rt made.

    Contexts point to it, and find another pool in it after a fork.
    """

    _fields_ = (("self", ctypes.c_void_p), ("parallel_for", ctypes.c_void_p))


class Pools:
    """The pools of this process.  A forked child, which has none of the threads, makes its own at the first run."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._faces: dict[int, _Face] = {}  # by threads; never removed, because contexts point to them
        self._filled: dict[int, int] = {}  # threads → the process in which the pool was made
        self._library: ctypes.CDLL | None = None
        renew_after_fork(self)

    def before_fork(self) -> None:
        """Do nothing: no pool is waited for."""

    def after_fork_in_parent(self) -> None:
        """Do nothing."""

    def after_fork(self) -> None:
        """Give the child a lock that nobody holds."""
        self._lock = threading.Lock()

    def address(self, library: Path | None, threads: int) -> int:
        """Return the address of an irc_pool whose threads run in this process. Raises RunError."""
        with self._lock:
            face = self._faces.setdefault(threads, _Face())
            if self._filled.get(threads) != os.getpid():
                made = self._make(library, threads)
                face.self, face.parallel_for = made.self, made.parallel_for
                self._filled[threads] = os.getpid()
            return ctypes.addressof(face)

    def _make(self, library: Path | None, threads: int) -> _Face:
        if self._library is None:
            if library is None or not library.is_file():
                raise failure(codes.NO_LIBRARY, path=library or "the artefact", holds="no thread pool (irc_rt)")
            self._library = ctypes.CDLL(str(library))
            self._library.irc_rt_create.restype = ctypes.c_void_p
            self._library.irc_rt_create.argtypes = [ctypes.c_int]
        made = self._library.irc_rt_create(threads)
        if not made:
            raise failure(codes.NO_THREADS, threads=threads)
        return _Face.from_address(made)


_pools = Pools()


def pool_for(library: Path | None, threads: int) -> int | None:
    """Return the address of an irc_pool; None for one thread.

    `library` is the artefact's copy of irc_rt; the first that is loaded serves all models.
    """
    return None if threads <= 1 else _pools.address(library, threads)
