"""NumPy reference of pools."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from irc.kernels.core.base import Array
from irc.kernels.core.problem import Pair
from irc.kernels.pool.problem import Counted, Mode


def pooled(
    mode: Mode, counted: Counted, window: Pair, strides: Pair, dilations: Pair, x: Array, sizes: Mapping[str, int]
) -> Array:
    """Compute the largest element or the mean of every window of x[n, c, h, w]."""
    (ih, iw), (oh, ow) = x.shape[2:], (sizes["oh"], sizes["ow"])
    y = np.empty((*x.shape[:2], oh, ow), x.dtype)

    def taps(o: int, axis: int, size: int, before: int, after: int) -> tuple[list[int], int]:
        """List the positions inside the input, and count those that a mean divides by."""
        at = [o * strides[axis] + k * dilations[axis] - before for k in range(window[axis])]
        inside = [i for i in at if 0 <= i < size]
        padded = sum(-before <= i < size + after for i in at)
        return inside, {"inside": len(inside), "padded": padded, "window": len(at)}[counted]

    for i, j in np.ndindex(oh, ow):
        rows, high = taps(i, 0, ih, sizes["pad_h"], sizes["end_h"])
        columns, wide = taps(j, 1, iw, sizes["pad_w"], sizes["end_w"])
        part = x[:, :, rows][..., columns]
        if mode == "max":
            y[:, :, i, j] = part.max((-2, -1), initial=-np.inf)
        else:
            y[:, :, i, j] = part.sum((-2, -1)) / (high * wide)
    return y
