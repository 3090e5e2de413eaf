"""Sequences whose elements are known one by one: what is taken out of them is taken from the elements.

Where all of a graph are, it has no sequences any more.  Positions and the sizes of parts must be known.
"""

from __future__ import annotations

from itertools import pairwise

import numpy as np

from irc.diagnostics import Sink
from irc.ir.graph import Graph, Node, Value
from irc.opdef.builder import Builder
from irc.ops.layout import normal_axis
from irc.ops.sequence import (
    ConcatFromSequence,
    SequenceAt,
    SequenceConstruct,
    SequenceEmpty,
    SequenceErase,
    SequenceInsert,
    SequenceLength,
    SplitToSequence,
)
from irc.passes import infer
from irc.passes.replace import put_in_place, replace_value

Lists = dict[Value, list[Value]]


def run(graph: Graph, sink: Sink) -> None:
    """Replace, in place, what is taken out of sequences of known elements, and infer the types behind it anew."""
    lists: Lists = {}
    replaced = False
    for node in graph.nodes:
        if replaced:
            infer.infer_at(node, sink)
        b = Builder(graph, node.name or node.op.name, node.loc, layers=node.layers)
        if (elements := _elements(b, node, lists)) is not None:
            lists[node.outputs[0]] = elements
        elif (taken := _taken(b, node, lists)) is not None:
            if not replace_value(graph, node.outputs[0], taken):
                put_in_place(graph, node.outputs[0], b.Identity(taken))
            replaced = True
    graph.prune()


def known_parts(b: Builder, op: SplitToSequence, x: Value, split: Value | None) -> list[Value] | None:
    """Cut x into the parts of SplitToSequence; None where their sizes are not known."""
    if x.rank is None:
        return None
    axis = normal_axis("SplitToSequence", op.axis, len(x.shape))
    size, lengths = x.shape[axis], None if split is None else split.ints()
    if not size.is_const or (split is not None and lengths is None):
        return None
    if lengths is None or split is None:
        sizes = [1] * int(size)
    elif split.rank:
        sizes = list(lengths)
    else:
        step = max(lengths[0], 1)
        sizes = [min(step, int(size) - k) for k in range(0, int(size), step)]
    ends = np.cumsum([0, *sizes]).tolist()
    parts = [b.Slice(x, [s], [e], [axis]) for s, e in pairwise(ends)]
    return [b.Squeeze(p, [axis]) for p in parts] if split is None and not op.keepdims else parts


def _elements(b: Builder, node: Node, lists: Lists) -> list[Value] | None:
    """Find the elements of the sequence that a node makes; None where they are not known, or it makes none."""
    op, first = node.op, node.inputs[0] if node.inputs else None
    if isinstance(op, SequenceEmpty):
        return []
    if isinstance(op, SequenceConstruct):
        return list(node.operands)
    if isinstance(op, SplitToSequence) and first is not None:
        split = node.inputs[1] if len(node.inputs) > 1 else None
        return known_parts(b, op, first, split)
    before = None if first is None else lists.get(first)
    if before is None:
        return None
    if isinstance(op, SequenceInsert):
        place = _place(node, 2, len(before), len(before))
        x = node.inputs[1]
        return None if place is None or x is None else [*before[:place], x, *before[place:]]
    if isinstance(op, SequenceErase):
        place = _place(node, 1, len(before), -1)
        return None if place is None else [*before[:place], *before[place + 1 :]]
    return None


def _place(node: Node, index: int, length: int, default: int) -> int | None:
    """Find the position that an operand tells, counted from the start; None where it is unknown or out of range."""
    operand = node.inputs[index] if index < len(node.inputs) else None
    given = [default] if operand is None else operand.ints()
    if not given:
        return None
    place = given[0] + length if given[0] < 0 else given[0]
    return place if 0 <= place < length + isinstance(node.op, SequenceInsert) else None


def _taken(b: Builder, node: Node, lists: Lists) -> Value | None:
    """Find what a node takes out of a sequence of known elements; None where that is not known."""
    op, first = node.op, node.inputs[0] if node.inputs else None
    elements = None if first is None else lists.get(first)
    if elements is None:
        return None
    if isinstance(op, SequenceLength):
        return b.const(len(elements))
    if isinstance(op, SequenceAt):
        place = _place(node, 1, len(elements), -1)
        return None if place is None else elements[place]
    if isinstance(op, ConcatFromSequence) and elements:
        if any(v.rank is None for v in elements):
            return None
        axis = normal_axis("ConcatFromSequence", op.axis, len(elements[0].shape) + op.new_axis)
        parts = [b.Unsqueeze(v, [axis]) for v in elements] if op.new_axis else elements
        return b.Concat(*parts, axis=axis)
    return None
