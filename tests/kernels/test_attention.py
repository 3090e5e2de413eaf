"""Attention against NumPy in float64, at the edges of its tiles."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from irc.ir.dim import Dim
from irc.ir.types import f32
from irc.kernels import ISAS
from irc.kernels.attention.vector import AttentionKernel
from irc.kernels.core.isa import HEAD, vector_name, vector_type
from irc.kernels.core.text import standalone
from irc.kernels.vector.lanes import exp_below
from tests.kernels.test_kernels import Pool, build, close, compilers, guarded, invoke, noise
from tests.support import foreign
from tests.support.instruction_sets import isa_under_test
from tests.support.kernels import attention

pytestmark = pytest.mark.skipif(not compilers(), reason="no C compiler")
M = Dim.symbol("m")
Array = np.ndarray[Any, Any]


def exact_attention(q: Array, k: Array, v: Array, scale: float, bias: Any, empty: str = "nan") -> Array:
    """softmax(scale q kᵀ + bias) v for [batch, heads, rows, width], K and V with heads to share."""
    group = q.shape[1] // k.shape[1]
    k, v = np.repeat(k, group, axis=1).astype(np.float64), np.repeat(v, group, axis=1).astype(np.float64)
    with np.errstate(all="ignore"):
        scores = scale * (q.astype(np.float64) @ k.swapaxes(-1, -2)) + bias
        most = scores.max(-1, keepdims=True, initial=-np.inf)
        p = np.exp(scores - most)
        p /= p.sum(-1, keepdims=True)
    if empty == "zero":
        p = np.where(most == -np.inf, 0.0, p)
    return p @ v


def run_attention(
    lib: ctypes.CDLL,
    kernel: Any,
    shape: tuple[int, ...],
    mask: Array | None = None,
    shift: int = 0,
    layout: str = "bhsd",
    pool: Pool | None = None,
    check: Callable[[Array, Array, int], None] = close,
) -> Array:
    """Checked; operands have NaN beside them, and `layout` says in which order their axes stand (K may be "bhds")."""
    batch, heads, group, m, n, d, dv = shape
    full = {"b": batch, "h": heads // group, "s": n, "d": d}
    k = np.einsum(f"{layout}->bhsd", guarded(*(full[a] for a in layout)))
    rows = "bshd" if layout == "bshd" else "bhsd"
    v = np.einsum(f"{rows}->bhsd", guarded(*((full | {"d": dv})[a] for a in rows)))
    q = np.einsum(f"{rows}->bhsd", guarded(*((full | {"h": heads, "s": m})[a] for a in rows)))
    room = [(full | {"h": heads, "s": m, "d": dv + 3})[a] for a in rows]
    o = np.einsum(f"{rows}->bhsd", np.full(room, 77, np.float32))
    bias = np.zeros((1, 1, 1, 1))
    reads, sizes = [q, k, v], [*shape]
    for x in (q, k, v, o):
        sizes += [s // 4 for s in x.strides[: 4 if x is k else 3]]
    if mask is not None:
        broad = np.broadcast_to(mask, (batch, heads, m, n))
        reads.append(mask)
        sizes += [s // mask.itemsize for s in broad.strides]
        bias = np.where(mask, 0.0, -np.inf) if mask.dtype == bool else mask
    if kernel.causal:
        sizes.append(shift)
        bias = np.where(np.arange(n) <= np.arange(m)[:, None] + shift, bias, -np.inf)
    invoke(lib, kernel, *reads, o, *sizes, pool=pool)
    exact = exact_attention(q, k, v, kernel.scale, bias, kernel.empty)
    check(o[..., :dv], exact, d + n // 8)
    assert (o[..., dv:] == 77).all()
    return o[..., :dv].copy()


@pytest.fixture(scope="module")
def attentions(tmp_path_factory: pytest.TempPathFactory) -> tuple[ctypes.CDLL, dict[Any, AttentionKernel]]:
    """Kernels by (instruction set, mask, causal, empty)."""
    found: dict[Any, AttentionKernel] = {}
    for key in (
        ("avx512", "none", False, "nan"),
        ("avx512", "add", False, "nan"),
        ("avx512", "bool", True, "nan"),
        ("avx512", "none", True, "zero"),
        ("avx2", "add", True, "zero"),
        ("plain", "bool", False, "nan"),
    ):
        kernel = attention(ISAS[key[0]], M, 80, 0.125, *key[1:])  # type: ignore[arg-type]
        assert kernel is not None
        found[key] = kernel
    return build(tmp_path_factory.mktemp("attention"), list(found.values())), found


# batch, heads, group, m, n, d, dv
ATTENTION = [
    (2, 3, 1, 20, 37, 64, 64),
    (1, 2, 1, 64, 600, 80, 80),
    (1, 2, 2, 1, 1000, 64, 64),
    (2, 4, 2, 2, 9, 33, 20),
    (1, 8, 4, 3, 50, 17, 49),
    (1, 1, 1, 260, 197, 16, 32),
    (1, 1, 1, 1, 1, 1, 1),
    (1, 1, 1, 15, 1, 5, 1),
    (1, 2, 1, 29, 192, 64, 80),
    (1, 2, 1, 7, 193, 7, 65),
    (3, 1, 1, 1, 385, 80, 3),
]


def masks(shape: tuple[int, ...], kind: str, k: int) -> Array | None:
    batch, heads, _, m, n, _, _ = shape
    if kind == "none":
        return None
    at = [(batch, heads, m, n), (batch, 1, 1, n), (m, n), (1, heads, m, 1)][k % 4]
    if kind == "bool":
        return np.random.default_rng(k).random(at) < 0.7
    return noise(*at)


@pytest.mark.parametrize("layout", ["bhsd", "bshd", "bhds"])
def test_attention(attentions: Any, layout: str) -> None:
    lib, kernels = attentions
    for (_, mask, causal, _), kernel in kernels.items():
        for k, shape in enumerate(ATTENTION):
            for shift in (shape[4] - shape[3], 0) if causal else (0,):
                run_attention(lib, kernel, shape, masks(shape, mask, k), shift, layout)


def test_attention_does_not_depend_on_threads(attentions: Any) -> None:
    lib, kernels = attentions
    kernel = kernels["avx512", "none", True, "zero"]
    for shape in ((2, 4, 2, 150, 300, 64, 64), (1, 8, 4, 1, 2000, 64, 64)):
        run = []
        for chunk in (0, 1, 3):
            rng = np.random.default_rng(3)
            q, k, v = (rng.standard_normal(s).astype(np.float32) for s in _operands(shape))
            o = np.empty_like(q)
            pool = Pool(chunk) if chunk else None
            strides = [x.strides[i] // 4 for x in (q, k, v, o) for i in range(4 if x is k else 3)]
            invoke(lib, kernel, q, k, v, o, *shape, *strides, shape[4] - shape[3], pool=pool)
            assert pool is None or pool.calls == 1
            run.append(o)
        assert np.array_equal(run[0], run[1]) and np.array_equal(run[0], run[2])


def _operands(shape: tuple[int, ...]) -> list[tuple[int, ...]]:
    batch, heads, group, m, n, d, dv = shape
    return [(batch, heads, m, d), (batch, heads // group, n, d), (batch, heads // group, n, dv)]


def test_attention_rows_that_see_nothing(attentions: Any) -> None:
    lib, kernels = attentions
    for m in (2, 40):
        shape = (1, 1, 1, m, 300, 64, 64)
        late = np.arange(300) >= 290  # only the second block of keys is seen, by every other row
        mask = late & (np.arange(m)[:, None] % 2 == 0)
        o = run_attention(lib, kernels["plain", "bool", False, "nan"], shape, mask)
        assert np.isnan(o[0, 0, 1::2]).all() and np.isfinite(o[0, 0, ::2]).all()
        low = np.where(mask, 0.0, -np.inf).astype(np.float32)
        run_attention(lib, kernels["avx512", "add", False, "nan"], shape, low)
        o = run_attention(lib, kernels["avx512", "none", True, "zero"], shape, shift=-1)
        assert (o[0, 0, 0] == 0).all()
        run_attention(lib, kernels["avx512", "none", True, "zero"], shape, shift=-m - 5)
        run_attention(lib, kernels["avx512", "add", False, "nan"], (1, 2, 1, m, 0, 5, 9), np.zeros((1, 1), np.float32))


def test_attention_extreme_scores(attentions: Any) -> None:
    """Large scores do not overflow; a NaN stays in its row."""
    lib, kernels = attentions
    kernel = kernels["avx512", "add", False, "nan"]
    mask = (noise(20, 300) * 1000).astype(np.float32)
    run_attention(lib, kernel, (1, 1, 1, 20, 300, 8, 8), mask)
    mask[7, 3] = np.nan
    o = run_attention(lib, kernel, (1, 1, 1, 20, 300, 8, 8), mask)
    assert np.isnan(o[0, 0, 7]).all() and np.isfinite(np.delete(o, 7, 2)).all()
    mask[:] = np.finfo(np.float32).min
    run_attention(lib, kernel, (1, 1, 1, 20, 300, 8, 8), mask)


def test_attention_too_wide() -> None:
    assert attention(ISAS["avx2"], M, 513, 1.0) is None
    assert attention(ISAS["avx2"], M, M, 1.0) is None


@pytest.mark.parametrize("width", [128, 512])
def test_attention_wide_heads(tmp_path: Path, width: int) -> None:
    kernels = [attention(ISAS[isa], 50, width, 0.05) for isa in ("avx512", "avx2")]
    lib = build(tmp_path, kernels)
    for kernel in kernels:
        assert kernel is not None
        run_attention(lib, kernel, (1, 1, 1, 50, 100, width, width - 1))


@pytest.mark.parametrize("lanes", [16, 8, 4])
def test_exponentials_of_a_softmax(tmp_path: Path, lanes: int) -> None:
    v = vector_name(lanes, f32)
    text = f"void f(const float *x, float *y, int64_t n) {{\n    for (int64_t i = 0; i < n; i += {lanes}) "
    text += f"{v}_store(y + i, {v}_exp_below({v}_load(x + i)));\n}}\n"
    lib = build(tmp_path, [], standalone([HEAD, vector_type(lanes, f32), exp_below(lanes, f32), text]))
    special = [0, -0.0, -1e-45, -88, -88.1, -1e9, -np.inf, np.nan] * 2
    x = np.concatenate([-np.logspace(-9, np.log10(87), 2**16), special]).astype(np.float32)
    y = np.empty_like(x)
    foreign.call(lib, "f", x, y, len(x))
    assert np.array_equal(np.isnan(x), np.isnan(y)) and (y[x == 0] == 1).all() and (y[x <= -88] == 0).all()
    x, y = x[x > -87.3].astype(np.float64), y[x > -87.3]
    fused = isa_under_test().name not in ("plain", "sse")
    bound = (3 - 0.25 * x if fused else 3.25) * 2.0**-24
    assert (np.abs(y / np.exp(x) - 1) <= bound).all()


@pytest.mark.full
@pytest.mark.parametrize("compiler", compilers()[1:])
def test_other_compilers(tmp_path: Path, compiler: list[str]) -> None:
    kernel = attention(ISAS["avx512"], M, 64, 0.125, "add", True)
    assert kernel is not None
    lib = build(tmp_path, [kernel], compiler=compiler)
    shape = (1, 2, 1, 33, 300, 64, 64)
    run_attention(lib, kernel, shape, masks(shape, "add", 0), 267)
