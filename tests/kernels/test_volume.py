"""Convolutions over volumes: both kernels against NumPy in float64, in memory with NaN around it."""

from __future__ import annotations

import ctypes
import dataclasses
import itertools
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from irc.expr import Const
from irc.ir.dim import Dim
from irc.ir.types import DType, f32, f64
from irc.kernels import ISAS, Epilogue, Isa, acc, plain, slot
from irc.kernels.conv.nchw import NchwConvKernel
from irc.kernels.conv.problem import ConvProblem, Depth
from irc.kernels.conv.volume import VolumeConvKernel
from irc.kernels.core.registry import select
from irc.kernels.core.tile import Tile
from tests.kernels.test_kernels import Pool, build, close, compilers, guarded, invoke, noise

pytestmark = pytest.mark.skipif(not compilers(), reason="no C compiler")
FUSED = Epilogue((acc() + slot(0) + slot(1)).max(Const(0.0, f32)), ("column", "full"))
Triple = tuple[int, int, int]
CASES = [  # images, channels, outputs, groups, size, window, strides, dilations, padding (in front, behind)
    (2, 5, 20, 1, (4, 4, 4), (3, 3, 3), (1, 1, 1), (1, 1, 1), ((1, 1, 1), (1, 1, 1))),
    (1, 8, 12, 2, (5, 7, 9), (3, 2, 3), (2, 1, 2), (1, 2, 2), ((0, 1, 2), (2, 0, 1))),
    (1, 3, 3, 1, (4, 4, 4), (7, 7, 7), (1, 1, 1), (1, 1, 1), ((3, 3, 3), (3, 3, 3))),
    (1, 2, 70, 1, (2, 3, 33), (1, 3, 5), (1, 2, 1), (1, 1, 3), ((0, 1, 6), (0, 1, 6))),
    (1, 40, 8, 1, (3, 6, 6), (5, 5, 5), (2, 2, 2), (1, 1, 1), ((2, 2, 2), (2, 2, 2))),
    (1, 6, 4, 1, (3, 2, 7), (3, 3, 3), (1, 1, 1), (2, 2, 2), ((9, 7, 5), (9, 7, 5))),
    (2, 20, 20, 20, (6, 5, 12), (3, 3, 3), (1, 1, 1), (1, 1, 1), ((1, 1, 1), (1, 1, 1))),
    (1, 7, 14, 7, (7, 9, 8), (3, 5, 3), (2, 1, 2), (1, 1, 2), ((1, 2, 0), (1, 2, 3))),
    (1, 40, 40, 40, (12, 12, 12), (3, 3, 3), (2, 2, 2), (1, 1, 1), ((1, 1, 1), (1, 1, 1))),
    (1, 3, 6, 3, (4, 4, 4), (7, 7, 7), (1, 1, 1), (1, 1, 1), ((3, 3, 3), (3, 3, 3))),
    (1, 16, 20, 1, (3, 4, 7), (5, 5, 3), (1, 1, 1), (1, 1, 1), ((2, 2, 1), (2, 2, 1))),  # tiles overlap, sums in parts
    (1, 20, 24, 1, (1, 9, 11), (1, 3, 3), (1, 2, 2), (1, 1, 1), ((0, 1, 1), (0, 1, 1))),  # a plane
    (1, 21, 24, 1, (1, 3, 7), (1, 1, 1), (1, 1, 1), (1, 1, 1), ((0, 0, 0), (0, 0, 0))),  # one row of taps, one wide
    (1, 9, 20, 1, (1, 1, 6), (1, 3, 1), (1, 1, 1), (1, 1, 1), ((0, 1, 0), (0, 1, 0))),  # one of three is inside
    (1, 9, 20, 1, (1, 3, 6), (1, 3, 1), (1, 2, 1), (1, 1, 1), ((0, 1, 0), (0, 1, 0))),
    (1, 9, 20, 1, (1, 2, 6), (1, 1, 3), (1, 1, 1), (1, 1, 1), ((0, 1, 1), (0, 1, 1))),  # one row, some in padding
    (2, 10, 50, 2, (2, 120, 64), (1, 1, 3), (1, 2, 2), (1, 1, 1), ((0, 0, 1), (0, 0, 1))),  # panels meet a block
    (1, 12, 12, 1, (1, 2, 20), (1, 1, 1), (1, 1, 1), (1, 1, 1), ((0, 0, 16), (0, 0, 16))),  # tiles of padding
    (1, 5, 84, 1, (1, 2, 9), (1, 1, 1), (1, 1, 1), (1, 1, 1), ((0, 0, 2), (0, 0, 2))),  # of AVX2's vectors, 6 and 5
    (1, 12, 20, 1, (1, 1, 701), (1, 1, 8), (1, 1, 1), (1, 1, 1), ((0, 0, 3), (0, 0, 4))),  # tiles of an only row
    (2, 12, 40, 2, (1, 1, 300), (1, 1, 5), (1, 1, 2), (1, 1, 4), ((0, 0, 8), (0, 0, 8))),
    (1, 5, 40, 1, (1, 1, 2100), (1, 1, 4), (1, 1, 1), (1, 1, 3), ((0, 0, 4), (0, 0, 5))),  # in more pieces than threads
    (2, 2, 9, 1, (1, 1, 400), (1, 1, 70), (1, 1, 6), (1, 1, 1), ((0, 0, 30), (0, 0, 30))),  # loops over taps
    (1, 9, 8, 1, (3, 1, 50), (3, 1, 3), (1, 1, 1), (1, 1, 1), ((0, 0, 1), (0, 0, 1))),
]


def problem_of(case: Any, epilogue: Epilogue) -> ConvProblem:
    """State a case; X and the result have no gaps."""
    n, channels, outputs, groups, size, window, strides, dilations, (front, behind) = case
    extents = zip(size, window, strides, dilations, front, behind, strict=True)
    result = [(i + a + b - d * (k - 1) - 1) // s + 1 for i, k, s, d, a, b in extents]
    dims = [tuple(map(Dim.of, each)) for each in (size, result, front)]
    depth = Depth(dims[0][0], dims[1][0], window[0], strides[0], dilations[0], dims[2][0])
    shape = (channels, outputs, tuple(result[1:]), window[1:], strides[1:], dilations[1:], groups)
    made = ConvProblem.contiguous("nchw", epilogue, *shape, depth=depth)
    volume, image = dims[1][0] * dims[1][1] * dims[1][2], dims[0][0] * dims[0][1] * dims[0][2]
    return dataclasses.replace(
        made,
        batch=Dim.of(n),
        size=dims[0][1:],
        padding=dims[2][1:],
        x=(channels * image, image, *made.x[2:]),
        y=(outputs * volume, volume, *made.y[2:]),
        slots=tuple((outputs * volume if a == "full" else Dim.of(0), s[1]) for a, s in zip(epilogue.slots, made.slots)),
    )


def exact_sums(x: Any, w: Any, case: Any) -> Any:
    _, _, outputs, groups, _, window, strides, dilations, pads = case
    full = np.pad(x.astype(np.float64), ((0, 0), (0, 0), *zip(*pads, strict=True)))
    spans = zip(full.shape[2:], window, strides, dilations, strict=True)
    shape = [(i - d * (k - 1) - 1) // s + 1 for i, k, s, d in spans]
    y, per = np.zeros((len(x), outputs, *shape)), outputs // groups
    for g, tap in itertools.product(range(groups), np.ndindex(*window)):
        axes = zip(tap, dilations, shape, strides, strict=True)
        at = tuple(slice(t * d, t * d + (n - 1) * s + 1, s) for t, d, n, s in axes)
        part = full[:, g * w.shape[1] : (g + 1) * w.shape[1], *at]
        sums = np.tensordot(w[g * per : (g + 1) * per, :, *tap].astype(np.float64), part, (1, 1))
        y[:, g * per : (g + 1) * per] += sums.swapaxes(0, 1)
    return y


def check(lib: Any, kernel: Any, case: Any, epilogue: Epilogue, dtype: DType) -> None:
    """Run C on one thread and on two, and the oracle, against sums in float64."""
    n, channels, outputs, groups, size, window, *_ = case
    problem = problem_of(case, epilogue)
    x = guarded(n, channels, *size) if dtype == f32 else noise(n, channels, *size, dtype=dtype)
    w = noise(outputs, channels // groups, *window, dtype=dtype)
    wanted = exact_sums(x, w, case)
    slots = [noise(outputs), noise(*wanted.shape)] if epilogue.slots else []
    if slots:
        wanted = np.maximum(wanted + slots[0][:, None, None, None] + slots[1], 0)
    packed = kernel.packed(problem)
    weights = packed.pack(w)
    assert weights.size == packed.elements
    sizes = {name: int(d) for name, d in kernel.arguments_for(problem).items()}
    found: list[Any] = []
    for pool in (None, Pool(1)):
        y = np.full(wanted.shape, np.nan, dtype.numpy)
        invoke(lib, kernel, x, weights, *slots, y, *(sizes[name] for name in kernel.sizes), pool=pool)
        close(y, wanted, channels // groups * int(np.prod(window)), dtype)
        found.append(y)
    np.testing.assert_array_equal(*found)
    y = np.full(wanted.size, np.nan, dtype.numpy)
    kernel.compute([x.ravel(), weights, *(s.ravel() for s in slots)], [y], sizes)
    close(y.reshape(wanted.shape), wanted, channels // groups * int(np.prod(window)), dtype)


def kernels_for(case: Any, epilogue: Epilogue, isa: Isa, lengths: int) -> list[Any]:
    """List the cheapest matrix product, and the cheapest direct kernel of some lengths of vectors."""
    problem = problem_of(case, epilogue)
    direct: dict[int, Any] = {}
    for one in sorted(VolumeConvKernel.candidates(problem, isa), key=lambda k: -k.cycles(problem)):
        direct[one.tile.lanes] = one
    return [NchwConvKernel.best(problem, isa), *[direct[n] for n in sorted(direct)[-lengths:]]]


@pytest.mark.parametrize(("isa", "fused", "lengths"), [("avx512", True, 3), ("avx2", False, 1), ("plain", True, 1)])
def test_volumes(tmp_path: Path, isa: str, fused: bool, lengths: int) -> None:
    epilogue = FUSED if fused else plain()
    pairs = [(kernel, case) for case in CASES for kernel in kernels_for(case, epilogue, ISAS[isa], lengths)]
    lib = build(tmp_path, list({k.symbol: k for k, _ in pairs}.values()))
    for kernel, case in pairs:
        check(lib, kernel, case, epilogue, f32)


def test_volumes_of_doubles(tmp_path: Path) -> None:
    pairs = [(kernel, case) for case in CASES[:7:3] for kernel in kernels_for(case, plain(f64), ISAS["avx2"], 1)]
    lib = build(tmp_path, list({k.symbol: k for k, _ in pairs}.values()))
    for kernel, case in pairs:
        check(lib, kernel, case, plain(f64), f64)


@pytest.mark.parametrize("isa", ["avx512", "avx2"])
def test_choice(isa: str) -> None:
    """Channels of their own go into vectors, many outputs too; one tap is a product of matrices; sizes may be open."""
    rest = ((1, 1, 1), (1, 1, 1), ((1, 1, 1),) * 2)
    dense, wise = (1, 32, 32, 1, (8, 8, 8), (3, 3, 3), *rest), (1, 40, 40, 40, (12, 12, 12), (3, 3, 3), *rest)
    one = (1, 64, 96, 1, (8, 8, 8), (1, 1, 1), *rest[:2], ((0, 0, 0),) * 2)
    kernel = select(problem_of(wise, plain()), ISAS[isa])
    assert isinstance(kernel, VolumeConvKernel) and kernel.depthwise
    kernel = select(problem_of(dense, plain()), ISAS[isa])
    assert isinstance(kernel, VolumeConvKernel) and not kernel.depthwise
    assert isinstance(select(problem_of(one, plain()), ISAS[isa]), NchwConvKernel)
    width = Dim.symbol("w")
    known = problem_of(dense, plain())
    unknown = dataclasses.replace(known, size=(known.size[0], width), result=(known.result[0], width))
    assert isinstance(select(unknown, ISAS[isa]), NchwConvKernel)


def test_threads_share_rows_of_few_panels() -> None:
    """Of one panel 28 rows are six blocks, not five; 48 channels are panels of 16, not of 32.

    The last at two threads: 0.20 -> 0.15 ms, Zen 4.
    """
    rest = ((1, 1, 1), (1, 1, 1), ((0, 2, 2),) * 2)
    one, two = ((1, 48, n, 1, (1, 28, 28), (1, 5, 5), *rest) for n in (32, 48))
    found = {k.tile.vectors: k for k in VolumeConvKernel.candidates(problem_of(one, plain()), ISAS["avx512"])}
    assert found[2].imbalance(problem_of(one, plain())) == pytest.approx(1, abs=0.04)
    assert "even number of tasks" in found[2].source()
    found = {k.tile.vectors: k for k in VolumeConvKernel.candidates(problem_of(two, plain()), ISAS["avx512"])}
    uneven, even = (found[n].imbalance(problem_of(two, plain())) for n in (2, 1))
    assert uneven == pytest.approx(4 / 3, abs=0.02) and even == 1
    few = problem_of((1, 48, 48, 1, (1, 10, 56), (1, 5, 5), *rest), plain())
    kernel = select(few, ISAS["avx512"])
    assert isinstance(kernel, VolumeConvKernel) and kernel.imbalance(few) == 1


def test_estimates_know_the_blocks_of_rows(tmp_path: Path) -> None:
    """The C divides rows, and the tiles of an only row, as `_blocks`, by which kernels are chosen, says."""
    kernels = [
        VolumeConvKernel(Tile(ISAS["avx2"], f32, 6, 2), (n, n, 3, 1, 1, 1), True, False, plain()) for n in (28, 3000)
    ]
    asked = ""
    for i, kernel in enumerate(kernels):
        s = kernel.symbol
        asked += f"int64_t blocks_{i}(int64_t rows, int64_t panels) {{\n    {s}_call call = {{0}};\n"
        asked += "    call.batch = call.groups = call.ic = call.od = call.kd = call.kh = 1;\n"
        asked += f"    call.oh = rows, call.oc = panels * {kernel.tile.panel};\n    {s}_plan(&call);\n"
        asked += "    return call.blocks;\n}\n"
    lib = build(tmp_path, kernels, asked)
    for i, (kernel, most) in enumerate(zip(kernels, (300, 1), strict=True)):
        blocks = getattr(lib, f"blocks_{i}")
        blocks.argtypes, blocks.restype = [ctypes.c_int64] * 2, ctypes.c_int64
        heights = (rows for rows in (1, 2, 3, 5, 7, 10, 14, 28, 56, 300) if rows <= most)
        for rows, panels in itertools.product(heights, range(1, 12)):
            assert blocks(rows, panels) == kernel._blocks(rows, panels), (rows, panels)


def test_tiles_of_an_only_row_are_shared() -> None:
    """256 channels of 500 to 16, eight taps: 0.40 -> 0.29 ms, at two threads 0.24 -> 0.15 (Zen 4)."""
    only = problem_of((1, 256, 16, 1, (1, 1, 500), (1, 1, 8), *((1, 1, 1),) * 2, ((0, 0, 3), (0, 0, 3))), plain())
    kernel = select(only, dataclasses.replace(ISAS["avx512"], fma=1))
    assert isinstance(kernel, VolumeConvKernel) and kernel.imbalance(only) < 1.1


def test_many_taps_are_a_loop() -> None:
    """The window of a spectrogram, 400 taps written out for each kind of tile, takes GCC 11 s."""
    case = (1, 1, 128, 1, (1, 1, 16000), (1, 1, 400), (1, 1, 160), (1, 1, 1), ((0, 0, 200), (0, 0, 200)))
    kernel = select(problem_of(case, plain()), ISAS["avx512"])
    assert isinstance(kernel, VolumeConvKernel) and len(kernel.source()) < 50_000


def test_one_tap_of_few_channels() -> None:
    """Four images of 16 x 16 x 16, 32 -> 192 channels in 8 groups, one tap, strides 2: 110 to 180 us so, 90 in tiles.

    Zen 4: a channel of such a row is over in as many cycles as it takes to begin it.
    """
    rest = ((2, 2, 2), (1, 1, 1), ((0, 0, 0),) * 2)
    problem = problem_of((4, 32, 192, 8, (16, 16, 16), (1, 1, 1), *rest), plain())
    assert isinstance(select(problem, dataclasses.replace(ISAS["avx512"], fma=1)), NchwConvKernel)


def test_fetching_ahead() -> None:
    """Narrow tiles, which meet much of X, fetch it ahead."""
    problem = problem_of((1, 96, 128, 1, (1, 9, 30), *((1, 1, 1),) * 3, ((0, 0, 0), (0, 0, 0))), plain())
    for vectors, fetched in ((2, True), (4, False)):
        found = [k for k in VolumeConvKernel.candidates(problem, ISAS["avx512"]) if k.tile.vectors == vectors]
        assert found and all(("__builtin_prefetch(xu" in k.source()) is fetched for k in found)


def test_weights_of_the_next_channels_are_fetched() -> None:
    """While rows meet those of some channels, which stay in the first cache; a depthwise kernel has few."""
    dense, depthwise = (VolumeConvKernel.best(problem_of(CASES[i], plain()), ISAS["avx512"]) for i in (0, 6))
    assert dense is not None and depthwise is not None
    assert ["__builtin_prefetch(ahead" in k.source() for k in (dense, depthwise)] == [True, False]
