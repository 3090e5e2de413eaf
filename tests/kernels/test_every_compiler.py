"""`-m full`: the generated C of the samples, of every family of operations and of real architectures, in each compiler
with warnings as errors, every kernel for every instruction set likewise, the tests of kernels with the flags of
artefacts, and the tests of generated C under AddressSanitizer and UndefinedBehaviorSanitizer, and in an emulator of
another machine.

All go through `$CC`, which may hold flags: `CC="clang -Wall -Wextra -Werror"`.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
import pytest
from onnx import backend as onnx_backend

import irc
from irc.kernels import ISAS, PROTOTYPES
from irc.kernels.core.base import Kernel
from irc.kernels.core.registry import KERNELS, load_all
from irc.kernels.core.workspace import FRAME
from irc.toolchain import stack
from irc.toolchain.c_compiler import COMMON, Compiler, Target, contraction, describe_compiler, optimisation
from tests import test_samples
from tests.ops import test_ops
from tests.support import foreign
from tests.support.instruction_sets import TARGETS, target_of, usable
from tests.support.kernels import every_function, variants

ROOT = Path(__file__).resolve().parents[2]
LIGHT = Path(onnx_backend.__path__[0]) / "test" / "data" / "light"
COMPILERS = [cc for cc in ("gcc", "clang") if shutil.which(cc)]
WARNINGS = "-Wall -Wextra -Werror"
KERNEL_TESTS = [
    "tests/kernels/test_kernels.py",
    *(
        p.relative_to(ROOT).as_posix()
        for p in sorted(ROOT.glob("tests/**/test_*.py"))
        if re.search(r"^from tests\.kernels\.test_kernels import", p.read_text("utf-8"), re.MULTILINE)
    ),
]
PARTS = {
    "families": ["tests/ops/test_ops.py", "-k", "compiled_family and c]"],
    "sizes": ["tests/ops/test_sizes_of_operations.py", "-m", "not slow", "-k", "every_case"],
    "demands": ["tests/passes/test_size_constraints.py", "-k", "test_c_of_other_sizes_of_every", "-m", "full"],
    "programs": [
        f"tests/{name}.py"
        for name in (
            "backends/test_c_backend",
            "backends/test_c_expr",
            "loops/test_lower",
            "kernels/test_kernel_programs",
            "selection/test_select",
        )
    ],
    "functions": ["tests/kernels/test_vecmath.py", "-k", "not loops_vectorise"],  # what is checked is not vectorised
    "models": ["tests/test_random_graphs.py", "tests/test_samples.py", "-k", "(reference or both_backends) and c]"],
    **{f"kernels {Path(name).stem}": [name, "--dist", "loadfile"] for name in KERNEL_TESTS},  # built once for a file
}
SETTINGS = ["-c", "pyproject.toml", "--rootdir", str(ROOT), "-p", "no:cacheprovider"]
# The flags come last and win: -O1 builds kernels in a seventh of the time of -O3, and -fexpensive-optimizations makes
# multiply-adds, with which bounds are stated.  The compiler itself is not checked.
COMPILER = """#!/bin/sh
exec env -u LD_PRELOAD gcc "$@" -g1 -O1 -fexpensive-optimizations -fsanitize=address,undefined -fno-sanitize-recover=all
"""
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


# ---------------------------------------------------------------------------- kernels of other processors
FOREIGN = (  # compilers for AArch64
    ("clang", "--target=aarch64-linux-gnu"),
    ("aarch64-linux-gnu-gcc",),
    (sys.executable, "-m", "ziglang", "cc", "-target", "aarch64-linux-musl"),
)
load_all()
REGISTERED = [cls for classes in KERNELS.values() for cls in classes]


def builders(isa: str) -> list[tuple[Compiler, Target]]:
    """The compilers of this machine that can build for a processor that has the instruction set."""
    commands = FOREIGN if isa == "neon" else tuple((cc,) for cc in COMPILERS)
    return [(c, target_of(isa, c)) for c in map(describe_compiler, filter(usable, commands))]


@pytest.mark.parametrize(
    ("cls", "isa"),
    [pytest.param(c, isa, id=f"{c.__name__}-{isa}") for c in REGISTERED for isa in ISAS if any(variants(c, ISAS[isa]))],
)
def test_kernel(cls: type[Kernel[Any]], isa: str, tmp_path: Path) -> None:
    """A kernel's variants for an instruction set, compiled by each compiler with warnings as errors; not run."""
    compile_strictly(variants(cls, ISAS[isa]), isa, tmp_path)


def compile_strictly(kernels: Iterable[Kernel[Any]], isa: str, tmp_path: Path) -> None:
    """Compile the kernels, all in a file, for a processor with that instruction set."""
    found = {k.symbol: k for k in kernels}
    assert found
    text = "\n".join([PROTOTYPES, *(k.source() for k in found.values())])
    (tmp_path / "kernels_0.c").write_text(text)
    everything = every_function().key()  # its constants alone fill a frame
    small = {s for s, k in found.items() if getattr(k, "epilogue", None) is None or k.epilogue.key() != everything}  # type: ignore[attr-defined]
    compilers = builders(isa)
    if not compilers:
        pytest.skip(f"no compiler for {TARGETS[isa]}")
    for compiler, target in compilers:
        flags = [
            *optimisation(compiler, kernels=True, target=target),
            *COMMON,
            *target.flags,
            contraction(True),
            *WARNINGS.split(),
        ]
        command = [*compiler.command, *flags, "-fstack-usage", "-c", "kernels_0.c", "-o", "kernels_0.o"]
        done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
        assert done.returncode == 0, f"{compiler}: {done.stderr[:4000]}"
        used = stack.usage((tmp_path / "kernels_0.su").read_text())
        large = {f: n for f, n in used.items() if n > FRAME and any(f.startswith(s) for s in small)}
        assert used and not large, f"{compiler}: {large}"


@pytest.mark.parametrize("group", [g for g in PARTS if g.startswith("kernels ")])
def test_as_shipped(group: str) -> None:
    """The tests of kernels again, built with the flags that artefacts are built with."""
    run_again(group, {"IRC_TEST_AS_SHIPPED": "1"})


def run_again(group: str, environment: dict[str, str]) -> None:
    """Run the tests of a part in a process with these variables."""
    command = [sys.executable, "-m", "pytest", "-q", "-x", "-n", "2", *SETTINGS, *PARTS[group]]
    done = subprocess.run(
        command, cwd=ROOT, env={**os.environ, **environment}, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, f"{done.stdout[-4000:]}{done.stderr[-4000:]}"
    assert " passed" in done.stdout


# ---------------------------------------------------------------------------- code of another machine, emulated
def x86_only(name: str) -> bool:
    """Whether a file's tests are about instructions of x86-64."""
    return "x86-64 only" in (text := (ROOT / name).read_text("utf-8")) or "as needs_x86" in text


@pytest.mark.parametrize("group", [g for g, (name, *_) in PARTS.items() if g != "functions" and not x86_only(name)])
@pytest.mark.parametrize("target", foreign.EMULATORS)
def test_another_machine(target: str, group: str) -> None:
    """The tests again, compiled for another machine's processor and run in its emulator."""
    programs = [foreign.COMPILERS[target][0], foreign.EMULATORS[target][0]]
    if missing := [p for p in programs if not shutil.which(p)]:
        pytest.skip(f"no {' and no '.join(missing)}")
    run_again(group, {"IRC_TEST_TARGET": target})


# ---------------------------------------------------------------------------- sanitisers
@pytest.mark.parametrize("group", PARTS)
def test_sanitizers(group: str, tmp_path: Path) -> None:
    """The tests again, with every access and every computation of the C code checked."""
    done = checked(PARTS[group], tmp_path)
    assert done.returncode == 0, f"{done.stdout[-4000:]}{first_report(done.stderr)}"
    assert " passed" in done.stdout


MISTAKE = """
import ctypes
from irc.toolchain.libraries import build

CODE = '''
__attribute__((visibility("default"))) int run(int n) {
    int a[4] = {0};
    for (int i = 0; i <= n; ++i) a[i] = i;
    return a[n & 3];
}
'''

def test_mistake(tmp_path):
    (tmp_path / "m.c").write_text(CODE)
    run = ctypes.CDLL(str(build(tmp_path, ["m.c"]))).run
    assert run(3) == 3
    run(4)
"""


def test_the_sanitizers_see_a_mistake(tmp_path: Path) -> None:
    """A run that finds nothing says something only if a mistake would be found, and shown."""
    tmp_path.joinpath("test_mistake.py").write_text(MISTAKE)
    done = checked([str(tmp_path / "test_mistake.py")], tmp_path)
    report = first_report(done.stderr)
    assert done.returncode and "m.c:4:" in report and "index 4 out of bounds" in report, done.stdout + done.stderr


def checked(selection: list[str], folder: Path) -> subprocess.CompletedProcess[str]:
    """pytest in a process whose generated C is compiled with the sanitisers."""
    if "gcc" not in COMPILERS:
        pytest.skip("the sanitisers' libraries are found through gcc")
    compiler = folder / "cc"
    compiler.write_text(COMPILER)
    compiler.chmod(0o755)
    environment = {
        **os.environ,
        "CC": str(compiler),
        "LD_PRELOAD": sanitizer_library(),
        "ASAN_OPTIONS": "detect_leaks=0",  # the interpreter keeps memory until it ends
        "UBSAN_OPTIONS": "print_stacktrace=1",
        "PYTHONMALLOC": "malloc",
    }
    # Not captured: the report of a process that ends with it would be lost.
    command = [sys.executable, "-m", "pytest", "-q", "-x", "-s", "-n", "2", *SETTINGS, *selection]
    return subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)


def first_report(output: str) -> str:
    """The first report of a sanitiser in the output, or the end of the output."""
    starts = [at for word in ("runtime error:", "AddressSanitizer:") if (at := output.find(word)) >= 0]
    at = max(output.rfind("\n", 0, min(starts)), 0) if starts else max(len(output) - 4000, 0)
    return output[at : at + 4000]


def sanitizer_library() -> str:
    """The run-time library of AddressSanitizer, which the interpreter has to load first."""
    done = subprocess.run(["gcc", "-print-file-name=libasan.so"], capture_output=True, text=True, check=True)
    path = done.stdout.strip()
    if not Path(path).is_file():
        pytest.skip("no AddressSanitizer on this machine")
    return path
