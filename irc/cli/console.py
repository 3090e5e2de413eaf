"""What all verbs do alike: findings and progress to stderr, options that name shapes and inputs."""

from __future__ import annotations

import os
import re
import shutil
import sys
import traceback
from collections.abc import Callable, Generator, Iterable, Sequence
from contextlib import contextmanager, suppress
from typing import TextIO

import click

from irc.diagnostics.codes import internal, runtime, runtime_io
from irc.diagnostics.core import Diagnostic, Loc, fill
from irc.diagnostics.progress import told_to
from irc.diagnostics.terminal import TerminalText

STDOUT = "standard output"
"""What messages call it, in place of a file's name."""
CONTINUED = "    "
"""Before what goes on of a line that a terminal is too narrow for."""
WRONG_USAGE = frozenset(
    code.id
    for code in (
        runtime.UNKNOWN_TARGET,
        runtime_io.UNKNOWN_INPUT,
        runtime_io.BAD_OPTION,
        runtime_io.BAD_SHAPE_OPTION,
        runtime_io.UNKNOWN_BOUND,
        runtime_io.OPTION_OF_OTHER_FORMAT,
    )
)
"""Findings about options, some of which only the model shows to be wrong."""


def wants_colour(stream: TextIO | None) -> bool:
    """Only on a terminal, and never with NO_COLOR."""
    terminal = stream is not None and stream.isatty()
    return terminal and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"


def width_of(stream: TextIO | None) -> int | None:
    """The columns of a terminal; None where the stream is none, so that nothing breaks lines for it."""
    return shutil.get_terminal_size().columns if stream is not None and stream.isatty() else None


def report(found: Sequence[Diagnostic]) -> None:
    """Findings as text to stderr."""
    from irc.diagnostics.render import render_text

    if found:
        note(render_text(found, color=wants_colour(sys.stderr), width=width_of(sys.stderr)))


def write(text: str, stream: TextIO | None) -> None:
    """A line, in what the stream's encoding can say; nothing where the stream is closed.  Raises OSError.

    Only a TerminalText can be several lines, or coloured: of any other text all that is no letter is shown escaped.
    """
    if stream is None:
        return
    encoding = stream.encoding or "utf-8"
    width = width_of(stream)
    said = TerminalText(text)
    if width is not None and "\x1b" not in said:
        said = TerminalText.lines(part for line in said.split("\n") for part in fitted(line, width))
    print(said.encode(encoding, "backslashreplace").decode(encoding), file=stream)


def fitted(line: str, width: int) -> list[str]:
    """A line in parts that fit, broken between words and nowhere else; later parts are indented."""
    found = [""]
    for piece in re.findall(r"\s*\S+|\s+$", line) if len(line) > width else [line]:
        if len(found[-1] + piece) > width and found[-1].strip() and piece[:1].isspace():
            found.append(CONTINUED)
            piece = piece.lstrip()
        found[-1] += piece
    return found


def out(text: str = "") -> None:
    """A line of the result, as `write` does.  Raises OSError, with the name of the stream."""
    try:
        write(text, sys.stdout)
    except OSError as e:
        e.filename = STDOUT
        raise


def flush() -> None:
    """See that what was printed has been taken.  Raises OSError like `out`."""
    stream: TextIO | None = sys.stdout
    try:
        if stream is not None:
            stream.flush()
    except OSError as e:
        e.filename = STDOUT
        raise


def note(text: str) -> None:
    """A line beside the result; that nobody can read it makes nothing fail."""
    with suppress(OSError):
        write(text, sys.stderr)


def wrong_usage(error: click.ClickException) -> None:
    """Say what is wrong with a command line, as click does; of a group without a command, what it has."""
    lines: list[str] = []
    if isinstance(error, click.exceptions.NoArgsIsHelpError):
        note(TerminalText.lines(error.ctx.get_help().split("\n")))
        return
    context = error.ctx if isinstance(error, click.UsageError) else None
    if context is not None:
        lines += context.get_usage().split("\n")
        if context.command.get_help_option(context) is not None:
            lines.append(f"Try '{context.command_path} {context.help_option_names[0]}' for help.")
        lines.append("")
    several = isinstance(error.message, TerminalText)
    message = error.format_message()
    first, *rest = message.split("\n") if several else [message]
    note(TerminalText.lines([*lines, f"Error: {first}", *rest]))


def crash(error: BaseException, file: str = "") -> Diagnostic:
    """The finding for an exception nobody expected; its traceback is printed with IRC_TRACEBACK=1.

    KeyboardInterrupt: it was one, see `irc.__main__`.
    """
    if isinstance(error.__cause__, KeyboardInterrupt):
        raise error.__cause__
    if os.environ.get("IRC_TRACEBACK") == "1":
        traceback.print_exception(error)
    code = internal.CRASH
    what = f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
    notes = () if os.environ.get("IRC_TRACEBACK") == "1" else ("IRC_TRACEBACK=1 prints where it happened",)
    return Diagnostic(code.id, code.severity, fill(code.message, {"what": what}), Loc(file), notes, code.help)


def cannot_write(target: str, error: OSError) -> int:
    """Report a file or folder that cannot be written (IRC4903); the exit status."""
    from irc.diagnostics.codes import command as codes

    facts = {"path": target, "reason": error.strerror or str(error)}
    code = codes.CANNOT_WRITE
    report([Diagnostic(code.id, code.severity, fill(code.message, facts), Loc(), (), fill(code.help, facts))])
    return 1


def is_folder(path: str) -> bool:
    """Whether a model is a compiled folder; not what cannot be looked at, which reading it then explains."""
    return os.path.isdir(path)


def count(number: int, what: str) -> str:
    """`1 artefact`, `2 artefacts`"""
    return f"{number} {what}" if number == 1 else f"{number} {what}s"


def status_of(found: Iterable[Diagnostic]) -> int:
    """The exit status that findings mean."""
    errors = [d for d in found if d.severity == "error"]
    if any(d.code.startswith("IRC9") for d in errors):
        return 3
    return 0 if not errors else 2 if all(d.code in WRONG_USAGE for d in errors) else 1


@contextmanager
def progress(text: str) -> Generator[None]:
    """Says on a terminal what is going on, for as long as it does, and which step of it."""
    with steps() as tell, told_to(lambda step: tell(f"{text}: {step}")):
        tell(text)
        yield


@contextmanager
def steps() -> Generator[Callable[[str], None]]:
    """A function that says on a terminal what is going on, until it is called again or the block ends."""
    if not wants_colour(sys.stderr):
        yield lambda text: None
        return
    from rich.console import Console
    from rich.text import Text

    with Console(stderr=True).status("") as status:
        yield lambda text: status.update(Text(TerminalText(text)))  # no markup: texts name files


# ----------------------------------------------------------------------------- options
_BRACKETS = re.compile(r"\s*(?P<name>[^\[\],][^\[\]]*?)\s*\[(?P<dims>[^\[\]]*)\]\s*(?:,|$)")


Entry = int | str | None
"""An entry of a shape: a number, a name, or None for `?`: as it is."""


def parse_shapes(texts: Iterable[str]) -> dict[str, tuple[int, ...]]:
    """`x[1,3,224,224]` (several with commas between) or `x:1,3,224,224`, to shapes by input name."""
    found: dict[str, tuple[int, ...]] = {}
    for text in texts:
        for name, entries in _shapes(text):
            found[name] = tuple(e for e in entries if isinstance(e, int))
            if len(found[name]) != len(entries):
                raise _not_a_shape(text)
    return found


def parse_symbolic_shapes(texts: Iterable[str]) -> dict[str, tuple[Entry, ...]]:
    """The same, where an entry may also be a name, `x[n,3,h,w]`, or `?` for a size that stays as it is."""
    return {name: entries for text in texts for name, entries in _shapes(text)}


def _shapes(text: str) -> list[tuple[str, tuple[Entry, ...]]]:
    return _brackets(text) if "[" in text else [_colon(text)]


def _brackets(text: str) -> list[tuple[str, tuple[Entry, ...]]]:
    found: list[tuple[str, tuple[Entry, ...]]] = []
    at = 0
    while at < len(text):
        match = _BRACKETS.match(text, at)
        if not match:
            raise _not_a_shape(text)
        found.append((match["name"], _dims(text, match["dims"])))
        at = match.end()
    return found


def _colon(text: str) -> tuple[str, tuple[Entry, ...]]:
    name, colon, dims = text.rpartition(":")
    if not colon or not name:
        raise _not_a_shape(text)
    return name, _dims(text, dims)


def _dims(text: str, dims: str) -> tuple[Entry, ...]:
    parts = [p.strip() for p in dims.split(",")] if dims.strip() else []
    if not all(re.fullmatch(r"\d+|[A-Za-z_]\w*|\?", p, re.ASCII) for p in parts):
        raise _not_a_shape(text)
    return tuple(int(p) if p.isdigit() else None if p == "?" else p for p in parts)


def _not_a_shape(text: str) -> click.UsageError:
    return click.BadParameter(f"{text!r} is not a shape; write x[1,3,224,224] or x:1,3,224,224", param_hint="--shape")


def parse_bounds(texts: Iterable[str]) -> dict[str, int]:
    """`name=N` to bounds by name."""
    found: dict[str, int] = {}
    for text in texts:
        name, _, number = text.rpartition("=")
        if not name or not re.fullmatch(r"\d+", number, re.ASCII):
            raise click.BadParameter(f"{text!r} is not a bound; write name=N", param_hint="--bound")
        found[name] = int(number)
    return found
