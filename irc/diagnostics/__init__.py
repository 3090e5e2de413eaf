"""Findings with a code, a place in the user's file, the facts and a way out.

`finding` holds what a finding is, `core` what raises and collects them, `codes/` the table of codes by range,
`render` the output formats.
"""

from irc.diagnostics.code import Code
from irc.diagnostics.core import (
    CompileError,
    ConversionError,
    Facts,
    InvalidModel,
    IrcError,
    Problem,
    RunError,
    Sink,
    require,
)
from irc.diagnostics.finding import NOWHERE, Diagnostic, Loc

__all__ = [
    "NOWHERE",
    "Code",
    "CompileError",
    "ConversionError",
    "Diagnostic",
    "Facts",
    "InvalidModel",
    "IrcError",
    "Loc",
    "Problem",
    "RunError",
    "Sink",
    "require",
]
