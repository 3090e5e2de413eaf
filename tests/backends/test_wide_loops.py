"""Which functions of loops are told to take vectors of 512 bits."""

from __future__ import annotations

from typing import Any, Literal

import pytest

from irc.backends.c.wide_loops import wide
from irc.expr import Bin, Call, Cast, Const, Expr, Load, Var
from irc.ir.dim import Dim
from irc.ir.types import f16, f32, i64
from irc.loops.halves import REGISTERS
from irc.loops.ir import Buffer, For, Stmt, Store

I, R = Var("i"), Var("r")


def buffer(where: Any) -> Buffer:
    return Buffer("b", f32, (Dim.of(4096),), where)


def loop(extent: int, value: Expr, where: Literal["output", "local"] = "output") -> list[Stmt]:
    inner: list[Stmt] = [Store(buffer(where), (I,), value)]
    return [For(R, Const(8, i64), [For(I, Const(extent, i64), inner, "simd")])]


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        (loop(4096, Call("erf", (Load(buffer("input"), (I,)),))), True),
        (loop(20, Call("erf", (Load(buffer("input"), (I,)),))), False),
        (loop(4096, Load(buffer("input"), (I,))), False),
        (loop(4096, Bin("max", Load(buffer("local"), (I,)), Load(buffer("input"), (I,))), "local"), True),
        ([], False),
    ],
)
def test_long_loops_that_compute(body: list[Stmt], expected: bool) -> None:
    assert wide(body, fast=True) == ("IRC_WIDE " if expected else "")
    assert wide(body, fast=False) == ""


def test_tiles_in_registers_are_whole_vectors_on_every_processor() -> None:
    tile = Buffer("tile", f32, (Dim.of(REGISTERS),), "local")
    halves = Buffer("halves", f16, (Dim.of(4096),), "input")
    inner: list[Stmt] = [Store(tile, (I,), Cast(Load(halves, (I,)), f32))]
    assert wide([For(I, Const(REGISTERS, i64), inner, "simd")], fast=False) == "IRC_WIDE "
