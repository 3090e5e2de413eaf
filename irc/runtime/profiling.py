"""Profiles: how long each function of a run takes, measured by a model that was compiled for profiling."""

from __future__ import annotations

import re
import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from irc.runtime.executor import CompiledModel
from irc.runtime.ports import size_for

WARM_UP, LEAST, MOST = 3, 5, 10_000
"""Runs before the measurement; fewest and most runs in it."""
_SIGNATURE = re.compile(r"^irc_|_(f32|f64|avx|sse|neon|plain|\d|[0-9a-f]{10}$).*")
"""What a kernel's symbol has besides its family."""


def family(symbol: str) -> str:
    """Name the family of the kernel of that symbol: `gemm`, `direct_conv`."""
    return _SIGNATURE.sub("", symbol)


@dataclass(frozen=True)
class Step:
    """A call of a function of the compiled model, for a group of layers.

    seconds: the mean of the faster half of all runs.  begin, end: in the run in their middle, from its beginning.
    flops: operations of its definition; executed: those that the processor executes for them; bytes: of the tensors
    that it reads and writes.  None where only running tells, or the backend does not count.  operands, results: the
    types of the tensors that it reads and writes, with symbols for sizes that vary.
    """

    function: str
    layers: tuple[str, ...]
    kernels: tuple[str, ...]
    seconds: float
    begin: float
    end: float
    flops: int | None
    executed: float | None
    bytes: int | None
    operands: tuple[str, ...] = ()
    results: tuple[str, ...] = ()


@dataclass(frozen=True)
class Profile:
    """The steps of a run in order.  seconds: of a whole run; rest: of it, copying outputs and state.

    All are means of the faster half of the runs: steps and rest add up, and what interrupts some runs does not count.
    """

    steps: list[Step]
    seconds: float
    rest: float
    runs: int


def measure(compiled: CompiledModel, call: Callable[[], Any], dims: Sequence[int], seconds: float) -> Profile:
    """Run a model compiled for profiling for about that long.  dims: what `symbol_values` gives for its inputs."""
    for _ in range(WARM_UP):
        call()
    runs: list[list[int]] = []
    until = time.perf_counter() + seconds
    while len(runs) < LEAST or (time.perf_counter() < until and len(runs) < MOST):
        call()
        runs.append(compiled.run_times())
    faster = sorted(runs, key=lambda r: r[-1] - r[0])[: (len(runs) + 1) // 2]
    middle = faster[len(faster) // 2]
    means = [statistics.fmean(r[k + 1] - r[k] for r in faster) / 1e9 for k in range(len(middle) - 1)]
    rows = compiled.artifact.manifest["profile"]
    steps = [
        _step(row, dims, means[k], *((t - middle[0]) / 1e9 for t in middle[k : k + 2])) for k, row in enumerate(rows)
    ]
    return Profile(steps, sum(means), means[-1], len(runs))


def _step(row: dict[str, Any], dims: Sequence[int], seconds: float, begin: float, end: float) -> Step:
    flops, read, written = (size_for(row[k], dims) for k in ("flops", "read", "written"))
    executed: float | None = None
    if flops is not None:
        inside = [(size_for(k["flops"], dims) or 0, k["executed"]) for k in row["kernels"]]
        executed = flops + sum(n * (factor - 1) for n, factor in inside)
    moved = None if read is None or written is None else read + written
    symbols = tuple(dict.fromkeys(k["symbol"] for k in row["kernels"]))
    types = tuple(row.get("operands", ())), tuple(row.get("results", ()))
    return Step(row["function"], tuple(row["layers"]), symbols, seconds, begin, end, flops, executed, moved, *types)
