"""The command line and the system: full disks, links, names of files, closed streams."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from test_cli import ONNX, ROOT, Result, Run

from irc.cli import main


@pytest.fixture
def irc(capsys: pytest.CaptureFixture[str]) -> Run:
    return lambda *args: Result(main(args), *capsys.readouterr())


def test_compile_lists_what_it_made_and_removes_what_it_replaces(irc: Run, tmp_path: Path) -> None:
    target = tmp_path / "made"
    target.mkdir()
    (target / "mine.txt").write_text("kept")
    (target / "weights.txt").write_text("kept")
    first = irc("compile", ONNX, "-o", str(target), "--emit", "c")
    assert "mine.txt" not in first.out
    assert (target / "model.c").is_file()
    (target / "model.h").write_text("changed by its owner")
    second = irc("compile", ONNX, "-o", str(target), "--emit", "numpy")
    assert sorted(Path(line).name for line in second.out.split()) == ["manifest.json", "model.py", "weights.bin"]
    left = {f.name for f in target.iterdir()}
    assert left == {"manifest.json", "model.py", "weights.bin", "model.h", "mine.txt", "weights.txt"}
    assert irc("run", str(target)).status == 0


def test_run_keeps_the_old_output_where_the_new_one_cannot_be_written(
    irc: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:  # fmt: skip
    target = tmp_path / "out.npz"
    target.write_bytes(b"old")

    def full(*_: Any, **__: Any) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(np.lib.format, "write_array", full)
    said = irc("run", ONNX, "--output", str(target), "--backend", "numpy")
    assert said.status == 1 and "IRC4903" in said.err
    assert target.read_bytes() == b"old" and list(tmp_path.iterdir()) == [target]


def test_a_link_to_the_target_stays_one(irc: Run, tmp_path: Path) -> None:
    real, link = tmp_path / "a" / "real.xml", tmp_path / "b" / "link.xml"
    real.parent.mkdir()
    link.parent.mkdir()
    link.symlink_to(real)
    assert irc("convert", ONNX, str(link)).status == 0
    assert link.is_symlink()
    assert {f.name for f in real.parent.iterdir()} == {"real.xml", "real.bin"}


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full")
def test_output_that_nobody_takes_is_status_1() -> None:
    code = "import sys; from irc.cli import main; sys.exit(main())"
    with open("/dev/full", "w") as full:
        done = subprocess.run(
            [sys.executable, "-c", code, "explain"],
            stdout=full, stderr=subprocess.PIPE, text=True, cwd=ROOT, check=False,
        )  # fmt: skip
    assert done.returncode == 1
    assert "standard output cannot be written" in done.stderr and "IRC9" not in done.stderr


def test_a_full_cache_folder_stops_nothing(irc: Run, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    from irc.runtime import cache

    monkeypatch.setenv("IRC_CACHE_DIR", str(tmp_path / "cache"))
    write = cache.write_artifact

    def full(folder: Path, draft: Any) -> Any:
        if tmp_path in folder.parents:
            raise OSError(28, "No space left on device")
        return write(folder, draft)

    monkeypatch.setattr(cache, "write_artifact", full)
    said = irc("run", ONNX, "--backend", "numpy")
    assert said.status == 0 and said.out.startswith("scores: ")
    assert "is not used: No space left on device" in said.err


@pytest.mark.parametrize("name", ["x" * 300 + ".onnx", os.fsdecode(b"\xff") + ".onnx"], ids=["long", "bytes"])
def test_names_of_models_that_cannot_exist(irc: Run, name: str) -> None:
    for verb in ("run", "info", "compile", "validate"):
        said = irc(verb, name)
        assert said.status == 1 and "IRC1401" in said.err + said.out


def test_names_that_are_not_text(irc: Run, tmp_path: Path) -> None:
    path = tmp_path / os.fsdecode(b"\xff.xml")
    assert irc("convert", ONNX, str(path)).status == 0
    assert irc("run", str(path), "--backend", "numpy").status == 0
