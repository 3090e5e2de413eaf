"""Hoisting: what every iteration of a loop computes alike is computed in front of it.

A reflecting Pad or the table of a Resize costs divisions and choices for each row; inside a loop over channels they
would keep the compiler from vectorising it.  It also cannot know that what a loop reads is not what it writes.
"""

from __future__ import annotations

from collections.abc import Callable

from irc.expr import Bin, Call, Const, Expr, Load, Select, Var, rebuilt
from irc.ir.types import i8, u8
from irc.loops.builder import LoopBuilder
from irc.loops.ir import Assign, Buffer, For, If, Let, Stmt, Store, walk as statements
from irc.traversal import rewrite, variables, walk

BYTES = (i8, u8)
"""Types whose stores may change what any pointer reads, as C has it."""


def hoist(b: LoopBuilder, reads: bool) -> None:
    """Hoist in the builder's body in place, to the front of inner loops, and of outer ones that store bytes.

    reads: whether what a loop reads may be read even if it runs no iteration, as index functions may.
    """
    body = list[Stmt]()
    for s in b.body:
        if isinstance(s, For):
            s.body = _hoisted(b, s.body, reads)
            if _stores_bytes(s):
                body += _Loop(b, s, reads, {}).run()
        body.append(s)
    b.body[:] = body


def _stores_bytes(loop: For) -> bool:
    """Tell whether a loop stores what C compilers take for any part of memory, so that they read again after it."""
    return any(isinstance(s, Store) and s.buffer.dtype in BYTES for s in statements([loop]))


def _hoisted(b: LoopBuilder, body: list[Stmt], reads: bool) -> list[Stmt]:
    """Hoist within the body of a loop: invariant parts of loops in it go in front of them."""
    found: list[Stmt] = []
    assigned: set[Expr] = {s.var for s in statements(body) if isinstance(s, Assign)}
    named: dict[Expr, Var] = {}
    for s in body:
        if isinstance(s, For):
            s.body = _hoisted(b, s.body, reads)
            loop = _Loop(b, s, reads, named)
            found += loop.run()
            named |= {e: var for e, var in loop.moved.items() if not _changes(e, assigned)}
        elif isinstance(s, If):
            s.then, s.orelse = _hoisted(b, s.then, reads), _hoisted(b, s.orelse, reads)
        found.append(s)
    return found


def _changes(e: Expr, assigned: set[Expr]) -> bool:
    """Tell whether what stands between two loops may change the value of an expression."""
    return any(isinstance(x, Load) or x in assigned for x in walk(e))


class _Loop:
    """One loop: the variables and buffers that change in it, and what was moved in front of it.

    `named` is what was moved in front of earlier loops, and is known still.
    """

    def __init__(self, b: LoopBuilder, loop: For, reads: bool, named: dict[Expr, Var]) -> None:
        self.b, self.loop, self.named = b, loop, named
        self.reads = reads or (isinstance(loop.extent, Const) and loop.extent.value > 0)
        inner = list(statements(loop.body))
        self.changing: set[Expr] = {loop.var}
        self.changing |= {s.var for s in inner if isinstance(s, For | Let | Assign)}
        self.written: set[Buffer] = {s.buffer.root for s in inner if isinstance(s, Store)}
        self.moved: dict[Expr, Var] = {}
        self.front: list[Stmt] = []

    def run(self) -> list[Stmt]:
        """Take the invariant parts out of the loop's own statements. Returns the statements for in front of it."""
        kept: list[Stmt] = []
        for s in self.loop.body:
            if isinstance(s, Let) and not s.mutable and self._stays(s.value):
                self.front.append(s)
                self.changing.discard(s.var)
                continue
            if isinstance(s, Let | Assign):
                s.value = self._without(s.value)
            elif isinstance(s, Store):
                s.index = tuple(self._without(i) for i in s.index)
                s.value = self._without(s.value)
            kept.append(s)
        self.loop.body = kept
        return self.front

    def _without(self, e: Expr) -> Expr:
        def step(x: Expr, sure: bool, go: Callable[[Expr, bool], Expr]) -> Expr:
            return self._named(x) if self._moves(x, sure) else rebuilt(x, self._parts(x, sure, go))

        return rewrite(e, step, True)

    def _parts(self, x: Expr, sure: bool, go: Callable[[Expr, bool], Expr]) -> tuple[Expr, ...]:
        if isinstance(x, Select):
            return go(x.cond, sure), go(x.a, False), go(x.b, False)
        if isinstance(x, Bin) and x.op in ("and", "or"):  # C skips the second operand where the first decides
            return go(x.a, sure), go(x.b, False)
        return tuple(go(c, sure) for c in x.parts)

    def _moves(self, x: Expr, sure: bool) -> bool:
        """Tell whether an expression is worth a name in front of the loop, and may be computed there.

        sure: it is computed whenever the loop's body runs; else it must not read, and not divide by what may be 0.
        """
        if not x.parts or not self._stays(x):
            return False
        parts = list(walk(x))
        divisions = [y for y in parts if isinstance(y, Bin) and y.op in ("floordiv", "mod", "div")]
        reads = any(isinstance(y, Load) for y in parts)
        if not sure and (reads or not all(isinstance(y.b, Const) and y.b.value for y in divisions)):
            return False
        return bool(divisions) or reads or any(isinstance(y, Select | Call) for y in parts)

    def _stays(self, x: Expr) -> bool:
        """Tell whether every iteration computes the same, and computing it is safe without any iteration."""
        return variables(x).isdisjoint(self.changing) and not any(
            isinstance(y, Load) and (not self.reads or y.buffer.root in self.written) for y in walk(x)
        )

    def _named(self, x: Expr) -> Expr:
        if x in self.named:
            return self.named[x]
        if x not in self.moved:
            var = self.moved[x] = self.b.name("k", x.dtype)
            self.front.append(Let(var, x))
        return self.moved[x]
