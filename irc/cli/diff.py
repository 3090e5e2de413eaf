"""`irc diff`: in what two models differ: inputs, nodes, attributes, weights."""

from __future__ import annotations

import click

from irc.cli import console
from irc.diagnostics.json_text import JsonText
from irc.diagnostics.terminal import TerminalText


@click.command(short_help="In what two models differ: nodes, attributes, weights.")
@click.argument("a", metavar="A")
@click.argument("b", metavar="B")
@click.option("--json", "as_json", is_flag=True, help="Print it as JSON.")
def command(a: str, b: str, as_json: bool) -> int:
    """List what differs in the structure of two models: versions, inputs, outputs, nodes, attributes, weights.

    Nodes and weights meet by name.  Models of one format are compared as their files have them; of different
    formats, as irc reads them.  Exit status 1 if there is a difference.  Whether they compute the same: irc compare.
    """
    from irc.comparison.structure import differences

    with console.progress(f"reading {a} and {b}"):
        found, same = differences(a, b)
    rows = [{"kind": d.kind, "name": d.name, "a": d.a, "b": d.b} for d in found]
    if as_json:
        console.out(JsonText({"a": a, "b": b, "same": not found, "differences": rows, "equal": same}, indent=2))
        return 1 if found else 0
    lines = [f"A: {a}", f"B: {b}"]
    for d in found:
        title = f"{d.kind} {d.name}".rstrip()
        if d.a is None or d.b is None:
            lines.append(f"{title}: only in {'B' if d.a is None else 'A'}: {d.b if d.a is None else d.a}")
        else:
            lines.append(f"{title}: {d.a} -> {d.b}")
    equal = ", ".join(console.count(number, kind) for kind, number in same.items() if number)
    lines.append(f"{'the same' if not found else console.count(len(found), 'difference')}; equal: {equal or 'nothing'}")
    console.out(TerminalText.lines(lines))
    return 1 if found else 0
