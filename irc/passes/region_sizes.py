"""Sizes that differ from run to run of a region become results of it, and of the node that runs it."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace

from irc.ir.dim import Dim
from irc.ir.graph import Graph, Node, Value
from irc.ir.types import TensorType, i64
from irc.opdef.builder import Builder
from irc.opdef.conversions import as_i64
from irc.opdef.regions import MADE
from irc.ops.control import If, Loop

ONE = TensorType.of(i64, (1,))
"""The type of a size as a value."""


def define_in_regions(graph: Graph, node: Node, new: Collection[str]) -> None:
    """Define those of these symbols that a node with regions has in its results.

    An If gives the size of the branch that ran; a Loop carries it along.
    """
    for name in sorted(new):
        if isinstance(node.op, If):
            _by_branches(graph, node, node.op, name)
        elif isinstance(node.op, Loop):
            _by_loop(graph, node, node.op, name)


def _by_branches(graph: Graph, node: Node, op: If, name: str) -> None:
    place = _place(node.outputs, name)
    if place is None:
        return
    for region in op.regions:
        region.outputs.append(_size(region, region.outputs[place[0]], place[1]))
    graph.sizes[name] = graph.add_result(node, f"{node.name}/size", ONE)


def _by_loop(graph: Graph, node: Node, op: Loop, name: str) -> None:
    """Carry a size: that of a carried value, the number of runs, or one that an operation of the body defines."""
    body, n = op.body, op.carried
    carried = _place(node.outputs[:n], name)
    if carried is not None and name in body.extras.get(MADE, ()):
        k, axis = carried
        initial = node.inputs[2 + k]
        assert initial is not None
        size = _carry(graph, node, op, _size(graph, initial, axis), _size(body, body.outputs[1 + k], axis))
        body.sizes[name] = body.inputs[2 + n]
    elif name in body.sizes:
        size = _carry(graph, node, op, Builder(graph, node.name).const([0]), body.sizes[name])
    elif any(v.type.shape and _is(v.type.shape[0], name) for v in node.outputs[n:] if isinstance(v.type, TensorType)):
        b = Builder(body, f"{node.name}/runs", node.loc, layers=())
        more = b.Add(b.Reshape(body.inputs[0], [1], special_zero=False), b.const([1]))
        size = _carry(graph, node, op, Builder(graph, node.name).const([0]), more)
        assert isinstance(node.op, Loop)
        graph.set_op(node, replace(node.op, counted=n))
    else:
        return
    graph.sizes[name] = size


def _carry(graph: Graph, node: Node, op: Loop, initial: Value, following: Value) -> Value:
    """Make a Loop carry one more value, behind the others.  Returns what it is at the end."""
    body, n = op.body, op.carried
    body.inputs.insert(2 + n, body.new_value(f"{node.name}/size", ONE))
    body.outputs.insert(1 + n, following)
    inputs = [*node.inputs, None, None][: max(len(node.inputs), 2)]
    graph.set_op(node, replace(op, carried=n + 1), [*inputs[: 2 + n], initial, *inputs[2 + n :]])
    result = graph.add_result(node, f"{node.name}/size", ONE)
    node.outputs = (*node.outputs[:n], result, *node.outputs[n:-1])
    for k, value in enumerate(node.outputs):
        value.index = k
    return result


def _place(values: Sequence[Value], name: str) -> tuple[int, int] | None:
    """Find which value has the symbol as a size, and on which axis."""
    for k, value in enumerate(values):
        for axis, size in enumerate(value.type.shape or () if isinstance(value.type, TensorType) else ()):
            if _is(size, name):
                return k, axis
    return None


def _is(size: Dim, name: str) -> bool:
    symbol = size.symbol_alone()
    return symbol is not None and symbol.name == name


def _size(graph: Graph, value: Value, axis: int) -> Value:
    """Compute a size of a value, as an i64 vector of one element."""
    b = Builder(graph, f"{value.name}/size", layers=())
    return as_i64(b, b.dims([value.shape[axis]]))
