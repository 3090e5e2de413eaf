"""The list of cases that do not pass: backends, what comes of it, case, reason."""

from __future__ import annotations

from pathlib import Path

LIST = Path(__file__).with_name("exceptions.txt")
HEADER = """\
# Cases of the ONNX backend suite that do not pass: backend, what comes of it (refused, or what differs), case,
# and why.  tests/conformance/test_conformance.py fails where the list is wrong in either direction;
# `python -m tests.conformance.rewrite` writes it anew.

"""


def rows() -> list[tuple[str, str, str, str]]:
    """(backend, outcome, case, reason) of every line."""
    lines = LIST.read_text("utf-8").splitlines()
    found = [line.split(" ", 3) for line in lines if line and not line.startswith("#")]
    return [(backend, what, case, reason) for backend, what, case, reason in found]


def listed(backend: str) -> dict[str, str]:
    """Case → what comes of it."""
    return {case: what for of, what, case, _ in rows() if of in (backend, "both")}
