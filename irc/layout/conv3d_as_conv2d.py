"""Convolutions over volumes as convolutions over planes, for which there are kernels.

The taps along the depth become channels: plane d of the result is a convolution over planes of the planes
d · stride + t · dilation − pad, t < taps, side by side.  The planes of all volumes of a batch are the batch.
"""

from __future__ import annotations

from dataclasses import replace

from irc.ir.dim import Dim
from irc.ir.graph import Graph, Node, Value
from irc.opdef.builder import Builder
from irc.opdef.window import spatial, window_padding
from irc.ops.conv import Conv


def is_conv3d(node: Node) -> bool:
    """Tell whether a node is a Conv over volumes that `planes` takes; taps along the depth need one group."""
    op = node.op
    assert isinstance(op, Conv)
    x, w = node.inputs[0], node.inputs[1]
    if x is None or w is None or x.rank != 5 or w.const is None:
        return False
    begin, end = window_padding(op, x.shape[2:], w.shape[2:])
    return (op.group == 1 or w.shape[2] == 1) and all(d.is_const and int(d) >= 0 for d in (*begin, *end))


def planes(graph: Graph, node: Node, x: Value) -> tuple[Conv, Value, Value]:
    """Build the Conv over planes: its operation, its input, channels last, and its weights.

    x: [batch, depth, height, width, channels].
    """
    op = node.op
    assert isinstance(op, Conv)
    first, w = node.inputs[0], node.inputs[1]
    assert first is not None and w is not None
    begin, end = window_padding(op, first.shape[2:], w.shape[2:])
    strides = spatial("Conv", "strides", op.strides, 3, 1)
    dilations = spatial("Conv", "dilations", op.dilations, 3, 1)
    b = Builder(graph, node.name or node.op.name, node.loc)
    if begin[0] != 0 or end[0] != 0:
        x = b.Pad(x, b.dims([0, begin[0], 0, 0, 0, 0, end[0], 0, 0, 0]), b.like(0, x))
    taps, depth = int(w.shape[2]), node.outputs[0].shape[2]
    if taps > 1 or strides[0] > 1:
        reach = (depth - 1) * strides[0] + 1
        starts = [t * dilations[0] for t in range(taps)]
        parts = [b.Slice(x, b.dims([s]), b.dims([reach + s]), b.dims([1]), b.dims([strides[0]])) for s in starts]
        x = b.Concat(*parts, axis=4) if taps > 1 else parts[0]
    batch, _, height, width, channels = x.shape
    flat = b.Reshape(x, b.dims([batch * depth, height, width, channels]), special_zero=False)
    made = replace(
        op,
        strides=strides[1:],
        dilations=dilations[1:],
        auto_pad="explicit",
        pads_begin=tuple(map(int, begin[1:])),
        pads_end=tuple(map(int, end[1:])),
    )
    return made, flat, _weights(graph, w)


def _weights(graph: Graph, w: Value) -> Value:
    """Rearrange weights [out, in, depth, *k] for the Conv over planes: [out, depth · in, *k]."""
    source = w.const
    assert source is not None
    outputs, inputs, taps, *window = (int(Dim.of(d)) for d in w.shape)
    shape = (outputs, taps * inputs, *window)
    made = source.derived(shape, lambda x: x.swapaxes(1, 2))
    return graph.add_constant(made, f"{w.name}/planes")
