"""Sums of dequantized bytes that are quantized again: their scales are divided by that of the result, once.

A division takes as long as all else of such a step.  (sa · (a - za) + sb · (b - zb)) / s is a sum with the scales
sa / s and sb / s, also behind bounds (Relu, Clip), which are divided likewise: what lies nearest to the middle of two
bytes may become the other one.
"""

from __future__ import annotations

import numpy as np

from irc.ir.graph import Graph, Node, Value
from irc.ir.types import TensorType, f32, i8, u8
from irc.opdef.builder import Builder
from irc.ops.activation import Relu
from irc.ops.arithmetic import Add, Sub
from irc.ops.clip import Clip
from irc.ops.quantize import DequantizeLinear, QuantizeLinear
from irc.ops.variadic import Max, Min
from irc.passes.replace import replace_value

STEPS = Add | Sub | Max | Min | Relu | Clip
"""Operations of which it is the same whether operands or results are divided by a positive number."""
LONGEST = 32
"""Such operations between bytes and bytes, at most."""
BYTES = (u8, i8)


def run(graph: Graph) -> int:
    """Rewrite such sums, in place.  Returns how many."""
    done = 0
    for node in graph.nodes:
        if isinstance(node.op, QuantizeLinear) and node.outputs[0].dtype in BYTES:
            done += _rewritten(graph, node)
    if done:
        graph.prune()
    return done


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
