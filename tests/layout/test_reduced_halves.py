"""Reductions of f16 are those of f32, of which all elements stand in memory first."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

import irc
from irc.ir.graph import Graph, Model, Value
from irc.ir.types import TensorType, f16, f32
from irc.layout import reduced_halves
from irc.layout.reduced_halves import Floats
from irc.opdef.base import load_all
from irc.opdef.builder import Builder
from irc.toolchain.c_compiler import find_compiler

Make = Callable[[Builder, Value], Value]
REDUCTIONS: dict[str, Make] = {
    **{
        f"{name} {axis}": lambda b, x, name=name, axis=axis: b.operation(name)(x, b.const([axis]), keepdims=axis == 1)
        for name in ("ReduceSum", "ReduceMean", "ReduceMax", "ReduceMin", "ReduceProd")
        for axis in (0, 1, 2)
    },
    "ArgMax": lambda b, x: b.ArgMax(x, axis=2),
    "ArgMin": lambda b, x: b.ArgMin(x, axis=0, select_last_index=True),
}


def graph_of(make: Make, shape: tuple[int, ...] = (6, 20, 37)) -> Graph:
    load_all()
    graph = Graph("halves")
    x = graph.add_input("x", TensorType.of(f16, shape))
    graph.outputs = [make(Builder(graph), x)]
    return graph


@pytest.mark.skipif(find_compiler() is None, reason="no C compiler")
@pytest.mark.parametrize("name", REDUCTIONS)
def test_results_are_those_of_the_reference(name: str) -> None:
    made = Model(graph_of(REDUCTIONS[name]))
    x = (np.random.default_rng(2).standard_normal((6, 20, 37)) + 1).astype(np.float16)
    x[1, 2, 3], x[4, 5] = np.nan, np.inf
    (found,) = irc.compile(made, backend="c")(x)
    with np.errstate(all="ignore"):
        (wanted,) = irc.compile(made, backend="numpy")(x)
    rounding = 0 if "Arg" in name or "Max" in name or "Min" in name else 1e-3
    np.testing.assert_allclose(found, wanted, rtol=rounding)


def test_only_what_stands_in_memory_is_converted() -> None:
    graph = graph_of(REDUCTIONS["ReduceMax 2"])
    assert reduced_halves.run(graph) == 1
    assert [type(n.op) for n in graph.nodes].count(Floats) == 1
    assert [v.dtype for n in graph.nodes if isinstance(n.op, Floats) for v in n.outputs] == [f32]
    computed = graph_of(lambda b, x: b.ReduceMax(b.Exp(x), b.const([2])))
    assert reduced_halves.run(computed) == 0
    assert reduced_halves.run(graph_of(REDUCTIONS["ReduceMax 2"], (2, 3, 4))) == 0
