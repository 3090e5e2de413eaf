"""How ONNX has operations with bodies: If, Loop, and Scan for a loop over the slices of operands.

A Scan says what a Loop with Gathers leaves to be found out: which operands it takes apart, and that nothing ends it
early.  Engines need no test of a condition then and know how often it runs.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np

from irc.formats.document import Attr, RawGraph, RawNode
from irc.ir.graph import Constant, Graph, Node, Value
from irc.opdef.base import Op
from irc.opdef.regions import MADE
from irc.ops.control import Loop, body_layout
from irc.ops.layout import normal_axis

FIRST_SCAN = 9
"""The opset since which Scan has no batches."""


@dataclass
class Spelled:
    """An operation with bodies as ONNX has it.

    own: how many of `inputs` the node has; the others are captured.  given: how many inputs of its bodies are not.
    turned: the inputs whose axis goes first, which it is for every engine that has Scan.
    spare: values that the operation no longer needs.
    """

    type: str
    inputs: list[Value | None]
    own: int
    given: int
    bodies: dict[str, Graph]
    attrs: dict[str, Attr] = field(default_factory=dict[str, Attr])
    turned: dict[int, int] = field(default_factory=dict[int, int])
    spare: list[Value] = field(default_factory=list[Value])


@dataclass(frozen=True)
class _Slice:
    """A Gather of a body that takes the slice of its run out of an operand: the place of that among the captured."""

    node: Node
    place: int
    axis: int
    backwards: bool


def spelled(op: Op, inputs: Sequence[Value | None], may_scan: bool) -> Spelled:
    """Say an If or a Loop in ONNX: a Loop as a Scan, where it is one and that may be written."""
    if isinstance(op, Loop) and may_scan:
        found = _as_scan(op, [*inputs, None, None][: max(len(inputs), 2)])
        if found is not None:
            return found
    own, given, attributes = body_layout(op)
    return Spelled(op.name, list(inputs), own, given, dict(zip(attributes, op.regions, strict=True)))


def _as_scan(op: Loop, inputs: Sequence[Value | None]) -> Spelled | None:
    count, condition, *operands = inputs
    runs = None if count is None else count.dims()
    if runs is None or not op.never_ends_early(condition) or not _keeps_sizes(op):
        return None
    body, n = op.body.copy(), op.carried
    slices = _slices(body, n, operands)
    if not slices or any(_of(operands, n, s).shape[s.axis] != runs[0] for s in slices):
        return None
    number, going, *inner = body.inputs
    scanned: dict[tuple[int, int, bool], Value] = {}
    for s in slices:
        key = s.place, s.axis, s.backwards
        if key not in scanned:
            scanned[key] = body.new_value(f"{inner[n + s.place].name}_slice", s.node.outputs[0].type)
        body.replace_uses(s.node.outputs[0], scanned[key])
    body.replace_uses(going, body.add_constant(Constant.of(np.array(True)), "going"))
    body.outputs = body.outputs[1:]
    body.inputs = [*inner[:n], *scanned.values(), number, *inner[n:]]
    body.prune()
    if number.uses or body.keeps(number):
        return None
    captured = [k for k, v in enumerate(inner[n:]) if v.uses or body.keeps(v)]
    body.inputs = [*inner[:n], *scanned.values(), *(inner[n + k] for k in captured)]
    sources = [operands[n + place] for place, _, _ in scanned]
    attrs: dict[str, Attr] = {"num_scan_inputs": len(scanned)}
    if any(backwards for *_, backwards in scanned):
        attrs["scan_input_directions"] = [int(backwards) for *_, backwards in scanned]
    own = n + len(scanned)
    given = [*operands[:n], *sources, *(operands[n + k] for k in captured)]
    spare = [v for v in (count, condition, *operands[n:]) if v is not None]
    turned = {n + k: axis for k, (_, axis, _) in enumerate(scanned) if axis}
    return Spelled("Scan", given, own, own, {"body": body}, attrs, turned, spare)


def _of(operands: Sequence[Value | None], carried: int, s: _Slice) -> Value:
    found = operands[carried + s.place]
    assert found is not None
    return found


def _keeps_sizes(op: Loop) -> bool:
    """Tell whether every state keeps its type from run to run, as engines demand of a Scan."""
    body, n = op.body, op.carried
    pairs = zip(body.inputs[2 : 2 + n], body.outputs[1 : 1 + n], strict=True)
    return not body.extras.get(MADE) and all(before.type == after.type for before, after in pairs)


def _slices(body: Graph, carried: int, operands: Sequence[Value | None]) -> list[_Slice] | None:
    """Find what the body takes apart; None where the number of its run is used otherwise."""
    number, captured = body.inputs[0], body.inputs[2 + carried :]
    places = {v: k for k, v in enumerate(captured)}
    found: list[_Slice] = []
    for at, backwards in _numbers(body, number):
        for node in body.nodes:
            if at not in node.inputs or (at is number and node.op.name == "Sub"):
                continue
            data, axis = node.inputs[0], node.inputs[-1]
            if node.op.name != "Gather" or node.inputs[1] is not at or data is None or data not in places:
                return None
            known = None if axis is None else axis.ints()
            if not data.rank or known is None:
                return None
            along = normal_axis("Gather", known[0], data.rank)
            if backwards and not _counts_down(at, data, along):
                return None
            found.append(_Slice(node, places[data], along, backwards))
    return found


def _numbers(body: Graph, number: Value) -> Iterator[tuple[Value, bool]]:
    """Find what numbers a slice: the number of the run, and what a Sub makes of it, which counts backwards."""
    yield number, False
    for node in body.nodes:
        if node.op.name == "Sub" and node.inputs[1] is number and node.inputs[0] is not number:
            yield node.outputs[0], True


def _counts_down(at: Value, data: Value, axis: int) -> bool:
    """Tell whether what the number of the run is taken from is the place of the last slice."""
    assert at.producer is not None and at.producer.inputs[0] is not None
    last = at.producer.inputs[0].dims()
    return last is not None and last[0] == data.shape[axis] - 1


def drop_unused(graph: RawGraph, keys: Sequence[str]) -> None:
    """Leave out what computes these values, as far as nobody uses it."""
    left = list(keys)
    while left:
        key = left.pop()
        used = {v.key for v in graph.outputs} | set(_used(graph.nodes))
        if key in used:
            continue
        graph.constants.pop(key, None)
        node = next((n for n in graph.nodes if key in (v.key for v in n.outputs)), None)
        if node is not None and used.isdisjoint(v.key for v in node.outputs):
            graph.nodes.remove(node)
            left += [k for k in node.inputs if k]


def _used(nodes: Sequence[RawNode]) -> Iterator[str]:
    for node in nodes:
        yield from node.inputs
        for attr in node.attrs.values():
            if isinstance(attr, RawGraph):
                yield from (v.key for v in attr.outputs)
                yield from _used(attr.nodes)
