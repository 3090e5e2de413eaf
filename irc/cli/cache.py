"""`irc cache`: the artefacts kept from earlier compilations."""

from __future__ import annotations

import click

from irc.cli import console
from irc.diagnostics.json_text import JsonText


@click.group(short_help="How full the cache of compiled models is, and emptying it.")
def command() -> None:
    """The cache of compiled models: $IRC_CACHE_DIR, else irc in the XDG cache folder."""


@command.command()
@click.option("--json", "as_json", is_flag=True, help="Print it as JSON.")
def info(as_json: bool) -> None:
    """Where the cache is and how full."""
    from irc.cli.info import size
    from irc.runtime import cache

    found = cache.info()
    if as_json:
        said = {"path": str(found.path), "entries": found.entries, "bytes": found.bytes, "limit": found.limit}
        console.out(JsonText(said, indent=2))
    else:
        held = console.count(found.entries, "artefact")
        console.out(f"{found.path}: {held}, {size(found.bytes)} of at most {size(found.limit)}")


@command.command()
@click.option("--json", "as_json", is_flag=True, help="Print it as JSON.")
def clear(as_json: bool) -> None:
    """Remove every artefact."""
    from irc.runtime import cache

    if as_json:
        console.out(JsonText({"removed": cache.clear()}, indent=2))
        return
    console.out(f"removed {console.count(cache.clear(), 'artefact')}")
