"""Targets that irc knows by name beyond this machine's family: microcontrollers and others, most without vectors.

Code for them is plain C11.  A preset names the compilers that may build for it, unless $CC does.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Preset:
    """A target: its machine, the flags that choose it, compilers to look for, the features that C code may use.

    libraries: whether there are shared libraries for it; where not, irc writes sources (or, for `plain`, any compiler
    compiles them).  zig: what the compiler of the Python package ziglang, which builds for all of them, is told instead
    of the flags.
    """

    machine: str
    flags: tuple[str, ...]
    compilers: tuple[tuple[str, ...], ...]
    features: tuple[str, ...] = ()
    libraries: bool = False
    zig: tuple[str, ...] = ()


_ARM = (("arm-none-eabi-gcc",),)
_RISCV32 = (("riscv32-unknown-elf-gcc",), ("riscv64-unknown-elf-gcc",), ("riscv-none-elf-gcc",))
_HARD = ("-mthumb", "-mfloat-abi=hard")

PRESETS = {
    "cortex-m0": Preset("arm", ("-mcpu=cortex-m0", "-mthumb", "-mfloat-abi=soft"), _ARM),
    "cortex-m4": Preset("arm", ("-mcpu=cortex-m4", *_HARD, "-mfpu=fpv4-sp-d16"), _ARM),
    "cortex-m7": Preset("arm", ("-mcpu=cortex-m7", *_HARD, "-mfpu=fpv5-d16"), _ARM),
    "cortex-m55": Preset("arm", ("-mcpu=cortex-m55", *_HARD), _ARM),
    "riscv32": Preset("riscv32", ("-march=rv32imac", "-mabi=ilp32"), _RISCV32),
    "riscv64": Preset(
        "riscv64",
        ("-march=rv64gc", "-mabi=lp64d"),
        (("riscv64-linux-gnu-gcc",),),
        libraries=True,
        zig=("-target", "riscv64-linux-gnu"),
    ),
    "aarch64": Preset(
        "aarch64",
        ("-march=armv8-a",),
        (("aarch64-linux-gnu-gcc",),),
        ("asimd",),
        libraries=True,
        zig=("-target", "aarch64-linux-gnu"),
    ),
    "armv7": Preset(
        "arm",
        ("-march=armv7-a", "-mfpu=vfpv3-d16", "-mfloat-abi=hard"),
        (("arm-linux-gnueabihf-gcc",),),
        libraries=True,
        zig=("-target", "arm-linux-gnueabihf", "-mcpu=generic+v7a+vfp3d16-d32-neon"),
    ),
    "wasm32": Preset(
        "wasm32", ("--target=wasm32",), (("clang",), ("clang-14",), ("clang-16",)), zig=("-target", "wasm32-wasi")
    ),
    "plain": Preset("any", (), ()),
}
"""By name.  Code for `plain` is C11 that every compiler of the standard takes, and means the same everywhere."""
