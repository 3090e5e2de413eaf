"""Expansion of the reductions in an operation's own loops to loops."""

from __future__ import annotations

from irc.fusion.indexing import Ranges
from irc.loops.builder import LoopBuilder
from irc.loops.ir import Assign, For, If, Let, Stmt, Store
from irc.loops.schedule import Scalars
from irc.loops.simplify import has_reduce


def expand(b: LoopBuilder) -> None:
    """Expand reductions in the builder's body in place."""
    b.body[:] = _expanded(b, b.body)


def _expanded(b: LoopBuilder, stmts: list[Stmt]) -> list[Stmt]:
    found: list[Stmt] = []
    with b.inside(found):
        for s in stmts:
            if isinstance(s, For):
                s.body = _expanded(b, s.body)
            elif isinstance(s, If):
                s.cond = Scalars(b, Ranges()).value(s.cond)
                s.then, s.orelse = _expanded(b, s.then), _expanded(b, s.orelse)
            elif isinstance(s, Store | Let | Assign) and has_reduce(s.value):
                s.value = Scalars(b, Ranges()).value(s.value)
            b.add(s)
    return found
