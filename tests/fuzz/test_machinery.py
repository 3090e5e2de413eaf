"""The fuzzers themselves: mutants come again for the same seed, and the oracle sees each kind of broken promise."""

from __future__ import annotations

import itertools
import os
import time
from pathlib import Path
from random import Random

import numpy as np
import pytest

import irc
from irc import driver
from irc.ir import dim
from tests.fuzz import seeds
from tests.fuzz.files_campaign import examine_files, warm_up
from tests.fuzz.isolation import Death, run_all
from tests.fuzz.mutants import Mutants
from tests.fuzz.oracle import Report


@pytest.fixture(scope="module", autouse=True)
def _imported() -> None:
    warm_up()


def relu() -> seeds.Files:
    case = next(c for c in seeds.rows() if c.op.name == "Relu")
    return seeds.of_case(case, "onnx", Random(1)) or {}


@pytest.mark.parametrize("target", ["onnx", "xml", "bin"])
def test_mutants_come_again_for_the_same_seed(target: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def drawn(seed: int) -> list[dict[str, bytes]]:
        monkeypatch.setattr(dim, "_fresh", itertools.count(1))  # names that are made up, as in a new process
        mutants = Mutants(target, seed, deep=False)
        return [mutants.draw(n) for n in range(20)]

    assert drawn(1) == drawn(1)
    assert drawn(1) != drawn(2)


def test_most_mutants_are_new_files() -> None:
    drawn = [next(iter(Mutants("onnx", 1, deep=False).draw(n).values())) for n in range(60)]
    assert len(set(drawn)) > 55


def act(what: str) -> str:
    """What a child can come to."""
    if what == "loop":
        while True:
            pass
    if what == "eat":
        return str(len(np.ones(1 << 28)))
    if what == "abort":
        os.abort()
    return what


def test_children_die_alone() -> None:
    answers = run_all(act, ["a", "loop", "b", "abort", "eat", "c"], 1 << 29)
    assert [a.how if isinstance(a, Death) else a for a in answers] == ["a", "time", "b", "signal 6", "exit 1", "c"]
    died = [a for a in answers if isinstance(a, Death)]
    assert "in act" in died[0].trace and "MemoryError" in died[2].trace


def kinds(report: Report) -> list[tuple[str, str]]:
    return [(f.stage, f.kind.split(":")[0]) for f in report.findings]


def test_a_sound_model_breaks_no_promise() -> None:
    report = examine_files(relu())
    assert kinds(report) == [] and "Relu" in report.features


def test_exceptions_and_crashes_are_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> None:
        raise KeyError("planted")

    monkeypatch.setattr("irc.border.read_model", fail)
    assert kinds(examine_files(relu())) == [("validate", "KeyError"), ("load", "KeyError")]
    monkeypatch.setattr(driver, "validate", lambda source: [])
    monkeypatch.setattr(driver, "load", lambda source: fail())
    assert kinds(examine_files(relu())) == [("load", "KeyError")]


def test_disagreement_of_validate_and_load_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(driver, "validate", lambda source: [irc.Diagnostic("IRC1001", "error", "planted")])
    assert kinds(examine_files(relu())) == [("load", "disagrees")]


def test_files_outside_are_seen(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "elsewhere").write_text("x")
    monkeypatch.setattr(driver, "validate", lambda source: [(tmp_path / "elsewhere").read_text()][:0])
    assert ("files", "opened") in kinds(examine_files(relu()))


def test_hangs_are_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    def hang(source: object) -> None:
        end = time.process_time() + 60
        while time.process_time() < end:
            pass

    monkeypatch.setattr(driver, "validate", hang)
    assert kinds(examine_files(relu())) == [("process", "time")]
