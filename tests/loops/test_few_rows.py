"""Reductions over few short rows: as many are added up as an iteration takes, then what is side by side is folded."""

from __future__ import annotations

import pytest

from irc.expr import Const
from irc.ir.graph import Value
from irc.loops.ir import For, Function, walk
from irc.opdef.base import load_all
from irc.opdef.builder import Builder
from tests.support.lowering import assert_same, graph_of, random

load_all()


def highest(b: Builder, x: Value) -> Value:
    return b.ReduceMax(x, [1], keepdims=False)


@pytest.mark.parametrize(("rows", "together"), [(16, 64), (17, 64), (8, 32), (64, 256)])
def test_few_rows_are_added_up_before_what_is_side_by_side_is_folded(rows: int, together: int) -> None:
    x = random(6, rows, 16)
    program = assert_same(graph_of(highest, x), x)
    loops = [
        s
        for f in program.steps
        if isinstance(f, Function)
        for s in walk(f.body)
        if isinstance(s, For) and s.kind == "simd"
    ]
    assert max(int(s.extent.value) for s in loops if isinstance(s.extent, Const)) == together
