"""`irc compile --tune`: every candidate is measured, the faster one is kept and followed, and nothing else changes."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import irc
from irc import driver, tuning
from irc.cli import main
from irc.kernels.core.base import Kernel
from irc.kernels.core.choices import Choices, Measured, Recorder, current, using
from irc.runtime import tuned
from irc.toolchain import c_compiler

pytestmark = pytest.mark.skipif(c_compiler.find_compiler() is None, reason="no C compiler")


@pytest.fixture
def model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Two equal products of 20 rows, one of a symbolic number of rows, and convolutions."""
    monkeypatch.setenv("IRC_CACHE_DIR", str(tmp_path / "cache"))
    rng = np.random.default_rng(3)
    weights = [("a", (48, 48)), ("b", (48, 48)), ("c", (48, 40)), ("f", (32, 32, 3, 3))]
    nodes = [
        helper.make_node("MatMul", ["x", "a"], ["xa"]),
        helper.make_node("Relu", ["xa"], ["r"]),
        helper.make_node("MatMul", ["r", "b"], ["y"]),
        helper.make_node("MatMul", ["z", "c"], ["zc"]),
        helper.make_node("Conv", ["image", "f"], ["c1"], pads=[1, 1, 1, 1]),
        helper.make_node("Conv", ["c1", "f"], ["c2"], pads=[1, 1, 1, 1]),
        helper.make_node("Conv", ["c2", "f"], ["planes"], pads=[1, 1, 1, 1]),
    ]
    shapes = {"x": (20, 48), "z": ("n", 48), "image": (1, 32, 12, 12), "y": (20, 48), "zc": ("n", 40)}
    shapes |= {"planes": (1, 32, 12, 12)}
    values = {n: helper.make_tensor_value_info(n, TensorProto.FLOAT, s) for n, s in shapes.items()}
    graph = helper.make_graph(
        nodes,
        "tuned",
        [values[n] for n in ("x", "z", "image")],
        [values[n] for n in ("y", "zc", "planes")],
        [numpy_helper.from_array(rng.standard_normal(s).astype(np.float32) / 16, n) for n, s in weights],
    )
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)]), tmp_path / "m.onnx")
    return tmp_path / "m.onnx"


def arrays() -> dict[str, Any]:
    rng = np.random.default_rng(4)
    shapes = {"x": (20, 48), "z": (3, 48), "image": (1, 32, 12, 12)}
    return {n: rng.standard_normal(s).astype(np.float32) for n, s in shapes.items()}


def last_is_fastest(runs: Sequence[Callable[[int], None]]) -> list[float]:
    """A clock for tests; each candidate runs all the same."""
    for run in runs:
        run(0)
        run(1)
    return [1e-6 * (len(runs) - k) for k in range(len(runs))]


OPTIONS = driver.CompileOptions(backend="c", target="native")


def test_every_candidate_is_measured_once(model: Path) -> None:
    found = tuning.tune(irc.load(model), OPTIONS, last_is_fastest)
    products = [w for w in found.times if w.startswith("product")]
    assert len(products) == 1 and "20x48x48 weights" in products[0], "equal work is measured once, symbolic not at all"
    assert [w for w in found.times if w.startswith("convolution")]
    for work, times in found.times.items():
        assert len(times) > 1
        assert found.chosen[work] == list(times)[-1]
    again = tuning.tune(irc.load(model), OPTIONS, last_is_fastest)
    assert not again.times and again.known == len(found.times)


def test_kernels_without_scratch_for_this_call(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Kernels of dot products pack no B whose columns stand side by side: no bytes of scratch, but a pointer to it."""
    monkeypatch.setenv("IRC_CACHE_DIR", str(tmp_path / "cache"))
    nodes = [helper.make_node("Transpose", ["b"], ["t"], perm=[1, 0]), helper.make_node("MatMul", ["a", "t"], ["y"])]
    shapes = {"a": (40, 160), "b": (24, 160), "y": (40, 24)}
    values = [helper.make_tensor_value_info(n, TensorProto.FLOAT, s) for n, s in shapes.items()]
    graph = helper.make_graph(nodes, "turned", values[:2], values[2:])
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)]), tmp_path / "m.onnx")
    (times,) = tuning.tune(irc.load(tmp_path / "m.onnx"), OPTIONS, last_is_fastest).times.values()
    assert any(name.startswith("dots") for name in times) and any(name.startswith("packed") for name in times)


def test_kernels_whose_results_are_parts_of_a_concatenation(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What results are a part of, as the quarters of a transposed convolution, is no operand of their kernels."""
    monkeypatch.setenv("IRC_CACHE_DIR", str(tmp_path / "cache"))
    weights = numpy_helper.from_array(np.random.default_rng(0).standard_normal((24, 64, 4, 4), np.float32), "w")
    node = helper.make_node("ConvTranspose", ["x", "w", "v"], ["y"], strides=[2, 2], pads=[1] * 4)
    ends = [helper.make_tensor_value_info(n, TensorProto.FLOAT, s) for n, s in (("x", (1, 24, 10, 10)), ("y", None))]
    bias = numpy_helper.from_array(np.ones(64, np.float32), "v")
    graph = helper.make_graph([node], "quarters", ends[:1], ends[1:], [weights, bias])
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)]), tmp_path / "m.onnx")
    found = tuning.tune(irc.load(tmp_path / "m.onnx"), OPTIONS, last_is_fastest)
    assert found.times and all(len(times) > 1 for times in found.times.values())


def test_choices_are_followed_where_artefacts_are_cached(model: Path) -> None:
    before = irc.compile(model, backend="c")
    expected = before(arrays())
    plain = {n: before.artifact.files[n]["sha256"] for n in before.artifact.files}
    found = tuning.tune(irc.load(model), OPTIONS, last_is_fastest)
    assert found.chosen
    after = irc.compile(model, backend="c")
    assert after.artifact.folder != before.artifact.folder
    assert {n: after.artifact.files[n]["sha256"] for n in plain if n in after.artifact.files} != plain
    for a, b in zip(after(arrays()), expected, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-5)
    other = irc.compile(model, backend="c", threads=2)
    assert other.artifact.folder == before.artifact.folder, "nothing was measured with two threads"
    draft = driver.generate(irc.load(model), "c", driver.CompileOptions(cache=False))
    for name, text in draft.files.items():
        if isinstance(text, str) and name.endswith(".c"):  # the header of what was compiled says its stack, too
            assert hashlib.sha256(text.encode()).hexdigest() == plain[name], "without the cache the rules decide"
    assert irc.compile(model, backend="c").artifact.folder == after.artifact.folder


def test_the_margin() -> None:
    assert tuning.choose({"rule": 1.0, "a": 0.99, "b": 1.2}) == "rule"
    assert tuning.choose({"rule": 1.0, "a": 0.9, "b": 0.8}) == "b"


def test_a_table_is_of_one_machine(model: Path) -> None:
    compiler = c_compiler.require_compiler()
    target = c_compiler.resolve_target("native", compiler)
    name = tuned.table_name(target, compiler, 1)
    assert name != tuned.table_name(target, compiler, 2)
    assert name != tuned.table_name(c_compiler.resolve_target("x86-64-v2", compiler), compiler, 1)
    assert tuned.read(name) == {}
    path = tuned.write(name, {"work": "candidate"})
    assert path is not None and tuned.read(name) == {"work": "candidate"}
    path.write_text("[damaged")
    assert tuned.read(name) == {}


def test_the_clock_measures_calls() -> None:
    """Calls that take 1, 3 and 2 ticks of a clock that only they move, apart from an interruption."""
    now, interrupted = 0.0, [False]

    def taking(seconds: float) -> Callable[[int], None]:
        def run(number: int) -> None:
            nonlocal now
            now += seconds
            if seconds == 1e-5 and number == 2 and not interrupted[0]:
                interrupted[0], now = True, now + 1.0

        return run

    found = tuning.interleaved([taking(1e-5), taking(3e-5), taking(2e-4)], lambda: now)
    assert found == pytest.approx([1e-5, 3e-5, 2e-4])


def test_candidates_in_turn() -> None:
    class Named(Kernel):
        def __init__(self, name: str) -> None:
            self.name = name

        def __eq__(self, other: object) -> bool:
            return isinstance(other, Named) and other.name == self.name

        def __hash__(self) -> int:
            return hash(self.name)

    candidates = {"first": Named("a"), "same": Named("a"), "second": Named("b")}

    def picked(choices: Choices, key: str | None = "work") -> str:
        with using(choices):
            kernel = current().pick(key, candidates)
        assert kernel is not None
        return kernel.name

    assert picked(Choices()) == "a" and picked(Recorder(7), None) == "a"
    assert [picked(Recorder(turn)) for turn in range(3)] == ["a", "b", "b"]
    assert picked(Measured({"work": "second"})) == "b"
    assert picked(Measured({"work": "gone"})) == picked(Measured({})) == "a"
    assert picked(Measured({"": "second"}), None) == "a", "symbolic sizes follow the rules"
    recorder = Recorder(1)
    with using(recorder):
        kernel = current().pick("work", candidates)
    assert recorder.of(kernel) == ("work", "second") and recorder.of(Named("b")) is None and recorder.most == 2
    assert current().pick("work", {}) is None


def test_command(
    model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(tuning, "SECONDS", 2e-4)
    folder = tmp_path / "made"
    assert main(["compile", str(model), "-o", str(folder), "--tune"]) == 0
    said = capsys.readouterr()
    assert "2 kernels measured, 0 known before" in said.err and "arena" in said.err
    (table,) = (tmp_path / "cache" / "tuned").iterdir()
    assert len(json.loads(table.read_text())) == 2
    for a, b in zip(irc.load_compiled(folder)(arrays()), irc.compile(model, backend="numpy")(arrays()), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-5)
    assert main(["compile", str(model), "-o", str(folder), "--tune"]) == 0
    assert "0 kernels measured, 2 known before" in capsys.readouterr().err
    assert main(["compile", str(model), "-o", str(folder), "--tune", "--emit", "c"]) == 2
    assert main(["cache", "clear"]) == 0 and not table.exists()
