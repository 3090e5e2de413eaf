"""`irc validate`: every finding about models."""

from __future__ import annotations

import sys

import click

from irc.cli import console
from irc.diagnostics.core import Diagnostic


@click.command(short_help="Check models and list every finding.")
@click.argument("models", metavar="MODEL...", nargs=-1, required=True)
@click.option("--format", type=click.Choice(["text", "json", "sarif", "github"]), default="text", show_default=True)
def command(models: tuple[str, ...], format: str) -> int:
    """Check models and list every finding; fails if any of them is an error."""
    from irc.diagnostics.render import RENDERERS, render_text

    found: list[Diagnostic] = []
    for model in models:
        with console.progress(f"checking {model}"):
            ours = _validate(model)
        found += ours
        if format == "text":
            if ours:
                console.out(render_text(ours, console.wants_colour(sys.stdout), console.width_of(sys.stdout)))
            console.out(f"{model}: {_summary(ours)}")
    if format != "text" and (found or format != "github"):
        console.out(RENDERERS[format](found))
    return console.status_of(found)


def _validate(model: str) -> list[Diagnostic]:
    import irc

    try:
        return list(irc.validate(model))
    except Exception as e:  # the other models are still checked
        return [console.crash(e, model)]


def _summary(found: list[Diagnostic]) -> str:
    from irc.diagnostics.render import summary

    return f"{'invalid' if console.status_of(found) else 'valid'}, {summary(found)}"
