"""Short rows: several are one loop, whatever its operands broadcast along."""

from __future__ import annotations

from typing import Any

import pytest

from irc.ir.dim import Dim, Symbol
from irc.ir.graph import Value
from irc.loops.ir import Alloc, For, Program, walk
from irc.opdef.base import load_all
from irc.opdef.builder import Builder
from tests.support.lowering import assert_same, graph_of, random

load_all()


def deep(b: Builder, x: Value, *others: Value) -> Value:
    for other in others:
        x = b.Tanh(b.Add(b.Mul(x, other), other))
    return x


def widest(program: Program) -> int:
    """The iterations of the longest vectorised loop that writes no local memory."""
    loops = [s for f in program.steps for s in walk(f.body) if isinstance(s, For) and s.kind == "simd"]
    return max(int(s.extent.value) for s in loops if hasattr(s.extent, "value"))


def spread(program: Program) -> int:
    return sum(isinstance(s, Alloc) and s.buffer.name.startswith("spread") for f in program.steps for s in walk(f.body))


@pytest.mark.parametrize(
    ("shape", "others", "together", "count"),
    [
        ((3, 130, 7), [(130, 1), (7,)], 455, 2),
        ((3, 40, 7), [(3, 1, 7), (1, 40, 1), (3, 1, 1)], 280, 2),
        ((40, 7, 5), [(7, 1), (40, 1, 5), (40, 1, 1)], 700, 3),
        ((40, 7, 5), [(7, 5), (40, 1, 5)], 700, 2),
        ((4, 3, 33), [(3, 1)], 396, 1),
        ((96, 9), [(96, 1)], 432, 1),
    ],
)
def test_rows_are_one_loop(shape: tuple[int, ...], others: list[tuple[int, ...]], together: int, count: int) -> None:
    feeds = [random(*shape), *(random(*s, seed=k) for k, s in enumerate(others))]
    program = assert_same(graph_of(deep, *feeds), *feeds)
    assert spread(program) == count
    assert widest(program) == together


def test_rows_of_any_number() -> None:
    n = Dim({(Symbol("n", 1, None),): 1})
    feeds = [random(150, 7), random(150, 1), random(7)]
    program = assert_same(graph_of(deep, *feeds, shapes=[(n, 7), (n, 1), (7,)]), *feeds)
    assert spread(program) == 2


@pytest.mark.parametrize("dtype", ["float16", "float64", "int8", "bool"])
def test_other_types(dtype: str) -> None:
    def build(b: Builder, x: Value, y: Value, z: Value) -> Value:
        if dtype == "bool":
            return b.Xor(b.And(x, y), z)
        return b.Where(b.Greater(x, y), b.Add(x, z), b.Mul(b.Sub(x, y), z))

    feeds: list[Any] = [random(30, 9), random(30, 1), random(9)]
    feeds = [(4 * f).astype(dtype) if dtype != "bool" else f > 0 for f in feeds]
    program = assert_same(graph_of(build, *feeds), *feeds)
    assert spread(program) == 2


def test_parts_of_rows_are_one_loop() -> None:
    def gated(b: Builder, x: Value) -> Value:
        left, right = b.Slice(x, [0], [14], [2]), b.Slice(x, [14], [28], [2])
        return b.Mul(left, b.Sigmoid(right))

    x = random(3, 20, 28)
    assert spread(assert_same(graph_of(gated, x), x)) == 2


def test_what_costs_less_alone_is_left() -> None:
    """Rows of whole vectors, long rows and such that no operand breaks up are loops as before."""
    for shape, other in (((20, 32), (20, 1)), ((20, 200), (20, 1)), ((20, 7), (20, 7)), ((3, 6, 28), (6, 1))):
        feeds = [random(*shape), random(*other)]
        assert spread(assert_same(graph_of(lambda b, x, y: b.Add(x, y), *feeds), *feeds)) == 0


def test_guarded_reads_stay_guarded() -> None:
    """The border of a padding is not read outside of its tensor."""

    def padded(b: Builder, x: Value, y: Value) -> Value:
        return b.Tanh(b.Mul(b.Pad(x, [1, 2, 3, 1], b.like(0, x), mode="constant"), y))

    feeds = [random(20, 5), random(24, 1)]
    assert_same(graph_of(padded, *feeds), *feeds)


@pytest.mark.parametrize("rows", [40, 43])
def test_reductions_take_several_rows_at_once(rows: int) -> None:
    x = random(2, 3, rows, 30)
    program = assert_same(graph_of(lambda b, x: b.ReduceMax(x, [1, 2], keepdims=False), x), x)
    assert widest(program) == 240


def test_reductions_of_short_rows_apart_are_vectorised() -> None:
    x = random(6, 4, 29)
    program = assert_same(graph_of(lambda b, x: b.ReduceLogSumExp(x, [0, 2], keepdims=False), x), x)
    assert widest(program) == 29


def test_axes_behind_a_reduced_one_are_one() -> None:
    x = random(3, 5, 10, 9)
    program = assert_same(graph_of(lambda b, x: b.ReduceMax(x, [1], keepdims=False), x), x)
    assert widest(program) == 90
