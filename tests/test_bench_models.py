"""The networks and layers of bench/: they compute what ONNX Runtime and NumPy do; the reports' arithmetic."""

from __future__ import annotations

import json
import math
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import irc
from irc.toolchain.c_compiler import find_compiler
from tests.support.benchmarks import BENCH, module


@pytest.fixture(scope="module")
def networks() -> Any:
    return module("networks")


NAMES = ("mlp", "resnet", "mobilenet", "unet", "encoder", "lstm", "decoder")


def test_the_names(networks: Any) -> None:
    assert tuple(networks.NETWORKS) == NAMES


@pytest.mark.skipif(find_compiler() is None, reason="no C compiler")
@pytest.mark.parametrize("name", NAMES)
def test_networks_are_right(name: str, networks: Any) -> None:
    ort = pytest.importorskip("onnxruntime")
    model = networks.NETWORKS[name](True)
    feeds = networks.feeds(model)
    session = ort.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    wanted = session.run(None, feeds)
    for backend in ("c", "numpy"):
        found = irc.compile(model, backend=backend)(feeds)
        for a, b in zip(found, wanted, strict=True):
            largest = np.abs(b).max()
            assert 1e-2 < largest < 1e3, "activations keep their size"
            assert np.abs(a - b).max() <= 5e-6 * largest


def test_the_report_adds_up(networks: Any) -> None:
    models: Any = module("models")
    times = {"irc": [0.002, 0.001, 0.004], "onnxruntime": [0.003], "openvino": [0.005, 0.004]}
    slower = {**times, "irc": [0.012]}
    rows = [models.Row("one", 0.5, 1, times, {"irc": 1e-6}), models.Row("two", 2, 1, slower, {"irc": 0})]
    assert rows[0].ratio("irc") == pytest.approx(1.5) and rows[1].ratio("irc") == pytest.approx(0.25)
    lines = models.table(rows, ["highest"], True).splitlines()
    assert [line.count("|") for line in lines] == [9] * 5
    assert lines[2] == "| one | 0.5 | 1 | 2 (1) | 3 (3) | 4.5 (4) | 1.50 | 1.0e-06 |"
    assert lines[-1].split(" | ")[-2] == f"{np.sqrt(1.5 * 0.25):.2f}"
    assert "irc" in models.machine() and "ONNX Runtime" in models.machine()
    readme = (BENCH.parent / "README.md").read_text("utf-8")
    assert lines[0] in readme and lines[1] in readme, "the table of the README is of this command"
    again = models.written(readme, "| new |")
    assert lines[0] not in again and "| new |" in again and models.written(again, "| new |") == again
    with pytest.raises(ValueError, match="speed"):
        models.written("nothing", "")


@pytest.mark.skipif(find_compiler() is None, reason="no C compiler")
def test_a_measurement(networks: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("onnxruntime")
    pytest.importorskip("openvino")
    monkeypatch.setattr("irc.cli.bench.ROUNDS", 2)
    monkeypatch.setattr("irc.cli.bench.BURST_SECONDS", 0.001)
    row = module("models").measure("mlp", 2, ["highest", "medium"], small=True)
    assert set(row.times) == {"irc", "irc medium", "onnxruntime", "openvino"}
    assert all(t > 0 for times in row.times.values() for t in times)
    assert row.difference["irc"] < 1e-5 and row.gflop == pytest.approx(2e-9 * (64 * 64 + 64 * 32 + 32 * 10))


@pytest.mark.parametrize("index", range(42))
def test_layers_are_right(index: int) -> None:
    """Two layers of every family of the sweep, by its NumPy: its C is what the sweep itself compares."""
    ort = pytest.importorskip("onnxruntime")
    sweep: Any = module("sweep")
    layer = sweep.draw(3, index, list(sweep.FAMILIES))
    session = ort.InferenceSession(layer.model.SerializeToString(), providers=["CPUExecutionProvider"])
    (wanted,) = session.run(None, layer.feeds)
    (found,) = irc.compile(layer.model, backend="numpy")(layer.feeds)
    largest = np.abs(wanted.astype(np.float64)).max()
    np.testing.assert_allclose(found, wanted, rtol=0, atol=(1e-2 if layer.family in sweep.ROUGH else 1e-4) * largest)


def test_the_sweep_adds_up() -> None:
    sweep: Any = module("sweep")
    rows = [
        sweep.Row(0, "pool", "a", {"irc": 2.0, "ort": 1.0, "openvino": 4.0}),
        sweep.Row(1, "pool", "b", {"irc": 1.0}),
    ]
    rows.append(sweep.Row(2, "norm", "c", {"irc": 1.0, "openvino": 2.0}, difference=1.0))
    assert [r.ratio for r in rows if r.index != 1] == [0.5, 2.0]
    assert [r.off for r in rows] == [False, False, True]
    rows.append(sweep.Row(3, "norm", "d", {"irc": 2.0, "openvino": 1.0}, free="gemm_mlas_f32"))
    assert math.isnan(rows[3].ratio) and str(rows[3]).endswith("gemm_mlas_f32 is not held to the target")
    assert sweep.summary(rows, 0.9).splitlines() == [
        "pool           1  mean  0.50  lowest  0.50  below 0.9: 1",
        "norm           1  mean  2.00  lowest  2.00  below 0.9: 0",
        "all            2  mean  1.00  lowest  0.50  below 0.9: 1",
    ]


def test_the_histogram_has_every_layer(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    rows = [("pool", 0.5), ("pool", 2.0), ("norm", 4.0), ("norm", math.nan)]
    layers = [{"family": family, "ratio": ratio} for family, ratio in rows]
    (tmp_path / "l.json").write_text(json.dumps({"title": "a machine", "layers": layers}), "utf-8")
    svg = tmp_path / "pictures" / "l.svg"
    assert module("histogram").main([str(tmp_path / "l.json"), "-o", str(svg)]) == 0
    text = svg.read_text("utf-8")
    assert "a machine" in text and "3 layers, geometric mean 1.59, 1 below 0.9" in text
    first = text
    module("histogram").main([str(tmp_path / "l.json"), "-o", str(svg)])
    assert svg.read_text("utf-8") == first, "the same figures give the same file"


def test_a_neighbour_runs_beside_every_other_round_and_is_ended() -> None:
    neighbour = module("neighbour")
    shares = neighbour.measure({"onnxruntime": lambda: 0, "openvino": lambda: 0, "irc": lambda: 0}, 0.0, 0.001)
    assert set(shares) == {False, True} and all(0 < t < 0.1 for times in shares.values() for t in times.values())
    with neighbour.neighbour() as let:
        let(False)
    assert neighbour.ratio({"onnxruntime": 3.0, "openvino": 2.0, "irc": 1.0}) == 2.0


@pytest.mark.skipif(find_compiler() is None, reason="no C compiler")
def test_cold_says_where_compiling_goes(capsys: pytest.CaptureFixture[str]) -> None:
    assert module("cold").main(["mlp", "--small"]) == 0
    title, row = (line.split() for line in capsys.readouterr().out.splitlines())
    assert row[0] == "mlp" and len(title) == len(row)
    seconds, reading, passes, compiler, files, longest = map(float, row[1:])
    assert seconds == pytest.approx(reading + passes + compiler, abs=0.02)
    assert 0 < longest <= passes + compiler + 0.01 and longest <= files  # kernels begin while other files are printed


def test_the_sweep_survives_a_crash(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(BENCH))
    sweep: Any = module("sweep")
    process = sweep.OwnProcess()
    first = process.call(os.getpid)
    with pytest.raises(sweep.Died):
        process.call(os.abort)
    assert process.call(os.getpid) not in (first, os.getpid())

    def crashes(culprit: str) -> Any:
        def measure(engines: Sequence[str]) -> Any:
            if culprit in engines:
                raise sweep.Died
            return sweep.Row(7, "norm", "a", dict.fromkeys(engines, 1.0))

        return sweep.survived(7, measure)

    assert str(crashes("openvino")).endswith("a  openvino crashed") and not crashes("openvino").off
    assert set(crashes("ort").ms) == {"irc", "openvino"}
    assert crashes("irc").off
