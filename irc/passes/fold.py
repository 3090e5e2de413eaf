"""Computes at compile time what depends on constants only, with the operations' references."""

from __future__ import annotations

import numpy as np

from irc.arrays import Array
from irc.ir.dim import Dim, DimLike
from irc.ir.graph import Constant, Graph, Node, Value
from irc.ir.limits import constant_memory
from irc.ir.types import TensorType, boolean
from irc.opdef.builder import infer_node, keep
from irc.opdef.reference import run_reference
from irc.passes.infer import substitute, told
from irc.passes.replace import put_in_place

LARGEST = 16 << 20
"""Bytes of a result up to which it is always folded."""
GROWTH = 4
"""A larger one may be this many times as large as the operands (a decompressed weight).  All together may grow by this
many times the constants of the file and by `irc.ir.limits.constant_memory()`; the rest is computed when the model runs.
"""
SMALL = 512
"""Bytes of a result that may be sizes or paddings."""
MEMORY_LEFT = "constant memory left"
"""Key in a graph's extras: by how many bytes constants may still grow."""


def run(graph: Graph, small: bool = False) -> int:
    """Fold nodes in place. Returns how many were removed.

    small: only what few bytes hold, as sizes and paddings do, and no weights: what bytes or fewer bits are turned into,
    but single numbers.
    """
    folded = 0
    if MEMORY_LEFT not in graph.extras:
        graph.extras[MEMORY_LEFT] = constant_memory() + GROWTH * sum(map(_bytes, graph.constants()))
    sizes: dict[str, DimLike] = {}  # symbols of which the run was to tell what they are, and which are known now
    better: set[Value] = set()  # values whose types say more than when their users were inferred
    made: set[Value] = set()  # values that are constants now, of which sizes of other values may be told
    for node in graph.nodes:
        if better.intersection(node.operands) or _unsized(node) or (made.intersection(node.operands) and _varies(node)):
            before = [v.type for v in node.outputs]
            infer_node(node)
            for value, known in zip(node.outputs, before, strict=True):
                keep(value, known)
            better.update(v for v, known in zip(node.outputs, before, strict=True) if v.type != known)
            for value, known in zip(node.outputs, before, strict=True):
                sizes |= told(known, value.type)
            made.update(new for v in node.outputs if (new := contents_of(graph, v)) is not None)
        if foldable(node) and not (small and _is_large(node)):
            growth = sum(map(_bytes, node.outputs)) - _operand_bytes(node)
            if growth <= graph.extras[MEMORY_LEFT]:
                graph.extras[MEMORY_LEFT] -= max(growth, 0)
                made.update(fold(graph, node))
                folded += 1
    if sizes:
        substitute(graph, sizes)
    return folded


def _unsized(node: Node) -> bool:
    """Tell whether sizes of a result were unknown although all operands are constants now."""
    return bool(node.inputs) and all(v.const is not None for v in node.operands) and _varies(node)


def _varies(node: Node) -> bool:
    """Tell whether sizes of a result are not known as numbers."""
    return any(isinstance(v.type, TensorType) and not v.type.is_static for v in node.outputs)


def _is_large(node: Node) -> bool:
    """Tell whether a node has more results than sizes are, or dequantizes weights."""
    if max(map(_bytes, node.outputs)) > SMALL:
        return True
    narrow = any(v.dtype.bits <= 8 and v.dtype != boolean for v in node.operands)
    return narrow and any(v.tensor.elements() != 1 for v in node.outputs)


def foldable(node: Node) -> bool:
    """Tell whether all operands are constants and the results are tensors of reasonable size."""
    if node.op.effect or node.op.at_run_only or not node.inputs or any(v.const is None for v in node.operands):
        return False
    return is_reasonable(node)


def is_reasonable(node: Node) -> bool:
    """Tell whether results are tensors, of known shapes, that are not much larger than the operands."""
    given = _operand_bytes(node)
    for value in node.outputs:
        if not isinstance(value.type, TensorType) or not value.type.is_static or value.dtype.kind not in "fiubs":
            return False
        if _bytes(value) > max(LARGEST, GROWTH * given):
            return False
    return True


def _operand_bytes(node: Node) -> int:
    """Add up the bytes of a node's operands, each counted once."""
    return sum(map(_bytes, set(node.operands)))


def _bytes(value: Value) -> int:
    return int(value.tensor.elements()) * value.dtype.itemsize


def fold(graph: Graph, node: Node) -> list[Value]:
    """Replace a node's results by constants. Returns these."""
    results = run_reference(node, [None if v is None else v.array for v in node.inputs])
    made = [make_constant(graph, v, np.asarray(array)) for v, array in zip(node.outputs, results, strict=False)]
    graph.remove(node)
    return made


def contents_of(graph: Graph, value: Value) -> Value | None:
    """Replace a value by a constant, where its elements are known as numbers and asked for. Returns the constant."""
    if value.contents is None or value.assumed or (not value.uses and not graph.keeps(value)):
        return None
    if not all(Dim.of(d).is_const for d in value.contents.flat):
        return None
    numbers = np.array([int(d) for d in value.contents.flat], object).reshape(value.contents.shape)
    return make_constant(graph, value, numbers.astype(value.dtype.numpy))


def make_constant(graph: Graph, value: Value, array: Array) -> Value:
    """Put a constant in the place of a value, under its name."""
    new = graph.add_constant(Constant.of(array, value.dtype), value.name)
    put_in_place(graph, value, new)
    return new
