"""One convolution of parallel ones: of branches that read the same tensor and whose results are only added.

A sum of convolutions is the convolution by the sum of their weights, where one has every tap and every channel of the
others (Ding et al., RepVGG, 2021).  A window of 1 × 1 is a tap of a larger one, and a BatchNormalization of the input
itself is a tap of one channel.  Networks that are trained in branches and exported so (RepVGG, MobileOne, FastViT) need
one convolution for each block.  Weights are added in f64; results differ by roundings.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from irc.ir.graph import Graph, Node, Value
from irc.ir.types import f32, f64
from irc.opdef.base import Array
from irc.opdef.builder import Builder
from irc.opdef.window import spatial, window_padding
from irc.ops.arithmetic import Add
from irc.ops.conv import Conv
from irc.ops.norm import BatchNormalization
from irc.passes.recompose import alone, along_channels
from irc.passes.replace import put_in_place


@dataclass(frozen=True)
class Branch:
    """A convolution of `x` by constants, in f64.

    weights: [outputs, channels / groups, *window]; bias: [outputs].  offsets: for each spatial axis, places of the taps
    from the stride times the place of the result on.  op: the Conv, unless it is a BatchNormalization.
    """

    x: Value
    op: Conv | None
    weights: Array
    bias: Array
    groups: int
    strides: tuple[int, ...]
    offsets: tuple[tuple[int, ...], ...]

    def includes(self, other: Branch) -> bool:
        """Tell whether this has every tap and every product of the other, which adds to the same results."""
        if (
            self.op is None
            or other.x is not self.x
            or other.strides != self.strides
            or len(other.bias) != len(self.bias)
        ):
            return False
        if not all(set(few) <= set(many) for few, many in zip(other.offsets, self.offsets, strict=True)):
            return False
        return other.groups == self.groups or (other.is_by_channel and self.channels == len(self.bias))

    @property
    def channels(self) -> int:
        """Channels of the input."""
        return self.groups * self.weights.shape[1]

    @property
    def is_by_channel(self) -> bool:
        """Whether each channel of the result is of that channel of the input."""
        return self.groups == self.channels == len(self.bias)

    def plus(self, other: Branch) -> tuple[Array, Array]:
        """Return weights and bias of the sum of this and another branch that it includes."""
        weights, more = self.weights.copy(), other.weights
        if other.groups != self.groups:
            each = np.arange(len(more))
            shape: tuple[int, ...] = (*weights.shape[:2], *more.shape[2:])
            more = np.zeros(shape)
            more[each, each % more.shape[1]] = other.weights[:, 0]
        taps = ([many.index(offset) for offset in few] for few, many in zip(other.offsets, self.offsets, strict=True))
        weights[np.ix_(*(range(n) for n in more.shape[:2]), *taps)] += more
        return weights, self.bias + other.bias


def run(graph: Graph) -> int:
    """Merge the branches of every sum that has some. Returns how many were merged into others."""
    done = 0
    for node in graph.nodes:
        merged = _merged(graph, node) if isinstance(node.op, Add) else None
        if merged is not None:
            put_in_place(graph, node.outputs[0], merged)
            done += 1
    graph.prune()
    return done


def _merged(graph: Graph, node: Node) -> Value | None:
    """Return the convolution that a sum of two branches is."""
    y = node.outputs[0]
    found = [_branch_of(graph, v) or _shifted(graph, v) for v in node.operands if v.type == y.type]
    for one, other in (found, found[::-1]) if len(found) == 2 else ():
        if one is not None and other is not None and one.op is not None and one.includes(other):
            b = Builder(graph, node.name, node.loc)
            made = b.add(one.op, one.x, *(b.const(a, y.dtype) for a in one.plus(other)))
            return made if made.type == y.type else None
    return None


def _branch_of(graph: Graph, value: Value) -> Branch | None:
    """Read a branch that nothing else uses: a Conv or a BatchNormalization by constants."""
    node = value.producer
    if node is None or value.dtype not in (f32, f64) or not alone(graph, node):
        return None
    if not isinstance(node.op, Conv | BatchNormalization):
        return None
    x, *rest = node.operands
    arrays = [a.astype(np.float64) for v in rest if (a := v.array) is not None]
    if x.rank is None or x.rank < 3 or len(arrays) < len(rest):
        return None
    return _convolution(x, node.op, *arrays) if isinstance(node.op, Conv) else _normalization(x, node.op, *arrays)


def _convolution(x: Value, op: Conv, w: Array, bias: Array | None = None) -> Branch | None:
    window, rank = w.shape[2:], w.ndim - 2
    begin, _ = window_padding(op, x.shape[2:], window)
    if not all(p.is_const for p in begin):
        return None
    strides = spatial(op.name, "strides", op.strides, rank, 1)
    dilations = spatial(op.name, "dilations", op.dilations, rank, 1)
    offsets = (tuple(k * d - int(p) for k in range(n)) for n, d, p in zip(window, dilations, begin, strict=True))
    return Branch(x, op, w, np.zeros(len(w)) if bias is None else bias, op.group, tuple(strides), tuple(offsets))


def _normalization(x: Value, op: BatchNormalization, scale: Array, bias: Array, mean: Array, variance: Array) -> Branch:
    rank, (factor, shift) = len(x.shape) - 2, op.factor_and_shift(scale, bias, mean, variance)
    return Branch(x, None, factor.reshape(-1, 1, *[1] * rank), shift, len(factor), (1,) * rank, ((0,),) * rank)


def _shifted(graph: Graph, value: Value) -> Branch | None:
    """Read a branch to which a constant was added, one for each channel or for all."""
    node = value.producer
    if node is None or not isinstance(node.op, Add) or not alone(graph, node):
        return None
    one, other = node.operands
    for given, constant in ((one, other), (other, one)):
        shift = along_channels(constant, given) if given.type == value.type else None
        branch = _branch_of(graph, given) if shift is not None else None
        if branch is not None:
            return replace(branch, bias=branch.bias + shift)
    return None
