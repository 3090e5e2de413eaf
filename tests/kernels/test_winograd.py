"""Generated Winograd convolutions against NumPy in float64: odd planes, tails of channels, chunks, threads."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from irc.ir.dim import Dim
from irc.ir.types import DType, f32, f64
from irc.kernels import ISAS, Epilogue, plain
from irc.kernels.conv.problem import ConvProblem
from irc.kernels.conv.winograd import WinogradKernel
from irc.kernels.conv.winograd_transforms import F2, F4, Filtering, filterings_of
from irc.kernels.core.isa import Isa
from irc.kernels.core.problem import Pair
from tests.kernels.test_kernels import Pool, build, close, compilers, exact_conv, invoke, noise
from tests.kernels.test_nhwc_conv import fused, nhwc
from tests.support.kernels import winograd_conv

pytestmark = pytest.mark.skipif(not compilers(), reason="no C compiler")

# input channels, output channels, plane, pads (top, left, bottom, right), images
CASES: list[tuple[Any, ...]] = [
    (32, 32, (12, 12), (1, 1, 1, 1), 1),
    (32, 64, (15, 13), (1, 1, 1, 1), 2),
    (40, 33, (13, 11), (1, 1, 1, 1), 1),
    (64, 70, (16, 14), (0, 0, 0, 0), 1),
    (33, 96, (14, 15), (0, 1, 2, 0), 3),
    (600, 40, (12, 13), (1, 1, 1, 1), 1),
    (48, 48, (40, 37), (1, 1, 1, 1), 1),
    (33, 16, (13, 12), (1, 1, 1, 1), 2),
    (64, 21, (12, 15), (1, 1, 1, 1), 1),
    (32, 200, (12, 12), (2, 2, 2, 2), 1),
    (48, 40, (4, 4), (1, 1, 1, 1), 9),
    (33, 32, (6, 5), (1, 1, 1, 1), 7),
]
# with groups of channels, too
GROUPED: list[tuple[Any, ...]] = [
    (32, 64, (12, 12), (1, 1, 1, 1), 1, 2),
    (60, 51, (13, 11), (1, 1, 1, 1), 2, 3),
    (120, 200, (15, 14), (0, 1, 1, 0), 1, 5),
    (64, 64, (30, 28), (1, 1, 1, 1), 1, 4),
]
# with dilations, of which some are larger than the plane
DILATED: list[tuple[tuple[Any, ...], Pair]] = [
    ((32, 32, (12, 12), (2, 2, 2, 2), 1), (2, 2)),
    ((33, 40, (13, 11), (4, 3, 3, 4), 2), (4, 3)),
    ((20, 24, (9, 30), (1, 5, 1, 5), 1), (1, 5)),
    ((60, 51, (13, 11), (2, 0, 2, 1), 2, 3), (3, 1)),
    ((16, 16, (5, 4), (7, 7, 7, 7), 1), (7, 7)),
    ((24, 16, (40, 37), (2, 2, 2, 2), 1), (2, 2)),
]
# with dilations, and other windows
OTHERS: list[tuple[tuple[Any, ...], Pair, Pair]] = [
    ((32, 48, (1, 50), (0, 1, 0, 1), 2), (1, 1), (1, 3)),
    ((33, 40, (1, 61), (0, 8, 0, 0), 1), (1, 4), (1, 3)),
    ((40, 24, (7, 13), (0, 1, 0, 2), 1), (3, 2), (1, 3)),
    ((40, 24, (13, 7), (1, 0, 2, 0), 3), (1, 1), (3, 1)),
    ((60, 51, (11, 6), (3, 1, 3, 0), 1, 3), (3, 2), (3, 1)),
    ((300, 20, (9, 40), (1, 0, 1, 0), 1), (1, 1), (3, 1)),
    ((32, 48, (1, 50), (0, 2, 0, 2), 2), (1, 1), (1, 5)),
    ((40, 24, (17, 7), (2, 0, 4, 0), 3), (2, 1), (5, 1)),
    ((33, 40, (12, 13), (2, 2, 2, 2), 1), (1, 1), (5, 5)),
    ((40, 51, (13, 14), (2, 1, 2, 1), 2), (2, 3), (5, 3)),
    ((64, 32, (9, 11), (1, 2, 1, 2), 1, 2), (1, 1), (3, 5)),
]


def kernels_of(
    isa: Isa, dtype: DType, case: Any, epilogue: Epilogue, dilations: Pair = (1, 1), window: Pair = (3, 3)
) -> list[WinogradKernel]:
    """Every variant for a case."""
    ic, oc, (h, w), (top, left, bottom, right), _, *groups = case
    plane = h + top + bottom - (window[0] - 1) * dilations[0], w + left + right - (window[1] - 1) * dilations[1]
    problem = ConvProblem.contiguous(
        "nhwc", epilogue, ic, oc, plane, window, groups=sum(groups) or 1, dilations=dilations
    )
    kernels = list(WinogradKernel.candidates(problem, isa))
    assert {k.filtering for k in kernels} == {*filterings_of(window)} and {k.tile.dtype for k in kernels} == {dtype}
    return kernels


def close_to(found: Any, exact: Any, k: int, kernel: WinogradKernel) -> None:
    """As close as any sum; of tiles of 4 x 4, which multiply, as close to the largest result as their bound says."""
    if kernel.filtering.along == 4:
        close(found, exact, k, kernel.tile.dtype)
    else:
        assert np.abs(found - exact).max() <= 32 * np.finfo(kernel.tile.dtype.numpy).eps * np.abs(exact).max()


def run(lib: Any, kernel: WinogradKernel, case: Any, dilations: Pair = (1, 1)) -> None:
    """Calls on slices of wider tensors: nothing outside the slices is read, or written; the same for any pool."""
    ic, oc, (ih, iw), pads, n, *more = case
    dtype, groups = kernel.tile.dtype, sum(more) or 1
    x, w = noise(n, ic, ih, iw, dtype=dtype), noise(oc, ic // groups, *kernel.filtering.window, dtype=dtype)
    exact = exact_conv(x, w, groups, (1, 1), dilations, pads)
    oh, ow = exact.shape[2:]
    given, found = nhwc(x, 3, np.nan), []
    packed = kernel.pack_weights(w, groups)
    assert packed.size == kernel.packed_elements(oc // groups, ic // groups, groups)
    down, across = kernel.filtering.sides
    most = kernel.most(ic // groups, -(-oh // down) * -(-ow // across), False)
    sizes: dict[str, Any] = {"batch": n, "groups": groups, "ic": ic // groups, "oc": oc // groups, "most": most}
    sizes |= {name: dilations["hw".index(name[-1])] for name in kernel.sizes if name.startswith("dilation")}
    panels = -(-(oc // groups) // kernel.tile.panel)
    sizes |= {"ih": ih, "iw": iw, "oh": oh, "ow": ow}
    sizes |= {"pad_h": pads[0], "pad_w": pads[1], "x_pixel": ic + 3, "x_row": iw * (ic + 3)}
    sizes |= {"x_batch": ih * iw * (ic + 3), "y_pixel": oc + 5, "y_batch": oh * ow * (oc + 5)}
    slots: list[np.ndarray[Any, Any]] = []
    if kernel.epilogue.slots:
        shapes = ((n, oc), (oc,), exact.shape, (n, oh, ow), (1,))
        scale, bias, add, by, one = (noise(*s, dtype=dtype) for s in shapes)
        exact = np.maximum(exact * scale[:, :, None, None] + bias[:, None, None], 0) + add
        exact = exact * by[:, None] * one
        slots = [scale, bias, nhwc(add, 2, np.nan), by, one]
        sizes |= {"s0_batch": oc, "s2_batch": oh * ow * (oc + 2), "s2_pixel": oc + 2}
        sizes |= {"s3_batch": oh * ow, "s3_pixel": 1}
    for pool, wide in ((None, 1), (Pool(1), 2), (Pool(3), 1), (Pool(7), panels), (None, panels)):
        order = [int(e.value) for e in kernel.order(**sizes, wide=wide)]  # type: ignore[attr-defined]
        y = nhwc(np.zeros(exact.shape, dtype.numpy), 5, 77)
        invoke(lib, kernel, given, packed, *slots, y, *order, pool=pool)
        assert (y[..., oc:] == 77).all()
        found.append(y)
    close_to(found[0][..., :oc].transpose(0, 3, 1, 2), exact, kernel.filtering.taps * ic // groups, kernel)
    assert all(np.array_equal(found[0], y) for y in found[1:])


def check(folder: Path, isa: Isa, dtype: DType, epilogue: Epilogue) -> None:
    kernels = [(k, case) for case in CASES + GROUPED for k in kernels_of(isa, dtype, case, epilogue)]
    lib = build(folder, list({k.symbol: k for k, _ in kernels}.values()))
    for kernel, case in kernels:
        run(lib, kernel, case)


@pytest.mark.parametrize("isa", ["avx512", "avx2", "neon", "sse", "plain"])
def test_every_case(tmp_path: Path, isa: str) -> None:
    check(tmp_path, ISAS[isa], f32, fused() if isa != "avx2" else plain())


@pytest.mark.parametrize("isa", ["avx512", "avx2", "plain"])
def test_dilations(tmp_path: Path, isa: str) -> None:
    kernels = [(k, case, apart) for case, apart in DILATED for k in kernels_of(ISAS[isa], f32, case, fused(), apart)]
    lib = build(tmp_path, list({k.symbol: k for k, *_ in kernels}.values()))
    for kernel, case, apart in kernels:
        run(lib, kernel, case, apart)


@pytest.mark.parametrize("isa", ["avx512", "avx2", "plain"])
def test_other_windows(tmp_path: Path, isa: str) -> None:
    kernels: list[tuple[WinogradKernel, Any, Pair]] = []
    for case, apart, window in OTHERS:
        kernels += [(k, case, apart) for k in kernels_of(ISAS[isa], f32, case, fused(), apart, window)]
    lib = build(tmp_path, list({k.symbol: k for k, *_ in kernels}.values()))
    for kernel, case, apart in kernels:
        run(lib, kernel, case, apart)


def test_dilated_squares_cover_the_plane() -> None:
    """No square of outputs is empty: of 13 pixels, 4 apart, four runs of 4 (one of a single pixel), not eight."""
    for n, apart in ((13, 4), (16, 2), (7, 7), (3, 5), (17, 2), (40, 3)):
        problem = ConvProblem.contiguous("nhwc", plain(), 16, 16, (n, 1), (3, 3), dilations=(apart, 1))
        assert int(problem.runs(4, 4)) == sum(-(-len(range(first, n, apart)) // 4) for first in range(min(apart, n)))


def test_vectors_in_halves(tmp_path: Path) -> None:
    """Half a vector of channels left: tiles of half the lanes, too."""
    isa, case = replace(ISAS["avx512"], fma=1), (40, 24, (15, 14), (0, 1, 1, 0), 1)
    kernels = kernels_of(isa, f32, case, fused())
    assert {(k.tile.lanes, k.tile.vectors) for k in kernels} == {(16, 1), (16, 2), (8, 1), (8, 2), (8, 3)}
    lib = build(tmp_path, kernels)
    for kernel in kernels:
        run(lib, kernel, case)


def test_double(tmp_path: Path) -> None:
    check(tmp_path, ISAS["avx2"], f64, fused(f64))


def test_a_small_cache(tmp_path: Path) -> None:
    """Few tiles are transformed at a time."""
    check(tmp_path, replace(ISAS["avx512"], l2=64 << 10), f32, fused())


def test_weights_that_are_read_once() -> None:
    """Positions of all panels follow one another where chunks of the tiles would each read many weights."""
    (kernel,) = (
        k
        for k in WinogradKernel.candidates(
            ConvProblem.contiguous("nhwc", plain(), 512, 512, (7, 7), (3, 3)), replace(ISAS["avx2"], l2=512 << 10)
        )
        if k.filtering == F2 and k.tile.vectors == 2
    )
    assert kernel.wide(512, 512, 16) == 32 and kernel.wide(64, 64, 784) == 1
    assert kernel.wide(512, 512, Dim.symbol("n")) == 1 and kernel.wide(512, 512, 6) == 1


def test_weights_of_small_planes_meet_all_images() -> None:
    """A register tile has tiles of several images, if it is known how many there are."""
    for batch, tile in ((16, (8, 3)), (2, (2, 3)), (Dim.symbol("n"), (1, 3))):
        problem = ConvProblem.contiguous("nhwc", plain(), 64, 192, (4, 4), (3, 3))
        kernels = WinogradKernel.candidates(replace(problem, batch=Dim.of(batch)), ISAS["avx512"])
        assert tile in {(k.tile.rows, k.tile.vectors) for k in kernels if k.filtering == F4}


def test_where_it_does_not_pay() -> None:
    """Few channels, whose transform costs more than it saves; few pixels of many weights, of a number not known."""
    isa, w = ISAS["avx512"], Dim.symbol("w")
    for oc, ic, oh, ow in ((8, 8, 112, 112), (32, 3, 64, 64), (512, 512, w // 32, w // 32)):
        assert winograd_conv(isa, ic, oc, (oh, ow), plain()) is None


def test_planes_of_any_size() -> None:
    """Symbolic sizes count as those of an image; a bound that the model declares is kept to."""
    isa, w = ISAS["avx512"], Dim.symbol("w")
    kernel = winograd_conv(isa, 64, 64, (w // 2, w), plain())
    assert kernel is not None and kernel.most(64, w * w, False) == kernel.most(64, 1 << 20, False)
    assert winograd_conv(isa, 64, 64, (Dim.symbol("h", 1, 8), 8), plain()) is None


@pytest.mark.parametrize(
    ("filtering", "bound"),
    [
        (F2, 1e-6),
        (F4, 3e-6),
        (Filtering((1, 3), 6), 1.5e-6),
        (Filtering((1, 5), 6), 1e-6),
        (Filtering((5, 5), 6), 3e-6),
        (Filtering((1, 5), 8), 3e-6),
        (Filtering((1, 7), 8), 3e-6),
    ],
)
def test_accuracy(tmp_path: Path, filtering: Filtering, bound: float) -> None:
    """Not much worse than a plain sum in f32: the error of 512 · 9 products, of the size of the largest result."""
    high, wide = filtering.window
    pads = (high // 2, wide // 2, high // 2, wide // 2)
    case = (512, 64, (14, 14), pads, 1)
    of_window = kernels_of(ISAS["avx512"], f32, case, plain(), window=filtering.window)
    kernels = [k for k in of_window if k.filtering == filtering]
    assert [k.tile.vectors for k in kernels] == [2, 3, 1]
    lib = build(tmp_path, kernels)
    x, w = noise(1, 512, 14, 14), noise(64, 512, high, wide)
    exact = exact_conv(x, w, 1, (1, 1), (1, 1), pads)
    sizes = (1, 1, 512, 64, 14, 14, 14, 14, *pads[:2], 2, 1, 0, 14 * 512, 512, 0, 64)
    for kernel in kernels:
        y = np.zeros((1, 14, 14, 64), np.float32)
        invoke(lib, kernel, nhwc(x, 0, np.nan), kernel.pack_weights(w), y, *sizes)
        assert np.abs(y.transpose(0, 3, 1, 2) - exact).max() <= bound * np.abs(exact).max()
