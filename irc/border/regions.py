"""If and Loop as OpenVINO has them: bodies over Parameters, joined to their layer by port maps and back edges."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from irc.formats.document import RawGraph
from irc.ir.graph import Constant, Graph, Value
from irc.ir.types import TensorType
from irc.opdef.base import Op
from irc.opdef.builder import Builder
from irc.opdef.regions import splice
from irc.ops.control import If, Loop

Entry = dict[str, str]


@dataclass
class Joined:
    """A layer with bodies: `bodies`, and the port maps and back edges, by the names that the file has for them.

    Entries name an input of a body `inN` and an output `outN`.
    """

    type: str
    since: int
    inputs: list[Value]
    bodies: dict[str, Graph]
    sections: dict[str, list[Entry]] = field(default_factory=dict[str, list[Entry]])


def join_layer(op: Op, inputs: Sequence[Value | None], graph: Graph) -> Joined | None:
    """Make of an If or a Loop what OpenVINO calls so; None where a value is no tensor.

    graph: gets the constants that operands become which OpenVINO demands.
    """
    values = [v for v in inputs if v is not None]
    values += [v for region in op.regions for v in (*region.inputs, *region.outputs)]
    if not all(isinstance(v.type, TensorType) for v in values):
        return None
    if isinstance(op, If):
        return _join_if(op, [v for v in inputs if v is not None])
    assert isinstance(op, Loop), f"{op.name} has regions and is no If"
    count, condition, *operands = [*inputs, None, None][: max(len(inputs), 2)]
    count = count or graph.add_constant(np.array(-1, np.int64), "trip_count")
    condition = condition or graph.add_constant(np.array(True), "condition")
    return _join_loop(op, [count, condition, *(v for v in operands if v is not None)])


def _join_if(op: If, inputs: list[Value]) -> Joined:
    needed = sorted({k for region in op.regions for k, v in enumerate(region.inputs) if v.uses or region.keeps(v)})
    inputs = [inputs[0], *(inputs[k + 1] for k in needed)]
    made = Joined("If", 8, inputs, {})
    for name, region in zip(("then", "else"), op.regions, strict=True):
        body = Graph(f"{name}_body")
        twins = {v: body.add_input(v.name, v.type) for v in region.inputs if v.uses or region.keeps(v)}
        body.outputs = splice(Builder(body), region, [twins.get(v) or v for v in region.inputs])
        places = [i for i, k in enumerate(needed) if region.inputs[k] in twins]
        entries = [_entry("input", k + 1, i) for i, k in enumerate(places)]
        entries += [_entry("output", len(inputs) + i, i) for i in range(len(body.outputs))]
        made.bodies[f"{name}_body"], made.sections[f"{name}_port_map"] = body, entries
    return made


def _join_loop(op: Loop, inputs: list[Value]) -> Joined:
    region, n = op.body, op.carried
    body = Graph("body")
    number, *operands = (region.inputs[0], *region.inputs[2:])
    counted = body.add_input("number", number.type) if number.uses or region.keeps(number) else None
    holds = body.add_constant(Constant.of(np.array(True)), "going")  # a body that runs has been told to
    used = [k for k, v in enumerate(operands) if k < n or v.uses or region.keeps(v)]
    inputs = [*inputs[:2], *(inputs[k + 2] for k in used)]
    twins = {operands[k]: body.add_input(operands[k].name, operands[k].type) for k in used}
    b = Builder(body, "body")
    given = [counted or number, holds, *(twins.get(v) or v for v in operands)]
    stays, *results = splice(b, region, given)
    stays = holds if op.goes_on() else stays
    body.outputs = [stays, *results[:n], *(b.Unsqueeze(v, [0]) for v in results[n:])]
    first = counted is not None
    entries = [_entry("input", i + 2, i + first) for i in range(len(used))]
    entries += [_entry("output", len(inputs) + i, i + 1) for i in range(n)]
    cut = {"axis": "0", "start": "0", "end": "-1", "stride": "1", "part_size": "1"}
    entries += [_entry("output", len(inputs) + i, i + 1, **cut) for i in range(n, len(results))]
    if counted is not None:
        entries.append(_entry("input", -1, 0, purpose="current_iteration"))
    entries.append(_entry("output", -1, 0, purpose="execution_condition"))
    edges = [{"from-layer": body_id("output", i + 1), "to-layer": body_id("input", i + first)} for i in range(n)]
    return Joined("Loop", 5, inputs, {"body": body}, {"port_map": entries, "back_edges": edges})


def _entry(kind: str, port: int, inner: int, **more: str) -> Entry:
    """An entry that joins a port of the layer to an input or an output of a body."""
    return {"kind": kind, "external_port_id": str(port), "internal_layer_id": body_id(kind, inner), **more}


def number_ends(body: RawGraph) -> None:
    """Give the inputs and outputs of a body the numbers by which the maps call them."""
    for kind, values in (("input", body.inputs), ("output", body.outputs)):
        for i, value in enumerate(values):
            value.extras["id"] = body_id(kind, i)


def body_id(kind: str, index: int) -> str:
    """The number by which the maps call an input or an output of a body; the writer numbers all layers anew."""
    return str(2 * index + (kind == "output"))
