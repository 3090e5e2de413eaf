"""Generated C away from irc: emitted without a compiler, as one file, with the flags it states, and with state."""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import irc
from irc import driver
from irc.backends.c.files import EmitOptions, emit
from irc.backends.c.names import identifier, prefix_of
from irc.cli import main
from irc.expr import Load, Var
from irc.ir.types import f32
from irc.kernels import Epilogue, acc
from irc.loops import workspaces
from irc.loops.ir import Function, KernelCall, Program
from irc.loops.memory import plan
from irc.runtime.artifact import write_artifact
from irc.toolchain import c_compiler, libraries
from irc.toolchain.c_compiler import ONLY_KERNELS, WITHOUT_KERNELS
from irc.toolchain.gcc_flags import GCC_LEFT_OUT, GCC_LEFT_OUT_OF_MANY_REGISTERS
from irc.toolchain.processor import cpu_features
from tests.backends.test_c_backend import state_program
from tests.support.c_program import Array, Library, buffer, elementwise
from tests.support.instruction_sets import features_under_test, isa_under_test
from tests.support.kernels import packed_gemm
from tests.support.random_numbers import RANDOM

DIGITS = Path(__file__).resolve().parents[2] / "samples" / "digits"
COMPILERS = [cc for cc in ("gcc", "clang") if shutil.which(cc)]
compilers = pytest.mark.parametrize("cc", COMPILERS or [pytest.param("", marks=pytest.mark.skip("no C compiler"))])


def run_c(folder: Path, main_c: str, command: Sequence[str], given: bytes = b"") -> bytes:
    """What a program prints that is compiled from main.c and the sources of the folder."""
    folder.joinpath("main.c").write_text(main_c)
    subprocess.run([*command, "main.c", "model.c", "-lm", "-o", "main"], cwd=folder, check=True)
    return subprocess.run(["./main"], cwd=folder, input=given, capture_output=True, check=True).stdout


# ------------------------------------------------------------------------- no compiler
def test_sources_need_no_compiler(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """And are the same as beside a library."""
    asked = ["compile", str(DIGITS / "digits.xml"), "--target", "x86-64-v3", "--emit"]
    if c_compiler.find_compiler() is not None and "avx2" in cpu_features():
        assert main([*asked, "all", "-o", str(tmp_path / "all")]) == 0
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("CC", raising=False)
    monkeypatch.setattr(c_compiler, "find_spec", lambda _: None)
    c_compiler._find.cache_clear()
    assert main([*asked, "c", "-o", str(tmp_path / "c")]) == 0
    assert main([*asked, "so", "-o", str(tmp_path / "so")]) == 1
    assert main(["compile", str(DIGITS / "digits.xml"), "--emit", "c", "-o", str(tmp_path / "native")]) == 0
    c_compiler._find.cache_clear()
    files = {f.name: f.read_bytes() for f in (tmp_path / "c").iterdir()}
    kernels = {name for name in files if name.startswith("digits_kernels_")}
    own = {f"digits{end}" for end in ("_kernels.h", ".c", ".h", "_weights.bin")} | {"manifest.json"}
    assert own | {"main.c", "Makefile", "CMakeLists.txt", "irc_rt.c", "irc_rt.h"} == set(files) - kernels
    assert "digits_kernels_0.c" in kernels
    for name in files if (tmp_path / "all").exists() else ():
        beside = (tmp_path / "all" / name).read_bytes()
        beside = re.sub(rb"#define DIGITS_STACK_BYTES [0-9]+ .*\n", b"", beside) if name == "digits.h" else beside
        assert name == "manifest.json" or beside == files[name]
    with pytest.raises(irc.RunError, match="IRC6323"):
        irc.load_compiled(tmp_path / "c")


@pytest.mark.parametrize("target", ["pdp11", "x86-64-v9", "-O0 rm"])
def test_numpy_knows_targets_too(target: str) -> None:
    with pytest.raises(irc.CompileError, match="IRC6005"):
        irc.compile(str(DIGITS / "digits.onnx"), backend="numpy", target=target)


@compilers
def test_levels_are_what_compilers_make_of_them(cc: str) -> None:
    compiler = c_compiler.describe_compiler((cc,))
    for name in c_compiler.TARGETS[1:]:
        try:
            made = c_compiler.resolve_target(name, compiler)
        except irc.CompileError as e:  # of another family
            assert e.diagnostics[0].code == "IRC6006"
            continue
        assert c_compiler.target_of_sources(name) == made


# ---------------------------------------------------------------------------- one file
def product_and_square() -> tuple[Program, Array]:
    """y = (x w)², z = y · 0.3 + 0.7: a kernel, and code in which a contraction would show.  Returns w too."""
    w = RANDOM.standard_normal((40, 32)).astype(np.float32)
    kernel = packed_gemm(isa_under_test(), f32, 9, 32, Epilogue(acc() * acc()), True)
    x, y = buffer("x", f32, (9, 40), "input"), buffer("y", f32, (9, 32), "output")
    packed, z = kernel.pack_b(w), buffer("z", f32, (9, 32), "output")
    w_ = buffer("w", f32, packed.shape, "constant", data=packed)
    sizes = kernel.order(m=9, n=32, k=40, a_row=40, a_col=1, c_row=32)

    def scaled(i: Var, j: Var) -> Any:
        return Load(y, (i, j)) * 0.3 + 0.7

    functions = [Function("f", [KernelCall(kernel, (x, w_), (y,), sizes)], (x, w_), (y,))]
    return Program("p", [x], [y, z], [w_], [*functions, elementwise("g", z, scaled, [y])], []), w


@pytest.mark.skipif(not COMPILERS, reason="no C compiler")
def test_one_file_computes_what_several_do(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Bit by bit: kernels contract products and sums, the rest does not."""
    program, w = product_and_square()
    x = RANDOM.standard_normal((9, 40)).astype(np.float32)

    def run(weights: Any) -> list[Array]:
        library = Library(program, tmp_path, EmitOptions("p", weights=weights), ["-O2"])
        assert ("kernels_0.c" in library.files) == (weights == "file")
        return library.run(library.context(), [x], [(9, 32), (9, 32)])

    (y, z), (y_1, z_1) = run("file"), run("embed")
    np.testing.assert_allclose(y, (x.astype(np.float64) @ w) ** 2, rtol=1e-4, atol=1e-4)
    np.testing.assert_array_equal(z, y * np.float32(0.3) + np.float32(0.7))
    assert y.tobytes() == y_1.tobytes() and z.tobytes() == z_1.tobytes()
    if {"fma", "avx512f"} <= features_under_test():  # with AVX2 alone tiles name the instruction
        monkeypatch.setattr(libraries, "contraction", lambda kernels: "-ffp-contract=off")
        assert run("embed")[0].tobytes() != y.tobytes()


ONE_FILE = """#include <stdio.h>
#include <stdlib.h>
#include "model.h"
int main(void) {
    const int64_t dims[] = {360};
    digits_ctx *ctx = aligned_alloc(64, digits_context_size(dims));
    static float x[360][64], y[360][10];
    const void *in[] = {x};
    void *out[] = {y};
    if (fread(x, 1, sizeof x, stdin) != sizeof x) return 2;
    if (digits_init(ctx, NULL, NULL) || digits_plan(ctx, dims) || digits_run(ctx, in, out, NULL)) return 3;
    free(ctx);
    return fwrite(y, 1, sizeof y, stdout) != sizeof y;
}
"""


@compilers
def test_one_file_compiles_plainly(cc: str, tmp_path: Path) -> None:
    """A convolutional network, kernels and weights in model.c: `cc -O2 model.c`."""
    options = driver.CompileOptions("c", target="x86-64-v2", weights="embed")
    made = write_artifact(tmp_path / "made", driver.sources(irc.load(DIGITS / "digits.xml"), options))
    assert set(made.files) == {"model.c", "model.h"} and ONLY_KERNELS in made.path("model.c").read_text()
    with np.load(DIGITS / "heldout.npz") as held:
        x, label = held["image"], held["label"]
    (want,) = irc.compile(DIGITS / "digits.onnx", backend="numpy")(x)
    found = np.frombuffer(run_c(made.folder, ONE_FILE, [cc, "-O2"], x.tobytes()), np.float32).reshape(360, 10)
    np.testing.assert_allclose(found, want, rtol=1e-5, atol=1e-4)
    assert (found.argmax(1) == label).sum() == 354


@pytest.mark.parametrize("weights", ["file", "embed"])
def test_files_state_the_flags_of_the_toolchain(weights: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """All that decides about results and speed, of each part of the code."""
    program, _ = product_and_square()
    gcc, target = c_compiler.Compiler(("gcc",), "gcc 12"), c_compiler.target_of_sources("x86-64-v3")
    workspaces.allot(program)
    made = emit(program, plan(program), EmitOptions("p", weights=weights, target=target.flags))
    for name, text in made.items():
        tmp_path.joinpath(name).write_text(text if isinstance(text, str) else "")
    used: dict[str, set[str]] = {}

    def note(compiler: Any, arguments: list[str], file: str, folder: Path, running: Any = None) -> None:
        Path(folder, arguments[-1]).touch()
        if "-c" in arguments:
            part = "kernels" if file.startswith("kernels_") or f"-D{ONLY_KERNELS}" in arguments else "rest"
            used[part] = {a for a in arguments if a.startswith("-") and not a.startswith("-D")}
        else:
            Path(arguments[arguments.index("-o") + 1]).touch()

    monkeypatch.setattr(libraries, "_run", note)
    libraries.build(tmp_path, sorted(made), target, gcc)
    heads = [str(text).partition("*/")[0] for name, text in made.items() if name.endswith(".c")]
    text = "\n".join(heads).replace("\n *     -f", " -f")
    lines = re.findall(r"^ \*     ([^.]*=fast|[^.]*=off)\.", text, re.MULTILINE)
    said = {"kernels" if "=fast" in line else "rest": set(re.findall(r"-[a-z][^ ]+", line)) for line in lines}
    for part in ("kernels", "rest"):
        built = {"-c", "-o", "-fPIC", "-fvisibility=hidden", "-O2", "-O3"}
        left = used[part] - said[part] - built - {*GCC_LEFT_OUT, *GCC_LEFT_OUT_OF_MANY_REGISTERS}
        assert not left and not said[part] - used[part], part
    assert weights == "file" or f"-D{WITHOUT_KERNELS} leaves them out" in text


# -------------------------------------------------------------------------------- state
STATE = """#include <stdio.h>
#include "model.h"
static _Alignas(64) unsigned char memory[M_CONTEXT_BYTES];
int main(void) {
    m_ctx *const ctx = (m_ctx *)memory;
    const float x[4] = {0, 1, 2, 3};
    float y[4];
    const void *in[] = {x};
    void *out[] = {y};
    if (m_init(ctx, NULL, NULL)) return 2;
    for (int run = 0; run < 5; ++run) {
        if (run == 3) m_reset(ctx);
        if (m_run(ctx, in, out, NULL)) return 3;
        printf("%g %g %g %g\\n", y[0], y[1], y[2], y[3]);
    }
    return 0;
}
"""


@compilers
@pytest.mark.parametrize("kind", ["turn", "copy"])
def test_a_plain_c_program_resets_state(cc: str, kind: str, tmp_path: Path) -> None:
    """total' = total + x, from 10 on: three runs, and after P_reset the first two again."""
    program = state_program(kind)
    for name, text in emit(program, plan(program), EmitOptions(prefix="m", weights="embed")).items():
        tmp_path.joinpath(name).write_text(str(text))
    printed = run_c(tmp_path, STATE, [cc, "-std=c11", "-O2", "-Wall", "-Wextra", "-Werror"]).decode().split("\n")
    after = [f"10 {10 + k} {10 + 2 * k} {10 + 3 * k}" for k in (1, 2, 3)]
    assert printed == [*after, *after[:2], ""]


@pytest.mark.parametrize("name", ["irc", "irc_pool", "irc_", "9x", "é", "main", "", "a" * 90, "_x_", "x__y", "a/b c"])
def test_the_manifest_and_the_sources_agree_on_the_prefix(name: str) -> None:
    prefix = prefix_of(name)
    assert identifier(prefix) == prefix and not prefix.startswith("irc_")
