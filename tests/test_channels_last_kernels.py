"""Depthwise convolutions and pools of channels-last activations against NumPy in float64, at every edge."""

from __future__ import annotations

import ctypes
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from irc.expr import Const
from irc.ir.dim import Dim
from irc.ir.types import DType, f32, f64
from irc.kernels import ISAS, DepthwiseLastKernel, Epilogue, acc, plain, select_depthwise_last, slot
from tests.test_kernels import Pool, build, close, compilers, exact_conv, invoke, noise

pytestmark = pytest.mark.skipif(not compilers(), reason="no C compiler")
N = Dim.symbol("n")
Array = np.ndarray[Any, Any]


def spaced(shape: tuple[int, ...], gaps: tuple[int, ...], dtype: DType = f32) -> tuple[Array, tuple[int, ...]]:
    """Noise [batch, height, width, channels] in memory whose pixels, rows and images stand `gaps` elements further
    apart than they must, with NaN between and around them; and the strides of images, rows and pixels."""
    n, h, w, c = shape
    pixel = c + gaps[0]
    row = w * pixel + gaps[1]
    image = h * row + gaps[2]
    whole = np.full(n * image + 128, np.nan, dtype.numpy)
    inner = np.lib.stride_tricks.as_strided(
        whole[64:], shape, [s * dtype.itemsize for s in (image, row, pixel, 1)]
    )
    inner[...] = noise(*shape, dtype=dtype)
    return inner, (image, row, pixel)


def distinct(kernels: Iterable[Any]) -> list[Any]:
    """Every kernel once; equal symbols have equal text."""
    found: dict[str, Any] = {}
    for kernel in kernels:
        assert found.setdefault(kernel.symbol, kernel).source() == kernel.source()
    return list(found.values())


# ---------------------------------------------------------------------------- depthwise convolutions
DEPTHWISE = [  # batch, channels, ih, iw, window, strides, dilations, pads (top, left, bottom, right)
    (1, 16, 14, 14, (3, 3), (1, 1), (1, 1), (1, 1, 1, 1)),
    (2, 24, 7, 7, (3, 3), (1, 1), (1, 1), (1, 1, 1, 1)),
    (1, 40, 15, 28, (3, 3), (2, 2), (1, 1), (1, 0, 1, 1)),
    (1, 72, 112, 13, (5, 5), (2, 2), (1, 1), (2, 2, 2, 2)),
    (2, 33, 9, 30, (3, 3), (1, 1), (1, 1), (1, 1, 1, 1)),
    (1, 17, 30, 40, (3, 3), (1, 2), (12, 3), (12, 3, 12, 3)),
    (1, 3, 9, 9, (2, 7), (3, 4), (1, 1), (1, 6, 0, 0)),
    (1, 1, 1, 1, (3, 3), (1, 1), (1, 1), (1, 1, 1, 1)),
    (1, 20, 30, 30, (7, 7), (1, 1), (1, 1), (3, 3, 3, 3)),
    (1, 5, 4, 3, (1, 1), (1, 1), (1, 1), (2, 20, 0, 0)),
    (1, 18, 5, 80, (3, 3), (1, 1), (24, 36), (24, 36, 24, 36)),
    (1, 64, 25, 5, (3, 3), (1, 1), (1, 1), (1, 1, 1, 1)),
    (1, 31, 6, 60, (1, 9), (1, 1), (1, 1), (0, 4, 0, 4)),
    (1, 1030, 3, 9, (3, 1), (1, 3), (1, 1), (2, 0, 0, 0)),
    (1, 16, 40, 66, (3, 3), (1, 1), (1, 1), (0, 0, 0, 0)),
]


def fused(dtype: DType) -> Epilogue:
    """relu(acc * scale by channel + bias by channel + residual) * by pixel + scalar: every kind of slot."""
    x = (acc(dtype) * slot(0, dtype) + slot(1, dtype) + slot(2, dtype)).max(Const(0.0, dtype))
    return Epilogue(x * slot(3, dtype) + slot(4, dtype), ("row", "row", "full", "column", "scalar"))


def run_depthwise(lib: ctypes.CDLL, kernel: DepthwiseLastKernel, case: Any, pool: Pool | None = None) -> Array:
    n, channels, ih, iw, window, strides, dilations, pads = case
    dtype = kernel.tile.dtype
    x, x_strides = spaced((n, ih, iw, channels), (3, 5, 7), dtype)
    w = noise(channels, 1, *window, dtype=dtype)
    exact = exact_conv(x.transpose(0, 3, 1, 2), w, channels, strides, dilations, pads).transpose(0, 2, 3, 1)
    oh, ow = exact.shape[1:3]
    pixel, image = channels + 2, oh * ow * (channels + 2) + 9
    whole = np.full(n * image + 32, 77, dtype.numpy)
    y = whole[:-32].reshape(n, image)[:, :-9].reshape(n, oh, ow, pixel)
    slots, sizes = [], []
    if kernel.epilogue.slots:
        scale, bias = noise(n, channels, dtype=dtype), noise(channels, dtype=dtype)
        add, (add_image, _, add_pixel) = spaced((n, oh, ow, channels), (1, 0, 4), dtype)
        by_pixel, scalar = noise(n, oh, ow, dtype=dtype), noise(n, dtype=dtype)
        exact = np.maximum(exact * scale[:, None, None] + bias + add, 0) * by_pixel[..., None]
        exact = exact + scalar[:, None, None, None]
        slots = [scale, bias, add, by_pixel, scalar]
        sizes = [channels, 0, add_image, add_pixel, oh * ow, 1, 1]
    packed = kernel.pack_weights(w)
    assert packed.size == kernel.packed_elements(channels)
    extents = (n, channels, ih, iw, oh, ow, *pads[:2], *x_strides, image, pixel)
    invoke(lib, kernel, x, packed, *slots, whole, *extents, *sizes, pool=pool)
    close(y[..., :channels], exact, 4 * window[0] * window[1], dtype)
    assert (y[..., channels:] == 77).all() and (whole[-32:] == 77).all()
    assert (whole[:-32].reshape(n, image)[:, -9:] == 77).all()
    return y


def width_of(case: Any) -> int:
    """Output columns of a case of `DEPTHWISE`."""
    _, _, _, iw, window, strides, dilations, pads = case
    return (iw + pads[1] + pads[3] - (window[1] - 1) * dilations[1] - 1) // strides[1] + 1


@pytest.mark.parametrize(
    ("isa", "dtype", "with_slots"),
    [
        ("avx512", f32, True),
        ("avx512", f32, False),
        ("avx512", f64, False),
        ("avx2", f32, True),
        ("avx2", f64, True),
        ("neon", f32, False),
        ("sse", f32, True),
        ("plain", f32, True),
        ("plain", f64, False),
    ],
)
def test_depthwise(tmp_path: Path, isa: str, dtype: DType, with_slots: bool) -> None:
    epilogue = fused(dtype) if with_slots else plain(dtype)
    kernels = [
        select_depthwise_last(ISAS[isa], dtype, *case[4:7], epilogue, width_of(case) if k % 2 else N)
        for k, case in enumerate(DEPTHWISE)
    ]
    assert all(kernels)
    lib = build(tmp_path, distinct(kernels))
    for kernel, case in zip(kernels, DEPTHWISE, strict=True):
        assert kernel is not None
        run_depthwise(lib, kernel, case)
        run_depthwise(lib, kernel, case, Pool(1))
