"""Convolutions of volumes with the channels last as convolutions of planes.

A plane of the result is the sum of as many planes of the input as the window has, each multiplied by weights of its
own: a convolution of one plane with as many times the channels.  So planes that a window meets are copied side by side,
as channels, and kernels for planes do the rest.  Winograd's algorithm takes a quarter of the products; the copy takes
as many elements as the input has, times the planes of the window.
"""

from __future__ import annotations

from dataclasses import replace

from irc.ir.graph import Constant, Graph, Node, Value
from irc.layout.channels_last_op import ChannelsLast
from irc.opdef.builder import Builder
from irc.opdef.window import spatial, window_padding
from irc.ops.conv import Conv

VOLUME = 5
"""The rank of a batch of volumes with their channels."""


def has_known_padding(node: Node) -> bool:
    """Tell whether the padding of a Conv is known."""
    op, (x, w, *_) = node.op, node.inputs
    assert isinstance(op, Conv) and x is not None and w is not None
    begin, end = window_padding(op, x.shape[2:], w.shape[2:])
    return all(p.is_const and int(p) >= 0 for p in (*begin, *end))


def convolved(graph: Graph, node: Node, x: Value) -> Value:
    """Compute a Conv of volumes from its input `x` with the channels last; so are those of the result."""
    op, (first, w, *rest) = node.op, node.inputs
    assert isinstance(op, Conv) and first is not None and w is not None and w.const is not None
    begin, end = (tuple(map(int, p)) for p in window_padding(op, first.shape[2:], w.shape[2:]))
    strides = spatial("Conv", "strides", op.strides, 3, 1)
    dilations = spatial("Conv", "dilations", op.dilations, 3, 1)
    planes = replace(
        op,
        strides=(1, *strides[1:]),
        dilations=(1, *dilations[1:]),
        pads_begin=(0, *begin[1:]),
        pads_end=(0, *end[1:]),
        auto_pad="explicit",
    )
    b = Builder(graph, node.name or op.name, node.loc)
    taps, depth = int(w.shape[2]), node.outputs[0].shape[2]
    if begin[0] or end[0]:
        x = b.Pad(x, b.dims([0, begin[0], 0, 0, 0, 0, end[0], 0, 0, 0]))
    seen: list[Value] = []
    for tap in range(taps):
        at = tap * dilations[0]
        last = (depth - 1) * strides[0] + at + 1
        seen.append(b.Slice(x, b.dims([at]), b.dims([last]), b.dims([1]), b.dims([strides[0]])))
    if taps > 1:
        x = _side_by_side(b, seen, op.group)
    else:
        (x,) = seen
    return b.add(
        ChannelsLast(planes, VOLUME, (0,)), x, graph.add_constant(_weights(w.const), f"{w.name}/planes"), *rest
    )


def _side_by_side(b: Builder, seen: list[Value], groups: int) -> Value:
    """Put the channels of several volumes side by side, group by group."""
    *space, channels = seen[0].shape
    if groups > 1:
        seen = [b.Reshape(v, b.dims([*space, groups, int(channels) // groups]), special_zero=False) for v in seen]
    x = b.Concat(*seen, axis=-1)
    return x if groups == 1 else b.Reshape(x, b.dims([*space, channels * len(seen)]), special_zero=False)


def _weights(w: Constant) -> Constant:
    """Put the planes of weights [out, in, planes, …] among their inputs: [out, planes · in, 1, …]."""
    outputs, inputs, planes, *window = w.shape
    shape = (outputs, planes * inputs, 1, *window)
    return w.derived(shape, lambda full: full.swapaxes(1, 2).reshape(shape))
