"""Convolutions without the taps that see nothing but padding.

With a padding and a dilation as long as the input, as stacks of dilated convolutions have on short inputs, most taps
of a window multiply zeros at every place of the result.  The first and the last taps of an axis that do are cut off the
weights, and the padding with them; where no tap is left, the result is the bias.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from irc.ir.graph import Graph, Node, Value
from irc.opdef.builder import Builder
from irc.opdef.window import spatial, window_padding
from irc.ops.conv import Conv
from irc.passes.replace import replace_value


@dataclass(frozen=True)
class _Axis:
    """One spatial axis: its sizes, and the taps from `first` to before `end` that see the input."""

    size: int
    out: int
    stride: int
    dilation: int
    before: int
    after: int
    first: int
    end: int
    taps: int

    @classmethod
    def of(cls, size: int, out: int, stride: int, dilation: int, before: int, after: int, taps: int) -> _Axis:
        def sees(tap: int) -> bool:
            """Tell whether any output has this tap inside the input."""
            at = tap * dilation - before  # of the first output
            skipped = max(0, -(at // stride))
            return skipped < out and at + skipped * stride < size

        seen = [tap for tap in range(taps) if sees(tap)]
        first, end = (seen[0], seen[-1] + 1) if seen else (0, 0)
        return cls(size, out, stride, dilation, before, after, first, end, taps)

    @property
    def cut_before(self) -> int:
        """Padding above what is left; below zero where inputs in front are not read."""
        return self.before - self.first * self.dilation

    @property
    def cut_after(self) -> int:
        return self.after - (self.taps - self.end) * self.dilation


def run(graph: Graph) -> int:
    """Rewrite convolutions of known sizes with constant weights. Returns how many."""
    done = 0
    for node in graph.nodes:
        if isinstance(node.op, Conv):
            made = _rewritten(graph, node, node.op)
            if made is not None and made.type == node.outputs[0].type:
                done += replace_value(graph, node.outputs[0], made)
    graph.prune()
    return done


def _rewritten(graph: Graph, node: Node, op: Conv) -> Value | None:
    x, w, *rest = node.inputs
    assert x is not None and w is not None
    out = node.outputs[0]
    if w.const is None or not all(d.is_const for d in (*x.shape[2:], *out.shape[2:])):
        return None
    axes = _axes(op, x, w, out)
    if axes is None or all(a.first == 0 and a.end == a.taps for a in axes):
        return None
    b = Builder(graph, node.name or node.op.name, node.loc)
    bias = rest[0] if rest else None
    if any(a.end == 0 for a in axes):
        zero = np.zeros((), x.dtype.numpy)
        value = b.Unsqueeze(bias, list(range(1, len(axes) + 1))) if bias is not None else zero
        return b.Expand(value, b.dims(out.shape))
    return b.Conv(
        _read(b, x, axes),
        _weights(graph, w, axes),
        bias,
        strides=tuple(a.stride for a in axes),
        dilations=tuple(a.dilation if a.end - a.first > 1 else 1 for a in axes),
        pads_begin=tuple(max(a.cut_before, 0) for a in axes),
        pads_end=tuple(max(a.cut_after, 0) for a in axes),
        group=op.group,
    )


def _axes(op: Conv, x: Value, w: Value, out: Value) -> list[_Axis] | None:
    """State the spatial axes of a Conv; None if a padding is unknown or the result is empty."""
    rank, window = len(x.shape) - 2, [int(d) for d in w.shape[2:]]
    begin, end = window_padding(op, x.shape[2:], window)
    if not all(p.is_const for p in (*begin, *end)) or not all(int(d) > 0 for d in out.shape[2:]):
        return None
    strides = spatial("Conv", "strides", op.strides, rank, 1)
    dilations = spatial("Conv", "dilations", op.dilations, rank, 1)
    sizes = zip(x.shape[2:], out.shape[2:], strides, dilations, begin, end, window, strict=True)
    return [_Axis.of(int(n), int(o), s, d, int(p), int(q), k) for n, o, s, d, p, q, k in sizes]


def _read(b: Builder, x: Value, axes: Sequence[_Axis]) -> Value:
    """Slice the part of the input that the taps that are left see."""
    if all(a.cut_before >= 0 and a.cut_after >= 0 for a in axes):
        return x
    begins = [max(-a.cut_before, 0) for a in axes]
    ends = [a.size - max(-a.cut_after, 0) for a in axes]
    return b.Slice(x, b.dims(begins), b.dims(ends), b.dims(range(2, len(axes) + 2)))


def _weights(graph: Graph, w: Value, axes: Sequence[_Axis]) -> Value:
    """Cut taps off the weights [out, in, …]."""
    source = w.const
    assert source is not None
    kept = (slice(None), slice(None), *(slice(a.first, a.end) for a in axes))
    shape = (*source.shape[:2], *(a.end - a.first for a in axes))
    return graph.add_constant(source.derived(shape, lambda full: full[kept]), f"{w.name}/seen")
