"""Recognition of operations that exporters spell out in simpler ones: fewer roundings, and one operation to compute.

One function per rule, listed in `RULES` by the operation that a pattern ends in, as in `irc.passes.simplify`; results
differ from the pattern's by roundings that are left out.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from irc.ir.graph import Graph, Node, Value
from irc.ir.types import f32, f64
from irc.opdef.base import Array, Op
from irc.opdef.builder import Builder
from irc.ops.activation import Sigmoid, Softplus
from irc.ops.arithmetic import Mul, Neg
from irc.ops.conv import Conv
from irc.ops.layout import Reshape
from irc.ops.mathematics import Tanh
from irc.ops.norm import InstanceNormalization
from irc.passes.replace import put_in_place
from irc.passes.simplify import Rule


def run(graph: Graph, rules: Mapping[type[Op], tuple[Rule, ...]] | None = None) -> int:
    """Apply every rule once, `RULES` unless others are given. Returns how many patterns were found."""
    total, rules = 0, RULES if rules is None else rules
    for node in graph.nodes:
        for rule in rules.get(type(node.op), ()):
            found = rule(graph, node)
            if found is not None and found.type == node.outputs[0].type:
                put_in_place(graph, node.outputs[0], found)
                graph.prune_back(node)
                total += 1
                break
    return total


def swish(graph: Graph, node: Node) -> Value | None:
    """Recognise x · sigmoid(x)."""
    a, b = node.inputs
    for x, gate in ((a, b), (b, a)):
        of = gate.producer if gate is not None else None
        if x is not None and of is not None and isinstance(of.op, Sigmoid) and of.inputs[0] is x and alone(graph, of):
            return Builder(graph, node.name, node.loc).Swish(x)
    return None


def mish(graph: Graph, node: Node) -> Value | None:
    """Recognise x · tanh(softplus(x)), as which models are written whose opset has no Mish."""
    a, b = node.inputs
    for x, gate in ((a, b), (b, a)):
        tanh = gate.producer if gate is not None else None
        if x is None or tanh is None or not isinstance(tanh.op, Tanh) or not alone(graph, tanh):
            continue
        plus = tanh.inputs[0].producer if tanh.inputs[0] is not None else None
        if plus is not None and isinstance(plus.op, Softplus) and plus.inputs[0] is x and alone(graph, plus):
            return Builder(graph, node.name, node.loc).Mish(x)
    return None


def group_norm(graph: Graph, node: Node) -> Value | None:
    """Recognise GroupNormalization as InstanceNormalization of groups of channels, reshaped to [n, groups, …]."""
    y, norm = node.outputs[0], node.inputs[0].producer if node.inputs[0] is not None else None
    if norm is None or not isinstance(norm.op, InstanceNormalization) or not alone(graph, norm):
        return None
    flat, *parameters = norm.operands
    entry = flat.producer
    if entry is None or not isinstance(entry.op, Reshape) or not alone(graph, entry):
        return None
    x = entry.inputs[0]
    if x is None or x.type != y.type or not x.rank or x.rank < 3 or flat.shape[0].equals(x.shape[0]) is not True:
        return None
    channels, groups = x.shape[1].const, flat.shape[1].const
    arrays = [v.array for v in parameters if v.array is not None]
    if not channels or not groups or channels % groups or len(arrays) != 2:
        return None
    b = Builder(graph, node.name, node.loc)
    spread = (b.const(np.repeat(a, channels // groups), x.dtype) for a in arrays)
    return b.GroupNormalization(x, *spread, num_groups=groups, epsilon=norm.op.epsilon)


def negated(graph: Graph, node: Node) -> Value | None:
    """Negate the constants of a convolution instead of its result, so that it needs no kernel of its own for that."""
    y = node.inputs[0]
    conv = y.producer if y is not None else None
    if y is None or conv is None or not isinstance(conv.op, Conv) or not alone(graph, conv) or y.dtype.kind != "f":
        return None
    x, *parameters = conv.operands
    constants = [v.const for v in parameters if v.const is not None]
    if len(constants) < len(parameters):
        return None
    opposite = (graph.add_constant(c.derived(c.shape, np.negative), f"{node.name}/const") for c in constants)
    return Builder(graph, conv.name, node.loc).add(conv.op, x, *opposite)


def alone(graph: Graph, node: Node) -> bool:
    """Tell whether a node's only result has one use."""
    return len(node.outputs) == 1 and sum(node.outputs[0].uses.values()) == 1 and not graph.keeps(node.outputs[0])


def along_channels(constant: Value | None, given: Value) -> Array | None:
    """Return the floats of a constant along the channels of a value of rank 3 or more, one each, in f64."""
    if constant is None or constant.const is None or constant.rank is None or constant.dtype not in (f32, f64):
        return None
    if given.rank is None or not given.rank >= 3 or constant.rank > given.rank or not given.shape[1].const:
        return None
    padded = (1,) * (given.rank - constant.rank) + tuple(int(d) for d in constant.shape)
    channels = given.shape[1].const
    if padded[1] not in (1, channels) or any(n != 1 for n in (*padded[:1], *padded[2:])):
        return None
    return np.broadcast_to(constant.const.array.reshape(-1).astype(np.float64), [channels])


RULES: dict[type[Op], tuple[Rule, ...]] = {Mul: (swish, mish), Neg: (negated,), Reshape: (group_norm,)}
