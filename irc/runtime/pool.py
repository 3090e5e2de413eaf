"""The thread pool that compiled models of this process share: one for each number of threads asked for."""

from __future__ import annotations

import ctypes
import os
import threading
from pathlib import Path

from irc.diagnostics.codes import runtime_io as codes
from irc.runtime.errors import failure

_pools: dict[tuple[int, int], tuple[ctypes.CDLL, int]] = {}  # (process, threads) → library and pool
_lock = threading.Lock()


def pool_for(library: Path | None, threads: int) -> int | None:
    """The address of an irc_pool; None for one thread.  A forked child makes its own.

    `library` is the artefact's copy of irc_rt; the first that is loaded serves all models.
    """
    if threads <= 1:
        return None
    key = os.getpid(), threads
    with _lock:
        if key not in _pools:
            if library is None or not library.is_file():
                raise failure(codes.NO_LIBRARY, path=library or "the artefact", holds="no thread pool (irc_rt)")
            loaded = ctypes.CDLL(str(library))
            loaded.irc_rt_create.restype, loaded.irc_rt_create.argtypes = ctypes.c_void_p, [ctypes.c_int]
            pool = loaded.irc_rt_create(threads)
            if not pool:
                raise failure(codes.NO_THREADS, threads=threads)
            _pools[key] = loaded, pool
        return _pools[key][1]
