"""`Code`: one kind of finding."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Severity = Literal["error", "warning", "note"]


@dataclass(frozen=True)
class Code:
    """One kind of finding: a row of the tables in `irc.diagnostics.codes`.

    `message` and `help` are templates filled with the facts of the place (`{name}`).  `why`,
    `example` and `fix` are what `irc explain CODE` prints.
    """

    id: str
    severity: Severity
    title: str
    message: str
    why: str = ""
    example: str = ""
    fix: str = ""
    help: str = ""

    @property
    def number(self) -> int:
        """The number in its id, which is what a compiled model returns for such a finding."""
        return int(self.id.removeprefix("IRC"))
