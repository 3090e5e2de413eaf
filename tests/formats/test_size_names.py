"""Names of sizes that only a run tells, in files of ONNX."""

from __future__ import annotations

from pathlib import Path

import onnx
import onnx.parser
import pytest

import irc

MODEL = """<ir_version: 8, opset_import: ["" : 18]>
g (float[nonzero] x, float[n] w) => (int64[?, ?] a, int64[?, ?] b) {
    p = NonZero (x)
    q = NonZero (w)
    k = Constant <value = int64[1, 4] {1, 2, 3, 4}> ()
    a = Concat <axis = 1> (p, k)
    b = Concat <axis = 1> (q, p)
}"""


def shapes(path: Path) -> list[list[str]]:
    outputs = onnx.load(path).graph.output
    return [[d.dim_param or str(d.dim_value) for d in v.type.tensor_type.shape.dim] for v in outputs]


@pytest.mark.parametrize("source", ["model.onnx", "model.xml"])
def test_a_model_written_twice_is_the_same_file(source: str, tmp_path: Path) -> None:
    onnx.save(onnx.parser.parse_model(MODEL), tmp_path / "model.onnx")
    irc.convert(tmp_path / "model.onnx", tmp_path / "model.xml")
    written: list[bytes] = []
    for _ in range(2):
        irc.convert(tmp_path / source, tmp_path / "copy.onnx", opset=21)
        written.append((tmp_path / "copy.onnx").read_bytes())
    assert written[0] == written[1]


def test_sizes_that_only_a_run_tells_have_plain_names(tmp_path: Path) -> None:
    path = tmp_path / "model.onnx"
    onnx.save(onnx.parser.parse_model(MODEL), path)
    irc.convert(path, tmp_path / "copy.onnx", opset=21)
    assert shapes(tmp_path / "copy.onnx") == [["1", "4 + nonzero_2"], ["1", "nonzero_2 + nonzero_3"]]
    irc.convert(tmp_path / "copy.onnx", tmp_path / "again.onnx", opset=20)
    assert shapes(tmp_path / "again.onnx") == shapes(tmp_path / "copy.onnx")
