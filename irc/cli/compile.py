"""`irc compile`: a model to a folder that runs without irc's compiler, or to sources."""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from irc.cli import console

if TYPE_CHECKING:
    from irc.ir.graph import Model
    from irc.runtime.executor import CompiledModel

SOURCES = (".c", ".h", ".py")


@click.command()
@click.argument("model")
@click.option("-o", "--output", metavar="DIR", help="Default: the model's name without its ending.")
@click.option("--backend", type=click.Choice(["c", "numpy"]), help="Default: C where a compiler is found.")
@click.option(
    "--emit",
    type=click.Choice(["c", "numpy", "so", "all"]),
    help="c: C sources without library. numpy: a Python module. so: no sources. all: C sources, library and module.",
)
@click.option("--threads", type=click.IntRange(min=1), default=1, help="Of a run; not kept in the folder.")
@click.option("--target", metavar="CPU", default="native", show_default=True, help="x86-64-v2, x86-64-v3, aarch64 …")
@click.option("--precision", type=click.Choice(["highest", "high", "medium"]), default="highest", show_default=True,
              help="Least precision of f32 products on matrix units: as f32, two bf16 terms, bf16.")
@click.option("--shape", "shapes", metavar="x[1,3,224,224]", multiple=True, help="Fix symbolic dimensions.")
@click.option("--bound", "bounds", metavar="name=N", multiple=True, help="Limit a data-dependent dimension.")
@click.option("--dump-after", metavar="PASS", help="Only print the graph after this pass, as text, and stop.")
@click.option("--profile", is_flag=True, help="With a clock around every function, for `irc profile DIR`.")
@click.option("--weights", type=click.Choice(["file", "embed"]), default="file", show_default=True)
def command(model: str, output: str | None, shapes: tuple[str, ...], bounds: tuple[str, ...], **options: Any) -> int:
    """Compile MODEL into a folder, which `irc run` and `irc.load_compiled` open."""
    backend, emit = _backend(options.pop("backend"), options.pop("emit"))
    options |= {"shapes": console.parse_shapes(shapes), "bounds": console.parse_bounds(bounds)}
    import irc

    dump_after = options.pop("dump_after")
    if dump_after is not None:
        return _dump(model, dump_after, backend, options)
    target = Path(output or Path(model).stem)
    if target.exists() and not target.is_dir():
        raise click.BadParameter(f"{target} is a file; name a folder", param_hint="--output")
    with console.progress(f"reading {model}"):
        loaded = irc.load(model)
    with console.progress(f"compiling {model}"):
        try:
            _emit(loaded, target, backend, emit, options)
        except OSError as e:
            return console.cannot_write(str(target), e)
    for file in sorted(f for f in target.rglob("*") if f.is_file()):
        console.out(str(file))
    return 0


def _dump(path: str, name: str, backend: str | None, options: dict[str, Any]) -> int:
    """Print the graph after a pass."""
    import irc
    from irc import driver
    from irc.ir.text import print_graph

    chosen = driver.CompileOptions(backend, **options)
    known = driver.passes_of(chosen)
    if name not in known:
        raise click.BadParameter(f"{name!r} is no pass; passes are {', '.join(known)}", param_hint="--dump-after")
    graph = driver.graph_after(irc.load(path), name, chosen)
    console.out(print_graph(graph).rstrip())
    return 0


def _backend(backend: str | None, emit: str | None) -> tuple[str | None, str | None]:
    wanted = {"c": "c", "so": "c", "all": "c", "numpy": "numpy"}.get(emit or "", backend)
    if backend and wanted != backend:
        raise click.UsageError(f"--emit {emit} needs --backend {wanted}")
    return wanted, emit


def _emit(model: Model, target: Path, backend: str | None, emit: str | None, options: dict[str, Any]) -> None:
    """Make everything in a folder beside the target, then move it there."""
    target.parent.mkdir(parents=True, exist_ok=True)
    staging = Path(tempfile.mkdtemp(dir=target.parent, prefix=".irc-"))
    try:
        folder = staging / "made"
        if emit == "c":
            _write_sources(model, folder, options)
        else:
            _save(_compile(model, backend, options), folder, SOURCES if emit == "so" else ())
        if emit == "all":
            _save(_compile(model, "numpy", options), folder / "numpy", ())
        _move(folder, target)
    finally:
        shutil.rmtree(staging, ignore_errors=True)


def _compile(model: Model, backend: str | None, options: dict[str, Any]) -> CompiledModel:
    from irc import driver

    return driver.compile(model, driver.CompileOptions(backend=backend, cache=False, **options))


def _write_sources(model: Model, folder: Path, options: dict[str, Any]) -> None:
    """The C without a library: nothing is compiled."""
    from irc import driver
    from irc.runtime.artifact import write_artifact

    write_artifact(folder, driver.sources(model, driver.CompileOptions(backend="c", **options)))


def _save(compiled: CompiledModel, folder: Path, without: tuple[str, ...]) -> None:
    """Write the artefact, less the files with these endings, and a manifest that says so."""
    from irc.runtime.artifact import seal

    compiled.save(folder)
    dropped = [f for f in folder.iterdir() if f.suffix in without]
    if dropped:
        for file in dropped:
            file.unlink()
        names = [n for n in compiled.artifact.files if (folder / n).exists()]
        seal(folder, names, {k: v for k, v in compiled.artifact.manifest.items() if k not in ("format", "files")})


def _move(source: Path, target: Path) -> None:
    """Put a complete folder in place: replaces files of the same names, leaves others alone."""
    target.mkdir(exist_ok=True)
    for file in sorted(source.iterdir(), key=lambda f: f.name == "manifest.json"):
        if file.is_dir():
            _move(file, target / file.name)
        else:
            file.replace(target / file.name)
