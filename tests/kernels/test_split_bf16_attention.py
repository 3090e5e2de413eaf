"""Attention from bf16 terms against NumPy in float64, on emulated tiles; see `test_amx`."""

from __future__ import annotations

import ctypes
import subprocess
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from irc.ir.dim import Dim
from irc.kernels import ISAS, PROTOTYPES
from irc.kernels.attention.split_bf16 import SplitAttentionKernel
from irc.kernels.split_bf16.bf16_terms import TERMS
from tests.kernels.test_attention import ATTENTION, exact_attention, masks, run_attention
from tests.kernels.test_kernels import Pool, compilers, invoke, noise, with_flags
from tests.kernels.test_split_bf16_gemm import DOT, pytestmark as needs_x86, real
from tests.support.instruction_sets import emulation
from tests.support.kernels import attention, split_attention

pytestmark = needs_x86
M = Dim.symbol("m")
BOUND = {3: 1e-6, 2: 1e-5, 1: 6e-3, DOT: 6e-3}
"""By terms: norm of the error over that of the result; a mean of n values is less than they are by its square root."""
PICKED = [  # terms, mask, causal, empty
    (3, "none", False, "nan"),
    (3, "bool", True, "nan"),
    (2, "add", False, "zero"),
    (2, "none", True, "zero"),
    (1, "none", False, "nan"),
    (DOT, "add", True, "nan"),
]
SHAPES = [  # batch, heads, group, m, n, d, dv
    *ATTENTION,
    (1, 2, 1, 33, 300, 64, 64),
    (2, 4, 2, 20, 70, 31, 40),
    (1, 1, 1, 16, 32, 96, 17),
    (1, 2, 1, 1100, 40, 32, 32),
    (1, 1, 1, 35, 800, 64, 96),
]


def kernel_of(terms: int, mask: str, causal: bool, empty: str, width: int = 96) -> SplitAttentionKernel:
    plain = attention(ISAS["amx"], M, width, 0.125, mask, causal, empty)  # type: ignore[arg-type]
    assert plain is not None
    return SplitAttentionKernel(plain, terms or 1, "dot" if terms == DOT else "amx")


def built(folder: Path, kernels: list[SplitAttentionKernel], compiler: list[str]) -> ctypes.CDLL:
    (folder / "k.c").write_text("\n".join([PROTOTYPES, *(k.source() for k in kernels)]))
    command = [*with_flags(compiler), *emulation(), "-shared", "-fPIC", "-o", "k.so", "k.c", "-lm"]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[:4000]
    return ctypes.CDLL(str(folder / "k.so"))


@pytest.fixture(scope="module")
def attentions(tmp_path_factory: pytest.TempPathFactory) -> tuple[ctypes.CDLL, dict[Any, SplitAttentionKernel]]:
    found = {key: kernel_of(*key) for key in PICKED}
    return built(tmp_path_factory.mktemp("attention"), list(found.values()), compilers()[0]), found


def as_plain(kernel: SplitAttentionKernel) -> SimpleNamespace:
    """What `run_attention` looks at."""
    plain = kernel.plain
    what: dict[str, Any] = {"scale": plain.scale, "causal": plain.causal, "empty": plain.empty}
    what |= {n: getattr(kernel, n) for n in ("symbol", "pointers", "sizes", "arguments", "has_workspaces", "own_bytes")}
    return SimpleNamespace(**what)


def within(bound: float) -> Any:
    """NaN where there should be, elsewhere the norm of the error within the bound."""

    def check(found: np.ndarray[Any, Any], wanted: np.ndarray[Any, Any], _: int) -> None:
        np.testing.assert_array_equal(np.isnan(found), np.isnan(wanted))
        there = np.isfinite(wanted)
        assert np.linalg.norm((found - wanted)[there]) <= bound * np.linalg.norm(wanted[there])

    return check


@pytest.mark.parametrize("layout", ["bhsd", "bshd", "bhds"])
@pytest.mark.parametrize("key", PICKED, ids=str)
def test_every_shape(attentions: Any, key: Any, layout: str) -> None:
    lib, kernels = attentions
    terms, mask, causal, _ = key
    for k, shape in enumerate(SHAPES):
        for shift in (shape[4] - shape[3], 0) if causal else (0,):
            given = (as_plain(kernels[key]), shape, masks(shape, mask, k), shift, layout)
            run_attention(lib, *given, check=within(BOUND[terms]))


def test_threads_do_not_matter(attentions: Any) -> None:
    lib, kernels = attentions
    for key in PICKED[:3]:
        kernel, shape = kernels[key], (2, 2, 1, 150, 270, 64, 64)
        q, k, v = noise(2, 2, 150, 64), noise(2, 2, 270, 64), noise(2, 2, 270, 64)
        mask = masks(shape, key[1], 0)
        found = [run(lib, kernel, q, k, v, mask, Pool(n) if n else None) for n in (0, 1, 5)]
        np.testing.assert_array_equal(found[0], found[1])
        np.testing.assert_array_equal(found[0], found[2])


def run(
    lib: ctypes.CDLL, kernel: SplitAttentionKernel, q: Any, k: Any, v: Any, mask: Any = None, pool: Pool | None = None
) -> np.ndarray[Any, Any]:
    """Of contiguous [batch, heads, rows, width]."""
    (batch, heads, m, d), n, dv = q.shape, k.shape[2], v.shape[3]
    o = np.full((batch, heads, m, dv), 77, np.float32)
    sizes = [batch, heads, heads // k.shape[1], m, n, d, dv, *(s // 4 for x in (q,) for s in x.strides[:3])]
    sizes += [*(s // 4 for s in k.strides), *(s // 4 for s in v.strides[:3]), *(s // 4 for s in o.strides[:3])]
    reads = [q, k, v]
    if mask is not None:
        reads.append(mask)
        sizes += [s // mask.itemsize for s in np.broadcast_to(mask, (batch, heads, m, n)).strides]
    invoke(lib, kernel, *reads, o, *sizes, *([n - m] if kernel.plain.causal else []), pool=pool)
    return o


@pytest.mark.parametrize("key", [PICKED[0], PICKED[4]], ids=str)
def test_not_finite(attentions: Any, key: Any) -> None:
    """NaN, infinities and the largest floats come out as from f32: where they stand, rows are computed in it."""
    lib, kernels = attentions
    largest = np.finfo(np.float32).max
    for value in (np.nan, np.inf, -np.inf, largest):
        for which in range(3):
            q, k, v = noise(1, 1, 40, 64), noise(1, 1, 300, 64), noise(1, 1, 300, 64)
            given = [q, k, v]
            given[which][0, 0, 33, 5] = value
            found = run(lib, kernels[key], *given)
            with np.errstate(all="ignore"):
                exact = exact_attention(q, k, v, 0.125, 0.0)
                wanted = exact.astype(np.float32)
            for test in (np.isnan, np.isposinf, np.isneginf):
                np.testing.assert_array_equal(test(found), test(wanted))
            small = np.abs(wanted) < 1e3
            error = np.linalg.norm(found[small] - exact[small])
            assert error <= 2 * BOUND[key[0]] * np.linalg.norm(exact[small]), (value, which)


def test_selection() -> None:
    def chosen(precision: str, rows: Any, keys: Any, width: int, isa: str = "amx") -> bool:
        return split_attention(ISAS[isa], precision, rows, keys, width) is not None

    for precision in TERMS:
        assert chosen(precision, 1500, 1500, 64) and chosen(precision, M, M, 64)
        assert not chosen(precision, 1, 1500, 64)
        assert not chosen(precision, 1500, 8, 64)
        assert not chosen(precision, 1500, 1500, 8)
        assert not chosen(precision, 1500, 1500, 64, "avx512")


@pytest.mark.parametrize("compiler", compilers(), ids=lambda c: Path(c[0]).name)
def test_real_instructions_compile(compiler: list[str], tmp_path: Path) -> None:
    kernel = kernel_of(2, "add", True, "zero", 64)
    (tmp_path / "k.c").write_text(PROTOTYPES + kernel.source())
    command = [*with_flags(compiler), *real(compiler), "-S", "-o", "-", "k.c"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[:4000]
    assert done.stdout.count("tdpbf16ps") >= 18
