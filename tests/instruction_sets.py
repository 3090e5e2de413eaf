"""Which flags compile the code of an instruction set, where it runs, and what emulates it: stated here for all tests.

`-march=native` means the processor that is tested: this one, or that of `$IRC_TEST_TARGET` (see `conftest`).
"""

from __future__ import annotations

import os
import shutil
import subprocess
from functools import cache
from pathlib import Path

import pytest

from irc.backends import matrix_units, processor
from irc.backends.toolchain import Compiler, Target, find_compiler, resolve_target
from irc.kernels import ISAS, Isa, isa_of

TARGETS = {"avx512": "x86-64-v4", "avx2": "x86-64-v3", "sse": "x86-64", "plain": "x86-64", "neon": "aarch64",
           "amx": "sapphirerapids", "avx512_bf16": "cooperlake"}  # fmt: skip
"""Instruction set of `irc.kernels.ISAS` -> a target that has it."""
EMULATION = ("-march=native", "-Wno-psabi", f"-I{Path(__file__).resolve().parent / 'amx'}")
"""Flags for code of AMX and AVX512-BF16 on any x86-64: `amx/immintrin.h` computes what their instructions would, and a
processor without 512-bit vectors has each of them in parts, so that the compiler's word on passing them is beside the
point: no call leaves its file with one."""


@cache
def tested_features() -> frozenset[str]:
    """What code may use that is compiled with -march=native, in the names of /proc/cpuinfo."""
    compiler = find_compiler()
    return frozenset(resolve_target("native", compiler).features) if compiler else processor.cpu_features()


def tested_isa() -> Isa:
    """The instruction set of kernels for the processor that is tested."""
    return isa_of(tested_features(), processor.machine())


def native_flags() -> list[str]:
    """Flags for kernels of the tested processor: vectors as wide as it has them, also in code without vector types."""
    return ["-march=native", *(["-mprefer-vector-width=512"] if tested_isa().vector == 64 else [])]


def target_of(isa: str, compiler: Compiler) -> Target:
    """Flags and features of a target that has an instruction set of `irc.kernels.ISAS`."""
    return resolve_target(TARGETS[isa], compiler)


def needs(isa: str) -> pytest.MarkDecorator:
    """Skip a test of code compiled with -march=native unless that has the kernels of this instruction set."""
    here = tested_isa()
    has = here.vector >= ISAS[isa].vector and here.dots >= ISAS[isa].dots and here.tiles >= ISAS[isa].tiles
    runs = has and (matrix_units.permitted() or not ISAS[isa].tiles)
    return pytest.mark.skipif(not runs, reason=f"the tested processor has no {isa}")


def installed() -> list[str]:
    """The C compilers that this machine has."""
    return [name for name in ("gcc", "clang") if shutil.which(name)]


def compiler_for(compiler: str, target: str) -> tuple[str, ...]:
    """An installed compiler's command for a target, which may be of another machine: skip where it has none."""
    machine = {"native": processor.machine(), "aarch64": "aarch64"}.get(target, "x86_64")
    if machine == processor.machine():
        return (compiler,)
    crossing = f"{machine}-linux-gnu-gcc" if compiler == "gcc" else compiler
    command = (crossing,) if compiler == "gcc" else (compiler, f"--target={machine}-linux-gnu")
    if shutil.which(crossing) is None or not usable(command):
        pytest.skip(f"{compiler} does not compile for {machine} here")
    return command


def usable(command: tuple[str, ...]) -> bool:
    """Whether the compiler is there, and has headers."""
    given = ["-include", "math.h", "-include", "stdint.h", "-E", "-x", "c", os.devnull]
    try:
        return not subprocess.run([*command, *given], capture_output=True, check=False).returncode
    except OSError:
        return False


def emulating(folder: Path, target: str = "") -> str:
    """A value of $CC: code that the first compiler builds with emulated instructions, and nobody asks the system for
    them.  What is built for `target` is for the tested processor instead, though the compiler describes the target.
    """
    command = f"exec {installed()[0]} {' '.join(EMULATION)} -U__linux__"
    script = folder / "emulating-cc"
    script.write_text(
        f"""#!/bin/sh
case " $* " in *" -dM "*) exec {installed()[0]} "$@" ;; esac
for word; do
    shift
    [ "$word" = "-march={target}" ] || set -- "$@" "$word"
done
{command} "$@"
"""
    )
    script.chmod(0o755)
    return str(script)
