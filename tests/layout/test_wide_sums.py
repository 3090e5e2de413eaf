"""What is computed of a product of f16 or bf16 gets its sums in f32."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from irc.ir.types import bf16, f16, f32, i64
from irc.ir.verify import problems
from irc.layout import wide_products
from irc.opdef.builder import evaluate
from tests.support.lowering import graph_of, random


def _between_products(b: Any, v: Any) -> Any:
    kind = v.dtype.numpy
    x = b.MatMul(v, random(24, 16).astype(kind))
    gate = b.Add(b.Erf(b.Div(x, np.array(1.4140625, kind))), np.array(1, kind))
    return b.MatMul(b.Mul(b.Mul(x, gate), np.array(0.5, kind)), random(16, 5).astype(kind))


def assert_rounded_at_the_end(build: Any, type: Any, products: int) -> None:
    """Nothing but the output is of the narrow type, and it is near what rounding every result gives."""
    x = random(6, 24).astype(type.numpy)
    graph = graph_of(build, x)
    (rounded,) = evaluate(graph, {graph.inputs[0]: x})
    assert wide_products.run(graph) == products
    assert not problems(graph)
    narrow = [n for n in graph.nodes if n.outputs[0].dtype == type]
    assert [n.outputs[0] for n in narrow] == graph.outputs
    (got,) = evaluate(graph, {graph.inputs[0]: x})
    tolerance = 4e-3 if type == f16 else 3e-2
    largest = np.abs(rounded.astype(np.float32)).max()
    assert np.abs(got.astype(np.float32) - rounded.astype(np.float32)).max() <= tolerance * largest


@pytest.mark.parametrize("type", [f16, bf16], ids=str)
def test_nothing_is_rounded_between_products(type: Any) -> None:
    assert_rounded_at_the_end(_between_products, type, products=2)


def test_what_others_read_is_rounded_once() -> None:
    x, r = random(6, 24).astype(np.float16), random(6, 16).astype(np.float16)
    w = random(24, 16).astype(np.float16)

    def build(b: Any, v: Any, s: Any) -> Any:
        return b.CumSum(b.Relu(b.Add(b.MatMul(v, w), s)), b.const(1, i64))

    graph = graph_of(build, x, r)
    wide_products.run(graph)
    assert not problems(graph)
    kinds = {n.op.name: n.outputs[0].dtype for n in graph.nodes if n.op.name != "Cast"}
    assert kinds == {"MatMul": f32, "Add": f32, "Relu": f32, "CumSum": f16}


def test_attention_and_norms_are_of_sums() -> None:
    w = random(24, 24).astype(np.float16)

    def build(b: Any, v: Any) -> Any:
        norm = b.LayerNormalization(b.MatMul(v, w), random(24).astype(np.float16), random(24).astype(np.float16))
        heads = b.Transpose(b.Reshape(norm, b.const([6, 2, 12], i64)), b.const([1, 0, 2], i64))
        scores = b.Softmax(b.MatMul(heads, b.Transpose(heads, b.const([0, 2, 1], i64))), axis=-1)
        return b.MatMul(scores, heads)

    assert_rounded_at_the_end(build, f16, products=3)


def test_sizes_that_the_run_tells_keep_their_names() -> None:
    x, w, sizes = random(6, 24).astype(np.float16), random(24, 24).astype(np.float16), np.array([12, -1], np.int64)

    def build(b: Any, v: Any, s: Any) -> Any:
        return b.Relu(b.Reshape(b.MatMul(v, w), s))

    graph = graph_of(build, x, sizes)
    shape = graph.outputs[0].shape
    assert wide_products.run(graph) == 1
    assert not problems(graph)
    assert [n.outputs[0].shape for n in graph.nodes if n.op.name in ("Reshape", "Relu")] == [shape, shape]


def test_only_what_follows_a_product_is_widened() -> None:
    x = random(6, 24).astype(np.float16)

    def build(b: Any, v: Any) -> Any:
        return b.Relu(b.Add(v, v))

    graph = graph_of(build, x)
    assert wide_products.run(graph) == 0
    assert all(n.outputs[0].dtype == f16 for n in graph.nodes)
