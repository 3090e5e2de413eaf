"""Which flags compile the code of an instruction set, where it runs, and what emulates it: stated here for all tests.

`-march=native` means the processor that is tested: this one, or that of `$IRC_TEST_TARGET` (see `conftest`).
"""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Collection, Iterable
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from irc.kernels import ISAS, Isa, isa_of
from irc.toolchain import matrix_units, processor
from irc.toolchain.c_compiler import Compiler, Target, find_compiler, resolve_target

TARGETS = {
    "avx512": "x86-64-v4",
    "avx2": "x86-64-v3",
    "sse": "x86-64",
    "plain": "x86-64",
    "neon": "aarch64",
    "amx": "sapphirerapids",
    "avx512_bf16": "cooperlake",
}
"""Instruction set of `irc.kernels.ISAS` -> a target that has it."""
_QUICKLY = ["-O1", "-fexpensive-optimizations"]
"""Two thirds of the time of what kernels of artefacts are built with; -O1 makes no multiply-adds without the other."""
_IN_PARTS = ["-Wno-psabi", *_QUICKLY]
"""For vectors that the processor has in parts.  How they are passed does not matter: no call with one leaves a file."""

OF_BYTES = frozenset(
    (
        "ConvInteger",
        "DynamicQuantizeLSTM",
        "DynamicQuantizeMatMul",
        "MatMulInteger",
        "MatMulIntegerToFloat",
        "QAttention",
        "QGemm",
        "QLinearConv",
        "QLinearMatMul",
    )
)
"""Operators of ONNX that multiply bytes."""


@cache
def features_under_test() -> frozenset[str]:
    """What code may use that is compiled with -march=native, in the names of /proc/cpuinfo."""
    compiler = find_compiler()
    return frozenset(resolve_target("native", compiler).features) if compiler else processor.cpu_features()


def isa_under_test() -> Isa:
    """The instruction set of kernels for the processor that is tested."""
    return isa_of(features_under_test(), processor.machine())


def largest_weight() -> int:
    """Return the largest byte for which ONNX Runtime multiplies exactly here.

    Without VNNI it adds pairs of products of bytes as words, which saturate.
    """
    exact = {"avx512_vnni", "avx_vnni"} & processor.cpu_features() or processor.machine() not in ("x86_64", "AMD64")
    return 127 if exact else 63


def saturates_in_onnxruntime(kinds: Iterable[str]) -> bool:
    """Tell whether ONNX Runtime's results of nodes of these kinds may be wrong here (see `largest_weight`)."""
    return largest_weight() < 127 and not OF_BYTES.isdisjoint(kinds)


def native_flags(code: str, kernels: Collection[Any] = ()) -> list[str]:
    """Flags for these kernels, or for functions whose bounds are stated with multiply-adds, on the
    tested processor.

    Kernels say what is computed in which vector: they are built for little work of gcc's, and as in artefacts where
    `$IRC_TEST_AS_SHIPPED` is set, which `-m full` does.  Models in all other tests are built as artefacts are.

    The processor has vectors in parts that are wider than its own; gcc takes minutes for the parts of some kernels,
    except at -O0.  Kernels of other sets alone are built at -O0, too: what they compute is tested, and gcc's work on
    them where `$IRC_TEST_TARGET` has their set.
    """
    here = isa_under_test()
    wider = any(f"vector_size({size})" in code for size in (32, 64) if size > here.vector)
    sets = {(k.tile if hasattr(k, "tile") else k).isa.name for k in kernels}
    plainly = ["-O0"] if sets and (wider or here.name not in sets) else []
    quickly = [] if os.environ.get("IRC_TEST_AS_SHIPPED") else _QUICKLY
    return [
        "-march=native",
        *(["-mprefer-vector-width=512"] if here.vector == 64 else []),
        *(_IN_PARTS if wider else quickly),
        *plainly,
    ]


def target_of(isa: str, compiler: Compiler) -> Target:
    """Flags and features of a target that has an instruction set of `irc.kernels.ISAS`."""
    return resolve_target(TARGETS[isa], compiler)


def of_other_kernels(*targets: str) -> list[str]:
    """Those of these targets whose kernels are not those of one before: the tested processor may be like another."""
    compiler, found = find_compiler(), dict[Isa, str]()
    if compiler is None or "avx2" not in features_under_test():
        return list(targets)
    for name in targets:
        target = resolve_target(name, compiler)
        found.setdefault(isa_of(frozenset(target.features), target.machine), name)
    return list(found.values())


def needs(isa: str) -> pytest.MarkDecorator:
    """Skip a test of code compiled with -march=native unless that has the kernels of this instruction set."""
    here = isa_under_test()
    has = here.vector >= ISAS[isa].vector and here.dots >= ISAS[isa].dots and here.tiles >= ISAS[isa].tiles
    runs = has and (matrix_units.permitted() or not ISAS[isa].tiles)
    return pytest.mark.skipif(not runs, reason=f"the tested processor has no {isa}")


def emulation() -> list[str]:
    """Flags for code of AMX and AVX512-BF16 on any x86-64: `amx/immintrin.h` computes what their instructions would.

    No processor has such code: it is not worth more than -O1, and -O0 where vectors are in parts, too.
    """
    here = Path(__file__).resolve().parent
    return ["-march=native", f"-I{here / 'amx'}", *_IN_PARTS, *(["-O0"] if isa_under_test().vector < 64 else [])]


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
    real = f'{installed()[0]} "$@"'
    described = f'case " $* " in *" -dM "*) exec {real} ;; esac'
    return compiler_script(folder, f"{real} {' '.join(emulation())} -U__linux__", (f"-march={target}", ""), described)


def compiler_script(folder: Path, command: str, replaced: tuple[str, str], first: str = ":", name: str = "cc") -> str:
    """An executable that is a compiler of the shell's command, with one word of its arguments replaced."""
    script = folder / name
    script.write_text(
        f"""#!/bin/sh
{first}
for word; do
    shift
    if [ "$word" = "{replaced[0]}" ]; then word="{replaced[1]}"; fi
    set -- "$@" ${{word:+"$word"}}
done
exec {command}
"""
    )
    script.chmod(0o755)
    return str(script)
