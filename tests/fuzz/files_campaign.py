"""Fuzz the readers: draw mutants, examine them, keep what is new, write down what is wrong."""

from __future__ import annotations

import contextlib
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import irc
from irc.cli import main
from irc.driver import CompileOptions, sources
from tests.fuzz import seeds
from tests.fuzz.findings import Findings
from tests.fuzz.mutants import Mutants, write
from tests.fuzz.oracle import Report, examine_all

BATCH = 24
"""Mutants a child examines before a fresh one takes over."""
KEPT = 400
"""Mutants that showed something new, kept as seeds."""


def warm_up() -> None:
    """Import in this process what children would import each for themselves."""
    from random import Random

    for format in seeds.SUFFIX:
        files = seeds.of_case(seeds.rows()[0], format, Random(0))
        assert files
        with tempfile.TemporaryDirectory() as folder:
            path = write(files, Path(folder, "m"))
            irc.validate(path)
            irc.compile(path, backend="numpy", cache=False)
            sources(irc.load(path), CompileOptions(backend="c"))
            with contextlib.redirect_stdout(None):
                main(["info", str(path)])
            for other in seeds.SUFFIX.values():
                irc.convert(path, Path(folder, f"c{other}"))
            irc.validate(path.with_suffix(".missing"))


def fuzz_files(
    target: str,
    seed: int,
    findings: Findings,
    until: float,
    first: int = 0,
    last: int = 1 << 62,
    deep: bool = True,
    after_batch: Callable[[int], None] = lambda number: None,
) -> int:
    """Examine mutants until that time (of time.monotonic) or before number `last`; the number of the next one."""
    warm_up()
    mutants, known, number = Mutants(target, seed, deep), set[str](), first
    while time.monotonic() < until and number < last:
        with tempfile.TemporaryDirectory(prefix="irc-mutants-") as folder:
            batch = [mutants.draw(n) for n in range(number, number + BATCH)]
            paths = [write(files, Path(folder, str(i))) for i, files in enumerate(batch)]
            for i, (files, report) in enumerate(zip(batch, examine_all(paths), strict=True)):
                if new := set(report.features) - known:
                    known |= new
                    mutants.kept = [*mutants.kept[-KEPT:], files]
                for finding in report.findings:
                    findings.add(finding, files, f"{target} seed {seed} number {number + i}")
        number += BATCH
        after_batch(number)
    return number


def examine_files(files: seeds.Files) -> Report:
    """The report of one model, in a child."""
    with tempfile.TemporaryDirectory(prefix="irc-mutants-") as folder:
        return examine_all([write(files, Path(folder, "m"))])[0]
