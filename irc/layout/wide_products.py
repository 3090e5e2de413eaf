"""Products of f16 and bf16 in f32, which kernels compute.

The loops of a product of narrow floats add up in f32, too, and round once; as a kernel's operands, both factors are
widened before it and its result is rounded behind it, or behind what is computed of it (`irc.layout.wide_sums`).
Constant factors are widened when compiling.
"""

from __future__ import annotations

from irc.ir.graph import Graph, Node, Value
from irc.ir.types import TensorType, bf16, f16, f32
from irc.layout import wide_sums
from irc.opdef.builder import Builder
from irc.ops.conv import Conv, ConvTranspose
from irc.ops.matmul import Gemm, MatMul
from irc.passes.replace import replace_value

PRODUCTS = Conv | ConvTranspose | Gemm | MatMul


def run(graph: Graph) -> int:
    """Rewrite products of f16 and bf16, in place.  Returns how many."""
    rounded: dict[Value, Value] = {}
    for node in graph.nodes:
        if isinstance(node.op, PRODUCTS) and node.outputs[0].dtype in (f16, bf16):
            _widen(graph, node, rounded)
    done = len(rounded)
    wide_sums.carry(graph, rounded)
    graph.prune()
    return done


def _widen(graph: Graph, node: Node, rounded: dict[Value, Value]) -> None:
    out = node.outputs[0]
    b = Builder(graph, node.name or node.op.name, node.loc)
    operands = [None if v is None else b.Cast(v, to=f32) for v in node.inputs]
    total = b.add(node.op, *operands)
    made = b.Cast(total, to=out.dtype)
    made.type = TensorType(out.dtype, out.shape)
    if replace_value(graph, out, made):
        rounded[made] = total
