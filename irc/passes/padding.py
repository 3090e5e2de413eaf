"""Padding with zeros in front of a convolution as the convolution's own.

Exporters write padding that differs at both ends, or that they computed, as a Pad: all of the input would be copied.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from irc.ir.graph import Graph, Node, Value
from irc.opdef.base import Op
from irc.opdef.builder import Builder
from irc.ops.conv import Conv, GroupedConv
from irc.ops.pad import Pad, PadEach, axis_padding
from irc.passes.simplify import Rule, is_all


def padded(graph: Graph, node: Node) -> Value | None:
    """Compute a convolution of what a Pad reads, with its zeros as padding."""
    x, op = node.inputs[0], node.op
    source = None if x is None else x.producer
    zeros = None if source is None else _zeros_around(source)
    assert isinstance(op, Conv | GroupedConv)
    if source is None or zeros is None or op.auto_pad not in ("explicit", "valid"):
        return None
    if any(pads != (0, 0) for pads in zeros[:2]) or min(map(min, zeros)) < 0:
        return None
    own = op.auto_pad == "explicit"
    before = op.pads_begin if own and op.pads_begin else (0,) * (len(zeros) - 2)
    after = op.pads_end if own and op.pads_end else (0,) * (len(zeros) - 2)
    begin = tuple(p + q for p, (q, _) in zip(before, zeros[2:], strict=True))
    end = tuple(p + q for p, (_, q) in zip(after, zeros[2:], strict=True))
    b = Builder(graph, node.name or op.name, node.loc)
    changed = replace(op, auto_pad="explicit", pads_begin=begin, pads_end=end)
    return b.add(changed, source.inputs[0], *node.inputs[1:])


def _zeros_around(node: Node) -> list[tuple[int, int]] | None:
    """Find how many zeros a node puts before and after each axis, if it does nothing else."""
    op, (x, *operands) = node.op, node.inputs
    if not isinstance(op, Pad | PadEach) or op.mode != "constant" or x is None or x.rank is None:
        return None
    pads, (value, axes) = operands[:1], (*operands[1:], None, None)[:2]
    if isinstance(op, PadEach):
        pads, value, axes = operands[:2], (*operands[2:], None)[0], None
    numbers = [None if v is None else v.ints() for v in (*pads, axes)]
    if (value is not None and not is_all(value, 0.0)) or any(n is None for n in numbers[: len(pads)]):
        return None
    if axes is not None and numbers[-1] is None:
        return None
    found = axis_padding(x.rank, [p for n in numbers[: len(pads)] for p in n or ()], numbers[-1])
    return [(int(first), int(last)) for first, last in found]


RULES: Mapping[type[Op], Sequence[Rule]] = {Conv: [padded], GroupedConv: [padded]}
