"""Depthwise convolutions and pools of channels-last activations against NumPy in float64, at every edge."""

from __future__ import annotations

import ctypes
import itertools
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from irc.expr import Const
from irc.ir.dim import Dim
from irc.ir.types import DType, f32, f64
from irc.kernels import ISAS, Epilogue, acc, plain, slot
from irc.kernels.conv.depthwise_nhwc import NhwcDepthwiseKernel
from irc.kernels.conv.problem import ConvProblem
from irc.kernels.core.registry import select
from irc.kernels.pool.nhwc import NhwcPoolKernel
from tests.kernels.test_kernels import PARALLEL_FOR, Pool, build, close, compilers, exact_conv, invoke, noise
from tests.kernels.test_nchw_pools import exact_pool
from tests.support.kernels import depthwise_nhwc, global_pool_nhwc, pool_nhwc

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
    inner = np.lib.stride_tricks.as_strided(whole[64:], shape, [s * dtype.itemsize for s in (image, row, pixel, 1)])
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
    (1, 8, 12, 20, (3, 3), (1, 1), (1, 1), (1, 1, 1, 1)),
    (2, 12, 11, 17, (3, 3), (2, 1), (1, 1), (1, 1, 0, 1)),
    (1, 6, 9, 23, (3, 3), (1, 2), (1, 1), (1, 1, 1, 1)),
]


def fused(dtype: DType) -> Epilogue:
    """relu(acc * scale by channel + bias by channel + residual) * by pixel + scalar: every kind of slot."""
    x = (acc(dtype) * slot(0, dtype) + slot(1, dtype) + slot(2, dtype)).max(Const(0.0, dtype))
    return Epilogue(x * slot(3, dtype) + slot(4, dtype), ("row", "row", "full", "column", "scalar"))


def run_depthwise(lib: ctypes.CDLL, kernel: NhwcDepthwiseKernel, case: Any, pool: Pool | None = None) -> Array:
    n, channels, ih, iw, window, strides, dilations, pads = case
    dtype = kernel.tile.dtype
    x, x_strides = spaced((n, ih, iw, channels), (3, 5, 7), dtype)
    w = noise(channels, 1, *window, dtype=dtype)
    exact = exact_conv(x.transpose(0, 3, 1, 2), w, channels, strides, dilations, pads).transpose(0, 2, 3, 1)
    oh, ow = exact.shape[1:3]
    pixel, image = channels + 2, oh * ow * (channels + 2) + 9
    whole = np.full(n * image + 32, 77, dtype.numpy)
    y = whole[:-32].reshape(n, image)[:, :-9].reshape(n, oh, ow, pixel)
    slots: list[Array] = []
    sizes: list[int] = []
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
        depthwise_nhwc(ISAS[isa], *case[4:7], epilogue, width_of(case) if k % 2 else N, case[1])
        for k, case in enumerate(DEPTHWISE)
    ]
    assert all(kernels)
    lib = build(tmp_path, distinct(kernels))
    for kernel, case in zip(kernels, DEPTHWISE, strict=True):
        assert kernel is not None
        run_depthwise(lib, kernel, case)
        run_depthwise(lib, kernel, case, Pool(1))


def test_depthwise_window_too_wide() -> None:
    assert depthwise_nhwc(ISAS["avx2"], (1, 65), (1, 1), (1, 1), plain(), N) is None
    assert depthwise_nhwc(ISAS["avx2"], (1, 64), (1, 1), (1, 1), plain(), N) is not None


def test_tiles_are_as_equal_as_possible() -> None:
    """Rows of outputs are cut evenly, and kernels that then are equal have one symbol."""

    def kernel(ow: int) -> NhwcDepthwiseKernel:
        found = depthwise_nhwc(ISAS["avx512"], (3, 3), (1, 1), (1, 1), plain(), ow)
        assert found is not None
        return found

    assert [kernel(ow).tile.rows for ow in (1, 5, 7, 8, 9, 14, 56, 112)] == [1, 5, 7, 8, 5, 7, 8, 8]
    assert kernel(7).symbol == kernel(14).symbol != kernel(56).symbol == kernel(112).symbol


def test_vectors_are_as_short_as_channels() -> None:
    """Few channels fill vectors that are halved for them, until these hold four."""
    lanes = [ISAS["avx512"].filled_by(f32, n).lanes(f32) for n in (1, 3, 4, 7, 8, 15, 16, 100)]
    assert lanes == [4, 4, 4, 4, 8, 8, 16, 16]
    window = ("nhwc", Epilogue(acc(f32)), 8, 8, (14, 14), (3, 3), (1, 1), (1, 1), 8)
    found = select(ConvProblem.contiguous(*window), ISAS["avx512"])  # type: ignore[arg-type]
    assert isinstance(found, NhwcDepthwiseKernel) and found.tile.lanes == 8


# ---------------------------------------------------------------------------- pools
POOLS = [  # batch, channels, ih, iw, oh, ow, window, strides, dilations, pads (top, left, bottom, right)
    (1, 24, 112, 30, 56, 15, (3, 3), (2, 2), (1, 1), (1, 1, 1, 1)),
    (2, 33, 7, 7, 7, 7, (3, 3), (1, 1), (1, 1), (1, 1, 1, 1)),
    (1, 16, 13, 33, 6, 16, (2, 2), (2, 2), (1, 1), (0, 0, 0, 0)),
    (1, 5, 9, 40, 4, 10, (3, 5), (2, 4), (1, 1), (0, 1, 0, 1)),
    (1, 18, 20, 50, 18, 17, (2, 3), (1, 3), (2, 1), (0, 1, 0, 0)),
    (1, 64, 5, 5, 3, 3, (3, 3), (2, 2), (1, 1), (0, 0, 1, 1)),
    (1, 40, 4, 20, 5, 21, (2, 2), (1, 1), (1, 1), (1, 1, 1, 1)),
    (1, 17, 6, 6, 1, 1, (6, 6), (1, 1), (1, 1), (0, 0, 0, 0)),
    (1, 32, 3, 3, 3, 2, (2, 2), (2, 2), (1, 1), (2, 0, 0, 0)),
    (1, 31, 20, 20, 20, 20, (5, 5), (1, 1), (1, 1), (2, 2, 2, 2)),
    (1, 2, 12, 60, 12, 20, (3, 2), (1, 3), (2, 30), (2, 15, 2, 15)),
    (1, 16, 3, 60, 1, 1, (3, 60), (1, 1), (1, 1), (0, 0, 0, 0)),
    (1, 12, 9, 20, 9, 20, (3, 3), (1, 1), (1, 1), (1, 1, 1, 1)),
]
MODES = (("max", "inside"), ("average", "inside"), ("average", "padded"), ("average", "window"))


def run_pool(lib: ctypes.CDLL, kernel: NhwcPoolKernel, case: Any, pool: Pool | None = None) -> None:
    n, c, ih, iw, oh, ow, window, _, _, pads = case
    dtype = kernel.tile.dtype
    x, x_strides = spaced((n, ih, iw, c), (2, 3, 4), dtype)
    exact = exact_pool(kernel.mode, kernel.counted, x.transpose(0, 3, 1, 2).astype(np.float64), case)
    exact = exact.transpose(0, 2, 3, 1)
    pixel = c + 3
    whole = np.full((n, oh * ow * pixel + 5), 77, dtype.numpy)
    y = whole[:, :-5].reshape(n, oh, ow, pixel)
    slots: list[Array] = []
    sizes: list[int] = []
    if kernel.epilogue.slots:
        slots = [noise(c, dtype=dtype), noise(n, oh, ow, c, dtype=dtype)]
        sizes = [0, oh * ow * c, c]
        exact = exact * slots[0] + slots[1]
    extents = (n, c, ih, iw, oh, ow, *pads, *x_strides, whole.shape[1], pixel)
    invoke(lib, kernel, x, *slots, whole, *extents, *sizes, pool=pool)
    close(y[..., :c], exact, window[0] * window[1], dtype)
    assert (y[..., c:] == 77).all() and (whole[:, -5:] == 77).all()


@pytest.mark.parametrize(("isa", "dtype"), [("avx512", f32), ("avx512", f64), ("avx2", f32), ("plain", f32)])
def test_pool(tmp_path: Path, isa: str, dtype: DType) -> None:
    scaled = Epilogue(acc(dtype) * slot(0, dtype) + slot(1, dtype), ("row", "full"))
    found: list[tuple[NhwcPoolKernel, Any]] = []
    pairs = [(case, mode) for k, case in enumerate(POOLS) for mode in (MODES[0], MODES[1 + k % 3])]
    for k, (case, (mode, counted)) in enumerate(pairs):
        epilogue = scaled if k % 3 == 1 else plain(dtype)
        width = case[5] if k % 2 else N
        kernel = pool_nhwc(ISAS[isa], mode, *case[6:9], counted, epilogue, width, case[1])  # type: ignore[arg-type]
        assert kernel is not None
        found.append((kernel, case))
    lib = build(tmp_path, distinct(kernel for kernel, _ in found))
    for kernel, case in found:
        run_pool(lib, kernel, case)
        run_pool(lib, kernel, case, Pool(1))


def test_pool_window_too_wide() -> None:
    assert pool_nhwc(ISAS["avx2"], "max", (1, 65), (1, 1), (1, 1), "inside", plain(), N) is None


@pytest.mark.parametrize("isa", ["avx512", "avx2", "plain"])
@pytest.mark.parametrize("channels", [1, 20])
def test_pools_propagate_nan(tmp_path: Path, isa: str, channels: int) -> None:
    """A NaN anywhere in a window, and nothing else, makes its maximum NaN; windows of -inf only stay -inf."""
    kernel = pool_nhwc(ISAS[isa], "max", (3, 3), (1, 1), (1, 1), "inside", plain(), 6)
    whole = global_pool_nhwc(ISAS[isa], "max", plain())
    lib = build(tmp_path, [kernel, whole])
    for at in itertools.product(range(6), range(6)):
        x, y = noise(6, 6, channels), np.zeros((6, 6, channels), np.float32)
        top = np.zeros(channels, np.float32)
        x[..., -1] = -np.inf
        x[(*at, -1)] = np.nan
        sizes = (1, channels, 6, 6, 6, 6, 1, 1, 1, 1, 0, 6 * channels, channels, 0, channels)
        invoke(lib, kernel, x, y, *sizes)
        near = np.abs(np.indices((6, 6)) - np.reshape(at, (2, 1, 1))).max(0) <= 1
        assert np.array_equal(y[..., -1], np.where(near, np.nan, -np.inf), equal_nan=True)
        assert np.isfinite(y[..., :-1]).all()
        invoke(lib, whole, x, top, np.zeros(16 * channels, np.float32), 1, channels, 36, 0, channels, 0)
        assert np.isnan(top[-1]) and np.isfinite(top[:-1]).all()


@pytest.mark.parametrize(("isa", "dtype"), [("avx512", f32), ("avx2", f64), ("neon", f32), ("plain", f32)])
def test_global_pool(tmp_path: Path, isa: str, dtype: DType) -> None:
    scaled = Epilogue((acc(dtype) + slot(0, dtype)) * slot(1, dtype), ("row", "scalar"))
    kernels = [
        global_pool_nhwc(ISAS[isa], mode, epilogue)
        for mode, epilogue in itertools.product(("max", "average"), (plain(dtype), scaled))
    ]
    lib = build(tmp_path, distinct(kernels))
    for kernel, n, c in itertools.product(kernels, (1, 3, 7, 49, 255, 256, 600), (1, 7, 16, 40, 64, 72, 130, 300)):
        x, (image, _, pixel) = spaced((2, 1, n, c), (3, 0, 2), dtype)
        exact = x.astype(np.float64).max((1, 2)) if kernel.mode == "max" else x.astype(np.float64).mean((1, 2))
        slots: list[Array] = []
        sizes: list[int] = []
        if kernel.epilogue.slots:
            slots, sizes = [noise(2, c, dtype=dtype), noise(2, dtype=dtype)], [c, 1]
            exact = (exact + slots[0]) * slots[1][:, None]
        found: list[Array] = []
        for pool in (None, Pool(1), Pool(3)):
            y, scratch = np.full((2, c + 2), 77, dtype.numpy), np.full(2 * 16 * c, np.nan, dtype.numpy)
            invoke(lib, kernel, x, *slots, y, scratch, 2, c, n, image, pixel, c + 2, *sizes, pool=pool)
            close(y[:, :c], exact, 4, dtype)
            assert (y[:, c:] == 77).all()
            found.append(y)
        assert all(np.array_equal(y, found[0]) for y in found)


@pytest.mark.parametrize(("n", "c"), [(49, 960), (192, 200), (2048, 20)])
def test_halves_of_a_global_pool_read_halves_of_the_pixels(tmp_path: Path, n: int, c: int) -> None:
    """What one of two threads computes reads no pixel of the other's half, whose lines may be in its cache."""

    class Halves(Pool):
        def __init__(self) -> None:
            def run(_self: Any, pieces: int, fn: Any, arg: Any) -> None:
                fn(arg, 0, pieces // 2)
                x[: n // 2] = np.nan
                fn(arg, pieces // 2, pieces)

            ctypes.Structure.__init__(self, None, PARALLEL_FOR(run))

    kernel = global_pool_nhwc(ISAS["avx2"], "average", plain())
    lib = build(tmp_path, [kernel])
    x, y = noise(n, c), np.zeros(c, np.float32)
    exact = x.mean(0, dtype=np.float64)
    invoke(lib, kernel, x, y, np.zeros(16 * c, np.float32), 1, c, n, 0, c, 0, pool=Halves())
    assert np.isnan(x[0]).all()
    close(y, exact, 4)


def test_global_mean_keeps_its_digits(tmp_path: Path) -> None:
    """The mean of 200,000 numbers near 1 is exact to a few units in the last place: no long chain of additions."""
    kernel = global_pool_nhwc(ISAS["avx512"], "average", plain())
    lib = build(tmp_path, [kernel])
    for c in (3, 16, 70):
        x = (1 + 0.1 * noise(200_000, c)).astype(np.float32)
        y = np.zeros(c, np.float32)
        invoke(lib, kernel, x, y, np.zeros(16 * c, np.float32), 1, c, len(x), 0, c, 0)
        np.testing.assert_allclose(y, x.mean(0, dtype=np.float64), rtol=2e-6)
