"""Findings with a code, a place in the user's file, the facts and a way out.

`core` holds the classes, `codes/` the table of codes by range, `render` the output formats.
"""

from irc.diagnostics.core import (
    NOWHERE,
    Code,
    CompileError,
    ConversionError,
    Diagnostic,
    InvalidModel,
    IrcError,
    Loc,
    Problem,
    RunError,
    Sink,
    require,
)

__all__ = [
    "NOWHERE",
    "Code",
    "CompileError",
    "ConversionError",
    "Diagnostic",
    "InvalidModel",
    "IrcError",
    "Loc",
    "Problem",
    "RunError",
    "Sink",
    "require",
]
