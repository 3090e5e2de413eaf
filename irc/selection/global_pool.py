"""ReduceMean and ReduceMax of whole planes as kernels, wherever the channels stand."""

from __future__ import annotations

from typing import Any

from irc.fusion.access import ZERO, Access, Space, find
from irc.fusion.epilogues import Tail, merged
from irc.ir.dim import Dim, product
from irc.ir.graph import Node
from irc.kernels import acc, plain, select_global_pool, select_global_pool_last
from irc.selection.select import Claim, Claimer, worthwhile

MODES = {"ReduceMean": "average", "ReduceMax": "max"}


def claim(claimer: Claimer, node: Node) -> Claim | None:
    """A kernel for a reduction of [batch, channels, *space] over the space; None where loops do it."""
    op: Any = node.op
    x, y = node.inputs[0], node.outputs[0]
    axes = node.inputs[1].ints() if len(node.inputs) > 1 and node.inputs[1] is not None else None
    if x is None or axes is None or len(x.shape) not in (3, 4, 5):
        return None
    rank = len(x.shape)
    if sorted(a % rank for a in axes) != list(range(2, rank)) or not worthwhile(*x.shape):
        return None
    space = Space(x.shape)
    for source in find(claimer.elements, space, x, space.at):
        pixels = merged(x.shape[2:], source.strides[2:]) or [(Dim.of(1), ZERO)]
        if len(pixels) == 1:
            made = _chosen(claimer, MODES[op.name], source, pixels[0][1], x.shape, y.dtype)
            if made is not None:
                kernel, sizes = made
                return Claim(kernel, [(source.value, source.offset)], sizes, ZERO, y, Tail(y, acc(y.dtype)))
    return None


def _chosen(
    claimer: Claimer, mode: Any, source: Access, pixel: Dim, shape: tuple[Dim, ...], dtype: Any
) -> tuple[Any, dict[str, Dim]] | None:
    """The kernel and its sizes, for planes whose pixels, or pixels whose channels, stand side by side."""
    batch, channels, *planes = shape
    pixels = product(planes)
    if pixel in (0, 1):
        sizes = {"batch": batch, "channels": channels, "n": pixels}
        sizes |= {
            "x_batch": source.strides[0],
            "x_channel": source.strides[1],
            "y_batch": channels,
            "y_channel": Dim.of(1),
        }
        kernel: Any = select_global_pool(claimer.isa, dtype, mode)
    elif source.strides[1] in (0, 1):
        sizes = {"batch": batch, "channels": channels, "n": pixels}
        sizes |= {"x_batch": source.strides[0], "x_pixel": pixel, "y_batch": channels}
        kernel = select_global_pool_last(claimer.isa, dtype, mode, plain(dtype))
    else:
        return None
    return kernel, sizes
