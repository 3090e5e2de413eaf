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
from concurrent.futures import Future, ThreadPoolExecutor, as_completed
from pathlib import Path
from time import perf_counter

from irc.diagnostics.codes import runtime as codes
from irc.diagnostics.progress import part_took, step, tell
from irc.files import read_regular
from irc.garbage_collection import collect_youngest
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
Unit = tuple[str, bool, tuple[str, ...]]
"""What is compiled of a file: its name, whether kernels, the macros that choose a part."""
_STDERR_LINES = 12


def library_name(stem: str) -> str:
    """Spell the file name of a shared library on this system."""
    suffix = {"darwin": ".dylib", "win32": ".dll"}.get(sys.platform, ".so")
    return f"{stem}{suffix}"


def _units(folder: Path, source: str) -> list[Unit]:
    """List what is compiled of a file."""
    if is_kernels(source):
        return [(source, True, ())]
    if ONLY_KERNELS in folder.joinpath(source).read_text("utf-8"):
        return [(source, True, (f"-D{ONLY_KERNELS}",)), (source, False, (f"-D{WITHOUT_KERNELS}",))]
    return [(source, False, ())]


def _effort(folder: Path, unit: Unit) -> tuple[bool, int]:
    """Rank how long the compiler takes for a part of a file: kernels, whose tiles it unrolls, longer than loops."""
    source, kernels, _ = unit
    return kernels, (folder / source).stat().st_size


class Compilation:
    """The compiling of the files of one library, several at a time: of some, before the others are written.

    `extra` are flags for each file.
    """

    def __init__(self, target: Target, compiler: Compiler, extra: Sequence[str] = ()) -> None:
        self.target, self.compiler, self.extra = target, compiler, extra
        self._scratch = tempfile.TemporaryDirectory(prefix="irc-build-")
        self._pool = ThreadPoolExecutor(max_workers=os.cpu_count() or 1)
        self._running = _Running()
        self._begun: dict[Future[tuple[str, float]], Path] = {}
        self._files: set[str] = set()

    @property
    def scratch(self) -> Path:
        """The folder of what the compilers write."""
        return Path(self._scratch.name)

    def begin_texts(self, files: Mapping[str, str]) -> None:
        """Compile files that stand in no folder yet, and what they include."""
        for name, text in files.items():
            self.scratch.joinpath(name).write_text(text, "utf-8")
        self.begin(self.scratch, [*files])

    def begin(self, folder: Path, files: Sequence[str], others: Mapping[str, Target] | None = None) -> None:
        """Compile the C files of `folder` among these, the longest first, but those that are being compiled.

        `others` are targets of files that have another one.
        """
        sources = [f for f in files if _is_unit(f) and f not in self._files]
        units = [unit for f in sources for unit in _units(folder, f)]
        for unit in sorted(units, key=lambda unit: _effort(folder, unit), reverse=True):
            made = self.scratch / f"{len(self._begun)}.o"
            target = (others or {}).get(unit[0], self.target)
            self._begun[self._pool.submit(self._compile, folder, unit, target, made)] = made
        self._files |= {*sources}

    def _compile(self, folder: Path, unit: Unit, target: Target, made: Path) -> tuple[str, float]:
        source, kernels, part = unit
        began, compiler = perf_counter(), self.compiler
        of_loops = () if kernels else gathers(target, compiler)
        flags = [*optimisation(compiler, kernels, target), *of_loops, *COMMON, *target.flags, *self.extra]
        arguments = [*flags, contraction(kernels), *part, "-c", source, "-o", str(made)]
        _run(compiler, arguments, source, folder, self._running)
        return " ".join([source, *part]), perf_counter() - began

    def objects(self) -> list[str]:
        """Wait for the objects. Returns their paths; CompileError IRC6003 of the first file that has an error."""
        name, count = self.compiler.command[0], len(self._begun)
        tell(f"{name}: 0 of {count} files", measure=C_COMPILER)
        for done, unit in enumerate(as_completed(self._begun), start=1):
            part_took(C_COMPILER, *unit.result())
            tell(f"{name}: {done} of {count} files", measure=C_COMPILER)
            if done == count - 1:  # one compiler is left: another core has nothing to do
                collect_youngest()
        return [str(made) for made in self._begun.values()]

    def end(self) -> None:
        """End the compilers, and remove what they made."""
        self._running.end()
        self._pool.shutdown(cancel_futures=True)
        self._scratch.cleanup()


def build(
    folder: Path,
    files: Sequence[str],
    target: Target | str = "native",
    compiler: Compiler | None = None,
    library: str | None = None,
    extra: Sequence[str] = (),
) -> Path:
    """Compile C files of `folder` and link them to one shared library in it, as `build_with` does."""
    compiler = compiler or require_compiler()
    target = resolve_target(target, compiler) if isinstance(target, str) else target
    return build_with(Compilation(target, compiler, extra), folder, files, library)


def build_with(
    compilation: Compilation,
    folder: Path,
    files: Sequence[str],
    library: str | None = None,
    graphs: list[str] | None = None,
    others: Mapping[str, Target] | None = None,
) -> Path:
    """Compile C files of `folder`, those that are not being compiled yet, and link all to one shared library in it.

    `files` are names relative to `folder`; those that do not end in .c are left alone.  `library` is the name of
    the result (default: that of the first file that is not kernels); it appears only when it is complete.
    `others` are targets of files that have another one.
    graphs: gets what GCC writes of calls and frames where the compilation has `irc.toolchain.stack.FLAGS`.
    CompileError IRC6003 carries the end of the compiler's message as notes.  The compilation is ended.
    """
    compiler = compilation.compiler
    folder = folder.resolve()
    sources = [f for f in files if f.endswith(".c")]
    main = next((f for f in sources if _is_unit(f) and not is_kernels(f)), sources[0])
    library = library or library_name(Path(main).stem)
    try:
        compilation.begin(folder, files, others)
        objects = compilation.objects()
        if graphs is not None:
            graphs += [path.read_text("utf-8", "replace") for path in sorted(compilation.scratch.glob("*.ci"))]
        step("linking")
        with tempfile.TemporaryDirectory(prefix=".build-", dir=folder) as scratch:
            made = Path(scratch, library)
            flags = ["-shared", *compilation.target.flags, *compilation.extra]
            _run(compiler, [*flags, *objects, "-o", str(made), "-lm"], library, folder)
            step("finishing")
            return made.replace(folder / library)
    finally:  # also of an interrupt, or of one file's error: nobody waits for the others
        compilation.end()


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

    def one(unit: Unit, result: str) -> Path:
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
