"""Code for microcontrollers and other machines: plain C11, compiled by cross compilers and run in emulators."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

import numpy as np
import pytest

import irc
from irc.driver import CompileOptions, sources
from irc.toolchain import c_compiler
from irc.toolchain.presets import PRESETS
from tests.support import shipped

DIGITS = str(shipped.SAMPLES / "digits" / "digits.onnx")
ONE = {"image": (1, 1, 8, 8)}
RUN = ("m0 digits", "m4 dscnn", "m7 digits", "m55 digits", "m55 dscnn")
WASI = str(Path(shipped.__file__).parent / "wasi.mjs")


def digits(n: int) -> shipped.Array:
    with np.load(shipped.SAMPLES / "digits" / "heldout.npz") as held:
        return held["image"][:n].astype(np.float32)


@pytest.mark.parametrize("target", PRESETS)
def test_targets_without_vectors_get_plain_c(target: str) -> None:
    draft = sources(irc.load(DIGITS), CompileOptions(backend="c", target=target, name="digits", shapes=ONE))
    text = "\n".join(str(t) for name, t in draft.files.items() if name.endswith((".c", ".h")))
    assert ("vector_size" in text) == (target == "aarch64")
    assert "__asm__" not in str(draft.files["digits.c"]) and "Makefile" in draft.files
    assert ("irc_rt.c" in draft.files) == (PRESETS[target].libraries or target == "plain")
    assert draft.manifest["target"]["machine"] == PRESETS[target].machine


@pytest.mark.parametrize(("target", "model"), [(f"cortex-{cpu}", name) for cpu, name in (item.split() for item in RUN)])
def test_microcontrollers_compute_the_same(target: str, model: str, tmp_path: Path) -> None:
    shipped.need("make", "arm-none-eabi-gcc", "qemu-system-arm")
    given = shipped.keyword_spotter() if model == "dscnn" else DIGITS
    x = np.random.default_rng(3).random((2, 1, 1, 49, 10), np.float32) if model == "dscnn" else digits(2)[:, None]
    folder = shipped.folder_of(given, tmp_path / "d", model, target, shapes=ONE if model == "digits" else {})
    x.tofile(folder / "in.bin")
    shipped.made(folder, "main.o", f"lib{model}.a")
    shipped.run_on_board(folder, model, target, [f"{model}_weights.bin", "in.bin", "out.bin"])
    compiled = irc.compile(given, backend="numpy")
    wanted = np.concatenate([compiled(each)[0] for each in x])
    found = np.fromfile(folder / "out.bin", np.float32).reshape(wanted.shape)
    np.testing.assert_allclose(found, wanted, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("target", ["riscv64", "armv7"])
def test_other_machines_compute_the_same(target: str, tmp_path: Path) -> None:
    shipped.need("make", PRESETS[target].compilers[0][0], shipped.HOSTED[target][0])
    folder = shipped.folder_of(DIGITS, tmp_path / "d", "digits", target)
    digits(20).tofile(folder / "in.bin")
    shipped.made(folder, "LDFLAGS=-static")
    shipped.subprocess.run(
        [*shipped.HOSTED[target], "./digits", "digits_weights.bin", "in.bin", "out.bin", "20"], cwd=folder, check=True
    )
    (wanted,) = irc.compile(DIGITS, backend="numpy")(digits(20))
    np.testing.assert_allclose(np.fromfile(folder / "out.bin", np.float32), wanted.reshape(-1), rtol=1e-4, atol=1e-5)


@pytest.mark.full  # zig builds its C library first
@pytest.mark.parametrize(
    ("target", "triple", "runner"),
    [("riscv32", "riscv32-linux-musl", ["qemu-riscv32"]), ("wasm32", "wasm32-wasi", ["node", "--no-warnings", WASI])],
)
def test_machines_that_zig_builds_for_compute_the_same(
    target: str, triple: str, runner: list[str], tmp_path: Path
) -> None:
    """With `ziglang` from PyPI, which brings the C libraries that Debian's cross compilers lack."""
    pytest.importorskip("ziglang")
    shipped.need(runner[0])
    folder = shipped.folder_of(DIGITS, tmp_path / "d", "digits", target)
    digits(20).tofile(folder / "in.bin")
    zig = [sys.executable, "-m", "ziglang", "cc", "-target", triple, "-O2", "-std=c11"]
    shipped.subprocess.run([*zig, "digits.c", "main.c", "-lm", "-o", "digits"], cwd=folder, check=True, timeout=600)
    given = ["digits_weights.bin", "in.bin", "out.bin", "20"]
    shipped.subprocess.run([*runner, "./digits", *given], cwd=folder, check=True, timeout=120)
    (wanted,) = irc.compile(DIGITS, backend="numpy")(digits(20))
    np.testing.assert_allclose(np.fromfile(folder / "out.bin", np.float32), wanted.reshape(-1), rtol=1e-4, atol=1e-5)


def test_a_library_for_another_machine_is_built_and_not_loaded(tmp_path: Path) -> None:
    shipped.need(PRESETS["riscv64"].compilers[0][0])
    from irc.cli.compile import command

    target = str(tmp_path / "d")
    command.main([DIGITS, "-o", target, "--target", "riscv64", "--emit", "so"], standalone_mode=False)
    assert (tmp_path / "d" / "digits.so").read_bytes()[18] == 243  # EM_RISCV
    assert (tmp_path / "d" / "digits.h").exists() and not (tmp_path / "d" / "digits.c").exists()
    with pytest.raises(irc.RunError, match="IRC6007"):
        irc.load_compiled(target)


def test_microcontrollers_have_no_libraries() -> None:
    with pytest.raises(irc.CompileError, match="IRC6008"):
        irc.compile(DIGITS, backend="c", target="cortex-m4")


def test_a_missing_cross_compiler_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "")
    monkeypatch.delenv("CC", raising=False)
    monkeypatch.setattr(c_compiler, "find_spec", lambda name: None)
    with pytest.raises(irc.CompileError, match=r"IRC6006.*riscv64-linux-gnu-gcc"):
        c_compiler.require_compiler("riscv64")
    assert c_compiler.compiler_name("riscv64") == "riscv64-linux-gnu-gcc"


def test_zig_takes_the_place_of_a_missing_cross_compiler(monkeypatch: pytest.MonkeyPatch) -> None:
    """It builds for another machine if it is told which, also where CC names it without that."""
    monkeypatch.setenv("PATH", "")
    monkeypatch.delenv("CC", raising=False)
    monkeypatch.setattr(c_compiler, "find_spec", lambda name: name)
    monkeypatch.setattr(c_compiler, "_describe", lambda command, path: c_compiler.Compiler(command, "clang version 21"))
    zig = ("-m", "ziglang", "cc", "-target", "riscv64-linux-gnu")
    assert c_compiler.require_compiler("riscv64").command == (sys.executable, *zig)
    assert c_compiler.compiler_name("riscv64") == " ".join(("python3", *zig))
    monkeypatch.setenv("CC", "python3 -m ziglang cc")
    assert c_compiler.require_compiler("riscv64").command == ("python3", *zig)
    monkeypatch.setenv("CC", "python3 -m ziglang cc -target riscv64-linux-musl")
    assert c_compiler.require_compiler("riscv64").command == ("python3", *zig[:-1], "riscv64-linux-musl")


@pytest.mark.full  # zig builds its C library first
@pytest.mark.parametrize(("target", "machine"), [("riscv64", 243), ("aarch64", 183), ("armv7", 40)])
def test_zig_builds_libraries_for_other_machines(target: str, machine: int, tmp_path: Path) -> None:
    pytest.importorskip("ziglang")
    if any(shutil.which(c[0]) for c in PRESETS[target].compilers):
        pytest.skip("a cross compiler comes first")
    from irc.cli.compile import command

    command.main([DIGITS, "-o", str(tmp_path / "d"), "--target", target, "--emit", "so"], standalone_mode=False)
    assert (tmp_path / "d" / "digits.so").read_bytes()[18] == machine  # e_machine of ELF
