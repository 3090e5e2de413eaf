"""Findings: how they are rendered, and a broken model for every code.

`tests/diagnostics/CODE-what.xml.txt` (`.onnx.txt`: in ONNX's text form, `.pb.txt`: in protobuf's, `.bytes.txt`: as it
is, `.hex.txt`: in hexadecimal, `.size.txt`: so many zero bytes) holds a broken model, a line `===== expected`, and what
`irc validate` says.  Where a line `===== convert FILE option=value…` or `===== compile option=value…` stands before,
the model is right, and what `irc.convert` to that file or compiling for NumPy refuses is expected.  Run with
IRC_UPDATE=1 to write the expected part anew, and read the change.
"""

from __future__ import annotations

import ast
import json
import os
import re
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from irc import driver
from irc.diagnostics import Diagnostic, Loc, Sink
from irc.diagnostics.codes import all_codes, find, name_of, shape
from irc.diagnostics.render import render_github, render_json, render_sarif, render_text, summary

ROOT = Path(__file__).resolve().parents[2]
FOLDER = ROOT / "tests" / "diagnostics"
CASES = sorted(FOLDER.glob("IRC*.txt"))
MARK = "===== expected\n"
NO_FILE = "(there is no file)\n"
ORDER = re.compile(r"^===== (convert|compile)\b(.*)\n", re.MULTILINE)

MATMUL = Diagnostic(
    "IRC3104",
    "error",
    "MatMul inner dimensions differ: 64 and 128",
    Loc("model.xml", 'layer 57 "encoder/attn/MatMul" (MatMul, opset1)', lambda: (1834, 5)),
    (
        'input 0: f32[1,12,128,64]  from layer 51 "Transpose_2" (model.xml:1650)',
        'input 1: f32[1,12,128,64]  from layer 55 "Transpose_3" (model.xml:1790)',
    ),
    'set transpose_b="true", or transpose layer 55',
)
NODE = Diagnostic("IRC2206", "warning", "Add has no attribute a,b: 100%", Loc("m.onnx", 'graph main, node 12 "add"'))


# --------------------------------------------------------------------------- renderers
def test_text_says_what_where_and_the_way_out() -> None:
    assert render_text([MATMUL]) == (
        "error[IRC3104]: MatMul inner dimensions differ: 64 and 128\n"
        '  --> model.xml:1834:5  layer 57 "encoder/attn/MatMul" (MatMul, opset1)\n'
        '   = input 0: f32[1,12,128,64]  from layer 51 "Transpose_2" (model.xml:1650)\n'
        '   = input 1: f32[1,12,128,64]  from layer 55 "Transpose_3" (model.xml:1790)\n'
        '   = help: set transpose_b="true", or transpose layer 55     (irc explain IRC3104)'
    )


def test_text_without_line_or_help() -> None:
    assert render_text([NODE]) == (
        "warning[IRC2206]: Add has no attribute a,b: 100%\n"
        '  --> m.onnx  graph main, node 12 "add"\n'
        "   = help: irc explain IRC2206"
    )


def test_text_without_any_place() -> None:
    assert "-->" not in render_text([Diagnostic("IRC9002", "error", "internal error: x")])


def test_str_of_a_finding_is_its_text() -> None:
    assert str(MATMUL) == render_text([MATMUL])


def test_colour_adds_escapes_and_nothing_else() -> None:
    coloured = render_text([MATMUL, NODE], color=True)
    assert "\x1b[" in coloured
    assert re.sub(r"\x1b\[[0-9;]*m", "", coloured) == render_text([MATMUL, NODE])


def test_names_from_a_file_cannot_control_the_terminal() -> None:
    place = Loc("a\r.xml", "layer \x07\ud800")
    nasty = Diagnostic("IRC2001", "error", "no \x1b[31mOp\n\u202e", place, ("n\x1b",), "h\x9b")
    for text in (render_text([nasty]), re.sub(r"\x1b\[[0-9;]*m", "", render_text([nasty], color=True))):
        assert not re.search(r"[\x00-\x09\x0b-\x1f\x7f-\x9f\u202e\ud800]", text)
        assert text.count("\n") == 3
        assert r"\x1b[31mOp\n\u202e" in text


def test_summary_counts() -> None:
    assert summary([MATMUL, MATMUL, NODE]) == "2 errors, 1 warning"
    assert summary([]) == "no findings"


def test_json_is_of_the_published_schema() -> None:
    printed = json.loads(render_json([MATMUL, NODE]))
    jsonschema.validate(printed, json.loads((ROOT / "schemas" / "diagnostics.schema.json").read_text("utf-8")))
    first, second = (d["location"] for d in printed["diagnostics"])
    assert first == {"file": "model.xml", "line": 1834, "column": 5, "where": MATMUL.location.where, "source": ""}
    assert (second["line"], second["column"]) == (None, None)
    assert json.loads(render_json([])) == {"schema": 1, "diagnostics": []}


def test_sarif_points_at_rules_and_places() -> None:
    log = json.loads(render_sarif([MATMUL, NODE, MATMUL]))
    assert log["version"] == "2.1.0"
    (run,) = log["runs"]
    rules = run["tool"]["driver"]["rules"]
    assert [r["id"] for r in rules] == ["IRC2206", "IRC3104"]
    for result in run["results"]:
        assert rules[result["ruleIndex"]]["id"] == result["ruleId"]
        assert result["level"] in ("error", "warning", "note")
        assert result["message"]["text"]
    place = run["results"][0]["locations"][0]
    assert place["physicalLocation"] == {
        "artifactLocation": {"uri": "model.xml"},
        "region": {"startLine": 1834, "startColumn": 5, "endColumn": 6},
    }
    assert all(r["helpUri"].lower().endswith(r["id"].lower()) for r in rules)
    assert place["logicalLocations"] == [{"fullyQualifiedName": MATMUL.location.where}]
    assert "region" not in run["results"][1]["locations"][0]["physicalLocation"]


def test_sarif_uris_are_uris() -> None:
    log = json.loads(render_sarif([Diagnostic("IRC2001", "error", "m", Loc(f)) for f in ("/a b/m#1.xml", "d/é %.xml")]))
    uris = [r["locations"][0]["physicalLocation"]["artifactLocation"]["uri"] for r in log["runs"][0]["results"]]
    assert uris == ["file:///a%20b/m%231.xml", "d/%C3%A9%20%25.xml"]


def test_github_annotations_are_one_line_each() -> None:
    first, second = render_github([MATMUL, NODE]).splitlines()
    assert first.startswith("::error file=model.xml,line=1834,col=5,title=IRC3104::MatMul inner")
    said = 'Add has no attribute a,b: 100%25%0Aat graph main, node 12 "add"'
    assert second == f"::warning file=m.onnx,title=IRC2206::{said}"


@pytest.mark.parametrize("render", [render_text, render_json, render_sarif, render_github])
def test_rendering_is_repeatable(render: Any) -> None:
    assert render([NODE, MATMUL]) == render([NODE, MATMUL])


# -------------------------------------------------------------------------------- sink
def test_sink_says_the_same_thing_at_one_place_once() -> None:
    sink = Sink()
    for _ in range(2):
        sink.report(shape.MATMUL_INNER, Loc("m.xml", "layer 1"), op="MatMul", a=1, b=2)
    sink.report(shape.MATMUL_INNER, Loc("m.xml", "layer 2"), op="MatMul", a=1, b=2)
    assert len(sink.diagnostics) == 2


def test_codes_are_found_by_any_spelling() -> None:
    assert find("irc9002") is find("9002") is find(" IRC9002 ") is all_codes()["IRC9002"]
    assert find("IRC0000") is None


# ----------------------------------------------------------------------- broken models
def write_model(case: Path, folder: Path) -> str:
    """The case's model as a file in `folder`; its name.

    The weights of an .xml are 64 zero bytes, or the text after `<!-- weights: ` (`none`: there is no file, `folder`: it
    is a folder).
    """
    text = ORDER.sub("", case.read_text("utf-8").partition(MARK)[0])
    name = re.sub(r"\.(pb|bytes|hex|size)$", ".onnx", case.name.removesuffix(".txt"))
    if text == NO_FILE:
        return name
    if case.name.endswith(".bytes.txt"):
        (folder / name).write_bytes(text.encode())
        return name
    if case.name.endswith(".hex.txt"):
        (folder / name).write_bytes(bytes.fromhex(text))
        return name
    if case.name.endswith(".size.txt"):
        with (folder / name).open("wb") as file:
            file.truncate(int(text))  # no disk is used
        return name
    if case.name.endswith(".xml.txt"):
        (folder / name).write_text(text, "utf-8")
        write_weights((folder / name).with_suffix(".bin"), re.search(r"<!-- weights: (.*) -->", text))
        return name
    import onnx

    if case.name.endswith(".pb.txt"):
        from google.protobuf import text_format

        model = text_format.Parse(text, onnx.ModelProto())
    else:
        model = onnx.parser.parse_model(text)
    (folder / name).write_bytes(model.SerializeToString())
    return name


def write_weights(path: Path, said: re.Match[str] | None) -> None:
    if said and said[1] == "folder":
        path.mkdir()
    elif not said or said[1] != "none":
        path.write_bytes(said[1].encode() if said else bytes(64))


def findings(name: str, order: re.Match[str] | None) -> list[Diagnostic]:
    """What `irc.validate` finds, or what the order of the case is refused with."""
    import irc

    if order is None:
        return irc.validate(name)
    words = order[2].split()
    options: dict[str, Any] = {k: int(v) if v.isdigit() else v for k, v in (w.split("=") for w in words if "=" in w)}
    if order[1] == "convert":
        run: Callable[[], Any] = partial(irc.convert, name, words[0], **options)
    else:
        run = partial(driver.compile, name, driver.CompileOptions(backend="numpy", cache=False, **options))
    with pytest.raises(irc.IrcError) as refused:
        run()
    return refused.value.diagnostics


def code_of(case: Path) -> str:
    return case.name.split("-")[0]


@pytest.mark.parametrize("case", CASES, ids=lambda p: p.name.removesuffix(".txt"))
def test_broken_model_is_reported_as_expected(case: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    model, _, expected = case.read_text("utf-8").partition(MARK)
    said = render_text(findings(write_model(case, tmp_path), ORDER.search(model))) + "\n"
    if os.environ.get("IRC_UPDATE"):
        case.write_text(model + MARK + said, "utf-8")
        expected = said
    assert f"[{code_of(case)}]" in said
    assert said == expected


def test_every_code_is_raised_by_a_test() -> None:
    """A code without a broken model stands in `raised_elsewhere.txt` with the test that expects it."""
    covered = {code_of(case) for case in CASES}
    lines = (FOLDER / "raised_elsewhere.txt").read_text("utf-8").splitlines()
    listed = dict(line.split() for line in lines if line and not line.startswith("#"))
    assert set(all_codes()) - covered - set(listed) == set(), "neither a broken model nor a line in the table"
    assert set(listed) & covered == set(), "now have a broken model: take them out of the table"
    assert set(listed) <= set(all_codes()), "no such codes"
    for code, test in listed.items():
        file, _, name = test.partition("::")
        spelled = rf"\b((IRC)?{code[3:]}|{name_of(all_codes()[code])})\b"
        assert re.search(spelled, source_of_test(ROOT / "tests" / file, name)), f"{test}: no {code}"


def source_of_test(file: Path, name: str) -> str:
    """The text of a test function, decorators included."""
    text = file.read_text("utf-8")
    found = [n for n in ast.parse(text).body if isinstance(n, ast.FunctionDef) and n.name == name]
    assert name.startswith("test_") and len(found) == 1, f"{file.name} has no test {name}"
    first = min([found[0].lineno, *(d.lineno for d in found[0].decorator_list)])
    return "\n".join(text.splitlines()[first - 1 : found[0].end_lineno])


def test_a_mistake_far_down_a_file_is_located(tmp_path: Path) -> None:
    """lxml's line numbers stop at 65,535; irc's do not."""
    import irc

    model = tmp_path / write_model(FOLDER / "IRC2001-unknown-operation.xml.txt", tmp_path)
    text = model.read_text("utf-8")
    before = text[: text.index("<layer", text.index("Multiplyx") - 50)]
    model.write_text(text.replace("<layers>", "\n" * 100_000 + "<layers>", 1), "utf-8")
    (found,) = [d for d in irc.validate(str(model)) if d.code == "IRC2001"]
    assert found.location.line == before.count("\n") + 1 + 100_000
    assert found.location.column == len(before) - before.rindex("\n")
