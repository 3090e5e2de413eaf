"""Fake quantization around products, and their compressed weights, as quantization and back.

OpenVINO states products of bytes by FakeQuantize of one operand, and constants that are multiplied as floats.  As
QuantizeLinear and DequantizeLinear they are what products of integers are made of.

Where a MaxPool or another shape is between them, the FakeQuantize is repeated behind it, which changes nothing: the
elements are levels already.
"""

from __future__ import annotations

import numpy as np

from irc.ir.graph import Graph, Node, Value
from irc.kernels.core.isa import Isa
from irc.kernels.integer.problem import SETS
from irc.opdef.builder import Builder
from irc.ops.conv import Conv, GroupedConv
from irc.ops.fake_quantize import FakeQuantize
from irc.ops.layout import Flatten, Reshape, Squeeze
from irc.ops.matmul import MatMul
from irc.ops.pool import MaxPool
from irc.ops.quantize import DequantizeLinear
from irc.passes.idioms.quantization import compressed, quantized_and_back
from irc.passes.replace import replace_value


def run(graph: Graph, isa: Isa) -> int:
    """Rewrite a graph with such products, in place, for an instruction set with kernels for them.  Returns how many."""
    if isa.name not in SETS:
        return 0
    done, repeated = 0, dict[Value, Value]()
    for node in graph.nodes:
        source = _quantizer(node.inputs[0]) if isinstance(node.op, Conv | GroupedConv | MatMul) else None
        if source is not None:
            done += _rewritten(graph, node, source, repeated)
    if not done:
        return 0
    for node in graph.nodes:
        made = quantized_and_back(graph, node) if isinstance(node.op, FakeQuantize) else None
        if made is not None:
            replace_value(graph, node.outputs[0], made)
    graph.prune()
    return done


def _quantizer(v: Value | None) -> Node | None:
    """Find the FakeQuantize whose elements are those of a value, perhaps the largest of windows."""
    while v is not None and v.producer is not None and isinstance(v.producer.op, Reshape | Flatten | Squeeze | MaxPool):
        v = v.producer.inputs[0]
    node = None if v is None else v.producer
    return node if node is not None and isinstance(node.op, FakeQuantize) else None


def _repeated(graph: Graph, x: Value, source: Node) -> Value:
    """Repeat a FakeQuantize of one range, whose two are the same, behind what moves its elements."""
    arrays = [v.array for v in source.operands][1:]
    limits = [a.reshape(()) for a in arrays if a is not None and a.size == 1]
    if x is source.outputs[0] or len(limits) != 4 or limits[0] != limits[2] or limits[1] != limits[3]:
        return x
    b = Builder(graph, source.name, source.loc)
    assert isinstance(source.op, FakeQuantize)
    return b.FakeQuantize(x, *(b.const(limit, x.dtype) for limit in limits), levels=source.op.levels)


def _rewritten(graph: Graph, node: Node, source: Node, repeated: dict[Value, Value]) -> bool:
    """Write the weights of a product as DequantizeLinear, those of a grouped convolution as those of Conv."""
    x, weights, *others = node.inputs
    found = None if weights is None or weights.producer is None else compressed(graph, weights.producer)
    made = None if found is None else found.producer
    if x is None or weights is None or found is None or made is None or found.type != weights.type:
        return False
    if x not in repeated:
        repeated[x] = _repeated(graph, x, source)
    x = repeated[x]
    if not isinstance(node.op, GroupedConv):
        graph.set_op(node, node.op, [x, found, *others])
        return True
    integers, scale, zero = (*made.inputs, None)[:3]
    assert isinstance(made.op, DequantizeLinear) and integers is not None and scale is not None
    array, scales = integers.array, scale.array
    if array is None or scales is None or zero is not None or (scales.size != 1 and made.op.axis % array.ndim != 0):
        return False
    groups, each = array.shape[:2]
    b = Builder(graph, node.name, node.loc)
    flat = b.const(array.reshape(groups * each, *array.shape[2:]), integers.dtype)
    by_output = np.repeat(scales.reshape(-1), each) if scales.size != 1 else scales.reshape(())
    w = b.DequantizeLinear(flat, b.const(by_output, scale.dtype), axis=0)
    return replace_value(graph, node.outputs[0], b.Conv(x, w, **node.op.attributes(), group=groups))
