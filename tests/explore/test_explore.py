"""`irc explore` and `irc draw`: what is recorded, where boxes stand, and the files."""

from __future__ import annotations

import base64
import gzip
import json
import random
import re
import shutil
import subprocess
from itertools import pairwise
from pathlib import Path
from typing import Any

import onnx
import pytest
from lxml import etree

import irc
from irc import driver
from irc.cli import main
from irc.explore.page import page
from irc.explore.recording import Recording, record
from irc.ir.pictures.placement import GAP, layers, place

ROOT = Path(__file__).resolve().parents[2]
DIGITS = ROOT / "samples" / "digits" / "digits.xml"


@pytest.fixture(scope="module")
def digits() -> Recording:
    return record(irc.load(DIGITS), driver.CompileOptions("c", target="x86-64-v3"))


def data_of(text: str) -> Any:
    """What the page's script reads."""
    found = re.search(r'id="data">([^<]*)<', text)
    assert found
    return json.loads(gzip.decompress(base64.b64decode(found[1])))


# ---------------------------------------------------------------------------- placement
def random_edges(count: int, seed: int) -> list[tuple[int, int]]:
    draw = random.Random(seed)
    return [(draw.randrange(b), b) for b in range(1, count) for _ in range(draw.randrange(3))]


@pytest.mark.parametrize("seed", range(5))
def test_layers_follow_the_edges(seed: int) -> None:
    edges = random_edges(60, seed)
    layer = layers(60, edges)
    assert all(layer[a] < layer[b] for a, b in edges)


@pytest.mark.parametrize("seed", range(5))
def test_boxes_do_not_overlap(seed: int) -> None:
    widths = [float(20 + 7 * (k % 11)) for k in range(60)]
    edges = random_edges(60, seed)
    found = place(widths, edges)
    for layer in set(found.layer):
        row = sorted((found.x[k], widths[k]) for k in range(60) if found.layer[k] == layer)
        for (x0, w0), (x1, w1) in pairwise(row):
            assert x1 - x0 >= (w0 + w1) / 2 + GAP - 1e-6
    for (a, b), bends in zip(edges, found.bends, strict=True):
        assert len(bends) == found.layer[b] - found.layer[a] - 1


def test_a_chain_is_straight() -> None:
    found = place([50.0] * 20, [(k, k + 1) for k in range(19)])
    assert found.layer == list(range(20))
    assert len({round(x, 6) for x in found.x}) == 1


def test_what_depends_on_no_input_stands_above_its_readers() -> None:
    assert layers(6, [(0, 1), (1, 2), (2, 5), (3, 4), (4, 5)], roots=[0]) == [0, 1, 2, 1, 2, 3]
    assert layers(3, [(0, 2), (1, 2)], roots=[0, 1]) == [0, 0, 1]


def test_nothing_has_a_picture() -> None:
    assert place([], []).x == []


# ---------------------------------------------------------------------------- recording
def test_a_recording_follows_layers_to_functions(digits: Recording) -> None:
    names = [s.name for s in digits.stages]
    assert names[0] == "as read"
    assert names[-1] == "functions"
    assert "select-kernels" in names
    assert digits.stages[0].number == 12
    where, text = digits.layers["conv2/Conv"]
    assert "line" in where
    assert text.startswith("<layer")
    (step,) = [s for s in digits.steps if "conv2/Conv" in s.layers]
    assert step.layers == ("conv2/Conv", "conv2/Add", "relu2")
    assert "static void" in step.c
    assert step.loops.startswith("def ")
    assert all(symbol in digits.sources for symbol in step.kernels)
    assert digits.joined["relu2"] == "select-kernels"
    assert any("arena + " in t for t in step.tensors)


def test_loops_are_texts(digits: Recording) -> None:
    model = onnx.parser.parse_model(
        '<ir_version: 8, opset_import: ["":17]> m (float[n,5] x) => (float[n,5] y) {'
        " a = Exp(x) b = Add(a, x) c = Softmax<axis=1>(b) y = Clip(c) }"
    )
    (step,) = record(irc.load(model), driver.CompileOptions("c", target="x86-64-v3")).steps
    assert len(step.layers) >= 3
    assert "for " in step.loops
    assert "exp(" in step.loops


# ---------------------------------------------------------------------------- files
def test_the_page_has_everything_and_no_weights(digits: Recording) -> None:
    text = page(digits)
    found = data_of(text)
    assert [s["name"] for s in found["stages"]] == [s.name for s in digits.stages]
    assert {f["name"] for f in found["folds"]} >= {"layers of a function"}
    for stage in (*found["stages"], *found["folds"]):
        assert len(stage["boxes"]) == len(stage["x"]) == len(stage["layer"])
        assert all(0 <= a < len(stage["boxes"]) and 0 <= b < len(stage["boxes"]) for a, b, *_ in stage["lines"])
    assert "http" not in re.sub(r'id="data">[^<]*<', "", text)
    assert len(text) < 200_000


def test_names_of_models_are_only_data(tmp_path: Path) -> None:
    model = onnx.parser.parse_model(
        '<ir_version: 8, opset_import: ["":17]> m (float[2] x) => (float[2] y) { y = Exp(x) }'
    )
    model.graph.node[0].name = "</script><script>alert(1)</script>"
    model.graph.name = "<b>\x1b[31m"
    path = tmp_path / "m.onnx"
    onnx.save(model, path)
    text = page(record(irc.load(path), driver.CompileOptions("c", target="x86-64-v3")))
    assert "alert(1)" not in text
    assert text.count("<script") == 2
    run(tmp_path, "draw", "m.onnx", "-o", "m.svg")
    assert b"<script" not in (tmp_path / "m.svg").read_bytes()


def test_commands(tmp_path: Path) -> None:
    run(tmp_path, "draw", str(DIGITS))
    picture = etree.parse(tmp_path / "digits.svg")
    assert len(picture.findall(".//{*}rect")) == 14
    run(tmp_path, "explore", str(DIGITS), "--target", "x86-64-v3", "-o", "d.html")
    assert data_of((tmp_path / "d.html").read_text("utf-8"))["model"] == "digits.xml"
    assert main(["draw", str(DIGITS), "-o", str(tmp_path)]) == 1


def run(folder: Path, *arguments: str) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        assert main(arguments) == 0


def test_a_browser_opens_it(digits: Recording, tmp_path: Path) -> None:
    """Without a script error: the page marks itself when all of it ran."""
    browser = shutil.which("chromium")
    if not browser:
        pytest.skip("there is no chromium")
    path = tmp_path / "d.html"
    path.write_text(page(digits), "utf-8")
    flags = ["--headless", "--no-sandbox", "--disable-gpu", "--virtual-time-budget=20000", "--dump-dom"]
    address = f"file://{path}#pass=functions&select=conv2/Conv"
    done = subprocess.run([browser, *flags, address], capture_output=True, text=True, timeout=120, check=False)
    assert "data-ready=" in done.stdout, done.stderr[-2000:]
    assert "Function conv2/Conv" in done.stdout
