"""Expressions share parts: what is squared sixty times is a sum of sixty steps, and no pass takes 2^60 of them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import pytest

from irc import driver, expr
from irc.expr import Bin, Const, Expr, Select, Un, Var
from irc.ir.graph import Graph, Model
from irc.ir.types import TensorType, boolean, f32
from irc.kernels.core.epilogue import Epilogue, acc, recognised, supported
from irc.kernels.core.reference import apply
from irc.opdef.base import load_all
from irc.opdef.builder import Builder
from irc.traversal import fold, height, replaced, rewrite, transform, walk

SQUARINGS = 60
VISITS = 40_000
"""Of expressions, for a model of 60 nodes: each pass may see each a few times."""


def squared(e: Expr, times: int = SQUARINGS) -> Expr:
    for _ in range(times):
        e = e * e
    return e


def model(kind: str) -> Model:
    """x squared sixty times: alone, behind a product or a convolution, chosen, summed."""
    load_all()
    graph = Graph("squares")
    b = Builder(graph)
    x = graph.add_input("x", TensorType.of(f32, (1, 8, 16, 16) if kind == "conv" else (8, 64)))
    y = x
    if kind == "matmul":
        y = b.MatMul(x, np.eye(64, dtype=np.float32))
    elif kind == "conv":
        y = b.Conv(x, np.ones((16, 8, 3, 3), np.float32))
    for _ in range(SQUARINGS):
        y = b.Mul(y, y)
    if kind == "where":
        y = b.Where(b.Greater(x, 0.0), y, x)
    elif kind == "sum":
        y = b.ReduceSum(y, [1], keepdims=True)
    graph.outputs = [y]
    return Model(graph)


@contextmanager
def counted(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[int]]:
    """How often anything asks for the parts of an expression, or compares or prints one."""
    count = [0]
    plain_equal, plain_repr = Bin.__eq__, Bin.__repr__

    def parts(e: Bin) -> tuple[Expr, ...]:
        count[0] += 1
        assert count[0] < 100 * VISITS, "this would not end"
        return e.a, e.b

    def equal(a: Bin, b: object) -> bool:
        count[0] += 1
        return plain_equal(a, b)

    def spelled(e: Bin) -> str:
        count[0] += 1
        assert count[0] < 100 * VISITS, "this would not end"
        return plain_repr(e)

    with monkeypatch.context() as patch:
        patch.setattr(Bin, "parts", property(parts))
        patch.setattr(Bin, "__eq__", equal)
        patch.setattr(Bin, "__repr__", spelled)
        yield count


@pytest.mark.parametrize("kind", ["plain", "matmul", "conv", "where", "sum"])
@pytest.mark.parametrize("backend", ["c", "numpy"])
def test_a_chain_of_squares_takes_steps_in_proportion_to_its_length(
    kind: str, backend: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    options = driver.CompileOptions(backend=backend, cache=False, target="x86-64-v3")
    squares = model(kind)
    with counted(monkeypatch) as visits:
        draft = driver.sources(squares, options) if backend == "c" else driver.generate(squares, "numpy", options)
    assert visits[0] < VISITS
    assert sum(len(text) for text in draft.files.values() if isinstance(text, str)) < 100_000


def test_a_norm_behind_a_long_chain_is_compiled() -> None:
    """As of embeddings that NNCF quantizes sum by sum: what reductions read is cut within the row, too."""
    load_all()
    graph = Graph("chain")
    b = Builder(graph)
    x = graph.add_input("x", TensorType.of(f32, (4, 64)))
    y: Any = x
    for _ in range(24):
        y = b.Mul(b.Clip(b.Round(b.Div(b.Add(y, x), 0.1)), -128.0, 127.0), 0.1)
    graph.outputs = [b.LayerNormalization(y, np.ones(64, np.float32), np.zeros(64, np.float32))]
    options = driver.CompileOptions(backend="c", cache=False, target="x86-64-v3")
    assert driver.sources(Model(graph), options).files


def test_an_epilogue_of_squares_is_written_with_its_parts_named(monkeypatch: pytest.MonkeyPatch) -> None:
    with counted(monkeypatch) as visits:
        epilogue = Epilogue(squared(acc()))
        assert supported(epilogue.expr, 0, f32) and epilogue.functions() == ()
        assert epilogue.key() == Epilogue(squared(acc())).key() != Epilogue(squared(acc(), 59)).key()
        values, result = epilogue.vector("v")
    assert visits[0] < VISITS
    assert values[0] == "const v t0 = (acc * acc);" and len(values) == SQUARINGS - 1
    assert result == f"(t{SQUARINGS - 2} * t{SQUARINGS - 2})"
    assert apply(epilogue, np.array([1.0, 0.5], np.float32), []).tolist() == [1.0, 0.0]


def test_names_of_an_epilogue_tell_masks_and_constants_apart() -> None:
    x = acc()
    positive = Const(0.0, f32).lt(x)
    chosen = Select(positive.logical_or(positive.logical_not()), squared(x, 2), x)
    values, _ = Epilogue(chosen).vector("v")
    assert "const v_mask t0 = ((v_mask)(v_all(0x0.0p+0f) < acc));" in values
    keys = {Epilogue(x * Const(value, f32)).key() for value in (1.0, 2.0, -0.0, 0.0)}
    assert len(keys) == 4


def test_the_search_for_a_gelu_ends() -> None:
    x = squared(acc())
    phi = expr.Call("erf", (x * 0.5**0.5,)) + 1.0
    found = list(walk(recognised(x * phi * 0.5)))
    assert [e.fn for e in found if isinstance(e, expr.Call)] == ["erf"], "a product of 2^60 factors is not searched"
    plain = Var("plain", f32)
    found = list(walk(recognised(plain * (expr.Call("erf", (plain * 0.5**0.5,)) + 1.0) * 0.5)))
    assert [e.fn for e in found if isinstance(e, expr.Call)] == ["gelu"]


def test_the_traversals_visit_shared_parts_once() -> None:
    x = Var("x", f32)
    e = squared(x)
    assert len(list(walk(e))) == SQUARINGS + 1
    assert fold(e, lambda _, parts: 1 + sum(parts)) == 2 ** (SQUARINGS + 1) - 1
    assert height(e) == SQUARINGS + 1
    seen: list[Expr] = []

    def visit(part: Expr) -> Expr:
        seen.append(part)
        return Un("neg", part) if part is x else part

    negated = transform(e, visit)
    assert len(seen) == SQUARINGS + 1 and len(list(walk(negated))) == SQUARINGS + 2
    assert replaced(e, lambda part: Var("y", f32) if part is x else None) == squared(Var("y", f32))
    assert list(walk(e, into=lambda part: part is e)) == [e, e.a] if isinstance(e, Bin) else False


def test_rewriting_keeps_states_apart() -> None:
    x, cond = Var("x", f32), Var("c", boolean)
    e = Select(cond, x, x) + x

    def step(part: Expr, sure: bool, go: expr.Callable[[Expr, bool], Expr]) -> Expr:
        if isinstance(part, Select):
            return Select(go(part.cond, sure), go(part.a, False), go(part.b, False))
        if isinstance(part, Bin):
            return Bin(part.op, go(part.a, sure), go(part.b, sure))
        return Var(f"{part.name}_{'sure' if sure else 'perhaps'}", part.dtype) if isinstance(part, Var) else part

    perhaps = Var("x_perhaps", f32)
    assert rewrite(e, step, True) == Select(Var("c_sure", boolean), perhaps, perhaps) + Var("x_sure", f32)


def test_equal_expressions_are_compared_by_their_distinct_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    a, b, other = squared(Var("x", f32)), squared(Var("x", f32)), squared(Var("y", f32))
    with counted(monkeypatch) as visits:
        assert a == b and a != other and hash(a) == hash(b)
    assert visits[0] < 1000
    assert Const(1, f32) != Var("x", f32) and a != Un("neg", a)
