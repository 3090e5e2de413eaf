"""What kernels of bytes are asked to compute."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from irc.ir.dim import Dim
from irc.ir.types import DType, f32, i8, i32, u8
from irc.kernels.conv.problem import ConvProblem
from irc.kernels.core.epilogue import Epilogue, acc
from irc.kernels.core.isa import Isa
from irc.kernels.core.problem import Pair, Problem, likely
from irc.kernels.gemm.problem import GemmProblem

Unit = Literal["fours", "pairs", "saturating"]
"""What one instruction adds up: products of four bytes, of two words, or of two bytes, as words that saturate."""
STEP = {"fours": 4, "pairs": 2, "saturating": 4}
"""Neighbours in k of one column that stand side by side in a panel."""
SETS = ("avx512", "avx2")
"""Instruction sets that have kernels of bytes."""
SUMS = Epilogue(acc(i32))
"""The epilogue that stores the sums, in i32."""
BYTES = (u8, i8)
"""Types of quantized results."""


@dataclass(frozen=True)
class Rounding:
    """How a number becomes a byte: it is rounded, halves to even, and `zero` is added; what is none is the nearest one.

    fits: whether all numbers are known to fit into 32 bits.
    """

    zero: int = 0
    fits: bool = False


@dataclass(frozen=True)
class IntegerConvProblem(ConvProblem):
    """A convolution of (x - zero) and w with the channels last, of constant w that fits into signed bytes.

    Sums, and what is added to them for each channel, a constant, are in i32.  The epilogue is `SUMS`, or one of f32,
    for which the sums are rounded to f32; `stored` is the type of the result: i32, f32, or a byte that `rounding` makes
    of the epilogue's value.  Padding is the zero point.  signed: whether x's bytes are.  zeroed: whether there is a
    zero point, an i32 that the call reads.  crowded: of pairs of neighbouring weights, the share whose products with
    unsigned bytes may add up to more than a word.
    """

    stored: DType = f32
    rounding: Rounding = Rounding()
    signed: bool = False
    zeroed: bool = False
    crowded: float = 1.0

    @property
    def work(self) -> str | None:
        work = super().work
        sign = "signed" if self.signed else "unsigned"
        return None if work is None else f"{sign} bytes to {self.stored.name}, {work}"

    @property
    def is_padded(self) -> bool:
        """Whether windows may reach beyond the image."""
        spans = zip(self.size, self.result, self.window, self.strides, self.dilations, self.padding, strict=True)
        return not all(p == 0 and _inside(n, (o - 1) * s + (k - 1) * d + 1) for n, o, k, s, d, p in spans)


@dataclass(frozen=True)
class IntegerGemmProblem(GemmProblem):
    """A product of (A - zero) and (B - zero) of two operands of bytes, whose sums are in i32.

    The epilogue and `stored` are as those of `IntegerConvProblem`.  signed: whether the bytes of A are, and of B.
    zeroed: whether they have zero points, i32 that the call reads.
    """

    stored: DType = f32
    rounding: Rounding = Rounding()
    signed: tuple[bool, bool] = (False, False)
    zeroed: tuple[bool, bool] = (False, False)

    @property
    def work(self) -> str | None:
        work = super().work
        signs = " by ".join("signed" if s else "unsigned" for s in self.signed)
        return None if work is None else f"{signs} bytes to {self.stored.name}, {work}"


@dataclass(frozen=True)
class LookupProblem(Problem):
    """The byte that a table of 256 has for each of n bytes of type `given`."""

    given: DType
    n: Dim


@dataclass(frozen=True)
class SumProblem(Problem):
    """The byte nearest to Σ scale · (x - zero), within bounds, for each of n bytes of each operand, of types `given`.

    The constant operand has scale and zero of each of them, then the bounds of the sum, all in f32; none is beyond 32
    bits.  zero: what is added to the rounded sum.
    """

    given: tuple[DType, ...]
    n: Dim
    zero: int


def _inside(size: Dim, span: Dim) -> bool:
    rest = size - span
    return rest.is_const and int(rest) >= 0


def product_of_bytes(
    m: Dim,
    n: int,
    k: int,
    signed: bool,
    zeroed: bool,
    epilogue: Epilogue = SUMS,
    stored: DType = i32,
    rows: tuple[Dim, ...] = (),
    rounding: Rounding | None = None,
    crowded: float = 1.0,
) -> IntegerConvProblem:
    """State C[m, n] = (A[m, k] - zero) · B[k, n] of rows without gaps: a convolution of a row of m pixels.

    rows: strides along the rows of the epilogue's operands.
    """
    zero, one, flat = Dim.of(0), Dim.of(1), (1, 1)
    return IntegerConvProblem(
        epilogue.dtype,
        "highest",
        "nhwc",
        epilogue,
        one,
        k,
        n,
        1,
        (one, m),
        (one, m),
        *(flat, flat, flat),
        padding=(zero, zero),
        x=(zero, one, zero, Dim.of(k)),
        y=(zero, one, Dim.of(n)),
        slots=tuple((zero, row) for row in rows),
        stored=stored,
        rounding=rounding or Rounding(),
        signed=signed,
        zeroed=zeroed,
        crowded=crowded,
    )


def products(problem: IntegerConvProblem) -> float:
    """Estimate the number of products."""
    return float(likely(problem.batch) * problem.pixels * problem.outputs * problem.ic * problem.taps)


def fills_sums(channels: int, isa: Isa) -> bool:
    """Tell whether a depthwise convolution has as many channels as a vector has sums, fewer of which have no kernel."""
    return channels >= isa.vector // 4


def joined(groups: int, dilations: Pair) -> bool:
    """Tell whether the taps of a row and their channels stand side by side."""
    return groups == 1 and dilations[1] == 1
