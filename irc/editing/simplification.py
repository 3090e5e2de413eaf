"""A smaller model of the same operations: constants computed, equal nodes merged, what nothing needs left out.

The document of the model is changed, not its graph: a node goes or stays as the file spells it.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from irc.arrays import Array
from irc.border.again import document_of, model_of
from irc.border.support import bodies_of, captured_keys
from irc.editing.branches import take_known
from irc.editing.extraction import needed_part
from irc.formats.document import RawGraph, RawModel, RawNode, RawTensor, RawValue
from irc.ir.graph import Graph, Model, Node, Origin, Value
from irc.ir.types import TensorType
from irc.opdef.base import Op
from irc.opdef.reference import run_reference
from irc.ops.control import If, Loop
from irc.ops.dropout import Dropout
from irc.ops.layout import Identity
from irc.ops.random import Random

SMALL = 1024
"""Bytes of a result up to which it may be larger than the constants that it is computed from."""
KINDS = "fiub"
"""Kinds of element types whose constants are computed."""


def simplify(model: Model) -> Model:
    """Make the model without what it does not need; the given one stays.

    Sizes and other values that do not depend on the inputs become constants, unless these were larger (weights that
    are stored compressed stay so).  Nodes of the same operation, attributes and operands become one, and nodes that
    give their operand on are left out.  Of an If whose condition is known the branch that runs is left; other bodies of
    loops and branches stay as they are.  Raises ConversionError.
    """
    raw = document_of(model)
    while True:
        raw = take_known(raw)
        before = len(raw.graph.nodes)
        raw = fold(raw)
        raw.graph = needed_part(_merged(raw.graph, _kept(raw)))
        if len(raw.graph.nodes) == before:
            return model_of(raw)


# ------------------------------------------------------------------------------ constants
def fold(raw: RawModel) -> RawModel:
    """Compute the nodes of a document whose results are constants, where these are not larger."""
    graph = raw.graph
    found: dict[Value, Array] = {}
    constants: dict[str, RawTensor] = {}
    leaving = {v.key for v in graph.outputs} | {k for n in graph.nodes for k in captured_keys(n)}
    read = model_of(raw).graph
    for origin, nodes in _origins(read):
        arrays = _constants(origin, nodes, found)
        if arrays is None or any(v.key in leaving for v in origin.raw.outputs):
            continue
        for value, result, array in zip(origin.raw.outputs, origin.outputs, arrays, strict=False):
            if value.key:
                found[result] = array
                constants[value.key] = _tensor(value, result, array)
    nodes = [n for n in graph.nodes if not any(v.key in constants for v in n.outputs)]
    if len(nodes) < len(graph.nodes):
        raw = replace(raw, graph=replace(graph, nodes=nodes, constants={**graph.constants, **constants}))
    return raw


def _origins(graph: Graph) -> Iterator[tuple[Origin, list[Node]]]:
    """The nodes of the file in order, with those of the graph that each became."""
    groups: dict[int, tuple[Origin, list[Node]]] = {}
    for node in graph.nodes:
        if node.origin is not None:
            groups.setdefault(id(node.origin), (node.origin, []))[1].append(node)
    yield from groups.values()


def _constants(origin: Origin, nodes: list[Node], found: dict[Value, Array]) -> list[Array] | None:
    """The results, where they are known without the inputs, and not too large; else None."""
    if not origin.inputs or not origin.outputs:
        return None
    if any(_is_fixed(n.op) or not _is_plain(v) for n in nodes for v in n.outputs):
        return None
    known = [_known(v, found) for v in origin.outputs]
    arrays = [a for a in known if a is not None]
    if len(arrays) < len(known):
        inputs = [None if v is None else _known(v, found) for v in origin.inputs]
        if any(a is None and v is not None for a, v in zip(inputs, origin.inputs, strict=True)):
            return None
        given = sum(a.nbytes for a in inputs if a is not None)
        if sum(_bytes(v) for v in origin.outputs) > max(SMALL, given):
            return None
        arrays = _computed(origin, nodes, found)
    return arrays


def _computed(origin: Origin, nodes: list[Node], found: dict[Value, Array]) -> list[Array] | None:
    """Run the nodes with their references; None where one of them needs something that is no constant."""
    own = dict(found)
    for node in nodes:
        operands = [None if v is None else _known(v, own) for v in node.inputs]
        if any(a is None and v is not None for a, v in zip(operands, node.inputs, strict=True)):
            return None
        own.update(zip(node.outputs, map(np.asarray, run_reference(node, operands)), strict=False))
    arrays = [_known(v, own) for v in origin.outputs]
    return None if any(a is None for a in arrays) else [a for a in arrays if a is not None]


def _known(value: Value, found: dict[Value, Array]) -> Array | None:
    array = found.get(value)
    return value.array if array is None else array


def _is_plain(value: Value) -> bool:
    """Whether a constant can stand for the value."""
    return isinstance(value.type, TensorType) and value.type.is_static and value.dtype.kind in KINDS


def _bytes(value: Value) -> int:
    return int(value.tensor.elements()) * value.dtype.itemsize


def _is_fixed(op: Op) -> bool:
    """Whether an operation is more than a function of its operands, or not understood."""
    return op.effect or op.at_run_only or isinstance(op, Random | Dropout | If | Loop) or bool(op.regions)


def _tensor(value: RawValue, result: Value, array: Array) -> RawTensor:
    typed = np.ascontiguousarray(np.asarray(array, result.dtype.numpy)).reshape(array.shape)
    name = value.names[0] if value.names else value.key
    return RawTensor(name, result.dtype, typed.shape, lambda: typed, value.loc, {"names": value.names})


# ---------------------------------------------------------------------------------- nodes
def _kept(raw: RawModel) -> dict[int, Node | None]:
    """By the id of each node that may be merged with an equal one: the only node that it became, if it is one."""
    found: dict[int, Node | None] = {}
    for origin, nodes in _origins(model_of(raw).graph):
        if not any(_is_fixed(n.op) for n in nodes) and not any(bodies_of(origin.raw)) and origin.inputs:
            found[id(origin.raw)] = nodes[0] if len(nodes) == 1 else None
    return found


def _merged(graph: RawGraph, plain: dict[int, Node | None]) -> RawGraph:
    """Leave out nodes that equal an earlier one, and those that give their operand on."""
    fixed = {v.key for v in graph.outputs} | {k for n in graph.nodes for k in captured_keys(n)}
    other: dict[str, str] = {}
    seen: dict[tuple[object, ...], RawNode] = {}
    nodes: list[RawNode] = []
    for node in graph.nodes:
        now = replace(node, inputs=[other.get(k, k) for k in node.inputs])
        keys = [v.key for v in node.outputs]
        if id(node) not in plain or any(k in fixed for k in keys):
            nodes.append(now)
            continue
        if _gives_on(plain[id(node)]) and now.inputs[0]:
            other[keys[0]] = now.inputs[0]
            continue
        said = (now.domain, now.type, now.version, tuple(now.inputs), repr(sorted(now.attrs.items())), _places(now))
        first = seen.setdefault(said, now)
        if first is now:
            nodes.append(now)
        else:
            other.update(zip(keys, (v.key for v in first.outputs), strict=True))
    return replace(graph, nodes=nodes)


def _places(node: RawNode) -> tuple[object, ...]:
    """Which results a node gives: some are left out."""
    return tuple(bool(v.key) for v in node.outputs), node.extras.get("overload", "")


def _gives_on(node: Node | None) -> bool:
    """Whether a node's only result is its first operand."""
    if node is None or len(node.outputs) != 1 or not node.inputs or node.inputs[0] is None:
        return False
    return isinstance(node.op, Identity)
