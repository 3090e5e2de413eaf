"""Limits of this machine: multiply-adds in registers and bytes read from memory per second.

Measured once for each number of threads by a small C program (limits.c), and kept with the artefact cache.
"""

from __future__ import annotations

import ctypes
import hashlib
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from irc.runtime import cache
from irc.toolchain import c_compiler, libraries
from irc.toolchain.processor import model_name

SOURCE = Path(__file__).with_name("limits.c")
MEGABYTES = 256
"""Memory that all threads together read: more than caches hold."""
ROUNDS = 20
SECONDS = 0.01


@dataclass(frozen=True)
class Limits:
    """flops: f32 operations per second, a multiply-add is two; bandwidth: bytes per second; of this many threads."""

    flops: float
    bandwidth: float
    threads: int


def limits(threads: int, again: bool = False, least: Limits | None = None) -> Limits | None:
    """Measure the limits of this many threads, or take them from the cache unless `again`; None without a C compiler.

    least: what was measured before, of which the result keeps what is larger.
    """
    compiler = c_compiler.find_compiler()
    if compiler is None:
        return None
    target = c_compiler.resolve_target("native", compiler)
    parts = (SOURCE.read_bytes(), compiler, target, model_name(), threads)
    key = f"limits:{hashlib.sha256(repr(parts).encode()).hexdigest()[:24]}"
    known = cache.remembered(key)
    if known is None or again:
        known = asdict(_measure(threads, _library(compiler, target)))
        if least is not None:
            known = {name: max(value, known[name]) for name, value in asdict(least).items()}
        cache.remember(key, known)
    return Limits(**known)


def _library(compiler: c_compiler.Compiler, target: c_compiler.Target) -> Any:
    folder = cache.temporary_folder()
    folder.mkdir()
    (folder / "kernels_limits.c").write_bytes(SOURCE.read_bytes())  # the name decides that it is compiled like kernels
    library: Any = ctypes.CDLL(str(libraries.build(folder, ["kernels_limits.c"], target, compiler)))
    library.irc_round.restype = ctypes.c_int64
    library.irc_multiply_add.restype = library.irc_read.restype = ctypes.c_float
    library.irc_multiply_add.argtypes = ctypes.c_int64, ctypes.c_float
    library.irc_read.argtypes = ctypes.c_void_p, ctypes.c_int64
    return library


def _measure(threads: int, library: Any) -> Limits:
    memory = np.ones(MEGABYTES << 18, np.float32)
    share = memory.size // threads // 1024 * 1024
    parts = [memory[k * share : (k + 1) * share].ctypes.data for k in range(threads)]
    rounds = 1000
    with ThreadPoolExecutor(threads) as pool:

        def multiply() -> None:
            list(pool.map(lambda _: library.irc_multiply_add(rounds, 0.5), parts))  # pyright: ignore

        def read() -> None:
            list(pool.map(lambda at: library.irc_read(at, share), parts))  # pyright: ignore

        while _best(multiply, 1) < SECONDS:
            rounds *= 2
        operations = library.irc_round() * rounds * threads
        return Limits(operations / _best(multiply, ROUNDS), 4 * share * threads / _best(read, ROUNDS), threads)


def _best(run: Callable[[], None], rounds: int) -> float:
    """Time the fastest of some runs, in seconds."""
    times: list[float] = []
    for _ in range(rounds):
        begin = time.perf_counter()
        run()
        times.append(time.perf_counter() - begin)
    return min(times)
