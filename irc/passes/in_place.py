"""Concatenations along the last axis written in place: their operands are computed where they stand in the result.

`Concat(a, b)` becomes `r0 = Room(); r1 = Part(r0, a, 0); r2 = Part(r1, b, size of a)`: all in the memory of `r0`, in
the order in which a and b are computed.  Kernels write to a part themselves (`irc.passes.claim`); anything else is
computed by loops into its part.  Who else reads `a` reads it there, and a concatenation of neighbours among the
operands of a longer one is a slice of that one's room.
"""

from __future__ import annotations

from collections.abc import Sequence

from irc.expr import Load
from irc.ir.graph import Graph, Node, Value
from irc.ops.builder import Builder
from irc.ops.concat import Concat
from irc.passes.channels_last import ChannelsLast
from irc.passes.elements import Elements, extents_of, value_of
from irc.passes.replace import put_in_place
from irc.passes.room import Part, Room

KERNELS = ("MatMul", "ChannelsLast")
"""Operations whose results a kernel may write to a part; elementwise ones after them go with them."""
MOVED = ("Transpose", "Reshape")


def run(graph: Graph) -> int:
    """Write in place what is worth it; how many concatenations are gone."""
    found = [n for n in graph.nodes if _is_last(n)]
    done: set[Node] = set()
    for node in sorted(found, key=lambda n: -len(_operands(n))):
        if node in done:
            continue
        operands = _operands(node)
        if node.outputs[0] in graph.outputs or not any(map(_from_kernel, operands)) or not _placeable(operands):
            continue
        within = [(n, _within(_operands(n), operands)) for n in found if n not in done]
        inner = [(n, at) for n, at in within if at is not None]
        _replace(graph, node, operands, inner)
        done.update(n for n, _ in inner)
    graph.prune()
    return len(done)


def _is_last(node: Node) -> bool:
    """Whether a node concatenates along the last axis, of known sizes there."""
    op = node.op
    if isinstance(op, ChannelsLast) and isinstance(op.op, Concat):
        last = op.op.axis % op.rank == 1
    else:
        last = isinstance(op, Concat) and op.axis % len(node.outputs[0].shape) == len(node.outputs[0].shape) - 1
    return last and len(node.inputs) > 1 and all(v is not None and v.shape[-1].is_const for v in node.inputs)


def _operands(node: Node) -> list[Value]:
    """The operands, those of concatenations among them, and in one all the slices of a value one after the other."""
    found: list[Value] = []
    values = [v for v in node.inputs if v is not None]
    while any(v.producer is not None and _is_last(v.producer) for v in values):
        nodes = [(v, v.producer) for v in values]
        values = [u for v, n in nodes for u in (n.inputs if n is not None and _is_last(n) else (v,)) if u is not None]
    while values:
        base, taken = _sliced(values)
        found.append(base)
        values = values[taken:]
    return found


def _sliced(values: Sequence[Value]) -> tuple[Value, int]:
    """The value of which the first of these are the whole, and how many they are: else the first one."""
    first = _slice_of(values[0])
    if first is None or first[1] != 0:
        return values[0], 1
    base, end = first[0], 0
    for count, value in enumerate(values, start=1):
        here = _slice_of(value)
        if here is None or here[0] is not base or here[1] != end:
            break
        end += int(value.shape[-1])
        if base.shape[-1] == end:
            return base, count
    return values[0], 1


def _slice_of(value: Value) -> tuple[Value, int] | None:
    """What a value is a slice of along the last axis only, and where it starts."""
    node = value.producer
    op = node.op if node else None
    if node is None or (op.op if isinstance(op, ChannelsLast) else op).name != "Slice":  # type: ignore[union-attr]
        return None
    element = Elements().of(value)
    load = element.expr
    if not isinstance(load, Load) or not isinstance(load.buffer, Value) or load.index[:-1] != element.vars[:-1]:
        return None
    start = extents_of(element, value).dim(load.index[-1] - element.vars[-1])
    whole = value_of(load)
    return (whole, int(start)) if start.is_const and whole.shape[-1].is_const else None


def _from_kernel(value: Value) -> bool:
    """Whether a kernel probably computes a value, or a transposed copy of one."""
    node, moved = value.producer, False
    while node is not None and (node.op.elementwise or node.op.name in MOVED) and node.inputs[0] is not None:
        moved = moved or node.op.name == "Transpose"
        node = node.inputs[0].producer
    if moved:
        return node is not None and (node.op.name in KERNELS or isinstance(node.op, Part))
    return node is not None and node.op.name in KERNELS and not _is_last(node)


def _placeable(operands: Sequence[Value]) -> bool:
    """Whether each can be computed into a part: once there, and by some operation."""
    return len(set(operands)) == len(operands) and all(v.producer is not None for v in operands)


def _within(few: Sequence[Value], many: Sequence[Value]) -> tuple[int, int] | None:
    """From which to which place the `many` operands are the `few`."""
    starts = range(len(many) - len(few) + 1)
    return next(((i, i + len(few)) for i in starts if list(many[i : i + len(few)]) == list(few)), None)


def _replace(
    graph: Graph, node: Node, operands: Sequence[Value], inner: Sequence[tuple[Node, tuple[int, int]]]
) -> None:  # fmt: skip
    """The room and its parts for a concatenation and for those of its neighbours that are `inner`."""
    whole, starts = node.outputs[0], [0]
    for v in operands:
        starts.append(starts[-1] + int(v.shape[-1]))
    place = {n: i for i, n in enumerate(graph.nodes)}
    b = Builder(graph, node.name, node.loc)
    room = b.add(Room(whole.dtype, whole.shape))

    def order(k: int) -> int:
        producer = operands[k].producer
        return place[producer] if producer is not None else -1

    after: dict[int, Value] = {}
    for k in sorted(range(len(operands)), key=order):
        value = operands[k]
        others = [n for n in value.uses if n not in {m for m, _ in inner}]
        room = after[k] = b.add(Part(starts[k]), room, value)
        if others and value not in graph.outputs:
            part = _slice(b, room, starts[k], starts[k + 1])
            for user in others:
                graph.set_op(user, user.op, [part if v is value else v for v in user.inputs])
    rank = {k: n for n, k in enumerate(after)}
    for other, (first, end) in inner:
        here = after[max(range(first, end), key=rank.__getitem__)]
        if end - first < len(operands):
            here = _slice(b, here, starts[first], starts[end])
        put_in_place(graph, other.outputs[0], here)


def _slice(b: Builder, x: Value, start: int, end: int) -> Value:
    return b.Slice(x, b.dims([start]), b.dims([end]), b.dims([len(x.shape) - 1]))
