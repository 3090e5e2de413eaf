"""Fuzz what generated C does with sizes and memory: any sizes, outputs in any memory, under the sanitizers.

Each row of `tests/ops/cases` is compiled with symbols for all sizes, and called with sizes of 0, 1, a few and many that
agree or do not.  C must refuse what NumPy refuses and give the same results otherwise; nothing may be read, written or
computed outside of what C allows, which AddressSanitizer and UndefinedBehaviorSanitizer tell.
"""

from __future__ import annotations

import os
import sys
import time
import traceback
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from random import Random
from typing import Any

import numpy as np

import irc
from irc.ir.graph import Model
from tests.fuzz.findings import Findings
from tests.fuzz.graphs import VARYING
from tests.fuzz.isolation import Death, place, renew_time, run_all
from tests.fuzz.oracle import Finding, plain
from tests.fuzz.peers import close, tolerance
from tests.fuzz.seeds import rows
from tests.support.perturbed import Symbolic, symbolic

Array = np.ndarray[Any, Any]
SECONDS = 90.0
CALLS = 40
"""Combinations of sizes that a compiled case is called with."""
MOST = 1 << 16
"""Elements of all inputs of a call together."""


def run_sanitized(folder: Path) -> None:
    """Start this command again with the sanitizers' library and a compiler that uses them, unless it has them."""
    from tests.kernels.test_every_compiler import COMPILER, sanitizer_library

    if "libasan" in os.environ.get("LD_PRELOAD", ""):
        return
    compiler = (folder / "cc").resolve()
    compiler.write_text(COMPILER)
    compiler.chmod(0o755)
    sanitizers = {"ASAN_OPTIONS": "detect_leaks=0", "UBSAN_OPTIONS": "print_stacktrace=1", "PYTHONMALLOC": "malloc"}
    environment = {**os.environ, **sanitizers, "CC": str(compiler), "LD_PRELOAD": sanitizer_library()}
    os.execve(sys.executable, [sys.executable, "-m", "tests.fuzz", *sys.argv[1:]], environment)


def fuzz_sizes(
    seed: int,
    findings: Findings,
    until: float,
    first: int = 0,
    last: int = 1 << 62,
    after_batch: Callable[[int], None] = lambda number: None,
) -> int:
    """Call compiled cases until that time (of time.monotonic) or before number `last`; the number of the next one."""
    number = first
    while time.monotonic() < until and number < last:
        origin = f"sizes seed {seed} number {number}"
        (answer,) = run_all(lambda n: [asdict(f) for f in examine_sizes(Random(f"sizes {seed} {n}"))], [number], None)
        if isinstance(answer, Death):
            case = drawn_case(Random(f"sizes {seed} {number}"))
            report = [line for line in answer.trace.splitlines() if "ERROR: Addr" in line or "runtime error" in line]
            kind = plain(report[0]) if report else answer.how
            findings.add(Finding("c", kind, case.op.name, f"{case}\n{answer.trace}"), {}, origin)
        else:
            for found in answer:
                findings.add(Finding(**found), {}, origin)
        number += 1
        after_batch(number)
    return number


def drawn_case(rng: Random) -> Any:
    """A row; the first thing that is drawn for a number."""
    return rng.choice([c for c in rows() if c.op.name not in VARYING])


def examine_sizes(rng: Random) -> list[Finding]:
    """What is wrong with a drawn case at drawn sizes; to be called in a child."""
    renew_time(SECONDS)
    made = symbolic(drawn_case(rng))
    if made is None:
        return []
    model = Model(made.graph, "onnx", 10, {"": 21})
    try:
        c, module = (irc.compile(model, backend=b, cache=False) for b in ("c", "numpy"))
    except irc.CompileError as e:
        wrong = [d for d in e.diagnostics if d.code.startswith(("IRC9", "IRC60"))]
        return [Finding("compile", wrong[0].code, made.case.op.name, f"{made.case}\n{e}")] if wrong else []
    found: list[Finding] = []
    for _ in range(CALLS):
        arrays = made.resized(drawn_shapes(made, rng))
        if sum(a.size for a in arrays) <= MOST:
            renew_time(SECONDS)
            found += compared(made, model, outcome(c, arrays), outcome(module, arrays), arrays)
            found += overlapping(made, c, arrays, rng)
    return found[:1]


def drawn_shapes(made: Symbolic, rng: Random) -> tuple[tuple[int, ...], ...]:
    """The case's shapes with some sizes changed: in one place or wherever they stand, to the same or each its own."""
    own = sorted({n for a in made.arrays for n in a.shape})
    change = {n: rng.choice((n, n, 0, 1, n + 1, 2 * n, 17, 65)) for n in own}
    stray = rng.choice((0.0, 0.0, 0.1, 0.5))
    return tuple(
        tuple(rng.choice((0, 1, n, n + 1, 3, 40)) if rng.random() < stray else change[n] for n in a.shape)
        for a in made.arrays
    )


def outcome(compiled: Any, arrays: list[Array]) -> Any:
    """The results, the code of a refusal, or a finding's text."""
    try:
        with np.errstate(all="ignore"):
            return compiled(arrays)
    except irc.RunError as e:
        return e.diagnostics[0].code
    except Exception:
        return traceback.format_exc()


def compared(made: Symbolic, model: Model, c: Any, module: Any, arrays: list[Array]) -> list[Finding]:
    """What C and NumPy say differently: results that differ, a refusal by one of them, an exception."""
    case, shapes = made.case, [a.shape for a in arrays]
    for who, got in (("c", c), ("numpy", module)):
        if isinstance(got, str) and not got.startswith("IRC"):
            return [Finding(who, plain(got.strip().splitlines()[-1]), place(got), f"{case} {shapes}\n{got}")]
    if isinstance(c, str) or isinstance(module, str):
        if isinstance(c, str) and isinstance(module, str):
            return []
        says = (f"C {c if isinstance(c, str) else 'runs'}", f"NumPy {module if isinstance(module, str) else 'runs'}")
        return [Finding("sizes", ", ".join(says), case.op.name, f"{case} {shapes}")]
    for value, x, y in zip(model.outputs, c, module, strict=True):
        if np.shape(x) != np.shape(y):
            return [Finding("sizes", "shapes differ", case.op.name, f"{case} {shapes}: {np.shape(x)}, {np.shape(y)}")]
        whole = np.asarray(x).dtype.kind in "biu"
        if not whole and not close(np.asarray(x), np.asarray(y), max(tolerance(model, value), case.rtol)):
            return [Finding("sizes", "differs", case.op.name, f"{case} {shapes}\n{x!r}\n{y!r}")]
    return []


def overlapping(made: Symbolic, c: Any, arrays: list[Array], rng: Random) -> list[Finding]:
    """An output in an input's memory, wholly or from some byte on: the results of a run apart from it, or refused."""
    wanted = outcome(c, arrays)
    if isinstance(wanted, str) or len(wanted) != 1 or not arrays:
        return []
    result = np.asarray(wanted[0])
    memory = np.zeros(result.nbytes + sum(a.nbytes for a in arrays) + 256, np.uint8)
    at, k = rng.choice((0, 0, result.itemsize, 64)), rng.randrange(len(arrays))
    given = memory[: arrays[k].nbytes].view(arrays[k].dtype).reshape(arrays[k].shape)
    given[...] = arrays[k]
    out = memory[at : at + result.nbytes].view(result.dtype).reshape(result.shape)
    try:
        c([*arrays[:k], given, *arrays[k + 1 :]], out=[out])
    except irc.RunError:
        return []
    same = np.array_equal(out.view(np.uint8), np.ascontiguousarray(result).view(np.uint8)) if result.ndim else True
    return [] if same else [Finding("out=", "differs", made.case.op.name, f"{made.case} {[a.shape for a in arrays]}")]
