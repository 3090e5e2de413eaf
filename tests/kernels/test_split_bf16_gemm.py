"""Products from bf16 terms on AMX: numbers, edges and selection.

Processors without AMX run them too: `tests/support/amx/immintrin.h` computes what the tile instructions would.
"""

from __future__ import annotations

import ctypes
import platform
import subprocess
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from irc.diagnostics import RunError, Sink
from irc.diagnostics.codes import runtime
from irc.expr import call
from irc.fusion import group
from irc.ir.types import f32, f64
from irc.kernels import ISAS, PROTOTYPES, Epilogue, acc, isa_of, plain
from irc.kernels.core.workspace import UNKNOWN
from irc.kernels.gemm.problem import GemmProblem
from irc.kernels.gemm.split_bf16 import STRIPE, SplitGemmKernel, blocks_of, terms_of, widths_of
from irc.kernels.split_bf16.bf16_terms import TERMS
from irc.loops import interp
from irc.loops.ir import KernelCall, walk
from irc.loops.lower import lower
from irc.opdef.builder import evaluate
from irc.pipelines import compile_c
from irc.toolchain import c_compiler, matrix_units, processor
from tests.kernels.test_kernels import M, Pool, compilers, residual, with_flags
from tests.support import foreign
from tests.support.c_program import Library
from tests.support.instruction_sets import emulating, emulation, installed, needs, target_of
from tests.support.kernels import packed_gemm, split_gemm
from tests.support.lowering import Array, graph_of, random

pytestmark = [
    pytest.mark.skipif(not compilers(), reason="no C compiler"),
    pytest.mark.skipif(bool(foreign.machine()) or platform.machine() != "x86_64", reason="x86-64 only"),
]
DOT = 0
ERROR = {3: 3e-7, 2: 6e-6, 1: 3e-3, DOT: 3e-3}
"""By terms, DOT for one that vectors multiply: norm of the error over that of the result, of normal numbers."""


def run(
    lib: ctypes.CDLL,
    kernel: SplitGemmKernel,
    a: Array,
    b: Array,
    slots: tuple[Array, ...] = (),
    order: str = "C",
    pool: Pool | None = None,
) -> Array:
    """epilogue(a b); rows of C stand 3 elements apart; nothing else is written.  b may have any strides."""
    (m, k), n = a.shape[-2:], b.shape[-1]
    lead = a.shape[:-2]
    count = lead[0] if lead else 1
    c = np.full((*lead, m, n + 3), 77, np.float32)
    given = np.asfortranarray(a) if order == "F" else np.ascontiguousarray(a)
    packed = b
    if kernel.b_constant:
        packed = np.concatenate([kernel.pack_b(b).reshape(-1), np.full(64, 0xCD, kernel.b_dtype.numpy)])
    pointers = [x.ctypes.data for x in (given, packed, *slots, c)]
    sizes = {"m": m, "n": n, "k": k, "a_row": given.strides[-2] // 4, "a_col": given.strides[-1] // 4, "c_row": n + 3}
    sizes |= {"batch1": count, "a_batch1": m * k, "c_batch1": m * (n + 3)}
    if not kernel.b_constant:
        sizes |= {"b_row": b.strides[-2] // 4, "b_col": b.strides[-1] // 4}
    each = int(kernel.packed_b_elements(n, k)) if kernel.b_constant else b.strides[0] // 4
    sizes["b_batch1"] = each if b.ndim > 2 else 0
    for i, (x, axes) in enumerate(zip(slots, kernel.epilogue.slots, strict=True)):
        sizes |= {f"s{i}_row": x.strides[0] // 4} if axes in ("column", "full") else {}
    numbers = [int(e.value) for e in kernel.order(**sizes)]  # type: ignore[attr-defined]
    foreign.call_kernel(lib, kernel, pool, *pointers, *numbers)
    assert (c[..., n:] == 77).all()
    return c[..., :n]


def exact(a: Array, b: Array) -> Array:
    with np.errstate(all="ignore"):
        return a.astype(np.float64) @ b.astype(np.float64)


def error(found: Array, wanted: Array) -> float:
    return float(np.linalg.norm(found - wanted) / np.linalg.norm(wanted))


@pytest.fixture(scope="module", params=compilers()[-2:], ids=lambda c: Path(c[0]).name)
def kernels(request: Any, tmp_path_factory: pytest.TempPathFactory) -> dict[Any, tuple[ctypes.CDLL, SplitGemmKernel]]:
    """For any sizes, by terms and whether with the residual epilogue; by terms alone where B is no constant."""
    found: dict[Any, SplitGemmKernel] = {
        (t, fused): SplitGemmKernel(
            t or 1, residual() if fused else plain(), (2, 1), (2, 1), not fused, "amx" if t else "dot"
        )
        for t in ERROR
        for fused in (False, True)
    }
    found |= {t: SplitGemmKernel(t, plain(), (2, 1), (2, 1), False, b_constant=False) for t in ERROR if t}
    folder = tmp_path_factory.mktemp("amx")
    text = "\n".join([PROTOTYPES, *(k.source() for k in found.values())])
    (folder / "k.c").write_text(text)
    command = [*with_flags(request.param), *emulation(), "-shared", "-fPIC", "-o", "k.so", "k.c", "-lm"]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[:4000]
    lib = ctypes.CDLL(str(folder / "k.so"))
    return {key: (lib, k) for key, k in found.items()}


SIZES = [
    (24, 32, 32),
    (25, 33, 31),
    (31, 15, 33),
    (32, 16, 64),
    (33, 17, 1),
    (47, 31, 96),
    (49, 48, 95),
    (64, 65, 100),
    (97, 5, 40),
    (130, 34, 800),
    (290, 20, 200),
    (26, 40, 2400),
    (840, 34, 180),  # threads pack groups of rows
]
FEW = [(1, 1, 1), (1, 64, 300), (2, 33, 31), (3, 20, 2), (5, 40, 513), (7, 31, 64), (8, 16, 33), (15, 17, 70)]


@pytest.mark.parametrize("terms", ERROR)
@pytest.mark.parametrize("size", SIZES + FEW, ids=str)
def test_errors_at_edges(kernels: Any, terms: int, size: tuple[int, int, int]) -> None:
    m, n, k = size
    a, b = random(m, k), random(k, n, seed=1)
    lib, kernel = kernels[terms, False]
    found = run(lib, kernel, a, b)
    few = k * n * m < 100  # too few to average
    assert error(found, exact(a, b)) < ERROR[terms] * (3 if few else 1)
    np.testing.assert_array_equal(run(lib, kernel, a, b, pool=Pool(1)), found)
    np.testing.assert_array_equal(run(lib, kernel, a, b, order="F"), found)


def test_three_terms_are_as_good_as_f32(kernels: Any) -> None:
    lib, kernel = kernels[3, False]
    for m, n, k in ((128, 96, 768), (64, 64, 1500)):
        a, b = random(m, k), random(k, n, seed=1)
        wanted = exact(a, b)
        assert error(run(lib, kernel, a, b), wanted) <= 1.2 * error(a @ b, wanted)


@pytest.mark.parametrize("terms", ERROR)
@pytest.mark.parametrize("m", [40, 49, 90])
def test_epilogues(kernels: Any, terms: int, m: int) -> None:
    n, k = 41, 900
    a, b = random(m, k), random(k, n, seed=1)
    row, column, scalar, full = random(n), random(m, 1), np.array([0.5], np.float32), random(m, n, seed=3)
    lib, kernel = kernels[terms, True]
    found = run(lib, kernel, a, b, (row, column, scalar, full), pool=Pool(3))
    wanted = np.maximum(exact(a, b) + row, 0) * column.astype(np.float64) * 0.5 + full
    assert error(found, wanted) < ERROR[terms]


@pytest.mark.parametrize("terms", ERROR)
@pytest.mark.parametrize("m", [3, 40])
def test_batches(kernels: Any, terms: int, m: int) -> None:
    a, b, c = random(3, m, 70), random(70, 40, seed=1), random(3, 70, 40, seed=2)
    lib, kernel = kernels[terms, False]
    assert error(run(lib, kernel, a, b), exact(a, b)) < ERROR[terms]
    assert error(run(lib, kernel, a, c), exact(a, c)) < ERROR[terms]


@pytest.mark.parametrize("terms", [t for t in ERROR if t])
@pytest.mark.parametrize("size", SIZES, ids=str)
def test_b_as_given(kernels: Any, terms: int, size: tuple[int, int, int]) -> None:
    """B is no constant: its rows, or its columns, or neither, without gaps."""
    m, n, k = size
    a, b = random(m, k), random(k, n, seed=1)
    lib, kernel = kernels[terms]
    found = run(lib, kernel, a, b)
    assert error(found, exact(a, b)) < ERROR[terms]
    np.testing.assert_array_equal(run(lib, kernel, a, b, pool=Pool(1)), found)
    np.testing.assert_array_equal(run(lib, kernel, a, b, order="F", pool=Pool(5)), found)
    np.testing.assert_array_equal(run(lib, kernel, a, np.asfortranarray(b)), found)
    apart = np.zeros((k + 1, 2 * n + 3), np.float32)
    apart[:k, 1 : 2 * n : 2] = b
    np.testing.assert_array_equal(run(lib, kernel, a, apart[:k, 1 : 2 * n : 2]), found)
    guarded = np.full((k + 2, n + 5), np.nan, np.float32)  # nothing but B is used
    guarded[1:-1, 2:-3] = b
    np.testing.assert_array_equal(run(lib, kernel, a, guarded[1:-1, 2:-3], pool=Pool(1)), found)
    np.testing.assert_array_equal(run(lib, kernel, a, np.asfortranarray(guarded)[1:-1, 2:-3]), found)


@pytest.mark.parametrize("terms", [t for t in ERROR if t])
@pytest.mark.parametrize("value", [np.inf, -np.inf, np.nan, np.finfo(np.float32).max], ids=str)
def test_b_as_given_is_not_finite(kernels: Any, terms: int, value: float) -> None:
    lib, kernel = kernels[terms]
    a, b = random(60, 70), random(70, 40, seed=1)
    b[9, 33], b[3, 7], a[2, 9], a[4, 3] = value, 0, 0, value
    with np.errstate(over="ignore"):
        wanted = exact(a, b).astype(np.float32)
    for given in (b, np.asfortranarray(b)):
        found = run(lib, kernel, a, given)
        same_classes(found, wanted)
        others = np.isfinite(wanted)
        others[4], others[:, 33] = False, False
        assert error(found[others], wanted[others]) < ERROR[terms]


@pytest.mark.parametrize("threads", [None, 1, 7])
@pytest.mark.parametrize("count", [2, 9])  # in a batch threads divide each matrix, or the matrices
def test_batches_of_b_as_given(kernels: Any, count: int, threads: int | None) -> None:
    a, b = random(count, 140, 170), random(count, 170, 80, seed=1)
    lib, kernel = kernels[3]
    pool = Pool(threads) if threads else None
    assert error(run(lib, kernel, a, b, pool=pool), exact(a, b)) < ERROR[3]
    turned = np.ascontiguousarray(b.swapaxes(1, 2)).swapaxes(1, 2)
    assert error(run(lib, kernel, a, turned, pool=pool), exact(a, b)) < ERROR[3]
    lib, kernel = kernels[3, False]
    assert error(run(lib, kernel, a, b, pool=pool), exact(a, b)) < ERROR[3]


# ------------------------------------------------------------------------------- special values
def same_classes(found: Array, wanted: Array) -> None:
    """NaN and infinities stand where they should."""
    np.testing.assert_array_equal(np.isnan(found), np.isnan(wanted))
    np.testing.assert_array_equal(np.isposinf(found), np.isposinf(wanted))
    np.testing.assert_array_equal(np.isneginf(found), np.isneginf(wanted))


ODD_NAN = np.array([0x7FFFFFFF, 0xFFFFFFFF, 0x7F800001, 0x7FC00000], np.uint32).view(np.float32)


@pytest.mark.parametrize("terms", ERROR)
@pytest.mark.parametrize("m", [5, 60])
@pytest.mark.parametrize("value", [np.inf, -np.inf, *ODD_NAN], ids=lambda v: hex(np.float32(v).view(np.uint32)))
def test_not_finite(kernels: Any, terms: int, m: int, value: float) -> None:
    """In A, in B, against zero, and against each other."""
    n, k = 40, 70
    lib, kernel = kernels[terms, False]
    for a_at, b_at in ((True, False), (False, True), (True, True)):
        a, b = random(m, k), random(k, n, seed=1)
        b[3, 7] = a[2, 9] = 0
        if a_at:
            a.view(np.uint32)[m - 2, 3] = np.float32(value).view(np.uint32)
        if b_at:
            b.view(np.uint32)[9, 33] = np.float32(value).view(np.uint32)
        wanted = exact(a, b)
        found = run(lib, kernel, a, b)
        same_classes(found, wanted)
        finite = np.isfinite(wanted)
        assert error(found[finite], wanted[finite]) < ERROR[terms]


@pytest.mark.parametrize("terms", ERROR)
def test_infinities_that_meet(kernels: Any, terms: int) -> None:
    a, b = random(40, 70), np.abs(random(70, 40, seed=1))
    a[5, 3], a[5, 60], a[6, 3], a[6, 4] = np.inf, -np.inf, np.inf, np.inf
    same_classes(run(*kernels[terms, False], a, b), exact(a, b))


@pytest.mark.parametrize("terms", ERROR)
@pytest.mark.parametrize("m", [4, 40])
def test_largest_floats(kernels: Any, terms: int, m: int) -> None:
    """They keep their value in A and B, though rounding their first term up would overflow; sums overflow as in f32."""
    largest = np.finfo(np.float32).max
    a, b = np.zeros((m, 40), np.float32), np.eye(40, dtype=np.float32)
    a[:, :] = np.linspace(-1, 1, 40) * float(largest)
    bound = {3: 0, 2: 2.0**-16, 1: 2.0**-8, DOT: 2.0**-8}[terms]
    np.testing.assert_allclose(run(*kernels[terms, False], a, b).astype(np.float64), a, rtol=bound)
    x = np.zeros((m, 40), np.float32)
    x[:, 0], x[1, 1] = 1, 1
    y = np.tile((np.linspace(-1, 1, 40) * float(largest)).astype(np.float32), (40, 1))
    y[1] /= 2
    found = run(*kernels[terms, False], x, y).astype(np.float64)
    np.testing.assert_allclose(found[0], y[0], rtol=bound)
    with np.errstate(over="ignore"):
        wanted = (y[0].astype(np.float64) * 1.5).astype(np.float32)
    same_classes(found[1], wanted)
    np.testing.assert_allclose(found[1][np.isfinite(wanted)], wanted[np.isfinite(wanted)], rtol=max(bound, 1e-7))


@pytest.mark.parametrize("terms", ERROR)
def test_products_that_overflow_are_infinite(kernels: Any, terms: int) -> None:
    """The terms of a product have different signs: their sum would be NaN."""
    a, b = random(40, 40), random(40, 40, seed=1)
    a[:, 0], b[0] = 1.9e30, 1.9e30 * np.sign(random(40, seed=2))
    with np.errstate(over="ignore"):
        same_classes(run(*kernels[terms, False], a, b), exact(a, b).astype(np.float32))


@pytest.mark.parametrize("terms", ERROR)
@pytest.mark.parametrize("scale", [1e-30, 1e-36, 1e-40, 1e-44])
def test_small_numbers(kernels: Any, terms: int, scale: float) -> None:
    """Tiles flush what is denormal: at most 2^-126 of every product of terms is lost, nothing is invented."""
    a = (random(40, 64) * scale).astype(np.float32)
    b = random(64, 40, seed=1)
    found, wanted = run(*kernels[terms, False], a, b), exact(a, b)
    assert np.isfinite(found).all()
    lost = 9 * 64 * 2.0**-126 * np.abs(b).max()
    assert np.abs(found - wanted).max() <= lost + 5 * ERROR[terms] * np.abs(wanted).max()


def test_terms() -> None:
    x = np.concatenate([random(5000), random(5000) * np.float32(1e37), [0, -0.0, 1, 2**-100, np.finfo(np.float32).max]])
    x = x.astype(np.float32)
    for count, bound in ((1, 2.0**-8), (2, 2.0**-16), (3, 0)):
        total = sum((t.astype(np.uint32) << 16).view(np.float32).astype(np.float64) for t in terms_of(x, count))
        np.testing.assert_allclose(total, x, rtol=bound)
    special = np.array([np.inf, -np.inf, *ODD_NAN], np.float32)
    first, second = ((t.astype(np.uint32) << 16).view(np.float32) for t in terms_of(special, 2))
    same_classes(first, special)
    assert not second.any()


# ------------------------------------------------------------------------------- selection
@pytest.mark.parametrize("precision", TERMS)
def test_packing_and_back(precision: str) -> None:
    kernel = SplitGemmKernel(TERMS[precision], plain(), (2,), (2,), False)
    b = random(70, 50)
    packed = kernel.pack_b(b)
    assert packed.dtype == kernel.b_dtype.numpy and packed.size == int(kernel.packed_b_elements(50, 70))
    bound = {3: 0, 2: 2e-5, 1: 5e-3}[kernel.terms]
    np.testing.assert_allclose(kernel.unpack_b(packed.reshape(-1), 50, 70), b, rtol=bound)


def test_workspaces_are_small() -> None:
    for constant in (True, False):
        kernel = SplitGemmKernel(3, plain(), (2, 1), (2, 1), constant, b_constant=constant)
        for m in (16, 197, 1500, 100_000):
            for k in (32, 768, 3072, 50_000):
                known, unknown = (kernel.own_bytes({"m": rows, "k": k}) for rows in (m, UNKNOWN))
                assert known <= unknown <= (STRIPE + 700) * 1024


@pytest.mark.parametrize("m", range(1, 200))
def test_blocks_of_rows(m: int) -> None:
    """As the generated code divides them."""
    height = -(-m // -(-m // 16))
    tiles = -(-m // height)
    assert blocks_of(m) == tuple(r for r in (2, 1) if (tiles > 1 if r == 2 else tiles % 2))


def test_column_tiles() -> None:
    assert [widths_of(n) for n in (1, 16, 17, 32)] == [(1,), (1,), (2,), (2,)]
    assert [widths_of(n) for n in (33, 48, 49, 64)] == [(2, 1), (2, 1), (2,), (2,)]


def test_selection() -> None:
    amx, avx512, e = ISAS["amx"], ISAS["avx512"], plain()
    for precision, terms in TERMS.items():
        found = split_gemm(amx, precision, 128, 768, 768, e)
        assert found is not None and found.terms == terms and not found.skinny
        assert split_gemm(avx512, precision, 128, 768, 768, e) is None
        assert split_gemm(amx, precision, 128, 768, 768, plain(f64)) is None
        assert split_gemm(amx, precision, 128, 8, 8, e) is None
        symbolic = split_gemm(amx, precision, M, 768, 768, e)
        assert symbolic is not None and symbolic.skinny and symbolic.heights == (2, 1)
    assert split_gemm(amx, "highest", 1, 768, 768, e) is None
    given = SplitGemmKernel.best(GemmProblem.contiguous(e, 128, 768, 768, False), amx)
    assert given is not None and not given.b_constant and given.features
    assert SplitGemmKernel.best(GemmProblem.contiguous(e, M, 768, 768, False), amx) is None
    assert split_gemm(amx, "high", 1, 768, 768, e) is None
    few = split_gemm(avx512, "medium", 1, 768, 768, e)
    assert few is not None and few.heights == () and not few.features
    assert split_gemm(ISAS["avx2"], "medium", 1, 768, 768, e) is None
    dots = split_gemm(ISAS["avx512_bf16"], "medium", 128, 768, 768, e)
    assert dots is not None and dots.unit == "dot" and dots.features == {"avx512_bf16"}
    assert split_gemm(ISAS["avx512_bf16"], "high", 128, 768, 768, e) is None
    assert amx.name == "avx512" and packed_gemm(amx, f32, 4, 64, e, True) is not None


def test_instruction_sets() -> None:
    have = {"avx512f", "avx512dq", "avx512bw", "avx512vl", "avx2", "fma"}
    tiles = {"amx_tile", "amx_bf16", "avx512_bf16"}
    assert isa_of(frozenset(have | tiles | {"amx_int8", "avx512_vnni"}), "x86_64") == ISAS["amx"]
    assert isa_of(frozenset(have | tiles), "x86_64") == replace(ISAS["amx"], byte_tiles=False, fours=False)
    for lacking, rest in (("avx512_bf16", "avx512"), ("amx_tile", "avx512_bf16"), ("amx_bf16", "avx512_bf16")):
        assert isa_of(frozenset(have | tiles - {lacking}), "x86_64") == ISAS[rest]
    assert ISAS["avx512_bf16"].name == "avx512"


# ------------------------------------------------------------------------------- whole programs
def two_layers(b: Any, x: Any) -> Any:
    hidden = b.MatMul(x, random(512, 640) / 23)
    hidden = b.Mul(hidden, b.Add(b.Erf(b.Mul(hidden, 0.70710678)), 1.0))
    return b.Add(b.MatMul(hidden, random(640, 512, seed=1) / 25), x)


def program(graph: Any, precision: str, isa: str = "amx") -> Any:
    graph, sink = graph.copy(), Sink()
    for _, apply in compile_c(ISAS[isa], precision):
        apply(graph, sink)
        assert not sink.errors
    return lower(graph, group.run(graph), "test")


def kernels_of(made: Any) -> list[Any]:
    return [s.kernel for f in made.functions for s in walk(f.body) if isinstance(s, KernelCall)]


@pytest.mark.parametrize("rows", [None, M], ids=["static", "symbolic"])
@pytest.mark.parametrize("precision", TERMS)
def test_compiled(precision: str, rows: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Through selection, interpretation and C; the emulation replaces the processor, and nobody is asked for AMX."""
    x = random(2, 200, 512)  # as many rows as threads divide
    graph = graph_of(two_layers, x, shapes=[(2, rows or 200, 512)])
    (wanted,) = evaluate(graph, {graph.inputs[0]: x})
    made = program(graph, precision)
    assert [(k.terms, type(k)) for k in kernels_of(made)] == [(TERMS[precision], SplitGemmKernel)] * 2
    (found,) = interp.run(made, [x])
    assert error(found, wanted) < 3 * ERROR[TERMS[precision]]
    monkeypatch.setenv("CC", emulating(tmp_path))
    library = Library(made, tmp_path)
    for size in [200] if rows is None else [45, 1, 200]:
        x = random(2, size, 512, seed=size)
        graph = graph_of(two_layers, x)
        (wanted,) = evaluate(graph, {graph.inputs[0]: x})
        (found,) = library.run(library.context([size] if rows else []), [x], [x.shape])
        assert error(found, wanted) < 3 * ERROR[TERMS[precision]]


def test_weights_are_stored_once() -> None:
    def build(b: Any, x: Any) -> Any:
        w = b.const(random(96, 96), x.dtype)
        return b.MatMul(b.Relu(b.MatMul(x, w)), w)

    for precision, size in (("highest", 4), ("high", 4), ("medium", 2)):
        made = program(graph_of(build, random(64, 96)), precision)
        constants = [b.data.nbytes for b in made.buffers() if b.data is not None]
        assert sorted(constants) == [4, 4, 96 * 96 * size]  # with the lower bounds of both results: 0 and none


def test_few_rows_in_medium_take_half_the_memory_everywhere(tmp_path: Path) -> None:
    x = random(1, 1024)

    def build(b: Any, x: Any) -> Any:
        return b.Relu(b.MatMul(x, random(1024, 200) / 32))

    graph = graph_of(build, x)
    (wanted,) = evaluate(graph, {graph.inputs[0]: x})
    made = program(graph, "medium", "avx512")
    (data,) = [b for b in made.buffers() if b.data is not None]
    assert data.data is not None and data.data.nbytes == 1024 * 224 * 2
    library = Library(made, tmp_path, extra=["-Wno-psabi"])
    (found,) = library.run(library.context(), [x], [wanted.shape])
    assert error(found, wanted) < ERROR[1]


# ------------------------------------------------------------------------------- the real thing
def real(compiler: list[str]) -> tuple[str, ...]:
    """Flags for the instructions themselves."""
    return target_of("amx", c_compiler.describe_compiler(tuple(compiler))).flags


@pytest.mark.parametrize("compiler", compilers(), ids=lambda c: Path(c[0]).name)
def test_real_instructions_compile(compiler: list[str], tmp_path: Path) -> None:
    """With the compiler's own intrinsics: 14 loads for 24 products with three terms, 8 for 12, 4 for 4."""
    for terms, loads, products in ((3, 14, 24), (2, 8, 12), (1, 4, 4)):
        kernel = SplitGemmKernel(terms, Epilogue(call("erf", acc())), (2,), (2,), False)
        (tmp_path / "k.c").write_text(PROTOTYPES + kernel.source())
        command = [*with_flags(compiler), *real(compiler), "-S", "-o", "-", "k.c"]
        done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr[:4000]
        found = done.stdout.count("tileloadd"), done.stdout.count("tdpbf16ps")
        assert found in ((loads, products), (2 * loads, 2 * products))  # clang unrolls once


def test_nobody_runs_tiles_that_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """An artefact for AMX is refused where the processor lacks it, and where the system does."""
    needs = ["avx512f", "amx_tile", "amx_bf16"]
    monkeypatch.setattr(processor, "cpu_features", lambda: frozenset({"avx512f"}))
    with pytest.raises(RunError) as e:
        processor.check_features("native", "x86_64", needs)
    assert e.value.diagnostics[0].code == "IRC6007" and "amx_tile" in str(e.value)
    monkeypatch.setattr(processor, "cpu_features", lambda: frozenset(needs))
    monkeypatch.setattr(matrix_units, "permitted", lambda: False)
    with pytest.raises(RunError) as e:
        processor.check_features("native", "x86_64", needs)
    assert e.value.diagnostics[0].code == "IRC6007" and "operating system" in str(e.value)
    monkeypatch.setattr(matrix_units, "permitted", lambda: True)
    processor.check_features("native", "x86_64", needs)


@pytest.mark.parametrize("allowed", [True, False])
def test_native_asks_the_system(allowed: bool, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Here the compiler says that the processor has AMX."""
    macros = "".join(f"#define {m} 1\\n" for m in ("__x86_64__", "__AVX512F__", "__AMX_TILE__", "__AMX_BF16__"))
    script = tmp_path / "cc"
    script.write_text(f"#!/bin/sh\nprintf '{macros}'\n")
    script.chmod(0o755)
    monkeypatch.setattr(matrix_units, "permitted", lambda: allowed)
    with nullcontext() if allowed else pytest.warns(RuntimeWarning, match="IRC6106.*refuses AMX"):
        target = c_compiler.resolve_target("native", c_compiler.Compiler((str(script),), f"says AMX {allowed}"))
    assert ("amx_tile" in target.features, "-mno-amx-tile" in target.flags) == (allowed, not allowed)
    named = c_compiler.resolve_target("sapphirerapids", c_compiler.Compiler((str(script),), f"says AMX {allowed}"))
    assert "amx_tile" in named.features


@pytest.mark.skipif(matrix_units.permitted(), reason="this machine has AMX")
def test_a_program_for_tiles_says_that_they_are_missing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CC", " ".join([installed()[0], *emulation()]))
    library = Library(program(graph_of(two_layers, random(64, 512)), "high"), tmp_path)
    memory = np.zeros(library._function("context_size")(None) + 64, np.uint8)
    weights = ctypes.c_void_p(library.weights.ctypes.data)
    found = library._function("init")(ctypes.c_void_p(memory.ctypes.data + -memory.ctypes.data % 64), weights, None)
    assert found == (runtime.TILES_REFUSED.number if c_compiler.sys.platform == "linux" else 0)


@needs("amx")
@pytest.mark.parametrize("precision", TERMS)
def test_on_the_processor(precision: str, tmp_path: Path) -> None:
    x = random(2, 200, 512)
    graph = graph_of(two_layers, x)
    (wanted,) = evaluate(graph, {graph.inputs[0]: x})
    made = program(graph, precision)
    assert all(isinstance(k, SplitGemmKernel) for k in kernels_of(made))
    library = Library(made, tmp_path)
    (found,) = library.run(library.context(), [x], [x.shape])
    assert error(found, wanted) < 3 * ERROR[TERMS[precision]]


@needs("avx512_bf16")
@pytest.mark.parametrize("rows", [1, 45, 200])
def test_pairs_on_the_processor(rows: int, tmp_path: Path) -> None:
    x = random(2, rows, 512)
    graph = graph_of(two_layers, x, shapes=[(2, M, 512)])
    (wanted,) = evaluate(graph, {graph.inputs[0]: x})
    made = program(graph, "medium", "avx512_bf16")
    assert [k.unit for k in kernels_of(made)] == ["dot"] * 2
    library = Library(made, tmp_path)
    (found,) = library.run(library.context([rows]), [x], [x.shape])
    assert error(found, wanted) < 3 * ERROR[DOT]
