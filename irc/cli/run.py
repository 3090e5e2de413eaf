"""`irc run`: a model, or a compiled one, on arrays from files."""

from __future__ import annotations

from typing import Any

import click

from irc.cli import console, feeds
from irc.diagnostics.json_text import JsonText

LINE = 66
"""Characters of predictions in a line."""


@click.command(short_help="Run a model or a compiled folder.")
@click.argument("model", metavar="MODEL|DIR")
@click.option("--input", "inputs", metavar="x=FILE.npy|FILE.npz|random", multiple=True, help="Repeat for each input.")
@click.option("--output", metavar="DIR|FILE.npz|FILE.npy", help="Where to write the outputs.")
@click.option("--backend", type=click.Choice(["c", "numpy"]), help="Default: C where a compiler is found.")
@click.option("--threads", type=click.IntRange(min=1), default=1, show_default=True)
@click.option("--shape", "shapes", metavar="x[1,3,224,224]", multiple=True, help="Fix symbolic dimensions.")
@click.option("--max-memory", type=click.IntRange(min=1), metavar="BYTES", help="As of `irc compile`.")
@click.option(
    "--labels",
    metavar="NAME|FILE.npy",
    help="Show the predicted class beside these numbers: an array of a .npz that is given, or a file.",
)
@click.option("--json", "as_json", is_flag=True, help="Print the summary as JSON.")
def command(
    model: str,
    inputs: tuple[str, ...],
    output: str | None,
    backend: str | None,
    threads: int,
    shapes: tuple[str, ...],
    max_memory: int | None,
    labels: str | None,
    as_json: bool,
) -> int:
    """Run a model or a compiled folder; inputs that are not given are random (seeded).

    --labels holds a classifier against what is known: the predicted class is where the largest element of the first
    output's last axis is.
    """
    sources, fixed = feeds.parse_inputs(inputs), console.parse_shapes(shapes)
    if output == "":
        raise click.BadParameter("name a folder, or a file that ends in .npz or .npy", param_hint="--output")
    compiled = _open(model, backend, threads, fixed, max_memory)
    arrays, at_random = feeds.gather(compiled.inputs, sources)
    for name in at_random:
        given = arrays[name]
        said = "absent" if given is None else f"random {feeds.describe(given.dtype, given.shape)}"
        console.note(f"input {name}: {said}")
    with console.progress(f"running {model}"):
        results = compiled(arrays)
    named = list(zip([o.name for o in compiled.outputs], results, strict=True))
    summaries = [feeds.summarise(name, value) for name, value in named]
    predicted = feeds.predictions(named, feeds.labels(labels, sources)) if labels is not None else None
    if as_json:
        console.out(JsonText({"outputs": summaries, **({"labels": predicted} if predicted else {})}, indent=2))
    else:
        for said, (_, value) in zip(summaries, named, strict=True):
            console.out(_line(said, value))
        for line in _beside(predicted) if predicted else ():
            console.out(line)
    if not output:
        return 0
    try:
        written = feeds.save(output, named)
    except OSError as e:
        return console.cannot_write(output, e)
    for file in written:
        console.note(f"wrote {file}")
    return 0


def _open(
    model: str, backend: str | None, threads: int, shapes: dict[str, tuple[int, ...]], max_memory: int | None
) -> Any:
    import irc

    if console.is_folder(model):
        if backend or shapes or max_memory:
            given = "--backend, --shape and --max-memory"
            raise click.UsageError(f"{given} are fixed in a compiled folder; give them to `irc compile`")
        return irc.load_compiled(model, threads=threads)
    with console.progress(f"compiling {model}"):
        return irc.compile(model, backend=backend, threads=threads, shapes=shapes or None, max_memory=max_memory)


def _beside(found: dict[str, Any]) -> list[str]:
    """The first predictions above their labels, and how many are right."""
    pairs = list(zip(found["predicted"], found["expected"], strict=True))
    widths = [max(len(str(a)), len(str(b))) for a, b in pairs]
    fit = next((n for n in range(len(pairs)) if sum(w + 1 for w in widths[: n + 1]) > LINE), len(pairs))
    rows = [" ".join(f"{pair[k]:>{w}}" for pair, w in zip(pairs[:fit], widths, strict=False)) for k in (0, 1)]
    more = " …" if fit < len(pairs) else ""
    share = f" ({100 * found['right'] / found['of']:.1f} %)" if found["of"] else ""
    return [
        f"predicted  {rows[0]}{more}",
        f"labels     {rows[1]}{more}",
        f"{found['right']} of {found['of']} are right{share}",
    ]


def _line(said: dict[str, Any], value: Any) -> str:
    if "dtype" not in said:
        return f"{said['name']}: {said['kind']} of {said['length']}"
    text = f"{said['name']}: {feeds.describe(value.dtype, said['shape'])}"
    if "min" in said:
        text += f"  min {said['min']:.6g}  max {said['max']:.6g}  mean {said['mean']:.6g}"
    if said.get("nonfinite"):
        text += f"  {said['nonfinite']} not finite"
    first = ", ".join(str(x) for x in value.reshape(-1)[:4])
    return f"{text}  [{first}{', …' if value.size > 4 else ''}]"
