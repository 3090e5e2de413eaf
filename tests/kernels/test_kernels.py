"""Generated kernels against NumPy in float64, at every edge of their tiles."""

from __future__ import annotations

import ctypes
import itertools
import os
import subprocess
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from irc.expr import Const, call, select
from irc.ir.dim import Dim
from irc.ir.types import DType, f32, f64
from irc.kernels import ISAS, PROTOTYPES, Epilogue, acc, plain, slot
from irc.kernels.core.isa import HEAD, Isa, vector_name, vector_type
from irc.kernels.core.text import Part, standalone
from irc.kernels.gemm.packed import GemmKernel
from irc.kernels.vector.vecmath import FUNCTIONS, definitions
from irc.toolchain.c_compiler import describe_compiler, optimisation
from tests.support import foreign
from tests.support.instruction_sets import installed, native_flags
from tests.support.kernels import conv_nchw, depthwise_nchw, packed_gemm
from tests.support.random_numbers import RANDOM

FLAGS = ["-std=c11", "-ffp-contract=fast", "-fno-math-errno", "-fno-trapping-math", "-Wall", "-Wextra", "-Werror"]
M = Dim.symbol("m")


def compilers() -> list[list[str]]:
    """The C compilers on this machine, the one that $CC names first."""
    found = [[c] for c in installed()]
    return ([os.environ["CC"].split()] if os.environ.get("CC") else []) + found


def with_flags(compiler: list[str]) -> list[str]:
    """The compiler, told to build kernels as artefacts have them, with every warning an error."""
    return [*compiler, *optimisation(describe_compiler(tuple(compiler)), kernels=True), *FLAGS]


pytestmark = pytest.mark.skipif(not compilers(), reason="no C compiler")


def build(folder: Path, kernels: list[Any], extra: str = "", compiler: list[str] | None = None) -> ctypes.CDLL:
    text = "\n".join([PROTOTYPES, *(k.source() for k in kernels), extra])
    (folder / "kernels.c").write_text(text)
    flags = [*native_flags(text, kernels), "-shared", "-fPIC"]
    command = [*with_flags(compiler or compilers()[0]), *flags, "kernels.c", "-lm"]
    done = subprocess.run([*command, "-o", "k.so"], cwd=folder, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[:4000]
    return foreign.open_library(folder / "k.so")


PARALLEL_FOR = ctypes.CFUNCTYPE(
    None,
    ctypes.c_void_p,
    ctypes.c_int64,
    ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64),
    ctypes.c_void_p,
)


class Pool(ctypes.Structure):
    """A pool that runs pieces of `chunk` iterations, last first, in this thread; `pieces`: iterations of each call."""

    _fields_ = [("self", ctypes.c_void_p), ("parallel_for", PARALLEL_FOR)]

    def __init__(self, chunk: int) -> None:
        self.calls, self.chunk, self.pieces = 0, chunk, list[int]()

        def run(_self: Any, n: int, fn: Any, arg: Any) -> None:
            self.calls += 1
            self.pieces.append(n)
            for begin in reversed(range(0, n, chunk)):
                fn(arg, begin, min(begin + chunk, n))

        super().__init__(None, PARALLEL_FOR(run))


def invoke(lib: Any, kernel: Any, *args: Any, pool: Pool | None = None) -> None:
    foreign.call_kernel(lib, kernel, pool, *args)


def noise(*shape: int, dtype: DType = f32) -> np.ndarray[Any, Any]:
    return RANDOM.standard_normal(shape).astype(dtype.numpy)


def close(found: np.ndarray[Any, Any], wanted: np.ndarray[Any, Any], k: int, dtype: DType = f32) -> None:
    """Within the error of a sum of k rounded products of standard normal numbers, in any order."""
    scale = np.finfo(dtype.numpy).eps * 4 * (k + 4)
    np.testing.assert_allclose(found, wanted, rtol=scale, atol=scale)


# ---------------------------------------------------------------------------- matrix products
def joined(x: Any, b: Any, c: Any, s: Any, r: Any) -> Any:
    return np.maximum(x + b, 0) * c[:, None] * s + r


def run_gemm(
    lib: ctypes.CDLL,
    g: GemmKernel,
    a: np.ndarray[Any, Any],
    b: np.ndarray[Any, Any],
    slots: list[np.ndarray[Any, Any]],
    wanted: Callable[..., np.ndarray[Any, Any]],
    pool: Pool | None = None,
    transposed: bool = False,
) -> np.ndarray[Any, Any]:
    """epilogue(a b), checked; rows of C stand 3 elements apart, and what is between them is not touched."""
    (m, k), n, dtype = a.shape, b.shape[1], g.tile.dtype
    given_a = np.ascontiguousarray(a.T) if transposed else a
    a_strides = (1, m) if transposed else (k, 1)
    c = np.full((m, n + 3), 77, dtype.numpy)
    strides: list[int] = []
    for x, axes in zip(slots, g.epilogue.slots, strict=True):
        strides += [0, 0, *([x.shape[-1] if axes == "full" else 1] if axes in ("column", "full") else [])]
    if g.b_constant:
        args: list[Any] = [given_a, g.pack_b(b), *slots, c]
        b_strides: tuple[int, ...] = ()
    else:
        given_b = np.ascontiguousarray(b.T) if transposed else np.ascontiguousarray(b)
        scratch = np.full(int(g.scratch_bytes(n, k)) // dtype.itemsize, np.nan, dtype.numpy)
        args = [given_a, given_b, *slots, c, scratch]
        b_strides = (1, k) if transposed else (n, 1)
    invoke(lib, g, *args, m, n, k, 0, 0, *a_strides, 0, 0, *b_strides, 0, 0, n + 3, 1, 1, *strides, pool=pool)
    exact = wanted(a.astype(np.float64) @ b.astype(np.float64), *(s.astype(np.float64) for s in slots))
    close(c[:, :n], exact, k, dtype)
    assert (c[:, n:] == 77).all()
    return c


def residual() -> Epilogue:
    """relu(acc + bias) * scale + residual, every kind of slot."""
    x = (acc() + slot(0)).max(Const(0.0, f32)) * slot(1) * slot(2) + slot(3)
    return Epilogue(x, ("row", "column", "scalar", "full"))


@pytest.fixture(scope="module")
def gemms(tmp_path_factory: pytest.TempPathFactory) -> dict[tuple[Any, ...], tuple[ctypes.CDLL, GemmKernel]]:
    """Kernels by (instruction set, B constant, with the residual epilogue, dtype)."""
    found: dict[tuple[Any, ...], GemmKernel] = {}
    for isa, constant, fused in itertools.product(("avx512", "avx2", "plain"), (True, False), (False, True)):
        if (isa, fused) != ("plain", True):
            found[isa, constant, fused, "f32"] = packed_gemm(
                ISAS[isa], f32, M, M, residual() if fused else plain(), constant
            )
    found["avx2", True, False, "f64"] = packed_gemm(ISAS["avx2"], f64, M, M, plain(f64), True)
    lib = build(tmp_path_factory.mktemp("gemm"), list(found.values()))
    return {key: (lib, g) for key, g in found.items()}


def edges(isa: Isa, panel: int) -> Iterator[tuple[int, int, int]]:
    """Sizes at and beside the multiples of the tile."""
    rows = isa.rows
    for m in (*range(1, rows + 2), 2 * rows - 1, 2 * rows + 1, 5 * rows):
        yield m, panel + 1, 5
    for n in (
        1,
        2,
        panel // 2 - 1,
        panel // 2,
        panel // 2 + 1,
        panel - 1,
        panel,
        panel + 1,
        2 * panel - 1,
        9 * panel + 3,
    ):
        yield rows + 1, n, 4
        yield 2, n, 3
    for k in (0, 1, 2, 3, 16, 1000, 5001):
        yield rows + 2, panel + 3, k
        yield 1, 2 * panel, k


@pytest.mark.parametrize("isa", ["avx512", "avx2", "plain"])
@pytest.mark.parametrize("constant", [True, False])
def test_gemm_edges(gemms: Any, isa: str, constant: bool) -> None:
    lib, g = gemms[isa, constant, False, "f32"]
    for m, n, k in edges(ISAS[isa], g.tile.panel):
        run_gemm(lib, g, noise(m, k), noise(k, n), [], np.asarray)


@pytest.mark.parametrize("isa", ["avx512", "avx2"])
@pytest.mark.parametrize("constant", [True, False])
def test_gemm_epilogue(gemms: Any, isa: str, constant: bool) -> None:
    lib, g = gemms[isa, constant, True, "f32"]

    def wanted(x: Any, bias: Any, column: Any, scale: Any, add: Any) -> Any:
        return np.maximum(x + bias, 0) * column[:, None] * scale + add

    for m, n, k in edges(ISAS[isa], g.tile.panel):
        slots = [noise(n), noise(m), noise(1), noise(m, n)]
        run_gemm(lib, g, noise(m, k), noise(k, n), slots, wanted)


def test_gemm_double(gemms: Any) -> None:
    lib, g = gemms["avx2", True, False, "f64"]
    for m, n, k in edges(ISAS["avx2"], g.tile.panel):
        run_gemm(lib, g, noise(m, k, dtype=f64), noise(k, n, dtype=f64), [], np.asarray)


@pytest.mark.parametrize("constant", [True, False])
def test_gemm_transposed(gemms: Any, constant: bool) -> None:
    lib, g = gemms["avx512", constant, False, "f32"]
    for m, n, k in ((1, 1, 1), (1, 37, 50), (1, 300, 16), (1, 3, 0), (2, 64, 9), (15, 33, 20), (29, 70, 9)):
        run_gemm(lib, g, noise(m, k), noise(k, n), [], np.asarray, transposed=True)


@pytest.mark.parametrize("constant", [True, False])
def test_gemm_results_do_not_depend_on_threads(gemms: Any, constant: bool) -> None:
    lib, g = gemms["avx512", constant, False, "f32"]
    a, b = noise(400, 900), noise(900, 500)
    alone = run_gemm(lib, g, a, b, [], np.asarray)
    for chunk in (1, 2, 5):
        pool = Pool(chunk)
        assert np.array_equal(alone, run_gemm(lib, g, a, b, [], np.asarray, pool=pool))
        assert pool.calls == (1 if constant else 2)


@pytest.mark.parametrize("m", [2, 17])
@pytest.mark.parametrize("constant", [True, False])
def test_gemm_batches(gemms: Any, constant: bool, m: int) -> None:
    """Two batch axes; A as [i, m, j, k] (heads behind rows), B without the outer one, C contiguous."""
    lib, g = gemms["avx512", constant, True, "f32"]
    i, j, n, k = 2, 3, 35, 12
    a, b, c = noise(i, m, j, k), noise(j, k, n), np.zeros((i, j, m, n), np.float32)
    bias, column, scale, add = noise(n), noise(i, m), noise(j), noise(i, j, m, n)
    packed = int(g.packed_b_elements(n, k))
    if constant:
        reads, extra, b_strides = [a, g.pack_b(b)], [], (0, packed)
    else:
        reads, extra, b_strides = [a, b], [np.empty(packed * i * j, np.float32)], (0, k * n, n, 1)
    invoke(
        lib,
        g,
        *reads,
        bias,
        column,
        scale,
        add,
        c,
        *extra,
        m,
        n,
        k,
        m * j * k,
        k,
        j * k,
        1,
        *b_strides,
        j * m * n,
        m * n,
        n,
        i,
        j,
        0,
        0,
        m,
        0,
        1,
        0,
        1,
        j * m * n,
        m * n,
        n,
    )
    exact = np.einsum("imjk,jkn->ijmn", a.astype(np.float64), b.astype(np.float64)) + bias
    exact = np.maximum(exact, 0) * column[:, None, :, None] * scale[None, :, None, None] + add
    close(c, exact, k)


def test_gemm_known_rows_emit_two_tiles() -> None:
    assert packed_gemm(ISAS["avx512"], f32, 128, 64, plain(), True).heights == (12, 13)
    assert packed_gemm(ISAS["avx512"], f32, 1, 1, plain(), True).heights == (1,)
    assert packed_gemm(ISAS["avx512"], f32, M, M, plain(), True).heights == tuple(range(1, 15))
    assert (
        packed_gemm(ISAS["avx512"], f32, 128, 64, plain(), True).symbol
        == packed_gemm(ISAS["avx512"], f32, 256 - 128, 96, plain(), True).symbol
    )
    assert (
        packed_gemm(ISAS["avx512"], f32, 128, 64, plain(), True).symbol
        != packed_gemm(ISAS["avx512"], f32, 128, 64, residual(), True).symbol
    )


# ---------------------------------------------------------------------------- vector functions
def exact_values(name: str) -> Callable[[Any], Any]:
    scipy_special = pytest.importorskip("scipy.special")
    found: dict[str, Callable[[Any], Any]] = {
        "exp": np.exp,
        "exp_added": np.exp,
        "log": np.log,
        "tanh": np.tanh,
        "erf": scipy_special.erf,
        "sqrt": np.sqrt,
        "sigmoid": lambda x: 1 / (1 + np.exp(-x)),
        "gelu": lambda x: x * 0.5 * scipy_special.erfc(x * -(0.5**0.5)),
        "atan": np.arctan,
    }
    return found.get(name) or getattr(np, name)


ULP = {"exp": 1.5, "exp_added": 1.5, "log": 1.5, "tanh": 2.7, "erf": 2.0, "sqrt": 0.51, "sigmoid": 3.0, "atan": 2.5}


@pytest.fixture(scope="module")
def functions(tmp_path_factory: pytest.TempPathFactory) -> ctypes.CDLL:
    parts: list[Part] = [HEAD]
    for dtype, lanes in ((f32, 16), (f32, 4), (f64, 4)):
        v, t = vector_name(lanes, dtype), "float" if dtype == f32 else "double"
        parts += [vector_type(lanes, dtype), definitions(sorted(FUNCTIONS), lanes, dtype)]
        for name in sorted(FUNCTIONS):
            parts.append(
                f"void {name}_{v}(const {t} *x, {t} *y, int64_t n) {{\n    for (int64_t i = 0; i < n; i += {lanes}) "
                f"{v}_store(y + i, {v}_{name}({v}_load(x + i)));\n}}\n"
            )
    return build(tmp_path_factory.mktemp("math"), [], standalone(parts))


@np.errstate(invalid="ignore")
def samples(dtype: DType) -> np.ndarray[Any, Any]:
    """Every sign and exponent, dense near where functions bend, and the special values."""
    bits = RANDOM.integers(0, 1 << 32, 400_000, dtype=np.uint32).view(np.float32).astype(dtype.numpy)
    special = np.array(
        [0.0, -0.0, np.inf, -np.inf, np.nan, 1e-45, -1e-45, 1e-39, 88.7228, 88.73, -87.34, -103.98, -104.5]
    )
    dense = [np.linspace(lo, hi, 200_000) for lo, hi in ((-4.5, 4.5), (-110, 95), (0.5, 2), (-9e3, 9e3))]
    x = np.concatenate([special, bits, *dense]).astype(dtype.numpy)
    return np.concatenate([x, np.zeros(-len(x) % 16, dtype.numpy)])


@pytest.mark.parametrize("name", sorted(FUNCTIONS))
@pytest.mark.parametrize(("dtype", "lanes"), [(f32, 16), (f32, 4), (f64, 4)])
def test_function(functions: ctypes.CDLL, name: str, dtype: DType, lanes: int) -> None:
    x = samples(dtype)
    y = np.empty_like(x)
    foreign.call(functions, f"{name}_{vector_name(lanes, dtype)}", x, y, len(x))
    with np.errstate(all="ignore"):
        exact = exact_values(name)(x.astype(np.float64))
        rounded = exact.astype(dtype.numpy)
        assert np.array_equal(np.isnan(y), np.isnan(exact))
        unequal = ~np.isnan(exact) & (y != rounded)
        step = np.spacing(np.abs(rounded)).astype(np.float64)
        error = np.abs(y.astype(np.float64) - exact) / step
        bound = np.full(x.shape, ULP.get(name, 2.0) if dtype == f32 else 4.0)
        if name == "sigmoid" and dtype == f32:
            bound = np.where(x < -87, 1.2e-38 / step, bound)
        if name == "exp_added" and dtype == f32:
            bound = np.where(x < -86, 2.4e-38 / step, bound)
        if name == "gelu":
            bound = np.abs(x) * (2.5 * 2.0**-24 if dtype == f32 else 2.0**-52) / step + 1
        worst = np.where(unequal, error - bound, -1.0)
        at = int(np.nanargmax(worst))
    assert not (worst > 0).any(), f"{name}({x[at]!r}) = {y[at]!r}, exact {exact[at]!r}: {error[at]:.2f} ULP"


# ---------------------------------------------------------------------------- epilogues
def epilogues() -> dict[str, tuple[Any, Callable[[Any], Any]]]:
    x = acc()
    one = Const(1.0, f32)
    return {
        "clip": (x.max(-0.5).min(0.5), lambda a: np.clip(a, -0.5, 0.5)),
        "sigmoid": (one / (one + call("exp", -x)), lambda a: 1 / (1 + np.exp(-a))),
        "silu": (x * call("sigmoid", x), lambda a: a / (1 + np.exp(-a))),
        "silu, divided": (x / (call("exp", -x) + one), lambda a: a / (1 + np.exp(-a))),
        "gelu": (
            x * 0.5 * (call("erf", x * 0.70710678) + 1.0),
            lambda a: a * 0.5 * (1 + exact_values("erf")(a / 2**0.5)),
        ),
        "gelu, divided, then added to": (
            (call("erf", (x + 1.0) / 1.4142135) + 1.0) * (x + 1.0) * 0.5 + x,
            lambda a: (a + 1) * 0.5 * (1 + exact_values("erf")((a + 1) / 2**0.5)) + a,
        ),
        "multiple of gelu": (
            (x * 0.7) * (call("erf", x * 0.70710678) + 1.0),
            lambda a: a * 0.7 * (1 + exact_values("erf")(a / 2**0.5)),
        ),
        "tanh": (call("tanh", x), np.tanh),
        "leaky": (select(x.lt(0.0), x * 0.1, x), lambda a: np.maximum(a, a * 0.1)),
        "hardswish, divided": (x * (x + 3.0).max(0.0).min(6.0) / 6.0, lambda a: a * np.clip(a + 3, 0, 6) / 6),
        "hardswish": (x * (x / 6.0 + 0.5).max(0.0).min(1.0), lambda a: a * np.clip(a / 6 + 0.5, 0, 1)),
        "abs": (call("sqrt", (-x).max(x)) + 1.0, lambda a: np.sqrt(np.abs(a)) + 1),
    }


@cache
def epilogue_kernels() -> dict[str, GemmKernel]:
    return {name: packed_gemm(ISAS["avx2"], f32, 7, 21, Epilogue(e), True) for name, (e, _) in epilogues().items()}


def test_epilogue_functions(tmp_path: Path) -> None:
    kernels = epilogue_kernels()
    lib = build(tmp_path, list(kernels.values()))
    for name, (_, wanted) in epilogues().items():
        run_gemm(lib, kernels[name], noise(7, 6), noise(6, 21), [], wanted)


def test_epilogue_propagates_nan(tmp_path: Path) -> None:
    g = epilogue_kernels()["clip"]
    lib = build(tmp_path, [g])
    a = noise(7, 3)
    a[2, 1], a[3, 0] = np.nan, np.inf
    c = np.zeros((7, 16), np.float32)
    invoke(lib, g, a, g.pack_b(np.abs(noise(3, 16))), c, 7, 16, 3, 0, 0, 3, 1, 0, 0, 0, 0, 16, 1, 1)
    assert np.isnan(c[2]).all() and (c[3] == 0.5).all() and np.isfinite(np.delete(c, 2, 0)).all()


@pytest.mark.full
@pytest.mark.parametrize("compiler", compilers()[1:])
def test_other_compilers(tmp_path: Path, compiler: list[str]) -> None:
    g = packed_gemm(ISAS["avx512"], f32, M, M, residual(), False)
    lib = build(tmp_path, [g], compiler=compiler)
    run_gemm(lib, g, noise(31, 50), noise(50, 67), [noise(67), noise(31), noise(1), noise(31, 67)], joined)


# ---------------------------------------------------------------------------- convolutions
# batch, groups, ic, oc, ih, iw, kh, kw, stride_h, stride_w, dilation_h, dilation_w, pads (top, left, bottom, right)
CONVS = [
    (1, 1, 3, 64, 20, 20, 7, 7, 2, 2, 1, 1, (3, 3, 3, 3)),
    (2, 1, 5, 14, 9, 33, 3, 3, 1, 1, 1, 1, (1, 1, 1, 1)),
    (1, 1, 64, 29, 7, 7, 3, 3, 1, 1, 1, 1, (1, 1, 1, 1)),
    (1, 1, 9, 15, 14, 14, 3, 3, 1, 1, 2, 3, (2, 3, 2, 3)),
    (1, 2, 3, 8, 12, 19, 3, 2, 1, 2, 1, 1, (0, 1, 2, 0)),
    (2, 4, 2, 1, 6, 6, 3, 3, 2, 1, 1, 1, (1, 0, 1, 0)),
    (1, 1, 8, 16, 12, 12, 1, 1, 1, 1, 1, 1, (0, 0, 0, 0)),
    (2, 1, 40, 17, 15, 15, 1, 1, 2, 2, 1, 1, (0, 0, 0, 0)),
    (1, 1, 6, 7, 10, 40, 5, 4, 3, 3, 1, 1, (4, 5, 4, 5)),
    (1, 1, 4, 3, 1, 1, 3, 3, 1, 1, 1, 1, (1, 1, 1, 1)),
    (1, 1, 1, 1, 1, 130, 1, 9, 1, 1, 1, 1, (0, 4, 0, 4)),
    (1, 1, 120, 30, 6, 11, 3, 3, 1, 2, 1, 1, (1, 1, 1, 1)),
    (1, 1, 2, 5, 4, 3, 2, 6, 1, 1, 1, 2, (0, 9, 0, 9)),
    (1, 1, 130, 9, 1, 64, 1, 15, 1, 1, 1, 16, (0, 112, 0, 112)),
    (2, 1, 7, 20, 9, 50, 5, 3, 2, 1, 4, 6, (8, 6, 8, 6)),
    (1, 2, 3, 5, 1, 90, 1, 7, 1, 2, 1, 13, (0, 70, 0, 8)),
    (1, 1, 3, 4, 2, 2, 2, 2, 1, 1, 1, 1, (9, 9, 9, 9)),
    (2, 2, 20, 14, 7, 7, 3, 3, 1, 1, 1, 1, (1, 1, 1, 1)),  # rows of X as wide as those of the result, from here on
    (1, 2, 9, 10, 10, 10, 7, 1, 1, 1, 2, 1, (6, 0, 6, 0)),
    (1, 1, 12, 8, 6, 5, 3, 5, 1, 1, 2, 1, (0, 2, 1, 2)),
    (1, 1, 3, 8, 3, 17, 1, 5, 1, 1, 1, 8, (0, 16, 0, 16)),
]


def exact_conv(x: Any, w: Any, groups: int, strides: tuple[int, int], dilations: tuple[int, int], pads: Any) -> Any:
    n, _, ih, iw = x.shape
    oc, ic, kh, kw = w.shape
    (sh, sw), (dh, dw), (top, left, bottom, right) = strides, dilations, pads
    full = np.pad(x.astype(np.float64), ((0, 0), (0, 0), (top, bottom), (left, right)))
    oh, ow = (ih + top + bottom - dh * (kh - 1) - 1) // sh + 1, (iw + left + right - dw * (kw - 1) - 1) // sw + 1
    y = np.zeros((n, oc, oh, ow))
    per = oc // groups
    for g, i, j in itertools.product(range(groups), range(kh), range(kw)):
        part = full[
            :, g * ic : (g + 1) * ic, i * dh : i * dh + (oh - 1) * sh + 1 : sh, j * dw : j * dw + (ow - 1) * sw + 1 : sw
        ]
        y[:, g * per : (g + 1) * per] += np.einsum(
            "ncyx,oc->noyx", part, w[g * per : (g + 1) * per, :, i, j].astype(np.float64)
        )
    return y


def guarded(*shape: int) -> np.ndarray[Any, Any]:
    """Noise with NaN on both sides, so that values read outside show."""
    count = int(np.prod(shape))
    whole = np.full(count + 128, np.nan, np.float32)
    whole[64:-64] = noise(count)
    return whole[64:-64].reshape(shape)


def run_conv(lib: ctypes.CDLL, kernel: Any, case: Any, fused: bool, pool: Pool | None = None) -> np.ndarray[Any, Any]:
    n, groups, ic, oc, ih, iw, kh, kw, sh, sw, dh, dw, pads = case
    x, w = guarded(n, groups * ic, ih, iw), noise(groups * oc, ic, kh, kw)
    exact = exact_conv(x, w, groups, (sh, sw), (dh, dw), pads)
    oh, ow = exact.shape[2:]
    y = np.full((n, groups * oc, oh, ow), np.nan, np.float32)
    channels = groups * oc
    slots, strides = [], []
    if fused:
        slots = [noise(channels), noise(n, channels, oh, ow)]
        strides = [0, 1, channels * oh * ow, oh * ow]
        exact = np.maximum(exact + slots[0][:, None, None] + slots[1], 0)
    invoke(
        lib,
        kernel,
        x,
        kernel.pack_weights(w, groups),
        *slots,
        y,
        n,
        groups,
        ic,
        oc,
        1,
        ih,
        iw,
        1,
        oh,
        ow,
        1,
        kh,
        kw,
        1,
        sh,
        sw,
        1,
        dh,
        dw,
        0,
        pads[0],
        pads[1],
        groups * ic * ih * iw,
        ih * iw,
        channels * oh * ow,
        oh * ow,
        *strides,
        pool=pool,
    )
    close(y, exact, ic * kh * kw)
    return y


def conv_kernels(isa: str, fused: bool) -> list[Any]:
    x = (acc() + slot(0) + slot(1)).max(Const(0.0, f32))
    epilogue = Epilogue(x, ("column", "full")) if fused else plain()
    return [
        conv_nchw(ISAS[isa], case[2] << 4 * (k % 3), case[3], (M, M), case[6:8], (case[8], case[9]), epilogue)
        for k, case in enumerate(CONVS)
    ]


@pytest.mark.parametrize(("isa", "fused"), [("avx512", True), ("avx2", False), ("plain", True)])
def test_conv(tmp_path: Path, isa: str, fused: bool) -> None:
    kernels = conv_kernels(isa, fused)
    lib = build(tmp_path, list({k.symbol: k for k in kernels}.values()))
    for kernel, case in zip(kernels, CONVS, strict=True):
        run_conv(lib, kernel, case, fused)
        run_conv(lib, kernel, case, fused, Pool(1))


DEPTHWISE = [  # batch, channels, ih, iw, window, strides, dilations, pads
    (1, 5, 14, 14, (3, 3), (1, 1), (1, 1), (1, 1, 1, 1)),
    (2, 3, 7, 7, (3, 3), (1, 1), (1, 1), (1, 1, 1, 1)),
    (1, 3, 15, 28, (3, 3), (2, 2), (1, 1), (1, 0, 1, 1)),
    (1, 2, 112, 113, (5, 5), (2, 2), (1, 1), (2, 2, 2, 2)),
    (1, 2, 40, 600, (3, 3), (1, 1), (1, 1), (1, 1, 1, 1)),
    (1, 2, 20, 300, (3, 3), (1, 2), (12, 3), (12, 3, 12, 3)),
    (1, 1, 9, 9, (2, 7), (3, 4), (1, 1), (1, 6, 0, 0)),
    (1, 4, 1, 1, (3, 3), (1, 1), (1, 1), (1, 1, 1, 1)),
    (1, 2, 30, 30, (7, 7), (1, 1), (1, 1), (3, 3, 3, 3)),
    (1, 1, 4, 3, (1, 1), (1, 1), (1, 1), (2, 20, 0, 0)),
]


def run_depthwise(lib: ctypes.CDLL, kernel: Any, case: Any, pool: Pool | None = None) -> None:
    n, channels, ih, iw, window, strides, dilations, pads = case
    x, w = guarded(n, channels, ih, iw), noise(channels, 1, *window)
    exact = exact_conv(x, w, channels, strides, dilations, pads)
    oh, ow = exact.shape[2:]
    bias, add = noise(channels), noise(n, channels, oh, ow)
    y = np.full((n, channels, oh, ow), np.nan, np.float32)
    sizes = (n, channels, 1, 1, ih, iw, oh, ow, *pads[:2])
    planes = (channels * ih * iw, ih * iw, channels * oh * ow, oh * ow)
    slots = (0, 1, channels * oh * ow, oh * ow)
    invoke(lib, kernel, x, kernel.pack_weights(w), bias, add, y, *sizes, *planes, *slots, pool=pool)
    close(y, np.maximum(exact + bias[:, None, None] + add, 0), window[0] * window[1])


@pytest.mark.parametrize("isa", ["avx512", "avx2", "plain"])
def test_depthwise(tmp_path: Path, isa: str) -> None:
    epilogue = Epilogue((acc() + slot(0) + slot(1)).max(Const(0.0, f32)), ("column", "full"))
    kernels = [depthwise_nchw(ISAS[isa], *case[4:7], epilogue) for case in DEPTHWISE]
    lib = build(tmp_path, list({k.symbol: k for k in kernels if k}.values()))
    for kernel, case in zip(kernels, DEPTHWISE, strict=True):
        run_depthwise(lib, kernel, case)
        run_depthwise(lib, kernel, case, Pool(1))
    assert depthwise_nchw(ISAS[isa], (63, 63), (1, 1), (9, 9), epilogue) is None
