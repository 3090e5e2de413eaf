"""The commands and Python of the documentation's pages do what the pages say."""

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
BLOCKS = re.compile(r"^```(\w*)\n(.*?)^```", re.MULTILINE | re.DOTALL)


def blocks(page: str, language: str) -> list[str]:
    """The blocks of code of a page."""
    return [text for found, text in BLOCKS.findall((ROOT / page).read_text("utf-8")) if found == language]


def commands(page: str) -> list[str]:
    """The irc commands of a page, in order."""
    return [line for text in blocks(page, "") for line in text.splitlines() if line.startswith("irc ")]


@pytest.mark.compiler
def test_from_openvino(tmp_path: Path) -> None:
    """All of docs/from-openvino.md, beside a copy of nothing but the samples."""
    page = "docs/from-openvino.md"
    (tmp_path / "samples").symlink_to(ROOT / "samples")
    env = {**os.environ, "PYTHONPATH": str(ROOT)}
    assert len(commands(page)) >= 9
    for command in commands(page):
        argv = [sys.executable, "-m", "irc", *shlex.split(command)[1:]]
        done = subprocess.run(argv, cwd=tmp_path, env=env, check=False, capture_output=True, text=True, timeout=120)
        assert done.returncode == 0, f"{command}\n{done.stdout}{done.stderr}"
    for text in blocks(page, "python"):
        subprocess.run([sys.executable, "-c", text], cwd=tmp_path, env=env, check=True, timeout=120)
    assert {"digits.onnx", "digits-13.onnx", "older.xml", "opset8.xml", "batch.xml", "simple.onnx"} <= {
        path.name for path in tmp_path.iterdir()
    }
