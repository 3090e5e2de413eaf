"""`irc convert --check`: which engine runs what was written, and what is said of the worst output."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

from irc.comparison import engines
from tests.cli.conftest import ONNX, XML, Run


def saved(path: Path, text: str) -> str:
    model = onnx.parser.parse_model(f'<ir_version: 8, opset_import: ["" : 17]> {text}')
    path.write_bytes(model.SerializeToString())
    return str(path)


def off_by(amount: float) -> Callable[..., engines.Runner]:
    """An engine that computes the same as irc, and then something else."""

    def make(package: Any, path: str | Path, threads: int) -> engines.Runner:
        run = engines.irc_runner(str(path), "numpy", threads)

        def runner(arguments: Sequence[Any]) -> list[Any]:
            return [r + np.asarray(amount, r.dtype) for r in run(arguments)]

        return runner

    return make


@pytest.mark.parametrize(("source", "name", "engine"), [(ONNX, "m.xml", "openvino"), (XML, "m.onnx", "onnxruntime")])
def test_the_engine_of_the_format_runs_the_result(
    convert: Run, tmp_path: Path, source: str, name: str, engine: str
) -> None:
    pytest.importorskip(engine)
    for words in ((), ("--check",), ("--check", engine)):
        status, said = convert(*words, source, str(tmp_path / name))
        assert status == 0 and f"checked: 1 output agrees in {engine}; the worst, scores: largest" in said, said


def test_irc_itself_where_it_is_asked_for_or_nothing_else_is_there(
    convert: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    target = str(tmp_path / "m.xml")
    assert "1 output agrees in numpy" in convert(ONNX, target, "--check=numpy")[1]
    monkeypatch.setitem(sys.modules, "openvino", None)
    status, said = convert(ONNX, target)
    assert status == 0 and "1 output agrees in irc's NumPy backend" in said
    status, said = convert(ONNX, target, "--no-check")
    assert status == 0 and "checked" not in said


@pytest.mark.compiler
def test_the_c_backend_checks(convert: Run, tmp_path: Path) -> None:
    assert "1 output agrees in c;" in convert(XML, str(tmp_path / "m.onnx"), "--check", "c")[1]


def test_an_engine_that_reads_only_the_source_runs_that(convert: Run, tmp_path: Path) -> None:
    pytest.importorskip("onnxruntime")
    said = convert(ONNX, str(tmp_path / "m.xml"), "--check", "onnxruntime")[1]
    assert "1 output agrees in onnxruntime running the source" in said
    status, said = convert(XML, str(tmp_path / "n.xml"), "--check", "onnxruntime")
    assert status == 1 and "error[IRC4907]: onnxruntime reads .onnx files only" in said
    assert [p.name for p in tmp_path.iterdir() if p.suffix != ".bin"] == ["m.xml"]


def test_an_engine_that_is_missing_or_fails_is_a_finding(
    convert: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    target = tmp_path / "m.xml"
    monkeypatch.setitem(sys.modules, "openvino", None)
    status, said = convert(ONNX, str(target), "--check", "openvino")
    assert status == 1 and "error[IRC4904]: openvino cannot be used" in said and not target.exists()
    monkeypatch.undo()
    pytest.importorskip("openvino")

    def refuse(package: Any, path: str | Path, threads: int) -> engines.Runner:
        raise RuntimeError("\nno kernel\nand a long trace")

    monkeypatch.setattr(engines, "_openvino", refuse)
    status, said = convert(ONNX, str(target), "--check", "openvino")
    assert status == 1 and "error[IRC4908]: openvino cannot run the model: no kernel" in said and not target.exists()
    status, said = convert(ONNX, str(target))
    assert status == 0 and "agrees in irc's NumPy backend" in said and "openvino cannot run the model" in said


def test_an_engine_that_differs_refutes_where_it_was_asked(
    convert: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("onnxruntime")
    monkeypatch.setattr(engines, "_onnxruntime", off_by(0.5))
    target = tmp_path / "m.onnx"
    source = saved(tmp_path / "s.onnx", "m (float[2,3] x) => (float[2,3] y, float[2,3] z) { y = Neg(x)\n z = Sin(x) }")
    status, said = convert(source, str(target), "--check", "onnxruntime")
    assert status == 1 and not target.exists()
    assert "error[IRC4901]" in said and "output z in onnxruntime: largest relative difference 0." in said
    assert "absolute 0.5 at [" in said
    status, said = convert(source, str(target))
    assert status == 0 and target.exists()
    assert "warning[IRC4909]: onnxruntime computes something else from the written model: output z" in said


def test_drawn_numbers_are_not_compared_with_those_of_another_engine(convert: Run, tmp_path: Path) -> None:
    text = "m (float[2] x) => (float[2] y) { r = RandomUniform<shape = [2], seed = 1.0>()\n y = Add(x, r) }"
    status, said = convert(saved(tmp_path / "s.onnx", text), str(tmp_path / "m.onnx"))
    assert status == 0 and "IRC4909" not in said


def test_wrong_usage(convert: Run, tmp_path: Path) -> None:
    assert convert(ONNX, str(tmp_path / "m.xml"), "--check=abacus")[0] == 2
