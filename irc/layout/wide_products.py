"""Products of f16 and bf16 in f32, which kernels compute.

The loops of a product of narrow floats add up in f32, too, and round once; as a kernel's operands, both factors are
widened before it and its result is rounded behind it.  Constant factors are widened when compiling.
"""

from __future__ import annotations

from irc.ir.graph import Graph, Node
from irc.ir.types import TensorType, bf16, f16, f32
from irc.opdef.builder import Builder
from irc.ops.conv import Conv, ConvTranspose
from irc.ops.matmul import Gemm, MatMul
from irc.passes.replace import replace_value

PRODUCTS = Conv | ConvTranspose | Gemm | MatMul


def run(graph: Graph) -> int:
    """Rewrite products of f16 and bf16, in place.  Returns how many."""
    done = 0
    for node in graph.nodes:
        if isinstance(node.op, PRODUCTS) and node.outputs[0].dtype in (f16, bf16):
            done += _widened(graph, node)
    graph.prune()
    return done


def _widened(graph: Graph, node: Node) -> bool:
    out = node.outputs[0]
    b = Builder(graph, node.name or node.op.name, node.loc)
    operands = [None if v is None else b.Cast(v, to=f32) for v in node.inputs]
    made = b.Cast(b.add(node.op, *operands), to=out.dtype)
    made.type = TensorType(out.dtype, out.shape)
    return bool(replace_value(graph, out, made))
