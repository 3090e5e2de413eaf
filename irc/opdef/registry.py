"""Every operation by name: canonical, and as the formats spell it.  `irc.opdef.base.op` puts them in."""

from __future__ import annotations

import importlib
import pkgutil
from functools import cache
from typing import TYPE_CHECKING

from irc.diagnostics import Problem
from irc.diagnostics.codes import internal

if TYPE_CHECKING:
    from irc.opdef.base import Op
    from irc.opdef.forms import Form

OPS: dict[str, type[Op]] = {}
"""Every operation by its canonical name."""

FORMS: dict[tuple[str, str, str], list[tuple[Form, type[Op]]]] = {}
"""(format, domain, lower-case name in the file) → its rows, oldest first."""


@cache
def load_all() -> None:
    """Import every family file of `irc.ops`, which registers its operations."""
    package = importlib.import_module("irc.ops")  # found, not imported: nothing here depends on an operation
    for info in pkgutil.iter_modules(package.__path__):
        importlib.import_module(f"{package.__name__}.{info.name}")


def forms_of(format: str, domain: str, name: str) -> list[tuple[Form, type[Op]]]:
    """The rows of a name in a format, oldest first; empty if the name is unknown."""
    load_all()
    return FORMS.get((format, domain, name.lower()), [])


def form_at(format: str, domain: str, name: str, opset: int) -> tuple[Form, type[Op]] | None:
    """The row that applies in that opset: the greatest `since <= opset`."""
    rows = [r for r in forms_of(format, domain, name) if r[0].since <= opset]
    return rows[-1] if rows else None


def find_op(name: str) -> type[Op]:
    """The operation of that canonical name; Problem IRC9001 if there is none."""
    load_all()
    if name not in OPS:
        raise Problem(internal.NO_SUCH_OP, op=name)
    return OPS[name]
