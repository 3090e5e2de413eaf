"""Recurrent layers as a problem: all steps of LSTM and GRU behind the product of their input with its weights."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from irc.ir.dim import Dim, DimLike
from irc.ir.types import DType
from irc.kernels.core.problem import Problem
from irc.ops.recurrent_steps import Direction

Cell = Literal["lstm", "gru", "gru_linear"]
GATES: dict[Cell, int] = {"lstm": 4, "gru": 3, "gru_linear": 3}


@dataclass(frozen=True)
class RecurrentProblem(Problem):
    """The steps of a layer with its usual functions, σ and tanh.

    h, c: whether initial states are operands.  lengths: the C type of each sequence's number of steps, "" where all
    have `steps`.  bias: whether the product with the state in the gate h of "gru_linear" has one.  x: strides of the
    projected input along steps, sequences and directions; y: of the result along steps, directions and sequences.
    """

    cell: Cell
    direction: Direction
    h: bool
    c: bool
    lengths: str
    bias: bool
    steps: Dim
    batch: Dim
    hidden: int
    x: tuple[Dim, Dim, Dim]
    y: tuple[Dim, Dim, Dim]

    @classmethod
    def contiguous(
        cls,
        dtype: DType,
        cell: Cell,
        direction: Direction,
        steps: DimLike,
        batch: DimLike,
        hidden: int,
        h: bool = False,
        c: bool = False,
        lengths: str = "",
        bias: bool = False,
    ) -> RecurrentProblem:
        """State a layer without gaps: x[step, batch, direction, gates · hidden], y[step, direction, batch, hidden]."""
        count, n = (2 if direction == "bidirectional" else 1), Dim.of(batch)
        row = Dim.of(GATES[cell] * hidden)
        sizes = (Dim.of(steps), n, hidden)
        x, y = (n * row * count, row * count, row), (n * hidden * count, n * hidden, Dim.of(hidden))
        return cls(dtype, "highest", cell, direction, h, c, lengths, bias, *sizes, x, y)

    @property
    def directions(self) -> int:
        return 2 if self.direction == "bidirectional" else 1
