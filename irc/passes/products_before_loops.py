"""Products of an input's parts, one in each turn of a Loop, become one product of the whole input before it.

This is how recurrent layers are spelled out: each turn takes its step of a sequence and multiplies it by weights that
are always the same.  One product of many rows reads the weights once.
"""

from __future__ import annotations

from irc.ir.graph import Graph, Node, Value, layers_of
from irc.opdef.builder import Builder
from irc.ops.arithmetic import Add, Sub
from irc.ops.cast import Cast
from irc.ops.control import Loop
from irc.ops.gather import Gather
from irc.ops.layout import Reshape, Squeeze, Unsqueeze
from irc.ops.matmul import MatMul


def run(graph: Graph) -> int:
    """Move products out of every Loop in place. Returns how many.

    A Loop that ends early leaves some of the product unread; so that it is at most that, the part must be another one
    in each turn, and the input one that the model computes: tables are looked up in few places.
    """
    moved = 0
    for node in graph.nodes:
        if isinstance(node.op, Loop):
            moved += sum(_move(graph, node, node.op, product) for product in node.op.body.nodes)
    return moved


def _move(graph: Graph, loop: Node, op: Loop, product: Node) -> bool:
    """Move a product in front of the Loop whose body it is in, if it may be. Returns whether it was."""
    gather = _part(product)
    if gather is None or gather.op != Gather():
        return False
    data, place, at = gather.operands
    body, captured = op.body, 2 + op.carried
    if data not in body.inputs[captured:] or not _differs(op, place):
        return False
    axis = (at.ints() or [0])[0] % len(data.shape)
    weights = product.inputs[1]
    assert weights is not None and weights.const is not None
    if axis == len(data.shape) - 1:
        return False
    outer = loop.inputs[captured + body.inputs[captured:].index(data)]
    assert outer is not None
    before = Builder(graph, product.name or loop.name, product.loc, layers=layers_of([product]))
    whole = before.add(product.op, outer, graph.add_constant(weights.const, weights.name, loc=weights.loc))
    inner = body.add_input(whole.name, whole.type)
    graph.set_op(loop, op, [*loop.inputs, whole])
    inside = Builder(body, product.name, product.loc, layers=layers_of([product]))
    result = product.outputs[0]
    rows = inside.Gather(inner, place, inside.const(axis))
    found = inside.Reshape(rows, inside.dims(result.shape), special_zero=False)
    found.type = result.type
    body.replace_uses(result, found)
    body.prune()
    return True


def _part(product: Node) -> Node | None:
    """Find the Gather whose rows a product of constant weights multiplies, each whole."""
    if not isinstance(product.op, MatMul) or product.op.transpose_a:
        return None
    rows, weights = product.operands
    if weights.const is None or weights.rank != 2 or rows.dtype.kind != "f" or len(rows.shape) < 2:
        return None
    depth = rows.shape[-1]
    while rows.producer is not None and isinstance(rows.producer.op, Reshape | Squeeze | Unsqueeze):
        source = rows.producer.inputs[0]
        if source is None or source.rank in (None, 0) or source.shape[-1] != depth:
            return None
        rows = source
    gather = rows.producer
    return gather if gather is not None and isinstance(gather.op, Gather) else None


def _differs(op: Loop, place: Value) -> bool:
    """Tell whether a number is a new one in each turn: that of the turn, a counter, or one of them plus what stays."""
    if place is op.body.inputs[0]:
        return True
    if place in op.body.inputs:
        k = op.body.inputs.index(place) - 2
        return 0 <= k < op.carried and _step(op.body.outputs[1 + k], place)
    node = place.producer
    if node is None or place.dtype.kind != "i":
        return False
    if isinstance(node.op, Cast | Reshape | Squeeze | Unsqueeze):
        return node.inputs[0] is not None and _differs(op, node.inputs[0])
    changing = [v for v in node.operands if not _stays(op, v)]
    return isinstance(node.op, Add | Sub) and len(changing) == 1 and _differs(op, changing[0])


def _step(after: Value, before: Value) -> bool:
    """Tell whether one value is the other and a constant more or less."""
    node = after.producer
    if node is None or not isinstance(node.op, Add | Sub) or before.dtype.kind != "i":
        return False
    first, second = node.operands
    if isinstance(node.op, Add) and second is before:
        first, second = second, first
    step = second.ints()
    return first is before and bool(step) and all(step)


def _stays(op: Loop, value: Value) -> bool:
    """Tell whether a value is the same in each turn."""
    return value.const is not None or value in op.body.inputs[2 + op.carried :]
