"""What is left of a specialised function: computations that nothing reads fall away; short functions stand where they
are called.  What may raise by itself (a check of the operands) or writes into an operand stays."""

from __future__ import annotations

import ast
import builtins
import copy
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from irc.backends.numpy.functions import Function

MUTATORS = frozenset(
    {
        *("append", "extend", "insert", "pop", "update", "add", "discard", "remove", "sort", "reverse", "setdefault"),
        *("clear", "fill", "put", "partition", "resize", "set_state"),
    }
)
"""Methods that change their object."""
WRITERS = frozenset({"put_along_axis", "copyto", "at", "put", "place", "putmask"})
"""Functions of NumPy that write into their first argument."""
_FRESH = frozenset(
    {
        *("zeros", "ones", "empty", "full", "zeros_like", "ones_like", "full_like", "empty_like"),
        *("array", "arange", "copy", "list", "dict"),
    }
)
"""Functions and methods that make an array or list of their own."""
_IMPURE = frozenset({"next", "print", "input", "open", "exec", "eval", "setattr", "delattr", "iter"})
_LONGEST = 16
"""Nodes of the syntax tree that an expression in place of a call has at most."""

Lookup = Callable[[str], "Function | None"]


def children(node: ast.AST) -> list[ast.AST]:
    """List the direct children of a node, without contexts."""
    found: list[ast.AST] = []
    for name in node._fields:
        value: Any = getattr(node, name, None)
        if isinstance(value, list):
            found += [v for v in value if isinstance(v, ast.AST)]  # pyright: ignore[reportUnknownVariableType]
        elif isinstance(value, ast.AST) and not isinstance(value, ast.expr_context):
            found.append(value)
    return found


def walk(node: ast.AST) -> Iterator[ast.AST]:
    """Yield a node and all below it, without contexts: `ast.walk`, three times as fast."""
    waiting = [node]
    while waiting:
        node = waiting.pop()
        yield node
        waiting += children(node)


def droppable(node: ast.AST, function: Lookup) -> bool:
    """Tell whether an expression may be left out because computing it has no effect."""
    for n in walk(node):
        if isinstance(n, ast.NamedExpr | ast.Yield | ast.Await):
            return False
        if isinstance(n, ast.Call) and not _has_no_effect(n, function):
            return False
    return True


def _has_no_effect(call: ast.Call, function: Lookup) -> bool:
    if any(k.arg == "out" for k in call.keywords):
        return False
    if isinstance(call.func, ast.Name):
        own = function(call.func.id)
        if own is not None:
            return not own.effects
        return hasattr(builtins, call.func.id) and call.func.id not in _IMPURE
    return isinstance(call.func, ast.Attribute) and call.func.attr not in MUTATORS | WRITERS


def fresh_names(node: ast.AST) -> set[str]:
    """Collect the variables that only ever hold lists and arrays made in this function."""
    made: dict[str, bool] = {}
    for n in walk(node):
        if isinstance(n, ast.Assign):
            for t in n.targets:
                for name in (x for x in walk(t) if isinstance(x, ast.Name) and isinstance(x.ctx, ast.Store)):
                    made[name.id] = made.get(name.id, True) and name is t and _is_fresh(n.value)
        elif isinstance(n, ast.For | ast.comprehension):
            made |= {x.id: False for x in walk(n.target) if isinstance(x, ast.Name)}
        elif isinstance(n, ast.arg):
            made[n.arg] = False
    return {name for name, fresh in made.items() if fresh}


def _is_fresh(value: ast.expr) -> bool:
    if isinstance(value, ast.List | ast.ListComp | ast.Dict | ast.BinOp | ast.Constant):
        return True
    if not isinstance(value, ast.Call):
        return False
    name = value.func.attr if isinstance(value.func, ast.Attribute) else getattr(value.func, "id", "")
    return name in _FRESH


def loads(node: ast.AST | None) -> set[str]:
    """Collect the names that an expression reads, without those that its comprehensions bind."""
    if node is None:
        return set()
    if isinstance(node, ast.Name):
        return {node.id}
    if isinstance(node, ast.ListComp | ast.SetComp | ast.GeneratorExp | ast.DictComp | ast.Lambda):
        inner = set[str]().union(*map(loads, children(node)))
        if isinstance(node, ast.Lambda):
            return inner - {a.arg for a in walk(node.args) if isinstance(a, ast.arg)}
        bound = {n.id for g in node.generators for n in walk(g.target) if isinstance(n, ast.Name)}
        return (inner - bound) | loads(node.generators[0].iter)
    below = children(node)
    return loads(below[0]) if len(below) == 1 else set[str]().union(*map(loads, below))


@dataclass
class Pruner:
    """Removes backwards what is not live.  `mask` gives the function that returns only some of a tuple's parts, and
    the arguments that are left."""

    function: Lookup
    mask: Callable[[ast.Call, tuple[bool, ...]], ast.Call | None]
    fresh: set[str]
    live: set[str] = field(default_factory=set[str])
    closures: dict[str, set[str]] = field(default_factory=dict[str, set[str]])  # inner function → what it reads
    leave: set[str] = field(default_factory=set[str])  # live where `break` goes
    again: set[str] = field(default_factory=set[str])  # live where `continue` goes

    def block(self, statements: list[ast.stmt]) -> list[ast.stmt]:
        """Remove dead statements. `live` says before the call what is live behind them, and then what is in front."""
        for s in statements:
            if isinstance(s, ast.FunctionDef):
                self.closures[s.name] = set[str]().union(*map(loads, s.body)) - _bound(s)
        done: list[ast.stmt] = []
        for s in reversed(statements):
            made = getattr(self, f"_{type(s).__name__}", self._other)(s)
            if made is not None:
                done.append(made)
        return self._direct(done[::-1])

    def _direct(self, statements: list[ast.stmt]) -> list[ast.stmt]:
        """Write `y = x + 1; return y` as `return x + 1`."""
        if len(statements) > 1 and isinstance(last := statements[-1], ast.Return) and isinstance(last.value, ast.Name):
            before = statements[-2]
            if (
                isinstance(before, ast.Assign)
                and isinstance(t := before.targets[0], ast.Name)
                and t.id == last.value.id
            ):
                return self._direct([*statements[:-2], ast.Return(before.value)])
        return statements

    def _read(self, *nodes: ast.AST | None) -> None:
        found = set[str]().union(*map(loads, nodes))
        waiting = list(found)
        while waiting:  # what an inner function reads is read where the function is
            new = self.closures.get(waiting.pop(), set()) - found
            found |= new
            waiting += new
        self.live |= found

    def _other(self, s: ast.stmt) -> ast.stmt:
        self._read(s)
        return s

    def _drops(self, node: ast.AST) -> bool:
        return droppable(node, self.function)

    def _Assign(self, s: ast.Assign) -> ast.stmt | None:
        target = s.targets[0]
        if isinstance(target, ast.Name):
            if target.id not in self.live:
                if self._drops(s.value):
                    return None
                self._read(s.value)
                return ast.Expr(s.value)
            self.live.discard(target.id)
            self._read(s.value)
            return s
        if isinstance(target, ast.Tuple):
            return self._unpacking(s, target)
        if self._is_dead(target) and self._drops(s.value):
            return None
        self._read(target, s.value)
        return s

    def _unpacking(self, s: ast.Assign, target: ast.Tuple) -> ast.stmt | None:
        names = {n.id for n in walk(target) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)}
        places = [t for t in target.elts if not isinstance(t, ast.Name | ast.Starred)]
        if not names & self.live and self._drops(s.value) and all(map(self._is_dead, places)):
            return None
        plain = all(isinstance(t, ast.Name) for t in target.elts)
        used = tuple(not isinstance(t, ast.Name) or t.id in self.live for t in target.elts)
        if plain and not all(used):
            shorter = self.mask(s.value, used) if isinstance(s.value, ast.Call) else None
            if shorter is not None:
                kept = [t for t, u in zip(target.elts, used, strict=True) if u]
                made = kept[0] if len(kept) == 1 else ast.Tuple(kept, ast.Store())
                return self._Assign(ast.Assign([made], shorter, lineno=0)) if kept else self._Expr(ast.Expr(shorter))
        self.live -= names
        self._read(s.value, *places)
        return s

    def _is_dead(self, target: ast.expr) -> bool:
        """Tell whether nothing behind reads a place in a list or array that this function made."""
        base = target.value if isinstance(target, ast.Subscript) else None
        return isinstance(base, ast.Name) and base.id in self.fresh and base.id not in self.live

    def _AugAssign(self, s: ast.AugAssign) -> ast.stmt | None:
        dead = s.target.id not in self.live if isinstance(s.target, ast.Name) else self._is_dead(s.target)
        if dead and self._drops(s.value) and (not isinstance(s.target, ast.Name) or s.target.id in self.fresh):
            return None
        self._read(s.target, s.value)
        return s

    def _Expr(self, s: ast.Expr) -> ast.stmt | None:
        call = s.value
        if self._drops(call):
            return None
        if isinstance(call, ast.Call) and isinstance(call.func, ast.Attribute) and not call.keywords:
            written = call.func.value if call.func.attr in MUTATORS else call.args[0] if call.args else call
            known = call.func.attr in MUTATORS | WRITERS
            dead = isinstance(written, ast.Name) and written.id in self.fresh and written.id not in self.live
            if known and dead and all(map(self._drops, call.args)):
                return None
        self._read(call)
        return s

    def _If(self, s: ast.If) -> ast.stmt | None:
        behind = set(self.live)
        body = self.block(s.body)
        after_body, self.live = self.live, set(behind)
        orelse = self.block(s.orelse)
        body = [b for b in body if not isinstance(b, ast.Pass)]
        if not body and not orelse and self._drops(s.test):
            self.live = behind
            return None
        self.live |= after_body
        self._read(s.test)
        if not body and orelse:
            return ast.If(_negated(s.test), orelse, [])
        return ast.If(s.test, body or [ast.Pass()], orelse)

    def _loop(self, statements: list[ast.stmt], over: ast.expr) -> list[ast.stmt]:
        outside = self.leave, self.again
        behind = set(self.live)
        self.leave = set(behind)
        while True:
            self.again = set(self.live)
            body = self.block(statements)
            self.live |= behind
            self._read(over)
            if self.live <= self.again:
                break
            self.live |= self.again
        self.leave, self.again = outside
        return [s for s in body if not isinstance(s, ast.Pass)]

    def _For(self, s: ast.For) -> ast.stmt | None:
        behind = set(self.live)
        orelse = self.block(s.orelse)
        body = self._loop(s.body, ast.Constant(None))
        if not orelse and self._drops(s.iter) and all(isinstance(b, ast.Continue) for b in body):
            self.live = behind
            return None
        self.live -= {n.id for n in walk(s.target) if isinstance(n, ast.Name)} - behind
        self._read(s.iter)
        return ast.For(s.target, s.iter, body or [ast.Pass()], orelse, lineno=0)

    def _While(self, s: ast.While) -> ast.stmt:
        orelse = self.block(s.orelse)
        return ast.While(s.test, self._loop(s.body, s.test) or [ast.Pass()], orelse)

    def _With(self, s: ast.With) -> ast.stmt | None:
        body = self.block(s.body)
        self._read(*(i.context_expr for i in s.items))
        return ast.With(s.items, body, lineno=0) if body else None

    def _Return(self, s: ast.Return) -> ast.stmt:
        self.live = set()
        self._read(s.value)
        return s

    def _Raise(self, s: ast.Raise) -> ast.stmt:
        self.live = set()
        self._read(s.exc)
        return s

    def _Break(self, s: ast.Break) -> ast.stmt:
        self.live = set(self.leave)
        return s

    def _Continue(self, s: ast.Continue) -> ast.stmt:
        self.live = set(self.again)
        return s

    def _Pass(self, s: ast.Pass) -> None:
        return None

    def _FunctionDef(self, s: ast.FunctionDef) -> ast.stmt | None:
        if s.name not in self.live:
            return None
        inner = Pruner(self.function, self.mask, self.fresh)
        body = inner.block(s.body)
        bound = _bound(s)
        self.closures[s.name] = inner.live - bound
        self.live.discard(s.name)
        self._read(*s.args.defaults)
        self.live |= inner.live - bound
        return ast.FunctionDef(s.name, s.args, body or [ast.Pass()], [], lineno=0)


def _bound(s: ast.FunctionDef) -> set[str]:
    """Collect the local variables of an inner function."""
    stored = {n.id for b in s.body for n in walk(b) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)}
    return stored | {a.arg for a in walk(s.args) if isinstance(a, ast.arg)}


def _negated(test: ast.expr) -> ast.expr:
    if isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not):
        return test.operand
    return ast.UnaryOp(ast.Not(), test)


def returns(statements: Iterable[ast.stmt]) -> list[ast.Return]:
    """List the return statements, without those of inner functions."""
    found: list[ast.Return] = []
    for s in statements:
        if isinstance(s, ast.Return):
            found.append(s)
        elif not isinstance(s, ast.FunctionDef):
            for block in ("body", "orelse"):
                found += returns(getattr(s, block, ()))
    return found


class Returning(ast.NodeTransformer):
    """Copies statements with the values of their returns replaced; inner functions stay."""

    def __init__(self, value: Callable[[ast.expr | None], ast.expr]) -> None:
        self.value = value

    def block(self, statements: list[ast.stmt]) -> list[ast.stmt]:
        return [self._statement(s) for s in statements]

    def _statement(self, s: ast.stmt) -> ast.stmt:
        if isinstance(s, ast.Return):
            return ast.Return(self.value(s.value))
        if isinstance(s, ast.FunctionDef) or not hasattr(s, "body"):
            return s
        made = copy.copy(s)
        for block in ("body", "orelse"):
            if hasattr(s, block):
                setattr(made, block, self.block(getattr(s, block)))
        return made


class _Substitution(ast.NodeTransformer):
    def __init__(self, texts: Mapping[str, ast.expr]) -> None:
        self.texts = texts

    def visit_Name(self, node: ast.Name) -> ast.expr:
        return self.texts.get(node.id, node)


def inlined(callee: Function, texts: Mapping[str, ast.expr]) -> ast.expr | None:
    """Inline a call of a short function. Returns None where the call stays."""
    only = callee.body[0] if len(callee.body) == 1 else None
    if not isinstance(only, ast.Return) or only.value is None:
        return None
    nodes = list(walk(only.value))
    if any(isinstance(n, ast.comprehension | ast.Lambda) for n in nodes):
        return None
    if _size(only.value) > _LONGEST:
        return None
    counts = [n.id for n in nodes if isinstance(n, ast.Name)]
    for name, text in texts.items():
        if counts.count(name) > 1 and not isinstance(text, ast.Name | ast.Constant):
            return None
    return _Substitution(texts).visit(copy.deepcopy(only.value))


def _size(node: ast.AST) -> int:
    """Count the nodes there are to read; a literal counts as one."""
    if isinstance(node, ast.Tuple | ast.List) and all(isinstance(n, ast.Constant) for n in _leaves(node)):
        return 1
    own = not isinstance(node, ast.expr_context | ast.operator | ast.keyword)
    return own + sum(map(_size, children(node)))


def _leaves(node: ast.AST) -> Iterator[ast.AST]:
    for n in children(node):
        if isinstance(n, ast.Tuple | ast.List):
            yield from _leaves(n)
        else:
            yield n
