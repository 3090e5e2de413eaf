"""Sums of dequantized bytes that are quantized again: their scales are divided by that of the result, once.

A division takes as long as all else of such a step.  (sa · (a - za) + sb · (b - zb)) / s is a sum with the scales
sa / s and sb / s, also behind bounds (Relu, Clip), which are divided likewise: what lies nearest to the middle of two
bytes may become the other one.  Where the operands are of one shape, all of it is one operation, which has a kernel.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np

from irc.expr import Const, Expr, call
from irc.ir.graph import Graph, Node, Value
from irc.ir.types import DType, TensorType, f32, i32, value_range
from irc.kernels.core.isa import Isa
from irc.kernels.integer.problem import BYTES, SETS
from irc.layout.integer_operands import rewrite_quantized
from irc.opdef.base import Array
from irc.opdef.builder import Builder
from irc.opdef.elementwise import Elementwise
from irc.opdef.signature import Sig
from irc.ops.activation import Relu
from irc.ops.arithmetic import Add, Sub
from irc.ops.clip import Clip
from irc.ops.quantize import DequantizeLinear
from irc.ops.variadic import Max, Min
from irc.passes.replace import replace_value

STEPS = Add | Sub | Max | Min | Relu | Clip
"""Operations of which it is the same whether operands or results are divided by a positive number."""
LONGEST = 32
"""Such operations between bytes and bytes, at most."""
MOST_TERMS = 8
"""Terms of a sum that is one operation, at most."""
MOST = 2.0**31 - 256
"""A number up to which floats fit into 32 bits, however they were rounded on the way."""


@dataclass(frozen=True)
class SumOfBytes(Elementwise):
    """The byte nearest to Σ scale · (x - zero) within bounds, plus a zero point."""

    scales: tuple[float, ...]
    zeros: tuple[int, ...]
    bounds: tuple[float, float]
    zero: int
    stored: DType
    sig: ClassVar[Sig] = Sig("*xs: any -> y: any")

    def infer(self, *xs: Value) -> TensorType:
        return TensorType(self.stored, xs[0].tensor.shape)

    def reference(self, *xs: Array) -> Array:
        terms = [
            (x.astype(np.float32) - np.float32(z)) * np.float32(s)
            for x, s, z in zip(xs, self.scales, self.zeros, strict=True)
        ]
        rounded = np.rint(np.sum(terms, 0, dtype=np.float32).clip(*self.bounds)) + self.zero
        return rounded.clip(*value_range(self.stored)).astype(self.stored.numpy)

    def scalar(self, *xs: Expr) -> Expr:  # pyright: ignore[reportIncompatibleVariableOverride]
        terms = zip(xs, self.scales, self.zeros, strict=True)
        first, *others = [(x.cast(i32) - z).cast(f32) * Const(s, f32) for x, s, z in terms]
        for term in others:
            first = first + term
        least, largest = value_range(self.stored)
        low, high = self.bounds
        low, high = max(low, float(least - self.zero)), min(high, float(largest - self.zero))
        rounded = call("round", first.max(Const(low, f32)).min(Const(high, f32))) + Const(float(self.zero), f32)
        return rounded.max(Const(float(least), f32)).min(Const(float(largest), f32)).cast(i32).cast(self.stored)


def run(graph: Graph, isa: Isa) -> int:
    """Rewrite such sums, in place.  Returns how many."""
    kernels = isa.name in SETS
    return rewrite_quantized(graph, lambda g, node: (kernels and _joined(g, node)) or _rewritten(g, node))


def _rewritten(graph: Graph, last: Node) -> bool:
    summed, scale, *zero = last.operands
    by = _number(scale)
    steps = None if by is None or not 2.0**-64 < by < 2.0**64 else _steps(graph, last, summed)
    if by is None or not steps:
        return False
    b, divided = Builder(graph, last.name or last.op.name, last.loc), dict[Value, Value]()

    def quotient(v: Value) -> Value:
        if v not in divided:
            divided[v] = made(v)
        return divided[v]

    def made(v: Value) -> Value:
        if v.array is not None:
            return b.const((v.array.astype(np.float64) / by).astype(np.float32), f32)
        node = v.producer
        assert node is not None
        if node in steps:
            return b.add(node.op, *(None if x is None else quotient(x) for x in node.inputs))
        x, factor, *zeros = node.operands
        return b.add(node.op, x, quotient(factor), *zeros)

    found = b.add(last.op, quotient(summed), b.const(np.float32(1.0), f32), *zero)
    return found.type == last.outputs[0].type and bool(replace_value(graph, last.outputs[0], found))


@dataclass(frozen=True)
class _Sum:
    """Terms, each a DequantizeLinear, and the bounds of their sum."""

    terms: tuple[Node, ...]
    bounds: tuple[float, float] = (-math.inf, math.inf)


def _joined(graph: Graph, last: Node) -> bool:
    """Put one operation in the place of a sum of several tensors of one shape, and of its bounds."""
    summed, scale, *zero = last.operands
    by, out = _number(scale), last.outputs[0]
    point = _number(zero[0]) if zero else 0.0
    found = None if by is None or not 2.0**-64 < by < 2.0**64 else _sum(graph, last, summed)
    if by is None or found is None or point is None or len(found.terms) < 2:
        return False
    xs, scales, zeros = zip(*(_parameters(node) for node in found.terms), strict=True)
    scales = tuple(float(np.float32(s / by)) for s in scales)
    if any(x.shape != out.shape for x in xs) or not sum(abs(s) * 512 for s in scales) <= MOST:  # nor NaN
        return False
    bounds = tuple(float(np.float32(b / by)) for b in found.bounds)
    b = Builder(graph, last.name or last.op.name, last.loc)
    made = b.add(SumOfBytes(scales, zeros, (bounds[0], bounds[1]), int(point), out.dtype), *xs)
    return made.type == out.type and bool(replace_value(graph, out, made))


def _parameters(node: Node) -> tuple[Value, float, int]:
    """Return the bytes, the scale and the zero point of a DequantizeLinear."""
    x, scale, *zero = node.operands
    return x, _number(scale) or 0.0, int(_number(zero[0]) or 0) if zero else 0


def _sum(graph: Graph, user: Node, v: Value) -> _Sum | None:
    """Find the terms of what a node alone reads, and its bounds."""
    node = v.producer
    if node is not None and _is_dequantized(node):
        return _Sum((node,)) if all(_number(p) is not None for p in list(node.operands)[1:]) else None
    if node is None or graph.keeps(v) or set(v.uses) != {user} or v.dtype != f32:
        return None
    if isinstance(node.op, Add):
        terms: list[Node] = []
        for x in node.operands:
            part = _sum(graph, node, x)
            if part is None or part.bounds != _Sum(()).bounds or len(terms) + len(part.terms) > MOST_TERMS:
                return None
            terms += part.terms
        return _Sum(tuple(terms))
    if not isinstance(node.op, Relu | Clip):
        return None
    bounds = _bounds(node.inputs[1:]) if isinstance(node.op, Clip) else (0.0, math.inf)
    found = _sum(graph, node, next(node.operands))
    if found is None or bounds is None:
        return None
    low, high = max(found.bounds[0], bounds[0]), min(found.bounds[1], bounds[1])
    return replace(found, bounds=(low, high)) if low <= high else None


def _bounds(given: Sequence[Value | None]) -> tuple[float, float] | None:
    low, high = (*given, None, None)[:2]
    least, largest = -math.inf if low is None else _number(low), math.inf if high is None else _number(high)
    return None if least is None or largest is None else (least, largest)


def _steps(graph: Graph, last: Node, summed: Value) -> set[Node] | None:
    """Find the operations between dequantized bytes and what is quantized, whose results nothing else reads."""
    found, waiting = set[Node](), [summed]
    while waiting:
        v = waiting.pop()
        node = v.producer
        if v.array is not None or _is_dequantized(node):
            continue
        if node is None or not isinstance(node.op, STEPS) or v.dtype != f32 or graph.keeps(v) or len(found) > LONGEST:
            return None
        if node not in found:
            found.add(node)
            waiting += node.operands
    return found if all({last, *found}.issuperset(v.uses) for node in found for v in node.outputs) else None


def _is_dequantized(node: Node | None) -> bool:
    """Tell whether a node makes floats of bytes by one scale."""
    if node is None or not isinstance(node.op, DequantizeLinear) or node.outputs[0].dtype != f32:
        return False
    x, scale, *_ = node.operands
    return isinstance(x.type, TensorType) and x.dtype in BYTES and _number(scale) is not None


def _number(v: Value) -> float | None:
    """Find the only element of a constant."""
    return float(v.array.reshape(-1)[0]) if v.array is not None and v.array.size == 1 else None
