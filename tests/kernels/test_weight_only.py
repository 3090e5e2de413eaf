"""Matrix products with weights of few bits, or of floats of 16 bits, against the definition in f64."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from irc.ir.dim import Dim
from irc.ir.types import DType, bf16, f16
from irc.kernels import ISAS, plain
from irc.kernels.core.registry import select
from irc.kernels.gemm.half_weights import HalfWeightsGemmKernel
from irc.kernels.gemm.problem import GemmProblem, Narrow
from irc.kernels.gemm.weight_only import WeightOnlyGemmKernel
from irc.kernels.gemm.weight_only_tiles import WeightOnlyTilesGemmKernel
from tests.kernels.test_kernels import M, Pool, build, close, compilers, invoke, noise, residual

pytestmark = pytest.mark.skipif(not compilers(), reason="no C compiler")
AnyKernel = WeightOnlyGemmKernel | WeightOnlyTilesGemmKernel
FORMATS = [Narrow(4, 32, False), Narrow(4, 16, True), Narrow(8, 64, True), Narrow(2, 128, False)]


def problem(m: Any, n: int, k: int, narrow: Narrow, fused: bool = False) -> GemmProblem:
    return replace(GemmProblem.contiguous(residual() if fused else plain(), m, n, k, True), narrow=narrow)


def weights(n: int, k: int, narrow: Narrow) -> tuple[Any, Any]:
    """B[k, n] in f64, and its rows as constants state them."""
    rng, blocks, most = np.random.default_rng(n * k), -(-k // narrow.block), 1 << narrow.bits
    q, scale = rng.integers(0, most, (n, k)), ((rng.random((n, blocks)) + 0.5) / most).astype(np.float32)
    zero = rng.integers(0, most, (n, blocks)) if narrow.zeros else np.full((n, blocks), most // 2)
    of = np.arange(k) // narrow.block
    rows = [q, scale, *([zero] if narrow.zeros else [])]
    return ((q - zero[:, of]) * scale[:, of].astype(np.float64)).T, np.concatenate(rows, 1).astype(np.float32)


def run(lib: Any, g: AnyKernel, size: tuple[int, int, int], a: Any = None, pool: Pool | None = None) -> Any:
    """Return (what it computes, what it should, what rounding is to be compared with); gaps of rows are not touched.

    Scratch memory is full of NaN, of f32 as of bf16.
    """
    m, n, k = size
    b, rows = weights(n, k, g.narrow)
    packed = g.pack_b(rows, k)
    assert packed.size == g.packed_bytes(n, k)
    assert np.allclose(g.unpack_b(packed, n, k), b, rtol=1e-6)
    a = noise(m, k) if a is None else a
    given, c = np.full((m, k + 3), 99, np.float32), np.full((m, n + 2), 77, np.float32)
    given[:, :k] = a
    slots = [noise(n), noise(m), noise(1), noise(m, n)] if g.epilogue.slots else []
    scratch = np.full(int(g.scratch(problem(m, n, k, g.narrow))) // 2, 0x7FC0, np.uint16)
    strides = {"m": m, "n": n, "k": k, "a_row": k + 3, "a_col": 1, "c_row": n + 2, "s1_row": 1, "s3_row": n}
    invoke(lib, g, given, packed, *slots, c, scratch, *[strides[name] for name in g.sizes], pool=pool)
    with np.errstate(invalid="ignore"):
        wanted = a.astype(np.float64) @ b
        scale = np.abs(a).astype(np.float64) @ np.abs(b)
    if slots:
        wanted = np.maximum(wanted + slots[0], 0) * slots[1][:, None] * slots[2] + slots[3]
        scale = (scale + np.abs(slots[0])) * np.abs(slots[1][:, None] * slots[2]) + np.abs(slots[3])
    assert (c[:, n:] == 77).all()
    return c[:, :n], wanted, scale


@pytest.mark.parametrize("isa", ["avx512", "avx2", "sse", "plain"])
@pytest.mark.parametrize("narrow", FORMATS, ids=str)
def test_edges(tmp_path: Path, isa: str, narrow: Narrow) -> None:
    """Any rows, columns and depth, tiles of all widths, with and without an epilogue."""
    kernels = [
        k
        for fused in (True, False)
        for k in WeightOnlyGemmKernel.candidates(problem(M, 9, 9, narrow, fused), ISAS[isa])
    ]
    lib = build(tmp_path, kernels)
    for kernel, (m, n, k) in itertools.product(kernels, ((1, 70, 300), (3, 1, 5), (kernels[0].tile.rows + 1, 64, 128))):
        found, wanted, _ = run(lib, kernel, (m, n, k))
        close(found, wanted, k)


def test_rows_with_infinities_are_computed_as_defined(tmp_path: Path) -> None:
    """An infinity meets numbers that are 0, which gives NaN, and others; other rows stay as they are."""
    narrow = Narrow(4, 32, True)
    kernel = next(iter(WeightOnlyGemmKernel.candidates(problem(3, 50, 70, narrow), ISAS["avx2"])))
    lib = build(tmp_path, [kernel])
    for odd in (np.inf, -np.inf, np.nan):
        a = noise(3, 70)
        a[1, 33] = odd
        c, wanted, _ = run(lib, kernel, (3, 50, 70), a)
        assert np.array_equal(c[1], wanted[1].astype(np.float32), equal_nan=True)
        close(c[::2], wanted[::2], 70)


def same_on_threads(folder: Path, kernels: Sequence[AnyKernel]) -> None:
    """Hold what pools compute against what one thread does; each kernel asks a pool for help."""
    lib = build(folder, kernels)
    for kernel in kernels:
        a = noise(5, 400)
        alone, *_ = run(lib, kernel, (5, 300, 400), a)
        for chunk in (1, 2, 5):
            pool = Pool(chunk)
            assert np.array_equal(alone, run(lib, kernel, (5, 300, 400), a, pool)[0])
            assert pool.calls


def test_results_do_not_depend_on_threads(tmp_path: Path) -> None:
    same_on_threads(tmp_path, list(WeightOnlyGemmKernel.candidates(problem(M, 300, 400, FORMATS[0]), ISAS["avx2"])))


def test_numpy_oracle() -> None:
    """What programs are interpreted with computes the same."""
    for narrow in FORMATS:
        kernel = next(iter(WeightOnlyGemmKernel.candidates(problem(4, 40, 100, narrow), ISAS["avx512"])))
        b, rows = weights(40, 100, narrow)
        a, c = noise(4, 100), np.zeros(160, np.float32)
        sizes = {"m": 4, "n": 40, "k": 100, "a_row": 100, "a_col": 1, "c_row": 40}
        kernel.compute([a.reshape(-1), kernel.pack_b(rows, 100)], [c], sizes)
        close(c.reshape(4, 40), a.astype(np.float64) @ b, 100)


@pytest.mark.parametrize("isa", ["avx512", "avx2", "sse", "plain"])
@pytest.mark.parametrize("kind", [f16, bf16], ids=str)
def test_floats_of_16_bits(tmp_path: Path, isa: str, kind: DType) -> None:
    """Every number is widened exactly: denormal ones, infinities and NaN too; threads change nothing."""
    narrow = Narrow(16, floats=kind.name)
    kernels = list(HalfWeightsGemmKernel.candidates(problem(M, 9, 9, narrow), ISAS[isa]))
    lib = build(tmp_path, kernels)
    for kernel, (m, n, k) in itertools.product(
        kernels, ((1, 70, 300), (3, 1, 5), (kernels[0].tile.rows + 1, 130, 600))
    ):
        rows = noise(n, k).astype(kind.numpy).astype(np.float32)
        packed, a, c = kernel.pack_b(rows), noise(m, k), np.full((m, n + 2), 77, np.float32)
        assert packed.size == kernel.packed_bytes(n, k) and np.array_equal(kernel.unpack_b(packed, n, k), rows.T)
        strides = {"m": m, "n": n, "k": k, "a_row": k, "a_col": 1, "c_row": n + 2}
        order = [strides[name] for name in kernel.sizes]
        for pool in (None, Pool(1)):
            invoke(lib, kernel, a, packed, c, *order, pool=pool)
            close(c[:, :n], a.astype(np.float64) @ rows.T, k)
            assert (c[:, n:] == 77).all()
    every = np.arange(1 << 16, dtype=np.uint16).view(kind.numpy).astype(np.float32)
    one, c = np.ones((1, 1), np.float32), np.zeros((1, every.size), np.float32)
    strides = {"m": 1, "n": every.size, "k": 1, "a_row": 1, "a_col": 1, "c_row": every.size}
    invoke(lib, kernels[0], one, kernels[0].pack_b(every[:, None]), c, *[strides[name] for name in kernels[0].sizes])
    assert np.array_equal(c[0], every, equal_nan=True)


@pytest.mark.parametrize("kind", [f16, bf16], ids=str)
def test_panels_abreast_are_added_as_alone(tmp_path: Path, kind: DType) -> None:
    """One row reads several panels at once where a thread has as many; A's elements may be apart."""
    kernels = list(HalfWeightsGemmKernel.candidates(problem(1, 9, 9, Narrow(16, floats=kind.name)), ISAS["avx2"]))
    lib, n, k, step = build(tmp_path, kernels), 333, 700, 3
    rows, a = noise(n, k).astype(kind.numpy).astype(np.float32), noise(k, step)
    strides = {"m": 1, "n": n, "k": k, "a_row": 1, "a_col": step, "c_row": n}
    for kernel in kernels:
        assert kernel.abreast > 1
        found = []
        for pool in (None, Pool(1), Pool(2), Pool(5)):
            c = np.full((1, n + 2), 77, np.float32)
            order = [strides[name] for name in kernel.sizes]
            invoke(lib, kernel, a, kernel.pack_b(rows), c, *order, pool=pool)
            close(c[:, :n], a[None, :, 0].astype(np.float64) @ rows.T, k)
            assert (c[:, n:] == 77).all()
            found.append(c)
        assert all(np.array_equal(found[0], c) for c in found)


@pytest.mark.parametrize("isa", ["avx512", "avx2", "neon"])
def test_selection(isa: str) -> None:
    """Few rows and unknown ones read weights as they are stored; small matrices are floats in the caches."""

    def chosen(m: Any, n: int, k: int, narrow: Narrow | None) -> bool:
        given = GemmProblem.contiguous(plain(), m, n, k, True)
        return isinstance(select(replace(given, narrow=narrow), ISAS[isa]), WeightOnlyGemmKernel)

    assert chosen(1, 3072, 768, FORMATS[0]) and chosen(Dim.symbol("rows"), 3072, 768, FORMATS[0])
    assert chosen(1, 3072, 768, Narrow(8, 256, False))
    assert not chosen(1, 3072, 768, None)
    half = replace(GemmProblem.contiguous(plain(), 1, 3072, 768, True), narrow=Narrow(16, floats="f16"))
    assert isinstance(select(half, ISAS[isa]), HalfWeightsGemmKernel)
