"""ConvTranspose as Conv: results of one remainder by the stride are a convolution of their own.

With stride s and kernel k, result o = s·q + r − pad is Σ x[q − t] · w[s·t + r] over t < ceil(k / s).  So one Conv of
stride 1 computes all remainders as channels, and a rearrangement puts them beside each other.  Elementwise operations
that follow go before the rearrangement: they become the convolution's, and work on whole vectors.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from irc.expr import Const, Expr, IndexFunction, Tensor
from irc.ir.graph import Constant, Graph, Node, Value
from irc.ir.types import TensorType, f32, f64, i64
from irc.ops.base import Array, Op
from irc.ops.builder import Builder
from irc.ops.signature import Sig
from irc.ops.window import spatial
from irc.passes.replace import replace_value


@dataclass(frozen=True)
class Interleave(Op):
    """[n, group · Πs · c, *q] as [n, group · c, *(q · s)]: channel (g, r, c) at q is channel (g, c) at s · q + r."""

    strides: tuple[int, ...]
    group: int
    sig: ClassVar[Sig] = Sig("x: any -> y: any")

    def infer(self, x: Value) -> TensorType:
        n, channels, *space = x.shape
        whole = [q * s for q, s in zip(space, self.strides, strict=True)]
        return TensorType(x.dtype, (n, channels // math.prod(self.strides), *whole))

    def reference(self, x: Array) -> Array:
        n, channels, *space = x.shape
        rank = len(space)
        split = x.reshape(n, self.group, *self.strides, -1, *space)
        order = [0, 1, 2 + rank, *(k for axis in range(rank) for k in (3 + rank + axis, 2 + axis))]
        whole = [q * s for q, s in zip(space, self.strides, strict=True)]
        return split.transpose(order).reshape(n, channels // math.prod(self.strides), *whole)

    def compute(self, out: TensorType, x: Tensor) -> IndexFunction:  # pyright: ignore[reportIncompatibleVariableOverride]
        per = int(out.dims()[1]) // self.group

        def element(n: Expr, channel: Expr, *o: Expr) -> Expr:
            remainder: Expr = Const(0, i64)
            for i, s in zip(o, self.strides, strict=True):
                remainder = remainder * s + i % s
            if self.group == 1:
                source = remainder * per + channel
            else:
                source = (channel // per * math.prod(self.strides) + remainder) * per + channel % per
            return x[(n, source, *(i // s for i, s in zip(o, self.strides, strict=True)))]

        return element


def run(graph: Graph) -> int:
    """Rewrite those with constant weights, explicit padding and no dilation, in place; how many."""
    done = 0
    for node in graph.nodes:
        if node.op.name == "ConvTranspose":
            after = _followers(graph, node.outputs[0])
            last = (after or [node])[-1].outputs[0]
            made = _rewritten(graph, node, after)
            if made is not None and made.type == last.type:
                done += replace_value(graph, last, made)
    graph.prune()
    return done


def _followers(graph: Graph, value: Value) -> list[Node]:
    """The elementwise operations that follow one after the other and are the same for all elements."""
    found: list[Node] = []
    while len(value.uses) == 1 and value not in graph.outputs:
        (node,) = value.uses
        others = [v for v in node.operands if v is not value]
        if not node.op.elementwise or len(node.outputs) != 1 or node.outputs[0].type != value.type:
            break
        if any(v.const is None or any(d != 1 for d in v.shape) for v in others):
            break
        found.append(node)
        value = node.outputs[0]
    return found


def _rewritten(graph: Graph, node: Node, after: list[Node]) -> Value | None:
    """What the node and those `after` it compute."""
    op: Any = node.op
    x, w, *rest = node.inputs
    assert x is not None and w is not None
    rank = len(x.shape) - 2
    dilations = spatial("ConvTranspose", "dilations", op.dilations, rank, 1)
    if w.const is None or x.dtype not in (f32, f64) or op.auto_pad != "explicit" or set(dilations) != {1}:
        return None
    if op.output_shape or len(rest) > 1 or not x.shape[1].is_const:
        return None
    strides = spatial("ConvTranspose", "strides", op.strides, rank, 1)
    begin = spatial("ConvTranspose", "pads_begin", op.pads_begin, rank, 0)
    taps = [-(-int(k) // s) for k, s in zip(w.shape[2:], strides, strict=True)]
    out = node.outputs[0].shape
    ready = [(n + t - 1) * s for n, t, s in zip(x.shape[2:], taps, strides, strict=True)]
    if any(p < 0 or (o + p).at_most(r) is not True for p, o, r in zip(begin, out[2:], ready, strict=True)):
        return None
    b = Builder(graph, node.name or node.op.name, node.loc)
    around = tuple(t - 1 for t in taps)
    weights, times = _weights(graph, w, op.group, strides, taps), int(np.prod(strides))
    bias = rest[0] if rest else None
    if bias is not None and bias.const is not None:
        bias = b.const(_spread(bias.const.array, op.group, times), bias.dtype)
    elif bias is not None:
        return None
    y = b.Conv(x, weights, bias, pads_begin=around, pads_end=around, group=op.group)
    before = node.outputs[0]
    for follower in after:
        y = b.add(follower.op, *(y if v is before else v for v in follower.inputs))
        before = follower.outputs[0]
    if times > 1:
        y = b.add(Interleave(strides, op.group), y)
    for axis, (p, o, r) in enumerate(zip(begin, out[2:], ready, strict=True), 2):
        if p or o != r:
            y = b.Slice(y, b.dims([p]), b.dims([o + p]), b.dims([axis]))
    return y


def _spread(bias: np.ndarray[Any, Any], group: int, times: int) -> np.ndarray[Any, Any]:
    """A bias for every remainder of every channel."""
    return np.repeat(bias.reshape(group, 1, -1), times, 1).reshape(-1)


def _weights(graph: Graph, w: Value, group: int, strides: tuple[int, ...], taps: list[int]) -> Value:
    """[in, out / group, *k] as those of the Conv: [group · Πs · out / group, in / group, *taps]."""
    source = w.const
    assert source is not None
    inputs, per, *kernel = (int(d) for d in w.shape)
    rank = len(kernel)
    shape = (group * per * int(np.prod(strides)), inputs // group, *taps)

    def made() -> np.ndarray[Any, Any]:
        full = np.zeros((inputs, per, *(t * s for t, s in zip(taps, strides, strict=True))), w.dtype.numpy)
        full[(slice(None), slice(None), *(slice(0, k) for k in kernel))] = source.array
        split = full.reshape(
            group, inputs // group, per, *(d for t, s in zip(taps, strides, strict=True) for d in (t, s))
        )
        at_taps, at_rest = [3 + 2 * k for k in range(rank)], [4 + 2 * k for k in range(rank)]
        moved = split.transpose(0, *at_rest, 2, 1, *at_taps)
        return np.ascontiguousarray(np.flip(moved, tuple(range(-rank, 0))).reshape(shape))

    return graph.add_constant(Constant(w.dtype, shape, made), f"{w.name}/transposed")
