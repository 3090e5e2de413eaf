"""`irc explore`: a model, and what irc makes of it, as a page."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from irc.cli import console, feeds
from irc.diagnostics.json_text import JsonText
from irc.files import replacing

if TYPE_CHECKING:
    from irc.runtime.limits import Limits
    from irc.runtime.profiling import Profile


@click.command(short_help="A model, passes, loops and C as one page.")
@click.argument("model")
@click.option("-o", "--output", metavar="FILE.html", help="[default: the model's name with .html]")
@click.option("--profile", is_flag=True, help="Compile and time it: each function's time and share of the limit.")
@click.option("--threads", type=click.IntRange(min=1), default=1, show_default=True, help="Of --profile.")
@click.option("--target", metavar="CPU", default="native", show_default=True, help="x86-64-v2, x86-64-v3, aarch64 …")
@click.option("--precision", type=click.Choice(["highest", "high", "medium"]), default="highest", show_default=True)
@click.option("--shape", "shapes", metavar="x[1,3,224,224]", multiple=True, help="Fix symbolic dimensions.")
@click.option("--json", "as_json", is_flag=True, help="Print the file's name and what is in it as JSON.")
def command(
    model: str, output: str | None, profile: bool, threads: int, shapes: tuple[str, ...], as_json: bool, **options: Any
) -> int:
    """Write one HTML file that shows the graph as read and after each pass, the functions that its layers become, their
    loops and C side by side.

    Hovering lights up what belongs together. The page loads nothing and holds no weights; any browser opens it.
    """
    import irc
    from irc import driver
    from irc.explore.page import page
    from irc.explore.recording import record

    chosen = driver.CompileOptions("c", threads, shapes={**console.parse_shapes(shapes)}, **options)
    loaded = irc.load(model)
    with console.progress(f"compiling {model}"):
        found = record(loaded, chosen)
    measured = _measured(model, chosen) if profile else (None, None)
    path = Path(output or f"{Path(model).stem}.html")
    try:
        with replacing(path) as file:
            file.write(page(found, *measured).encode())
    except OSError as e:
        return console.cannot_write(str(path), e)
    if as_json:
        console.out(JsonText({"file": str(path), "stages": len(found.stages), "functions": len(found.steps)}))
    else:
        console.note(f"wrote {path}: {len(found.stages)} stages, {len(found.steps)} functions")
    return 0


def _measured(model: str, options: Any) -> tuple[Profile, Limits | None]:
    """Time the functions of the model on random inputs, and the machine."""
    from dataclasses import replace

    from irc import driver
    from irc.cli.bench import irc_engine
    from irc.runtime import profiling
    from irc.runtime.limits import limits

    compiled = driver.compile(model, replace(options, profile=True))
    arrays, _ = feeds.gather(compiled.inputs, {})
    with console.progress(f"running {model}"):
        timed = profiling.measure(compiled, irc_engine(compiled, arrays).run, compiled.symbol_values(arrays), 1.0)
    return timed, limits(options.threads)
