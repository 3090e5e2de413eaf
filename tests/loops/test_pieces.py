"""Long elementwise expressions are loops over pieces: which, and that nothing is computed twice or otherwise."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import irc
from irc.driver import CompileOptions, sources
from irc.expr import Call, Const, Expr, Load, Var, select
from irc.ir.dim import Dim
from irc.ir.graph import Graph, Model, Value
from irc.ir.types import DTYPES, TensorType, f32, i64
from irc.loops.builder import FEW_COPIES, LoopBuilder
from irc.loops.ir import Buffer
from irc.loops.pieces import pieces_in, pieces_of
from irc.opdef.builder import Builder
from irc.toolchain.c_compiler import find_compiler

I = Var("i")
X = Load(Buffer("x", f32, (Dim.of(1000),), "arena"), (I,))


def call(name: str, x: Expr) -> Expr:
    return Call(name, (x,))


def test_pieces_are_where_one_value_goes_on() -> None:
    inner = call("erf", call("tanh", X))
    twice = inner * call("exp", inner + 1)
    whole = call("erf", call("sin", twice))
    assert pieces_of(whole, {I}) == [inner, call("sin", twice)]
    assert pieces_of(call("erf", call("tanh", X)), {I}) == [], "short enough"
    assert pieces_of(whole, {Var("j")}) == [], "the same for all"


def test_what_follows_closely_belongs_to_the_piece() -> None:
    first = X.max(0) + call("log1p", call("exp", X))
    assert pieces_of(call("erf", call("sin", call("tanh", first))), {I})[0] == first


def test_what_a_condition_guards_stays_behind_it() -> None:
    far = Load(Buffer("y", f32, (Dim.of(3),), "arena"), (I - 997,))
    guarded = call("erf", call("sin", call("erf", call("tanh", far))))
    assert pieces_of(select(I.lt(Const(997, i64)), X, guarded), {I}) == []


def deep(shape: tuple[int, ...], other: tuple[int, ...]) -> Graph:
    """Softplus, Mish, Erf and Pow of x, with operands that broadcast."""
    graph = Graph("test")
    x, y = (graph.add_input(n, TensorType.of(DTYPES["f32"], s)) for n, s in (("x", shape), ("y", other)))
    b = Builder(graph)
    v: Value = b.Mish(b.Max(b.Mish(b.Softplus(x)), y))
    graph.outputs.append(b.Erf(b.Pow(b.Abs(b.Erf(b.Sub(v, y))), y)))
    return graph


@pytest.mark.skipif(find_compiler() is None, reason="no C compiler")
@pytest.mark.parametrize(
    ("shape", "other"), [((3, 1000), (3, 1000)), ((5, 28, 56), (5, 1, 56)), ((4, 7, 3), (7, 1)), ((700,), (1,))]
)
def test_results_are_the_same(shape: tuple[int, ...], other: tuple[int, ...]) -> None:
    model = Model(deep(shape, other))
    made: Any = sources(model, CompileOptions("c", cache=False)).files
    assert "piece0_" in str(made["model.c"])
    random = np.random.default_rng(1)
    given = [random.standard_normal(s).astype(np.float32) + np.float32(0.5) for s in (shape, other)]
    given[1] = np.abs(given[1]) + np.float32(0.5)
    (found,), (wanted,) = (irc.compile(model, backend=kind)(given) for kind in ("c", "numpy"))
    np.testing.assert_allclose(found, wanted, rtol=0, atol=2e-6)


def test_machines_with_little_memory_have_none() -> None:
    whole = call("erf", call("sin", call("erf", call("tanh", X))))
    assert pieces_in(LoopBuilder(), [whole], {I}) == pieces_of(whole, {I}) != []
    assert pieces_in(LoopBuilder(copies=FEW_COPIES), [whole], {I}) == []
