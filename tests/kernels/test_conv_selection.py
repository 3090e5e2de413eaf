"""Which kernel convolutions of known networks get, by the cycles that all candidates estimate."""

from __future__ import annotations

import dataclasses
import math
from typing import Any

import pytest

from irc.ir.dim import Dim
from irc.kernels import ISAS, plain
from irc.kernels.conv.depthwise_nhwc import NhwcDepthwiseKernel
from irc.kernels.conv.depthwise_turned import TurnedDepthwiseKernel
from irc.kernels.conv.grouped_nchw import NchwGroupedKernel
from irc.kernels.conv.nchw import NchwConvKernel
from irc.kernels.conv.nhwc import NhwcConvKernel
from irc.kernels.conv.problem import ConvProblem, Depth
from irc.kernels.conv.split_bf16 import SplitConvKernel
from irc.kernels.conv.volume import VolumeConvKernel
from irc.kernels.conv.winograd import WinogradKernel
from irc.kernels.conv.winograd_bf16 import SplitWinogradKernel
from irc.kernels.core.problem import IMAGES, UNKNOWN, Layout, likely
from irc.kernels.core.registry import candidates, select
from irc.selection.residency import residency

F32 = [("avx2", "highest"), ("avx512", "highest"), ("avx512_bf16", "high"), ("neon", "highest"), ("sse", "highest")]
TILES = [("amx", precision) for precision in ("highest", "high", "medium")]
DOTS = [("avx512_bf16", "medium")]
W = Dim.symbol("w")
RESNET = [(64, 64, (56, 56)), (128, 128, (28, 28)), (256, 256, (14, 14))]  # 3 × 3, stride 1
OTHERS = [(3, 64, (112, 112), (7, 7), (2, 2)), (128, 128, (28, 28), (3, 3), (2, 2))]
SMALL = (512, 512, (7, 7), (3, 3))  # with more weights than products by each
MOBILE = [(32, (112, 112), (3, 3), (1, 1)), (96, (56, 56), (3, 3), (2, 2)), (240, (14, 14), (5, 5), (1, 1))]


def selected(isa: str, precision: str, layout: Layout, *shape: Any) -> type:
    """Of all candidates, whose labels and times at one and two threads differ, the class of the first."""
    problem = ConvProblem.contiguous(layout, plain(), *shape, precision=precision)
    found = list(candidates(problem, ISAS[isa]).values())
    cycles = [k.cycles(problem) * math.sqrt(k.imbalance(problem)) for k in found]
    assert cycles == sorted(cycles) and cycles[0] > 0
    return type(found[0])


@pytest.mark.parametrize(("isa", "precision"), F32)
def test_multiply_adds(isa: str, precision: str) -> None:
    for ic, oc, plane in [*RESNET, (32, 32, (128, 128)), (64, 64, (W, W))]:
        assert selected(isa, precision, "nhwc", ic, oc, plane, (3, 3)) is WinogradKernel, (ic, oc, plane)
    waiting = ISAS[isa].vector == 64  # longer for the weights of a square than its products take
    assert selected(isa, precision, "nhwc", *SMALL) is (NhwcConvKernel if waiting else WinogradKernel)
    few = selected(
        isa, precision, "nhwc", 8, 8, (112, 112), (3, 3)
    )  # with AVX2 both take as long: 291 and 294 us, Zen 3
    assert few is (WinogradKernel if isa == "avx2" else NhwcConvKernel)
    for shape in [*OTHERS, (3, 32, (64, 64), (3, 3))]:
        assert selected(isa, precision, "nhwc", *shape) is NhwcConvKernel, shape


@pytest.mark.parametrize(("isa", "precision"), F32)
def test_tiles_of_winograd(isa: str, precision: str) -> None:
    """Large planes are filtered by 4 × 4; on small ones what hangs over, or more weights, would cost what it saves."""

    def side(ic: int, oc: int, plane: Any, resident: bool = False) -> int:
        problem = ConvProblem.contiguous("nhwc", plain(), ic, oc, plane, (3, 3), precision=precision)
        found = select(dataclasses.replace(problem, resident=resident), ISAS[isa])
        assert isinstance(found, WinogradKernel)
        return found.filtering.sides[0]

    assert [side(*shape) for shape in [*RESNET[:2], (16, 16, (112, 112))]] == [4, 4, 4]
    assert side(*RESNET[2]) == (2 if ISAS[isa].vector == 64 else 4)
    assert side(128, 128, (6, 6), resident=ISAS[isa].vector == 64) == 2


def test_an_unknown_number_of_images_is_small() -> None:
    """512x7x7 of one image directly 3.7 ms, 6.0 by 4 × 4 with its 37 MB of weights, Emerald Rapids."""
    batch = Dim.symbol("batch", 1)
    assert [likely(n) for n in (batch, 49 * batch, batch * W)] == [UNKNOWN, 49 * IMAGES, UNKNOWN]
    assert likely(49 * Dim.symbol("many", 8)) == 49 * 8
    assert [likely(n) for n in (100 // (batch - 1), 49 * (batch - 3), 100 // (batch - 2))] == [100, UNKNOWN, UNKNOWN]
    problem = ConvProblem.contiguous("nhwc", plain(), 512, 512, (7, 7), (3, 3))
    for count, expected in [(batch, NhwcConvKernel), (Dim.of(1), NhwcConvKernel), (Dim.of(16), WinogradKernel)]:
        assert type(select(dataclasses.replace(problem, batch=count), ISAS["avx512"])) is expected


def test_transformed_weights_outgrow_the_second_cache() -> None:
    """Four times as many as the model's: where they come from farther off, few pixels take fewer cycles directly."""

    def chosen(channels: int, side: int) -> type:
        problem = ConvProblem.contiguous("nhwc", plain(), channels, channels, (side, side), (3, 3))
        isa = dataclasses.replace(ISAS["avx512"], l2=2 << 20)
        near = residency(channels * channels * 9 * 4, isa)
        assert near["resident"]
        return type(select(dataclasses.replace(problem, **near), isa))

    assert [chosen(192, side) for side in (7, 14)] == [NhwcConvKernel, WinogradKernel]
    assert chosen(64, 7) is WinogradKernel


def test_weights_of_small_models_are_near() -> None:
    """What the last cache holds comes faster than what no cache does: more weights save products of AVX2."""

    def chosen(weights: int, ic: int, oc: int, side: int) -> str:
        problem = ConvProblem.contiguous("nhwc", plain(), ic, oc, (side, side), (3, 3))
        found = select(dataclasses.replace(problem, **residency(weights, ISAS["avx2"])), ISAS["avx2"])
        assert found is not None
        return found.label.split(",")[0]

    small, large = 1 << 20, 1 << 24
    assert [chosen(n, 64, 512, 7) for n in (small, large)] == ["winograd 4x4", "winograd 2x2"]
    assert [chosen(n, 240, 144, 7) for n in (small, large)] == ["winograd 4x4", "winograd 2x2"]


def test_threads_gather_again_what_they_share() -> None:
    """240x7x7 -> 144, stride 2, two threads: 0.08 ms in tiles, whose one block both gather, 0.04 ms from the rows."""

    problem = ConvProblem.contiguous("nchw", plain(), 240, 144, (4, 4), (3, 3), (2, 2))

    def imbalance(batch: int, oc: int = 144) -> float:
        given = dataclasses.replace(problem, batch=Dim.of(batch), outputs=oc)
        tiles = (k for k in candidates(given, ISAS["avx512"]).values() if isinstance(k, NchwConvKernel))
        return next(k for k in tiles if k.tile.rows == 8).imbalance(given)

    assert 1.3 < imbalance(1) < 2, "one block is gathered four times"
    assert 1 < imbalance(2) < imbalance(1), "two are gathered twice each"
    assert [imbalance(n) for n in (8, 16, 17)] == [1, 1, pytest.approx(18 / 17)]
    assert imbalance(1, oc=8) == 2, "one tile of one image is one task"
    halves = dataclasses.replace(ISAS["avx512"], fma=1)
    near = dataclasses.replace(problem, **residency(144 * 240 * 9 * 4, halves))
    padded = dataclasses.replace(near, size=(Dim.of(7),) * 2, padding=(Dim.of(1),) * 2)
    assert isinstance(select(padded, halves), VolumeConvKernel)


def test_weights_in_the_last_cache_are_not_waited_for() -> None:
    """384x7x7 -> 384, stride 2: 0.42 ms in tiles, of all taps, 0.30 from the rows, of those inside; not of 16 MB."""
    halves = dataclasses.replace(ISAS["avx512"], fma=1)
    whole = ConvProblem.contiguous("nchw", plain(), 384, 384, (4, 4), (3, 3), (2, 2))
    padded = dataclasses.replace(whole, size=(Dim.of(7),) * 2, padding=(Dim.of(1),) * 2)
    for weights, expected in [(384 * 384 * 9 * 4, VolumeConvKernel), (1 << 24, NchwConvKernel)]:
        assert isinstance(select(dataclasses.replace(padded, **residency(weights, halves)), halves), expected)


def test_tiles_that_fit_the_channels() -> None:
    """Panels of two vectors would compute 64 channels for 40 or 48, and 96 for 80."""

    def tile(oc: int, plane: int, fma: float) -> tuple[int, int, int]:
        problem = ConvProblem.contiguous("nhwc", plain(), oc, oc, (plane, plane), (3, 3))
        found = select(problem, dataclasses.replace(ISAS["avx512"], fma=fma))
        assert isinstance(found, WinogradKernel)
        return found.tile.vectors, found.tile.lanes, -(-oc // found.tile.panel) * found.tile.panel

    assert [tile(48, 56, fma)[2] for fma in (1, 2)] == [48, 48]
    assert tile(80, 28, 1)[2] == 80
    assert tile(128, 28, 1) == tile(128, 28, 2) == (2, 16, 128)
    assert tile(24, 56, 1) == (3, 8, 24), "half of a vector is left, which a core in halves need not multiply"


@pytest.mark.parametrize(("isa", "precision"), F32)
@pytest.mark.parametrize("dilation", [2, 512, 4096, 100_000])
def test_long_sequences(isa: str, precision: str, dilation: int) -> None:
    """Every dilation has a kernel: tiles of pixels so far apart, or taps copied apart where most tiles were empty."""
    for length, most in ((7500, 4096), (W, 2)):
        shape = (128, 128, (1, length), (1, 3), (1, 1), (1, dilation))
        few = WinogradKernel if dilation <= most else NhwcConvKernel
        assert selected(isa, precision, "nhwc", *shape) is few
        kernel = NhwcConvKernel.best(ConvProblem.contiguous("nhwc", plain(), *shape), ISAS[isa])
        assert kernel is not None and kernel.apart == (dilation > 2)


@pytest.mark.parametrize(("isa", "precision"), TILES)
def test_tiles_of_bf16(isa: str, precision: str) -> None:
    exact = precision == "highest"  # three terms are six products: vectors are as good where they save as many
    for ic, oc, plane in RESNET:
        assert selected(isa, precision, "nhwc", ic, oc, plane, (3, 3)) is (WinogradKernel if exact else SplitConvKernel)
    stem, halved = OTHERS
    for shape in (stem, SMALL):  # few channels or pixels for what is split
        assert selected(isa, precision, "nhwc", *shape) is (NhwcConvKernel if exact else SplitConvKernel), shape
    assert selected(isa, precision, "nhwc", *halved) is SplitConvKernel
    assert selected(isa, precision, "nhwc", 64, 64, (W, W), (3, 3)) is WinogradKernel, "its size must be known"


@pytest.mark.parametrize(("isa", "precision"), DOTS)
def test_pairs_of_bf16(isa: str, precision: str) -> None:
    for ic, oc, plane in [*RESNET, SMALL[:3]]:
        assert selected(isa, precision, "nhwc", ic, oc, plane, (3, 3)) is SplitWinogradKernel
    for shape in OTHERS:
        assert selected(isa, precision, "nhwc", *shape) is SplitConvKernel, shape


@pytest.mark.parametrize(("isa", "precision"), [*F32, *TILES, *DOTS])
def test_depthwise(isa: str, precision: str) -> None:
    for channels, plane, window, strides in [*MOBILE, (2, (20, 20), (3, 3), (1, 1)), (32, (W, W), (3, 3), (1, 1))]:
        shape = (channels, channels, plane, window, strides, (1, 1), channels)
        assert selected(isa, precision, "nhwc", *shape) is NhwcDepthwiseKernel, shape
        assert selected(isa, precision, "nchw", *shape) in (NchwGroupedKernel, TurnedDepthwiseKernel), shape
    shape = (64, 128, (7, 7), (3, 3), (1, 1), (1, 1), 64)
    if ISAS[isa].vector > 16:
        assert selected(isa, precision, "nchw", *shape) is TurnedDepthwiseKernel, "rows would not fill vectors"
    shape = (8, 16, (112, 112), (3, 3), (1, 1), (1, 1), 8)
    assert selected(isa, precision, "nchw", *shape) is NchwGroupedKernel
    shape = (32, 64, (112, 112), (3, 3), (1, 1), (1, 1), 8)
    by_outputs = (VolumeConvKernel,) if ISAS[isa].vector == 16 else ()  # eight outputs fill such vectors, too
    assert selected(isa, precision, "nchw", *shape) in (NchwGroupedKernel, *by_outputs), "a group has few channels"


def test_shorter_vectors_of_two_halves() -> None:
    """Vectors of 256 bits are multiplied two a cycle, also where one of 512 bits is done as two halves."""
    problem = ConvProblem.contiguous("nchw", plain(), 384, 24, (56, 56), (3, 3), groups=4)
    halves = dataclasses.replace(ISAS["avx512"], fma=1)
    first = [
        next(k for k in candidates(problem, isa).values() if isinstance(k, VolumeConvKernel))
        for isa in (halves, ISAS["avx512"])
    ]
    assert [k.tile.lanes for k in first] == [8, 8]
    assert first[0].cycles(problem) == first[1].cycles(problem), "two vectors of 256 bits a cycle, both times"


def test_few_products_of_two_halves() -> None:
    """Storing takes two cycles a vector there, as long as the products of few taps; tiles of few channels lose less."""
    halves = dataclasses.replace(ISAS["avx512"], fma=1)

    def first(*shape: Any) -> Any:
        return next(iter(candidates(ConvProblem.contiguous("nchw", plain(), *shape), halves).values()))

    assert isinstance(first(3, 32, (112, 112), (3, 3)), NchwGroupedKernel)
    assert isinstance(first(96, 32, (33, 33), (1, 1)), VolumeConvKernel)
    problem = ConvProblem.contiguous("nchw", plain(), 768, 384, (4, 4), (3, 3))
    found = VolumeConvKernel.best(problem, halves)
    assert found is not None and found.tile.vectors > 1, "products hide how far weights are"


def test_tiles_of_two_halves_inside() -> None:
    """Rows of two vectors reach more of the peak there than others; three half vectors hold 24 channels of a group."""
    halves = dataclasses.replace(ISAS["avx512"], fma=1)

    def problem(ic: int, oc: int, side: int, groups: int = 1) -> ConvProblem:
        planes, window = (side + 2, side + 2), ((3, 3), (1, 1), (1, 1))
        depth = Depth(Dim.of(side), Dim.of(side), 3, 1, 1, Dim.of(1))
        whole = ConvProblem.contiguous("nchw", plain(), ic, oc, (side, side), *window, groups, depth=depth)
        assert whole.size == tuple(map(Dim.of, planes))
        return dataclasses.replace(whole, size=(Dim.of(side), Dim.of(side)), padding=(Dim.of(1), Dim.of(1)))

    found = select(problem(128, 320, 8), halves)
    assert isinstance(found, VolumeConvKernel) and found.tile.vectors == 2
    found = select(problem(384, 96, 4, 4), halves)
    assert isinstance(found, VolumeConvKernel) and (found.tile.lanes, found.tile.vectors) == (8, 3)


def test_lone_vectors_inside() -> None:
    """Beside AMX tiles of one vector are as fast as wider ones in planes with long windows."""

    def vectors(isa: str, plane: tuple[int, int], window: tuple[int, int]) -> int:
        best = VolumeConvKernel.best(ConvProblem.contiguous("nchw", plain(), 48, 64, plane, window), ISAS[isa])
        assert best is not None
        return best.tile.vectors

    assert [vectors(isa, (150, 150), (1, 7)) for isa in ("amx", "avx512")] == [1, 2]
    assert vectors("amx", (150, 150), (1, 3)) == 2, "short windows"
    assert vectors("amx", (1, 150), (1, 7)) == 2, "sequences"


def test_direct_tiles_of_half_the_lanes() -> None:
    """Three half vectors hold 24 channels where a core does vectors in halves."""
    problem = ConvProblem.contiguous("nhwc", plain(), 32, 24, (28, 28), (3, 3), (2, 2))
    best = [NhwcConvKernel.best(problem, dataclasses.replace(ISAS["avx512"], fma=fma)) for fma in (1, 2)]
    assert [(k.tile.lanes, k.tile.vectors) for k in best if k is not None] == [(8, 3), (16, 2)]


def test_few_channels_of_short_vectors() -> None:
    """Few loads of half a line of the cache meet two lines, and tiles of gathered pixels are no better than others."""

    def first(*shape: Any) -> Any:
        return next(iter(candidates(ConvProblem.contiguous("nchw", plain(), *shape), ISAS["avx2"]).values()))

    assert isinstance(first(8, 320, (64, 64), (3, 3), (1, 1), (1, 1), 4), NchwGroupedKernel)
    assert isinstance(first(12, 12, (33, 33), (3, 3)), VolumeConvKernel), "strips of more channels are further off"
    tiles = first(72, 384, (56, 56), (3, 3), (2, 2))
    assert isinstance(tiles, NchwConvKernel), "others are as fast: 18.1 and 18.2 ms, Zen 3"


def test_groups_of_few_channels_with_many_outputs() -> None:
    """Outputs that share loads reach nearly the peak of vectors of a line, as long as few stores follow one another."""
    shape = (16, 512, (112, 112), (5, 5), (1, 1), (1, 1), 8)
    found = next(iter(candidates(ConvProblem.contiguous("nchw", plain(), *shape), ISAS["avx512"]).values()))
    assert isinstance(found, NchwGroupedKernel)
    assert found.outputs > 1
    assert found.outputs * found.tile.rows * found.tile.vectors <= 16


def test_groups_whose_results_are_stored_far() -> None:
    """Few products do not hide how far a result is that no second cache holds, where vectors are two halves."""
    halves = dataclasses.replace(ISAS["avx512"], fma=1)

    def first(images: int, *shape: Any) -> type:
        problem = ConvProblem.contiguous("nchw", plain(), *shape, groups=4)
        return type(next(iter(candidates(dataclasses.replace(problem, batch=Dim.of(images)), halves).values())))

    assert first(4, 24, 768, (40, 40), (3, 1)) is not NchwGroupedKernel
    assert first(1, 24, 96, (40, 40), (3, 1)) is NchwGroupedKernel


@pytest.mark.parametrize("isa", ["avx2", "avx512"])
def test_channels_that_share_lines_of_the_cache(isa: str) -> None:
    """Where channels are a multiple of 4096 bytes apart, gathering takes longer than few outputs' products."""
    two, side = Dim.of(2), Dim.of(32)
    whole = ConvProblem.contiguous("nchw", plain(), 128, 9, (32, 36), (3, 1), (1, 1), (2, 1))
    whole = dataclasses.replace(whole, size=(side, side), padding=(two, two))
    processor = dataclasses.replace(ISAS[isa], fma=1 if isa == "avx512" else 2)

    def first(apart: int) -> type:
        problem = dataclasses.replace(whole, x=(whole.x[0], Dim.of(apart), side, Dim.of(1)))
        return type(next(iter(candidates(problem, processor).values())))

    assert [first(apart) for apart in (1024, 1030, 4096)] == [VolumeConvKernel, NchwConvKernel, VolumeConvKernel]


def test_short_rows_of_planes() -> None:
    """Tiles of five pixels of one row are too small; those of gathered pixels have pixels of several rows.

    Of one thread: two gather them more than once.
    """
    for shape in [(240, 256, (5, 5), (3, 3), (2, 2)), (240, 256, (5, 5), (3, 3))]:
        problem = ConvProblem.contiguous("nchw", plain(), *shape)
        found = candidates(problem, ISAS["avx512"]).values()
        alone = min(found, key=lambda k: k.cycles(problem))
        assert isinstance(alone, NchwConvKernel), shape
        assert alone.imbalance(problem) > 1.2, shape


def test_works_are_told_apart() -> None:
    """Measured choices of one layout, precision or shape are no others'."""
    problems = [
        ConvProblem.contiguous(layout, plain(), 16, oc, (8, 8), (3, 3), precision=precision)
        for layout in ("nchw", "nhwc")
        for precision in ("highest", "medium")
        for oc in (16, 32)
    ]
    assert len({p.work for p in problems}) == len(problems) and None not in {p.work for p in problems}
    assert ConvProblem.contiguous("nhwc", plain(), 16, 16, (8, W), (3, 3)).work is None


def test_weights_far_away() -> None:
    """Of small planes with weights that no cache holds wide panels are as good: rows together read weights once."""
    problem = ConvProblem.contiguous("nchw", plain(), 384, 96, (4, 4), (5, 5), (2, 2))
    widths = [k.tile.vectors for k in candidates(problem, ISAS["avx512"]).values() if isinstance(k, VolumeConvKernel)]
    assert widths.index(6) < widths.index(1)


@pytest.mark.parametrize("isa", ["avx512", "avx2"])
def test_what_no_tap_sees_is_not_fetched(isa: str) -> None:
    """Between the taps of a dilated row there is much of the input that a tile does not read."""
    problem = ConvProblem.contiguous("nchw", plain(), 96, 24, (1, 500), (1, 3), (1, 1), (1, 256))
    found = [k for k in candidates(problem, ISAS[isa]).values() if isinstance(k, VolumeConvKernel)]
    fetched = [k.source().count("__builtin_prefetch(xu") for k in found if k.tile.vectors == 1]
    lines = 2 * 3 * 2  # of each tap's pixels, in a tile and in the last one, which overlaps the one before
    assert fetched and all(0 < n <= lines for n in fetched)
