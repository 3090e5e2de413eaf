"""Products of dequantized matrices as products of their integers, whose sums are exact.

(sa · (A - za)) · (sb · (B - zb)) is sa · sb times a product in i32, where A has one scale, and B one or one for each
column.  The integers of the constant B fit into a signed byte when its zero point is taken from them.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from irc.ir.graph import Graph, Node, Value
from irc.ir.types import f32, i8, i32, u8
from irc.kernels.core.isa import Isa
from irc.kernels.integer.problem import SETS
from irc.opdef.builder import Builder
from irc.opdef.conversions import as_type
from irc.ops.matmul import Gemm, MatMul
from irc.ops.quantize import DequantizeLinear
from irc.passes.replace import replace_value
from irc.selection.selector import worthwhile

LONGEST = 1 << 15
"""Products of two differences of bytes whose sum fits into 32 bits."""


@dataclass(frozen=True)
class _Quantized:
    """The operands of a DequantizeLinear of bytes; the scale is one, or one for each column of a matrix."""

    x: Value
    scale: Value
    zero: Value | None

    @property
    def one_scale(self) -> bool:
        return all(d == 1 for d in self.scale.shape)


def run(graph: Graph, isa: Isa) -> int:
    """Rewrite such products, in place, for an instruction set with a kernel for them.  Returns how many."""
    if isa.name not in SETS:
        return 0
    done = 0
    for node in graph.nodes:
        if isinstance(node.op, MatMul | Gemm) and node.outputs[0].dtype == f32:
            done += _rewritten(graph, node, node.op)
    graph.prune()
    return done


def _rewritten(graph: Graph, node: Node, op: MatMul | Gemm) -> bool:
    left, right, *rest = node.inputs
    assert left is not None and right is not None
    if isinstance(op, Gemm):
        flipped, turned = bool(op.transA), bool(op.transB)
        plain = op.alpha == 1 and op.beta == 1
    else:
        flipped, turned, plain = op.transpose_a, op.transpose_b, True
    a, b = _quantized(left), _quantized(right, turned)
    if not plain or a is None or b is None or not a.one_scale:
        return False
    operands = a.x.const is None and b.x.const is None
    if not (_has_kernel(a.x, b.x, flipped, turned) if operands else not flipped and _is_bytes(b, turned)):
        return False
    if turned and b.x.const is not None:
        k = b.x.const
        b = replace(b, x=graph.add_constant(k.derived(k.shape[::-1], lambda x: x.T), b.x.name))
    build, out = Builder(graph, node.name or op.name, node.loc), node.outputs[0]
    product = build.add(
        MatMul(transpose_a=flipped, transpose_b=turned and operands), _difference(build, a), _difference(build, b)
    )
    scale = build.Mul(*(build.Reshape(s, [-1]) if len(s.shape) > 1 else s for s in (a.scale, b.scale)))
    made = build.Mul(build.Cast(product, to=f32), scale)
    if rest and rest[0] is not None:
        made = build.Add(made, rest[0])
    return made.type == out.type and bool(replace_value(graph, out, made))


def _quantized(v: Value, turned: bool = False) -> _Quantized | None:
    """Find the bytes that a value of two axes or more is made of, with one scale or one for each column.

    turned: whether its first axis is that of the columns.
    """
    node = v.producer
    if node is None or not isinstance(node.op, DequantizeLinear):
        return None
    x, scale, zero = (*node.inputs, None)[:3]
    if x is None or scale is None or x.dtype not in (i8, u8) or scale.dtype != f32 or len(x.shape) < 2:
        return None
    rank = len(x.shape)
    axis = 0 if turned else rank - 1
    columns = len(scale.shape) == 1 and node.op.axis % rank == axis and scale.shape[0] == x.shape[axis]
    found = _Quantized(x, scale, zero)
    return found if found.one_scale or columns else None


def _is_bytes(b: _Quantized, turned: bool) -> bool:
    """Tell whether a constant matrix fits into signed bytes without its zero point, and has few enough rows."""
    array, zero = b.x.array, None if b.zero is None else b.zero.array
    if array is None or array.ndim != 2 or (zero is None and b.zero is not None):
        return False
    array = array.T if turned else array
    if not 0 < array.shape[0] <= LONGEST:
        return False
    kept = array.astype(np.int32) - (0 if zero is None else zero.astype(np.int32))
    return bool(kept.min(initial=0) >= -128 and kept.max(initial=0) <= 127)


def _has_kernel(a: Value, b: Value, flipped: bool, turned: bool) -> bool:
    """Tell whether a kernel takes two matrices, or batches of them along up to two axes, and their sums fit."""
    rows, k = a.shape[-2:][:: -1 if flipped else 1]
    columns = b.shape[-2 if turned else -1]
    whole = a.shape[:-2] == b.shape[:-2] and len(a.shape) <= 4
    return (
        whole and k.is_const and 0 < int(k) <= LONGEST and rows != 1 and columns != 1 and worthwhile(rows, columns, k)
    )


def _difference(b: Builder, q: _Quantized) -> Value:
    x = as_type(b, q.x, i32)
    return x if q.zero is None else b.Sub(x, as_type(b, q.zero, i32))
