# pyright: reportUnknownArgumentType=false, reportUnknownMemberType=false, reportUnknownVariableType=false
"""Specialising calls: irc's own functions become functions of the module, conversions to the type at hand fall away."""

from __future__ import annotations

import ast
import inspect
import types
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from irc.backends.numpy import arrays
from irc.backends.numpy.expressions import Expressions, Made
from irc.backends.numpy.facts import FLOAT, INT, OTHER, Array, Fact, Items, Known, Scalar, parts, sequence, widened
from irc.backends.numpy.pure import is_pure, safely
from irc.backends.numpy.source import parameters_of
from irc.backends.numpy.syntax import is_super
from irc.backends.numpy.tidy import inlined

_TYPED = {"astype", "asarray", "array", "zeros", "ones", "full", "empty", "arange", "frombuffer", "view"}
"""Functions and methods with a type among their arguments."""


@dataclass
class Arguments:
    """A call's arguments: texts with facts.

    loose: a text stands for several arguments; `several` are the facts of all, None where their number is not known.
    """

    plain: list[Made]
    named: dict[str, Made]
    rest: list[ast.keyword]  # **mappings
    loose: bool
    several: list[Fact] | None

    @property
    def facts(self) -> list[Fact]:
        return [f for _, f in self.plain]

    @property
    def named_facts(self) -> dict[str, Fact]:
        return {k: f for k, (_, f) in self.named.items()}


class Calls(Expressions):
    """Expressions with calls."""

    pending: list[ast.stmt]
    """Checks of arguments that no longer stand in any expression: they go before the statement."""

    def taken_pending(self) -> list[ast.stmt]:
        found, self.pending = self.pending, []
        return found

    def visit_Call(self, node: ast.Call, fold: bool = True) -> Made:
        func = node.func
        if isinstance(func, ast.Attribute) and not is_super(func.value):
            base, fact = self.visit(func.value)
            if not isinstance(fact, Known):
                return self._method(func.attr, base, fact, self._arguments(node))
        text, callee = self.visit(func)
        given = self._arguments(node)
        if not isinstance(callee, Known):
            return self._written_call(self.code(text, callee), given, ""), OTHER
        value = callee.value.__func__ if isinstance(callee.value, staticmethod) else callee.value
        if fold:
            found = self._folded(value, given)
            if found is not None:
                return node, found
        own, first = (value.__func__, value.__self__) if isinstance(value, types.MethodType) else (value, None)
        if isinstance(own, types.FunctionType) and own.__module__.startswith("irc."):
            return self._own(node, own, first, given, fold)
        return self._numpy(node, text, value, given)

    def build_Call(self, node: ast.Call) -> Made:
        return self.visit_Call(node, fold=False)

    # --------------------------------------------------------------------- arguments
    def _arguments(self, node: ast.Call) -> Arguments:
        made = Arguments([], {}, [], False, [])
        for n in node.args:
            if not isinstance(n, ast.Starred):
                made.plain.append(self.visit(n))
                if made.several is not None:
                    made.several.append(made.plain[-1][1])
                continue
            texts, facts = self._elements([n])
            made.several = None if facts is None or made.several is None else [*made.several, *facts]
            if facts is not None and len(facts) == len(texts) and not any(isinstance(t, ast.Starred) for t in texts):
                made.plain += list(zip(texts, facts, strict=True))
            elif texts:
                made.plain.append((texts[0], OTHER))
                made.loose = True
        for k in node.keywords:
            if k.arg is None:
                made.rest.append(ast.keyword(None, self.text(k.value)))
                made.loose = True
            else:
                made.named[k.arg] = self.visit(k.value)
        return made

    def _written_call(self, func: ast.expr, given: Arguments, name: str) -> ast.Call:
        plain = [self.code(*m, plain_type=name in _TYPED) for m in given.plain]
        named = [ast.keyword(k, self.code(*m, plain_type=k == "dtype")) for k, m in given.named.items()]
        return ast.Call(func, plain, [*named, *given.rest])

    # ------------------------------------------------------------------------ folding
    def _folded(self, function: Any, given: Arguments) -> Known | None:
        """Fold a call whose arguments are known. Returns None where it cannot be computed."""
        if given.loose or not is_pure(function):
            return None
        facts, named = given.facts, given.named_facts
        if function is len and facts and isinstance(facts[0], Items):
            return Known(len(facts[0].items))
        if function is isinstance and len(facts) == 2 and isinstance(facts[0], Array) and isinstance(facts[1], Known):
            return Known(False) if facts[1].value in (list, tuple, str, int, float) else None
        if not all(isinstance(f, Known) for f in (*facts, *named.values())):
            return None
        values = [f.value for f in facts if isinstance(f, Known)]
        return safely(lambda: function(*values, **{k: f.value for k, f in named.items() if isinstance(f, Known)}))

    def _numpy(self, node: ast.Call, text: ast.expr, function: Any, given: Arguments) -> Made:
        """Specialise a call of a function of NumPy or a built-in one."""
        facts = given.facts
        if len(facts) == 1 and not given.named and not given.loose:
            unchanged = (function is int and facts[0] == INT) or (function is float and facts[0] == FLOAT)
            if unchanged or (function in (tuple, list) and isinstance(facts[0], Items) and facts[0].kind is function):
                return given.plain[0]
        if function is np.asarray and facts and self._is_typed(given):
            return given.plain[0]
        made = self._written_call(self.code(text, Known(function)), given, getattr(function, "__name__", ""))
        if given.several is None or given.rest:
            return made, OTHER
        return made, self._result(function, given.several, given.named_facts)

    def _result(self, function: Any, facts: Sequence[Fact], named: Mapping[str, Fact]) -> Fact:
        if function in (tuple, list) and len(facts) == 1:
            inner = parts(facts[0])
            return OTHER if inner is None else sequence(inner, function) if function is list else Items(tuple(inner))
        if function is zip and set(named) <= {"strict"}:
            columns = [parts(f) for f in facts]
            known = [c for c in columns if c is not None]
            if len(known) == len(columns) and len({len(c) for c in known}) == 1:
                return Items(tuple(sequence(row, tuple) for row in zip(*known, strict=True)), list)
            return OTHER
        if function in (max, min, sum, abs) and facts and not named:
            inner = parts(facts[0]) if len(facts) == 1 else list(facts)
            return INT if inner and all(widened(f) == INT for f in inner) else OTHER
        return arrays.call(function, facts, named)

    def _is_typed(self, given: Arguments) -> bool:
        """Tell whether np.asarray(x) or np.asarray(x, type) is x."""
        node, x = given.plain[0]
        if not isinstance(x, Array) or set(given.named) - {"dtype"}:
            return False
        wanted = given.facts[1] if len(given.plain) > 1 else given.named_facts.get("dtype")
        if wanted is not None and not _same_type(wanted, x):
            return False
        return bool(x.rank) or (isinstance(node, ast.Name) and self.is_parameter(node.id))

    def is_parameter(self, name: str) -> bool:
        return self.source is not None and name in self.source.parameters

    def _method(self, name: str, base: ast.expr, fact: Fact, given: Arguments) -> Made:
        cast = name == "astype" and len(given.plain) == 1 and not given.named
        if cast and isinstance(fact, Array) and _same_type(given.facts[0], fact) and self._may_share(base):
            return base, fact
        func = ast.Attribute(self.code(base, fact), name, ast.Load())
        found = OTHER
        if isinstance(fact, Array) and given.loose and name in ("reshape", "transpose"):
            found = Array(fact.dtype)
        elif (isinstance(fact, Array) or name == "astype") and not given.loose:
            found = arrays.method(fact if isinstance(fact, Array) else Array(), name, given.facts, given.named_facts)
        return self._written_call(func, given, name), found

    def _may_share(self, node: ast.expr) -> bool:
        """Tell whether a value may stand in place of its copy: nothing is written, or the value is a new array."""
        fresh = isinstance(node, ast.BinOp | ast.Compare | ast.UnaryOp)
        return fresh or self.source is None or not self.source.writes

    # --------------------------------------------------------------------- own functions
    def _own(self, node: ast.Call, function: types.FunctionType, first: Any, given: Arguments, fold: bool) -> Made:
        """Specialise a call of one of irc's functions: what is known of the arguments becomes part of the callee."""
        plain = given.plain if first is None else [(ast.Constant(None), Known(first)), *given.plain]
        bound = None if given.loose else _bound(function, plain, given.named)
        if bound is None:
            facts: dict[str, Fact] = {} if first is None else {next(iter(parameters_of(function))): Known(first)}
            callee = self.library.function(function, facts, given=False)
            return self._written_call(callee.name_node(), given, ""), OTHER
        facts = {name: _passed(fact) for name, (_, fact) in bound.fixed.items()}
        if bound.rest_name:
            facts[bound.rest_name] = Items(tuple(_passed(f) for _, f in bound.rest))
        callee = self.library.function(function, facts)
        gone = [m for name, m in bound.fixed.items() if name not in callee.parameters]
        for text, fact in gone:
            if not isinstance(fact, Known) and not self.library.is_droppable(text):
                self.pending.append(ast.Expr(text))
        if fold and isinstance(callee.result, Known) and not callee.effects:
            return node, callee.result
        args: list[ast.expr] = []
        named: list[ast.keyword] = []
        texts: dict[str, ast.expr] = {}
        for name in callee.parameters:
            if name == bound.rest_name:
                args += [self.code(*m) for m in bound.rest]
            else:
                texts[name] = self.code(*bound.fixed[name])
                if parameters_of(function)[name].kind == inspect.Parameter.KEYWORD_ONLY:
                    named.append(ast.keyword(name, texts[name]))
                else:
                    args.append(texts[name])
        short = None if bound.rest_name else inlined(callee, texts)
        result = widened(callee.result) if isinstance(callee.result, Known) else callee.result
        return short or ast.Call(callee.name_node(), args, named), result


@dataclass
class _Bound:
    """Arguments by parameter, and those of *parameter `rest_name`."""

    fixed: dict[str, Made]
    rest_name: str
    rest: list[Made]


def _bound(function: types.FunctionType, plain: Sequence[Made], named: Mapping[str, Made]) -> _Bound | None:
    found = _Bound({}, "", [])
    waiting = list(plain)
    for name, p in parameters_of(function).items():
        if p.kind == p.VAR_KEYWORD:
            return None
        if p.kind == p.VAR_POSITIONAL:
            found.rest_name, found.rest, waiting = name, waiting, []
        elif p.kind != p.KEYWORD_ONLY and waiting:
            found.fixed[name] = waiting.pop(0)
        elif name in named:
            found.fixed[name] = named[name]
        elif p.default is not p.empty:
            found.fixed[name] = (ast.Constant(None), Known(p.default))
        else:
            return None
    return found if not waiting and set(named) <= set(found.fixed) else None


def _passed(fact: Fact) -> Fact:
    """Select what a callee may know of an argument: large data stay arguments."""
    if isinstance(fact, Known) and isinstance(fact.value, np.ndarray):
        return widened(fact)
    return widened(fact) if isinstance(fact, Scalar) else fact


def _same_type(wanted: Fact, x: Array) -> bool:
    if not isinstance(wanted, Known) or x.dtype is None or wanted.value is None:
        return False
    found = safely(lambda: np.dtype(wanted.value) == x.dtype)
    return found is not None and bool(found.value)
