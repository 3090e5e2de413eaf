"""What once hurt, once more: each file of the corpus through all promises, with the errors that it has today."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

import irc
from tests.fuzz.corpus import HOSTILE, Hostile, of_folders
from tests.fuzz.files_campaign import examine_files, warm_up
from tests.fuzz.oracle import examine_all
from tests.fuzz.seeds import ROOT

ALL = [*HOSTILE, *of_folders()]


@pytest.fixture(scope="module", autouse=True)
def _imported() -> None:
    warm_up()


@pytest.mark.parametrize("case", ALL, ids=lambda case: case.name)
def test_hostile_files(case: Hostile) -> None:
    report = examine_files(case.make())
    assert not report.findings, "\n".join(f"{f.bucket}\n{f.detail}" for f in report.findings)
    assert report.errors == list(case.errors)


@pytest.mark.parametrize("where", ["weights", "document"])
def test_a_pipe_that_nobody_writes_into(where: str, tmp_path: Path) -> None:
    """Reading it would wait for ever."""
    for name in ("digits.xml", "digits.bin"):
        (tmp_path / name).write_bytes((ROOT / "samples/digits" / name).read_bytes())
    pipe = tmp_path / ("digits.bin" if where == "weights" else "digits.xml")
    pipe.unlink()
    os.mkfifo(pipe)
    (report,) = examine_all([tmp_path / "digits.xml"])
    assert not report.findings and report.errors


@pytest.mark.compiler
@pytest.mark.parametrize(
    "name",
    [
        "a_size_is_called_class",
        "a_size_has_a_name_that_python_normalises",
        "a_chain_of_1500_sines",
        "a_flip_of_nothing",
        "a_pool_sums_powers_of_a_million_million",
        "a_scalar_is_a_vector_of_unknown_size",
    ],
)
def test_hostile_files_in_c(name: str) -> None:
    (case,) = [c for c in ALL if c.name == name]
    (data,) = case.make().values()
    assert irc.compile(data, backend="c", cache=False).backend == "c"
