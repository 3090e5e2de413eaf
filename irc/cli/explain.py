"""`irc explain`: what a code means."""

from __future__ import annotations

import textwrap

import click

from irc.cli import console
from irc.diagnostics.terminal import TerminalText


@click.command(short_help="What a diagnostic means, and how to mend it.")
@click.argument("code", required=False)
def command(code: str | None) -> None:
    """What a diagnostic means, with an example and the fix; without CODE, the list of all codes."""
    from irc.diagnostics.codes import all_codes, find

    if code is None:
        for row in all_codes().values():
            console.out(f"{row.id}  {row.severity:7}  {row.title}")
        return
    row = find(code)
    if row is None:
        raise click.BadParameter(f"there is no code {code}; `irc explain` lists all of them", param_hint="CODE")
    lines = [f"{row.id} ({row.severity}): {row.title}", "", *textwrap.wrap(row.why, 100)]
    for label, text in (("Says", row.message), ("Example", row.example), ("Fix", row.fix)):
        lines += ["", f"{label}:"]
        lines += textwrap.wrap(text, 100, initial_indent="  ", subsequent_indent="  ", break_long_words=False)
    console.out(TerminalText.lines(lines))
