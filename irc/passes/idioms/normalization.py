"""Normalisations: spelled out, and with the scale and bias that OpenVINO's MVN leaves to a product and a sum."""

from __future__ import annotations

import math

import numpy as np

from irc.arrays import Array
from irc.ir.graph import Graph, Node, Value
from irc.ir.types import f32
from irc.opdef.builder import Builder
from irc.ops.arithmetic import Add, Mul, Pow, Sqrt, Sub
from irc.ops.norm import InstanceNormalization, LayerNormalization, MeanVarianceNormalization
from irc.ops.reduce import ReduceMean
from irc.passes import channel_scales
from irc.passes.idioms.activations import number_of
from irc.passes.recompose import alone
from irc.passes.simplify import is_all

LARGEST = 1 << 20
"""Elements of a scale that is made because the operation must have one."""


def standardised(graph: Graph, node: Node) -> Value | None:
    """Recognise (x - mean) / sqrt(mean of squares + epsilon), spelled out, as a standardisation."""
    centred, root = (v.producer if v is not None else None for v in node.inputs)
    if centred is None or root is None or not isinstance(centred.op, Sub) or not isinstance(root.op, Sqrt):
        return None
    x, mean = centred.inputs
    variance, epsilon = _sum_with_number(graph, root)
    if x is None or x.rank is None or mean is None or variance is None or not alone(graph, root):
        return None
    axes = _mean_over(mean, x)
    square = variance.producer.inputs[0] if variance.producer is not None else None
    if axes is None or square is None or _mean_over(variance, square) != axes or not _is_square(square, centred):
        return None
    b = Builder(graph, node.name, node.loc)
    return b.MeanVarianceNormalization(x, axes, eps=epsilon, eps_mode="inside")


def _sum_with_number(graph: Graph, root: Node) -> tuple[Value | None, float]:
    """Return (v, number) of a root of v + number."""
    total = root.inputs[0].producer if root.inputs[0] is not None else None
    if total is None or not isinstance(total.op, Add) or not alone(graph, total):
        return None, 0.0
    for i, value in enumerate(total.operands):
        if (found := number_of(value)) is not None and found > 0:
            return total.inputs[1 - i], found
    return None, 0.0


def _mean_over(value: Value, x: Value) -> list[int] | None:
    """Return the axes of x, which stay with size 1, that a value is the mean over."""
    made = value.producer
    if made is None or not isinstance(made.op, ReduceMean) or made.inputs[0] is not x or not made.op.keepdims:
        return None
    axes = made.inputs[1].ints() if len(made.inputs) > 1 and made.inputs[1] is not None else None
    return None if not axes or x.rank is None else sorted(a % x.rank for a in axes)


def _is_square(value: Value, of: Node) -> bool:
    made, base = value.producer, next(iter(of.outputs))
    if made is None or next(iter(made.inputs), None) is not base:
        return False
    power = made.inputs[1] if len(made.inputs) > 1 else None
    squared = isinstance(made.op, Pow) and power is not None and number_of(power) == 2.0
    return squared or (isinstance(made.op, Mul) and power is base)


def batch_norm(graph: Graph, node: Node) -> Value | None:
    """Take a BatchNormalization of constants into the convolution before it, or write it as a product and a sum."""
    x, found = node.inputs[0], channel_scales.factor_and_shift(node)
    if x is None or x.rank is None or found is None:
        return None
    if (convolution := channel_scales.normalized(graph, node)) is not None:
        return convolution
    b, spread = Builder(graph, node.name, node.loc), (-1,) + (1,) * (x.rank - 2)
    factor, shift = (b.const(a.reshape(spread), f32) for a in found)
    return b.Add(b.Mul(x, factor), shift)


def layer_norm(graph: Graph, node: Node) -> Value | None:
    """Recognise LayerNormalization with a scale of ones: standardised over the last axes."""
    x, axes = _standardised(node)
    if x is None or not axes or axes != list(range(len(x.shape)))[-len(axes) :]:
        return None
    sizes = [d.const for d in x.shape[axes[0] :] if d.const is not None]
    if len(sizes) < len(axes) or math.prod(sizes) > LARGEST:
        return None
    b = Builder(graph, node.name, node.loc)
    ones = b.const(np.ones(sizes), x.dtype)
    return b.LayerNormalization(x, ones, axis=-len(axes), epsilon=_epsilon(node))


def instance_norm(graph: Graph, node: Node) -> Value | None:
    """Recognise InstanceNormalization, with ones and zeros: standardised over the axes behind the channels."""
    x, axes = _standardised(node)
    if x is None or len(x.shape) < 4 or axes != list(range(2, len(x.shape))) or not x.shape[1].const:
        return None
    b, channels = Builder(graph, node.name, node.loc), x.shape[1].const
    parameters = b.const(np.ones(channels), x.dtype), b.const(np.zeros(channels), x.dtype)
    return b.InstanceNormalization(x, *parameters, epsilon=_epsilon(node))


def scale(graph: Graph, node: Node) -> Value | None:
    """Take a product with a constant into the normalisation before it."""
    return _with_parameter(graph, node, is_scale=True)


def bias(graph: Graph, node: Node) -> Value | None:
    """Take a sum with a constant into the normalisation before it."""
    return _with_parameter(graph, node, is_scale=False)


def _standardised(node: Node) -> tuple[Value | None, list[int]]:
    """Return (x, axes from the front in order) of a standardisation with epsilon in the root; else no x."""
    x, axes, op = node.inputs[0], node.inputs[1], node.op
    assert isinstance(op, MeanVarianceNormalization)
    found = None if axes is None else axes.ints()
    if x is None or x.rank is None or found is None or op.eps_mode != "inside" or not op.normalize_variance:
        return None, []
    return x, sorted({a % x.rank for a in found})


def _epsilon(node: Node) -> float:
    assert isinstance(node.op, MeanVarianceNormalization)
    return node.op.eps


def _with_parameter(graph: Graph, node: Node, is_scale: bool) -> Value | None:
    for i, given in enumerate(node.operands):
        norm, constant = given.producer, node.inputs[1 - i]
        if norm is None or constant is None or constant.const is None or not alone(graph, norm):
            continue
        if not isinstance(norm.op, LayerNormalization | InstanceNormalization) or not _is_free(norm, is_scale):
            continue
        if constant.dtype == given.dtype and (found := _taken_in(graph, node, norm, constant, is_scale)) is not None:
            return found
    return None


def _is_free(norm: Node, is_scale: bool) -> bool:
    """Tell whether a normalisation has no bias yet, and no scale either where one is to be taken in."""
    _, factor, summand = (*norm.inputs, None)[:3]
    bare = summand is None or is_all(summand, 0.0)
    return bare and factor is not None and (not is_scale or is_all(factor, 1.0))


def _taken_in(graph: Graph, node: Node, norm: Node, constant: Value, is_scale: bool) -> Value | None:
    """Build the normalisation with the constant in the place of its scale or bias, if it has such a shape."""
    x, factor, summand = (*norm.inputs, None)[:3]
    assert x is not None
    b, own = Builder(graph, node.name, node.loc), _per_element(norm, x, constant)
    op, array = norm.op, own if own is not None else _per_channel(x, constant)
    if array is None:
        return None
    if own is None and isinstance(op, LayerNormalization):
        if not is_scale or len(x.shape) != 3 or op.axis not in (-1, 2):
            return None
        op, summand = InstanceNormalization(epsilon=op.epsilon), b.const(np.zeros(array.shape), x.dtype)
    given = b.const(array, x.dtype)
    return b.add(op, x, *((given, summand) if is_scale else (factor, given)))


def _per_element(norm: Node, x: Value, constant: Value) -> Array | None:
    """Return a constant that differs only along the axes which a LayerNormalization standardises, in their shape."""
    if not isinstance(norm.op, LayerNormalization) or constant.rank is None or constant.rank > len(x.shape):
        return None
    over = [d.const for d in x.shape[norm.op.axis :]]
    padded = (1,) * (len(x.shape) - constant.rank) + tuple(int(d) for d in constant.shape)
    before, sizes = padded[: norm.op.axis], padded[norm.op.axis :]
    if any(n != 1 for n in before) or any(n not in (1, m) for n, m in zip(sizes, over, strict=True)):
        return None
    assert constant.const is not None
    return np.broadcast_to(constant.const.array.reshape(sizes), [m or 1 for m in over])


def _per_channel(x: Value, constant: Value) -> Array | None:
    """Return a constant that differs only along the channels, as a vector."""
    channels = x.shape[1].const
    if constant.rank is None or constant.rank > len(x.shape) or not channels or constant.const is None:
        return None
    padded = (1,) * (len(x.shape) - constant.rank) + tuple(int(d) for d in constant.shape)
    if padded[1] not in (1, channels) or any(n != 1 for n in (*padded[:1], *padded[2:])):
        return None
    return np.broadcast_to(constant.const.array.reshape(-1), [channels])
