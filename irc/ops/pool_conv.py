"""Dilated pools for ONNX versions that lack them: convolutions with ones."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from irc.ir.dim import Dim
from irc.ir.graph import Value
from irc.opdef.builder import Builder
from irc.opdef.window import Windowed


def sums(
    b: Builder, op: Windowed, x: Value, kernel: Sequence[int], end: Sequence[int], begin: Sequence[int] | None = None
) -> Value:
    """The sum of every window of x [n, c, …], 0 in the padding before (the operation's own) and after."""
    sizes = b.Shape(x)
    planes = b.Concat(b.const([-1, 1]), b.Slice(sizes, [2], [len(x.shape)], [0]), axis=0)
    ones = b.const(np.ones((1, 1, *kernel)), x.dtype)
    y = b.Conv(
        b.Reshape(x, planes),
        ones,
        strides=op.strides,
        dilations=op.dilations,
        auto_pad=op.auto_pad,
        pads_begin=op.pads_begin if begin is None else tuple(begin),
        pads_end=tuple(end),
    )
    spatial = b.Slice(b.Shape(y), [2], [len(x.shape)], [0])
    return b.Reshape(y, b.Concat(b.Slice(sizes, [0], [2], [0]), spatial, axis=0))


def counts(b: Builder, op: Windowed, x: Value, kernel: Sequence[int], end: Sequence[int], padded: bool) -> Value:
    """How many elements of x (and of the operation's own padding) every window holds, as [1, 1, …]."""
    sizes = list(x.shape[2:])
    begin: Sequence[int] | None = None
    if padded and op.auto_pad == "explicit":
        rank = len(sizes)
        before, after = (tuple(p) or (0,) * rank for p in (op.pads_begin, op.pads_end))
        sizes = [Dim.of(n) + p + q for n, p, q in zip(sizes, before, after, strict=True)]
        begin, end = (0,) * rank, tuple(e - q for e, q in zip(tuple(end) or (0,) * rank, after, strict=True))
    return sums(b, op, b.Expand(b.like(1, x), b.dims([1, 1, *sizes])), kernel, end, begin)
