"""Loops that only convert halves: eight elements an instruction, and what the portable code makes of every one."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import irc
from irc.backends.c.conversions import conversion_of
from irc.driver import CompileOptions, sources
from irc.expr import Cast, Const, Expr, Load, Var
from irc.ir.dim import Dim
from irc.ir.graph import Graph, Model
from irc.ir.types import DTYPES, TensorType, i64
from irc.loops.ir import Buffer, For, Stmt, Store
from irc.opdef.builder import Builder
from irc.toolchain.c_compiler import find_compiler


def cast(to: str, shape: tuple[int, ...]) -> Graph:
    graph = Graph("test")
    x = graph.add_input("x", TensorType.of(DTYPES["f32" if to == "f16" else "f16"], shape))
    graph.outputs.append(Builder(graph).Cast(x, to=DTYPES[to]))
    return graph


@pytest.mark.skipif(find_compiler() is None, reason="no C compiler")
@pytest.mark.parametrize("count", [5, 8, 65539])
def test_every_half_is_converted(count: int) -> None:
    halves = np.arange(count).astype(np.uint16).view(np.float16)
    (floats,) = irc.compile(Model(cast("f32", (count,))), backend="c")({"x": halves})
    np.testing.assert_array_equal(floats, halves.astype(np.float32))
    between = np.nextafter(floats, np.float32(np.inf)) if count > 8 else floats
    for given in (floats, between, floats * np.float32(1.0002)):
        (back,) = irc.compile(Model(cast("f16", (count,))), backend="c")({"x": given})
        with np.errstate(over="ignore"):
            np.testing.assert_array_equal(back, given.astype(np.float16))


@pytest.mark.parametrize("to", ["f16", "f32"])
def test_such_loops_are_calls(to: str) -> None:
    made: Any = sources(Model(cast(to, (4, 7))), CompileOptions("c", target="x86-64-v3", cache=False)).files
    name = "irc_f16_from_f32_run" if to == "f16" else "irc_f16_to_f32_run"
    assert str(made["model.c"]).count(name) == 2, "its definition, and a call"


def test_elements_that_stand_apart_are_not() -> None:
    i, shape = Var("i"), (Dim.of(8), Dim.of(8))
    x, y = (Buffer(n, DTYPES[t], shape, "arena") for n, t in (("x", "f16"), ("y", "f32")))

    def found(at: Expr, row: Expr) -> bool:
        body: list[Stmt] = [Store(y, (row, i), Cast(Load(x, (Const(0, i64), at)), DTYPES["f32"]))]
        return conversion_of(For(i, Const(4, i64), body, "simd")) is not None

    assert found(i, Const(0, i64))
    assert not found(i * 2, Const(0, i64)) and not found(i, i)
