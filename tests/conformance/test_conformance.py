"""The official ONNX backend suite, in both backends.

`exceptions.txt` lists the cases that do not pass, with what comes of them and why: a case that passes leaves the list.
A sample runs always; all of it with -m full.  After a change that mends many, `python -m tests.conformance.rewrite`
writes the list anew, and keeps the reasons that stand there; with `listed` it runs only what the list has.
"""

from __future__ import annotations

import zlib

import pytest

from irc import backend as backends
from tests.conformance.listing import listed
from tests.conformance.suite import outcome, suite

ONE_OF = {"numpy": 16, "c": 32}
"""Of how many cases one runs always."""


@pytest.mark.parametrize("backend", ["numpy", "c"])
def test_a_sample_of_the_suite(backend: str) -> None:
    compare(backend, ONE_OF[backend])


@pytest.mark.full
@pytest.mark.parametrize("backend", ["numpy", "c"])
def test_the_whole_suite(backend: str) -> None:
    compare(backend, 1)


def compare(backend: str, one_of: int) -> None:
    """Run the cases whose names' hash is a multiple, and compare what comes of them with the list."""
    expected, wrong = listed(backend), list[str]()
    for case in suite():
        if zlib.crc32(case.name.encode()) % one_of:
            continue
        (got, said), want = outcome(case, getattr(backends, backend)), expected.get(case.name, "")
        if got != want:
            wrong.append(f"{case.name}: {got or 'passes'}, the list says {want or 'it passes'}. {said}")
    assert not wrong, "\n".join(wrong)


def test_listed_cases_exist() -> None:
    known = {case.name for case in suite()}
    assert set(listed("numpy")) | set(listed("c")) <= known
