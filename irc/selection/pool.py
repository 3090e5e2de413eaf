"""MaxPool and AveragePool over planes as kernels."""

from __future__ import annotations

from typing import Any

from irc.fusion.access import ZERO, Space, find, row_major
from irc.fusion.epilogues import Tail
from irc.ir.graph import Node
from irc.kernels import acc, select_pool
from irc.opdef.window import spatial, window_padding
from irc.selection.select import Claim, Claimer, worthwhile


def claim(claimer: Claimer, node: Node) -> Claim | None:
    """A kernel for a pool over two axes whose indices nobody wants; None where loops do it."""
    op: Any = node.op
    x, y = node.inputs[0], node.outputs[0]
    assert x is not None
    unwanted = all(not v.uses and v not in claimer.graph.outputs for v in node.outputs[1:])
    if len(x.shape) != 4 or not unwanted or not worthwhile(*y.shape, *map(y.shape[0].of, op.kernel)):
        return None
    window = (int(op.kernel[0]), int(op.kernel[1]))
    strides = spatial(op.name, "strides", op.strides, 2, 1)
    dilations = spatial(op.name, "dilations", op.dilations, 2, 1)
    begin, end = window_padding(op, x.shape[2:], window)
    if any(not d.is_const or int(d) < 0 for d in (*begin, *end)):
        return None
    if node.op.name == "MaxPool" and any(int(p) >= w for p, w in zip((*begin, *end), window * 2, strict=True)):
        return None  # a window may see padding only
    mode = "max" if node.op.name == "MaxPool" else "average"
    counted: Any = getattr(op, "counted", "inside")
    pair = ((strides[0], strides[1]), (dilations[0], dilations[1]))
    kernel = select_pool(claimer.isa, y.dtype, mode, window, *pair, counted)
    if kernel is None:
        return None
    space, rows = Space(x.shape), row_major(x.shape)[2:]
    source = next(a for a in find(claimer.elements, space, x, space.at) if a.strides[2:] == rows)
    to = row_major(y.shape)
    sizes = {
        "batch": y.shape[0],
        "channels": y.shape[1],
        "ih": x.shape[2],
        "iw": x.shape[3],
        "oh": y.shape[2],
        "ow": y.shape[3],
        "pad_h": begin[0],
        "pad_w": begin[1],
        "end_h": end[0],
        "end_w": end[1],
        "x_batch": source.strides[0],
        "x_channel": source.strides[1],
        "y_batch": to[0],
        "y_channel": to[1],
    }
    return Claim(kernel, [(source.value, source.offset)], sizes, ZERO, y, Tail(y, acc(y.dtype)))
