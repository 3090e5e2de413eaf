"""What surrounds the package: the other project of its name, the hook and the action for repositories of models."""

from __future__ import annotations

import json
import os
import shlex
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parent.parent


def test_files_of_the_other_project_are_refused(tmp_path: Path) -> None:
    for name in ("__init__.py", "version.py", "shared_name.py"):
        (tmp_path / "irc").mkdir(exist_ok=True)
        shutil.copy(ROOT / "irc" / name, tmp_path / "irc" / name)
    command = [sys.executable, "-c", "import irc; print(irc.__version__)"]
    env = {**os.environ, "PYTHONPATH": str(tmp_path)}
    assert subprocess.run(command, cwd=tmp_path, env=env, capture_output=True, check=False).returncode == 0
    (tmp_path / "irc" / "client.py").touch()
    done = subprocess.run(command, cwd=tmp_path, env=env, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert "files of two projects" in done.stderr.splitlines()[-1]
    assert "pip uninstall irc irc-compiler" in done.stderr


def described(name: str) -> Any:
    yaml = pytest.importorskip("yaml", reason="comes with the extra docs")
    return yaml.safe_load((ROOT / name).read_text("utf-8"))


def test_the_hook_runs_a_verb() -> None:
    from irc.cli import VERBS

    (hook,) = described(".pre-commit-hooks.yaml")
    program, verb = shlex.split(hook["entry"])
    assert program == "irc" and verb in VERBS


@pytest.mark.skipif(not shutil.which("bash"), reason="the action runs bash")
@pytest.mark.parametrize(("model", "status"), [("samples/digits/digits.xml", 0), ("absent.onnx", 1)])
def test_the_action_writes_sarif(model: str, status: int, tmp_path: Path) -> None:
    *_, step = described("action.yml")["runs"]["steps"]
    irc = tmp_path / "irc"
    irc.write_text(f'#!/bin/sh\nexec {shlex.quote(sys.executable)} -m irc "$@"\n', "utf-8")
    irc.chmod(0o755)
    sarif = tmp_path / "found.sarif"
    own = {"PATH": f"{tmp_path}{os.pathsep}{os.environ['PATH']}", "PYTHONPATH": str(ROOT)}
    env = {**os.environ, **own, "MODELS": f"{model} samples/digits/digits.onnx", "SARIF": str(sarif)}
    assert subprocess.run(["bash", "-ec", step["run"]], cwd=ROOT, env=env, check=False).returncode == status
    (run,) = json.loads(sarif.read_text("utf-8"))["runs"]
    assert bool([r for r in run["results"] if r["level"] == "error"]) == bool(status)
