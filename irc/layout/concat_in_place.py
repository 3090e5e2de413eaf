"""Concatenations along the last axis in place: operands are computed where they stand in the result.

`Concat(a, b)` becomes `r0 = Destination(); r1 = DestinationPart(r0, a, 0)` and so on: all in the memory of `r0`, in
the order in which a and b are computed.  Kernels write to a part themselves (`irc.selection.select`); anything else is
computed by loops into its part.  Who else reads `a` reads it there, and a concatenation of neighbours among the
operands of a longer one is a slice of that one's destination.
"""

from __future__ import annotations

from collections.abc import Sequence

from irc.expr import Load
from irc.fusion.elements import Elements, extents_of, value_of
from irc.ir.graph import Graph, Node, Value, layers_of
from irc.layout.channels_last_op import ChannelsLast
from irc.layout.destination import Destination, DestinationPart
from irc.opdef.builder import Builder
from irc.ops.concat import Concat
from irc.ops.layout import Reshape, Transpose
from irc.ops.matmul import MatMul
from irc.ops.slice import Slice
from irc.passes.replace import put_in_place

KERNELS = MatMul | ChannelsLast
"""Operations whose results a kernel may write to a part; elementwise ones after them go with them."""
MOVED = Transpose | Reshape


def run(graph: Graph) -> int:
    """Replace concatenations that are worth it. Returns how many."""
    place = {n: k for k, n in enumerate(graph.nodes)}
    found = [n for n in place if _is_last(n)]
    done: set[Node] = set()
    for node in sorted(found, key=lambda n: -len(_operands(n))):
        if node in done:
            continue
        operands = _operands(node)
        if graph.keeps(node.outputs[0]) or not any(map(_from_kernel, operands)) or not _placeable(operands):
            continue
        others = sorted(_concatenations(operands) - done, key=place.__getitem__)
        within = [(n, _within(_operands(n), operands)) for n in others]
        inner = [(n, at) for n, at in within if at is not None]
        _replace(graph, node, operands, inner, place)
        done.update(n for n, _ in inner)
    graph.prune()
    return len(done)


def _is_last(node: Node) -> bool:
    """Tell whether a node concatenates along the last axis, with known sizes there."""
    op = node.op
    if isinstance(op, ChannelsLast) and isinstance(op.op, Concat):
        last = op.op.axis % op.rank == op.axes
    else:
        last = isinstance(op, Concat) and op.axis % len(node.outputs[0].shape) == len(node.outputs[0].shape) - 1
    return last and len(node.inputs) > 1 and all(v is not None and v.shape[-1].is_const for v in node.inputs)


def _operands(node: Node) -> list[Value]:
    """List the operands, with nested concatenations flattened and consecutive slices of a value joined."""
    values: list[Value] = []
    last = [*reversed(node.inputs)]
    while last:
        value = last.pop()
        if value is not None and value.producer is not None and _is_last(value.producer):
            last += reversed(value.producer.inputs)
        elif value is not None:
            values.append(value)
    found: list[Value] = []
    at = 0
    while at < len(values):
        base, taken = _sliced(values, at)
        found.append(base)
        at += taken
    return found


def _concatenations(operands: Sequence[Value]) -> set[Node]:
    """Find the concatenations that may begin with one of the operands.

    Slices of operands, and concatenations that begin with one, count as operands.
    """
    found: set[Node] = set()
    values = list(operands)
    while values:
        for user in values.pop().uses:
            if _is_last(user) and user not in found:
                found.add(user)
                values += user.outputs
            elif _slice_of(user.outputs[0]) is not None:
                values += user.outputs
    return found


def _sliced(values: Sequence[Value], at: int) -> tuple[Value, int]:
    """Find the value that those from place `at` on are consecutive slices of, and their number; else the first, 1."""
    first = _slice_of(values[at])
    if first is None or first[1] != 0:
        return values[at], 1
    base, end = first[0], 0
    for count in range(1, len(values) - at + 1):
        value = values[at + count - 1]
        here = _slice_of(value)
        if here is None or here[0] is not base or here[1] != end:
            break
        end += int(value.shape[-1])
        if base.shape[-1] == end:
            return base, count
    return values[at], 1


def _slice_of(value: Value) -> tuple[Value, int] | None:
    """Find the value that a value is a slice of, along the last axis only, and where the slice starts."""
    node = value.producer
    op = node.op if node else None
    if node is None or not isinstance(op.op if isinstance(op, ChannelsLast) else op, Slice):
        return None
    element = Elements().of(value)
    load = element.expr
    if not isinstance(load, Load) or not isinstance(load.buffer, Value) or load.index[:-1] != element.vars[:-1]:
        return None
    start = extents_of(element, value).dim(load.index[-1] - element.vars[-1])
    whole = value_of(load)
    return (whole, int(start)) if start.is_const and whole.shape[-1].is_const else None


def _from_kernel(value: Value) -> bool:
    """Tell whether a kernel probably computes a value, or a value that it is a transposed copy of."""
    node, moved = value.producer, False
    while node is not None and (node.op.elementwise or isinstance(node.op, MOVED)) and node.inputs[0] is not None:
        moved = moved or isinstance(node.op, Transpose)
        node = node.inputs[0].producer
    if moved:
        return node is not None and (isinstance(node.op, KERNELS | DestinationPart))
    return node is not None and isinstance(node.op, KERNELS) and not _is_last(node)


def _placeable(operands: Sequence[Value]) -> bool:
    """Tell whether each operand can be computed into a part: it occurs once, and an operation computes it."""
    return len(set(operands)) == len(operands) and all(v.producer is not None for v in operands)


def _within(few: Sequence[Value], many: Sequence[Value]) -> tuple[int, int] | None:
    """Find the range of places at which the `few` stand among the `many`, each of which occurs once."""
    at = next((i for i, v in enumerate(many) if v is few[0]), None)
    if at is None or list(many[at : at + len(few)]) != list(few):
        return None
    return at, at + len(few)


def _replace(
    graph: Graph,
    node: Node,
    operands: Sequence[Value],
    inner: Sequence[tuple[Node, tuple[int, int]]],
    place: dict[Node, int],
) -> None:
    """Replace a concatenation, and its neighbours in `inner`, by a destination and its parts.

    place: of the nodes in a dependency order, to which the new ones are added.
    """
    whole, starts = node.outputs[0], [0]
    for v in operands:
        starts.append(starts[-1] + int(v.shape[-1]))
    b, gone = Builder(graph, node.name, node.loc, layers=node.layers), {n for n, _ in inner}
    destination = b.add(Destination(whole.dtype, whole.shape))

    def made(value: Value, where: int) -> Value:
        place[_producer(value)] = where
        return value

    def piece(x: Value, start: int, end: int) -> Value:
        found = b.Slice(x, b.dims([start]), b.dims([end]), b.dims([len(x.shape) - 1]))
        _producer(found).layers = ()
        return made(found, place[_producer(x)])

    order = [place[_producer(v)] for v in operands]
    after: dict[int, Value] = {}
    for k in sorted(range(len(operands)), key=order.__getitem__):
        value = operands[k]
        others = [n for n in value.uses if n not in gone]
        destination = after[k] = made(b.add(DestinationPart(starts[k]), destination, value), order[k])
        if others and not graph.keeps(value):
            part = piece(destination, starts[k], starts[k + 1])
            for user in others:
                graph.set_op(user, user.op, [part if v is value else v for v in user.inputs])
    rank = {k: n for n, k in enumerate(after)}
    for other, (first, end) in inner:
        here = after[max(range(first, end), key=rank.__getitem__)]
        for part in map(_producer, (after[k] for k in range(first, end) if other is not node)):
            part.layers = layers_of((other, part))
        if end - first < len(operands):
            here = piece(here, starts[first], starts[end])
        put_in_place(graph, other.outputs[0], here)


def _producer(value: Value) -> Node:
    assert value.producer is not None
    return value.producer
