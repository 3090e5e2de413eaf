"""Derivatives of operations that slide windows: convolutions and averages.

The derivative of a convolution by its operand is a transposed one; that by its weights is a convolution in which
batch and channels change places, as do strides and dilations.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from irc.ir.dim import Dim, product
from irc.ir.graph import Value
from irc.opdef.base import Op
from irc.opdef.builder import Builder
from irc.opdef.gradients import Gradients, Step, known_sizes, restated, rule, shaped_like
from irc.opdef.window import Windowed, spatial, window_padding
from irc.ops.col2im import Col2Im
from irc.ops.conv import Conv, ConvTranspose
from irc.ops.layout import constant_ints, normal_axes, reshaped
from irc.ops.lp_norm import LRN
from irc.ops.pool import AveragePool
from irc.ops.pool_rewrites import effective_rounding

Padding = tuple[list[int], list[int]]
"""Before and after each spatial axis."""


def known_padding(s: Step, op: Windowed, sizes: Sequence[Dim], kernel: Sequence[Dim | int]) -> Padding:
    """The padding in numbers."""
    before, after = map(known_sizes, window_padding(op, sizes, kernel))
    if before is None or after is None:
        raise s.problem()
    return before, after


def unslid(
    b: Builder, g: Value, w: Value, op: Windowed, before: Sequence[int], group: int, sizes: Sequence[Dim]
) -> Value:
    """Transpose a convolution: g [n, o, …] by its weights, for an operand of these spatial sizes."""
    rank = len(sizes)
    strides, gaps = (spatial(op.name, name, getattr(op, name), rank, 1) for name in ("strides", "dilations"))
    reach = [(n - 1) * s + (k - 1) * d + 1 for n, s, k, d in zip(g.shape[2:], strides, w.shape[2:], gaps, strict=True)]
    more = known_sizes(n + p - r for n, p, r in zip(sizes, before, reach, strict=True))
    exact = more is not None
    more = more if more is not None else [s - 1 for s in strides]
    y = b.ConvTranspose(
        g,
        w,
        strides=strides,
        dilations=gaps,
        group=group,
        pads_begin=tuple(before),
        pads_end=tuple(max(-m, 0) for m in more),
        output_padding=tuple(max(m, 0) for m in more),
    )
    axes = list(range(2, 2 + rank))
    return y if exact else b.Slice(y, b.const([0] * rank), b.dims(sizes), b.const(axes))


def of_weights(b: Builder, x: Value, g: Value, w: Value, op: Windowed, padding: Padding, group: int) -> Value:
    """The gradient of weights [o, i / group, …] with which x [n, i, …] became g's operand [n, o, …]."""
    rank = len(w.shape) - 2
    strides, gaps = (spatial(op.name, name, getattr(op, name), rank, 1) for name in ("strides", "dilations"))
    batch, inner, outer = x.shape[0], w.shape[1], w.shape[0]

    def by_group(v: Value, channels: Dim, front: bool) -> Value:
        """[n, group · c, …] as [c, group · n, …], or as [group · c, n, …]."""
        swapped = [1, 0, *range(2, 2 + rank)]
        if group == 1 or front:
            return b.Transpose(v, swapped)
        apart = reshaped(b, v, [batch, group, channels, *v.shape[2:]])
        return reshaped(b, b.Transpose(apart, [2, 1, 0, *range(3, 3 + rank)]), [channels, batch * group, *v.shape[2:]])

    y = b.Conv(
        by_group(x, inner, False),
        by_group(g, outer // group, True),
        strides=gaps,
        dilations=strides,
        pads_begin=tuple(padding[0]),
        pads_end=tuple(padding[1]),
        group=group,
    )
    if y.shape[2:] != w.shape[2:]:  # what a stride leaves out at the end
        y = b.Slice(y, b.const([0] * rank), b.dims(w.shape[2:]), b.const(list(range(2, 2 + rank))))
    return b.Transpose(y, [1, 0, *range(2, 2 + rank)])


def of_bias(b: Builder, s: Step) -> Value | None:
    if len(s.wanted) < 3 or not s.wanted[2]:
        return None
    return b.ReduceSum(s.g, [0, *range(2, len(s.g.shape))], keepdims=False)


@rule("Conv")
def conv(b: Builder, s: Step) -> Gradients:
    assert isinstance(s.op, Conv)
    op, x, w = s.op, s.x, s.operand(1)
    padding = known_padding(s, op, x.shape[2:], w.shape[2:])
    by_x = unslid(b, s.g, w, op, padding[0], op.group, x.shape[2:]) if s.wanted[0] else None
    by_w = of_weights(b, x, s.g, w, op, padding, op.group) if s.wanted[1] else None
    return by_x, by_w, of_bias(b, s)


@rule("ConvTranspose")
def conv_transpose(b: Builder, s: Step) -> Gradients:
    """The same with operand and result in each other's place."""
    assert isinstance(s.op, ConvTranspose)
    op, x, w = s.op, s.x, s.operand(1)
    rank = len(x.shape) - 2
    before = known_sizes(op.padding(x.shape[2:], w.shape[2:])[0])
    if before is None:
        raise s.problem()
    strides, gaps = (spatial(op.name, name, getattr(op, name), rank, 1) for name in ("strides", "dilations"))
    reach = [(n - 1) * t + (k - 1) * d + 1 for n, t, k, d in zip(x.shape[2:], strides, w.shape[2:], gaps, strict=True)]
    after = known_sizes(r - p - n for r, p, n in zip(reach, before, s.g.shape[2:], strict=True))
    if after is None:
        raise s.problem()
    by_x = None
    if s.wanted[0]:
        fields = {"strides": strides, "dilations": gaps, "group": op.group}
        by_x = b.Conv(s.g, w, pads_begin=tuple(before), pads_end=tuple(after), **fields)
    by_w = of_weights(b, s.g, x, w, op, (before, after), op.group) if s.wanted[1] else None
    return by_x, by_w, of_bias(b, s)


@rule("AveragePool")
def average_pool(b: Builder, s: Step) -> Gradients:
    """Each element of a window gets an equal part."""
    assert isinstance(s.op, AveragePool)
    op, x, g = s.op, s.x, s.g
    sizes = x.shape[2:]
    before, _ = known_padding(s, op, sizes, op.kernel)
    number = averaged(b, op, x, s.y)
    share = reshaped(b, b.Div(g, number), [g.shape[0] * g.shape[1], 1, *g.shape[2:]])
    ones = b.const(np.ones((1, 1, *op.kernel)), x.dtype)
    return shaped_like(b, unslid(b, share, ones, op, before, 1, sizes), x)


def averaged(b: Builder, op: AveragePool, x: Value, y: Value) -> Value:
    """How many elements each window is divided by."""
    window = b.like(math.prod(op.kernel), x)
    if op.counted == "window" or (op.counted == "padded" and effective_rounding(op) == "floor"):
        return window
    ones = b.Expand(b.like(1, x), b.dims([1, 1, *x.shape[2:]]))
    held = b.Mul(b.add(replace(op, counted="window"), ones), window)
    return held if op.counted == "inside" else b.Div(held, b.add(op, ones))


@rule("Col2Im")
def col2im(b: Builder, s: Step) -> Gradients:
    """The blocks of the gradient, as columns: a convolution with a window for each of their elements."""
    assert isinstance(s.op, Col2Im)
    kernel = s.operand(2).ints()
    if kernel is None:
        raise s.problem()
    strides, dilations, begin, end = (tuple(v) for v in zip(*s.op.window(len(kernel)), strict=True))
    elements = math.prod(kernel)
    each = b.const(np.eye(elements).reshape(elements, 1, *kernel), s.g.dtype)
    planes = reshaped(b, s.g, [s.g.shape[0] * s.g.shape[1], 1, *s.g.shape[2:]])
    fields = {"strides": strides, "dilations": dilations, "pads_begin": begin, "pads_end": end}
    return shaped_like(b, b.Conv(planes, each, **fields), s.x)


def say_lrn(b: Builder, op: Op, x: Value, axes: Value | None = None) -> Value:
    """LRN by means of windows along each axis, one after the other."""
    assert isinstance(op, LRN)
    mean, begin, end = b.Mul(x, x), ((op.size - 1) // 2, 0), (op.size // 2, 0)
    for axis in [1] if axes is None else normal_axes("LRN", constant_ints("LRN", "axes", axes), len(x.shape)):
        planes = [product(x.shape[:axis]), 1, x.shape[axis], product(x.shape[axis + 1 :])]
        sums = reshaped(b, mean, planes)
        mean = b.AveragePool(sums, kernel=(op.size, 1), pads_begin=begin, pads_end=end, counted="padded")
        mean = shaped_like(b, mean, x)
    base = b.Add(b.Mul(mean, b.like(op.alpha, x)), b.like(op.bias, x))
    return b.Div(x, b.Pow(base, b.like(op.beta, x)))


restated("LRN", say_lrn)
