"""The command line: what each verb prints, writes and returns.  Most tests call `main` in this process."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import onnx
import pytest

from irc.cli import VERBS, console, main

ROOT = Path(__file__).resolve().parents[2]
DIGITS = ROOT / "samples" / "digits"
ONNX, XML = str(DIGITS / "digits.onnx"), str(DIGITS / "digits.xml")
HELD = str(DIGITS / "heldout.npz")
BROKEN = """<ir_version: 8, opset_import: ["" : 17]>
m (float[2,3] x, float[2,3] w) => (float[2,2] y) { y = MatMul(x, w) }"""


class Result(NamedTuple):
    status: int
    out: str
    err: str


Run = Callable[..., Result]


@pytest.fixture
def irc(capsys: pytest.CaptureFixture[str]) -> Run:
    def run(*args: str) -> Result:
        status = main(args)
        return Result(status, *capsys.readouterr())

    return run


@pytest.fixture
def broken(tmp_path: Path) -> str:
    path = tmp_path / "broken.onnx"
    path.write_bytes(onnx.parser.parse_model(BROKEN).SerializeToString())
    return str(path)


def process(*args: str, **environment: str) -> Result:
    """The command in a process of its own."""
    env = {**os.environ, "PYTHONPATH": str(ROOT), **environment}
    done = subprocess.run(
        [sys.executable, "-c", "import sys; from irc.cli import main; sys.exit(main())", *args],
        env=env,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    return Result(done.returncode, done.stdout, done.stderr)


# ------------------------------------------------------------------- help, usage, crashes
def test_help_lists_every_verb(irc: Run) -> None:
    said = irc("--help")
    assert said.status == 0
    assert [v for v in VERBS if not re.search(rf"^  {v} ", said.out, re.MULTILINE)] == []


@pytest.mark.parametrize("verb", VERBS)
def test_each_verb_has_help(irc: Run, verb: str) -> None:
    said = irc(verb, "--help")
    assert said.status == 0
    assert said.out.startswith(f"Usage: irc {verb}")


def test_version(irc: Run) -> None:
    from irc.version import VERSION

    assert irc("--version").out.split()[-1] == VERSION
    assert f'version = "{VERSION}"' in (ROOT / "pyproject.toml").read_text("utf-8")


@pytest.mark.parametrize(
    "args",
    [
        ("frobnicate",),
        ("validate",),
        ("validate", ONNX, "--format", "yaml"),
        ("convert", ONNX),
        ("convert", ONNX, "out.pb"),
        ("convert", ONNX, "out.onnx", "--max-opset", "opset8"),
        ("convert", ONNX, "out.xml", "--opset", "17"),
        ("convert", ONNX, "out.xml", "--max-opset", "8"),
        ("convert", ONNX, "out.xml", "--for-openvino", "2021.4", "--ir-version", "11"),
        ("convert", ONNX, "out.onnx", "--opset", "99"),
        ("run", ONNX, "--input", "picture=random"),
        ("run", ONNX, "--input", "image=missing.npy"),
        ("compile", ONNX, "--shape", "image[1,x,8,8]"),
        ("compile", ONNX, "--bound", "n"),
        ("compile", ONNX, "--emit", "c", "--backend", "numpy"),
        ("compile", ONNX, "-o", ONNX),
        ("bench", ONNX, "--vs", "abacus"),
        ("explain", "IRC0000"),
    ],
)
def test_wrong_usage_is_status_2(
    irc: Run, args: tuple[str, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    said = irc(*args)
    assert said.status == 2
    assert said.out == ""
    assert "Error" in said.err or "Usage" in said.err
    assert list(tmp_path.iterdir()) == []


def test_a_crash_is_status_3_and_asks_for_a_report(irc: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("irc.load", lambda path: 1 / 0)
    said = irc("info", ONNX)
    assert said.status == 3
    assert "error[IRC9002]: internal error: ZeroDivisionError: division by zero" in said.err
    assert "please report it" in said.err
    assert "Traceback" not in said.err + said.out


def test_a_crash_shows_its_traceback_when_asked(irc: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("IRC_TRACEBACK", "1")
    monkeypatch.setattr("irc.load", lambda path: 1 / 0)
    said = irc("info", ONNX)
    assert said.status == 3
    assert "Traceback" in said.err


def test_an_interrupt_is_quiet(irc: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(path: str) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("irc.load", interrupted)
    said = irc("info", ONNX)
    assert said.status == 130
    assert "Traceback" not in said.err


def test_runs_as_a_module() -> None:
    command = [sys.executable, "-m", "irc", "--version"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout.startswith("irc, version ")


def test_a_closed_pipe_is_quiet() -> None:
    code = "import sys; from irc.cli import main; sys.exit(main(['explain']))"
    with subprocess.Popen(
        [sys.executable, "-c", code], stdout=subprocess.PIPE, stderr=subprocess.PIPE, cwd=ROOT, text=True
    ) as child:
        assert child.stdout is not None
        assert child.stderr is not None
        child.stdout.close()
        said = child.stderr.read()
    assert said == ""


@pytest.mark.parametrize("args", [("--help",), ("explain", "3104"), ("validate", XML)])
def test_starts_without_heavy_imports(args: tuple[str, ...]) -> None:
    code = (
        "import sys; from irc.cli import main; main(sys.argv[1:]); "
        "print([m for m in ('onnx', 'openvino', 'onnxruntime', 'torch', 'rich') if m in sys.modules], file=sys.stderr)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, *args], cwd=ROOT, capture_output=True, text=True, timeout=60, check=True
    )
    assert done.stderr.strip().splitlines()[-1] == "[]"


# ------------------------------------------------------------------------------ validate
def test_validate_a_good_model(irc: Run) -> None:
    said = irc("validate", ONNX, XML)
    assert said.status == 0
    assert said.out == f"{ONNX}: valid, no findings\n{XML}: valid, no findings\n"


def test_validate_a_broken_model(irc: Run, broken: str) -> None:
    said = irc("validate", broken)
    assert said.status == 1
    assert "error[IRC3104]: MatMul-13: inner dimensions differ: 3 and 2" in said.out
    assert said.out.endswith(f"{broken}: invalid, 1 error\n")


def test_validate_goes_on_after_a_broken_model(irc: Run, broken: str) -> None:
    said = irc("validate", broken, ONNX, "missing.xml", "--format", "json")
    assert said.status == 1
    found = json.loads(said.out)
    assert found["schema"] == 1
    assert [d["location"]["file"] for d in found["diagnostics"]] == [broken, "missing.xml"]


def test_validate_as_sarif(irc: Run, broken: str) -> None:
    said = irc("validate", broken, "--format", "sarif")
    assert said.status == 1
    assert json.loads(said.out)["runs"][0]["results"][0]["ruleId"] == "IRC3104"


def test_validate_as_github_annotations(irc: Run, broken: str) -> None:
    said = irc("validate", broken, ONNX, "--format", "github")
    assert said.out.startswith(f"::error file={broken},title=IRC3104::MatMul")
    assert len(said.out.splitlines()) == 1
    assert irc("validate", ONNX, "--format", "github") == Result(0, "", "")


def test_validate_reports_a_crash_as_a_finding(irc: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("irc.validate", lambda path: 1 / 0)
    said = irc("validate", ONNX, "--format", "json")
    assert said.status == 3
    assert json.loads(said.out)["diagnostics"][0]["code"] == "IRC9002"


def test_no_colour_without_a_terminal(irc: Run, broken: str) -> None:
    assert "\x1b" not in irc("validate", broken).out


@pytest.mark.parametrize(
    ("environment", "coloured"), [({}, True), ({"NO_COLOR": "1"}, False), ({"TERM": "dumb"}, False)]
)
def test_colour_only_where_wanted(environment: dict[str, str], coloured: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    class Terminal:
        def isatty(self) -> bool:
            return True

    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.setenv("TERM", "xterm")
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    assert console.wants_colour(Terminal()) is coloured  # type: ignore[arg-type]


# ----------------------------------------------------------------------------------- run
def test_run_prints_and_writes_the_outputs(irc: Run, tmp_path: Path) -> None:
    target = tmp_path / "scores.npz"
    said = irc("run", ONNX, "--input", f"image={HELD}", "--output", str(target), "--backend", "numpy")
    assert said.status == 0
    assert said.out.startswith("scores: float32[360,10]  min ")
    with np.load(target) as written:
        right = (written["scores"].argmax(1) == np.load(HELD)["label"]).mean()
    assert right >= 0.97


def test_run_takes_all_inputs_from_one_file(irc: Run, tmp_path: Path) -> None:
    said = irc("run", XML, "--input", HELD, "--output", str(tmp_path / "out"), "--backend", "numpy")
    assert said.status == 0
    assert np.load(tmp_path / "out" / "scores.npy").shape == (360, 10)


def test_run_on_random_inputs_is_repeatable(irc: Run) -> None:
    first = irc("run", ONNX, "--backend", "numpy", "--json")
    assert first == irc("run", ONNX, "--input", "image=random", "--backend", "numpy", "--json")
    assert first.err == "input image: random float32[2,1,8,8]\n"
    (scores,) = json.loads(first.out)["outputs"]
    assert (scores["name"], scores["dtype"], scores["shape"]) == ("scores", "float32", [2, 10])


def test_run_with_a_fixed_shape(irc: Run) -> None:
    said = irc("run", ONNX, "--shape", "image[5,1,8,8]", "--backend", "numpy")
    assert said.out.startswith("scores: float32[5,10]")


def test_run_of_a_wrong_array_is_status_1(irc: Run, tmp_path: Path) -> None:
    np.save(tmp_path / "x.npy", np.zeros((2, 1, 8, 8)))
    said = irc("run", ONNX, "--input", f"image={tmp_path / 'x.npy'}", "--backend", "numpy")
    assert said.status == 1
    assert "error[IRC6303]" in said.err


def test_run_of_a_missing_model_is_status_1(irc: Run) -> None:
    said = irc("run", "missing.onnx")
    assert said.status == 1
    assert "error[IRC1401]" in said.err


def test_run_without_a_compiler_says_so_in_one_line(tmp_path: Path) -> None:
    said = process("run", ONNX, PATH=str(tmp_path), CC="", IRC_CACHE_DIR=str(tmp_path))
    assert said.status == 0, said.err
    notes = [line for line in said.err.splitlines() if "IRC6340" in line]
    assert len(notes) == 1
    assert notes[0].startswith("note: ")
    assert "Warning" not in said.err


# ------------------------------------------------------------------------------- compile
def test_compile_then_run_the_folder(irc: Run, tmp_path: Path) -> None:
    folder = tmp_path / "digits"
    said = irc("compile", ONNX, "-o", str(folder))
    assert said.status == 0
    assert f"{folder / 'manifest.json'}" in said.out.splitlines()
    ran = irc("run", str(folder), "--input", HELD, "--json")
    assert ran.status == 0
    assert json.loads(ran.out)["outputs"][0]["shape"] == [360, 10]
    assert "scores: float32[batch,10]" in irc("info", str(folder)).out


def test_compile_names_the_folder_after_the_model(irc: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert irc("compile", ONNX, "--backend", "numpy").status == 0
    assert (tmp_path / "digits" / "model.py").exists()


def test_compile_embeds_weights(irc: Run, tmp_path: Path) -> None:
    assert irc("compile", ONNX, "-o", str(tmp_path / "d"), "--backend", "numpy", "--weights", "embed").status == 0
    assert not (tmp_path / "d" / "weights.bin").exists()


def test_compile_leaves_nothing_behind_on_failure(irc: Run, broken: str, tmp_path: Path) -> None:
    said = irc("compile", broken, "-o", str(tmp_path / "d"))
    assert said.status == 1
    assert sorted(f.name for f in tmp_path.iterdir()) == ["broken.onnx"]


@pytest.mark.compiler
@pytest.mark.parametrize(
    ("emit", "has", "lacks"),
    [
        ("c", {"digits.c", "digits.h", "digits_weights.bin"}, {".so", ".py"}),
        ("so", {"manifest.json", "digits.h", "digits_weights.bin"}, {".c", ".py"}),
        ("all", {"digits.c", "digits.h", "numpy"}, set()),
        ("numpy", {"model.py", "weights.bin"}, {".c", ".so"}),
    ],
)
def test_compile_emits_what_is_asked_for(irc: Run, tmp_path: Path, emit: str, has: set[str], lacks: set[str]) -> None:
    said = irc("compile", ONNX, "-o", str(tmp_path / "d"), "--emit", emit)
    assert said.status == 0, said.err
    files = list((tmp_path / "d").iterdir())
    assert has <= {f.name for f in files}
    assert not lacks & {f.suffix for f in files}
    if emit != "c":
        assert irc("run", str(tmp_path / "d")).status == 0


# ------------------------------------------------------------------------------- convert
def test_convert_checks_and_writes(irc: Run, tmp_path: Path) -> None:
    said = irc("convert", ONNX, str(tmp_path / "d.xml"))
    assert said.status == 0
    assert "checked: 1 output agrees" in said.err
    assert sorted(f.name for f in tmp_path.iterdir()) == ["d.bin", "d.xml"]


def test_convert_to_an_older_opset(irc: Run, tmp_path: Path) -> None:
    assert irc("convert", XML, str(tmp_path / "d.onnx"), "--opset", "13", "--no-check").status == 0
    assert onnx.load(tmp_path / "d.onnx").opset_import[0].version == 13


def test_convert_to_an_older_ir(irc: Run, tmp_path: Path) -> None:
    assert irc("convert", ONNX, str(tmp_path / "d.xml"), "--for-openvino", "2021.4").status == 0
    assert 'version="10"' in (tmp_path / "d.xml").read_text("utf-8")[:300]


def test_convert_of_a_broken_model_writes_nothing(irc: Run, broken: str, tmp_path: Path) -> None:
    said = irc("convert", broken, str(tmp_path / "d.xml"))
    assert said.status == 1
    assert "IRC3104" in said.err
    assert sorted(f.name for f in tmp_path.iterdir()) == ["broken.onnx"]


def test_convert_throws_a_wrong_result_away(irc: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is written here is another model, with another weight."""
    import irc as package

    real = package.save

    def save_another(model: Any, path: str, **options: Any) -> Any:
        other = onnx.load(ONNX)
        other.graph.initializer[-1].raw_data = np.ones(10, np.float32).tobytes()
        return real(package.load(other), path, **options)

    monkeypatch.setattr("irc.save", save_another)
    (tmp_path / "d.xml").write_text("what was there before", "utf-8")
    said = irc("convert", ONNX, str(tmp_path / "d.xml"))
    assert said.status == 1
    assert "error[IRC4901]" in said.err
    assert (tmp_path / "d.xml").read_text("utf-8") == "what was there before"
    assert sorted(f.name for f in tmp_path.iterdir()) == ["d.xml"]


def test_convert_into_no_folder(irc: Run, tmp_path: Path) -> None:
    said = irc("convert", ONNX, str(tmp_path / "no" / "d.xml"))
    assert said.status == 1
    assert "error[IRC4903]" in said.err


def test_convert_says_when_it_cannot_check(irc: Run, tmp_path: Path) -> None:
    model = '<ir_version: 8, opset_import: ["" : 17, "acme" : 1]>\nm (float[2] x) => (float[2] y) { y = acme.Op(x) }'
    (tmp_path / "m.onnx").write_bytes(onnx.parser.parse_model(model).SerializeToString())
    said = irc("convert", str(tmp_path / "m.onnx"), str(tmp_path / "n.onnx"))
    assert said.status == 0
    assert "note[IRC4902]" in said.err
    assert (tmp_path / "n.onnx").exists()


def test_compile_takes_artefacts_from_the_cache(irc: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from irc import driver

    monkeypatch.setenv("IRC_CACHE_DIR", str(tmp_path / "cache"))
    first = irc("compile", ONNX, "-o", str(tmp_path / "a"))
    assert first.status == 0 and re.search(r"^(c|numpy): .*, in \d+\.\d s$", first.err, re.MULTILINE)

    def generate(*_: Any) -> None:
        raise AssertionError("the model was compiled already")

    monkeypatch.setattr(driver, "generate", generate)
    assert irc("compile", ONNX, "-o", str(tmp_path / "b")).status == 0
    assert (tmp_path / "a" / "manifest.json").read_bytes() == (tmp_path / "b" / "manifest.json").read_bytes()
    assert irc("compile", ONNX, "-o", str(tmp_path / "c"), "--shape", "image[1,1,8,8]").status == 3


# -------------------------------------------------------------- info, explain, bench, cache
def test_info_of_both_formats_agrees(irc: Run) -> None:
    first, second = (json.loads(irc("info", path, "--json").out) for path in (ONNX, XML))
    assert first["format"] == "onnx"
    assert second["format"] == "openvino"
    assert first["operations"] == {"Conv": 2, "Relu": 2, "Flatten": 1, "Gemm": 1, "MaxPool": 1}
    assert first["inputs"] == [{"name": "image", "dtype": "f32", "shape": ["batch", 1, 8, 8]}]
    assert first["weight_bytes"]["f32"] == second["weight_bytes"]["f32"] == 3818 * 4


def test_info_counts_multiply_accumulates(irc: Run) -> None:
    """Two convolutions over 64 places and a dense layer, for each image."""
    each = 64 * 9 * 8 + 64 * 72 * 16 + 256 * 10
    assert json.loads(irc("info", ONNX, "--json").out)["macs"] == f"{each}*batch"
    assert f"multiply-accumulates: {each}*batch" in irc("info", ONNX).out


def test_explain_one_code(irc: Run) -> None:
    said = irc("explain", "irc3104")
    assert said.status == 0
    assert said.out.startswith("IRC3104 (error): MatMul inner dimensions differ")
    assert "Fix:" in said.out


def test_explain_lists_all_codes(irc: Run) -> None:
    from irc.diagnostics.codes import all_codes

    lines = irc("explain").out.splitlines()
    assert [line.split()[0] for line in lines] == list(all_codes())


def test_bench_measures_irc_beside_others(irc: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("irc.cli.bench.ROUNDS", 2)
    monkeypatch.setattr("irc.cli.bench.BURST_SECONDS", 0.001)
    said = irc("bench", XML, "--vs", "onnxruntime,openvino", "--json")
    assert said.status == 0, said.err
    result = json.loads(said.out)
    assert [row["engine"] for row in result["engines"]] == ["irc", "onnxruntime", "openvino"]
    assert all(0 < row["min_ms"] <= row["median_ms"] for row in result["engines"])
    assert result["threads"] == 1
    assert result["engines"][0]["ratio"] == 1
    for row in result["engines"]:
        assert row["ratio"] == pytest.approx(row["median_ms"] / result["engines"][0]["median_ms"])
        assert row["difference"] < 1e-5


def test_bench_leaves_out_what_cannot_run(irc: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    """Another engine's failure is no mistake of irc: the others are measured."""

    def fails(*_: Any) -> None:
        raise RuntimeError("No conversion rule\nfor this")

    monkeypatch.setattr("irc.cli.bench.ROUNDS", 2)
    monkeypatch.setattr("irc.cli.bench.BURST_SECONDS", 0.001)
    monkeypatch.setattr("irc.comparison.engines.openvino_model", fails)
    said = irc("bench", XML, "--vs", "openvino,onnxruntime", "--json")
    assert said.status == 0, said.err
    assert "openvino cannot run the model: No conversion rule; it is left out" in said.err
    assert [row["engine"] for row in json.loads(said.out)["engines"]] == ["irc", "onnxruntime"]


def test_bench_says_what_is_not_installed(irc: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "openvino", None)
    said = irc("bench", ONNX, "--vs", "openvino")
    assert said.status == 1
    assert "error[IRC4904]: openvino cannot be used" in said.err
    assert "python -m pip install openvino" in said.err


def test_cache_info_and_clear(irc: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("IRC_CACHE_DIR", str(tmp_path / "cache"))
    irc("run", ONNX, "--backend", "numpy")
    before = json.loads(irc("cache", "info", "--json").out)
    assert before["path"] == str(tmp_path / "cache")
    assert before["entries"] == 1
    assert before["bytes"] > 15_000
    assert irc("cache", "clear").out == "removed 1 artefact\n"
    assert "0 artefacts, 0 B of" in irc("cache", "info").out


# ------------------------------------------------------------------------------- options
@pytest.mark.parametrize(
    ("text", "shapes"),
    [
        ("x[1,3,224,224]", {"x": (1, 3, 224, 224)}),
        ("x:1,3,224,224", {"x": (1, 3, 224, 224)}),
        ("a[1, 2],b/c:0[3]", {"a": (1, 2), "b/c:0": (3,)}),
        ("x[]", {"x": ()}),
        ("input:0:4", {"input:0": (4,)}),
    ],
)
def test_shapes_in_both_spellings(text: str, shapes: dict[str, tuple[int, ...]]) -> None:
    assert console.parse_shapes([text]) == shapes


@pytest.mark.parametrize("text", ["x", "[1]", "x[1", "x[1]]", "x[-1]", "x[1,,2]", ":1", "x[a]", "x[1] y[2]"])
def test_texts_that_are_no_shapes(text: str) -> None:
    import click

    with pytest.raises(click.BadParameter):
        console.parse_shapes([text])


def test_bounds() -> None:
    assert console.parse_bounds(["detections=100", "a=b=3"]) == {"detections": 100, "a=b": 3}


# ----------------------------------------------------------------------- what goes wrong outside of irc
def test_outputs_that_cannot_be_written_are_status_1(irc: Run, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    place = str(tmp_path / "file" / "inside")
    for args in (
        ("run", ONNX, "--output", place),
        ("run", ONNX, "--output", f"{place}.npz"),
        ("compile", ONNX, "-o", place),
    ):
        ran = irc(*args)
        assert ran.status == 1 and "IRC4903" in ran.err, args


@pytest.mark.compiler
def test_numpy_is_no_answer_to_a_wrong_option(irc: Run, tmp_path: Path) -> None:
    for option in (("--target", "z80"), ("--shape", "image[2,1,9,8]"), ("--bound", "nothing=3")):
        ran = irc("compile", ONNX, "-o", str(tmp_path / "made"), *option)
        assert ran.status == 2 and "IRC6" in ran.err and "NumPy" not in ran.err, option
        assert not (tmp_path / "made").exists()


@pytest.mark.compiler
def test_info_of_a_folder_of_sources(irc: Run, tmp_path: Path) -> None:
    assert irc("compile", ONNX, "-o", str(tmp_path / "made"), "--emit", "c").status == 0
    assert "scores: float32[batch,10]" in irc("info", str(tmp_path / "made")).out


def test_dump_after_prints_a_graph_that_parses(irc: Run, tmp_path: Path) -> None:
    from irc.opdef.text import parse_graph, print_graph

    for args in (("--dump-after", "load"), ("--dump-after", "cse"), ("--dump-after", "fold", "--backend", "numpy")):
        ran = irc("compile", ONNX, "-o", str(tmp_path / "made"), *args)
        assert ran.status == 0 and "%scores: f32[batch, 10]" in ran.out
        assert print_graph(parse_graph(ran.out)) == ran.out
    assert irc("compile", ONNX, "--dump-after", "nothing").status == 2
    assert not (tmp_path / "made").exists()


def test_dump_after_shows_what_kernels_take(irc: Run) -> None:
    said = irc("compile", ONNX, "--backend", "c", "--target", "x86-64-v3", "--dump-after", "nothing")
    assert said.status == 2
    listed = [
        "integer-products",
        "wide-products",
        "select-composites",
        "transposed-conv",
        "trim-taps",
        "fold-taps",
        "decompose",
        "late-squeezes",
        "channels-last",
        "concat-in-place",
        "select-kernels",
    ]
    words = re.findall(r"[\w-]+", said.err)
    places = [words.index(name) for name in listed]
    assert places == sorted(places)
    dumped = {
        n: irc("compile", ONNX, "--target", "x86-64-v3", "--dump-after", n).out for n in ("cse", "select-kernels")
    }
    assert "KernelOp" not in dumped["cse"] and "Conv(" in dumped["cse"]
    assert (
        len(re.findall(r"= KernelOp\[\w+\]\(\w+=", dumped["select-kernels"])) >= 3
        and "Conv(" not in dumped["select-kernels"]
    )
    assert irc("compile", ONNX, "--backend", "numpy", "--dump-after", "select-kernels").status == 2
