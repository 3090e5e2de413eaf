"""Run-time errors: each is a RunError with a diagnostic, and the built-in exception that fits."""

from __future__ import annotations

from irc.diagnostics.core import Code, Diagnostic, Loc, RunError, fill


class InputTypeError(RunError, TypeError):
    """An array of the wrong element type, or a value of the wrong kind."""


class InputValueError(RunError, ValueError):
    """A wrong number of arrays, a wrong name or a wrong shape."""


class OutOfMemory(RunError, MemoryError):
    """Memory for the sizes of a call that cannot be had."""


def failure(code: Code, kind: type[RunError] = RunError, /, where: str = "", **facts: object) -> RunError:
    """Make the error to raise for one finding; `where` is its place in the model."""
    place = Loc(where=where)
    found = Diagnostic(code.id, code.severity, fill(code.message, facts), place, (), fill(code.help, facts))
    return kind([found])
