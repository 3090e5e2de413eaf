"""`irc profile`: the clock that a compiled model gets, what is counted, and what the command prints and writes."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import replace
from html import escape
from html.parser import HTMLParser
from itertools import accumulate
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import irc
from irc import driver
from irc.cli import console, feeds, main, profile, profile_report
from irc.cli.profile_page import page as page_of
from irc.expr import Load, Var, index
from irc.ir.dim import Dim
from irc.ir.types import f32
from irc.loops.ir import Buffer, For, Function, Store
from irc.loops.work import work_of
from irc.runtime import limits as limits_module
from irc.runtime.artifact import Artifact
from irc.runtime.limits import Limits
from irc.runtime.ports import size_for
from irc.runtime.profiling import Profile, Step, measure

ONNX = str(Path(__file__).resolve().parents[2] / "samples" / "digits" / "digits.onnx")
Run = Callable[..., tuple[int, str, str]]


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Run:
    monkeypatch.setattr("irc.cli.profile.SECONDS", 0.01)

    def call(*args: str) -> tuple[int, str, str]:
        status = main(("profile", *args))
        said = capsys.readouterr()
        return status, said.out, said.err

    return call


def compiled(backend: str, profile: bool = True) -> Any:
    return driver.compile(ONNX, driver.CompileOptions(backend, profile=profile))


# ------------------------------------------------------------------------------ the clock
@pytest.mark.parametrize("backend", [pytest.param("c", marks=pytest.mark.compiler), "numpy"])
def test_a_profiled_model_computes_the_same_and_tells_times(backend: str) -> None:
    x = np.random.default_rng(0).standard_normal((3, 1, 8, 8), np.float32)
    with_clock, plain = compiled(backend), compiled(backend, profile=False)
    np.testing.assert_array_equal(with_clock(x)[0], plain(x)[0])
    assert plain.run_times() == []
    times = with_clock.run_times()
    rows = with_clock.artifact.manifest["profile"]
    assert len(times) == len(rows) + 2 and times == sorted(times) and times[0] > 0
    assert {n for r in rows for n in r["layers"]} >= {"conv1", "conv2", "pool", "dense"}
    found = measure(with_clock, lambda: with_clock(x), with_clock.symbol_values([x]), 0)
    assert found.runs == 5 and all(s.seconds >= 0 for s in found.steps)
    assert sum(s.seconds for s in found.steps) + found.rest == pytest.approx(found.seconds)
    assert found.steps[-1].end <= found.seconds * 2 and [s.begin for s in found.steps[1:]] == [
        s.end for s in found.steps[:-1]
    ]


def test_times_are_those_of_the_faster_half() -> None:
    """Five runs of two steps and a rest; an interruption lengthens two of them."""
    lengths = iter([[2, 3, 1]] * 3 + [[1, 1, 1], [2, 3, 2], [90, 3, 1], [3, 4, 2], [2, 80, 1]])  # three warm up

    class Fake:
        artifact = Artifact(Path(), {"profile": [_counted("a"), _counted("b")]})

        def run_times(self) -> list[int]:
            return [0, *(int(1e9) * t for t in self.ends)]

        def __call__(self) -> None:
            self.ends = list(accumulate(next(lengths)))

    fake: Any = Fake()
    found = measure(fake, fake, (), 0)
    assert [s.seconds for s in found.steps] == [2, pytest.approx(8 / 3)]
    assert found.rest == pytest.approx(5 / 3) and found.seconds == pytest.approx(2 + 8 / 3 + 5 / 3)
    assert [(s.begin, s.end) for s in found.steps] == [(0, 2), (2, 5)]


def _counted(name: str) -> dict[str, Any]:
    return {"function": name, "layers": [name], "kernels": [], "flops": None, "read": None, "written": None}


def test_the_clock_is_all_that_differs() -> None:
    model = irc.load(ONNX)
    options = [driver.CompileOptions("c", profile=p, target="x86-64-v3") for p in (False, True)]
    files = [driver.sources(model, o).files for o in options]
    plain, clocked = ({n: t for n, t in found.items() if n.endswith((".c", ".h"))} for found in files)
    assert "_profile" not in str(plain["model.h"]) and "_stamp" not in str(plain["model.c"])
    text = re.sub(r"#include <time.h>\n.*?digits_latest = time;\n}\n\n", "", str(clocked["model.c"]), flags=re.DOTALL)
    text, stamps = re.subn(r"    digits_stamp\(\d+\);\n", "", text)
    text = re.sub(r"    for \(int k = 1; k < \d+; k\+\+\) digits_times\[k\] \+= .*\n", "", text)
    assert stamps == 1 + len(driver.sources(model, options[1]).manifest["profile"]) + 1
    assert plain | {"model.h": ""} == clocked | {"model.c": text, "model.h": ""}
    assert "digits_profile(void);" in str(clocked["model.h"])


def test_work_of_a_symbolic_model_follows_its_sizes() -> None:
    options = driver.CompileOptions("c", profile=True, target="x86-64-v3")
    rows = {tuple(r["layers"]): r for r in driver.sources(irc.load(ONNX), options).manifest["profile"]}
    for batch in (1, 4):
        assert size_for(rows["conv1", "relu1"]["flops"], [batch]) == 2 * 64 * 9 * 8 * batch
        assert size_for(rows["flatten", "dense"]["flops"], [batch]) == 2 * 256 * 10 * batch
        assert size_for(rows["conv1", "relu1"]["written"], [batch]) == 4 * 64 * 8 * batch


# ------------------------------------------------------------------------------- counting
def test_loops_are_counted() -> None:
    n = Dim.symbol("n")
    x, table = Buffer("x", f32, (n,), "input"), Buffer("t", f32, (Dim.of(1000),), "constant")
    y = Buffer("y", f32, (n,), "output")
    i = Var("i")
    value = Load(x, (i,)) * Load(table, (index(3),)) + 1.0
    f = Function("f", [For(i, index(n), [Store(y, (i,), value)])], (x, table), (y,))
    work = work_of(f)
    assert work.flops == 2 * n and work.written == 4 * n
    assert work.read is not None and work.read.evaluate({"n": 7}) == 4 * 7 + 4 * 7  # seven elements of the table
    assert work.read.evaluate({"n": 5000}) == 4 * 5000 + 4 * 1000  # no more than it has
    loaded = Load(table, (index(0),)).cast(index(0).dtype)
    unknown = Function("f", [For(i, loaded, [Store(y, (i,), value)])], (x, table), (y,))
    assert work_of(unknown).flops is None


# -------------------------------------------------------------------------------- limits
@pytest.mark.compiler
def test_limits_are_measured_once(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("IRC_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setattr(limits_module, "MEGABYTES", 8)
    monkeypatch.setattr(limits_module, "SECONDS", 0.001)
    first = limits_module.limits(1)
    assert first is not None and first.threads == 1
    assert 1e8 < first.flops < 1e13 and 1e8 < first.bandwidth < 1e13
    made: list[Limits] = []

    def measure_again(*_: Any) -> Limits:
        made.append(Limits(1.0, 2.0, 1))
        return made[-1]

    monkeypatch.setattr(limits_module, "_measure", measure_again)
    assert limits_module.limits(1) == first and not made
    assert limits_module.limits(1, again=True) == limits_module.limits(1) == Limits(1.0, 2.0, 1)
    assert len(made) == 1
    assert limits_module.limits(1, True, Limits(9.0, 0.5, 1)) == limits_module.limits(1) == Limits(9.0, 2.0, 1)


# -------------------------------------------------------------------------------- reports
def report() -> profile_report.Report:
    gemm, conv = "irc_gemm_f32_avx512_14x2_46eef5aee9", "irc_winograd_conv_f32_avx512_6x4_0123456789"
    steps = [
        Step("a", ("one", "two"), (gemm,), 0.002, 0.0, 0.002, 4_000_000, 4e6, 1_000_000),
        Step("b", ("<three>",), (conv,), 0.001, 0.002, 0.003, 9_000_000, 4e6, None),
        Step("c", ("one", "two"), (gemm,), 0.003, 0.003, 0.006, 2_000_000, 2e6, 2_000_000),
        Step("d", (), (), 0.004, 0.006, 0.010, None, None, 8_000_000),
    ]
    found = Profile(steps, 0.010, 0.0, 5)
    return profile_report.Report("m.onnx", "c", 2, {"x": "float32[2]"}, found, Limits(1e10, 1e10, 2))


def test_figures_of_a_report() -> None:
    said = report().as_json()
    assert [r["name"] for r in said["layers"]] == ["one, two", "d", "<three>"]
    first = said["layers"][0]
    assert (first["calls"], first["flops"], first["bytes"]) == (2, 6_000_000, 3_000_000)
    assert first["share"] == pytest.approx(0.5) and first["flops_per_second"] == pytest.approx(1.2e9)
    assert first["of_peak"] == pytest.approx(0.12) and first["of_bandwidth"] == pytest.approx(0.06)
    three = said["layers"][2]
    assert three["executed_per_second"] == pytest.approx(4e9) and three["of_bandwidth"] is None
    assert three["of_peak"] == pytest.approx(0.4), "of what Winograd leaves to be done"
    assert said["total"]["flops"] is None  # of one function it is not known
    assert [r["kind"] for r in said["kernels"]] == ["gemm", "generated", "winograd_conv"]
    assert json.loads(json.dumps(said))["steps"][1]["layers"] == ["<three>"]


def test_limits_that_a_step_exceeds_are_measured_again() -> None:
    found = report().profile
    assert profile.beyond(found, Limits(3.9e9, 1e10, 1)) and not profile.beyond(found, Limits(4.1e9, 1e8, 1))
    found.steps.append(Step("e", (), (), 0.02, 0.0, 0.02, None, None, 200 << 20))
    assert profile.beyond(found, Limits(4.1e9, 1e10, 1)) and not profile.beyond(found, Limits(4.1e9, 1.1e10, 1))


@pytest.mark.parametrize("width", [80, 120])
def test_tables_fit_into_a_terminal(width: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(console, "width_of", lambda _: width)
    text = report().as_text(25)
    tables = text[text.index("ms") :]
    assert max(map(len, tables.splitlines()[:-1])) <= width
    assert "…" not in tables
    assert all(cell.partition(" ")[0] in tables for row in report().kernels for cell in report().cells(row))


def test_what_exceeds_a_limit_is_explained() -> None:
    plain = report()
    assert plain.notes() == [next(n for n in plain.notes() if "Winograd" in n)]
    found = replace(plain, limits=Limits(1e9, 1e8, 2))
    assert len(found.notes()) == 3 and [found.cells(r)[-1] for r in found.layers] == ["cache", "cache", ""]
    assert all(note in found.as_text(1).splitlines() and escape(note) in page_of(found) for note in found.notes())


def test_many_inputs_are_not_all_named() -> None:
    assert feeds.listed({}) == "none"
    assert feeds.listed({f"x{k}": "f32[2]" for k in range(5)}).endswith("x3 f32[2], x4 f32[2]")
    assert feeds.listed({f"x{k}": "f32[2]" for k in range(6)}).endswith("x3 f32[2], and 2 more")


def test_tables_are_short_where_asked() -> None:
    lines = report().as_text(1).splitlines()
    assert "limits: 10.0 GFLOP/s of f32 multiply-adds, 10.0 GB/s read from memory" in lines
    (row,) = (line.split() for line in lines if line.endswith("one, two"))
    assert row[:7] == ["5.0000", "50.0", "2", "1.2", "12.0", "0.6", "6.0"]
    assert sum("2 more (--top)" in line for line in lines) == 2
    assert any("9.0 (4.0)" in line for line in report().as_text(9).splitlines())


def test_rows_name_all_their_layers() -> None:
    """A kernel's are those of all its calls; long lists go on in the next line, very long ones are cut in text only."""
    plain = report()
    assert any(
        line.endswith("irc_gemm_f32_avx512_14x2_46eef5aee9 (one, two)") for line in plain.as_text(9).splitlines()
    )
    assert [r["layers"] for r in plain.as_json()["kernels"]] == [("one", "two"), (), ("<three>",)]
    names = tuple(f"encoder/layer{k}/dense" for k in range(30))
    steps = [Step("a", names, ("irc_gemm_f32_plain_4x4_46eef5aee9",), 0.002, 0.0, 0.002, 4_000, 4e3, 1_000)]
    many = replace(plain, profile=Profile(steps, 0.002, 0.0, 5))
    layers, kernels = " ".join(many.as_text(9).split()).split("kernel or generated function")
    assert ", ".join(names) in layers and ", ".join(names[:20]) + ", and 10 more)" in kernels
    assert ", ".join(names) in page_of(many) and many.as_json()["kernels"][0]["layers"] == names


def test_trace_is_one_run_in_order() -> None:
    events = [e for e in report().as_trace()["traceEvents"] if e["ph"] == "X"]
    assert [e["name"] for e in events] == ["one, two", "<three>", "one, two", "d"]
    assert [(e["ts"], e["dur"]) for e in events][1] == (pytest.approx(2000), pytest.approx(1000))
    assert events[1]["args"]["executed"] == 4e6 and "bytes" not in events[1]["args"]


class Page(HTMLParser):
    """Whether every element ends, what a page loads, and the widths of the bar's parts."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.widths: list[float] = []
        self.loads: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = dict(attrs)
        self.loads += [n for n in given if n in ("src", "href")]
        if tag != "meta":
            self.open.append(tag)
        if tag == "div" and "title" in given:
            self.widths.append(float(str(given["style"]).split("width:")[1].split("%")[0]))

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


def test_page_is_whole_and_alone() -> None:
    text = page_of(report())
    page = Page(text)
    assert page.open == [] and page.loads == [] and text.count("<script") == 1
    assert page.widths == pytest.approx([20, 10, 30, 40])
    assert "<three>" not in text and "&lt;three&gt;" in text


def test_page_has_shapes_and_what_to_sort_by() -> None:
    found = report()
    steps = [
        replace(s, operands=(f"f32[{k},4]", "f32[4,n]"), results=("f32[n]",)) for k, s in enumerate(found.profile.steps)
    ]
    text = page_of(replace(found, profile=replace(found.profile, steps=steps)))
    assert "<div>f32[0,4], f32[4,n] → f32[n]</div><div>f32[2,4], f32[4,n] → f32[n]</div>" in text, "two calls of a row"
    first = re.search(r"<tbody><tr>(.*?)</tr>", text)
    assert first and re.findall(r'data-value="([^"]*)"', first[1])[:3] == ["0.005", "0.5", "2"]
    assert re.findall(r'data-value="([^"]*)"', text).count("") == 2 * 4, "of what is not known: first with the smallest"


# ------------------------------------------------------------------------------- command
@pytest.mark.compiler
def test_profile_prints_and_writes(run: Run, tmp_path: Path) -> None:
    trace, page = tmp_path / "t.json", tmp_path / "p.html"
    status, out, err = run(ONNX, "--trace", str(trace), "--html", str(page))
    assert status == 0, err
    assert re.search(r"GFLOP/s +% of FMA +GB/s +% of memory +layers", out) and "conv2" in out
    assert len(json.loads(trace.read_text())["traceEvents"]) > 4 and "conv2" in page.read_text()
    status, out, err = run(ONNX, "--json", "--backend", "numpy", "--shape", "image[5,1,8,8]")
    said = json.loads(out)
    assert said["backend"] == "numpy" and said["inputs"] == {"image": "float32[5,1,8,8]"} and said["runs"] >= 5


@pytest.mark.compiler
def test_profile_of_a_folder(run: Run, tmp_path: Path) -> None:
    folders = [str(tmp_path / name) for name in ("plain", "clocked")]
    assert main(("compile", ONNX, "-o", folders[0])) == main(("compile", ONNX, "-o", folders[1], "--profile")) == 0
    status, _, err = run(folders[0])
    assert status == 1 and "error[IRC4905]" in err and "irc compile MODEL --profile" in err
    status, out, _ = run(folders[1], "--json")
    assert status == 0 and {"conv1", "relu1", "dense"} <= {n for r in json.loads(out)["kernels"] for n in r["layers"]}
    assert run(folders[1], "--backend", "numpy")[0] == 2
