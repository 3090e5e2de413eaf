"""Which C compiler, which flags, and which processor.

`$CC`, then gcc, clang and cc on PATH, then the Python package ziglang.  A target is resolved to the list of
processor features that the compiler may use, so that a library is never loaded where one is missing.
"""

from __future__ import annotations

import difflib
import os
import platform
import re
import shlex
import shutil
import subprocess
import sys
import warnings
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cache
from importlib.util import find_spec

from irc.diagnostics.codes import runtime as codes
from irc.diagnostics.core import NOWHERE, Code, CompileError, Sink
from irc.toolchain import matrix_units, processor
from irc.toolchain.caches import second_cache
from irc.toolchain.gcc_flags import GCC_LEFT_OUT, GCC_LEFT_OUT_OF_MANY_REGISTERS, GCC_LOOPS
from irc.toolchain.presets import PRESETS, Preset
from irc.toolchain.processor import cpu_features
from irc.toolchain.vector_units import multiplied

_LANGUAGE = ("-std=c11", "-fno-math-errno", "-fno-trapping-math")
COMMON = (*_LANGUAGE, "-fPIC", "-fvisibility=hidden")
"""Flags of every file; `optimisation` and `contraction` add those that differ."""
ONLY_KERNELS, WITHOUT_KERNELS = "IRC_ONLY_KERNELS", "IRC_WITHOUT_KERNELS"
"""Macros that leave out the rest, or the kernels, of a C file that holds both: they are compiled differently."""
_V2 = ("pni", "popcnt", "sse4_1", "sse4_2", "ssse3")
_V3 = tuple(sorted((*_V2, "abm", "avx", "avx2", "bmi1", "bmi2", "f16c", "fma", "movbe")))
_V4 = tuple(sorted((*_V3, "avx512bw", "avx512cd", "avx512dq", "avx512f", "avx512vl")))
_LEVELS = {
    "x86-64": ("x86_64", ()),
    "x86-64-v2": ("x86_64", _V2),
    "x86-64-v3": ("x86_64", _V3),
    "x86-64-v4": ("x86_64", _V4),
}
"""Targets that mean the same everywhere: machine and features."""
TARGETS = ("native", *_LEVELS, *PRESETS)
_ZIG = (sys.executable, "-m", "ziglang", "cc")

# Predefined macro -> name in /proc/cpuinfo: the features that compilers use on their own.
_FEATURES = {
    "__SSE3__": "pni",
    "__SSSE3__": "ssse3",
    "__SSE4_1__": "sse4_1",
    "__SSE4_2__": "sse4_2",
    "__POPCNT__": "popcnt",
    "__AVX__": "avx",
    "__AVX2__": "avx2",
    "__FMA__": "fma",
    "__F16C__": "f16c",
    "__BMI__": "bmi1",
    "__BMI2__": "bmi2",
    "__LZCNT__": "abm",
    "__MOVBE__": "movbe",
    "__ADX__": "adx",
    "__FMA4__": "fma4",
    "__XOP__": "xop",
    "__AVX512F__": "avx512f",
    "__AVX512CD__": "avx512cd",
    "__AVX512BW__": "avx512bw",
    "__AVX512DQ__": "avx512dq",
    "__AVX512VL__": "avx512vl",
    "__AVX512IFMA__": "avx512ifma",
    "__AVX512VBMI__": "avx512vbmi",
    "__AVX512VBMI2__": "avx512_vbmi2",
    "__AVX512VNNI__": "avx512_vnni",
    "__AVX512BITALG__": "avx512_bitalg",
    "__AVX512VPOPCNTDQ__": "avx512_vpopcntdq",
    "__AVX512BF16__": "avx512_bf16",
    "__AVX512FP16__": "avx512_fp16",
    "__AVXVNNI__": "avx_vnni",
    "__GFNI__": "gfni",
    "__AMX_TILE__": "amx_tile",
    "__AMX_INT8__": "amx_int8",
    "__AMX_BF16__": "amx_bf16",
    "__AVXIFMA__": "avx_ifma",
    "__AVXVNNIINT8__": "avx_vnni_int8",
    "__ARM_NEON": "asimd",
    "__ARM_FEATURE_DOTPROD": "asimddp",
    "__ARM_FEATURE_FP16_VECTOR_ARITHMETIC": "asimdhp",
    "__ARM_FEATURE_SVE": "sve",
    "__ARM_FEATURE_SVE2": "sve2",
    "__ARM_FEATURE_BF16": "bf16",
    "__ARM_FEATURE_MATMUL_INT8": "i8mm",
    "__ARM_FEATURE_ATOMICS": "atomics",
}


@dataclass(frozen=True)
class Compiler:
    """A C compiler: its command and what it says of itself (part of cache keys)."""

    command: tuple[str, ...]
    version: str

    @property
    def is_zig(self) -> bool:
        return "ziglang" in self.command

    @property
    def is_clang(self) -> bool:
        """Whether it takes clang's flags, as zig does."""
        return "clang" in self.version or self.is_zig

    def __str__(self) -> str:
        return shlex.join(self.command)


@dataclass(frozen=True)
class Target:
    """A resolved target: flags for the compiler, and the features code built for it may use.

    sets: the targets that one artefact holds code for, lowest first, if there are several; then the rest is what
    the lowest has, without which none of them runs.  l2: bytes of its second cache, from which sizes of blocks
    follow.  fma: vectors of 512 bits that it multiplies and adds a cycle, on which costs depend.  0 if not known.
    """

    name: str
    machine: str
    flags: tuple[str, ...]
    features: tuple[str, ...]
    sets: tuple[Target, ...] = ()
    l2: int = 0
    fma: int = 0


# -------------------------------------------------------------------- compilers
def find_compiler() -> Compiler | None:
    """Find the compiler to use; None if the machine has none.  Raises CompileError if $CC is set and does not work."""
    return _find(os.environ.get("CC", ""), os.environ.get("PATH", ""))


def require_compiler(target: str = "native") -> Compiler:
    """Find the compiler to use for a target.  Raises CompileError IRC6001 or IRC6006 if there is none."""
    preset = PRESETS.get(target)
    if preset is not None and preset.compilers and preset.machine != processor.machine():
        given = shlex.split(os.environ.get("CC", ""))
        command = tuple(given) or _cross_compiler(preset)
        if command is None:
            looked_for = " and ".join(c[0] for c in preset.compilers)
            raise compile_error(codes.FOREIGN_TARGET, target=target, machine=platform.machine(), command=looked_for)
        told = preset.zig if "ziglang" in command and "-target" not in command else ()
        return _describe((*command, *told), os.environ.get("PATH", ""))
    found = find_compiler()
    if found is None:
        raise compile_error(codes.NO_COMPILER, looked_for="$CC, gcc, clang, cc and the Python package ziglang")
    return found


def _cross_compiler(preset: Preset) -> tuple[str, ...] | None:
    """Find a compiler for a preset of another family: one of its own on PATH, else zig, which builds for most."""
    found = next((c for c in preset.compilers if shutil.which(c[0])), None)
    return found or (_ZIG if preset.zig and find_spec("ziglang") is not None else None)


@cache
def _describe(command: tuple[str, ...], path: str) -> Compiler:  # path: what a command means depends on it
    return describe_compiler(command)


@cache
def _find(cc: str, path: str) -> Compiler | None:
    if cc.strip():
        return describe_compiler(tuple(shlex.split(cc)))
    for name in ("gcc", "clang", "cc"):
        if shutil.which(name, path=path or None):
            return describe_compiler((name,))
    if find_spec("ziglang") is not None:
        return describe_compiler(_ZIG)
    return None


def describe_compiler(command: tuple[str, ...]) -> Compiler:
    """Ask a compiler for its version."""
    try:
        done = subprocess.run([*command, "--version"], capture_output=True, text=True, timeout=60, check=False)
    except (OSError, subprocess.TimeoutExpired) as e:
        raise compile_error(codes.COMPILER_UNUSABLE, command=shlex.join(command), reason=str(e)) from e
    if done.returncode or not done.stdout.strip():
        words = done.stderr.strip().splitlines()
        reason = (words or [f"exit status {done.returncode}"])[0] if done.returncode else "it printed nothing"
        raise compile_error(codes.COMPILER_UNUSABLE, command=shlex.join(command), reason=reason)
    lines = done.stdout.strip().splitlines()
    return Compiler(command, " | ".join(line for line in lines[:2] if "Copyright" not in line))


# -------------------------------------------------------------------- targets
def resolve_target(name: str, compiler: Compiler) -> Target:
    """Look up the flags and features of a target, `native` or any name that the compiler's -march= knows."""
    if "+" in name:
        return _several([resolve_target(part, compiler) for part in _levels(name)])
    return _resolve(_full_name(name), compiler)


def _levels(name: str) -> list[str]:
    """List the levels of x86-64 that a name like v2+v3 has, lowest first.  Raises CompileError."""
    parts = {_full_name(part) for part in name.split("+")}
    known = [level for level, (machine, _) in _LEVELS.items() if machine == "x86_64"]
    if not parts <= {*known}:
        raise _unknown(name, f"{', '.join(TARGETS)}; joined by +, {', '.join(known)}")
    return [level for level in known if level in parts]


def _unknown(name: str, known: str) -> CompileError:
    """Make the finding for a target that nobody knows, with the name that was probably meant."""
    near = difflib.get_close_matches(name, TARGETS, 1)
    guess = f"; did you mean {near[0]}?" if near else ""
    return compile_error(codes.UNKNOWN_TARGET, target=name, guess=guess, known=known)


def _several(sets: Sequence[Target]) -> Target:
    """Make the target of an artefact for several instruction sets."""
    joined = "+".join(one.name for one in sets)
    return sets[0] if len(sets) == 1 else replace(sets[0], name=joined, sets=tuple(sets))


def target_of_sources(name: str) -> Target:
    """Look up the target of code that is not compiled here.  Raises CompileError if only a compiler knows its name."""
    if "+" in name:
        return _several([target_of_sources(part) for part in _levels(name)])
    name = _full_name(name)
    if name in _LEVELS:
        machine, features = _LEVELS[name]
        return Target(name, machine, (f"-march={name}",), features)
    if name in PRESETS:
        return _preset(name)
    compiler = find_compiler()
    if compiler is not None:
        return resolve_target(name, compiler)
    if name != "native":
        raise _unknown(name, ", ".join(TARGETS))
    features = tuple(sorted({*_FEATURES.values()} & cpu_features()))
    return _permitted(
        Target(name, processor.machine(), ("-march=native",), features, l2=second_cache(name), fma=multiplied(name))
    )


def _permitted(target: Target) -> Target:
    """Leave AMX out of a target, with a warning, if the operating system refuses it."""
    if not matrix_units.needed(target.features) or matrix_units.permitted():
        return target
    text = "the operating system refuses AMX; compiling for the rest of this processor"
    warnings.warn(f"{codes.TILES_REFUSED.id}: {text}", RuntimeWarning, stacklevel=2)
    features = matrix_units.without(target.features)
    return replace(target, flags=(*target.flags, "-mno-amx-tile"), features=features)


def require_libraries(name: str) -> None:
    """Refuse a target without shared libraries.  Raises CompileError IRC6008."""
    if name in PRESETS and not PRESETS[name].libraries:
        raise compile_error(codes.NO_LIBRARIES, target=name)


def compiler_name(name: str) -> str:
    """Choose the compiler that a Makefile for a target calls unless it is told another one."""
    if name not in PRESETS or not PRESETS[name].compilers or PRESETS[name].machine == processor.machine():
        return "cc"
    command = _cross_compiler(PRESETS[name])
    if command == _ZIG:
        return shlex.join(("python3", *_ZIG[1:], *PRESETS[name].zig))
    return (command or PRESETS[name].compilers[0])[0]


def runs_here(target: Target) -> bool:
    """Tell whether this machine can load what is built for a target."""
    return not processor.missing_features(target.machine, target.features)


def has_libraries(name: str) -> bool:
    """Tell whether there are shared libraries for a target."""
    return name not in PRESETS or PRESETS[name].libraries


def _preset(name: str) -> Target:
    return Target(name, PRESETS[name].machine, PRESETS[name].flags, PRESETS[name].features)


def _full_name(name: str) -> str:
    """Complete a short name: v3 is x86-64-v3."""
    return f"x86-64-{name}" if re.fullmatch("v[234]", name) else name


def _require_use(compiler: Compiler) -> None:
    """Raise CompileError, with the compiler's own words, if it does nothing whatever the target is."""
    command = [*compiler.command, "-E", "-x", "c", os.devnull]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    if done.returncode:
        said = (done.stderr.strip().splitlines() or [f"exit status {done.returncode}"])[0]
        raise compile_error(codes.COMPILER_UNUSABLE, command=shlex.join(compiler.command), reason=said)


@cache
def _resolve(name: str, compiler: Compiler) -> Target:
    if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._+-]*", name):
        raise _unknown(name, ", ".join(TARGETS))
    flags = PRESETS[name].flags if name in PRESETS else (f"-march={name}",)
    if compiler.is_zig and name in PRESETS:  # which is told by its command
        flags = ()
    elif compiler.is_zig:  # whose names have underscores
        flags = (f"-march={name.replace('-', '_')}",)
    command = [*compiler.command, *flags, "-dM", "-E", "-x", "c", os.devnull]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    if done.returncode:
        _require_use(compiler)
        if name in TARGETS:
            raise compile_error(codes.FOREIGN_TARGET, target=name, machine=platform.machine(), command=compiler)
        raise _unknown(name, ", ".join(TARGETS))
    if name in PRESETS:
        return replace(_preset(name), flags=flags)
    macros = set(re.findall(r"^#define (\w+)", done.stdout, re.MULTILINE))
    machine = "x86_64" if "__x86_64__" in macros else "aarch64" if "__aarch64__" in macros else platform.machine()
    features = tuple(sorted(flag for macro, flag in _FEATURES.items() if macro in macros))
    target = Target(name, machine, flags, features, l2=second_cache(name), fma=multiplied(name))
    return _permitted(target) if name == "native" else target


# -------------------------------------------------------------------- building
def contraction(kernels: bool) -> str:
    """Choose whether products and sums may be fused: in kernels only, everything else rounds at every operation."""
    return "-ffp-contract=fast" if kernels else "-ffp-contract=off"


def optimisation(compiler: Compiler, kernels: bool, target: Target | None = None) -> tuple[str, ...]:
    """Choose the optimisation of kernels, which may depend on the target's registers, or of loops.

    What GCC's -O3 adds to its flags unrolls loops completely, two to seven times the time, and goes over the unrolled
    tiles of kernels again, a twelfth of the time: for code that is no faster.
    """
    if compiler.is_clang:
        return ("-O3",)
    if not kernels:
        return GCC_LOOPS
    many = target is not None and ("avx512f" in target.features or target.machine == "aarch64")
    return (*GCC_LOOPS, *GCC_LEFT_OUT, *(GCC_LEFT_OUT_OF_MANY_REGISTERS if many else ()))


def gathers(target: Target, compiler: Compiler) -> tuple[str, ...]:
    """Let GCC read vectors from all over memory where this processor does so at full rate.

    GCC does not where it knows a processor too little: on some that is slow, or what keeps other processes from seeing
    what was read (gather data sampling) makes it slow.
    """
    if target.name != "native" or "avx512f" not in target.features or not processor.gathers_at_full_rate():
        return ()
    return _accepted("-mtune-ctrl=use_gather", compiler)


@cache
def _accepted(flag: str, compiler: Compiler) -> tuple[str, ...]:
    """Return a flag if the compiler knows it: GCC renames such ones, others have none."""
    command = [*compiler.command, flag, "-E", "-x", "c", os.devnull]
    try:
        done = subprocess.run(command, capture_output=True, timeout=10, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return ()
    return () if done.returncode else (flag,)


def source_flags(kernels: bool, vectors: bool = True) -> tuple[str, ...]:
    """List the flags, apart from the target's, of a file that is compiled elsewhere; vectors: for what has some."""
    return (*_level(kernels, vectors), *_LANGUAGE, contraction(kernels))


def _level(kernels: bool, vectors: bool) -> tuple[str, ...]:
    return GCC_LOOPS if vectors else ("-O3",) if kernels else ("-O2",)


def stated_flags(kernels: bool, target: Sequence[str], vectors: bool = True) -> str:
    """Spell the flags of `build` as the head of a file states them to who compiles it elsewhere."""
    others = ("(clang: -O3)",) if vectors else ()
    return " ".join([*_level(kernels, vectors), *others, *_LANGUAGE, *target, contraction(kernels)])


def is_kernels(file: str) -> bool:
    """Tell a file of kernels, which is compiled with flags of its own, by its name."""
    return re.fullmatch(r"(?:\w+_)?kernels_(?:[0-9]+|limits)\.c", file) is not None


def compile_error(code: Code, notes: tuple[str, ...] = (), **facts: object) -> CompileError:
    """Make the error that says this with these facts, about no place in a model."""
    sink = Sink()
    sink.report(code, NOWHERE, notes, **facts)
    return CompileError(sink.diagnostics)
