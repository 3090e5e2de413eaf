"""`irc compare`: whether two models, or one model in two backends, give the same results."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Union

import click

from irc.cli import console, feeds
from irc.diagnostics.json_text import JsonText
from irc.diagnostics.terminal import TerminalText

if TYPE_CHECKING:
    from irc.comparison.side import Side
    from irc.runtime.executor import CompiledModel
    from irc.runtime.ports import Port

Runnable = Union["CompiledModel", "Side"]
"""A model in any engine."""


@click.command(short_help="Whether two models give the same results.")
@click.argument("a", metavar="A")
@click.argument("b", metavar="[B]", required=False)
@click.option(
    "--engines",
    "--backends",
    "backends",
    metavar="c,numpy",
    help="Of A and of B, or two of one model: c, numpy, onnxruntime, openvino.  [default: c, with --layers numpy]",
)
@click.option("--layers", is_flag=True, help="Name the first tensor that differs, and its layers on both sides.")
@click.option("--input", "inputs", metavar="x=FILE.npy|FILE.npz|random", multiple=True, help="Repeat for each input.")
@click.option(
    "--tolerance",
    type=click.FloatRange(min=0),
    metavar="T",
    help="Largest difference allowed, relative to the largest magnitude of the output.  [default: 1e-4; 2e-2 where "
    "the elements have 16 bits or fewer]",
)
@click.option("--threads", type=click.IntRange(min=1), default=1, show_default=True)
@click.option("--shape", "shapes", metavar="x[1,3,224,224]", multiple=True, help="Fix symbolic dimensions.")
@click.option("--json", "as_json", is_flag=True, help="Print it as JSON.")
def command(
    a: str,
    b: str | None,
    backends: str | None,
    layers: bool,
    inputs: tuple[str, ...],
    tolerance: float | None,
    threads: int,
    shapes: tuple[str, ...],
    as_json: bool,
) -> int:
    """Run two models (files, or folders that `irc compile` wrote) on the same inputs and compare their outputs.

    Inputs and outputs meet by name, or by position where the names differ.  Inputs that are not given are random
    (seeded).  Where one model takes f32 and the other f16, say, both get the same numbers, those of f16.  Exit
    status 1 if a type, a shape or a value differs by more than the tolerance.

    --layers looks for the origin of a difference: a few tensors a run, which both files call by one name.
    """
    chosen = _backends(backends, b)
    fixed = console.parse_shapes(shapes)
    if layers:
        return _by_layers((a, a if b is None else b), chosen, inputs, tolerance, threads, fixed, as_json)
    first = _open(a, chosen[0], threads, fixed)
    second = _open(a if b is None else b, chosen[1], threads, fixed)
    arrays, at_random = feeds.gather(first.inputs, feeds.parse_inputs(inputs))
    found = _rows(first, second, arrays, tolerance)
    names = [f"{path} ({model.backend})" for path, model in ((a, first), (b or a, second))]
    same = all(row["same"] for row in found)
    said = {"a": names[0], "b": names[1], "random_inputs": at_random, "same": same, "outputs": found}
    console.out(JsonText(said, indent=2) if as_json else _text(said))
    return 0 if same else 1


def _backends(text: str | None, b: str | None) -> Sequence[str | None]:
    if text is None:
        if b is None:
            raise click.UsageError("name a second model, or two engines: --engines c,numpy")
        return None, None
    from irc.comparison.engines import ENGINES

    found = [name.strip() for name in text.split(",")]
    if len(found) != 2 or not set(found) <= set(ENGINES):
        raise click.BadParameter(f"{text!r} is not two of {', '.join(ENGINES)}", param_hint="--engines")
    return found


def _open(model: str, backend: str | None, threads: int, shapes: dict[str, tuple[int, ...]]) -> Runnable:
    import irc
    from irc.comparison.engines import PEERS
    from irc.comparison.side import Side

    if console.is_folder(model):
        if backend or shapes:
            raise click.UsageError(f"--engines and --shape are fixed in a compiled folder: {model}")
        return irc.load_compiled(model, threads=threads)
    if backend in PEERS:
        side = Side(model, backend, threads, shapes)
        console.report(side.notes.diagnostics)
        return side
    with console.progress(f"compiling {model}"):
        return irc.compile(model, backend=backend, threads=threads, shapes=shapes or None)


def _counts(what: str, a: Sequence[Port], b: Sequence[Port]) -> str:
    names = [", ".join(p.name for p in ports) or "none" for ports in (a, b)]
    return f"A has {console.count(len(a), what)} and B {len(b)} ({names[0]}; {names[1]})"


def _by_layers(
    files: Sequence[str],
    engines: Sequence[str | None],
    inputs: tuple[str, ...],
    tolerance: float | None,
    threads: int,
    shapes: dict[str, tuple[int, ...]],
    as_json: bool,
) -> int:
    """Compare two model files layer by layer, and say where they part."""
    from irc.cli import layer_report
    from irc.comparison.layers import compare_layers
    from irc.comparison.side import Side

    for file in files:
        if console.is_folder(file):
            raise click.UsageError(f"--layers needs the model's file: {file} is a compiled folder")
    sides = [Side(file, engine or "numpy", threads, shapes) for file, engine in zip(files, engines, strict=True)]
    console.report([note for side in sides for note in side.notes])
    arrays, at_random = feeds.gather(sides[0].inputs, feeds.parse_inputs(inputs))
    with console.progress("comparing layers"):
        found = compare_layers(sides[0], sides[1], list(arrays.values()), tolerance)
    names = [f"{file} ({side.backend})" for file, side in zip(files, sides, strict=True)]
    said = {"a": names[0], "b": names[1], "random_inputs": at_random, "same": found.first is None}
    said |= layer_report.said_of(found, *sides)
    console.out(JsonText(said, indent=2) if as_json else layer_report.text(said, names))
    return 0 if found.first is None else 1


# ---------------------------------------------------------------------------- differences
def _rows(a: Runnable, b: Runnable, arrays: dict[str, Any], tolerance: float | None) -> list[dict[str, Any]]:
    """What is said of each output on these inputs of A; one row without a name where the models do not fit."""
    from irc.comparison.measures import for_both
    from irc.comparison.side import paired_ports

    inputs, outputs = paired_ports(a.inputs, b.inputs), paired_ports(a.outputs, b.outputs)
    if inputs is None or outputs is None:
        counts = _counts("input", a.inputs, b.inputs) if inputs is None else _counts("output", a.outputs, b.outputs)
        return [{"name": "", "same": False, "reason": counts}]
    given: list[dict[str, Any]] = [{}, {}]
    for i, k in inputs:
        x, y = a.inputs[i], b.inputs[k]
        given[0][x.name], given[1][y.name] = for_both(arrays[x.name], x.dtype, y.dtype)
    with console.progress("running both"):
        results = [list(a(given[0])), list(b(given[1]))]
    return [_row(a.outputs[i].name, results[0][i], results[1][k], tolerance) for i, k in outputs]


def _row(name: str, a: Any, b: Any, tolerance: float | None) -> dict[str, Any]:
    """What is said of an output; `reason` where it differs."""
    from irc.arrays import is_array
    from irc.comparison.measures import NARROW, RELATIVE, as_float, difference

    row: dict[str, Any] = {"name": name, "same": False, "reason": ""}
    if not is_array(a) or not is_array(b):
        row["relative"] = _number(difference(a, b))
        allowed = RELATIVE if tolerance is None else tolerance
    else:
        row |= {"dtype": str(a.dtype), "shape": list(a.shape)}
        width = min(a.dtype.itemsize, b.dtype.itemsize)
        if a.dtype != b.dtype and as_float(b, a).dtype == a.dtype:
            row["dtype"] = f"{a.dtype} and {b.dtype}"
            b = as_float(b, a)
        if a.dtype != b.dtype or a.shape != b.shape:
            types = [feeds.describe(x.dtype, x.shape) for x in (a, b)]
            return row | {"reason": f"{types[0]} and {types[1]}"}
        allowed = (NARROW if width <= 2 else RELATIVE) if tolerance is None else tolerance
        row |= {"relative": _number(difference(a, b, exact_integers=tolerance is None)), **_largest(a, b)}
    row["tolerance"] = allowed
    row["same"] = row["relative"] is not None and row["relative"] <= allowed
    if not row["same"]:
        row["reason"] = "not within the tolerance"
    return row


def _number(value: float) -> float | None:
    """JSON has no infinity: None stands for what no number says."""
    return value if value != float("inf") else None


def _largest(a: Any, b: Any) -> dict[str, Any]:
    """The largest absolute difference of numbers, where it is, and how many elements differ at all."""
    from irc.comparison.measures import measure

    found = measure(a, b)
    if a.dtype.kind in "OUS" or not a.size:
        return {"different": found.different}
    return {
        "absolute": _number(found.absolute),
        "at": list(found.at),
        "different": found.different,
        "elements": found.elements,
    }


def _text(said: dict[str, Any]) -> TerminalText:
    lines = [f"A: {said['a']}", f"B: {said['b']}"]
    if said["random_inputs"]:
        lines.append(f"random inputs: {', '.join(said['random_inputs'])}")
    for row in said["outputs"]:
        parts = [f"{'same     ' if row['same'] else 'DIFFERENT'}  {row['name']}"]
        if "dtype" in row:
            parts.append(f"{row['dtype']}[{','.join(map(str, row['shape']))}]")
        if "relative" in row:
            parts.append(f"relative {_said(row['relative'])} of {row['tolerance']:g} allowed")
        if "absolute" in row:
            at = f" at [{','.join(map(str, row['at']))}]" if row["absolute"] != 0 else ""
            parts.append(f"absolute {_said(row['absolute'])}{at}")
            parts.append(f"{row['different']} of {row['elements']} elements differ")
        lines.append("  ".join([*parts, *([row["reason"]] if row["reason"] else [])]))
    return TerminalText.lines(lines)


def _said(value: float | None) -> str:
    return "infinite" if value is None else f"{value:.3g}"
