"""Fake quantization around products, and their compressed weights, as quantization and back.

OpenVINO states products of bytes by FakeQuantize of one operand, and constants that are multiplied as floats.  As
QuantizeLinear and DequantizeLinear they are what products of integers are made of.

What moves elements may be between them, a Concat or a MaxPool, say: `irc.layout.moved_bytes` moves bytes then.
"""

from __future__ import annotations

import numpy as np

from irc.ir.graph import Graph, Node, Value
from irc.kernels.core.isa import Isa
from irc.kernels.integer.problem import SETS
from irc.layout.moved_bytes import sources
from irc.opdef.builder import Builder
from irc.ops.arithmetic import Mul, Sub
from irc.ops.cast import Cast
from irc.ops.conv import Conv, ConvTranspose, GroupedConv
from irc.ops.fake_quantize import FakeQuantize
from irc.ops.matmul import MatMul
from irc.passes.idioms.quantization import compressed, quantized_and_back
from irc.passes.replace import replace_value


def run(graph: Graph, isa: Isa) -> int:
    """Rewrite a graph with such products, in place, for an instruction set with kernels for them.  Returns how many."""
    if isa.name not in SETS:
        return 0
    done = 0
    for node in graph.nodes:
        if isinstance(node.op, Conv | ConvTranspose | GroupedConv | MatMul) and _is_quantized(node.inputs[0]):
            done += _rewritten(graph, node)
    if not done:
        return 0
    for node in graph.nodes:
        made = quantized_and_back(graph, node) if isinstance(node.op, FakeQuantize) else None
        if made is not None:
            replace_value(graph, node.outputs[0], made)
    graph.prune()
    return done


def _is_quantized(v: Value | None) -> bool:
    """Tell whether the elements of a value are those of FakeQuantize, moved perhaps, or the largest of windows."""
    waiting, seen = [v], set[Node]()
    while waiting:
        node = None if (v := waiting.pop()) is None else v.producer
        moved = [] if node is None else sources(node)
        if node is None or not (moved or isinstance(node.op, FakeQuantize)):
            return False
        waiting += moved if node not in seen else []
        seen.add(node)
    return True


def _rewritten(graph: Graph, node: Node) -> bool:
    """Write the weights of a product as DequantizeLinear, those of a grouped convolution as those of Conv."""
    x, given, *others = node.inputs
    weights = given if given is None or not isinstance(node.op, GroupedConv) else _of_all_groups(graph, given)
    found = None if weights is None or weights.producer is None else compressed(graph, weights.producer)
    if x is None or given is None or weights is None or found is None or found.type != weights.type:
        return False
    if not isinstance(node.op, GroupedConv):
        graph.set_op(node, node.op, [x, found, *others])
        return True
    b = Builder(graph, node.name, node.loc)
    made = b.Conv(x, found, **node.op.attributes(), group=int(given.shape[0]))
    return replace_value(graph, node.outputs[0], made)


def _of_all_groups(graph: Graph, weights: Value) -> Value | None:
    """Write dequantized weights of groups, an axis of their own, and their scales, without that axis."""
    node = weights.producer
    if node is None or not isinstance(node.op, Mul | Sub | Cast):
        return None
    b, shape = Builder(graph, node.name, node.loc), weights.shape
    flat: list[Value | None] = []
    for v in node.operands:
        if v.const is None:
            flat.append(_of_all_groups(graph, v))
        elif (array := v.array) is None or array.ndim not in (0, len(shape)):
            return None
        elif array.size == 1:
            flat.append(b.const(array.reshape(()), v.dtype))
        else:
            wide = np.broadcast_to(array, (*map(int, shape[:2]), *array.shape[2:]))
            flat.append(b.const(wide.reshape(-1, *array.shape[2:]), v.dtype))
    return None if None in flat else b.add(node.op, *flat)
