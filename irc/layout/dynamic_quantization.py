"""DynamicQuantizeLinear multiplies by the reciprocal of its scale, and corrects the product to the quotient.

A division takes as long as all else of a step. With r = 1 / y, rounded, and q = x r, q + r (x - q y) is the quotient
before it is rounded, but for 2^-22 of its last digit (Markstein): the products are exact with fused multiply-adds,
which instruction sets with vectors of eight floats have. Its nearest integer is that of the rounded quotient unless x /
y is as near as that to the middle between k + 1/2 and one of its neighbours. There are some thousand such pairs of
digits up to 255, and of all of them it is right (`tests/layout/test_dynamic_quantization.py` lists them).
"""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from irc.expr import Const, Expr, Tensor, call, select
from irc.ir.dim import product
from irc.ir.graph import Graph, Node, Value
from irc.ir.types import TensorType, f32, i32, u8
from irc.kernels.core.isa import Isa
from irc.loops.builder import LoopBuilder
from irc.opdef.base import Array, Op
from irc.opdef.builder import Builder
from irc.opdef.elementwise import Elementwise
from irc.opdef.signature import Sig
from irc.ops.quantize import DynamicQuantizeLinear
from irc.passes.replace import put_in_place

SETS = ("avx512", "avx2")
"""Instruction sets with fused multiply-adds for which a division is slow."""
LEAST = 1 << 12
"""Elements below which loops find the range among what else they compute of it."""
SMALLEST = 2.0**-100
"""A divisor from which on nothing on the way is denormal; smaller ones, and x, are divided by it, which is exact."""


@dataclass(frozen=True)
class ByteInRange(Elementwise):
    """The byte nearest to x power / y, plus a zero point, where that is at most 255; r: the reciprocal of y.

    power: of two, that makes no y denormal.  Where y is negative, r stands for 1 / 0.
    """

    sig: ClassVar[Sig] = Sig("x: any, power: any, y: any, r: any, zero: any -> z: any")

    def infer(self, x: Value, power: Value, y: Value, r: Value, zero: Value) -> TensorType:
        return TensorType(u8, x.tensor.shape)

    def reference(self, x: Array, power: Array, y: Array, r: Array, zero: Array) -> Array:
        whole = np.rint(np.divide(x * power, np.where(y < 0, y.dtype.type(0), y))) + zero.astype(np.float32)
        return np.where(whole > 0, np.minimum(whole, 255), 0).astype(np.uint8)  # NaN compares to nothing

    def scalar(self, x: Expr, power: Expr, y: Expr, r: Expr, zero: Expr) -> Expr:  # pyright: ignore[reportIncompatibleVariableOverride]
        x = x * power
        q = x * r
        q = call("fma", call("fma", -q, y, x), r, q)
        none = Const(0.0, f32)
        whole = call("round", q) + zero.cast(f32)
        return select(none.lt(whole), whole, none).min(Const(255.0, f32)).cast(i32).cast(u8)


@dataclass(frozen=True)
class Extremes(Op):
    """The least and the largest of all elements, for which there is a kernel."""

    sig: ClassVar[Sig] = Sig("x: any -> y: any")

    def infer(self, x: Value) -> TensorType:
        return TensorType.of(x.dtype, [2])

    def reference(self, x: Array) -> Array:
        return np.array([np.min(x, initial=np.inf), np.max(x, initial=-np.inf)], x.dtype)

    def loops(self, b: LoopBuilder, x: Tensor, y: Tensor) -> None:  # pyright: ignore[reportIncompatibleVariableOverride]
        """Keep both while all elements are read."""
        least, largest = (b.var(Const(end, x.dtype), name) for end, name in ((np.inf, "least"), (-np.inf, "largest")))
        with ExitStack() as nest:
            here = b.let(x[tuple(nest.enter_context(b.for_(d)) for d in x.shape)], "here")
            b.assign(least, least.min(here))
            b.assign(largest, largest.max(here))
        b.store(y, (0,), least)
        b.store(y, (1,), largest)


def run(graph: Graph, isa: Isa) -> int:
    """Rewrite such operations, in place.  Returns how many."""
    found = [n for n in graph.nodes if isinstance(n.op, DynamicQuantizeLinear) and isa.name in SETS]
    for node in found:
        _rewrite(graph, node)
    if found:
        graph.prune()
    return len(found)


def _rewrite(graph: Graph, node: Node) -> None:
    (x,), b = node.operands, Builder(graph, node.name or node.op.name, node.loc)
    elements = product(x.shape)
    if elements.is_const and int(elements) < LEAST:
        scale, zero = DynamicQuantizeLinear.steps(b, x)
    else:
        extremes = b.add(Extremes(), x)
        scale, zero = DynamicQuantizeLinear.of_range(b, *(b.Gather(extremes, b.const(k), b.const(0)) for k in (0, 1)))
    one = b.const(1.0, f32)
    power = b.Where(b.Less(scale, b.const(SMALLEST, f32)), b.const(1 / SMALLEST, f32), one)
    scaled = b.Mul(scale, power)
    # Quotients by 0 are infinite, or NaN: with an infinite reciprocal, the correction keeps them so if y is negative.
    divisor = b.Where(b.Equal(scale, b.const(0.0, f32)), b.const(-1.0, f32), scaled)
    y = b.add(ByteInRange(), x, power, divisor, b.Div(one, scaled), zero)
    for old, new in zip(node.outputs, (y, scale, zero), strict=True):
        put_in_place(graph, old, new)
