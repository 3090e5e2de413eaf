"""`-m full`: the generated C of the samples, of every family of operations and of real architectures, in each compiler
with warnings as errors, and the tests of the C backend under AddressSanitizer and UndefinedBehaviorSanitizer.

Both go through `$CC`, which may hold flags: `CC="clang -Wall -Wextra -Werror"`.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
import pytest
from onnx import backend as onnx_backend

import irc
from tests import test_ops, test_samples

ROOT = Path(__file__).resolve().parent.parent
LIGHT = Path(onnx_backend.__path__[0]) / "test" / "data" / "light"
COMPILERS = [cc for cc in ("gcc", "clang") if shutil.which(cc)]
WARNINGS = "-Wall -Wextra -Werror"
SANITIZED = (
    ["tests/test_ops.py", "-k", "compiled_family and -c]"],
    ["tests/test_c_backend.py", "tests/test_lower.py", "tests/test_kernel_programs.py", "-k", "not plain_c_program"],
    ["tests/test_kernels.py", "-k", "plain and not function"],
    ["tests/test_fuzz.py", "tests/test_samples.py", "-k", "-c]"],
)
pytestmark = [pytest.mark.full, pytest.mark.skipif(not COMPILERS, reason="no C compiler")]


@pytest.fixture(params=COMPILERS)
def strict(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """A compiler that takes no warning."""
    monkeypatch.setenv("CC", f"{request.param} {WARNINGS}")
    return str(request.param)


@pytest.mark.parametrize("family", sorted(test_ops.FAMILIES))
@pytest.mark.usefixtures("strict")
def test_families(family: str) -> None:
    test_ops.test_compiled_family(family, "c")


@pytest.mark.parametrize("name", test_samples.MODELS)
@pytest.mark.usefixtures("strict")
def test_samples_of_the_project(name: str) -> None:
    test_samples.test_both_files_compute_the_same_in_both_backends(name, "xml", "c")


@pytest.mark.parametrize("name", ["squeezenet", "shufflenet"])
@pytest.mark.usefixtures("strict")
def test_real_architectures(name: str) -> None:
    """The models of the onnx package, whose weights are constants of one value; against ONNX Runtime."""
    path = LIGHT / f"light_{name}.onnx"
    session = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    (x,) = session.get_inputs()
    image = np.random.default_rng(0).random(x.shape, np.float32)
    (want,) = session.run(None, {x.name: image})
    (got,) = irc.compile(str(path), backend="c")({x.name: image})
    np.testing.assert_allclose(got, want, rtol=1e-3, atol=1e-5)


@pytest.mark.parametrize("selection", SANITIZED, ids=lambda s: Path(s[0]).stem)
def test_sanitizers(selection: list[str], tmp_path: Path) -> None:
    """The tests again, with every access and every computation of the C code checked."""
    if "gcc" not in COMPILERS:
        pytest.skip("the sanitisers' libraries are found through gcc")
    library = sanitizer_library()
    environment = {
        **os.environ,
        # Without object-size: GCC's misjudges `(a ? x : y)[i]`, and AddressSanitizer sees what it would see.
        "CC": "gcc -g -fsanitize=address,undefined -fno-sanitize=object-size -fno-sanitize-recover=all",
        "LD_PRELOAD": library,
        "ASAN_OPTIONS": f"detect_leaks=0:log_path={tmp_path}/report",  # the interpreter keeps memory until it ends
        "UBSAN_OPTIONS": f"print_stacktrace=1:log_path={tmp_path}/report",
        "PYTHONMALLOC": "malloc",
    }
    command = [sys.executable, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", "-n", "2", *selection]
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
    reports = "\n".join(p.read_text(errors="replace")[:4000] for p in sorted(tmp_path.glob("report*")))
    assert done.returncode == 0, f"{reports}\n{done.stdout[-4000:]}{done.stderr[-4000:]}"
    assert " passed" in done.stdout


def sanitizer_library() -> str:
    """The run-time library of AddressSanitizer, which the interpreter has to load first."""
    done = subprocess.run(["gcc", "-print-file-name=libasan.so"], capture_output=True, text=True, check=True)
    path = done.stdout.strip()
    if not Path(path).is_file():
        pytest.skip("no AddressSanitizer on this machine")
    return path


def test_the_sanitizers_see_a_mistake(tmp_path: Path) -> None:
    """A run that finds nothing says something only if a mistake would be found."""
    code = "int run(int n) { int a[4] = {0}; for (int i = 0; i <= n; ++i) a[i] = i; return a[n & 3]; }\n"
    tmp_path.joinpath("m.c").write_text(code)
    flags = ["-g", "-fsanitize=address,undefined", "-fno-sanitize-recover=all", "-shared", "-fPIC"]
    subprocess.run(["gcc", *flags, "m.c", "-o", "m.so"], cwd=tmp_path, check=True)
    script = "import ctypes; ctypes.CDLL('./m.so').run(4)"
    environment: dict[str, Any] = {**os.environ, "LD_PRELOAD": sanitizer_library(), "ASAN_OPTIONS": "detect_leaks=0"}
    done = subprocess.run(
        [sys.executable, "-c", script], cwd=tmp_path, env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode != 0 and "out of bounds" in done.stderr + done.stdout
