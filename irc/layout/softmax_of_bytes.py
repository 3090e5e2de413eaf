"""A softmax between a DequantizeLinear and a QuantizeLinear of one scale each, as one operation.

Its operand is a byte, so that the largest one is found among bytes, and both scales are numbers of the kernel; loops
would compute everything in floats, in as many passes over rows that are rarely whole vectors.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from irc.ir.graph import Graph, Node, Value
from irc.ir.types import DType, TensorType, f32, value_range
from irc.kernels.core.isa import Isa
from irc.kernels.integer.problem import SETS
from irc.layout.integer_operands import dequantized, is_one, rewrite_quantized
from irc.opdef.base import Array, Op
from irc.opdef.builder import Builder
from irc.opdef.signature import Sig
from irc.ops.softmax import Softmax
from irc.passes.replace import replace_value

LARGEST, SMALLEST_RESULT = 2.0**20, 2.0**-20
"""Scales up to and from which no number on the way is infinite or beyond 32 bits."""


@dataclass(frozen=True)
class SoftmaxOfBytes(Op):
    """The byte nearest to softmax(scale · x) / result scale along the last axis, plus a zero point."""

    scale: float
    result_scale: float
    zero: int
    stored: DType
    sig: ClassVar[Sig] = Sig("x: any -> y: any")

    def infer(self, x: Value) -> TensorType:
        return TensorType(self.stored, x.tensor.shape)

    def reference(self, x: Array) -> Array:
        e = np.exp((x - np.max(x.astype(np.float32), axis=-1, keepdims=True, initial=-np.inf)) * np.float32(self.scale))
        y = e / np.sum(e, axis=-1, keepdims=True, dtype=np.float32) / np.float32(self.result_scale)
        return (np.rint(y) + self.zero).clip(*value_range(self.stored)).astype(self.stored.numpy)

    def decompose(self, b: Builder, x: Value) -> Value:
        y = b.Softmax(b.DequantizeLinear(x, b.const(self.scale, f32)))
        return b.QuantizeLinear(y, b.const(self.result_scale, f32), b.const(self.zero, self.stored))


def run(graph: Graph, isa: Isa) -> int:
    """Rewrite such softmaxes, in place, for an instruction set with kernels of bytes.  Returns how many."""
    return rewrite_quantized(graph, _joined) if isa.name in SETS else 0


def _joined(graph: Graph, node: Node) -> bool:
    """Put one operation in the place of a QuantizeLinear, the softmax that it reads and what that reads."""
    y, *parameters = node.operands
    softmax, out = y.producer, node.outputs[0]
    if softmax is None or not isinstance(softmax.op, Softmax) or not all(is_one(p) for p in parameters):
        return False
    source = dequantized(softmax.inputs[0])
    if source is None or graph.keeps(y) or len(y.uses) != 1 or softmax.op.axis % len(y.shape) != len(y.shape) - 1:
        return False
    x, given, *_ = source.operands
    scale, result_scale, *zero = (float(np.asarray(p.array).reshape(-1)[0]) for p in (given, *parameters))
    if not 0 < scale <= LARGEST or not SMALLEST_RESULT <= result_scale <= LARGEST or parameters[0].dtype != f32:
        return False
    b = Builder(graph, node.name or node.op.name, node.loc)
    made = b.add(SoftmaxOfBytes(scale, result_scale, int(zero[0]) if zero else 0, out.dtype), x)
    return made.type == out.type and bool(replace_value(graph, out, made))
