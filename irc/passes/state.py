"""State as inputs and outputs: every variable becomes an extra input and an extra output.

ONNX has no state; the model's metadata then says which output feeds which input (`irc.state`).
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from irc.arrays import Array
from irc.diagnostics import Problem, Sink
from irc.diagnostics.codes import conversion
from irc.ir.graph import Graph, Model, Node, Value
from irc.ir.types import TensorType
from irc.opdef.builder import Builder
from irc.opdef.reference import run_reference
from irc.ops.cast import Cast
from irc.ops.layout import Identity, Reshape, Squeeze, Transpose, Unsqueeze
from irc.ops.shape import Expand, Tile
from irc.ops.state import Assign, ReadValue

METADATA = "irc.state"


def make_states_explicit(graph: Graph, sink: Sink) -> list[tuple[Value, Value, Array | None]]:
    """Replace every ReadValue by a new input and every Assign by a new output, in place.

    For each variable, in order of its first ReadValue: (input, output, initial value or None for zeros).
    An initial value that depends on the model's inputs is a finding (IRC4101).
    """
    reads: dict[str, list[Node]] = {}
    writes: dict[str, Node] = {}
    for node in graph.nodes:
        if isinstance(node.op, ReadValue):
            reads.setdefault(node.op.variable_id, []).append(node)
        elif isinstance(node.op, Assign):
            writes[node.op.variable_id] = node
    found: list[tuple[Value, Value, Array | None]] = []
    for variable, nodes in reads.items():
        try:
            initial = initial_value(variable, nodes[0].inputs[0] if nodes[0].inputs else None)
        except Problem as p:
            sink.report(p.code, nodes[0].loc, p.notes, **p.facts)
            initial = None
        entry = graph.add_input(variable, nodes[0].outputs[0].type)
        for node in nodes:
            graph.replace_uses(node.outputs[0], entry)
            graph.remove(node)
        found.append((entry, _following(graph, variable, writes.get(variable), entry), initial))
    graph.prune()
    return found


def _following(graph: Graph, variable: str, write: Node | None, entry: Value) -> Value:
    """Add an output for a variable's next value: the operand of Assign, without one the value that was read."""
    source = entry if write is None else write.inputs[0]
    assert source is not None
    if write is not None:
        graph.replace_uses(write.outputs[0], source)
        graph.sinks.remove(write)
        graph.remove(write)
    following = Builder(graph, f"{variable}_next").Identity(source)
    following.name = graph.fresh_name(f"{variable}_next")
    graph.outputs.append(following)
    return following


def initial_value(variable: str, init: Value | None) -> Array | None:
    """Return the data of a variable's initial value; None if it is zeros of whatever shape."""
    if init is None or _is_zero(init):
        return None
    array = _constant(init)
    if array is None:
        raise Problem(conversion.STATE_INITIAL, variable=variable)
    return array if np.any(array) else None


def _is_zero(value: Value) -> bool:
    """Tell whether every element is 0, even if the shape is known only when the model runs."""
    if value.const is not None:
        return value.dtype.kind in "iufb" and not np.any(value.const.array)
    node = value.producer
    moves = Expand | Reshape | Identity | Unsqueeze | Squeeze | Tile | Cast | Transpose
    return node is not None and isinstance(node.op, moves) and node.inputs[0] is not None and _is_zero(node.inputs[0])


def _constant(value: Value) -> Array | None:
    """Compute a value from constants; None if it depends on an input."""
    if value.const is not None:
        return value.const.array
    node = value.producer
    if node is None or node.op.effect:
        return None
    args = [None if v is None else _constant(v) for v in node.inputs]
    if any(a is None and v is not None for a, v in zip(args, node.inputs, strict=True)):
        return None
    return run_reference(node, args)[value.index]


def explicit(model: Model, sink: Sink) -> Model:
    """Make a model whose states are inputs and outputs, as its metadata says; without state, return it itself.

    The given model is not changed.  Findings: IRC4101.
    """
    if not any(isinstance(n.op, ReadValue | Assign) for n in model.graph.nodes):
        return model
    graph = model.graph.copy()
    declared = list(graph.extras.get("outputs", []))
    states = make_states_explicit(graph, sink)
    graph.extras["outputs"] = declared
    rows = [[i.name, o.name, None if a is None else _numbers(a)] for i, o, a in states]
    return replace(model, graph=graph, metadata={**model.metadata, METADATA: json.dumps(rows)})


def initial_values(metadata: Mapping[str, str]) -> dict[str, Any]:
    """Read the initial values of the inputs that stand for state, by name; None is zeros."""
    return {name: initial for name, _, initial in json.loads(metadata.get(METADATA, "[]"))}


def initial_array(type: TensorType, initial: Any, unknown: int = 0) -> Array:
    """Make the array that a state begins with.  unknown: the extent of dimensions without a size."""
    shape = tuple(int(d) if d.is_const else unknown for d in type.dims() or ())
    return (
        np.zeros(shape, type.dtype.numpy) if initial is None else np.asarray(initial, type.dtype.numpy).reshape(shape)
    )


def _numbers(array: Array) -> Any:
    return np.asarray(array, np.float64).tolist() if array.dtype.kind not in "iub" else array.tolist()
