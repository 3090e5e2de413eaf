"""The command line and the system: full disks, links, names of files, closed streams."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

from irc.cli import main
from tests.cli.test_cli import DIGITS, ONNX, ROOT, Result, Run


@pytest.fixture
def irc(capsys: pytest.CaptureFixture[str]) -> Run:
    return lambda *args: Result(main(args), *capsys.readouterr())


def test_compile_lists_what_it_made_and_removes_what_it_replaces(irc: Run, tmp_path: Path) -> None:
    target = tmp_path / "made"
    target.mkdir()
    (target / "mine.txt").write_text("kept")
    (target / "weights.txt").write_text("kept")
    first = irc("compile", ONNX, "-o", str(target), "--emit", "c")
    assert "mine.txt" not in first.out
    assert (target / "digits.c").is_file()
    (target / "digits.h").write_text("changed by its owner")
    second = irc("compile", ONNX, "-o", str(target), "--emit", "numpy")
    assert sorted(Path(line).name for line in second.out.split()) == ["manifest.json", "model.py", "weights.bin"]
    left = {f.name for f in target.iterdir()}
    assert left == {"manifest.json", "model.py", "weights.bin", "digits.h", "mine.txt", "weights.txt"}
    assert irc("run", str(target)).status == 0


def test_run_keeps_the_old_output_where_the_new_one_cannot_be_written(
    irc: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    target = tmp_path / "out.npz"
    target.write_bytes(b"old")

    def full(*_: Any, **__: Any) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(np.lib.format, "write_array", full)
    said = irc("run", ONNX, "--output", str(target), "--backend", "numpy")
    assert said.status == 1 and "IRC4903" in said.err
    assert target.read_bytes() == b"old" and list(tmp_path.iterdir()) == [target]


def test_files_that_are_no_arrays_and_names_that_are_none(irc: Run) -> None:
    said = irc("run", ONNX, "--backend", "numpy", "--input", f"image={ONNX}")
    assert said.status == 2 and "neither .npy nor .npz" in said.err
    assert irc("run", ONNX, "--backend", "numpy", "--output", "").status == 2


def test_a_link_to_the_target_stays_one(irc: Run, tmp_path: Path) -> None:
    real, link = tmp_path / "a" / "real.xml", tmp_path / "b" / "link.xml"
    real.parent.mkdir()
    link.parent.mkdir()
    link.symlink_to(real)
    assert irc("convert", ONNX, str(link)).status == 0
    assert link.is_symlink()
    assert {f.name for f in real.parent.iterdir()} == {"real.xml", "real.bin"}


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full")
def test_output_that_nobody_takes_is_status_1() -> None:
    code = "import sys; from irc.cli import main; sys.exit(main())"
    with open("/dev/full", "w") as full:
        done = subprocess.run(
            [sys.executable, "-c", code, "explain"],
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            cwd=ROOT,
            check=False,
        )
    assert done.returncode == 1
    assert "standard output cannot be written" in done.stderr and "IRC9" not in done.stderr


def test_a_full_cache_folder_stops_nothing(irc: Run, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    from irc.runtime import cache

    monkeypatch.setenv("IRC_CACHE_DIR", str(tmp_path / "cache"))
    write = cache.write_artifact

    def full(folder: Path, draft: Any, *mode: int) -> Any:
        if tmp_path in folder.parents:
            raise OSError(28, "No space left on device")
        return write(folder, draft, *mode)

    monkeypatch.setattr(cache, "write_artifact", full)
    said = irc("run", ONNX, "--backend", "numpy")
    assert said.status == 0 and said.out.startswith("scores: ")
    assert "is not used: No space left on device" in said.err


@pytest.mark.parametrize("name", ["x" * 300 + ".onnx", os.fsdecode(b"\xff") + ".onnx"], ids=["long", "bytes"])
def test_names_of_models_that_cannot_exist(irc: Run, name: str) -> None:
    for verb in ("run", "info", "compile", "validate"):
        said = irc(verb, name)
        assert said.status == 1 and "IRC1401" in said.err + said.out


def test_names_that_are_not_text(irc: Run, tmp_path: Path) -> None:
    path = tmp_path / os.fsdecode(b"\xff.xml")
    assert irc("convert", ONNX, str(path)).status == 0
    assert irc("run", str(path), "--backend", "numpy").status == 0


def test_convert_carries_metadata_and_says_what_it_leaves_behind(irc: Run, tmp_path: Path) -> None:
    source, ir, back = tmp_path / "a.onnx", tmp_path / "b.xml", tmp_path / "c.onnx"
    text = """<ir_version: 10, opset_import: ["" : 17], producer_name: "maker", metadata_props: ["a key" : "a < b"]>
    m (float[n, 2] x) => (float[n, 2] y) { y = Neg(x) }"""
    model = onnx.parser.parse_model(text)
    model.graph.node[0].doc_string = "turned"
    source.write_bytes(model.SerializeToString())
    said = irc("convert", str(source), str(ir))
    assert said.status == 0
    assert "note[IRC4906]: OpenVINO IR has no place for the producer, doc strings, the names of sizes (n)\n" in said.err
    assert irc("convert", str(ir), str(back)).status == 0
    assert [(p.key, p.value) for p in onnx.load(back).metadata_props] == [("a key", "a < b")]
    same = irc("convert", str(source), str(tmp_path / "same.onnx"))
    assert same.status == 0 and "IRC4906" not in same.err


def test_convert_says_what_onnx_has_no_place_for(irc: Run, tmp_path: Path) -> None:
    text = (DIGITS / "digits.xml").read_text().replace('shape="?,1,8,8"', 'shape="1..4,1,8,8"')
    layout = '<rt_info><attribute name="layout" version="0" layout="[N,C,H,W]" /></rt_info>'
    text = text.replace('names="image">', f'names="image,picture">{layout}')
    text = text.replace("<rt_info />", '<rt_info><model_info><info name="scale" value="2" /></model_info></rt_info>')
    (tmp_path / "a.xml").write_text(text)
    (tmp_path / "a.bin").write_bytes((DIGITS / "digits.bin").read_bytes())
    said = irc("convert", str(tmp_path / "a.xml"), str(tmp_path / "b.onnx"))
    assert said.status == 0
    kinds = ["further names of tensors", "the bounds of sizes (image_d0)", "layouts", "(model_info)"]
    assert [kind for kind in kinds if kind not in said.err] == []
    said = irc("convert", str(tmp_path / "a.xml"), str(tmp_path / "c.xml"), "--ir-version", "10")
    assert "OpenVINO IR 10 has no place for layouts" in said.err


@pytest.mark.parametrize("source", ["gather_elements", "einsum", "top_k"])
def test_openvino_reads_what_only_onnx_says(source: str, tmp_path: Path) -> None:
    """What ONNX allows and OpenVINO refuses is written in other words."""
    ov = pytest.importorskip("openvino")
    texts = {
        "gather_elements": "(float[3,4] x, int64[1,2] i) => (float[1,2] y) { y = GatherElements<axis = 1>(x, i) }",
        "einsum": '(float[3,4] x) => (float[4] y) { y = Einsum<equation = "ij -> j">(x) }',
        "top_k": "(float[3,4] x) => (float[3,2] y, int64[3,2] i) <int64[1] k = {2}> { y, i = TopK<sorted = 0>(x, k) }",
    }
    model = onnx.parser.parse_model(f'<ir_version: 8, opset_import: ["" : 17]> m {texts[source]}')
    (tmp_path / "a.onnx").write_bytes(model.SerializeToString())
    assert main(("convert", str(tmp_path / "a.onnx"), str(tmp_path / "a.xml"))) == 0
    assert ov.Core().read_model(tmp_path / "a.xml").get_ordered_ops()
