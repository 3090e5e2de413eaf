"""Fuzz the compilers: draw graphs, compare what computes them, shrink what differs, write it down as an ONNX file."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict
from pathlib import Path
from random import Random

import numpy as np

import irc
from irc.opdef.text import print_graph
from tests.fuzz import graphs
from tests.fuzz.findings import Files, Findings
from tests.fuzz.graphs import Drawn
from tests.fuzz.isolation import Death, place, run_all
from tests.fuzz.oracle import Finding, settle
from tests.fuzz.peers import PEERS, WHO, compare

BYTES = 8 << 30
"""Address space of a child, in which peers and the C compiler run too."""


def examine_graph(drawn: Drawn, parties: Sequence[str] = WHO) -> list[Finding]:
    """What differs in the results of these parties, each computed in a child."""

    with tempfile.TemporaryDirectory(prefix="irc-graph-") as folder:
        scratch = Path(folder).resolve()

        def call(who: str) -> list[dict[str, str]]:
            return [asdict(f) for f in compare(who, drawn, scratch)]

        answers = run_all(call, parties, BYTES, before=lambda: settle(scratch))
    found: list[Finding] = []
    for who, answer in zip(parties, answers, strict=True):
        if not isinstance(answer, Death):
            found += [Finding(**f) for f in answer]
        elif who not in PEERS or answer.how == "exit 1":  # that a peer dies of a graph is not irc's mistake
            operations = ", ".join(sorted({n.op.name for n in drawn.model.graph.nodes}))
            where = place(answer.trace, innermost_first=answer.how != "exit 1")
            found.append(Finding(who, answer.how, where, f"{operations}\n{answer.trace}"))
    return found


def drawn_at(seed: int, number: int) -> Drawn:
    """Graph number `number` of a seed."""
    return graphs.draw(Random(f"graphs {seed} {number}"))


def fuzz_graphs(
    seed: int,
    findings: Findings,
    until: float,
    first: int = 0,
    last: int = 1 << 62,
    after_batch: Callable[[int], None] = lambda number: None,
    parties: Sequence[str] = WHO,
) -> int:
    """Compare graphs until that time (of time.monotonic) or before number `last`; the number of the next one."""
    number = first
    while time.monotonic() < until and number < last:
        drawn = drawn_at(seed, number)
        for finding in examine_graph(drawn, parties):
            new = finding.bucket not in findings.counts
            findings.add(finding, files_of(drawn), f"graphs seed {seed} number {number}")
            if new:
                smaller = shrunk(drawn, finding, until)
                findings.add(finding, files_of(smaller), f"graphs seed {seed} number {number}", again=True)
        number += 1
        after_batch(number)
    return number


def shrunk(drawn: Drawn, finding: Finding, until: float) -> Drawn:
    """The smallest graph found in which the same party is wrong in the same way."""

    def fails(candidate: Drawn) -> bool:
        if time.monotonic() > until:
            return False
        return any((f.stage, f.kind) == (finding.stage, finding.kind) for f in examine_graph(candidate))

    return graphs.shrink(drawn, fails)


def files_of(drawn: Drawn) -> Files:
    """The graph as text, as an ONNX file where ONNX has words for it, and its inputs."""
    files: Files = {"graph.txt": print_graph(drawn.model.graph).encode()}
    with tempfile.TemporaryDirectory() as folder:
        try:
            irc.save(drawn.model, Path(folder, "m.onnx"))
            files["m.onnx"] = Path(folder, "m.onnx").read_bytes()
        except irc.ConversionError:
            pass
        arrays = {v.name: a for v, a in zip(drawn.model.inputs, drawn.feeds, strict=True) if a.dtype.kind in "biuf"}
        with open(Path(folder, "inputs.npz"), "wb") as out:
            np.savez(out, **{f"i{k}": a for k, a in enumerate(arrays.values())})
        files["inputs.npz"] = Path(folder, "inputs.npz").read_bytes()
    return files
