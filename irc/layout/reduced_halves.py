"""Reductions of f16 as reductions of f32, to which all elements are converted first.

An instruction converts eight or sixteen halves that stand side by side; loops that reduce them on the way convert each
by itself.  As floats they also have the kernels of floats.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from irc.expr import Tensor
from irc.ir.dim import product
from irc.ir.graph import Graph, Node, Value
from irc.ir.types import TensorType, f16, f32
from irc.loops.builder import LoopBuilder, seen_as
from irc.opdef.base import Array, Op
from irc.opdef.builder import Builder
from irc.opdef.signature import Sig
from irc.ops.argmax import ArgMax, ArgMin
from irc.ops.conv import Conv
from irc.ops.matmul import MatMul
from irc.ops.reduce import ReduceMax, ReduceMean, ReduceMin, ReduceProd, ReduceSum
from irc.passes.replace import put_in_place

REDUCTIONS = ReduceSum | ReduceMean | ReduceMax | ReduceMin | ReduceProd | ArgMax | ArgMin
FEWEST = 1024
"""Elements below which nothing is gained."""


@dataclass(frozen=True)
class Floats(Op):
    """The floats of halves, in memory."""

    sig: ClassVar[Sig] = Sig("x: any -> y: any")

    def infer(self, x: Value) -> TensorType:
        return TensorType(f32, x.tensor.shape)

    def reference(self, x: Array) -> Array:
        return x.astype(np.float32)

    def loops(self, b: LoopBuilder, x: Tensor, y: Tensor) -> None:  # pyright: ignore[reportIncompatibleVariableOverride]
        elements = product(x.shape)
        source, to = (seen_as(t, [elements]) for t in (x, y))
        with b.for_(elements, "simd") as i:
            b.store(to, i, source[i].cast(f32))


def run(graph: Graph) -> int:
    """Rewrite such reductions of what stands in memory, in place.  Returns how many."""
    done = 0
    for node in graph.nodes:
        x = node.inputs[0] if isinstance(node.op, REDUCTIONS) else None
        if x is not None and x.dtype == f16 and _stands(x) and not x.tensor.elements().at_most(FEWEST - 1):
            _rewrite(graph, node, x)
            done += 1
    if done:
        graph.prune()
    return done


def _stands(x: Value) -> bool:
    """Tell whether a value is in memory in any case."""
    node = x.producer
    return node is None or len(x.uses) > 1 or not (node.op.elementwise or isinstance(node.op, MatMul | Conv))


def _rewrite(graph: Graph, node: Node, x: Value) -> None:
    b = Builder(graph, node.name or node.op.name, node.loc)
    old = node.outputs[0]
    made = b.add(node.op, b.add(Floats(), x), *node.inputs[1:])
    put_in_place(graph, old, made if made.dtype == old.dtype else b.Cast(made, to=old.dtype))
