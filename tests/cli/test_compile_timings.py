"""`irc compile --timings` says where the time went."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from irc.cli import main
from irc.diagnostics.progress import part_took, step, tell, timed
from irc.toolchain.c_compiler import find_compiler

DIGITS = Path(__file__).parents[2] / "samples" / "digits" / "digits.onnx"
Invoke = Callable[..., tuple[str, str]]
needs_compiler = pytest.mark.skipif(find_compiler() is None, reason="no C compiler")


@pytest.fixture
def invoke(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Invoke:
    """Run the command with a cache of its own; what it prints on both streams."""
    monkeypatch.setenv("IRC_CACHE_DIR", str(tmp_path / "cache"))

    def run(*arguments: str) -> tuple[str, str]:
        assert main(list(arguments)) == 0
        return capsys.readouterr()

    return run


@needs_compiler
def test_a_line_for_every_step_and_every_file(tmp_path: Path, invoke: Invoke) -> None:
    folder = tmp_path / "out"
    out, said = invoke("compile", str(DIGITS), "-o", str(folder), "--timings")
    lines = re.findall(r"^ *(\d+\.\d\d) s +(?:(\d+) %)?  +(.+)$", said, re.MULTILINE)
    steps = [name for _, share, name in lines if share]
    order = ["reading", "fold", "loops", "writing C", "packing and writing weights", "C compiler", "linking", "other"]
    assert [s for s in steps if s in order] == order
    assert 90 <= sum(int(share) for _, share, _ in lines if share) <= 110
    files = {name.split()[0] for _, share, name in lines if not share}
    assert files == {f.name for f in folder.glob("digits*.c")}  # not main.c and irc_rt.c, which are for others
    assert str(folder / "digits.c") in out


@needs_compiler
def test_json_instead_of_the_files(tmp_path: Path, invoke: Invoke) -> None:
    arguments = ("compile", str(DIGITS), "-o", str(tmp_path / "out"), "--timings=json")
    cold = json.loads(invoke(*arguments)[0])
    assert cold["seconds"] == pytest.approx(sum(cold["steps"].values()), rel=0.01)
    assert set(cold["parts"]) == {"C compiler"} and all(s > 0 for s in cold["parts"]["C compiler"].values())
    warm = json.loads(invoke(*arguments)[0])
    assert set(warm["steps"]) == {"other"} and not warm["parts"], "what is in the cache takes no steps"


def test_numpy_has_no_compiler(tmp_path: Path, invoke: Invoke) -> None:
    arguments = ("compile", str(DIGITS), "-o", str(tmp_path / "out"), "--backend", "numpy", "--timings=json")
    said = json.loads(invoke(*arguments)[0])
    assert "fold" in said["steps"] and not said["parts"]


def test_steps_that_come_again_add_up() -> None:
    with timed() as outer:
        tell("one")
        tell("three of seven", measure="one")
        step("two")
        time.sleep(0.01)
        step("one")
        part_took("one", "a part", 2.5)
    assert list(outer.steps) == ["one", "two"] and outer.steps["two"] >= 0.01
    assert outer.parts == {"one": {"a part": 2.5}}
    step("nobody measures")
    assert "nobody measures" not in outer.steps
