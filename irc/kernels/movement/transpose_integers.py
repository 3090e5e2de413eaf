"""Transposing copies of integers of 32 and 64 bits: those of floats of as many bits, which move them as they are."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property
from typing import Self

from irc.ir.types import DType, f32, f64, i32, i64, u32, u64
from irc.kernels.core.isa import C_NAMES, Isa
from irc.kernels.core.registry import kernel
from irc.kernels.core.text import Part, symbol
from irc.kernels.core.tile import Tile
from irc.kernels.movement.problem import TransposeProblem
from irc.kernels.movement.transpose import TransposeKernel

FLOATS = {i32: f32, u32: f32, i64: f64, u64: f64}


@kernel
class TransposeIntegersKernel(TransposeKernel):
    """A generated copy of integers whose rows and columns change places."""

    integers: DType

    @classmethod
    def candidates(cls, problem: TransposeProblem, isa: Isa) -> Iterator[Self]:
        if problem.dtype in FLOATS and problem.rows[2] == 1:
            yield cls(Tile(isa, FLOATS[problem.dtype], 1, 1), problem.dtype)

    @property
    def label(self) -> str:
        return "squares of integers"

    @cached_property
    def symbol(self) -> str:
        name = self.tile.name.removeprefix("irc_tile_").rsplit("_", 1)[0]
        return symbol("transpose_integers", name, self.integers.name, "")

    @property
    def pointers(self) -> tuple[tuple[str, str], ...]:
        name = C_NAMES[self.integers]
        return (("x", f"const {name} *"), ("y", f"{name} *"))

    @property
    def element(self) -> str:
        return f"{self.symbol}_element"

    def parts(self) -> list[Part]:
        *types, body = super().parts()
        moved = f"typedef {C_NAMES[self.tile.dtype]} {self.element} __attribute__((may_alias));\n"
        return [*types, moved, body]
