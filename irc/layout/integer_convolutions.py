"""Convolutions of dequantized tensors as convolutions of their integers, whose sums are exact.

(sx · (x - zx)) * (sw · (w - zw)) is sx · sw times a convolution in i32, where x has one scale, and w one or one for
each output.  The integers of the constant w fit into a signed byte when its zero point is taken from them.  A bias
that is dequantized from i32 with sx · sw is added to the sums; others are added in f32.  Where nothing but a
QuantizeLinear reads the result, perhaps behind a Relu, the sums are multiplied once, by sx · sw / sy.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from irc.ir.graph import Graph, Node, Value
from irc.ir.types import TensorType, f32, i8, i32, u8
from irc.kernels.core.isa import Isa
from irc.kernels.integer.problem import SETS
from irc.opdef.base import Array
from irc.opdef.builder import Builder
from irc.opdef.conversions import as_type
from irc.ops.activation import Relu
from irc.ops.conv import Conv
from irc.ops.quantize import DequantizeLinear, QuantizeLinear
from irc.passes.replace import replace_value

LONGEST = 1 << 15
"""Products of two differences of bytes whose sum fits into 32 bits."""
NEAR = 1e-4
"""Relative difference of a bias' scale from the product of the others, up to which it is that of the sums."""


@dataclass(frozen=True)
class _Quantized:
    """The operands of a DequantizeLinear."""

    x: Value
    scale: Array
    zero: Value | None


def run(graph: Graph, isa: Isa) -> int:
    """Rewrite such convolutions, in place, for an instruction set with a kernel for them.  Returns how many."""
    if isa.name not in SETS:
        return 0
    done = 0
    for node in graph.nodes:
        if isinstance(node.op, Conv) and node.outputs[0].dtype == f32:
            done += _rewritten(graph, node)
    graph.prune()
    return done


def _rewritten(graph: Graph, node: Node) -> bool:
    given, weights, *rest = node.inputs
    bias = rest[0] if rest else None
    assert given is not None and weights is not None
    x, w = _quantized(given), _quantized(weights)
    if x is None or w is None or x.scale.size != 1 or x.x.dtype not in (u8, i8) or len(x.x.shape) not in (3, 4):
        return False
    integers = _integers(w, weights)
    if integers is None:
        return False
    build, out = Builder(graph, node.name or node.op.name, node.loc), node.outputs[0]
    outputs, rank = integers.shape[0], integers.ndim
    of_sums = (x.scale.reshape(-1) * w.scale.reshape(-1)).astype(np.float32)
    exact = None if bias is None else _of_sums(bias, of_sums, outputs)
    sums = build.add(node.op, _difference(build, x), graph.add_constant(integers, weights.name), exact)
    last = _quantizer(graph, out) if bias is None or exact is not None else None
    factor = of_sums if last is None else of_sums / last.scale
    wide = build.Cast(sums, to=f32)
    made = build.Mul(wide, build.const(factor.reshape(-1, *(1,) * (rank - 2)).astype(np.float32), f32))
    if last is None:
        if bias is not None and exact is None:
            made = build.Add(made, build.Reshape(bias, [outputs, *(1,) * (rank - 2)]))
        return made.type == out.type and bool(replace_value(graph, out, made))
    if last.relu:
        made = build.Relu(made)
    one = build.const(np.float32(1.0), f32)
    operands = [made, one] if last.zero is None else [made, one, last.zero]
    quantized = build.add(last.op, *operands)
    return quantized.type == last.result.type and bool(replace_value(graph, last.result, quantized))


@dataclass(frozen=True)
class _Quantizer:
    """What alone reads a result: QuantizeLinear to bytes with one scale, perhaps behind a Relu."""

    op: QuantizeLinear
    scale: Array
    zero: Value | None
    result: Value
    relu: bool


def _quantized(v: Value) -> _Quantized | None:
    """Find the integers that a value is made of, with constant scales: one, or one for each output."""
    node = v.producer
    if node is None or not isinstance(node.op, DequantizeLinear) or node.outputs[0].dtype != f32:
        return None
    x, scale, zero = (*node.inputs, None)[:3]
    if x is None or scale is None or not isinstance(x.type, TensorType) or scale.dtype != f32:
        return None
    scales = scale.array
    if scales is None or node.op.block_size or (scales.size != 1 and (scales.ndim != 1 or node.op.axis != 0)):
        return None
    return _Quantized(x, scales, zero)


def _integers(w: _Quantized, weights: Value) -> Array | None:
    """Compute constant weights less their zero points, if they fit into signed bytes."""
    array, zero = w.x.array, None if w.zero is None else w.zero.array
    if array is None or w.x.dtype not in (u8, i8) or array.ndim != len(weights.shape) or (w.zero and zero is None):
        return None
    kept = array.astype(np.int32)
    if zero is not None:
        kept = kept - zero.astype(np.int32).reshape(-1, *(1,) * (array.ndim - 1))
    fits = kept.size and kept.min() >= -128 and kept.max() <= 127 and kept[0].size <= LONGEST
    return kept if fits else None


def _of_sums(bias: Value, scales: Array, outputs: int) -> Value | None:
    """Find the i32 that a bias was dequantized from, if its scale is that of the sums."""
    found = _quantized(bias)
    if found is None or found.x.dtype != i32 or found.x.array is None:
        return None
    zero = None if found.zero is None else found.zero.array
    if found.zero is not None and (zero is None or zero.any()):
        return None
    near = np.allclose(np.broadcast_to(found.scale, outputs), np.broadcast_to(scales, outputs), rtol=NEAR, atol=0)
    return found.x if near else None


def _quantizer(graph: Graph, v: Value) -> _Quantizer | None:
    relu = False
    while not graph.keeps(v) and len(v.uses) == 1:
        user = next(iter(v.uses))
        if isinstance(user.op, Relu) and not relu:
            relu, v = True, user.outputs[0]
            continue
        if not isinstance(user.op, QuantizeLinear) or user.outputs[0].dtype not in (u8, i8):
            return None
        _, scale, zero = (*user.inputs, None)[:3]
        scales = None if scale is None else scale.array
        if scales is None or scales.size != 1 or scales.dtype != np.float32 or float(scales.reshape(-1)[0]) <= 0:
            return None
        return _Quantizer(user.op, scales.reshape(-1), zero, user.outputs[0], relu)
    return None


def _difference(b: Builder, q: _Quantized) -> Value:
    x = as_type(b, q.x, i32)
    return x if q.zero is None else b.Sub(x, as_type(b, q.zero, i32))
