"""Which backend compiles a model if nobody says: C where a compiler is found and does it, else NumPy."""

from __future__ import annotations

import os
import warnings
from functools import cache

from irc.diagnostics import Diagnostic
from irc.diagnostics.codes import runtime as codes, runtime_io
from irc.toolchain import c_compiler


@cache
def _tell_numpy() -> None:
    said = runtime_io.NO_COMPILER
    warnings.warn(f"{said.id}: {said.message}; {said.help}", stacklevel=5)


def choose_backend(wanted: str | None) -> str:
    """Choose the backend that nobody named: C where a compiler is found, else NumPy, which is said once a process."""
    if wanted is not None:
        return wanted
    if c_compiler.find_compiler() is not None:
        return "c"
    _tell_numpy()
    return "numpy"


def c_cannot(found: Diagnostic) -> bool:
    """Tell whether a finding is about C code (IRC5xxx) or its compiler (IRC6001..6004), so that NumPy may do better.

    What $CC names is wanted, and no other backend if it does not work.
    """
    if found.code == codes.COMPILER_UNUSABLE.id and os.environ.get("CC", "").strip():
        return False
    return found.code.startswith("IRC5") or "IRC6001" <= found.code <= "IRC6004"
