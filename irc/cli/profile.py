"""`irc profile`: where the time of a run goes, by layer and by kernel, beside what the machine can do."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from irc.cli import console, feeds
from irc.diagnostics.json_text import JsonText
from irc.files import replacing

if TYPE_CHECKING:
    from irc.cli.profile_report import Report
    from irc.runtime.executor import CompiledModel
    from irc.runtime.limits import Limits
    from irc.runtime.profiling import Profile

SECONDS = 1.0
STREAMED = 128 << 20
"""Bytes that a step surely reads from memory."""


@click.command(short_help="Time by layer and by kernel.")
@click.argument("model", metavar="MODEL|DIR")
@click.option("--threads", type=click.IntRange(min=1), default=1, show_default=True)
@click.option("--input", "inputs", metavar="x=FILE.npy|FILE.npz|random", multiple=True, help="Repeat for each input.")
@click.option("--backend", type=click.Choice(["c", "numpy"]), help="Default: C where a compiler is found.")
@click.option("--target", metavar="CPU", default="native", show_default=True, help="x86-64-v2, x86-64-v3, aarch64 …")
@click.option("--precision", type=click.Choice(["highest", "high", "medium"]), default="highest", show_default=True)
@click.option("--shape", "shapes", metavar="x[1,3,224,224]", multiple=True, help="Fix symbolic dimensions.")
@click.option("--top", type=click.IntRange(min=1), default=25, show_default=True, help="Rows of each table.")
@click.option("--json", "as_json", is_flag=True, help="Print everything as JSON.")
@click.option("--trace", metavar="FILE.json", help="Write one run as a trace for chrome://tracing or Perfetto.")
@click.option("--html", metavar="FILE.html", help="Write a page with a picture of the run and the tables.")
@click.option("--measure-limits", is_flag=True, help="Measure the machine again; else once, kept with the cache.")
def command(
    model: str,
    threads: int,
    inputs: tuple[str, ...],
    shapes: tuple[str, ...],
    top: int,
    as_json: bool,
    trace: str | None,
    html: str | None,
    measure_limits: bool,
    **options: Any,
) -> int:
    """Time every function of a compiled model: a group of layers each.

    MODEL is compiled for it, with a clock around every function; DIR is one that `irc compile --profile` wrote.
    Times are means of the faster half of all runs, and add up. GFLOP/s count the operations of a layer's definition,
    a multiply-add as two; in brackets, what the processor executes for them where that differs (fewer in Winograd's
    convolution, more in products of bf16 terms). "% of FMA" is of the fewer of both, so that only matrix units exceed
    100. GB/s count the tensors that a function reads and writes, which may lie in caches.
    """
    from irc.cli import profile_report
    from irc.cli.bench import irc_engine
    from irc.runtime import profiling
    from irc.runtime.limits import limits

    compiled = _open(model, threads, console.parse_shapes(shapes), options)
    arrays, _ = feeds.gather(compiled.inputs, feeds.parse_inputs(inputs))
    dims = compiled.symbol_values(arrays)
    with console.progress("measuring the machine"):
        most = limits(threads, measure_limits)
    with console.progress(f"running {model}"):
        found = profiling.measure(compiled, irc_engine(compiled, arrays).run, dims, SECONDS)
        if most and beyond(found, most):  # the machine was busy when its limits were measured
            most = limits(threads, True, most)
    given = feeds.described(arrays)
    report = profile_report.Report(model, compiled.backend, threads, given, found, most)
    console.out(JsonText(report.as_json(), indent=2) if as_json else report.as_text(top))
    return _write(report, trace, html)


def beyond(found: Profile, most: Limits) -> bool:
    """Whether a step without terms to multiply, or one over tensors larger than caches, was faster than the limits."""
    timed = [s for s in found.steps if s.seconds]
    flops = [s.executed / s.seconds for s in timed if s.flops and s.executed and s.executed <= s.flops]
    moved = [s.bytes / s.seconds for s in timed if s.bytes and s.bytes >= STREAMED]
    return max(flops, default=0.0) > most.flops or max(moved, default=0.0) > most.bandwidth


def _open(model: str, threads: int, shapes: dict[str, tuple[int, ...]], options: dict[str, Any]) -> CompiledModel:
    """The model with its clock."""
    from click.core import ParameterSource

    from irc import driver

    if not console.is_folder(model):
        with console.progress(f"compiling {model}"):
            chosen = driver.CompileOptions(threads=threads, shapes={**shapes}, profile=True, **options)
            return driver.compile(model, chosen)
    context = click.get_current_context()
    if shapes or any(context.get_parameter_source(n) is not ParameterSource.DEFAULT for n in options):
        raise click.UsageError("a compiled folder has its backend, target, precision and shapes already")
    from irc.runtime.executor import load_compiled

    compiled = load_compiled(model, threads)
    if "profile" not in compiled.artifact.manifest:
        from irc.diagnostics import Loc, Sink
        from irc.diagnostics.codes import command as codes
        from irc.diagnostics.core import IrcError

        sink = Sink()
        sink.report(codes.NO_CLOCK, Loc(model))
        raise IrcError(sink.diagnostics)
    return compiled


def _write(report: Report, trace: str | None, html: str | None) -> int:
    from irc.cli.profile_page import page

    made = ((trace, lambda: JsonText(report.as_trace())), (html, lambda: page(report)))
    for target, text in made:
        if target is None:
            continue
        try:
            with replacing(target) as file:
                file.write(text().encode())
        except OSError as e:
            return console.cannot_write(target, e)
        console.note(f"wrote {target}")
    return 0
