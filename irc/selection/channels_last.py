"""Operations with the channels last as kernels: Conv and pools over one or two spatial axes."""

from __future__ import annotations

from typing import Any

from irc.fusion.access import ZERO
from irc.fusion.epilogues import Tail
from irc.ir.dim import Dim
from irc.ir.graph import Node
from irc.kernels import Epilogue, select_pool_last
from irc.opdef.window import window_padding
from irc.selection import conv
from irc.selection.planes import Planes, input_of, planes_of
from irc.selection.select import Claim, Claimer, worthwhile


def claim(claimer: Claimer, node: Node) -> Claim | None:
    """A kernel for an operation with the channels last, or None where loops do it."""
    wrapped: Any = node.op
    op: Any = wrapped.op
    if op.name == "Conv":
        return conv.claim(claimer, node)
    return _pool(claimer, node, op) if op.name in ("MaxPool", "AveragePool") else None


def _pool(claimer: Claimer, node: Node, op: Any) -> Claim | None:
    """A pool whose indices nobody wants; whether a window may see nothing but padding is for loops to say."""
    x, out = node.inputs[0], node.outputs[0]
    assert x is not None
    planes = planes_of(op, "nhwc", x, out, op.kernel)
    wanted = any(v.uses or v in claimer.graph.outputs for v in node.outputs[1:])
    if planes is None or wanted or not worthwhile(*out.shape, *map(Dim.of, op.kernel)):
        return None
    begin, end = window_padding(op, x.shape[1:-1], op.kernel)
    if any(not d.is_const or int(d) < 0 for d in (*begin, *end)):
        return None
    if any(int(p) >= w for p, w in zip((*begin, *end), (*op.kernel, *op.kernel), strict=True)):
        return None
    tail = claimer.collector.tail(out, [], planes.fits)
    epilogue = Epilogue(tail.expr, tuple(planes.axes(s) for s in tail.slots))
    mode: Any = "max" if op.name == "MaxPool" else "average"
    counted: Any = getattr(op, "counted", "inside")
    window = (planes.window, planes.strides, planes.dilations)
    kernel = select_pool_last(claimer.isa, out.dtype, mode, *window, counted, epilogue, planes.result[1])
    if kernel is None:
        return None
    source = input_of(claimer, planes, x)
    x_batch, _, x_row, x_pixel = planes.x_strides(source)
    y_batch, _, y_pixel = planes.y_strides(tail.value.shape)
    sizes = {"batch": planes.batch, "channels": planes.channels, "ih": planes.size[0], "iw": planes.size[1]}
    sizes |= {"oh": planes.result[0], "ow": planes.result[1], "x_batch": x_batch, "x_row": x_row, "x_pixel": x_pixel}
    sizes |= {"pad_h": planes.before[0], "pad_w": planes.before[1], "end_h": planes.after[0], "end_w": planes.after[1]}
    sizes |= {"y_batch": y_batch, "y_pixel": y_pixel} | slot_strides(planes, tail, epilogue)
    operands = [(source.value, source.offset), *((s.value, s.offset) for s in tail.slots)]
    return Claim(kernel, operands, sizes, ZERO, tail.value, tail)


def slot_strides(planes: Planes, tail: Tail, epilogue: Epilogue) -> dict[str, Dim]:
    """The sizes that say where the operands of an epilogue stand."""
    sizes: dict[str, Dim] = {}
    for k, (kind, s) in enumerate(zip(epilogue.slots, tail.slots, strict=True)):
        sizes[f"s{k}_batch"] = s.strides[0]
        if kind in ("column", "full"):
            sizes[f"s{k}_pixel"] = planes.pixel(s.strides) or ZERO
    return sizes
