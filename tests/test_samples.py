"""The samples: both files of each model compute the same in both backends, and the scripts run."""

from __future__ import annotations

import os
import re
import runpy
import shlex
import subprocess
import sys
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import irc
from irc.toolchain.c_compiler import require_compiler
from tests.support import foreign

SAMPLES = Path(__file__).resolve().parent.parent / "samples"
MODELS = {"digits": "heldout.npz", "encoder": "inputs.npz"}
LIMIT = 300_000


@cache
def inputs(name: str) -> dict[str, Any]:
    model = irc.load(str(SAMPLES / name / f"{name}.onnx"))
    with np.load(SAMPLES / name / MODELS[name]) as held:
        return {v.name: held[v.name] for v in model.inputs}


@cache
def expected(name: str) -> Any:
    """What ONNX Runtime computes."""
    ort = pytest.importorskip("onnxruntime")
    session = ort.InferenceSession(str(SAMPLES / name / f"{name}.onnx"), providers=["CPUExecutionProvider"])
    return session.run(None, inputs(name))[0]


@pytest.mark.parametrize("backend", ["numpy", "c"])
@pytest.mark.parametrize("ending", ["onnx", "xml"])
@pytest.mark.parametrize("name", MODELS)
def test_both_files_compute_the_same_in_both_backends(name: str, ending: str, backend: str) -> None:
    (got,) = irc.compile(str(SAMPLES / name / f"{name}.{ending}"), backend=backend)(inputs(name))
    np.testing.assert_allclose(got, expected(name), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("ending", ["onnx", "xml"])
def test_digits_are_recognised(ending: str) -> None:
    (scores,) = irc.compile(str(SAMPLES / "digits" / f"digits.{ending}"), backend="numpy")(inputs("digits"))
    labels = np.load(SAMPLES / "digits" / "heldout.npz")["label"]
    assert (scores.argmax(1) == labels).mean() >= 0.97


@pytest.mark.parametrize("name", MODELS)
def test_openvino_reads_the_written_ir(name: str) -> None:
    ov = pytest.importorskip("openvino")
    compiled = ov.Core().compile_model(SAMPLES / name / f"{name}.xml", "CPU", {"INFERENCE_PRECISION_HINT": "f32"})
    np.testing.assert_allclose(compiled(inputs(name))[0], expected(name), rtol=1e-4, atol=1e-4)


def test_padding_does_not_change_what_stands_before_it() -> None:
    """The encoder's mask hides padding: a sentence alone has the states it has in a padded batch."""
    compiled = irc.compile(str(SAMPLES / "encoder" / "encoder.onnx"), backend="numpy")
    given = inputs("encoder")
    (batch,) = compiled(given)
    length = int(given["mask"][1].sum())
    (alone,) = compiled({name: array[1:2, :length] for name, array in given.items()})
    np.testing.assert_allclose(alone[0], batch[1, :length], rtol=1e-4, atol=1e-4)


def test_samples_are_small() -> None:
    sizes = {f: f.stat().st_size for f in SAMPLES.rglob("*") if f.is_file()}
    assert {str(f) for f, n in sizes.items() if n > LIMIT} == set()


@pytest.mark.parametrize("verb", ["validate", "convert", "compile", "run"])
def test_script_runs(verb: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    said = {"validate": "IRC2001", "convert": "digits.xml", "compile": "same results: True", "run": "digits.xml: 98"}
    main = runpy.run_path(str(SAMPLES / f"{verb}.py"))["main"]
    main(*([str(tmp_path)] if verb in ("convert", "compile") else []))
    assert said[verb] in capsys.readouterr().out


def test_digits_file_is_what_its_script_writes() -> None:
    """train.py's network and the file agree: same weights give the same scores."""
    import onnx
    from onnx import numpy_helper

    train = runpy.run_path(str(SAMPLES / "digits" / "train.py"))
    model = onnx.load(SAMPLES / "digits" / "digits.onnx")
    weights = {t.name: numpy_helper.to_array(t) for t in model.graph.initializer}
    scores, _ = train["forward"](weights, inputs("digits")["image"])
    np.testing.assert_allclose(scores, expected("digits"), rtol=1e-4, atol=1e-4)


@pytest.mark.compiler
def test_the_c_program_recognises_digits_as_the_readme_says(tmp_path: Path) -> None:
    text = (SAMPLES / "README.md").read_text().split("## From C")[1].split("```")[1]
    commands = [line.replace("samples/", f"{SAMPLES}/") for line in text.strip().splitlines()]
    assert [c.split()[0] for c in commands] == ["irc", "cc", "cc", "python", "./classify"]
    compiler = shlex.join(require_compiler().command)
    environment = {**os.environ, "PYTHONPATH": str(SAMPLES.parent)}
    for command in commands:
        command = re.sub("^cc ", f"{compiler} -Wall -Wextra -Werror ", command)
        command = re.sub("^irc ", f"{sys.executable} -c 'from irc.cli import main; main()' ", command)
        command = re.sub("^python ", f"{sys.executable} ", command)
        command = re.sub("^./classify", shlex.join([*foreign.emulator(), "./classify"]), command)
        done = subprocess.run(
            command, shell=True, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stderr
    found = np.array(done.stdout.split(), int)
    (scores,) = irc.compile(str(SAMPLES / "digits" / "digits.onnx"), backend="numpy")(inputs("digits"))
    np.testing.assert_array_equal(found, scores.argmax(1))
