"""`Opaque`: an operation irc knows no meaning of, kept so that its own format can be written again."""

from __future__ import annotations

from typing import Any

from irc.ir.types import Type
from irc.opdef.base import Op, op
from irc.opdef.signature import Sig


@op
class Opaque(Op):
    """A layer or node of the file, uninterpreted.

    Its result types are those the file declares.  It can be written in the format it came from, and
    neither converted nor compiled.  `captures` is how many of its operands are values that its
    bodies use from the graph around them.
    """

    format: str
    type: str
    version: int
    domain: str
    types: tuple[Type, ...]
    captures: int = 0
    sig = Sig("*xs?: any -> *ys: any")
    effect = True

    def infer(self, *args: Any) -> list[Type]:
        return list(self.types)

    @property
    def name(self) -> str:
        """A name that no operation of irc has, whatever the file calls this one."""
        return f"{self.domain or self.format}:{self.type}"
