"""Equal functions of a program as one C function: the layers of a repeated block differ only in their buffers.

Two functions are equal where their statements are, up to the names of variables, the identity of buffers (types
and shapes count), and the numbers that are added, subtracted, multiplied or divided, such as the scales and zero points
of quantized layers.  The one definition takes the buffers as pointers and the numbers that differ as they are, and each
group of layers is a call of it.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from irc.backends.c.expr import NEAREST_QUOTIENT, constant
from irc.backends.c.function import Signature, Unit, print_function
from irc.expr import Bin, Bits, Call, Cast, Const, Expr, Load, Select, Size, Un, Var
from irc.loops.ir import Alloc, Assign, Buffer, For, Function, If, KernelCall, Let, Own, Stmt, Store, expressions, walk
from irc.traversal import fold, replaced, walk as walk_expression

Key = tuple[Any, ...]


@dataclass
class Member:
    """A function with the memory it touches and the numbers that others may have instead, in the order of first use."""

    function: Function
    roots: list[Buffer]
    numbers: list[Const]


def families(functions: Sequence[Function]) -> list[list[Member]]:
    """Group equal functions, each group at the place of its first member."""
    table: dict[Key, int] = {}
    found: dict[Key, list[Member]] = {}
    for f in functions:
        walker = _Walker(table, _numbers(f))
        key = (walker.block(f.body), walker.memory())
        found.setdefault(key, []).append(Member(f, list(walker.roots), walker.numbers))
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
        groups = [first.function, *others] if others else []
        given = _given(family)
        function, numbers = _taking(_renamed(family), {id(first.numbers[k]): v for k, v in given.items()})
        made = print_function(unit, function, overlapping, titles, groups, numbers)
        definitions.append(made)
        place = {b: k for k, b in enumerate(first.roots)}
        of_number = {v.name: k for k, v in given.items()}
        for m in family:
            values = [m.numbers[of_number[v.name]] for v in numbers]
            texts = [constant(c.value, c.type)[0] for c in values]
            calls[id(m.function)] = replace(made, buffers=[m.roots[place[b]] for b in made.buffers], numbers=texts)
    return definitions, [calls[id(f)] for f in functions]


def _places(roots: list[Buffer], buffer: Buffer) -> list[int]:
    return [k for k, b in enumerate(roots) if b is buffer]


# ---------------------------------------------------------------------- numbers
def _numbers(function: Function) -> set[int]:
    """Find the numbers, by `id`, whose C is the same as that of a variable."""
    found: set[int] = set()
    fixed: set[int] = set()
    for e in (e for s in walk(function.body) for e in expressions(s)):
        fixed.add(id(e))
        for x in walk_expression(e):
            for part in x.parts:
                if isinstance(part, Const):
                    (found if _is_plain(x, part) else fixed).add(id(part))
    return found - fixed


def _is_plain(e: Expr, number: Const) -> bool:
    """Tell whether an operation takes any number like this one: by 1 functions are recognised."""
    kinds = {"f32": ("add", "sub", "mul", "div"), "i32": ("add", "sub")}
    plain = isinstance(e, Bin) and e.op in kinds.get(number.type.name, ())
    plain = plain or (isinstance(e, Call) and e.fn == NEAREST_QUOTIENT)
    return plain and math.isfinite(number.value) and number.value != 1


def _given(family: list[Member]) -> dict[int, Var]:
    """Name the numbers that are not the same in all members; the same name where they are equal in each."""
    found: dict[int, Var] = {}
    names: dict[Key, Var] = {}
    for k, same in enumerate(zip(*(m.numbers for m in family), strict=True)):
        values = tuple(repr(c.value) for c in same)
        if len(set(values)) > 1:
            key = (same[0].type.name, values)
            found[k] = names.setdefault(key, Var(f"number?{len(names)}", same[0].type))
    return found


def _taking(function: Function, given: Mapping[int, Var]) -> tuple[Function, list[Var]]:
    """Put variables in the place of numbers, by the `id` of these; return the variables, too."""

    def expr(e: Expr) -> Expr:
        return replaced(e, lambda x: given.get(id(x)))

    def block(stmts: list[Stmt]) -> list[Stmt]:
        return [statement(s) for s in stmts]

    def statement(s: Stmt) -> Stmt:
        match s:
            case For():
                return replace(s, body=block(s.body))
            case If():
                return replace(s, cond=expr(s.cond), then=block(s.then), orelse=block(s.orelse))
            case Store() | Let() | Assign():
                return replace(s, value=expr(s.value))
            case _:
                return s

    if not given:
        return function, []
    return replace(function, body=block(function.body)), list(dict.fromkeys(given.values()))


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

    def __init__(self, table: dict[Key, int], plain: set[int]) -> None:
        self.table, self.plain = table, plain
        self.numbers: list[Const] = []
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
                return "kernel", s.kernel.symbol, pointers, self.exprs(expressions(s)), self.own(s.own), s.alone
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
            case Const() if id(e) in self.plain:
                self.numbers.append(e)
                return "number", len(self.numbers), e.type.name
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
