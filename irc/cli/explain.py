"""`irc explain`: what a code means."""

from __future__ import annotations

import textwrap
from dataclasses import asdict

import click

from irc.cli import console
from irc.diagnostics.json_text import JsonText
from irc.diagnostics.terminal import TerminalText

WIDTH = 80


@click.command(short_help="What a diagnostic means, and how to mend it.")
@click.argument("code", required=False)
@click.option("--json", "as_json", is_flag=True, help="Print it as JSON.")
def command(code: str | None, as_json: bool) -> None:
    """What a diagnostic means, with an example and the fix; without CODE, the list of all codes."""
    from irc.diagnostics.codes import all_codes, find

    if code is None:
        if as_json:
            console.out(JsonText({row.id: asdict(row) for row in all_codes().values()}, indent=2))
            return
        for row in all_codes().values():
            console.out(f"{row.id}  {row.severity:7}  {row.title}")
        return
    row = find(code)
    if row is None:
        raise click.BadParameter(f"there is no code {code}; `irc explain` lists all of them", param_hint="CODE")
    if as_json:
        console.out(JsonText(asdict(row), indent=2))
        return
    lines = [f"{row.id} ({row.severity}): {row.title}", "", *textwrap.wrap(row.why, WIDTH)]
    for label, text in (("Says", row.message), ("Example", row.example), ("Fix", row.fix)):
        lines += ["", f"{label}:"]
        lines += textwrap.wrap(text, WIDTH, initial_indent="  ", subsequent_indent="  ", break_long_words=False)
    console.out(TerminalText.lines(lines))
