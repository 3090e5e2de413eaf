"""Conv as a kernel: one or two spatial axes, constant weights, any groups, strides, dilations and padding."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from irc.fusion.access import ZERO, Access, Space, find, row_major
from irc.fusion.epilogues import Tail, merged
from irc.ir.dim import Dim
from irc.ir.graph import Constant, Node, Value
from irc.kernels import Epilogue, select_conv, select_depthwise
from irc.opdef.window import spatial, window_padding
from irc.selection.select import Claim, Claimer, worthwhile

ONE = Dim.of(1)


@dataclass
class Window:
    """A convolution over planes; one spatial axis is a plane of one row."""

    batch: Dim
    channels: int  # of the input
    outputs: int
    groups: int
    size: tuple[Dim, Dim]
    result: tuple[Dim, Dim]
    kernel: tuple[int, int]
    strides: tuple[int, int]
    dilations: tuple[int, int]
    padding: tuple[Dim, Dim]
    flat: bool  # one spatial axis

    def pixel(self, access: Access) -> Dim | None:
        """The stride of a slot along the pixels of a plane of the result; None where it is not one stride."""
        axes = merged(access_shape(self), access.strides[2:])
        return ZERO if not axes else axes[0][1] if len(axes) == 1 else None


def access_shape(w: Window) -> tuple[Dim, ...]:
    return w.result[1:] if w.flat else w.result


def claim(claimer: Claimer, node: Node) -> Claim | None:
    """A kernel for a Conv, or None where loops do it."""
    x, weights, *rest = node.inputs
    assert x is not None and weights is not None
    w = _window(node, x, weights)
    if w is None or weights.const is None:
        return None
    depth = w.channels // w.groups * w.kernel[0] * w.kernel[1]
    if not worthwhile(w.batch, Dim.of(w.outputs), Dim.of(depth), *w.result):
        return None
    out = node.outputs[0]
    bias: list[Access] = []
    if rest and rest[0] is not None:
        space = Space(out.shape)
        found = find(claimer.elements, space, rest[0], (space.at[1],))
        bias = found[-1:]
    tail = claimer.collector.tail(out, bias, lambda access: w.pixel(access) in (0, 1))
    return _chosen(claimer, w, x, weights.const, weights, tail)


def _window(node: Node, x: Value, weights: Value) -> Window | None:
    """The geometry, where it is one the kernels know."""
    op: Any = node.op
    rank = len(x.shape) - 2
    if rank not in (1, 2) or not weights.tensor.is_static or not x.shape[1].is_const:
        return None
    kernel = tuple(int(d) for d in weights.shape[2:])
    strides = spatial("Conv", "strides", op.strides, rank, 1)
    dilations = spatial("Conv", "dilations", op.dilations, rank, 1)
    padding, _ = window_padding(op, x.shape[2:], kernel)
    out = node.outputs[0].shape

    def pair(values: Sequence[Any], one: Any) -> tuple[Any, Any]:
        return (one, values[0]) if rank == 1 else (values[0], values[1])

    return Window(
        out[0],
        int(x.shape[1]),
        int(weights.shape[0]),
        op.group,
        pair(x.shape[2:], ONE),
        pair(out[2:], ONE),
        pair(kernel, 1),
        pair(strides, 1),
        pair(dilations, 1),
        pair(padding, ZERO),
        rank == 1,
    )


def _input(claimer: Claimer, w: Window, x: Value) -> Access:
    """The input: rows without gaps, one after the other; images and channels at any distance."""
    space = Space(x.shape)
    rows = row_major(x.shape)[2:]
    return next(a for a in find(claimer.elements, space, x, space.at) if a.strides[2:] == rows)


def _chosen(claimer: Claimer, w: Window, x: Value, weights: Constant, source: Value, tail: Tail) -> Claim:
    """The kernel selected, sizes by name."""
    dtype = tail.value.dtype
    kinds = [_kind(w, s) for s in tail.slots]
    epilogue = Epilogue(tail.expr, tuple(kinds))
    from_ = _input(claimer, w, x)
    to = row_major(tail.value.shape)
    sizes: dict[str, Any] = {
        "batch": w.batch,
        "ih": w.size[0],
        "iw": w.size[1],
        "oh": w.result[0],
        "ow": w.result[1],
        "pad_h": w.padding[0],
        "pad_w": w.padding[1],
        "x_batch": from_.strides[0],
        "x_channel": from_.strides[1],
        "y_batch": to[0],
        "y_channel": to[1],
    }
    for k, (kind, s) in enumerate(zip(kinds, tail.slots, strict=True)):
        sizes[f"s{k}_batch"] = s.strides[0]
        if kind in ("column", "full"):
            sizes[f"s{k}_channel"] = s.strides[1]
    kernel: Any = None
    if w.groups == w.channels == w.outputs:
        kernel = select_depthwise(claimer.isa, dtype, w.kernel, w.strides, w.dilations, epilogue)
    if kernel is not None:
        sizes["channels"] = w.channels
        packing, pack = "depthwise", kernel.pack_weights
    else:
        inside, outside = w.channels // w.groups, w.outputs // w.groups
        depth, pixels = inside * w.kernel[0] * w.kernel[1], w.result[0] * w.result[1]
        kernel = select_conv(claimer.isa, dtype, outside, depth, pixels, w.strides[1], epilogue)
        names = ("kh", "kw", "stride_h", "stride_w", "dilation_h", "dilation_w")
        sizes |= dict(zip(names, (*w.kernel, *w.strides, *w.dilations), strict=True))
        sizes |= {"groups": w.groups, "ic": inside, "oc": outside}
        packing = (kernel.tile, kernel.panels, w.groups)

        def pack(array: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
            return kernel.pack_weights(array, w.groups)

    shape = (w.outputs, w.channels // w.groups, *w.kernel)
    elements = int(np.prod(shape))

    def packed() -> np.ndarray[Any, Any]:
        return pack(weights.array.reshape(shape)).reshape(-1)

    constant = claimer.packed((source, packing), packed, dtype, elements, source.name)
    operands = [(from_.value, from_.offset), (constant, ZERO), *((s.value, s.offset) for s in tail.slots)]
    return Claim(kernel, operands, sizes, ZERO, tail.value, tail)


def _kind(w: Window, access: Access) -> Any:
    channel, pixel = access.strides[1], w.pixel(access)
    if pixel == 0:
        return "scalar" if channel == 0 else "column"
    return "row" if channel == 0 else "full"
