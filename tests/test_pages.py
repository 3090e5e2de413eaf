"""The documentation: its site builds without warnings, and every block of code of the guides runs."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
BLOCKS = re.compile(r"^```(\w*)(?: title=\"(.*?)\")?\n(.*?)^```", re.MULTILINE | re.DOTALL)
GUIDES = ("from-openvino", "ship-in-c", "ship-in-cpp", "microcontroller", "wrong-results", "make-it-fast", "graphs")
WRITES = {
    "ship-in-c": {"digits", "library", "scores.f32", "classify"},
    "ship-in-cpp": {"digits", "main"},
    "microcontroller": {"arena.svg", "firmware", "task.o"},
    "from-openvino": {"digits.onnx", "digits-13.onnx", "older.xml", "opset8.xml", "batch.xml", "simple.onnx"},
    "wrong-results": {"digits.onnx", "found.txt"},
    "make-it-fast": {"profile.html", "fast"},
    "graphs": {"scorer.onnx", "scorer.xml", "leaky.onnx", "probabilities.onnx", "features.onnx", "head.onnx"},
}
LEFT_OUT = re.compile(r"^python -m pip install .*$", re.MULTILINE)
"""What a guide has readers do once: the tests run in what is installed."""


def blocks(page: str) -> list[tuple[str, str, str]]:
    """The blocks of code of a page: language, title, text."""
    return BLOCKS.findall((ROOT / "docs" / f"{page}.md").read_text("utf-8"))


def command_of(language: str, text: str) -> list[str]:
    """The program that runs a block."""
    return [sys.executable, "-c", text] if language == "python" else ["sh", "-e", "-c", LEFT_OUT.sub("", text)]


def run(command: list[str], folder: Path, env: dict[str, str]) -> None:
    done = subprocess.run(command, cwd=folder, env=env, check=False, capture_output=True, text=True, timeout=240)
    assert done.returncode == 0, f"{command[-1]}\n{done.stdout}{done.stderr}"


@pytest.mark.compiler
@pytest.mark.parametrize("page", GUIDES)
def test_guide(page: str, tmp_path: Path) -> None:
    """All of a guide, in order, beside a copy of nothing but the samples; blocks with a title are files."""
    (tmp_path / "samples").symlink_to(ROOT / "samples")
    irc = tmp_path / "commands" / "irc"
    irc.parent.mkdir()
    irc.write_text(f'#!/bin/sh\nexec {shlex.quote(sys.executable)} -m irc "$@"\n', "utf-8")
    irc.chmod(0o755)
    path = os.pathsep.join((str(irc.parent), str(Path(sys.executable).parent), os.environ["PATH"]))
    env = {**os.environ, "PYTHONPATH": str(ROOT), "PATH": path, "PYTHON": sys.executable}
    runs = 0
    for language, title, text in blocks(page):
        if title:
            (tmp_path / title).write_text(text, "utf-8")
        elif language in ("", "sh", "python"):
            run(command_of(language, text), tmp_path, env)
            runs += 1
        else:
            assert language == "text", f"a block of {language} that nothing runs"
    assert runs >= 2
    assert WRITES[page] <= {file.name for file in tmp_path.iterdir()}


def test_site(tmp_path: Path) -> None:
    """Links, anchors and references are right in all pages; each broken model has its place."""
    pytest.importorskip("mkdocs", reason="needs the extra docs")
    env = {**os.environ, "NO_MKDOCS_2_WARNING": "1"}
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "-q", "-d", str(tmp_path / "site")]
    run(command, ROOT, env)
    page = (tmp_path / "site" / "diagnostics" / "IRC3104" / "index.html").read_text("utf-8")
    assert "inner dimensions differ" in page
    assert "(Parameter, opset1)" in page
