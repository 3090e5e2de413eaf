"""`irc convert`: a model to the other format, or to another version of its own."""

from __future__ import annotations

import os
import shutil
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from irc.cli import console
from irc.diagnostics.json_text import JsonText
from irc.diagnostics.terminal import TerminalText
from irc.files import rename_all

if TYPE_CHECKING:
    from irc.diagnostics import Sink
    from irc.ir.graph import Model


ENGINES = ("onnxruntime", "openvino", "numpy", "c")
ANY_ENGINE, NO_ENGINE = "any", "none"
"""What `--check` stands for where no engine follows it, and `--no-check`."""


class _EngineMayFollow(click.Command):
    """A command whose `--check` takes the next word only if that is an engine."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Parse the words, with a value for every `--check`."""
        following = [*args[1:], ""]
        alone = {i for i, word in enumerate(args) if word == "--check" and following[i] not in ENGINES}
        return super().parse_args(ctx, [f"--check={ANY_ENGINE}" if i in alone else w for i, w in enumerate(args)])


@click.command(cls=_EngineMayFollow, short_help="Convert a model and compare the results.")
@click.argument("source", metavar="IN")
@click.argument("target", metavar="OUT")
@click.option("--opset", type=click.IntRange(min=1), help="ONNX: the opset to write.")
@click.option("--ir-version", type=click.IntRange(10, 11), help="OpenVINO: the IR version to write.")
@click.option("--max-opset", metavar="opsetN", help="OpenVINO: use no operation newer than this opset.")
@click.option("--for-openvino", metavar="2021.4", help="OpenVINO: write what this release can read.")
@click.option("--inputs", metavar="a,b", help="Write only what follows from these values or layers.")
@click.option("--outputs", metavar="c,d", help="Write only what leads to these values or layers.")
@click.option(
    "--shape", "shapes", metavar="x[n,3,640,640]", multiple=True, help="Sizes of an input: numbers, names, ?."
)
@click.option("--simplify", is_flag=True, help="Compute constants, merge equal operations, leave out what is unused.")
@click.option(
    "--compress-to", type=click.Choice(["f16"]), help="Store the weights in this type; all is computed as before."
)
@click.option("--to", type=click.Choice(["f16", "bf16"]), help="Inputs, outputs, weights and computation in this type.")
@click.option(
    "--check",
    type=click.Choice([*ENGINES, ANY_ENGINE, NO_ENGINE]),
    metavar=f"[{'|'.join(ENGINES)}]",
    default=ANY_ENGINE,
    help="Run both models and compare the results, OUT in this engine.  [default: in irc's NumPy backend, and in the "
    "engine of its format if that is installed]",
)
@click.option("--no-check", "check", flag_value=NO_ENGINE, help="Do not run the models.")
@click.option("--json", "as_json", is_flag=True, help="Print what was written, and the findings, as JSON.")
def command(
    source: str,
    target: str,
    check: str,
    inputs: str | None,
    outputs: str | None,
    shapes: tuple[str, ...],
    simplify: bool,
    compress_to: str | None,
    as_json: bool,
    **options: Any,
) -> int:
    """Convert IN to OUT (.onnx, or .xml with its .bin), and check that both compute the same.

    OUT is written only when everything has succeeded.  --shape may also change sizes that the file fixes.
    """
    changed = console.parse_symbolic_shapes(shapes)
    given = {k: v for k, v in options.items() if v is not None}
    if compress_to is not None:
        given["compress_fp16"] = True
    _check_options(target, given)
    _check_engine(check)
    import irc
    from irc import driver
    from irc.diagnostics import Sink

    sink, checked = Sink(), ""
    with console.progress(f"reading {source}"):
        model = driver.extract(irc.load(source), _names(inputs), _names(outputs))
        model = driver.reshape(model, changed, sink)
    path = Path(os.path.realpath(target) if os.path.islink(target) else target)  # a link stays one
    folder = path.parent
    try:
        staging = Path(tempfile.mkdtemp(dir=folder, prefix=".irc-"))
    except OSError as e:
        return console.cannot_write(target, e)
    try:
        staged = staging / path.name
        with console.progress(f"writing {target}"):
            notes = irc.save(driver.simplify(model) if simplify else model, str(staged), **given)
        for found in notes:
            sink.add(found)
        if check != NO_ENGINE:
            with console.progress("comparing results"):
                engine = None if check == ANY_ENGINE else check
                checked = _compare(model, str(staged), engine, given.get("to") or compress_to, sink)
        console.report(sink.diagnostics)
        if sink.errors:
            _tell([], checked, sink, as_json)
            return 1
        made = publish(staging, folder, last=staged.name)
    except OSError as e:
        return console.cannot_write(target, e)
    finally:
        shutil.rmtree(staging, ignore_errors=True)
    console.note(f"wrote {' and '.join(map(str, made))}")
    _tell(made, checked, sink, as_json)
    return 0


def _tell(made: list[Path], checked: str, sink: Sink, as_json: bool) -> None:
    """Print what was done as JSON, where that is asked for."""
    if as_json:
        from irc.diagnostics.render import as_dict

        said = {"written": list(map(str, made)), "checked": checked, "diagnostics": list(map(as_dict, sink))}
        console.out(JsonText(said, indent=2))


def _check_engine(name: str) -> None:
    """Say before the work that an engine is not there."""
    from irc.comparison import engines

    if name in engines.PEERS:
        engines.imported(name)


def _names(text: str | None) -> list[str] | None:
    return None if text is None else [name.strip() for name in text.split(",") if name.strip()]


def _check_options(target: str, given: dict[str, Any]) -> None:
    """What `irc.save` refuses of its options is wrong usage here, said before anything is read."""
    from irc.conversion import SaveOptions
    from irc.diagnostics import ConversionError

    try:
        SaveOptions(**given).check(target)
    except ConversionError as e:
        raise click.UsageError(TerminalText.lines(f"{d.message} ({d.code})" for d in e.diagnostics)) from e


def _compare(model: Model, written: str, engine: str | None, precision: str | None, sink: Sink) -> str:
    """Report how the results of both models compare; what was compared, where they are the same."""
    from irc.cli.check import same_results
    from irc.diagnostics import Loc
    from irc.diagnostics.codes import command as codes

    outcome = same_results(model, written, engine, precision)
    if outcome.same is None:
        sink.report(codes.NOT_CHECKED, Loc(model.file), reason=outcome.reason)
    elif outcome.same:
        console.note(f"checked: {outcome.reason}")
    else:
        sink.report(codes.CHECK_DIFFERS, Loc(model.file), reason=outcome.reason)
    if outcome.doubt:
        sink.report(codes.ENGINE_DIFFERS, Loc(model.file), engine=outcome.peer, reason=outcome.doubt)
    return outcome.reason if outcome.same else ""


def publish(staging: Path, folder: Path, last: str) -> list[Path]:
    """Move finished files to their place, the one that names the others last; what was written, that one first."""
    files = sorted(staging.iterdir(), key=lambda f: (f.name == last, f.name))
    rename_all([(file, folder / file.name) for file in files])
    return [folder / file.name for file in reversed(files)]
