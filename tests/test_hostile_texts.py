"""No text of a model becomes code: models whose every text is hostile, through everything that irc writes."""

from __future__ import annotations

import ast
import json
import os
import re
import zipfile
from collections import Counter
from collections.abc import Callable, Iterator
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import irc
from irc import driver
from irc.cli import main
from irc.diagnostics.render import RENDERERS
from irc.opdef.text import parse_graph, print_graph
from irc.toolchain import c_compiler
from tests.support.hostile_models import (
    MARK,
    PAYLOADS,
    Texts,
    benign,
    everywhere,
    ir_model,
    of_xml,
    onnx_model,
    rotated,
)

ROTATIONS = range(0, len(PAYLOADS), 8)
NAMED = re.compile(r"name[0-9]+")
GIVEN = np.arange(8, dtype=np.float32).reshape(2, 4)
COLUMN = np.ones((2, 3), np.float32)


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder of its own, where hostile code would leave its mark, inside of one that only it is in."""
    inside = tmp_path / "a" / "b"
    inside.mkdir(parents=True)
    monkeypatch.chdir(inside)
    yield inside
    assert not [f for f in tmp_path.rglob("*") if f.name == MARK] and not Path("/tmp", MARK).exists()
    assert {f.name for f in tmp_path.iterdir()} == {"a"} and {f.name for f in inside.parent.iterdir()} == {"b"}


@pytest.fixture
def strict_compiler(monkeypatch: pytest.MonkeyPatch) -> None:
    """A compiler for which every warning is an error."""
    compiler = c_compiler.find_compiler()
    assert compiler is not None
    monkeypatch.setenv("CC", f"{compiler} -Wall -Wextra -Werror")
    c_compiler._find.cache_clear()


def source_files(model: Any, **options: Any) -> dict[str, str]:
    chosen = driver.CompileOptions(backend="c", target="x86-64-v3", **options)
    made = driver.sources(driver.load(model), chosen).files
    return {name: str(text) for name, text in made.items() if name.endswith((".c", ".h"))}


def models(folder: Path, payload: str) -> dict[str, tuple[Any, Any]]:
    """Pairs of a harmless model and one whose every text is the payload."""
    inside = [ir_model(of_xml(texts), folder / f"{k}.xml") for k, texts in enumerate((benign(), everywhere(payload)))]
    return {
        "onnx": (onnx_model(benign()).SerializeToString(), onnx_model(everywhere(payload)).SerializeToString()),
        "openvino": (irc.load(inside[0]), irc.load(inside[1])),
    }


# ------------------------------------------------------------------------- the same program
def tokens(text: str) -> list[str]:
    """The tokens of C: what a compiler sees once comments are gone."""
    assert not re.search(r"[^\x20-\x7e\n]|\?\?|\\\n", text)
    assert not any("/*" in comment for comment in re.findall(r"/\*(.*?)\*/", text, re.DOTALL))
    code = re.sub(r"/\*.*?\*/", " ", text, flags=re.DOTALL)
    assert "//" not in code
    return re.findall(r'"(?:\\.|[^"\\])*"|[A-Za-z_]\w*|\d[\w.]*(?:(?<=[eEpP])[+-]\w+)?|\S', code)


def same_but_for_names(harmless: list[str], hostile: list[str]) -> None:
    """Token by token the same, where names of the model correspond within each function."""
    there: dict[str, str] = {}
    back: dict[str, str] = {}
    depth = 0
    assert len(harmless) == len(hostile)
    for a, b in zip(harmless, hostile, strict=True):
        if not NAMED.search(a.lower()):
            assert a == b
        else:
            assert re.fullmatch(r"[A-Za-z_]\w*", b) and there.setdefault(a, b) == b and back.setdefault(b, a) == a
        depth += (a in "{(") - (a in "})")
        if depth == 0 and a in "};":
            there, back = {}, {}


@pytest.mark.parametrize("payload", PAYLOADS, ids=lambda p: ascii(p[:24]))
def test_the_program_is_that_of_a_harmless_model(payload: str, folder: Path) -> None:
    for kind, (harmless, hostile) in models(folder, payload).items():
        for more in ({"profile": True}, {"weights": "embed"}):
            wanted, found = source_files(harmless, **more), source_files(hostile, **more)
            assert list(wanted) == list(found), kind
            for name in wanted:
                same_but_for_names(tokens(wanted[name]), tokens(found[name]))


def test_a_megabyte_for_a_name(folder: Path) -> None:
    """Of anything but a size, whose formulas have a limit."""
    texts = Texts(lambda k: f"name{k}" if k in (0, 8, 9) else f"{'*/' * 250_000}{k}")
    model = onnx_model(texts).SerializeToString()
    wanted, found = source_files(onnx_model(benign()).SerializeToString()), source_files(model)
    for name, text in found.items():
        same_but_for_names(tokens(wanted[name]), tokens(text))
        assert len(text) < 2 * len(wanted[name]) + 10_000
    check_results(irc.compile(model, backend="numpy", cache=False), "onnx")


class Anonymous(ast.NodeTransformer):
    """Collects the names and texts of a module, and blanks them.  A `del` of long names may have brackets."""

    def __init__(self) -> None:
        self.names: list[str] = []

    def visit(self, node: ast.AST) -> Any:
        for field, value in ast.iter_fields(node):
            if isinstance(value, str) and not isinstance(node, ast.alias):
                if not isinstance(node, ast.Constant):
                    self.names.append(value)
                setattr(node, field, "")
        if isinstance(node, ast.Delete):
            node.targets = [e for t in node.targets for e in (t.elts if isinstance(t, ast.Tuple) else [t])]
        return self.generic_visit(node)


@pytest.mark.parametrize("payload", PAYLOADS, ids=lambda p: ascii(p[:24]))
def test_the_module_is_that_of_a_harmless_model(payload: str, folder: Path) -> None:
    for kind, pair in models(folder, payload).items():
        seen: list[tuple[str, list[str]]] = []
        for model in pair:
            compiled = irc.compile(model, backend="numpy", cache=False)
            text = (compiled.artifact.folder / "model.py").read_text("utf-8")
            walker, module = Anonymous(), ast.parse(text)
            module.body = [n for n in module.body if getattr(n, "name", "") != "main"]  # names members of archives
            seen.append((ast.dump(walker.visit(module)), walker.names))
            check_results(compiled, kind)
        (wanted, names), (found, others) = seen
        assert wanted == found
        assert all(NAMED.search(a.lower()) or a == b for a, b in zip(names, others, strict=True))


def check_results(compiled: irc.CompiledModel, kind: str) -> None:
    if kind == "onnx":
        y, shape, total = compiled(GIVEN)
        assert y.shape == (2, 3) and list(shape) == [2, 4] and total == 28
        np.testing.assert_allclose(y.sum(1), 1, rtol=1e-5)
    else:
        assert [float(compiled(COLUMN)[0][0, 0]) for _ in range(3)] == [1, 2, 3]


@pytest.mark.compiler
@pytest.mark.parametrize("first", ROTATIONS)
def test_it_compiles_without_a_warning_and_runs(first: int, folder: Path, strict_compiler: None) -> None:
    path = ir_model(of_xml(rotated(first)), folder / "m.xml")
    for weights, profile in (("file", True), ("embed", False)):
        for kind, model in (("onnx", onnx_model(rotated(first)).SerializeToString()), ("openvino", irc.load(path))):
            chosen = driver.CompileOptions(backend="c", weights=weights, profile=profile, cache=False)
            check_results(driver.compile(model, chosen), kind)


# ------------------------------------------------------------------------- the command line
Command = Callable[..., tuple[int, str, str]]


@pytest.fixture
def command(capfd: pytest.CaptureFixture[str]) -> Command:
    def run(*args: str) -> tuple[int, str, str]:
        capfd.readouterr()
        status = main(args)
        out, err = capfd.readouterr()
        for text in (out, err):
            odd = {c for c in text if not c.isprintable() and c != "\n"}
            assert not odd, (args, odd)
        return status, out, err

    return run


def lines_of(command: Command, *args: str) -> list[int]:
    """Status, and how many lines are printed."""
    status, out, err = command(*args)
    return [status, out.count("\n"), err.count("\n")]


HOSTILE_FILE = "a\x1b[31m\n[bold red]x[nope *_'\"<b>$(touch " + MARK + ")\u202e.onnx"


@pytest.mark.parametrize("first", ROTATIONS)
def test_commands_print_the_lines_of_a_harmless_model(first: int, folder: Path, command: Command) -> None:
    for foreign in (False, True):
        Path("m.onnx").write_bytes(onnx_model(benign(), foreign).SerializeToString())
        Path(HOSTILE_FILE).write_bytes(onnx_model(rotated(first), foreign).SerializeToString())
        for args in (["validate", "*"], ["info", "*"], ["compile", "*", "--dump-after", "load"]):
            harmless, hostile = ([a.replace("*", name) for a in args] for name in ("m.onnx", HOSTILE_FILE))
            assert lines_of(command, *harmless) == lines_of(command, *hostile)
        for args in (["validate", "--format", "json"], ["validate", "--format", "sarif"], ["info", "--json"]):
            json.loads(command(*args, HOSTILE_FILE)[1])
    ir_model(of_xml(benign()), folder / "m.xml")
    ir_model(of_xml(rotated(first)), folder / "n.xml")
    for args in (["validate", "*"], ["info", "*"], ["run", "*", "--backend", "numpy"]):
        harmless, hostile = ([a.replace("*", name) for a in args] for name in ("m.xml", "n.xml"))
        assert lines_of(command, *harmless) == lines_of(command, *hostile)
    graph = print_graph(irc.load(HOSTILE_FILE).graph)
    assert print_graph(parse_graph(graph)) == graph if not first else graph.isprintable() is False


@pytest.mark.parametrize("first", ROTATIONS)
def test_outputs_are_files_of_the_folder(first: int, folder: Path, command: Command) -> None:
    Path("m.onnx").write_bytes(onnx_model(rotated(first)).SerializeToString())
    status, out, err = command("run", "m.onnx", "--backend", "numpy", "--output", "results")
    files = sorted(os.listdir("results"))
    assert status == 0 and len(files) == 3 and out.count("\n") == 3 and err.count("wrote results") == 3
    assert len({f.lower() for f in files}) == 3
    assert all(re.fullmatch(r"\w[\w.-]*\.npy", f, re.ASCII) and len(f) < 120 for f in files)
    assert sorted(np.load(Path("results", f)).shape for f in files) == [(), (2,), (2, 3)]
    assert command("run", "m.onnx", "--backend", "numpy", "--output", "results.npz")[0] == 0
    check_archive("results.npz")
    assert command("compile", "m.onnx", "--emit", "numpy", "-o", "module")[0] == 0
    assert sorted(os.listdir("module")) == ["manifest.json", "model.py"]
    names = [row["name"] for row in json.loads(Path("module/manifest.json").read_text("utf-8"))["inputs"]]
    with zipfile.ZipFile("in.npz", "w") as file, file.open("x.npy", "w") as stream:
        np.save(stream, GIVEN)
    text = Path("module/model.py").read_text("utf-8").replace("given[name]", "given['x']")
    Path("alone.py").write_text(text, "utf-8")
    assert len(names) == 1 and os.spawnlp(os.P_WAIT, "python", "python", "-I", "alone.py", "in.npz", "out.npz") == 0
    check_archive("out.npz")


def check_archive(path: str) -> None:
    """Three arrays, whose unpacking stays in its folder."""
    with np.load(path) as found:
        assert sorted(found[name].shape for name in found.files) == [(), (2,), (2, 3)]
    with zipfile.ZipFile(path) as file:
        for name in file.namelist():
            parts = name.removeprefix("/").split("/")
            assert name.isprintable() and not {"", ".", ".."} & set(parts) and "\\" not in name


@pytest.mark.parametrize("first", ROTATIONS)
def test_converted_both_ways(first: int, folder: Path, command: Command) -> None:
    """Names survive in their own format, and what an XML document cannot hold becomes another character."""
    for foreign in (False, True):
        texts = rotated(first)
        Path("m.onnx").write_bytes(onnx_model(texts, foreign).SerializeToString())
        assert command("convert", "m.onnx", "again.onnx")[0] == 0
        names = [[v.name for v in irc.load(path).inputs] for path in ("m.onnx", "again.onnx")]
        assert names[0] == names[1]
    Path("m.onnx").write_bytes(onnx_model(rotated(first)).SerializeToString())
    assert command("convert", "m.onnx", "m.xml")[0] == 0
    assert command("convert", "m.xml", "back.onnx")[0] == 0
    assert command("convert", str(ir_model(of_xml(rotated(first)), folder / "s.xml")), "s.onnx")[0] == 0
    files = {f.name for f in folder.iterdir()}
    assert files == {"m.onnx", "again.onnx", "m.xml", "m.bin", "back.onnx", "s.xml", "s.bin", "s.onnx"}


def test_elements_of_other_namespaces_are_written_as_they_were(folder: Path) -> None:
    path = ir_model(benign(), folder / "m.xml")
    more = '<rt_info xmlns:a="urn:a?b=1&amp;c" xml:lang="en"><a:x a:k="1" k="2"><b xmlns="urn:b">t</b></a:x>'
    path.write_text(path.read_text("utf-8").replace("<rt_info>", more), "utf-8")
    irc.save(irc.load(path), folder / "n.xml")
    trees = [irc.load(folder / name).extras["rt_info"] for name in ("m.xml", "n.xml")]
    assert trees[0] == trees[1] and trees[0][0]["#tag"] == "{urn:a?b=1&c}x"


def test_progress_has_no_markup(capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    from irc.cli import console

    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setattr(console, "wants_colour", lambda _: True)
    with console.steps() as tell:
        tell("compiling [/nope]\x1b[2J\n.onnx")
    assert "compiling [/nope]\\x1b[2J\\n.onnx" in capfd.readouterr().err


# ------------------------------------------------------------------------- reports
class Page(HTMLParser):
    """Counts elements and attributes."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.found = Counter[str]()
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found[" ".join([tag, *sorted(name for name, _ in attrs)])] += 1


@pytest.mark.parametrize("first", ROTATIONS)
def test_profile_pages_have_the_elements_of_a_harmless_one(
    first: int, folder: Path, command: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    from irc.runtime import limits

    monkeypatch.setattr("irc.cli.profile.SECONDS", 0.0)
    monkeypatch.setattr(limits, "limits", lambda *_: None)
    pages: list[Counter[str]] = []
    for k, texts in enumerate((benign(), rotated(first))):
        Path(f"{k}.onnx").write_bytes(onnx_model(texts).SerializeToString())
        args = ["profile", f"{k}.onnx", "--backend", "numpy", "--html", f"{k}.html", "--trace", f"{k}.json"]
        status, out, _ = command(*args)
        assert status == 0 and out.count("\n") > 10
        text = Path(f"{k}.html").read_text("utf-8")
        assert not [c for c in text if not c.isprintable() and c != "\n"]
        pages.append(Page(text).found)
        assert json.loads(Path(f"{k}.json").read_text("ascii"))["traceEvents"]
        assert json.loads(command(*args[:4], "--json")[1])["steps"]
    assert pages[0] == pages[1]


# ------------------------------------------------------------------------- findings
@pytest.mark.parametrize("payload", PAYLOADS, ids=lambda p: ascii(p[:24]))
def test_findings_keep_their_lines(payload: str) -> None:
    """A model that is wrong at a place with a hostile name."""

    def found(name: str) -> list[irc.Diagnostic]:
        model = onnx_model(everywhere(name) if name else benign())
        model.graph.node[0].input.append(model.graph.input[0].name)
        return irc.validate(model.SerializeToString())

    harmless, hostile = found(""), found(payload)
    assert [d.code for d in harmless] == [d.code for d in hostile] != []
    for name, render in RENDERERS.items():
        texts = [str(render(f)) for f in (harmless, hostile)]
        assert texts[0].count("\n") == texts[1].count("\n")
        assert not [c for c in texts[1] if not c.isprintable() and c != "\n"], name
    for result in json.loads(RENDERERS["sarif"](hostile))["runs"][0]["results"]:
        assert not re.search(r"(?<!\\)\[[^\[\]]*\]\(", result["message"]["text"])
    assert str(irc.InvalidModel(hostile)).isprintable()
