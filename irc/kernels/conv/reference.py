"""NumPy reference of convolutions."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence

import numpy as np

from irc.ir.types import DType
from irc.kernels.core.base import Array
from irc.kernels.core.epilogue import Epilogue
from irc.kernels.core.problem import Layout, Pair
from irc.kernels.core.reference import apply, strided


def unpacked(packed: Array, shape: Sequence[int], dtype: DType, pack: Callable[[Array], Array]) -> Array:
    """Undo `pack`, which only rearranges weights of this shape and fills up with zeros.

    It packs the positions of the elements, counted from 1: what is 0 fills up.
    """
    count = int(np.prod(shape))
    place = pack(np.arange(1, count + 1).reshape(shape)).astype(np.int64)
    w = np.empty(count, dtype.numpy)
    w[place[place > 0] - 1] = packed[: place.size][place > 0]
    return w.reshape(shape)


def convolve(
    layout: Layout,
    w: Array,
    groups: int,
    strides: Sequence[int],
    dilations: Sequence[int],
    epilogue: Epilogue,
    reads: Sequence[Array],
    writes: Sequence[Array],
    sizes: Mapping[str, int],
    own: Array | None = None,
    rounded: Callable[[Array, Mapping[str, int]], Array] | None = None,
) -> None:
    """Compute a call in NumPy.

    `w` is [outputs, channels of a group, kh, kw], or of volumes, [outputs, channels of a group, kd, kh, kw]; strides
    and dilations are of its axes.  The other operands stand as the kernels' pointers have them.
    own: of sums of integers, what is added to those of each output; then they wrap around, and an epilogue of floats
    gets them in its type.  rounded: what becomes of the epilogue's values before they are stored.
    """
    if w.ndim == 4:
        w, strides, dilations = w[:, :, None], (1, *strides), (1, *dilations)
    ih, iw = sizes["ih"], sizes["iw"]
    steps = (sizes["x_channel"], ih * iw, iw, 1) if layout == "nchw" else (1, 0, sizes["x_row"], sizes["x_pixel"])
    space = (sizes["batch"], groups * w.shape[1], sizes.get("id", 1), ih, iw)
    x = strided(reads[0], space, (sizes["x_batch"], *steps))
    total = _sums(x, w, groups, strides, dilations, sizes)
    if own is not None:
        total = (total + own.reshape(-1, 1, 1, 1)).astype(np.int32).astype(epilogue.dtype.numpy)
    _finish(layout, total, epilogue, reads, writes, sizes, rounded)


def transposed(
    w: Array,
    groups: int,
    strides: Pair,
    dilations: Pair,
    epilogue: Epilogue,
    reads: Sequence[Array],
    writes: Sequence[Array],
    sizes: Mapping[str, int],
) -> None:
    """Compute a call of the transpose, channels first; `w` is [inputs, channels of a group, kh, kw]."""
    batch, (ih, iw), (oh, ow) = sizes["batch"], (sizes["ih"], sizes["iw"]), (sizes["oh"], sizes["ow"])
    inputs, per, *window = w.shape
    inside = inputs // groups
    x = strided(reads[0], (batch, inputs, ih, iw), (sizes["x_batch"], sizes["x_channel"], iw, 1))
    total = np.zeros((batch, groups * per, oh, ow), w.dtype)
    for ky, kx in np.ndindex(*window):
        for iy, ix in np.ndindex(ih, iw):
            row, col = iy * strides[0] + ky * dilations[0], ix * strides[1] + kx * dilations[1]
            row, col = row - sizes["pad_h"], col - sizes["pad_w"]
            if 0 <= row < oh and 0 <= col < ow:
                for g in range(groups):
                    own = slice(g * inside, (g + 1) * inside)
                    total[:, g * per : (g + 1) * per, row, col] += x[:, own, iy, ix] @ w[own, :, ky, kx]
    _finish("nchw", total[:, :, None], epilogue, reads, writes, sizes)


def _finish(
    layout: Layout,
    total: Array,
    epilogue: Epilogue,
    reads: Sequence[Array],
    writes: Sequence[Array],
    sizes: Mapping[str, int],
    rounded: Callable[[Array, Mapping[str, int]], Array] | None = None,
) -> None:
    """Apply the epilogue to the sums [images, channels, planes, rows, columns], and store them."""
    first, oh, ow, to = layout == "nchw", sizes["oh"], sizes["ow"], total.shape
    across = "channel" if first else "pixel"

    def view(flat: Array, name: str, column: int) -> Array:
        """View an operand that has this stride along the columns of the epilogue."""
        row = sizes.get(f"{name}_{across}", 0)
        channel, pixel = (row, column) if first else (column, row)
        return strided(flat, to, (sizes[f"{name}_batch"], channel, oh * ow * pixel, ow * pixel, pixel))

    slots = [
        view(flat, f"s{i}", int(axes in ("row", "full")))
        for i, (flat, axes) in enumerate(zip(reads[2:], epilogue.slots, strict=True))
    ]
    made = apply(epilogue, total, slots)
    view(writes[0], "y", 1)[...] = made if rounded is None else rounded(made, sizes)


def _sums(
    x: Array, w: Array, groups: int, strides: Sequence[int], dilations: Sequence[int], sizes: Mapping[str, int]
) -> Array:
    """Sum up the products of x[n, groups · inside, d, h, w] and w[outputs, inside, kd, kh, kw]."""
    results = (sizes.get("od", 1), sizes["oh"], sizes["ow"])
    before = (sizes.get("pad_d", 0), sizes["pad_h"], sizes["pad_w"])
    outputs, inside, *window = w.shape
    total = np.zeros((x.shape[0], outputs, *results), w.dtype)
    per = outputs // groups
    for tap in np.ndindex(*window):
        starts = [t * d - p for t, d, p in zip(tap, dilations, before, strict=True)]
        to, at = zip(*map(_inside, starts, strides, x.shape[2:], results), strict=True)
        for g in range(groups):
            part = x[:, g * inside : (g + 1) * inside, *at]
            rows = part.reshape(*part.shape[:2], math.prod(part.shape[2:]))
            sums = w[g * per : (g + 1) * per, :, *tap] @ rows
            total[:, g * per : (g + 1) * per, *to] += sums.reshape(len(x), per, *part.shape[2:])
    return total


def _inside(start: int, stride: int, size: int, results: int) -> tuple[slice, slice]:
    """Slice the results of an axis whose place, `start` + `stride` for each, is inside the input, and those places."""
    low = max(-(start // stride), 0)
    high = max(min((size - 1 - start) // stride + 1, results), low)
    return slice(low, high), slice(start + low * stride, start + high * stride, stride)
