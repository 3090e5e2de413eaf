"""Products of f16 and bf16 are computed in f32 and rounded once."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest

import irc
from irc.ir.types import bf16, f16
from irc.ir.verify import problems
from irc.layout import wide_products
from irc.opdef.builder import evaluate
from tests.support.lowering import graph_of, random

BUILD: dict[str, Any] = {
    "MatMul": lambda b, v: b.MatMul(v, random(24, 5).astype(v.dtype.numpy)),
    "Gemm": lambda b, v: b.Gemm(b.Reshape(v, [6, 24]), random(5, 24).astype(v.dtype.numpy), None, transB=True),
    "Conv": lambda b, v: b.Conv(v, random(3, 6, 3).astype(v.dtype.numpy), random(3).astype(v.dtype.numpy)),
    "ConvTranspose": lambda b, v: b.ConvTranspose(v, random(6, 3, 3).astype(v.dtype.numpy), None),
}


@pytest.mark.parametrize("type", [f16, bf16], ids=str)
@pytest.mark.parametrize("name", BUILD)
def test_only_the_result_is_rounded(name: str, type: Any) -> None:
    x = random(1, 6, 24).astype(type.numpy)
    graph = graph_of(BUILD[name], x)
    (wanted,) = evaluate(graph, {graph.inputs[0]: x})
    assert wide_products.run(graph) == 1
    assert not problems(graph)
    product = next(n for n in graph.nodes if n.op.name == name)
    assert product.outputs[0].dtype.name == "f32" and graph.outputs[0].dtype == type
    (got,) = evaluate(graph, {graph.inputs[0]: x})
    step = float(np.spacing(np.abs(wanted.astype(np.float32)).max().astype(np.float16))) * (1 if type == f16 else 8)
    assert np.abs(got.astype(np.float32) - wanted.astype(np.float32)).max() <= step


@pytest.mark.parametrize("rows", [1, 4, 33])
def test_as_onnx_runtime_computes_it(rows: int) -> None:
    ort = pytest.importorskip("onnxruntime")
    text = f"""<ir_version: 8, opset_import: ["" : 17]>
        layer (float16[{rows}, 70] x, float16[70, 40] w, float16[40] c) => (float16[{rows}, 40] y) {{
            p = MatMul(x, w)
            s = Add(p, c)
            y = Relu(s)
        }}"""
    model = onnx.parser.parse_model(text)
    given = [random(*shape).astype(np.float16) for shape in ((rows, 70), (70, 40), (40,))]
    session = ort.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    (wanted,) = session.run(None, dict(zip("xwc", given, strict=True)))
    (got,) = irc.compile(model, backend="c")(given)
    np.testing.assert_allclose(got.astype(np.float32), wanted.astype(np.float32), rtol=2e-3, atol=2e-2)
