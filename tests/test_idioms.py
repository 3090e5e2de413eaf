"""What irc writes in the other format reads as if that format's own tools had written it: types of nodes, counted."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnx.parser
import pytest

import irc
from irc.border.support import bodies_of
from irc.conversion import SaveOptions, raw_model
from irc.formats.document import RawGraph
from irc.ir.graph import Model

openvino: Any = pytest.importorskip("openvino")


def types(model: Model, ending: str, **options: Any) -> Counter[str]:
    """How many nodes of each type the model is written with; constants, inputs and results do not count."""
    found: Counter[str] = Counter()

    def count(graph: RawGraph) -> None:
        for node in graph.nodes:
            found[node.type] += 1
            for body in bodies_of(node):
                count(body)

    count(raw_model(model, ending, SaveOptions(**options)).graph)
    return found


def parsed(text: str, weights: dict[str, Any] | None = None, opset: int = 21) -> onnx.ModelProto:
    """A model of ONNX's text format, with these initializers."""
    model = onnx.parser.parse_model(f'<ir_version: 10, opset_import: ["" : {opset}]>\n{text}')
    model.graph.initializer.extend(onnx.numpy_helper.from_array(np.asarray(v), k) for k, v in (weights or {}).items())
    return model


def agrees(model: onnx.ModelProto, tmp_path: Path, rtol: float = 1e-5) -> None:
    """Check that OpenVINO computes of the IR what irc computes of the ONNX file."""
    source, target = tmp_path / "m.onnx", tmp_path / "m.xml"
    source.write_bytes(model.SerializeToString())
    loaded = irc.load(str(source))
    irc.save(loaded, str(target))
    rng = np.random.default_rng(0)
    feeds = {v.name: rng.normal(size=v.tensor.static_shape()).astype(v.dtype.numpy) for v in loaded.inputs}
    wanted = irc.compile(loaded, backend="numpy")(*feeds.values())
    compiled = openvino.Core().compile_model(str(target), "CPU", {"INFERENCE_PRECISION_HINT": "f32"})
    for found, expected in zip(compiled(list(feeds.values())).values(), wanted, strict=True):
        np.testing.assert_allclose(found, expected, rtol=rtol, atol=1e-5)


def numbers(*shape: int, seed: int = 1) -> Any:
    return np.random.default_rng(seed).normal(size=shape).astype(np.float32)


# ------------------------------------------------------------------------------ ONNX → IR
def test_biases_and_groups_of_convolutions_are_constants(tmp_path: Path) -> None:
    model = parsed(
        "m (float[1,4,8,8] x) => (float[1,4,8,8] y) { y = Conv<group=2, pads=[1,1,1,1]>(x, w, b) }",
        {"w": numbers(4, 2, 3, 3), "b": numbers(4)},
    )
    assert types(irc.load(model), ".xml") == {"GroupConvolution": 1, "Add": 1}
    agrees(model, tmp_path)


def test_parts_of_an_axis_are_one_split(tmp_path: Path) -> None:
    model = parsed("m (float[1,6] x) => (float[1,3] a, float[1,3] b) { a, b = Split<axis=1, num_outputs=2>(x) }")
    assert types(irc.load(model), ".xml") == {"Split": 1}
    model = parsed("m (float[1,6] x) => (float[1,2] a, float[1,4] b) { a, b = Split<axis=1>(x, n) }", {"n": [2, 4]})
    assert types(irc.load(model), ".xml") == {"VariadicSplit": 1}
    agrees(model, tmp_path)


def test_compressed_weights_stay_compressed() -> None:
    model = parsed(
        "m (float[1,64] x) => (float[1,64] y) { f = Cast<to=1>(w)\n y = MatMul(x, f) }",
        {"w": numbers(64, 64).astype(np.float16)},
    )
    assert types(irc.load(model), ".xml") == {"Convert": 1, "MatMul": 1}
