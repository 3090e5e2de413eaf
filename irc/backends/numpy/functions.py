"""Standalone source of operations' references, specialised to the operation's attributes and operands.

`Library.operation(op, facts)` gives a function over arrays.  Its body is the `reference` method's, with everything
known when compiling (attributes, element types, ranks, tables) written as literals, branches on them decided, and the
functions it calls specialised in the same way.  Checks of the operands stay, as ValueErrors with irc's codes.
"""

from __future__ import annotations

import ast
import builtins
import dataclasses
import importlib
import inspect
import re
import types
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from irc.backends.numpy.expressions import Expressions
from irc.backends.numpy.facts import OTHER, Fact, Items, Known, common, key
from irc.backends.numpy.lines import wrapped
from irc.backends.numpy.literals import parsed
from irc.backends.numpy.source import NeedsStatement, NoSource, Source, module_value, parameters_of
from irc.backends.numpy.specialise import Specialiser
from irc.backends.numpy.text import PyName, docstring, snake
from irc.backends.numpy.tidy import Pruner, Returning, droppable, fresh_names, returns, walk
from irc.diagnostics import Problem
from irc.diagnostics.codes import runtime_io as codes
from irc.opdef.base import Op
from irc.opdef.elementwise import Elementwise

_TOKEN = re.compile(r"_function_\d+_")
"""What stands for the name of a function until it is written."""
_SHORT_HINT = 24


def operation_hint(op: Op) -> str:
    """Make a readable function name from the operation and the attributes that differ from their defaults."""
    parts = [snake(op.name)]
    for f in dataclasses.fields(op):
        value = getattr(op, f.name)
        if value == f.default or isinstance(value, np.ndarray):
            continue
        text = f"{f.name}" if value is True else f"{f.name}_{value}"
        if len(text) <= _SHORT_HINT:
            text = re.sub(r"-(?=\d)", "minus_", text)
            parts.append(re.sub(r"[^A-Za-z0-9]+", "_", text).strip("_"))
    name = "_".join(parts)
    return name if len(name) <= 60 else parts[0]


@dataclass(eq=False)
class Function:
    """A specialised function: its text is made when somebody writes a call of it."""

    token: str
    hint: str
    doc: str
    parameters: list[str]
    rest: str  # the name of *parameter, one of them
    defaults: Mapping[str, ast.expr]
    body: list[ast.stmt]
    result: Fact
    writes: bool  # into an operand
    local: set[str]
    effects: bool = False
    names: list[PyName] = field(default_factory=list[PyName])  # in the module; several where one is a caller's variable
    masks: dict[tuple[bool, ...], Function | None] = field(default_factory=dict[Any, Any])

    def name_node(self) -> ast.Name:
        return ast.Name(self.token, ast.Load())


@dataclass
class Library:
    """The functions, constants and imports of one emitted module, each once, in order of need."""

    texts: dict[PyName, str] = field(default_factory=dict[PyName, str])
    constants: dict[str, str] = field(default_factory=dict[str, str])  # name → assignment
    imports: dict[str, str] = field(default_factory=lambda: {"np": "import numpy as np"})
    taken: set[str] = field(default_factory=lambda: {"np", "ml_dtypes", "run", "main", "WEIGHTS", "weight"})
    _functions: dict[str, Function] = field(default_factory=dict[str, Function])  # by token
    _known: dict[Hashable, Function | None] = field(default_factory=dict[Hashable, Any])
    _constants: dict[Hashable, PyName] = field(default_factory=dict[Hashable, PyName])
    _names: dict[str, list[PyName]] = field(default_factory=dict[str, Any])  # text without its name → names
    _calls: dict[PyName, list[PyName]] = field(default_factory=dict[PyName, Any])
    _roots: list[PyName] = field(default_factory=list[PyName])
    _alive: list[Any] = field(default_factory=list[Any])  # what `key` tells apart by identity

    # ------------------------------------------------------------------ entrances
    def operation(self, op: Op, operands: Sequence[Fact], used: Sequence[bool] | None = None) -> Written:
        """Specialise an operation's reference for these operands. Raises IRC6360 where it cannot be written.

        used: which of several results are read; the function returns only these.
        """
        method: Any = type(op).reference
        first: list[Fact] = [Known(op)]
        if isinstance(op, Elementwise) and method is Elementwise.reference and isinstance(op.ufunc, types.FunctionType):
            method, first = op.ufunc, []  # of which `reference` is only a call
        try:
            facts, places = _by_parameter(method, [*first, *operands], len(first))
            made = self.function(method, facts, operation_hint(op), op.__doc__ or "")
            whole = True
            if used is not None and not all(used):
                masked = self.masked(made, tuple(used))
                made, whole = (made, True) if masked is None else (masked, False)
            name = self._write(made, set())
        except NoSource as e:
            raise Problem(codes.NO_NUMPY_SOURCE, op=op.name, reason=e) from e
        except ModuleNotFoundError as e:
            raise Problem(codes.NO_PACKAGE, user=op.name, package=e.name) from e
        if name not in self._roots:
            self._roots.append(name)
        arguments = [i for p in made.parameters for i in places.get(p, [])]
        return Written(name, arguments, made.result, whole)

    def text_function(self, name: PyName, text: str, calls: Sequence[PyName]) -> None:
        """Add a function whose text is already written."""
        self.texts[name], self._calls[name] = text, list(calls)
        self._roots.append(name)

    def ordered(self) -> list[str]:
        """List the texts of all functions that are called, callees after their callers."""
        done: dict[PyName, str] = {}

        def add(name: PyName) -> None:
            if name not in done:
                done[name] = self.texts[name]
                for callee in self._calls[name]:
                    add(callee)

        called = {c for name in self.texts for c in self._calls[name]}
        for name in [r for r in self._roots if r not in called] + self._roots:
            add(name)
        return list(done.values())

    def used_constants(self, functions: Sequence[str]) -> list[str]:
        """List the constants that these functions mention, and those that such constants mention."""
        waiting, used = list(functions), set[str]()
        while waiting:
            text = waiting.pop()
            new = {n for n in self.constants if n not in used and re.search(rf"\b{n}\b", text)}
            used |= new
            waiting += [self.constants[n] for n in new]
        return [text for name, text in self.constants.items() if name in used]

    def fresh(self, hint: str) -> PyName:
        """Reserve an unused name in the module."""
        return PyName.of_model(hint, self.taken)

    # ------------------------------------------------------------------- one function
    def function(
        self, function: Any, facts: Mapping[str, Fact], hint: str = "", doc: str = "", given: bool = True
    ) -> Function:
        """Specialise a function for what is known of its parameters.  given: every call passes all unknown ones."""
        at = (function, given, tuple((name, key(fact)) for name, fact in facts.items()))
        if at not in self._known:
            self._known[at] = None
            self._alive.append(facts)
            self._known[at] = self._made(function, facts, hint, doc, given)
        made = self._known[at]
        if made is None:
            raise NoSource(f"{function.__qualname__} calls itself")
        return made

    def _made(self, function: Any, facts: Mapping[str, Fact], hint: str, doc: str, given: bool) -> Function:
        source = Source.of(function)
        kept: set[str] = set()  # variables whose assignments stay, although their values are known
        while True:
            specialiser = Specialiser(self, source, facts, kept)
            try:
                body = specialiser.body(source.body)
                break
            except NeedsStatement as e:
                if e.name in kept:
                    raise
                kept.add(e.name)
        known = [n for n, fact in facts.items() if isinstance(fact, Known)]
        parameters = [n for n in source.parameters if n not in known]
        defaults = {} if given else source.defaults(parameters)
        hint = hint or _hint(function, facts)
        doc = doc or inspect.getdoc(function) or ""
        result = common(specialiser.results)
        writes = bool(source.mutated & set(source.parameters))
        made = Function("", hint, doc, parameters, source.rest, defaults, body, result, writes, source.local)
        return self._pruned(made, given)

    def _pruned(self, made: Function, given: bool = True) -> Function:
        """Remove what nothing reads from a function, and register it under a token of its own."""
        holder = ast.Module(made.body, [])
        pruner = Pruner(self._functions.get, self._shorter, fresh_names(holder) - set(made.parameters))
        made.body = pruner.block(made.body) or [ast.Pass()]
        unbound = (pruner.live & made.local) - set(made.parameters)
        if unbound:
            raise NoSource(f"{sorted(unbound)} of {made.hint} are read before they are set")
        if given:
            made.parameters = [p for p in made.parameters if p in pruner.live]
        made.token = f"_function_{len(self._functions)}_"
        made.effects = made.writes or any(self._is_effect(n, made) for s in made.body for n in walk(s))
        self._functions[made.token] = made
        return made

    def _is_effect(self, node: ast.AST, made: Function) -> bool:
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
            callee = self._functions.get(node.func.id)
            return node.func.id in made.parameters or (callee is not None and callee.effects)
        return isinstance(node, ast.Raise | ast.Assert)

    def masked(self, made: Function, used: tuple[bool, ...]) -> Function | None:
        """Make a variant that returns only the used parts of a tuple. Returns None if the result is no such tuple."""
        if used not in made.masks:
            made.masks[used] = self._masked(made, used)
        return made.masks[used]

    def _masked(self, made: Function, used: tuple[bool, ...]) -> Function | None:
        values = [r.value for r in returns(made.body)]

        def part(value: ast.expr | None) -> ast.expr:
            if isinstance(value, ast.Call):
                shorter = self._shorter(value, used)
                assert shorter is not None
                return shorter
            assert isinstance(value, ast.Tuple)
            kept = [e for e, u in zip(value.elts, used, strict=True) if u]
            return kept[0] if len(kept) == 1 else ast.Tuple(kept, ast.Load())

        for value in values:
            plain = isinstance(value, ast.Tuple) and not any(isinstance(e, ast.Starred) for e in value.elts)
            if not (plain and len(value.elts) == len(used)) and not (  # type: ignore[union-attr]
                isinstance(value, ast.Call) and self._shorter(value, used) is not None
            ):
                return None
        items = [f for f, u in zip(made.result.items, used, strict=True) if u] if isinstance(made.result, Items) else []
        result = OTHER if not items else items[0] if len(items) == 1 else Items(tuple(items))
        body = Returning(part).block(made.body)
        return self._pruned(dataclasses.replace(made, body=body, result=result, names=[], masks={}))

    def _shorter(self, call: ast.Call, used: tuple[bool, ...]) -> ast.Call | None:
        """Replace a call by one of the variant that returns only the used parts. Returns None if there is none."""
        callee = self._functions.get(call.func.id) if isinstance(call.func, ast.Name) else None
        made = None if callee is None or callee.rest or callee.defaults or call.keywords else self.masked(callee, used)
        if callee is None or made is None:
            return None
        pairs = zip(callee.parameters, call.args, strict=True)
        return ast.Call(made.name_node(), [a for p, a in pairs if p in made.parameters], [])

    # ------------------------------------------------------------------------- texts
    def _write(self, made: Function, avoid: set[str]) -> PyName:
        """Write a function into the module, once. Returns its name; `avoid`: the caller's variables."""
        for name in made.names:
            if name not in avoid:
                return name
        arguments = [ast.arg(p) for p in made.parameters if p != made.rest]
        vararg = ast.arg(made.rest) if made.rest in made.parameters else None
        optional = [made.defaults[p] for p in made.parameters if p in made.defaults]
        signature = ast.unparse(ast.arguments([], arguments, vararg, [], [], None, optional))
        body = ast.unparse(ast.Module(made.body, []))
        calls: list[PyName] = []

        def name_of(token: re.Match[str]) -> str:
            name = self._write(self._functions[token[0]], made.local)
            calls.append(name)
            return name

        text = f"({signature}):\n    {docstring(made.doc)}\n" + wrapped(_TOKEN.sub(name_of, body), "    ")
        for name in self._names.setdefault(text, []):
            if name not in avoid:
                made.names.append(name)
                return name
        name = PyName.of_model(made.hint, self.taken, avoid | made.local)
        self._names[text].append(name)
        made.names.append(name)
        self.texts[name], self._calls[name] = f"def {name}{text}", calls
        return name

    # ------------------------------------------------------------- names in expressions
    def of_value(self, value: Any) -> ast.expr | None:
        """Write a reference to a function, class or module. Returns None for other values."""
        if isinstance(value, types.ModuleType):
            return parsed(self.module(value))
        function = value.__func__ if isinstance(value, types.MethodType) else value
        if isinstance(function, types.FunctionType) and str(function.__module__).startswith("irc."):
            first = {next(iter(parameters_of(function))): Known(value.__self__)} if function is not value else {}
            return self.function(function, first, given=False).name_node()
        known = self._known_object(value)
        return None if known is None else parsed(known)

    def of_global(self, name: str, value: Any, owner: str) -> ast.expr:
        """Write a reference to a global of one of irc's modules that has no literal: a constant of the module."""
        at = (owner, name)
        if at not in self._constants:
            expression = module_value(owner, name)
            if expression is None:
                raise NoSource(f"{name} of {owner} is {type(value).__name__}, which has no source")
            outer = {**vars(builtins), **vars(importlib.import_module(owner))}
            writer = Expressions(self, outer, None, owner)
            build = getattr(writer, f"build_{type(expression).__name__}", writer.visit)
            text = ast.unparse(build(expression)[0])
            self._constants[at] = self.fresh(name)
            self.constants[self._constants[at]] = f"{self._constants[at]} = {text}"
        return ast.Name(self._constants[at], ast.Load())

    def _known_object(self, value: Any) -> str | None:
        """Name a function or class of NumPy, ml_dtypes, the built-ins or the standard library."""
        name, module = getattr(value, "__name__", None), getattr(value, "__module__", None)
        if name and vars(np).get(name) is value:
            return f"np.{name}"
        if name and getattr(builtins, name, None) is value:
            return str(name)
        top = str(module or "").split(".")[0]
        if top == "math":  # its names are common ones: never bare
            self.imports.setdefault("math", "import math")
            return f"math.{name}"
        if name and top == "numpy" and getattr(np.lib.stride_tricks, name, None) is value:
            return f"np.lib.stride_tricks.{name}"
        if name and top and top not in ("irc", "builtins", "numpy", "__main__") and callable(value):
            self.imports.setdefault(f"{module}.{name}", f"from {module} import {name}")
            return str(name)
        return None

    def module(self, module: types.ModuleType) -> str:
        """Import a module. Returns the name that it has in the text."""
        full = module.__name__
        if full == "numpy" or full.startswith("numpy."):
            return f"np{full[len('numpy') :]}"
        if full.split(".")[0] == "irc":
            raise NoSource(f"the module {full} is used as a value")
        self.imports.setdefault(full, f"import {full}")
        return full

    def is_droppable(self, node: ast.expr) -> bool:
        """Tell whether an expression may be left out because computing it has no effect."""
        return droppable(node, self._functions.get)

    def note(self, text: str) -> None:
        """Import what the text of a literal mentions."""
        if "ml_dtypes." in text:
            self.imports.setdefault("ml_dtypes", "import ml_dtypes")


@dataclass(frozen=True)
class Written:
    """A function of the module: which of the operands it takes, in order, and what is known of its result.

    whole: it returns all results, not only the used ones.
    """

    name: PyName
    operands: list[int]
    result: Fact
    whole: bool


def _by_parameter(method: Any, given: Sequence[Fact], bound: int) -> tuple[dict[str, Fact], dict[str, list[int]]]:
    """Bind the operands to the parameters. Returns each parameter's fact and the indices of its operands."""
    facts: dict[str, Fact] = {}
    places: dict[str, list[int]] = {}
    at = 0
    for name, p in parameters_of(method).items():
        if p.kind == p.VAR_POSITIONAL:
            facts[name] = Items(tuple(given[at:]))
            places[name] = list(range(at - bound, len(given) - bound))
            at = len(given)
        elif at < len(given):
            facts[name], places[name] = given[at], [at - bound]
            at += 1
        elif p.default is not p.empty:
            facts[name] = Known(p.default)
    return facts, places


def _hint(function: types.FunctionType, facts: Mapping[str, Fact]) -> str:
    name = function.__name__.strip("_") if function.__name__ != "<lambda>" else "function"
    holder = function.__qualname__.split(".")[-2:-1]
    method = bool(holder) and holder[0] != "<locals>" and "self" in facts
    return f"{snake(holder[0])}_{name}" if method else snake(name)
