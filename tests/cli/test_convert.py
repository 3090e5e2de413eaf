"""`irc convert` to other shapes and of parts of a model."""

from __future__ import annotations

from pathlib import Path

import onnx

from tests.cli.conftest import ONNX, XML, Run


def test_other_shapes(convert: Run, tmp_path: Path) -> None:
    status, said = convert(ONNX, str(tmp_path / "d.onnx"), "--shape", "image[n,?,8,8]")
    assert status == 0
    assert "checked: 1 output agrees" in said
    assert onnx.load(tmp_path / "d.onnx").graph.output[0].type.tensor_type.shape.dim[0].dim_param == "n"
    assert convert(XML, str(tmp_path / "d.xml"), "--shape", "image[3,1,8,8]")[0] == 0
    assert 'shape="3,1,8,8"' in (tmp_path / "d.xml").read_text()


def test_shapes_that_do_not_fit(convert: Run, tmp_path: Path) -> None:
    status, said = convert(ONNX, str(tmp_path / "d.onnx"), "--shape", "image[1,3,8,8]")
    assert status == 1
    assert "IRC3" in said
    assert not list(tmp_path.iterdir())


def test_a_part(convert: Run, tmp_path: Path) -> None:
    node = onnx.load(ONNX).graph.node[2]
    status, said = convert(ONNX, str(tmp_path / "d.xml"), "--inputs", node.output[0], "--outputs", "scores")
    assert status == 0
    assert "checked: 1 output agrees" in said


def test_a_part_of_unknown_names(convert: Run, tmp_path: Path) -> None:
    status, said = convert(ONNX, str(tmp_path / "d.xml"), "--outputs", "score")
    assert status == 1
    assert "the closest names are scores" in said
    assert not list(tmp_path.iterdir())


def test_simpler(convert: Run, tmp_path: Path) -> None:
    status, said = convert(XML, str(tmp_path / "d.onnx"), "--simplify")
    assert status == 0
    assert "checked: 1 output agrees" in said


def test_sizes_of_the_run_for_a_release_that_fixes_them(convert: Run, tmp_path: Path) -> None:
    status, said = convert(ONNX, str(tmp_path / "d.xml"), "--shape", "image[n,1,8,8]", "--for-openvino", "2021.4")
    assert status == 0
    assert "IRC4911" in said and "only after sizes are given to image" in said
    assert "IRC4911" not in convert(ONNX, str(tmp_path / "d.xml"), "--shape", "image[n,1,8,8]")[1]
    status, said = convert(ONNX, str(tmp_path / "d.xml"), "--shape", "image[1,1,8,8]", "--for-openvino", "2021.4")
    assert status == 0 and "IRC4911" not in said
