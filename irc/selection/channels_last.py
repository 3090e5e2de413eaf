"""Operations with the channels last as kernels: Conv and pools over one or two spatial axes."""

from __future__ import annotations

from irc.ir.graph import Node
from irc.layout.channels_last import ChannelsLast
from irc.ops.conv import Conv
from irc.ops.pool import AveragePool, MaxPool
from irc.selection import conv, pool
from irc.selection.select import Selection, Selector


def select_kernel(selector: Selector, node: Node) -> Selection | None:
    """Select a kernel for an operation with the channels last; None where loops compute it."""
    assert isinstance(node.op, ChannelsLast)
    op = node.op.op
    if isinstance(op, Conv):
        return conv.select_kernel(selector, node)
    return pool.select_kernel(selector, node) if isinstance(op, MaxPool | AveragePool) else None
