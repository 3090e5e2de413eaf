"""Transposes, reshapes and slices with what stands around them: fewer, and none that moves nothing."""

from __future__ import annotations

from collections.abc import Sequence

from irc.ir.dim import Dim
from irc.ir.graph import Graph, Node, Value, layers_of, symbols_of
from irc.ir.types import TensorType
from irc.opdef.builder import Builder
from irc.ops.concat import Concat
from irc.ops.gather import Gather
from irc.ops.layout import Flatten, Reshape, Squeeze, Transpose, Unsqueeze
from irc.ops.shape import Shape
from irc.passes.recompose import alone
from irc.passes.simplify import order_of


def reshape_of_reshape(graph: Graph, node: Node) -> Value | None:
    """Merge two reshapes that nothing else reads, where the last shape takes no sizes that must be computed."""
    x, out = node.inputs[0], node.outputs[0]
    inner = x.producer if x is not None else None
    if inner is None or not _keeps_order(inner) or not _keeps_order(node) or not alone(graph, inner):
        return None
    source = inner.inputs[0]
    shape = inner.inputs[1] if isinstance(inner.op, Reshape) else None
    if source is None or source.rank is None:
        return None
    if shape is not None and shape.dims() is None and symbols_of([out]).keys() - symbols_of([source]).keys():
        return None  # the inner one defines sizes that the outer one has
    wanted = _without_sizes(source.shape, out.shape)
    return None if wanted is None else _reshaped(graph, (inner, node), source, wanted, out)


def _keeps_order(node: Node) -> bool:
    """Tell whether a node's elements stand in memory as they did: of a Transpose, if it moves only axes of one."""
    if isinstance(node.op, Reshape | Squeeze | Unsqueeze | Flatten):
        return True
    x, order = node.inputs[0], order_of(node) if isinstance(node.op, Transpose) else None
    kept = [] if x is None or x.rank is None or order is None else [k for k in order if x.shape[k] != 1]
    return order is not None and kept == sorted(kept)


def constant_shape(graph: Graph, node: Node) -> Value | None:
    """Say a shape that is computed from sizes of the operand by copying its axes, or as what is left."""
    x, shape = node.inputs[:2]
    if x is None or x.rank is None or shape is None or shape.const is not None:
        return None
    said = shape.dims() or []
    wanted = _without_sizes(x.shape, node.outputs[0].shape, left_over=any(d == -1 for d in said))
    return None if wanted is None else _reshaped(graph, (node,), x, wanted, node.outputs[0])


def transpose_of_ones(graph: Graph, node: Node) -> Value | None:
    """Write a Transpose that moves only axes of one element as the Reshape it is."""
    x, out = node.inputs[0], node.outputs[0]
    wanted = None if x is None or x.rank is None or not _keeps_order(node) else _without_sizes(x.shape, out.shape)
    return None if x is None or wanted is None else _reshaped(graph, (node,), x, wanted, out)


def _without_sizes(source: Sequence[Dim], wanted: Sequence[Dim], left_over: bool = False) -> list[int] | None:
    """Return the shape of a Reshape that needs no size of the run: 0 copies an axis, or -1 is what is left.

    left_over: whether the graph has -1 beside axes that may be empty, by which it cannot be divided.
    """
    if any(d == 0 for d in wanted):
        return None
    open_axes = [i for i, d in enumerate(wanted) if not d.is_const]
    copied = [i for i in open_axes if i < len(source) and source[i] == wanted[i]]
    if copied != open_axes and len(open_axes) > 1 and not (left_over and len(open_axes) == len(copied) + 1):
        return None
    return [int(d) if d.is_const else 0 if i in copied else -1 for i, d in enumerate(wanted)]


def _reshaped(graph: Graph, nodes: Sequence[Node], source: Value, shape: list[int], out: Value) -> Value:
    last = nodes[-1]
    b = Builder(graph, last.name or last.op.name, last.loc, layers=layers_of(tuple(nodes)))
    found = b.Reshape(source, b.const(shape), special_zero=True)
    found.type = out.type
    return found


def without_empty_parts(graph: Graph, node: Node) -> Value | None:
    """Leave out what adds nothing to a Concat."""
    assert isinstance(node.op, Concat)
    axis, parts = node.op.axis, list(node.operands)
    kept = [v for v in parts if v.rank is None or v.shape[axis] != 0]
    if len(kept) in (0, len(parts)):
        return None
    return kept[0] if len(kept) == 1 else Builder(graph, node.name, node.loc).add(node.op, *kept)


def part_of_shape(graph: Graph, node: Node) -> Value | None:
    """Gather a size from a whole shape, of which there is one for all that ask."""
    x, op = node.inputs[0], node.op
    assert isinstance(op, Shape)
    places = [] if x is None or x.rank is None else list(range(x.rank)[op.start : op.end])
    if x is None or len(places) != 1 or x.rank == 1:
        return None
    return _size(graph, node, x, places[0], op)


def size_of_axis(graph: Graph, node: Node) -> Value | None:
    """Gather the size of an axis from the shape of the input that has it."""
    shape, indices = node.inputs[:2]
    made = None if shape is None else shape.producer
    places = None if indices is None or indices.const is None else indices.ints()
    if made is None or not isinstance(made.op, Shape) or made.op.start or made.op.end is not None or not places:
        return None
    x = made.inputs[0]
    if x is None or x.rank is None or len(places) != 1 or not -x.rank <= places[0] < x.rank or x in graph.inputs:
        return None
    return _size(graph, node, x, places[0] % x.rank, made.op)


def _size(graph: Graph, node: Node, x: Value, axis: int, op: Shape) -> Value:
    """Return the size of an axis, in the form of the node's result."""
    size = x.shape[axis]
    for given in graph.inputs if not size.is_const else ():
        if isinstance(given.type, TensorType) and given.rank is not None and size in given.shape:
            x, axis = given, given.shape.index(size)
            break
    b = Builder(graph, node.name, node.loc)
    places = b.const([axis] if node.outputs[0].rank else axis)
    return b.Gather(b.Shape(x, output_type=op.output_type), places, b.const(0))


def vector_of_gathered(graph: Graph, node: Node) -> Value | None:
    """Gather a vector of one element instead of a scalar that becomes one."""
    x = node.inputs[0]
    made = None if x is None else x.producer
    if x is None or x.rank != 0 or made is None or not isinstance(made.op, Gather):
        return None
    data, index = made.inputs[:2]
    if data is None or data.rank != 1 or index is None or index.const is None or made.op.batch_dims:
        return None
    return Builder(graph, node.name, node.loc).Gather(data, [int(index.const.array)], made.inputs[2])
