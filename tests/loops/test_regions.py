"""Branches and loops of a program, run by the interpreter."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest

import irc
from irc import driver, pipelines
from irc.fusion import group
from irc.kernels import isa_of
from irc.loops import interp, lower

GROWING = """g (int64 k, float[n] x) => (float[m] y, float[t, n] s) {
    y, s = Loop (k, , x) <body = b (int64 i, bool go, float[p] acc) => (bool go2, float[q] acc2, float[n] o) {
        go2 = Identity (go)  acc2 = Concat <axis = 0> (acc, x)  f = Cast <to = 1> (i)  o = Add (x, f) }>
}"""
BRANCHES = """g (bool c, float[n] x) => (float[m] y) {
    y = If (c) <then_branch = t () => (float[k] a) { a = Concat <axis = 0> (x, x) },
                else_branch = e () => (float[l] b) { b = Neg (x) }>
}"""


def lowered(text: str) -> Any:
    model = irc.load(onnx.parser.parse_model(f'<ir_version: 8, opset_import: ["" : 18]>\n{text}'))
    graph = model.graph.copy()
    driver.prepare(graph, driver.CompileOptions(), pipelines.compile_c(isa_of(frozenset(), "x86_64")))
    return lower.lower(graph, group.run(graph), "model")


VIEWS = """g (int64 k, bool c, float[2, 3] x) => (float[a] y, float[d] s, float[e] t, float[f] u) {
    y0, s0 = Loop (k, , x) <body = b (int64 i, bool go, float[2, 3] p) => (bool go2, float[2, 3] acc2, float[3, 2] o) {
        go2 = Identity (go)  o0 = Softmax (p)  two = Constant <value_ints = [3, 2]> ()  o = Reshape (o0, two)
        turned = Transpose <perm = [1, 0]> (o0)  sum = CumSum (turned, one)  one = Constant <value_int = 1> ()
        three = Constant <value_ints = [2, 3]> ()  acc2 = Reshape (sum, three) }>
    t0 = If (c) <then_branch = n () => (float[6] z) { z0 = Softmax (x)  z = Reshape (z0, flat) },
                 else_branch = l () => (float[6] r) { r = Reshape (x, flat) }>
    flat = Constant <value_ints = [-1]> ()
    y = Reshape (y0, flat)  s = Reshape (s0, flat)  t = Reshape (t0, flat)  u = Reshape (s0, flat)
}"""


@pytest.mark.parametrize("count", [0, 1, 3])
@pytest.mark.parametrize("condition", [True, False])
def test_views_of_results_are_outputs(count: int, condition: bool) -> None:
    """Also of a part that each run of a loop gives, and what is a view in a region."""
    x = np.array([[1, 2, 3], [0, 1, -1]], np.float32)
    got = interp.run(lowered(VIEWS), [np.array(count), np.array(condition), x])
    softmax = lambda x: np.exp(x) / np.exp(x).sum(1, keepdims=True)  # noqa: E731
    state, parts = x, list[Any]()
    for _ in range(count):
        part = softmax(state)
        parts.append(part.reshape(-1))
        state = np.cumsum(part.T, 1).reshape(2, 3)
    stacked = np.concatenate([*parts, np.zeros(0, np.float32)])
    wanted = [state.reshape(-1), stacked, (softmax(x) if condition else x).reshape(-1), stacked]
    for a, b in zip(got, wanted, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-5)


@pytest.mark.parametrize("count", [0, 1, 3])
def test_a_loop(count: int) -> None:
    x = np.array([1, 2], np.float32)
    y, s = interp.run(lowered(GROWING), [np.array(count), x])
    assert y.tolist() == [1, 2] * (count + 1)
    assert s.tolist() == [[1 + i, 2 + i] for i in range(count)]


@pytest.mark.parametrize(("condition", "wanted"), [(True, [1, 2, 1, 2]), (False, [-1, -2])])
def test_a_branch(condition: bool, wanted: list[int]) -> None:
    (y,) = interp.run(lowered(BRANCHES), [np.array(condition), np.array([1, 2], np.float32)])
    assert y.tolist() == wanted
