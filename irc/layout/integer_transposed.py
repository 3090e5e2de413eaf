"""Transposed convolutions of dequantized bytes as convolutions, which then become those of their integers.

Kernels of bytes compute convolutions only.  The rearrangement of `irc.layout.transposed_conv` is that of bytes where
nothing but a QuantizeLinear reads the result, perhaps behind a bias and activations.
"""

from __future__ import annotations

import numpy as np

from irc.ir.graph import Constant, Graph, Node, Value
from irc.ir.types import f32, i8
from irc.kernels.core.isa import Isa
from irc.kernels.integer.problem import SETS
from irc.layout.integer_convolutions import integers_of, quantized
from irc.layout.integer_operands import dequantized, is_one
from irc.layout.transposed_conv import Weights, followers, rewritten
from irc.opdef.builder import Builder
from irc.opdef.reference import run_reference
from irc.ops.conv import ConvTranspose
from irc.ops.quantize import DequantizeLinear, QuantizeLinear
from irc.passes.idioms.products import bias_of_convolution
from irc.passes.replace import replace_value


def run(graph: Graph, isa: Isa) -> int:
    """Rewrite those of one group with constant weights, in place, for sets with kernels of bytes. Returns how many."""
    if isa.name not in SETS:
        return 0
    done = 0
    for node in graph.nodes:
        if isinstance(node.op, ConvTranspose) and node.outputs[0].dtype == f32:
            done += _rewritten(graph, node, node.op)
    graph.prune()
    return done


def _rewritten(graph: Graph, node: Node, op: ConvTranspose) -> bool:
    x, w, *_ = node.inputs
    weights = None if w is None or op.group != 1 else _weights(w)
    if x is None or weights is None or dequantized(x) is None or len(x.shape) not in (3, 4):
        return False
    node = _with_bias(graph, node)
    after = followers(graph, node.outputs[0])
    last = (after or [node])[-1].outputs[0]
    user = graph.only_use(last)
    if user is not None and isinstance(user.op, QuantizeLinear) and all(map(is_one, [*user.operands][1:])):
        after.append(user)
        last = user.outputs[0]
    made = rewritten(graph, node, after, weights)
    return made is not None and made.type == last.type and bool(replace_value(graph, last, made))


def _weights(w: Value) -> Weights | None:
    """Find the signed bytes that constant weights were dequantized from, with one scale or one for each output."""
    found = quantized(w)
    integers = None if found is None else integers_of(found, w)
    if found is None or integers is None or (found.scale.size > 1 and found.axis != 1):
        return None
    return Weights(w.name, Constant.of(integers.astype(np.int8), i8), found.scale)


def _with_bias(graph: Graph, node: Node) -> Node:
    """Take in a constant for each output that alone is added to the results, and compute the bias of constants."""
    out = node.outputs[0]
    user = graph.only_use(out)
    if len(node.inputs) == 2 and user is not None:
        made = bias_of_convolution(graph, user) if user.op.name == "Add" else None
        if made is not None and made.producer is not None and replace_value(graph, user.outputs[0], made):
            node = made.producer
    bias = node.inputs[2] if len(node.inputs) > 2 else None
    source = None if bias is None else bias.producer
    if source is not None and isinstance(source.op, DequantizeLinear) and all(v.const for v in source.operands):
        arrays = [None if v is None else v.array for v in source.inputs]
        values = Builder(graph, source.name).const(run_reference(source, arrays)[0], f32)
        graph.set_op(node, node.op, [*node.inputs[:2], values])
    return node
