"""Guarded reads: which are done in any case, and that what a choice tests is computed once."""

from __future__ import annotations

from typing import Any

import pytest

from irc.expr import Bits, Call, Const, Load, Select
from irc.ir.dim import Dim
from irc.ir.types import f16, f32, i64, u16
from irc.loops.builder import LoopBuilder
from irc.loops.guarded_reads import read_in_any_case
from irc.loops.ir import Assign, Buffer, For, Let, Program, Store, walk as statements
from irc.traversal import walk
from tests.support.lowering import assert_same, graph_of, random

SHAPE = (2, 3, 20)
N, M = Dim.symbol("n"), Dim.symbol("m")


def values(program: Program) -> list[Any]:
    """What the statements of all innermost loops compute."""
    loops = [s for f in program.functions for s in statements(f.body) if isinstance(s, For)]
    return [s.value for loop in loops for s in loop.body if isinstance(s, Store | Let | Assign)]


def guarded(program: Program) -> list[Load]:
    choices = [x for e in values(program) for x in walk(e) if isinstance(x, Select)]
    return [y for x in choices for part in (x.a, x.b) for y in walk(part) if isinstance(y, Load)]


@pytest.mark.parametrize("other", [SHAPE, (20,), (3, 1), (2, 1, 20), (2, 1, 1), ()])
def test_where_reads_both(other: tuple[int, ...]) -> None:
    x, y, z = random(*SHAPE), random(*other, seed=1), random(*other, seed=2)
    graph = graph_of(lambda b, x, y, z: b.Where(b.Less(x, y), z, x), x, y, z)
    assert not guarded(assert_same(graph, x, y, z))


def test_symbolic_sizes() -> None:
    x, y = random(2, 5), random(5, seed=1)
    graph = graph_of(lambda b, x, y: b.Where(b.Less(x, y), y, x), x, y, shapes=[(N, M), (M,)])
    assert not guarded(assert_same(graph, x, y))


@pytest.mark.parametrize(("offset", "places", "moves"), [(0, 10, True), (1, 10, False), (1, 11, True), (-1, 10, False)])
def test_only_reads_within_the_tensor_move(offset: int, places: int, moves: bool) -> None:
    b = LoopBuilder()
    x, y = (Buffer(name, f32, (Dim.of(places),), "input") for name in "xy")
    with b.for_(10, "simd") as i:
        read = Load(x, (i + offset,))
        b.store(y, i, Select(Const(0, i64).lt(i), read, Const(0.0, f32)))
    read_in_any_case(b)
    (loop,) = b.body
    assert isinstance(loop, For) and len(loop.body) == (2 if moves else 1)


def test_what_a_choice_tests_is_computed_once() -> None:
    x = random(*SHAPE)
    program = assert_same(graph_of(lambda b, x: b.LeakyRelu(b.Add(b.Floor(b.Mul(x, 9.0)), 0.5), alpha=0.1), x), x)
    floors = [y for e in values(program) for y in walk(e) if isinstance(y, Call) and y.fn == "floor"]
    assert len(floors) == 1


def test_halves_move_as_bits() -> None:
    """Else they would be converted on the way between two places in memory."""
    b = LoopBuilder()
    x, y = (Buffer(name, f16, (Dim.of(10),), "input") for name in "xy")
    with b.for_(10, "simd") as i:
        b.store(y, i, Select(i.lt(5), Load(x, (i,)), Const(0.0, f16)))
    read_in_any_case(b)
    named = [s.value for s in statements(b.body) if isinstance(s, Let)]
    assert named == [Bits(Load(x, (i,)), u16)]
