"""Activations between kernels of one bf16 term, stored as bf16: half the memory traffic, and nothing to round.

A kernel of one term rounds its input to bf16, whoever made it; so a value that only such kernels read may be rounded
when it is written.  Others that read it then see it rounded, which is what one term promises of any factor: Winograd's
convolution (which rounds transformed inputs), depthwise convolutions, residual sums in an epilogue, and a call with few
rows of a product whose number of rows is symbolic.  All of them add up in f32.  Maxima, and what only moves elements,
choose among the same values before or after rounding.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from irc.ir.graph import Graph, Node, Value
from irc.ir.types import TensorType, bf16, f32
from irc.kernels.core.base import Kernel
from irc.layout.channels_last_op import ChannelsLast
from irc.layout.destination import Destination, DestinationPart
from irc.layout.transposed_conv import Interleave
from irc.ops.concat import Concat, Split
from irc.ops.layout import Reshape, Transpose
from irc.ops.slice import Slice
from irc.selection.selector import KernelOp

MOVES = Concat | Interleave | DestinationPart | Reshape | Slice | Split | Transpose
"""Operations whose results are elements of their operands."""


def run(graph: Graph) -> int:
    """Store values as bf16 in place. Returns how many."""
    found = {v for v in graph.values() if v.producer is not None and v.uses and _is_f32(v)} - set(graph.outputs)
    while True:
        kept = {v for v in found if _written(v, found) and all(_read(v, node, found) for node in v.uses)}
        if kept == found:
            break
        found = kept
    for value in found:
        value.type = TensorType(bf16, value.shape)
    for node in graph.nodes:
        if isinstance(node.op, KernelOp):
            kernel, part_of = node.op.kernel, node.op.part_of
            operands = frozenset(
                i for i, v in enumerate(node.inputs) if v in found and i != part_of and _reads(kernel, i)
            )
            node.op = replace(node.op, kernel=kernel.with_bf16(operands, node.outputs[0] in found))
        elif isinstance(node.op, Destination) and node.outputs[0] in found:
            node.op = replace(node.op, dtype=bf16)
    return len(found)


def _is_f32(v: Value) -> bool:
    return isinstance(v.type, TensorType) and v.type.shape is not None and v.dtype == f32


def _written(v: Value, found: set[Value]) -> bool:
    """Tell whether the producer of a value may write it as bf16."""
    node = v.producer
    assert node is not None
    if isinstance(node.op, Destination):
        return True
    if not isinstance(node.op, KernelOp):
        return _is_move(node, found)
    kernel = node.op.kernel
    if node.op.part_of is not None and node.inputs[node.op.part_of] not in found:
        return False
    if kernel.keeps_elements:
        return node.inputs[0] in found
    return kernel.writes_bf16(dict(zip(kernel.sizes, node.op.sizes, strict=True)))


def _read(v: Value, node: Node, found: set[Value]) -> bool:
    """Tell whether a node may read a value as bf16."""
    if not isinstance(node.op, KernelOp):
        return _is_move(node, found)
    kernel, part_of = node.op.kernel, node.op.part_of

    def may(place: int) -> bool:
        if place == part_of or kernel.keeps_elements:
            return node.outputs[0] in found
        return kernel.reads_bf16(place)

    return all(may(i) for i, x in enumerate(node.inputs) if x is v)


def _is_move(node: Node, found: set[Value]) -> bool:
    """Tell whether a node moves elements between values that will all be stored as bf16."""
    op = node.op.op if isinstance(node.op, ChannelsLast) else node.op
    return isinstance(op, MOVES) and all(v in found for v in (*node.outputs, *node.operands) if v.dtype == f32)


def _reads(kernel: Kernel[Any], operand: int) -> bool:
    return kernel.keeps_elements or kernel.reads_bf16(operand)
