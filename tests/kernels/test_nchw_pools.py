"""Pools with the channels first against NumPy in float64, at the edges of their tiles."""

from __future__ import annotations

import itertools
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from irc.ir.dim import Dim
from irc.kernels import ISAS
from tests.kernels.test_kernels import Pool, build, close, compilers, guarded, invoke, noise
from tests.support.instruction_sets import needs
from tests.support.kernels import pool_nchw, pools_nchw

pytestmark = pytest.mark.skipif(not compilers(), reason="no C compiler")
M = Dim.symbol("m")
Array = np.ndarray[Any, Any]


POOLS = [  # batch, channels, ih, iw, oh, ow, window, strides, dilations, pads (top, left, bottom, right)
    (1, 3, 112, 112, 56, 56, (3, 3), (2, 2), (1, 1), (1, 1, 1, 1)),
    (2, 2, 7, 7, 7, 7, (3, 3), (1, 1), (1, 1), (1, 1, 1, 1)),
    (1, 2, 13, 33, 6, 16, (2, 2), (2, 2), (1, 1), (0, 0, 0, 0)),
    (1, 1, 9, 40, 4, 10, (3, 5), (2, 4), (1, 1), (0, 1, 0, 1)),
    (1, 2, 20, 50, 18, 17, (2, 3), (1, 3), (2, 1), (0, 1, 0, 0)),
    (1, 1, 1, 9000, 1, 4500, (1, 3), (1, 2), (1, 1), (0, 1, 0, 0)),
    (1, 1, 5, 5, 3, 3, (3, 3), (2, 2), (1, 1), (0, 0, 1, 1)),
    (1, 2, 4, 20, 5, 21, (2, 2), (1, 1), (1, 1), (1, 1, 1, 1)),
    (1, 1, 6, 6, 1, 1, (6, 6), (1, 1), (1, 1), (0, 0, 0, 0)),
    (1, 1, 3, 3, 3, 2, (2, 2), (2, 2), (1, 1), (2, 0, 0, 0)),
    (1, 2, 14, 47, 14, 47, (5, 5), (1, 1), (1, 1), (2, 2, 2, 2)),
    (1, 2, 9, 70, 5, 35, (3, 5), (2, 2), (1, 1), (1, 2, 1, 2)),
    (1, 1, 4, 5, 8, 9, (1, 3), (1, 1), (1, 1), (2, 3, 2, 3)),
    (2, 20, 7, 7, 7, 7, (3, 3), (1, 1), (1, 1), (1, 1, 1, 1)),  # more planes than are folded together
    (1, 2, 19, 19, 19, 19, (5, 5), (1, 1), (1, 1), (2, 2, 2, 2)),
    (1, 3, 9, 9, 9, 9, (2, 4), (1, 1), (1, 1), (0, 1, 1, 2)),  # as many taps before and behind
    (1, 2, 11, 13, 9, 13, (3, 3), (1, 1), (2, 3), (1, 3, 1, 3)),
    (1, 2, 3, 5, 9, 5, (3, 1), (1, 1), (1, 1), (4, 0, 4, 0)),  # rows of windows in padding
    (1, 2, 2, 3, 2, 3, (7, 7), (1, 1), (1, 1), (3, 3, 3, 3)),
    (2, 3, 17, 17, 9, 9, (3, 3), (2, 2), (1, 1), (1, 1, 1, 1)),  # rows of one and of two vectors, and of 32
    (1, 2, 6, 16, 6, 16, (3, 3), (1, 1), (1, 1), (1, 1, 1, 1)),
    (1, 2, 5, 32, 5, 34, (3, 3), (1, 1), (1, 1), (1, 2, 1, 2)),
    (1, 2, 45, 50, 45, 50, (3, 3), (1, 1), (1, 1), (1, 1, 1, 1)),  # a plane larger than what is folded together
]


SETS = ISAS | {"halves": replace(ISAS["avx512"], fma=1)}
AVX512 = [pytest.param(name, marks=needs("avx512")) for name in ("avx512", "halves")]
AVERAGES = [("average", "inside"), ("average", "padded"), ("average", "window")]


def exact_pool(mode: str, counted: str, x: Array, case: Any) -> Array:
    _, _, ih, iw, oh, ow, (kh, kw), (sh, sw), (dh, dw), (top, left, bottom, right) = case
    high = max(top + ih + bottom, (oh - 1) * sh + (kh - 1) * dh + 1)
    wide = max(left + iw + right, (ow - 1) * sw + (kw - 1) * dw + 1)
    padded = np.full((*x.shape[:2], high, wide), -np.inf if mode == "max" else 0.0)
    padded[:, :, top : top + ih, left : left + iw] = x
    counts = np.full((high, wide), float(counted == "window"))
    counts[: top + ih + bottom, : left + iw + right] += counted == "padded"
    counts[top : top + ih, left : left + iw] += counted == "inside"
    windows = (slice(None, None, sh), slice(None, None, sw), slice(None, None, dh), slice(None, None, dw))
    extents = ((kh - 1) * dh + 1, (kw - 1) * dw + 1)
    taps = np.lib.stride_tricks.sliding_window_view(padded, extents, (2, 3))[(..., *windows)][:, :, :oh, :ow]
    count = np.lib.stride_tricks.sliding_window_view(counts, extents)[windows][:oh, :ow].sum((-2, -1))
    with np.errstate(all="ignore"):
        return taps.max((-2, -1)) if mode == "max" else taps.sum((-2, -1)) / count


@pytest.mark.parametrize("isa", [*AVX512, "avx2", "plain"])
@pytest.mark.parametrize("every_average", [False, pytest.param(True, marks=pytest.mark.full)])
def test_pool(tmp_path: Path, isa: str, every_average: bool) -> None:
    """Maxima and averages of every case, the three kinds of averages in turn: each label has each of them."""
    found: list[tuple[Any, str, str, Any]] = []
    for number, case in enumerate(POOLS):
        averages = AVERAGES if every_average else [AVERAGES[number % 3]]
        for mode, counted in (("max", "inside"), *averages):
            kernels = pools_nchw(SETS[isa], mode, *case[6:9], counted, case[4:6], case[2:4])  # type: ignore[arg-type]
            found += [(kernel, mode, counted, case) for kernel in kernels]
    labels = {"planes", "registers", "flat"} | ({"picked"} if isa != "plain" else set())
    labels |= {"picked_halves"} if isa == "halves" else set()
    for kind in (("max", "inside"), *AVERAGES):
        assert {k.label for k, *of, _ in found if of == [*kind]} == labels
    lib = build(tmp_path, list({k.symbol: k for k, *_ in found}.values()))
    for (kernel, mode, counted, case), pool in itertools.product(found, (None, Pool(1))):
        n, c, ih, iw, oh, ow, *_, pads = case
        x, y = guarded(n, c, ih, iw), np.full((n, c + 1, oh, ow), 77, np.float32)
        planes = (c * ih * iw, ih * iw, (c + 1) * oh * ow, oh * ow)
        invoke(lib, kernel, x, y, n, c, ih, iw, oh, ow, *pads, *planes, pool=pool)
        exact = exact_pool(mode, counted, x.astype(np.float64), case)
        close(y[:, :c], exact, case[6][0] * case[6][1])
        assert (y[:, c:] == 77).all()


def test_long_rows_stay_in_registers_in_halves() -> None:
    """256 planes of 33 x 33, 2 x 2 windows: 87 us in registers, 141 by tables, Zen 4; 28 x 28, 3 x 3: 97 and 52."""

    def chosen(window: int, size: int, result: int) -> str:
        shape = (window, window), (1, 1), (1, 1)
        return pools_nchw(SETS["halves"], "average", *shape, "inside", (result, result), (size, size))[0].label

    assert [chosen(2, 33, 34), chosen(3, 56, 56), chosen(3, 112, 112)] == ["registers"] * 3
    assert chosen(3, 28, 28) != "registers"


@pytest.mark.parametrize("isa", ["avx512", "avx2"])
def test_columns_of_small_planes_are_picked(isa: str) -> None:
    def chosen(window: int, stride: int, size: int) -> str:
        shape = (window, window), (stride, stride), (1, 1)
        return pools_nchw(ISAS[isa], "max", *shape, "inside", (size, size))[0].label

    assert [chosen(3, 1, 10), chosen(3, 2, 14), chosen(5, 2, 7), chosen(2, 2, 14)] == ["picked"] * 4
    assert [chosen(5, 1, 150), chosen(20, 1, 30)] == ["planes"] * 2  # a load is cheaper than a permutation
    assert chosen(3, 2, 56) == ("picked" if isa == "avx512" else "planes")


def test_maxima_that_keep_nan_are_dear_in_halves() -> None:
    """64 planes of 112 x 112, 5 x 5 windows, stride 2: 0.25 ms by rows of folded rows, 0.12 by tables, Zen 4."""
    for isa, mode, size, label in [
        ("halves", "max", (5, 2, 56), "picked"),
        ("halves", "max", (2, 2, 56), "picked"),
        ("halves", "max", (3, 1, 112), "registers"),
        ("halves", "average", (5, 2, 56), "planes"),
        ("avx512", "max", (5, 2, 56), "planes"),
    ]:
        window, stride, extent = size
        shape = (window, window), (stride, stride), (1, 1)
        counted = "inside" if mode == "max" else "window"
        found = pools_nchw(SETS[isa], mode, *shape, counted, (extent, extent), (112, 112))  # type: ignore[arg-type]
        assert found[0].label.startswith(label), (isa, mode, size)


@pytest.mark.parametrize("isa", ["avx512", "avx2"])
def test_small_planes_of_as_many_columns_are_flat(isa: str) -> None:
    def chosen(window: int, size: int) -> str:
        shape = (window, window), (1, 1), (1, 1)
        return pools_nchw(ISAS[isa], "max", *shape, "inside", (size, size), (size, size))[0].label

    assert [chosen(3, 7), chosen(5, 19), chosen(3, 19)] == ["flat"] * 3
    assert chosen(3, 56) != "flat"  # more than masks are for


def test_pool_window_too_wide() -> None:
    assert pool_nchw(ISAS["avx2"], "max", (1, 5000), (1, 1)) is None


def test_flat_pools_know_which_elements_are_nan(tmp_path: Path) -> None:
    """NaN beside a window, in the row above or below, is blended out."""
    shape = "max", (3, 3), (1, 1), (1, 1), "inside", (7, 7), (7, 7)
    (kernel,) = (k for k in pools_nchw(ISAS["avx512"], *shape) if k.label == "flat")  # type: ignore[arg-type]
    lib = build(tmp_path, [kernel])
    x, y = noise(1, 1, 7, 7), np.zeros((1, 1, 7, 7), np.float32)
    x[0, 0, 3, 6] = np.nan
    invoke(lib, kernel, x, y, 1, 1, 7, 7, 7, 7, 1, 1, 1, 1, 0, 0, 0, 0)
    assert np.argwhere(np.isnan(y[0, 0])).tolist() == [[r, c] for r in (2, 3, 4) for c in (5, 6)]


@pytest.mark.parametrize("isa", [*AVX512, "avx2"])
def test_pool_propagates_nan(tmp_path: Path, isa: str) -> None:
    """NaN, in a plane that also has infinities of both signs and beside one that has only these."""
    kernels = pools_nchw(SETS[isa], "max", (2, 2), (2, 2), (1, 1), "inside", (4, 4), (8, 8))
    assert {k.label for k in kernels} >= {"planes", "registers", "picked"}
    assert len(kernels) == (4 if isa == "halves" else 3)
    lib = build(tmp_path, kernels)
    for kernel in kernels:
        x, y = noise(1, 2, 8, 8), np.zeros((1, 2, 4, 4), np.float32)
        x[0, :, 0, :2] = np.inf, -np.inf
        x[0, 0, 3, 5] = np.nan
        invoke(lib, kernel, x, y, 1, 2, 8, 8, 4, 4, 0, 0, 0, 0, 128, 64, 32, 16)
        assert np.argwhere(np.isnan(y)).tolist() == [[0, 0, 1, 2]]
        assert np.array_equal(y[0], x[0].reshape(2, 4, 2, 4, 2).max((2, 4)), equal_nan=True)


@needs("avx512")
def test_rows_of_a_little_more_than_two_vectors_are_picked_by_halves() -> None:
    """17 windows: two vectors, or three of half the length."""
    shape = "max", (5, 5), (2, 2), (1, 1), "inside"
    assert pools_nchw(SETS["halves"], *shape, (17, 17), (33, 33))[0].label == "picked_halves"  # type: ignore[arg-type]
    assert pools_nchw(SETS["halves"], *shape, (14, 14), (28, 28))[0].label == "picked"  # type: ignore[arg-type]
    assert pools_nchw(SETS["avx512"], *shape, (17, 17), (33, 33))[0].label == "picked"  # type: ignore[arg-type]
