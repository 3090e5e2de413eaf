"""Pools that kernels do not know, as pools of planes of f32: volumes, halves and bytes.

The largest element of a box is the largest of those of its planes, and so is the mean, also where it counts the
positions inside: their number is a product.  A pool of a volume is one over its planes, then one over what follows
along the first axis.  Narrower elements have no kernel; widening them costs little beside loops over guarded windows.
"""

from __future__ import annotations

from dataclasses import replace
from math import prod

from irc.ir.dim import Dim, product
from irc.ir.graph import Graph, Node, Value
from irc.ir.types import TensorType, bf16, f16, f32, f64, i8, u8
from irc.kernels.core.costs import TAPS_OF_BYTES, WIDENED_FLOATS
from irc.opdef.builder import Builder
from irc.opdef.window import spatial, window_padding
from irc.ops.pool import AveragePool, MaxPool, effective_rounding
from irc.passes.replace import replace_value


def run(graph: Graph) -> int:
    """Rewrite pools whose indices nobody reads.  Returns how many."""
    done = 0
    for node in list(graph.nodes):
        only = not any(v.uses or graph.keeps(v) for v in node.outputs[1:])
        if isinstance(node.op, MaxPool | AveragePool) and only and isinstance(node.outputs[0].type, TensorType):
            done += _rewrite(graph, node, node.op)
    graph.prune()
    return done


def _rewrite(graph: Graph, node: Node, op: MaxPool | AveragePool) -> bool:
    x, y = node.inputs[0], node.outputs[0]
    assert x is not None
    begin, end = (tuple(map(Dim.of, p)) for p in window_padding(op, x.shape[2:], op.kernel))
    if not all(p.is_const and int(p) >= 0 for p in (*begin, *end)):
        return False
    rank = len(op.kernel)
    before, after = tuple(map(int, begin)), tuple(map(int, end))
    explicit = replace(
        op,
        strides=spatial(op.name, "strides", op.strides, rank, 1),
        dilations=spatial(op.name, "dilations", op.dilations, rank, 1),
        pads_begin=before,
        pads_end=after,
        rounding=effective_rounding(op),
        auto_pad="explicit",
    )
    narrow = x.dtype in (f16, bf16) or (x.dtype in (u8, i8) and isinstance(op, MaxPool) and _widened(explicit, x))
    if not (narrow or (rank == 3 and x.dtype in (f32, f64))):
        return False
    b = Builder(graph, node.name or op.name, node.loc, layers=node.layers)
    made = _pooled(b, explicit, b.Cast(x, to=f32) if narrow else x)
    made = b.Cast(made, to=y.dtype) if narrow else made
    made.type = y.type
    return replace_value(graph, y, made)


def _widened(op: MaxPool | AveragePool, x: Value) -> bool:
    """Tell whether a pool of bytes is faster as one of floats, and the same.

    No window may lie in the padding alone: there bytes have a lowest number, and floats none.
    """
    worth = product(x.shape).at_most(WIDENED_FLOATS) or prod(op.kernel) >= TAPS_OF_BYTES * prod(op.strides)
    pads = zip(op.pads_begin, op.pads_end, op.kernel, strict=True)
    return worth and op.rounding != "ceil" and set(op.dilations) <= {1} and all(max(p, q) < k for p, q, k in pads)


def _pooled(b: Builder, op: MaxPool | AveragePool, x: Value) -> Value:
    """Pool planes or rows by one operation, volumes by two."""
    if len(op.kernel) != 3:
        return _first(b, op, x)
    images, channels, depth, *plane = x.shape
    flat = b.Reshape(x, b.dims([images, channels * depth, *plane]), special_zero=False)
    y = _first(b, _part(op, slice(1, 3)), flat)
    _, _, *plane = y.shape
    if (op.kernel[0], op.strides[0], op.pads_begin[0], op.pads_end[0]) == (1, 1, 0, 0):
        return b.Reshape(y, b.dims([images, channels, depth, *plane]), special_zero=False)
    rows = b.Reshape(y, b.dims([images, channels, depth, plane[0] * plane[1]]), special_zero=False)
    y = _first(b, _part(op, slice(0, 1)), rows)
    return b.Reshape(y, b.dims([images, channels, y.shape[2], *plane]), special_zero=False)


def _first(b: Builder, op: MaxPool | AveragePool, x: Value) -> Value:
    return b.add_all(op, x)[0]


def _part(op: MaxPool | AveragePool, axes: slice) -> MaxPool | AveragePool:
    """Take the window along some axes; a single one is the rows of planes."""
    more = (axes.stop - axes.start) % 2  # columns that are windows themselves
    return replace(
        op,
        kernel=op.kernel[axes] + (1,) * more,
        strides=op.strides[axes] + (1,) * more,
        dilations=op.dilations[axes] + (1,) * more,
        pads_begin=op.pads_begin[axes] + (0,) * more,
        pads_end=op.pads_end[axes] + (0,) * more,
    )
