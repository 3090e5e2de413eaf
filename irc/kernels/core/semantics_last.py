"""What kernels on channels-last activations compute, in NumPy; registered with `irc.kernels.core.semantics.run`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from irc.ir.types import bf16
from irc.kernels.core.base import Kernel
from irc.kernels.core.epilogue import Epilogue
from irc.kernels.core.semantics import Array, Sizes, apply, pooled, run, strided
from irc.kernels.pool.nhwc import GlobalPoolLastKernel, PoolLastKernel

LARGEST = 3.3895313892515355e38  # of the finite bf16


def call(kernel: Kernel[Any], reads: Sequence[Array], writes: Sequence[Array], sizes: Sizes) -> None:
    """`run`, of inputs and results that may be bf16: rounded to nearest, where finite to finite values."""
    memory = [x.astype(np.float32) if x.dtype == bf16.numpy else x for x in reads]
    results = [y.astype(np.float32) if y.dtype == bf16.numpy else y for y in writes]
    run(kernel, memory, results, sizes)
    for y, found in zip(writes, results, strict=True):
        if y is not found:
            most = np.float32(LARGEST)
            y[...] = np.where(np.isfinite(found), found.clip(-most, most), found).astype(y.dtype)


@run.register
def pool_last(kernel: PoolLastKernel, reads: Sequence[Array], writes: Sequence[Array], sizes: Sizes) -> None:
    total = pooled(kernel, source(reads[0], sizes["channels"], sizes), sizes)
    _finish(kernel.epilogue, total, reads[1:], writes, sizes)


@run.register
def global_pool_last(
    kernel: GlobalPoolLastKernel, reads: Sequence[Array], writes: Sequence[Array], sizes: Sizes
) -> None:
    batch, channels = sizes["batch"], sizes["channels"]
    x = strided(reads[0], (batch, sizes["n"], channels), (sizes["x_batch"], sizes["x_pixel"], 1))
    total = x.max(1) if kernel.mode == "max" else x.mean(1)
    slots = [
        strided(flat, (batch, channels), (sizes[f"s{i}_batch"], int(axes in ("row", "full"))))
        for i, (flat, axes) in enumerate(zip(reads[1:], kernel.epilogue.slots, strict=True))
    ]
    strided(writes[0], (batch, channels), (sizes["y_batch"], 1))[...] = apply(kernel.epilogue, total, slots)


def source(flat: Array, channels: int, sizes: Sizes) -> Array:
    """The input as [n, c, h, w]."""
    shape = (sizes["batch"], channels, sizes["ih"], sizes["iw"])
    return strided(flat, shape, (sizes["x_batch"], 1, sizes["x_row"], sizes["x_pixel"]))


def _finish(epilogue: Epilogue, total: Array, operands: Sequence[Array], writes: Sequence[Array], sizes: Sizes) -> None:
    """Sums [n, c, h, w] through the epilogue to the output."""
    ow = sizes["ow"]

    def view(flat: Array, which: str, pixel: int, channel: int) -> Any:
        return strided(flat, total.shape, (sizes[f"{which}_batch"], channel, ow * pixel, pixel))

    slots = [
        view(flat, f"s{i}", sizes.get(f"s{i}_pixel", 0), int(axes in ("row", "full")))
        for i, (flat, axes) in enumerate(zip(operands, epilogue.slots, strict=True))
    ]
    view(writes[0], "y", sizes["y_pixel"], 1)[...] = apply(epilogue, total, slots)
