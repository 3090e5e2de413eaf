"""`irc validate`: every finding about models."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable
from dataclasses import replace

import click

from irc.cli import console
from irc.diagnostics.core import Diagnostic


@click.command(short_help="Check models and list every finding.")
@click.argument("models", metavar="MODEL...", nargs=-1, required=True)
@click.option("--format", type=click.Choice(["text", "json", "sarif", "github"]), default="text", show_default=True)
@click.option("--json", "as_json", is_flag=True, help="The same as --format json.")
@click.option("--strict", is_flag=True, help="Warnings are errors.")
@click.option("--quiet", is_flag=True, help="Text: only of models with errors, and no summaries.")
@click.option("--select", metavar="CODES", multiple=True, help="Only these: IRC3201, or IRC32 for all that begin so.")
@click.option("--ignore", metavar="CODES", multiple=True, help="Not these; crashes of irc are always told.")
def command(
    models: tuple[str, ...],
    format: str,
    as_json: bool,
    strict: bool,
    quiet: bool,
    select: tuple[str, ...],
    ignore: tuple[str, ...],
) -> int:
    """Check models and list every finding; fails if any of them is an error.

    Codes are separated by commas, and may be written without IRC.  What is left out decides nothing: a model all of
    whose errors are ignored is called valid, although no other command reads it.
    """
    from irc.diagnostics.render import RENDERERS, render_text

    wanted, unwanted = _codes(select, "--select"), _codes(ignore, "--ignore")
    format = "json" if as_json else format
    found: list[Diagnostic] = []
    for model in models:
        with console.progress(f"checking {model}"):
            ours = [_strict(d) if strict else d for d in _validate(model) if _asked(d, wanted, unwanted)]
        found += ours
        if format == "text" and not (quiet and not console.status_of(ours)):
            if ours:
                console.out(render_text(ours, console.wants_colour(sys.stdout), console.width_of(sys.stdout)))
            if not quiet:
                console.out(f"{model}: {_summary(ours)}")
    if format != "text" and (found or format != "github"):
        console.out(RENDERERS[format](found))
    return console.status_of(found)


def _codes(texts: Iterable[str], option: str) -> tuple[str, ...]:
    """Beginnings of codes; BadParameter for one that no code begins with."""
    from irc.diagnostics.codes import all_codes

    begin = tuple(part.strip().upper() for text in texts for part in text.split(",") if part.strip())
    begin = tuple(b if b.startswith("IRC") else f"IRC{b}" for b in begin)
    for one in begin:
        if not re.fullmatch(r"IRC\d{0,4}", one) or not any(code.startswith(one) for code in all_codes()):
            raise click.BadParameter(f"there is no code {one}; `irc explain` lists all of them", param_hint=option)
    return begin


def _asked(d: Diagnostic, wanted: tuple[str, ...], unwanted: tuple[str, ...]) -> bool:
    chosen = (not wanted or d.code.startswith(wanted)) and not (unwanted and d.code.startswith(unwanted))
    return chosen or d.code.startswith("IRC9")


def _strict(d: Diagnostic) -> Diagnostic:
    return replace(d, severity="error") if d.severity == "warning" else d


def _validate(model: str) -> list[Diagnostic]:
    import irc

    try:
        return list(irc.validate(model))
    except Exception as e:  # the other models are still checked
        return [console.crash(e, model)]


def _summary(found: list[Diagnostic]) -> str:
    from irc.diagnostics.render import summary

    return f"{'invalid' if console.status_of(found) else 'valid'}, {summary(found)}"
