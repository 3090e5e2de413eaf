"""`irc compile`: a model to a folder that runs without irc's compiler, or to sources."""

from __future__ import annotations

import os
import shutil
import tempfile
import time
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from irc.cli import console
from irc.diagnostics.json_text import JsonText
from irc.diagnostics.progress import Timings, timed
from irc.diagnostics.terminal import TerminalText

if TYPE_CHECKING:
    from irc.runtime.artifact import Draft
    from irc.runtime.executor import CompiledModel

SOURCES = (".c", "kernels.h", ".py", "Makefile", "CMakeLists.txt")
"""What the names of files end with that --emit so leaves out; the header of the interface stays."""


@click.command(short_help="Compile a model into a folder that `irc run` opens.")
@click.argument("model")
@click.option("-o", "--output", metavar="DIR", help="Default: the model's name without its ending.")
@click.option("--backend", type=click.Choice(["c", "numpy"]), help="Default: C where a compiler is found.")
@click.option(
    "--emit",
    type=click.Choice(["c", "numpy", "so", "all"]),
    help="c: C sources, no library. numpy: a Python module. so: library and header. all: sources, library, module.",
)
@click.option("--name", metavar="NAME", help="What names in C and of files begin with.  Default: from the file's.")
@click.option("--threads", type=click.IntRange(min=1), default=1, help="Of a run; not kept in the folder.")
@click.option("--target", metavar="CPU", default="native", show_default=True, help="x86-64-v3, v2+v3+v4, plain …")
@click.option(
    "--precision",
    type=click.Choice(["highest", "high", "medium"]),
    default="highest",
    show_default=True,
    help="Least precision of f32 products on matrix units: as f32, two bf16 terms, bf16.",
)
@click.option("--shape", "shapes", metavar="x[1,3,224,224]", multiple=True, help="Fix symbolic dimensions.")
@click.option("--bound", "bounds", metavar="name=N", multiple=True, help="Limit a data-dependent dimension.")
@click.option(
    "--max-memory",
    type=click.IntRange(min=1),
    metavar="BYTES",
    help="Of constants that compiling makes, and of a run.  Default: 256 MB, 64 GB.",
)
@click.option(
    "--max-ram",
    type=click.IntRange(min=1),
    metavar="BYTES",
    help="Of the context in C, beside the stack: gives up threads, copies and kernels for it as needed.",
)
@click.option("--tune", is_flag=True, help="Measure which kernel is the fastest for each product and convolution.")
@click.option("--dump-after", metavar="PASS", help="Only print the graph after this pass, as text, and stop.")
@click.option(
    "--timings",
    type=click.Choice(["text", "json"]),
    is_flag=False,
    flag_value="text",
    help="Say where the time went: each step, each file of the C compiler.  json: instead of the names of the files.",
)
@click.option("--profile", is_flag=True, help="With a clock around every function, for `irc profile DIR`.")
@click.option("--weights", type=click.Choice(["file", "embed"]), default="file", show_default=True)
@click.option("--json", "as_json", is_flag=True, help="Print the files, their size, memory and time as JSON.")
@click.option("--single-file", is_flag=True, help="One .c and one .h: --emit c --weights embed.")
def command(model: str, output: str | None, shapes: tuple[str, ...], bounds: tuple[str, ...], **options: Any) -> int:
    """Compile MODEL into a folder, which `irc run` and `irc.load_compiled` open.

    The artefact is taken from the cache where it has been compiled before.  --tune runs every kernel that fits a
    product or a convolution of known sizes, on one thread or on --threads of them, and keeps the choices in the
    cache folder: from then on everything compiled with that cache, on this processor and for as many threads, follows
    them.  `irc cache clear` forgets them.  Other kernels add in another order: results can differ in the last bits.

    --timings lists the steps that were made, which are few where the artefact was in the cache; files that the C
    compiler works on at the same time are listed below its line, each with the time from its beginning to its end;
    kernels are compiled while the other files are printed, and its line is the time from then on.
    """
    began, timings, as_json = time.perf_counter(), options.pop("timings"), options.pop("as_json")
    options |= _single_file(options.pop("single_file"), options["backend"], options["emit"])
    backend, emit = _backend(options.pop("backend"), options.pop("emit"), options["target"])
    options |= {"shapes": console.parse_shapes(shapes), "bounds": console.parse_bounds(bounds)}
    tune, dump_after = options.pop("tune"), options.pop("dump_after")
    if "+" in options["target"] and (tune or dump_after is not None):
        raise click.UsageError("--tune and --dump-after are of one instruction set, not of several joined by +")
    if dump_after is not None:
        return _dump(model, dump_after, backend, options)
    target = Path(output or Path(model).stem)
    if backend != "numpy" and options["name"] is None:
        options["name"] = _name_of(model)
    if os.path.exists(target) and not os.path.isdir(target):
        raise click.BadParameter(f"{target} is a file; name a folder", param_hint="--output")
    if tune:
        if backend == "numpy" or emit == "c":
            raise click.UsageError("--tune needs a library: neither --backend numpy nor --emit c")
        _tune(model, options)
    with console.progress(f"compiling {model}"), timed() as taken:
        try:
            files, manifest = _emit(model, target, backend, emit, options)
        except OSError as e:
            return console.cannot_write(str(target), e)
    seconds = time.perf_counter() - began
    for file in files if timings != "json" and not as_json else ():
        console.out(str(file))
    if as_json:
        said = {"folder": str(target), "files": {str(f): f.stat().st_size for f in files}, "seconds": seconds}
        said |= {"backend": manifest["backend"], "arena_bytes": manifest.get("arena_bytes")}
        console.out(JsonText(said | ({"timings": _timings(taken, seconds)} if timings else {}), indent=2))
    elif timings == "json":
        console.out(JsonText(_timings(taken, seconds), indent=2))
    elif timings:
        _tell_timings(taken, seconds)
    console.note(_summary(files, manifest, seconds))
    return 0


def _single_file(wanted: bool, backend: str | None, emit: str | None) -> dict[str, Any]:
    """The options that --single-file stands for."""
    if wanted and (backend == "numpy" or emit not in (None, "c")):
        raise click.UsageError("--single-file writes C sources: neither --backend numpy nor another --emit")
    return {"emit": "c", "weights": "embed"} if wanted else {}


def _name_of(path: str) -> str:
    """The name for what is compiled of a file."""
    from irc.backends.c.names import prefix_of_file

    return prefix_of_file(Path(path).stem)


def _timings(taken: Timings, seconds: float) -> dict[str, Any]:
    """Seconds in all, of each step in order, and of the parts of steps; what no step says is `other`."""
    other = {"other": max(0.0, seconds - sum(taken.steps.values()))}
    return {"seconds": seconds, "steps": taken.steps | other, "parts": taken.parts}


def _tell_timings(taken: Timings, seconds: float) -> None:
    """The same, a line for each; parts, which run at the same time, below their step."""
    for name, own in _timings(taken, seconds)["steps"].items():
        console.note(f"{own:8.2f} s {100 * own / seconds:3.0f} %  {name}")
        for part, wall in taken.parts.get(name, {}).items():
            console.note(f"{wall:8.2f} s          {part}")


def _summary(files: Sequence[Path], manifest: dict[str, Any], seconds: float) -> str:
    """A line: what the files take, what memory a run takes, how long it took."""
    from irc.cli.info import size

    total = sum(f.stat().st_size for f in files)
    arena = manifest.get("arena_bytes")
    needed = size(arena) if isinstance(arena, int) else "by the sizes of the inputs"
    memory = "" if arena is None else f", arena {needed}"
    stack = f", stack {size(manifest['stack_bytes'])}" if "stack_bytes" in manifest else ""
    return f"{manifest['backend']}: {size(total)}{memory}{stack}, in {seconds:.1f} s"


def _tune(path: str, options: dict[str, Any]) -> None:
    """Measure the kernels of a model; says which differ from the estimate's choice."""
    import irc
    from irc import driver, tuning
    from irc.runtime import cache

    with console.steps() as tell:
        tell(f"reading {path}")
        found = tuning.tune(irc.load(path), driver.CompileOptions(backend="c", **options), tell=tell)
    for work, name in found.chosen.items():
        times = found.times[work]
        rule = next(iter(times))
        told = f"{times[name] * 1e6:.1f} us instead of {times[rule] * 1e6:.1f} us ({rule})"
        console.note(f"tuned: {work}: {name}, {told}")
    measured = f"{console.count(len(found.times), 'kernel')} measured, {found.known} known before"
    where = cache.root()
    kept = f"kept in {where / 'tuned'}" if where else "not kept: there is no cache folder"
    console.note(f"tuned: {measured}, {len(found.chosen)} differ from the estimate's choice; {kept}")


def _dump(path: str, name: str, backend: str | None, options: dict[str, Any]) -> int:
    """Print the graph after a pass."""
    import irc
    from irc import driver
    from irc.opdef.text import print_graph

    chosen = driver.CompileOptions(backend, **options)
    known = driver.passes_of(chosen)
    if name not in known:
        raise click.BadParameter(f"{name!r} is no pass; passes are {', '.join(known)}", param_hint="--dump-after")
    graph = driver.graph_after(irc.load(path), name, chosen)
    console.out(TerminalText.lines(print_graph(graph).rstrip().split("\n")))
    return 0


def _backend(backend: str | None, emit: str | None, target: str) -> tuple[str | None, str | None]:
    """The backend and what is written: of C sources alone where the target has no libraries."""
    from irc.toolchain.c_compiler import has_libraries

    if emit is None and backend != "numpy" and not has_libraries(target):
        emit = "c"
    wanted = {"c": "c", "so": "c", "all": "c", "numpy": "numpy"}.get(emit or "", backend)
    if backend and wanted != backend:
        raise click.UsageError(f"--emit {emit} needs --backend {wanted}")
    return wanted, emit


def _emit(
    path: str, target: Path, backend: str | None, emit: str | None, options: dict[str, Any]
) -> tuple[list[Path], dict[str, Any]]:
    """Make everything in a folder beside the target, then move it there; the files and the manifest."""
    from irc.runtime.artifact import remove_former
    from irc.runtime.cache import remember_written

    target.parent.mkdir(parents=True, exist_ok=True)
    staging = Path(tempfile.mkdtemp(dir=target.parent, prefix=".irc-"))
    try:
        folder = staging / "made"
        if emit == "c":
            manifest = _write_sources(path, folder, options)
        elif backend != "numpy" and not _runs_here(options["target"]):
            manifest = _write_library(path, folder, SOURCES if emit == "so" else (), options)
        else:
            manifest = _save(_compile(path, backend, options), folder, SOURCES if emit == "so" else ())
        if emit == "all":
            _save(_compile(path, "numpy", options), folder / "numpy", ())
        remove_former(target, keep=[f.name for f in folder.iterdir()])
        files = _move(folder, target)
        for made in [target, *([target / "numpy"] if emit == "all" else [])]:
            remember_written(made)
        return sorted(files), manifest
    finally:
        shutil.rmtree(staging, ignore_errors=True)


def _compile(path: str, backend: str | None, options: dict[str, Any]) -> CompiledModel:
    from irc import driver

    return driver.compile(path, driver.CompileOptions(backend=backend, **options))


def _write_sources(path: str, folder: Path, options: dict[str, Any]) -> dict[str, Any]:
    """The C without a library, in which no choices of kernels that --tune made are followed."""
    from irc import driver
    from irc.runtime.artifact import write_artifact

    draft = driver.sources(driver.load(path), driver.CompileOptions(backend="c", **options))
    noted = replace(draft, finish=partial(_note_stack, draft, options["target"]))
    return write_artifact(folder, noted).manifest


def _note_stack(draft: Draft, name: str, folder: Path) -> list[str]:
    """State the stack of a run in manifest and header if a GCC for the target is there to tell; no further files."""
    from irc.diagnostics import CompileError
    from irc.toolchain import c_compiler, stack

    try:
        compiler = c_compiler.require_compiler(name)
        target = c_compiler.resolve_target(name, compiler)
        if stack.writes_graphs(compiler) and not target.sets:
            graphs = stack.graphs_of_sources(folder, draft.files, target, compiler)
            texts = stack.mentions_in(stack.sources_in(folder))
            stack.note_stack(folder, draft.manifest, graphs, texts, compiler)
    except CompileError:  # it is whoever compiles these files that needs one
        pass
    return []


def _runs_here(target: str) -> bool:
    from irc.toolchain import c_compiler

    return target == "native" or c_compiler.runs_here(c_compiler.target_of_sources(target))


def _write_library(path: str, folder: Path, without: tuple[str, ...], options: dict[str, Any]) -> dict[str, Any]:
    """The C and its library for a processor that this one is not: nothing is loaded."""
    from irc import driver
    from irc.runtime.artifact import write_artifact

    draft = driver.library(driver.load(path), driver.CompileOptions(backend="c", **options))
    made = write_artifact(folder, draft)
    return _without(folder, [*made.files], made.manifest, without)


def _save(compiled: CompiledModel, folder: Path, without: tuple[str, ...]) -> dict[str, Any]:
    """Write the artefact, less the files whose names end so; the manifest."""
    compiled.copy_files(folder)
    return _without(folder, [*compiled.artifact.files], compiled.artifact.manifest, without)


def _without(folder: Path, files: list[str], manifest: dict[str, Any], without: tuple[str, ...]) -> dict[str, Any]:
    """Remove the files whose names end so, and write a manifest that says so; the manifest."""
    from irc.runtime.artifact import seal

    inner = _inner_headers(manifest) if without else []
    dropped = [f for f in folder.iterdir() if f.name.endswith(without) or f.name in inner]
    if dropped:
        for file in dropped:
            file.unlink()
        names = [n for n in files if (folder / n).exists()]
        seal(folder, names, {k: v for k, v in manifest.items() if k not in ("format", "files")}, {})
    return manifest


def _inner_headers(manifest: dict[str, Any]) -> list[str]:
    """List the headers of the code for single instruction sets: who calls the library needs that of the whole."""
    from irc.backends.c.instruction_sets import member_prefix

    sets = manifest["target"]["name"].split("+")
    return [f"{member_prefix(manifest['prefix'], one)}.h" for one in sets] if len(sets) > 1 else []


def _move(source: Path, target: Path) -> list[Path]:
    """Put a complete folder in place: replaces files of the same names, leaves others alone; the files."""
    target.mkdir(exist_ok=True)
    made: list[Path] = []
    for file in sorted(source.iterdir(), key=lambda f: f.name == "manifest.json"):
        if file.is_dir():
            made += _move(file, target / file.name)
        else:
            made.append(file.replace(target / file.name))
    return made
