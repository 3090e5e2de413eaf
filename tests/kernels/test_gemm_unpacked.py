"""Matrix products that read A in place: dot products, and strips of a B that is not constant."""

from __future__ import annotations

import itertools
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from irc.diagnostics import Sink
from irc.ir.dim import Dim
from irc.ir.types import DType, f32, f64
from irc.kernels import ISAS, plain
from irc.kernels.core.isa import AMX, Isa
from irc.kernels.core.registry import select
from irc.kernels.gemm.dots import DotsGemmKernel
from irc.kernels.gemm.in_place import FAR
from irc.kernels.gemm.packed import GemmKernel
from irc.kernels.gemm.problem import GemmProblem
from irc.kernels.gemm.row_dots import RowDotsGemmKernel
from irc.kernels.gemm.segments import SegmentsGemmKernel
from irc.kernels.gemm.short import ShortGemmKernel
from irc.kernels.gemm.streams import StreamsGemmKernel
from irc.kernels.gemm.strips import StripsGemmKernel
from irc.kernels.gemm.tiled import cached_elements
from irc.pipelines import compile_c
from irc.selection.selector import KernelOp
from tests.kernels.test_kernels import PARALLEL_FOR, M, Pool, build, close, compilers, invoke, noise, residual, run_gemm
from tests.support.lowering import graph_of, random

pytestmark = pytest.mark.skipif(not compilers(), reason="no C compiler")
SIZES = [(m, k) for m in (1, 2, 3, 5, 8, 9, 31) for k in (1, 3, 16, 37)] + [(4, 1100), (70, 300), (3, 2500), (230, 65)]


def run(
    lib: Any, g: GemmKernel, sizes: tuple[int, int, int], transposed: bool = False, pool: Pool | None = None
) -> np.ndarray[Any, Any]:
    """Two products of a batch, checked; rows of A and C have gaps, and those of C are not touched."""
    (m, k, n), dtype = sizes, g.tile.dtype
    rng = np.random.default_rng(m * k * n)
    a, b = (rng.standard_normal(shape).astype(dtype.numpy) for shape in ((2, m, k + 3), (2, k, n)))
    c = np.full((2, m, n + 2), 77, dtype.numpy)
    slots = [noise(n), noise(m), noise(1), noise(2, m, n)] if g.epilogue.slots else []
    given = g.pack_b(b) if g.b_constant else np.ascontiguousarray(np.swapaxes(b, 1, 2)) if transposed else b
    values = dict(zip((name for name, _ in g.pointers if name != "scratch"), (a, given, *slots, c), strict=True))
    values["scratch"] = np.full(int(g.scratch_bytes(n, k, 2)) // dtype.itemsize + 1, np.nan, dtype.numpy)
    strides = {"m": m, "n": n, "k": k, "batch1": 2, "a_batch1": m * (k + 3), "a_row": k + 3, "a_col": 1}
    strides |= {"b_batch1": given[0].size, "b_row": 1 if transposed else n, "b_col": k if transposed else 1}
    strides |= {"c_batch1": m * (n + 2), "c_row": n + 2, "batch0": 1, "s1_row": 1, "s3_row": n, "s3_batch1": m * n}
    order = [strides.get(name, 0) for name in g.sizes]
    invoke(lib, g, *(values[name] for name, _ in g.pointers), *order, pool=pool)
    wanted = a[..., :k].astype(np.float64) @ b.astype(np.float64)
    if slots:
        wanted = np.maximum(wanted + slots[0], 0) * slots[1][:, None] * slots[2] + slots[3]
    close(c[..., :n], wanted, k, dtype)
    assert (c[..., n:] == 77).all()
    return c


def dots(isa: str, n: int, width: int, constant: bool, fused: bool = False, dtype: DType = f32) -> DotsGemmKernel:
    epilogue = residual() if fused else plain(dtype)
    return DotsGemmKernel.of_width(ISAS[isa], dtype, M, n, epilogue, constant, width)


@pytest.mark.parametrize(
    ("isa", "constant", "fused", "dtype"),
    [("avx512", True, True, f32), ("avx512", False, False, f32), ("avx2", False, True, f32), ("sse", True, False, f64)],
)
def test_dots(tmp_path: Path, isa: str, constant: bool, fused: bool, dtype: DType) -> None:
    """Every width of tiles, B as it is packed, in place and packed when called."""
    columns = ((2, 2), (17, 4), (67, 6)) if isa == "avx512" else ((5, 3), (17, 6))
    kernels = [dots(isa, n, width, constant, fused, dtype) for n, width in columns]
    lib = build(tmp_path, list(dict.fromkeys(kernels)))
    for (n, _), kernel in zip(columns, kernels, strict=True):
        for m, k in SIZES:
            for transposed in (False,) if constant else (False, True):
                run(lib, kernel, (m, k, n), transposed)


@pytest.mark.parametrize(
    ("isa", "constant", "fused", "dtype"),
    [
        ("avx512", True, True, f32),
        ("avx512", False, False, f32),
        ("avx2", False, True, f32),
        ("avx2", True, False, f64),
    ],
)
def test_segments(tmp_path: Path, isa: str, constant: bool, fused: bool, dtype: DType) -> None:
    """Segments of every width, also with columns fewer than there are segments, and sums of several sums."""
    kernels: list[SegmentsGemmKernel] = []
    for n in (2, 3, 5, 8):
        problem = GemmProblem.contiguous(residual() if fused else plain(dtype), M, n, 5, constant)
        kernels += SegmentsGemmKernel.candidates(problem, ISAS[isa])
    assert {k.segment for k in kernels} == ({8, 4, 2} if isa == "avx512" else {4, 2} if dtype is f32 else {2})
    lib = build(tmp_path, kernels)
    for kernel, (m, k) in itertools.product(kernels, [*SIZES, (9, 5000)]):
        for transposed in (False,) if constant else (False, True):
            run(lib, kernel, (m, k, kernel.columns), transposed)
    pool = Pool(2)
    run(lib, kernels[0], (500, 150, kernels[0].columns), pool=pool)
    assert pool.calls


@pytest.mark.parametrize(
    ("isa", "tile", "fused", "dtype"),
    [
        ("avx512", (14, 2), True, f32),
        ("avx512", (6, 4), True, f32),
        ("avx2", (6, 2), True, f32),
        ("avx512", (24, 1), False, f64),
        ("avx2", (4, 3), False, f64),
    ],
)
def test_strips(tmp_path: Path, isa: str, tile: tuple[int, int], fused: bool, dtype: DType) -> None:
    """Columns and depth at and beside what is packed at once; rows that share lines of the first cache."""
    kernel = StripsGemmKernel.design(ISAS[isa], dtype, M, M, residual() if fused else plain(dtype), False, tile)
    lib = build(tmp_path, [kernel])
    for (m, k), n in itertools.product(SIZES, (1, 7, 16, 33, 130)):
        run(lib, kernel, (m, k, n), transposed=n in (16, 33))
    for sizes in ((3, 200, 600), (40, 700, 300), (29, 0, 17), (1100, 300, 70), (50, 600, kernel.tile.panel)):
        run(lib, kernel, sizes)
    for sizes in ((50, 1021, 77), (27, 2045, 300), (230, 1021, kernel.tile.panel)):
        run(lib, kernel, sizes)


@pytest.mark.parametrize(
    ("isa", "constant", "fused", "dtype"),
    [("avx512", True, True, f32), ("avx512", False, False, f32), ("avx2", False, True, f32), ("sse", True, False, f64)],
)
def test_short(tmp_path: Path, isa: str, constant: bool, fused: bool, dtype: DType) -> None:
    """Rows of a vector, known and unknown to be one, and longer ones, of every number of products."""
    epilogue = residual() if fused else plain(dtype)
    made = [
        ShortGemmKernel.of_products(ISAS[isa], dtype, n, epilogue, constant, k) for n in (8, M) for k in (1, 2, 3, 5, 8)
    ]
    kernels = list(dict.fromkeys(made))
    lib = build(tmp_path, kernels)
    for kernel, n, m in itertools.product(kernels, (1, 7, 8, 16, 17, 67), (1, 2, 9, 31)):
        run(lib, kernel, (m, kernel.products, n), transposed=not constant and n in (7, 17))
    run(lib, kernels[-1], (9, 8, 2345))  # columns in pieces
    pool = Pool(2)
    run(lib, kernels[-1], (500, 8, 67), pool=pool)
    assert pool.calls


@pytest.mark.parametrize(("isa", "fused", "dtype"), [("avx512", True, f32), ("avx2", False, f32), ("sse", False, f64)])
def test_streams(tmp_path: Path, isa: str, fused: bool, dtype: DType) -> None:
    """Every number of rows, of pieces and of sums; in threads, the columns of several products."""
    kernels: list[StreamsGemmKernel] = []
    for m in (1, 2, 3, 4):
        problem = GemmProblem.contiguous(residual() if fused else plain(dtype), m, M, M, False)
        kernels += StreamsGemmKernel.candidates(problem, ISAS[isa])
    lib = build(tmp_path, kernels)
    for kernel, (k, n) in itertools.product(kernels, ((1, 1), (3, 16), (4, 37), (600, 300), (5, 4500))):
        pool = Pool(2)
        run(lib, kernel, (kernel.tile.rows, k, n))
        run(lib, kernel, (kernel.tile.rows, k, n), pool=pool)
        assert bool(pool.calls) == (2 * kernel.tile.rows * k * n >= 100_000)


@pytest.mark.parametrize(("isa", "fused", "dtype"), [("avx512", True, f32), ("avx2", False, f32), ("sse", False, f64)])
def test_a_row_by_contiguous_columns(tmp_path: Path, isa: str, fused: bool, dtype: DType) -> None:
    """Columns side by side and one after the other, the last ones, long sums; near and far, in threads, too."""
    kernel = RowDotsGemmKernel.of(ISAS[isa], residual() if fused else plain(dtype))
    lib = build(tmp_path, [kernel])
    for k, n in ((1, 1), (3, 16), (64, 37), (129, 300), (600, 19), (40_000, 5), (100, 6000)):
        pool = Pool(2)
        run(lib, kernel, (1, k, n), transposed=True)
        run(lib, kernel, (1, k, n), transposed=True, pool=pool)
        assert bool(pool.calls) == (2 * k * n >= 100_000)


def test_results_do_not_depend_on_threads(tmp_path: Path) -> None:
    strips = StripsGemmKernel.design(ISAS["avx512"], f32, M, M, plain(), False, (14, 2))
    kernels = [dots("avx512", 67, 6, True), dots("avx512", 67, 6, False), strips]
    lib = build(tmp_path, kernels)
    for kernel in kernels:
        for sizes in ((100, 300, 67), (5, 3000, 67), *([(150, 700, 300), (90, 1021, 77)] if kernel is strips else [])):
            alone = run(lib, kernel, sizes)
            for chunk in (1, 2, 5):
                pool = Pool(chunk)
                assert np.array_equal(alone, run(lib, kernel, sizes, pool=pool))
                assert pool.calls


def test_rows_that_are_in_no_cache(tmp_path: Path) -> None:
    """An A of more than `cached_elements`, whose next rows are fetched."""
    kernel = dots("avx2", 17, 6, True)
    m = cached_elements(kernel.tile) // 700 + 5
    run(build(tmp_path, [kernel]), kernel, (m, 700, 17))


@pytest.mark.parametrize(("isa", "fused"), [("avx512", True), ("avx512", False), ("avx2", False)])
def test_results_that_are_in_no_cache(tmp_path: Path, isa: str, fused: bool) -> None:
    """A C of more than FAR bytes, lines of which are fetched before they are written, but for columns left over."""
    kernel = StripsGemmKernel.design(ISAS[isa], f32, M, M, residual() if fused else plain(), False, (6, 2))
    for n in (301, 320):
        m = FAR // (2 * 4 * n) + 5
        run(build(tmp_path, [kernel]), kernel, (m, 9, n))


def test_few_columns_are_tasks_by_rows(tmp_path: Path) -> None:
    """Two products of one range of columns, two tiles of rows each: each tile is a task."""
    kernel = StripsGemmKernel.design(ISAS["avx512"], f32, M, M, plain(), False, (14, 2))
    pool = Pool(1)
    run(build(tmp_path, [kernel]), kernel, (16, 600, 49), pool=pool)
    assert pool.pieces == [4]


@pytest.mark.parametrize(("m", "rows", "columns"), [(120, 120, 64), (420, 210, 128)])
def test_threads_pack_parts_of_a_wide_b(tmp_path: Path, m: int, rows: int, columns: int) -> None:
    """The first half of the tasks computes all rows of half the columns, or, of many rows, half of them."""
    kernel = StripsGemmKernel.design(ISAS["avx512"], f32, M, M, plain(), False, (14, 2))
    n, pool = 128, Pool(1)
    c = np.zeros((m, n), np.float32)

    def first_half(_self: Any, pieces: int, part: Any, given: Any) -> None:
        part(given, 0, pieces // 2)

    pool.parallel_for = PARALLEL_FOR(first_half)
    sizes = {"m": m, "n": n, "k": 64, "a_row": 64, "a_col": 1, "b_row": n, "b_col": 1, "c_row": n}
    sizes |= {"batch0": 1, "batch1": 1}
    order = (sizes.get(name, 0) for name in kernel.sizes)
    invoke(build(tmp_path, [kernel]), kernel, noise(m, 64), noise(64, n), c, *order, pool=pool)
    assert c[:rows, :columns].all() and (c != 0).sum() == rows * columns


def test_tasks_of_dot_products_are_alike(tmp_path: Path) -> None:
    kernel = dots("avx512", 49, 3, True)
    lib = build(tmp_path, [kernel])
    a, b, c = noise(8, 600), kernel.pack_b(noise(600, 49)), np.zeros((8, 49), np.float32)
    written = [0]

    def one_by_one(_self: Any, n: int, part: Any, given: Any) -> None:
        for task in range(n):
            part(given, task, task + 1)
            written.append(int((c != 0).sum()))

    pool = Pool(1)
    pool.parallel_for = PARALLEL_FOR(one_by_one)
    sizes = {"m": 8, "n": 49, "k": 600, "a_row": 600, "a_col": 1, "c_row": 49, "batch0": 1, "batch1": 1}
    invoke(lib, kernel, a, b, c, *(sizes.get(name, 0) for name in kernel.sizes), pool=pool)
    tasks = np.diff(written)  # of 17 tiles of columns, two or three each; two threads have three tasks each
    assert len(tasks) == 6 and max(tasks) <= 1.5 * min(tasks)
    assert abs(sum(tasks[:3]) - sum(tasks[3:])) < 0.05 * sum(tasks)


def test_long_sums_are_sums_of_sums(tmp_path: Path) -> None:
    """Blocks of products are added up for themselves: adding ones to 2^24 would lose all of them."""
    strips = StripsGemmKernel.design(ISAS["avx512"], f32, 4, 32, plain(), False, (14, 2))
    lib = build(tmp_path, [strips])
    a, b, c = np.ones((4, 1000), np.float32), np.ones((1000, 32), np.float32), np.zeros((4, 32), np.float32)
    a[:, 0] = 2.0**24
    invoke(lib, strips, a, b, c, 4, 32, 1000, 0, 0, 1000, 1, 0, 0, 32, 1, 0, 0, 32, 1, 1)
    assert (c >= 2.0**24 + 744).all()


@pytest.mark.parametrize("isa", ["avx512", "avx2"])
def test_selection(isa: str) -> None:
    """Few columns are dot products unless the sums are short; strips where packing does not pay."""

    def chosen(m: int, k: int, n: int, constant: bool) -> type[Any]:
        return type(select(GemmProblem.contiguous(plain(), m, n, k, constant), ISAS[isa]))

    assert chosen(1000, 64, 4, True) is chosen(1000, 64, 4, False) is SegmentsGemmKernel
    assert chosen(512, 1000, 3, True) is chosen(3, 2048, 5, True) is DotsGemmKernel
    assert chosen(8, 3072, 384, False) is StripsGemmKernel
    assert chosen(2048, 5, 12, False) is chosen(512, 3, 384, False) is chosen(2048, 8, 8, True) is ShortGemmKernel
    assert chosen(1, 1024, 3072, False) is chosen(4, 3072, 768, False) is StreamsGemmKernel
    assert chosen(1024, 256, 1024, True) not in (DotsGemmKernel, StripsGemmKernel)
    row = GemmProblem.contiguous(plain(), 1, 197, 31, False)
    row = replace(row, b=(*row.b[:2], Dim.of(1), Dim.of(31)))
    assert type(select(row, ISAS[isa])) is RowDotsGemmKernel
    for k, lanes in ((8, 8), (9, 16)):  # columns that half a vector holds
        (kernel,) = RowDotsGemmKernel.candidates(replace(row, k=Dim.of(k)), ISAS["avx512"])
        assert kernel.tile.lanes == lanes


def test_keys_that_are_turned_are_packed_beside_products() -> None:
    """12x300x64 . 64x300 transposed on AVX2: 1.32 ms where all of B, packed before, takes 1.37 (Zen 4)."""
    problem = GemmProblem.contiguous(plain(), 300, 300, 64, False)
    turned = replace(problem, b=(*problem.b[:2], Dim.of(1), Dim.of(64)), batch=(Dim.of(1), Dim.of(12)))
    assert type(select(turned, ISAS["avx2"])) is StripsGemmKernel


def test_short_sums_with_weights_are_rows_of_vectors_of_avx2() -> None:
    """1000x7 . 7x512 on AVX2 125 -> 104 us (Zen 4); in vectors of 64 bytes tiles are as fast."""
    for m, k, n in ((1000, 7, 512), (4096, 8, 100), (100, 5, 1000)):
        problem = GemmProblem.contiguous(plain(), m, n, k, True)
        assert type(select(problem, ISAS["avx2"])) is ShortGemmKernel is not type(select(problem, ISAS["avx512"]))


@pytest.mark.parametrize("isa", ["avx512", "avx2"])
def test_rows_of_results_that_meet_in_the_first_cache(isa: str) -> None:
    """Short sums whose results are rows of whole pages are computed row by row, not a panel of columns at a time."""

    def chosen(n: int, k: int) -> type[Any]:
        problem = GemmProblem.contiguous(plain(), 197, n, k, False)
        turned = replace(problem, b=(*problem.b[:2], Dim.of(1), Dim.of(k)))
        return type(select(turned, ISAS[isa]))

    assert chosen(2000, 7) is GemmKernel
    assert chosen(2048, 7) is chosen(3072, 7) is StripsGemmKernel


@pytest.mark.parametrize(
    ("isa", "better"), [(ISAS["avx512"], False), (replace(ISAS["avx512"], fma=1), True), (ISAS["avx2"], False)]
)
def test_a_vector_of_which_one_lane_is_used_costs_more_than_dots(isa: Isa, better: bool) -> None:
    """Where tiles of dot products come as near to the peak as others: 1024x1024 . 1024x49 on Zen 4 1.41 -> 1.15 ms.

    With AVX2 others come nearer: 1.48 ms, 1.72 by dots (Zen 3).
    """
    problem = GemmProblem.contiguous(plain(), 1024, 49, 1024, True)
    assert (type(select(problem, isa)) is DotsGemmKernel) == better


@pytest.mark.parametrize(("count", "m", "k", "n"), [(12, 49, 3000, 31), (4, 7, 3072, 8)])
def test_what_packing_for_dots_costs(count: int, m: int, k: int, n: int) -> None:
    """Few columns are turned as whole vectors, and what many products pack leaves the cache: 1540 us, 1340 in strips.

    Of sums of 3072, where rows of A meet in the same lines of the first cache, strips take 1650 us, dots 1610 (Zen 4).
    """
    problem = GemmProblem.contiguous(plain(), m, n, k, False)
    steps = {"a": (Dim.of(m * k), *problem.a[1:]), "b": (Dim.of(k * n), *problem.b[1:])}
    halves = replace(ISAS["avx512"], fma=1)
    assert type(select(replace(problem, batch=(Dim.of(count), Dim.of(1)), **steps), halves)) is StripsGemmKernel
    in_place = {**steps, "b": (Dim.of(k * n), Dim.of(0), Dim.of(1), Dim.of(k))}
    found = select(replace(problem, batch=(Dim.of(count), Dim.of(1)), **in_place), halves)
    assert type(found) is DotsGemmKernel


@pytest.mark.parametrize(("m", "k", "n"), [(31, 768, 197), (14, 512, 1000), (100, 1000, 400)])
def test_operands_that_are_read_in_place_are_in_some_cache(m: int, k: int, n: int) -> None:
    """31x768 . 768x197, columns of B contiguous: 106 us as strips, 90 as dots, Zen 4; not with many rows."""
    problem = GemmProblem.contiguous(plain(), m, n, k, False)
    turned = replace(problem, b=(*problem.b[:2], Dim.of(1), Dim.of(k)))
    for isa in (replace(ISAS["avx512"], fma=1), ISAS["avx2"]):
        assert isinstance(select(turned, isa), DotsGemmKernel if m < 100 else StripsGemmKernel)


@pytest.mark.parametrize(
    ("m", "k", "n", "turned", "expected"),
    [(384, 384, 16, False, DotsGemmKernel), (77, 1000, 77, True, StripsGemmKernel)],
)
def test_few_columns_beside_a_matrix_unit(m: int, k: int, n: int, turned: bool, expected: type) -> None:
    """384x384 . 384x16: 74 us as strips, 49 as dots; 77x1000 . 1000x77: 174 packed, 156 as strips, Emerald Rapids.

    Cores of this kind load fewer operands a cycle than the tiles of one vector ask for.
    """
    problem = GemmProblem.contiguous(plain(), m, n, k, False)
    if turned:
        problem = replace(problem, b=(*problem.b[:2], Dim.of(1), Dim.of(k)))
    assert type(select(problem, AMX)) is expected


def test_dots_take_the_tile_of_fewest_loads() -> None:
    """512x1000 . 1000x3 on AVX2 takes 43 us with 4 x 3 (Zen 3), 54 with 6 x 2."""
    found = select(GemmProblem.contiguous(plain(), 512, 3, 1000, True), ISAS["avx2"])
    assert isinstance(found, DotsGemmKernel) and found.width == 3


@pytest.mark.parametrize("layers", [1, 5])
@pytest.mark.parametrize("isa", ["avx512", "avx2"])
def test_weights_that_come_from_memory_are_read_in_panels(isa: str, layers: int) -> None:
    """Memory gives panels faster than six columns side by side; from the caches, sums of dots need fewer loads, unless
    several panels are read at once: 37 us by dots, 35 in panels, Zen 3."""

    def built(b: Any, x: Any) -> Any:
        for _ in range(layers):
            x = b.MatMul(x, random(768, 768))
        return x

    graph = graph_of(built, random(1, 768))
    for _, run in compile_c(ISAS[isa]):
        run(graph, Sink())
    kernels = [n.op.kernel for n in graph.nodes if isinstance(n.op, KernelOp)]
    panels = layers > 1 or isa == "avx2"
    assert [type(k) for k in kernels] == [GemmKernel if panels else DotsGemmKernel] * layers


def test_one_row_reads_panels_abreast_where_processors_fetch_them() -> None:
    """With vectors in halves, as in AVX2: 1x3072x768 takes 103 us, with panels one by one, which it fetches, 130."""
    problem = GemmProblem.contiguous(plain(), 1, 768, 3072, True)
    for isa, abreast in ((replace(ISAS["avx512"], fma=1), 3), (ISAS["avx2"], 3), (ISAS["avx512"], 1)):
        kernels = [k for k in GemmKernel.candidates(problem, isa) if k.tile.vectors > 1]
        assert {k.abreast for k in kernels} == {abreast}, isa


def test_three_rows_fetch_nothing_where_one_does_not(tmp_path: Path) -> None:
    """2x3072x768 takes 114 us, with panels that it fetches itself 139 (Zen 4); the lines that it fetches are there."""
    for isa in (replace(ISAS["avx512"], fma=1), ISAS["avx2"], ISAS["plain"]):
        kernel = next(iter(GemmKernel.candidates(GemmProblem.contiguous(plain(), M, 70, 300, True), isa)))
        text = "".join(map(str, kernel.parts()))
        assert ("ahead = panel + (m.low <= 3 ? 0 : 32)" in text) == (isa.name != "plain")
        (tmp_path / isa.name / str(isa.fma)).mkdir(parents=True)
        lib = build(tmp_path / isa.name / str(isa.fma), [kernel])
        for m in (1, 2, 3, 4):
            run_gemm(lib, kernel, noise(m, 300), noise(300, 70), [], lambda x: x)


def test_few_rows_take_wide_panels() -> None:
    """With few rows a step waits for its loads, of which wide panels have fewer a column."""
    for m in (2, 3):
        kernel = select(GemmProblem.contiguous(plain(), m, 480, 384, True), ISAS["avx512"])
        assert isinstance(kernel, GemmKernel) and kernel.tile.vectors == 3
