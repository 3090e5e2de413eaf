"""From C files to objects and shared libraries: files are compiled several at a time, and linked.

A library appears only when it is complete; an interrupt ends all compilers and what they started.
"""

from __future__ import annotations

import hashlib
import os
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from pathlib import Path
from time import perf_counter

from irc.diagnostics.codes import runtime as codes
from irc.diagnostics.progress import part_took, step, tell
from irc.files import read_regular
from irc.toolchain.c_compiler import (
    COMMON,
    ONLY_KERNELS,
    WITHOUT_KERNELS,
    Compiler,
    Target,
    compile_error,
    contraction,
    gathers,
    is_kernels,
    optimisation,
    require_compiler,
    resolve_target,
    source_flags,
)
from irc.toolchain.presets import PRESETS

C_COMPILER = "C compiler"
"""The step of `irc.diagnostics.progress` in which files are compiled, several at a time."""
NOT_OF_THE_LIBRARY = ("main.c", "irc_rt.c")
"""Files of a folder of C that its library is made without."""
_STDERR_LINES = 12


def library_name(stem: str) -> str:
    """Spell the file name of a shared library on this system."""
    suffix = {"darwin": ".dylib", "win32": ".dll"}.get(sys.platform, ".so")
    return f"{stem}{suffix}"


def _units(folder: Path, source: str) -> list[tuple[str, bool, tuple[str, ...]]]:
    """List what is compiled of a file: (its name, whether kernels, the macros that choose a part)."""
    if is_kernels(source):
        return [(source, True, ())]
    if ONLY_KERNELS in folder.joinpath(source).read_text("utf-8"):
        return [(source, True, (f"-D{ONLY_KERNELS}",)), (source, False, (f"-D{WITHOUT_KERNELS}",))]
    return [(source, False, ())]


def _effort(folder: Path, unit: tuple[str, bool, tuple[str, ...]]) -> tuple[bool, int]:
    """Rank how long the compiler takes for a part of a file: kernels, whose tiles it unrolls, longer than loops."""
    source, kernels, _ = unit
    return kernels, (folder / source).stat().st_size


def build(
    folder: Path,
    files: Sequence[str],
    target: Target | str = "native",
    compiler: Compiler | None = None,
    library: str | None = None,
    extra: Sequence[str] = (),
    graphs: list[str] | None = None,
    others: Mapping[str, Target] | None = None,
) -> Path:
    """Compile C files of `folder` (several at a time) and link them to one shared library in it.

    `files` are names relative to `folder`; those that do not end in .c are left alone.  `library` is the name of
    the result (default: that of the first file that is not kernels); it appears only when it is complete.  `others`
    are targets of files that have another one.
    graphs: gets what GCC writes of calls and frames where `extra` has `irc.toolchain.stack.FLAGS`.
    CompileError IRC6003 carries the end of the compiler's message as notes.
    """
    compiler = compiler or require_compiler()
    folder = folder.resolve()
    target = resolve_target(target, compiler) if isinstance(target, str) else target
    sources = [f for f in files if f.endswith(".c")]
    main = next((f for f in sources if not is_kernels(f) and f not in NOT_OF_THE_LIBRARY), sources[0])
    library = library or library_name(Path(main).stem)
    with tempfile.TemporaryDirectory(prefix=".build-", dir=folder) as scratch:
        units = [unit for f in sources if f not in NOT_OF_THE_LIBRARY for unit in _units(folder, f)]
        objects = [str(Path(scratch, f"{k}.o")) for k in range(len(units))]
        running = _Running()

        def one(unit: tuple[str, bool, tuple[str, ...]], result: str) -> tuple[str, float]:
            source, kernels, part = unit
            began = perf_counter()
            flags = [*COMMON, *(others or {}).get(source, target).flags, *extra]
            of_loops = () if kernels else gathers((others or {}).get(source, target), compiler)
            chosen = [*optimisation(compiler, kernels), *of_loops, *flags, contraction(kernels), *part]
            _run(compiler, [*chosen, "-c", source, "-o", result], source, folder, running)
            return " ".join([source, *part]), perf_counter() - began

        pairs = sorted(zip(units, objects, strict=True), key=lambda pair: _effort(folder, pair[0]), reverse=True)
        with ThreadPoolExecutor(max_workers=os.cpu_count() or 1) as pool:
            try:
                tell(f"{compiler.command[0]}: 0 of {len(units)} files", measure=C_COMPILER)
                begun = [pool.submit(one, *pair) for pair in pairs]  # the longest first: nobody waits for it at the end
                for done, unit in enumerate(as_completed(begun), start=1):
                    part_took(C_COMPILER, *unit.result())
                    tell(f"{compiler.command[0]}: {done} of {len(units)} files", measure=C_COMPILER)
            except BaseException:  # an interrupt, or one file's error: nobody waits for the others
                running.end()
                raise
        if graphs is not None:
            graphs += [path.read_text("utf-8", "replace") for path in sorted(Path(scratch).glob("*.ci"))]
        step("linking")
        made = Path(scratch, library)
        _run(compiler, ["-shared", *target.flags, *extra, *objects, "-o", str(made), "-lm"], library, folder)
        step("finishing")
        return made.replace(folder / library)


def runtime_sources() -> dict[str, str]:
    """Read header and source of the thread pool, by name."""
    here = Path(__file__).resolve().parent.parent / "runtime"
    return {name: (here / name).read_text("utf-8") for name in ("irc_rt.h", "irc_rt.c")}


def compile_units(
    folder: Path, files: Sequence[str], target: Target, compiler: Compiler, extra: Sequence[str] = ()
) -> list[Path]:
    """Compile the C files of `folder` for a target without linking them, as a Makefile of irc does: the objects.

    CompileError like `build`.
    """
    vectors = target.name not in PRESETS or "asimd" in target.features
    units = [unit for f in files if _is_unit(f) for unit in _units(folder, f)]

    def one(unit: tuple[str, bool, tuple[str, ...]], result: str) -> Path:
        source, kernels, part = unit
        flags = [*source_flags(kernels, vectors), *target.flags, *extra, *part]
        _run(compiler, [*flags, "-c", source, "-o", result], source, folder)
        return folder / result

    with ThreadPoolExecutor(max_workers=os.cpu_count() or 1) as pool:
        return list(pool.map(one, units, [f"{k}.o" for k in range(len(units))]))


def _is_unit(file: str) -> bool:
    return file.endswith(".c") and file not in NOT_OF_THE_LIBRARY


def build_runtime(folder: Path, compiler: Compiler | None = None) -> Path:
    """Build the thread pool, a shared library in `folder`, once for each version of source and compiler.

    Its name ends with its own hash: one that was damaged is not taken.
    """
    compiler = compiler or require_compiler()
    here = Path(__file__).resolve().parent.parent / "runtime"
    texts = [text.encode() for text in runtime_sources().values()]
    key = hashlib.sha256(b"\0".join([*texts, str(compiler).encode(), compiler.version.encode()])).hexdigest()[:16]
    for library in folder.glob(library_name(f"irc_rt-{key}-*")):
        if library.stem.endswith(_short_hash(library)):
            return library
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=".build-", dir=folder) as scratch:
        made = Path(scratch, library_name("irc_rt"))
        flags = ["-std=c11", "-O2", "-fPIC", "-shared", "-pthread", "-fvisibility=hidden"]
        _run(compiler, [*flags, str(here / "irc_rt.c"), "-o", str(made)], "irc_rt.c", folder)
        return made.replace(folder / library_name(f"irc_rt-{key}-{_short_hash(made)}"))


def _short_hash(path: Path) -> str:
    return hashlib.sha256(read_regular(path, 1 << 24)).hexdigest()[:16]


class _Running:
    """The compilers that build one library, so that all can be ended."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._processes: set[subprocess.Popen[str]] = set()
        self._ended = False

    def add(self, process: subprocess.Popen[str]) -> None:
        with self._lock:
            self._processes.add(process)
            if self._ended:
                _kill(process)

    def discard(self, process: subprocess.Popen[str]) -> None:
        with self._lock:
            self._processes.discard(process)

    def end(self) -> None:
        with self._lock:
            self._ended = True
            for process in self._processes:
                _kill(process)


def _kill(process: subprocess.Popen[str]) -> None:
    """End a process that leads its own group, and what it started."""
    if process.poll() is None:
        os.killpg(process.pid, signal.SIGKILL)


def _run(compiler: Compiler, arguments: list[str], file: str, folder: Path, running: _Running | None = None) -> None:
    """Run the compiler with a time limit; it and what it started are ended when time is up or on an interrupt."""
    running = running or _Running()
    seconds = float(os.environ.get("IRC_COMPILE_TIMEOUT") or 900)
    command = [*compiler.command, *arguments]
    env = {**os.environ, "LC_ALL": "C"}
    with subprocess.Popen(
        command,
        cwd=folder,
        env=env,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
        start_new_session=True,
    ) as process:
        running.add(process)
        try:
            output, _ = process.communicate(timeout=seconds)
        except subprocess.TimeoutExpired:
            _kill(process)
            process.communicate()
            raise compile_error(codes.COMPILE_TIMEOUT, command=compiler, file=file, seconds=f"{seconds:g}") from None
        except BaseException:
            _kill(process)
            raise
        finally:
            running.discard(process)
    if process.returncode:
        notes = tuple(output.strip().splitlines()[-_STDERR_LINES:])
        raise compile_error(codes.COMPILE_FAILED, notes=notes, command=compiler, file=file, status=process.returncode)
