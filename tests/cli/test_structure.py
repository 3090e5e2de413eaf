"""`irc ops`, `irc diff`, `irc completion`, labels, options of `irc validate` and `irc bench`."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import numpy_helper

from irc.cli import VERBS, bench, commands, main

DIGITS = Path(__file__).resolve().parents[2] / "samples" / "digits"
ONNX, XML, HELD = (str(DIGITS / name) for name in ("digits.onnx", "digits.xml", "heldout.npz"))
Call = Callable[..., tuple[int, str]]
CUSTOM = """<ir_version: 8, opset_import: ["" : 17, "com.example" : 1]>
m (float[2,3] x) => (float[2,3] y) { a = Relu(x)  y = com.example.Foo(a) }"""


@pytest.fixture
def irc(capsys: pytest.CaptureFixture[str]) -> Call:
    def call(*args: str) -> tuple[int, str]:
        status = main(args)
        return status, capsys.readouterr().out

    return call


def test_every_verb_takes_json() -> None:
    import click

    context = click.Context(commands)
    for verb in set(VERBS) - {"completion", "cache"}:
        command = commands.get_command(context, verb)
        assert command is not None
        assert "--json" in {o for p in command.params for o in p.opts}, verb


# --------------------------------------------------------------------------------- ops
def test_ops_says_that_a_model_runs(irc: Call) -> None:
    status, text = irc("ops", ONNX, "--json")
    said = json.loads(text)
    assert (status, said["runs_in"]) == (0, ["c", "numpy"])
    assert {row["name"]: row["count"] for row in said["operations"]}["Conv"] == 2


def test_ops_names_what_is_missing(irc: Call, tmp_path: Path) -> None:
    (tmp_path / "m.onnx").write_bytes(onnx.parser.parse_model(CUSTOM).SerializeToString())
    status, text = irc("ops", str(tmp_path / "m.onnx"))
    assert (status, "irc cannot run it" in text) == (1, True)
    line = next(line for line in text.splitlines() if "com.example.Foo-1" in line)
    assert "MISSING" in line or "not in C and NumPy" in line
    assert "Relu-17\n" in text + "\n"


# -------------------------------------------------------------------------------- diff
def test_diff_finds_every_kind_of_difference(irc: Call, tmp_path: Path) -> None:
    model = onnx.load(ONNX)
    conv = next(n for n in model.graph.node if n.op_type == "Conv")
    conv.attribute.append(onnx.helper.make_attribute("group", 1))
    weight = model.graph.initializer[0]
    array = numpy_helper.to_array(weight).copy()
    array.reshape(-1)[0] += 0.5
    weight.CopyFrom(numpy_helper.from_array(array, weight.name))
    model.graph.input[0].type.tensor_type.shape.dim[0].dim_value = 4
    model.opset_import[0].version = 18
    next(n for n in model.graph.node if n.op_type == "Relu").name = "other"
    onnx.save(model, tmp_path / "b.onnx")
    status, text = irc("diff", ONNX, str(tmp_path / "b.onnx"), "--json")
    found = {(d["kind"], d["name"]): (d["a"], d["b"]) for d in json.loads(text)["differences"]}
    assert status == 1
    assert found["opset", "ai.onnx"] == ("17", "18")
    assert found["input", "image"] == ("f32[batch,1,8,8]", "f32[4,1,8,8]")
    assert found["attribute", f"{conv.name}/group"] == (None, "1")
    assert found["weight", weight.name][1].endswith(f"1 of {array.size}, by 0.5 at most")
    assert [n for n in found if n[0] == "node"] == [("node", "relu1"), ("node", "other")]
    assert len(found) == 6


def test_diff_of_equal_models_says_so(irc: Call) -> None:
    assert irc("diff", XML, XML)[0] == 0
    status, text = irc("diff", ONNX, XML)
    assert status == 1
    assert "6 weights" in text.splitlines()[-1]


# -------------------------------------------------------------------------- completion
@pytest.mark.parametrize(("shell", "files"), [("bash", "-o default"), ("zsh", "|| _files"), ("fish", "")])
def test_completion_completes_files_too(irc: Call, shell: str, files: str) -> None:
    status, text = irc("completion", shell)
    assert status == 0
    assert files in text
    assert "--no-files" not in text
    if shutil.which(shell):
        subprocess.run([shell, "-n"], input=text, text=True, check=True)


COMPLETES = {
    "bash": """. ./_irc; COMP_WORDS=(irc val); COMP_CWORD=1; _irc_completion irc; echo ${COMPREPLY[*]}
COMP_WORDS=(irc validate --sel); COMP_CWORD=2; _irc_completion irc; echo ${COMPREPLY[*]}""",
    "zsh": """zmodload zsh/zpty; zpty z zsh -f -i
zpty -w z 'fpath=($PWD $fpath); autoload -Uz compinit; compinit -u -D; bindkey "^I" complete-word; echo re''ady'
zpty -r z seen "*ready*"; print -r -- $seen
for typed wanted ('irc val' '*validate*' 'irc validate --sel' '*--select*') {
    zpty -w -n z $typed$'\\t'; zpty -r z seen $wanted; print -r -- $seen; zpty -w -n z $'\\C-u'
}""",
    "fish": "source _irc; complete -C 'irc val'; complete -C 'irc validate --sel'",
}
"""By shell, two completions one after the other, in a folder with the script in _irc."""


@pytest.mark.parametrize("shell", COMPLETES)
def test_shells_complete_commands_and_options(shell: str, irc: Call, tmp_path: Path) -> None:
    if not shutil.which(shell):
        pytest.skip(f"there is no {shell}")
    (tmp_path / "_irc").write_text(irc("completion", shell)[1])
    (tmp_path / "irc").write_text(f'#!/bin/sh\nexec "{sys.executable}" -m irc "$@"\n')
    (tmp_path / "irc").chmod(0o755)
    own = {"PATH": f"{tmp_path}:{os.environ['PATH']}", "PYTHONPATH": str(DIGITS.parents[1]), "TERM": "dumb"}
    given = {**os.environ, **own, "HOME": str(tmp_path)}
    command = [shell, *(() if shell == "fish" else ("-f",)), "-c", COMPLETES[shell]]
    done = subprocess.run(command, cwd=tmp_path, env=given, capture_output=True, text=True, timeout=60, check=True)
    assert re.search("validate.*--select", done.stdout, re.DOTALL), done.stdout


# ------------------------------------------------------------------------------ labels
def test_predictions_stand_beside_labels(irc: Call, tmp_path: Path) -> None:
    status, text = irc("run", XML, "--backend", "numpy", "--input", HELD, "--labels", "label")
    assert status == 0
    assert text.splitlines()[-1] == "354 of 360 are right (98.3 %)"
    predicted, labels = (line.split()[1:-1] for line in text.splitlines()[-3:-1])
    assert labels == [str(n) for n in np.load(HELD)["label"][: len(labels)]]
    assert len(predicted) == len(labels) > 20
    np.save(tmp_path / "l.npy", np.load(HELD)["label"][:5])
    for wrong in ("nothing", str(tmp_path / "l.npy"), "image"):
        assert irc("run", XML, "--backend", "numpy", "--input", HELD, "--labels", wrong)[0] == 2


# ---------------------------------------------------------------------------- validate
@pytest.fixture
def warned(tmp_path: Path) -> str:
    """A model with one warning (IRC2206)."""
    text = Path(XML).read_text("utf-8").replace("<data strides=", '<data stride="1" strides=', 1)
    (tmp_path / "m.xml").write_text(text, "utf-8")
    shutil.copy(DIGITS / "digits.bin", tmp_path / "m.bin")
    return str(tmp_path / "m.xml")


@pytest.mark.parametrize(
    ("options", "status", "lines"),
    [
        ((), 0, 1),
        (("--strict",), 1, 1),
        (("--quiet",), 0, 0),
        (("--strict", "--quiet"), 1, 1),
        (("--strict", "--ignore", "2206"), 0, 0),
        (("--strict", "--ignore", "IRC22,1101"), 0, 0),
        (("--strict", "--select", "3"), 0, 0),
        (("--strict", "--select", "irc2206"), 1, 1),
        (("--select", "8"), 2, 0),
    ],
)
def test_findings_are_chosen(irc: Call, warned: str, options: tuple[str, ...], status: int, lines: int) -> None:
    given, text = irc("validate", warned, *options)
    assert (given, text.count("IRC2206]")) == (status, lines)


# ------------------------------------------------------------------------------- bench
def test_percentiles() -> None:
    assert [bench.percentile(range(101), p) for p in (0, 50, 90, 99, 100)] == [0, 50, 90, 99, 100]
    assert bench.percentile([2.0, 1.0], 50) == np.percentile([2.0, 1.0], 50) == 1.5


def test_bench_times_a_folder_on_inputs(irc: Call, tmp_path: Path) -> None:
    assert irc("compile", ONNX, "-o", str(tmp_path / "made"), "--backend", "numpy", "--json")[0] == 0
    status, text = irc("bench", str(tmp_path / "made"), "--time", "0.02", "--input", HELD, "--json")
    said: dict[str, Any] = json.loads(text)
    (row,) = said["engines"]
    assert (status, said["inputs"]) == (0, {"image": "float32[360,1,8,8]"})
    assert row["min_ms"] <= row["p50_ms"] <= row["p90_ms"] <= row["p99_ms"]
    assert row["p50_ms"] == pytest.approx(row["median_ms"])
    assert row["runs_per_second"] > 0 and row["load_seconds"] > 0 and row["compile_seconds"] is None
    assert irc("bench", str(tmp_path / "made"), "--vs", "onnxruntime")[0] == 2


def test_bench_fits_into_80_columns(irc: Call, monkeypatch: pytest.MonkeyPatch) -> None:
    row = {"engine": "onnxruntime", "median_ms": 123.45678, "p90_ms": 1e-5, "p99_ms": 1234.5, "min_ms": 0.1}
    row |= {"runs_per_second": 123456.7, "ratio": 12.345, "difference": 1e-7, "runs": 100000}
    row |= {"compile_seconds": 123.4, "load_seconds": 0.001234, "memory_bytes": 123456789}
    said = {"model": "m.onnx", "threads": 1, "precision": "highest", "inputs": {}, "engines": [row, row]}
    assert max(map(len, bench._text(said).splitlines())) <= 80
