"""`irc draw`: the graph of a model as a picture."""

from __future__ import annotations

from pathlib import Path

import click

from irc.cli import console
from irc.diagnostics.json_text import JsonText
from irc.files import replacing


@click.command(short_help="The graph of a model as an SVG picture.")
@click.argument("model")
@click.option("-o", "--output", metavar="FILE.svg", help="[default: the model's name with .svg]")
@click.option("--shape", "shapes", metavar="x[1,3,224,224]", multiple=True, help="Change the shapes of inputs.")
@click.option("--json", "as_json", is_flag=True, help="Print the file's name and what is in it as JSON.")
def command(model: str, output: str | None, shapes: tuple[str, ...], as_json: bool) -> int:
    """Draw the operations of a model as the file has them, constants left out; names and types appear under the mouse.

    For a large model, `irc explore` writes a page in which one can search and fold.
    """
    import irc
    from irc import driver
    from irc.diagnostics import Sink
    from irc.ir.pictures.picture import of_graph
    from irc.ir.pictures.svg import svg

    notes = Sink()
    loaded = driver.reshape(irc.load(model), console.parse_shapes(shapes), notes)
    console.report(notes.diagnostics)
    path = Path(output or f"{Path(model).stem}.svg")
    if path.suffix.lower() != ".svg" and not path.is_dir():
        raise click.BadParameter(f"{path}: the picture is an SVG; name it {path.stem}.svg", param_hint="--output")
    try:
        with replacing(path) as file:
            file.write(svg(of_graph(loaded.graph)).encode())
    except OSError as e:
        return console.cannot_write(str(path), e)
    if as_json:
        console.out(JsonText({"file": str(path), "operations": len(loaded.graph)}))
    else:
        console.note(f"wrote {path}: {len(loaded.graph)} operations")
    return 0
