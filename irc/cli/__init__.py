"""The command line: one module per verb, each with a click command named `command`.

Exit status: 0 done (warnings allowed) · 1 the model, conversion or toolchain failed, with diagnostics ·
2 wrong usage, also where only the model shows it · 3 a bug of irc (IRC9xxx).  Modules of verbs import what
they need inside their functions, so that `irc --help` and `irc validate` start fast.
"""

from __future__ import annotations

import errno
import importlib
import os
import sys
import warnings
from collections.abc import Sequence
from typing import Any

import click

from irc.cli import console
from irc.diagnostics.core import IrcError

NO_SPACE = (errno.ENOSPC, errno.EDQUOT, errno.EROFS)
"""Errors of the system that say nothing about irc, wherever they happen."""
VERBS = (
    "compile",
    "run",
    "validate",
    "convert",
    "info",
    "ops",
    "diff",
    "explain",
    "bench",
    "profile",
    "compare",
    "cache",
    "completion",
    "explore",
    "draw",
)


class _Verbs(click.Group):
    """Imports a verb's module when that verb is asked for."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(VERBS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in VERBS:
            return None
        return importlib.import_module(f"irc.cli.{cmd_name}").command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        name = args[0]
        if name not in VERBS and not name.startswith("-"):
            import difflib

            near = difflib.get_close_matches(name, VERBS, 1)
            advice = f"did you mean {near[0]}?" if near else f"commands are {', '.join(VERBS)}"
            ctx.fail(f"no such command {name!r}; {advice}")
        return super().resolve_command(ctx, args)


@click.group(cls=_Verbs, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.version_option(package_name="irc-compiler", prog_name="irc")
def commands() -> None:
    """Read, check, convert, compile and run OpenVINO IR (.xml + .bin) and ONNX models.

    Exit status: 0 done · 1 the model, conversion or toolchain failed · 2 wrong usage · 3 a bug of irc.
    """


def _warning(message: Warning | str, category: type[Warning], *_: Any) -> None:
    """What irc warns of is meant for users: one line, without the place in irc's source."""
    ours = issubclass(category, UserWarning | RuntimeWarning)
    console.note(f"note: {message}" if ours else f"{category.__name__}: {message}")


def main(args: Sequence[str] | None = None) -> int:
    """Run a command line; the exit status."""
    try:
        with warnings.catch_warnings():
            warnings.showwarning = _warning
            given = None if args is None else list(args)
            status: Any = commands.main(args=given, prog_name="irc", standalone_mode=False)
        console.flush()
        return status if isinstance(status, int) else 0
    except click.ClickException as e:
        console.wrong_usage(e)
        return 2
    except (click.Abort, KeyboardInterrupt):
        return 130
    except BrokenPipeError:  # the reader of our output has gone; nothing more can be said to it
        return _without_output()
    except IrcError as e:
        console.report(e.diagnostics)
        return console.status_of(e.diagnostics) or 1
    except Exception as e:
        if isinstance(e, OSError) and (e.filename == console.STDOUT or e.errno in NO_SPACE):
            status = console.cannot_write(str(e.filename or "a temporary file"), e)
            return _without_output() if e.filename == console.STDOUT else status
        console.report([console.crash(e)])
        return 3


def _without_output() -> int:
    """The exit status where stdout takes nothing more: what is still kept for it must not fail again at the end."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return 1
