"""Measures which kernel is the fastest for each product and convolution of a model (`irc compile --tune`).

Selection estimates cycles; here every candidate for a work of known sizes runs on its own, on memory like the model's,
in turn with the others.  A choice that differs from the estimate's must be faster by `MARGIN`.  Choices are kept
by `irc.runtime.tuned`, and `irc.driver` follows them wherever artefacts are cached.
"""

from __future__ import annotations

import ctypes
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np

from irc import driver
from irc.arrays import Array
from irc.expr import constant_of
from irc.ir.graph import Constant, Model, Node
from irc.kernels import PROTOTYPES
from irc.kernels.core.base import Kernel
from irc.kernels.core.choices import Recorder
from irc.kernels.core.invocation import argument_struct
from irc.kernels.core.workspace import MOST, aligned
from irc.runtime import cache, tuned
from irc.runtime.pool import pool_for
from irc.selection.selector import KernelOp
from irc.toolchain import c_compiler, libraries, processor

MARGIN = 0.03
"""By how much another kernel than the estimate's must be faster."""
ROUNDS, SECONDS, LEAST = 5, 0.005, 5e-5
"""Of each candidate: how often it has its turn, how long that is, and the shortest time that is read off a clock."""
ROTATED = 32 << 20
"""Bytes of copies of constants that calls take in turn: a model's weights are not in the caches when it needs them."""
MOST_COPIES = 16
BYTES = 56
"""Spread of unsigned bytes that stand for activations, twice that of signed ones; how large bytes are decides how long
some kernels take (`irc.kernels.integer.saturating`)."""
PER_FILE = 6
Timer = Callable[[Sequence[Callable[[int], None]]], Sequence[float]]


@dataclass
class Case:
    """A call of a kernel: its sizes, and the memory it needs.

    operands: of each, its array's elements and type, where the kernel's begins, and the constant that it is, if it is.
    """

    kernel: Kernel[Any]
    sizes: list[int]
    operands: list[tuple[int, Any, int, Constant | None]]
    result: tuple[int, Any]
    scratch: int
    layer: str


@dataclass
class Tuned:
    """What `tune` did: seconds of candidates by work and name, the estimate's first; `chosen` where that is another."""

    times: dict[str, dict[str, float]] = field(default_factory=dict[str, dict[str, float]])
    chosen: dict[str, str] = field(default_factory=dict[str, str])
    known: int = 0
    layers: dict[str, str] = field(default_factory=dict[str, str])


def tune(
    model: Model,
    options: driver.CompileOptions,
    timer: Timer | None = None,
    tell: Callable[[str], None] = lambda text: None,
) -> Tuned:
    """Measure what is not known yet of a model's kernels, and keep the choices.  CompileError, RunError, OSError.

    timer: seconds of each of some functions, of which each takes the number of the call (for tests).
    """
    compiler = c_compiler.require_compiler()
    target = c_compiler.resolve_target(options.target, compiler)
    processor.check_features(target.name, target.machine, target.features)
    name = tuned.table_name(target, compiler, options.threads)
    table = tuned.read(name)
    works = candidates(model, options, target)
    found = Tuned(known=len(works.keys() & table.keys()))
    works = {work: cases for work, cases in works.items() if work not in table}
    if not works:
        return found
    tell(f"compiling {sum(map(len, works.values()))} kernels")
    library, pool = _build(works, target, compiler, options.threads)
    timer = timer or partial(interleaved, clock=time.thread_time if pool is None else time.perf_counter)
    for count, (work, cases) in enumerate(works.items(), 1):
        tell(f"measuring {count} of {len(works)}: {work}")
        runs = [_runner(case, library, pool) for case in cases.values()]
        seconds = dict(zip(cases, timer(runs), strict=True))
        best = choose(seconds)
        found.times[work], found.layers[work], table[work] = seconds, next(iter(cases.values())).layer, best
        if best != next(iter(seconds)):
            found.chosen[work] = best
    tuned.write(name, table)
    return found


def choose(seconds: Mapping[str, float]) -> str:
    """The estimate's candidate, which is the first, unless another one is faster by the margin."""
    rule, best = next(iter(seconds)), min(seconds, key=lambda name: seconds[name])
    return best if seconds[best] < (1 - MARGIN) * seconds[rule] else rule


def candidates(model: Model, options: driver.CompileOptions, target: c_compiler.Target) -> dict[str, dict[str, Case]]:
    """By work and name, the kernels that a model's graph has when each candidate is taken in turn; two at least."""
    found: dict[str, dict[str, Case]] = {}
    turn = most = 0
    while turn <= most:
        recorder = Recorder(turn)
        for node in driver.graph_of_kernels(model, options, target, recorder).nodes:
            named = recorder.of(node.op.kernel) if isinstance(node.op, KernelOp) else None
            case = _case(node) if named and named[1] not in found.get(named[0], {}) else None
            if named and case is not None:
                found.setdefault(named[0], {})[named[1]] = case
        turn, most = turn + 1, recorder.most - 1
    return {work: cases for work, cases in found.items() if len(cases) > 1}


def _case(node: Node) -> Case | None:
    """The call that a node stands for; None where a size is symbolic."""
    op, result = node.op, node.outputs[0]
    assert isinstance(op, KernelOp)
    sizes, starts = [constant_of(e) for e in op.sizes], [constant_of(e) for e in op.starts]
    read = [v for k, v in enumerate(node.inputs) if k != op.part_of]  # not what the result is a part of, and as large
    shapes = [v.tensor for v in (*read, result) if v is not None]
    if None in sizes or None in starts or not op.scratch.is_const or len(shapes) != len(read) + 1:
        return None
    if not all(d.is_const for t in shapes for d in t.dims()):
        return None
    counts = [int(t.elements()) for t in shapes]
    types = [np.dtype(f"V{t.dtype.itemsize}") if t.dtype.name == "bf16" else t.dtype.numpy for t in shapes]
    operands = [
        (count, dtype, start or 0, None if v is None else v.const)
        for count, dtype, start, v in zip(counts, types, starts, read, strict=False)
    ]
    return Case(op.kernel, [s or 0 for s in sizes], operands, (counts[-1], types[-1]), int(op.scratch), node.name)


# ------------------------------------------------------------------------------- running
def _build(
    works: Mapping[str, Mapping[str, Case]], target: c_compiler.Target, compiler: c_compiler.Compiler, threads: int
) -> tuple[Any, int | None]:
    """All kernels as one library, and the pool they run on."""
    kernels = {case.kernel.symbol: case.kernel for cases in works.values() for case in cases.values()}
    folder = cache.temporary_folder()
    folder.mkdir()
    names: list[str] = []
    sources = [kernel.source() for kernel in kernels.values()]
    for k in range(0, len(sources), PER_FILE):
        names.append(f"kernels_{k // PER_FILE}.c")
        (folder / names[-1]).write_text("\n".join([PROTOTYPES, *sources[k : k + PER_FILE]]), "utf-8")
    library = ctypes.CDLL(str(libraries.build(folder, names, target, compiler, extra=("-fvisibility=default",))))
    pool = None
    if threads > 1:
        pool = pool_for(libraries.build_runtime(cache.shared_folder("runtime"), compiler), threads)
    return library, pool


def _runner(case: Case, library: Any, pool: int | None) -> Callable[[int], None]:
    """A call of the kernel over memory of its own; its argument chooses among copies of the constants."""
    function = getattr(library, case.kernel.symbol)
    function.restype = None
    constant = sum(count * np.dtype(dtype).itemsize for count, dtype, _, const in case.operands if const)
    copies = min(MOST_COPIES, max(1, -(-ROTATED // max(constant, 1)))) if constant else 1
    kept: list[Any] = []
    random = np.random.default_rng(0)

    def memory(count: int, dtype: Any, values: Array | None = None) -> int:
        size = count * np.dtype(dtype).itemsize
        raw = np.zeros(size + 128, np.uint8)
        at = -raw.ctypes.data % 64
        if values is not None:
            raw[at : at + size].view(dtype)[...] = values
        kept.append(raw)
        return raw.ctypes.data + at

    def operand(count: int, dtype: Any, const: Constant | None = None) -> int:
        return memory(count, dtype, _values(random, count, dtype, const))

    scratch = [memory(case.scratch, np.uint8)] if "scratch" in dict(case.kernel.pointers) else []  # of no bytes too
    last = [memory(*case.result), *scratch]
    once = [None if const else operand(count, dtype) for count, dtype, _, const in case.operands]
    own: list[int] = []
    if case.kernel.has_workspaces:
        each = aligned(case.kernel.own_bytes(dict(zip(case.kernel.sizes, case.sizes, strict=True))))
        own = [memory(each * MOST, np.uint8), each, MOST]
    calls: list[ctypes.Structure] = []
    for _ in range(copies):
        pointers = [
            (operand(count, dtype, const) if shared is None else shared) + start * np.dtype(dtype).itemsize
            for (count, dtype, start, const), shared in zip(case.operands, once, strict=True)
        ]
        calls.append(argument_struct(case.kernel, [*pointers, *last, *case.sizes, *own]))
    threads = ctypes.c_void_p(pool)

    def run(number: int) -> None:
        function(threads, ctypes.byref(calls[number % copies]))

    run.memory = kept  # type: ignore[attr-defined]  # it must outlive the calls
    return run


def _values(random: np.random.Generator, count: int, dtype: Any, const: Constant | None) -> Array | None:
    """Draw so many elements that stand for an operand's, or read a constant of bytes; None: zeros will do."""
    if dtype in (np.float32, np.float64):
        return random.standard_normal(count).astype(dtype) * 0.1
    if dtype not in (np.uint8, np.int8):
        return None
    if const is not None:
        return const.read().reshape(-1)[:count].view(dtype)
    drawn = random.standard_normal(count) * BYTES
    return np.minimum(np.abs(drawn), 255) if dtype == np.uint8 else np.clip(drawn / 2, -128, 127)


def interleaved(runs: Sequence[Callable[[int], None]], clock: Callable[[], float]) -> list[float]:
    """Seconds of a call of each, the best of what several turns show: others may have the processor meanwhile."""
    best = [float("inf")] * len(runs)
    for run in runs:
        run(0)
    for _ in range(ROUNDS):
        for k, run in enumerate(runs):
            count = done = 0
            begin = since = clock()
            while (now := clock()) - begin < SECONDS or not done:
                if count and now - since >= LEAST:
                    best[k] = min(best[k], (now - since) / count)
                    count, since = 0, clock()
                run(done)
                count, done = count + 1, done + 1
            if count and now - since >= LEAST:
                best[k] = min(best[k], (now - since) / count)
    return best
