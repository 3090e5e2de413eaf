"""Equal functions of a program as one C function: the layers of a repeated block differ only in their buffers.

Two functions are equal where their statements are, up to the names of variables and the identity of buffers (types
and shapes count).  The one definition takes the buffers as pointers, and each group of layers is a call of it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from irc.backends.c.function import Signature, Unit, expressions, print_function
from irc.expr import Bin, Bits, Call, Cast, Const, Expr, Load, Select, Size, Un, Var
from irc.loops.ir import Alloc, Assign, Buffer, For, Function, If, KernelCall, Let, Own, Stmt, Store
from irc.traversal import fold

Key = tuple[Any, ...]


@dataclass
class Member:
    """A function with the memory it touches, numbered in the order of its first use."""

    function: Function
    roots: list[Buffer]


def families(functions: Sequence[Function]) -> list[list[Member]]:
    """Group equal functions, each group at the place of its first member."""
    table: dict[Key, int] = {}
    found: dict[Key, list[Member]] = {}
    for f in functions:
        walker = _Walker(table)
        key = (walker.block(f.body), walker.memory())
        found.setdefault(key, []).append(Member(f, list(walker.roots)))
    return list(found.values())


def print_functions(
    unit: Unit, functions: Sequence[Function], aliased: Callable[[Function], set[Buffer]]
) -> tuple[list[Signature], list[Signature]]:
    """Print the definitions. Returns them, and for every function in order how it is called.

    `aliased` gives the buffers of a function that may share memory.
    """
    definitions: list[Signature] = []
    calls: dict[int, Signature] = {}
    for family in families(functions):
        first = family[0]
        may_overlap = {k for m in family for b in aliased(m.function) for k in _places(m.roots, b)}
        overlapping = {first.roots[k] for k in may_overlap}
        titles = _titles(family)
        others = [m.function for m in family[1:]]
        made = print_function(unit, _renamed(family), overlapping, titles, [first.function, *others] if others else [])
        definitions.append(made)
        place = {b: k for k, b in enumerate(first.roots)}
        for m in family:
            calls[id(m.function)] = replace(made, buffers=[m.roots[place[b]] for b in made.buffers])
    return definitions, [calls[id(f)] for f in functions]


def _places(roots: list[Buffer], buffer: Buffer) -> list[int]:
    return [k for k, b in enumerate(roots) if b is buffer]


# ------------------------------------------------------------------------ names
def _renamed(family: list[Member]) -> Function:
    """Return the first function; of several, under the name they have in common."""
    first = family[0].function
    if len(family) == 1:
        return first
    return replace(first, name=common_name([m.function.name for m in family]) or first.name)


def _titles(family: list[Member]) -> dict[Buffer, str]:
    """Name the buffers of a shared function by what their names have in common, or by their role."""
    if len(family) == 1:
        return {}
    first = family[0]
    written = {b.root for b in first.function.writes}
    found: dict[Buffer, str] = {}
    for root, *same in zip(*(m.roots for m in family), strict=True):
        role = "y" if root in written else "w" if root.where == "constant" else "x"
        found[root] = common_name([b.name for b in (root, *same)]) or role
    return found


def common_name(names: Sequence[str]) -> str:
    """Find the common form of names, such as `layer.n.bias` of `layer.0.bias`; empty if more than numbers differ."""
    parts = [re.split(r"(\d+)", name) for name in dict.fromkeys(names)]
    if len({tuple(p[::2]) for p in parts}) != 1:
        return ""
    columns = zip(*parts, strict=True)
    return "".join(column[0] if len(set(column)) == 1 else "n" for column in columns)


# ------------------------------------------------------------------------- keys
class _Walker:
    """Turns a function into a key: equal expressions get equal numbers from `table`."""

    def __init__(self, table: dict[Key, int]) -> None:
        self.table = table
        self.roots: dict[Buffer, int] = {}
        self._vars: dict[str, int] = {}
        self._known: dict[int, int] = {}

    def memory(self) -> Key:
        """Return what the text says about the memory itself: its type and, of locals, its size."""
        return tuple((b.dtype.name, b.where == "local", b.shape if b.where == "local" else ()) for b in self.roots)

    def block(self, stmts: list[Stmt]) -> Key:
        return tuple(self.statement(s) for s in stmts)

    def statement(self, s: Stmt) -> Key:
        match s:
            case For():
                return "for", self.expr(s.extent), self.expr(s.var), s.kind, self.block(s.body)
            case Store():
                return "store", self.buffer(s.buffer), self.exprs(s.index), self.expr(s.value)
            case Let():
                return "let", self.expr(s.value), self.expr(s.var), s.mutable
            case Assign():
                return "assign", self.expr(s.value), self.expr(s.var)
            case Alloc():
                return "alloc", self.buffer(s.buffer), self.own(s.own)
            case If():
                return "if", self.expr(s.cond), self.block(s.then), self.block(s.orelse)
            case KernelCall():
                pointers = tuple(tuple(map(self.buffer, group)) for group in (s.reads, s.writes, s.scratch))
                return "kernel", s.kernel.symbol, pointers, self.exprs(expressions(s)), self.own(s.own)
            case _:
                raise TypeError(f"not a Loop IR statement: {type(s).__name__}")

    def buffer(self, b: Buffer) -> Key:
        return self.roots.setdefault(b.root, len(self.roots)), b.dtype.name, b.shape

    def own(self, own: Own | None) -> Key | None:
        return own and (self.buffer(own.buffer), own.bytes, own.owners, own.at)

    def exprs(self, parts: Sequence[Expr]) -> Key:
        return tuple(map(self.expr, parts))

    def expr(self, e: Expr) -> int:
        return fold(e, lambda x, parts: self.table.setdefault(self._key(x, parts), len(self.table)), self._known)

    def _key(self, e: Expr, parts: tuple[int, ...]) -> Key:
        match e:
            case Const():
                return "const", repr(e.value), e.type.name
            case Var():
                return "var", self._vars.setdefault(e.name, len(self._vars)), e.type.name
            case Size():
                return "size", e.dim
            case Load():
                return "load", self.buffer(e.buffer), parts
            case Bin():
                return "bin", e.op, parts
            case Un():
                return "un", e.op, parts
            case Cast():
                return "cast", e.type.name, parts
            case Bits():
                return "bits", e.type.name, parts
            case Select():
                return "select", parts
            case Call():
                return "call", e.fn, parts
            case _:
                raise TypeError(f"not a Loop IR expression: {type(e).__name__}")
