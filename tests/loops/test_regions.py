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
