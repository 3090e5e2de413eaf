"""The f64 functions of generated C against the wider numbers of x87: error bounds, special values, one result."""

from __future__ import annotations

import ctypes
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from irc.backends.c import prelude
from irc.backends.c.math_f64 import ULP_F64
from tests.kernels.test_vecmath import COMPILERS, command_of, errors

pytestmark = [
    pytest.mark.skipif(not COMPILERS, reason="no C compiler"),
    pytest.mark.skipif(np.finfo(np.longdouble).nmant < 60, reason="nothing wider than f64 to compare with"),
]
Array = np.ndarray[Any, Any]
SPECIAL = np.array(
    [
        0,
        -0.0,
        np.inf,
        -np.inf,
        np.nan,
        1,
        -1,
        5e-324,
        -5e-324,
        1e-310,
        -1e-310,
        0.5,
        -0.5,
        709.782712893384,
        709.7827128933841,
        -708.4,
        -745.13,
        -745.14,
        -1417.9,
        -1500,
        1e308,
        -1e308,
        1.7e308,
        9007199254740992,
        5.5e-17,
        0.7071067811865476,
        20,
        -40,
    ]
)


@pytest.fixture(scope="module", params=["-march=native", "-O1"])
def library(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> ctypes.CDLL:
    """Loops around every function, with the machine's vectors, and as its oldest relatives have them."""
    text = "#include <math.h>\n#include <stdint.h>\n#include <string.h>\n" + prelude.text([f"{n}_f64" for n in ULP_F64])
    for name in ULP_F64:
        text += f'__attribute__((visibility("default"))) void loop_{name}(const double *restrict x, double *restrict y,'
        text += f" int64_t n) {{\n    for (int64_t i = 0; i < n; i++) y[i] = irc_{name}_f64(x[i]);\n}}\n"
    return build(tmp_path_factory.mktemp("f64"), text, request.param)


def build(folder: Path, text: str, *flags: str) -> ctypes.CDLL:
    (folder / "f.c").write_text(text)
    command = [*command_of(COMPILERS[0]), "-shared", *flags, "f.c", "-o", "f.so", "-lm"]
    subprocess.run(command, cwd=folder, check=True, capture_output=True, timeout=300)
    return ctypes.CDLL(str(folder / "f.so"))


def samples() -> Array:
    """Bit patterns over all numbers, then ranges where functions bend, then special values."""
    bits = np.arange(0, 1 << 64, (1 << 64) // 400_009, dtype=np.uint64).view(np.float64)
    ranges = ((-5, 5), (-760, 720), (0.5, 2), (-1.1, 1.1), (-1e-3, 1e-3), (0, 1e6))
    rng = np.random.default_rng(1)
    return np.concatenate([bits, *(rng.uniform(low, high, 200_000) for low, high in ranges), SPECIAL])


def called(f: Any, x: Array) -> Array:
    y = np.empty_like(x)
    f(ctypes.c_void_p(x.ctypes.data), ctypes.c_void_p(y.ctypes.data), ctypes.c_int64(len(x)))
    return y


@pytest.mark.parametrize("name", ULP_F64)
def test_error_is_within_the_stated_bound(library: ctypes.CDLL, name: str) -> None:
    x = samples()
    with np.errstate(all="ignore"):
        y, want = called(library[f"loop_{name}"], x), getattr(np, name)(x.astype(np.longdouble))
        error = errors(y, want)
    at = int(error.argmax())
    assert error[at] <= ULP_F64[name], f"{name}({x[at]!r}) = {y[at]!r}, exact {want[at]!r}: {error[at]:.3f} ULP"
    zero = (x == 0) & (want == 0)
    assert np.array_equal(np.signbit(y[zero]), np.signbit(want[zero]))


@pytest.mark.parametrize("name", ULP_F64)
def test_an_element_alone_has_the_same_bits(library: ctypes.CDLL, name: str) -> None:
    """What stands behind the last vector is computed like what stands in one."""
    x = np.resize(samples()[::997], 1000)
    f = library[f"loop_{name}"]
    alone = np.concatenate([called(f, x[i : i + 1].copy()) for i in range(len(x))])
    np.testing.assert_array_equal(called(f, x).view(np.uint64), alone.view(np.uint64))
