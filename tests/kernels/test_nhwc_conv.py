"""Generated NHWC convolutions against NumPy in float64, at the edges of tiles, strips, panels and blocks."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from irc.expr import Const, call
from irc.ir.dim import Dim
from irc.ir.types import DType, f32, f64
from irc.kernels import ISAS, Epilogue, acc, plain, slot
from irc.kernels.conv.nhwc import NhwcConvKernel
from irc.kernels.core.isa import Isa
from irc.kernels.core.text import needed, own
from tests.kernels.test_kernels import Pool, build, close, compilers, exact_conv, invoke, noise
from tests.support.kernels import direct_conv

pytestmark = pytest.mark.skipif(not compilers(), reason="no C compiler")
W = Dim.symbol("w")


@dataclass(frozen=True)
class Case:
    """Channels are those of one group; pads are top, left, bottom, right."""

    ic: int
    oc: int
    size: tuple[int, int]
    window: tuple[int, int]
    strides: tuple[int, int] = (1, 1)
    dilations: tuple[int, int] = (1, 1)
    pads: tuple[int, int, int, int] = (0, 0, 0, 0)
    groups: int = 1
    batch: int = 1
    known: bool = True

    @property
    def out(self) -> tuple[int, int]:
        def along(n: int, pads: int, k: int, s: int, d: int) -> int:
            return (n + pads - d * (k - 1) - 1) // s + 1

        (top, left, bottom, right), window = self.pads, zip(self.window, self.strides, self.dilations, strict=True)
        (h, w), sums = window, (top + bottom, left + right)
        return along(self.size[0], sums[0], *h), along(self.size[1], sums[1], *w)


SAME = (1, 1, 1, 1)
CASES = [
    Case(3, 64, (20, 21), (7, 7), (2, 2), pads=(3, 3, 3, 3)),
    Case(3, 33, (12, 40), (3, 3), (2, 2), pads=SAME, batch=2),
    Case(16, 32, (9, 28), (3, 3), pads=SAME),
    Case(64, 32, (7, 7), (3, 3), pads=SAME),
    Case(16, 96, (5, 7), (3, 3), pads=SAME, batch=2),
    Case(20, 17, (4, 5), (3, 3), pads=SAME),
    Case(5, 130, (3, 4), (3, 3), pads=SAME),
    Case(17, 20, (5, 3), (2, 2), pads=(0, 0, 1, 1)),
    Case(33, 48, (6, 31), (3, 3), pads=SAME, known=False),
    Case(16, 31, (6, 13), (3, 3), pads=SAME, batch=2),
    Case(8, 24, (9, 30), (3, 3), (1, 1), (2, 3), (2, 3, 2, 3)),
    Case(8, 16, (40, 40), (3, 3), (1, 1), (12, 13), (12, 13, 12, 13)),
    Case(16, 40, (13, 30), (1, 1), (2, 2)),
    Case(6, 18, (14, 17), (1, 1), (3, 2), pads=(1, 2, 0, 3)),
    Case(4, 8, (12, 19), (3, 2), (1, 2), pads=(0, 1, 2, 0), groups=2),
    Case(2, 1, (6, 6), (3, 3), (2, 1), pads=(1, 0, 1, 0), groups=4, batch=2),
    Case(6, 7, (10, 40), (5, 4), (3, 3), pads=(4, 5, 4, 5)),
    Case(4, 3, (1, 1), (3, 3), pads=SAME),
    Case(1, 1, (1, 130), (1, 9), pads=(0, 4, 0, 4)),
    Case(1, 1, (130, 1), (9, 1), pads=(4, 0, 4, 0)),
    Case(2, 5, (4, 3), (2, 6), (1, 1), (1, 2), (0, 9, 0, 9)),
    Case(120, 30, (6, 11), (3, 3), (1, 2), pads=SAME),
    Case(3, 5, (2, 2), (2, 2), pads=(9, 9, 9, 9)),
    Case(160, 64, (30, 29), (3, 3), pads=SAME),
]


def fused(dtype: DType = f32) -> Epilogue:
    """(relu(acc · by channel and image + bias) + residual) · by pixel · scalar: every kind of slot."""
    s = [slot(i, dtype) for i in range(5)]
    x = ((acc(dtype) * s[0] + s[1]).max(Const(0.0, dtype)) + s[2]) * s[3] * s[4]
    return Epilogue(x, ("row", "row", "full", "column", "scalar"))


def nhwc(x: np.ndarray[Any, Any], slack: int, fill: float) -> np.ndarray[Any, Any]:
    """x[n, c, h, w] as [n, h, w, c + slack] with 64 more elements on both sides, all of them `fill`."""
    n, c, h, w = x.shape
    whole = np.full(n * h * w * (c + slack) + 128, fill, x.dtype)
    inner = whole[64:-64].reshape(n, h, w, c + slack)
    inner[..., :c] = x.transpose(0, 2, 3, 1)
    return inner


def run(lib: Any, kernel: NhwcConvKernel, case: Case, pool: Pool | None = None) -> np.ndarray[Any, Any]:
    """Checks one call on slices of wider tensors: nothing outside the slices is read, or written."""
    dtype, n, (oh, ow) = kernel.tile.dtype, case.batch, case.out
    (ih, iw), channels, inputs = case.size, case.groups * case.oc, case.groups * case.ic
    x, w = noise(n, inputs, ih, iw, dtype=dtype), noise(channels, case.ic, *case.window, dtype=dtype)
    exact = exact_conv(x, w, case.groups, case.strides, case.dilations, case.pads)
    assert exact.shape == (n, channels, oh, ow)
    sliced = 0 if case.ic == kernel.block else 3
    given, y = nhwc(x, sliced, np.nan), nhwc(np.zeros(exact.shape, dtype.numpy), 5, 77)
    packed = kernel.pack_weights(w, case.groups)
    assert packed.size == kernel.packed_elements(case.oc, case.ic, case.groups)
    sizes: dict[str, Any] = {"batch": n, "groups": case.groups, "ic": case.ic, "oc": case.oc, "ih": ih, "iw": iw}
    sizes |= {"oh": oh, "ow": ow, "pad_h": case.pads[0], "pad_w": case.pads[1], "x_pixel": inputs + sliced}
    sizes |= {"x_row": iw * (inputs + sliced), "x_batch": ih * iw * (inputs + sliced)}
    sizes |= {"y_pixel": channels + 5, "y_batch": oh * ow * (channels + 5)}
    slots: list[np.ndarray[Any, Any]] = []
    if kernel.epilogue.slots:
        shapes = ((n, channels), (channels,), exact.shape, (n, oh, ow), (1,))
        scale, bias, add, by, one = (noise(*s, dtype=dtype) for s in shapes)
        exact = np.maximum(exact * scale[:, :, None, None] + bias[:, None, None], 0) + add
        exact = exact * by[:, None] * one
        slots = [scale, bias, nhwc(add, 2, np.nan), by, one]
        sizes |= {"s0_batch": channels, "s2_batch": oh * ow * (channels + 2), "s2_pixel": channels + 2}
        sizes |= {"s3_batch": oh * ow, "s3_pixel": 1}
    order = [int(e.value) for e in kernel.order(**sizes)]  # type: ignore[attr-defined]
    invoke(lib, kernel, given, packed, *slots, y, *order, pool=pool)
    close(y[..., :channels].transpose(0, 3, 1, 2), exact, case.ic * case.window[0] * case.window[1], dtype)
    assert (y[..., channels:] == 77).all()
    return y


def select(isa: Isa, dtype: DType, case: Case, epilogue: Epilogue) -> NhwcConvKernel:
    oh, ow = case.out
    result, geometry = (oh, ow if case.known else W), (case.window, case.strides, case.dilations)
    kernel = direct_conv(isa, case.ic, case.oc, result, *geometry, epilogue)
    assert kernel is not None and kernel.tile.dtype == dtype
    return kernel


def check(folder: Path, isa: Isa, dtype: DType, epilogue: Epilogue, cases: list[Case]) -> None:
    kernels = [select(isa, dtype, case, epilogue) for case in cases]
    lib = build(folder, list({k.symbol: k for k in kernels}.values()))
    for kernel, case in zip(kernels, cases, strict=True):
        run(lib, kernel, case)
        run(lib, kernel, case, Pool(1))


@pytest.mark.parametrize("isa", ["avx512", "avx2", "neon", "sse", "plain"])
def test_every_case(tmp_path: Path, isa: str) -> None:
    check(tmp_path, ISAS[isa], f32, fused() if isa != "avx2" else plain(), CASES)


def test_vectors_in_halves(tmp_path: Path) -> None:
    """Half a vector of channels left, in one file with tiles of whole vectors, whose C has other names."""
    isa, cases = replace(ISAS["avx512"], fma=1), [replace(c, oc=24) for c in CASES[:6]] + CASES[:6]
    assert {select(isa, f32, c, fused()).tile.lanes for c in cases} == {8, 16}
    check(tmp_path, isa, f32, fused(), cases)


def test_double(tmp_path: Path) -> None:
    check(tmp_path, ISAS["avx2"], f64, fused(f64), CASES[:9])


FAR = [
    Case(20, 40, (1, 2500), (1, 3), dilations=(1, 1024), pads=(0, 2048, 0, 0)),
    Case(16, 16, (1, 300), (1, 3), dilations=(1, 128), pads=(0, 128, 0, 128), batch=2, known=False),
    Case(6, 9, (1, 330), (1, 5), (1, 3), (1, 64), (0, 100, 0, 156), groups=2),
    Case(5, 7, (1, 20), (1, 2), dilations=(1, 500), pads=(0, 500, 0, 0)),
    Case(8, 33, (40, 33), (3, 2), (2, 1), (9, 20), (9, 0, 9, 20)),
]


@pytest.mark.parametrize("isa", ["avx512", "avx2"])
def test_taps_apart(tmp_path: Path, isa: str) -> None:
    """Copies of each tap's columns, for dilations wider than a strip and for others."""
    chosen = [select(ISAS[isa], f32, case, fused()) for case in FAR]
    assert sum(k.apart for k in chosen) >= 3
    cases = [c for c in CASES if 1 < c.window[1] < 9] + FAR
    kernels = [replace(select(ISAS[isa], f32, case, fused()), apart=True) for case in cases]
    lib = build(tmp_path, list({k.symbol: k for k in kernels}.values()))
    for kernel, case in zip(kernels, cases, strict=True):
        run(lib, kernel, case, Pool(3))


@pytest.mark.parametrize("stack", [12 << 10, 24 << 10])
def test_little_stack(tmp_path: Path, stack: int) -> None:
    """Strips narrower than a row, and channels that are copied in several rounds."""
    cases = [c for c in CASES if c.dilations == (1, 1)]
    cases += [replace(c, size=(c.size[0] + 4, c.size[1] + 70)) for c in cases[:10:2]]
    check(tmp_path, replace(ISAS["avx512"], packed=stack), f32, fused(), cases)


@pytest.mark.parametrize("width", range(1, 31))
def test_selection_covers_the_row(width: int) -> None:
    """Heights of segments are what rows are cut into, and tiles fit the registers."""
    for oc in (16, 32, 48, 64, 200):
        case = Case(32, oc, (9, width), (3, 3), pads=SAME)
        kernel = select(ISAS["avx512"], f32, case, plain())
        reach = kernel.tile.rows // kernel.segments
        tiles = -(-width // reach)
        assert {width // tiles, -(-width // tiles)} == set(kernel.heights) and max(kernel.heights) == reach
        assert kernel.segments == 1 or reach == width
        assert (kernel.tile.rows + 1) * kernel.tile.vectors < 32


@pytest.mark.parametrize("isa", ["avx512", "avx2"])
def test_any_width(tmp_path: Path, isa: str) -> None:
    """One kernel cuts rows of unknown width into the tiles that it has."""
    widths = (1, 5, 13, 27, 31, 53, 59, 60)
    cases = [Case(16, oc, (3, width), (3, 3), pads=SAME, known=False) for oc in (8, 20) for width in widths]
    assert len({select(ISAS[isa], f32, case, fused()).symbol for case in cases}) == 2
    check(tmp_path, ISAS[isa], f32, fused(), cases)


def test_results_do_not_depend_on_threads(tmp_path: Path) -> None:
    case = Case(48, 80, (28, 28), (3, 3), pads=SAME, batch=2)
    kernel = select(ISAS["avx512"], f32, case, plain())
    lib = build(tmp_path, [kernel])
    n, oh, ow = case.batch, *case.out
    x, w = noise(n, 28, 28, 48), kernel.pack_weights(noise(80, 48, 3, 3))
    found: list[np.ndarray[Any, Any]] = []
    for pool in (None, Pool(1), Pool(3), Pool(7)):
        y = np.full((n, oh, ow, 80), np.nan, np.float32)
        sizes = (n, 1, 48, 80, 28, 28, oh, ow, 1, 1, 28 * 28 * 48, 28 * 48, 48, oh * ow * 80, 80)
        invoke(lib, kernel, x, w, y, *sizes, pool=pool)
        found.append(y)
        assert pool is None or pool.calls == 1
    assert all(np.array_equal(found[0], y) for y in found[1:])


def test_epilogue_with_functions(tmp_path: Path) -> None:
    """SiLU, at a last panel of one vector."""
    case = Case(16, 48, (10, 10), (3, 3), pads=SAME)
    kernel = select(ISAS["avx512"], f32, case, Epilogue(acc() * call("sigmoid", acc())))
    lib = build(tmp_path, [kernel])
    x, w, y = noise(1, 16, 10, 10), noise(48, 16, 3, 3), np.empty((1, 10, 10, 48), np.float32)
    sizes = (1, 1, 16, 48, 10, 10, 10, 10, 1, 1, 0, 160, 16, 0, 48)
    invoke(lib, kernel, nhwc(x, 0, np.nan), kernel.pack_weights(w), y, *sizes)
    exact = exact_conv(x, w, 1, (1, 1), (1, 1), SAME)
    close(y.transpose(0, 3, 1, 2), exact / (1 + np.exp(-exact)), 16 * 9)


def test_equal_kernels_are_emitted_once() -> None:
    isa = ISAS["avx512"]
    first = select(isa, f32, Case(64, 64, (56, 56), (3, 3), pads=SAME), plain())
    assert first.symbol == select(isa, f32, Case(128, 128, (28, 28), (3, 3), pads=SAME), plain()).symbol
    assert first.symbol != select(isa, f32, Case(64, 64, (56, 56), (3, 3), pads=SAME), fused()).symbol
    assert first.symbol != select(isa, f32, Case(64, 64, (56, 56), (3, 3), (2, 2), pads=SAME), plain()).symbol


def test_windows_share_tiles_and_what_goes_through_them() -> None:
    """Windows are arguments: one file has the tiles of an epilogue once, and once what copies and plans."""
    isa = ISAS["avx512"]
    windows = [Case(64, 64, (56, 56), (3, 3), pads=SAME), Case(64, 64, (56, 56), (5, 3), pads=(2, 1, 2, 1))]
    first, second = (select(isa, f32, case, plain()) for case in windows)
    other = select(isa, f32, windows[0], fused())
    assert len({kernel.symbol for kernel in (first, second, other)}) == 3
    stems = [{p.stem for p in needed(kernel.parts()) if p.stem} for kernel in (first, second, other)]
    assert stems[0] == stems[1] and len(stems[0]) == 3
    assert len(stems[0] & stems[2]) == 2, "the sums, and what goes through tiles"
    assert "for (" not in own(first.parts())


def test_too_large_for_the_stack() -> None:
    shape = (16, 16, (40, 40), (31, 31), (1, 1), (9, 9))
    assert direct_conv(ISAS["plain"], *shape, plain()) is None


@pytest.mark.full
@pytest.mark.parametrize("compiler", compilers()[1:])
def test_other_compilers(tmp_path: Path, compiler: list[str]) -> None:
    kernels = [select(ISAS["avx512"], f32, case, fused()) for case in CASES[:9]]
    lib = build(tmp_path, list({k.symbol: k for k in kernels}.values()), compiler=compiler)
    for kernel, case in zip(kernels, CASES[:9], strict=True):
        run(lib, kernel, case)


@pytest.mark.parametrize(("window", "tasks"), [(3, 11), (15, 3)])
def test_few_strips_are_cut_for_threads(tmp_path: Path, window: int, tasks: int) -> None:
    """Threads get equal shares of strips lower than the caches ask for, unless strips would copy the same rows."""
    pad = window // 2
    case = Case(4, 32, (112, 112), (window, window), (2, 2), pads=(pad, pad, pad, pad))
    kernel, pool = select(ISAS["avx512"], f32, case, plain()), Pool(3)
    run(build(tmp_path, [kernel]), kernel, case, pool)
    assert pool.pieces == [tasks]
