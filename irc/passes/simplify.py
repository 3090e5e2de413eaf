"""Rewrites that change no result, not even by a bit: one function per rule, listed in `RULES` by operation.

A rule gets the graph and a node and returns the value that its result is equal to, or None.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np

from irc.ir.dim import Dim
from irc.ir.graph import Graph, Node, Value, layers_of, symbols_of
from irc.ir.types import Shape, TensorType
from irc.opdef.base import Op
from irc.opdef.builder import Builder
from irc.ops.arithmetic import Add, Div, Mul, Sub
from irc.ops.cast import Cast
from irc.ops.layout import Flatten, Identity, Reshape, Squeeze, Transpose, Unsqueeze
from irc.passes.replace import replace_value

Rule = Callable[[Graph, Node], Value | None]


def run(graph: Graph, rules: Mapping[type[Op], Sequence[Rule]] | None = None) -> int:
    """Apply the rules, by default `RULES`, until none applies. Returns how many rewrites were done."""
    total, chosen = 0, RULES if rules is None else rules
    while True:
        done = sum(_apply(graph, node, chosen.get(type(node.op), ())) for node in graph.nodes)
        graph.prune()
        if not done:
            return total
        total += done


def _apply(graph: Graph, node: Node, rules: Sequence[Rule]) -> bool:
    value = node.outputs[0] if node.outputs else None
    if value is None or not isinstance(value.type, TensorType) or value.type.shape is None:
        return False
    if not value.uses and not graph.keeps(value):
        return False
    for rule in rules:
        found = rule(graph, node)
        if found is not None and found is not value and found.type == value.type and replace_value(graph, value, found):
            return True
    return False


# ------------------------------------------------------------------ rearrangement
def same_value(graph: Graph, node: Node) -> Value | None:
    """Replace Identity by its operand."""
    return node.inputs[0]


def same_shape(graph: Graph, node: Node) -> Value | None:
    """Replace a reshape to the same shape by its operand."""
    x = node.inputs[0]
    return x if x is not None and x.type == node.outputs[0].type else None


def reshape_of_reshape(graph: Graph, node: Node) -> Value | None:
    """Merge two reshapes: only the last shape matters, unless the first one makes sizes of it."""
    x, out = node.inputs[0], node.outputs[0]
    inner = x.producer if x is not None else None
    if inner is None or not isinstance(inner.op, Reshape | Squeeze | Unsqueeze | Flatten) or inner.inputs[0] is None:
        return None
    source = inner.inputs[0]
    if not isinstance(source.type, TensorType) or source.type.shape is None:
        return None
    b = Builder(graph, node.name or node.op.name, node.loc, layers=layers_of((inner, node)))
    if any(d == 0 for d in out.shape):
        return None
    shape = inner.inputs[1] if isinstance(inner.op, Reshape) else None
    computed = shape is not None and shape.dims() is None
    if computed and symbols_of([out]).keys() - symbols_of([source]).keys():
        return None  # the inner one defines sizes that the outer one has
    found = b.Reshape(source, b.dims(out.shape), special_zero=False)
    found.type = out.type
    assert found.producer is not None
    found.producer.name = node.name
    return found


def transpose_of_transpose(graph: Graph, node: Node) -> Value | None:
    """Merge two permutations, and drop one that moves nothing."""
    x = node.inputs[0]
    order = order_of(node)
    if x is None or order is None:
        return None
    if order == sorted(order):
        return x
    inner = x.producer
    before = order_of(inner) if inner is not None and isinstance(inner.op, Transpose) else None
    if inner is None or before is None or inner.inputs[0] is None:
        return None
    both = [before[k] for k in order]
    if both == sorted(both):
        return inner.inputs[0]
    b = Builder(graph, node.name or node.op.name, node.loc, layers=layers_of((inner, node)))
    found = b.Transpose(inner.inputs[0], both)
    assert found.producer is not None
    found.producer.name = node.name
    return found


def moved_there_and_back(graph: Graph, node: Node) -> Value | None:
    """Replace a Transpose, a Reshape that merges axes and another Transpose that together move nothing by a Reshape.

    Such is a plane whose channels are last, that becomes one of channels first, then tokens.
    """
    merging = node.inputs[0].producer if node.inputs[0] is not None else None
    inner = merging.inputs[0].producer if merging is not None and merging.inputs[0] is not None else None
    if merging is None or inner is None or not isinstance(inner.op, Transpose):
        return None
    if not isinstance(merging.op, Reshape | Squeeze | Flatten):
        return None
    first, last = order_of(inner), order_of(node)
    groups = merged_axes(inner.outputs[0].shape, merging.outputs[0].shape)
    x = inner.inputs[0]
    if x is None or first is None or last is None or groups is None:
        return None
    order = [first[axis] for k in last for axis in groups[k]]
    if order != sorted(order):
        return None
    b = Builder(graph, node.name or node.op.name, node.loc, layers=layers_of((inner, merging, node)))
    found = b.Reshape(x, b.dims(node.outputs[0].shape), special_zero=False)
    found.type = node.outputs[0].type
    return found


def merged_axes(before: Shape, after: Shape) -> list[list[int]] | None:
    """Find the axes of `before`, but those of size 1, that each axis of `after` is made of; None if one is cut."""
    left = [axis for axis, size in enumerate(before) if size != 1]
    groups: list[list[int]] = []
    for size in after:
        group: list[int] = []
        product = Dim.of(1)
        while product != size and left:
            group.append(left.pop(0))
            product = product * before[group[-1]]
        if product != size:
            return None
        groups.append(group)
    return None if left else groups


def order_of(node: Node) -> list[int] | None:
    """Return the axes of a Transpose's operand, from 0 on, in the order of its result; None if they are not known."""
    rank = len(node.outputs[0].shape)
    given = node.inputs[1] if len(node.inputs) > 1 else None
    if given is None:
        return list(range(rank))[::-1]
    found = given.ints()
    return None if found is None else [a % rank for a in found] or list(range(rank))[::-1]


# --------------------------------------------------------------------- arithmetic
def neutral(right: float, also_left: bool) -> Rule:
    """Make a rule x op c = x for a constant c whose elements are all `right` (its sign counts)."""

    def rule(graph: Graph, node: Node) -> Value | None:
        x, c = node.inputs[0], node.inputs[1]
        if x is None or c is None:
            return None
        if is_all(c, right):
            return x
        return c if also_left and is_all(x, right) else None

    return rule


def is_all(value: Value, number: float) -> bool:
    """Tell whether all elements of a constant equal a number; -0.0 is not 0.0, except of integers."""
    if value.const is None or value.dtype.kind not in "fiu" or int(value.tensor.elements()) > 1 << 16:
        return False
    array = value.const.array.astype(np.float64)
    same = bool(np.all(array == number))
    return same and (value.dtype.is_integer or bool(np.all(np.signbit(array) == np.signbit(number))))


def add_zero(graph: Graph, node: Node) -> Value | None:
    """Apply x + 0 = x to integers; to floats only x + (-0.0) = x, because -0.0 + 0.0 is 0.0."""
    exact = 0.0 if node.outputs[0].dtype.is_integer else -0.0
    return neutral(exact, also_left=True)(graph, node)


def cast_to_same(graph: Graph, node: Node) -> Value | None:
    """Replace a cast to the same type by its operand."""
    return same_shape(graph, node)


RULES: dict[type[Op], tuple[Rule, ...]] = {
    Identity: (same_value,),
    **dict.fromkeys((Reshape, Squeeze, Unsqueeze, Flatten), (same_shape, reshape_of_reshape)),
    Transpose: (transpose_of_transpose, moved_there_and_back),
    Cast: (cast_to_same,),
    Mul: (neutral(1.0, also_left=True),),
    Div: (neutral(1.0, also_left=False),),
    Add: (add_zero,),
    Sub: (neutral(0.0, also_left=False),),
}
