"""The folder that `irc compile --emit c` writes: it builds by itself, with make, CMake, and other compilers."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import irc
from irc.cli.compile import command
from tests.shipping.test_targets import DIGITS, digits
from tests.support import shipped


def emitted(folder: Path, *options: str) -> Path:
    command.main([DIGITS, "-o", str(folder), *options], standalone_mode=False)
    return folder


def check(folder: Path, run: list[Any], weights: bool) -> None:
    """Run a program on two runs of images, and compare."""
    digits(20).tofile(folder / "in.bin")
    files = ["digits_weights.bin"] if weights else []
    subprocess.run([*run, *files, "in.bin", "out.bin", "10"], cwd=folder, check=True, timeout=60)
    (wanted,) = irc.compile(DIGITS, backend="numpy")(digits(20))
    np.testing.assert_allclose(np.fromfile(folder / "out.bin", np.float32), wanted.reshape(-1), rtol=1e-4, atol=1e-5)


@pytest.mark.compiler
def test_make_builds_the_folder_and_main_runs_the_model(tmp_path: Path) -> None:
    shipped.need("make")
    folder = emitted(tmp_path / "d", "--emit", "c", "--target", "x86-64-v2")
    shipped.made(folder, "CFLAGS=-O1 -Wall -Wextra -Werror")
    check(folder, ["env", "IRC_THREADS=2", "./digits"], weights=True)
    short = (folder / "in.bin").read_bytes()[:-4]
    (folder / "short.bin").write_bytes(short)
    said = subprocess.run(
        ["./digits", "digits_weights.bin", "short.bin", "out.bin", "10"], cwd=folder, capture_output=True, check=False
    )
    assert said.returncode == 1 and b"in the middle of a run" in said.stderr


@pytest.mark.compiler
def test_a_single_file_of_plain_c_is_iso_c11_for_gcc_and_tcc(tmp_path: Path) -> None:
    folder = emitted(tmp_path / "d", "--single-file", "--target", "plain")
    assert {f.name for f in folder.glob("digits*")} == {"digits.c", "digits.h"}
    strict = ["-std=c11", "-pedantic", "-pedantic-errors", "-Wall", "-Wextra", "-Werror"]
    compilers = {"gcc": strict, "tcc": ["-std=c11", "-Wall", "-Werror"]}
    for compiler, flags in compilers.items():
        if shutil.which(compiler) is not None:
            subprocess.run([compiler, *flags, "digits.c", "main.c", "-lm", "-o", compiler], cwd=folder, check=True)
            check(folder, [f"./{compiler}"], weights=False)


def test_compilers_other_than_gcc_get_no_flags_that_only_gcc_takes(tmp_path: Path) -> None:
    shipped.need("make")
    folder = emitted(tmp_path / "d", "--emit", "c", "--target", "x86-64-v3")
    for says, optimised in (("clang version 18", "-O3 -std"), ("Free Software Foundation, Inc.", "-O2 -ftree")):
        (tmp_path / "compiler").write_text(f"#!/bin/sh\necho '{says}'\n")
        (tmp_path / "compiler").chmod(0o755)
        said = subprocess.run(
            ["make", "-n", f"CC={tmp_path / 'compiler'}"], cwd=folder, capture_output=True, text=True, check=True
        )
        lines = [
            line for line in said.stdout.splitlines() if "digits" in line and " -c " in line and "main" not in line
        ]
        assert len(lines) > 1 and all(f"compiler {optimised}" in line for line in lines)


@pytest.mark.compiler
def test_cmake_builds_the_folder(tmp_path: Path) -> None:
    shipped.need("cmake", "make")
    folder = emitted(tmp_path / "d", "--emit", "c", "--target", "plain")
    for step in (["-S", ".", "-B", "build"], ["--build", "build"]):
        done = subprocess.run(["cmake", *step], cwd=folder, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
    check(folder, ["build/digits_run"], weights=True)


def test_single_file_goes_with_sources_only(tmp_path: Path) -> None:
    import click

    with pytest.raises(click.UsageError, match="single-file"):
        emitted(tmp_path / "d", "--single-file", "--emit", "so")
