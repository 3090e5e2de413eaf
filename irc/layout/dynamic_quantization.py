"""DynamicQuantizeLinear multiplies by the reciprocal of its scale, and corrects the product to the quotient.

A division takes as long as all else of a step. With r = 1 / y, rounded, and q = x r, q + r (x - q y) is the quotient
before it is rounded, but for 2^-22 of its last digit (Markstein): the products are exact with fused multiply-adds,
which instruction sets with vectors of eight floats have. Its nearest integer is that of the rounded quotient unless x /
y is as near as that to the middle between k + 1/2 and one of its neighbours. There are some thousand such pairs of
digits up to 255, and of all of them it is right (`tests/layout/test_dynamic_quantization.py` lists them).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from irc.expr import Const, Expr, call, select
from irc.ir.graph import Graph, Node, Value
from irc.ir.types import TensorType, f32, i32, u8
from irc.kernels.core.isa import Isa
from irc.opdef.base import Array
from irc.opdef.builder import Builder
from irc.opdef.elementwise import Elementwise
from irc.opdef.signature import Sig
from irc.ops.quantize import DynamicQuantizeLinear
from irc.passes.replace import put_in_place

SETS = ("avx512", "avx2")
"""Instruction sets with fused multiply-adds for which a division is slow."""
SMALLEST = 2.0**-100
"""A divisor from which on nothing on the way is denormal."""


@dataclass(frozen=True)
class ByteInRange(Elementwise):
    """The byte nearest to x / y, plus a zero point, where x is at most 255 y; r: the reciprocal of y."""

    sig: ClassVar[Sig] = Sig("x: any, y: any, r: any, zero: any -> z: any")

    def infer(self, x: Value, y: Value, r: Value, zero: Value) -> TensorType:
        return TensorType(u8, x.tensor.shape)

    def reference(self, x: Array, y: Array, r: Array, zero: Array) -> Array:
        whole = np.rint(np.divide(x, y)) + zero.astype(np.float32)
        return np.where(whole > 0, np.minimum(whole, 255), 0).astype(np.uint8)  # NaN compares to nothing

    def scalar(self, x: Expr, y: Expr, r: Expr, zero: Expr) -> Expr:  # pyright: ignore[reportIncompatibleVariableOverride]
        q = x * r
        q = call("fma", call("fma", -q, y, x), r, q)
        none = Const(0.0, f32)
        whole = call("round", select(y.lt(Const(SMALLEST, f32)), x / y, q)) + zero.cast(f32)
        return select(none.lt(whole), whole, none).min(Const(255.0, f32)).cast(i32).cast(u8)


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
    scale, zero = DynamicQuantizeLinear.steps(b, x)
    y = b.add(ByteInRange(), x, scale, b.Div(b.const(1.0, f32), scale), zero)
    for old, new in zip(node.outputs, (y, scale, zero), strict=True):
        put_in_place(graph, old, new)
