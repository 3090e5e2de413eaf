"""`irc compare`: what counts as the same, and what is said where it is not."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

from irc.cli import main

DIGITS = Path(__file__).resolve().parents[2] / "samples" / "digits"
ONNX, XML = str(DIGITS / "digits.onnx"), str(DIGITS / "digits.xml")
Run = Callable[..., tuple[int, str, str]]


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str]) -> Run:
    def call(*args: str) -> tuple[int, str, str]:
        status = main(("compare", *args))
        said = capsys.readouterr()
        return status, said.out, said.err

    return call


def saved(path: Path, text: str, **constants: Any) -> str:
    model = onnx.parser.parse_model(f'<ir_version: 8, opset_import: ["" : 17]> {text}')
    model.graph.initializer.extend(onnx.numpy_helper.from_array(np.asarray(a), n) for n, a in constants.items())
    path.write_bytes(model.SerializeToString())
    return str(path)


def scaled(path: Path, factor: float) -> str:
    text = "m (float[2,3] x) => (float[2,3] y, int32[2,3] k) { y = Mul(x, c)\n k = Cast<to = 6>(y) }"
    return saved(path, text, c=np.float32(factor))


@pytest.mark.compiler
def test_two_formats_and_two_backends_agree(run: Run) -> None:
    status, out, err = run(ONNX, XML, "--backends", "numpy,c")
    assert status == 0, out + err
    assert f"A: {ONNX} (numpy)" in out and f"B: {XML} (c)" in out and "same       scores  float32[2,10]" in out
    status, out, _ = run(ONNX, "--backends", "c,numpy", "--input", f"image={DIGITS / 'heldout.npz'}", "--json")
    said = json.loads(out)
    assert status == 0 and said["same"] and said["random_inputs"] == []
    (row,) = said["outputs"]
    assert row["shape"] == [360, 10] and row["relative"] < 1e-5 and row["elements"] == 3600


def test_a_difference_is_measured_and_judged(run: Run, tmp_path: Path) -> None:
    x = np.array([[1, -2, 3], [0, 5, -10]], np.float32)
    np.save(tmp_path / "x.npy", x)
    models = scaled(tmp_path / "a.onnx", 1.0), scaled(tmp_path / "b.onnx", 1.01)
    given = ("--input", f"x={tmp_path / 'x.npy'}", "--backends", "numpy,numpy")
    status, out, _ = run(*models, *given, "--json")
    said = json.loads(out)
    y, k = said["outputs"]
    assert status == 1 and not said["same"]
    assert not y["same"] and y["relative"] == pytest.approx(0.01, rel=1e-3) and y["tolerance"] == 1e-4
    assert y["absolute"] == pytest.approx(0.1, rel=1e-3) and y["at"] == [1, 2] and y["different"] == 5
    assert k["same"] and k["different"] == 0 and k["absolute"] == 0
    assert run(*models, *given, "--tolerance", "0.02")[0] == 0
    text = run(*models, *given)[1]
    assert "DIFFERENT  y  float32[2,3]  relative 0.01 of 0.0001 allowed  absolute 0.1 at [1,2]  5 of 6" in text


def test_integers_are_exact_unless_a_tolerance_is_given(run: Run, tmp_path: Path) -> None:
    np.save(tmp_path / "x.npy", np.full((2, 3), 100, np.float32))
    models = scaled(tmp_path / "a.onnx", 1.0), scaled(tmp_path / "b.onnx", 1.01)
    given = ("--input", f"x={tmp_path / 'x.npy'}", "--backends", "numpy,numpy", "--json")
    rows = json.loads(run(*models, *given)[1])["outputs"]
    assert rows[1]["relative"] is None and rows[1]["absolute"] == 1 and not rows[1]["same"]
    status, out, _ = run(*models, *given, "--tolerance", "0.02")
    assert status == 0 and json.loads(out)["outputs"][1]["relative"] == pytest.approx(0.01)


def test_nan_equals_nan_and_nothing_else(run: Run, tmp_path: Path) -> None:
    root = "m (float[3] x) => (float[3] y) { y = Sqrt(x) }"
    size = "m (float[3] x) => (float[3] y) { a = Abs(x)\n y = Sqrt(a) }"
    models = saved(tmp_path / "a.onnx", root), saved(tmp_path / "b.onnx", size)
    np.save(tmp_path / "x.npy", np.array([-1, 4, 9], np.float32))
    given = ("--input", f"x={tmp_path / 'x.npy'}", "--backends", "numpy,numpy")
    assert run(models[0], models[0], *given)[0] == 0
    status, out, _ = run(*models, *given)
    assert status == 1 and "relative infinite" in out and "absolute infinite at [0]" in out


def test_other_shapes_types_and_numbers_of_outputs(run: Run, tmp_path: Path) -> None:
    first = saved(tmp_path / "a.onnx", "m (float[2,3] x) => (float[2,3] y) { y = Neg(x) }")
    turned = saved(tmp_path / "b.onnx", "m (float[2,3] x) => (float[3,2] y) { n = Neg(x)\n y = Transpose(n) }")
    status, out, _ = run(first, turned, "--backends", "numpy,numpy")
    assert status == 1 and "float32[2,3] and float32[3,2]" in out
    both = saved(tmp_path / "c.onnx", "m (float[2,3] z) => (float[2,3] y, float[2,3] w) { y = Neg(z)\n w = Abs(z) }")
    status, out, _ = run(first, both, "--backends", "numpy,numpy")
    assert status == 1 and "A has 1 output and B 2" in out
    two = saved(tmp_path / "d.onnx", "m (float[2,3] x, float[2,3] z) => (float[2,3] y) { y = Add(x, z) }")
    status, out, _ = run(first, two, "--backends", "numpy,numpy")
    assert status == 1 and "A has 1 input and B 2 (x; x, z)" in out


@pytest.mark.parametrize("more", [(), ("--layers",)])
def test_models_of_two_widths_of_floats(more: tuple[str, ...], run: Run, tmp_path: Path) -> None:
    """Both get numbers of the narrower, and floats are compared whatever their width; other types are not."""
    texts = (
        "m ({0}[2,3] x) => ({0}[2,3] y) {{ z = Mul(x, x)\n y = Sub(z, z) }}",
        "m ({0}[2,3] x) => ({0}[2,3] y) {{ y = Neg(x) }}",
    )
    engines = ("--backends", "numpy,numpy")
    for text in texts:
        wide, narrow = (saved(tmp_path / f"{t}.onnx", text.format(t)) for t in ("float", "float16"))
        for files in ((wide, narrow), (narrow, wide)):
            status, out, err = run(*files, *engines, *more)
            assert status == 0, out + err
    status, out, _ = run(wide, narrow, *engines, "--json")
    (row,) = json.loads(out)["outputs"]
    assert row["relative"] == 0 and row["tolerance"] == 2e-2, "nothing is rounded but the argument"
    whole = saved(tmp_path / "i.onnx", texts[1].format("int32"))
    assert run(wide, whole, *engines, *more)[0] == 1


def test_wrong_usage(run: Run, tmp_path: Path) -> None:
    assert run(ONNX)[0] == 2
    assert run(ONNX, "--backends", "c")[0] == 2
    assert run(ONNX, "--backends", "c,abacus")[0] == 2
    assert run(str(tmp_path / "none.onnx"), ONNX)[0] == 1
