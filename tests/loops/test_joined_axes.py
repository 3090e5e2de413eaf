"""Row groups whose last two axes are not reduced: one axis of vectors, where every operand allows it."""

from __future__ import annotations

import numpy as np
import pytest

import irc
from irc.ir.graph import Value
from irc.loops.ir import For, Program, walk
from irc.opdef.base import load_all
from irc.opdef.builder import Builder
from tests.support.lowering import assert_same, graph_of, random

load_all()


def normal(axes: list[int]):
    """Divide by the norm over these axes, then scale and add operands that broadcast."""

    def build(b: Builder, x: Value, *others: Value) -> Value:
        for other in others:
            x = b.Mul(x, other)
        return b.Div(x, b.Sqrt(b.ReduceSum(b.Mul(x, x), b.const(np.array(axes)), keepdims=True)))

    return build


def longest(program: Program) -> set[int]:
    """The known numbers of iterations of vectorised loops; 0 for those that a tile's width decides."""
    loops = [s for f in program.steps for s in walk(f.body) if isinstance(s, For) and s.kind == "simd"]
    return {int(getattr(s.extent, "value", 0)) for s in loops}


@pytest.mark.parametrize(
    ("shape", "axes", "others", "lengths"),
    [
        ((1, 40, 16, 8), [1], [], {64}),  # 128 elements as two tiles, for threads
        ((1, 40, 5, 13), [1], [], {0}),
        ((40, 3, 5, 7), [1], [(40, 3, 1, 1)], {35}),
        ((3, 40, 13, 7), [0, 1], [(40, 1, 1), (13, 7)], {0}),
        ((16, 2, 32, 16), [1], [], {256}),
        ((2, 3, 5, 7), [1], [(7,)], {7}),  # an operand begins anew with each row
        ((2, 3, 5, 7), [1], [(5, 1)], {7}),
    ],
)
def test_short_rows_are_one_axis(
    shape: tuple[int, ...], axes: list[int], others: list[tuple[int, ...]], lengths: set[int]
) -> None:
    feeds = [random(*shape), *(random(*s, seed=k + 1) for k, s in enumerate(others))]
    program = assert_same(graph_of(normal(axes), *feeds), *feeds)
    assert longest(program) == lengths


def test_rows_of_another_order_stay_apart() -> None:
    def build(b: Builder, x: Value, y: Value) -> Value:
        return normal([1])(b, b.Add(x, b.Transpose(y, [0, 1, 3, 2])))

    feeds = [random(2, 3, 5, 7), random(2, 3, 7, 5, seed=1)]
    assert longest(assert_same(graph_of(build, *feeds), *feeds)) == {7}


@pytest.mark.parametrize(("shape", "axes"), [((16, 20, 16, 30), [0, 1]), ((3, 17, 13, 9), [1])])
def test_log_sum_exp_as_onnxruntime(shape: tuple[int, ...], axes: list[int]) -> None:
    ort = pytest.importorskip("onnxruntime")
    helper, numpy_helper = pytest.importorskip("onnx.helper"), pytest.importorskip("onnx.numpy_helper")
    kept = [d for k, d in enumerate(shape) if k not in axes]
    graph = helper.make_graph(
        [helper.make_node("ReduceLogSumExp", ["x", "axes"], ["y"], keepdims=0)],
        "g",
        [helper.make_tensor_value_info("x", 1, shape)],
        [helper.make_tensor_value_info("y", 1, kept)],
        [numpy_helper.from_array(np.array(axes, np.int64), "axes")],
    )
    opsets = [helper.make_opsetid("", 18)]
    model = helper.make_model(graph, opset_imports=opsets, ir_version=9).SerializeToString()
    x = random(*shape)
    x[(slice(None),) * (len(shape) - 1) + (0,)] = -np.inf
    (want,) = ort.InferenceSession(model).run(None, {"x": x})
    for threads in (1, 2):
        (got,) = irc.compile(model, threads=threads)({"x": x})
        np.testing.assert_allclose(got, want, rtol=2e-6)
