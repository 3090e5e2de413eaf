"""Attention, pooling and transposing kernels against NumPy in float64, at the edges of their tiles."""

from __future__ import annotations

import ctypes
import itertools
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from irc.ir.dim import Dim
from irc.ir.types import f32, f64
from irc.kernels import ISAS
from irc.kernels.attention.vector import AttentionKernel
from irc.kernels.core.isa import HEAD, vector_name, vector_type
from irc.kernels.core.text import standalone
from irc.kernels.movement.problem import TransposeProblem
from irc.kernels.vector.lanes import exp_below
from tests.kernels.test_kernels import Pool, build, close, compilers, guarded, invoke, noise
from tests.support import foreign
from tests.support.instruction_sets import isa_under_test
from tests.support.kernels import attention, pool_nchw, pools_nchw, reordering, transpose

pytestmark = pytest.mark.skipif(not compilers(), reason="no C compiler")
M = Dim.symbol("m")
Array = np.ndarray[Any, Any]


# ---------------------------------------------------------------------------- attention
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


# ---------------------------------------------------------------------------- pools
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
]


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


@pytest.mark.parametrize("isa", ["avx512", "avx2", "plain"])
def test_pool(tmp_path: Path, isa: str) -> None:
    found = []
    for case in POOLS:
        for mode, counted in (("max", "inside"), ("average", "inside"), ("average", "padded"), ("average", "window")):
            kernels = pools_nchw(ISAS[isa], mode, *case[6:9], counted, case[4:6], case[2:4])  # type: ignore[arg-type]
            found += [(kernel, mode, counted, case) for kernel in kernels]
    assert {k.label for k, *_ in found} == {"planes", "registers", "flat"}
    lib = build(tmp_path, list({k.symbol: k for k, *_ in found}.values()))
    for (kernel, mode, counted, case), pool in itertools.product(found, (None, Pool(1))):
        n, c, ih, iw, oh, ow, *_, pads = case
        x, y = guarded(n, c, ih, iw), np.full((n, c + 1, oh, ow), 77, np.float32)
        planes = (c * ih * iw, ih * iw, (c + 1) * oh * ow, oh * ow)
        invoke(lib, kernel, x, y, n, c, ih, iw, oh, ow, *pads, *planes, pool=pool)
        exact = exact_pool(mode, counted, x.astype(np.float64), case)
        close(y[:, :c], exact, case[6][0] * case[6][1])
        assert (y[:, c:] == 77).all()


@pytest.mark.parametrize("isa", ["avx512", "avx2"])
def test_rows_of_small_planes_stay_in_registers(isa: str) -> None:
    def chosen(window: int, stride: int, size: int) -> str:
        return pools_nchw(ISAS[isa], "max", (window,) * 2, (stride,) * 2, (1, 1), "inside", (size,) * 2)[0].label

    assert [chosen(3, 1, 10), chosen(3, 2, 14), chosen(5, 2, 7), chosen(2, 2, 14)] == ["registers"] * 4
    assert [chosen(5, 1, 150), chosen(20, 1, 30)] == ["planes"] * 2  # a load is cheaper than a permutation
    assert chosen(3, 2, 56) == ("registers" if isa == "avx512" else "planes")


@pytest.mark.parametrize("isa", ["avx512", "avx2"])
def test_small_planes_of_as_many_columns_are_flat(isa: str) -> None:
    def chosen(window: int, size: int) -> str:
        shape = (window,) * 2, (1, 1), (1, 1)
        return pools_nchw(ISAS[isa], "max", *shape, "inside", (size,) * 2, (size,) * 2)[0].label

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


def test_pool_propagates_nan(tmp_path: Path) -> None:
    kernel = pool_nchw(ISAS["avx512"], "max", (2, 2), (2, 2))
    lib = build(tmp_path, [kernel])
    x, y = noise(1, 1, 8, 8), np.zeros((1, 1, 4, 4), np.float32)
    x[0, 0, 3, 5] = np.nan
    invoke(lib, kernel, x, y, 1, 1, 8, 8, 4, 4, 0, 0, 0, 0, 0, 0, 0, 0)
    assert np.argwhere(np.isnan(y[0, 0])).tolist() == [[1, 2]]


# ---------------------------------------------------------------------------- transposes
TRANSPOSES = [
    ((5, 7), (1, 0)),
    ((16, 16), (1, 0)),
    ((33, 130), (1, 0)),
    ((130, 3), (1, 0)),
    ((3, 200), (1, 0)),
    ((4, 75), (1, 0)),
    ((4, 2100), (1, 0)),
    ((2, 3, 2100), (0, 2, 1)),
    ((2100, 4), (1, 0)),
    ((2, 19, 3, 21), (0, 2, 1, 3)),
    ((2, 19, 3, 21), (0, 2, 3, 1)),
    ((1, 6, 17, 18), (0, 2, 3, 1)),
    ((2, 3, 4, 5, 6), (0, 3, 1, 4, 2)),
    ((2, 3, 4, 5, 6), (4, 3, 2, 1, 0)),
    ((3, 2, 2, 20, 18), (0, 3, 1, 4, 2)),
    ((4, 5, 6), (0, 1, 2)),
    ((4, 0, 6), (2, 1, 0)),
    ((1, 1), (1, 0)),
    ((), ()),
    ((2, 40, 100), (2, 0, 1)),
    ((2, 1, 40, 1, 33), (4, 1, 0, 3, 2)),
]
LARGE_TRANSPOSES = [
    ((300, 330), (1, 0)),
    ((1027, 70), (1, 0)),
    ((2, 1601, 3), (0, 2, 1)),
    ((1030, 2, 3, 9), (3, 2, 0, 1)),
]
"""Several tasks, also along the rows, whose number is no multiple of a vector's."""


@pytest.mark.parametrize(("isa", "dtype"), [("avx512", f32), ("avx512", f64), ("avx2", f32), ("plain", f32)])
def test_transpose(tmp_path: Path, isa: str, dtype: Any) -> None:
    kernel = transpose(ISAS[isa], dtype)
    lib = build(tmp_path, [kernel])
    for (shape, order), pool in itertools.product([*TRANSPOSES, *LARGE_TRANSPOSES], (None, Pool(1))):
        x = guarded(*shape) if dtype == f32 else noise(*shape, dtype=f64)
        wanted = np.transpose(x, order)
        whole = np.full(wanted.size + 64, 77, dtype.numpy)
        sizes = kernel.arguments_for(reordering(dtype, shape, order))
        invoke(lib, kernel, x, whole[32:], *(sizes[n] for n in kernel.sizes), pool=pool)
        assert np.array_equal(whole[32:-32].reshape(wanted.shape), wanted)
        assert (whole[:32] == 77).all() and (whole[-32:] == 77).all()


def test_transpose_of_symbolic_shapes() -> None:
    problem = reordering(f32, (M, 12, 64), (1, 0, 2))
    assert (str(problem.rows[0]), str(problem.cols[0]), str(problem.rows[2])) == ("m", "64", "64")
    assert TransposeProblem.reordering(f32, (2,) * 6, (5, 4, 3, 2, 1, 0)) is None


@pytest.mark.full
@pytest.mark.parametrize("compiler", compilers()[1:])
def test_other_compilers(tmp_path: Path, compiler: list[str]) -> None:
    isa = ISAS["avx512"]
    attending = attention(isa, M, 64, 0.125, "add", True)
    pools = [pool_nchw(isa, "average", *POOLS[0][6:9])]
    reorder = transpose(isa, f32)
    assert attending is not None
    lib = build(tmp_path, [attending, *pools, reorder], compiler=compiler)
    shape = (1, 2, 1, 33, 300, 64, 64)
    run_attention(lib, attending, shape, masks(shape, "add", 0), 267)
    x, y = noise(70, 50), np.zeros((50, 70), np.float32)
    sizes = reorder.arguments_for(reordering(f32, (70, 50), (1, 0)))
    invoke(lib, reorder, x, y, *(sizes[n] for n in reorder.sizes))
    assert np.array_equal(x.T, y)
