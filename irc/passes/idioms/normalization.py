"""Normalisations with their scale and bias, which OpenVINO's MVN leaves to a product and a sum behind it."""

from __future__ import annotations

import math

import numpy as np

from irc.arrays import Array
from irc.ir.graph import Graph, Node, Value
from irc.opdef.builder import Builder
from irc.ops.norm import InstanceNormalization, LayerNormalization, MeanVarianceNormalization
from irc.passes.recompose import alone
from irc.passes.simplify import is_all

LARGEST = 1 << 20
"""Elements of a scale that is made because the operation must have one."""


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
