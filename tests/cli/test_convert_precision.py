"""`irc convert --compress-to` and `--to`: what is written, said and compared."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

import irc
from irc.cli import main
from irc.cli.check import same_results
from tests.support.random_numbers import RANDOM


@pytest.fixture
def source(tmp_path: Path) -> Path:
    """A product of weights, one of them beyond f16."""
    weights = RANDOM.normal(size=(8, 4)).astype(np.float32) / 64  # so that the result is within the range of f16
    large = RANDOM.normal(size=(4, 3)).astype(np.float32)
    large[0, 0] = 7e4
    nodes = [helper.make_node("MatMul", ["x", "w"], ["h"], "first")]
    nodes += [helper.make_node("MatMul", ["h", "v"], ["y"], "second")]
    ports = [helper.make_tensor_value_info(n, TensorProto.FLOAT, s) for n, s in (("x", [2, 8]), ("y", None))]
    tensors = [onnx.numpy_helper.from_array(a, n) for n, a in (("w", weights), ("v", large))]
    graph = helper.make_graph(nodes, "g", ports[:1], ports[1:], tensors)
    path = tmp_path / "in" / "m.onnx"
    path.parent.mkdir()
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), path)
    return path


@pytest.mark.parametrize("ending", ["onnx", "xml"])
@pytest.mark.parametrize("option", ["--compress-to", "--to"])
def test_precision(capsys: pytest.CaptureFixture[str], source: Path, tmp_path: Path, option: str, ending: str) -> None:
    assert main(("convert", str(source), str(tmp_path / f"m.{ending}"), option, "f16")) == 0
    said = capsys.readouterr().err
    assert "IRC4008" in said and '"v"' in said and '"w"' not in said
    assert ('MatMul "second"' in said) == (option == "--to")
    assert "checked: 1 output agrees" in said


@pytest.mark.parametrize(("ending", "engine"), [("onnx", "onnxruntime"), ("xml", "openvino"), ("onnx", "openvino")])
def test_bf16_in_other_engines(
    capsys: pytest.CaptureFixture[str], source: Path, tmp_path: Path, ending: str, engine: str
) -> None:
    """NumPy has no such type: these engines are given its bits."""
    pytest.importorskip(engine)
    given = ("--to", "bf16", "--check", engine)
    assert main(("convert", str(source), str(tmp_path / f"m.{ending}"), *given)) == 0
    assert f"checked: 1 output agrees in {engine}" in capsys.readouterr().err


@pytest.mark.parametrize("given", [("--to", "f8"), ("--compress-to", "bf16"), ("--to", "f16", "--compress-to", "f16")])
def test_wrong_usage(source: Path, tmp_path: Path, given: tuple[str, ...]) -> None:
    assert main(("convert", str(source), str(tmp_path / "m.onnx"), *given)) == 2
    assert not (tmp_path / "m.onnx").exists()


def test_the_tolerance_is_that_of_the_type(source: Path, tmp_path: Path) -> None:
    """Rounded weights are within the tolerance of their type only, wrong ones within none."""
    irc.save(irc.load(source), str(tmp_path / "m.xml"), to="bf16")
    assert same_results(irc.load(source), str(tmp_path / "m.xml")).same is False
    assert same_results(irc.load(source), str(tmp_path / "m.xml"), precision="bf16").same is True
    changed = onnx.load(source)
    changed.graph.initializer[0].raw_data = np.ones((8, 4), np.float32).tobytes()
    onnx.save(changed, tmp_path / "other.onnx")
    assert same_results(irc.load(source), str(tmp_path / "other.onnx"), precision="bf16").same is False
