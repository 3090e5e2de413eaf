"""The f32 functions of generated C against double precision: error bounds, special values, one result for all code."""

from __future__ import annotations

import ctypes
import os
import shlex
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from irc.backends.c import prelude
from irc.backends.c.math import NEAR, NEAR_EXPONENTS, OF_ANGLES, ULP
from irc.toolchain.c_compiler import COMMON, describe_compiler, optimisation, resolve_target
from tests.support.instruction_sets import compiler_for, features_under_test, installed

F = np.float32
SPECIAL = np.array(
    [
        0.0,
        -0.0,
        np.inf,
        -np.inf,
        np.nan,
        1,
        -1,
        1e-45,
        -1e-45,
        1e-39,
        -1e-39,
        0.5,
        -0.5,
        88.722839,
        88.72284,
        -87.34,
        -103.97,
        -103.98,
        -149,
        -149.5,
        -150,
        127.99999,
        128,
        3.4028235e38,
        -3.4028235e38,
        0.65,
        0.92,
        4,
        2**24,
        2**26,
        1.5707964,
        3.1415927,
        16367173.0 * 2.0**72,
    ],
    F,
)
COMPILERS = [os.environ["CC"], *installed()] if os.environ.get("CC") else installed()
pytestmark = pytest.mark.skipif(not COMPILERS, reason="no C compiler")
UNARY = sorted(set(ULP) - {"pow"})
NEARBY = {**dict.fromkeys(OF_ANGLES, NEAR), "exp": NEAR_EXPONENTS}
"""Functions that have a shorter helper, and up to where."""
OTHERS = ("pow_half", "gelu")
"""Functions without a bound in units of the last place of their own."""
EXPONENTS = (2.5, -0.3, 3.0, -7.0, 0.0, np.inf, -np.inf, np.nan, 0.01, 100.0, 1e30, 16777216.0, -33.0)


def source() -> str:
    """A loop around every function, for the compiler to vectorise."""
    text = "#include <math.h>\n#include <stdint.h>\n#include <string.h>\n"
    text += '#define SHOWN __attribute__((visibility("default")))\n'
    text += prelude.text([*(f"{name}_f32" for name in [*ULP, *(f"{name}_near" for name in NEARBY), *OTHERS])])
    loop = "(const float *restrict x, {}float *restrict y, int64_t n) {{\n    for (int64_t i = 0; i < n; i++) y[i] = "
    for name in [*UNARY, *(f"{name}_near" for name in NEARBY), *OTHERS]:
        text += f"SHOWN void loop_{name}{loop.format('')}irc_{name}_f32(x[i]);\n}}\n"
    return text + f"SHOWN void loop_power{loop.format('float e, ')}irc_pow_f32(x[i], e);\n}}\n"


def command_of(compiler: str) -> list[str]:
    """The compiler with the flags of a file that is not kernels."""
    command = tuple(shlex.split(compiler))
    return [*command, *COMMON, *optimisation(describe_compiler(command), kernels=False), "-ffp-contract=off"]


def build(folder: Path, compiler: str, *flags: str) -> ctypes.CDLL:
    (folder / "f.c").write_text(source())
    library = folder / f"{len(list(folder.iterdir()))}.so"  # a library that is loaded must not be replaced
    command = [*command_of(compiler), "-shared", *flags, "f.c", "-o", str(library), "-lm"]
    subprocess.run(command, cwd=folder, check=True, capture_output=True, timeout=300)
    return ctypes.CDLL(str(library))


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> ctypes.CDLL:
    return build(tmp_path_factory.mktemp("vecmath"), COMPILERS[0], "-march=native")


def samples(step: int = 997 * 9) -> np.ndarray[Any, Any]:
    """Bit patterns over all floats, then ranges where functions bend, then special values."""
    bits = np.arange(0, 1 << 32, step, dtype=np.uint64).astype(np.uint32).view(F)
    dense = [np.linspace(lo, hi, 100_003, dtype=F) for lo, hi in ((-5, 5), (-110, 95), (0.5, 2), (-1.1, 1.1))]
    return np.concatenate([bits, *dense, SPECIAL])


def called(f: Any, x: np.ndarray[Any, Any], *more: float) -> np.ndarray[Any, Any]:
    y = np.empty_like(x)
    scalars = [ctypes.c_float(v) for v in more]
    f(ctypes.c_void_p(x.ctypes.data), *scalars, ctypes.c_void_p(y.ctypes.data), ctypes.c_int64(len(x)))
    return y


def exact(name: str, x: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    names = {
        "asin": "arcsin",
        "acos": "arccos",
        "atan": "arctan",
        "asinh": "arcsinh",
        "acosh": "arccosh",
        "atanh": "arctanh",
    }
    if name == "erf":
        return pytest.importorskip("scipy.special").erf(x)
    if name == "one_plus_exp":
        return 1 + np.exp(x)
    if name == "sigmoid":
        return 1 / (1 + np.exp(-x))
    if name == "softplus":
        return np.logaddexp(x, 0)
    return getattr(np, names.get(name, name))(x)


def errors(y: np.ndarray[Any, Any], want: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """Distance from wider numbers in units of y's last place; infinite where one is NaN, or an infinity is wrong."""
    rounded, limits = want.astype(y.dtype), np.finfo(y.dtype)
    right = (y == rounded) | (np.isnan(y) & np.isnan(want))
    top = np.ldexp(want.dtype.type(1), limits.maxexp)
    wide = np.clip(y.astype(want.dtype), -top, top)
    step = np.spacing(np.minimum(np.abs(rounded), limits.max)).astype(want.dtype)
    found = np.abs(wide - np.clip(want, -top, top)) / step
    return np.where(right & ~np.isfinite(rounded), 0, np.where(np.isnan(found), np.inf, found))


@pytest.fixture(scope="module")
def unfused(tmp_path_factory: pytest.TempPathFactory) -> ctypes.CDLL:
    """The functions as the oldest processors of the machine's kind have them."""
    return build(tmp_path_factory.mktemp("unfused"), COMPILERS[0], "-O1")


@pytest.mark.parametrize("fused", [True, False])
@pytest.mark.parametrize("name", UNARY)
def test_error_is_within_the_stated_bound(library: ctypes.CDLL, unfused: ctypes.CDLL, name: str, fused: bool) -> None:
    x, library = samples(997 * (9 if fused else 90)), library if fused else unfused
    with np.errstate(all="ignore"):
        y, want = called(library[f"loop_{name}"], x), exact(name, x.astype(np.float64))
        error = errors(y, want)
        if name == "sigmoid":
            error = np.where(x < -87, 0, error)
    at = int(error.argmax())
    assert error[at] <= ULP[name], f"{name}({x[at]!r}) = {y[at]!r}, exact {want[at]!r}: {error[at]:.3f} ULP"
    zero = (x == 0) & (want == 0)
    assert np.array_equal(np.signbit(y[zero]), np.signbit(want[zero]))


@pytest.mark.parametrize("fused", [True, False])
@pytest.mark.parametrize("name", NEARBY)
def test_error_of_shorter_helpers(library: ctypes.CDLL, unfused: ctypes.CDLL, name: str, fused: bool) -> None:
    """Angles that are close to whole quarter turns are among the samples: all floats that round these."""
    turns = (np.arange(1, 660_000) * (np.pi / 2)).astype(F)
    x = np.concatenate([samples(997 * (9 if fused else 90)), turns, -turns, np.nextafter(turns, F(0))])
    x = x[~(np.abs(x) > NEARBY[name])]
    with np.errstate(all="ignore"):
        y, want = called((library if fused else unfused)[f"loop_{name}_near"], x), exact(name, x.astype(np.float64))
        error = errors(y, want)
    at = int(error.argmax())
    assert error[at] <= ULP[name], f"{name}({x[at]!r}) = {y[at]!r}, exact {want[at]!r}: {error[at]:.3f} ULP"
    zero = (x == 0) & (want == 0)
    assert np.array_equal(np.signbit(y[zero]), np.signbit(want[zero]))


@pytest.mark.parametrize("exponent", EXPONENTS)
def test_powers(library: ctypes.CDLL, exponent: float) -> None:
    x, e = samples(99_991), F(exponent)
    with np.errstate(all="ignore"):
        y, want = called(library.loop_power, x, exponent), np.power(x.astype(np.float64), np.float64(e))
        error = errors(y, want)
    at = int(error.argmax())
    assert error[at] <= ULP["pow"], f"pow({x[at]!r}, {e!r}) = {y[at]!r}, exact {want[at]!r}: {error[at]:.3f} ULP"
    zero = want == 0
    assert np.array_equal(np.signbit(y[zero]), np.signbit(want[zero]))


def test_square_root_as_a_power(library: ctypes.CDLL) -> None:
    x = samples(99_991)
    with np.errstate(all="ignore"):
        y, want = called(library.loop_pow_half, x), np.power(x.astype(np.float64), 0.5)
        want[np.isneginf(x)] = np.inf  # C; np.power has the NaN of a square root there
        assert errors(y, want).max() <= 0.5001


@pytest.mark.parametrize("fused", [True, False])
def test_gelu_is_as_exact_as_its_roundings_leave_it(library: ctypes.CDLL, unfused: ctypes.CDLL, fused: bool) -> None:
    x = samples(997 * (9 if fused else 90))
    with np.errstate(all="ignore"):
        y = called((library if fused else unfused).loop_gelu, x)
        wide = x.astype(np.float64)
        want = wide * 0.5 * pytest.importorskip("scipy.special").erfc(wide * -(0.5**0.5))
        assert np.array_equal(np.isnan(y), np.isnan(want))
        error = np.abs(np.where(y == want, 0, y - want)) / np.maximum(np.abs(wide), 1e-37)
    assert np.nanmax(error) <= 2.5 * 2.0**-24


def test_results_do_not_depend_on_vectors(tmp_path: Path, library: ctypes.CDLL) -> None:
    """Each compiler, with the machine's widest vectors and with none: the same bits where products are fused alike."""
    x = samples(999_983)
    fused = ["-mfma"] if "fma" in features_under_test() else []
    plain = [build(tmp_path, c, "-O1", *fused) for c in COMPILERS]
    wide = [build(tmp_path, c, "-march=native") for c in COMPILERS[1:]]
    for name in [*UNARY, *(f"{name}_near" for name in NEARBY), *OTHERS]:
        want = called(library[f"loop_{name}"], x)
        number = ~np.isnan(want)
        for other in (*plain, *wide):
            got = called(other[f"loop_{name}"], x)
            assert np.array_equal(got[number].view(np.uint32), want[number].view(np.uint32)), name
            assert np.isnan(got[~number]).all(), name


@pytest.mark.parametrize("target", ["native", "x86-64", "x86-64-v2", "x86-64-v3", "x86-64-v4", "aarch64"])
@pytest.mark.parametrize("compiler", installed())
def test_loops_vectorise(tmp_path: Path, compiler: str, target: str) -> None:
    """No loop is left to scalar code, and no call is left in one."""
    command = compiler_for(compiler, target)
    (tmp_path / "f.c").write_text(source())
    report = "-fopt-info-vec" if compiler == "gcc" else "-Rpass=loop-vectorize"
    march = resolve_target(target, describe_compiler(command)).flags
    command = [*command_of(shlex.join(command)), *march, report, "-c", "f.c", "-o", "f.o"]
    done = subprocess.run(command, cwd=tmp_path, check=True, capture_output=True, text=True, timeout=300)
    lines = {x.split(":")[1] for x in (done.stderr + done.stdout).splitlines() if "vectorized" in x}
    loops = [str(k) for k, x in enumerate(source().splitlines(), 1) if "for (int64_t i" in x]
    assert not set(loops) - lines
