"""Results that depend on constants only, as constants: for files, which should not grow by it."""

from __future__ import annotations

import numpy as np

from irc.arrays import Array
from irc.ir.graph import Constant, Graph, Node, Value
from irc.ir.types import TensorType
from irc.opdef.reference import run_reference

SMALL = 1024
"""Bytes of results up to which they may be larger than the constants that they are computed from."""
AT_ONCE = 1 << 16
"""Bytes of results up to which they are computed at once; larger ones when they are written."""
KINDS = "fiub"
"""Kinds of element types whose constants are computed."""


def fold_constants(graph: Graph) -> int:
    """Put constants in the place of what is computed from constants, unless the file grows by it.

    It does where these are smaller (compressed weights), or stay because something else reads them (tied weights).
    Returns how many nodes were removed.  Outputs of the graph stay computed.
    """
    before = len(graph)
    for node in graph.nodes:
        if any(graph.keeps(v) for v in node.outputs):
            continue
        for value, constant in zip(node.outputs, _constants(node), strict=False):
            graph.replace_uses(value, graph.add_constant(constant, value.name))
    graph.prune()
    return before - len(graph)


def _constants(node: Node) -> list[Constant]:
    """The results as constants; none where they are unknown, larger than the operands, or may differ in each run."""
    if node.op.effect or node.op.draws or node.op.at_run_only or node.op.regions or not node.inputs:
        return []
    if any(v.const is None for v in node.operands) or not all(_is_plain(v) for v in node.outputs):
        return []
    size = sum(map(_bytes, node.outputs))
    if size > SMALL and size > sum(_bytes(v) for v in set(node.operands) if not _is_read_as_it_is(v)):
        return []
    if size > AT_ONCE and len(node.outputs) == 1:
        (value,) = node.outputs
        shape = tuple(map(int, value.shape))
        return [Constant(value.dtype, shape, lambda: _computed(node)[0])]
    return [Constant.of(a, v.dtype) for a, v in zip(_computed(node), node.outputs, strict=True)]


def _computed(node: Node) -> list[Array]:
    arrays = run_reference(node, [None if v is None else v.array for v in node.inputs])
    return [np.ascontiguousarray(a).reshape(np.shape(a)) for a in arrays]


def _is_plain(value: Value) -> bool:
    """Whether a constant can stand for the value."""
    return isinstance(value.type, TensorType) and value.type.is_static and value.dtype.kind in KINDS


def _is_read_as_it_is(constant: Value) -> bool:
    """Whether the file has the constant also when all that can be computed from constants is."""
    return any(v.const is None for user in constant.uses for v in user.operands)


def _bytes(value: Value) -> int:
    return int(value.tensor.elements()) * value.dtype.itemsize
