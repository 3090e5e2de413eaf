"""Up to 10 s of each fuzzer: the same mutants and graphs every time, fewer where the machine is slow.

`python -m tests.fuzz` runs them for hours, with other seeds.
"""

from __future__ import annotations

import time

import pytest

from tests.fuzz.files_campaign import fuzz_files
from tests.fuzz.findings import Findings
from tests.fuzz.graphs_campaign import fuzz_graphs
from tests.support.instruction_sets import largest_weight

SECONDS = 10
SEED = 0
PARTIES = ("numpy", "c", *(["onnxruntime"] if largest_weight() == 127 else []))
"""Without VNNI, ONNX Runtime's sums of bytes saturate."""


def nothing_found(findings: Findings) -> None:
    """Fail with everything that was found: the seed and number of each, and how it came about."""
    assert not findings.counts, "\n\n".join(
        f"{bucket} ({origin})\n{finding.detail[-3000:]}" for bucket, (finding, _, origin) in findings.first.items()
    )


@pytest.mark.parametrize("target", ["onnx", "xml", "bin"])
def test_mutated_files(target: str) -> None:
    findings = Findings()
    done = fuzz_files(target, SEED, findings, time.monotonic() + SECONDS, last=150, deep=False)
    assert done > 0
    nothing_found(findings)


@pytest.mark.compiler
def test_random_graphs() -> None:
    """Without OpenVINO, whose comparisons of NaN differ from run to run; `python -m tests.fuzz` asks it too."""
    findings = Findings()
    done = fuzz_graphs(SEED, findings, time.monotonic() + SECONDS, last=30, parties=PARTIES)
    assert done > 0
    nothing_found(findings)
