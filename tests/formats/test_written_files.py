"""Whether OpenVINO, and the checker of the `onnx` package, accept what irc writes of every case."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import onnx
import pytest

from irc.border import WriteOptions, write_model
from irc.diagnostics import Sink
from tests.ops.test_ops import FAMILIES, build, onnx_writer, openvino_writer

OFTEN = {("gather", 16), ("sort", 16), ("einsum", 16), ("shape", 21), ("layout", 9), ("resize", 9), ("onehot", 21)}
"""Families and versions of the default run: what has once been refused."""

OPENVINO_REFUSES = {
    "CumSum i32[5]": "a CumSum without its optional axis",
    "Resize bool[1, 2, 5, 7], -, f32[4]": "an Interpolate of booleans",
    "Roll f32[3, 4, 5], i64[1], i64[2]": "one shift for several axes",
    "ScaledDotProductAttention": "matrices without a batch",
    "StridedSlice": "masks of different lengths",
}
ONNX_REFUSES = {
    "Attention": "nonpad_kv_seqlen beside caches, although they are absent",
    "Einsum(equation='...ij,...jk->...ik')": "an ellipsis that stands for different numbers of axes",
    "Pow i32[3, 4], f32[4]": "types that it has not inferred, in opset 1",
    "ReduceLogical": "types that it has not inferred, in opset 1",
}
"""What begins like this may be refused, because of what; everything else is accepted."""


def rows(versions: tuple[int, ...]) -> list[Any]:
    return [
        pytest.param(family, version, marks=[] if (family, version) in OFTEN else [pytest.mark.full])
        for family in sorted(FAMILIES)
        for version in versions
    ]


def refused(
    family: str, options: WriteOptions, known: dict[str, str], accept: Callable[[Any], object]
) -> Iterator[str]:
    """The cases of a family that `accept` raises for, with what it says."""
    for case in FAMILIES[family]:
        sink = Sink()
        raw = write_model(build(case), options, sink)
        if sink.errors or str(case).startswith(tuple(known)):
            continue
        try:
            accept(raw)
        except Exception as e:
            yield f"{case}: {e}"


@pytest.mark.parametrize(("family", "newest"), rows((16, 8, 7, 1)))
def test_openvino_reads_what_is_written(family: str, newest: int, tmp_path: Path) -> None:
    core = pytest.importorskip("openvino").Core()

    def accept(raw: Any) -> None:
        openvino_writer.write(raw, tmp_path / "m.xml")
        core.read_model(tmp_path / "m.xml")

    options = WriteOptions("openvino", max_opset=newest, version=11)
    assert list(refused(family, options, OPENVINO_REFUSES, accept)) == []


@pytest.mark.parametrize(("family", "opset"), rows((25, 21, 17, 12, 9, 7, 1)))
def test_the_checker_of_onnx_accepts_what_is_written(family: str, opset: int, tmp_path: Path) -> None:
    def accept(raw: Any) -> None:
        onnx_writer.write(raw, tmp_path / "m.onnx")
        model = onnx.load(tmp_path / "m.onnx")
        onnx.checker.check_model(model, full_check=True)
        if opset < 11:
            axes = [a for n in model.graph.node for a in n.attribute if a.name in ("axis", "axes")]
            assert not any(a.i < 0 or any(k < 0 for k in a.ints) for a in axes), "axes counted from the end"

    options = WriteOptions("onnx", {"": opset, "ai.onnx.ml": 3}, version=10)
    assert list(refused(family, options, ONNX_REFUSES, accept)) == []
