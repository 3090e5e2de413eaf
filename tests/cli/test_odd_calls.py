"""Calls that people make by mistake: each says what is the matter."""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import pytest

from irc.cli import console, main, profile_report
from irc.diagnostics.core import CompileError
from irc.toolchain import c_compiler

ROOT = Path(__file__).resolve().parents[2]
DIGITS = ROOT / "samples" / "digits"


def said(capsys: pytest.CaptureFixture[str], *args: str) -> tuple[int, str]:
    """The exit status and all that was printed."""
    status = main(args)
    captured = capsys.readouterr()
    return status, captured.out + captured.err


def test_a_misspelt_command_is_guessed(capsys: pytest.CaptureFixture[str]) -> None:
    status, text = said(capsys, "valdate", "m.onnx")
    assert (status, "did you mean validate?" in text) == (2, True)
    assert "commands are compile, run" in said(capsys, "frobnicate")[1]


def test_a_folder_is_no_model(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    assert "it holds no .onnx and no .xml" in said(capsys, "validate", str(tmp_path))[1]
    shutil.copy(DIGITS / "digits.onnx", tmp_path)
    assert "name the model's file; it holds digits.onnx" in said(capsys, "validate", str(tmp_path))[1]
    (tmp_path / "manifest.json").write_text("{}")
    assert "it is a compiled folder" in said(capsys, "validate", str(tmp_path))[1]


@pytest.mark.parametrize("model", ["README.md", "samples/digits/digits.bin"])
def test_another_file_is_no_model(capsys: pytest.CaptureFixture[str], model: str) -> None:
    status, text = said(capsys, "info", str(ROOT / model))
    assert status == 1
    assert ("a text file" in text) if model.endswith(".md") else ("name" in text and "digits.xml" in text)


def test_standard_input_is_no_model(capsys: pytest.CaptureFixture[str]) -> None:
    assert "irc reads no standard input" in said(capsys, "validate", "-")[1]


def test_a_damaged_model_is_not_called_text(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    (tmp_path / "m.onnx").write_bytes((DIGITS / "digits.onnx").read_bytes()[:1000])
    assert "IRC1405" in said(capsys, "info", str(tmp_path / "m.onnx"))[1]


@pytest.mark.skipif(shutil.which("gcc") is None, reason="no gcc")
def test_a_compiler_that_does_nothing_is_quoted() -> None:
    broken = c_compiler.Compiler(("gcc", "-fnope"), "12")
    with pytest.raises(CompileError, match="unrecognized command"):
        c_compiler.resolve_target("x86-64-v3", broken)


@pytest.mark.skipif(shutil.which("gcc") is None, reason="no gcc")
def test_no_other_backend_takes_the_place_of_the_compiler_that_is_named(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CC", "gcc -fnope")
    status, text = said(capsys, "compile", str(DIGITS / "digits.onnx"), "-o", str(tmp_path / "d"))
    assert status == 1 and "IRC6002" in text and "unrecognized command" in text and not (tmp_path / "d").exists()


def test_run_writes_the_file_that_is_named(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    target = tmp_path / "out.npy"
    status, text = said(capsys, "run", str(DIGITS / "digits.onnx"), "--backend", "numpy", "--output", str(target))
    assert (status, f"wrote {target}" in text) == (0, True)
    assert np.load(target).shape == (2, 10)


def test_names_are_broken_at_their_separators() -> None:
    assert profile_report.broken("encoder/layer.0/attention, dense", 16) == ["encoder/layer.0/", "attention, dense"]
    assert profile_report.broken("a" * 20, 16) == ["a" * 16, "a" * 4]
    assert profile_report.broken("", 16) == [""]


def test_lines_fit_into_a_terminal_without_broken_words() -> None:
    line = "same  scores  " + "relative 0 of 0.0001 allowed  " * 4 + "a/" * 50
    parts = console.fitted(line, 80)
    assert all(len(part) <= 80 for part in parts[:-1])
    assert parts[-1].strip() == "a/" * 50
    assert "".join(parts).replace(" ", "") == line.replace(" ", "")
    assert console.fitted("short  line", 80) == ["short  line"]
    assert console.fitted("", 80) == [""]


DIGITS_ONNX = str(DIGITS / "digits.onnx")


@pytest.mark.parametrize(
    ("call", "text"),
    [
        ((), "Commands:\n  compile  "),
        (("cache",), "Commands:\n  clear  "),
        (("info", DIGITS_ONNX, "--shape", "img[1,1,8,8]"), "error[IRC6302]"),
        (("info", DIGITS_ONNX, "--shape", "image[1,8,8]"), "error[IRC6351]"),
        (("draw", DIGITS_ONNX, "-o", "graph.png"), "the picture is an SVG; name it graph.svg"),
        (("run", DIGITS_ONNX, "--input", "nothing.npy"), "nothing.npy cannot be read: No such file or directory\n"),
        (("info", DIGITS_ONNX, "--target", "cortex-m5"), "target cortex-m5 is not known; did you mean cortex-m55?"),
    ],
)
def test_wrong_usage_is_named(call: tuple[str, ...], text: str, capsys: pytest.CaptureFixture[str]) -> None:
    status, printed = said(capsys, *call)
    assert (status, text in printed) == (2, True), printed
