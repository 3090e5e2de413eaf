"""Factors and summands of channels, taken into the constants of the convolution whose result they change.

A convolution is linear: weights times a factor give the result times it.  So a BatchNormalization by constants costs
nothing when it runs, and layers that differed in it alone share a kernel (Jacob et al., Quantization and Training of
Neural Networks for Efficient Integer-Arithmetic-Only Inference, 2018, section 3.2).  Weights are multiplied in f64;
results differ by roundings.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from irc.arrays import Array
from irc.ir.graph import Graph, Node, Value
from irc.ir.types import f32
from irc.opdef.base import Op
from irc.opdef.builder import Builder
from irc.ops.activation import HardSigmoid
from irc.ops.arithmetic import Add, Mul
from irc.ops.conv import Conv, ConvTranspose
from irc.ops.norm import BatchNormalization
from irc.passes.recompose import alone, along_channels
from irc.passes.simplify import Rule

LARGEST = 1e15
"""Factors beyond it stay apart, as do those that are no numbers: weights could overflow where results do not."""


def normalized(graph: Graph, node: Node) -> Value | None:
    """Take a BatchNormalization by constants into the convolution before it."""
    found = factor_and_shift(node)
    x = node.inputs[0]
    return None if x is None or found is None else rescaled(graph, Builder(graph, node.name, node.loc), x, *found)


def factor_and_shift(node: Node) -> tuple[Array, Array] | None:
    """Return what a BatchNormalization of f32 multiplies each channel by and adds then, in f64, if it is constant."""
    assert isinstance(node.op, BatchNormalization)
    arrays = [v.array for v in list(node.operands)[1:]]
    if any(v.dtype != f32 for v in node.operands):
        return None
    parameters = [a.astype(np.float64) for a in arrays if a is not None]
    return node.op.factor_and_shift(*parameters) if len(parameters) == len(arrays) else None


def scaled(graph: Graph, node: Node) -> Value | None:
    """Take a product with one number a channel into the weights of the convolution before it."""
    return _with_channels(graph, node, lambda numbers: (numbers, np.zeros_like(numbers)))


def shifted(graph: Graph, node: Node) -> Value | None:
    """Take a sum with one number a channel into the bias of the convolution before it."""
    return _with_channels(graph, node, lambda numbers: (None, numbers))


def _with_channels(
    graph: Graph, node: Node, factor_and_shift: Callable[[Array], tuple[Array | None, Array]]
) -> Value | None:
    """Take the operand that has one number a channel into the convolution that computes the other one."""
    for i, given in enumerate(node.operands):
        numbers = along_channels(node.inputs[1 - i], given)
        if numbers is not None:
            found = rescaled(graph, Builder(graph, node.name, node.loc), given, *factor_and_shift(numbers))
            if found is not None:
                return found
    return None


def hard_sigmoid(graph: Graph, node: Node) -> Value | None:
    """Take the factor and the summand of a HardSigmoid into the convolution before it: a Clip is left."""
    given, *parameters = node.operands
    numbers = [along_channels(v, given) for v in parameters]
    factor, shift = (*(a for a in numbers if a is not None), None, None)[:2]
    if factor is None or shift is None:
        return None
    b = Builder(graph, node.name, node.loc)
    found = rescaled(graph, b, given, factor, shift)
    return None if found is None else b.Clip(found, 0.0, 1.0)


def rescaled(graph: Graph, b: Builder, y: Value, factor: Array | None, shift: Array) -> Value | None:
    """Build the convolution of constants that computes y · factor + shift, where one computes y, for nothing else.

    Weights that others read as well stay: each would need a copy.
    """
    made = y.producer
    if made is None or not isinstance(made.op, Conv | ConvTranspose) or not alone(graph, made) or y.dtype != f32:
        return None
    x, w, summand = (*made.inputs, None)[:3]
    if w is None or w.const is None or (summand is not None and summand.const is None):
        return None
    if summand is not None and summand.const is not None:
        before = summand.const.array.astype(np.float64)
        shift = shift + (before if factor is None else before * factor)
    if factor is not None:
        if sum(w.uses.values()) > 1 or not np.all(np.abs(factor) < LARGEST):
            return None
        spread = _along_weights(made.op, factor, tuple(int(d) for d in w.shape))
        weights = w.const.derived(w.const.shape, lambda a: (a * spread).astype(np.float32))
        w = graph.add_constant(weights, w.name)
    bias = None if summand is None and not np.any(shift) else b.const(shift, f32)
    return b.add(made.op, x, w, bias)


def _along_weights(op: Conv | ConvTranspose, factor: Array, shape: tuple[int, ...]) -> Array:
    """Spread factors of outputs over the first two axes of weights, of which transposed ones have inputs first."""
    rest = (1,) * (len(shape) - 2)
    if isinstance(op, Conv):
        return factor.reshape(-1, 1, *rest)
    return np.repeat(factor.reshape(op.group, -1), shape[0] // op.group, axis=0).reshape(*shape[:2], *rest)


RULES: dict[type[Op], tuple[Rule, ...]] = {
    BatchNormalization: (normalized,),
    Mul: (scaled,),
    Add: (shifted,),
    HardSigmoid: (hard_sigmoid,),
}
